#!/usr/bin/env python3
"""Set up what is missing, then run a task: ``python3 run.py demo``.

Standard library only; Linux, macOS and Windows (``py run.py demo``). The first run makes ``.venv`` and installs there
what ``requirements.txt`` pins. Later runs see by a stamp that nothing has changed, and start the task at once.

An old Python must get far enough to say that it is too old, so nothing here uses syntax newer than Python 3.6's.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

MINIMUM_PYTHON = (3, 11)
INSTALL_GB = 2.5  # measured: du of .venv, Linux x86-64, CPU build of torch
NEEDED_GB = 3.5  # the above, and what pip unpacks on its way

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "s13-stamp"  # the fingerprint of what is installed, or UNFINISHED
LOG = VENV / "install.log"
UNFINISHED = "unfinished"

MAKE_VENV = [sys.executable, "-m", "venv", str(VENV)]
# One call, so that pip resolves the pins and the project (no dependency but NumPy) together.
PIP_INSTALL = [str(PYTHON), "-m", "pip", "install", "--no-input", "-r", "requirements.txt", "-e", "."]


class Task(NamedTuple):
    """One row of the table: all steps run, even after one failed; extra arguments go to the last."""

    summary: str
    steps: tuple  # of arguments for the environment's Python


TASKS = {
    "lab": Task("open the course in JupyterLab, on working copies in work/", ("tools/lab.py",)),
    "demo": Task("the report, and one comparison measured here", ("-m s13lib", "-m s13lib decode --compare")),
    "test": Task(
        "lint, format check and tests; more arguments go to pytest",
        # pytest lists what it skipped, and why: pyproject.toml tells it to.
        ("-m ruff check .", "-m ruff format --check .", "-m pytest"),
    ),
    "notebooks": Task(
        "build the lessons from notebooks/src; --check only says what is stale", ("tools/build_notebooks.py",)
    ),
    "site": Task("run every lesson and write web pages to read without Jupyter", ("tools/build_site.py",)),
    "handout": Task("write a zip of the course for learners, without solutions", ("tools/handout.py",)),
    "smollm": Task("fetch SmolLM2-135M, a real model (93 MB), once", ("tools/fetch_smollm.py",)),
    "bench": Task("measure speed; more arguments go to the benchmark", ("tools/bench.py",)),
}

# What pip's output says, and what that means. The first row that matches is the one told.
CAUSES = (
    (("No space left on device", "not enough space on the disk"), "the disk is full: free some space"),
    (("Read-only file system", "Permission denied", "Access is denied"), "a folder or file may not be written"),
    (
        ("connection broken by", "Failed to establish a new connection", "Connection refused", "timed out"),
        "the package index cannot be reached: connect to the network",
    ),
    (("No matching distribution found",), "the package index lacks a pinned package for this Python and system"),
)


class Failure(Exception):
    """Setting up cannot go on; the message is the one sentence that the user reads."""


def say(text: str) -> None:
    """Print now, before the output of the processes that follow."""
    print(text, flush=True)


def fingerprint() -> str:
    """Everything that decides what belongs in ``.venv``: the pins, the project, the Python, and the folder."""
    parts = (
        (ROOT / "requirements.txt").read_bytes(),
        (ROOT / "pyproject.toml").read_bytes(),
        repr((sys.version_info[:2], str(ROOT))).encode(),  # the installed project points at its folder
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamp() -> str:
    """What the last installation left behind; empty if there was none."""
    return STAMP.read_text() if STAMP.exists() else ""


def reusable() -> bool:
    """Whether pip can work in the present ``.venv``: it is whole, and of this Python."""
    if stamp() == UNFINISHED or not PYTHON.exists():
        return False
    probe = f"import pip, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        return subprocess.call([str(PYTHON), "-c", probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:  # half a file
        return False


def set_up() -> None:
    """Bring ``.venv`` up to date; without a call of pip when it is."""
    wanted = fingerprint()
    if stamp() == wanted and PYTHON.exists():
        return
    if reusable():
        say("Bringing .venv up to date with requirements.txt.")
    else:
        make_venv()
    STAMP.write_text(UNFINISHED)
    if logged(PIP_INSTALL) != 0:
        words = LOG.read_text(encoding="utf-8", errors="replace")
        if "Installing collected packages" not in words:
            STAMP.unlink()  # pip failed before it changed anything: the next run need not start from nothing
        causes = (cause for signs, cause in CAUSES if any(sign in words for sign in signs))
        raise Failure("{} (pip's full output: {}).".format(next(causes, "pip failed"), LOG))
    STAMP.write_text(wanted)


def make_venv() -> None:
    """Make an empty ``.venv``, after saying what it will cost and checking that it can work."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise Failure(f"this Python lacks the module {module} (Debian, Ubuntu: sudo apt install python3-venv).")
    free_gb = shutil.disk_usage(str(ROOT)).free / 1e9
    if free_gb < NEEDED_GB:
        raise Failure(f"the disk is too full: {ROOT} has {free_gb:.1f} GB free, at least {NEEDED_GB} GB are needed.")
    if VENV.exists():
        if Path(sys.prefix).resolve() == VENV:
            raise Failure(".venv must be made anew by a Python outside it: leave it (deactivate) and run this again.")
        say("Replacing .venv: it is unfinished, or of another Python.")
        shutil.rmtree(str(VENV))
    say(f"Setting up .venv, once: about {INSTALL_GB} GB with a CPU build of torch ({free_gb:.0f} GB are free).")
    if sys.platform == "linux":
        say(
            "On Linux, the package index's torch brings CUDA libraries, several GB more. For the CPU build instead,\n"
            "press Ctrl-C and set PIP_EXTRA_INDEX_URL to the CPU index that pytorch.org/get-started names."
        )
    VENV.mkdir()
    STAMP.write_text(UNFINISHED)  # before anything else: from here on an interrupted run is recognised
    if logged(MAKE_VENV) != 0:
        raise Failure(f"the environment could not be made (full output: {LOG}).")


def logged(command: list) -> int:
    """Run a command with its output in the log file, showing how far it is; return its exit code."""
    started = time.monotonic()
    with LOG.open("wb") as log:
        process = subprocess.Popen(command, cwd=str(ROOT), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while True:
                try:
                    return process.wait(timeout=0.5 if sys.stdout.isatty() else 15)
                except subprocess.TimeoutExpired:
                    show_progress(f"{time.monotonic() - started:5.0f} s  {latest_activity()}")
        finally:
            process.terminate()  # does nothing to a process that has ended
            process.wait()
            show_progress("")


def show_progress(text: str) -> None:
    """Draw over one line of a terminal (an empty text clears it); elsewhere print a line."""
    width = shutil.get_terminal_size().columns - 1
    if sys.stdout.isatty():
        print("\r" + text[:width].ljust(width), end="\r", flush=True)
    elif text:
        say(text[:width])


def latest_activity() -> str:
    """The last line of the log that names a package."""
    lines = [line.strip() for line in LOG.read_text(encoding="utf-8", errors="replace").splitlines()]
    verbs = ("Collecting ", "Downloading ", "Processing ", "Building ", "Preparing ", "Installing ")
    return next((line for line in reversed(lines) if line.startswith(verbs)), "starting")


def run_task(task: Task, extra: list) -> int:
    """Run the task's steps with the environment's Python; return the first exit code that is not 0."""
    # So that `s13` is found by a shell in JupyterLab and by a notebook's `!s13`.
    path = os.pathsep.join((str(PYTHON.parent), os.environ.get("PATH", "")))
    environment = dict(os.environ, PATH=path, VIRTUAL_ENV=str(VENV))
    steps = [step.split() for step in task.steps]
    steps[-1] += extra
    failed = []
    for step in steps:
        code, interrupted = call([str(PYTHON), *step], environment)
        if code != 0:
            failed.append((step, code))
        if interrupted:
            break
    if len(steps) > 1 and failed:
        say("Failed: {}.".format(", ".join(f"python {' '.join(step)} (exit code {code})" for step, code in failed)))
    return failed[0][1] if failed else 0


def call(command: list, environment: dict) -> tuple:
    """Run a command on this terminal; return its exit code, and whether Ctrl-C was pressed meanwhile."""
    interrupted = False
    process = subprocess.Popen(command, cwd=str(ROOT), env=environment)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the terminal sent it to the task too, and the task decides what it means
            interrupted = True
        else:
            return (code if code >= 0 else 128 - code), interrupted  # a shell's code for "ended by a signal"


def usage() -> str:
    """The list of tasks."""
    rows = "\n".join(f"  {name:<11}{task.summary}" for name, task in TASKS.items())
    return f"python3 run.py TASK [arguments]   (on Windows: py run.py TASK)\n\n{rows}\n\nThe first run sets up .venv."


def main(arguments: list) -> int:
    """Run one task; return its exit code, or 2 after one sentence on stderr."""
    try:
        if sys.version_info < MINIMUM_PYTHON:
            this = ".".join(str(number) for number in sys.version_info[:3])
            raise Failure(f"needs Python 3.11 or newer; this is {this}.")
        if not arguments or arguments[0] in ("-h", "--help"):
            say(usage())
            return 0
        if arguments[0] not in TASKS:
            raise Failure("unknown task {!r}; the tasks are {}.".format(arguments[0], ", ".join(TASKS)))
        set_up()
    except Failure as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that may not be written, a full disk, a missing file: the message names it
        print(f"run.py: cannot set up {VENV}: {error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nrun.py: interrupted; the next run starts the installation again.", file=sys.stderr)
        return 130
    return run_task(TASKS[arguments[0]], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
