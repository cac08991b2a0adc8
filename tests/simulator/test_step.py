"""The modelled step: the lesson's own numbers, the physical model behind them, sweep and crossover."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.simulator import (
    GPU,
    GPUS,
    MODELS,
    PRESETS,
    LaunchCosts,
    Setup,
    crossover,
    simulate,
    simulate_timeline,
    step_time_curve,
    step_us,
    sweep,
)

SEED = PRESETS["seed"]
PHYSICAL = PRESETS["smollm2-360m-h100"]


def test_seed_starts_with_the_lessons_read_outs():
    report = simulate(SEED)
    assert report.kernels_per_step == 288
    assert f"{report.host_us / 1000:.2f}" == "1.73"
    assert f"{report.device_us / 1000:.2f}" == "0.89"
    assert f"{report.step_us / 1000:.2f}" == "1.73"
    assert report.step_us == pytest.approx(1731.1)
    assert f"{report.utilization:.0%}" == "52%"
    assert report.bottleneck == "host"
    assert report.speedup == 1.0


def test_seed_with_the_texts_eleven_kernels():
    report = simulate(replace(SEED, stage=11))
    assert report.kernels_per_step == 352
    assert f"{report.host_us / 1000:.2f}" == "2.11"


def test_seed_crosses_over_at_30_and_is_device_bound_at_128():
    assert crossover(SEED) == 30
    bounds = {r.setup.batch: r.bottleneck for r in sweep(SEED, [29, 30, 128])}
    assert bounds == {29: "host", 30: "device", 128: "device"}


@pytest.mark.parametrize("setup", [SEED, PHYSICAL], ids=["seed", "physical"])
@pytest.mark.parametrize(
    ("stage", "graph", "speedup", "bottleneck"),
    [(4, False, "2.2", "host"), (9, True, "1.9", "device"), (4, True, "3.0", "device")],
)
def test_the_two_toggles_flip_the_bottleneck(setup, stage, graph, speedup, bottleneck):
    report = simulate(replace(setup, stage=stage, graph=graph))
    assert f"{report.speedup:.1f}" == speedup
    assert report.bottleneck == bottleneck


def test_smollm2_360m_on_an_h100():
    assert simulate(PHYSICAL).device_us == pytest.approx(893.0, abs=0.05)
    with_head = simulate(replace(PHYSICAL, parts=("layers", "lm_head")))
    assert with_head.device_us == pytest.approx(940.8, abs=0.1)


@pytest.mark.parametrize(("context", "closes"), [(128, False), (287, False), (288, True), (512, True)])
def test_whether_the_gaps_close_at_batch_128_depends_on_the_context(context, closes):
    report = simulate(replace(PHYSICAL, batch=128, context=context))
    assert (report.device_us >= report.host_us) is closes
    if context == 288:
        assert report.device_us == pytest.approx(1729.4, abs=0.05)


def test_useful_shares_are_bytes_and_flops_over_the_peaks():
    report = simulate(Setup())
    kernels = report.setup.kernels()
    seconds = report.step_us * 1e-6
    assert report.bandwidth_share == pytest.approx(sum(k.bytes_moved for k in kernels) / seconds / 3.35e12)
    assert report.flop_share == pytest.approx(sum(k.flops for k in kernels) / seconds / 989e12)
    assert simulate(SEED).bandwidth_share is None


def test_kernel_time_is_a_floor_plus_the_slower_of_memory_and_arithmetic():
    gpu = GPU("round", 1.0, 1.0, efficiency=0.5, floor_us=2.0)
    assert gpu.kernel_us(1e6, 0) == pytest.approx(4.0)
    assert gpu.kernel_us(0, 0.6e6) == pytest.approx(3.0)
    assert gpu.kernel_us(1e6, 0.6e6) == pytest.approx(4.0)


def test_a_replay_pays_host_once_and_the_device_boundary_at_every_node():
    costs = LaunchCosts(graph_base_us=5, graph_node_us=0.5, graph_gap_us=1.3, latency_us=2)
    setup = replace(SEED, graph=True, costs=costs)
    timeline = simulate_timeline(setup)
    assert len(timeline.host) == 1
    assert timeline.host_us == 5 + 0.5 * 288
    assert timeline.step_us == pytest.approx(5 + 0.5 * 288 + 2 + 892.8 + 287 * 1.3)
    assert {s.correlation for s in timeline.device} == {0}


def test_prefill_hides_its_launches_when_it_is_long_and_not_when_it_is_short():
    assert simulate(replace(Setup(), prefill=128)).bottleneck == "host"
    assert simulate(replace(Setup(), prefill=2048)).bottleneck == "device"


def test_step_time_curve_is_the_step_time_of_each_batch():
    replay, eager = step_time_curve(PHYSICAL, 5)
    assert replay[0] == eager[0] == 0.0
    assert replay[3] == step_us(replace(PHYSICAL, batch=3, graph=True))
    assert eager[5] == step_us(replace(PHYSICAL, batch=5))
    long, _ = step_time_curve(SEED, 600)
    assert len(long) == 601
    for batch in (512, 528, 530, 600):  # the seed's law is linear, so interpolation is exact
        assert long[batch] == pytest.approx(step_us(replace(SEED, batch=batch, graph=True)))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 60), st.sampled_from([15, 11, 9, 7, 5, 4]), st.booleans(), st.sampled_from(sorted(MODELS)))
def test_crossover_is_the_first_batch_of_a_linear_search(launch_us, stage, graph, model):
    setup = Setup(MODELS[model], stage=stage, graph=graph, costs=LaunchCosts(launch_us=launch_us))
    found = crossover(setup, limit=64)
    bound = [r.setup.batch for r in sweep(setup, range(1, 65)) if r.bottleneck == "device"]
    assert found == (bound[0] if bound else None)


def test_every_gpu_and_model_of_the_tables_gives_a_finite_step():
    for gpu in GPUS.values():
        for shape in MODELS.values():
            assert gpu.source
            assert shape.source
            assert 0 < step_us(Setup(shape, gpu)) < 1e6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Setup(batch=-1), "batch is -1"),
        (lambda: Setup(stage=10), "stage is 10"),
        (lambda: replace(SEED, prefill=5), "prefill is 5: must be left out with the seed's law"),
        (lambda: GPU("x", 0, 1), "gpu bandwidth_tb_s is 0: must be from 0.000001 to 1,000,000."),
        (lambda: GPU("x", 1, 1, efficiency=1.5), "gpu efficiency is 1.5: must be from 0.001 to 1."),
        (lambda: GPU("x", 1, 1, floor_us=float("nan")), "gpu floor_us is nan"),
        (lambda: GPU("x", float("nan"), 1), "gpu bandwidth_tb_s is nan"),
        (lambda: crossover(SEED, 0), "limit is 0"),
        (lambda: step_time_curve(SEED, 0), "max_batch is 0"),
        (lambda: Setup(batch=10**400), "…00000000: must be a whole number from 1 to 1,000,000."),
        (lambda: Setup(batch=10**6000), "batch is a number of about 6,000 digits: must be"),
        (
            lambda: replace(SEED, parts=("embedding",)),
            "parts is ('embedding',): must be ('layers',) with the seed's law",
        ),
        (lambda: GPU("x", float("inf"), 1), "gpu bandwidth_tb_s is inf"),
        (lambda: crossover(replace(Setup(), prefill=5)), "leave prefill out"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert message in str(error.value)
