"""Break lines where a notebook would: at blanks, and between Chinese characters, which are two columns wide."""

from __future__ import annotations

import re
import unicodedata

WIDTH = 88  # columns; a notebook's output shows about 95 of them on a screen 1280 px wide
NOT_FIRST = "，。、；：！？）】》”’…,.;:!?)]}"  # marks that stand at no line's beginning
NOT_LAST = "（【《“‘([{"
PIECE = re.compile(r"\s+|[^\s\u1100-\uffff]+|.")  # blanks, a word, or one wide character


def columns(text: str) -> int:
    """How many columns a text takes in a fixed-width font."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def wrapped(text: str, indent: int = 0) -> str:
    """``text`` in lines that end by column ``WIDTH`` where the first begins at column ``indent``, the others too.

    Line ends in the text are kept.
    """
    margin = "\n" + " " * indent
    return margin.join(line for part in text.split("\n") for line in _lines(part, WIDTH - indent))


def _lines(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for piece in _pieces(text, width):
        if line and columns((line + piece).rstrip()) > width:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def _pieces(text: str, width: int) -> list[str]:
    """What must not be broken: words, and characters with the marks that belong to them; words too long are cut."""
    pieces: list[str] = []
    for piece in PIECE.findall(text):
        belongs = pieces and (piece[0] in NOT_FIRST or pieces[-1][-1] in NOT_LAST)
        if belongs and not piece.isspace() and columns(pieces[-1] + piece) <= width:
            pieces[-1] += piece
        else:
            pieces += [piece[i : i + width] for i in range(0, len(piece), width)]
    return pieces
