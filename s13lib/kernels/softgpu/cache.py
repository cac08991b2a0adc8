"""Rotary embedding, and the paged cache's write side.

Rotary pairs are half-split, (i, i + head_dim/2), as in Llama checkpoints on Hugging Face; cos and sin are
(max_positions, head_dim/2). A slot is block·block_size + offset; slot −1 writes nothing and is no error: so vLLM pads.
"""

from s13lib.device.kernel import kernel
from s13lib.device.types import F32, I64, POSITION, SLOT
from s13lib.kernels.softgpu.arithmetic import device_function, first_error, in_range
from s13lib.kernels.softgpu.views import by_head, by_slot

NO_SLOT = -1


@device_function
def rotate(x, cos, sin, out):
    """Rotate every head of a row: x, out (heads, head_dim), cos, sin (head_dim/2,). ``out`` may be ``x``."""
    half = cos.shape[0]
    for h in range(x.shape[0]):
        for i in range(half):
            first, second = x[h, i], x[h, half + i]
            out[h, i] = first * cos[i] - second * sin[i]
            out[h, half + i] = second * cos[i] + first * sin[i]


@device_function
def store(x, out):
    """Copy a row of heads: x, out (kv_heads, head_dim)."""
    for h in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[h, i] = x[h, i]


@device_function
def rope_append_kv(k, v, cos, sin, positions, slot_mapping, k_cache, v_cache):
    """Rotate each row's k into its slot, and copy its v there; return the error word. Skips rows without a position."""
    head_dim = k_cache.shape[3]
    k, v, k_slots, v_slots = by_head(k, head_dim), by_head(v, head_dim), by_slot(k_cache), by_slot(v_cache)
    error = 0
    for r in range(k.shape[0]):
        position, slot = positions[r], slot_mapping[r]
        if not in_range(position, cos.shape[0]):
            error = first_error(error, POSITION, position)
        elif in_range(slot, k_slots.shape[0]):
            rotate(k[r], cos[position], sin[position], k_slots[slot])
            store(v[r], v_slots[slot])
        elif slot != NO_SLOT:
            error = first_error(error, SLOT, slot)
    return error


@device_function
def rope_rows(x, cos, sin, positions, out):
    """Rotate each row of x by its position; return the error word."""
    head_dim = 2 * cos.shape[1]
    x, out = by_head(x, head_dim), by_head(out, head_dim)
    error = 0
    for r in range(x.shape[0]):
        position = positions[r]
        if in_range(position, cos.shape[0]):
            rotate(x[r], cos[position], sin[position], out[r])
        else:
            error = first_error(error, POSITION, position)
    return error


@kernel(
    out=("out_q", "out_k"),
    shapes=(
        "q[rows, width] k[rows, kv] cos[longest, half] sin[longest, half] positions[rows] out_q[rows, width] "
        "out_k[rows, kv]; width % (2*half) == 0, kv % (2*half) == 0"
    ),
)
def rope(q: F32[2], k: F32[2], cos: F32[2], sin: F32[2], positions: I64[1], out_q: F32[2], out_k: F32[2]) -> int:
    """Rotate q (rows, heads·head_dim) and k (rows, kv_heads·head_dim) by their positions (rows,).

    ``out_q`` may be ``q``, and ``out_k`` may be ``k``.
    """
    error = rope_rows(q, cos, sin, positions, out_q)
    rope_rows(k, cos, sin, positions, out_k)  # in error in the same rows
    return error


@kernel(
    out=("k_cache", "v_cache"),
    shapes=(
        "k[rows, kv_heads*head_dim] v[rows, kv_heads*head_dim] slot_mapping[rows] k_cache[blocks, size, "
        "kv_heads, head_dim] v_cache[blocks, size, kv_heads, head_dim]"
    ),
)
def append_kv(k: F32[2], v: F32[2], slot_mapping: I64[1], k_cache: F32[4], v_cache: F32[4]) -> int:
    """Write each row's k and v (rows, kv_heads·head_dim) at its slot (rows,) of the caches.

    k_cache and v_cache are (blocks, block_size, kv_heads, head_dim).
    """
    head_dim = k_cache.shape[3]
    k_rows, v_rows, k_slots, v_slots = by_head(k, head_dim), by_head(v, head_dim), by_slot(k_cache), by_slot(v_cache)
    error = 0
    for r in range(k.shape[0]):
        slot = slot_mapping[r]
        if in_range(slot, k_slots.shape[0]):
            store(k_rows[r], k_slots[slot])
            store(v_rows[r], v_slots[slot])
        elif slot != NO_SLOT:
            error = first_error(error, SLOT, slot)
    return error


@kernel(
    out=("k_cache", "v_cache", "out_q"),
    shapes=(
        "q[rows, width] k[rows, kv_heads*head_dim] v[rows, kv_heads*head_dim] cos[longest, half] sin[longest, "
        "half] positions[rows] slot_mapping[rows] k_cache[blocks, size, kv_heads, head_dim] v_cache[blocks, "
        "size, kv_heads, head_dim] out_q[rows, width]; 2*half == head_dim, width % head_dim == 0"
    ),
)
def rope_append(
    q: F32[2],
    k: F32[2],
    v: F32[2],
    cos: F32[2],
    sin: F32[2],
    positions: I64[1],
    slot_mapping: I64[1],
    k_cache: F32[4],
    v_cache: F32[4],
    out_q: F32[2],
) -> int:
    """Rotate q into ``out_q`` and k into the cache, and append v: shapes as in ``rope`` and ``append_kv``.

    ``out_q`` may be ``q``. A row whose position is out of range is skipped as a whole.
    """
    error = rope_append_kv(k, v, cos, sin, positions, slot_mapping, k_cache, v_cache)
    rope_rows(q, cos, sin, positions, out_q)
    return error
