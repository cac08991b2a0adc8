"""What a grading run has found so far, a line a submission: an interrupted run goes on where it stopped.

Lines are only ever added. One that was cut off, by a full disk or a power cut, counts as not written.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import s13lib
from s13lib.errors import InputError, shortened
from s13lib.grading.grader import Grade, Note
from s13lib.grading.manifest import Exercise
from s13lib.grading.part import Text, Trouble, Verdict

TEXTS = ("tried", "expected", "came", "why")


def identity(digest: str, exercise: Exercise, language: str, seeds: dict[str, int], sandboxed: bool) -> str:
    """The name of a grade: the same code, checks, inputs and conditions have the same one."""
    what = (digest, exercise.number, exercise.version, language, sorted(seeds.items()), sandboxed, checks_digest())
    return hashlib.sha256(repr(what).encode()).hexdigest()[:32]


@functools.cache
def checks_digest() -> str:
    """A digest of the checks themselves: a corrected check grades anew."""
    library = Path(s13lib.__file__).parent
    digest = hashlib.sha256(s13lib.__version__.encode())
    for path in [*sorted((library / "grading").rglob("*.py")), library / "data" / "exercises.toml"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Journal:
    """The journal file beside a run's output. Use it as a context."""

    def __init__(self, path: Path) -> None:
        self.grades: dict[str, Grade] = {}
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"the journal {shortened(str(path))} cannot be written: {error.strerror}.") from None
        self._read(text.splitlines())
        if text and not text.endswith("\n"):
            self._file.write("\n")

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                row = json.loads(line)
                self.grades[row["submission"]] = grade_from(row["grade"])
            except (ValueError, TypeError, KeyError, AttributeError):
                continue

    def add(self, name: str, grade: Grade) -> None:
        """Write down a grade, so that it is on the disk when this returns."""
        self.grades[name] = grade
        self._file.write(json.dumps({"submission": name, "grade": asdict(grade)}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def grade_from(row: dict) -> Grade:
    """A grade from its form in the journal."""
    verdicts = [Verdict(**{**data, **{name: Text(**data[name]) for name in TEXTS}}) for data in row["verdicts"]]
    notes = [Note(data["place"], Trouble(**data["trouble"])) for data in row["notes"]]
    return Grade(tuple(verdicts), tuple(notes), row["fault"])
