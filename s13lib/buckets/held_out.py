"""Does a layout hold on traffic that it was not fitted to?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from s13lib.buckets.cost import RowCost, TimeCost, row_cost, time_cost
from s13lib.buckets.layout import BucketLayout
from s13lib.buckets.step_times import StepTimes
from s13lib.buckets.traffic import Traffic
from s13lib.errors import InputError


@dataclass(frozen=True)
class Evaluation:
    """What a fitted layout costs on one traffic; ``held_out`` is False for the traffic that it was fitted to."""

    traffic: Traffic
    held_out: bool
    rows: RowCost
    time: TimeCost | None


@dataclass(frozen=True)
class HeldOutReport:
    """A layout, what it costs where it was fitted (first) and elsewhere, and a sentence about how this was done."""

    layout: BucketLayout
    evaluations: tuple[Evaluation, ...]
    note: str


def held_out(
    traffic: Traffic,
    fit: Callable[[Traffic], BucketLayout],
    others: Iterable[Traffic] = (),
    times: StepTimes | None = None,
) -> HeldOutReport:
    """Fit a layout to the first half of ``traffic`` and cost it on the second half and on ``others``.

    A histogram has no order in time, so it has no halves: then the layout is fitted to all of it and only ``others``
    are held out, as the report's note says; without ``others`` that is an ``InputError``.

    Args:
        traffic: cut at half of its steps.
        fit: makes the layout, for instance ``lambda part: best_layout(part, 256, count=13)``.
        others: further traffic, for instance the built-in generator that ``traffic`` is not.
        times: to cost time as well, in µs.
    """
    others = tuple(others)
    try:
        seen, later = traffic.split()
        unseen = (later, *others)
        note = f"fitted to the first half of the steps of {traffic.name}, in order of time."
    except InputError as error:
        if not others:
            raise InputError(f"{error} Name other traffic to hold out.") from None
        seen, unseen = traffic, others
        note = f"fitted to all of {traffic.name}: its steps have no order in time, so only other traffic is held out."
    layout = fit(seen)
    evaluations = tuple(
        Evaluation(part, part is not seen, row_cost(layout, part), time_cost(layout, part, times) if times else None)
        for part in (seen, *unseen)
    )
    return HeldOutReport(layout, evaluations, note)
