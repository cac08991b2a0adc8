"""Grade one submission: run its code in a room of its own, judge every part here, and never mix the two up.

A submission can crash, loop or fill its room: that is its own result. Only what happens before its code runs, or to the
reference, is a broken environment.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from s13lib.grading import manifest, messages
from s13lib.grading.codec import CodecError
from s13lib.grading.judge import judge, judge_case, reference_value
from s13lib.grading.part import Observation, Trouble, Verdict
from s13lib.grading.room import GRACE_SECONDS, BrokenEnvironment, Conditions, Lost, Room
from s13lib.grading.statements import Statement

MOST_STARTS = 12  # of one submission: a process that died is started again for the next part
STATEMENT_SECONDS = 20.0  # an import of torch takes a while on a busy machine
LOADING_SECONDS = 60.0  # of all statements together
PROOF_SEED = 1


@dataclass(frozen=True)
class Task:
    """What a grader needs to know of one submission. It travels to other processes, perhaps on other machines.

    Attributes:
        exercise: its number.
        language: of the feedback and of the library's own messages.
        statements: its code.
        seeds: of the fresh inputs, by part.
        sandboxed: whether it is to run inside bubblewrap.
    """

    exercise: int
    language: str
    statements: tuple[Statement, ...]
    seeds: dict[str, int]
    sandboxed: bool


@dataclass(frozen=True)
class Note:
    """A statement that did not run: where, and what came."""

    place: str
    trouble: Trouble


@dataclass(frozen=True)
class Grade:
    """What a submission reached: a verdict for each part, and what did not run.

    ``fault`` is set, and verdicts are missing, where our own check failed on what the learner's code gave.
    """

    verdicts: tuple[Verdict, ...]
    notes: tuple[Note, ...] = ()
    fault: str = ""


# The judge drives the reference and the wrong answers in this process, with tripwires in the library's own functions
# and Python's output redirected: one thread at a time. It is free while a learner's process is waited for.
_judging = threading.Lock()


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    _judging.release()
    try:
        yield
    finally:
        _judging.acquire()


def grade(task: Task, processors: tuple[int, ...] | None = None) -> Grade:
    """Grade one submission.

    Raises:
        BrokenEnvironment: grading does not work here; it says nothing about the submission.
    """
    with _judging:
        kernels = prove_environment(task.exercise, task.sandboxed)
        conditions = Conditions(task.exercise, task.language, task.sandboxed, processors, kernels)
        with _waiting(), contextlib.closing(Answers(conditions, task.statements)) as answers:
            verdicts = []
            for key, seed in task.seeds.items():
                answers.begin(key)
                with _judging:
                    try:
                        verdicts.append(judge(key, answers.observe, seed))
                    except BrokenEnvironment:
                        raise
                    except Exception as error:
                        return Grade(tuple(verdicts), answers.notes, f"the check of {key}: {error!r:.200}")
            return Grade(tuple(verdicts), answers.notes)


class Answers:
    """The answers of one submission, in a room that is opened again when it is lost."""

    def __init__(self, conditions: Conditions, statements: tuple[Statement, ...]) -> None:
        self.conditions, self.statements = conditions, statements
        self._notes: dict[int, Note] = {}  # by the statement's number
        self._room: Room | None = None
        self._starts = 0
        self._fatal: set[int] = set()  # statements that ended a process
        self._part, self._lost, self._patient = "", None, False

    @property
    def notes(self) -> tuple[Note, ...]:
        """What did not run, in the notebook's order."""
        return tuple(note for _, note in sorted(self._notes.items()))

    def begin(self, key: str) -> None:
        """Turn to the next part."""
        self._part, self._lost, self._patient = key, None, True

    def observe(self, inputs: tuple) -> Observation:
        """What the answer to the present part gives. Called by the judge, which is free meanwhile.

        What is too slow is tried once more in a new room: the machine may have been busy.
        """
        with _waiting():
            seen = self._seen(inputs)
            if self._patient and seen.trouble is not None and seen.trouble.kind == "slow":
                self.close()
                self._lost, self._patient = None, False
                seen = self._seen(inputs)
            return seen

    def _seen(self, inputs: tuple) -> Observation:
        if self._lost is None:
            part = manifest.part(self._part)
            try:
                request = {"do": "observe", "key": self._part, "inputs": inputs}
                return messages.unpacked(self._ready().ask(request, part.seconds + GRACE_SECONDS), part)
            except CodecError as error:
                self._lose(Trouble("unreadable", str(error)))
            except Lost as lost:
                slow = lost.trouble.kind == "slow"
                self._lose(Trouble("slow", f"{part.seconds:g}") if slow else lost.trouble)
        return Observation(trouble=self._lost)

    def _lose(self, trouble: Trouble) -> None:
        """The room is not to be trusted any more: the rest of this part gets the same answer, the next a new room."""
        self._lost = trouble
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._room is not None:
            self._room.close()
            self._room = None

    def _ready(self) -> Room:
        """The room, with the submission's statements run in it."""
        while self._room is None:
            if self._starts == MOST_STARTS:
                raise Lost(Trouble("died", f"{MOST_STARTS} times"))
            self._starts += 1
            self._room = open_room(self.conditions)
            try:
                self._load(self._room)
            except Lost:
                self.close()
        return self._room

    def _load(self, room: Room) -> None:
        """Run the statements. One that ends the process is left out the next time."""
        self._notes = {index: note for index, note in self._notes.items() if index in self._fatal}
        end = time.monotonic() + LOADING_SECONDS
        for index, statement in enumerate(self.statements):
            if index in self._fatal:
                continue
            if time.monotonic() > end:
                self._notes[index] = Note(statement.place, Trouble("slow", f"{LOADING_SECONDS:g}"))
                return
            request = {"do": "run", "source": statement.text, "place": statement.place, "seconds": STATEMENT_SECONDS}
            try:
                reply = room.ask(request, STATEMENT_SECONDS + GRACE_SECONDS)
                trouble = messages.unpacked(reply, manifest.part(self._part)).trouble
            except (Lost, CodecError) as error:
                trouble = error.trouble if isinstance(error, Lost) else Trouble("unreadable", str(error))
                self._fatal.add(index)
                self._notes[index] = Note(statement.place, trouble)
                raise Lost(trouble) from None
            if trouble is not None:
                self._notes[index] = Note(statement.place, trouble)
                if trouble.kind == "slow":
                    self._fatal.add(index)


def open_room(conditions: Conditions) -> Room:
    """A room; a second try, in case the machine was short of something for a moment."""
    try:
        return Room(conditions)
    except BrokenEnvironment:
        return Room(conditions)


@functools.cache
def prove_environment(exercise: int, sandboxed: bool) -> tuple[str, ...]:
    """Prove that right answers get full points here, in the very sandbox; once a process and exercise.

    The judge's own work is done first, so that the kernels which it needs are compiled, and in the cache that is shown
    to the learners' processes. Returns the folders of that cache.

    Raises:
        BrokenEnvironment: they do not, with the reason.
    """
    (wanted,) = (one for one in manifest.exercises() if one.number == exercise)
    parts = {entry.key: manifest.part(entry.key) for entry in wanted.parts}
    cases = [(key, part, inputs) for key, part in parts.items() for inputs in part.make(_proof_generator())]
    for key, part, inputs in cases:
        _own(key, reference_value, part, part.reference, inputs)
    kernels = kernel_folders()
    with open_room(Conditions(exercise, "en", sandboxed, None, kernels)) as room:
        for key, part, inputs in cases:
            try:
                reply = room.ask({"do": "reference", "key": key, "inputs": inputs}, 10 * GRACE_SECONDS)
                observation = messages.unpacked(reply, part)
            except (Lost, CodecError) as error:
                why = getattr(error, "trouble", error)
                raise BrokenEnvironment(f"a right answer to {key} gives nothing ({why}).") from None
            verdict = _own(key, judge_case, part, inputs, observation)
            if verdict is not None:
                _, came, _ = verdict
                raise BrokenEnvironment(f"a right answer to {key} is not found right (it gave {came.en}).")
    return kernels


def _proof_generator() -> np.random.Generator:
    return np.random.default_rng(PROOF_SEED)


def _own(key: str, work: Callable, *arguments: object) -> object:
    try:
        return work(*arguments)
    except Exception as error:
        raise BrokenEnvironment(f"the reference answer to {key} does not run here: {error!r:.300}") from None


def kernel_folders() -> tuple[str, ...]:
    """The folders of compiled kernels, as far as the checks have used any."""
    cache = sys.modules.get("s13lib.device.cache")
    return () if cache is None else tuple(map(str, cache.folders()))
