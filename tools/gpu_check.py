"""Proves the CUDA path on a GPU: ``python tools/gpu_check.py``. Under 8 minutes; torch, triton and numpy; no network.

It checks every Triton kernel and every stage against float64, replay against eager bit for bit and the four padding
policies, then measures steps, launches, replays and memory. Each part runs in a process of its own under a time limit,
so that a hang or a lack of memory in one costs the others nothing: the run always ends with a table. It writes
results.json and, for ``s13 trace``, three small traces. The exit code is 1 if a check failed.

``--dry`` runs all that can run without a GPU, with toy sizes and Triton's interpreter: a test of this script, no more.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

TOTAL_SECONDS = 465  # of the eight minutes; a part that comes late gets what is left
LEAST_SECONDS = 5
DRY_SECONDS = 900  # half a minute is enough, but other work may hold the processors

# (part, where it is, its time limit in seconds), the most telling ones first.
PARTS = (
    ("triton", "warm:triton", 100),
    ("kernels", "correctness:kernels", 60),
    ("stages", "correctness:stages", 50),
    ("padding", "correctness:padding", 40),
    ("bandwidth", "costs:bandwidth", 15),
    ("launches", "costs:launches", 15),
    ("replays", "costs:replays", 15),
    ("smollm2-360m", "speed:smollm2-360m", 45),
    ("llama-3.2-1b", "speed:llama-3.2-1b", 45),
    ("llama-3-8b", "speed:llama-3-8b", 60),
    ("traces", "speed:traces", 30),
    ("memory", "costs:memory", 25),
    ("compile", "speed:compile", 150),
)

# (shape, least share of copy bandwidth, least speed-up over stage torch eager, over reduce-overhead), batch 1, H200.
GOALS = (("smollm2-360m", 0.35, 6.0, 1.10), ("llama-3.2-1b", 0.60, 3.5, 1.05), ("llama-3-8b", 0.75, 1.5, 1.0))
REPLAY_US, FLAT = 15.0, 1.5  # at most, and at most so many times as long for 352 nodes as for 32


@dataclass
class Outcome:
    """How a part ended, and what it found."""

    part: str
    status: str
    seconds: float
    lines: list[dict]

    @property
    def failed(self) -> bool:
        return self.status not in ("done", "not in the dry mode") or any(line["ok"] is False for line in self.lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, *_ in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--out", metavar="DIR", default="gpu-results", help="where files go (default gpu-results)")
    parser.add_argument("--seed", type=int, metavar="N", help="of all random numbers (default: fresh at each run)")
    parser.add_argument("--dry", action="store_true", help="without a GPU: toy sizes, Triton's interpreter")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in names]
    if unknown:
        print(f"error: no part {unknown[0]!r}: choose from {', '.join(names)}.", file=sys.stderr)
        return 2
    if arguments.dry:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    if problem := cannot_run(arguments.dry):
        print(f"error: {problem}", file=sys.stderr)
        return 2
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    seed = arguments.seed if arguments.seed is not None else int(time.time())
    outcomes = run_parts(arguments.parts or names, folder, arguments.dry, seed)
    where = environment(arguments.dry, seed)
    goals = [] if arguments.dry else goals_of(outcomes)
    print(summary(outcomes, goals, where))
    results = {
        "environment": where,
        "parts": {o.part: {"status": o.status, "seconds": round(o.seconds, 1), "lines": o.lines} for o in outcomes},
        "goals": goals,
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {folder / 'results.json'}")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def cannot_run(dry: bool) -> str | None:
    """Why nothing can run here. Asks neither torch nor CUDA: this process forks, and CUDA does not survive a fork."""
    import importlib.util

    for package in ("torch", "triton", "numpy"):
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is missing: this script needs torch, triton and numpy."
    if not hasattr(os, "fork"):
        return "this script forks its parts, which this system cannot; Triton is for Linux in any case."
    if not dry and not driver_says():
        return "nvidia-smi names no GPU here: --dry runs what needs none."
    return None


def driver_says() -> str:
    """What nvidia-smi says of the first GPU: name, driver and memory; empty if there is none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


def environment(dry: bool, seed: int) -> dict[str, object]:
    """What a figure needs to be read: device, driver, versions, date."""
    from importlib.metadata import version

    from torch.version import cuda

    return {
        "device": "none (dry mode)" if dry else driver_says(),
        "date": datetime.date.today().isoformat(),
        "cuda": cuda,
        "torch": version("torch"),
        "triton": version("triton"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "seed": seed,
    }


# ---- parts: a process each, a time limit each


def run_parts(names: list[str], folder: Path, dry: bool, seed: int) -> list[Outcome]:
    import torch
    from gpu_parts import correctness, costs, speed  # noqa: F401 — imported once, before the forks

    torch.set_num_threads(1)
    deadline, outcomes = time.monotonic() + (DRY_SECONDS if dry else TOTAL_SECONDS), []
    for name, place, limit in PARTS:
        limit = DRY_SECONDS if dry else limit
        if name not in names:
            continue
        left = deadline - time.monotonic()
        if left < LEAST_SECONDS:
            outcomes.append(Outcome(name, "not begun: the time was up", 0.0, []))
        else:
            outcomes.append(run_part(name, place, min(limit, left), folder, dry, seed))
        print(as_text(outcomes[-1]), flush=True)
    return outcomes


def run_part(name: str, place: str, limit: float, folder: Path, dry: bool, seed: int) -> Outcome:
    """Run one part in a process of its own, and end it and its children when its time is up."""
    path = folder / f".{name}.jsonl"
    path.unlink(missing_ok=True)
    start = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=in_child, args=(name, place, path, folder, dry, seed))
    process.start()
    process.join(limit)
    if late := process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    seconds = time.monotonic() - start
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    told = [row.pop("status") for row in rows if "status" in row]
    if late:
        status = f"ended after its {limit:.0f} s: what it found by then is here"
    else:
        status = told[-1] if told else f"died (exit code {process.exitcode})"
    return Outcome(name, status, seconds, [row for row in rows if "name" in row])


def in_child(name: str, place: str, path: Path, folder: Path, dry: bool, seed: int) -> None:
    os.setsid()  # so that its children can be ended with it
    with path.open("w", encoding="utf-8") as out:
        try:
            status = measure(name, place, out, folder, dry, seed)
        except BaseException as error:
            traceback.print_exc()
            status = (
                f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            )
        out.write(json.dumps({"status": status}) + "\n")


def measure(name: str, place: str, out: object, folder: Path, dry: bool, seed: int) -> str:
    import torch
    from gpu_parts.bench import Bench, NotInDryMode

    torch.set_grad_enabled(False)  # for all: what torch.compile has compiled holds for one setting of it
    part = find_part(place)
    try:
        part(Bench(name, out, folder, dry, seed))
    except NotInDryMode:
        return "not in the dry mode"
    return "done"


def find_part(place: str) -> Callable:
    from gpu_parts import correctness, costs, speed, warm

    module, _, name = place.partition(":")
    if module == "speed":
        return speed.PARTS[name] if name in speed.PARTS else speed.shape(name)
    return getattr({"correctness": correctness, "costs": costs, "warm": warm}[module], name)


# ---- the table


def as_text(outcome: Outcome) -> str:
    lines = [f"\n{outcome.part}: {outcome.status} ({outcome.seconds:.0f} s)"]
    checks = [line for line in outcome.lines if line["ok"] is not None]
    if len(checks) > 12:  # the kernels: the bad ones, and the worst of the good ones
        good = sum(line["ok"] for line in checks)
        lines.append(f"  {good} of {len(checks)} checks hold")
        shown = [line for line in outcome.lines if line["ok"] is not True]
        shown += sorted((c for c in checks if c["ok"] and c["unit"]), key=lambda c: -c["value"])[:3]
    else:
        shown = outcome.lines
    for line in shown:
        mark = {True: "ok  ", False: "FAIL", None: "    "}[line["ok"]]
        lines.append(f"  {mark} {line['name']:<58} {line['value']} {line['unit']}".rstrip())
    return "\n".join(lines)


def goals_of(outcomes: list[Outcome]) -> list[dict]:
    """The goals for an H200 beside what was measured; a figure that is missing is said to be."""
    lines = [line for outcome in outcomes for line in outcome.lines]
    steps = {(r["shape"], str(r["stage"]), r["path"], r["batch"]): r for r in lines if "us" in r}
    copy = next((r["copy_bytes_per_us"] for r in lines if "copy_bytes_per_us" in r), None)
    goals = []

    def add(name: str, goal: float, measured: float | None, least: bool = True) -> None:
        met = None if measured is None else (measured >= goal) == least or measured == goal
        goals.append({"name": name, "goal": goal, "at": "least" if least else "most", "measured": measured, "met": met})

    for shape, share, over_torch, over_compile in GOALS:
        ours = min(
            (steps[key] for stage in "75" if (key := (shape, stage, "graph", 1)) in steps),
            key=lambda r: r["us"],
            default=None,
        )

        def speed_up(stage: str, path: str, ours: dict | None = ours, shape: str = shape) -> float | None:
            theirs = steps.get((shape, stage, path, 1))
            return theirs["us"] / ours["us"] if theirs and ours else None

        add(f"{shape}: share of copy bandwidth", share, ours["bytes"] / ours["us"] / copy if ours and copy else None)
        add(f"{shape}: over stage torch eager", over_torch, speed_up("torch", "eager"))
        add(f"{shape}: over torch.compile, reduce-overhead", over_compile, speed_up("compile", "reduce-overhead"))
    hosts = {r["nodes"]: r["host_us"] for r in lines if "host_us" in r}
    add("host time of a replay of 352 nodes, µs", REPLAY_US, hosts.get(352), least=False)
    flat = hosts[352] / hosts[32] if {32, 352} <= hosts.keys() else None
    add("the same, over a replay of 32 nodes", FLAT, flat, least=False)
    return goals


def step_table(outcomes: list[Outcome]) -> list[str]:
    """Microseconds a step by shape and batch, and the share of copy bandwidth that the quickest of 7 and 5 reaches."""
    lines = [line for outcome in outcomes for line in outcome.lines]
    steps = {(r["shape"], r["batch"], f"{r['stage']} {r['path']}"): r for r in lines if "us" in r}
    copy = next((r["copy_bytes_per_us"] for r in lines if "copy_bytes_per_us" in r), None)
    columns = [f"{stage} {path}" for stage in ("torch", 7, 5) for path in ("eager", "graph")]
    columns.append("compile reduce-overhead")
    titles = [*columns[:-1], "compiled", "bandwidth"]
    found = [f"{'µs a step, by batch':<22}" + "".join(f"{title:>13}" for title in titles)]
    for shape, batch in dict.fromkeys(key[:2] for key in steps):
        cells = [steps.get((shape, batch, column)) for column in columns]
        graphs = [r for r in (cells[3], cells[5]) if r is not None]
        share = f"{max(r['bytes'] / r['us'] for r in graphs) / copy:.0%}" if graphs and copy else ""
        figures = "".join(f"{r['us']:>13,.1f}" if r else f"{'':>13}" for r in cells)
        found.append(f"{shape:<14} {batch:>7}{figures}{share:>13}")
    return found if len(found) > 1 else []


def summary(outcomes: list[Outcome], goals: list[dict], where: dict[str, object]) -> str:
    lines = ["", " · ".join(f"{key} {value}" for key, value in where.items()), ""]
    lines += [f"{outcome.part:<14} {'FAIL' if outcome.failed else 'ok  '} {outcome.status}" for outcome in outcomes]
    if steps := step_table(outcomes):
        lines += ["", *steps]
    if goals:
        lines += ["", f"{'goal (H200, batch 1, context 512)':<58} {'wanted':>10} {'measured':>10}"]
    for goal in goals:
        measured = "none" if goal["measured"] is None else f"{goal['measured']:.2f}"
        mark = {True: "met", False: "MISSED", None: "not measured"}[goal["met"]]
        wanted = f"{'≥' if goal['at'] == 'least' else '≤'} {goal['goal']:g}"
        lines.append(f"{goal['name']:<58} {wanted:>10} {measured:>10}  {mark}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
