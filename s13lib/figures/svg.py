"""Small helpers for SVG strings: escaping, elements, text width, round axis ticks, the colours."""

from __future__ import annotations

import html
import re
from math import floor, log10
from unicodedata import east_asian_width

# Okabe and Ito's colours, told apart by all common kinds of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
INK, MUTED, PAPER, IDLE = "#1a1a1a", "#595959", "#ffffff", "#e4e4e4"
FONT = "system-ui, 'Segoe UI', Helvetica, Arial, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"


# XML has no escape for these.
FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(content: str) -> str:
    """``content`` for the inside of an element or attribute; characters that no XML document may hold become U+FFFD."""
    return html.escape(FORBIDDEN.sub("\ufffd", content))


def element(name: str, content: str = "", **attributes: object) -> str:
    """One element. ``_`` in an attribute's name stands for ``-``; a trailing one is dropped (``class_``)."""
    parts = [name]
    for key, value in attributes.items():
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    head = " ".join(parts)
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def text(content: str, x: float, y: float, size: int = 12, fill: str = INK, **attributes: object) -> str:
    """A line of text with its baseline at ``y``."""
    return element("text", escape(content), x=float(x), y=float(y), font_size=size, fill=fill, **attributes)


def document(body: str, width: float, height: float, title: str, description: str = "") -> str:
    """A whole SVG document on white, so that it reads the same on a dark page. ``title`` is what screen readers say."""
    inner = element("title", escape(title))
    if description:
        inner += element("desc", escape(description))
    inner += element("rect", x=0, y=0, width=float(width), height=float(height), fill=PAPER)
    return element(
        "svg",
        inner + body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=float(width),
        height=float(height),
        role="img",
        font_family=FONT,
        style="max-width:100%;height:auto",
    )


def text_width(content: str, size: int) -> float:
    """A cautious estimate of a line's width in pixels: a full em for East Asian characters, 0.56 em for others."""
    ems = sum(1.0 if east_asian_width(c) in "WF" else 0.56 for c in content)
    return ems * size


def fit(content: str, width: float, size: int) -> str:
    """``content``, cut with an ellipsis where its estimated width exceeds ``width`` pixels."""
    if text_width(content, size) <= width:
        return content
    while content and text_width(content + "…", size) > width:
        content = content[:-1]
    return content.rstrip() + "…"


def wrap(content: str, width: float, size: int) -> list[str]:
    """``content`` on the lines that ``width`` pixels need, broken at spaces; a longer word is cut with an ellipsis."""
    lines = [""]
    for word in content.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [fit(line, width, size) for line in lines]


def round_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Ticks at 1, 2 or 5 times a power of ten, between ``low`` and ``high``."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** floor(log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = -floor(-low / step)
    ticks = []
    while first * step <= high * (1 + 1e-12):
        ticks.append(first * step)
        first += 1
    return ticks


def format_us(value_us: float) -> str:
    """Microseconds for people: three digits, in milliseconds from 1,000 up."""
    if value_us >= 1000:
        return f"{value_us / 1000:.2f} ms"
    return f"{value_us:.0f} µs" if value_us >= 100 else f"{value_us:.3g} µs"
