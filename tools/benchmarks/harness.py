"""What every benchmark uses: a row of the table, interleaved repeats, and the machine's contention."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One claim. ``met`` is None where there is no aim; ``ratio`` reads as the claim says."""

    claim: str
    ours: float
    unit: str
    peer: float | None = None
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None
    note: str = ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def at_most(claim: str, ours: float, unit: str, limit: float) -> Row:
    """A row whose figure must not exceed ``limit``."""
    return Row(claim, ours, unit, aim=f"≤ {limit:g} {unit}", met=ours <= limit)


def at_least(claim: str, ours: float, peer: float, unit: str, ratio: float, aim: float | None) -> Row:
    """A row whose ratio must reach ``aim`` (None: no aim)."""
    return Row(
        claim, ours, unit, peer, ratio, "" if aim is None else f"≥ {aim:g}×", None if aim is None else ratio >= aim
    )


def interleaved(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time each call in turn, ``repeats`` rounds: seconds by name. One round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for lap in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if lap:
                times[name].append(time.perf_counter() - start)
    return times


def best(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The minimum of interleaved repeats, seconds by name."""
    return {name: min(times) for name, times in interleaved(calls, repeats).items()}


def busy_share(seconds: float = 0.5) -> float:
    """Share of all processors that others hold, over a short sleep; 0.0 where the system does not tell."""
    before = _jiffies()
    time.sleep(seconds)
    after = _jiffies()
    if before is None or after is None or after[1] == before[1]:
        return 0.0
    return max(0.0, 1 - (after[0] - before[0]) / (after[1] - before[1]))


def _jiffies() -> tuple[int, int] | None:
    """(idle, total) processor time of the whole machine."""
    if os.name != "posix" or not Path("/proc/stat").exists():
        return None
    numbers = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)
