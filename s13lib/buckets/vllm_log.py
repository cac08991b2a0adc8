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

from s13lib.buckets.files import lines_of, whole_number
from s13lib.buckets.layout import batch_size
from s13lib.buckets.traffic import Traffic
from s13lib.errors import InputError

SIZE, MODE, COUNT = "Unpadded Tokens", "Runtime Mode", "Count"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def read_vllm_log(path: str | Path, modes: Collection[str] = ("FULL",)) -> Traffic:
    """Sum the tables of all intervals of a vLLM log, counting the rows of the given runtime modes.

    Rows of mode FULL are decode steps. NONE rows can be prefill or eager decode and PIECEWISE rows can hold prefill,
    so they count only when ``modes`` names them. With speculative decoding a request has several tokens a step:
    the sizes are then tokens, as are vLLM's capture sizes.

    Raises ``InputError`` when there is no table, no row of these modes (it names those present), or a bad number.
    """
    path = Path(path)
    wanted = {mode.upper() for mode in modes}
    intervals: list[Counter[int]] = []
    present: set[str] = set()
    columns: list[str] | None = None  # those of the table that the current line may belong to
    first = ""
    for line, text in enumerate(lines_of(path), start=1):
        cells = [cell.strip() for cell in _COLOUR.sub("", text).split("|")]
        first = first or text.strip()
        if SIZE in cells and MODE in cells and COUNT in cells:
            columns = cells[cells.index(SIZE) : -1]  # a prefix may hold bars of its own
            intervals.append(Counter())
            continue
        # Lines of other processes may fall between the rows of a table, so only the next header ends it.
        if columns is None or len(cells) < len(columns) + 2 or cells[-1]:
            continue
        row = dict(zip(columns, cells[-len(columns) - 1 : -1], strict=True))
        if not set(row[SIZE]) <= {"-", ":"}:  # the rule under the header
            mode = row[MODE].upper().rsplit(".", 1)[-1]
            present.add(mode)
            if mode in wanted:
                size = batch_size(whole_number(path, line, SIZE, row[SIZE]), f"{path}: line {line}: {SIZE}", least=0)
                intervals[-1][size] += whole_number(path, line, COUNT, row[COUNT])
    if not intervals:
        raise InputError(
            f"{path}: not a request CSV (TIMESTAMP, GeneratedTokens), a histogram (JSON, or CSV with batch, count) or "
            f"a vLLM log with --cudagraph-metrics tables; it starts with {first[:60]!r}."
        )
    if not present & wanted:
        found = f"those present are {', '.join(sorted(present))}" if present else "its tables are empty"
        raise InputError(f"{path}: no row of runtime mode {' or '.join(sorted(wanted))}; {found}.")
    parts = np.zeros((len(intervals), max(max(interval, default=0) for interval in intervals) + 1), np.int64)
    for part, interval in zip(parts, intervals, strict=True):
        for size, count in interval.items():
            part[size] = count
    parts[:, 0] = 0
    return Traffic(parts, path.name, f"recorded: {path.name}, vLLM rows of mode {', '.join(sorted(wanted))}")
