"""Traffic and a layout → SVG: the rows that each running batch size costs, captured sizes marked, padding hatched."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from s13lib.errors import look_up, require
from s13lib.figures import svg
from s13lib.figures.gauges import MINIMUM_WIDTH, wrap
from s13lib.figures.hatch import hatch

WORDS = {
    "en": {
        "real": "rows of requests",
        "padding": "padding rows",
        "eager": "eager: above the largest size",
        "size": "captured size",
        "axis": "running batch size n; the height of a bar: rows computed in all steps of that size",
        "share": "{sizes} sizes, {padding:.1%} of the rows are padding",
        "one": "1 size, {padding:.1%} of the rows are padding",
        "range": "n = {0} to {1}, captured size {2}: {3:.1%} of the steps, {4:.1%} of their rows are padding",
        "eager_range": "n = {0} to {1}, above every captured size: {2:.1%} of the steps, eager",
        "beyond": "and {} →",
        "join": "; ",
    },
    "zh": {
        "real": "请求的行",
        "padding": "补齐的行",
        "eager": "eager：超过最大尺寸",
        "size": "捕获尺寸",
        "axis": "正在运行的 batch 大小 n；柱高：该大小的所有步共计算的行数",
        "share": "{sizes} 个尺寸，补齐占 {padding:.1%} 的行",
        "one": "1 个尺寸，补齐占 {padding:.1%} 的行",
        "range": "n = {0} 到 {1}，捕获尺寸 {2}：占 {3:.1%} 的步，其中 {4:.1%} 的行是补齐",
        "eager_range": "n = {0} 到 {1}，超过所有捕获尺寸：占 {2:.1%} 的步，走 eager",
        "beyond": "还有 {} →",
        "join": "；",
    },
}
MARGIN = 12
HEAD_HEIGHT, BARS_HEIGHT, MARKS_HEIGHT, AXIS_HEIGHT, LEGEND_HEIGHT = 26, 110, 30, 44, 22
LINE_HEIGHT = 16
MOST_BARS = 320


@dataclass(frozen=True)
class LayoutPanel:
    """One layout of a picture: what to call it, and its captured sizes, in any order."""

    title: str
    sizes: Sequence[int]


@dataclass(frozen=True)
class _Part:
    """Batch sizes first … last, served by one captured size (None: eager), and what they cost."""

    first: int
    last: int
    size: int | None
    steps: int
    real: int
    padding: int


def layout_svg(
    counts: Sequence[int], panels: Sequence[LayoutPanel], language: str = "en", width: int = 700, origin: str = ""
) -> str:
    """Draw what one or more layouts make of the same traffic, one under the other on common scales.

    Heights are rows, not steps, so that areas are shares of the work: the hatched share of a panel is its padding.

    Args:
        counts: steps at each running batch size; ``counts[n]`` of size n, ``counts[0]`` is not looked at.
        panels: the layouts.
        language: "en" or "zh".
        width: pixels, at least 480.
        origin: where the traffic comes from, for the line below the axis.
    """
    steps = [0, *(int(count) for count in counts[1:])]
    require(any(steps), "counts", "all zero", "steps at one batch size at least")
    require(len(panels) > 0, "panels", panels, "at least one panel")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    words = look_up(WORDS, language, "language")
    layouts = [sorted(set(panel.sizes)) for panel in panels]
    largest = max(n for n, count in enumerate(steps) if count)
    reach = largest + max(1, largest // 16)  # the axis ends a little beyond the traffic
    group = -(-reach // MOST_BARS)
    columns = [[_column(steps, sizes, first, group) for first in range(1, reach + 1, group)] for sizes in layouts]
    tallest = max(real + padding + eager for of_panel in columns for real, padding, eager in of_panel)
    left, right = float(MARGIN), float(width - MARGIN)
    per_n = (right - left) / reach
    scale = BARS_HEIGHT / tallest

    pattern, hatched = hatch(svg.ORANGE, svg.PAPER)
    eager_drawn = any(size < largest for size in (sizes[-1] for sizes in layouts))
    body, y = _legend(words, hatched, eager_drawn, width)
    body, summary = pattern + body, []
    for panel, sizes, bars in zip(panels, layouts, columns, strict=True):
        parts = _parts(steps, sizes)
        real, padding = sum(p.real for p in parts), sum(p.padding for p in parts)
        read_out = words["share" if len(sizes) > 1 else "one"].format(
            sizes=len(sizes), padding=padding / (real + padding)
        )
        summary.append(f"{panel.title}: {read_out}")
        body += _head(panel.title, read_out, y, width)
        base = y + HEAD_HEIGHT + BARS_HEIGHT
        body += _bars(bars, group * per_n, left, base, scale, hatched)
        body += svg.element("line", x1=left, y1=base, x2=right, y2=base, stroke=svg.MUTED)
        body += _hovers(parts, words, sum(steps), left, per_n, base)
        body += _marks(sizes, reach, words, left, right, per_n, base)
        y = base + MARKS_HEIGHT
    axis, y = _axis(
        reach, [*wrap(words["axis"], width - 2 * MARGIN, 11), *wrap(origin, width - 2 * MARGIN, 11)], left, y, per_n
    )
    body += axis
    title = " / ".join(panel.title for panel in panels)
    return svg.document(body, width, y, title, words["join"].join(summary))


def _served(sizes: list[int], n: int) -> int | None:
    at = bisect_left(sizes, n)
    return sizes[at] if at < len(sizes) else None


def _column(steps: list[int], sizes: list[int], first: int, group: int) -> tuple[int, int, int]:
    """Rows of requests, padding rows and eager rows at ``group`` batch sizes from ``first`` on."""
    real = padding = eager = 0
    for n in range(first, min(first + group, len(steps))):
        size = _served(sizes, n)
        if size is None:
            eager += steps[n] * n
        else:
            real += steps[n] * n
            padding += steps[n] * (size - n)
    return real, padding, eager


def _parts(steps: list[int], sizes: list[int]) -> list[_Part]:
    """The traffic cut at the captured sizes; parts without steps are left out."""
    largest = len(steps) - 1
    edges = [0, *sizes] if sizes[-1] >= largest else [0, *sizes, largest]
    parts = []
    for below, last in pairwise(edges):
        inside = range(below + 1, min(last, largest) + 1)
        count = sum(steps[n] for n in inside)
        if count:
            real = sum(steps[n] * n for n in inside)
            size = _served(sizes, last)
            parts.append(_Part(below + 1, last, size, count, real, 0 if size is None else count * size - real))
    return parts


def _head(title: str, read_out: str, y: float, width: float) -> str:
    room = width - 2 * MARGIN
    named = svg.fit(title, room * 0.5, 14)
    x = MARGIN + svg.text_width(named, 14) * 1.08 + 12  # bold runs wider than the estimate for plain text
    return svg.text(named, MARGIN, y + 16, 14, font_weight="600") + svg.text(
        svg.fit(read_out, width - MARGIN - x, 12), x, y + 16, 12
    )


def _bars(
    columns: list[tuple[int, int, int]], step: float, left: float, base: float, scale: float, hatched: str
) -> str:
    """Three paths for all bars: requests below, padding on top of them, eager steps in a colour of their own."""
    paths = {"real": "", "padding": "", "eager": ""}
    seam = min(1.0, step * 0.25)
    for at, (real, padding, eager) in enumerate(columns):
        x, wide = left + at * step, step - seam
        top = base
        for name, rows in (("real", real), ("padding", padding), ("eager", eager)):
            if rows:
                high = rows * scale
                paths[name] += f"M{x:.1f} {top:.1f}v{-high:.1f}h{wide:.1f}v{high:.1f}z"
                top -= high
    fills = {"real": svg.BLUE, "padding": hatched, "eager": svg.PURPLE}
    outline = {"padding": {"stroke": svg.ORANGE, "stroke_width": 0.5}}
    return "".join(
        svg.element("path", d=path, fill=fills[name], class_=name, **outline.get(name, {}))
        for name, path in paths.items()
        if path
    )


def _hovers(parts: list[_Part], words: dict[str, str], steps: int, left: float, per_n: float, base: float) -> str:
    out = ""
    for part in parts:
        if part.size is None:
            said = words["eager_range"].format(part.first, part.last, part.steps / steps)
        else:
            padding = part.padding / (part.real + part.padding)
            said = words["range"].format(part.first, part.last, part.size, part.steps / steps, padding)
        out += svg.element(
            "rect",
            svg.element("title", svg.escape(said)),
            x=left + (part.first - 1) * per_n,
            y=base - BARS_HEIGHT,
            width=(part.last - part.first + 1) * per_n,
            height=float(BARS_HEIGHT),
            fill="#ffffff",
            fill_opacity="0",
        )
    return f'<g class="parts">{out}</g>'


def _marks(
    sizes: list[int], reach: int, words: dict[str, str], left: float, right: float, per_n: float, base: float
) -> str:
    """A tick at each captured size and a dashed line above it; names where there is room, those beyond at the end."""
    beyond = [str(size) for size in sizes if size > reach]
    shown = words["beyond"].format(", ".join(beyond if len(beyond) <= 4 else [beyond[0], "…", beyond[-1]]))
    end = right - (svg.text_width(shown, 11) + 8 if beyond else 0)
    out, free = "", left - 4
    for size in sizes:
        if size > reach:
            break
        x = left + size * per_n
        out += svg.element(
            "line",
            svg.element("title", svg.escape(f"{words['size']} {size}")),
            x1=x,
            y1=base - BARS_HEIGHT,
            x2=x,
            y2=base + 6,
            stroke=svg.INK,
            stroke_width=1,
            stroke_dasharray="2 3",
            class_="size",
        )
        half = svg.text_width(str(size), 11) / 2
        if x - half >= free and x + half <= end:
            out += svg.text(str(size), x, base + 18, 11, text_anchor="middle")
            free = x + half + 4
    if beyond:
        out += svg.text(shown, right, base + 18, 11, text_anchor="end")
    return out


def _axis(reach: int, lines: list[str], left: float, y: float, per_n: float) -> tuple[str, float]:
    """Round batch sizes, then lines that say what the axes are and where the traffic comes from."""
    out = svg.element("line", x1=left, y1=y, x2=left + reach * per_n, y2=y, stroke=svg.MUTED)
    for tick in svg.round_ticks(0, reach, 10):
        if tick == int(tick):
            x = left + tick * per_n
            anchor = "start" if tick == 0 else "end" if x > left + reach * per_n - 12 else "middle"
            out += svg.element("line", x1=x, y1=y, x2=x, y2=y + 4, stroke=svg.MUTED)
            out += svg.text(f"{tick:g}", x, y + 16, 11, svg.MUTED, text_anchor=anchor)
    for number, line in enumerate(lines):
        out += svg.text(line, MARGIN, y + 34 + number * LINE_HEIGHT, 11, svg.MUTED)
    return out, y + AXIS_HEIGHT + (len(lines) - 1) * LINE_HEIGHT


def _legend(words: dict[str, str], hatched: str, eager: bool, width: float) -> tuple[str, float]:
    out, x, y = "", float(MARGIN), 8.0
    entries = [("real", svg.BLUE), ("padding", hatched)] + ([("eager", svg.PURPLE)] if eager else []) + [("size", "")]
    for key, fill in entries:
        label_width = svg.text_width(words[key], 12)
        if x > MARGIN and x + 18 + label_width > width - MARGIN:
            x, y = float(MARGIN), y + LEGEND_HEIGHT
        if fill:
            out += svg.element("rect", x=x, y=y, width=12, height=12, fill=fill, stroke=svg.MUTED, stroke_width=0.5)
        else:
            dash = {"stroke": svg.INK, "stroke_dasharray": "2 3"}
            out += svg.element("line", x1=x + 6, y1=y - 1, x2=x + 6, y2=y + 13, **dash)
        out += svg.text(words[key], x + 18, y + 11, 12)
        x += 18 + label_width + 18
    return out, y + LEGEND_HEIGHT
