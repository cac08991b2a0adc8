"""Conventions pinned by numbers worked out by hand: a swapped convention computes something else."""

import math

import pytest
import torch

from s13lib.kernels import reference, softgpu

NAN = math.nan


def of_reference(name, *arguments):
    getattr(reference, name)(*arguments)
    return 0


def of_softgpu(name, *arguments):
    return getattr(softgpu, name).function(*(a.numpy() if isinstance(a, torch.Tensor) else a for a in arguments)) or 0


@pytest.fixture(params=[of_reference, of_softgpu], ids=["reference", "softgpu"])
def run(request):
    return request.param


RUN_IN = [(of_reference, torch.float32), (of_reference, torch.bfloat16), (of_softgpu, torch.float32)]


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


def empty(*shape):
    return torch.full(shape, NAN)


QUARTER_TURN = (rows([1, 1], [0, 0]), rows([0, 0], [1, 1]))
"""cos and sin of a head of 4 that stands still at position 0 and turns by 90° at position 1."""


def test_rope_pairs_the_halves(run):
    q, k = rows([1, 2, 3, 4], [1, 2, 3, 4]), rows([5, 6, 7, 8], [5, 6, 7, 8])
    out_q, out_k = empty(2, 4), empty(2, 4)
    run("rope", q, k, *QUARTER_TURN, torch.tensor([0, 1]), out_q, out_k)
    # (1, 3) → (−3, 1) and (2, 4) → (−4, 2); interleaved pairs would give (−2, 1, −4, 3).
    assert out_q.tolist() == [[1, 2, 3, 4], [-3, -4, 1, 2]]
    assert out_k.tolist() == [[5, 6, 7, 8], [-7, -8, 5, 6]]


def test_rope_turns_each_head_alike(run):
    q, k = rows([1, 2, 3, 4, 5, 6, 7, 8]), rows([1, 0, 0, 0])
    out_q, out_k = empty(1, 8), empty(1, 4)
    run("rope", q, k, *QUARTER_TURN, torch.tensor([1]), out_q, out_k)
    assert out_q.tolist() == [[-3, -4, 1, 2, -7, -8, 5, 6]]
    assert out_k.tolist() == [[0, 0, 1, 0]]


def test_rope_tables_by_hand():
    cos, sin = reference.rope_tables(theta=100.0, head_dim=4, max_positions=3, dtype=torch.float64)
    # Frequencies 100**(−0/4) = 1 and 100**(−2/4) = 0.1.
    assert cos.tolist() == [pytest.approx([math.cos(p), math.cos(p / 10)], abs=1e-15) for p in range(3)]
    assert sin.tolist() == [pytest.approx([math.sin(p), math.sin(p / 10)], abs=1e-15) for p in range(3)]
    assert reference.rope_tables(1e4, 64, 5)[0].dtype == torch.float32


def test_silu_is_on_the_gate(run):
    out = empty(1, 2)
    run("silu_mul", rows([0, math.log(3)]), rows([5, 2]), out)
    assert out.tolist() == [pytest.approx([0, math.log(3) * 0.75 * 2], rel=1e-6)]  # on up: [0, 1.94]


def test_packed_gate_comes_before_up(run):
    weight = rows([0, 0], [math.log(3), 0], [1, 0], [0, 2])  # gate rows, then up rows
    out = empty(1, 2)
    run("gate_up_silu_mul", rows([1, 1]), weight, out)
    assert out.tolist() == [pytest.approx([0, math.log(3) * 0.75 * 2], rel=1e-6)]


def test_linear_silu_mul_takes_silu_of_the_gate_that_it_is_given(run):
    out = empty(1, 1)
    run("linear_silu_mul", rows([1, 1]), rows([1, 1]), rows([math.log(3)]), out)
    assert out.item() == pytest.approx(math.log(3) * 0.75 * 2, rel=1e-6)


def test_packed_qkv_is_split_by_heads_not_in_thirds(run):
    """D11, vllm#13686: 4 heads, 1 key-value head, head_dim 2."""
    out_q, out_k, out_v = empty(1, 8), empty(1, 2), empty(1, 2)
    run("linear_qkv", rows([1]), torch.arange(12.0).view(12, 1), out_q, out_k, out_v)
    assert out_q.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert out_k.tolist() == [[8, 9]]
    assert out_v.tolist() == [[10, 11]]


def test_neighbouring_heads_share_a_key_value_head(run):
    """4 heads on 2: 0 and 1 read the first, 2 and 3 the second (taken in turn: 5, 7, 5, 7)."""
    cache = torch.tensor([5.0, 7.0]).view(1, 1, 2, 1)
    out = empty(1, 4)
    table, context = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    run("paged_attention", rows([1, 1, 1, 1]), table, context, 1.0, cache, cache, out)
    assert out.tolist() == [[5, 5, 7, 7]]


def test_attention_by_hand(run):
    """Keys 0 and ln 3 against the query 1 weigh 1/4 and 3/4; block 2 comes before block 0; slot 3 is beyond."""
    k_cache = torch.tensor([[math.log(3), NAN], [NAN, NAN], [NAN, 0.0]]).view(3, 2, 1, 1)
    v_cache = torch.tensor([[8.0, NAN], [NAN, NAN], [NAN, 4.0]]).view(3, 2, 1, 1)
    k_cache[2, 0], v_cache[2, 0] = -1e4, 99
    out = empty(1, 1)
    table, context = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    run("paged_attention", rows([1]), table, context, 1.0, k_cache, v_cache, out)
    assert out.item() == pytest.approx(0.25 * 4 + 0.75 * 8, rel=1e-6)


def test_attention_multiplies_by_the_scale(run):
    cache = torch.tensor([0.0, 2 * math.log(3)]).view(1, 2, 1, 1)
    out = empty(1, 1)
    table, context = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([2], dtype=torch.int32)
    run("paged_attention", rows([1]), table, context, 0.5, cache, torch.tensor([0.0, 1.0]).view(1, 2, 1, 1), out)
    assert out.item() == pytest.approx(0.75, rel=1e-6)


def test_a_weight_is_out_by_in(run):
    out = empty(1, 3)
    run("linear", rows([1, 10]), rows([1, 2], [3, 4], [5, 6]), out)
    assert out.tolist() == [[21, 43, 65]]


def test_linear_add_adds_the_residual(run):
    out = empty(1, 2)
    run("linear_add", rows([1, 10]), rows([1, 2], [3, 4]), rows([100, 200]), out)
    assert out.tolist() == [[121, 243]]


def test_slot_minus_one_writes_nothing(run):
    """D2, vllm#43810: as a Python index, −1 would be the last slot."""
    k_cache, v_cache = torch.zeros(4, 2, 1, 1), torch.zeros(4, 2, 1, 1)
    assert run("append_kv", rows([5], [9]), rows([6], [8]), torch.tensor([1, -1]), k_cache, v_cache) == 0
    assert k_cache.view(4, 2).tolist() == [[0, 5], [0, 0], [0, 0], [0, 0]]
    assert v_cache.view(4, 2).tolist() == [[0, 6], [0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(("run", "dtype"), RUN_IN)
def test_the_norm_leaves_the_residual_alone(run, dtype):
    """D10, nano-vllm#170: x is the residual, and must still be [3, 4] afterwards."""
    x, weight, out = rows([3, 4]).to(dtype), torch.ones(2, dtype=dtype), empty(1, 2).to(dtype)
    run("rms_norm", x, weight, 0.0, out)
    assert x.tolist() == [[3, 4]]
    digits = {torch.float32: 1e-6, torch.bfloat16: 2**-8}[dtype]
    assert out.tolist() == [pytest.approx([0.848528, 1.131371], rel=digits)]


@pytest.mark.parametrize(("run", "dtype"), RUN_IN)
def test_the_fused_norm_hands_on_the_sum_not_the_norm(run, dtype):
    """D10 for the fused kernel, also when the new residual goes where the old one was."""
    residual, delta = rows([1, 5]).to(dtype), rows([2, -1]).to(dtype)
    weight, out = torch.ones(2, dtype=dtype), empty(1, 2).to(dtype)
    run("add_rms_norm", residual, delta, weight, 0.0, residual, out)
    assert residual.tolist() == [[3, 4]]
    assert delta.tolist() == [[2, -1]]
    digits = {torch.float32: 1e-6, torch.bfloat16: 2**-8}[dtype]
    assert out.tolist() == [pytest.approx([0.848528, 1.131371], rel=digits)]


def test_the_norm_uses_eps_inside_the_root(run):
    out = empty(1, 2)
    run("rms_norm", rows([3, 4]), rows([1, 10])[0], 12.5, out)
    assert out.tolist() == [pytest.approx([0.6, 8.0], rel=1e-6)]  # mean square 12.5, and eps makes it 25


def test_embedding_takes_rows(run):
    out = empty(3, 2)
    run("embedding", torch.tensor([2, 0, 2]), rows([1, 2], [3, 4], [5, 6]), out)
    assert out.tolist() == [[5, 6], [1, 2], [5, 6]]


def test_scale_and_copy(run):
    x, out = rows(1, -2, 0.5), empty(3)
    run("scale", x, out, -4.0)
    assert out.tolist() == [-4, 8, -2]
    run("copy", x, out)
    assert out.tolist() == [1, -2, 0.5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_reference_keeps_the_dtype_that_it_is_given(dtype):
    x, weight = torch.tensor([[1.0, 2.0]], dtype=dtype), torch.tensor([[1.0, 3.0]], dtype=dtype)
    out = torch.empty(1, 1, dtype=dtype)
    reference.linear(x, weight, out)
    assert out.dtype == dtype
    assert out.item() == 7
