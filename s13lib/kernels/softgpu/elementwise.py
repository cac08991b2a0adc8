"""Kernels without arithmetic between a row's elements: copy, scale, embedding, add, silu_mul."""

import numpy as np

from s13lib.device.kernel import kernel
from s13lib.device.types import F32, I64, TOKEN
from s13lib.kernels.softgpu.arithmetic import device_function, first_error, in_range, silu
from s13lib.kernels.softgpu.weights import widen


@kernel(
    out=("out",),
    shapes="x[n] out[n]",
)
def copy(x: F32[1], out: F32[1]):
    """out[i] = x[i], for any shape seen as one vector."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@kernel(
    out=("out",),
    shapes="x[n] out[n]",
)
def scale(x: F32[1], out: F32[1], factor: float):
    """out[i] = x[i]·factor, for any shape seen as one vector. ``out`` may be ``x``."""
    factor32 = np.float32(factor)
    for i in range(x.shape[0]):
        out[i] = x[i] * factor32


@kernel(
    out=("out",),
    shapes="input_ids[rows] weight[vocab, hidden] out[rows, hidden]",
)
def embedding(input_ids: I64[1], weight: F32[2], out: F32[2]) -> int:
    """out[r] = weight[input_ids[r]]: input_ids (rows,), weight (vocabulary, hidden), out (rows, hidden)."""
    error = 0
    for r in range(input_ids.shape[0]):
        token = input_ids[r]
        if in_range(token, weight.shape[0]):
            widen(weight[token], out[r])
        else:
            error = first_error(error, TOKEN, token)
    return error


@kernel(
    out=("out",),
    shapes="x[rows, width] y[rows, width] out[rows, width]",
)
def add(x: F32[2], y: F32[2], out: F32[2]):
    """out = x + y, each (rows, width). ``out`` may be ``x`` or ``y``."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[r, i] = x[r, i] + y[r, i]


@kernel(
    out=("out",),
    shapes="gate[rows, width] up[rows, width] out[rows, width]",
)
def silu_mul(gate: F32[2], up: F32[2], out: F32[2]):
    """out = silu(gate)·up, the middle of SwiGLU, each (rows, width).

    ``out`` may be ``gate`` or ``up``, but a third tensor is five times as fast: only then does the loop use vectors.
    """
    for r in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            out[r, i] = silu(gate[r, i]) * up[r, i]


@device_function
def multiply_by_silu(gate, out):
    """out = silu(gate)·out, for the kernels that fuse ``silu_mul``. Said in place, it still uses vectors."""
    for r in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            out[r, i] = silu(gate[r, i]) * out[r, i]
