"""The time of one decode step at each batch size, replayed from a graph and eager."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s13lib.buckets.files import csv_rows, json_object, lines_of, whole_number
from s13lib.buckets.layout import batch_size
from s13lib.errors import InputError

COLUMNS = ("batch", "graph_us", "eager_us")


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Step times in µs, indexed by batch size.

    Args:
        graph_us: ``graph_us[n]`` is the time of a step whose graph was captured for n rows. Index 0 is not used.
        eager_us: ``eager_us[n]`` is the time of the same step launched kernel by kernel. As long as ``graph_us``.
        origin: where they come from, for a read-out ("modelled: …", "measured: …").

    NaN means "not known": it is an ``InputError`` to need it. A known time must be finite and above 0. Times need not
    grow with the batch.
    """

    graph_us: np.ndarray
    eager_us: np.ndarray
    origin: str = "given"

    def __post_init__(self) -> None:
        for name in ("graph_us", "eager_us"):
            times = np.asarray(getattr(self, name), float)
            object.__setattr__(self, name, times)
            wrong = np.flatnonzero(~np.isnan(times[1:]) & ~(np.isfinite(times[1:]) & (times[1:] > 0))) + 1
            if wrong.size:
                raise InputError(f"{name}[{wrong[0]}] is {times[wrong[0]]}: must be a finite time above 0.")
        if self.graph_us.shape != self.eager_us.shape or self.graph_us.ndim != 1:
            shapes = f"{self.graph_us.shape} and {self.eager_us.shape}"
            raise InputError(f"graph_us and eager_us have the shapes {shapes}: must be one equal length.")

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
    ``InputError``, as is a missing key or column, a size given twice, or a time that is not finite and above 0.
    """
    path = Path(path)
    first = next((line for line in lines_of(path) if line.strip()), None)
    if first is None:
        raise InputError(f"{path}: the file is empty.")
    curves: dict[str, dict[int, float]] = {"graph_us": {}, "eager_us": {}}
    if first.lstrip().startswith("{"):
        found = json_object(path)
        for name, curve in curves.items():
            given = found.get(name)
            if not isinstance(given, dict):
                raise InputError(f'{path}: "{name}" must be an object such as {{"1": 310.5, "8": 322.0}}.')
            for size, time_us in given.items():
                _add(curve, path, name, size, time_us)
    else:
        for line, (size, *times_us) in csv_rows(path, COLUMNS):
            for (name, curve), time_us in zip(curves.items(), times_us, strict=True):
                _add(curve, path, f"line {line}: {name}", str(whole_number(path, line, "batch", size)), time_us)
    if not all(curves.values()):
        raise InputError(f"{path}: holds no step time.")
    longest = max(max(curve) for curve in curves.values()) + 1
    graph_us, eager_us = (_interpolated(curve, longest) for curve in curves.values())
    return StepTimes(graph_us, eager_us, f"measured: {path.name}")


def _add(curve: dict[int, float], path: Path, what: str, size: str, time_us: object) -> None:
    number = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else None
    batch = batch_size(number if number is not None else size, f"{path}: {what}: batch")
    try:
        value = math.nan if isinstance(time_us, bool) else float(time_us)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{path}: {what} of batch {batch} is {time_us!r}: must be a finite time above 0, in µs.")
    if batch in curve:
        raise InputError(f"{path}: {what} of batch {batch} is given twice.")
    curve[batch] = value


def _interpolated(curve: dict[int, float], length: int) -> np.ndarray:
    sizes = sorted(curve)
    between = np.interp(np.arange(length), sizes, [curve[size] for size in sizes], left=np.nan, right=np.nan)
    between[0] = np.nan
    return between
