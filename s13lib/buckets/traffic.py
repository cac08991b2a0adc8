"""Traffic: how many decode steps ran at each batch size, and the rule that turns requests into it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from numbers import Integral, Real

import numpy as np

from s13lib.buckets.layout import batch_size
from s13lib.errors import InputError, require
from s13lib.simulator.scheduler import Scheduler

PARTS = 16  # a trace is kept as sixteen consecutive stretches of equal length, so that it can be cut in two
MOST_STEPS = 1 << 40  # steps × rows then stay below 2^53, where float64 holds whole numbers exactly


def check_steps(name: str, steps: int) -> None:
    """Raise an ``InputError`` unless the traffic ``name`` has fewer than 2^40 steps."""
    require(steps < MOST_STEPS, f"{name}: number of steps", steps, f"below {MOST_STEPS:,}: divide the counts")


@dataclass(frozen=True, eq=False)
class Traffic:
    """A histogram of running batch sizes, kept as consecutive stretches of time.

    Args:
        parts: int64 array (stretches, largest batch + 1); ``parts[i, n]`` steps of stretch i ran n requests. One row
            means that the order in time is unknown. Column 0 is zero: a step counts when at least one request runs.
        name: what to call it in a table.
        origin: where the numbers come from, for a read-out ("recorded: …" or "modelled: …").
    """

    parts: np.ndarray
    name: str
    origin: str

    def __post_init__(self) -> None:
        whole = isinstance(self.parts, np.ndarray) and self.parts.ndim == 2 and self.parts.dtype == np.int64
        if not whole or (self.parts < 0).any() or self.parts[:, :1].any():
            raise InputError(f"{self.name}: parts must be a 2-D int64 array of counts of at least 0, column 0 zero.")
        steps = int(self.parts.sum(dtype=float))  # an int64 sum may overflow
        if steps == 0:
            raise InputError(f"{self.name}: the traffic is empty, not one decode step ran.")
        check_steps(self.name, steps)

    @classmethod
    def from_counts(cls, counts: Mapping[int, int], name: str = "histogram", origin: str = "recorded") -> Traffic:
        """Build traffic from ``{batch size: steps}``. Batch size 0 (an idle engine) is dropped.

        Raises ``InputError`` for a batch size or a count that is not a whole number in range, and when all are zero.
        """
        checked = {}
        for size, count in counts.items():
            size = batch_size(size, f"{name}: batch size", least=0)
            whole = isinstance(count, Integral) and not isinstance(count, bool) and 0 <= count < MOST_STEPS
            require(whole, f"{name}: the count of batch size {size}", count, "a whole number of at least 0, below 2^40")
            checked[size] = int(count)
        parts = np.zeros((1, max(checked, default=0) + 1), np.int64)
        for size, count in checked.items():
            parts[0, size] = count
        parts[0, 0] = 0
        return cls(parts, name, origin)

    @classmethod
    def from_runs(cls, runs: Iterable[tuple[int, int]], name: str, origin: str) -> Traffic:
        """Build traffic from ``(batch size, steps at it)`` in the order of time, as ``running_batches`` yields them."""
        batches, lengths = np.fromiter(runs, np.dtype((np.int64, 2))).reshape(-1, 2).T
        check_steps(name, int(lengths.sum(dtype=float)))  # before int64 sums
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        part_ends = total * np.arange(1, min(PARTS, total) + 1) // max(1, min(PARTS, total))
        cuts = np.sort(np.concatenate([ends, part_ends]))  # a run that crosses the end of a part is cut there
        parts = np.zeros((max(1, len(part_ends)), int(batches.max(initial=0)) + 1), np.int64)
        where = np.searchsorted(part_ends, cuts), batches[np.searchsorted(ends, cuts)]
        np.add.at(parts, where, np.diff(cuts, prepend=0))
        return cls(parts, name, origin)

    @cached_property
    def counts(self) -> np.ndarray:
        """Steps at each batch size: int64, index = batch size, ends at the largest one seen."""
        counts = self.parts.sum(axis=0)
        return counts[: int(np.flatnonzero(counts)[-1]) + 1]

    @property
    def largest(self) -> int:
        """The largest batch size seen."""
        return len(self.counts) - 1

    @property
    def steps(self) -> int:
        """The number of decode steps."""
        return int(self.counts.sum())

    @property
    def rows(self) -> int:
        """The number of real rows: tokens made."""
        return int(self.counts @ np.arange(len(self.counts)))

    @property
    def mean(self) -> float:
        """The mean running batch size."""
        return self.rows / self.steps

    def percentile(self, percent: float) -> int:
        """Return the smallest batch size that at least ``percent`` % of the steps do not exceed."""
        require(0 <= percent <= 100, "percent", percent, "between 0 and 100")
        return int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(self.steps * percent / 100))))

    def split(self) -> tuple[Traffic, Traffic]:
        """Cut at half of the steps (to one stretch): the earlier and the later traffic.

        Raises ``InputError`` when the order in time is unknown, as for a histogram.
        """
        ends = np.cumsum(self.parts.sum(axis=1))
        cut = 1 + int(np.argmin(np.abs(2 * ends[:-1] - ends[-1]))) if len(ends) > 1 else 0
        if not cut or not 0 < ends[cut - 1] < ends[-1]:
            raise InputError(f"{self.name}: its steps have no order in time, so it cannot be cut into two halves.")
        return (
            Traffic(self.parts[:cut], f"{self.name}, first half", self.origin),
            Traffic(self.parts[cut:], f"{self.name}, second half", self.origin),
        )


def running_batches(requests: Iterable[tuple[int, int]], cap: int, drain: bool = True) -> Iterator[tuple[int, int]]:
    """Yield ``(batch size, steps at it)`` for requests served by continuous batching, first come first served.

    Before each step the requests that have arrived join while fewer than ``cap`` run; each running request makes one
    token a step and leaves after its last; prefill costs nothing; a step counts when at least one request runs.

    Args:
        requests: ``(arrival, tokens)`` in the order of arrival; arrival is the first step the request may join.
        cap: most requests that run together.
        drain: go on after the last arrival until nobody runs; False stops at the last arrival.
    """
    scheduler: Scheduler[int] = Scheduler(batch_size(cap, "cap"))
    for number, (arrival, tokens) in enumerate(chain(requests, [(math.inf, 0)] if drain else [])):
        while (left := arrival - scheduler.step) > 0:
            scheduler.admit()
            steps = scheduler.steps_to_next_finish()
            if steps is None:  # nobody runs: wait for the arrival, or end
                if left < math.inf:
                    scheduler.advance(left)
                break
            # Between two arrivals or departures nothing changes, so many steps are taken at once.
            if steps > left:
                steps = left
            yield scheduler.batch_size, steps
            scheduler.advance(steps)
        if tokens:  # a request that makes no token never decodes
            scheduler.submit(number, tokens)


def steps_per_nanosecond(step_ms: float, load: float) -> Fraction:
    """Return the exact factor from a trace's nanoseconds to steps: ``load`` > 1 compresses the arrival times.

    Exact, because a request that arrives at k·step_ms must join step k, and a rounded division may miss it.
    """
    for argument, value in (("step_ms", step_ms), ("load", load)):
        number = isinstance(value, Real) and not isinstance(value, bool)
        require(number and 1e-6 <= value <= 1e6, argument, value, "a number from 0.000001 to 1,000,000")
    return 1 / (Fraction(str(load)) * Fraction(str(step_ms)) * 10**6)
