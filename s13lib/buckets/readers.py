"""Traffic from what a user has: a request trace, a vLLM log, a histogram, or the name of a built-in workload."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from s13lib.buckets.files import csv_rows, json_object, lines_of, whole_number
from s13lib.buckets.generators import WORKLOADS, generate
from s13lib.buckets.traffic import Traffic, running_batches, steps_per_nanosecond
from s13lib.buckets.vllm_log import read_vllm_log
from s13lib.errors import InputError

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
    first = next((line for line in lines_of(path) if line.strip()), None)
    if first is None:
        raise InputError(f"{path}: the file is empty.")
    names = {name.strip().lower() for name in first.split(",")}
    if any(column.lower() in names for column in REQUEST_COLUMNS):
        return read_requests(path, step_ms, cap, load)
    if load != 1:
        raise InputError(f"load is {load!r}: must be 1 for {path}, which holds batch sizes and no arrival times.")
    if first.lstrip().startswith("{"):
        return _read_json_histogram(path)
    if any(column in names for column in HISTOGRAM_COLUMNS):
        return _read_csv_histogram(path)
    return read_vllm_log(path, modes)


def read_requests(path: Path, step_ms: float = 25.0, cap: int = 256, load: float = 1.0) -> Traffic:
    """Read a request CSV (Azure format) and serve it: see ``read_traffic``. Requests must be in order of time."""
    requests = _requests(path, step_ms, load)
    origin = f"recorded: {path.name}, {step_ms:g} ms a step, at most {cap} running, load ×{load:g}"
    return Traffic.from_runs(running_batches(requests, cap), path.name, origin)


def _requests(path: Path, step_ms: float, load: float) -> Iterator[tuple[int, int]]:
    steps = steps_per_nanosecond(step_ms, load)
    start = previous = None
    for line, (stamp, tokens) in csv_rows(path, REQUEST_COLUMNS):
        time = _nanoseconds(path, line, stamp)
        start = time if start is None else start
        if previous is not None and time < previous:
            raise InputError(f"{path}: line {line} is earlier than the line before: sort the file by TIMESTAMP.")
        previous = time
        # The first step that starts at or after the arrival: -(-a // b) rounds up, in whole numbers.
        yield (
            -(-(time - start) * steps.numerator // steps.denominator),
            whole_number(path, line, "GeneratedTokens", tokens),
        )


_CALENDAR = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,12})(?:\.(\d*))?", re.ASCII)


def _nanoseconds(path: Path, line: int, stamp: str) -> int:
    # Whole nanoseconds: the Azure files have seven digits, one more than datetime holds.
    stamp = stamp.strip()
    try:
        if match := _CALENDAR.fullmatch(stamp):
            seconds, fraction = _epoch_seconds(match[1], match[3] or "Z"), match[2]
        elif match := _SECONDS.fullmatch(stamp):
            seconds, fraction = int(match[1]), match[2]
        else:
            raise ValueError(stamp)
    except ValueError:
        allowed = "a date and time (2023-11-16 18:15:46.68) or seconds"
        raise InputError(f"{path}: line {line}: TIMESTAMP is {stamp!r}: must be {allowed}.") from None
    return seconds * 10**9 + int((fraction or "").ljust(9, "0")[:9])


@lru_cache(maxsize=4)  # requests of the same second follow each other
def _epoch_seconds(date_and_time: str, zone: str) -> int:
    moment = datetime.fromisoformat(date_and_time + zone)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def _read_json_histogram(path: Path) -> Traffic:
    found = json_object(path)
    histogram = found.get("histogram", found)
    if not isinstance(histogram, dict):
        raise InputError(f'{path}: "histogram" must be an object such as {{"1": 10, "2": 7}}.')
    counts: dict[int, int] = {}
    for key, count in histogram.items():
        if not re.fullmatch(r"\d{1,9}", key, re.ASCII):
            raise InputError(f'{path}: {key!r} is not a batch size; write {{"1": 10, "2": 7}}.')
        if isinstance(count, float) and count.is_integer():
            count = int(count)
        if int(key) in counts:
            raise InputError(f"{path}: batch size {int(key)} is given twice.")
        counts[int(key)] = count
    return Traffic.from_counts(counts, path.name, f"recorded: {path.name}")


def _read_csv_histogram(path: Path) -> Traffic:
    counts: dict[int, int] = {}
    for line, (batch, count) in csv_rows(path, HISTOGRAM_COLUMNS):
        size = whole_number(path, line, "batch", batch)
        counts[size] = counts.get(size, 0) + whole_number(path, line, "count", count)
    return Traffic.from_counts(counts, path.name, f"recorded: {path.name}")
