"""The linear layers: seven kernels, all of them one of two Triton functions with another prologue and epilogue."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from s13lib.kernels.cuda.dot import dot
from s13lib.kernels.cuda.epilogue import ADD, QKV, STORE, SWIGLU
from s13lib.kernels.cuda.forms import LINEAR, SMS, Gemv, form_for, power_of_two
from s13lib.kernels.cuda.gemv import gemv
from s13lib.kernels.cuda.kernel import CudaKernel, Plan


def _plan(
    name: str,
    epilogue: object,
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
        constants["OUTPUTS"] = _outputs(form.most_outputs // parts, width)
        constants["CHUNK"] = min(form.chunk_bytes // weight.itemsize, power_of_two(inner, least=16))
        options = {"num_warps": form.num_warps, "num_stages": form.num_stages}
    grid = (-(-width // constants["OUTPUTS"]), row_programs, 1)
    # What a kernel does not have is None, which Triton compiles away.
    arguments = (x, norm_weight, float(eps), weight, residual, out, out_k, out_v, rows)
    return Plan(function, grid, arguments, constants, options)


def _outputs(most: int, width: int) -> int:
    """The widest tile of outputs that still gives every multiprocessor a program; it does not depend on the rows."""
    while most > 16 and -(-width // most) < SMS:
        most //= 2
    return most


def _linear(name, flag, x, weight, out) -> Plan:
    return _plan(name, STORE, x, weight, out)


def _linear_add(name, flag, x, weight, residual, out) -> Plan:
    return _plan(name, ADD, x, weight, out, residual=residual)


def _linear_qkv(name, flag, x, weight, out_q, out_k, out_v) -> Plan:
    return _plan(name, QKV, x, weight, out_q, out_k=out_k, out_v=out_v)


def _gate_up_silu_mul(name, flag, x, weight, out) -> Plan:
    return _plan(name, SWIGLU, x, weight, out)


def _rms_norm_qkv(name, flag, x, norm_weight, eps, weight, out_q, out_k, out_v) -> Plan:
    return _plan(name, QKV, x, weight, out_q, norm_weight, eps, out_k=out_k, out_v=out_v)


def _rms_norm_gate_up_silu_mul(name, flag, x, norm_weight, eps, weight, out) -> Plan:
    return _plan(name, SWIGLU, x, weight, out, norm_weight, eps)


KERNELS = [
    CudaKernel(name, partial(plan, name))
    for name, plan in {
        "linear": _linear,
        "linear_add": _linear_add,
        "linear_qkv": _linear_qkv,
        "gate_up_silu_mul": _gate_up_silu_mul,
        "rms_norm_qkv": _rms_norm_qkv,
        "rms_norm_gate_up_silu_mul": _rms_norm_gate_up_silu_mul,
    }.items()
]
