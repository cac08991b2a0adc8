"""Timeline → SVG: a host lane and a device lane on one time axis, idle stretches shaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s13lib.errors import look_up, require
from s13lib.figures import svg
from s13lib.simulator.timeline import Gap, Span, Timeline

LABELS = {
    "en": {
        "host": "CPU",
        "device": "GPU",
        "launch": "CPU builds and submits a launch",
        "kernel": "GPU runs a kernel",
        "idle": "GPU idle",
        "step": "step",
        "stretch": "this stretch",
        "busy": "GPU busy",
        "wait": "waits for",
        "first": "the first {} of {} kernels are drawn",
        "and": ", ",
        "comma": "; ",
        "colon": ": ",
        "modelled": "modelled",
        "measured": "measured",
        "recorded": "recorded",
    },
    "zh": {
        "host": "CPU",
        "device": "GPU",
        "launch": "CPU：构造并提交一次启动",
        "kernel": "GPU：执行 kernel",
        "idle": "GPU 空闲",
        "step": "每步",
        "stretch": "这一段",
        "busy": "GPU 忙碌",
        "wait": "在等",
        "first": "图中为 {1} 个 kernel 的前 {0} 个",
        "and": "，",
        "comma": "；",
        "colon": "：",
        "modelled": "模型推算",
        "measured": "实测",
        "recorded": "历史记录",
    },
}
LANE_LABEL_WIDTH = 44
MARGIN = 12
LANE_HEIGHT = 30
LANE_GAP = 8
HEAD_HEIGHT, LINE_HEIGHT = 56, 15  # a panel's title, read-out and a line of provenance; each further line
AXIS_HEIGHT = 34
LEGEND_HEIGHT = 22
MINIMUM_WIDTH = 480


@dataclass(frozen=True)
class Panel:
    """One timeline of a picture.

    ``launches`` limits what is drawn, not the read-out, to the first so many launches. ``stretch`` says that the
    timeline is a part of a longer one, so that its length is not called a step.
    """

    title: str
    timeline: Timeline
    launches: int | None = 18
    stretch: bool = False


def timeline_svg(panels: Sequence[Panel], language: str = "en", width: int = 700) -> str:
    """Draw panels one under the other on a common time scale.

    Each panel shows its title, a read-out of the whole timeline (step time, device busy, where the numbers come
    from), the two lanes, and idle stretches of the device. Every box carries a hover title.

    Args:
        panels: at least one.
        language: "en" or "zh".
        width: pixels, at least 480.
    """
    require(len(panels) > 0, "panels", panels, "at least one panel")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(LABELS, language, "language")
    shown = [p.timeline.first(p.launches) if p.launches else p.timeline for p in panels]
    span_us = max(max(t.step_us for t in shown), 1e-9)
    left, right = MARGIN + LANE_LABEL_WIDTH, width - MARGIN
    scale = (right - left) / span_us

    body, y = _legend(words, width)
    for panel, timeline in zip(panels, shown, strict=True):
        head, head_height = _panel_head(panel, words, y, width)
        body += head
        y += head_height
        body += _lanes(timeline, words, left, right, y, scale)
        y += 2 * LANE_HEIGHT + LANE_GAP + 12
    body += _axis(span_us, left, y, scale)
    height = y + AXIS_HEIGHT
    summary = "; ".join(f"{p.title}: {_read_out(p, words)}, {_provenance(p.timeline, words)}" for p in panels)
    return svg.document(body, width, height, " / ".join(p.title for p in panels), summary)


def _read_out(panel: Panel, words: dict[str, str]) -> str:
    timeline = panel.timeline
    what = words["stretch" if panel.stretch else "step"]
    text = f"{what} {svg.format_us(timeline.step_us)}{words['and']}{words['busy']} {timeline.utilization:.0%}"
    total = max(len(timeline.host), len(timeline.device))
    if panel.launches and panel.launches < total:
        text += words["comma"] + words["first"].format(panel.launches, total)
    return text


def _provenance(timeline: Timeline, words: dict[str, str]) -> str:
    return f"{words[timeline.source]}{words['colon']}{timeline.provenance}"


def _panel_head(panel: Panel, words: dict[str, str], y: float, width: float) -> tuple[str, float]:
    """Title, read-out and provenance, the last on as many lines as it needs, and the height that they take."""
    room = width - 2 * MARGIN
    out = svg.text(svg.fit(panel.title, room, 14), MARGIN, y + 16, 14, font_weight="600")
    out += svg.text(svg.fit(_read_out(panel, words), room, 12), MARGIN, y + 33, 12)
    lines = svg.wrap(_provenance(panel.timeline, words), room, 11)
    for number, line in enumerate(lines):
        out += svg.text(line, MARGIN, y + 48 + number * LINE_HEIGHT, 11, svg.MUTED)
    return out, HEAD_HEIGHT + (len(lines) - 1) * LINE_HEIGHT


def _lanes(timeline: Timeline, words: dict[str, str], left: float, right: float, y: float, scale: float) -> str:
    origin = timeline.start_us

    def place(start_us: float, duration_us: float) -> tuple[float, float]:
        x = left + (start_us - origin) * scale
        return x, min(duration_us * scale, right - x)

    device_y = y + LANE_HEIGHT + LANE_GAP
    out = svg.text(words["host"], MARGIN, y + LANE_HEIGHT * 0.65, 12) + svg.text(
        words["device"], MARGIN, device_y + LANE_HEIGHT * 0.65, 12
    )
    out += "".join(_box(place(s.start_us, s.duration_us), y, svg.BLUE, _hover(s)) for s in timeline.host)
    out += "".join(
        _box(place(g.start_us, g.duration_us), device_y, svg.IDLE, _hover_gap(g, words)) for g in timeline.gaps
    )
    out += "".join(_box(place(s.start_us, s.duration_us), device_y, svg.ORANGE, _hover(s)) for s in timeline.device)
    return out


def _box(place: tuple[float, float], y: float, fill: str, hover: str) -> str:
    x, width = place
    seam = min(1.0, 0.25 * width)  # a sliver of white tells neighbours apart
    return svg.element(
        "rect",
        svg.element("title", svg.escape(hover)),
        x=x,
        y=float(y),
        width=max(width - seam, 0.2),
        height=LANE_HEIGHT,
        fill=fill,
    )


def _hover(span: Span) -> str:
    return (
        f"{span.name}: {svg.format_us(span.duration_us)}, {svg.format_us(span.start_us)} → {svg.format_us(span.end_us)}"
    )


def _hover_gap(gap: Gap, words: dict[str, str]) -> str:
    return f"{words['idle']} {svg.format_us(gap.duration_us)}{words['and']}{words['wait']} {gap.before}"


def _axis(span_us: float, left: float, y: float, scale: float) -> str:
    end = left + span_us * scale
    out = svg.element("line", x1=float(left), y1=float(y), x2=end, y2=float(y), stroke=svg.MUTED)
    for tick in svg.round_ticks(0.0, span_us):
        x = left + tick * scale
        out += svg.element("line", x1=x, y1=float(y), x2=x, y2=float(y + 5), stroke=svg.MUTED)
        near_end = x > end - 24
        anchor = "end" if near_end else "middle"
        out += svg.text(f"{tick:g}", end if near_end else x, y + 18, 11, svg.MUTED, text_anchor=anchor)
    return out + svg.text("µs", MARGIN, y + 18, 11, svg.MUTED)


def _legend(words: dict[str, str], width: float) -> tuple[str, float]:
    """The legend, wrapped to the picture's width, and the height that it took."""
    out, x, y = "", float(MARGIN), 8.0
    for key, fill in (("launch", svg.BLUE), ("kernel", svg.ORANGE), ("idle", svg.IDLE)):
        label_width = svg.text_width(words[key], 12)
        if x > MARGIN and x + 18 + label_width > width - MARGIN:
            x, y = float(MARGIN), y + LEGEND_HEIGHT
        out += svg.element("rect", x=x, y=y, width=12, height=12, fill=fill)
        out += svg.text(words[key], x + 18, y + 11, 12)
        x += 18 + label_width + 18
    return out, y + LEGEND_HEIGHT
