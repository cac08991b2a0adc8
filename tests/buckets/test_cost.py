"""What layouts cost, by hand."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.buckets import (
    ROWS,
    BucketLayout,
    MemoryModel,
    StepTimes,
    Traffic,
    capture_seconds,
    pinned_mib,
    pinned_rows,
    preset,
    row_cost,
    time_cost,
)
from s13lib.errors import InputError

TRAFFIC = Traffic.from_counts({1: 10, 3: 5, 4: 2, 6: 1})


def test_rows():
    cost = row_cost(BucketLayout([2, 4, 8]), TRAFFIC)
    assert (cost.steps, cost.real_rows, cost.padding_rows) == (18, 39, 10 + 5 + 2)
    assert (cost.eager_steps, cost.eager_rows) == (0, 0)
    assert cost.padding_fraction == 17 / 56


def test_rows_above_the_top_run_eager_and_unpadded():
    cost = row_cost(BucketLayout([3]), TRAFFIC)
    assert (cost.eager_steps, cost.eager_rows, cost.padding_rows) == (3, 14, 20)
    assert cost.padding_fraction == 20 / 59


def test_time():
    times = StepTimes(
        graph_us=np.array([0, 10, 12, 30, 20, 20, 22, 23, 24.0]),
        eager_us=np.array([0, 50, 50, 60, 60, 60, 70, 70, 70.0]),
    )
    cost = time_cost(BucketLayout([2, 4]), TRAFFIC, times)
    # Steps: 10 of n=1 at size 2, 5 of n=3 at size 4 (faster than a graph of 3), 2 of n=4, 1 of n=6 eager.
    assert cost.step_us * 18 == pytest.approx(10 * 12 + 5 * 20 + 2 * 20 + 70)
    assert cost.padding_us * 18 == pytest.approx(10 * (12 - 10) + 5 * (20 - 30))
    assert cost.eager_step_us * 18 == pytest.approx(10 * 50 + 5 * 60 + 2 * 60 + 70)
    assert cost.replay_saves_us * 18 == pytest.approx(10 * 40 + 5 * 30 + 2 * 40)
    assert cost.time_waste_fraction == pytest.approx((20 - 50) / 330)
    assert cost.gain_us == pytest.approx(cost.eager_step_us - cost.step_us)
    assert cost.gain_fraction == pytest.approx((990 - 330) / 990)


histograms = st.dictionaries(st.integers(1, 12), st.integers(1, 1000), min_size=1)
layouts = st.lists(st.integers(1, 12), min_size=1)
curves = st.lists(st.floats(1, 1000), min_size=13, max_size=13).map(np.array)


@given(histograms, layouts, curves, curves)
def test_the_two_halves_of_the_gain_add_up(histogram, sizes, graph_us, eager_us):
    cost = time_cost(BucketLayout(sizes), Traffic.from_counts(histogram), StepTimes(graph_us, eager_us))
    assert cost.gain_us == pytest.approx(cost.eager_step_us - cost.step_us, abs=1e-6)


@given(histograms, layouts)
def test_rows_are_those_of_pick(histogram, sizes):
    layout = BucketLayout(sizes)
    cost = row_cost(layout, Traffic.from_counts(histogram))
    assert cost.padding_rows == sum(c * (layout.pick(n) - n) for n, c in histogram.items() if layout.pick(n))
    assert cost.eager_rows == sum(c * n for n, c in histogram.items() if not layout.pick(n))
    assert cost.eager_steps == sum(c for n, c in histogram.items() if not layout.pick(n))
    assert cost.real_rows == sum(c * n for n, c in histogram.items())


def test_pinned_rows_of_the_seeds_list():
    assert pinned_rows(preset("seed"), "private") == 871
    assert pinned_rows(preset("seed"), "shared") == 256
    assert pinned_rows(preset("seed")) == 256


def test_pinned_memory():
    memory = MemoryModel(graph_mib=10, row_mib=0.5)
    assert pinned_mib(preset("seed"), "private", memory) == 13 * 10 + 0.5 * 871
    assert pinned_mib(preset("seed"), "shared", memory) == 13 * 10 + 0.5 * 256
    assert pinned_mib(preset("seed"), "private", ROWS) == 871
    assert capture_seconds(preset("seed"), 0.5) == 6.5


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1.1e9, 1e308, True])
def test_bad_numbers(value):
    allowed = r"must be a number from 0 to 1,000,000,000\.$"
    with pytest.raises(InputError, match=rf"^graph_mib is {re.escape(str(value))}: {allowed}"):
        MemoryModel(graph_mib=value)
    with pytest.raises(InputError, match=rf"^row_mib is {re.escape(str(value))}: {allowed}"):
        MemoryModel(row_mib=value)
    with pytest.raises(InputError, match=rf"^seconds_per_graph is {re.escape(str(value))}: {allowed}"):
        capture_seconds(preset("seed"), value)


@pytest.mark.parametrize("value", ["10", None, 10**400])
def test_what_is_no_such_number_at_all(value):
    with pytest.raises(InputError, match=r"^graph_mib is .{4,60}: must be a number from 0 to 1,000,000,000\.$"):
        MemoryModel(graph_mib=value)
    with pytest.raises(InputError, match=r"^seconds_per_graph is .{4,60}: must be a number from 0 to 1,000,000,000\.$"):
        capture_seconds(preset("seed"), value)


def test_the_largest_numbers_give_finite_costs():
    layout, memory = BucketLayout(range(1, 8193)), MemoryModel(1e9, 1e9)
    assert pinned_mib(layout, "private", memory) == (8192 + 8192 * 8193 // 2) * 1e9
    assert pinned_mib(layout, "shared", memory) == 2 * 8192 * 1e9
    assert capture_seconds(layout, 1e9) == 8192e9


def test_an_unknown_pool():
    with pytest.raises(InputError, match=r"^pool: unknown name 'share'; did you mean shared"):
        pinned_mib(preset("seed"), "share")
