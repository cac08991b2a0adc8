"""The sandbox around a learner's process: bubblewrap, with the little of the file system that Python needs, read-only.

Inside there is no network, no other process, nobody's home, no submission, no solution; one folder can be written to,
of limited size and gone with the process. How much memory, processor time and which system calls: ``confine``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import s13lib
from s13lib.grading import seccomp
from s13lib.grading.confine import FILE_BYTES

LIBRARY = Path(s13lib.__file__).resolve().parent
HIDDEN = (LIBRARY / "grading" / "wrong", *(LIBRARY.parent / name for name in ("solutions", "tests", ".git")))
SYSTEM = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf")
SMALL = "1048576"
CHILD = "from s13lib.grading.child import main; main()"
PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


def python(code: str | None = None) -> list[str]:
    """The command of a learner's process, or of another one like it."""
    return [sys.executable, "-P", "-s", "-B", "-c", code or CHILD]


def environment(language: str, folder: str = "/tmp") -> dict[str, str]:
    """All environment variables of a learner's process; ``folder`` is the one that it may write to."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"), folder)
    own = {
        "S13_DEVICE": "softgpu", "S13_LANGUAGE": language,
        "S13_CACHE_DIR": str(Path(folder) / "kernel-cache"), "S13_PROGRESS": str(Path(folder) / "progress.json"),
    }  # fmt: skip
    settings = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(LIBRARY.parent), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg", "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return settings | one_thread | folders | own | passed


def shown_kernels(kernels: tuple[str, ...]) -> tuple[str, ...]:
    """Where the sandbox shows the folders of compiled kernels."""
    return tuple(f"/kernels/{number}" for number in range(len(kernels)))


def bubblewrap(kernels: tuple[str, ...] = ()) -> list[str]:
    """The command that puts the one after it into a sandbox. ``kernels``: folders of compiled kernels."""
    words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    # As process 1 it is alone: bubblewrap's own would be without the filter, and its memory open to a learner.
    words += ["--as-pid-1", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--size", str(FILE_BYTES), "--tmpfs", "/tmp"]
    for path in _needed():  # after /tmp, where a checkout may lie
        words += (
            ["--symlink", str(Path(path).readlink()), path] if Path(path).is_symlink() else ["--ro-bind", path, path]
        )
    for path in HIDDEN:
        if path.is_dir() and any(path.is_relative_to(shown) for shown in _needed()):
            words += ["--size", SMALL, "--perms", "0555", "--tmpfs", str(path), "--remount-ro", str(path)]
    for folder, place in zip(kernels, shown_kernels(kernels), strict=True):
        words += ["--ro-bind-try", folder, place]
    return [*words, "--remount-ro", "/", "--chdir", "/tmp", "--"]


@functools.cache
def _needed() -> tuple[str, ...]:
    """What is shown, shortest first: the system's libraries, Python, its environment and the library."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    roots = {str(LIBRARY), *(str(Path(path).resolve()) for path in (sys.base_prefix, sys.prefix, *packages))}
    roots |= {str(Path(sys.executable).parent), *SYSTEM}
    shown: list[str] = []
    for path in sorted((root for root in roots if Path(root).exists()), key=lambda path: (len(Path(path).parts), path)):
        if not any(Path(path).is_relative_to(other) for other in shown):
            shown.append(path)
    return tuple(shown)


@functools.cache
def problem() -> str | None:
    """Why there can be no sandbox here, in one sentence; None if there can."""
    if not sys.platform.startswith("linux"):
        return f"the sandbox is Linux's bubblewrap, and this is {sys.platform}."
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (the package and the command: bubblewrap, bwrap)."
    if not seccomp.supported():
        return "the system calls of this kind of processor are not known to the sandbox."
    command = [*bubblewrap(), *python("import s13lib.grading")]
    try:
        done = subprocess.run(
            command,
            env=environment("en"),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return "a sandbox was not up within 60 s."
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return f"bubblewrap makes no sandbox here ({said[-1]})."
