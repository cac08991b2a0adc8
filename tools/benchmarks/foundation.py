"""Simulator, optimiser and command line: how long one waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.harness import Row, at_most, best

from s13lib.buckets import ROWS, Traffic, best_layout


def _python(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def rows(quick: bool = False) -> list[Row]:
    traffic = Traffic.from_counts({n: (n * 7919) % 1009 + 1 for n in range(1, 513)})
    calls = {
        "python": _python("-c", "pass"),
        "simulator": _python("-c", "import s13lib.simulator"),
        "buckets": _python("-c", "import s13lib.buckets"),
        "report": _python("-m", "s13lib"),
        "count": lambda: best_layout(traffic, 512, count=64),
        "budget": lambda: best_layout(traffic, 512, budget=1024, pool="private", memory=ROWS),
    }
    seconds = best(calls, 3 if quick else 7)
    return [
        at_most(
            "import s13lib.simulator, beyond Python's own start", seconds["simulator"] - seconds["python"], "s", 0.2
        ),
        at_most("import s13lib.buckets, beyond Python's own start", seconds["buckets"] - seconds["python"], "s", 0.2),
        at_most("s13 report, whole process", seconds["report"], "s", 1.5),
        at_most("exact layout, N = 512, at most 64 sizes", seconds["count"], "s", 0.3),
        at_most("exact layout, N = 512, private budget of 1,024 units", seconds["budget"], "s", 5),
    ]
