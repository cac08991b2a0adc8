"""The grader's side of one learner's process: start it, ask it, and end it, whatever it does meanwhile."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass

from s13lib.grading import messages, sandbox
from s13lib.grading.codec import CodecError
from s13lib.grading.part import Trouble

START_SECONDS = 120.0  # until a process has loaded its libraries: nothing of a learner's runs before
GRACE_SECONDS = 20.0  # beyond a time limit that the process keeps itself


class BrokenEnvironment(Exception):
    """Grading does not work here. It says nothing about any submission, and ends the run."""


@dataclass(frozen=True)
class Conditions:
    """What a learner's process is given.

    Attributes:
        exercise: its number.
        language: "en" or "zh".
        sandboxed: inside bubblewrap, or only in a process of its own.
        processors: which ones it may use; None for all.
        kernels: folders of compiled kernels.
    """

    exercise: int
    language: str
    sandboxed: bool
    processors: tuple[int, ...] | None = None
    kernels: tuple[str, ...] = ()


class Lost(Exception):
    """The process gave no usable reply, and has been ended; ``trouble`` says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.kind)
        self.trouble = trouble


class Room:
    """One learner's process. Use it as a context: it is ended and its files are gone at the end.

    Raises:
        BrokenEnvironment: it does not come up, before anything of a learner's has run.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self._number = 0
        self._folder = None if conditions.sandboxed else tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        here = "/tmp" if self._folder is None else self._folder.name
        command = sandbox.python()
        if conditions.sandboxed:
            command = sandbox.bubblewrap(conditions.kernels) + command
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        try:
            self._process = subprocess.Popen(
                command,
                env=sandbox.environment(conditions.language, here),
                cwd=None if self._folder is None else here,
                start_new_session=True,
                **pipes,
            )
        except OSError as error:
            self._clean()
            raise BrokenEnvironment(f"a learner's process cannot be started: {error.strerror}") from None
        self._start()

    def _start(self) -> None:
        conditions = self.conditions
        setup = {
            "exercise": conditions.exercise,
            "processors": None if conditions.processors is None else list(conditions.processors),
            "kernels": sandbox.shown_kernels(conditions.kernels) if conditions.sandboxed else conditions.kernels,
            "confined": conditions.sandboxed,
        }
        try:
            ready = self.ask(setup, START_SECONDS)
        except Lost as lost:
            said = self._process.stderr.read(65536).decode(errors="replace").strip().splitlines()
            self._clean()
            why = said[-1] if said else f"{lost.trouble.kind} {lost.trouble.detail}"
            raise BrokenEnvironment(f"a learner's process does not come up: {why}") from None
        finally:
            self._process.stderr.close()
        if conditions.sandboxed and ready != {"wrong answers": False}:
            self.close()
            raise BrokenEnvironment("the sandbox does not hide the named wrong answers.")

    def ask(self, request: object, seconds: float) -> object:
        """Send a request and return the reply's value.

        Raises:
            Lost: there is no reply within ``seconds``, the process is gone, or the reply cannot be read.
        """
        self._number += 1
        answered: queue.SimpleQueue[object] = queue.SimpleQueue()

        def exchange(
            number: int,
        ) -> None:  # in a thread: a pipe that nobody serves would hold it
            try:
                messages.send(self._process.stdin, number, request)
                got, value = messages.receive(self._process.stdout)
                answered.put((value,) if got == number else Trouble("unreadable", "a reply to another question"))
            except CodecError as error:
                answered.put(Trouble("unreadable", str(error)))
            except messages.Ended:
                answered.put(Trouble("died"))

        self._exchange = threading.Thread(target=exchange, args=(self._number,), daemon=True)
        self._exchange.start()
        try:
            reply = answered.get(timeout=seconds)
        except queue.Empty:
            reply = Trouble("slow", f"{seconds:g}")
        if isinstance(reply, tuple):
            return reply[0]
        if reply.kind == "died":
            reply = Trouble("died", self._how_it_ended())
        self._kill()
        raise Lost(reply)

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        number = -code if code < 0 else code - 128
        if 0 < number < 65:
            with contextlib.suppress(ValueError):
                return signal.Signals(number).name
        return f"exit code {code}"

    def _kill(self) -> None:
        """End the process and all that it started: bubblewrap takes its whole namespace along."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL) if hasattr(os, "killpg") else self._process.kill()
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _clean(self) -> None:
        self._kill() if hasattr(self, "_process") else None
        if self._folder is not None:
            self._folder.cleanup()

    def close(self) -> None:
        """End the process, and remove its folder."""
        self._clean()
        self._exchange.join(timeout=1)
        if self._exchange.is_alive():  # a process that got away, outside the sandbox, still holds the other end
            return
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
