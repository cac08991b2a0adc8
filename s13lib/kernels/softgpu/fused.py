"""The kernels of stages 7, 5 and 4 that fuse across kinds: norm, projection, rotation, cache, attention, residual."""

import numpy as np

from s13lib.device.kernel import kernel
from s13lib.device.types import F32, I32, I64
from s13lib.kernels.softgpu.arithmetic import in_range
from s13lib.kernels.softgpu.attention import attend_row, attend_rows, context_error, scores_for
from s13lib.kernels.softgpu.cache import rope_append_kv, rope_rows, rotate
from s13lib.kernels.softgpu.linear import project_add, project_gate_up_silu_mul, project_qkv
from s13lib.kernels.softgpu.norm import rms_norm_rows
from s13lib.kernels.softgpu.views import by_head
from s13lib.kernels.softgpu.weights import operand


@kernel(
    out=("out_q", "out_k", "out_v"),
    shapes=(
        "x[rows, hidden] norm_weight[hidden] weight[q + 2*kv, hidden] out_q[rows, q] out_k[rows, kv] out_v[rows, kv]"
    ),
)
def rms_norm_qkv(
    x: F32[2], norm_weight: F32[1], eps: float, weight: F32[2], out_q: F32[2], out_k: F32[2], out_v: F32[2]
):
    """``linear_qkv`` of ``rms_norm(x)``: the norm is done once a row, in scratch of rows·hidden floats."""
    normed = np.empty(x.shape, np.float32)
    rms_norm_rows(x, norm_weight, eps, normed)
    project_qkv(normed, weight, out_q, out_k, out_v)


@kernel(
    out=("out",),
    shapes="x[rows, hidden] norm_weight[hidden] weight[2*width, hidden] out[rows, width]",
)
def rms_norm_gate_up_silu_mul(x: F32[2], norm_weight: F32[1], eps: float, weight: F32[2], out: F32[2]):
    """``gate_up_silu_mul`` of ``rms_norm(x)``. Scratch: rows·(hidden + width) floats."""
    normed = np.empty(x.shape, np.float32)
    rms_norm_rows(x, norm_weight, eps, normed)
    project_gate_up_silu_mul(normed, weight, out)


@kernel(
    out=("k_cache", "v_cache", "out_q"),
    shapes=(
        "x[rows, hidden] norm_weight[hidden] weight[width + 2*kv_heads*head_dim, hidden] cos[longest, half] "
        "sin[longest, half] positions[rows] slot_mapping[rows] k_cache[blocks, size, kv_heads, head_dim] "
        "v_cache[blocks, size, kv_heads, head_dim] out_q[rows, width]; 2*half == head_dim, width % head_dim "
        "== 0"
    ),
)
def rms_norm_qkv_rope_append(
    x: F32[2],
    norm_weight: F32[1],
    eps: float,
    weight: F32[2],
    cos: F32[2],
    sin: F32[2],
    positions: I64[1],
    slot_mapping: I64[1],
    k_cache: F32[4],
    v_cache: F32[4],
    out_q: F32[2],
) -> int:
    """``rope_append`` of ``rms_norm_qkv``. Scratch: rows·(hidden + (heads + 2·kv_heads)·head_dim) floats."""
    rows, kv_width = x.shape[0], k_cache.shape[2] * k_cache.shape[3]
    normed = np.empty(x.shape, np.float32)
    q = np.empty(out_q.shape, np.float32)
    k = np.empty((rows, kv_width), np.float32)
    v = np.empty((rows, kv_width), np.float32)
    rms_norm_rows(x, norm_weight, eps, normed)
    project_qkv(normed, weight, q, k, v)
    error = rope_append_kv(k, v, cos, sin, positions, slot_mapping, k_cache, v_cache)
    rope_rows(q, cos, sin, positions, out_q)
    return error


@kernel(
    out=("k_cache", "v_cache", "out"),
    shapes=(
        "q[rows, width] k[rows, kv_heads*head_dim] v[rows, kv_heads*head_dim] cos[longest, half] sin[longest, "
        "half] positions[rows] slot_mapping[rows] block_tables[rows, most] context_lens[rows] k_cache[blocks, "
        "size, kv_heads, head_dim] v_cache[blocks, size, kv_heads, head_dim] out[rows, width]; 2*half == "
        "head_dim, width % (kv_heads*head_dim) == 0"
    ),
)
def rope_append_attention(
    q: F32[2],
    k: F32[2],
    v: F32[2],
    cos: F32[2],
    sin: F32[2],
    positions: I64[1],
    slot_mapping: I64[1],
    block_tables: I32[2],
    context_lens: I32[1],
    scale: float,
    k_cache: F32[4],
    v_cache: F32[4],
    out: F32[2],
) -> int:
    """``paged_attention`` of ``rope_append``. All rows are appended before any row attends, so that the rows of a
    prefill see each other. A row whose position is out of range is skipped as a whole.

    ``out`` must not be ``q``. Scratch: max_blocks·block_size + heads·head_dim floats.
    """
    head_dim = k_cache.shape[3]
    error = rope_append_kv(k, v, cos, sin, positions, slot_mapping, k_cache, v_cache)
    scores = scores_for(block_tables, k_cache)
    q_heads, out_heads = by_head(q, head_dim), by_head(out, head_dim)
    rotated = np.empty(q_heads.shape[1:], np.float32)
    for r in range(q.shape[0]):
        position, context, block_table = positions[r], context_lens[r], block_tables[r]
        row_error = context_error(context, block_table, k_cache)
        if row_error != 0:
            error = row_error if error == 0 else error
        elif in_range(position, cos.shape[0]):
            rotate(q_heads[r], cos[position], sin[position], rotated)
            attend_row(rotated, block_table, context, np.float32(scale), k_cache, v_cache, scores, out_heads[r])
    return error


@kernel(
    out=("out",),
    shapes=(
        "q[rows, width] block_tables[rows, most] context_lens[rows] k_cache[blocks, size, kv_heads, head_dim] "
        "v_cache[blocks, size, kv_heads, head_dim] weight[hidden, width] residual[rows, hidden] out[rows, "
        "hidden]; width % (kv_heads*head_dim) == 0"
    ),
)
def attention_linear_add(
    q: F32[2],
    block_tables: I32[2],
    context_lens: I32[1],
    scale: float,
    k_cache: F32[4],
    v_cache: F32[4],
    weight: F32[2],
    residual: F32[2],
    out: F32[2],
) -> int:
    """``linear_add`` of ``paged_attention``: out = residual + attention·weightᵀ, weight (hidden, heads·head_dim).

    ``out`` may be ``residual``. Scratch: max_blocks·block_size + rows·heads·head_dim floats.
    """
    scores = scores_for(block_tables, k_cache)
    attended = np.empty(q.shape, np.float32)
    error, start = 0, 0
    while start < q.shape[0]:
        # A row in error is left as it was: the rows before it are projected, then those behind it.
        stop, row_error = attend_rows(q, block_tables, context_lens, scale, k_cache, v_cache, scores, attended, start)
        project_add(operand(attended[start:stop], weight), weight, residual[start:stop], out[start:stop])
        error = row_error if error == 0 else error
        start = stop + 1
    return error
