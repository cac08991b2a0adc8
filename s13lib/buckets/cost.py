"""What a layout costs: padding rows, time, pinned memory, capture time; and what it gains over eager."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from s13lib.buckets.layout import BucketLayout
from s13lib.buckets.step_times import StepTimes
from s13lib.buckets.traffic import Traffic
from s13lib.errors import look_up, require


@dataclass(frozen=True)
class RowCost:
    """Rows that a layout computes for some traffic.

    Args:
        steps: decode steps; ``eager_steps`` of them were above the largest size and ran eager, unpadded.
        real_rows: rows that belong to a request; ``eager_rows`` of them in eager steps.
        padding_rows: rows added to reach a captured size.
    """

    steps: int
    eager_steps: int
    real_rows: int
    eager_rows: int
    padding_rows: int

    @property
    def padding_fraction(self) -> float:
        """Padding rows as a share of all computed rows (padding + real, eager rows included)."""
        return self.padding_rows / (self.padding_rows + self.real_rows)


@dataclass(frozen=True)
class TimeCost:
    """The mean decode step in µs, under some step times. Sums are means over all steps of the traffic.

    Args:
        step_us: as served: at the captured size, or eager above the largest one.
        padding_us: the part of ``step_us`` that padding adds: graph at the captured size minus graph at the exact n.
        eager_step_us: the same steps all eager, at the exact n.
        replay_saves_us: what replay saves at the exact n: eager minus graph, over the steps that use a graph.
    """

    step_us: float
    padding_us: float
    eager_step_us: float
    replay_saves_us: float

    @property
    def time_waste_fraction(self) -> float:
        """Share of the served time that padding adds. Negative if the larger graph happens to be the faster."""
        return self.padding_us / self.step_us

    @property
    def gain_us(self) -> float:
        """Net gain a step against eager at the exact n: what replay saves minus what padding costs."""
        return self.replay_saves_us - self.padding_us

    @property
    def gain_fraction(self) -> float:
        """Net gain as a share of the all-eager time."""
        return self.gain_us / self.eager_step_us


def row_cost(layout: BucketLayout, traffic: Traffic) -> RowCost:
    """Count the rows that ``layout`` computes for ``traffic``."""
    n, steps, served = _served(layout, traffic)
    replayed = served > 0
    return RowCost(
        steps=traffic.steps,
        eager_steps=int(steps[~replayed].sum()),
        real_rows=traffic.rows,
        eager_rows=int((steps * n)[~replayed].sum()),
        padding_rows=int((steps * (served - n))[replayed].sum()),
    )


def time_cost(layout: BucketLayout, traffic: Traffic, times: StepTimes) -> TimeCost:
    """Cost ``layout`` on ``traffic`` under ``times``, which need not grow with the batch.

    Raises ``InputError`` when a step time that this needs is not known.
    """
    n, steps, served = _served(layout, traffic)
    replayed = served > 0
    share = steps / traffic.steps
    eager_us = times.eager(n)
    exact_us, served_us = eager_us.copy(), eager_us.copy()
    exact_us[replayed] = times.graph(n[replayed])
    served_us[replayed] = times.graph(served[replayed])
    return TimeCost(
        step_us=float(share @ served_us),
        padding_us=float(share @ (served_us - exact_us)),
        eager_step_us=float(share @ eager_us),
        replay_saves_us=float(share @ (eager_us - exact_us)),
    )


def _served(layout: BucketLayout, traffic: Traffic) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # For each batch size seen: the size, its steps, and the captured size that serves it (0: none, eager).
    n = np.flatnonzero(traffic.counts)
    sizes = np.array([*layout.sizes, 0])
    return n, traffic.counts[n], sizes[np.searchsorted(sizes[:-1], n)]


LARGEST_AMOUNT = 10**9  # MiB or seconds for one graph or row: a petabyte and thirty years, so every sum is finite


def _amount(argument: str, value: object) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    require(number and 0 <= value <= LARGEST_AMOUNT, argument, value, f"a number from 0 to {LARGEST_AMOUNT:,}")


@dataclass(frozen=True)
class MemoryModel:
    """Memory that a graph pins: ``graph_mib + row_mib · size``.

    Defaults, for want of a measurement: 10 MiB a graph (vLLM logs 6 to 28 MiB, TensorRT-LLM about 10 MiB of metadata)
    and 0.5 MiB a row (fp32 logits of a 128k vocabulary, the largest activation of a decode step). Each from 0 to 10^9.
    """

    graph_mib: float = 10.0
    row_mib: float = 0.5

    def __post_init__(self) -> None:
        for name in ("graph_mib", "row_mib"):
            _amount(name, getattr(self, name))

    def private_mib(self, layout: BucketLayout) -> float:
        """Memory when each graph has a pool of its own: Σ (graph_mib + row_mib · size)."""
        return self.graph_mib * len(layout) + self.row_mib * sum(layout)

    def shared_mib(self, layout: BucketLayout) -> float:
        """Memory when all graphs share one pool, captured largest first: the largest needs holds for all."""
        return self.graph_mib * len(layout) + self.row_mib * layout.top


ROWS = MemoryModel(graph_mib=0, row_mib=1)  # counts pinned rows in place of MiB

POOLS = {"private": MemoryModel.private_mib, "shared": MemoryModel.shared_mib}


def pinned_mib(layout: BucketLayout, pool: str = "shared", memory: MemoryModel | None = None) -> float:
    """Return the memory in MiB that the graphs of ``layout`` pin with ``"private"`` pools or one ``"shared"`` pool."""
    return look_up(POOLS, pool, "pool")(memory or MemoryModel(), layout)


def pinned_rows(layout: BucketLayout, pool: str = "shared") -> int:
    """Return the rows of activations that stay allocated: Σ sizes with private pools, the largest size if shared."""
    return int(look_up(POOLS, pool, "pool")(ROWS, layout))


def capture_seconds(layout: BucketLayout, seconds_per_graph: float) -> float:
    """Return the start-up time that capturing ``layout`` takes, in seconds, for 0 to 10^9 seconds a graph."""
    _amount("seconds_per_graph", seconds_per_graph)
    return len(layout) * seconds_per_graph
