"""Text files read line by line, with errors a user can act on."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from s13lib.errors import InputError
from s13lib.progress import Progress


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file without their ends, with a progress bar by bytes.

    Raises ``InputError`` when the file is missing, is a directory or a pipe, cannot be read or is not text.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: name a file.")
        if path.is_fifo():  # the first line tells the kind of file, and then it is read again
            raise InputError(f"{path} is a pipe, which cannot be read twice: save it to a file.")
        with path.open("rb") as file, Progress(f"reading {path.name}", path.stat().st_size or None) as bar:
            for number, raw in enumerate(file, start=1):
                bar.update(len(raw))
                if b"\0" in raw:
                    raise InputError(f"{path}: line {number} is not text (it holds a zero byte).")
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: line {number} is not text in UTF-8.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None


def json_object(path: Path) -> dict:
    """Return the JSON object in ``path``; anything else, and a repeated key, is an ``InputError``."""

    def unique(pairs: list[tuple[str, object]]) -> dict:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise InputError(f"{path}: a key is repeated in its JSON.")
        return found

    try:
        value = json.loads("\n".join(lines_of(path)), object_pairs_hook=unique)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise InputError(f"{path}: not valid JSON ({str(error).rstrip('.')}).") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: its JSON is a {type(value).__name__}, and must be an object.")
    return value


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield ``(line number, cells)`` of a CSV file with a header, the cells in the order of ``columns``.

    Names are compared without case; further columns and empty lines are passed over. A missing column or a short row
    is an ``InputError``.
    """
    reader = csv.reader(lines_of(path))
    try:
        header = next(reader, [])
        names = [name.strip().lower() for name in header]
        missing = [column for column in columns if column.lower() not in names]
        if missing:
            raise InputError(f"{path}: no column {' or '.join(missing)}; its columns are {', '.join(header)}.")
        places = [names.index(column.lower()) for column in columns]
        for cells in reader:
            if not cells:
                continue
            if len(cells) <= max(places):
                raise InputError(f"{path}: line {reader.line_num} has {len(cells)} of {len(names)} columns.")
            yield reader.line_num, [cells[place] for place in places]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num} is not CSV ({error}).") from None


def whole_number(path: Path, line: int, column: str, text: str) -> int:
    """Return ``text`` as a whole number of at least 0, or raise an ``InputError`` that names the line and column."""
    # int() alone would take "1_000" and digits of other scripts.
    cleaned = text.strip()
    if not (cleaned.isascii() and cleaned.isdigit() and len(cleaned) <= 12):
        raise InputError(f"{path}: line {line}: {column} is {cleaned!r}: must be a whole number, 0 to 10^12.")
    return int(cleaned)
