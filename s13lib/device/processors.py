"""How many processors this process may use, and whether other work holds some of them."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import platform
import threading
import time
from pathlib import Path

PROBE_SECONDS = 0.02
CONTENDED_BELOW = 0.9  # share of a processor that a busy thread got


def usable_processors(root: Path = Path("/")) -> int:
    """Processors by affinity and container quota, at least 1. ``root`` is for tests."""
    counted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(counted, quota(root))))


def quota(root: Path = Path("/")) -> float:
    """Processors that the container may use at a time (cgroup v2, then v1), infinity where there is no limit."""
    limit = math.inf
    for folder in _cgroup_folders(root):
        if words := _read(folder / "cpu.max").split():
            share = math.inf if words[0] == "max" else int(words[0]) / int(words[1])
        else:
            allowed, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
            share = int(allowed) / int(period) if allowed and period and int(allowed) > 0 else math.inf
        limit = min(limit, share)
    return limit


def _cgroup_folders(root: Path) -> list[Path]:
    """This process's control groups and all that they lie in, since each may set a limit."""
    top = root / "sys/fs/cgroup"
    folders = [top, top / "cpu"]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        base = top / "cpu" if "cpu" in controllers.split(",") else top
        place = base / path.lstrip("/")
        folders += [place, *(parent for parent in place.parents if parent.is_relative_to(base))]
    return folders


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def processor_share(threads: int, seconds: float = PROBE_SECONDS) -> float:
    """The smallest share of a processor that ``threads`` busy threads got for ``seconds``: 1.0 is undisturbed."""
    block, shares = bytes(1 << 20), []

    def probe() -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - wall < seconds:
            hashlib.sha256(block)  # runs without the GIL
        shares.append((time.thread_time() - cpu) / (time.perf_counter() - wall))

    workers = [threading.Thread(target=probe) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(shares)


def contention(processors: int) -> str:
    """Whether other work takes part of the processors now, in words (takes 20 ms)."""
    share = processor_share(min(2, processors))
    if share < CONTENDED_BELOW:
        return f"contended (a busy thread got {share:.0%} of one): times may be off by 2x and more"
    return "not contended"


@functools.cache
def processor_name() -> str:
    """The processor as its system names it."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
