"""Chrome trace files read one event at a time, plain or gzip, in bounded memory and with a progress bar.

The standard library's decoder is run again and again over a buffered text, so that a file of any size needs no more
memory than one event and one chunk.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from s13lib.errors import InputError
from s13lib.progress import Progress

EVENTS = "traceEvents"
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20  # characters read at a time
LONGEST_VALUE = 1 << 26  # characters: no event or header is that long, so a string without end is given up here
CUT_MARGIN = 8  # a text that was cut fails within so many characters of its end, at "-Infinit" or sooner

AFTER_NUMBER = tuple(" \t\r\n,]}")  # a tuple, since the empty text is in every text

_GAP = re.compile(r"[ \t\r\n,]*")  # trailing commas do occur


def stream_trace(path: Path) -> Iterator[tuple[str, object]]:
    """Yield ``("traceEvents", event)`` for each event and ``(key, value)`` for each other key of the file, in order.

    ``path`` holds a JSON object with the key ``traceEvents``, or a bare list of events; gzip is recognised by its
    first bytes; a pipe will do. Raises ``InputError``, one sentence, for a file that is missing, a directory, empty,
    cut short, damaged or no trace.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: name a file.")
        with path.open("rb") as raw, Progress(f"reading {path.name}", _size(path)) as bar:
            yield from _parse(_Text(path, raw, bar))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except EOFError:
        raise InputError(f"{path}: the trace is cut short (its gzip ends early): copy or record it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: the gzip data are damaged ({error}): copy or record it again.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _size(path: Path) -> int | None:
    return path.stat().st_size or None if path.is_file() else None


class _Text:
    """The file's text: a buffer, a place in it, and the decoder."""

    def __init__(self, path: Path, raw: BinaryIO, bar: Progress) -> None:
        self.path, self.events = path, 0
        self._raw, self._bar, self._told = raw, bar, 0
        packed = raw.peek(2)[:2] == GZIP_MAGIC
        # Names of kernels and annotations may hold broken bytes: they are shown as they come, not refused.
        self._stream = io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if packed else raw, "utf-8-sig", errors="replace")
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._buffer, self._at, self._ended = "", 0, False

    def skip_gaps(self) -> str:
        """Skip white space and commas; return the next character, "" at the end of the text."""
        while True:
            self._at = _GAP.match(self._buffer, self._at).end()
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_more():
                return ""

    def take(self, character: str) -> None:
        """Pass over ``character``, which must come next."""
        found = self.skip_gaps()
        if found != character:
            raise self.cut_short() if not found else self.not_json(f"{character!r} is expected and {found!r} is there")
        self._at += 1

    def value(self) -> object:
        """Decode the next value."""
        while True:
            try:
                value, end = self._decode(self._buffer, self._at)
            except ValueError as error:
                if not _may_be_cut(error) or len(self._buffer) - self._at > LONGEST_VALUE:
                    raise self.not_json(getattr(error, "msg", str(error).split(";")[0])) from None
                if not self._read_more():
                    raise self.cut_short() from None
            except RecursionError:
                raise self.not_json("it is nested too deep") from None
            else:
                # A number may go on in the next chunk: "12" as "123", "1." as "1.5".
                number = not isinstance(value, str | list | dict)
                if number and self._buffer[end : end + 1] not in AFTER_NUMBER and self._read_more():
                    continue
                self._at = end
                return value

    def cut_short(self) -> InputError:
        where = f"it ends in event {self.events + 1:,}" if self.events else "it ends before its first event does"
        return InputError(f"{self.path}: the trace is cut short ({where}): copy or record it again.")

    def not_json(self, why: str) -> InputError:
        where = f" after event {self.events:,}" if self.events else ""
        return InputError(f"{self.path}: not a trace: its text{where} is not valid JSON ({why}).")

    def _read_more(self) -> bool:
        """Append to the buffer what comes next, and as much again as is waiting in it; False at the end."""
        if self._ended:
            return False
        waiting = self._buffer[self._at :]
        more = self._stream.read(max(CHUNK, len(waiting)))
        self._ended = not more
        self._buffer, self._at = waiting + more, 0
        if self._raw.seekable():
            self._bar.update(self._raw.tell() - self._told)
            self._told = self._raw.tell()
        return not self._ended


def _may_be_cut(error: ValueError) -> bool:
    """Whether more text could mend a value that does not parse."""
    if not isinstance(error, json.JSONDecodeError):  # an integer of thousands of digits
        return False
    return error.pos >= len(error.doc) - CUT_MARGIN or error.msg.startswith("Unterminated string")


def _parse(text: _Text) -> Iterator[tuple[str, object]]:
    first = text.skip_gaps()
    if not first:
        raise InputError(f"{text.path}: the file is empty.")
    if first == "[":
        yield from _events(text)
    elif first == "{":
        yield from _object(text)
    else:
        raise InputError(f"{text.path}: not a trace: a Chrome trace is JSON, or that in gzip, and starts with {{ or [.")
    if text.skip_gaps():
        raise text.not_json("more text follows its end")


def _object(text: _Text) -> Iterator[tuple[str, object]]:
    text.take("{")
    found = False
    while (character := text.skip_gaps()) != "}":
        if not character:
            raise text.cut_short()
        key = text.value()
        if not isinstance(key, str):
            raise text.not_json("a key is no text")
        text.take(":")
        if not (first := text.skip_gaps()):
            raise text.cut_short()
        if key != EVENTS:
            yield key, text.value()
            continue
        if first != "[":
            raise InputError(f"{text.path}: not a trace: its {EVENTS} is no list.")
        found = True
        yield from _events(text)
    text.take("}")
    if not found:
        raise InputError(f"{text.path}: not a trace: its JSON has no {EVENTS}.")


def _events(text: _Text) -> Iterator[tuple[str, object]]:
    text.take("[")
    while (character := text.skip_gaps()) != "]":
        if not character:
            raise text.cut_short()
        yield EVENTS, text.value()
        text.events += 1
    text.take("]")
