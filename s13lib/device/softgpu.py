"""SoftGPU: a device on a CPU thread. It runs compiled kernels from a queue, in order, while Python goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import numpy as np
import torch

from s13lib.device.entry import describe_exception
from s13lib.device.errors import CaptureError, DeviceError
from s13lib.device.graph import Capture, Graph
from s13lib.device.kernel import Kernel, name_at
from s13lib.device.launch import BoundLaunch, Namespace, make_launch
from s13lib.device.memory import Block, Memory, Pool, checked_shape, element_count
from s13lib.device.processors import CONTENDED_BELOW, processor_name, processor_share, usable_processors
from s13lib.device.queue import PACKET_OFFSET, Queue
from s13lib.device.record import Recording
from s13lib.device.ring import FULL, NO_ROW
from s13lib.device.types import describe_error
from s13lib.errors import require


class SoftGPU:
    """A device whose queue is served by one worker thread of this process.

    Its tensors are torch CPU tensors, so nothing waits by itself when torch reads them: call ``synchronize`` first.
    Making one sets torch to a single thread, because torch's thread pool and the worker would take turns.
    """

    kind = "softgpu"

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.processors = usable_processors()
        self._queue = Queue()
        self._memory = Memory(self._queue.retire)
        self._capture: Capture | None = None
        self._recorder: Recording | None = None
        self._launches: dict[Kernel, Callable] = {}
        #: Launch functions by name: ``device.kernels.scale(x, out, 2.0)`` queues a launch and returns at once.
        self.kernels = Namespace(self)

    def __repr__(self) -> str:
        return f"SoftGPU({self.processors} processors)"

    @property
    def description(self) -> str:
        """What this device is, for the provenance of a measurement."""
        return f"SoftGPU on {processor_name()}, {self.processors} usable processor{'s'[: self.processors > 1]}"

    def banner(self) -> str:
        """One line for the top of a notebook: the device, and whether its times can be trusted (takes 20 ms)."""
        line = self.description
        if self.processors == 1:
            return f"{line}: results are right, but times mean nothing; look at the recorded timelines instead"
        share = processor_share(2)
        if share < CONTENDED_BELOW:
            return f"{line}, contended (a busy thread got {share:.0%} of one): times may be off by 2x and more"
        return f"{line}, not contended"

    # Memory

    def empty(
        self, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32, name: str | None = None
    ) -> torch.Tensor:
        """A tensor at a fixed address, with unspecified contents. Inside a capture it belongs to the graph's pool.

        ``name`` is what ``print(graph)`` calls it.
        """
        shape = checked_shape(shape)
        if self._is_capturing_here():
            return self._capture.empty(shape, dtype, name)
        self._queue.reap()
        block = Block(element_count(shape) * dtype.itemsize, self._memory)
        return self._memory.tensor(block, shape, dtype, name)

    def zeros(
        self, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32, name: str | None = None
    ) -> torch.Tensor:
        """Like ``empty``, filled with zeros. The host fills it, so it is refused inside a capture."""
        if self._is_capturing_here():
            raise CaptureError(
                "device.zeros inside a capture: the host fills it, and a graph cannot record that; make it before."
            )
        return self.empty(shape, dtype, name).zero_()

    def tensor(self, data: object, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
        """A new device tensor with a copy of ``data`` (a tensor, an array or nested lists)."""
        if self._is_capturing_here():
            raise CaptureError(
                "device.tensor inside a capture: the host copies, and a graph cannot record that; make it before."
            )
        source = torch.as_tensor(data, dtype=dtype).detach()
        return self.empty(tuple(source.shape), source.dtype, name).copy_(source)

    def side_by_side(self) -> AbstractContextManager[None]:
        """A context: tensors made inside share large pieces of memory, and so large pages, which are quicker to read.

        For tensors that are used and dropped together, as a model's weights: a piece is freed with the last of them.
        """
        return self._memory.side_by_side()

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory in use: tensors, and the pools of graphs."""
        self._queue.reap()
        return self._memory.allocated_bytes

    def pool(self) -> Pool:
        """A new memory pool for ``graph(pool)``."""
        return Pool(self._memory)

    # Launching

    def kernel(self, function: Callable | None = None, *, out: Iterable[str] | None = None) -> Callable:
        """Make a kernel of a learner's function: ``@device.kernel`` or ``@device.kernel(out=("out",))``.

        Returns its launch function, which is also ``device.kernels.<name>`` unless a built-in kernel has that name. It
        is compiled with bounds checks: an index out of range ends the launch and is told by the next ``synchronize``.
        """
        if function is None:
            return lambda function: self.kernel(function, out=out)
        launch = self.launcher(Kernel(function, out, checked=True))
        self.kernels._own[function.__name__] = launch
        return launch

    def bind(self, kernel: Kernel | Callable | str, *arguments: object) -> BoundLaunch:
        """Check a launch's arguments now; ``.launch()`` on the result submits it with little more than the call's cost.

        ``kernel`` is a name, a ``Kernel``, or what ``device.kernels.<name>`` or ``@device.kernel`` gave.
        """
        if isinstance(kernel, str):
            kernel = getattr(self.kernels, kernel)
        elif isinstance(kernel, Kernel):
            kernel = self.launcher(kernel)
        return BoundLaunch(self, kernel.kernel, arguments, kernel.pack(*arguments))

    def synchronize(self) -> None:
        """Wait until all launches have run; ``DeviceError`` if a kernel reported an error since the last call."""
        if self._capture is not None:
            raise CaptureError("synchronize inside a capture: nothing is running, and a graph cannot record a wait.")
        self._queue.drain()
        count, word, address, node = self._queue.take_errors()
        if count:
            what = describe_error(word) if word > 0 else f"{describe_exception(-word)}; the launch stopped there"
            where = f" (node {node} of a replayed graph)" if node >= 0 else ""
            more = f" ({count - 1} more launches since the last synchronize reported errors)" if count > 1 else ""
            raise DeviceError(f"{name_at(address)}{where}: {what}{more}")

    def launcher(self, kernel: Kernel) -> Callable:
        """The launch function of a ``Kernel`` on this device, registered or not."""
        if kernel not in self._launches:
            self._launches[kernel] = make_launch(self, kernel)
        return self._launches[kernel]

    def _launch_slowly(self, kernel: Kernel, arguments: tuple, packet: bytes, owner: object, begun_ns: int) -> None:
        """What a launch does when it cannot simply be queued."""
        queue = self._queue
        while (outcome := queue.submit(queue.address, id(packet) + PACKET_OFFSET, id(owner), begun_ns)) < 0:
            queue.check_usable()
            if outcome == FULL:
                queue.wait_for_room()
            elif outcome == NO_ROW and self._recorder is not None:
                self._recorder.add_rows()
            elif self._capture is not None:
                self._capture.add(kernel, arguments, packet)
                return

    def _replay(self, graph: Graph) -> None:
        begun_ns = self._queue.clock_ns()
        if self._capture is not None:
            raise CaptureError("graph.replay() inside a capture: a graph cannot record another one.")
        self._queue.check_usable()
        recorder, stamps = self._recorder, None
        if recorder is not None:
            stamps = np.zeros((len(graph), 2), np.int64)
        number = self._queue.push(
            graph._addresses.ctypes.data, len(graph), stamps.ctypes.data if recorder else 0, (graph, stamps)
        )
        if recorder is not None:
            recorder.add_replay(graph, begun_ns, number, stamps)

    # Graphs and measurement

    def graph(self, pool: Pool | None = None) -> Capture:
        """A context that records launches instead of running them: ``with device.graph() as graph: ...``.

        ``pool`` is another graph's ``pool`` to share its memory (capture the largest graph first).
        """
        require(pool is None or isinstance(pool, Pool), "pool", pool, "None or a Pool, such as another graph's pool")
        require(pool is None or pool._memory is self._memory, "pool", pool, "a pool of this device")
        return Capture(self, pool)

    def record(self) -> Recording:
        """A context that stamps launches: ``with device.record() as recording: ...``, then ``recording.timeline``."""
        return Recording(self)

    def close(self) -> None:
        """End the worker thread. Launches that have not begun are dropped; later ones are refused."""
        self._queue.close()

    @property
    def usable(self) -> bool:
        """False once it is closed, and in a child process after a fork."""
        return self._queue.usable

    def _is_capturing_here(self) -> bool:
        return self._capture is not None and self._capture.thread == threading.get_ident()
