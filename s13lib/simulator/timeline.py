"""Timeline: what host and device did, whatever the source (modelled, measured or recorded)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

Source = Literal["modelled", "measured", "recorded"]


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work: a launch on the host or a kernel on the device.

    ``correlation`` joins a launch to the kernels that it caused: one for an eager launch, a graph's all for a replay.
    ``kind`` is "" for what is usual: a launch on the host, a kernel on the device. Recordings also know "graph" (its
    launch) and "call" (no launch) on the host, "memcpy" and "memset" on the device. ``lane`` names the host thread or
    the device stream where the source does.
    """

    name: str
    start_us: float
    duration_us: float
    correlation: int | None = None
    kind: str = ""
    lane: str = ""

    @property
    def end_us(self) -> float:
        """End in microseconds, on the timeline's clock."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which the device had nothing to run. ``before`` names the kernel that ended it."""

    start_us: float
    duration_us: float
    before: str


@dataclass(frozen=True)
class Timeline:
    """Host spans and device spans in microseconds, each in order of start.

    Args:
        host: launches and other host work.
        device: kernels (and copies) of one device, whatever their streams.
        source: where the times come from: modelled (constants), measured (a device here), recorded (a file).
        provenance: the constants, the device, or the file and date, in words.
    """

    host: tuple[Span, ...]
    device: tuple[Span, ...]
    source: Source
    provenance: str
    start_us: float = field(init=False)
    end_us: float = field(init=False)

    def __post_init__(self) -> None:
        spans = self.host + self.device
        object.__setattr__(self, "start_us", min((s.start_us for s in spans), default=0.0))
        object.__setattr__(self, "end_us", max((s.end_us for s in spans), default=0.0))

    def __deepcopy__(self, memo: dict) -> Timeline:
        """Itself: it is frozen, and so are its spans, of which a trace may have a hundred thousand."""
        return self

    @property
    def step_us(self) -> float:
        """From the first start to the last end."""
        return self.end_us - self.start_us

    @property
    def host_us(self) -> float:
        """Time that the host spent on launches."""
        return sum(s.duration_us for s in self.host)

    @property
    def device_us(self) -> float:
        """Time that the device spent in kernels. Overlapping kernels count once."""
        return sum(end - start for start, end, _ in _busy_stretches(self.device))

    @property
    def utilization(self) -> float:
        """Share of the step in which the device was busy, 0 to 1."""
        return self.device_us / self.step_us if self.step_us else 0.0

    @property
    def bottleneck(self) -> Literal["host", "device"]:
        """The larger of the two totals: the only one worth shortening. At a tie (to rounding) the device."""
        return "host" if self.host_us > self.device_us * (1 + 1e-9) else "device"

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Idle stretches of the device, the wait for the first kernel included, in order of time."""
        found, idle_since = [], self.start_us
        for start, end, name in _busy_stretches(self.device):
            if start > idle_since:
                found.append(Gap(idle_since, start - idle_since, name))
            idle_since = end
        return tuple(found)

    @property
    def median_launch_us(self) -> float:
        """Median duration of a host span, 0 where there is none."""
        return median(s.duration_us for s in self.host) if self.host else 0.0

    def kernel_counts(self) -> Counter[str]:
        """How often each kernel ran; copies do not count."""
        return Counter(s.name for s in self.device if not s.kind)

    def first(self, launches: int) -> Timeline:
        """The first ``launches`` host spans and the kernels that they caused (at most ``launches`` of those)."""
        host = self.host[:launches]
        caused = {s.correlation for s in host}
        device = [s for s in self.device if s.correlation in caused]
        return Timeline(host, tuple(device[:launches]), self.source, self.provenance)

    def window(self, start_us: float, end_us: float) -> Timeline:
        """What happened between two times, spans cut at its ends."""

        def inside(spans: tuple[Span, ...]) -> tuple[Span, ...]:
            return tuple(_cut(s, start_us, end_us) for s in spans if s.end_us > start_us and s.start_us < end_us)

        return Timeline(inside(self.host), inside(self.device), self.source, self.provenance)


def _cut(span: Span, start_us: float, end_us: float) -> Span:
    start, end = max(span.start_us, start_us), min(span.end_us, end_us)
    whole = (start, end) == (span.start_us, span.end_us)
    return span if whole else replace(span, start_us=start, duration_us=end - start)


def _busy_stretches(spans: tuple[Span, ...]) -> list[tuple[float, float, str]]:
    """Merge overlapping or touching spans into (start, end, name of the first) stretches."""
    merged: list[tuple[float, float, str]] = []
    for span in sorted(spans, key=lambda s: s.start_us):
        if merged and span.start_us <= merged[-1][1]:
            start, end, name = merged[-1]
            merged[-1] = (start, max(end, span.end_us), name)
        else:
            merged.append((span.start_us, span.end_us, span.name))
    return merged
