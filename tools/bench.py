"""The benchmark suite: ``python3 run.py bench [GROUP ...] [--json FILE] [--quick]``.

Each row is a claim: ours, the peer (or the aim) and their ratio. Timings of one row are interleaved repeats of one run,
by minimum; the table ends with how contended the machine was. JSON goes beside the table, to bench-results/.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tools"))

from benchmarks.harness import Row, busy_share  # noqa: E402

from s13lib.commands.output import table  # noqa: E402

GROUPS = tuple(sorted(p.stem for p in (ROOT / "tools" / "benchmarks").glob("*.py") if p.stem != "harness"))


def machine() -> dict[str, object]:
    """Where and when: what a figure needs to be read."""
    return {
        "date": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def show(rows: list[Row]) -> str:
    """The table for people."""
    header = ("claim", "ours", "peer", "ratio", "aim", "")
    lines = [
        (
            row.claim,
            f"{row.ours:,.4g} {row.unit}",
            "" if row.peer is None else f"{row.peer:,.4g} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}×",
            row.aim,
            {True: "met", False: "MISSED", None: ""}[row.met],
        )
        for row in rows
    ]
    return table(header, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes (default: bench-results/DATE.json)")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: a look, not a figure to publish")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        print(f"error: no benchmark group {unknown[0]!r}: choose from {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    where, results = machine(), {}
    print(" · ".join(f"{key} {value}" for key, value in where.items()))
    for name in arguments.groups or GROUPS:
        before = busy_share()
        rows = importlib.import_module(f"benchmarks.{name}").rows(quick=arguments.quick)
        results[name] = [row.as_json() for row in rows]
        print(f"\n{name} (measured; other processes held {before:.0%} of the processors just before)\n{show(rows)}")
        where[f"contention_before_{name}"] = round(before, 3)
    target = Path(arguments.json) if arguments.json else ROOT / "bench-results" / f"{where['date']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": where, "results": results}, indent=2) + "\n", encoding="utf-8")
    print(f"\nwrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
