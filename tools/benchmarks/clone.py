"""The README's first two commands in a fresh clone of what is committed: how long a newcomer waits.

Only on request (``run.py bench clone``): minutes for the set-up, and many more for all tests. ``--quick`` leaves the
tests out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import ROOT


def rows(quick: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        demo = Row("clone.demo", Reading(seconds_of(clone, "demo")))
        if quick:
            return [demo, *missing(["clone.test"], "left out of the quick run")]
        return [demo, Row("clone.test", Reading(seconds_of(clone, "test")))]


def seconds_of(clone: Path, task: str) -> float:
    """Seconds of ``run.py TASK``; its output goes to the terminal."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    start = time.monotonic()
    subprocess.run([sys.executable, "run.py", task], cwd=clone, env=environment, check=True)
    return time.monotonic() - start
