"""The decoder at every stage: the kernels that it launches, its logits, and what batching may not change."""

import copy
import random

import pytest
import torch

from s13lib.device import DeviceError
from s13lib.errors import InputError
from s13lib.kernels import KERNEL_FOR
from s13lib.model import DecodeBatch, DecoderWeights, Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.model.stages import kernels_of
from s13lib.simulator import MODELS, ModelShape, Workload, step_kernels
from tests.model.decoders import STAGES, decoder_model, small_config, textbook


def launched_kernels(model, rows=1, **options):
    """The kernels of a step, seen by capturing it."""
    inputs, buffers = model.eager_buffers(rows)
    logits = buffers.logits
    with model.device.graph() as graph:
        model.launch_step(inputs, logits, **options)
    return [node.kernel for node in graph.nodes]


@pytest.mark.parametrize("stage", STAGES)
def test_a_step_launches_the_simulators_kernels_layer_by_layer(device, stage):
    config = small_config()
    shape = ModelShape(
        "same", config.layers, config.hidden, config.ffn, config.heads, config.kv_heads, config.head_dim, 31
    )
    expected = [KERNEL_FOR[k.operations] for k in step_kernels(shape, stage, Workload.decode(1, 1))]
    assert launched_kernels(decoder_model(config, stage, device, blocks=4)) == expected
    assert set(kernels_of(stage)) == set(expected)


def errors(logits, truth):
    return (logits.double() - truth).abs().max().item()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("stage", STAGES)
def test_logits_are_the_references_over_200_teacher_forced_tokens(device, stage, tied):
    """Bound: 8 times what plain float32 itself errs on these tokens, measured against float64 in the same run.

    Every stage evaluates the same expression in float32 with sums in another order; the errors of two orders have the
    same size, and 8 leaves room for the unlucky one. The argmax must agree wherever the truth's top two differ by more
    than twice the bound.
    """
    config = small_config(tied=tied)
    rng = torch.Generator().manual_seed(stage)
    tokens = torch.randint(0, config.vocab, (1, 230), generator=rng)
    single = textbook(config)
    truth = copy.deepcopy(single).double()(tokens)[0]
    bound = 8 * errors(single(tokens)[0], truth)
    model, sequence = decoder_model(config, stage, device), Sequence()
    rows = [model.prefill(sequence, tokens[0, :17].tolist())]
    rows += [model.decode([sequence], [int(token)])[0] for token in tokens[0, 17:]]
    ours, truth = torch.stack(rows), truth[16:]
    assert errors(ours, truth) <= bound
    top = truth.topk(2).values
    decided = top[:, 0] - top[:, 1] > 2 * bound
    assert decided.float().mean() > 0.95
    assert torch.equal(ours.argmax(-1)[decided], truth.argmax(-1)[decided])


@pytest.mark.parametrize("stage", STAGES)
def test_a_mixed_batch_gives_each_request_bit_for_bit_what_it_gets_alone(device, stage):
    config = small_config()
    model = decoder_model(config, stage, device, blocks=200, block_size=8)
    rng = random.Random(stage)
    prompts = [[rng.randrange(config.vocab) for _ in range(n)] for n in (1, 3, 8, 9, 31, 64, 100, 2, 7, 16, 55)]
    follow = [[rng.randrange(config.vocab) for _ in range(6)] for _ in prompts]

    alone = []
    for prompt, tokens in zip(prompts, follow, strict=True):
        sequence = Sequence()
        logits = [model.prefill(sequence, prompt)]
        logits += [model.decode([sequence], [token])[0] for token in tokens]
        alone.append(torch.stack(logits))
        model.cache.release(sequence)

    together = [Sequence() for _ in prompts]
    logits = [[model.prefill(s, p)] for s, p in zip(together, prompts, strict=True)]
    for step in range(6):
        order = rng.sample(range(len(prompts)), len(prompts))
        out = model.decode([together[i] for i in order], [follow[i][step] for i in order])
        for row, i in enumerate(order):
            logits[i].append(out[row])
    for mine, theirs in zip(logits, alone, strict=True):
        assert torch.equal(torch.stack(mine), theirs)


@pytest.mark.parametrize("stage", STAGES)
def test_prefill_in_pieces_changes_no_bit(device, stage):
    config = small_config()
    prompt = [(7 * i) % config.vocab for i in range(75)]
    whole = decoder_model(config, stage, device, max_rows=128).prefill(Sequence(), prompt)
    pieces = decoder_model(config, stage, device, max_rows=16)
    sequence = Sequence()
    assert torch.equal(pieces.prefill(sequence, prompt), whole)
    assert sequence.length == 75


def test_a_returned_tensor_is_not_overwritten_by_the_next_step(device):
    model, sequence = decoder_model(small_config(), 4, device), Sequence()
    first = model.prefill(sequence, [1, 2, 3])
    kept = first.clone()
    second = model.decode([sequence], [4])
    assert torch.equal(first, kept)
    assert not torch.equal(second[0], kept)


@pytest.mark.parametrize("stage", STAGES)
def test_a_bad_row_is_told_and_touches_nothing_of_another(device, stage):
    config = small_config()
    model, good = decoder_model(config, stage, device, blocks=4), Sequence()
    expected = model.prefill(good, [1, 2, 3])
    model.cache.release(good)
    batch = DecodeBatch.of(model.cache, [])
    model.cache.extend(good, 3)
    before = [cache.clone() for cache in model.cache.k + model.cache.v]
    batch = DecodeBatch.of(model.cache, [(1, good, 0), (2, good, 1), (3, good, 2)])
    batch.slot_mapping[1] = 5 * 16  # one past the scratch block
    with pytest.raises(DeviceError, match="slot 80 is out of range; the write was skipped"):
        model.forward(batch)
    block = good.blocks[0]
    for cache, old in zip(model.cache.k + model.cache.v, before, strict=True):
        assert torch.equal(cache[block, 1], old[block, 1])
        assert torch.equal(cache[block + 1 :], old[block + 1 :])
    batch.slot_mapping[1] = block * 16 + 1
    assert torch.equal(model.forward(batch)[-1], expected)


def test_replaced_weights_are_used_by_the_next_eager_step(device):
    config = small_config()
    model = decoder_model(config, 4, device)
    before = model.prefill(Sequence(), [1, 2])
    generation = model.weights_generation
    other = textbook(config, seed=1)
    model.weights = DecoderWeights.from_state_dict(config, other.state_dict(), device, progress=False)
    after = model.prefill(Sequence(), [1, 2])
    assert model.weights_generation == generation + 1
    assert not torch.equal(before, after)
    assert errors(after, other(torch.tensor([[1, 2]]))[0, -1].double()) < 1e-4


def test_a_model_that_is_gone_gives_its_memory_back(device):
    import gc

    config = small_config()
    decoder_model(config, 4, device).prefill(Sequence(), [1])
    gc.collect()
    before = device.allocated_bytes
    model = decoder_model(config, 4, device)
    model.prefill(Sequence(), [1, 2])
    assert device.allocated_bytes > before
    del model
    gc.collect()
    device.synchronize()
    assert device.allocated_bytes == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: decoder_model(small_config(), 6, d), "stage is 6: must be one of 15, 11, 9, 7, 5, 4 on SoftGPU."),
        (lambda d: decoder_model(small_config(), 4, d, max_rows=0), "max_rows is 0: must be a whole number"),
        (lambda d: decoder_model(small_config(), 4, d, blocks=0), "blocks is 0: must be a whole number"),
        (lambda d: decoder_model(small_config(), 4, d).prefill(Sequence(), []), "tokens is []: must be at least one"),
        (
            lambda d: decoder_model(small_config(), 4, d).decode([Sequence()], []),
            "tokens is 0: must be 1, one for each",
        ),
        (lambda d: decoder_model(small_config(), 4, d).decode([], []), "rows is 0: must be 1 to 256 (max_rows)."),
        (lambda d: decoder_model(small_config(), 4, d).prefill(Sequence(), [1] * 321), "321 tokens is too long"),
    ],
)
def test_bad_input_is_one_sentence(device, call, message):
    with pytest.raises(InputError) as error:
        call(device)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("model.norm.weight"), "weights: model.norm.weight is missing."),
        (
            lambda state: state.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(3, 3)}),
            "weights: model.layers.1.mlp.up_proj.weight has shape (3, 3): must be (40, 24).",
        ),
    ],
)
def test_wrong_weights_are_named(device, change, message):
    config = small_config()
    state = dict(textbook(config).state_dict())
    change(state)
    with pytest.raises(InputError) as error:
        DecoderWeights.from_state_dict(config, state, device)
    assert str(error.value) == message


def test_the_simulators_bard_is_the_checkpoint():
    config, shape = load_checkpoint("bard").config, MODELS["bard"]
    assert all(
        getattr(shape, f) == getattr(config, f) for f in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
    )
    assert shape.head_dim == config.head_dim
