"""Continuous batching: order, room, early stops, and agreement with a one-step-at-a-time simulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.simulator import Scheduler


def test_first_come_first_served_while_there_is_room():
    scheduler = Scheduler(2)
    for name, tokens in (("a", 2), ("b", 1), ("c", 1)):
        scheduler.submit(name, tokens)
    assert scheduler.admit() == ["a", "b"]
    assert scheduler.waiting == 1
    assert scheduler.advance() == ["b"]
    assert scheduler.admit() == ["c"]
    assert scheduler.running == ["a", "c"]
    assert scheduler.advance() == ["a", "c"]
    assert scheduler.idle


def test_nobody_overtakes_a_head_that_may_not_join():
    scheduler = Scheduler(8, can_join=lambda request: request != "big")
    for name in ("small", "big", "other"):
        scheduler.submit(name, 1)
    assert scheduler.admit() == ["small"]
    assert scheduler.waiting == 2


def test_a_stopped_request_leaves_at_once_and_its_last_step_is_forgotten():
    scheduler = Scheduler(4)
    scheduler.submit("a", 3)
    scheduler.submit("b", 5)
    scheduler.admit()
    scheduler.stop("a")
    assert scheduler.running == ["b"]
    assert scheduler.steps_to_next_finish() == 5
    assert scheduler.advance(5) == ["b"]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=40),
    st.integers(1, 6),
)
def test_jumping_over_quiet_steps_gives_the_same_batches(requests, max_batch):
    requests = sorted(requests)

    def batches(jump):
        scheduler, pending, sizes = Scheduler(max_batch), list(enumerate(requests)), []
        while pending or not scheduler.idle:
            while pending and pending[0][1][0] <= scheduler.step:
                index, (_, tokens) = pending.pop(0)
                scheduler.submit(index, tokens)
            scheduler.admit()
            steps = 1
            if jump:
                until = [pending[0][1][0] - scheduler.step] if pending else []
                steps = min([s for s in (scheduler.steps_to_next_finish(), *until) if s])
            sizes += [scheduler.batch_size] * steps
            scheduler.advance(steps)
        return sizes

    one_by_one = batches(jump=False)
    assert one_by_one == batches(jump=True)
    assert sum(one_by_one) == sum(tokens for _, tokens in requests)
    assert max(one_by_one) <= max_batch


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Scheduler(0), "max_batch is 0: must be a whole number of at least 1."),
        (lambda: Scheduler(1).submit("a", 0), "tokens is 0: must be at least 1."),
        (lambda: Scheduler(1).stop("a"), "request 'a' is not running."),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message


def test_advancing_past_a_finish_is_refused():
    scheduler = Scheduler(1)
    scheduler.submit("a", 2)
    scheduler.admit()
    with pytest.raises(InputError, match="steps is 3: must be between 1 and 2"):
        scheduler.advance(3)


def test_a_request_runs_once():
    scheduler = Scheduler(2)
    scheduler.submit("a", 2)
    scheduler.submit("a", 2)
    with pytest.raises(InputError, match="already running"):
        scheduler.admit()
