"""Grade many submissions: who handed in what, inputs from the course key, and grades as they come."""

from __future__ import annotations

import hashlib
import hmac
import queue
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from s13lib.errors import InputError, require, shortened
from s13lib.grading.collect import File
from s13lib.grading.grader import Grade, Task, grade
from s13lib.grading.journal import Journal, identity
from s13lib.grading.room import BrokenEnvironment
from s13lib.grading.submission import Refused, Submission, read_submission
from s13lib.progress import Progress

T = TypeVar("T")
LEAST_KEY = 12  # characters of a course key that somebody chose
LOOK_UP_SECONDS = 1.0
MOST_NAMED = 5
MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]{1,60})'")


@dataclass(frozen=True)
class Row:
    """One submission in the report: graded, or refused with the reason. A refused one has no points: not zero, none."""

    learner: str
    file: str
    submission: Submission | None = None
    refusal: str = ""
    grade: Grade | None = None
    identity: str = ""
    flags: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The exercise's number; 0 where it is not known."""
        return self.submission.exercise.number if self.submission else 0

    @property
    def status(self) -> str:
        """``graded``, ``refused`` (the file), or ``error`` (our check)."""
        if self.refusal:
            return "refused"
        return "error" if self.grade is None or self.grade.fault else "graded"

    @property
    def reason(self) -> str:
        """Why it is not graded."""
        return self.refusal or (self.grade.fault if self.grade is not None else "")

    @property
    def reached(self) -> dict[str, int]:
        """Points by part; empty unless graded."""
        if self.status != "graded":
            return {}
        points = {part.key: part.points for part in self.submission.exercise.parts}
        return {verdict.part: points[verdict.part] if verdict.passed else 0 for verdict in self.grade.verdicts}


@dataclass
class CourseKey:
    """The secret from which all inputs derive. It is stretched, so that seeds in the feedback do not give it away."""

    text: str
    _secret: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require(len(self.text) >= LEAST_KEY, "--key", self.text, f"at least {LEAST_KEY} characters long")
        self._secret = hashlib.scrypt(self.text.encode("utf-8", "replace"), salt=b"s13 grade", n=1 << 14, r=8, p=1)

    def seeds(self, submission: Submission) -> dict[str, int]:
        """A seed for each part: the same code has the same ones."""
        return {part.key: self._seed(f"{submission.digest} {part.key}") for part in submission.exercise.parts}

    def _seed(self, what: str) -> int:
        return int.from_bytes(hmac.digest(self._secret, what.encode(), "sha256")[:4], "big")


def course_key(given: str | None, path: Path) -> CourseKey:
    """The key that was given, else the one kept in ``path``, else a new one, which is kept there."""
    if given is not None:
        return CourseKey(given)
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(16) + "\n", encoding="ascii")
        return CourseKey(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the course key {shortened(str(path))} cannot be used: {reason}.") from None


def read_all(files: Iterable[File], only: Iterable[int] | None = None) -> list[Row]:
    """A row for each file, in order of learner and exercise; files of other exercises than ``only`` are left out."""
    rows = []
    for file in counted(files, "reading"):
        try:
            if file.refusal:
                raise Refused(file.refusal)
            submission = read_submission(file.raw)
        except Refused as refused:
            rows.append(Row(file.learner, file.path, refusal=str(refused)))
            continue
        if only is None or submission.exercise.number in only:
            rows.append(Row(file.learner, file.path, submission, flags=submission.flags))
    return sorted(
        _once_each(rows), key=lambda row: (row.learner, row.submission.exercise.number if row.submission else 0)
    )


def counted(items: Iterable[T], label: str) -> Iterator[T]:
    """The items, with a progress bar that counts them."""
    with Progress(label, unit="files") as bar:
        for item in items:
            bar.update()
            yield item


def _once_each(rows: list[Row]) -> Iterator[Row]:
    """One row for each learner and exercise: the same file twice counts once, two different ones are refused."""
    groups = defaultdict(list)
    for row in rows:
        groups[(row.learner, row.number or row.file)].append(row)
    for (_, number), group in groups.items():
        first, *others = group
        if not others:
            yield first
        elif len({row.submission.digest for row in group}) == 1:
            yield replace(first, flags=(*first.flags, f"handed in {len(group)} times, the same each time"))
        else:
            names = ", ".join(row.file for row in group)
            why = f"There are {len(group)} different notebooks of this learner for exercise {number}: {names}."
            yield from (replace(row, refusal=why) for row in group)


def flag_twins(rows: list[Row]) -> list[Row]:
    """Flag submissions of different learners whose code is the same but for comments, spacing and docstrings."""
    shapes = defaultdict(set)
    for row in rows:
        if _answered(row):
            shapes[(row.submission.exercise.number, row.submission.code.shape)].add(row.learner)
    flagged = []
    for row in rows:
        key = (row.submission.exercise.number, row.submission.code.shape) if row.submission else None
        others = sorted(shapes.get(key, set()) - {row.learner}) if _answered(row) else []
        flagged.append(replace(row, flags=(*row.flags, _identical_to(others))) if others else row)
    return flagged


def _identical_to(others: list[str]) -> str:
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    return f"identical to {', '.join(others[:MOST_NAMED])}{more}"


def _answered(row: Row) -> bool:
    """Whether anything was written: stubs are alike, and no copies."""
    if row.submission is None or row.refusal:
        return False
    code = row.submission.code
    return any(part.answer in code.names - code.stubs for part in row.submission.exercise.parts)


def grade_all(rows: list[Row], key: CourseKey, executor: object, journal: Journal, sandboxed: bool) -> list[Row]:
    """The rows with their grades. What the journal knows is not graded again; what is new is written there at once.

    Raises:
        BrokenEnvironment: grading does not work; what was found before is in the journal.
    """
    tasks: dict[str, Task] = {}
    named = []
    for row in rows:
        if row.refusal:
            named.append(row)
            continue
        submission, seeds = row.submission, key.seeds(row.submission)
        name = identity(submission.digest, submission.exercise, submission.language, seeds, sandboxed)
        named.append(replace(row, identity=name))
        if name not in journal.grades:
            statements = submission.code.statements
            tasks[name] = Task(submission.exercise.number, submission.language, statements, seeds, sandboxed)
    finished: queue.SimpleQueue = queue.SimpleQueue()
    for name, task in tasks.items():
        future = executor.submit(grade, task)
        future.add_done_callback(lambda future, name=name: finished.put((name, future)))
    with Progress("grading", len(tasks)) as bar:
        for _ in tasks:
            name, future = _next(finished, executor)
            journal.add(name, _outcome(future))
            bar.update()
    return [_with_grade(row, journal.grades[row.identity]) if row.identity else row for row in named]


def _with_grade(row: Row, found: Grade) -> Row:
    """The row with its grade; an instructor may have to install what the learner used."""
    said = [*(note.trouble.detail for note in found.notes), *(verdict.came.en for verdict in found.verdicts)]
    missing = sorted({name for text in said for name in MISSING.findall(text)})
    flags = (f"imports {', '.join(missing)}, missing here",) if missing else ()
    return replace(row, grade=found, flags=(*row.flags, *flags))


def _next(finished: queue.SimpleQueue, executor: object) -> tuple[str, object]:
    while True:
        try:
            return finished.get(timeout=LOOK_UP_SECONDS)
        except queue.Empty:
            executor.check()


def _outcome(future: object) -> Grade:
    try:
        return future.result()
    except BrokenEnvironment:
        raise
    except BrokenProcessPool:
        raise BrokenEnvironment("a grading process was ended from outside (is there enough memory?).") from None
    except Exception as error:  # of our own, or of the cluster
        raise BrokenEnvironment(f"a grading process failed: {error!r:.300}") from error
