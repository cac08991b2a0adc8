"""The time of one decode step at each batch size, replayed from a graph and eager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s13lib.buckets.files import csv_rows, decimal_number, first_line, json_object, json_value, one_line, whole_number
from s13lib.buckets.layout import batch_size
from s13lib.errors import InputError

COLUMNS = ("batch", "graph_us", "eager_us")
SHORTEST_US, LONGEST_US = 1e-6, 1e12  # a picosecond and eleven days: sums and ratios of times stay finite
ALLOWED = "a time from 10^-6 to 10^12, in µs"


def _is_time(time_us: np.ndarray | float) -> np.ndarray | bool:
    return (time_us >= SHORTEST_US) & (time_us <= LONGEST_US)  # False for NaN


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Step times in µs, indexed by batch size.

    Args:
        graph_us: ``graph_us[n]`` is the time of a step whose graph was captured for n rows. Index 0 is not used.
        eager_us: ``eager_us[n]`` is the time of the same step launched kernel by kernel. As long as ``graph_us``.
        origin: where they come from, for a read-out ("modelled: …", "measured: …").

    NaN means "not known": it is an ``InputError`` to need it. A known time must be from 10^-6 to 10^12 µs. Times need
    not grow with the batch.
    """

    graph_us: np.ndarray
    eager_us: np.ndarray
    origin: str = "given"

    def __post_init__(self) -> None:
        for name in ("graph_us", "eager_us"):
            try:
                object.__setattr__(self, name, np.asarray(getattr(self, name), float))
            except (TypeError, ValueError, OverflowError):  # no numbers, rows of unequal length, whole numbers too long
                raise InputError(
                    f"{name} is not an array of times: must hold {ALLOWED}, for each batch size."
                ) from None
        if self.graph_us.shape != self.eager_us.shape or self.graph_us.ndim != 1:
            shapes = f"{self.graph_us.shape} and {self.eager_us.shape}"
            raise InputError(f"graph_us and eager_us have the shapes {shapes}: must be one equal length.")
        for name in ("graph_us", "eager_us"):
            times = getattr(self, name)
            wrong = np.flatnonzero(~np.isnan(times[1:]) & ~_is_time(times[1:])) + 1
            if wrong.size:
                raise InputError(f"{name}[{wrong[0]}] is {times[wrong[0]]}: must be {ALLOWED}.")

    def graph(self, sizes: np.ndarray) -> np.ndarray:
        """Return the replay times in µs at ``sizes``; an unknown one is an ``InputError``."""
        return self._known("graph_us", sizes)

    def eager(self, sizes: np.ndarray) -> np.ndarray:
        """Return the eager times in µs at ``sizes``; an unknown one is an ``InputError``."""
        return self._known("eager_us", sizes)

    def _known(self, name: str, sizes: np.ndarray) -> np.ndarray:
        times = getattr(self, name)
        found = np.full(len(sizes), np.nan)
        inside = sizes < len(times)
        found[inside] = times[sizes[inside]]
        if np.isnan(found).any():
            known = np.flatnonzero(~np.isnan(times[1:])) + 1
            reach = f"batch {known[0]} to {known[-1]}" if known.size else "no batch"
            need = sizes[np.flatnonzero(np.isnan(found))[0]]
            raise InputError(f"step times: {name} is needed at batch {need}, and known for {reach} ({self.origin}).")
        return found


def read_step_times(path: str | Path) -> StepTimes:
    """Read measured step times: JSON ``{"graph_us": {"1": 310.5, …}, "eager_us": {…}}`` or CSV batch,graph_us,eager_us.

    Between two given sizes a time is interpolated linearly. It is never extrapolated: a use beyond them is an
    ``InputError``, as is a missing key or column, a size given twice, or a time that is not from 10^-6 to 10^12 µs.
    """
    path = Path(path)
    where = one_line(path)
    curves: dict[str, dict[int, float]] = {"graph_us": {}, "eager_us": {}}
    if first_line(path).lstrip().startswith("{"):
        found = json_object(path)
        for name, curve in curves.items():
            given = found.get(name)
            if not isinstance(given, dict):
                raise InputError(f'{where}: "{name}" must be an object such as {{"1": 310.5, "8": 322.0}}.')
            for size, time_us in given.items():
                batch = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else size
                _add(curve, f"{where}: {name}", batch, time_us)
    else:
        for line, (size, *times_us) in csv_rows(path, COLUMNS):
            batch = whole_number(path, line, "batch", size)
            for (name, curve), time_us in zip(curves.items(), times_us, strict=True):
                _add(curve, f"{where}: line {line}: {name}", batch, time_us)
    if not all(curves.values()):
        raise InputError(f"{where}: holds no step time.")
    longest = max(max(curve) for curve in curves.values()) + 1
    graph_us, eager_us = (_interpolated(curve, longest) for curve in curves.values())
    return StepTimes(graph_us, eager_us, f"measured: {one_line(path.name)}")


def _add(curve: dict[int, float], what: str, size: object, time_us: object) -> None:
    batch = batch_size(size, f"{what}: batch")
    value = decimal_number(time_us)
    if not _is_time(value):
        raise InputError(f"{what} of batch {batch} is {json_value(time_us)}: must be {ALLOWED}.")
    if batch in curve:
        raise InputError(f"{what} of batch {batch} is given twice.")
    curve[batch] = value


def _interpolated(curve: dict[int, float], length: int) -> np.ndarray:
    sizes = sorted(curve)
    between = np.interp(np.arange(length), sizes, [curve[size] for size in sizes], left=np.nan, right=np.nan)
    between[0] = np.nan
    return between
