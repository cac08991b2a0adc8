"""Every compiled kernel against the float64 reference, within a bound that is derived, not chosen."""

import pytest
import torch

from s13lib.kernels import NAMES, bounds
from s13lib.kernels.bounds import Bounded, exact, excess


def _cached(case, cache, appended=None):
    """The cache as the kernel should leave it: what it held, and the appended rows with their error."""
    held = exact(case.arguments[cache]).map(lambda t: t.flatten(0, 1).clone())
    if appended is not None:
        for r, slot in enumerate(case.arguments["slot_mapping"].tolist()):
            if slot >= 0:
                held.value[slot], held.error[slot] = (t[r].view(held.value[slot].shape) for t in appended)
    return held.map(lambda t: t.view(case.arguments[cache].shape))


def _attend(case, q, k_cache, v_cache):
    """Every row's attention, from the caches as they are when it attends."""
    a = case.arguments
    _, block_size, kv_heads, head_dim = a["k_cache"].shape
    group = q.value.shape[1] // (kv_heads * head_dim)

    def row(r, context):
        blocks = a["block_tables"][r, : -(-context // block_size)].long()

        def tokens(cache):
            return cache.map(lambda t: t[blocks].flatten(0, 1)[:context].repeat_interleave(group, dim=1))

        query = q.map(lambda t: t[r].view(-1, head_dim))
        return bounds.attention(query, tokens(k_cache), tokens(v_cache), a["scale"])

    rows = [row(r, context) for r, context in enumerate(a["context_lens"].tolist())]
    return Bounded(*(torch.stack([part.flatten() for part in parts]) for parts in zip(*rows, strict=True)))


def expected(case, linear=bounds.linear) -> dict[str, Bounded]:
    """Each output with its bound: the kernel's name, spelt out. ``linear`` bounds a product with the weight."""
    name = case.name
    a = {p: exact(t) if isinstance(t, torch.Tensor) and t.is_floating_point() else t for p, t in case.arguments.items()}
    out = {}

    def split_qkv(x):
        widths = [case.arguments["out_q"].shape[1]]
        widths += [(a["weight"].value.shape[0] - widths[0]) // 2] * 2
        parts = (a["weight"].value.split(widths), a["weight"].error.split(widths))
        return [linear(x, Bounded(*part)) for part in zip(*parts, strict=True)]

    def swiglu(x):
        gate, up = (linear(x, a["weight"].map(lambda t, i=i: t.chunk(2)[i])) for i in (0, 1))
        return bounds.silu_mul(gate, up)

    def turned(x):
        return bounds.rope(x, a["cos"].map(lambda t: t[a["positions"]]), a["sin"].map(lambda t: t[a["positions"]]))

    normed = bounds.rms_norm(a["x"], a["norm_weight"], a["eps"]) if "norm_weight" in a else None
    match name:
        case "copy":
            out["out"] = a["x"]
        case "scale":
            out["out"] = bounds.mul(a["x"], exact(a["factor"]), roundings=2)
        case "embedding":
            out["out"] = a["weight"].map(lambda t: t[a["input_ids"]])
        case "rms_norm":
            out["out"] = bounds.rms_norm(a["x"], a["weight"], a["eps"])
        case "linear":
            out["out"] = linear(a["x"], a["weight"])
        case "rope":
            out["out_q"], out["out_k"] = turned(a["q"]), turned(a["k"])
        case "append_kv":
            out["k_cache"], out["v_cache"] = _cached(case, "k_cache", a["k"]), _cached(case, "v_cache", a["v"])
        case "paged_attention":
            out["out"] = _attend(case, a["q"], a["k_cache"], a["v_cache"])
        case "add":
            out["out"] = bounds.add(a["x"], a["y"])
        case "silu_mul":
            out["out"] = bounds.silu_mul(a["gate"], a["up"])
        case "rope_append":
            out["out_q"] = turned(a["q"])
            out["k_cache"], out["v_cache"] = _cached(case, "k_cache", turned(a["k"])), _cached(case, "v_cache", a["v"])
        case "linear_add":
            out["out"] = bounds.add(a["residual"], linear(a["x"], a["weight"]))
        case "linear_silu_mul":
            out["out"] = bounds.silu_mul(a["gate"], linear(a["x"], a["weight"]))
        case "linear_qkv" | "rms_norm_qkv":
            x = a["x"] if normed is None else normed
            out["out_q"], out["out_k"], out["out_v"] = split_qkv(x)
        case "add_rms_norm":
            out["out_residual"] = bounds.add(a["residual"], a["delta"])
            out["out"] = bounds.rms_norm(out["out_residual"], a["weight"], a["eps"])
        case "rope_append_attention":
            out["k_cache"], out["v_cache"] = _cached(case, "k_cache", turned(a["k"])), _cached(case, "v_cache", a["v"])
            out["out"] = _attend(case, turned(a["q"]), out["k_cache"], out["v_cache"])
        case "gate_up_silu_mul" | "rms_norm_gate_up_silu_mul":
            out["out"] = swiglu(a["x"] if normed is None else normed)
        case "rms_norm_qkv_rope_append":
            q, k, v = split_qkv(normed)
            out["out_q"] = turned(q)
            out["k_cache"], out["v_cache"] = _cached(case, "k_cache", turned(k)), _cached(case, "v_cache", v)
        case "attention_linear_add":
            attended = _attend(case, a["q"], a["k_cache"], a["v_cache"])
            out["out"] = bounds.add(a["residual"], linear(attended, a["weight"]))
    return out


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_within_the_bound_and_fully_overwritten(make_case, name, seed):
    case = make_case(name, seed)
    truth = case.reference()
    bounded = expected(case)
    ran = case.copy()
    assert ran.run() == 0
    for p, computed in ran.outputs.items():
        true = truth.arguments[p]
        assert torch.equal(computed.isnan(), true.isnan()), p  # in the caches NaN marks what no one wrote
        if p in bounded:
            error = bounded[p].error.nan_to_num()
            assert torch.allclose(bounded[p].value.nan_to_num(), true.nan_to_num(), rtol=1e-12, atol=1e-12), p
            assert excess(computed.nan_to_num(), Bounded(true.nan_to_num(), error)) <= 1, p
        else:
            assert torch.equal(computed.double().nan_to_num(), true.nan_to_num()), p


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_tight_enough_to_fail_a_relative_error_of_five_percent(make_case, name):
    case = make_case(name, seed=3, rows=5)
    case.run()
    for p, bounded in expected(case).items():
        wrong = case.arguments[p] * 1.05
        assert excess(wrong.nan_to_num(), bounded.map(torch.nan_to_num)) > 1
