"""The launch recurrence against an event simulation, its closed form, and three orders computed by hand."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.simulator import LaunchCosts, closed_form_us, launch_times

TIMES = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=60)


def event_simulation(launch_us, kernel_us, depth, latency, gap):
    """A host and a device as two processes over an event queue, written without the recurrence.

    The device takes a launch out of the queue when its kernel starts; the host may not begin a launch while ``depth``
    of them stand in the queue.
    """
    events = [(0.0, 0, "host")]
    waiting, begun, free_at, order = [], 0, 0.0, 1
    started, blocked, device_busy, first = [], False, False, True
    end = 0.0
    while events:
        now, _, what = heapq.heappop(events)
        if what == "host" and begun < len(launch_us):
            if begun - len(started) >= depth:
                blocked = True
            else:
                heapq.heappush(events, (now + launch_us[begun], order, "submitted"))
                begun += 1
                order += 1
        elif what == "submitted":
            waiting.append(now + latency)
            heapq.heappush(events, (now, order, "host"))
            heapq.heappush(events, (max(now + latency, free_at), order + 1, "device"))
            order += 2
        elif what == "device":
            if device_busy or not waiting:
                continue
            if max(waiting[0], free_at) > now:
                heapq.heappush(events, (max(waiting[0], free_at), order, "device"))
                order += 1
                continue
            waiting.pop(0)
            duration = kernel_us[len(started)]
            started.append(now)
            device_busy, first = True, False
            heapq.heappush(events, (now + duration, order, "done"))
            order += 1
            if blocked:
                blocked = False
                heapq.heappush(events, (now, order, "host"))
                order += 1
        elif what == "done":
            device_busy, free_at, end = False, now + gap, now
            heapq.heappush(events, (free_at, order, "device"))
            order += 1
    assert not first
    return started, end


@pytest.mark.parametrize("binding", [False, True])
def test_recurrence_equals_event_simulation_on_a_thousand_cases(binding):
    rng = random.Random(20240 + binding)
    blocked = 0
    for _ in range(600):
        n = rng.randint(1, 60)
        scale = rng.choice([0.3, 1.0, 4.0])
        launches = [rng.choice([0.0, rng.uniform(0, 10)]) for _ in range(n)]
        kernels = [rng.choice([0.0, rng.uniform(0, 10) * scale]) for _ in range(n)]
        depth = rng.randint(1, 8) if binding else 1024
        latency, gap = rng.choice([0.0, rng.uniform(0, 5)]), rng.choice([0.0, rng.uniform(0, 2)])
        times = launch_times(launches, kernels, depth, latency, gap)
        started, end = event_simulation(launches, kernels, depth, latency, gap)
        assert times.device_start_us == pytest.approx(started, abs=1e-9)
        assert times.device_end_us[-1] == pytest.approx(end, abs=1e-9)
        blocked += times.host_end_us[-1] > sum(launches) + 1e-9
    assert (blocked > 100) if binding else (blocked == 0)


@given(TIMES, st.floats(0, 20), st.floats(0, 5))
def test_recurrence_equals_closed_form_when_the_queue_never_fills(pairs, latency, gap):
    launches, kernels = zip(*pairs, strict=True)
    times = launch_times(launches, kernels, len(pairs), latency, gap)
    closed = closed_form_us(launches, kernels, latency, gap)
    assert times.device_end_us[-1] == pytest.approx(closed, rel=1e-9, abs=1e-9)


@given(TIMES)
def test_total_is_at_least_the_larger_sum_and_at_most_both(pairs):
    launches, kernels = zip(*pairs, strict=True)
    total = launch_times(launches, kernels).device_end_us[-1]
    assert max(sum(launches), sum(kernels)) <= total * (1 + 1e-12) + 1e-9
    assert total <= sum(launches) + sum(kernels) + 1e-9


def test_the_order_of_launch_bound_and_device_bound_stretches_decides():
    short, long = [(6.0, 1.0)] * 144, [(6.0, 11.0)] * 144
    mixed = [pair for both in zip(short, long, strict=True) for pair in both]
    totals = []
    for order in (short + long, long + short, mixed):
        launches, kernels = zip(*order, strict=True)
        assert sum(launches) == sum(kernels) == 1728
        totals.append(launch_times(launches, kernels).device_end_us[-1])
    assert totals == [2454, 1734, 1739]


def test_uniform_launches_have_the_simple_formula():
    n, launch, kernel, latency, gap = 50, 6.0, 4.0, 3.0, 0.5
    total = launch_times([launch] * n, [kernel] * n, 1024, latency, gap).device_end_us[-1]
    assert total == pytest.approx(latency + launch + kernel + (n - 1) * max(launch, kernel + gap))


def test_a_queue_of_one_makes_the_host_wait_for_each_start():
    times = launch_times([1.0, 1.0, 1.0], [10.0, 10.0, 10.0], queue_depth=1)
    assert times.host_end_us == (1.0, 2.0, 12.0)
    assert times.device_start_us == (1.0, 11.0, 21.0)


def test_empty_sequence_takes_no_time():
    assert launch_times([], []).device_end_us == ()
    assert closed_form_us([], []) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"launch_us": -1.0}, "launch_us is -1.0: must be from 0 to 1,000,000."),
        ({"launch_us": float("nan")}, "launch_us is nan: must be from 0 to 1,000,000."),
        ({"graph_base_us": float("inf")}, "graph_base_us is inf: must be from 0 to 1,000,000."),
        ({"queue_depth": 0}, "queue_depth is 0: must be a whole number from 1 to 1,000,000."),
    ],
)
def test_costs_refuse_what_no_machine_has(arguments, message):
    with pytest.raises(InputError) as error:
        LaunchCosts(**arguments)
    assert str(error.value) == message


def test_lengths_must_agree():
    with pytest.raises(InputError, match="kernel_us is 1: must be as long as launch_us"):
        launch_times([1.0, 2.0], [1.0])
