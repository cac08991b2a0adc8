"""Measured steps: interleaved repeats of one or several ways to run a step, and the quietest of each.

Other work on the machine can only make a repeat slower, so the smallest time says most about the code. Repeats of all
ways are interleaved, so that a disturbance meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from s13lib.device import SoftGPU
from s13lib.errors import require
from s13lib.simulator.timeline import Timeline


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


def measure_steps(
    device: SoftGPU, steps: Mapping[str, Callable[[], None]], repeats: int = 40, recorded: int = 10
) -> dict[str, MeasuredStep]:
    """Measure each of ``steps``, functions that launch a step and return without waiting.

    Args:
        device: where they launch.
        steps: by name.
        repeats: timed rounds, after one that is not counted.
        recorded: further rounds with ``device.record()``, at least 1.
    """
    for name, value in (("repeats", repeats), ("recorded", recorded)):
        require(isinstance(value, int) and value >= 1, name, value, "a whole number of at least 1")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for lap in range(repeats + 1):
        for name, launch in steps.items():
            start = time.perf_counter_ns()
            launch()
            launched = time.perf_counter_ns()
            device.synchronize()
            end = time.perf_counter_ns()
            if lap:
                times[name].append(((end - start) / 1e3, (launched - start) / 1e3))
    timelines: dict[str, list[Timeline]] = {name: [] for name in steps}
    for _ in range(recorded):
        for name, launch in steps.items():
            launch()  # so that the device is awake, as in the timed rounds
            device.synchronize()
            with device.record() as recording:
                launch()
            timelines[name].append(recording.timeline)
    return {
        name: MeasuredStep(
            *min(times[name]),
            median(total for total, _ in times[name]),
            min(timelines[name], key=lambda timeline: timeline.step_us),
        )
        for name in steps
    }
