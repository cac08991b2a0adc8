"""The part of a trace that shows what its verdict says: a picture cannot hold ten thousand kernels."""

from __future__ import annotations

from dataclasses import replace

from s13lib.errors import look_up
from s13lib.figures import Panel
from s13lib.figures.svg import format_us
from s13lib.profiling.analysis import DeviceReport, Submission, TraceReport
from s13lib.profiling.gaps import BOUNDARY_US, IdleGap
from s13lib.simulator import Timeline

AROUND = 9  # kernels and copies on each side of the longest gap: 18 in all, as in the other pictures
GAPS_AROUND = 4  # and no more than so many times the gap's length on each side, or a long kernel would hide it
MOST_DRAWN = 1500  # spans: a file of some 300 kB, and less than half a pixel each
WORDS = {
    "en": {
        "graph": "One graph launch: {host} of CPU, {nodes} kernels, {device} of GPU",
        "later": "{graph}, {us} later",
        "gap": "The longest gap: {us}",
        "host": "{gap}, the CPU is in {name}",
        "stretch": "a stretch of {name}",
    },
    "zh": {
        "graph": "一次 graph 启动：CPU 用时 {host}，{nodes} 个 kernel，GPU 用时 {device}",
        "later": "{graph}，{us} 之后开始",
        "gap": "最长的一次空闲：{us}",
        "host": "{gap}，其间 CPU 在执行 {name}",
        "stretch": "{name} 中的一段",
    },
}


def telling_panel(report: TraceReport, language: str = "en") -> Panel:
    """A stretch of the trace for ``timeline_svg``.

    Where graphs run most kernels, the first whole replay with its launch; else the longest gap with the host operation
    under it and the nine kernels or copies on each side. ``language`` is "en" or "zh".
    """
    words = look_up(WORDS, language, "language")
    replays = [(d, s) for d in report.devices for s in d.submissions if s.is_graph and s.work]
    if replays and sum(s.kernels for _, s in replays) * 2 >= report.device_kernels:
        device, replay = replays[0]
        start_us, end_us = _replay(device, replay)
        title = words["graph"].format(
            host=format_us(replay.call.duration_us),
            nodes=replay.kernels,
            device=format_us(end_us - replay.work[0].start_us),
        )
        if start_us > replay.call.start_us:
            title = words["later"].format(graph=title, us=format_us(replay.queue_delay_us))
    elif report.gaps:
        gap = report.gaps[0]
        device = next(d for d in report.devices if gap in d.gaps)
        start_us, end_us = _around(device, gap)
        title = words["gap"].format(us=format_us(gap.duration_us))
        if under := report.host_operation(gap):
            title = words["host"].format(gap=title, name=under)
    else:
        return Panel(report.trace.name, report.trace.timeline)
    shown = _limited(device.timeline.window(start_us, end_us))
    return Panel(title, replace(shown, provenance=words["stretch"].format(name=report.trace.name)), None)


def _replay(device: DeviceReport, replay: Submission) -> tuple[float, float]:
    """From the launch to the end, or without the launch where it waited for work that is not in the file.

    Drawn with it, the device would look idle while the file does not know what it did.
    """
    first = replay.work[0]
    known = any(s.start_us < replay.call.end_us for s in device.timeline.device)
    waited = not known and replay.queue_delay_us > BOUNDARY_US
    return first.start_us if waited else replay.call.start_us, max(s.end_us for s in replay.work)


def _around(device: DeviceReport, gap: IdleGap) -> tuple[float, float]:
    work = sorted(device.timeline.device, key=lambda s: s.start_us)
    gap_end_us = gap.start_us + gap.duration_us
    after = sum(s.start_us < gap_end_us for s in work)
    shown = work[max(0, after - AROUND) : after + AROUND]
    room_us = GAPS_AROUND * gap.duration_us
    return (
        max(shown[0].start_us, gap.start_us - room_us),
        min(max(s.end_us for s in shown), gap_end_us + room_us),
    )


def _limited(timeline: Timeline) -> Timeline:
    if len(timeline.host) + len(timeline.device) <= MOST_DRAWN:
        return timeline
    spans = sorted((*timeline.host, *timeline.device), key=lambda s: s.start_us)
    return timeline.window(timeline.start_us, spans[MOST_DRAWN].start_us)
