"""Hatched fills, so that what a colour says can also be read without colours."""

from __future__ import annotations

from s13lib.figures import svg

SPACING = 5


def hatch(ink: str, paper: str) -> tuple[str, str]:
    """Slanted lines in ``ink`` on ``paper``: the ``<defs>`` that a picture needs once, and the fill to use.

    The pattern is named after its colours: two pictures on one page that share a name share the same pattern.
    """
    name = f"s13-hatch-{ink.lstrip('#')}-{paper.lstrip('#')}"
    lines = svg.element("rect", width=SPACING, height=SPACING, fill=paper)
    lines += svg.element("line", x1=0, y1=0, x2=0, y2=SPACING, stroke=ink, stroke_width=3)
    pattern = svg.element(
        "pattern",
        lines,
        id=name,
        width=SPACING,
        height=SPACING,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return svg.element("defs", pattern), f"url(#{name})"
