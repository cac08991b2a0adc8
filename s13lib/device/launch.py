"""Launching: check the arguments, pack them, hand the packet to the queue.

A launch function is generated for each kernel, since a loop over parameters would cost several times as much. For

    scale(x: F32[1], out: F32[1], factor: float)

it reads, shortened::

    def scale(x, out, factor):
        try:
            x_0, = x.shape
            out_0, = out.shape
            if not (x.dtype is F32 and x.is_contiguous() and x.is_cpu and out.dtype is F32 and ...):
                explain(...)
            packet = pack(entry_address, x.data_ptr(), x_0, out.data_ptr(), out_0, factor)
        except Exception as error:
            explain(..., error)
        owner = (packet, x, out)
        if submit(ring_address, address_of(packet), id(owner), begun_ns) < 0:
            launch_slowly(...)  # capturing, or the queue is full
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import torch

from s13lib.device.errors import CaptureError
from s13lib.device.kernel import REGISTRY, Kernel, Parameter
from s13lib.device.queue import PACKET_OFFSET
from s13lib.errors import InputError, look_up, require

if TYPE_CHECKING:
    from s13lib.device.softgpu import SoftGPU

_PACK = """
def pack({parameters}):
    try:
        {unpack_shapes}
        if not ({checks}):
            _explain(_kernel, ({parameters},))
        return _pack(_entry, {words})
    except Exception as _error:
        _explain(_kernel, ({parameters},), _error)
"""
_LAUNCH = """
def launch({parameters}):
    _begun = _clock() if _device._recorder else 0
    try:
        {unpack_shapes}
        if not ({checks}):
            _explain(_kernel, ({parameters},))
        _packet = _pack(_entry, {words})
    except Exception as _error:
        _explain(_kernel, ({parameters},), _error)
    _owner = (_packet, {arrays})
    if _submit(_ring, id(_packet) + _OFFSET, id(_owner), _begun) < 0:
        _slowly(_kernel, ({parameters},), _packet, _owner, _begun)
"""


class Namespace:
    """``device.kernels``: launch functions by name, of the built-in kernels and of the learner's own.

    A built-in kernel keeps its name, also against a learner's that was there first: the model launches it by that name.
    """

    def __init__(self, device: SoftGPU) -> None:
        self._device = device
        self._own: dict[str, Callable] = {}

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._own and name not in REGISTRY:
            return self._own[name]
        launch = self._device.launcher(look_up(REGISTRY, name, "device.kernels"))
        setattr(self, name, launch)
        return launch

    def __dir__(self) -> list[str]:
        return sorted({*REGISTRY, *self._own})


class BoundLaunch:
    """A launch whose arguments were checked once: ``launch()`` submits it, as often as one likes.

    It holds its tensors' memory, so that the addresses stay valid.
    """

    __slots__ = (
        "_address",
        "_clock",
        "_device",
        "_id",
        "_packet",
        "_ring",
        "_storages",
        "_submit",
        "arguments",
        "kernel",
    )

    def __init__(self, device: SoftGPU, kernel: Kernel, arguments: tuple, packet: bytes) -> None:
        self.kernel, self.arguments = kernel, arguments
        self._device, self._packet = device, packet
        self._submit, self._ring, self._clock = device._queue.submit, device._queue.address, device._queue.clock_ns
        self._address, self._id = id(packet) + PACKET_OFFSET, id(self)
        self._storages = [a.untyped_storage() for a in arguments if isinstance(a, torch.Tensor)]

    def __repr__(self) -> str:
        return f"BoundLaunch({self.kernel.name})"

    def launch(self) -> None:
        """Queue the launch."""
        begun = self._clock() if self._device._recorder else 0
        if self._submit(self._ring, self._address, self._id, begun) < 0:
            self._device._launch_slowly(self.kernel, self.arguments, self._packet, self, begun)


def make_launch(device: SoftGPU, kernel: Kernel) -> Callable:
    """The launch function of ``kernel`` on ``device``; its attributes ``kernel`` and ``pack`` are for ``bind``."""
    arrays = [p for p in kernel.parameters if p.is_array]
    text = {
        "parameters": ", ".join(p.name for p in kernel.parameters),
        "arrays": ", ".join(p.name for p in arrays),
        "unpack_shapes": "; ".join(f"{', '.join(_extents(p))}, = {p.name}.shape" for p in arrays) or "pass",
        "checks": " and ".join(
            [
                *kernel.shapes.expressions(),
                *(
                    f"{p.name}.dtype is _{p.type.element.name} and {p.name}.is_contiguous() and {p.name}.is_cpu"
                    for p in arrays
                ),
            ]
        )
        or "True",
        "words": ", ".join(
            ", ".join([f"{p.name}.data_ptr()", *_extents(p)]) if p.is_array else p.name for p in kernel.parameters
        ),
    }
    codes = "".join("q" * (1 + p.type.rank) if p.is_array else "qd"[p.type is float] for p in kernel.parameters)
    scope = {
        "_explain": explain,
        "_kernel": kernel,
        "_pack": struct.Struct("=q" + codes).pack,
        "_entry": kernel.address,
        "_device": device,
        "_clock": device._queue.clock_ns,
        "_submit": device._queue.submit,
        "_ring": device._queue.address,
        "_OFFSET": PACKET_OFFSET,
        "_slowly": device._launch_slowly,
        **{f"_{p.type.element.name}": p.type.element.tensor_dtype for p in arrays},
    }
    exec(compile((_PACK + _LAUNCH).format(**text), f"<launch of {kernel.name}>", "exec"), scope)
    launch = scope["launch"]
    launch.__name__ = launch.__qualname__ = kernel.name
    launch.__doc__ = kernel.__doc__
    launch.kernel, launch.pack = kernel, scope["pack"]
    return launch


def _extents(parameter: Parameter) -> list[str]:
    return [f"_{parameter.name}_{axis}" for axis in range(parameter.type.rank)]


def explain(kernel: Kernel, arguments: tuple, error: Exception | None = None) -> NoReturn:
    """Find out which argument was wrong and raise an ``InputError`` that says so."""
    if isinstance(error, InputError | CaptureError):
        raise error
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        where = f"{kernel.name}: {parameter.name}"
        if not parameter.is_array:
            allowed = "an integer" if parameter.type is int else "a number"
            if isinstance(value, torch.Tensor):
                require(value.numel() == 1, where, f"tensor of shape {tuple(value.shape)}", allowed)
                value = value.item()  # inside a capture, this is the error
            require(_is_number(value, parameter.type), where, value, allowed)
            continue
        kind = parameter.type
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{where} is of type {type(value).__name__}: must be a tensor.")
        require(value.is_cpu, f"{where}.device", str(value.device), "this device's (device.tensor copies)")
        require(value.dtype is kind.element.tensor_dtype, f"{where}.dtype", value.dtype, f"{kind.element.tensor_dtype}")
        require(
            value.ndim == kind.rank,
            f"{where}.shape",
            tuple(value.shape),
            f"of {kind.rank} dimension{'s'[: kind.rank > 1]}",
        )
        require(value.is_contiguous(), f"{where}.stride()", value.stride(), f"contiguous for {tuple(value.shape)}")
    shapes = {p.name: tuple(v.shape) for p, v in zip(kernel.parameters, arguments, strict=True) if p.is_array}
    kernel.shapes.explain(kernel.name, shapes)
    raise error or InputError(f"{kernel.name}: arguments do not fit {kernel!r}.")


def _is_number(value: object, kind: type) -> bool:
    try:
        struct.pack("q" if kind is int else "d", value)
    except (struct.error, TypeError):
        return False
    return True
