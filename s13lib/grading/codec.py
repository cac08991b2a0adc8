"""Values as bytes and back, without pickle: what passes the pipe between the grader and a learner's process.

Plain values (None, booleans, numbers, strings, lists, tuples, dictionaries) travel as JSON, the contents of NumPy
arrays and torch tensors as raw bytes behind it, and a Timeline as its rows. Reading runs no code of the sender's and
makes nothing but these kinds; whatever else the bytes may say is a ``CodecError``.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from dataclasses import astuple

import numpy as np

from s13lib.simulator.timeline import Span, Timeline

MOST_TEXT = 8 << 20  # bytes of JSON
MOST_BYTES = 64 << 20  # bytes of a whole message
MOST_DEPTH = 60
MOST_DIMENSIONS = 16

NUMPY_TYPES = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64")
TORCH_TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
SAME_SIZE = {"bfloat16": "int16"}  # NumPy has no bfloat16: its bits travel


class CodecError(Exception):
    """A value that cannot be sent, or bytes that are not a value; the text is short and names what is wrong."""


def encode(value: object) -> bytes:
    """``value`` as a message. Arrays and tensors that occur twice are sent once and stay one object.

    Raises:
        CodecError: a value of another kind, or too large.
    """
    writer = _Writer()
    try:
        text = json.dumps(writer.packed(value, 0), separators=(",", ":")).encode("ascii")
    except (ValueError, RecursionError, OverflowError) as error:  # an integer of thousands of digits
        raise CodecError(f"a value that cannot be written down ({type(error).__name__})") from None
    size = 4 + len(text) + sum(map(len, writer.blobs))
    if len(text) > MOST_TEXT or size > MOST_BYTES:
        raise CodecError(f"a value of {size:,} bytes, where at most {MOST_BYTES:,} may pass")
    return b"".join([struct.pack("<I", len(text)), text, *writer.blobs])


def decode(message: bytes) -> object:
    """The value of a message. Arrays and tensors are new and may be written to.

    Raises:
        CodecError: whatever is wrong with the message.
    """
    if not 4 <= len(message) <= MOST_BYTES:
        raise CodecError(f"a message of {len(message):,} bytes")
    (length,) = struct.unpack_from("<I", message)
    if length > min(MOST_TEXT, len(message) - 4):
        raise CodecError("a message that is cut off")
    reader = _Reader(memoryview(message)[4 + length :])
    try:
        value = reader.unpacked(json.loads(bytes(message[4 : 4 + length])), 0)
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError, MemoryError):
        raise CodecError("a message that is not a value") from None
    if reader.place != len(reader.blob):
        raise CodecError("a message with bytes left over")
    return value


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")  # whoever has a tensor has loaded it
    return torch is not None and isinstance(value, torch.Tensor)


class _Writer:
    """Turns a value into what JSON can hold, and collects the bytes of arrays."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []  # so that no id is used twice

    def packed(self, value: object, depth: int) -> object:
        if depth > MOST_DEPTH:
            raise CodecError(f"a value nested more than {MOST_DEPTH} deep")
        if value is None or isinstance(value, bool | str):
            return str.__str__(value) if isinstance(value, str) else value
        if isinstance(value, np.generic):
            return ["number", *self._array(np.asarray(value))]
        if isinstance(value, int):
            return int.__index__(value)
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, list):
            return ["list", *(self.packed(item, depth + 1) for item in value)]
        if isinstance(value, tuple):
            return ["tuple", *(self.packed(item, depth + 1) for item in value)]
        if isinstance(value, dict):
            pairs = [[self.packed(key, depth + 1), self.packed(item, depth + 1)] for key, item in value.items()]
            return ["dict", *pairs]
        if isinstance(value, Timeline):
            lanes = [[list(astuple(span)) for span in lane] for lane in (value.host, value.device)]
            return ["timeline", *lanes, value.source, value.provenance]
        if isinstance(value, np.ndarray) or _is_tensor(value):
            if id(value) not in self.seen:
                self.seen[id(value)] = len(self.seen)
                self.kept.append(value)
                return ["array", *self._array(value)] if isinstance(value, np.ndarray) else self._tensor(value)
            return ["again", self.seen[id(value)]]
        raise CodecError(f"a value of type {type(value).__name__}")

    def _array(self, array: np.ndarray) -> list[object]:
        name = array.dtype.name
        if name not in NUMPY_TYPES or not array.dtype.isnative or array.ndim > MOST_DIMENSIONS:
            raise CodecError(f"an array of dtype {array.dtype}")
        order = _order(array.strides, array.shape)
        self.blobs.append(np.ascontiguousarray(array.transpose(order)).tobytes())
        return [name, list(array.shape), order]

    def _tensor(self, tensor: object) -> list[object]:
        import torch

        name = str(tensor.dtype).removeprefix("torch.")
        if name not in TORCH_TYPES or tensor.layout != torch.strided or tensor.dim() > MOST_DIMENSIONS:
            raise CodecError(f"a tensor of dtype {name}")
        plain = tensor.detach().cpu()
        if name in SAME_SIZE:
            plain = plain.view(getattr(torch, SAME_SIZE[name]))
        _, shape, order = self._array(plain.numpy())
        return ["tensor", name, shape, order]


def _order(strides: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """The axes from the widest stride to the narrowest: a transposed array arrives transposed."""
    return sorted(range(len(shape)), key=lambda axis: -strides[axis]) if all(shape) else list(range(len(shape)))


class _Reader:
    """Builds a value from what ``_Writer`` made, and trusts nothing of it."""

    def __init__(self, blob: memoryview) -> None:
        self.blob, self.place = blob, 0
        self.seen: list[object] = []

    def unpacked(self, data: object, depth: int) -> object:
        if depth > MOST_DEPTH:
            raise CodecError(f"a value nested more than {MOST_DEPTH} deep")
        if not isinstance(data, list):
            if isinstance(data, dict):
                raise CodecError("a message that is not a value")
            return data
        kind, *rest = data
        if kind == "list":
            return [self.unpacked(item, depth + 1) for item in rest]
        if kind == "tuple":
            return tuple(self.unpacked(item, depth + 1) for item in rest)
        if kind == "dict":
            return {self.unpacked(key, depth + 1): self.unpacked(item, depth + 1) for key, item in rest}
        if kind == "timeline":
            return self._timeline(*rest)
        if kind == "again":
            if type(rest[0]) is not int or rest[0] < 0:
                raise CodecError("a message that refers to nothing")
            return self.seen[rest[0]]
        name, shape, order = rest
        if kind == "number":
            return self._array(name, shape, order, NUMPY_TYPES)[()]
        if kind not in ("array", "tensor"):
            raise CodecError("a message of an unknown kind")
        value = self._array(name, shape, order, NUMPY_TYPES) if kind == "array" else self._tensor(name, shape, order)
        self.seen.append(value)
        return value

    def _array(self, name: object, shape: object, order: object, allowed: tuple[str, ...]) -> np.ndarray:
        whole = isinstance(shape, list) and all(type(n) is int and 0 <= n <= MOST_BYTES for n in shape)
        if name not in allowed or not whole or len(shape) > MOST_DIMENSIONS or sorted(order) != [*range(len(shape))]:
            raise CodecError("an array whose type or shape makes no sense")
        dtype = np.dtype(SAME_SIZE.get(name, name))
        size = dtype.itemsize * math.prod(shape)
        if size > len(self.blob) - self.place:
            raise CodecError("an array that is cut off")
        raw = np.frombuffer(bytearray(self.blob[self.place : self.place + size]), np.uint8)
        self.place += size
        flat = raw != 0 if name == "bool" else raw.view(dtype)  # a byte that is neither 0 nor 1 is no bool
        return flat.reshape([shape[axis] for axis in order]).transpose(np.argsort(order) if order else None)

    def _tensor(self, name: object, shape: object, order: object) -> object:
        import torch

        array = self._array(name, shape, order, TORCH_TYPES)
        tensor = torch.from_numpy(array)
        return tensor.view(getattr(torch, name)) if name in SAME_SIZE else tensor

    def _timeline(self, host: list, device: list, source: object, provenance: object) -> Timeline:
        if source not in ("modelled", "measured", "recorded") or not isinstance(provenance, str):
            raise CodecError("a timeline from nowhere")
        return Timeline(*(tuple(_span(*row) for row in lane) for lane in (host, device)), source, provenance)


def _span(name, start_us, duration_us, correlation, kind, lane) -> Span:
    numbers = all(type(x) in (int, float) and abs(x) <= 1e300 for x in (start_us, duration_us))
    if not numbers or not all(isinstance(x, str) for x in (name, kind, lane)):
        raise CodecError("a span that makes no sense")
    if correlation is not None and type(correlation) is not int:
        raise CodecError("a span that makes no sense")
    return Span(name, start_us, duration_us, correlation, kind, lane)
