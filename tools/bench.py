"""The benchmark suite: ``python3 run.py bench [GROUP ...] [--quick] [--publish]``.

Each row is a claim: ours, the peer (or the aim) and their ratio. Timings of one row are interleaved repeats of one run,
the quietest counts; each group says how much of the processors others held meanwhile. Figures go to bench-results/;
``--publish`` puts them into docs/evidence.json and builds the pages that are made from it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s13lib.commands.output import table  # noqa: E402
from s13lib.progress import elapsed  # noqa: E402
from tools.benchmarks.harness import Contention, Row  # noqa: E402
from tools.evidence import record  # noqa: E402
from tools.evidence.claims import GROUPS, ON_REQUEST, of_group  # noqa: E402
from tools.evidence.record import Figure, Record, shown  # noqa: E402

FAILED = "the benchmark failed"


def machine() -> dict[str, object]:
    """Where: what a figure needs to be read."""
    versions = {name: metadata.version(name) for name in ("torch", "numba", "numpy")}
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def as_json(row: Row) -> dict[str, object]:
    """A row as the record keeps it."""
    if row.ours is None:
        return {"missing": row.missing}
    found = {"ours": row.ours.value, "spread": row.ours.spread, "peak_mib": row.peak_mib}
    if row.peer is not None:
        found |= {"peer": row.peer.value, "peer_spread": row.peer.spread}
    return {key: float(f"{value:.5g}") for key, value in found.items() if value is not None}


def measure(name: str, quick: bool) -> dict[str, object]:
    """Run one group in a process of its own, so that none inherits another's memory, threads or compilers."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "rows.json")
        command = [sys.executable, __file__, name, "--worker", str(target), *(["--quick"] if quick else [])]
        begun = time.monotonic()
        with Contention() as others, elapsed(f"measuring {name}"):
            subprocess.run(command, cwd=ROOT, check=False)
        if target.exists():
            rows = json.loads(target.read_text(encoding="utf-8"))
        else:
            rows = {each.key: {"missing": FAILED} for each in of_group(name)}
    run = {
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.monotonic() - begun, 1),
        "quick": quick,
        "others_share": None if others.share is None else round(others.share, 3),
        "machine": machine(),
    }
    return {"run": run, "rows": rows}


def work(name: str, target: Path, quick: bool) -> None:
    """The other side of ``measure``: measure here, write the rows."""
    rows = importlib.import_module(f"tools.benchmarks.{name}").rows(quick=quick)
    target.write_text(json.dumps({row.key: as_json(row) for row in rows}), encoding="utf-8")


def show(figures: list[Figure]) -> str:
    """The table for people."""
    header = ("claim", "ours", "peer", "ratio", "spread", "aim", "")
    return table(header, [_line(each) for each in figures])


def _line(each: Figure) -> tuple[str, ...]:
    unit, text = each.claim.unit, each.claim.text.en
    if each.ours is None:
        return text, each.missing or "not measured", "", "", "", each.claim.aim, ""
    peak = "" if each.peak_mib is None else f"{each.peak_mib:,.0f} MiB"
    return (
        text,
        shown(each.ours, unit),
        peak if each.peer is None else shown(each.peer, unit),
        "" if each.ratio is None else f"{each.ratio:.2f}×",
        "" if each.spread is None else f"+{each.spread:.0%}",
        each.claim.aim,
        {True: "met", False: "MISSED", None: ""}[each.met],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all but {', '.join(ON_REQUEST)})"
    )
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default: bench-results/DATE.json)")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: a look, not a figure to publish")
    parser.add_argument("--publish", action="store_true", help="into docs/evidence.json, and build the pages from it")
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        print(f"error: no benchmark group {unknown[0]!r}: choose from {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    if arguments.worker:
        work(arguments.groups[0], Path(arguments.worker), arguments.quick)
        return 0
    today = datetime.date.today().isoformat()
    target = record.RECORD if arguments.publish else Path(arguments.json or ROOT / "bench-results" / f"{today}.json")
    results: dict[str, object] = {}
    print(" · ".join(f"{key} {value}" for key, value in machine().items()), flush=True)
    for name in arguments.groups or [each for each in GROUPS if each not in ON_REQUEST]:
        print(f"\n{GROUPS[name].en} ({name}) …", flush=True)
        results[name] = measure(name, arguments.quick)
        run = results[name]["run"]
        others = "unknown" if run["others_share"] is None else f"{run['others_share']:.0%}"
        print(show(Record({"groups": {name: results[name]}}).of_group(name)))
        print(f"Measured in {run['seconds']:.0f} s; others held {others} of the processors meanwhile.", flush=True)
        record.write(target, record.merged(record.RECORD, results) if arguments.publish else {"groups": results})
    print(f"\nwrote {target}", flush=True)
    code = 0
    if arguments.publish:
        code = subprocess.run([sys.executable, str(ROOT / "tools" / "build_docs.py")], cwd=ROOT, check=False).returncode
    failed = [
        name for name, group in results.items() if any(row.get("missing") == FAILED for row in group["rows"].values())
    ]
    if failed:
        print(f"error: the benchmark failed: {', '.join(failed)} (what it said stands above).", file=sys.stderr)
    return 1 if failed else code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nInterrupted: the groups above are written, the others are as they were.", file=sys.stderr)
        sys.exit(130)
