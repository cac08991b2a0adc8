"""Exercise 6: its references say what the library says of the same timelines, and its cases hold what they should."""

import numpy as np
import pytest

from s13lib.grading.manifest import part
from s13lib.grading.part import Refused
from s13lib.grading.parts.read_trace import Submission, make_steps, make_why, played, recorded_timelines
from s13lib.profiling import Trace, TraceReport
from s13lib.simulator import Span, Timeline

EXAMPLE = Timeline(
    host=(Span("launch", 0, 6, 11), Span("graph launch", 6, 10, 14, "graph"), Span("launch", 16, 5, 17)),
    device=(Span("norm", 6, 2, 11), Span("gemv", 16, 3, 14), Span("add", 20, 3, 14), Span("copy", 24, 2, 17, "memcpy")),
    source="modelled",
    provenance="made up",
)


def reference(key):
    return part(key).reference


def steps(seeds=range(8)):
    return [timeline for seed in seeds for (timeline,) in make_steps(np.random.default_rng(seed))]


def test_the_example_of_the_notebook():
    assert reference("6a")(EXAMPLE) == pytest.approx(16 / 26)
    assert reference("6b")(EXAMPLE) == [(6, "launch"), (8, "replay"), (1, "boundary"), (1, "boundary")]
    assert reference("6c")(EXAMPLE) == "launch-bound"
    assert reference("6d")(EXAMPLE) == ["graph", "fusion", "host"]


def test_verdict_and_remedies_are_the_librarys():
    for timeline in steps():
        verdict = TraceReport(Trace("step", "modelled", {0: timeline}, exported=True)).verdict
        assert reference("6c")(timeline) == verdict.name, timeline.provenance
        assert tuple(reference("6d")(timeline)) == verdict.would_help, timeline.provenance


def test_the_cases_hold_every_verdict_and_every_remedy():
    (timelines,) = ([timeline for (timeline,) in make_steps(np.random.default_rng(1))],)
    assert {reference("6c")(t) for t in timelines} == {"launch-bound", "device-bound", "mixed"}
    helps = {tuple(reference("6d")(t)) for t in timelines}
    assert helps >= {(), ("graph", "fusion"), ("fusion",), ("host",), ("graph", "fusion", "host")}


def test_the_cases_hold_every_reason():
    found = {reason for (t,) in make_why(np.random.default_rng(1)) for _, reason in reference("6b")(t)}
    assert found == {"launch", "replay", "pause", "boundary"}


def test_made_times_are_exact_in_binary():
    for (timeline,) in [*make_steps(np.random.default_rng(2))[:-4], *make_why(np.random.default_rng(2))]:
        times = [x for span in (*timeline.host, *timeline.device) for x in (span.start_us, span.duration_us)]
        assert all(4 * x == int(4 * x) for x in times)


def test_the_order_decides_where_the_totals_are_equal():
    first, last = [Submission(6.0, (1.0,))] * 144, [Submission(6.0, (11.0,))] * 144
    early, late = played("short, long", first + last), played("long, short", last + first)
    assert early.host_us == early.device_us == late.device_us == 1728
    assert (early.step_us, late.step_us) == (2454, 1734)
    assert (reference("6c")(early), reference("6c")(late)) == ("mixed", "device-bound")


def test_the_recordings():
    assert [(reference("6c")(t), reference("6d")(t)) for t in recorded_timelines()] == [
        ("launch-bound", ["graph", "fusion"]),  # softgpu-bard-stage15-eager
        ("device-bound", []),  # softgpu-bard-stage15-graph
        ("mixed", ["graph", "fusion"]),  # softgpu-bard-stage4-eager
        ("device-bound", []),  # softgpu-bard-stage4-graph
    ]


def test_remedies_in_any_order_and_form():
    six_d = part("6d")
    for found in (["fusion", "graph"], ("graph", "fusion"), {"graph", "fusion"}, ["graph", "graph", "fusion"]):
        assert six_d.view((), six_d.drive(lambda timeline, found=found: found, EXAMPLE)) == ["graph", "fusion"]


@pytest.mark.parametrize("found", ["graph", None, ["cudagraph"], [1], [["graph"]]])
def test_other_remedies_are_refused(found):
    with pytest.raises(Refused, match=r'any of "graph", "fusion" and "host"'):
        part("6d").view((), found)
