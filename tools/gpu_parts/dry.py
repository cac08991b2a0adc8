"""The dry mode's device: the CUDA device's code over CPU tensors, Triton's interpreter, and a list for a graph.

It finds mistakes in our own code before a GPU's time is spent on them. Of CUDA it says nothing, and of speed less.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from s13lib.device import CaptureError, DeviceError
from s13lib.device.cuda import CudaDevice, CudaNamespace
from s13lib.device.error_flags import ErrorFlags
from s13lib.device.processors import processor_name, usable_processors
from s13lib.device.protocol import BoundLaunch
from s13lib.device.types import describe_error


@dataclass
class DryPool:
    """Counts what captures allocate."""

    pool_bytes: int = 0


@dataclass
class DryGraph:
    """Launches that were bound inside a capture, to be run again one by one."""

    pool: DryPool
    launches: list[BoundLaunch] = field(default_factory=list)
    ready: bool = False

    @property
    def node_count(self) -> int:
        return len(self.launches)

    @property
    def pool_bytes(self) -> int:
        return self.pool.pool_bytes

    def replay(self) -> None:
        for each in self.launches:
            each.launch()


class DryCapture:
    """In the place of ``CudaCapture``: a launch inside it is noted and does not run."""

    def __init__(self, device: DryDevice, pool: DryPool | None) -> None:
        self._device, self.graph = device, DryGraph(pool or DryPool())

    def __enter__(self) -> DryGraph:
        if self._device._capture is not None:
            raise CaptureError("a capture is already open on this device: captures do not nest.")
        self._device._capture = self
        return self.graph

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self._device._capture = None
        self.graph.ready = kind is None

    def allocated(self, tensor: torch.Tensor) -> torch.Tensor:
        self.graph.pool.pool_bytes += tensor.nbytes
        return tensor

    def keep(self, arguments: tuple) -> None:
        """The bound launches hold their arguments."""


@dataclass(frozen=True)
class DryLaunch:
    """A launch that runs, or is noted if a capture is open."""

    device: DryDevice
    bound: BoundLaunch

    @property
    def arguments(self) -> tuple:
        return self.bound.arguments

    def launch(self) -> None:
        capture = self.device._capture
        if capture is not None:
            capture.graph.launches.append(self.bound)
        else:
            self.bound.launch()


class DryDevice(CudaDevice):
    """CUDA's device without CUDA. float16, since the interpreter's product of bfloat16 matrices is wrong."""

    weight_dtype = torch.float16

    def __init__(self) -> None:
        self.where = torch.device("cpu")
        self.processors = usable_processors()
        self._flags = ErrorFlags(self.where)
        self._capture = self._recorder = None
        self.kernels = CudaNamespace(self)

    @property
    def description(self) -> str:
        return f"Triton's interpreter on {processor_name()}"

    def bind(self, kernel: object, *arguments: object) -> DryLaunch:
        return DryLaunch(self, super().bind(kernel, *arguments))

    def synchronize(self) -> None:
        for name, word in self._flags.take().items():
            raise DeviceError(f"{name}: {describe_error(word)}")

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        yield
        self.synchronize()

    def pool(self) -> DryPool:
        return DryPool()

    def graph(self, pool: DryPool | None = None) -> DryCapture:
        return DryCapture(self, pool)

    def record(self) -> None:
        raise NotImplementedError("the profiler sees no device here")
