"""What a learner waits for, and the memory it takes: imports, first launches, loading, every lesson.

Each is a process of its own, which reads its own peak (``VmHWM``): the ``maxrss`` that the system hands to a parent
starts at the parent's size, since a child is a fork of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from s13lib.model import smollm2
from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import LANGUAGES, LESSONS, ROOT, of_group

TIMED = """
import json, time
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
try:
    peak = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
except OSError:
    peak = None
print(json.dumps([seconds, peak]))
"""

FIRST_LAUNCH = """
import torch
from s13lib.device import best_device
import s13lib.kernels.softgpu
device = best_device(default="softgpu")
device.kernels.copy(device.zeros(8), device.empty(8))
device.synchronize()
"""
ALL_KERNELS = """
import s13lib.kernels.softgpu
from s13lib.device import prepare
from s13lib.device.kernel import REGISTRY
start = time.perf_counter()
prepare(REGISTRY.values())
"""
LOAD = """
from s13lib.model.checkpoints import load_checkpoint
load_checkpoint("{name}").model(4, max_rows=64, blocks=64)
"""
# The kernel is a child of this process, which is small: its own peak is what the system says of the children.
NOTEBOOK = """
import resource, sys
KIB = 1024 if sys.platform == "linux" else 2**20  # macOS counts bytes
from pathlib import Path
sys.path.insert(0, ".")
from tools.notebook_runs import run_notebook
run = run_notebook(Path("{path}"))
assert run.error is None, run.error
print(json.dumps([run.seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / KIB]))
sys.exit()
"""


def rows(quick: bool = False) -> list[Row]:
    return [*import_rows(2 if quick else 3), *first_use_rows(), *load_rows(), *notebook_rows(quick)]


def timed(code: str, **variables: str) -> tuple[float, float | None]:
    """(seconds, peak MiB) of ``code`` in a fresh Python."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(code=code)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        stdout=subprocess.PIPE,
        check=True,
    )
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def row(key: str, found: list[tuple[float, float | None]], peer: Reading | None = None) -> Row:
    """Of several runs: the quietest time, the largest peak."""
    return Row(key, Reading.quietest(s for s, _ in found), peer, max((p for _, p in found if p), default=None))


def import_rows(repeats: int) -> list[Row]:
    keys = [each.key for each in of_group("waiting") if ".import." in each.key]
    found: dict[str, list] = {key: [] for key in keys}
    for _ in range(repeats):
        for key in keys:
            found[key].append(timed(f"import {key.rpartition('.')[2].replace('_', '.')}"))
    return [row(key, each) for key, each in found.items()]


def first_use_rows() -> list[Row]:
    """With a cache of compiled kernels that is empty at first, and then with what the first run left there."""
    result = []
    for what, code in (("first_launch", FIRST_LAUNCH), ("kernels", ALL_KERNELS)):
        with tempfile.TemporaryDirectory() as folder:
            cache = dict.fromkeys(("NUMBA_CACHE_DIR", "S13_CACHE_DIR", "XDG_CACHE_HOME"), folder)
            cold = row(f"waiting.{what}.cold", [timed(code, **cache)])
            warm = row(f"waiting.{what}.warm", [timed(code, **cache) for _ in range(2)], cold.ours)
        result += [cold, warm]
    return result


def load_rows() -> list[Row]:
    result = [row("waiting.load.bard", [timed(LOAD.format(name="bard")) for _ in range(2)])]
    if (smollm2.models_folder() / smollm2.FILE).is_file():
        return [*result, row("waiting.load.smollm2", [timed(LOAD.format(name="smollm2"))])]
    return [*result, *missing(["waiting.load.smollm2"], "SmolLM2 is not there: python3 run.py smollm")]


def notebook_rows(quick: bool) -> list[Row]:
    """Every lesson in both languages, once."""
    result = []
    for name in LESSONS:
        for language in LANGUAGES:
            key, path = f"waiting.notebook.{language}.{name}", Path("notebooks", language, f"{name}.ipynb")
            if quick and language == "zh":
                result += missing([key], "left out of the quick run")
            elif not (ROOT / path).is_file():
                result += missing([key], f"{path.as_posix()} is not built: python3 run.py notebooks")
            elif os.name == "nt":
                result += missing([key], "measured on Linux and macOS alone")
            else:
                try:
                    result.append(row(key, [timed(NOTEBOOK.format(path=path.as_posix()))]))
                except subprocess.CalledProcessError:  # what failed stands on the terminal
                    result += missing([key], f"{path.as_posix()} failed")
    return result
