"""What commands share in talking to people: tables, JSON, and files that are written whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from s13lib.errors import InputError


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """An aligned text table; the first ``left`` columns are flush left, the others flush right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def one(line: Sequence[str]) -> str:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([one(header), "  ".join("-" * w for w in widths), *map(one, rows)])


def heading(text: str) -> str:
    """A heading line with a rule under it."""
    return f"{text}\n{'=' * len(text)}"


def print_json(data: Mapping[str, object]) -> None:
    """Print ``data`` as JSON, keys in the order given."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def write_files(contents: Mapping[str, str]) -> None:
    """Write each ``path: text``, all or, where one cannot be written, none; every file appears whole.

    Raises:
        InputError: a path names a folder, or its folder is missing or not writable.
    """
    staged: list[tuple[str, Path]] = []
    try:
        for name, text in contents.items():
            target = Path(name)
            if target.is_dir():
                raise InputError(f"output file {name!r} is a folder: name a file.")
            try:
                handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
                staged.append((temporary, target))
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 — mkstemp makes private files
            except OSError as error:
                raise InputError(f"output file {name!r} cannot be written: {error.strerror or error}.") from error
        while staged:
            temporary, target = staged[0]
            os.replace(temporary, target)  # noqa: PTH105
            staged.pop(0)
    finally:
        for temporary, _ in staged:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def whole(text: str) -> int:
    """An argparse type: a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """An argparse type: a finite number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def whole_list(text: str) -> list[int]:
    """An argparse type: whole numbers separated by commas."""
    return [whole(part) for part in text.split(",")]


def ms(value_us: float) -> str:
    """Microseconds as milliseconds: two digits after the point, four below 0.1 ms."""
    return f"{value_us / 1000:.2f}" if value_us >= 100 else f"{value_us / 1000:.4f}"
