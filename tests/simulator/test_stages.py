"""The kernel table of each fusion stage against the published formulas, computed independently here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.simulator import MODELS, PARTS, STAGES, DTypes, ModelShape, Workload, step_kernels


def layer_of(shape, stage, work, dtypes=DTypes()):  # noqa: B008
    kernels = step_kernels(shape, stage, work, dtypes, ("layers",))
    each = len(kernels) // shape.layers
    return kernels[each : 2 * each]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_named_by_its_kernels_per_layer(stage):
    kernels = step_kernels(MODELS["llama-3-8b"], stage, Workload.decode(1, 1024))
    assert len(kernels) == 32 * stage + 3
    assert kernels[0].name == "embedding"
    assert kernels[-1].name == "lm_head"


@pytest.mark.parametrize(("stage", "kilobytes"), [(15, 377), (11, 283), (9, 266), (7, 201), (5, 152), (4, 127)])
def test_llama_3_8b_activation_bytes_of_a_layer(stage, kilobytes):
    layer = layer_of(MODELS["llama-3-8b"], stage, Workload.decode(1, 1024))
    assert round(sum(k.activation_bytes for k in layer) / 1000) == kilobytes
    assert sum(k.weight_bytes for k in layer) / 1e6 == pytest.approx(436.2, abs=0.05)
    assert sum(k.cache_bytes for k in layer) / 1e6 == pytest.approx(4.2, abs=0.05)


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 17),
    st.integers(1, 40),
    st.integers(1, 64),
    st.integers(1, 500),
)
def test_unfused_bytes_and_flops_are_the_formulas(kv_heads, group, head_dim, hidden, ffn, batch, context):
    shape = ModelShape("drawn", 2, hidden, ffn, kv_heads * group, kv_heads, head_dim, 11)
    h, f, q, v, b, s = hidden, ffn, shape.q_width, shape.kv_width, batch, context
    w, e = 1, 4
    named = {k.operations[0]: k for k in layer_of(shape, 15, Workload.decode(b, s), DTypes(w, e, e))}
    linears = {"q": (h, q), "k": (h, v), "v": (h, v), "o": (q, h), "gate": (h, f), "up": (h, f), "down": (f, h)}
    moved = {name: w * n * m + e * b * (n + m) for name, (n, m) in linears.items()}
    flops = {name: 2 * b * n * m for name, (n, m) in linears.items()}
    moved |= {"norm": 2 * e * b * h, "norm_2": 2 * e * b * h, "rope": 2 * e * b * (q + v), "append": 4 * e * b * v}
    moved |= {"add": 3 * e * b * h, "add_2": 3 * e * b * h, "silu_mul": 3 * e * b * f}
    moved["attention"] = 2 * e * b * q + 2 * e * b * v * s
    flops |= {"norm": 4 * b * h, "norm_2": 4 * b * h, "rope": 6 * b * (q + v), "append": 0}
    flops |= {"add": b * h, "add_2": b * h, "silu_mul": 4 * b * f, "attention": 4 * b * q * s}
    assert {name: k.bytes_moved for name, k in named.items()} == moved
    assert {name: k.flops for name, k in named.items()} == flops


@given(st.sampled_from(sorted(STAGES)), st.integers(1, 40), st.integers(1, 700))
def test_fusion_keeps_weights_cache_and_flops_and_never_adds_activations(stage, batch, context):
    shape, work = MODELS["smollm2-135m"], Workload.decode(batch, context)
    plain, fused = step_kernels(shape, 15, work), step_kernels(shape, stage, work)
    for total in ("weight_bytes", "cache_bytes", "flops"):
        assert sum(getattr(k, total) for k in fused) == sum(getattr(k, total) for k in plain)
    assert sum(k.activation_bytes for k in fused) <= sum(k.activation_bytes for k in plain)
    assert [op for k in fused for op in k.operations] == [op for k in plain for op in k.operations]


def test_stage_7_starts_with_a_plain_norm_and_its_last_add_rides_on_the_final_norm():
    names = [k.name for k in step_kernels(MODELS["bard"], 7, Workload.decode(1, 1))]
    assert names[:3] == ["embedding", "norm", "q+k+v"]
    assert names[7:9] == ["down", "add+norm"]
    assert names[-3:] == ["down", "add+final_norm", "lm_head"]
    layers_alone = step_kernels(MODELS["bard"], 7, Workload.decode(1, 1), parts=("layers",))
    assert len(layers_alone) == 7 * 32


def test_a_fused_kernel_reads_what_it_did_not_make_and_writes_what_others_need():
    by_name = {k.name: k for k in layer_of(MODELS["bard"], 7, Workload.decode(1, 1))}
    assert by_name["rope+append+attention"].inputs == ("q:q", "k:kv", "v:kv")
    assert by_name["rope+append+attention"].outputs == ("k_cache:kv", "v_cache:kv", "mixed:q")
    assert by_name["add+norm"].outputs == ("x1:hidden", "normed_2:hidden")
    assert by_name["gate+up+silu_mul"].outputs == ("gated:ffn",)


def test_packed_qkv_reads_its_input_once():
    shape, work = MODELS["llama-3-8b"], Workload.decode(3, 7)
    separate = sum(k.activation_bytes for k in layer_of(shape, 11, work))
    packed = sum(k.activation_bytes for k in layer_of(shape, 9, work))
    assert separate - packed == 2 * 2 * 3 * shape.hidden


def test_prefill_computes_a_triangle_and_one_row_of_logits():
    shape = MODELS["smollm2-135m"]
    named = {k.name: k for k in step_kernels(shape, 15, Workload.prefill(100))}
    assert named["attention"].flops == 4 * shape.q_width * 100 * 101 // 2
    assert named["lm_head"].flops == 2 * shape.hidden * shape.vocab
    assert named["q"].flops == 2 * 100 * shape.hidden * shape.q_width


def test_embedding_reads_one_row_a_token():
    (embedding,) = step_kernels(MODELS["bard"], 15, Workload.decode(5, 9), parts=("embedding",))
    assert embedding.weight_bytes == 2 * 5 * 64
    assert embedding.activation_bytes == 2 * 5 * 64


def test_parts_are_counted_in_the_order_of_a_step():
    kernels = step_kernels(MODELS["bard"], 4, Workload.decode(1, 1), parts=("lm_head", "embedding"))
    assert [k.name for k in kernels] == ["embedding", "lm_head"]
    assert {k.part for k in step_kernels(MODELS["bard"], 4, Workload.decode(1, 1))} == set(PARTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step_kernels(MODELS["bard"], 6, Workload.decode(1, 1)), "stage is 6: must be one of 15, 11, 9, 7, 5"),
        (lambda: Workload.decode(0, 1), "batch is 0: must be a whole number from 1 to 1,000,000."),
        (lambda: Workload.decode(1, -2), "context is -2: must be a whole number from 1 to 100,000,000."),
        (lambda: Workload.decode(True, 1), "batch is True"),
        (lambda: Workload.prefill(0), "prefill is 0"),
        (lambda: step_kernels(MODELS["bard"], 4, Workload.decode(1, 1), parts=("head",)), "did you mean lm_head?"),
        (lambda: step_kernels(MODELS["bard"], 4, Workload.decode(1, 1), parts=()), "parts is (): must be at least one"),
        (lambda: DTypes(weight_bytes=0), "weight_bytes is 0: must be from 0.01 to 8."),
        (lambda: ModelShape("x", 0, 1, 1, 1, 1, 1, 1), "model layers is 0"),
        (lambda: ModelShape("x", 1, 1, 1, 3, 2, 1, 1), "model kv_heads is 2: must be a divisor of heads (3)."),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert message in str(error.value)
