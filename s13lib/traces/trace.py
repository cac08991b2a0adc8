"""Trace: what a trace file holds, one timeline a device, with the host operations around it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from s13lib.errors import InputError
from s13lib.simulator import Timeline
from s13lib.simulator.timeline import Source
from s13lib.traces.host_ops import HostOps


def stream_lane(stream: int) -> str:
    """The lane of a device stream in a recorded timeline."""
    return f"stream {stream}"


@dataclass(frozen=True)
class Trace:
    """One file, read.

    Args:
        name: the file's name.
        source: "recorded", or, for a timeline that this library exported, what that was.
        timelines: device number → its timeline. Times are in µs from the first event that was kept.
        device_names: device number → name, where the file gives one.
        host_ops: everything that the host did, launches included.
        profiler_steps_us: durations of the profiler's steps (``ProfilerStep#…``).
        date: the day of the recording (UTC), where the file tells.
        rank: of a distributed job, where the file tells.
        skipped: events of devices and launch calls that lack a usable time, and are left out.
        exported: whether ``chrome_trace`` wrote the file.
    """

    name: str
    source: Source
    timelines: dict[int, Timeline]
    device_names: dict[int, str] = field(default_factory=dict)
    host_ops: HostOps = field(default_factory=HostOps)
    profiler_steps_us: tuple[float, ...] = ()
    date: str | None = None
    rank: int | None = None
    skipped: int = 0
    exported: bool = False

    @property
    def label(self) -> str:
        """Where the figures come from: "recorded (file)"."""
        return f"{self.source} ({self.name})"

    @property
    def whole(self) -> bool:
        """Whether host and device are here from an idle device on: a step of this library, modelled or measured.

        A profiler's timeline is a part of what ran; it names threads and streams, even where it was exported again.
        """
        spans = (s for t in self.timelines.values() for s in (*t.host, *t.device))
        return self.exported and (self.source != "recorded" or not any(s.lane for s in spans))

    @property
    def timeline(self) -> Timeline:
        """The timeline of the device that worked longest."""
        return max(self.timelines.values(), key=lambda t: t.device_us)

    @property
    def streams(self) -> Counter[str]:
        """Kernels and copies of each stream (``Span.lane``), over all devices."""
        return Counter(s.lane for timeline in self.timelines.values() for s in timeline.device)

    def on_stream(self, stream: int) -> Trace:
        """The same trace with one stream's work, and the launches of that work alone.

        Raises ``InputError``, naming the streams that there are, where nothing ran on it.
        """
        lane, known = stream_lane(stream), self.streams
        if lane not in known:
            there = ", ".join(sorted(filter(None, known), key=lambda name: (len(name), name))) or "no numbered streams"
            raise InputError(f"stream is {stream}: {self.name} has {there}.")
        found = {}
        for device, timeline in self.timelines.items():
            work = tuple(s for s in timeline.device if s.lane == lane)
            caused = {s.correlation for s in work} - {None}
            host = tuple(s for s in timeline.host if s.correlation in caused)
            if work:
                found[device] = Timeline(host, work, timeline.source, f"{timeline.provenance}, {lane}")
        return replace(self, timelines=found)
