"""Kernels without arithmetic between a row's elements: embedding, copy, scale."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from s13lib.kernels.cuda.errors import TOKEN_WORD, report, reporter_word
from s13lib.kernels.cuda.forms import power_of_two
from s13lib.kernels.cuda.kernel import CudaKernel, Plan

MOST_BLOCK = 1024


@triton.jit(repr=lambda of: "embedding")
def embedding(
    input_ids,
    weight,
    out,
    flag,
    vocabulary,
    WIDTH: tl.constexpr,
    REPORTER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A piece of one row: out[r] = weight[input_ids[r]]."""
    row = tl.program_id(0)
    token = tl.load(input_ids + row)
    if (token >= 0) & (token < vocabulary):
        i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = (i < WIDTH) | (WIDTH % BLOCK == 0)
        value = tl.load(weight + token * WIDTH + i, mask=inside, other=0.0)
        tl.store(out + row * WIDTH + i, value.to(out.dtype.element_ty), mask=inside)
    elif tl.program_id(1) == 0:
        report(flag, TOKEN_WORD | REPORTER, token)


@triton.jit(repr=lambda of: of.constants["NAME"])
def scaled_copy(x, out, factor, n, NAME: tl.constexpr, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = x[i], or x[i]·factor."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if SCALE:
        value = value.to(tl.float32) * factor
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < n)


def _embedding(flag: Tensor, input_ids: Tensor, weight: Tensor, out: Tensor) -> Plan:
    rows, width = out.shape
    block = power_of_two(min(width, MOST_BLOCK))
    constants = {"WIDTH": width, "REPORTER": reporter_word("embedding"), "BLOCK": block}
    return Plan(embedding, (rows, -(-width // block), 1), (input_ids, weight, out, flag, weight.shape[0]), constants)


def _copy(flag: Tensor, x: Tensor, out: Tensor) -> Plan:
    return _scaled_copy("copy", x, out, 1.0)


def _scale(flag: Tensor, x: Tensor, out: Tensor, factor: float) -> Plan:
    return _scaled_copy("scale", x, out, float(factor))


def _scaled_copy(name: str, x: Tensor, out: Tensor, factor: float) -> Plan:
    n = x.shape[0]
    block = power_of_two(min(n, MOST_BLOCK))
    constants = {"NAME": name, "SCALE": name == "scale", "BLOCK": block}
    return Plan(scaled_copy, (-(-n // block), 1, 1), (x, out, factor, n), constants)


KERNELS = [CudaKernel("embedding", _embedding), CudaKernel("copy", _copy), CudaKernel("scale", _scale)]
