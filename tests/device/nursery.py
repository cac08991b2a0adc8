"""A process that imports torch and numba once and then forks a child for each program that it is sent."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

from conftest import KERNELS

from s13lib.device import prepare
from s13lib.device.queue import ring_functions

LIMIT_SECONDS = 60  # a hang, not a slow machine

warnings.simplefilter("ignore")


def next_program() -> str | None:
    """Serve requests; return a program in each child, and ``None`` here at the end."""
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                for number, path in ((1, request["out"]), (2, request["err"])):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                sys.stdout = os.fdopen(1, "w", buffering=1)
                os.environ.update(request["environment"])
                signal.alarm(LIMIT_SECONDS)
                return request["program"]
            while not Path(request["err"]).exists():
                time.sleep(0.001)
        print(answer, flush=True)
    return None


prepare(KERNELS.values())
ring_functions()
if program := next_program():
    exec(program)  # at module level, so that the child ends as a program does
