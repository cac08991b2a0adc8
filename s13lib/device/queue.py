"""The host's side of a ring: its memory, its worker thread, waits that Ctrl-C can end, and a clean end."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np

from s13lib.device import native, ring
from s13lib.errors import InputError
from s13lib.progress import Progress

WAIT_NS = 20_000_000  # a wait comes back to Python this often, so that Ctrl-C works
JOIN_SECONDS = 1.0  # how long the end waits for a kernel that is still running
PACKET_OFFSET = bytes.__basicsize__ - 1  # where CPython keeps the bytes of a bytes object

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()


class Retired:
    """Memory whose last tensor died while launches that may use it were queued.

    It is held back until those have run, as a GPU's stream-ordered allocator does. (An entry of the ring keeps tensors
    alive, but not their memory: ``x.data = y`` swaps it.)
    """

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, object]] = deque()
        self._reaping = threading.Lock()

    def add(self, block: object, submitted: int) -> None:
        """Hold ``block`` until ``submitted`` launches have finished."""
        self._blocks.append((submitted, block))

    def reap(self, finished: int) -> None:
        """Let go of blocks that no queued launch can reach any more."""
        if self._reaping.acquire(blocking=False):  # never waits: a garbage collection may call this inside itself
            try:
                while self._blocks and self._blocks[0][0] <= finished:
                    self._blocks.popleft()
            finally:
                self._reaping.release()


@functools.cache
def ring_functions() -> dict[str, Callable]:
    """The ring's compiled functions by name, compiled or loaded now."""
    functions = [f for f in vars(ring).values() if hasattr(f, "s13_signature")]
    with Progress("preparing the device (compiled at the first use only)", len(functions)) as bar:
        return {f.__name__: (native.entry_point(f), bar.update())[0] for f in functions}


class Queue:
    """A ring with a worker thread behind it."""

    def __init__(self) -> None:
        self._memory = np.zeros((ring.RING_BYTES + 128) // 8, np.int64)
        self.address = -(-self._memory.ctypes.data // 128) * 128
        first = (self.address - self._memory.ctypes.data) // 8
        self._words = self._memory[first : first + ring.RING_BYTES // 8]
        compiled = ring_functions()
        self.submit, self._submit_any = compiled["submit"], compiled["submit_any"]
        self._wait, self._peek, self._take = compiled["wait"], compiled["peek"], compiled["take"]
        self._release, self.clock_ns = compiled["release"], compiled["clock_ns"]
        self._retired = Retired()
        bell = native.open_bell()
        self._words[ring.WAIT_HANDLE // 8], self._words[ring.WAKE_HANDLE // 8] = bell
        thread = threading.Thread(target=_work, args=(compiled["serve"], self.address), name="SoftGPU", daemon=True)
        thread.start()
        kept = (self._memory, self._retired)
        ending = (compiled["stop"], self._release, self.address, thread, bell, kept, os.getpid())
        self._end = weakref.finalize(self, _end, *ending)
        _queues.add(self)

    @property
    def submitted(self) -> int:
        """Launches queued so far."""
        return self._peek(self.address, ring.HEAD)

    @property
    def finished(self) -> int:
        """Launches run so far."""
        return self._peek(self.address, ring.TAIL)

    def shut_gate(self, reason: int) -> None:
        """Make ``submit`` refuse, so that each launch passes through Python."""
        self._words[ring.GATE // 8] |= reason

    def open_gate(self, reason: int) -> None:
        """Take one reason away; the gate opens with the last."""
        self._words[ring.GATE // 8] &= ~reason

    @property
    def usable(self) -> bool:
        """Whether launches will run."""
        return not int(self._words[ring.GATE // 8]) & (ring.FORKED | ring.CLOSED)

    def check_usable(self) -> None:
        """Raise an ``InputError`` if nothing will ever run here."""
        gate = int(self._words[ring.GATE // 8])
        if gate & ring.FORKED:
            raise InputError(
                "this SoftGPU was started before os.fork(), and its worker thread stayed in the parent process: "
                "make a new one in this process with SoftGPU()."
            )
        if gate & ring.CLOSED:
            raise InputError("this SoftGPU was closed: make a new one with SoftGPU().")

    def give_rows(self, rows: np.ndarray) -> None:
        """Where ``submit`` notes recorded launches: an int64 array of ``ROW_BYTES`` a row."""
        self._words[ring.ROW // 8] = rows.ctypes.data
        self._words[ring.ROWS_END // 8] = rows.ctypes.data + rows.nbytes

    def rows_used(self, rows: np.ndarray) -> int:
        """How many of the rows given last have been filled."""
        return (int(self._words[ring.ROW // 8]) - rows.ctypes.data) // ring.ROW_BYTES

    def wait_for_room(self) -> None:
        """Wait until another launch fits."""
        self.wait_for(self.submitted - ring.DEPTH + 1)

    def push(self, address: int, count: int, stamps: int, owner: object) -> int:
        """Queue a packet (count 0) or a list of packets; wait while the queue is full. Returns the launch's number.

        ``owner`` is kept alive until the launch has run, and with it all that the addresses point at.
        """
        while (number := self._submit_any(self.address, address, count, stamps, id(owner))) < 0:
            self.wait_for_room()
        return number

    def wait_for(self, launches: int) -> None:
        """Wait until so many launches have run. Ctrl-C ends the wait, not the work."""
        self.check_usable()
        while self._wait(self.address, launches, WAIT_NS) < launches:
            self.check_usable()

    def drain(self) -> None:
        """Wait until all launches have run, then drop what they kept alive."""
        self.wait_for(self.submitted)
        self.reap()

    def reap(self) -> None:
        """Let go of all that only finished launches needed."""
        finished = self.finished
        self._release(self.address, finished)
        self._retired.reap(finished)

    def retire(self, block: object) -> None:
        """Keep ``block`` until all launches queued so far have run."""
        if self._end.alive:
            self._retired.add(block, self.submitted)
            self._retired.reap(self.finished)

    def take_errors(self) -> tuple[int, int, int, int]:
        """(how many kernel errors since the last call, then the first one's word, kernel address and graph node)."""
        places = (ring.ERROR_WORD, ring.ERROR_KERNEL, ring.ERROR_NODE)
        first = [self._peek(self.address, place) for place in places]  # before the count: it frees the place
        return (self._take(self.address, ring.ERRORS), *first)

    def close(self) -> None:
        """End the worker. Launches that have not begun are dropped."""
        self.shut_gate(ring.CLOSED)
        self._end()


def _work(serve: Callable, address: int) -> None:
    """The worker thread: hand all signals to the main thread, then never hold the GIL again."""
    if hasattr(signal, "pthread_sigmask"):
        faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    serve(address)


def _end(
    stop: Callable,
    release: Callable,
    address: int,
    thread: threading.Thread,
    bell: tuple[int, int],
    kept: tuple[np.ndarray, Retired],
    process: int,
) -> None:
    """End a worker: when its queue is collected or closed, and when the interpreter exits."""
    if os.getpid() == process:  # in a forked child there is no worker
        stop(address)
        thread.join(JOIN_SECONDS)
        if thread.is_alive():  # in a kernel that does not end: what it may touch must never be freed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
            return
        never_more = 1 << 62  # all that were queued, run or not
        release(address, never_more)
        kept[1].reap(never_more)
    with contextlib.suppress(OSError):
        native.close_bell(bell)


def _mark_forked() -> None:
    for queue in list(_queues):
        queue.shut_gate(ring.FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
