"""Exercise 6: the walk over a timeline from which the wrong answers depart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from s13lib.simulator.timeline import Span, Timeline

PAUSE_US = 1000.0


def covered_us(spans: tuple[Span, ...]) -> float:
    """The time that spans cover; overlaps count once."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start_us):
        total += max(0.0, span.end_us - max(until, span.start_us))
        until = max(until, span.end_us)
    return total


# Each idle stretch: (start, duration, the work that ends it, its launch, whether it is that launch's first).

Stretch = tuple[float, float, Span, Span, bool]


def stretches(timeline: Timeline, first_wait: bool = True) -> Iterator[Stretch]:
    """The idle stretches, in order of time; without the wait for the first kernel if so wished."""
    launches = {span.correlation: span for span in timeline.host}
    seen: set[int | None] = set()
    until = timeline.start_us if first_wait else min(span.start_us for span in timeline.device)
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        if span.start_us > until:
            first = span.correlation not in seen
            yield until, span.start_us - until, span, launches[span.correlation], first
        seen.add(span.correlation)
        until = max(until, span.end_us)


def reason_of(stretch: Stretch) -> str:
    """The right reason."""
    start_us, duration_us, _, launch, first = stretch
    if not first or launch.end_us <= start_us:
        return "boundary"
    if duration_us > PAUSE_US:
        return "pause"
    return "replay" if launch.kind == "graph" else "launch"


def why(timeline: Timeline, reason: Callable[[Stretch], str] = reason_of, first_wait: bool = True):
    """Durations and reasons, by another way to reason if so wished."""
    return [(stretch[1], reason(stretch)) for stretch in stretches(timeline, first_wait)]
