"""Idle stretches of a device, each with the reason for it: late launch, pause of the host, kernel boundary, …"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from s13lib.simulator import Span, Timeline
from s13lib.traces.host_ops import HostOps

# Time stamps have whole nanoseconds, and as floating-point microseconds since a far base they are off by up to 1 ns:
# back-to-back kernels then look 0.001 µs apart.
CLOCK_STEP_US = 0.01
# A kernel boundary takes 1 to 3 µs on today's GPUs and has a median of 2 µs on a V100. With the work already queued,
# an idle stretch beyond 10 µs is no boundary: the device waits for another stream, another device, or an event.
BOUNDARY_US = 10.0
# An operator of PyTorch costs 5 to 25 µs of CPU, and some hundred under a profiler that records stacks. A host that
# launches nothing for a millisecond is busy with something else: loading a batch, waiting for a result.
PAUSE_US = 1000.0

REASONS = {
    "launch": "the host had not launched the next kernel yet",
    "pause": f"the host launched nothing for more than {PAUSE_US / 1000:g} ms",
    "boundary": f"the next kernel was queued; up to {BOUNDARY_US:g} µs between two kernels",
    "blocked": "the next kernel was queued, and waited for another stream, device or event",
    "unknown": "the launch of the next kernel is not in the file",
}


@dataclass(frozen=True, slots=True)
class IdleGap:
    """An idle stretch between two pieces of work of one device, all its streams together, in µs.

    ``ended_by`` is the kernel or copy that ended it, ``launch`` the host call that submitted that, ``reason`` a key of
    ``REASONS``.
    """

    start_us: float
    duration_us: float
    ended_by: Span
    launch: Span | None
    reason: str

    @property
    def for_host(self) -> bool:
        """Whether the device waited for the host."""
        return self.reason in ("launch", "pause")

    def host_operation(self, ops: HostOps) -> str | None:
        """What the host did meanwhile, on the thread that launched next: see ``HostOps.under``."""
        end_us = self.start_us + self.duration_us
        return ops.under(self.start_us, end_us, self.launch.lane if self.launch else None)


def idle_gaps(timeline: Timeline) -> Iterator[IdleGap]:
    """The gaps between the first start and the last end of the device's work, in order of time.

    Modelled and measured timelines have them too; their launches are known, so nothing is "unknown".
    """
    launches: dict[int | None, Span] = {}
    for span in timeline.host:
        launches.setdefault(span.correlation, span)
    launches.pop(None, None)
    started: set[int | None] = set()
    idle_since: float | None = None
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        if idle_since is not None and span.start_us - idle_since > CLOCK_STEP_US:
            launch = launches.get(span.correlation)
            reason = _reason(idle_since, span.start_us, launch, is_first=span.correlation not in started)
            yield IdleGap(idle_since, span.start_us - idle_since, span, launch, reason)
        started.add(span.correlation)
        idle_since = span.end_us if idle_since is None else max(idle_since, span.end_us)


def first_wait(timeline: Timeline, whole: bool) -> IdleGap | None:
    """The wait of the device before its first work, as far as the timeline shows that it was idle then.

    A ``whole`` timeline begins with an idle device: it waited from the first host span on. In a profiler's file the
    device may have had work that is not recorded; it was certainly free where its first work followed its launch like
    one kernel the other, and then the wait runs from the start of that launch.
    """
    first = min(timeline.device, key=lambda s: s.start_us, default=None)
    if first is None:
        return None
    launch = launch_of(timeline, first)
    if whole:
        start_us = timeline.start_us
    elif launch is not None and first.start_us - launch.end_us <= BOUNDARY_US:
        start_us = launch.start_us
    else:
        return None
    if first.start_us - start_us <= CLOCK_STEP_US:
        return None
    reason = _reason(start_us, first.start_us, launch, is_first=True)
    # The host is at this very launch, however long it takes: that is no pause.
    reason = "launch" if reason == "pause" and launch.start_us - start_us <= PAUSE_US else reason
    return IdleGap(start_us, first.start_us - start_us, first, launch, reason)


def launch_of(timeline: Timeline, work: Span) -> Span | None:
    """The host call that submitted a kernel or copy; None where the timeline lacks it."""
    if work.correlation is None:
        return None
    return next((s for s in timeline.host if s.correlation == work.correlation), None)


def _reason(start_us: float, end_us: float, launch: Span | None, is_first: bool) -> str:
    duration_us = end_us - start_us
    if launch is None:
        return "unknown"
    # How far into the gap the launch returned. A kernel may start before its launch returns, hence the min. The later
    # nodes of a graph wait for no launch, even where they start while it still runs.
    late_us = min(launch.end_us, end_us) - start_us if is_first else 0.0
    if late_us > 0 and (late_us >= duration_us / 2 or duration_us - late_us <= BOUNDARY_US):
        return "launch" if duration_us <= PAUSE_US else "pause"
    return "boundary" if duration_us <= BOUNDARY_US else "blocked"
