"""The launch recurrence: one host submits kernels through a bounded queue to one device that runs them in order.

    c_i = max(c_{i-1}, s_{i-Q}) + L_i       the host is done with launch i; it waits while Q launches are queued
    s_i = max(c_i + latency, e_{i-1} + gap)  kernel i starts
    e_i = s_i + d_i                          kernel i ends

Without back-pressure this is a two-machine permutation flow shop (Johnson, 1954).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from s13lib.errors import require, require_whole

CUDA_QUEUE_DEPTH = 1024
MOST_US = 1_000_000  # a second for one launch: larger numbers are typing errors


@dataclass(frozen=True)
class LaunchCosts:
    """What launching costs, in microseconds.

    Args:
        launch_us: host time of one eager launch.
        queue_depth: launches that may wait before the host has to.
        latency_us: from the end of a launch to the earliest start of its kernel.
        gap_us: device time between two eager kernels, beyond what the kernels' own times hold.
        graph_base_us: host time of a graph replay, whatever its size.
        graph_node_us: further host time of a replay for each node.
        graph_gap_us: device time between two nodes of a graph.
    """

    launch_us: float = 6.0
    queue_depth: int = CUDA_QUEUE_DEPTH
    latency_us: float = 0.0
    gap_us: float = 0.0
    graph_base_us: float = 10.0
    graph_node_us: float = 0.0
    graph_gap_us: float = 0.0

    def __post_init__(self) -> None:
        require_whole("queue_depth", self.queue_depth, 1, 1_000_000)
        for f in fields(self):
            if f.name != "queue_depth":
                value = getattr(self, f.name)
                require(0 <= value <= MOST_US, f.name, value, f"from 0 to {MOST_US:,}")

    def replay_us(self, nodes: int) -> float:
        """Host time of one replay of a graph with ``nodes`` nodes."""
        return self.graph_base_us + self.graph_node_us * nodes


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """When launch i held the host, and when its kernel ran: microseconds, one entry a launch."""

    host_start_us: tuple[float, ...]
    host_end_us: tuple[float, ...]
    device_start_us: tuple[float, ...]
    device_end_us: tuple[float, ...]


def launch_times(
    launch_us: Sequence[float],
    kernel_us: Sequence[float],
    queue_depth: int = CUDA_QUEUE_DEPTH,
    latency_us: float = 0.0,
    gap_us: float = 0.0,
) -> LaunchTimes:
    """Run the recurrence of this module over launches of ``launch_us[i]`` and kernels of ``kernel_us[i]``.

    The gap stands between two kernels, not before the first. Everything starts at time 0.
    """
    require(len(launch_us) == len(kernel_us), "kernel_us", len(kernel_us), f"as long as launch_us ({len(launch_us)})")
    require(queue_depth >= 1, "queue_depth", queue_depth, "at least 1")
    host_start: list[float] = []
    host_end: list[float] = []
    start: list[float] = []
    end: list[float] = []
    for i, (cost, duration) in enumerate(zip(launch_us, kernel_us, strict=True)):
        ready = host_end[-1] if i else 0.0
        if i >= queue_depth:
            ready = max(ready, start[i - queue_depth])
        host_start.append(ready)
        host_end.append(ready + cost)
        start.append(max(host_end[-1] + latency_us, end[-1] + gap_us) if i else host_end[-1] + latency_us)
        end.append(start[-1] + duration)
    return LaunchTimes(tuple(host_start), tuple(host_end), tuple(start), tuple(end))


def closed_form_us(
    launch_us: Sequence[float], kernel_us: Sequence[float], latency_us: float = 0.0, gap_us: float = 0.0
) -> float:
    """Time of the whole sequence when the queue never fills (at most ``queue_depth`` launches).

    latency + max over k of (launches up to k + kernels from k on + the gaps after k). 0 for an empty sequence.
    """
    require(len(launch_us) == len(kernel_us), "kernel_us", len(kernel_us), f"as long as launch_us ({len(launch_us)})")
    before, after = 0.0, sum(kernel_us)
    worst = 0.0
    for k, (cost, duration) in enumerate(zip(launch_us, kernel_us, strict=True)):
        before += cost
        worst = max(worst, before + after + (len(kernel_us) - 1 - k) * gap_us)
        after -= duration
    return latency_us + worst if kernel_us else 0.0
