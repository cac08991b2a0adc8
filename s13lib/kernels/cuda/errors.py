"""The device-side error flag: int64 (1,), 0 while all is well, else the word of the first error to arrive.

Words are those that SoftGPU's kernels return (``s13lib.device.types``): kind << 40 | value. A kernel on a GPU returns
nothing, so it writes the word to the flag that its launch was bound with, and the device's synchronise reads it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from s13lib.device.types import BLOCK, CONTEXT, ERROR_MASK, ERROR_SHIFT, POSITION, SLOT, TOKEN

# A Triton kernel may read a global only if it is a constexpr.
TOKEN_WORD = tl.constexpr(TOKEN << ERROR_SHIFT)
SLOT_WORD = tl.constexpr(SLOT << ERROR_SHIFT)
BLOCK_WORD = tl.constexpr(BLOCK << ERROR_SHIFT)
POSITION_WORD = tl.constexpr(POSITION << ERROR_SHIFT)
CONTEXT_WORD = tl.constexpr(CONTEXT << ERROR_SHIFT)
VALUE_MASK = tl.constexpr(ERROR_MASK)


@triton.jit
def report(flag, kind_word: tl.constexpr, value):
    """Write the word of an error unless an earlier one is there. ``value`` is an integer scalar."""
    word = (value.to(tl.int64) & VALUE_MASK) | kind_word
    tl.atomic_cas(flag, word * 0, word)
