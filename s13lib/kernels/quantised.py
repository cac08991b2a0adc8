"""Weights in blocks of 32 that share a scale: llama.cpp's formats q8_0 and q4_0, byte for byte as a GGUF file has them.

A block is a float16 scale d and 32 small integers q; the weight that it stands for is d·q, which float32 holds exactly.

* q8_0, 34 bytes: d, then 32 signed bytes. d = max|w| / 127.
* q4_0, 18 bytes: d, then 16 bytes, each the q + 8 of weight i in its low half and of weight i + 16 in its high half.
  d = (the w of largest magnitude) / −8, so that this one becomes −8; on its other side q ends at 7.

A packed matrix is a uint8 array (rows, row_bytes): so it lies in the file, on the device and in a kernel's argument.
Source: ``ggml-quants.c`` of llama.cpp, functions ``quantize_row_q8_0_ref`` and ``quantize_row_q4_0_ref``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from s13lib.device.types import Element
from s13lib.errors import look_up, require

if TYPE_CHECKING:
    from gguf import ReaderTensor

BLOCK = 32
"""Weights that share a scale."""

F32_FORMAT = "f32"
"""The name of weights that are not quantised."""

HEAD_FORMAT = "q8_0"
"""Of an embedding and a head whose model is quantised, also to 4 bits: so llama.cpp's own quantiser keeps SmolLM2's."""

AT_ONCE = 4096
"""Blocks that are packed at once: what NumPy makes on the way then stays in the processor's cache."""

LARGEST = 65504.0
"""The largest float16, which no scale may exceed: so weights that do not are safe."""


@dataclass(frozen=True)
class Format:
    """How a block of 32 weights is stored.

    Args:
        name: llama.cpp's.
        block_bytes: bytes of a block.
        element: what a kernel's parameter is annotated with. On the host a packed matrix is uint8; a kernel sees bytes
            of a type of their own, so that the compiler picks the code for this format.
        encode: blocks float32 (blocks, 32) → scales float32 (blocks, 1) and the bytes that follow them.
        decode: those bytes → integers (blocks, 32).
    """

    name: str
    block_bytes: int
    element: Element
    encode: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    decode: Callable[[np.ndarray], np.ndarray]

    @property
    def bytes_per_weight(self) -> float:
        """Bytes that a weight costs, its share of the scale included."""
        return self.block_bytes / BLOCK


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale; 0 where that is infinite, in a block of zeros: its integers are then 0 too."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / scale
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _encode_q8_0(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    size = np.abs(scaled)
    whole = np.floor(size)
    rounded = whole + np.floor(2 * (size - whole))  # halves away from zero, as C's roundf does
    return scale, np.copysign(rounded, scaled).astype(np.int8).view(np.uint8)


def _decode_q8_0(packed: np.ndarray) -> np.ndarray:
    return packed.view(np.int8)


def _encode_q4_0(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = largest / np.float32(-8)
    shifted = (blocks * _inverse(scale) + np.float32(8.5)).astype(np.uint8).clip(0, 15)  # the cast cuts off
    low, high = shifted[:, : BLOCK // 2], shifted[:, BLOCK // 2 :]
    return scale, low | (high << 4)


def _decode_q4_0(packed: np.ndarray) -> np.ndarray:
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.int8) - np.int8(8)


def _bytes_of(name: str) -> Element:
    """Bytes that know their format: a record of one byte, whose field is called after the format."""
    return Element(name.upper(), torch.uint8, np.dtype([(name, np.uint8)]))


FORMATS = {
    "q8_0": Format("q8_0", 34, _bytes_of("q8_0"), _encode_q8_0, _decode_q8_0),
    "q4_0": Format("q4_0", 18, _bytes_of("q4_0"), _encode_q4_0, _decode_q4_0),
}


def row_bytes(width: int, name: str) -> int:
    """Bytes of a packed row of ``width`` weights; ``InputError`` unless it is whole blocks."""
    form = look_up(FORMATS, name, "format")
    require(width % BLOCK == 0, f"{name}: row width", width, f"a multiple of {BLOCK}, the weights of a block")
    return width // BLOCK * form.block_bytes


def quantise(weight: np.ndarray, name: str) -> np.ndarray:
    """Pack a float32 matrix (rows, width) as format ``name``: uint8 (rows, row_bytes).

    The error of a weight w in a block whose largest magnitude is m, with s the step, m/127 or m/8: q8_0 rounds it by
    at most s/2, q4_0 by at most s (at the end where q stops at 7); rounding d to float16 adds at most 2**−11·m, and
    2**−25·127 or 2**−25·8 where d is below float16's normal range.

    Raises:
        InputError: a width that is no multiple of 32; a weight that is not finite, or larger than the largest float16.
    """
    weight = np.ascontiguousarray(weight, np.float32)
    require(weight.ndim == 2, f"{name}: weight's shape", weight.shape, "(rows, width)")
    rows, width = weight.shape
    packed_width = row_bytes(width, name)
    largest = float(max(weight.max(initial=0), -weight.min(initial=0)))  # NaN if there is one
    require(largest <= LARGEST, f"{name}: the largest weight", largest, f"finite, and at most {LARGEST:g}")
    blocks = weight.reshape(-1, BLOCK)
    packed = np.empty((len(blocks), FORMATS[name].block_bytes), np.uint8)
    for start in range(0, len(blocks), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        scale, packed[part, 2:] = FORMATS[name].encode(blocks[part])
        packed[part, :2] = scale.astype(np.float16).view(np.uint8)
    return packed.reshape(rows, packed_width)


def dequantise(packed: np.ndarray, name: str) -> np.ndarray:
    """The weights that a packed matrix (rows, row_bytes) stands for: float32 (rows, width), exact."""
    form = look_up(FORMATS, name, "format")
    packed = np.ascontiguousarray(packed)
    fits = packed.ndim == 2 and packed.dtype == np.uint8 and packed.shape[1] % form.block_bytes == 0
    require(
        fits, f"{name}: packed", f"{packed.dtype}{packed.shape}", f"uint8 (rows, blocks of {form.block_bytes} bytes)"
    )
    blocks = packed.reshape(-1, form.block_bytes)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return (scale * form.decode(blocks[:, 2:])).reshape(len(packed), -1)


def from_gguf(tensor: ReaderTensor) -> tuple[str, np.ndarray]:
    """The format's name and the packed rows, uint8 (rows, row_bytes), of a tensor of a GGUF file: its own bytes.

    Raises:
        InputError: the tensor is stored in another format.
    """
    name = tensor.tensor_type.name.lower()
    require(name in FORMATS, f"{tensor.name}: format", name, f"one of {', '.join(FORMATS)}")
    packed = np.asarray(tensor.data)
    return name, packed.reshape(-1, packed.shape[-1])
