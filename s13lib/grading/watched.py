"""A SoftGPU that is watched: what was captured, replayed and launched, as the device saw it."""

from __future__ import annotations

from collections.abc import Callable

from s13lib.device import Graph, Kernel, Pool, SoftGPU
from s13lib.device.graph import Capture


class WatchedDevice(SoftGPU):
    """Counts, and makes an asynchronous device repeatable: it is always as early or as late as a device may be.

    An early device has run a replay before ``replay`` returns: what is copied into a buffer afterwards comes too late.
    A late one begins it only when somebody waits for the device, or launches something else: what is read before the
    wait is old.

    Attributes:
        late: which of the two.
        captures: graphs begun.
        replays: graphs replayed.
        launches: kernels launched one by one, outside a capture; copies do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: Graph | None = None
        self.begin()

    def begin(self) -> None:
        """Start again: everything has run, nothing was counted."""
        self.settle()
        self.late = False
        self.captures = self.replays = self.launches = 0

    def settle(self) -> None:
        """Run what waits, and forget errors: they were not the next call's."""
        self._let_go()
        self._queue.drain()
        self._queue.take_errors()

    def graph(self, pool: Pool | None = None) -> Capture:
        """Count a capture."""
        self.captures += 1
        return super().graph(pool)

    def synchronize(self) -> None:
        """Run what waits, and wait for it."""
        if self._capture is None:
            self._let_go()
        super().synchronize()

    def launcher(self, kernel: Kernel) -> Callable:
        """A launch function that counts."""
        launch = super().launcher(kernel)

        def counted(*arguments: object) -> None:
            if self._capture is None:
                self._let_go()  # launches run in order
                self.launches += kernel.name != "copy"
            launch(*arguments)

        counted.kernel, counted.pack = launch.kernel, launch.pack
        return counted

    def _replay(self, graph: Graph) -> None:
        self.replays += 1
        if self.late and self._capture is None:
            self._let_go()
            self._held = graph
        else:
            super()._replay(graph)
            self._queue.drain()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            super()._replay(held)


_device: WatchedDevice | None = None


def watched_device() -> WatchedDevice:
    """The process's watched device, as new. One that an answer has left unusable is replaced."""
    global _device
    if _device is None or not _device.usable or _device._capture is not None:
        _device = WatchedDevice()
    _device.begin()
    return _device
