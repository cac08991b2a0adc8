"""The linear layers: six kernels, all of them one of two Triton functions with another prologue and epilogue."""

from __future__ import annotations

import triton.language as tl
from torch import Tensor

from s13lib.device.types import F32
from s13lib.kernels.cuda.dot import dot
from s13lib.kernels.cuda.epilogue import ADD, QKV, STORE, SWIGLU
from s13lib.kernels.cuda.forms import LINEAR, SMS, Dot, Gemv, form_for, power_of_two
from s13lib.kernels.cuda.gemv import gemv
from s13lib.kernels.cuda.kernel import Plan, cuda_kernel


@cuda_kernel("x[rows, n] weight[m, n] out[rows, m]")
def linear(flag: Tensor, x: F32[2], weight: F32[2], out: F32[2]) -> Plan:
    """out = x·weightᵀ: x (rows, in), weight (out, in), out (rows, out)."""
    return _plan("linear", STORE, x, weight, out)


@cuda_kernel("x[rows, n] weight[m, n] residual[rows, m] out[rows, m]")
def linear_add(flag: Tensor, x: F32[2], weight: F32[2], residual: F32[2], out: F32[2]) -> Plan:
    """out = residual + x·weightᵀ (the o and down projections). ``out`` may be ``residual``, not ``x``."""
    return _plan("linear_add", ADD, x, weight, out, residual=residual)


@cuda_kernel("x[rows, n] weight[q + 2*kv, n] out_q[rows, q] out_k[rows, kv] out_v[rows, kv]")
def linear_qkv(flag: Tensor, x: F32[2], weight: F32[2], out_q: F32[2], out_k: F32[2], out_v: F32[2]) -> Plan:
    """q, k and v from one packed weight, rows in that order."""
    return _plan("linear_qkv", QKV, x, weight, out_q, out_k=out_k, out_v=out_v)


@cuda_kernel("x[rows, n] weight[2*width, n] out[rows, width]")
def gate_up_silu_mul(flag: Tensor, x: F32[2], weight: F32[2], out: F32[2]) -> Plan:
    """out = silu(x·gateᵀ)·(x·upᵀ): weight (2·width, in), the gate's rows first; out (rows, width)."""
    return _plan("gate_up_silu_mul", SWIGLU, x, weight, out)


@cuda_kernel(
    "x[rows, hidden] norm_weight[hidden] weight[q + 2*kv, hidden] out_q[rows, q] out_k[rows, kv] out_v[rows, kv]"
)
def rms_norm_qkv(
    flag: Tensor,
    x: F32[2],
    norm_weight: F32[1],
    eps: float,
    weight: F32[2],
    out_q: F32[2],
    out_k: F32[2],
    out_v: F32[2],
) -> Plan:
    """``linear_qkv`` of ``rms_norm(x)``, which every program works out for itself."""
    return _plan("rms_norm_qkv", QKV, x, weight, out_q, norm_weight, eps, out_k=out_k, out_v=out_v)


@cuda_kernel("x[rows, hidden] norm_weight[hidden] weight[2*width, hidden] out[rows, width]")
def rms_norm_gate_up_silu_mul(
    flag: Tensor, x: F32[2], norm_weight: F32[1], eps: float, weight: F32[2], out: F32[2]
) -> Plan:
    """``gate_up_silu_mul`` of ``rms_norm(x)``, which every program works out for itself."""
    return _plan("rms_norm_gate_up_silu_mul", SWIGLU, x, weight, out, norm_weight, eps)


def _plan(
    name: str,
    epilogue: tl.constexpr,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    out_k: Tensor | None = None,
    out_v: Tensor | None = None,
) -> Plan:
    rows, inner = x.shape
    parts = 2 if epilogue is SWIGLU else 1
    width = weight.shape[0] // parts
    form = form_for(rows, LINEAR)
    constants = {
        "INNER": inner,
        "WIDTH": width,
        "KV_WIDTH": out_k.shape[1] if out_k is not None else 0,
        "NAME": name,
        "EPILOGUE": epilogue.value,
        "NORM": norm_weight is not None,
        "PARTS": parts,
    }
    if isinstance(form, Gemv):
        function, row_programs = gemv, 1
        constants["ROWS"] = power_of_two(rows)
        constants["OUTPUTS"] = form.outputs // parts
        constants["CHUNK"] = power_of_two(min(inner, form.most_chunk))
        options = {"num_warps": form.num_warps}
    else:
        function, row_programs = dot, -(-rows // form.block_rows)
        constants["ROWS"] = form.block_rows
        constants["OUTPUTS"] = _outputs(form, parts, width)
        constants["CHUNK"] = min(form.chunk_bytes // weight.itemsize, power_of_two(inner, least=16))
        options = {"num_warps": form.num_warps, "num_stages": form.num_stages}
    grid = (-(-width // constants["OUTPUTS"]), row_programs, 1)
    # What a kernel does not have is None, which Triton compiles away.
    arguments = (x, norm_weight, float(eps), weight, residual, out, out_k, out_v, rows)
    return Plan(function, grid, arguments, constants, options)


def _outputs(form: Dot, parts: int, width: int) -> int:
    """How many outputs a program takes: whichever tile makes a multiprocessor read the fewest rows of x and weight.

    Wide tiles read x less often, narrow ones keep all multiprocessors busy.
    """

    def rows_read(outputs: int) -> int:
        programs = -(-width // outputs)
        return -(-programs // SMS) * (form.block_rows + parts * outputs)

    return min((outputs for outputs in (16, 32, 64, 128) if parts * outputs <= form.most_outputs), key=rows_read)
