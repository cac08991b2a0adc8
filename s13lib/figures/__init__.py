"""Pure functions from data to SVG or HTML strings. Standard library only; no external request."""

from s13lib.figures.timeline import Panel, timeline_svg

__all__ = ["Panel", "timeline_svg"]
