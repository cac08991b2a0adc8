"""What a grading run comes to: the table of grades, and the summary with the commonest mistakes."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from s13lib.grading.batch import Row
from s13lib.grading.manifest import Exercise

FIXED = ("learner", "exercise", "file", "status", "points", "most")
LAST = ("flags", "reason", "code")
FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would run


def printable(text: str) -> str:
    """``text`` without control characters, line breaks and marks that turn the direction of writing."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def cell(value: object) -> str:
    """A value for a spreadsheet, which is to show it and not to run it."""
    text = printable(str(value))
    return f"'{text}" if text.startswith(FORMULA) else text


def as_csv(rows: Iterable[Row], exercises: Iterable[Exercise]) -> str:
    """The grades as CSV (columns: docs/cli.md). Without a grade there are no points: the cells are empty."""
    parts = [part.key for exercise in exercises for part in exercise.parts]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIXED, *parts, *LAST])
    for row in rows:
        reached = row.reached
        writer.writerow(
            [
                cell(row.learner),
                row.number or "",
                cell(row.file),
                row.status,
                sum(reached.values()) if reached else "",
                row.submission.exercise.points if row.submission else "",
                *(reached.get(key, "") for key in parts),
                cell("; ".join(row.flags)),
                cell(row.reason),
                row.submission.digest[:12] if row.submission else "",
            ]
        )
    return text.getvalue()


@dataclass(frozen=True)
class PartSummary:
    """How a part went: how many solved it of how many that were graded, and the likely mistakes, commonest first."""

    key: str
    solved: int
    graded: int
    mistakes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Summary:
    """A run in numbers."""

    graded: int
    refused: int
    errors: int
    parts: tuple[PartSummary, ...]
    flagged: tuple[Row, ...]


def summary(rows: list[Row], exercises: Iterable[Exercise]) -> Summary:
    """Count."""
    status = Counter(row.status for row in rows)
    verdicts = [verdict for row in rows if row.status == "graded" for verdict in row.grade.verdicts]
    parts = []
    for key in (part.key for exercise in exercises for part in exercise.parts):
        mine = [verdict for verdict in verdicts if verdict.part == key]
        mistakes = Counter(verdict.likely for verdict in mine if verdict.likely)
        parts.append(PartSummary(key, sum(v.passed for v in mine), len(mine), tuple(mistakes.most_common())))
    flagged = tuple(row for row in rows if row.flags)
    return Summary(status["graded"], status["refused"], status["error"], tuple(parts), flagged)
