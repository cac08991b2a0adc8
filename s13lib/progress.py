"""A progress bar for anything a person waits for: on a terminal or in a notebook, silent in a pipe."""

from __future__ import annotations

import contextvars
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

BAR_WIDTH = 24
REDRAW_SECONDS = 0.1
TICK_SECONDS = 1.0


class Progress:
    """``with Progress("reading", total) as bar: bar.update(n)``.

    ``total`` may be ``None`` (a count without a bar). Nothing is shown in the first ``after`` seconds, when ``stream``
    is neither a terminal nor a notebook's output, or with ``show=False``; nothing is left behind at the end.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "",
        stream: TextIO | None = None,
        show: bool = True,
        after: float = 0.3,
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._line = _line_for(stream if stream is not None else sys.stderr) if show else None
        self._next_draw = time.monotonic() + after

    def __enter__(self) -> Progress:
        return self

    def update(self, amount: int = 1) -> None:
        """Count ``amount`` more as done; redraw if it is time to."""
        self.done += amount
        if self._line is not None and time.monotonic() >= self._next_draw:
            self._next_draw = time.monotonic() + REDRAW_SECONDS
            self._line.draw(self._text())

    def __exit__(self, *exception: object) -> None:
        if self._line is not None:
            self._line.clear()

    def _text(self) -> str:
        if not self.total:
            return f"{self.label} {self.done:,} {self.unit}".rstrip()
        share = min(1.0, self.done / self.total)
        filled = round(BAR_WIDTH * share)
        return f"{self.label} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}"


@contextmanager
def elapsed(label: str) -> Iterator[None]:
    """``with elapsed("compiling"): ...`` shows the seconds that passed, for work that cannot say how far it is."""
    over = threading.Event()
    with Progress(label, unit="s") as bar:

        def tick() -> None:
            while not over.wait(TICK_SECONDS):
                bar.update()

        # In a copy of this context, by which a notebook knows the cell that the display belongs to.
        thread = threading.Thread(target=contextvars.copy_context().run, args=(tick,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class _TerminalLine:
    """One line of a terminal, drawn over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._width = stream, 0

    def draw(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = max(self._width, len(text))

    def clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


class _NotebookLine:
    """A display of a notebook, updated in place: what goes to stderr there stays, in red."""

    def __init__(self) -> None:
        self._display = None

    def draw(self, text: str) -> None:
        from IPython.display import display

        bundle = {"text/plain": text}
        if self._display is None:
            self._display = display(bundle, raw=True, display_id=True)
        else:
            self._display.update(bundle, raw=True)

    def clear(self) -> None:
        if self._display is not None:
            self._display.update({"text/plain": ""}, raw=True)


def _line_for(stream: TextIO) -> _TerminalLine | _NotebookLine | None:
    if type(stream).__module__.startswith("ipykernel"):
        return _NotebookLine()
    return _TerminalLine(stream) if getattr(stream, "isatty", lambda: False)() else None
