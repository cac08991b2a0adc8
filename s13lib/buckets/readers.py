"""Traffic from what a user has: a request trace, a vLLM log, a histogram, or the name of a built-in workload."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from s13lib.buckets.files import column_names, csv_rows, first_line, json_object, json_value, one_line, whole_number
from s13lib.buckets.generators import WORKLOADS, generate
from s13lib.buckets.layout import batch_size
from s13lib.buckets.traffic import Traffic, running_batches, steps_per_nanosecond
from s13lib.buckets.vllm_log import has_table, read_vllm_log
from s13lib.errors import InputError, shortened

REQUEST_COLUMNS = ("TIMESTAMP", "GeneratedTokens")
HISTOGRAM_COLUMNS = ("batch", "count")


def read_traffic(
    source: str | Path, step_ms: float = 25.0, cap: int = 256, load: float = 1.0, modes: Collection[str] = ("FULL",)
) -> Traffic:
    """Read traffic from a file, whose kind its content tells, or make the built-in ``chat`` or ``code`` (modelled).

    Files: a request CSV with the columns TIMESTAMP and GeneratedTokens (Azure format), turned into batches by the
    rule of ``running_batches``; a vLLM log with ``--cudagraph-metrics`` tables; a histogram as JSON
    (``{"1": 10, "2": 7}`` or ``{"histogram": {…}}``) or as CSV (columns batch, count).

    Args:
        source: a path, or ``"chat"`` or ``"code"`` (write ``"./chat"`` for a file of that name).
        step_ms: request traces and built-in traffic: the time of a decode step, in ms.
        cap: request traces and built-in traffic: most requests that run together.
        load: request traces and built-in traffic: multiplies the rate of arrival.
        modes: vLLM logs: the runtime modes whose rows are decode steps.

    Raises ``InputError``, one sentence with the file and the line, for anything that cannot be read as asked.
    """
    if isinstance(source, str) and source in WORKLOADS:
        return generate(source, load=load, cap=cap, step_ms=step_ms)
    path = Path(source)
    first = first_line(path)
    names = column_names(first)
    if any(column.lower() in names for column in REQUEST_COLUMNS):
        return read_requests(path, step_ms, cap, load)
    if load != 1:
        raise InputError(
            f"load is {load!r}: must be 1 for {one_line(path)}, which holds batch sizes and no arrival times."
        )
    if first.lstrip().startswith("{"):
        return _read_json_histogram(path, modes)
    if any(column in names for column in HISTOGRAM_COLUMNS):
        return _read_csv_histogram(path)
    return read_vllm_log(path, modes)


def read_requests(path: Path, step_ms: float = 25.0, cap: int = 256, load: float = 1.0) -> Traffic:
    """Read a request CSV (Azure format) and serve it: see ``read_traffic``. Requests must be in order of time."""
    requests = _requests(path, step_ms, load)
    name = one_line(path.name)
    origin = f"recorded: {name}, {step_ms:g} ms a step, at most {cap} running, load ×{load:g}"
    return Traffic.from_runs(running_batches(requests, cap), name, origin)


def _requests(path: Path, step_ms: float, load: float) -> Iterator[tuple[int, int]]:
    steps = steps_per_nanosecond(step_ms, load)
    numerator, denominator = steps.numerator, steps.denominator  # a Fraction looks them up anew each time
    start = previous = None
    for line, (stamp, tokens) in csv_rows(path, REQUEST_COLUMNS):
        try:
            time = _nanoseconds(stamp.strip())
        except ValueError:
            wrong = f"{one_line(path)}: line {line}: TIMESTAMP is {shortened(stamp.strip())}"
            raise InputError(f"{wrong}: must be a date and time (2023-11-16 18:15:46.68) or seconds.") from None
        if previous is None:
            start = previous = time
        if time < previous:
            where = f"{one_line(path)}: line {line}"
            raise InputError(f"{where} is earlier than the line before: sort the file by TIMESTAMP.")
        previous = time
        # The first step that starts at or after the arrival: -(-a // b) rounds up, in whole numbers.
        yield -((start - time) * numerator // denominator), whole_number(path, line, "GeneratedTokens", tokens)


_CALENDAR = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}", re.ASCII)


def _nanoseconds(stamp: str) -> int:
    # Whole nanoseconds: the Azure files have seven digits, one more than datetime holds.
    whole, dot, fraction = stamp.partition(".")
    plain = not fraction or (fraction.isdigit() and fraction.isascii())
    if dot and not (plain and len(whole) <= 19):  # a time zone follows
        if not (match := _CALENDAR.fullmatch(stamp)):
            raise ValueError(stamp)
        whole, fraction = match[1] + match[3], match[2][1:]
    return _seconds(whole) * 10**9 + int(fraction[:9].ljust(9, "0"))


@lru_cache(maxsize=4)  # requests of the same second follow each other
def _seconds(whole: str) -> int:
    if _SECONDS.fullmatch(whole):
        return int(whole)
    if not (match := _CALENDAR.fullmatch(whole)):
        raise ValueError(whole)
    return round(datetime.fromisoformat(match[1] + (match[3] or "Z")).timestamp())


def _read_json_histogram(path: Path, modes: Collection[str]) -> Traffic:
    try:
        found = json_object(path)
    except InputError:
        if has_table(path):  # a log whose first line starts with a brace
            return read_vllm_log(path, modes)
        raise
    histogram = found.get("histogram", found)
    example = '{"1": 10, "2": 7}'
    if not isinstance(histogram, dict):
        raise InputError(f'{one_line(path)}: "histogram" must be an object such as {example}.')
    counts: dict[int, int] = {}
    for key, count in histogram.items():
        if not re.fullmatch(r"\d{1,9}", key, re.ASCII):
            raise InputError(f"{one_line(path)}: {shortened(key)} is not a batch size; write {example}.")
        size = int(key)
        if isinstance(count, list | dict):
            raise InputError(
                f"{one_line(path)}: the count of batch size {size} is {json_value(count)}; write {example}."
            )
        if size in counts:
            raise InputError(f"{one_line(path)}: batch size {size} is given twice.")
        counts[size] = int(count) if isinstance(count, float) and count.is_integer() else count
    return _from_counts(path, counts)


def _read_csv_histogram(path: Path) -> Traffic:
    counts: dict[int, int] = {}
    where = one_line(path)
    for line, (batch, count) in csv_rows(path, HISTOGRAM_COLUMNS):
        size = whole_number(path, line, "batch", batch)
        if size not in counts:
            counts[batch_size(size, f"{where}: line {line}: batch", least=0)] = 0
        counts[size] += whole_number(path, line, "count", count)
    return _from_counts(path, counts)


def _from_counts(path: Path, counts: dict[int, int]) -> Traffic:
    name = one_line(path.name)
    return Traffic.from_counts(counts, name, f"recorded: {name}")
