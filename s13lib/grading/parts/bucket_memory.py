"""Exercise 1: what a layout pins, the least padding under a budget with both kinds of pools, and held-out traffic."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from s13lib.buckets.cost import POOLS, MemoryModel, row_cost
from s13lib.buckets.cost import pinned_mib as library_pinned_mib
from s13lib.buckets.layout import BucketLayout
from s13lib.buckets.optimiser import best_layout
from s13lib.buckets.traffic import Traffic
from s13lib.grading.compare import plain
from s13lib.grading.part import Part, Refused, Text

MEMORY = ("s13lib.buckets.cost:MemoryModel", "s13lib.buckets.cost:pinned_mib", "s13lib.buckets.cost:pinned_rows")
OPTIMISER = ("s13lib.buckets.optimiser:best_layout", "s13lib.buckets.optimiser:_costs", "s13lib.buckets.cost:row_cost")
HELD_OUT = ("s13lib.buckets.cost:row_cost", "s13lib.buckets.cost:_served", "s13lib.buckets.held_out:held_out")

# (traffic, max_batch, budget_mib, graph_mib, row_mib): one to follow by hand, and one in which each wrong answer known
# gives another layout. The checks multiply the steps by a random factor, which changes no layout.
PRIVATE_CASES = (
    ({2: 10, 8: 1}, 8, 14.0, 2.0, 1.0),
    ({1: 38, 2: 20, 3: 18, 4: 19, 7: 34, 8: 16, 10: 11}, 11, 42.5, 2.0, 1.5),
)
SHARED_CASES = (
    ({2: 10, 5: 4, 8: 1}, 8, 30.0, 10.0, 1.0),
    ({6: 33, 14: 34, 18: 31, 22: 35, 25: 10, 26: 33}, 31, 68.0, 10.0, 0.5),
)


def pinned_mib(sizes: list[int], pool: str, graph_mib: float, row_mib: float) -> float:
    """Reference: the library's memory model."""
    return library_pinned_mib(BucketLayout(sizes), pool, MemoryModel(graph_mib, row_mib))


def best_private(
    traffic: dict[int, int], max_batch: int, budget_mib: float, graph_mib: float, row_mib: float
) -> list[int]:
    """Reference: the library's optimiser, a pool for each graph."""
    return _best("private", traffic, max_batch, budget_mib, graph_mib, row_mib)


def best_shared(
    traffic: dict[int, int], max_batch: int, budget_mib: float, graph_mib: float, row_mib: float
) -> list[int]:
    """Reference: the library's optimiser, one pool for all graphs."""
    return _best("shared", traffic, max_batch, budget_mib, graph_mib, row_mib)


def _best(pool, traffic, max_batch, budget_mib, graph_mib, row_mib) -> list[int]:
    memory = MemoryModel(graph_mib, row_mib)
    return list(best_layout(Traffic.from_counts(traffic), max_batch, budget=budget_mib, pool=pool, memory=memory))


def choose_layout(
    layouts: list[list[int]], fitted: dict[int, int], held_out: dict[int, int]
) -> tuple[int, float, float]:
    """Reference: the library's row costs, on both traffics."""
    shares = [
        [row_cost(BucketLayout(sizes), Traffic.from_counts(traffic)).padding_fraction for sizes in layouts]
        for traffic in (fitted, held_out)
    ]
    best = int(np.argmin(shares[1]))
    return best, shares[0][best], shares[1][best]


def view_padding(pool: str):
    """The view of a layout: its padding rows, so that any equally good layout is right. Refuses what is not allowed."""

    def view(inputs: tuple, value: object) -> dict[str, int]:
        traffic, max_batch, budget_mib, graph_mib, row_mib = inputs
        layout = BucketLayout(_sizes(value))
        if layout.top != max_batch:
            raise Refused(
                f"The largest size must be max_batch = {max_batch}; yours is {layout.top}.",
                f"最大的尺寸必须是 max_batch = {max_batch}，你给的是 {layout.top}。",
            )
        mib = POOLS[pool](MemoryModel(graph_mib, row_mib), layout)
        if mib > budget_mib:
            raise Refused(
                f"{list(layout)} pins {mib:g} MiB; the budget is {budget_mib:g} MiB.",
                f"{list(layout)} 占用 {mib:g} MiB，预算是 {budget_mib:g} MiB。",
            )
        return {"padding rows": row_cost(layout, Traffic.from_counts(traffic)).padding_rows}

    return view


def _sizes(value: object) -> list[int]:
    sizes = plain(value)
    sizes = sizes.tolist() if isinstance(sizes, np.ndarray) else sizes
    whole = isinstance(sizes, list) and all(isinstance(s, Integral) and not isinstance(s, bool) for s in sizes)
    if not whole or not sizes or min(sizes) < 1:
        raise Refused(
            "Return a list of batch sizes, whole numbers of at least 1.",
            "请返回一个 batch 大小的列表，每个都是不小于 1 的整数。",
        )
    return sizes


def _halves(rng: np.random.Generator, low: float, high: float) -> float:
    """A number of MiB that is exact in binary, so that budgets can be met exactly."""
    return int(rng.integers(round(2 * low), round(2 * high) + 1)) / 2


def _traffic(rng: np.random.Generator, largest: int, distinct: int) -> dict[int, int]:
    """Steps at some batch sizes, in order."""
    batches = sorted(int(n) for n in rng.choice(range(1, largest + 1), distinct, replace=False))
    return {n: int(rng.integers(1, 60)) for n in batches}


def _scaled(rng: np.random.Generator, traffic: dict[int, int]) -> dict[int, int]:
    factor = int(rng.integers(1, 10))
    return {n: factor * steps for n, steps in traffic.items()}


def make_memory(rng: np.random.Generator) -> list[tuple]:
    """One size, two, a repeated one, an unsorted list, and random ones; both pools."""
    lists = [[4], [8, 2], [4, 4, 2], [16, 1, 8, 4]]
    for _ in range(2):
        drawn = [int(n) for n in rng.choice(range(1, 257), 5, replace=False)]
        lists.append([max(drawn), *drawn, drawn[0]])
    costs = [(10.0, 0.5), *((_halves(rng, 5, 30), _halves(rng, 0.5, 4)) for _ in lists)]
    return [(sizes, pool, *cost) for sizes, cost in zip(lists, costs, strict=False) for pool in POOLS]


def make_private(rng: np.random.Generator) -> list[tuple]:
    """The small cases in which the shortcuts fail, and random ones whose budget is just met by some layout."""
    cases = [(_scaled(rng, traffic), *rest) for traffic, *rest in PRIVATE_CASES]
    for max_batch in (6, 9, 12):
        traffic = _traffic(rng, max_batch, int(rng.integers(3, max_batch - 1)))
        some = [int(n) for n in rng.choice(range(1, max_batch), int(rng.integers(1, 4)), replace=False)]
        graph_mib, row_mib = _halves(rng, 1, 8), _halves(rng, 0.5, 3)
        budget = MemoryModel(graph_mib, row_mib).private_mib(BucketLayout([*some, max_batch]))
        cases.append((traffic, max_batch, budget, graph_mib, row_mib))
    return cases


def make_shared(rng: np.random.Generator) -> list[tuple]:
    """The small cases in which the shortcuts fail, and larger ones that are too many to try all."""
    cases = [(_scaled(rng, traffic), *rest) for traffic, *rest in SHARED_CASES]
    for max_batch, k in ((24, 3), (48, 5), (64, 7)):
        traffic = _traffic(rng, max_batch, max_batch // 2)
        graph_mib, row_mib = _halves(rng, 5, 30), _halves(rng, 0.5, 2)
        spare = float(rng.choice([0.0, 0.5])) * graph_mib
        cases.append((traffic, max_batch, k * graph_mib + row_mib * max_batch + spare, graph_mib, row_mib))
    return cases


def make_held_out(rng: np.random.Generator) -> list[tuple]:
    """A small case and three random ones: each layout suits another traffic, and some held-out steps are eager."""
    cases = [([[2, 4, 16], [4, 8, 16]], {1: 10, 2: 30, 4: 20}, {2: 5, 7: 20, 20: 1})]
    for _ in range(3):
        top = int(rng.integers(24, 65))
        low = sorted(int(n) for n in rng.choice(range(1, top // 3), 3, replace=False))
        high = sorted(int(n) for n in rng.choice(range(top // 2, top), 3, replace=False))
        even = [top // 4, top // 2, 3 * top // 4]
        layouts = [[*sizes, top] for sizes in (low, high, even)]
        fitted = {n: int(rng.integers(40, 90)) for n in low}
        held_out = {n - int(rng.integers(0, 2)): int(rng.integers(40, 90)) for n in high}
        held_out = {1: int(rng.integers(20, 40)), **held_out, top + int(rng.integers(1, 40)): int(rng.integers(10, 40))}
        order = [int(i) for i in rng.permutation(3)]
        cases.append(([layouts[i] for i in order], fitted, held_out))
    return cases


def tried_held_out(inputs: tuple) -> Text:
    """The whole call: without the numbers one cannot follow it by hand."""
    layouts, fitted, held_out = inputs
    call = f"choose_layout({layouts}, fitted={fitted}, held_out={held_out})"
    return Text(call, call)


PARTS = {
    "1a": Part(pinned_mib, make_memory, forbidden=MEMORY),
    "1b": Part(best_private, make_private, view=view_padding("private"), forbidden=(*MEMORY, *OPTIMISER)),
    "1c": Part(best_shared, make_shared, view=view_padding("shared"), forbidden=(*MEMORY, *OPTIMISER)),
    "1d": Part(choose_layout, make_held_out, forbidden=HELD_OUT, tried=tried_held_out),
}
