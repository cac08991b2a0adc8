"""The part of a trace that shows what its verdict says: a picture cannot hold ten thousand kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from s13lib.errors import look_up
from s13lib.figures import Panel, svg, timeline_svg
from s13lib.figures.svg import format_us
from s13lib.profiling.analysis import DeviceReport, Submission, TraceReport
from s13lib.profiling.gaps import BOUNDARY_US, CLOCK_STEP_US, IdleGap
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
        "part": "{part} of {all} kernels, {us} of {whole}. {title}",
        "first": "First {part}",
        "stream": "{name}; where its {count} streams overlap, {stream} alone",
        "copies": "GPU copies or fills memory",
        "before": "Before",
        "after": "After",
        "scales": "{which}, own time scale: {title}",
    },
    "zh": {
        "graph": "一次 graph 启动：CPU 用时 {host}，{nodes} 个 kernel，GPU 用时 {device}",
        "later": "{graph}，{us} 之后开始",
        "gap": "最长的一次空闲：{us}",
        "host": "{gap}，其间 CPU 在执行 {name}",
        "stretch": "{name} 中的一段",
        "part": "共 {all} 个 kernel、{whole}；图中：{part} 个、{us}。{title}",
        "first": "前 {part}",
        "stream": "{name}；{count} 个 stream 重叠处只画 {stream}",
        "copies": "GPU：复制或填充内存",
        "before": "之前",
        "after": "之后",
        "scales": "{which}，时间比例不同。{title}",
    },
}


COPY_FILL = svg.GREEN
HEADER = 22  # pixels: a line of the legend


def telling_svg(reports: Sequence[TraceReport], language: str = "en") -> str:
    """The telling panels of one report, or of two that are compared, the earlier one first.

    Two share a time scale where both show all of their timeline; else a length would mean another thing in each, and
    each has its own scale, said in its title. Copies have a colour of their own.
    """
    words = look_up(WORDS, language, "language")
    panels = [telling_panel(report, language) for report in reports]
    whole = all(_shows_all(panel, report) for panel, report in zip(panels, reports, strict=True))
    if whole or len(panels) == 1:
        pictures = [timeline_svg(panels, language)]
    else:
        panels = [
            replace(panel, title=words["scales"].format(which=words[which], title=panel.title))
            for which, panel in zip(("before", "after"), panels, strict=True)
        ]
        pictures = [timeline_svg([panel], language) for panel in panels]
    copies = {s.name for panel in panels for s in panel.timeline.device if s.kind}
    if not copies and len(pictures) == 1:
        return pictures[0]
    body, y, width = "", 0.0, 0.0
    if copies:
        body += svg.element("rect", x=12, y=8, width=12, height=12, fill=COPY_FILL)
        body += svg.text(words["copies"], 30, 19, 12)
        y = float(HEADER)
    for picture in pictures:
        for name in copies:
            hover = f"<title>{escape(name)}: "
            picture = picture.replace(f'fill="{svg.ORANGE}">{hover}', f'fill="{COPY_FILL}">{hover}')
        head = picture[: picture.index(">")]
        body += picture.replace("<svg ", f'<svg y="{y:g}" ', 1)
        y += float(head.split(' height="')[1].split('"')[0])
        width = max(width, float(head.split(' width="')[1].split('"')[0]))
    return svg.document(body, width, y, " / ".join(panel.title for panel in panels))


def _shows_all(panel: Panel, report: TraceReport) -> bool:
    return len(panel.timeline.device) == sum(len(d.timeline.device) for d in report.devices)


def telling_panel(report: TraceReport, language: str = "en") -> Panel:
    """A stretch of the trace for ``timeline_svg``.

    Where graphs run most kernels, the first whole replay with its launch; else the longest gap with the host operation
    under it and the nine kernels or copies on each side. The title says how much of the whole that is. Where
    streams overlap, the busiest is drawn. ``language`` is "en" or "zh".
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
        device = max(report.devices, key=lambda d: d.timeline.device_us)
        start_us, end_us = device.timeline.start_us, device.timeline.end_us
        title = report.trace.name
    shown = _limited(device.timeline.window(start_us, end_us))
    name = words["stretch"].format(name=report.trace.name)
    if (lanes := _overlapping_streams(shown)) > 1:
        shown, stream = _busiest_stream(shown)
        name = words["stream"].format(name=name, stream=stream, count=lanes)
    everything = len(shown.device) == len(device.timeline.device) and len(shown.host) == len(device.timeline.host)
    if everything:
        name = name if lanes > 1 else device.timeline.provenance
    else:
        title = _part(device, shown, title, words)
    return Panel(title, replace(shown, provenance=name), None, stretch=not everything)


def _part(device: DeviceReport, shown: Timeline, title: str, words: dict[str, str]) -> str:
    """The title, with how much of the whole is drawn."""
    whole = device.timeline
    part = f"{_kernels(shown):,}"
    if min(whole.device, key=lambda s: s.start_us).start_us >= shown.start_us:
        part = words["first"].format(part=part)
    us, whole_us = format_us(shown.step_us), format_us(whole.step_us)
    if "{us} of" in words["part"] and us.split()[-1] == whole_us.split()[-1]:
        us = us.split()[0]  # "2.07 of 114.69 ms"
    return words["part"].format(part=part, all=f"{_kernels(whole):,}", us=us, whole=whole_us, title=title)


def _kernels(timeline: Timeline) -> int:
    return sum(timeline.kernel_counts().values())


def _overlapping_streams(timeline: Timeline) -> int:
    """How many streams there are, where they overlap; else 0."""
    lanes = {s.lane for s in timeline.device}
    both = sum(s.duration_us for s in timeline.device) > timeline.device_us * (1 + 1e-9) + CLOCK_STEP_US
    return len(lanes) if both else 0


def _busiest_stream(timeline: Timeline) -> tuple[Timeline, str]:
    """One stream's work, and of the others' what does not overlap it, lest a gap be drawn where there was none.

    The host's calls that submitted what is left out are left out too.
    """
    busy: dict[str, float] = {}
    for span in timeline.device:
        busy[span.lane] = busy.get(span.lane, 0.0) + span.duration_us
    stream = max(busy, key=busy.get)
    kept = [s for s in timeline.device if s.lane == stream]
    for span in timeline.device:
        beside = all(span.end_us <= s.start_us or s.end_us <= span.start_us for s in kept)
        if span.lane != stream and beside:
            kept.append(span)
    kept.sort(key=lambda s: s.start_us)
    hidden = {s.correlation for s in timeline.device} - {s.correlation for s in kept}
    host = tuple(s for s in timeline.host if s.correlation is None or s.correlation not in hidden)
    return replace(timeline, host=host, device=tuple(kept)), stream


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
        max(min(shown[0].start_us, gap.start_us), gap.start_us - room_us),
        min(max(s.end_us for s in shown), gap_end_us + room_us),
    )


def _limited(timeline: Timeline) -> Timeline:
    if len(timeline.host) + len(timeline.device) <= MOST_DRAWN:
        return timeline
    spans = sorted((*timeline.host, *timeline.device), key=lambda s: s.start_us)
    return timeline.window(timeline.start_us, spans[MOST_DRAWN].start_us)
