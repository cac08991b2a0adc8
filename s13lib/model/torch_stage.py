"""Stage ``torch``: a decode step in PyTorch's own operators, as a user writes it: what fusion competes with on CUDA.

Nothing is fused or tuned: the lines are those of ``s13lib.kernels.textbook``, for one new token a row and a paged
cache. Activations and residual stream have the weights' dtype, as after ``model.to(torch.bfloat16)``. How many kernels
it launches is counted by a profiler, not claimed. It can be captured: nothing is read back, no shape depends on data.

Shapes: n rows, h hidden, H query heads, K key/value heads, D head size, S slots that a row's block table covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from s13lib.kernels.textbook import apply_rope, at_least_float32, repeat_kv
from s13lib.model.batch import DecodeBatch
from s13lib.model.weights import LayerWeights

if TYPE_CHECKING:
    from s13lib.model.decoder import DecoderModel


class Shared(NamedTuple):
    """What all layers read: sizes, rotary angles (n, 1, D), slots (n,), block tables, and a mask (n, 1, S) of slots."""

    eps: float
    scale: float
    heads: int
    kv_heads: int
    head_dim: int
    cos: Tensor
    sin: Tensor
    slots: Tensor
    tables: Tensor
    past: Tensor


def torch_step(model: DecoderModel, inputs: DecodeBatch, logits: Tensor, last_only: bool) -> None:
    """Launch one step; arguments as in ``DecoderModel.launch_step``.

    An index out of range is not skipped and reported, as our kernels do it: on CUDA it is a device-side assertion,
    after which the process cannot use the GPU (read in PyTorch's documentation). ``DecoderModel.check_indices`` refuses
    it beforehand. Slot −1 is harmless: PyTorch counts it from the end, where the scratch block lies.
    """
    m = shared(model, inputs)
    x = model.weights.embedding[inputs.input_ids]  # [n, h]
    for number, weights in enumerate(model.weights.layers):
        x = layer(m, weights, model.cache.k[number], model.cache.v[number], x)
    if last_only:
        x = x[-1:]
    logits.copy_(linear(rms_norm(x, model.weights.final_norm, m.eps), model.weights.lm_head))


def shared(model: DecoderModel, inputs: DecodeBatch) -> Shared:
    """Work out what all layers read, once a step; ``past`` marks the slots past each row's context."""
    config, size = model.config, model.cache.block_size
    cos, sin = model.rope_rows(inputs.positions)  # [n, D/2] each
    place = torch.arange(inputs.block_tables.shape[1] * size, device=inputs.positions.device)  # [S]
    return Shared(
        eps=config.norm_eps,
        scale=config.head_dim**-0.5,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        cos=torch.cat((cos, cos), dim=-1)[:, None].to(model.weights.dtype),  # [n, 1, D]
        sin=torch.cat((sin, sin), dim=-1)[:, None].to(model.weights.dtype),
        slots=inputs.slot_mapping,
        tables=inputs.block_tables,
        past=(place >= inputs.context_lens[:, None])[:, None],  # [n, 1, S]
    )


def layer(m: Shared, w: LayerWeights, k_cache: Tensor, v_cache: Tensor, x: Tensor) -> Tensor:
    """x [n, h] → [n, h]; writes each row's key and value into the cache."""
    rows, groups = len(x), m.heads // m.kv_heads
    normed = rms_norm(x, w.norm, m.eps)
    q = apply_rope(linear(normed, w.q).view(rows, m.heads, m.head_dim), m.cos, m.sin)  # [n, H, D]
    k = apply_rope(linear(normed, w.k).view(rows, m.kv_heads, m.head_dim), m.cos, m.sin)  # [n, K, D]
    v = linear(normed, w.v).view(rows, m.kv_heads, m.head_dim)
    k_cache.flatten(0, 1)[m.slots] = k
    v_cache.flatten(0, 1)[m.slots] = v
    keys = repeat_kv(k_cache[m.tables].flatten(1, 2).transpose(1, 2), groups)  # [n, H, S, D]
    values = repeat_kv(v_cache[m.tables].flatten(1, 2).transpose(1, 2), groups)
    scores = (keys @ q[..., None]).squeeze(-1) * m.scale  # [n, H, S]
    # The smallest number, not −∞: a padding row without context would become NaN, and NaN × 0 is NaN elsewhere.
    scores = scores.masked_fill(m.past, torch.finfo(scores.dtype).min)
    weights = torch.softmax(at_least_float32(scores), dim=-1).to(x.dtype)
    mixed = (weights[:, :, None] @ values).flatten(1)  # [n, H·D]
    x = x + linear(mixed, w.o)
    normed = rms_norm(x, w.norm_2, m.eps)
    return x + linear(silu(linear(normed, w.gate)) * linear(normed, w.up), w.down)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [n, h] → [n, h], in the naive steps and in at least float32, as the textbook's ``RMSNorm``; weight [h]."""
    wide = at_least_float32(x)
    normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
    return (normed * weight).to(x.dtype)
