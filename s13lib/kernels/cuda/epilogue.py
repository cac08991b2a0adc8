"""What a linear layer does with its result before it is stored: the part that the fused kernels differ in."""

from __future__ import annotations

import triton
import triton.language as tl

STORE, ADD, QKV, SWIGLU = (tl.constexpr(name) for name in ("store", "add", "qkv", "swiglu"))


@triton.jit
def finish(
    value,
    second,
    row,
    output,
    real,
    residual,
    out,
    out_k,
    out_v,
    WIDTH: tl.constexpr,
    KV_WIDTH: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    """Store float32 ``value`` as (row, output), where ``real``. Scalars, or tiles that broadcast against each other.

    STORE   out[row, output] = value
    ADD     out[row, output] = residual[row, output] + value; ``out`` may be ``residual``
    QKV     WIDTH = q + 2·KV_WIDTH: the first q outputs go to ``out``, the next to ``out_k``, the last to ``out_v``
    SWIGLU  out[row, output] = silu(value)·second
    """
    if EPILOGUE == QKV:
        q_width = WIDTH - 2 * KV_WIDTH
        k_output = output - q_width
        v_output = k_output - KV_WIDTH
        of_k = real & (k_output >= 0) & (v_output < 0)
        tl.store(out + row * q_width + output, value.to(out.dtype.element_ty), mask=real & (k_output < 0))
        tl.store(out_k + row * KV_WIDTH + k_output, value.to(out_k.dtype.element_ty), mask=of_k)
        tl.store(out_v + row * KV_WIDTH + v_output, value.to(out_v.dtype.element_ty), mask=real & (v_output >= 0))
    else:
        at = row * WIDTH + output
        if EPILOGUE == ADD:
            value += tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
        if EPILOGUE == SWIGLU:
            value = value * tl.sigmoid(value) * second
        tl.store(out + at, value.to(out.dtype.element_ty), mask=real)
