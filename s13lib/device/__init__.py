"""A device to launch kernels on: one small protocol (``Device``), SoftGPU, which needs nothing but a CPU, and CUDA.

::

    import s13lib.kernels.softgpu           # the built-in kernels
    device = best_device()
    x, y = device.tensor([1.0, 2.0]), device.empty(2)
    device.kernels.scale(x, y, 2.0)         # asynchronous, in order
    device.synchronize()

    with device.graph() as graph:           # records launches instead of running them
        device.kernels.scale(x, y, 2.0)
    graph.replay()                          # one submission

SoftGPU and its kernels need Numba; without that package the names that belong to them are not there, and CUDA works.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import NoReturn

from s13lib.device.cuda import CudaDevice, cuda_problem, kernels_problem
from s13lib.device.errors import CaptureError, DeviceError
from s13lib.device.protocol import Device
from s13lib.device.types import F16, F32, F64, I32, I64, U8
from s13lib.errors import InputError, look_up

if importlib.util.find_spec("numba") is not None:
    from s13lib.device.graph import Graph
    from s13lib.device.kernel import Kernel, helper, kernel, prepare
    from s13lib.device.memory import Pool
    from s13lib.device.softgpu import SoftGPU

__all__ = [
    "F16",
    "F32",
    "F64",
    "I32",
    "I64",
    "U8",
    "CaptureError",
    "CudaDevice",
    "Device",
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


def __getattr__(name: str) -> NoReturn:
    if name in __all__:
        raise ModuleNotFoundError(f"s13lib.device.{name} is SoftGPU's and needs numba, which is missing", name="numba")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_best: Device | None = None
_default = "auto"


def best_device(default: str | None = None) -> Device:
    """The device to use, the same one at each call: CUDA if there is a GPU and Triton to write for it, else SoftGPU.

    ``S13_DEVICE`` overrides the choice: ``softgpu``, ``cuda``, or ``auto``, which is the above.

    Args:
        default: which one to take, from now on, where ``S13_DEVICE`` is not set. A program that needs what one device
            alone has, as the lessons need SoftGPU's stages and kernels, says so in its first call.

    Raises:
        InputError: the device is to be CUDA and there is no GPU, or the name is not known.
    """
    global _best, _default
    choices: dict[str, Callable[[], str]] = {"auto": best_kind, "softgpu": lambda: "softgpu", "cuda": _cuda_or_error}
    if default is not None:
        look_up(choices, default, "default")
        _default = default
    kind = look_up(choices, os.environ.get("S13_DEVICE") or _default, "S13_DEVICE")()
    if _best is None or _best.kind != kind or not _best.usable:
        _best = CudaDevice() if kind == "cuda" else SoftGPU()
    return _best


def best_kind() -> str:
    """Which device ``auto`` means here."""
    return "softgpu" if cuda_problem() or kernels_problem() else "cuda"


def _cuda_or_error() -> str:
    if problem := cuda_problem():
        raise InputError(f"S13_DEVICE is 'cuda', and {problem}: unset it or set it to softgpu.")
    return "cuda"
