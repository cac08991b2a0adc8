"""The GEMV form of every linear layer: up to a few rows, bound by reading the weights once.

A tile is one-dimensional, so that weights and activations have the same layout over the threads: nothing moves between
threads until the sums at the end. (A two-dimensional tile makes Triton pass every weight through shared memory to meet
its activation: seen in the code that it generates.)
"""

# ruff: noqa: RUF005 — a Triton kernel cannot unpack tuples
from __future__ import annotations

import triton
import triton.language as tl

from s13lib.kernels.cuda.epilogue import finish


@triton.jit(repr=lambda of: f"{of.constants['NAME']}_gemv", do_not_specialize=["rows"])
def gemv(
    x,
    norm_weight,
    eps,
    weight,
    residual,
    out,
    out_k,
    out_v,
    rows,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    KV_WIDTH: tl.constexpr,
    NAME: tl.constexpr,
    EPILOGUE: tl.constexpr,
    NORM: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """``OUTPUTS`` outputs of all ``rows`` rows, at most ``ROWS``. x is (rows, INNER), weight (PARTS·WIDTH, INNER).

    With ``NORM`` the row's RMS is summed on the way and divides the result: x·w/rms = (x/rms)·w needs no pass before.
    """
    first = tl.program_id(0) * OUTPUTS
    lane = tl.arange(0, CHUNK)
    # One accumulator a thread for each (part, output, row), as a tuple: the loops below are unrolled.
    totals = ()
    for _ in tl.static_range(PARTS * OUTPUTS * ROWS):
        totals = totals + (tl.zeros((CHUNK,), tl.float32),)
    squares = ()
    for _ in tl.static_range(ROWS):
        squares = squares + (tl.zeros((CHUNK,), tl.float32),)

    for start in range(0, INNER, CHUNK):
        i = start + lane
        inside = (i < INNER) | (INNER % CHUNK == 0)  # without a remainder the mask folds away
        scale = tl.full((CHUNK,), 1.0, tl.float32)
        if NORM:
            scale = tl.load(norm_weight + i, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        activations = ()
        new_squares = ()
        for r in tl.static_range(ROWS):
            row = tl.minimum(r, rows - 1)  # rows beyond the last repeat it, and are not stored
            given = tl.load(x + row * INNER + i, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            new_squares = new_squares + (squares[r] + given * given,)
            activations = activations + (given * scale,)
        squares = new_squares
        new_totals = ()
        for part in tl.static_range(PARTS):
            for n in tl.static_range(OUTPUTS):
                output = (part * WIDTH + tl.minimum(first + n, WIDTH - 1)).to(tl.int64)
                weights = tl.load(weight + output * INNER + i, mask=inside, other=0.0, eviction_policy="evict_first")
                for r in tl.static_range(ROWS):
                    total = totals[(part * OUTPUTS + n) * ROWS + r]
                    new_totals = new_totals + (total + weights.to(tl.float32) * activations[r],)
        totals = new_totals

    for r in tl.static_range(ROWS):
        inverse = 1.0
        if NORM:
            inverse = tl.rsqrt(tl.sum(squares[r], axis=0) / INNER + eps)
        for n in tl.static_range(OUTPUTS):
            value = tl.sum(totals[n * ROWS + r], axis=0) * inverse
            second = value
            if PARTS == 2:
                second = tl.sum(totals[(OUTPUTS + n) * ROWS + r], axis=0) * inverse
            real = (r < rows) & (first + n < WIDTH)
            finish(value, second, r, first + n, real, residual, out, out_k, out_v, WIDTH, KV_WIDTH, EPILOGUE)
