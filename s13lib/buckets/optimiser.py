"""The best layout for some traffic: exact, by dynamic programming over the largest size.

Let the sizes be a < b < …: every batch n with a < n ≤ b is served at b. The cost of a layout is a sum over such
intervals, cost(a, b) = price(b) · steps(a < n ≤ b), where price is b rows or the step time at b. So the best layout
with k sizes that ends in b is the best one with k − 1 sizes that ends in some a < b, plus cost(a, b): O(k·N²). With a
memory budget the state is the memory in use instead of k: O(N²·M). Nothing is assumed of the prices, which may fall
with the batch (the convex-hull variant, O(k·N), is wrong then). All candidates a are tried in one NumPy operation.
Costs are float64: in rows they are whole numbers, and exact while steps · largest size · candidates < 2^53.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real

import numpy as np

from s13lib.buckets.cost import POOLS, MemoryModel
from s13lib.buckets.layout import LARGEST_BATCH, BucketLayout, batch_size
from s13lib.buckets.step_times import StepTimes
from s13lib.buckets.traffic import Traffic
from s13lib.errors import InputError, look_up, require
from s13lib.progress import Progress

MOST_CANDIDATES = 2048
LARGEST_BUDGET = 10**18
EXACT_UNITS, ROUNDED_UNITS = 4096, 1024
ROUNDING = 1e-12  # mean step times that differ by less, relative, are a tie


def best_layout(
    traffic: Traffic,
    max_batch: int = 256,
    *,
    count: int | None = None,
    budget: float | None = None,
    pool: str = "shared",
    memory: MemoryModel | None = None,
    objective: str = "rows",
    times: StepTimes | None = None,
    eager_tail: bool = False,
    multiple_of: int = 1,
) -> BucketLayout:
    """Return the layout with the lowest cost on ``traffic``; of equally good ones, one with the fewest sizes.

    Args:
        traffic: only the proportions of its counts matter.
        max_batch: must be covered: the largest size is ``max_batch``, rounded up to ``multiple_of``.
        count: at most so many sizes. Give this or ``budget``.
        budget: at most so much pinned memory, in the unit of ``memory`` (MiB, or rows with ``ROWS``).
        pool: for a budget: ``"shared"`` (one pool: graph·k + row·top) or ``"private"`` (Σ over sizes). With private
            pools the budget is counted in a common divisor of the sizes' memory if that makes at most 4,096 units,
            and else in 1,024 units with each size rounded up (never over the budget, perhaps not the very best).
        memory: for a budget: what a graph pins; default ``MemoryModel()``.
        objective: ``"rows"`` (fewest computed rows) or ``"time"`` (least mean step time under ``times``).
        times: step times in µs, for the objective ``"time"``.
        eager_tail: with ``"time"``, the layout may end anywhere, also below ``max_batch``; batches above its top run
            eager at ``times.eager_us``. Batches above ``max_batch`` in the traffic do in any case. (In rows an eager
            tail makes no sense: eager rows pad nothing, so the fewest sizes would win.)
        multiple_of: every size is a multiple of this.

    Raises ``InputError`` for arguments out of range, for traffic above the largest size that no eager tail takes, for
    step times that are not known, and for a budget that no layout meets (it states the smallest that works).
    """
    require((count is None) != (budget is None), "count, budget", (count, budget), "exactly one of the two")
    look_up(POOLS, pool, "pool")
    # 0, then the multiples up to the first that covers max_batch.
    sizes = np.arange(0, check_max_batch(max_batch, multiple_of) + 1, multiple_of)
    cost, tail = _costs(traffic, sizes, objective, times, eager_tail)
    # A size that serves no step changes nothing, so more sizes than batch sizes seen (and the top) never help.
    top = len(sizes) - 1
    enough = min(top, int(np.count_nonzero(traffic.counts)) + 1)
    if count is not None:
        chosen = _by_count(cost, tail, [top] * min(batch_size(count, "count"), enough))
        return BucketLayout(sizes[chosen].tolist())

    limit = _exact("budget", budget)
    memory = memory or MemoryModel()
    graph, row = _exact("graph_mib", memory.graph_mib), _exact("row_mib", memory.row_mib)
    smallest = graph + row * int(sizes[int(np.flatnonzero(np.isfinite(tail))[0])])
    require(limit >= smallest, "budget", float(budget), f"at least {float(smallest)}, for the smallest layout possible")
    step = row * multiple_of
    if pool == "shared":
        left = [limit - graph * k for k in range(1, enough + 1)]  # what k graphs leave for the rows of the largest
        tops = [min(top, int(mib // step) if step else top) for mib in left if mib >= 0]
        chosen = _by_count(cost, tail, tops)
    else:
        chosen = _by_count(cost, tail, [top] * enough)
        if sum(graph + row * int(size) for size in sizes[chosen]) > limit:
            unit = _common_divisor(graph, step)
            if limit / unit > EXACT_UNITS:
                unit = limit / ROUNDED_UNITS
            weights = [math.ceil((graph + row * int(size)) / unit) for size in sizes]
            chosen = _by_private_memory(cost, tail, weights, int(limit // unit))
    return BucketLayout(sizes[chosen].tolist())


def check_max_batch(max_batch: int, multiple_of: int = 1) -> int:
    """Return the largest size of a layout: ``max_batch`` rounded up to ``multiple_of``.

    Raises the ``InputError`` that ``best_layout`` would raise for these two: call it before anything that takes long.
    """
    max_batch, multiple_of = batch_size(max_batch, "max_batch"), batch_size(multiple_of, "multiple_of")
    candidates = -(-max_batch // multiple_of)
    most = f"at most {MOST_CANDIDATES * multiple_of}, or raise multiple_of: {MOST_CANDIDATES} candidates are the limit"
    require(candidates <= MOST_CANDIDATES, "max_batch", max_batch, most)
    largest = LARGEST_BATCH // multiple_of * multiple_of
    require(max_batch <= largest, "max_batch", max_batch, f"at most {largest}, the last multiple of {multiple_of}")
    return candidates * multiple_of


def _costs(
    traffic: Traffic, sizes: np.ndarray, objective: str, times: StepTimes | None, eager_tail: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return cost[b, a] of serving sizes[a] < n ≤ sizes[b] at sizes[b] (inf for a ≥ b), and tail[b] of all n above."""
    require(objective in ("rows", "time"), "objective", objective, "'rows' or 'time'")
    if objective == "rows" and eager_tail:
        raise InputError("eager_tail is True: must be False with objective 'rows', where eager rows pad nothing.")
    if objective == "time" and times is None:
        raise InputError("times is None: objective 'time' needs step times.")
    top = int(sizes[-1])
    if traffic.largest > top and not eager_tail:
        way = " or give it an eager tail" if objective == "time" else ""
        reach = f"{traffic.name} reaches batch {traffic.largest}"
        raise InputError(f"max_batch: the largest size is {top} and {reach}: raise max_batch{way}.")
    # Dividing by the greatest common divisor makes the answer independent of the histogram's scale, to the last bit.
    steps = (traffic.counts // math.gcd(*traffic.counts.tolist())).astype(float)
    steps_up_to = np.cumsum(steps)[np.minimum(sizes, traffic.largest)]
    price = sizes.astype(float)
    if objective == "time":
        price[1:] = times.graph(sizes[1:])
    # Each size costs a little more, too little to outweigh a row (or rounding): of equal layouts the fewest sizes win.
    # A power of two keeps the sums of rows exact.
    tie = 0.5 ** len(sizes).bit_length() if objective == "rows" else ROUNDING * steps.sum() * price[1:].min()
    intervals = price[:, None] * (steps_up_to[:, None] - steps_up_to) + tie
    cost = np.where(np.tri(len(sizes), k=-1, dtype=bool), intervals, np.inf)
    tail = np.full(len(sizes), np.inf)
    tail[-1] = 0
    if eager_tail:
        n = np.flatnonzero(steps)
        eager_up_to = np.zeros(len(steps))
        eager_up_to[n] = steps[n] * times.eager(n)
        eager_up_to = np.cumsum(eager_up_to)
        tail[1:] = eager_up_to[-1] - eager_up_to[np.minimum(sizes, traffic.largest)][1:]
    return cost, tail


def _by_count(cost: np.ndarray, tail: np.ndarray, tops: list[int]) -> list[int]:
    """Return the best indices, at most ``len(tops)`` of them, where k of them end at index ``tops[k - 1]`` or below."""
    best = np.full(len(tail), np.inf)  # best[b]: exactly k sizes, the largest of them b
    best[0] = 0
    parents: list[np.ndarray] = []
    ends: list[tuple[float, int, int]] = []
    for k, highest in enumerate(tops, start=1):
        through = best + cost
        parents.append(through.argmin(axis=1))
        best = through[np.arange(len(tail)), parents[-1]]
        totals = (best + tail)[: highest + 1]
        ends.append((float(totals.min()), k, int(totals.argmin())))
    _, k, end = min(ends)
    chosen = [end]
    for parent in parents[k - 1 : 0 : -1]:
        chosen.append(int(parent[chosen[-1]]))
    return chosen


def _by_private_memory(cost: np.ndarray, tail: np.ndarray, weights: list[int], units: int) -> list[int]:
    """Return the best indices whose weights sum to at most ``units``; index 0 stands for "no size"."""
    best = np.full((units + 1, len(tail)), np.inf)  # best[u, b]: at most u units, the largest size b
    best[:, 0] = 0
    parents = np.zeros(best.shape, np.int16)
    with Progress("optimising", len(tail)) as bar:
        for b in range(1, len(tail)):
            bar.update()
            rest = units + 1 - weights[b]  # rows u = 0 … units − weight are what is left for the smaller sizes
            if rest <= 0:
                break
            through = best[:rest, :b] + cost[b, :b]
            parent = through.argmin(axis=1)
            best[weights[b] :, b] = through[np.arange(rest), parent]
            parents[weights[b] :, b] = parent
    b, left, chosen = int((best[units] + tail).argmin()), units, []
    while b:
        chosen.append(b)
        b, left = int(parents[left, b]), left - weights[b]
    return chosen


def _exact(argument: str, value: float) -> Fraction:
    # The decimal that was written: 0.1 is a tenth, so that sums of memory can be compared exactly.
    number = isinstance(value, Real) and not isinstance(value, bool)
    require(number and 0 <= value <= LARGEST_BUDGET, argument, value, "a number from 0 to 10^18")
    return Fraction(str(value))


def _common_divisor(a: Fraction, b: Fraction) -> Fraction:
    return Fraction(math.gcd(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)
