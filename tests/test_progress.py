"""The progress bar: on a terminal it draws over one line and leaves nothing; in a pipe it is silent."""

import io
import itertools
import threading

import pytest

from s13lib import progress
from s13lib.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_sees_the_share_and_an_empty_line_at_the_end(clock):
    stream = Terminal()
    with Progress("reading", 4, stream=stream) as bar:
        bar.update()
        assert stream.getvalue() == ""  # too early to be worth a line
        clock[0] = 1.0
        bar.update()
    drawn = stream.getvalue()
    assert drawn.startswith("\rreading [############............]  50%")
    assert drawn.endswith("\r" + " " * len("reading [############............]  50%") + "\r")


def test_it_may_wait_longer_before_it_shows(clock):
    stream = Terminal()
    with Progress("measuring", 4, stream=stream, after=2.0) as bar:
        for clock[0] in (1.0, 1.9):
            bar.update()
        assert stream.getvalue() == ""
        clock[0] = 2.0
        bar.update()
        assert "75%" in stream.getvalue()


def test_without_a_total_it_counts(clock):
    stream = Terminal()
    with Progress("reading", unit="lines", stream=stream) as bar:
        clock[0] = 1.0
        bar.update(12345)
    assert "\rreading 12,345 lines" in stream.getvalue()


def test_a_narrow_terminal_gets_one_line(clock, monkeypatch):
    narrow = progress.shutil.os.terminal_size((20, 5))
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda fallback=None: narrow)
    stream = Terminal()
    with Progress("a long label for a narrow terminal", 2, stream=stream) as bar:
        clock[0] = 1.0
        bar.update()
    assert max(map(len, stream.getvalue().split("\r"))) == 19


@pytest.mark.parametrize("options", [{"stream": io.StringIO()}, {"stream": Terminal(), "show": False}])
def test_pipes_and_hidden_bars_are_silent(clock, options):
    with Progress("reading", 2, **options) as bar:
        clock[0] = 1.0
        bar.update()
    assert options["stream"].getvalue() == ""


def test_a_notebook_gets_a_display_that_is_updated_and_emptied(clock, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []

    class Handle:
        def update(self, bundle, raw):
            shown.append(bundle["text/plain"])

    def fake_display(bundle, raw, display_id):
        shown.append(bundle["text/plain"])
        return Handle()

    monkeypatch.setattr(display, "display", fake_display)
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    with Progress("reading", 2, stream=stream) as bar:
        clock[0] = 1.0
        bar.update()
        clock[0] = 2.0
        bar.update()
    assert shown == ["reading [############............]  50%", "reading [########################] 100%", ""]
    assert stream.getvalue() == ""


def test_seconds_pass_for_work_that_cannot_say_how_far_it_is(monkeypatch):
    third = threading.Event()

    class Watched(Terminal):
        def write(self, text):
            if text.startswith("\rcompiling 3 s"):
                third.set()
            return super().write(text)

    clock = itertools.count()
    monkeypatch.setattr(progress.sys, "stderr", Watched())
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.001)
    with progress.elapsed("compiling"):
        assert third.wait(10)
    assert progress.sys.stderr.getvalue().endswith("\r")  # nothing is left behind


def test_what_the_work_raises_comes_through():
    with pytest.raises(ZeroDivisionError), progress.elapsed("dividing"):
        raise ZeroDivisionError
