"""Running batch sizes from a vLLM log.

With ``--cudagraph-metrics`` (v0.13 and later) vLLM logs a table in each interval, every line behind a log prefix:

    | Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |
    |-----------------|---------------|--------------|--------------|-------|
    | 3               | 4             | 1            | FULL         | 117   |

Source: ``CUDAGraphLogging`` in vllm/compilation/cuda_graph.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np

from s13lib.buckets.files import lines_of, one_line, whole_number
from s13lib.buckets.layout import batch_size
from s13lib.buckets.traffic import Traffic, check_steps
from s13lib.errors import InputError, shortened

SIZE, MODE, COUNT = "Unpadded Tokens", "Runtime Mode", "Count"
MOST_STRETCHES = 256  # a log of months has a million intervals: they are kept as so many stretches of equal length
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def has_table(path: str | Path) -> bool:
    """Tell whether a file holds the header of a metrics table."""
    return any(_columns(_cells(text)) for text in lines_of(Path(path), lenient=True) if "|" in text)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in _COLOUR.sub("", text).split("|")]


def _columns(cells: list[str]) -> list[str]:
    # Those of a header, and none of another line. A prefix may hold bars of its own.
    columns = cells[cells.index(SIZE) : -1] if SIZE in cells else []
    return columns if MODE in columns and COUNT in columns else []


def read_vllm_log(path: str | Path, modes: Collection[str] = ("FULL",)) -> Traffic:
    """Sum the tables of all intervals of a vLLM log, counting the rows of the given runtime modes.

    Rows of mode FULL are decode steps. NONE rows can be prefill or eager decode and PIECEWISE rows can hold prefill,
    so they count only when ``modes`` names them. With speculative decoding a request has several tokens a step:
    the sizes are then tokens, as are vLLM's capture sizes.

    Raises ``InputError`` when there is no table, no row of these modes (it names those present), or a bad number.
    """
    path = Path(path)
    wanted = {mode.upper() for mode in modes}
    where, name = one_line(path), one_line(path.name)
    intervals: list[Counter[int]] = []
    present: set[str] = set()
    columns: list[str] = []  # those of the table that the current line may belong to
    first = ""
    for line, text in enumerate(lines_of(path, lenient=True), start=1):
        first = first or text.strip()
        if "|" not in text:
            continue
        cells = _cells(text)
        if header := _columns(cells):
            columns = header
            intervals.append(Counter())
            continue
        # Lines of other processes may fall between the rows of a table, so only the next header ends it.
        if not columns or len(cells) < len(columns) + 2 or cells[-1]:
            continue
        row = dict(zip(columns, cells[-len(columns) - 1 : -1], strict=True))
        if not set(row[SIZE]) <= {"-", ":"}:  # the rule under the header
            mode = row[MODE].upper().rsplit(".", 1)[-1]
            present.add(mode)
            if mode in wanted:
                size = whole_number(path, line, SIZE, row[SIZE])
                batch_size(size, f"{where}: line {line}: {SIZE}", least=0)
                intervals[-1][size] += whole_number(path, line, COUNT, row[COUNT])
    if not intervals:
        raise InputError(
            f"{where}: not a request CSV (TIMESTAMP, GeneratedTokens), a histogram (JSON, or CSV with batch, "
            f"count) or a vLLM log with --cudagraph-metrics tables; it starts with {shortened(first)}."
        )
    if not present & wanted:
        found = f"those present are {one_line(', '.join(sorted(present)))}" if present else "its tables are empty"
        raise InputError(f"{where}: no row of runtime mode {one_line(' or '.join(sorted(wanted)))}; {found}.")
    check_steps(name, sum(count for interval in intervals for size, count in interval.items() if size))
    stretches, widest = min(len(intervals), MOST_STRETCHES), max(max(interval, default=0) for interval in intervals)
    parts = np.zeros((stretches, widest + 1), np.int64)
    for number, interval in enumerate(intervals):
        for size, count in interval.items():
            if size:  # an idle engine runs no decode step
                parts[number * stretches // len(intervals), size] += count
    return Traffic(parts, name, f"recorded: {name}, vLLM rows of mode {one_line(', '.join(sorted(wanted)))}")
