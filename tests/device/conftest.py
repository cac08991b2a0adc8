"""A device, and small kernels that are not registered, so that they shadow no built-in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from s13lib.device import F32, I64, Kernel, SoftGPU
from s13lib.device.native import give_way, load_atomic
from s13lib.device.types import ERROR_MASK, ERROR_SHIFT, SLOT
from tests.device.fake_cuda import cuda_device, fake  # noqa: F401 — fixtures


def copy(x: F32[1], out: F32[1]):
    for i in range(x.size):
        out[i] = x[i]


def scale(x: F32[1], out: F32[1], factor: float):
    for i in range(x.size):
        out[i] = factor * x[i]


def add(x: F32[1], y: F32[1], out: F32[1]):
    for i in range(x.size):
        out[i] = x[i] + y[i]


def count(out: I64[1]):
    out[0] += 1


def hold(door: I64[1]):
    """Run until the host opens the door: it makes "still running" certain, whatever the machine does."""
    while load_atomic(door.ctypes.data) == 0:
        give_way()


def put(slot: int, value: float, out: F32[1]):
    if slot < 0 or slot >= out.size:
        return SLOT << ERROR_SHIFT | (slot & ERROR_MASK)
    out[slot] = value
    return 0


KERNELS = {function.__name__: Kernel(function) for function in (copy, scale, add, count, hold, put)}


@pytest.fixture
def device():
    device = SoftGPU()
    yield device
    device.close()


@pytest.fixture(scope="session")
def kernels():
    return SimpleNamespace(**KERNELS)


@pytest.fixture
def run(device):
    """The launch functions of the small kernels on ``device``."""
    return SimpleNamespace(**{name: device.launcher(kernel) for name, kernel in KERNELS.items()})


@pytest.fixture
def door(device, run):
    """A door in front of the device: launches queue up until ``door.open()``."""
    state = device.zeros(1, dtype=torch.int64)

    def shut():
        state[0] = 0
        run.hold(state)

    door = SimpleNamespace(shut=shut, open=lambda: state.fill_(1), state=state)
    yield door
    door.open()


HERE = Path(__file__).parent
PATHS = {"PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"}
HEAD = """
import os, signal, sys, threading, time, torch
from conftest import KERNELS
from s13lib.device import *
from s13lib.device import cache
"""


class Child:
    """A program in a process of its own."""

    def __init__(self, nursery: Nursery, pid: int, out: Path, err: Path) -> None:
        self._nursery, self.pid, self._out, self._err = nursery, pid, out, err

    def wait_for(self, text: str) -> None:
        """Return when the program has printed ``text``."""
        deadline = time.monotonic() + 30
        while text not in self._out.read_text():
            assert time.monotonic() < deadline, self._err.read_text()
            time.sleep(0.01)

    def finish(self) -> tuple[int, list[str], str]:
        """(exit code, the words on stdout, stderr)."""
        code = self._nursery.ask({"wait": self.pid})
        return code, self._out.read_text().split(), self._err.read_text()


class Nursery:
    """Starts programs by forking a process that has imported everything: importing torch takes seconds, a fork none."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        command = [sys.executable, str(HERE / "nursery.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **PATHS}
        )

    def ask(self, request: dict) -> int:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, program: str, **environment: str) -> Child:
        self._count += 1
        out, err = (self._folder / f"{self._count}.{name}" for name in ("out", "err"))
        pid = self.ask({"program": HEAD + program, "environment": environment, "out": str(out), "err": str(err)})
        return Child(self, pid, out, err)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()


@pytest.fixture
def python(nursery):
    """``python(program, NAME=value)`` starts a program, with the small kernels at hand, and returns a ``Child``."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    return nursery.start


@pytest.fixture
def fresh_python():
    """The same in a new process that has compiled and loaded nothing: (exit code, words on stdout, stderr)."""

    def run(program: str, **environment: str) -> tuple[int, list[str], str]:
        command = [sys.executable, "-c", HEAD + program]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **PATHS, **environment}
        )
        return done.returncode, done.stdout.split(), done.stderr

    return run
