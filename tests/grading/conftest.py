"""What the tests of grading share: notebooks made of code, and one submission graded in a real sandbox."""

import json

import pytest

from s13lib.grading import sandbox
from s13lib.grading.grader import Task, grade
from s13lib.grading.manifest import entry, exercise_of, exercises
from s13lib.grading.statements import read_code


def notebook(*cells, exercise=5, **metadata):
    """The bytes of a notebook of code cells, as it was handed out."""
    version = next((one.version for one in exercises() if one.number == exercise), 1)
    s13 = {"exercise": exercise, "version": version, "language": "en"}
    made = [
        {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None} for cell in cells
    ]
    return json.dumps({"cells": made, "metadata": {"s13": s13} | metadata, "nbformat": 4, "nbformat_minor": 5}).encode()


@pytest.fixture(scope="session")
def needs_sandbox():
    """Skip, with the reason, where no sandbox can be made."""
    if problem := sandbox.problem():
        pytest.skip(f"no sandbox here: {problem}")


def graded(key, code, seed=1, sandboxed=True):
    """The grade of one part from code cells; one cell or a tuple of them."""
    cells = (code,) if isinstance(code, str) else code
    exercise = exercise_of(key)
    assert entry(key) in exercise.parts
    return grade(Task(exercise.number, "en", read_code(cells).statements, {key: seed}, sandboxed))
