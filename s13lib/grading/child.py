"""The learner's side: a process that runs the code of one submission, drives its answers, and reports what came.

It takes its orders from standard input and replies on what was its standard output; before anything of the learner's
runs, both are moved away, and what the learner's code prints goes nowhere.

What this does and does not promise. The learner's code can change anything in here: this module, the guard, the
library. All that it gains is to lie about what its answer gave on inputs that it has been shown. It does not hold the
verdict, the named wrong answers or the solutions (the sandbox hides them), nor other submissions. It could compute a
right result by other means than the exercise asks, since the library is there; a plain call of the library's own
solution is caught by the tripwires, a hidden one is not.
"""

from __future__ import annotations

import codeop
import contextlib
import linecache
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import s13lib.grading
from s13lib.grading import confine, guard, manifest, notebook
from s13lib.grading.codec import CodecError
from s13lib.grading.messages import Ended, packed, receive, send
from s13lib.grading.part import Observation, Trouble


def main() -> None:
    """Serve until the grader closes the pipe or ends this process."""
    requests, replies = _private_pipes()
    number, setup = receive(requests)
    confine.keep_to(setup["processors"])
    exercise = next(one for one in manifest.exercises() if one.number == setup["exercise"])
    parts = {entry.key: manifest.part(entry.key) for entry in exercise.parts}
    _link_kernels(setup["kernels"])
    for module in (s13lib.grading, notebook):  # checks in a loop or a condition: the grader checks, not they
        module.check = module.hint = module.progress = _skipped
    _warm_up()
    confine.confine(required=setup["confined"])
    os.dup2(0, 2)
    send(replies, number, {"wrong answers": bool(_visible("s13lib.grading.wrong"))})
    learner = Learner(parts)
    while True:
        try:
            number, request = receive(requests)
        except Ended:
            return
        try:
            reply = packed(learner.serve(**request))
        except BaseException as error:  # of an answer that breaks even the guard
            reply = packed(Observation(trouble=Trouble("raised", type(error).__name__)))
        try:
            send(replies, number, reply)
        except CodecError as error:
            send(replies, number, packed(Observation(trouble=Trouble("unreadable", str(error)))))


class Learner:
    """The code of one submission, as far as it has been run."""

    def __init__(self, parts: dict) -> None:
        self.parts = parts
        self.compile = codeop.Compile()  # remembers `from __future__ import …`
        self.module = sys.modules["__main__"] = ModuleType("__main__")

    def serve(self, do: str, **what: object) -> Observation:
        """Do one of what the grader asks for."""
        return {"run": self.run, "observe": self.observe, "reference": self.reference}[do](**what)

    def run(self, source: str, place: str, seconds: float) -> Observation:
        """Run one statement; what it gives is only whether it went well."""

        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)  # for inspect, Numba

        def execute() -> None:
            exec(self.compile(source, place, "exec"), self.module.__dict__)

        return Observation(trouble=guard.attempt(execute, seconds)[1])

    def observe(self, key: str, inputs: tuple) -> Observation:
        """Drive the learner's answer to a part."""
        name = manifest.entry(key).answer
        if name not in self.module.__dict__:
            return Observation(trouble=Trouble("missing", name))
        return guard.observe(self.parts[key], self.module.__dict__[name], inputs)

    def reference(self, key: str, inputs: tuple) -> Observation:
        """Drive the reference: whether grading works here at all."""
        part = self.parts[key]
        return Observation(part.drive(part.reference, *inputs))


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes from and to the grader, out of the way of what the learner's code reads and prints."""
    if sys.platform == "win32":
        import msvcrt

        for stream in (0, 1):
            msvcrt.setmode(stream, os.O_BINARY)
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    os.close(null)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _link_kernels(folders: tuple[str, ...]) -> None:
    """Show compiled kernels in the cache folder of this process; new ones go there too, and are gone with it."""
    own = Path(os.environ["S13_CACHE_DIR"]) / "kernels"
    own.mkdir(parents=True)
    for kernel in (kernel for folder in folders for kernel in Path(folder).glob("*.nbc")):
        with contextlib.suppress(OSError):  # the same in both, or a system without links
            (own / kernel.name).symlink_to(kernel)


def _warm_up() -> None:
    """Load now what is loaded at first use, while it is not counted."""
    if "torch" in sys.modules:
        sys.modules["torch"].zeros(1).numpy()


def _visible(package: str) -> list[str]:
    """The modules of a package that can be read here."""
    folder = Path(s13lib.grading.__file__).parent / package.rpartition(".")[2]
    with contextlib.suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def _skipped(*arguments: object, **named: object) -> None:
    """Stands in for what a notebook shows to its reader."""
