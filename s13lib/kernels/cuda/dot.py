"""The tensor-core form of every linear layer: from a few rows up, with weights staged through shared memory."""

from __future__ import annotations

import triton
import triton.language as tl

from s13lib.kernels.cuda.epilogue import finish


@triton.jit(repr=lambda of: f"{of.constants['NAME']}_dot", do_not_specialize=["rows"])
def dot(
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
    """A tile of ROWS × OUTPUTS results. x is (rows, INNER), rounded to the weights' type; sums are float32.

    With ``NORM`` the tile's rows are read once before, for their RMS: dividing at the end instead, as the GEMV form
    does, would let a float16 operand overflow.
    """
    kind = weight.dtype.element_ty
    # Rows and outputs beyond the last repeat it, so that no load needs a mask for them; they are not stored.
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    x_rows = x + tl.minimum(row, rows - 1) * INNER
    weight_rows = weight + tl.minimum(output, WIDTH - 1).to(tl.int64)[None, :] * INNER
    lane = tl.arange(0, CHUNK)
    EVEN: tl.constexpr = INNER % CHUNK == 0  # then the masks below fold away

    inverse = tl.full((ROWS, 1), 1.0, tl.float32)
    if NORM:
        squares = tl.zeros((ROWS, CHUNK), tl.float32)
        for start in range(0, INNER, CHUNK):
            i = start + lane[None, :]
            given = tl.load(x_rows + i, mask=(i < INNER) | EVEN, other=0.0, eviction_policy="evict_last").to(tl.float32)
            squares += given * given
        inverse = tl.rsqrt(tl.sum(squares, axis=1)[:, None] / INNER + eps)

    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    second = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for start in range(0, INNER, CHUNK):
        i = start + lane[None, :]
        given = tl.load(x_rows + i, mask=(i < INNER) | EVEN, other=0.0, eviction_policy="evict_last")
        if NORM:
            scale = tl.load(norm_weight + i, mask=(i < INNER) | EVEN, other=0.0, eviction_policy="evict_last")
            given = given.to(tl.float32) * inverse * scale.to(tl.float32)
        given = given.to(kind)
        i = start + lane[:, None]
        inside = (i < INNER) | EVEN
        weights = tl.load(weight_rows + i, mask=inside, other=0.0, eviction_policy="evict_first")
        # "ieee" says no TF32 for float32 weights, and nothing for the 16-bit types.
        total = tl.dot(given, weights, total, input_precision="ieee")
        if PARTS == 2:
            weights = tl.load(weight_rows + WIDTH * INNER + i, mask=inside, other=0.0, eviction_policy="evict_first")
            second = tl.dot(given, weights, second, input_precision="ieee")

    output = output[None, :]
    real = (row < rows) & (output < WIDTH)
    finish(total, second, row, output, real, residual, out, out_k, out_v, WIDTH, KV_WIDTH, EPILOGUE)
