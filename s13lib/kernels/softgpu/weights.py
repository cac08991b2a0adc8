"""Where a weight meets an activation, for every format of weights: the compiler picks by the type of the weight.

A kernel writes ``x = operand(x, weight)``, ``dot_with(weight[o], x, r)`` and ``widen(weight[o], out)``, and is compiled
once for each format that ``s13lib.kernels.softgpu.quantised`` asks for.

Against quantised weights the activations are rounded too, each block of 32 to 16-bit integers that share a scale: then
a block's products are summed exactly, in integers, half again as fast as in float32 (measured). What the rounding costs
is bounded in ``s13lib.kernels.bounds.sixteen_bit``: 2**−16 of the block's largest activation. That is 250 times less
than with the 8 bits to which llama.cpp rounds them, and far below what rounding the weights cost.
"""

import numpy as np
from numba import types
from numba.extending import overload

from s13lib.device.kernel import FAST_MATH
from s13lib.kernels.quantised import BLOCK
from s13lib.kernels.softgpu.arithmetic import device_function, dot
from s13lib.kernels.softgpu.vectors import block_dot, unpack_row

# Each function here that stands for several calls its chooser, so that the kernels' cache sees all that they depend on.
# Inlined by force: a call for each (row, output) would cost half as much again as the dot product of a short row.
by_format = {"jit_options": {"fastmath": FAST_MATH, "error_model": "numpy", "forceinline": True}}

MOST = np.float32(32767)
LEAST_LARGEST = np.float32(2.0**-100)
"""Stands in for a block's largest activation where that is smaller: its reciprocal must be finite."""


def operand(x, weight):
    """Activations x (rows, width) in the form that ``dot_with`` takes beside ``weight``: x itself, or rounded."""
    return _choose_operand(x, weight)


@overload(operand, **by_format)
def _choose_operand(x, weight):
    if weight.dtype == types.float32:
        return lambda x, weight: x
    return lambda x, weight: round_to_16_bits(x)


def dot_with(weight_row, x, r):
    """Σ weight[i]·x[r, i]: one row of weights, and row ``r`` of what ``operand`` made."""
    return _choose_dot(weight_row, x, r)


@overload(dot_with, **by_format)
def _choose_dot(weight_row, x, r):
    if weight_row.dtype == types.float32:
        return lambda weight_row, x, r: dot(weight_row, x[r])
    return lambda weight_row, x, r: block_dot(weight_row, x[0][r], x[1][r])


def widen(weight_row, out):
    """out (width,) = a row of weights as float32, exact."""
    return _choose_widen(weight_row, out)


@overload(widen, **by_format)
def _choose_widen(weight_row, out):
    if weight_row.dtype == types.float32:
        return lambda weight_row, out: copy_row(weight_row, out)
    return lambda weight_row, out: unpack_row(weight_row, out)


@device_function
def copy_row(x, out):
    """out = x, each (width,)."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@device_function
def round_to_16_bits(x):
    """x (rows, width), whole blocks → int16 (rows, width), and the scales of its blocks, float32 (rows, width / 32).

    An activation that is not finite makes its block's scale NaN. Scratch: 2 bytes an activation, 4 a block.
    """
    rows, blocks = x.shape[0], x.shape[1] // BLOCK
    values = np.empty(x.shape, np.int16)
    scales = np.empty((rows, blocks), np.float32)
    for r in range(rows):
        for b in range(blocks):
            largest, zero = LEAST_LARGEST, np.float32(0)
            for i in range(b * BLOCK, (b + 1) * BLOCK):
                size = abs(x[r, i])
                largest = size if size > largest else largest
                zero += np.float32(0) * x[r, i]  # NaN if x is NaN or infinite
            scales[r, b] = largest / MOST + zero
            inverse = MOST / largest
            for i in range(b * BLOCK, (b + 1) * BLOCK):
                values[r, i] = np.int16(np.rint(x[r, i] * inverse))
    return values, scales
