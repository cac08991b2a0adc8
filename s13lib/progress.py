"""A progress bar for anything a person waits for: on a terminal or in a notebook, silent in a pipe."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

BAR_WIDTH = 24
REDRAW_SECONDS = 0.1


class Progress:
    """``with Progress("reading", total) as bar: bar.update(n)``.

    ``total`` may be ``None`` (a count without a bar). Nothing is printed in the first 0.3 s, when ``stream`` is neither
    a terminal nor a notebook's output, or with ``show=False``.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "",
        stream: TextIO | None = None,
        show: bool = True,
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.stream = stream if stream is not None else sys.stderr
        self.done = 0
        self._visible = show and _shows_progress(self.stream)
        self._next_draw = time.monotonic() + 0.3
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def update(self, amount: int = 1) -> None:
        """Count ``amount`` more as done; redraw if it is time to."""
        self.done += amount
        if self._visible and time.monotonic() >= self._next_draw:
            self._next_draw = time.monotonic() + REDRAW_SECONDS
            self._draw()

    def __exit__(self, *exception: object) -> None:
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()

    def _draw(self) -> None:
        if self.total:
            share = min(1.0, self.done / self.total)
            filled = round(BAR_WIDTH * share)
            text = f"{self.label} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}"
        else:
            text = f"{self.label} {self.done:,} {self.unit}".rstrip()
        text = text[: shutil.get_terminal_size().columns - 1]
        self.stream.write("\r" + text.ljust(self._width))
        self.stream.flush()
        self._width = max(self._width, len(text))


def _shows_progress(stream: TextIO) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) or type(stream).__module__.startswith("ipykernel")
