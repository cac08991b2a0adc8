"""A layout is judged on traffic it has not seen."""

import pytest

from s13lib.buckets import (
    WORKLOADS,
    BucketLayout,
    StepTimes,
    Traffic,
    best_layout,
    chat,
    code,
    generate,
    held_out,
    preset,
    row_cost,
)
from s13lib.errors import InputError

DRIFT = Traffic.from_runs(iter([(2, 40), (3, 60), (5, 50), (7, 50)]), "drift", "made up")


def fit(traffic: Traffic) -> BucketLayout:
    return best_layout(traffic, 8, count=3)


def test_fitted_to_the_first_half_and_costed_on_the_second():
    report = held_out(DRIFT, fit)
    assert report.layout.sizes == (2, 3, 8)
    assert [(e.traffic.name, e.held_out) for e in report.evaluations] == [
        ("drift, first half", False),
        ("drift, second half", True),
    ]
    assert [e.rows.padding_rows for e in report.evaluations] == [0, 50 * 3 + 50 * 1]
    assert [e.time for e in report.evaluations] == [None, None]
    assert report.note == "fitted to the first half of the steps of drift, in order of time."


def test_other_traffic_and_time():
    other = Traffic.from_counts({9: 4, 1: 4}, "other")
    times = StepTimes([0, *range(10, 20)], [0, *range(50, 60)])
    report = held_out(DRIFT, fit, [other], times)
    assert [e.traffic.name for e in report.evaluations] == ["drift, first half", "drift, second half", "other"]
    last = report.evaluations[-1]
    assert last.held_out
    assert (last.rows.padding_rows, last.rows.eager_steps) == (4, 4)
    assert last.time.step_us == (4 * 11 + 4 * 58) / 8


def test_a_histogram_has_no_halves():
    histogram = Traffic.from_counts({2: 4, 3: 4, 7: 1})
    report = held_out(histogram, fit, [DRIFT])
    assert report.layout.sizes == (2, 3, 8)
    assert [(e.traffic.name, e.held_out) for e in report.evaluations] == [("histogram", False), ("drift", True)]
    assert "no order in time, so only other traffic is held out" in report.note
    with pytest.raises(InputError, match=r"no order in time.*Name other traffic to hold out\.$"):
        held_out(histogram, fit)


def test_a_layout_fitted_to_full_load_is_worse_than_a_fixed_list_elsewhere():
    busy = generate("chat", load=WORKLOADS["chat"].full_load())
    layout = best_layout(busy, 256, count=13)
    quiet = code(load=4)
    assert row_cost(layout, busy).padding_fraction < row_cost(preset("seed"), busy).padding_fraction
    assert row_cost(layout, quiet).padding_fraction > 2 * row_cost(preset("seed"), quiet).padding_fraction


def test_the_built_in_traffic_holds_from_one_half_to_the_other():
    report = held_out(chat(), lambda part: best_layout(part, 256, count=13))
    seen, unseen = (e.rows.padding_fraction for e in report.evaluations)
    assert max(seen, unseen) < 0.03
    assert row_cost(preset("seed"), chat()).padding_fraction > 0.15
