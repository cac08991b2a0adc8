"""The checks are checked: for every part of the manifest, whatever exercise it belongs to.

The stub fails, the solution passes, every named wrong answer fails with its own explanation, and an answer that does
what no answer should (loops, leaves, floods, borrows, mutates, returns NaN or nothing) is caught.
"""

import dataclasses

import numpy as np
import pytest

from s13lib.grading import guard
from s13lib.grading.compare import same
from s13lib.grading.judge import judge
from s13lib.grading.manifest import entries, entry, exercise_of, exercises, part, wrong_answers
from tools.build_exercises import read_source, without_solution
from tools.notebook_source import Code

pytest.importorskip("numba")

SEEDS = (1, 2, 3)
KEYS = list(entries())


def code_until(key, solved):
    """The code of an exercise up to the answer of ``key``: with the solutions, or with the stub for that part."""
    codes = []
    for cell in read_source(exercise_of(key)):
        if isinstance(cell, Code):
            codes.append(cell.text if solved or cell.part != key else without_solution(cell.text, entry(key)))
            if cell.part == key:
                return codes
    raise AssertionError(f"{key}: no cell")


def answer_from(key, solved):
    """The object that an exercise's code defines for ``key``."""
    space = {"__name__": "answers"}
    for code in code_until(key, solved):
        exec(compile(code, "<exercise>", "exec"), space)
    return space[entry(key).answer]


def checked(key, answer, seed=1):
    return judge(key, lambda inputs: guard.observe(part(key), answer, inputs), seed)


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    """A solution's cells may print and draw; nothing here is noted as a learner's progress."""
    monkeypatch.setenv("S13_PROGRESS", str(tmp_path / "progress.json"))


# ---- the proofs


@pytest.mark.parametrize("key", KEYS)
def test_the_stub_fails_closed(key):
    verdict = checked(key, answer_from(key, solved=False))
    assert not verdict.passed
    assert entry(key).answer in verdict.came.en
    assert "the stub is still there" in verdict.came.en


@pytest.mark.parametrize("key", KEYS)
def test_the_solution_passes(key):
    answer = answer_from(key, solved=True)
    for seed in SEEDS:
        verdict = checked(key, answer, seed)
        assert verdict.passed, (verdict.tried.en, verdict.expected.en, verdict.came.en, verdict.why.en)


WRONG = [(key, wrong) for key in KEYS for wrong in wrong_answers(key)]


@pytest.mark.parametrize(("key", "wrong"), WRONG, ids=[f"{key}-{wrong.name}" for key, wrong in WRONG])
def test_a_wrong_answer_fails_with_its_own_explanation(key, wrong):
    for seed in SEEDS:
        verdict = checked(key, wrong.answer, seed)
        assert not verdict.passed
        assert (verdict.likely, verdict.why) == (wrong.name, wrong.why)


@pytest.mark.parametrize("key", KEYS)
def test_the_reference_itself_is_forbidden(key):
    verdict = checked(key, part(key).reference)
    assert not verdict.passed
    assert "the reference answer" in verdict.came.en


@pytest.mark.parametrize("key", KEYS)
def test_inputs_are_fresh_and_reproducible(key):
    made = part(key).make
    one, again, other = (made(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)


# ---- whatever learners' code may do. Functions, since every part takes something that can be called.


def loops(*inputs):
    while True:
        pass


def loops_and_holds_on(*inputs):
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


def leaves(*inputs):
    raise SystemExit


def floods(*inputs):
    while True:
        print("x" * 10_000)


def raises(*inputs):
    raise RuntimeError("no idea")


HOSTILE = [
    (loops, "nothing within"),
    (loops_and_holds_on, "nothing within"),
    (leaves, "an exit"),
    (floods, "characters of output"),
    (raises, "RuntimeError: no idea"),
    (7, "cannot be called as int"),
    (lambda: 1, "cannot be called as ("),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("answer", "told"), HOSTILE, ids=lambda value: getattr(value, "__name__", None))
def test_a_hostile_answer_is_caught(key, answer, told, monkeypatch):
    short = dataclasses.replace(part(key), seconds=0.5)
    monkeypatch.setattr("s13lib.grading.judge.part_of", lambda _: short)
    monkeypatch.setattr("s13lib.grading.judge.likely_mistake", lambda *_: None)
    verdict = judge(key, lambda inputs: guard.observe(short, answer, inputs), seed=1)
    assert not verdict.passed
    assert told in verdict.came.en or "read back" in verdict.came.en


# ---- the manifest


def test_the_manifest_is_complete():
    assert [exercise.number for exercise in exercises()] == list(range(1, len(exercises()) + 1))
    for exercise in exercises():
        assert [one.key for one in exercise.parts] == [
            f"{exercise.number}{letter}" for letter in "abcdefg"[: len(exercise.parts)]
        ]
        for one in exercise.parts:
            assert one.points >= 1
            assert 1 <= one.difficulty <= 3
            assert 1 <= one.minutes <= 60
            assert all(len(text) > 20 for text in (one.hint.en, one.hint.zh))
            wrong = wrong_answers(one.key)
            assert len(wrong) >= 4
            assert len({w.name for w in wrong}) == len({w.why for w in wrong}) == len(wrong)
