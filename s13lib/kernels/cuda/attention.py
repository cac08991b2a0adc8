"""RoPE, the append to the cache and decode attention in one launch, with grouped heads (GQA) and a paged cache.

**Cutting a context.** A program takes one row, one key-value head with all query heads that share it, and one piece of
the context (Flash-Decoding, Dao et al. 2023, crfm.stanford.edu/2023/10/12/flashdecoding.html). A context of one piece
is finished on the spot. Else every program leaves its sums in scratch memory, and the last to arrive adds them up, in
the order of the pieces, not of arrival: the result is the same each time. Integers count arrivals; no float is ever
added atomically.

**New tokens.** A program cannot wait for another, so nothing that this launch writes to the cache is read back from it.
A token whose slot the launch itself fills is taken from ``k`` and ``v``: the row's own token, and, when a prompt is fed
in one launch, those of the rows before it. They are found by their slots: the row j places before must hold the token j
places before. Rows of one sequence therefore stand together, in order. A row that reads a slot which a stranger's row
writes, as with broken padding, reads the old or the new value: a race, as in every engine with this fusion.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, float32, int32

from s13lib.device.types import F32, I32, I64
from s13lib.kernels.cuda.errors import BLOCK_WORD, CONTEXT_WORD, POSITION_WORD, SLOT_WORD, report
from s13lib.kernels.cuda.forms import ATTENTION, form_for, power_of_two
from s13lib.kernels.cuda.kernel import Plan, cuda_kernel
from s13lib.kernels.cuda.scratch import scratch

NO_SLOT = tl.constexpr(-1)
FAR = tl.constexpr(2**31 - 1)
LOG2_E = 1.4426950408889634


@triton.jit
def rotated(x, at, cos, sin, position, dim, HEAD_DIM: tl.constexpr, mask):
    """Elements ``dim`` of the heads at ``x + at``, turned by ``position``: half-split pairs (i, i + half)."""
    half: tl.constexpr = HEAD_DIM // 2
    in_first = dim < half
    own = tl.load(x + at + dim, mask=mask, other=0.0).to(tl.float32)
    partner = tl.load(x + at + tl.where(in_first, dim + half, dim - half), mask=mask, other=0.0).to(tl.float32)
    turn = position * half + tl.where(in_first, dim, dim - half)
    c = tl.load(cos + turn, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(sin + turn, mask=mask, other=0.0).to(tl.float32)
    return own * c + tl.where(in_first, -partner, partner) * s


@triton.jit
def attend(q, keys, values, valid, scale_log2, largest, total, mixed):
    """One step of the running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867), in powers of two.

    q (heads, dim), keys and values (tokens, dim), valid (tokens,); largest, total (heads,) and mixed (heads, dim).
    """
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale_log2
    scores = tl.where(valid[None, :], scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_largest[:, None])
    shrink = tl.exp2(largest - new_largest)
    total = total * shrink + tl.sum(weights, axis=1)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None], input_precision="ieee")
    return new_largest, total, mixed


@triton.jit(repr=lambda of: "rope_append_attention", do_not_specialize=["slots", "longest", "most_blocks"])
def decode_piece(
    q,
    k,
    v,
    cos,
    sin,
    positions,
    slot_mapping,
    block_tables,
    context_lens,
    scale_log2,
    k_cache,
    v_cache,
    out,
    pieces,
    piece_sums,
    arrivals,
    flag,
    slots,
    longest,
    most_blocks,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLITS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program (piece, key-value head, row). HEADS and DIM are GROUP and HEAD_DIM rounded up to powers of two."""
    piece, kv_head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    reports = (piece == 0) & (kv_head == 0)
    position = tl.load(positions + row)
    slot = tl.load(slot_mapping + row)
    context = tl.load(context_lens + row)
    if (position < 0) | (position >= longest):
        if reports:
            report(flag, POSITION_WORD, position)
        return

    dim = tl.arange(0, DIM)
    in_head = (dim < HEAD_DIM) | (DIM == HEAD_DIM)
    kv_row_stride: tl.constexpr = KV_HEADS * HEAD_DIM
    kind = k_cache.dtype.element_ty
    if piece == 0:
        if (slot >= 0) & (slot < slots):
            given = row * kv_row_stride + kv_head * HEAD_DIM
            new_key = rotated(k, given, cos, sin, position, dim, HEAD_DIM, in_head)
            new_value = tl.load(v + given + dim, mask=in_head, other=0.0)
            written = slot * kv_row_stride + kv_head * HEAD_DIM + dim
            tl.store(k_cache + written, new_key.to(kind), mask=in_head)
            tl.store(v_cache + written, new_value.to(kind), mask=in_head)
        elif (slot != NO_SLOT) & reports:
            report(flag, SLOT_WORD, slot)
    if (context < 0) | (context > most_blocks * BLOCK_SIZE):
        if reports:
            report(flag, CONTEXT_WORD, context)
        return

    tiles = tl.cdiv(context, TILE)
    tiles_each = tl.maximum(tl.cdiv(tiles, SPLITS), 1)
    pieces_used = tl.maximum(tl.cdiv(tiles, tiles_each), 1)
    if piece >= pieces_used:
        return
    begin = piece * tiles_each * TILE
    end = tl.minimum(begin + tiles_each * TILE, context)

    head = tl.arange(0, HEADS)
    real = ((head < GROUP) | (HEADS == GROUP))[:, None] & in_head[None, :]
    head_at = row * KV_HEADS * GROUP * HEAD_DIM + (kv_head * GROUP + head[:, None]) * HEAD_DIM
    query = rotated(q, head_at, cos, sin, position, dim[None, :], HEAD_DIM, real).to(kind)

    largest = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    mixed = tl.zeros((HEADS, DIM), tl.float32)
    bad = tl.full((TILE,), FAR, tl.int32)  # the first token, lane by lane, whose block does not exist
    table = block_tables + row.to(tl.int64) * most_blocks
    blocks = slots // BLOCK_SIZE
    lane = tl.arange(0, TILE)

    # Tokens from ``fresh`` on may have been given to this very launch: the last one, or all of a prompt's.
    last = context - 1
    fresh = last
    if (row > 0) & (context > 1):
        block = tl.load(table + (last - 1) // BLOCK_SIZE).to(tl.int64)
        if tl.load(slot_mapping + row - 1) == block * BLOCK_SIZE + (last - 1) % BLOCK_SIZE:
            fresh = tl.maximum(last - row, 0)
    settled = tl.minimum(tl.maximum(fresh // TILE * TILE, begin), end)

    for start in range(begin, settled, TILE):
        token = start + lane
        block = tl.load(table + token // BLOCK_SIZE)
        exists = (block >= 0) & (block < blocks)
        bad = tl.minimum(bad, tl.where(exists, FAR, token))
        held = tl.where(exists, block, 0).to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
        at = held[:, None] * kv_row_stride + kv_head * HEAD_DIM + dim[None, :]
        keys = tl.load(k_cache + at, mask=in_head[None, :], other=0.0)
        values = tl.load(v_cache + at, mask=in_head[None, :], other=0.0)
        largest, total, mixed = attend(query, keys, values, exists, scale_log2, largest, total, mixed)

    for start in tl.range(settled, end, TILE, num_stages=1):  # one or two steps: nothing to overlap
        token = start + lane
        inside = token < end
        block = tl.load(table + token // BLOCK_SIZE, mask=inside, other=0)
        exists = (block >= 0) & (block < blocks)
        bad = tl.minimum(bad, tl.where(exists, FAR, token))
        held = tl.where(exists, block, 0).to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
        mate = row - (last - token)
        may_be_mine = inside & (token >= fresh) & (mate >= 0)
        mate_position = tl.load(positions + mate, mask=may_be_mine, other=-1)
        mine = may_be_mine & (mate_position >= 0) & (mate_position < longest)
        mine = mine & (tl.load(slot_mapping + mate, mask=may_be_mine, other=-1) == held)
        from_cache = (inside & (mine == 0))[:, None] & in_head[None, :]
        from_batch = mine[:, None] & in_head[None, :]
        at = held[:, None] * kv_row_stride + kv_head * HEAD_DIM + dim[None, :]
        given = (mate * kv_row_stride + kv_head * HEAD_DIM)[:, None]
        keys = tl.load(k_cache + at, mask=from_cache, other=0.0)
        values = tl.load(v_cache + at, mask=from_cache, other=0.0)
        # Rounded to the cache's type, as a later step will find it there.
        new_keys = rotated(k, given, cos, sin, mate_position[:, None], dim[None, :], HEAD_DIM, from_batch).to(kind)
        new_values = tl.load(v + given + dim[None, :], mask=from_batch, other=0.0).to(kind)
        keys = tl.where(from_batch, new_keys, keys)
        values = tl.where(from_batch, new_values, values)
        largest, total, mixed = attend(query, keys, values, inside & exists, scale_log2, largest, total, mixed)

    first_bad = tl.min(bad, axis=0)
    if first_bad < FAR:
        if kv_head == 0:
            report(flag, BLOCK_WORD, tl.load(table + first_bad // BLOCK_SIZE))
        total = tl.full((HEADS,), -1.0, tl.float32)  # no sum of powers is negative: this row must not be written

    if SPLITS > 1:  # noqa: SIM102 — decided when the kernel is compiled: with one piece there is no scratch memory
        if pieces_used > 1:
            place = (row * KV_HEADS + kv_head) * SPLITS
            tl.store(piece_sums + (place + piece) * 2 * HEADS + head, largest)
            tl.store(piece_sums + (place + piece) * 2 * HEADS + HEADS + head, total)
            tl.store(pieces + ((place + piece) * HEADS + head[:, None]) * DIM + dim[None, :], mixed)
            # All threads have stored before one of them says so; whoever counts the last arrival then sees all of it.
            # Read in the PTX memory model (release, acquire); barrier and atomic as in Triton's layer-norm tutorial.
            tl.debug_barrier()
            arrival = tl.atomic_add(arrivals + row * KV_HEADS + kv_head, 1, sem="acq_rel")
            if arrival < pieces_used - 1:
                return
            tl.store(arrivals + row * KV_HEADS + kv_head, 0)
            which = tl.arange(0, SPLITS)[:, None]
            used = which < pieces_used
            sums_at = piece_sums + (place + which) * 2 * HEADS + head[None, :]
            # ".cg" reads past the first-level cache, which no other multiprocessor writes to.
            each_largest = tl.load(sums_at, mask=used, other=float("-inf"), cache_modifier=".cg")
            each_total = tl.load(sums_at + HEADS, mask=used, other=0.0, cache_modifier=".cg")
            at = ((place + which) * HEADS + head[None, :])[:, :, None] * DIM + dim[None, None, :]
            each_mixed = tl.load(pieces + at, mask=used[:, :, None], other=0.0, cache_modifier=".cg")
            shrink = tl.exp2(each_largest - tl.max(each_largest, axis=0)[None, :])
            any_bad = tl.min(each_total, axis=0) < 0
            total = tl.where(any_bad, -1.0, tl.sum(each_total * shrink, axis=0))
            mixed = tl.sum(each_mixed * shrink[:, :, None], axis=0)

    inverse = tl.where(context > 0, 1.0 / total, 0.0)  # a context of 0 gives zeros
    tl.store(
        out + head_at + dim[None, :],
        (mixed * inverse[:, None]).to(out.dtype.element_ty),
        mask=real & ((total < 0) == 0)[:, None],  # NaN is written
    )


@cuda_kernel(
    "q[rows, width] k[rows, kv_heads*head_dim] v[rows, kv_heads*head_dim] cos[longest, half] sin[longest, half] "
    "positions[rows] slot_mapping[rows] block_tables[rows, most] context_lens[rows] k_cache[blocks, size, kv_heads, "
    "head_dim] v_cache[blocks, size, kv_heads, head_dim] out[rows, width]; 2*half == head_dim, width % "
    "(kv_heads*head_dim) == 0"
)
def rope_append_attention(
    flag: Tensor,
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
) -> Plan:
    """Rotate q and k, append k and v, and attend over the first ``context_lens[r]`` tokens of row r's blocks.

    Shapes as in ``reference``. Rows of one sequence stand together, in order of position. ``out`` must not be ``q``.
    """
    rows, width = q.shape
    blocks, block_size, kv_heads, head_dim = k_cache.shape
    group = width // (kv_heads * head_dim)
    form = form_for(rows, ATTENTION)
    constants = {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "HEADS": power_of_two(group),
        "HEAD_DIM": head_dim,
        "DIM": power_of_two(head_dim, least=16),  # the least that a tensor core sums over
        "BLOCK_SIZE": block_size,
        "SPLITS": form.splits,
        "TILE": form.tile,
    }
    pieces = piece_sums = arrivals = None
    if form.splits > 1:
        sums = rows * kv_heads * form.splits * constants["HEADS"]
        memory = scratch(q.device, float32, sums * (constants["DIM"] + 2))
        pieces, piece_sums = memory, memory[sums * constants["DIM"] :]
        arrivals = scratch(q.device, int32, rows * kv_heads)
    arguments = (q, k, v, cos, sin, positions, slot_mapping, block_tables, context_lens, scale * LOG2_E)
    arguments += (k_cache, v_cache, out, pieces, piece_sums, arrivals, flag)
    arguments += (blocks * block_size, cos.shape[0], block_tables.shape[1])
    options = {"num_warps": form.num_warps, "num_stages": form.num_stages}
    return Plan(decode_piece, (form.splits, kv_heads, rows), arguments, constants, options)
