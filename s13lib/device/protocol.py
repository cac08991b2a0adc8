"""What a device is, in one small protocol. SoftGPU and CUDA keep it, and the code above them needs no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from s13lib.simulator.timeline import Timeline


class BoundLaunch(Protocol):
    """A launch whose arguments were checked and fixed once. It keeps their memory alive."""

    arguments: tuple

    def launch(self) -> None:
        """Queue the launch; returns at once."""


class Pool(Protocol):
    """Memory that graphs share, if no two of them run at the same time."""

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pool holds now."""


class Graph(Protocol):
    """Launches that were recorded once and are replayed by one submission, with the same addresses and numbers."""

    pool: Pool
    ready: bool

    @property
    def node_count(self) -> int | None:
        """How many launches (and copies) it holds; None where the device cannot tell."""

    @property
    def pool_bytes(self) -> int:
        """Bytes in the graph's pool, which other graphs may share."""

    def replay(self) -> None:
        """Queue all of it with one submission; returns at once."""


class Recording(Protocol):
    """What ``device.record()`` yields."""

    @property
    def timeline(self) -> Timeline:
        """What ran, measured, in microseconds; after the ``with`` block."""


class Device(Protocol):
    """Where tensors live and kernels run: asynchronously, in the order in which they were launched.

    Attributes:
        kind: "softgpu" or "cuda".
        kernels: launch functions by name, ``device.kernels.linear(x, weight, out)``.
        weight_dtype: what weights and KV cache are kept in unless the user says otherwise.
        binds_steps: whether a model binds a step's launches once and submits them again and again. SoftGPU's launch
            functions check and pack each time, since that cost is what the lessons measure; Triton's, which look up
            the compiled kernel by all arguments (read in its source), would hide the cost of the launch itself.
        processors: host processors that this process may use.
    """

    kind: str
    kernels: Any
    weight_dtype: torch.dtype
    binds_steps: bool
    processors: int

    @property
    def description(self) -> str:
        """What this device is, for the provenance of a measurement."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory in use."""

    def banner(self) -> str:
        """The description, and whether times can be trusted."""

    def empty(self, shape: int | tuple[int, ...], dtype: torch.dtype = ..., name: str | None = None) -> torch.Tensor:
        """A tensor at a fixed address, contents unspecified. Inside a capture it belongs to the graph's pool."""

    def zeros(self, shape: int | tuple[int, ...], dtype: torch.dtype = ..., name: str | None = None) -> torch.Tensor:
        """The same, filled with zeros. Not inside a capture."""

    def tensor(self, data: object, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
        """A copy of ``data`` on the device. Not inside a capture."""

    def side_by_side(self) -> AbstractContextManager[None]:
        """A context: tensors made inside are used and dropped together, as a model's weights, and may share memory."""

    def kernel(self, function: Callable | None = None, **options: object) -> Callable:
        """Make a kernel of what a learner wrote."""

    def prepare(self, names: Iterable[str]) -> None:
        """Make ready what launching these kernels needs, as far as that can be done beforehand."""

    def bind(self, kernel: str, *arguments: object) -> BoundLaunch:
        """Check a launch's arguments now, to submit it often."""

    def submit(self, launches: Sequence[BoundLaunch]) -> None:
        """Queue bound launches, in order."""

    def synchronize(self) -> None:
        """Wait until all launches have run; ``DeviceError`` if a kernel reported an error since the last call."""

    def pool(self) -> Pool:
        """A new pool for ``graph``."""

    def warm_up(self) -> AbstractContextManager[None]:
        """Run a step here once before its capture: what is made at a first call must not be made inside one."""

    def graph(self, pool: Pool | None = None) -> AbstractContextManager[Graph]:
        """A context that records launches instead of running them."""

    def record(self) -> AbstractContextManager[Recording]:
        """A context whose launches are timed."""
