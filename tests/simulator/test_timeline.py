"""Timeline arithmetic on small hand-made cases, and the Chrome trace that it writes."""

import copy
import json

import pytest

from s13lib.simulator import PRESETS, Gap, Span, Timeline, chrome_trace, simulate_timeline

HOST = (Span("launch a", 10, 2, 0), Span("launch b", 12, 6, 1))
DEVICE = (Span("a", 13, 3, 0), Span("b", 18, 4, 1))
TWO = Timeline(HOST, DEVICE, "measured", "by hand")


def test_read_outs():
    assert (TWO.start_us, TWO.end_us, TWO.step_us) == (10, 22, 12)
    assert (TWO.host_us, TWO.device_us) == (8, 7)
    assert TWO.utilization == pytest.approx(7 / 12)
    assert TWO.bottleneck == "host"
    assert TWO.gaps == (Gap(10, 3, "a"), Gap(16, 2, "b"))
    assert TWO.median_launch_us == 4
    assert TWO.kernel_counts() == {"a": 1, "b": 1}


def test_overlapping_kernels_count_once():
    streams = Timeline((), (Span("a", 0, 10), Span("b", 5, 10), Span("c", 20, 1)), "recorded", "two streams")
    assert streams.device_us == 16
    assert streams.gaps == (Gap(15, 5, "c"),)


def test_an_empty_timeline_has_zeros():
    empty = Timeline((), (), "modelled", "nothing")
    assert (empty.step_us, empty.utilization, empty.gaps, empty.median_launch_us) == (0, 0, (), 0)


def test_a_copy_is_the_frozen_timeline_itself():
    timeline = Timeline((Span("launch", 0, 6, 0),), (Span("k", 6, 1, 0),), "modelled", "by hand")
    assert copy.deepcopy([timeline])[0] is timeline


def test_the_first_launches_bring_their_own_kernels():
    first = TWO.first(1)
    assert first.host == HOST[:1]
    assert first.device == DEVICE[:1]


def test_the_first_launches_of_a_replay_are_its_first_kernels():
    replay = Timeline((Span("replay", 0, 1, 7),), tuple(Span("k", i, 1, 7) for i in range(30)), "modelled", "x")
    assert len(replay.first(18).device) == 18


def test_chrome_trace_has_two_named_lanes_and_an_arrow_a_launch():
    data = json.loads(chrome_trace(simulate_timeline(PRESETS["seed"])))
    events = data["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes == {0: "Host (CPU)", 1: "Device (GPU)"}
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 2 * 288
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(ends) == 288
    kernels = {e["args"]["correlation"]: e for e in slices if e["tid"] == 1}
    launches = {e["args"]["correlation"]: e for e in slices if e["tid"] == 0}
    for i in range(288):
        assert starts[i]["ts"] == launches[i]["ts"]
        assert ends[i]["ts"] == kernels[i]["ts"]
        assert ends[i]["bp"] == "e"
    assert data["otherData"]["source"] == "modelled"


def test_a_replay_has_one_arrow_to_its_first_kernel():
    replay = Timeline((Span("replay", 0, 1, 7),), (Span("a", 1, 1, 7), Span("b", 2, 1, 7)), "modelled", "x")
    events = json.loads(chrome_trace(replay))["traceEvents"]
    assert [(e["ph"], e["ts"]) for e in events if e["ph"] in "sf"] == [("s", 0), ("f", 1)]
