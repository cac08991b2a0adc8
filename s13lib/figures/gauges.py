"""Read-outs as pictures: a row of tiles, horizontal bars on one scale, and pictures stacked into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from s13lib.errors import require
from s13lib.figures import svg

MARGIN, GAP = 12, 8
TILE_HEIGHT = 48
BAR_HEIGHT, BAR_ROW = 16, 26
VALUE_WIDTH = 76
MINIMUM_WIDTH = 480
# Where a line may break: after a word with its space, or after a Chinese character with the marks that follow it.
MARKS = "\u3000-\u303f\uff00-\uffef"
HAN = "\u2e80-\u2fff\u3040-\u9fff"
PIECES = re.compile(rf"[{HAN}][{MARKS}]*|[^\s{HAN}{MARKS}]+[{MARKS}]*\s*|[{MARKS}]+|\s+")


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length, what is written behind it, its colour, and how long a full bar would be.

    ``full`` is None for bars that share a scale (the longest is full), and a number for a bar with a scale of its own,
    which is drawn as a filled part of a grey whole.
    """

    label: str
    value: float
    shown: str
    fill: str
    full: float | None = None


def tiles_svg(tiles: Sequence[tuple[str, str]], width: int = 700, title: str = "") -> str:
    """A row of read-outs: (name, value) pairs. Text that does not fit its tile is cut and stands in the hover title."""
    require(len(tiles) > 0, "tiles", tiles, "at least one tile")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    each = (width - 2 * MARGIN - (len(tiles) - 1) * GAP) / len(tiles)
    body = ""
    for at, (name, value) in enumerate(tiles):
        x = MARGIN + at * (each + GAP)
        hover = svg.element("title", svg.escape(f"{name}: {value}"))
        box = svg.element("rect", hover, x=float(x), y=8.0, width=float(each), height=TILE_HEIGHT, fill="#f2f2f2", rx=4)
        body += box + svg.text(svg.fit(name, each - 12, 11), x + 6, 25, 11, svg.MUTED)
        body += svg.text(svg.fit(value, each - 12, 15), x + 6, 46, 15, font_weight="600")
    return svg.document(body, width, TILE_HEIGHT + 16, title or "; ".join(f"{n}: {v}" for n, v in tiles))


def bars_svg(bars: Sequence[Bar], title: str, width: int = 700, note: str = "") -> str:
    """Horizontal bars under a title, with a note below them."""
    require(len(bars) > 0, "bars", bars, "at least one bar")
    require(width >= MINIMUM_WIDTH, "width", width, f"at least {MINIMUM_WIDTH} pixels")
    label_width = min(max(svg.text_width(b.label, 12) for b in bars) + 10, width * 0.4)
    left, right = MARGIN + label_width, width - MARGIN - VALUE_WIDTH
    longest = max([b.value for b in bars if b.full is None], default=0.0) or 1.0
    body, y = svg.text(svg.fit(title, width - 2 * MARGIN, 13), MARGIN, 18, 13, font_weight="600"), 28.0
    for bar in bars:
        share = min(max(bar.value / (bar.full or longest), 0.0), 1.0)
        body += svg.text(svg.fit(bar.label, label_width - 6, 12), MARGIN, y + 13, 12)
        if bar.full is not None:
            body += _box(left, y, right - left, svg.IDLE, "")
        body += _box(left, y, (right - left) * share, bar.fill, f"{bar.label}: {bar.shown}")
        body += svg.text(bar.shown, right + 8, y + 13, 12, font_weight="600")
        y += BAR_ROW
    if note:
        for line in wrap(note, width - 2 * MARGIN, 12):
            body += svg.text(line, MARGIN, y + 12, 12, svg.MUTED)
            y += 17
    return svg.document(body, width, y + 6, title, "; ".join(f"{b.label}: {b.shown}" for b in bars))


def _box(x: float, y: float, width: float, fill: str, hover: str) -> str:
    inner = svg.element("title", svg.escape(hover)) if hover else ""
    return svg.element("rect", inner, x=float(x), y=float(y), width=max(width, 0.5), height=BAR_HEIGHT, fill=fill)


def wrap(content: str, width: float, size: int) -> list[str]:
    """``content`` in lines of at most ``width`` pixels, by estimate, broken at spaces or between Chinese characters."""
    pieces = PIECES.findall(content)
    lines, line = [], ""
    for piece in pieces:
        if line and svg.text_width((line + piece).rstrip(), size) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def stack_svg(pictures: Sequence[str], width: int, title: str, description: str = "") -> str:
    """Documents of ``svg.document`` one under the other, as one document: a widget's static picture is one."""
    body, y = "", 0.0
    for picture in pictures:
        head, rest = picture.split(">", 1)
        inner = rest.removesuffix("</svg>")
        body += f'<g transform="translate(0 {y:g})">{inner}</g>'
        y += float(re.search(r' height="([\d.]+)"', head)[1])
    return svg.document(body, width, y, title, description)
