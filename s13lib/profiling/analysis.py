"""TraceReport: what a trace says, in figures. Medians, not means; times in µs; shares from 0 to 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from s13lib.errors import InputError
from s13lib.profiling.gaps import REASONS, IdleGap, first_wait, idle_gaps, launch_of
from s13lib.profiling.verdict import CLOCK_SLACK_US, Evidence, Verdict, judge
from s13lib.simulator import Span, Timeline
from s13lib.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """One replay: kernels on its correlation, time of the launch call, device time from first start to last end."""

    name: str
    nodes: int
    host_us: float
    device_us: float
    queue_delay_us: float | None


@dataclass(frozen=True, slots=True)
class Submission:
    """A host call with the device work that it caused."""

    call: Span
    work: tuple[Span, ...]

    @property
    def kernels(self) -> int:
        """Kernels among its work."""
        return sum(not s.kind for s in self.work)

    @property
    def is_graph(self) -> bool:
        """A graph launch: named so by the recording, or, in a model, a launch of several kernels.

        A call of the API says in its name what it launches: several kernels on it are then damage of the file.
        """
        if self.call.kind or "Launch" in self.call.name:
            return self.call.kind == "graph"
        return len({(s.name, s.start_us) for s in self.work if not s.kind}) > 1

    @property
    def queue_delay_us(self) -> float | None:
        """From the end of the call to the start of its first kernel or copy."""
        return self.work[0].start_us - self.call.end_us if self.work else None


class TraceReport:
    """Figures of all devices of a trace together; ``devices`` has them one by one.

    Raises ``InputError`` for a trace without device work.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.devices = tuple(
            DeviceReport(device, timeline, trace.whole) for device, timeline in sorted(trace.timelines.items())
        )
        if not any(timeline.device for timeline in trace.timelines.values()):
            raise InputError(f"{trace.name}: the timeline holds no device events.")

    # ---- device work

    @property
    def device_kernels(self) -> int:
        """Kernels; copies do not count."""
        return sum(self.kernel_counts.values())

    @cached_property
    def kernel_counts(self) -> Counter[str]:
        """How often each kernel ran."""
        return sum((d.timeline.kernel_counts() for d in self.devices), Counter())

    @property
    def device_copies(self) -> int:
        """Copies and fills (memcpy, memset)."""
        return sum(len(d.timeline.device) for d in self.devices) - self.device_kernels

    @property
    def extent_us(self) -> float:
        """From the first start, or the wait before it, to the last end of device work; the sum over devices.

        Copies are work. The wait counts where the device is known to have been idle: see ``gaps.first_wait``.
        """
        return sum(d.extent_us for d in self.devices)

    @property
    def busy_us(self) -> float:
        """Time in which the device worked, overlaps of streams counted once; the sum over devices."""
        return sum(d.timeline.device_us for d in self.devices)

    @property
    def busy_fraction(self) -> float | None:
        """``busy_us`` ÷ ``extent_us``."""
        return self.busy_us / self.extent_us if self.extent_us else None

    # ---- launches

    @cached_property
    def _submissions(self) -> list[Submission]:
        return [s for d in self.devices for s in d.submissions]

    @cached_property
    def _eager(self) -> list[Span]:
        return [s.call for s in self._submissions if not s.call.kind and not s.is_graph]

    @property
    def launch_calls(self) -> int:
        """Calls that launch one kernel."""
        return len(self._eager)

    @property
    def launches_by_name(self) -> dict[str, int]:
        """The same by the API function's name, most frequent first."""
        return dict(Counter(span.name for span in self._eager).most_common())

    @property
    def launch_median_us(self) -> float | None:
        """Median duration of a launch call; None without any."""
        return median(span.duration_us for span in self._eager) if self._eager else None

    @cached_property
    def graphs(self) -> tuple[GraphLaunch, ...]:
        """Each graph launch, in order."""
        return tuple(
            GraphLaunch(s.call.name, s.kernels, s.call.duration_us, _extent(s.work), s.queue_delay_us)
            for s in self._submissions
            if s.is_graph
        )

    @property
    def queue_delay_us(self) -> float | None:
        """Median time from the end of a launch, of a kernel or graph, to the start of its (first) kernel."""
        delays = [s.queue_delay_us for s in self._submissions if s.call.kind != "call" and s.work]
        return median(delays) if delays else None

    # ---- gaps

    @cached_property
    def gaps(self) -> tuple[IdleGap, ...]:
        """Idle stretches between device work, and the wait before the first where it counts; longest first."""
        return tuple(sorted((g for d in self.devices for g in d.gaps), key=lambda g: -g.duration_us))

    @property
    def idle_us(self) -> float:
        """The sum of the gaps."""
        return sum(g.duration_us for g in self.gaps)

    @property
    def idle_us_by_reason(self) -> dict[str, float]:
        """The same by reason (keys of ``gaps.REASONS``)."""
        return {reason: sum(g.duration_us for g in self.gaps if g.reason == reason) for reason in REASONS}

    @property
    def gap_median_us(self) -> float | None:
        """Median gap; None without any."""
        return median(g.duration_us for g in self.gaps) if self.gaps else None

    def host_operation(self, gap: IdleGap) -> str | None:
        """What the host did during a gap."""
        return gap.host_operation(self.trace.host_ops)

    # ---- step and verdict

    @property
    def step_us(self) -> float:
        """Median of the profiler's steps, or from the first start to the last end of the host's and device's spans."""
        steps = self.trace.profiler_steps_us
        return median(steps) if steps else max(d.timeline.step_us for d in self.devices)

    @property
    def step_from(self) -> str:
        """What ``step_us`` is."""
        count = len(self.trace.profiler_steps_us)
        return f"median of {count} profiler step{'s' * (count > 1)}" if count else "first start to last end"

    @cached_property
    def verdict(self) -> Verdict:
        """What bounds it, why, and what would help."""
        extent = self.extent_us or 1.0
        pause = next((g for g in self.gaps if g.reason == "pause"), None)
        graphs = {id(s.call) for s in self._submissions if s.is_graph}
        late = [g for g in self.gaps if g.reason == "launch"]
        eager = [g.duration_us for g in late if not g.launch.kind and id(g.launch) not in graphs]
        replays = [g.duration_us for g in late if id(g.launch) in graphs]
        unseen_us = max(d.unseen_us for d in self.devices)
        worked = [s for s in self._submissions if s.work]
        return judge(
            Evidence(
                kernels=self.device_kernels,
                extent_us=self.extent_us,
                busy=self.busy_us / extent,
                idle={reason: us / extent for reason, us in self.idle_us_by_reason.items()},
                idle_before_eager=sum(eager) / extent,
                idle_before_replays=sum(replays) / extent,
                starved=sum(d.starved for d in self.devices) / max(1, sum(d.could_starve for d in self.devices)),
                early=_share(s.work[0].start_us < s.call.start_us - CLOCK_SLACK_US for s in worked),
                queue_delay_us=self.queue_delay_us,
                long_pause=self.host_operation(pause) if pause else None,
                host_larger=self.trace.timeline.bottleneck == "host" if self.trace.whole else None,
                unseen_us=unseen_us,
            )
        )


class DeviceReport:
    """One device's timeline, with the figures that ``TraceReport`` adds up."""

    def __init__(self, device: int, timeline: Timeline, whole: bool = False) -> None:
        self.device, self.timeline = device, timeline
        self.first_wait = first_wait(timeline, whole)
        between = tuple(idle_gaps(timeline))
        self.gaps = between if self.first_wait is None else (self.first_wait, *between)
        self.extent_us = _extent(timeline.device) + (self.first_wait.duration_us if self.first_wait else 0.0)
        self.submissions = _submissions(timeline)

    @property
    def busy_fraction(self) -> float | None:
        """Share of ``extent_us`` in which the device worked."""
        return self.timeline.device_us / self.extent_us if self.extent_us else None

    @property
    def streams(self) -> dict[str, int]:
        """Kernels and copies of each stream, most first."""
        return dict(Counter(s.lane for s in self.timeline.device).most_common())

    @property
    def starved(self) -> int:
        """Submissions that found the device idle, less the first: it always does."""
        return sum(g.for_host for g in self.gaps if g is not self.first_wait)

    @property
    def could_starve(self) -> int:
        """Submissions with work, less the one that comes first."""
        first = min(self.timeline.device, key=lambda s: s.start_us, default=None)
        return sum(bool(s.work) and s.work[0] is not first for s in self.submissions)

    @property
    def unseen_us(self) -> float:
        """Time from the first work's launch to that work, in which the file does not tell what the device did."""
        first = min(self.timeline.device, key=lambda s: s.start_us, default=None)
        launch = launch_of(self.timeline, first) if first and self.first_wait is None else None
        return max(0.0, first.start_us - launch.end_us) if launch else 0.0


def _submissions(timeline: Timeline) -> list[Submission]:
    work: dict[int, list[Span]] = {}
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        if span.correlation is not None:
            work.setdefault(span.correlation, []).append(span)
    # A correlation that occurs twice keeps its work with the first call.
    return [
        Submission(call, tuple(work.pop(call.correlation, ()) if call.correlation is not None else ()))
        for call in sorted(timeline.host, key=lambda s: s.start_us)
    ]


def _extent(spans: Sequence[Span]) -> float:
    return max((s.end_us for s in spans), default=0.0) - min((s.start_us for s in spans), default=0.0)


def _share(flags: object) -> float:
    flags = list(flags)
    return sum(flags) / len(flags) if flags else 0.0
