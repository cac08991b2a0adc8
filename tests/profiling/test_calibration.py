"""Calibration: the law, its fit on made-up costs that are known exactly, its storage, and the grid on this device."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from s13lib.device import best_device
from s13lib.errors import InputError
from s13lib.kernels import KERNEL_FOR
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.calibrate import (
    Cell,
    OrderCheck,
    _launch_costs,
    calibrate,
    check_order,
    parameter_counts,
    prediction_grid,
    shape_of,
)
from s13lib.profiling.calibration import (
    Calibration,
    Prediction,
    _checked,
    check_storage,
    config_folder,
    find_calibration,
    fit_launches,
    fit_nonnegative,
    operations_of,
    store_calibration,
)
from s13lib.profiling.measure import MeasuredStep
from s13lib.simulator import MODELS, DTypes, Span, Timeline, Workload, step_kernels

KNOWN = Calibration(
    name="known", model="bard", device="made up", date="2026-01-01", contended=False, reference_us=1000.0,
    launch_base_us=1.0, launch_argument_us=0.5, launch_spread=0.1, graph_base_us=3.0, graph_node_us=0.01,
    latency_us=0.2, wait_us=2.0, graph_gap_us=0.1, floor_us=0.05, bandwidth=20_000.0, linear_rate=40_000.0,
    attention_rate=5_000.0, elementwise_rate=10_000.0,
)  # fmt: skip
BARD = MODELS["bard"]


def kernel(stage, name, work):
    return next(k for k in step_kernels(BARD, stage, work, DTypes(4, 4, 4)) if k.name == name)


def test_a_kernel_is_a_floor_and_each_operations_work_over_its_rate():
    work = Workload.decode(2, 50)
    o = kernel(15, "o", work)
    assert KNOWN.kernel_us(o, BARD, work) == pytest.approx(0.05 + max(64 * 64 * 4 / 20_000, 2 * 2 * 64 * 64 / 40_000))
    fused = kernel(4, "attention+o+add", work)
    attention, _, add = operations_of(fused, BARD, work)
    parts = attention.flops / 5_000 + add.activation_bytes / 10_000
    assert KNOWN.kernel_us(fused, BARD, work) == pytest.approx(KNOWN.kernel_us(o, BARD, work) + parts)


def test_a_step_is_the_launch_recurrence_over_those_costs():
    work, counts = Workload.decode(1, 64), parameter_counts()
    kernels = step_kernels(BARD, 15, work, DTypes(4, 4, 4))
    eager = KNOWN.step(BARD, 15, work, graph=False, parameters=counts)
    assert eager.host_us == pytest.approx(sum(KNOWN.launch_us(k, counts) for k in kernels))
    assert eager.device_us == pytest.approx(sum(KNOWN.kernel_us(k, BARD, work) for k in kernels))
    assert eager.step_us >= eager.naive_us + 2.0
    graph = KNOWN.step(BARD, 15, work, graph=True, parameters=counts)
    n = len(kernels)
    assert graph.host_us == pytest.approx(3.0 + 0.01 * n)
    assert graph.step_us == pytest.approx(graph.host_us + 0.2 + graph.device_us + (n - 1) * 0.1 + 2.0)
    assert counts["scale"] == 3
    assert KNOWN.launch_us(kernel(15, "o", work), counts) == 1.0 + 0.5 * 3


def test_fits_find_the_costs_that_made_the_data():
    base, argument = fit_launches([3, 4, 7, 10], [1.0 + 0.5 * n for n in (3, 4, 7, 10)])
    assert (base, argument) == (pytest.approx(1.0), pytest.approx(0.5))
    base, argument = fit_launches([3, 4, 7], [2.0, 1.9, 1.5])  # falls with the count: the slope is held at 0
    assert argument == 0
    assert base > 1.4
    features = np.random.default_rng(0).uniform(1, 5, (40, 3))
    assert fit_nonnegative(features, features @ [2.0, 0.0, 3.0]) == pytest.approx([2, 0, 3], abs=1e-9)


def test_storage(tmp_path, monkeypatch):
    monkeypatch.setenv("S13_CONFIG_DIR", str(tmp_path / "deep" / "er"))
    with pytest.raises(InputError, match="no calibration is stored on this machine yet: run s13 calibrate first"):
        find_calibration("known")
    path = store_calibration(KNOWN)
    store_calibration(replace(KNOWN, name="other", floor_us=1.0))
    assert path.parent == config_folder()
    check_storage()
    assert find_calibration("known") == KNOWN
    assert find_calibration("other").floor_us == 1.0
    with pytest.raises(InputError, match="calibration: unknown name 'knwon'; did you mean known"):
        find_calibration("knwon")
    assert [p.name for p in path.parent.iterdir()] == ["calibrations.json"]
    whole = {"known": KNOWN.__dict__}
    damaged = [
        {"known": KNOWN.__dict__ | change}
        for change in (
            {"bandwidth": 0}, {"floor_us": -1}, {"floor_us": float("nan")}, {"reference_us": "12"}, {"wait_us": True},
            {"contended": 1}, {"device": "a\nb"}, {"date": None}, {"latency_us": 10**400}, {"name": ""},
        )
    ]  # fmt: skip
    texts = [json.dumps(data) for data in [*damaged, {"a\nb": whole["known"]}]]
    for broken in ("{", "[]", '{"known": {"name": "known"}}', '{"known": 3}', "[" * 100_000, *texts):
        path.write_text(broken)
        with pytest.raises(InputError, match=r"cannot be used: .*; remove it and run s13 calibrate again") as error:
            find_calibration("known")
        assert "\n" not in str(error.value)
        with pytest.raises(InputError):
            check_storage()
        with pytest.raises(InputError):
            store_calibration(KNOWN)
        assert path.read_text() == broken


def step(host_us, device_us, step_us):
    timeline = Timeline((Span("l", 0, host_us, 0),), (Span("k", 0, device_us, 0),), "measured", "made up")
    return MeasuredStep(step_us, host_us, step_us, timeline)


def test_a_cell_compares_bottlenecks_and_knows_the_crossover():
    cell = Cell(
        1, 15, False, step(100, 50, 110), KNOWN.step(BARD, 15, Workload.decode(1, 64), False, parameter_counts())
    )
    assert cell.right_bottleneck
    assert not cell.near_crossover
    assert replace(cell, measured=step(100, 90, 110)).near_crossover
    assert not replace(cell, measured=step(50, 100, 110)).right_bottleneck
    assert cell.error == pytest.approx(cell.predicted.step_us / 110 - 1)
    order = OrderCheck(100, 101, 70)
    assert (order.recurrence_error, order.naive_error) == (pytest.approx(0.01), pytest.approx(0.3))


def test_a_broken_entry_is_named():
    for entry, words in (
        ({"floor_us": -1}, "floor_us of entry 'known' is -1 and must be a number of at least 0"),
        ({"bandwidth": 0}, "bandwidth of entry 'known' is 0 and must be a number above 0"),
        ({"device": ""}, "device of entry 'known' is '' and must be printable text"),
    ):
        with pytest.raises(ValueError, match=words):
            _checked("known", KNOWN.__dict__ | entry)


def test_a_folder_that_cannot_be_written_is_known_before(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("S13_CONFIG_DIR", str(tmp_path / "file" / "folder"))
    with pytest.raises(InputError, match=r"folder cannot be written: "):
        check_storage()


def test_which_device_a_calibration_is_of():
    here = "SoftGPU on X, 2 usable processors"
    for text in (here, f"{here}, not contended", f"{here}, contended (a busy thread got 40% of one): times may"):
        assert replace(KNOWN, device=text).is_of(here)
    assert not replace(KNOWN, device="SoftGPU on X, 24 usable processors, not contended").is_of(here)
    assert replace(KNOWN, device="SoftGPU on X, 1 usable processor: results are right").one_processor
    assert not replace(KNOWN, device=here).one_processor


def test_launch_costs_are_a_line_in_the_number_of_arguments():
    """Of launches whose costs are known: 1 + 0.5 a parameter, and a third of them 20 % dearer."""
    counts = parameter_counts()
    kernels = step_kernels(BARD, 15, Workload.decode(1, 64), DTypes(4, 4, 4))
    exact = [1 + 0.5 * counts[KERNEL_FOR[k.operations]] for k in kernels]
    # Every third launch of each argument count.
    dearer = [c * (1.2 if exact[:i].count(c) % 3 == 2 else 1) for i, c in enumerate(exact)]
    for costs, spread in ((exact, 0.0), (dearer, 0.2)):
        starts = np.concatenate([[0], np.cumsum(costs)])
        host = tuple(Span("l", float(a), float(b - a), i) for i, (a, b) in enumerate(pairwise(starts)))
        measured = MeasuredStep(sum(costs), sum(costs), sum(costs), Timeline(host, (), "measured", "made up"))
        base, argument, found = _launch_costs(measured, BARD, 64)
        scale = sum(costs) / sum(exact)  # the host's total is kept
        assert (base, argument) == (pytest.approx(scale), pytest.approx(0.5 * scale))
        assert found == pytest.approx(spread)


def test_an_interval_is_as_wide_as_launches_spread_and_on_a_contended_machine_as_the_repeats():
    noisy = MeasuredStep(100, 50, 140, step(1, 1, 1).timeline)
    cell = Cell(1, 15, False, noisy, Prediction(200, 150, 100))
    assert cell.interval_us(KNOWN, contended=False) == pytest.approx((180, 220))
    assert cell.interval_us(KNOWN, contended=True) == pytest.approx((120, 280))
    assert cell.interval_us(replace(KNOWN, launch_spread=3.0), contended=True)[0] == 0


def test_this_device_can_be_calibrated_and_predicted():
    """Values are of the right kind; how close they come is the benchmark's and the command's business."""
    device, bard = best_device(), load_checkpoint("bard")
    found = calibrate(bard, device, "here", repeats=3, seconds=0)
    assert found.launch_base_us + 3 * found.launch_argument_us > 0.2
    assert found.graph_base_us > 0
    assert found.floor_us > 0
    assert min(found.bandwidth, found.linear_rate, found.attention_rate, found.elementwise_rate) > 1
    json.dumps(found.__dict__)
    cells, reference = prediction_grid(found, bard, device, batches=(1, 2), stages=(4,), repeats=2, seconds=0)
    assert reference.launches == 15 * 32 + 3  # measured though it is no cell
    assert {(c.batch, c.stage, c.graph) for c in cells} == {(b, s, g) for b in (1, 2) for s in (4,) for g in (0, 1)}
    for cell in cells:
        assert cell.measured.kernels == cell.stage * 32 + 3
        assert cell.measured.launches == (1 if cell.graph else cell.measured.kernels)
        assert cell.predicted.step_us > 0
    assert check_order(device, launches=20, repeats=3).measured_us > 0
    assert shape_of(bard.config, "bard").q_width == 64
