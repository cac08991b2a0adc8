"""Grading: submissions a minute on two processors, per exercise, the start of the grading processes not counted."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.harness import Row

from s13lib.grading import sandbox
from s13lib.grading.batch import CourseKey, grade_all, read_all
from s13lib.grading.collect import File
from s13lib.grading.executor import Local
from s13lib.grading.journal import Journal
from s13lib.grading.manifest import Exercise, exercises, wrong_answers
from tests.grading.conftest import notebook
from tests.grading.synthetic import code_cells, wrong_cells

JOBS = 2


def handed_in(exercise: Exercise, count: int, label: str) -> list[File]:
    """Right submissions and, every second, one with a named wrong answer to its first part; no two are the same."""
    key = exercise.parts[0].key
    names = [wrong.name for wrong in wrong_answers(key)]
    made = []
    for number in range(count):
        cells = wrong_cells(exercise, key, names[number // 2 % len(names)]) if number % 2 else code_cells(exercise)
        raw = notebook(*cells, f"# {label} {number}", exercise=exercise.number)
        made.append(File(f"{label}-{number}", "benchmark", raw))
    return made


def rate(exercise: Exercise, count: int, sandboxed: bool) -> float:
    """Submissions a minute."""
    executor, key = Local(JOBS), CourseKey("the key of the benchmark")
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal") as journal:
        try:
            grade_all(read_all(handed_in(exercise, 2 * JOBS, "warm-up")), key, executor, journal, sandboxed)
            rows = read_all(handed_in(exercise, count, "timed"))
            start = time.perf_counter()
            graded = grade_all(rows, key, executor, journal, sandboxed)
            seconds = time.perf_counter() - start
        finally:
            executor.stop()
    assert all(row.status == "graded" for row in graded)
    return 60 * count / seconds


def rows(quick: bool = False) -> list[Row]:
    sandboxed = sandbox.problem() is None
    how = "sandboxed" if sandboxed else "NOT sandboxed"
    count = 8 if quick else 24
    return [
        Row(
            f"exercise {one.number}, {len(one.parts)} parts, {JOBS} at a time, {how}",
            rate(one, count, sandboxed),
            "/min",
        )
        for one in exercises()
    ]
