"""What a kernel's parameters may be, and the error word that it may return.

A kernel is a plain function over C-contiguous arrays and scalars, annotated with the markers below::

    def scale(x: F32[1], out: F32[1], factor: float): ...

``F32[2]`` is a two-dimensional float32 array, ``int`` a 64-bit integer and ``float`` a 64-bit float.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from s13lib.errors import require

MAX_RANK = 8


@dataclass(frozen=True)
class ArrayType:
    """A C-contiguous array of one element type and a fixed number of dimensions (``rank``)."""

    element: Element
    rank: int

    def __repr__(self) -> str:
        return f"{self.element.name}[{self.rank}]"


@dataclass(frozen=True)
class Element:
    """An element type: index it with a rank to annotate a parameter, as in ``F32[2]``.

    ``tensor_dtype`` is what the host sees, ``kernel_dtype`` what the kernel sees: they differ for ``F16``, whose
    bits a kernel reads as uint16, because a CPU has no half-precision arithmetic.
    """

    name: str
    tensor_dtype: torch.dtype
    kernel_dtype: np.dtype

    def __getitem__(self, rank: int) -> ArrayType:
        require(isinstance(rank, int) and 1 <= rank <= MAX_RANK, f"{self.name}[rank]", rank, f"1 to {MAX_RANK}")
        return ArrayType(self, rank)


F32 = Element("F32", torch.float32, np.dtype(np.float32))
F64 = Element("F64", torch.float64, np.dtype(np.float64))
I32 = Element("I32", torch.int32, np.dtype(np.int32))
I64 = Element("I64", torch.int64, np.dtype(np.int64))
U8 = Element("U8", torch.uint8, np.dtype(np.uint8))
F16 = Element("F16", torch.float16, np.dtype(np.uint16))

# The error word that a kernel may return: 0 is fine, else kind << ERROR_SHIFT | (value & ERROR_MASK).
ERROR_SHIFT = 40
ERROR_MASK = (1 << ERROR_SHIFT) - 1
SLOT, BLOCK, TOKEN, POSITION, CONTEXT = 1, 2, 3, 4, 5

ERROR_TEXTS = {
    SLOT: "slot {value} is out of range; the write was skipped",
    BLOCK: "block {value} is out of range; the access was skipped",
    TOKEN: "token {value} is outside the vocabulary; the row was skipped",
    POSITION: "position {value} is out of range; the row was skipped",
    CONTEXT: "context length {value} is out of range; the row was skipped",
}


def describe_error(word: int) -> str:
    """The sentence for a positive error word. A value is 40 bits wide and signed."""
    kind, value = word >> ERROR_SHIFT, word & ERROR_MASK
    value -= (value >> (ERROR_SHIFT - 1)) << ERROR_SHIFT
    return ERROR_TEXTS.get(kind, f"error {kind} with value {{value}}").format(value=value)
