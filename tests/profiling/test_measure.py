"""Measured steps on a device and a clock that are made up: who runs when, and which repeat is kept."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from s13lib.errors import InputError
from s13lib.profiling import measure
from s13lib.profiling.measure import MeasuredStep, disturbance_us, measure_steps
from s13lib.simulator import Span, Timeline


class FakeDevice:
    """Each launch takes the next of a step's times; half of it passes in the launch, half in the wait."""

    def __init__(self, monkeypatch, **times):
        self.now_ns, self.waiting, self.order = 0, 0, []
        self.steps = {name: self.step(name, iter(us)) for name, us in times.items()}
        clock = SimpleNamespace(perf_counter_ns=lambda: self.now_ns, monotonic=lambda: self.now_ns / 1e9)
        monkeypatch.setattr(measure, "time", clock)

    def step(self, name, times):
        def launch():
            us = next(times)
            self.order.append(name)
            self.last = us
            self.now_ns += us * 500
            self.waiting += us * 500

        return launch

    def synchronize(self):
        self.now_ns, self.waiting = self.now_ns + self.waiting, 0

    @contextmanager
    def record(self):
        recording = SimpleNamespace()
        yield recording
        self.synchronize()
        spans = (Span("launch", 0, self.last / 2, 1),), (Span("k", self.last / 2, self.last / 2, 1),)
        recording.timeline = Timeline(*spans, "measured", "made up")


def repeats(timed, recorded):
    """The times of a step's launches: in each round one unwatched, one timed, one recorded."""
    for one, two in zip(timed, recorded, strict=True):
        yield from (1000, one, two)


def test_the_quietest_repeat_and_the_quietest_recording_are_kept(monkeypatch):
    device = FakeDevice(
        monkeypatch,
        a=repeats([10, 80, 60, 90, 70], [99, 50, 40, 45, 60]),  # the first round's time does not count
        b=repeats([500, 300, 200, 200, 100], [300, 300, 300, 300, 200]),
    )
    shares = []
    found = measure_steps(device, device.steps, repeats=4, recorded=4, on_round=shares.append)
    a, b = found["a"], found["b"]
    assert (a.step_us, a.host_us, a.median_step_us, a.timeline.step_us) == (60, 30, 75, 40)
    assert (b.step_us, b.host_us, b.median_step_us, b.timeline.step_us) == (100, 50, 200, 200)
    assert "".join(device.order) == "aaabbb" * 5  # in turns
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_recordings_are_spread_over_the_rounds(monkeypatch):
    device = FakeDevice(monkeypatch, a=iter([10] * 100))
    measure_steps(device, device.steps, repeats=9, recorded=3)
    assert len(device.order) == 2 * 10 + 4  # rounds 0, 3, 6 and 9 record


def test_measuring_goes_on_until_the_seconds_have_passed(monkeypatch):
    device = FakeDevice(monkeypatch, a=iter([100_000] * 1000))  # a tenth of a second each
    measure_steps(device, device.steps, repeats=1, recorded=1, seconds=3.0)
    assert 10 <= len(device.order) / 3 <= 11


def test_at_least_one_of_each(monkeypatch):
    for wrong in ({"repeats": 0}, {"recorded": 0}, {"repeats": 2.5}):
        with pytest.raises(InputError, match="must be a whole number of at least 1"):
            measure_steps(FakeDevice(monkeypatch), {}, **wrong)


def test_repeats_far_above_the_quietest_show_a_contended_machine():
    timeline = Timeline((), (), "measured", "made up")
    assert not MeasuredStep(100, 50, 114, timeline).disturbed
    assert MeasuredStep(100, 50, 116, timeline).disturbed
    assert MeasuredStep(100, 50, 130, timeline).noise == pytest.approx(0.3)


def test_a_recording_whose_device_was_late_is_not_kept_for_being_short():
    def recorded(late, length):
        kernels = (Span("k", 2 + late, 1, 1), Span("k", length - 1, 1, 2))
        return Timeline((Span("launch", 0, 2, 1), Span("launch", 2, 2, 2)), kernels, "measured", "made up")

    assert recorded(late=900, length=1000).step_us < recorded(late=1, length=1400).step_us
    assert disturbance_us(recorded(late=900, length=1000)) == 1900
    assert disturbance_us(recorded(late=1, length=1400)) == 1401
    assert disturbance_us(Timeline((), (), "measured", "made up")) == 0
