"""A device to launch kernels on: one small protocol, and SoftGPU, which needs nothing but a CPU.

::

    import s13lib.kernels.softgpu           # the built-in kernels
    device = best_device()
    x, y = device.tensor([1.0, 2.0]), device.empty(2)
    device.kernels.scale(x, y, 2.0)         # asynchronous, in order
    device.synchronize()

    with device.graph() as graph:           # records launches instead of running them
        device.kernels.scale(x, y, 2.0)
    graph.replay()                          # one submission
"""

from __future__ import annotations

import os

from s13lib.device.errors import CaptureError, DeviceError
from s13lib.device.graph import Graph
from s13lib.device.kernel import Kernel, helper, kernel, prepare
from s13lib.device.memory import Pool
from s13lib.device.softgpu import SoftGPU
from s13lib.device.types import F16, F32, F64, I32, I64, U8
from s13lib.errors import InputError, look_up

__all__ = [
    "F16",
    "F32",
    "F64",
    "I32",
    "I64",
    "U8",
    "CaptureError",
    "DeviceError",
    "Graph",
    "Kernel",
    "Pool",
    "SoftGPU",
    "best_device",
    "helper",
    "kernel",
    "prepare",
]

_best: SoftGPU | None = None


def _no_cuda() -> SoftGPU:
    raise InputError("S13_DEVICE is 'cuda': this version has no CUDA device yet; unset it or set it to softgpu.")


def best_device() -> SoftGPU:
    """The device to use, the same one at each call; ``S13_DEVICE`` (softgpu or cuda) overrides the choice."""
    global _best
    make = look_up({"softgpu": SoftGPU, "cuda": _no_cuda}, os.environ.get("S13_DEVICE") or "softgpu", "S13_DEVICE")
    if make is _no_cuda:
        return make()
    if _best is None or not _best.usable:
        _best = SoftGPU()
    return _best
