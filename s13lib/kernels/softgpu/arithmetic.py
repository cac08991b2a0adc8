"""What the kernels are made of: the dot product, exp and SiLU in float32, and the error word."""

import numpy as np
from numba import njit

from s13lib.device.kernel import helper
from s13lib.device.types import ERROR_MASK, ERROR_SHIFT

device_function = helper
"""Marks a function that only kernels call, with their arithmetic flags. The compiler inlines it: it costs no call."""

exact_device_function = njit(fastmath={"contract"}, error_model="numpy")
"""The same without re-association: for code in which the order of the operations is the algorithm."""


@device_function
def dot(a, b):
    """Return Σ a[i]·b[i] of two float32 vectors: the one place where a float32 weight meets an activation.

    One row of weights at a time is one stream through memory, which the prefetcher likes best.
    """
    total = np.float32(0)
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # nine bits: n·LN2_HIGH is exact for every n that can occur
LN2_LOW = np.float32(-2.12194440e-4)
EXP_LIMIT = np.float32(87.3)


@exact_device_function
def exp32(x):
    """Return e**x in float32, good to 2 units in the last place. NaN gives NaN; x is clamped to ±87.3 (1e±38).

    Written out because the C library's expf does not vectorise. e**x = 2**n · e**r, n the integer nearest to x·log2(e);
    the polynomial for e**r, |r| ≤ ln(2)/2, is that of the Cephes library's expf.
    """
    # Both comparisons are false for NaN, which goes on through the polynomial and comes out as NaN.
    x = EXP_LIMIT if x > EXP_LIMIT else x
    x = -EXP_LIMIT if x < -EXP_LIMIT else x
    n = np.floor(x * LOG2_E + np.float32(0.5))
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = (p * r) * r + r + np.float32(1)
    two_to_the_n = np.int32((np.int32(n) + 127) << 23).view(np.float32)  # n as a float32's exponent bits
    return p * two_to_the_n


@device_function
def silu(x):
    """Return x / (1 + e**-x) in float32."""
    return x / (np.float32(1) + exp32(-x))


@device_function
def in_range(index, size):
    """Whether ``index`` is one of 0 … size − 1."""
    return 0 <= index < size


@device_function
def first_error(error, kind, value):
    """Return ``error`` if there was one already, else the error word for ``kind`` and the offending ``value``."""
    return error if error != 0 else (kind << ERROR_SHIFT) | (value & ERROR_MASK)
