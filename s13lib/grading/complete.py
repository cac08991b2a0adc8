"""Whether the exercises are complete and consistent: what ``s13 check`` looks at, a sentence for each fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from s13lib.errors import InputError
from s13lib.grading.grader import Grade, Task, grade
from s13lib.grading.manifest import Exercise, PartEntry, exercises, part, wrong_answers
from s13lib.grading.part import Text
from s13lib.grading.room import BrokenEnvironment
from s13lib.grading.submission import Refused, Submission, read_submission

LEAST_WRONG = 4
LEAST_HINT = 20  # characters
LEAST_LINE = 12  # characters of a line of a solution that would give something away
LANGUAGES = ("en", "zh")
SEED = 1
HAN = re.compile(r"[\u4e00-\u9fff]")
REGION = re.compile(r"^[ \t]*### BEGIN SOLUTION\n(.*?)^[ \t]*### END SOLUTION", re.DOTALL | re.MULTILINE)


def manifest_faults() -> Iterator[str]:
    """Keys, points, texts and wrong answers of all parts."""
    numbers = [exercise.number for exercise in exercises()]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the exercises are numbered {numbers}: they must count from 1."
    for exercise in exercises():
        keys = [entry.key for entry in exercise.parts]
        if keys != [f"{exercise.number}{letter}" for letter in "abcdefghij"[: len(keys)]]:
            yield f"exercise {exercise.number}: its parts are {', '.join(keys)}: they must be lettered in order."
        yield from _text_faults(f"exercise {exercise.number}, title", exercise.title)
        for entry in exercise.parts:
            yield from _part_faults(entry)


def _part_faults(entry: PartEntry) -> Iterator[str]:
    if entry.points < 1 or entry.difficulty not in (1, 2, 3) or not 1 <= entry.minutes <= 90:
        yield f"{entry.key}: points from 1, difficulty from 1 to 3, minutes from 1 to 90."
    yield from _text_faults(f"{entry.key}, title", entry.title)
    yield from _text_faults(f"{entry.key}, hint", entry.hint, LEAST_HINT)
    try:
        part(entry.key)
        wrong = wrong_answers(entry.key)
    except (ImportError, KeyError, AttributeError) as error:
        yield f"{entry.key}: its checks are missing ({error!r})."
        return
    if len(wrong) < LEAST_WRONG or len({one.name for one in wrong}) < len(wrong):
        yield f"{entry.key}: {len(wrong)} named wrong answers: at least {LEAST_WRONG}, each with a name of its own."
    for one in wrong:
        yield from _text_faults(f"{entry.key}, {one.name!r}", one.why, LEAST_HINT)


def _text_faults(where: str, text: Text, least: int = 1) -> Iterator[str]:
    if len(text.en) < least or HAN.search(text.en):
        yield f"{where}: the English text is missing, short or not English."
    if len(text.zh) < least / 2 or not HAN.search(text.zh):
        yield f"{where}: the Chinese text is missing, short or not Chinese."


def checkout() -> Path | None:
    """The folder of the checkout that this library belongs to; None where it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "solutions" / "src").is_dir() else None


def notebook_faults(root: Path, exercise: Exercise, sandboxed: bool) -> Iterator[str]:
    """Of one exercise's notebooks: stubs that do not fail, solutions that do not pass, solutions given away."""
    for kind in ("exercises", "solutions"):
        read: dict[str, Submission] = {}
        for language in LANGUAGES:
            place = f"{kind}/{language}/{exercise.file}.ipynb"
            try:
                submission = read_submission((root / place).read_bytes())
            except (OSError, Refused) as error:
                yield f"{place}: {getattr(error, 'strerror', None) or error}"
                continue
            if (submission.exercise, submission.language, submission.flags) != (exercise, language, ()):
                yield f"{place}: its metadata must say exercise {exercise.number} and language {language}."
            if submission.code.faults:
                yield f"{place}: {submission.code.faults[0]}."
            read[submission.digest] = submission
        if len(read) > 1:
            yield f"{exercise.file}: the code differs between the two languages in {kind}."
        for submission in read.values():
            yield from _grade_faults(kind, exercise, _graded(submission, sandboxed))
    yield from _given_away(root, exercise)


def _graded(submission: Submission, sandboxed: bool) -> Grade:
    seeds = {entry.key: SEED for entry in submission.exercise.parts}
    try:
        return grade(Task(submission.exercise.number, "en", submission.code.statements, seeds, sandboxed))
    except BrokenEnvironment as error:
        raise InputError(f"grading does not work here: {error}") from None


def _grade_faults(kind: str, exercise: Exercise, found: Grade) -> Iterator[str]:
    if found.fault:
        yield f"{exercise.file}: {found.fault}"
    for note in found.notes if kind == "solutions" else ():  # a stub's cells may fail as the stub does
        yield f"{kind}/{exercise.file}: {note.place} does not run ({note.trouble.kind} {note.trouble.detail})."
    for verdict in found.verdicts:
        if kind == "solutions" and not verdict.passed:
            yield f"{verdict.part}: the solution does not pass: {verdict.came.en} where {verdict.expected.en}."
        if kind == "exercises" and (verdict.passed or f"{verdict.part}: write" not in verdict.came.en):
            yield f"{verdict.part}: the stub must fail and name the part: {verdict.came.en or 'it passes'}."


def _given_away(root: Path, exercise: Exercise) -> Iterator[str]:
    """Lines of the solution's regions that an exercise shows, and that stand nowhere else in the source."""
    source = (root / "solutions" / "src" / f"{exercise.file}.py").read_text(encoding="utf-8")
    secret = {_bare(line) for region in REGION.findall(source) for line in region.splitlines()}
    shown = {_bare(line) for line in REGION.sub("", source).splitlines()}
    for language in LANGUAGES:
        path = root / "exercises" / language / f"{exercise.file}.ipynb"
        text = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": []}
        lines = {_bare(line) for cell in text["cells"] for line in "".join(cell["source"]).splitlines()}
        for line in sorted(lines & (secret - shown)):
            if len(line) >= LEAST_LINE:
                yield f"exercises/{language}/{exercise.file}.ipynb shows a line of the solution: {line}"


def _bare(line: str) -> str:
    """A line without its indent, and without the mark of a comment."""
    return line.lstrip(" \t#").rstrip()
