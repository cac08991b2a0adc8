"""Decode attention over the paged cache, one query row at a time."""

import numpy as np

from s13lib.device.kernel import kernel
from s13lib.device.types import BLOCK, CONTEXT, F32, I32
from s13lib.kernels.softgpu.arithmetic import device_function, dot, exp32, first_error, in_range
from s13lib.kernels.softgpu.views import by_head


@device_function
def context_error(context, block_table, k_cache):
    """The error word of one row: 0 if its context fits its block table and the blocks that it covers exist."""
    block_size = k_cache.shape[1]
    if not in_range(context, block_table.shape[0] * block_size + 1):
        return first_error(0, CONTEXT, context)
    for b in range((context + block_size - 1) // block_size):
        if not in_range(block_table[b], k_cache.shape[0]):
            return first_error(0, BLOCK, block_table[b])
    return 0


@device_function
def attend_head(q, block_table, context, scale, k_cache, v_cache, kv_head, scores, out):
    """Attention of one head: q, out (head_dim,), not the same; scores is scratch for ``context`` floats.

    Two passes, as in a textbook: all scores and their maximum, then softmax and the weighted sum of v. Only the first
    ``context`` slots are read, so what the unused ones hold cannot matter.
    """
    block_size = k_cache.shape[1]
    largest = np.float32(-np.inf)
    for start in range(0, context, block_size):
        block = block_table[start // block_size]
        for offset in range(min(block_size, context - start)):
            score = dot(q, k_cache[block, offset, kv_head]) * scale
            scores[start + offset] = score
            largest = score if score > largest else largest

    total = np.float32(0)
    for t in range(context):
        p = exp32(scores[t] - largest)
        scores[t] = p
        total += p

    for d in range(out.shape[0]):
        out[d] = np.float32(0)
    for start in range(0, context, block_size):
        block = block_table[start // block_size]
        for offset in range(min(block_size, context - start)):
            p = scores[start + offset]
            v = v_cache[block, offset, kv_head]
            for d in range(out.shape[0]):
                out[d] += p * v[d]
    if context > 0:
        inverse = np.float32(1) / total
        for d in range(out.shape[0]):
            out[d] *= inverse


@device_function
def attend_row(q, block_table, context, scale, k_cache, v_cache, scores, out):
    """Attention of one row: q, out (heads, head_dim). Head h reads key-value head h // (heads / kv_heads)."""
    heads, kv_heads = q.shape[0], k_cache.shape[2]
    for h in range(heads):
        attend_head(q[h], block_table, context, scale, k_cache, v_cache, h * kv_heads // heads, scores, out[h])


@device_function
def attend_rows(q, block_tables, context_lens, scale, k_cache, v_cache, scores, out, start):
    """Attention of the rows from ``start`` up to the first in error: return that row (or how many rows there are) and
    its error word. ``scores`` is scratch for the longest context.
    """
    head_dim = k_cache.shape[3]
    q, out = by_head(q, head_dim), by_head(out, head_dim)
    for r in range(start, q.shape[0]):
        context, block_table = context_lens[r], block_tables[r]
        error = context_error(context, block_table, k_cache)
        if error != 0:
            return r, error
        attend_row(q[r], block_table, context, np.float32(scale), k_cache, v_cache, scores, out[r])
    return q.shape[0], 0


@device_function
def scores_for(block_tables, k_cache):
    """Scratch for the scores of one head over the longest context that the block tables can hold."""
    return np.empty(block_tables.shape[1] * k_cache.shape[1], np.float32)


@kernel(
    out=("out",),
    shapes=(
        "q[rows, width] block_tables[rows, most] context_lens[rows] k_cache[blocks, size, kv_heads, head_dim] "
        "v_cache[blocks, size, kv_heads, head_dim] out[rows, width]; width % (kv_heads*head_dim) == 0"
    ),
)
def paged_attention(
    q: F32[2],
    block_tables: I32[2],
    context_lens: I32[1],
    scale: float,
    k_cache: F32[4],
    v_cache: F32[4],
    out: F32[2],
) -> int:
    """out[r] = softmax(q[r]·Kᵀ·scale)·V over the first ``context_lens[r]`` tokens of row r's blocks, head by head.

    q, out (rows, heads·head_dim), not the same; block_tables (rows, max_blocks); context_lens (rows,), the current
    token included; caches (blocks, block_size, kv_heads, head_dim); scale is usually head_dim**-0.5. A context of 0
    gives zeros. Scratch: max_blocks·block_size floats.
    """
    scores = scores_for(block_tables, k_cache)
    error, start = 0, 0
    while start < q.shape[0]:
        stop, row_error = attend_rows(q, block_tables, context_lens, scale, k_cache, v_cache, scores, out, start)
        error = row_error if error == 0 else error
        start = stop + 1
    return error
