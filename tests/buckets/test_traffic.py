"""Traffic and the rule that turns requests into running batches."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.buckets import Traffic, running_batches
from s13lib.errors import InputError


def step_by_step(requests, cap, drain):
    """The rule of ``running_batches``, one step at a time."""
    arrivals, running, waiting, batches = list(requests), [], [], []
    last = arrivals[-1][0] if arrivals else 0
    step = 0
    while arrivals or waiting or running:
        if not drain and step >= last:
            break
        while arrivals and arrivals[0][0] <= step:
            waiting.append(arrivals.pop(0)[1])
        waiting = [tokens for tokens in waiting if tokens]
        while waiting and len(running) < cap:
            running.append(waiting.pop(0))
        if running:
            batches.append(len(running))
        running = [left - 1 for left in running if left > 1]
        step += 1
    return batches


requests = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=25).map(sorted)


@given(requests, st.integers(1, 6), st.booleans())
def test_jumping_over_steps_changes_nothing(requests, cap, drain):
    batches = [batch for batch, steps in running_batches(requests, cap, drain) for _ in range(steps)]
    assert batches == step_by_step(requests, cap, drain)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 50)), min_size=1))
def test_runs_become_a_histogram_in_order_of_time(runs):
    traffic = Traffic.from_runs(iter(runs), "runs", "made up")
    steps = [batch for batch, length in runs for _ in range(length)]
    assert {n: int(c) for n, c in enumerate(traffic.counts) if c} == Counter(steps)
    cuts = [len(steps) * part // len(traffic.parts) for part in range(len(traffic.parts) + 1)]
    for part, start, end in zip(traffic.parts, cuts, cuts[1:], strict=False):
        assert {n: int(c) for n, c in enumerate(part) if c} == Counter(steps[start:end])
    assert (traffic.steps, traffic.rows, traffic.largest) == (len(steps), sum(steps), max(steps))
    assert traffic.mean == sum(steps) / len(steps)
    for percent in (0, 1, 50, 99, 100):
        at_most = sorted(steps)[max(0, -(-len(steps) * percent // 100) - 1)]
        assert traffic.percentile(percent) == at_most


def test_split_cuts_at_half_of_the_steps():
    traffic = Traffic.from_runs(iter([(3, 100), (7, 100)]), "two levels", "made up")
    early, late = traffic.split()
    assert (early.steps, early.largest, early.name) == (100, 3, "two levels, first half")
    assert (late.steps, late.mean, late.name) == (100, 7.0, "two levels, second half")


def test_a_histogram_cannot_be_split():
    with pytest.raises(InputError, match=r"^histogram: its steps have no order in time, so it cannot be cut"):
        Traffic.from_counts({1: 10, 2: 3}).split()


def test_counts_drop_the_idle_engine():
    traffic = Traffic.from_counts({0: 99, 4: 2, 2: 1, 9: 0})
    assert traffic.counts.tolist() == [0, 0, 1, 0, 2]
    assert (traffic.steps, traffic.rows, traffic.largest) == (3, 10, 4)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, r"^histogram: the traffic is empty"),
        ({3: 0}, r"^histogram: the traffic is empty"),
        ({0: 5}, r"^histogram: the traffic is empty"),
        ({3: -1}, r"^histogram: the count of batch size 3 is -1: must be a whole number of at least 0"),
        ({3: 0.5}, r"^histogram: the count of batch size 3 is 0\.5: must be a whole number"),
        ({3: float("nan")}, r"^histogram: the count of batch size 3 is nan: must be a whole number"),
        ({3: True}, r"^histogram: the count of batch size 3 is True: must be a whole number"),
        ({3: 1 << 40}, r"^histogram: the count of batch size 3 is 1099511627776: must be .* below 2\^40"),
        ({-1: 5}, r"^histogram: batch size is -1: must be a whole number, 0 to 8192"),
        ({9000: 5}, r"^histogram: batch size is 9000: must be a whole number, 0 to 8192"),
        ({1: (1 << 40) - 1, 2: 1}, r"^histogram: number of steps is 1099511627776: must be below"),
    ],
)
def test_bad_counts(counts, message):
    with pytest.raises(InputError, match=message):
        Traffic.from_counts(counts)


def test_parts_must_be_counts():
    for parts in ([[0, 1]], np.array([0, 1]), np.array([[0.0, 1.0]]), np.array([[0, -1]]), np.array([[1, 1]])):
        with pytest.raises(InputError, match=r"^t: parts must be a 2-D int64 array"):
            Traffic(parts, "t", "made up")


def test_counts_that_overflow_are_told():
    for parts in (np.array([[0, 2**62, 2**62]]), np.array([[0, 2**62]] * 4)):
        with pytest.raises(InputError, match=r"^t: number of steps is \d+: must be below 1,099,511,627,776"):
            Traffic(parts, "t", "made up")
    with pytest.raises(InputError, match=r"^t: number of steps is \d+: must be below 1,099,511,627,776"):
        Traffic.from_runs([(1, 2**62)] * 4, "t", "made up")


def test_a_percentile_is_a_percentage():
    with pytest.raises(InputError, match=r"^percent is 101: must be between 0 and 100"):
        Traffic.from_counts({1: 1}).percentile(101)


def test_the_cap_must_hold_one_request():
    with pytest.raises(InputError, match=r"^cap is 0: must be a whole number"):
        list(running_batches([(0, 1)], 0))
