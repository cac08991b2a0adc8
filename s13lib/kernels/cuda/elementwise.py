"""Kernels without arithmetic between a row's elements: embedding, copy, scale, add, append_kv."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from s13lib.device.types import F32, I64
from s13lib.kernels.cuda.errors import SLOT_WORD, TOKEN_WORD, report
from s13lib.kernels.cuda.forms import power_of_two
from s13lib.kernels.cuda.kernel import Plan, cuda_kernel

MOST_BLOCK = 1024
NO_SLOT = tl.constexpr(-1)


@triton.jit(repr=lambda of: "embedding")
def look_up_piece(input_ids, weight, out, flag, vocabulary, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Program (row, piece): a piece of out[r] = weight[input_ids[r]]."""
    row = tl.program_id(0)
    token = tl.load(input_ids + row)
    if (token >= 0) & (token < vocabulary):
        i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = (i < WIDTH) | (WIDTH % BLOCK == 0)
        value = tl.load(weight + token * WIDTH + i, mask=inside, other=0.0)
        tl.store(out + row * WIDTH + i, value.to(out.dtype.element_ty), mask=inside)
    elif tl.program_id(1) == 0:
        report(flag, TOKEN_WORD, token)


@triton.jit(repr=lambda of: of.constants["NAME"])
def map_piece(x, y, out, factor, n, NAME: tl.constexpr, BLOCK: tl.constexpr):
    """A piece of out = x, out = x·factor or out = x + y, by ``NAME``."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if NAME == "scale":
        value = value.to(tl.float32) * factor
    if NAME == "add":
        value = value.to(tl.float32) + tl.load(y + i, mask=i < n).to(tl.float32)
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < n)


@triton.jit(repr=lambda of: "append_kv")
def append_row(k, v, slot_mapping, k_cache, v_cache, flag, slots, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Program (row): its k and v, WIDTH = kv_heads·head_dim elements each, go to its slot."""
    row = tl.program_id(0)
    slot = tl.load(slot_mapping + row)
    if (slot >= 0) & (slot < slots):
        i = tl.arange(0, BLOCK)
        inside = (i < WIDTH) | (WIDTH == BLOCK)
        key = tl.load(k + row * WIDTH + i, mask=inside, other=0.0)
        value = tl.load(v + row * WIDTH + i, mask=inside, other=0.0)
        tl.store(k_cache + slot * WIDTH + i, key.to(k_cache.dtype.element_ty), mask=inside)
        tl.store(v_cache + slot * WIDTH + i, value.to(v_cache.dtype.element_ty), mask=inside)
    elif slot != NO_SLOT:
        report(flag, SLOT_WORD, slot)


@cuda_kernel("input_ids[rows] weight[vocab, hidden] out[rows, hidden]")
def embedding(flag: Tensor, input_ids: I64[1], weight: F32[2], out: F32[2]) -> Plan:
    """out[r] = weight[input_ids[r]]: input_ids (rows,), weight (vocabulary, hidden), out (rows, hidden)."""
    rows, width = out.shape
    block = power_of_two(min(width, MOST_BLOCK))
    arguments = (input_ids, weight, out, flag, weight.shape[0])
    return Plan(look_up_piece, (rows, -(-width // block), 1), arguments, {"WIDTH": width, "BLOCK": block})


@cuda_kernel("x[n] out[n]")
def copy(flag: Tensor, x: F32[1], out: F32[1]) -> Plan:
    """out[i] = x[i], for any shape seen as one vector."""
    return _map("copy", x, None, out)


@cuda_kernel("x[n] out[n]")
def scale(flag: Tensor, x: F32[1], out: F32[1], factor: float) -> Plan:
    """out[i] = x[i]·factor, for any shape seen as one vector. ``out`` may be ``x``."""
    return _map("scale", x, None, out, factor)


@cuda_kernel("x[rows, width] y[rows, width] out[rows, width]")
def add(flag: Tensor, x: F32[2], y: F32[2], out: F32[2]) -> Plan:
    """out = x + y, each (rows, width). ``out`` may be ``x`` or ``y``."""
    return _map("add", x, y, out)


def _map(name: str, x: Tensor, y: Tensor | None, out: Tensor, factor: float = 1.0) -> Plan:
    n = x.numel()
    block = power_of_two(min(n, MOST_BLOCK))
    arguments = (x, y, out, float(factor), n)
    return Plan(map_piece, (-(-n // block), 1, 1), arguments, {"NAME": name, "BLOCK": block})


@cuda_kernel(
    "k[rows, kv_heads*head_dim] v[rows, kv_heads*head_dim] slot_mapping[rows] k_cache[blocks, size, kv_heads, "
    "head_dim] v_cache[blocks, size, kv_heads, head_dim]"
)
def append_kv(flag: Tensor, k: F32[2], v: F32[2], slot_mapping: I64[1], k_cache: F32[4], v_cache: F32[4]) -> Plan:
    """Write each row's k and v (rows, kv_heads·head_dim) at its slot (rows,) of the caches. Slot −1 writes nothing."""
    rows, width = k.shape
    arguments = (k, v, slot_mapping, k_cache, v_cache, flag, k_cache.shape[0] * k_cache.shape[1])
    return Plan(append_row, (rows, 1, 1), arguments, {"WIDTH": width, "BLOCK": power_of_two(width)})
