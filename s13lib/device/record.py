"""Recording: what ``device.record()`` measures, launch by launch, on one clock."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from s13lib.device.kernel import name_at
from s13lib.device.ring import RECORDING, ROW_BYTES
from s13lib.errors import InputError
from s13lib.simulator.timeline import Span, Timeline

if TYPE_CHECKING:
    from s13lib.device.graph import Graph
    from s13lib.device.softgpu import SoftGPU

ROWS_AT_A_TIME = 8192


class Recording:
    """A context: launches and replays inside it are stamped. Afterwards ``timeline`` holds them.

    A host span is one launch call, from its entry (checks included) to the moment at which it is queued. A device span
    is one kernel's run. A replay is one host span of kind "graph" whose kernels share its correlation. Stamping costs a
    launch about 0.4 µs, and a kernel two readings of the clock.
    """

    def __init__(self, device: SoftGPU) -> None:
        self._device, self._queue = device, device._queue
        self._rows: list[np.ndarray] = []
        self._replays: list[tuple[Graph, int, int, int, np.ndarray]] = []
        self._timeline: Timeline | None = None

    def __enter__(self) -> Recording:
        if self._device._recorder is not None:
            raise InputError("this device is already recording: recordings do not nest.")
        self._queue.check_usable()
        self.add_rows()
        self._start_ns = self._queue.clock_ns()
        self._device._recorder = self
        self._queue.shut_gate(RECORDING)
        return self

    def __exit__(self, *exception: object) -> None:
        self._queue.open_gate(RECORDING)
        self._device._recorder = None
        self._rows[-1] = self._rows[-1][: self._queue.rows_used(self._rows[-1])]
        self._queue.retire(self._rows)  # should Ctrl-C end the wait: kernels in the queue will still write here
        self._queue.drain()
        self._timeline = self._build()

    @property
    def timeline(self) -> Timeline:
        """The measured ``Timeline``, in microseconds from the start of the recording."""
        if self._timeline is None:
            raise InputError("the recording is still open: read its timeline after the with block.")
        return self._timeline

    def add_rows(self) -> None:
        """Make room for more launches."""
        self._rows.append(np.zeros((ROWS_AT_A_TIME, ROW_BYTES // 8), np.int64))
        self._queue.give_rows(self._rows[-1])

    def add_replay(self, graph: Graph, begun_ns: int, number: int, stamps: np.ndarray) -> None:
        """Note a replay: when its call began, its number in the queue, and where its kernels' stamps will be."""
        self._replays.append((graph, begun_ns, self._queue.clock_ns(), number, stamps))

    def _build(self) -> Timeline:
        def span(name: str, start_ns: int, end_ns: int, number: int, kind: str = "") -> Span:
            return Span(name, (start_ns - self._start_ns) / 1e3, (end_ns - start_ns) / 1e3, number, kind)

        host, device = [], []
        for begun, queued, start, end, kernel, number in np.concatenate(self._rows).tolist():
            host.append(span(name_at(kernel), begun, queued, number))
            device.append(span(name_at(kernel), start, end, number))
        for graph, begun, queued, number, stamps in self._replays:
            host.append(span(f"graph replay ({len(graph)} nodes)", begun, queued, number, "graph"))
            for node, (start, end) in zip(graph.nodes, stamps.tolist(), strict=True):
                device.append(span(node.kernel, start, end, number))
        order = attrgetter("start_us")
        return Timeline(
            tuple(sorted(host, key=order)),
            tuple(sorted(device, key=order)),
            source="measured",
            provenance=self._device.description,
        )
