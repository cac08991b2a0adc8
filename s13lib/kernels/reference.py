"""Every kernel in plain torch: the truth that the compiled ones are tested against.

Same names and same arguments, in the same order, as ``softgpu``; results are written into the out-parameters. Any
floating dtype: in float64 it is exact for all purposes; bfloat16 is computed in float32 and rounded at the end. Written
to be read, not to be quick: fused kernels call the un-fused ones one after another. An index out of range raises
``IndexError`` (the compiled kernels skip the row and report it).

Shapes, here and below: x (rows, hidden); weight (out, in); q (rows, heads·head_dim); k, v (rows, kv_heads·head_dim);
k_cache, v_cache (blocks, block_size, kv_heads, head_dim); cos, sin (max_positions, head_dim/2); positions and
slot_mapping (rows,) int64; block_tables (rows, max_blocks) int32; context_lens (rows,) int32.
"""

from __future__ import annotations

import torch
from torch import Tensor

NO_SLOT = -1
"""The slot that writes nothing: how vLLM marks padding rows."""


def rope_tables(
    theta: float, head_dim: int, max_positions: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return cos and sin, each (max_positions, head_dim/2), of position · theta**(−2i/head_dim), computed in float64.

    Su et al. 2021, arXiv:2104.09864.
    """
    inverse_frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.outer(torch.arange(max_positions, dtype=torch.float64), inverse_frequency)
    return angle.cos().to(dtype), angle.sin().to(dtype)


# ---- un-fused -------------------------------------------------------------------------------------------------------


def copy(x: Tensor, out: Tensor) -> None:
    """out = x."""
    out.copy_(x)


def scale(x: Tensor, out: Tensor, factor: float) -> None:
    """out = x·factor."""
    out.copy_(x * factor)


def embedding(input_ids: Tensor, weight: Tensor, out: Tensor) -> None:
    """out[r] = weight[input_ids[r]]."""
    _require_in_range("token", input_ids, weight.shape[0])
    out.copy_(weight[input_ids])


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """The textbook RMSNorm, out = x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019, arXiv:1910.07467)."""
    wide = _wide(x)
    mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
    out.copy_(wide * torch.rsqrt(mean_square + eps) * _wide(weight))


def linear(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """out = x·weightᵀ."""
    out.copy_(_wide(x) @ _wide(weight).T)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, out_q: Tensor, out_k: Tensor) -> None:
    """Rotate q and k by their rows' positions, in half-split pairs (i, i + head_dim/2)."""
    _require_in_range("position", positions, cos.shape[0])
    out_q.copy_(_rotate(q, cos[positions], sin[positions]))
    out_k.copy_(_rotate(k, cos[positions], sin[positions]))


def append_kv(k: Tensor, v: Tensor, slot_mapping: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
    """Write each row's k and v at its slot, block·block_size + offset. Slot −1 writes nothing."""
    blocks, block_size, kv_heads, head_dim = k_cache.shape
    for r, slot in enumerate(slot_mapping.tolist()):
        if slot == NO_SLOT:
            continue
        _require_in_range("slot", slot_mapping[r], blocks * block_size)
        block, offset = divmod(slot, block_size)
        k_cache[block, offset] = k[r].view(kv_heads, head_dim)
        v_cache[block, offset] = v[r].view(kv_heads, head_dim)


def paged_attention(
    q: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    k_cache: Tensor,
    v_cache: Tensor,
    out: Tensor,
) -> None:
    """out[r] = softmax(q[r]·Kᵀ·scale)·V over the first context_lens[r] tokens of row r's blocks, head by head.

    Head h reads key-value head h // (heads / kv_heads). A context of 0 gives zeros.
    """
    blocks, block_size, kv_heads, head_dim = k_cache.shape
    group = q.shape[1] // (kv_heads * head_dim)
    _require_in_range("context", context_lens, block_tables.shape[1] * block_size + 1)
    for r, context in enumerate(context_lens.tolist()):
        used = block_tables[r, : -(-context // block_size)].long()
        _require_in_range("block", used, blocks)
        keys = _wide(k_cache[used]).reshape(-1, kv_heads, head_dim)[:context].repeat_interleave(group, dim=1)
        values = _wide(v_cache[used]).reshape(-1, kv_heads, head_dim)[:context].repeat_interleave(group, dim=1)
        query = _wide(q[r]).view(-1, head_dim)
        weights = torch.softmax(torch.einsum("hd,thd->ht", query, keys) * scale, dim=-1)
        out[r] = torch.einsum("ht,thd->hd", weights, values).flatten()


def add(x: Tensor, y: Tensor, out: Tensor) -> None:
    """out = x + y."""
    out.copy_(x + y)


def silu_mul(gate: Tensor, up: Tensor, out: Tensor) -> None:
    """out = silu(gate)·up, silu(g) = g / (1 + e**−g): the middle of SwiGLU (Shazeer 2020, arXiv:2002.05202)."""
    out.copy_(_wide(gate) * torch.sigmoid(_wide(gate)) * _wide(up))


# ---- fused: the same operations, one after another ------------------------------------------------------------------


def rope_append(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    out_q: Tensor,
) -> None:
    """Rope, then append_kv of the rotated k."""
    rotated_k = torch.empty_like(k)
    rope(q, k, cos, sin, positions, out_q, rotated_k)
    append_kv(rotated_k, v, slot_mapping, k_cache, v_cache)


def linear_add(x: Tensor, weight: Tensor, residual: Tensor, out: Tensor) -> None:
    """out = residual + x·weightᵀ."""
    out.copy_(_wide(residual) + _wide(x) @ _wide(weight).T)


def linear_silu_mul(x: Tensor, weight: Tensor, gate: Tensor, out: Tensor) -> None:
    """out = silu(gate)·(x·weightᵀ)."""
    up = torch.empty_like(out)
    linear(x, weight, up)
    silu_mul(gate, up, out)


def linear_qkv(x: Tensor, weight: Tensor, out_q: Tensor, out_k: Tensor, out_v: Tensor) -> None:
    """q, k and v from one packed weight, rows in that order, as wide as the outputs: under GQA not equal thirds."""
    of_q, of_k, of_v = weight.split([out_q.shape[1], out_k.shape[1], out_v.shape[1]])
    linear(x, of_q, out_q)
    linear(x, of_k, out_k)
    linear(x, of_v, out_v)


def add_rms_norm(
    residual: Tensor, delta: Tensor, weight: Tensor, eps: float, out_residual: Tensor, out: Tensor
) -> None:
    """out_residual = residual + delta; out = rms_norm(out_residual). ``out`` must not be ``out_residual``."""
    add(residual, delta, out_residual)
    rms_norm(out_residual, weight, eps, out)


def rope_append_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    k_cache: Tensor,
    v_cache: Tensor,
    out: Tensor,
) -> None:
    """Rope_append of all rows, then paged_attention: the rows of a prefill see each other."""
    rotated_q = torch.empty_like(q)
    rope_append(q, k, v, cos, sin, positions, slot_mapping, k_cache, v_cache, rotated_q)
    paged_attention(rotated_q, block_tables, context_lens, scale, k_cache, v_cache, out)


def gate_up_silu_mul(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """out = silu(x·gateᵀ)·(x·upᵀ), weight packed (2·width, in), the gate's rows first."""
    of_gate, of_up = weight.chunk(2)
    gate = torch.empty_like(out)
    linear(x, of_gate, gate)
    linear_silu_mul(x, of_up, gate, out)


def rms_norm_qkv(
    x: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, out_q: Tensor, out_k: Tensor, out_v: Tensor
) -> None:
    """Rms_norm, then linear_qkv."""
    normed = torch.empty_like(x)
    rms_norm(x, norm_weight, eps, normed)
    linear_qkv(normed, weight, out_q, out_k, out_v)


def rms_norm_gate_up_silu_mul(x: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, out: Tensor) -> None:
    """Rms_norm, then gate_up_silu_mul."""
    normed = torch.empty_like(x)
    rms_norm(x, norm_weight, eps, normed)
    gate_up_silu_mul(normed, weight, out)


def rms_norm_qkv_rope_append(
    x: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    out_q: Tensor,
) -> None:
    """Rms_norm_qkv, then rope_append."""
    q = torch.empty_like(out_q)
    k = torch.empty(x.shape[0], k_cache.shape[2] * k_cache.shape[3], dtype=x.dtype)
    v = torch.empty_like(k)
    rms_norm_qkv(x, norm_weight, eps, weight, q, k, v)
    rope_append(q, k, v, cos, sin, positions, slot_mapping, k_cache, v_cache, out_q)


def attention_linear_add(
    q: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    k_cache: Tensor,
    v_cache: Tensor,
    weight: Tensor,
    residual: Tensor,
    out: Tensor,
) -> None:
    """Paged_attention, then linear_add."""
    attended = torch.empty_like(q)
    paged_attention(q, block_tables, context_lens, scale, k_cache, v_cache, attended)
    linear_add(attended, weight, residual, out)


# ---- helpers --------------------------------------------------------------------------------------------------------


def _wide(x: Tensor) -> Tensor:
    """X in at least float32: half-precision sums would lose what the test is about."""
    return x if x.dtype == torch.float64 else x.float()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (rows, any number of heads·head_dim) by cos, sin (rows, head_dim/2)."""
    rows, half = cos.shape
    first, second = _wide(x).view(rows, -1, 2, half).unbind(dim=2)
    cos, sin = _wide(cos)[:, None], _wide(sin)[:, None]
    return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=2).view(x.shape)


def _require_in_range(what: str, index: Tensor, size: int) -> None:
    """Raise ``IndexError`` unless every index is one of 0 … size − 1; negative ones would count from the end."""
    bad = index[(index < 0) | (index >= size)]
    if bad.numel():
        raise IndexError(f"{what} {bad.flatten()[0].item()} is out of range: must be 0 to {size - 1}.")
