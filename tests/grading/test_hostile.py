"""Answers that attack: each in a real sandbox. What they reach is their own result, and the reason is told."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from s13lib.grading import grader, manifest
from s13lib.grading.statements import read_code
from tests.grading.conftest import graded

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("needs_sandbox")

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
    host = device = 0.0
    for launch, kernel in zip(launch_us, kernel_us):
        host += launch
        device = max(host, device) + kernel
    return device
"""


SETUP = """
import ctypes, mmap, os, signal, socket, subprocess, sys, threading
from s13lib.grading.messages import Ended, send
GIGANTIC = (1 << 40).to_bytes(8, "little") + bytes(8)
REPLY = {"value": 7.0, "trouble": None, "mutated": ()}
def step_us(launch_us, kernel_us):
"""


def answer(body):
    """``step_us`` that first does ``body`` and is right after that."""
    return SETUP + "\n".join("    " + line for line in body.splitlines()) + RIGHT


def came(code):
    """What the check says; the empty text when the answer passed."""
    (verdict,) = graded("5a", code).verdicts
    assert verdict.passed == (verdict.came.en == "")
    return verdict.came.en


def test_the_harmless_answer_passes():
    assert came(answer("pass")) == ""


def on_every_pipe(what):
    """Do ``what`` with every file that may be open."""
    return f"for fd in range(3, 64):\n    try: {what}\n    except (OSError, Ended): pass"


LIBRARY = "from s13lib.simulator.launch import launch_times\nlaunch_times(launch_us, kernel_us, 9)"
REFERENCE = "from s13lib.grading.parts.two_lanes import step_us as theirs\ntheirs(launch_us, kernel_us)"
THREADS = "[threading.Thread(target=lambda: threading.Event().wait()).start() for _ in range(9999)]"

# what it does: what is told ("" for an attempt that does nothing, and whose right answer counts)
ATTACKS = {
    "exits": ("sys.exit()", "an exit"),
    "exits at once": ("os._exit(3)", r"the process ended \(exit code 3\)"),
    "crashes": ("ctypes.string_at(0)", r"the process ended \(SIGSEGV\)"),
    "aborts": ("os.abort()", r"the process ended \(SIG(ABRT|SEGV)\)"),
    "recurses": ("step_us(launch_us, kernel_us)", "RecursionError"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "prints a gigabyte": ("while True: print('x' * 100_000)", "more than 1,000,000 characters"),
    "writes a gigabyte": ("for _ in range(1024): os.write(1, bytes(1 << 20)); os.write(2, bytes(1 << 20))", ""),
    "takes memory": ("bytearray(16 << 30)", "MemoryError"),
    "takes shared memory": ("mmap.mmap(-1, 16 << 30)", "OSError"),
    "takes a file in memory": ("os.memfd_create('x')", "PermissionError"),
    "forks": ("while True: os.fork()", "PermissionError"),
    "starts a program": ("subprocess.run(['/bin/true'])", "PermissionError"),
    "becomes a program": ("os.execv(sys.executable, ['python'])", "PermissionError"),
    "starts many threads": (THREADS, "RuntimeError"),
    "leaves threads": ("threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()", ""),
    "fills the disk": ("for n in range(999): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))", "No space left on device"),
    "writes one long file": ("open('/tmp/x', 'wb').truncate(1 << 40)", "File too large"),
    "fills the root": ("open('/x', 'w')", "Read-only file system"),
    "fills /dev": ("open('/dev/x', 'w')", "Read-only file system"),
    "fills /dev/shm": ("open('/dev/shm/x', 'w')", "Read-only file system"),
    "changes the library": (f"open({str(ROOT / 's13lib/errors.py')!r}, 'a')", "Read-only file system"),
    "reads the users": ("open('/etc/passwd').read()", "FileNotFoundError"),
    "reads a home": (f"os.listdir({str(Path.home() / '.ssh')!r})", "FileNotFoundError"),
    "reads the solutions": (f"os.listdir({str(ROOT / 'solutions')!r})", "FileNotFoundError"),
    "reads the wrong answers": ("import s13lib.grading.wrong.two_lanes", "ModuleNotFoundError"),
    "lists the wrong answers": (f"assert os.listdir({str(ROOT / 's13lib/grading/wrong')!r})", "AssertionError"),
    "reads the environment": ("assert 'XYZ_SECRET' not in os.environ", ""),
    "reads its parent's environment": ("assert b'XYZ' not in open('/proc/1/environ', 'rb').read()", ""),
    "sees other processes": ("assert [p for p in os.listdir('/proc') if p.isdigit()] != ['1']", "AssertionError"),
    "connects": ("socket.create_connection(('127.0.0.1', 22))", "PermissionError"),
    "looks a name up": ("socket.gethostbyname('localhost')", "gaierror"),
    "signals its parent": ("os.kill(os.getppid() or 1, 9)", "PermissionError"),
    "signals everybody": ("os.kill(-1, 9)", "PermissionError"),
    "signals a thread's process": ("signal.pthread_kill(threading.get_ident(), 0)", ""),
    "takes other processors": ("os.sched_setaffinity(0, range(os.cpu_count()))", "PermissionError"),
    "raises its limits": ("import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "ValueError"),
    "traces": ("assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0", "AssertionError"),
    "mounts": ("assert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0", "AssertionError"),
    "unshares": ("assert ctypes.CDLL(None).unshare(0x10000000) == 0", "AssertionError"),
    "breaks the built-ins": ("import builtins; builtins.len = builtins.isinstance = None", "exception|ended"),
    "empties the modules": ("sys.modules.clear()", "exception|ended"),
    "asks for input": ("input()", "EOFError"),
    "writes garbage on every pipe": (on_every_pipe("os.write(fd, b'\\xff' * 65536)"), "cannot be read back"),
    "announces a gigantic message": (on_every_pipe("os.write(fd, GIGANTIC)"), "cannot be read back"),
    "replies to an older question": (on_every_pipe("send(os.fdopen(fd, 'wb'), 1, REPLY)"), "cannot be read back"),
    "closes every pipe": (on_every_pipe("os.close(fd)"), "the process ended"),
    "changes the guard": ("from s13lib.grading import guard; guard.observe = lambda *_: 1\nreturn 0.0", "0"),
    "changes the judge": ("from s13lib.grading import judge; judge.judge_case = lambda *_: None\nreturn 0.0", "0"),
    "changes the comparison": ("from s13lib.grading import compare; compare.same = lambda *_: True\nreturn 0.0", "0"),
    "writes into its input": ("launch_us.append(1.0)", "launch_us overwritten"),
    "calls the library": (LIBRARY, "a call of s13lib.simulator.launch.launch_times"),
    "calls the reference": (REFERENCE, "a call of the reference answer"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "told"), ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_is_caught(body, told, monkeypatch):
    monkeypatch.setenv("XYZ_SECRET", "the key")
    said = came(answer(body))
    assert re.search(told, said) if told else said == "", said


STRANGE = {
    "nan": ("float('nan')", "nan"),
    "infinity": ("float('inf')", "inf"),
    "a number of digits": ("10 ** 5000", "read back"),
    "a number too large for floats": ("10 ** 400", "10000"),
    "nothing": ("None", "None"),
    "a function": ("step_us", "read back"),
    "a generator": ("(x for x in launch_us)", "TypeError"),
    "itself": ("[launch := [], launch.append(launch)][0]", "read back"),
    "a lone surrogate": ("'\\ud800'", r"\(str\)"),
    "a set": ("{1}", "read back"),
    "a long text": ("'x' * 9_000_000", "read back"),
    "a class that lies": ("type('L', (float,), {'__eq__': lambda *_: True})(1.5)", "1.5"),
    "a list that never ends": ("type('L', (list,), {'__iter__': lambda self: iter(int, 1)})([1])", ""),
}


@pytest.mark.parametrize(("value", "told"), STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_value_is_no_right_answer(value, told, monkeypatch):
    monkeypatch.setattr(grader, "GRACE_SECONDS", 2.0)
    (verdict,) = graded("5a", f"def step_us(launch_us, kernel_us):\n    return {value}").verdicts
    assert not verdict.passed
    assert re.search(told, verdict.came.en)


@pytest.fixture
def impatient(monkeypatch):
    """Time limits of a part and of a statement that suit a test; the process itself keeps the part's own."""
    monkeypatch.setattr(grader, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(grader, "STATEMENT_SECONDS", 3.0)
    part = manifest.part
    monkeypatch.setattr(manifest, "part", lambda key: dataclasses.replace(part(key), seconds=2.0))


LOOPS = {
    "loops": "while True: pass",
    "loops and holds on": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "loops without a clock": "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
    "sleeps": "import time; time.sleep(9999)",
    "stops": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); threading.Event().wait()",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_ends(body, impatient):
    assert came(answer(body)) == "nothing within 2 s"


def test_one_part_does_not_touch_the_next():
    code = (
        answer("os._exit(1)")
        + "\ndef fool_the_maximum(n, total_us):\n    return [total_us / n] * n, [0.0] * (n - 1) + [total_us]"
    )
    task = grader.Task(5, "en", read_code([code]).statements, {"5a": 1, "5c": 1}, True)
    assert [verdict.passed for verdict in grader.grade(task).verdicts] == [False, True]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("x = __import__('os')._exit(1)", "died"),
        ("while True: pass", "slow"),
        ("import nosuchmodule", "raised"),
        ("x = y", "raised"),
        ("for n in range(3): exit()", "exit"),
    ],
)
def test_a_statement_that_fails_is_noted_and_the_rest_runs(line, kind, impatient):
    grade = graded("5a", ("import os\n" + line, answer("pass")))
    assert [verdict.passed for verdict in grade.verdicts] == [True]
    assert [(note.place, note.trouble.kind) for note in grade.notes] == [("cell 1, line 2", kind)]


def test_a_missing_answer_is_named():
    assert came("step = 1") == "no definition of step_us"


def test_checks_and_plots_of_the_notebook_are_harmless():
    cells = (
        "from s13lib.grading import check, hint, progress",
        answer("pass"),
        "for seed in (1, 2): check('5a', step_us, seed=seed)\nif True: progress()",
    )
    grade = graded("5a", cells)
    assert grade.verdicts[0].passed
    assert grade.notes == ()


# ---- without the sandbox: a process of its own, and what the system's own limits can do


@pytest.mark.skipif(sys.platform != "linux", reason="limits as on Linux")
@pytest.mark.parametrize(
    "name", ["exits at once", "crashes", "forks", "takes memory", "connects", "signals its parent"]
)
def test_a_plain_process_is_limited_too(name):
    body, told = ATTACKS[name]
    (verdict,) = graded("5a", answer(body), sandboxed=False).verdicts
    assert re.search(told, verdict.came.en)
