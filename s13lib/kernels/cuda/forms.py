"""Which form of a kernel runs for how many rows: tables, so that a switch is a row of data and not a branch.

A row's result depends on the form, in its last bits, and on nothing else of the batch: neither on how many rows there
are nor on the row's place. So batches of one form agree bit for bit, and padding within one form changes nothing.

The sizes are chosen from what a compiler for compute capability 9.0 makes of them (registers, shared memory, 16-byte
loads); their speed has been measured by nobody yet. ``tools/gpu_check.py`` measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

from s13lib.errors import require

SMS = 132
"""Multiprocessors to fill: H100 SXM5 and H200 (NVIDIA's H100 architecture whitepaper)."""


@dataclass(frozen=True)
class Gemv:
    """Matrix times a few vectors: no tensor cores, the weights go from memory through registers once.

    A program owns ``outputs`` rows of the weight (of each part, for gate and up) and walks along them, ``most_chunk``
    elements at a time, with all its threads side by side: 16 bytes a thread and load.
    """

    most_rows: int
    outputs: int
    most_chunk: int
    num_warps: int


@dataclass(frozen=True)
class Dot:
    """Matrix times matrix on tensor cores, ``block_rows`` rows of the batch at a time, weights through shared memory.

    ``chunk_bytes`` is how far along a weight row one step reads.
    """

    most_rows: int
    block_rows: int
    most_outputs: int
    chunk_bytes: int
    num_warps: int
    num_stages: int


ANY = 2**31
LINEAR: tuple[Gemv | Dot, ...] = (
    Gemv(2, outputs=4, most_chunk=1024, num_warps=4),
    Dot(16, block_rows=16, most_outputs=64, chunk_bytes=256, num_warps=4, num_stages=4),
    Dot(32, block_rows=32, most_outputs=64, chunk_bytes=256, num_warps=4, num_stages=4),
    Dot(64, block_rows=64, most_outputs=128, chunk_bytes=128, num_warps=4, num_stages=4),
    Dot(ANY, block_rows=128, most_outputs=128, chunk_bytes=128, num_warps=8, num_stages=3),
)
"""Every linear layer, fused or not. A form takes batches of up to ``most_rows``; the first that does is used."""


@dataclass(frozen=True)
class Attention:
    """Decode attention: a row's context is cut into at most ``splits`` pieces, read ``tile`` tokens at a time.

    With more rows there is work for all multiprocessors without cutting.
    """

    most_rows: int
    splits: int
    tile: int
    num_warps: int = 4
    num_stages: int = 2


ATTENTION: tuple[Attention, ...] = (
    Attention(4, splits=16, tile=32),
    Attention(16, splits=4, tile=64),
    Attention(64, splits=2, tile=64),
    Attention(ANY, splits=1, tile=64),
)


def form_for(rows: int, table: tuple) -> Gemv | Dot | Attention:
    """The first form of ``table`` that takes ``rows`` rows."""
    return next(form for form in table if rows <= form.most_rows)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``n`` and ``least``: what a Triton block's side must be."""
    return max(1 << (n - 1).bit_length(), least)


def row_block(where: str, width: int) -> tuple[int, int]:
    """(elements, warps) of a block that holds a whole row of ``width`` in registers: 8 elements a thread."""
    require(width <= 65536, where, width, "at most 65536: a row is held in registers")
    block = power_of_two(width)
    return block, min(max(block // 256, 1), 16)
