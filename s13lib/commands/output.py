"""What commands share in talking to people: tables, JSON, and files that are written whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path

from s13lib.errors import InputError, shortened


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
    print(json.dumps(data, indent=2, allow_nan=False))  # ASCII, so that no console's encoding can spoil it


def write_files(contents: Sequence[tuple[str | None, str, Callable[[], str]]]) -> list[str]:
    """Write files, all or, where one cannot be written, none; every file appears whole. Returns the names written.

    Args:
        contents: (path or None, the option that named it, a function that makes the text). None is left out. A link is
            followed; a device such as /dev/stdout is written to and not replaced.

    Raises:
        InputError: a path is empty, given twice, a folder, or cannot be written.
    """
    wanted = [(name, option, make) for name, option, make in contents if name is not None]
    targets = [_target(name, option) for name, option, _ in wanted]
    if len(set(targets)) < len(targets):
        raise InputError(f"{' and '.join(option for _, option, _ in wanted)}: name two different files.")
    staged: list[tuple[str, Path]] = []
    try:
        for (name, option, make), target in zip(wanted, targets, strict=True):
            try:
                if target.exists() and not target.is_file():
                    target.write_text(make(), encoding="utf-8")
                    continue
                handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".s13-")
                staged.append((temporary, target))
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(make())
                os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 — mkstemp makes private files
            except InputError:
                raise
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise InputError(f"{option} {shortened(name)} cannot be written: {reason}.") from error
        while staged:
            temporary, target = staged[0]
            os.replace(temporary, target)  # noqa: PTH105
            staged.pop(0)
    finally:
        for temporary, _ in staged:
            Path(temporary).unlink(missing_ok=True)
    return [name for name, _, _ in wanted]


def _target(name: str, option: str) -> Path:
    """The file that is meant, links followed."""
    if not name:
        raise InputError(f"{option} is empty: name a file.")
    try:
        target = Path(os.path.realpath(name))
        is_folder = target.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{option} {shortened(name)} cannot be written: {reason}.") from error
    if is_folder:
        raise InputError(f"{option} {shortened(name)} is a folder: name a file.")
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def whole(text: str) -> int:
    """An argparse type: a whole number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a whole number (of at most 18 digits)")
    return int(text)


def stage(text: str) -> int | str:
    """An argparse type: a fusion stage, kernels a layer or "torch"."""
    return text if text == "torch" else whole(text)


def number(text: str) -> float:
    """An argparse type: a finite number."""
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text) or not isfinite(float(text)):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a finite number")
    return float(text)


def whole_list(text: str) -> list[int]:
    """An argparse type: whole numbers separated by commas."""
    return [whole(part) for part in text.split(",")]


def ms(value_us: float) -> str:
    """Microseconds as milliseconds: two digits after the point, four below 0.1 ms."""
    return f"{value_us / 1000:.2f}" if value_us >= 100 else f"{value_us / 1000:.4f}"
