"""Graphs: launches recorded once as packets with their addresses, and replayed by one submission.

A replay never runs Python again. What the kernels read then is what lies at the recorded addresses; numbers are the
ones of the capture.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from s13lib.device.capture import CaptureGuard
from s13lib.device.errors import CaptureError
from s13lib.device.kernel import Kernel
from s13lib.device.memory import Block, Pool
from s13lib.device.queue import PACKET_OFFSET
from s13lib.device.ring import CAPTURING
from s13lib.errors import InputError

if TYPE_CHECKING:
    from s13lib.device.softgpu import SoftGPU


@dataclass(frozen=True)
class Operand:
    """One array argument of a node: the parameter, the address and bytes, and the tensor's name where it has one."""

    parameter: str
    address: int
    nbytes: int
    tensor: str | None

    def __str__(self) -> str:
        return f"{self.tensor or self.parameter}@{self.address:#x}"


@dataclass(frozen=True)
class Node:
    """One recorded launch."""

    kernel: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    numbers: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        parts = [f"reads {', '.join(map(str, self.reads))}"] if self.reads else []
        parts += [f"writes {', '.join(map(str, self.writes))}"] if self.writes else []
        parts += [f"with {', '.join(f'{name}={value!r}' for name, value in self.numbers)}"] if self.numbers else []
        return f"{self.kernel}: {'; '.join(parts)}"


class Graph:
    """What ``device.graph()`` recorded. It keeps alive all memory that it points at.

    Attributes:
        nodes: the recorded launches in order.
        pool: the memory of allocations inside the capture; pass it to ``device.graph`` to share it.
    """

    def __init__(self, device: SoftGPU, pool: Pool) -> None:
        self._device, self.pool = device, pool
        self.nodes: tuple[Node, ...] = ()
        self.ready = False
        self._packets: list[bytes] = []
        self._addresses = np.zeros(0, np.int64)
        self._storages: dict[int, object] = {}
        self._blocks: list[Block] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        state = f"{len(self)} nodes, {self.pool_bytes:,} bytes of pool" if self.ready else "not captured"
        return f"Graph({state})"

    def __str__(self) -> str:
        lines = [f"{index:4d}  {node}" for index, node in enumerate(self.nodes)]
        return "\n".join([f"{self!r}", *lines])

    @property
    def node_count(self) -> int:
        """How many launches it holds."""
        return len(self.nodes)

    @property
    def pool_bytes(self) -> int:
        """Bytes in this graph's pool, which other graphs may share."""
        return self.pool.pool_bytes

    def replay(self) -> None:
        """Queue all nodes with one submission. Asynchronous, like a launch."""
        if not self.ready:
            raise InputError("this graph was not captured: its capture is still open, or ended in an error.")
        if self.nodes:
            self._device._replay(self)


class Capture:
    """The context that ``device.graph()`` returns. Launches inside it become nodes of a graph instead of running."""

    def __init__(self, device: SoftGPU, pool: Pool | None) -> None:
        self._device = device
        self.pool = pool if pool is not None else device.pool()
        self._graph = Graph(device, self.pool)
        self._nodes: list[Node] = []
        self._guard = CaptureGuard(self._is_on_device)
        self.thread = 0

    def __enter__(self) -> Graph:
        if self._device._capture is not None:
            raise CaptureError("a capture is already open on this device: captures do not nest.")
        self._device._queue.check_usable()
        self.thread = threading.get_ident()
        self.pool.begin()
        self._device._capture = self
        self._device._queue.shut_gate(CAPTURING)
        self._guard.__enter__()
        return self._graph

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self._guard.__exit__()
        self._device._queue.open_gate(CAPTURING)
        self._device._capture = None
        blocks = self.pool.end()
        graph = self._graph
        if kind is not None:
            graph._packets.clear()
            graph._storages.clear()
            return
        graph._blocks = blocks
        graph._addresses = np.array([id(packet) + PACKET_OFFSET for packet in graph._packets], np.int64)
        graph.nodes = tuple(self._nodes)
        graph.ready = True

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str | None) -> torch.Tensor:
        """Memory of the graph's pool."""
        return self.pool.empty(shape, dtype, name)

    def add(self, kernel: Kernel, arguments: tuple, packet: bytes) -> None:
        """Record a launch."""
        self.check_thread()
        graph, memory = self._graph, self._device._memory
        reads, writes, numbers = [], [], []
        for parameter, value in zip(kernel.parameters, arguments, strict=True):
            if not parameter.is_array:
                numbers.append((parameter.name, value))
                continue
            storage = value.untyped_storage()
            if not self.pool.is_using(storage.data_ptr()):
                graph._storages[storage.data_ptr()] = storage  # not the tensor: x.data = y would free what we point at
            allocation = memory.find(value)
            name = allocation.name if allocation else None
            if name and value.storage_offset():
                name += f"+{value.storage_offset() * value.itemsize}"
            operand = Operand(parameter.name, value.data_ptr(), value.nbytes, name)
            (writes if parameter.written else reads).append(operand)
        self._nodes.append(Node(kernel.name, tuple(reads), tuple(writes), tuple(numbers)))
        graph._packets.append(packet)

    def check_thread(self) -> None:
        """Refuse launches that come from elsewhere: they would end up in the middle of the graph."""
        if threading.get_ident() != self.thread:
            raise CaptureError("another thread is capturing a graph on this device: launch after its capture.")

    def _is_on_device(self, tensor: torch.Tensor) -> bool:
        address = tensor.untyped_storage().data_ptr()
        return address in self._graph._storages or self._device._memory.find(tensor) is not None
