"""A SoftGPU that is watched: what was captured, replayed and launched, as the device saw it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from s13lib.device import Graph, Kernel, Pool, SoftGPU, best_device
from s13lib.device.graph import Capture
from s13lib.device.launch import Namespace

AT_FIRST = {"late": False, "captures": 0, "replays": 0, "launches": 0, "_held": None}


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

    late: bool
    captures: int
    replays: int
    launches: int
    _held: Graph | None

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


@contextmanager
def watched() -> Iterator[WatchedDevice]:
    """Watch the course's own device for a while: the one that a notebook's ``device`` names as well.

    So an answer may use the device that it was given or the notebook's, and is observed either way.
    """
    if best_device(default="softgpu")._capture is not None:
        best_device(default="softgpu").close()  # an answer left it in a capture: the next call makes another
    device = best_device(default="softgpu")
    kernels = device.kernels
    device.__class__, device.kernels = WatchedDevice, Namespace(device)  # launch functions made earlier do not count
    device.kernels._own = kernels._own
    vars(device).update(AT_FIRST)
    device.settle()
    try:
        yield device
    finally:
        device.settle()
        device.__class__, device.kernels = SoftGPU, kernels
        for name in AT_FIRST:
            vars(device).pop(name, None)
