"""The optimiser against brute force over every layout, in every variant."""

import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.buckets import (
    ROWS,
    BucketLayout,
    MemoryModel,
    StepTimes,
    Traffic,
    best_layout,
    check_max_batch,
    pinned_mib,
    preset,
    row_cost,
    time_cost,
)
from s13lib.buckets import optimiser as module
from s13lib.errors import InputError


def brute_force(histogram, top, *, count, budget, pool, memory, times, eager_tail, multiple_of):
    """Return the lowest cost and the fewest sizes that reach it, or None, by trying every layout."""
    candidates = range(multiple_of, top + 1, multiple_of)
    tried = []
    for k in range(1, len(candidates) + 1):
        for sizes in combinations(candidates, k):
            if not eager_tail and sizes[-1] != top:
                continue
            if count is not None and k > count:
                continue
            if budget is not None:
                rows = sum(sizes) if pool == "private" else sizes[-1]
                if k * Fraction(str(memory.graph_mib)) + rows * Fraction(str(memory.row_mib)) > Fraction(str(budget)):
                    continue
            cost = 0
            for n, steps in histogram.items():
                size = next((size for size in sizes if size >= n), None)
                if times is None:
                    cost += steps * size
                else:
                    cost += steps * float(times.eager_us[n] if size is None else times.graph_us[size])
            tried.append((cost, k))
    if not tried:
        return None
    lowest = min(tried)[0]
    return lowest, min(k for cost, k in tried if cost <= lowest * (1 + 1e-9))


def curve(draw, length):
    kind = draw.random()
    if kind < 0.4:  # any order at all
        times = [draw.uniform(1, 100) for _ in range(length)]
    elif kind < 0.7:  # flat stretches: many ties
        times = [float(draw.choice((10, 10, 20))) for _ in range(length)]
    else:  # a weight-bound floor and a slope
        times = [max(30.0, 2.5 * n) for n in range(length)]
    return np.array(times)


VARIANTS = [
    (objective, bound, eager_tail)
    for objective, eager_tail in (("rows", False), ("time", False), ("time", True))
    for bound in ("count", "shared", "private")
]
INSTANCES = 160  # of each variant: 1,440 in all


def random_instance(draw, objective, bound, eager_tail):
    """Return a histogram, the maximum batch and the other arguments of ``best_layout``."""
    multiple_of = draw.choice((1, 1, 1, 2, 3))
    max_batch = draw.randint(1, 8 * multiple_of)
    top = -(-max_batch // multiple_of) * multiple_of
    largest = draw.randint(1, top + 3 if eager_tail else top)
    histogram = {n: draw.choice((1, 2, 3, draw.randint(1, 1000))) for n in range(1, largest) if draw.random() < 0.7}
    histogram[largest] = draw.randint(1, 50)
    memory = MemoryModel(draw.choice((0, 2.5, 10, 0.3)), draw.choice((0, 1, 0.1, 0.25)))
    all_mib = pinned_mib(BucketLayout(range(1, top + 1)), "private", memory)
    return (
        histogram,
        max_batch,
        {
            "count": draw.randint(1, 8) if bound == "count" else None,
            "budget": round(draw.uniform(0, all_mib), draw.choice((0, 1, 3))) if bound != "count" else None,
            "pool": bound if bound != "count" else "shared",
            "memory": memory,
            "times": StepTimes(curve(draw, 40), curve(draw, 40)) if objective == "time" else None,
            "eager_tail": eager_tail,
            "multiple_of": multiple_of,
        },
    )


@pytest.mark.parametrize(("objective", "bound", "eager_tail"), VARIANTS)
def test_equals_brute_force(objective, bound, eager_tail):
    draw = random.Random(f"{objective} {bound} {eager_tail}")
    infeasible = 0
    for _ in range(INSTANCES):
        histogram, max_batch, rest = random_instance(draw, objective, bound, eager_tail)
        top = -(-max_batch // rest["multiple_of"]) * rest["multiple_of"]
        expected = brute_force(histogram, top, **rest)
        traffic = Traffic.from_counts(histogram)
        if expected is None:
            infeasible += 1
            with pytest.raises(InputError, match=r"^budget is .*: must be at least .*, for the smallest layout"):
                best_layout(traffic, max_batch, objective=objective, **rest)
            continue
        layout = best_layout(traffic, max_batch, objective=objective, **rest)
        assert all(size % rest["multiple_of"] == 0 for size in layout)
        assert layout.top == top or (eager_tail and layout.top < top)
        if bound != "count":
            assert pinned_mib(layout, bound, rest["memory"]) <= rest["budget"] * (1 + 1e-12)
        if objective == "rows":
            cost = row_cost(layout, traffic)
            assert (cost.real_rows + cost.padding_rows, len(layout)) == expected
        else:
            mean_us = time_cost(layout, traffic, rest["times"]).step_us
            assert mean_us * traffic.steps == pytest.approx(expected[0], rel=1e-9)
            assert len(layout) == expected[1]
    assert (infeasible > 0) == (bound != "count")


histograms = st.dictionaries(st.integers(1, 40), st.integers(0, 10**6), min_size=1).filter(lambda h: any(h.values()))


@given(histograms, st.integers(1, 1000), st.integers(1, 6))
@settings(deadline=None)
def test_only_proportions_matter(histogram, scale, count):
    once = Traffic.from_counts(histogram)
    scaled = Traffic.from_counts({n: scale * steps for n, steps in histogram.items()})
    times = StepTimes(50 + np.arange(41.0) ** 1.3, np.full(41, 900.0))
    assert best_layout(once, 40, count=count) == best_layout(scaled, 40, count=count)
    timed = {"count": count, "objective": "time", "times": times, "eager_tail": True}
    assert best_layout(once, 40, **timed) == best_layout(scaled, 40, **timed)
    private = {"budget": 90, "pool": "private", "memory": ROWS}
    assert best_layout(once, 40, **private) == best_layout(scaled, 40, **private)


@given(histograms)
@settings(deadline=None)
def test_more_room_never_costs_more(histogram):
    traffic = Traffic.from_counts(histogram)

    def rows(**limits):
        return row_cost(best_layout(traffic, 40, **limits), traffic).padding_rows

    by_count = [rows(count=count) for count in (1, 2, 3, 8, 100)]
    assert by_count == sorted(by_count, reverse=True)
    assert by_count[-1] == 0
    private = [rows(budget=budget, pool="private", memory=ROWS) for budget in (40, 60, 100, 820)]
    assert private == sorted(private, reverse=True)
    assert private[-1] == 0


def test_at_equal_memory_it_beats_the_seeds_list():
    traffic = Traffic.from_counts({n: 1 + (n * 37) % 11 for n in range(1, 257)})
    layout = best_layout(traffic, 256, budget=871, pool="private", memory=ROWS)
    assert sum(layout) <= 871
    assert layout.top == 256
    assert row_cost(layout, traffic).padding_rows < row_cost(preset("seed"), traffic).padding_rows


def test_unseen_sizes_are_not_captured():
    traffic = Traffic.from_counts({3: 5, 7: 1})
    assert best_layout(traffic, 10, count=9).sizes == (3, 7, 10)
    assert best_layout(traffic, 7, count=9).sizes == (3, 7)
    assert best_layout(traffic, 10, budget=1000, pool="private").sizes == (3, 7, 10)


def test_sizes_that_save_no_time_are_not_captured():
    # Weight-bound: a step takes 30 µs up to batch 8, so one graph of 8 serves all of them.
    times = StepTimes(np.maximum(30.0, 30 + 5 * (np.arange(17) - 8)), np.full(17, 500.0))
    traffic = Traffic.from_counts(dict.fromkeys(range(1, 13), 7))
    assert best_layout(traffic, 16, count=3, objective="time", times=times).sizes == (8, 12, 16)
    assert best_layout(traffic, 12, count=16, objective="time", times=times).sizes == (8, 9, 10, 11, 12)


def test_a_dear_graph_leaves_the_tail_to_eager():
    times = StepTimes(np.arange(21.0) + 10, np.full(21, 25.0))
    traffic = Traffic.from_counts({2: 100, 4: 100, 19: 1, 20: 1})
    covered = best_layout(traffic, 20, count=2, objective="time", times=times)
    free = best_layout(traffic, 20, count=2, objective="time", times=times, eager_tail=True)
    assert covered.sizes == (4, 20)
    assert free.sizes == (2, 4)
    above = best_layout(traffic, 16, count=2, objective="time", times=times, eager_tail=True)
    assert above.sizes == (2, 4)  # traffic above max_batch runs eager


@pytest.mark.parametrize("units", [1, 7, 64])
def test_rounded_memory_never_goes_over_the_budget(units, monkeypatch):
    monkeypatch.setattr(module, "EXACT_UNITS", 1)
    monkeypatch.setattr(module, "ROUNDED_UNITS", units)
    draw = random.Random(units)
    memory = MemoryModel(3.3, 0.0771)
    for _ in range(40):
        traffic = Traffic.from_counts({n: draw.randint(1, 99) for n in range(1, 31)})
        smallest = 3.3 + 0.0771 * 30
        budget = round(draw.uniform(smallest, 60), 3)
        layout = best_layout(traffic, 30, budget=budget, pool="private", memory=memory)
        assert pinned_mib(layout, "private", memory) <= budget
        assert layout.top == 30


def test_the_smallest_budget_that_works_does_work():
    traffic = Traffic.from_counts({n: n for n in range(1, 31)})
    for pool in ("private", "shared"):
        for memory in (MemoryModel(3.3, 0.0771), MemoryModel(10, 0.1), MemoryModel(0.1, 0.7)):
            with pytest.raises(InputError) as error:
                best_layout(traffic, 30, budget=1e-3, pool=pool, memory=memory)
            smallest = float(str(error.value).split("at least ")[1].split(",")[0])
            assert best_layout(traffic, 30, budget=smallest, pool=pool, memory=memory).sizes == (30,)


TIMES = StepTimes(np.arange(21.0) + 10, np.full(21, 25.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"^count, budget is \(None, None\): must be exactly one of the two\.$"),
        ({"count": 3, "budget": 9}, r"^count, budget is \(3, 9\): must be exactly one of the two\.$"),
        ({"count": 0}, r"^count is 0: must be a whole number, 1 to 8192\.$"),
        ({"count": -2}, r"^count is -2: must be a whole number"),
        ({"count": 2.5}, r"^count is 2\.5: must be a whole number"),
        ({"budget": -1}, r"^budget is -1: must be a number from 0 to 10\^18\.$"),
        ({"budget": float("nan")}, r"^budget is nan: must be a number"),
        ({"budget": float("inf")}, r"^budget is inf: must be a number"),
        ({"budget": 10**400}, r"^budget is 10+…0+: must be a number from 0 to 10\^18\.$"),
        ({"budget": 17.5}, r"^budget is 17\.5: must be at least 18\.0, for the smallest layout possible\.$"),
        ({"budget": 17.5, "pool": "private"}, r"^budget is 17\.5: must be at least 18\.0, for the smallest layout"),
        ({"count": 3, "pool": "both"}, r"^pool: unknown name 'both'"),
        ({"count": 3, "max_batch": 0}, r"^max_batch is 0: must be a whole number, 1 to 8192\.$"),
        ({"count": 3, "max_batch": 2049}, r"^max_batch is 2049: must be at most 2048, or raise multiple_of: 2048 cand"),
        ({"count": 3, "multiple_of": 0}, r"^multiple_of is 0: must be a whole number"),
        (
            {"count": 3, "max_batch": 8},
            r"^max_batch: the largest size is 8 and few reaches batch 9: raise max_batch\.$",
        ),
        (
            {"count": 3, "max_batch": 8, "objective": "time", "times": TIMES},
            r"^max_batch: the largest size is 8 and few reaches batch 9: raise max_batch or give it an eager tail\.$",
        ),
        ({"count": 3, "objective": "speed"}, r"^objective is 'speed': must be 'rows' or 'time'\.$"),
        ({"count": 3, "objective": "time"}, r"^times is None: objective 'time' needs step times\.$"),
        ({"count": 3, "eager_tail": True}, r"^eager_tail is True: must be False with objective 'rows'"),
        (
            {"count": 3, "max_batch": 21, "objective": "time", "times": TIMES},
            r"^step times: graph_us is needed at batch 21, and known for batch 1 to 20 \(given\)\.$",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    few = Traffic.from_counts({2: 5, 9: 1}, "few")
    with pytest.raises(InputError, match=message):
        best_layout(few, **{"max_batch": 16, **arguments})


def test_the_largest_size_is_known_before_any_work():
    assert check_max_batch(256) == 256
    assert [check_max_batch(257, multiple) for multiple in (1, 2, 8, 8192)] == [257, 258, 264, 8192]
    assert check_max_batch(8192, 4) == 8192
    assert check_max_batch(8190, 5) == 8190
    assert check_max_batch(2048) == 2048
    few = Traffic.from_counts({1: 5}, "few")
    for max_batch, multiple_of in ((1, 1), (9, 4), (8187, 8187), (8192, 4)):
        top = best_layout(few, max_batch, count=1, multiple_of=multiple_of).top
        assert check_max_batch(max_batch, multiple_of) == top


@pytest.mark.parametrize(
    ("max_batch", "multiple_of", "message"),
    [
        (0, 1, r"^max_batch is 0: must be a whole number, 1 to 8192\.$"),
        (8193, 1, r"^max_batch is 8193: must be a whole number, 1 to 8192\.$"),
        (10**400, 1, r"^max_batch is 10+…0+: must be a whole number, 1 to 8192\.$"),
        (1.5, 1, r"^max_batch is 1\.5: must be a whole number"),
        ("8", 1, r"^max_batch is '8': must be a whole number"),
        (8, 0, r"^multiple_of is 0: must be a whole number, 1 to 8192\.$"),
        (8, 8193, r"^multiple_of is 8193: must be a whole number, 1 to 8192\.$"),
        (2049, 1, r"^max_batch is 2049: must be at most 2048, or raise multiple_of: 2048 candidates are the limit\.$"),
        (6145, 3, r"^max_batch is 6145: must be at most 6144, or raise multiple_of"),
        (8191, 5, r"^max_batch is 8191: must be at most 8190, the last multiple of 5\.$"),
        (5001, 5000, r"^max_batch is 5001: must be at most 5000, the last multiple of 5000\.$"),
    ],
)
def test_a_largest_size_that_cannot_be_is_refused_before_any_work(max_batch, multiple_of, message):
    with pytest.raises(InputError, match=message):
        check_max_batch(max_batch, multiple_of)
    with pytest.raises(InputError, match=message):
        best_layout(Traffic.from_counts({2: 5}), max_batch, count=3, multiple_of=multiple_of)


def test_multiples_may_cover_what_max_batch_does_not():
    few = Traffic.from_counts({2: 5, 9: 1}, "few")
    assert best_layout(few, 9, count=2, multiple_of=4).sizes == (4, 12)
    assert best_layout(few, 2049, count=1, multiple_of=2).sizes == (2050,)
