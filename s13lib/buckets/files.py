"""Text files read line by line, with errors a user can act on: one line, whatever the file or its name holds."""

from __future__ import annotations

import csv
import json
import math
import re
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path

from s13lib.errors import InputError, shortened
from s13lib.progress import Progress

LONGEST_LINE = 1 << 20  # bytes; a longer line is no text that a person or an engine wrote, and would fill the memory
MOST_JSON = 16 << 20  # characters; a histogram of every batch size has some 100,000
MOST_DIGITS = 40  # of a whole number in JSON; a longer one stays text
LARGEST_COUNT = 10**12


def one_line(text: object, most: int = 300) -> str:
    """Return ``text`` with control characters as escapes, cut in the middle where it is longer than ``most``."""
    # Cut before as well: a megabyte need not be escaped for what is left of it.
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in _cut(str(text), most)), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 3]}…{text[most // 3 + 1 - most :]}"


def lines_of(path: Path, lenient: bool = False) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file without their ends, with a progress bar by bytes.

    Raises ``InputError`` when the file is missing, is no regular file (a directory, a pipe, a device), cannot be read,
    has a line of more than 1 MiB, or is not text. A ``lenient`` reading takes zero bytes, and shows bytes that are not
    UTF-8 as �: a log is worth reading although one of its many processes wrote rubbish.
    """
    file_name, number = one_line(path), 0
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{file_name} is a directory: name a file.")
        if not stat.S_ISREG(status.st_mode):  # its first line tells the kind of file, and then it is read again
            raise InputError(f"{file_name} is a pipe or a device, which cannot be read twice: save it to a file.")
        with path.open("rb") as file, Progress(f"reading {one_line(path.name)}", status.st_size or None) as bar:
            for raw in iter(partial(file.readline, LONGEST_LINE + 1), b""):
                number += 1
                bar.update(len(raw))
                if len(raw) > LONGEST_LINE:
                    raise InputError(f"{file_name}: line {number} is longer than {LONGEST_LINE:,} bytes.")
                if number == 1:
                    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                        raise InputError(f"{file_name} is text in UTF-16: save it as UTF-8.")
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                if lenient:
                    yield raw.decode(errors="replace").rstrip("\r\n")
                    continue
                if b"\0" in raw:
                    raise InputError(f"{file_name}: line {number} is not text (it holds a zero byte).")
                yield raw.decode().rstrip("\r\n")
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{file_name}: no such file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{file_name}: line {number} is not text in UTF-8.") from None
    except OSError as error:
        raise InputError(f"{file_name}: cannot be read ({error.strerror}).") from None
    except ValueError:  # a name that no file can have, with a zero byte
        raise InputError(f"{file_name}: no such file.") from None


def first_line(path: Path) -> str:
    """Return the first line that is not blank, which tells the kind of file; an empty file is an ``InputError``."""
    for line in lines_of(path, lenient=True):
        if line.strip():
            return line
    raise InputError(f"{one_line(path)}: the file is empty.")


def json_object(path: Path) -> dict:
    """Return the JSON object in ``path``; anything else, and a repeated key, is an ``InputError``.

    A whole number of more than 40 digits comes back as its text, which no reader takes for a number.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict:
        found: dict = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{one_line(path)}: the key {shortened(key)} is repeated in its JSON.")
            found[key] = value
        return found

    def whole(digits: str) -> int | str:
        return int(digits) if len(digits) <= MOST_DIGITS else digits

    try:
        value = json.loads(_at_most(MOST_JSON, path), object_pairs_hook=unique, parse_int=whole)
    except json.JSONDecodeError as error:
        raise InputError(f"{one_line(path)}: not valid JSON ({str(error).rstrip('.')}).") from None
    except RecursionError:
        raise InputError(f"{one_line(path)}: not valid JSON here (nested too deeply).") from None
    if not isinstance(value, dict):
        raise InputError(f"{one_line(path)}: its JSON is a {type(value).__name__}, and must be an object.")
    return value


def _at_most(most: int, path: Path) -> str:
    lines, left = [], most
    for line in lines_of(path):
        left -= len(line) + 1
        if left < 0:
            raise InputError(f"{one_line(path)}: not valid JSON here (longer than {most:,} characters).")
        lines.append(line)
    return "\n".join(lines)


def json_value(value: object) -> str:
    """Return how a message shows a value from JSON. A list or an object is named, not shown: it may be any depth."""
    return {list: "a list", dict: "an object"}.get(type(value)) or shortened(value)


def column_names(line: str) -> list[str]:
    """Return the names in a CSV header, without case, quotes and the space around them; none if it is not CSV."""
    try:
        return _names(next(_reader([line]), []))
    except csv.Error:
        return []


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield ``(line number, cells)`` of a CSV file with a header, the cells in the order of ``columns`` (two or more).

    Names are compared without case; further columns and blank lines are passed over. A missing or repeated column, or
    a short row, is an ``InputError``.
    """
    reader = _reader(lines_of(path))
    try:
        header = next((cells for cells in reader if not _blank(cells)), [])
        names = _names(header)
        missing = [column for column in columns if column.lower() not in names]
        if missing:
            found = one_line(", ".join(header))
            raise InputError(f"{one_line(path)}: no column {' or '.join(missing)}; its columns are {found}.")
        for column in columns:
            if names.count(column.lower()) > 1:
                raise InputError(f"{one_line(path)}: column {column} is there {names.count(column.lower())} times.")
        places = [names.index(column.lower()) for column in columns]
        wanted, last = itemgetter(*places), max(places)
        for cells in reader:
            if len(cells) > last:
                yield reader.line_num, wanted(cells)
            elif not _blank(cells):
                raise InputError(f"{one_line(path)}: line {reader.line_num} has {len(cells)} of {len(names)} columns.")
    except csv.Error as error:
        raise InputError(f"{one_line(path)}: line {reader.line_num} is not CSV ({error}).") from None


def _reader(lines: Iterable[str]) -> Iterator[list[str]]:
    return csv.reader(lines, skipinitialspace=True)  # a quote after ", " opens a quoted cell


def _blank(cells: list[str]) -> bool:
    return len(cells) < 2 and not "".join(cells).strip()


def _names(header: list[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def whole_number(path: Path, line: int, column: str, text: str) -> int:
    """Return ``text`` as a whole number, 0 to 10^12, or raise an ``InputError`` that names the line and column."""
    # int() alone would take "1_000" and digits of other scripts, and refuses thousands of digits.
    if len(text) <= 12 and text.isdigit() and text.isascii():  # nearly always; a file may have millions
        return int(text)
    cleaned = text.strip()
    if cleaned.isascii() and cleaned.isdigit():
        digits = cleaned.lstrip("0") or "0"
        if len(digits) <= 13 and (number := int(digits)) <= LARGEST_COUNT:
            return number
    shown = shortened(cleaned)
    raise InputError(f"{one_line(path)}: line {line}: {column} is {shown}: must be a whole number, 0 to 10^12.")


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def decimal_number(value: object) -> float:
    """Return a number from JSON, or the text of one in ASCII digits, as a float; NaN for anything else."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _DECIMAL.fullmatch(text) else math.nan
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
