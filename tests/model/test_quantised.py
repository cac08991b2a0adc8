"""Decoders with quantised weights: the same model but for the weights' rounding, at every stage and as a graph."""

import pytest
import torch

from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.kernels import KERNEL_FOR, in_format
from s13lib.kernels.quantised import FORMATS, HEAD_FORMAT, dequantise, quantise
from s13lib.model import DecoderConfig, DecoderModel, DecoderWeights, Sequence, generate
from s13lib.model.checkpoints import load_checkpoint
from s13lib.model.stages import kernels_of
from s13lib.simulator import ModelShape, Workload, step_kernels
from tests.model.decoders import STAGES, small_config, textbook
from tests.model.test_decoder import launched_kernels

SIZES = {"hidden": 64, "ffn": 96, "heads": 6, "kv_heads": 2, "head_dim": 16}


def rounded(state: dict, form: str) -> dict:
    """The state whose float32 weights are exactly what the quantised model's stand for."""

    def of(name: str) -> str:
        return HEAD_FORMAT if "embed" in name or "lm_head" in name else form

    return {
        name: torch.from_numpy(dequantise(quantise(w.numpy(), of(name)), of(name))) if w.ndim == 2 else w
        for name, w in state.items()
    }


def model_of(config: DecoderConfig, state: dict, device, stage: int, form: str = "f32", **options) -> DecoderModel:
    weights = DecoderWeights.from_state_dict(config, state, device, progress=False, weight_format=form)
    return DecoderModel(config, weights, stage, device, **options)


def forced(model: DecoderModel, tokens: list[int], prompt: int = 5) -> torch.Tensor:
    """Logits after each token from the ``prompt``-th on."""
    sequence = Sequence()
    rows = [model.prefill(sequence, tokens[:prompt])]
    rows += [model.decode([sequence], [token])[0] for token in tokens[prompt:]]
    return torch.stack(rows)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_step_launches_the_simulators_kernels_in_the_weights_format(device, stage, form):
    config = small_config(**SIZES)
    shape = ModelShape("same", config.layers, 64, 96, 6, 2, 16, config.vocab)
    names = [KERNEL_FOR[k.operations] for k in step_kernels(shape, stage, Workload.decode(1, 1))]
    expected = [in_format(name, form) for name in names]
    expected[0], expected[-1] = (in_format(names[i], HEAD_FORMAT) for i in (0, -1))
    model = model_of(config, textbook(config).state_dict(), device, stage, form, blocks=4)
    assert launched_kernels(model) == expected
    assert set(kernels_of(stage, form, HEAD_FORMAT)) == set(expected)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("stage", STAGES)
def test_logits_are_those_of_the_same_weights_in_float32(device, stage, form):
    """But for the activations' rounding to 16 bits: 2e−4 of the logits' spread, measured; q8_0 costs 200 times that."""
    config = small_config(**SIZES, tied=stage % 2 == 0)
    state = textbook(config).state_dict()
    tokens = torch.randint(config.vocab, (60,), generator=torch.Generator().manual_seed(stage)).tolist()
    ours = forced(model_of(config, state, device, stage, form), tokens)
    same_weights = forced(model_of(config, rounded(state, form), device, stage), tokens)
    assert (ours - same_weights).abs().max() <= 1e-3 * same_weights.std()
    float32 = forced(model_of(config, state, device, stage), tokens)
    assert (ours - float32).abs().max() > 2e-2 * float32.std()


@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_and_a_batch_change_no_bit(device, form):
    config = small_config(**SIZES)
    state = textbook(config).state_dict()
    model = model_of(config, state, device, 4, form)
    alone = [forced(model, [3 + i, 5, 7, 2], prompt=3)[-1] for i in range(3)]
    runner = GraphRunner(model, 3)
    sequences = [Sequence() for _ in range(3)]
    for i, sequence in enumerate(sequences):
        model.prefill(sequence, [3 + i, 5, 7])
    replayed = runner.run(model.next_batch(sequences, [2] * 3))
    assert torch.equal(replayed, torch.stack(alone))
    runner.check()


@pytest.mark.parametrize("form", FORMATS)
def test_embedding_and_tied_head_are_one_tensor_in_8_bits(device, form):
    config = small_config(**SIZES, tied=True)
    state = textbook(config).state_dict()
    weights = DecoderWeights.from_state_dict(config, state, device, progress=False, weight_format=form)
    assert (weights.layer_format, weights.head_format) == (form, "q8_0")
    assert weights.lm_head is weights.embedding
    packed = quantise(state["model.embed_tokens.weight"].numpy(), "q8_0")
    assert weights.embedding.numpy().tobytes() == packed.tobytes()
    layer = weights.layers[1]
    assert layer.k.data_ptr() == layer.qkv[6 * 16 :].data_ptr()
    assert layer.k.shape == (2 * 16, 64 // 32 * FORMATS[form].block_bytes)


@pytest.mark.parametrize(("form", "layer_bytes"), [("f32", 4), ("q8_0", 34 / 32), ("q4_0", 18 / 32)])
def test_bytes_that_a_step_reads(device, form, layer_bytes):
    config = small_config(**SIZES)
    state = textbook(config).state_dict()
    weights = DecoderWeights.from_state_dict(config, state, device, progress=False, weight_format=form)
    matrices = 3 * ((96 + 64) * 64 + 64 * 96 + 3 * 96 * 64)  # layers: q, k and v; o; gate, up and down
    head = config.vocab * 64 * (4 if form == "f32" else 34 / 32)
    assert weights.step_bytes == matrices * layer_bytes + head + 4 * 64 * (2 * 3 + 1)


# ---- bard


@pytest.fixture(scope="module")
def bard():
    return load_checkpoint("bard")


TEXT = "ROMEO.\nO, she doth teach the torches to burn bright!\nIt seems she hangs upon the cheek of night"


@pytest.mark.parametrize(("form", "most", "typical"), [("q8_0", 0.15, 0.02), ("q4_0", 2.0, 0.25)])
def test_what_bard_loses(bard, device, form, most, typical):
    """Logits against float32's, whose spread is about 3: the largest and the root mean square difference. Measured:
    0.08 and 0.015 with q8_0, 0.86 and 0.17 with q4_0. The likeliest token is the same wherever it leads by more.
    """
    tokens = bard.tokenizer.encode(TEXT)
    ours, float32 = (forced(bard.model(4, device, form, blocks=20), tokens) for form in (form, "f32"))
    difference = ours - float32
    assert difference.abs().max() <= most
    assert difference.pow(2).mean().sqrt() <= typical
    assert difference.abs().max() > 1e-3
    top = float32.topk(2).values
    decided = top[:, 0] - top[:, 1] > 2 * difference.abs().max()
    assert decided.float().mean() > (0.8 if form == "q8_0" else 0.2)
    assert torch.equal(ours.argmax(-1)[decided], float32.argmax(-1)[decided])


def test_bards_greedy_text_at_every_stage(bard, device):
    """Two float32 logits of bard are nearly equal in the end; so far the text is float32's own, at every stage."""
    prompt, tokens = bard.tokenizer.encode("JULIET.\n"), 24
    texts = {}
    for stage, form in [(4, "f32"), *((stage, "q8_0") for stage in STAGES)]:
        (made,) = generate(bard.model(stage, device, form, blocks=4), [prompt], tokens)
        texts[stage, form] = bard.tokenizer.decode(made)
    assert len(set(texts.values())) == 1, texts


# ---- bad input


def test_what_cannot_be_quantised_is_told(device):
    config = small_config(hidden=40, heads=4, head_dim=8)
    state = textbook(config).state_dict()
    with pytest.raises(InputError) as error:
        DecoderWeights.from_state_dict(config, state, device, progress=False, weight_format="q8_0")
    assert str(error.value) == "q8_0: row width is 40: must be a multiple of 32, the weights of a block."
    with pytest.raises(InputError) as error:
        DecoderWeights.from_state_dict(config, state, device, progress=False, weight_format="int8")
    assert str(error.value) == "weight_format is 'int8': must be one of f32, q8_0, q4_0."
