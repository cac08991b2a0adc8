"""RMSNorm, alone and behind a residual add: one program a row, which holds the row in registers."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from s13lib.device.types import F32
from s13lib.kernels.cuda.forms import row_block
from s13lib.kernels.cuda.kernel import Plan, cuda_kernel


@triton.jit(repr=lambda of: of.constants["NAME"])
def norm_row(
    x,
    delta,
    weight,
    eps,
    out_residual,
    out,
    WIDTH: tl.constexpr,
    NAME: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = rms_norm(x), or with ``ADD`` out_residual = x + delta and out = rms_norm(out_residual)."""
    i = tl.arange(0, BLOCK)
    inside = (i < WIDTH) | (WIDTH == BLOCK)
    at = tl.program_id(0) * WIDTH + i
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        stored = value.to(out_residual.dtype.element_ty)
        tl.store(out_residual + at, stored, mask=inside)
        value = stored.to(tl.float32)  # the norm is of what the next add will find
    inverse = tl.rsqrt(tl.sum(value * value, axis=0) / WIDTH + eps)
    scale = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (value * inverse * scale).to(out.dtype.element_ty), mask=inside)


@cuda_kernel("x[rows, hidden] weight[hidden] out[rows, hidden]")
def rms_norm(flag: Tensor, x: F32[2], weight: F32[1], eps: float, out: F32[2]) -> Plan:
    """out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight. ``out`` may be ``x``, not a residual."""
    return _plan("rms_norm", x, None, weight, eps, None, out)


@cuda_kernel("residual[rows, hidden] delta[rows, hidden] weight[hidden] out_residual[rows, hidden] out[rows, hidden]")
def add_rms_norm(
    flag: Tensor,
    residual: F32[2],
    delta: F32[2],
    weight: F32[1],
    eps: float,
    out_residual: F32[2],
    out: F32[2],
) -> Plan:
    """out_residual = residual + delta; out = rms_norm(out_residual). ``out`` must not be ``out_residual``."""
    return _plan("add_rms_norm", residual, delta, weight, eps, out_residual, out)


def _plan(
    name: str,
    x: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    eps: float,
    out_residual: Tensor | None,
    out: Tensor,
) -> Plan:
    rows, width = x.shape
    block, num_warps = row_block(f"{name}: the row's width", width)
    constants = {"WIDTH": width, "NAME": name, "ADD": delta is not None, "BLOCK": block}
    arguments = (x, delta, weight, float(eps), out_residual, out)
    return Plan(norm_row, (rows, 1, 1), arguments, constants, {"num_warps": num_warps})
