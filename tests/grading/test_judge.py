"""What the judge makes of values that no honest answer gives: a verdict, soon, and never an exception."""

import dataclasses

import numpy as np
import pytest

from s13lib.grading import guard, judge, manifest
from s13lib.grading.compare import difference
from s13lib.grading.part import Observation


@pytest.fixture
def viewed_by(monkeypatch):
    """Give part 5a another view."""

    def use(view):
        part = dataclasses.replace(manifest.part("5a"), view=view)
        monkeypatch.setattr(judge, "part_of", lambda key: part)
        monkeypatch.setattr(judge, "VIEW_SECONDS", 0.2)

    return use


def endless(inputs, value):
    while value == 1.5:  # not for the reference's values
        pass
    return value


def broken(inputs, value):
    return value + 0 if value != 1.5 else value["x"]


@pytest.mark.parametrize("view", [endless, broken])
def test_a_value_on_which_a_view_loops_or_breaks_is_unreadable(viewed_by, view):
    viewed_by(view)
    verdict = judge.judge("5a", lambda inputs: Observation(1.5), seed=1)
    assert not verdict.passed
    assert verdict.came.en == "a value that cannot be read back: 1.5"
    assert verdict.likely is None


@pytest.mark.parametrize("got", [10**400, -(10**400), True, None, "7", [], {}, np.array([]), np.array(["x"]), {"a": 7}])
def test_a_number_is_expected(got):
    assert difference(got, 7.0, 1e-6) is not None


def test_nan_is_nan_and_nothing_else_is():
    assert difference(float("nan"), float("nan"), 1e-6) is None
    assert difference(float("nan"), 7.0, 1e-6) is not None
    assert difference(7.0, float("nan"), 1e-6) is not None


def test_time_limits_end_loops_in_threads_too():
    import threading

    came = []

    def loop():
        while True:
            pass

    worker = threading.Thread(target=lambda: came.append(guard.attempt(loop, 0.2)))
    worker.start()
    worker.join(timeout=20)
    ((value, trouble),) = came
    assert (value, trouble.kind) == (None, "slow")
