"""Where submissions are graded: in processes of this machine, or by the workers of a Dask cluster.

The runner needs no more than ``submit(function, *arguments)``, which returns a future, ``check()`` and ``stop()``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress

from s13lib.errors import InputError, shortened
from s13lib.grading import confine
from s13lib.grading.room import BrokenEnvironment

CONNECT_SECONDS = 10
WORKER_BYTES = 6 << 30  # beyond an empty worker: PyTorch, the kernels, and whatever the checks compute

_share: tuple[int, ...] | None = None  # the processors of a learner's process, in each worker


def shares(jobs: int) -> list[tuple[int, ...] | None]:
    """The processors for each of ``jobs``: disjoint where there are enough, so that no learner slows another one."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if jobs > len(usable):
        return [None] * jobs
    size = len(usable) // jobs
    return [tuple(usable[i * size : (i + 1) * size]) for i in range(jobs)]


def usable() -> int:
    """How many submissions to grade at a time where nobody says so: one a processor that may be used."""
    from s13lib.device.processors import usable_processors  # which loads torch

    return usable_processors()


def _begin(places: multiprocessing.SimpleQueue) -> None:
    """Set up a worker: Ctrl-C is for the process that started it, and no value of a learner's takes all memory."""
    global _share
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine.limit_memory(WORKER_BYTES)
    _share = places.get()


def _call(function: Callable, arguments: tuple) -> object:
    return function(*arguments, _share)


class Local:
    """``jobs`` processes of this machine. Each judges in its main thread, where a time limit ends anything."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("spawn")
        places = context.SimpleQueue()
        for share in shares(jobs):
            places.put(share)
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(jobs, context, _begin, (places,))

    def submit(self, function: Callable, *arguments: object) -> Future:
        """Call ``function(*arguments, processors)`` in one of the processes."""
        return self._pool.submit(_call, function, arguments)

    def check(self) -> None:
        """Nothing to do: a process that is lost ends its futures."""

    def stop(self) -> None:
        """End all processes, busy ones too: their learners' processes end with them."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()


class Dask:
    """The workers of a Dask cluster, by its scheduler's address.

    Raises:
        InputError: no Dask here, or no cluster with workers there.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InputError("--scheduler needs Dask: `pip install '.[classroom]'`.") from None
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"--scheduler {shortened(address)}: no cluster with workers answers there: {why}."
            ) from None

    def submit(self, function: Callable, *arguments: object) -> object:
        """Call ``function(*arguments)`` on a worker; on another one if that worker is lost."""
        return self._client.submit(function, *arguments, pure=False)

    def check(self) -> None:
        """Raise ``BrokenEnvironment`` when the scheduler is gone: no future would ever end."""
        if self._client.status not in ("running", "connecting"):
            raise BrokenEnvironment("the connection to the Dask scheduler is lost.")

    def stop(self) -> None:
        """Leave the cluster; what it still has to do is forgotten there."""
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=CONNECT_SECONDS)
