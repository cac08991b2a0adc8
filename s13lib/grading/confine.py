"""Limits that a learner's process puts on itself before it runs anything of the learner's, for good."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from s13lib.grading import seccomp

MEMORY_BYTES = 2 << 30  # beyond what Python and its libraries hold at the start
FILE_BYTES = 64 << 20  # of one file; in the sandbox the whole working folder holds no more
OPEN_FILES = 256
CPU_SECONDS = 900
PR_SET_PDEATHSIG = 1


def limit_memory(beyond: int = MEMORY_BYTES) -> None:
    """Let this process take so many bytes more than it has; then it sees ``MemoryError``. On Linux alone."""
    if sys.platform.startswith("linux"):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + beyond)


def _lower(kind: int, most: int) -> None:
    import resource

    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def keep_to(processors: list[int] | None) -> None:
    """Use these processors alone: no learner takes another's share."""
    if processors and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


def confine(required: bool) -> None:
    """Limit memory, files, processor time and system calls.

    Args:
        required: fail where the system cannot do all of it. Without, it does what it can: nothing of this on Windows,
            no limit of memory or processes on macOS.
    """
    if os.name == "posix":
        import resource

        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_NOFILE": OPEN_FILES, "RLIMIT_CPU": CPU_SECONDS}
        for name, most in limits.items():
            _lower(getattr(resource, name), most)
        limit_memory()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too large is an OSError instead
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if required or seccomp.supported():
        seccomp.install()
