"""Measured steps: interleaved repeats of one or several ways to run a step, and the quietest of each.

Other work on the machine can only make a repeat slower, so the smallest time says most about the code. Repeats of all
ways are interleaved, so that a disturbance meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from s13lib.device import Device
from s13lib.errors import require
from s13lib.progress import Progress
from s13lib.simulator.timeline import Timeline

K = TypeVar("K")

BAR_AFTER_SECONDS = 2.0

NOISY = 0.15  # the median of the repeats so far above the quietest: other work took the processors from some of them


@dataclass(frozen=True)
class MeasuredStep:
    """The quietest repeat of a step, in microseconds.

    Args:
        step_us: from the first launch to the end of the last kernel, measured without recording.
        host_us: the part of it in which the host launched.
        median_step_us: the median of all repeats: far above ``step_us`` on a contended machine.
        timeline: the quietest recorded repeat. Recording costs a launch about a third of a microsecond.
    """

    step_us: float
    host_us: float
    median_step_us: float
    timeline: Timeline

    @property
    def noise(self) -> float:
        """How far the median of the repeats lies above the quietest, as a share of it."""
        return self.median_step_us / self.step_us - 1

    @property
    def disturbed(self) -> bool:
        """Whether the repeats themselves show that the machine was contended."""
        return self.noise > NOISY

    @property
    def device_busy_us(self) -> float:
        """Time that the device spent in kernels."""
        return self.timeline.device_us

    @property
    def launches(self) -> int:
        """Submissions by the host: one for a graph."""
        return len(self.timeline.host)

    @property
    def kernels(self) -> int:
        """Kernels that ran."""
        return len(self.timeline.device)

    @property
    def device_busy_share(self) -> float:
        """Share of the step in which the device was busy. The two come from different repeats: at most 1."""
        return min(1.0, self.device_busy_us / self.step_us)


def disturbance_us(timeline: Timeline) -> float:
    """What to be small for in a picture: the step, and once more the wait of the first kernel after its launch.

    A device's thread that lost its processor at the start shows one long gap and then a full queue. Such a step may
    even be the shortest, since the host had the machine to itself, but its picture tells nothing of launches.
    """
    late_us = timeline.device[0].start_us - timeline.host[0].end_us if timeline.device and timeline.host else 0.0
    return timeline.step_us + max(0.0, late_us)


def measure_steps(
    device: Device,
    steps: Mapping[K, Callable[[], None]],
    repeats: int = 40,
    recorded: int = 10,
    seconds: float = 0.0,
    label: str = "measuring",
) -> dict[K, MeasuredStep]:
    """Measure each of ``steps``, functions that launch a step and return without waiting.

    Args:
        device: where they launch.
        steps: by name.
        repeats: timed rounds, after one that is not counted; more if ``seconds`` have not passed by then.
        recorded: how many of the rounds also record a timeline, at least 1, spread over the others.
        seconds: go on for at least so long: a machine's slow phases may last for seconds.
        label: of the progress bar, which appears only after seconds: to draw it takes time from the host.
    """
    for name, value in (("repeats", repeats), ("recorded", recorded)):
        require(isinstance(value, int) and value >= 1, name, value, "a whole number of at least 1")
    times: dict[K, list[tuple[float, float]]] = {name: [] for name in steps}
    quietest: dict[K, Timeline] = {}
    every = max(1, repeats // recorded)
    begin, lap = time.monotonic(), 0
    with Progress(label, 100, after=BAR_AFTER_SECONDS) as bar:
        while lap <= repeats or time.monotonic() - begin < seconds:
            for name, launch in steps.items():
                launch()  # once unwatched: the device is awake then, and the caches hold what this step needs
                device.synchronize()
                start = time.perf_counter_ns()
                launch()
                launched = time.perf_counter_ns()
                device.synchronize()
                end = time.perf_counter_ns()
                if lap:
                    times[name].append(((end - start) / 1e3, (launched - start) / 1e3))
                if lap % every == 0:
                    with device.record() as recording:
                        launch()
                    timeline = recording.timeline
                    if name not in quietest or disturbance_us(timeline) < disturbance_us(quietest[name]):
                        quietest[name] = timeline
            lap += 1
            passed = (time.monotonic() - begin) / seconds if seconds else 1.0
            bar.update(round(100 * min(1.0, lap / (repeats + 1), passed)) - bar.done)
    return {
        name: MeasuredStep(
            *min(times[name]),
            median(total for total, _ in times[name]),
            quietest[name],
        )
        for name in steps
    }
