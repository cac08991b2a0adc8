"""The one exception for bad input, and the one way to look a name up in a table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """Bad input from a user: one sentence naming the argument, its value and what is allowed.

    The command line prints it on stderr and exits with code 2; a notebook shows it as it is.
    """


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Return ``table[name]``; an unknown name is an ``InputError`` that suggests the nearest ones."""
    if name in table:
        return table[name]
    near = difflib.get_close_matches(str(name)[:100], table, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(table)}."
    raise InputError(f"{what}: unknown name {shortened(name)}; {hint}")


def require(holds: bool, argument: str, value: object, allowed: str) -> None:
    """Raise an ``InputError`` unless ``holds``. ``allowed`` completes "must be ..."."""
    if not holds:
        raise InputError(f"{argument} is {shortened(value)}: must be {allowed}.")


def require_whole(argument: str, value: object, least: int, most: int) -> None:
    """Raise an ``InputError`` unless ``value`` is a whole number from ``least`` to ``most``."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and least <= value <= most, argument, value, f"a whole number from {least:,} to {most:,}")


def shortened(value: object, most: int = 60) -> str:
    """``repr(value)`` on one line, cut in the middle where it is long: messages stay one readable sentence."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than some thousand digits
        text = f"a number of about {round(value.bit_length() * 0.30103):,} digits"
    return text if len(text) <= most else f"{text[: most - 12]}…{text[-8:]}"
