"""What every benchmark uses: readings of interleaved repeats, rows of the record, and the machine's contention.

A benchmark is a module here with ``rows(quick) -> list[Row]``. What its rows claim, in which unit and with which aim,
stands in ``tools/evidence/claims.py``; a row brings the figures to a claim's key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Reading:
    """A measured value: that of the quietest repeat.

    ``spread`` is how far the median of the repeats lies beyond it, as a share of it; None where there was one only.
    """

    value: float
    spread: float | None = None

    @classmethod
    def quietest(cls, times: Iterable[float]) -> Reading:
        """Of the times of several repeats: others' work can only make a repeat slower."""
        times = list(times)
        return cls(min(times), median(times) / min(times) - 1 if len(times) > 1 else None)

    def times(self, factor: float) -> Reading:
        """In another unit."""
        return Reading(self.value * factor, self.spread)

    def rate(self, amount: float) -> Reading:
        """``amount`` per this time."""
        return Reading(amount / self.value, self.spread)


@dataclass(frozen=True)
class Row:
    """The figures for one claim. Without ``ours`` it was not measured, and ``missing`` says why."""

    key: str
    ours: Reading | None
    peer: Reading | None = None
    peak_mib: float | None = None  # most memory that the measured process held at once
    missing: str = ""


def missing(keys: Iterable[str], reason: object) -> list[Row]:
    """Rows that say why they have no figures."""
    return [Row(key, None, missing=str(reason)) for key in keys]


def interleaved(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, Reading]:
    """Time each call in turn, ``repeats`` rounds: seconds by name. One round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for lap in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if lap:
                times[name].append(time.perf_counter() - start)
    return {name: Reading.quietest(each) for name, each in times.items()}


class Contention:
    """``with Contention() as c: ...`` then ``c.share``: how much of all processors others held meanwhile.

    Others are all but this process and the children that it waited for. None where the system does not tell.
    """

    share: float | None = None

    def __enter__(self) -> Contention:
        self._before = _busy_and_all(), _own_seconds()
        return self

    def __exit__(self, *exception: object) -> None:
        (before, own_before), (after, own_after) = self._before, (_busy_and_all(), _own_seconds())
        if before is not None and after is not None and after[1] > before[1]:
            busy, total = after[0] - before[0], after[1] - before[1]
            self.share = min(1.0, max(0.0, (busy - (own_after - own_before)) / total))


def _own_seconds() -> float:
    """Processor time of this process and of the children that it waited for."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def _busy_and_all() -> tuple[float, float] | None:
    """(busy, total) processor seconds of the whole machine; what a hypervisor stole counts as busy."""
    path = Path("/proc/stat")
    if not path.exists():
        return None
    ticks = [int(n) for n in path.read_text().split("\n", 1)[0].split()[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    idle, total = ticks[3] + ticks[4], sum(ticks)
    return (total - idle) / hertz, total / hertz
