"""What a bucketed runner did, in the shape of the table that vLLM logs with ``--cudagraph-metrics``."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

REPLAYED, EAGER = "FULL", "NONE"  # vLLM's words for a full graph and for none
COLUMNS = ("Unpadded Tokens", "Padded Tokens", "Num Paddings", "Runtime Mode", "Count")


class Dispatch(NamedTuple):
    """One way in which a step ran: its real rows, the rows that were computed, and the path."""

    real: int
    padded: int
    path: str


def dispatch_table(dispatches: Counter[Dispatch]) -> str:
    """A row for each kind of dispatch, the commonest first."""
    ordered = sorted(dispatches.items(), key=lambda item: (-item[1], item[0]))
    rows = [COLUMNS] + [(d.real, d.padded, d.padded - d.real, d.path, count) for d, count in ordered]
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
