"""Simulator, optimiser and command line: how long one waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from s13lib.buckets import ROWS, Traffic, best_layout
from tools.benchmarks.harness import Reading, Row, interleaved


def _python(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def rows(quick: bool = False) -> list[Row]:
    traffic = Traffic.from_counts({n: (n * 7919) % 1009 + 1 for n in range(1, 513)})
    calls = {
        "python": _python("-c", "pass"),
        "import_simulator": _python("-c", "import s13lib.simulator"),
        "import_buckets": _python("-c", "import s13lib.buckets"),
        "report": _python("-m", "s13lib"),
        "layout_count": lambda: best_layout(traffic, 512, count=64),
        "layout_budget": lambda: best_layout(traffic, 512, budget=1024, pool="private", memory=ROWS),
    }
    seconds = interleaved(calls, 3 if quick else 9)
    own = seconds.pop("python").value
    return [
        Row(f"foundation.{name}", Reading(each.value - own, each.spread) if name.startswith("import") else each)
        for name, each in seconds.items()
    ]
