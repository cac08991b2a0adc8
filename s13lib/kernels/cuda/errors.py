"""The device-side error flag: one int64 per device, 0 while all is well, else the word of the first error to arrive.

A word is what SoftGPU's kernels return (``s13lib.device.types``: kind << 40 | value), with the number of the kernel that
reports above it, from bit 48: a kernel on a GPU returns nothing, so the word must say who wrote it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from s13lib.device.types import BLOCK, CONTEXT, ERROR_MASK, ERROR_SHIFT, POSITION, SLOT, TOKEN, describe_error

REPORTER_SHIFT = 48
REPORTERS = ("embedding", "rope_append_attention", "append_kv")
"""The kernels that report errors; a kernel's number is its place here, counted from 1."""

# Kinds as they stand in a word. A Triton kernel may read a global only if it is a constexpr.
TOKEN_WORD = tl.constexpr(TOKEN << ERROR_SHIFT)
SLOT_WORD = tl.constexpr(SLOT << ERROR_SHIFT)
BLOCK_WORD = tl.constexpr(BLOCK << ERROR_SHIFT)
POSITION_WORD = tl.constexpr(POSITION << ERROR_SHIFT)
CONTEXT_WORD = tl.constexpr(CONTEXT << ERROR_SHIFT)
VALUE_MASK = tl.constexpr(ERROR_MASK)


def reporter_word(name: str) -> int:
    """The high bits of every word that kernel ``name`` writes: its constexpr ``REPORTER``."""
    return (REPORTERS.index(name) + 1) << REPORTER_SHIFT


def describe(word: int) -> str:
    """The sentence for a flag that is not 0: which kernel, and what it found."""
    name = REPORTERS[(word >> REPORTER_SHIFT) - 1]
    return f"{name}: {describe_error(word & ((1 << REPORTER_SHIFT) - 1))}"


@triton.jit
def report(flag, kind_and_reporter, value):
    """Write an error's word unless an earlier one is there. ``value`` is a scalar."""
    word = (value.to(tl.int64) & VALUE_MASK) | kind_and_reporter
    tl.atomic_cas(flag, tl.zeros((), tl.int64), word)
