"""Runners on the CUDA device, over the fake of torch.cuda and kernels by the reference: what our own logic does."""

import random

import pytest
import torch

from s13lib.buckets import BucketLayout
from s13lib.errors import InputError
from s13lib.graphs import PADDINGS, BucketedRunner, GraphRunner
from s13lib.graphs.scenario import run_scenario
from s13lib.model import DecodeBatch, DecoderModel, DecoderWeights, Sequence, generate, stages_of
from s13lib.model.weights import RandomState
from tests.graphs.test_runner import TWO_LAYERS, fill_cache, random_batch
from tests.model.decoders import decoder_model


def model_on(device, stage=5, **options):
    return decoder_model(TWO_LAYERS, stage, device, **({"blocks": 24, "block_size": 8, "max_rows": 16} | options))


@pytest.mark.parametrize("stage", ["torch", 7, 5])
def test_each_stage_of_cuda_says_what_softgpu_says(device, cuda_device, stage):
    ours, theirs = model_on(cuda_device, stage), model_on(device, 15)
    rng = random.Random(0)
    for model in (ours, theirs):
        fill_cache(model)
    for rows in (1, 3, 8):
        batch = random_batch(theirs, rows, rng)
        torch.testing.assert_close(ours.forward(batch), theirs.forward(batch), rtol=2e-5, atol=2e-5)
    for mine, other in zip(ours.cache.k + ours.cache.v, theirs.cache.k + theirs.cache.v, strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-5, atol=2e-5)
    told = [generate(model, [[1, 2, 3], [4]], 6) for model in (ours, theirs)]
    assert told[0] == told[1]


def test_a_prefill_at_stage_torch_sees_its_own_rows(device, cuda_device):
    ours, theirs = model_on(cuda_device, "torch"), model_on(device, 15)
    prompt = [1 + i % 11 for i in range(21)]  # longer than max_rows: in two pieces
    logits = [model.prefill(Sequence(), prompt) for model in (ours, theirs)]
    torch.testing.assert_close(*logits, rtol=2e-5, atol=2e-5)


def test_stages_are_those_of_the_device(device, cuda_device):
    assert stages_of(cuda_device) == ("torch", 7, 5)
    assert model_on(cuda_device, None).stage == "torch"
    assert model_on(device, None).stage == 15
    with pytest.raises(InputError) as error:
        model_on(cuda_device, 4)
    assert str(error.value) == (
        "stage is 4: must be one of torch, 7, 5 on CUDA; 15, 11, 9, 7, 5, 4 on SoftGPU (S13_DEVICE=softgpu)."
    )
    with pytest.raises(
        InputError, match=r"^stage is 'torch': must be one of 15, .* on SoftGPU; torch, 7, 5 on CUDA \("
    ):
        model_on(device, "torch")


def test_an_index_out_of_range_is_refused_before_pytorch_sees_it(cuda_device):
    model = model_on(cuda_device, "torch")
    sequence = Sequence()
    for tokens, sentence in (([99], "input_ids is 99: must be 0 to 12"), ([-1], "input_ids is -1: must be 0 to 12")):
        with pytest.raises(InputError, match=sentence):
            model.prefill(sequence, tokens)
        assert (sequence.length, sequence.blocks) == (0, [])
    model.prefill(sequence, [1, 2])
    runner = GraphRunner(model, 2)
    batch = model.next_batch([sequence], [3])
    batch.slot_mapping[0] = 10_000
    with pytest.raises(InputError, match="slot_mapping is 10000: must be -1 to 199"):
        runner.run(batch)


def test_a_steps_launches_are_bound_once_and_again_when_what_they_point_at_changes(fake, cuda_device):
    model = model_on(cuda_device)
    sequences = [Sequence(str(i)) for i in range(2)]
    for sequence in sequences:
        model.prefill(sequence, [1])
    kernels = 1 + 5 * TWO_LAYERS.layers + 2  # embedding, layers, final norm and head
    fake.bound.clear()
    fake.launched.clear()
    logits = [model.decode(sequences, [2, 3]) for _ in range(3)]
    assert (len(fake.bound), len(fake.launched)) == (kernels, 3 * kernels)
    assert not torch.equal(logits[0], logits[2])  # the context grew
    model.weights = decoder_model(TWO_LAYERS, 5, cuda_device, blocks=1, block_size=8).weights
    model.decode(sequences, [2, 3])
    assert len(fake.bound) == 2 * kernels
    model.decode(sequences[:1], [2])
    assert len(fake.bound) == 3 * kernels


def test_a_step_keeps_the_residual_wide_and_the_rest_as_the_weights_are(cuda_device):
    config = TWO_LAYERS
    weights = DecoderWeights.from_state_dict(
        config, RandomState(config, cuda_device), cuda_device, progress=False, dtype=torch.float16
    )
    model = DecoderModel(config, weights, 5, cuda_device, blocks=4, block_size=8, max_rows=4)
    model.prefill(Sequence(), [1, 2])
    _, buffers = model.eager_buffers(2)
    dtypes = {name: getattr(buffers, name).dtype for name in ("x", "delta", "logits", "q", "mixed", "gated", "normed")}
    wide = dict.fromkeys(("x", "delta", "logits"), torch.float32)
    assert dtypes == wide | dict.fromkeys(("q", "mixed", "gated", "normed"), torch.float16)
    assert {tensor.dtype for tensor in model.cache.k + model.cache.v} == {torch.float16}
    assert {weights.embedding.dtype, weights.layers[0].o.dtype} == {torch.float16}
    assert {weights.final_norm.dtype, weights.layers[0].norm.dtype} == {torch.float32}


def test_random_weights_do_not_depend_on_what_was_read_before(cuda_device):
    first, second = (RandomState(TWO_LAYERS, cuda_device, seed=3) for _ in range(2))
    name = "model.layers.1.mlp.down_proj.weight"
    _ = first["model.embed_tokens.weight"]
    assert torch.equal(first[name], second[name])
    assert not torch.equal(first[name], RandomState(TWO_LAYERS, cuda_device, seed=4)[name])
    assert first[name].std().item() == pytest.approx(TWO_LAYERS.ffn**-0.5, rel=0.2)


def test_a_runner_warms_up_on_the_side_stream_and_then_captures_on_it(fake, cuda_device):
    runner = GraphRunner(model_on(cuda_device), 4)
    order = [line for line in fake.log if "waits" in line or "capture" in line or "instantiate" in line]
    assert order == [
        "side waits for default",
        "default waits for side",
        "capture begins on side, pool (0, 1)",
        "capture ends",
        "instantiate",
    ]
    assert runner.graph.node_count == 1 + 5 * TWO_LAYERS.layers + 2


def test_buckets_are_captured_largest_first_into_one_pool(fake, cuda_device):
    runner = BucketedRunner(model_on(cuda_device), [1, 8, 4], progress=False)
    assert [line for line in fake.log if "begins" in line] == ["capture begins on side, pool (0, 1)"] * 3
    assert list(runner.runners) == [8, 4, 1]
    fake.segments[:] = [{"total_size": 1234, "segment_pool_id": (0, 1)}]
    assert runner.pool_bytes == 1234


def test_replay_is_eager_bit_for_bit_and_takes_the_changed_values(fake, cuda_device):
    model = model_on(cuda_device)
    fill_cache(model)
    runner, rng = BucketedRunner(model, [1, 2, 4, 8], progress=False), random.Random(1)
    for rows in (8, 3, 1, 5, 2):
        batch = random_batch(model, rows, rng)
        fake.log.clear()
        replayed = runner.forward(batch)
        assert [line for line in fake.log if "replay" in line] == ["replay on default"]
        kept = replayed.clone()
        one = runner.runners[runner.layout.pick(rows)]
        one.launch_eager()
        assert torch.equal(one.logits[:rows], replayed)
        runner.forward(random_batch(model, rows, rng))
        assert torch.equal(kept, replayed)  # a copy, not the static buffer


def test_a_rebound_input_and_replaced_weights_are_refused(cuda_device):
    model = model_on(cuda_device)
    runner = GraphRunner(model, 2)
    batch = random_batch(model, 2, random.Random(0))
    runner.run(batch)
    model.weights = decoder_model(TWO_LAYERS, 5, cuda_device, blocks=1, block_size=8).weights
    with pytest.raises(InputError, match="the model's weights were replaced after the capture"):
        runner.run(batch)
    runner = GraphRunner(model, 2)
    runner.inputs = DecodeBatch(*(tensor.clone() for tensor in runner.inputs.tensors()))
    with pytest.raises(InputError, match="static input input_ids was re-allocated"):
        runner.run(batch)


@pytest.mark.parametrize("policy", list(PADDINGS))
def test_the_padding_scenario_sees_the_same_as_on_softgpu(device, cuda_device, policy):
    prompts = [[1 + i % 7, 2, 3] for i in range(24)]
    found = []
    for where in (cuda_device, device):
        model = decoder_model(TWO_LAYERS, 5, where, blocks=80, block_size=8, max_rows=64)
        result = run_scenario(model, prompts, BucketLayout([4, 8, 12]), policy, seed=1, max_batch=12, tokens=(4, 16))
        # Not the bytes: PyTorch's matrix products, which stand for the kernels here, round differently by batch size.
        found.append([(r.n, r.bucket, [str(v) for v in r.violations]) for r in result.steps])
    assert found[0] == found[1]
    assert any(violations for *_, violations in found[0]) is (policy in ("stale", "naive"))
