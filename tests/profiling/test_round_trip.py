"""Timelines from any source: written for Perfetto and read back the same; totals agree in timeline, JSON and SVG."""

import gzip
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.commands.trace import as_json
from s13lib.errors import InputError
from s13lib.figures import Panel, svg, timeline_svg
from s13lib.profiling import Trace, TraceReport, read_trace
from s13lib.simulator import PRESETS, Span, Timeline, chrome_trace, simulate_timeline
from tests.profiling.kineto import call, kernel, launch_and_kernel

NS = "{http://www.w3.org/2000/svg}"
TIMES = st.floats(-1e12, 1e12) | st.integers(-(10**12), 10**12)
LENGTHS = st.floats(0, 1e9) | st.integers(0, 10**9)
CORRELATIONS = st.none() | st.integers(-3, 6) | st.integers(-(2**70), 2**70)


LANES = st.sampled_from(["", "a", "b"])


def spans(kinds):
    span = st.builds(Span, st.text(max_size=6), TIMES, LENGTHS, CORRELATIONS, st.sampled_from(kinds), LANES)
    return st.lists(span, max_size=8).map(tuple)


TIMELINES = st.builds(
    Timeline,
    spans(["", "graph", "call"]),
    spans(["", "memcpy", "memset"]),
    st.sampled_from(["modelled", "measured", "recorded"]),
    st.text(max_size=20),
)


@settings(max_examples=150, deadline=None)
@given(timeline=TIMELINES, packed=st.booleans())
def test_what_was_written_is_read_back_the_same(tmp_path_factory, timeline, packed):
    path = tmp_path_factory.mktemp("round") / "trace.json"
    text = chrome_trace(timeline).encode()
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    trace = read_trace(path)
    assert trace.timeline == timeline
    assert trace.label == f"{timeline.source} (trace.json)"


def test_a_kineto_trace_survives_two_more_writings(write):
    events = [
        *launch_and_kernel(1.5, 1),
        *launch_and_kernel(20.125, 2, stream=9),
        call(40, 3, 3, "cudaGraphLaunch", process=7),
        kernel(50, 1, 3),
        kernel(52, 1, 3),
        call(60, 1, 4, "cudaMemcpyAsync"),
        kernel(70, 1, 4, "Memcpy HtoD", category="gpu_memcpy"),
    ]
    first = read_trace(write(events))
    text = chrome_trace(first.timeline)
    again = read_trace(write(text, "again.json"))
    assert again.timeline == first.timeline
    assert chrome_trace(again.timeline) == text
    before, after = as_json(TraceReport(first)), as_json(TraceReport(again))
    for key in ("device_kernels", "device_copies", "launch_calls", "graphs", "idle_us_by_reason", "verdict", "why"):
        assert after[key] == before[key]


def test_perfetto_gets_a_lane_for_each_thread_and_stream_and_no_slices_overlap(write):
    events = [
        kernel(10, 20, 1, stream=7),
        kernel(15, 20, 2, stream=16),
        call(0, 8, 1, process=1),
        call(4, 8, 2, process=2),
    ]
    data = json.loads(chrome_trace(read_trace(write(events)).timeline))["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in data if e["name"] == "thread_name"}
    assert list(lanes.values()) == [
        "Host (CPU), process 1, thread 1",
        "Host (CPU), process 2, thread 2",
        "Device (GPU), stream 7",
        "Device (GPU), stream 16",
    ]
    slices = [e for e in data if e["ph"] == "X"]
    assert len({e["tid"] for e in slices}) == len(slices) == 4
    starts = {e["id"]: e["tid"] for e in data if e["ph"] == "s"}
    ends = {e["id"]: e["tid"] for e in data if e["ph"] == "f"}
    assert (starts, ends) == ({1: 0, 2: 1}, {1: 2, 2: 3})


def test_a_time_that_is_not_finite_is_not_written():
    with pytest.raises(ValueError, match="JSON"):
        chrome_trace(Timeline((Span("x", float("nan"), 1),), (), "measured", ""))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("graph", [False, True])
def test_modelled_steps_keep_their_totals(write, preset, graph):
    timeline = simulate_timeline(replace(PRESETS[preset], graph=graph))
    trace = read_trace(write(chrome_trace(timeline)))
    assert trace.timeline == timeline
    data = as_json(TraceReport(trace))
    assert data["source"] == "modelled (trace.json)"
    assert data["device_busy_us"] == pytest.approx(timeline.device_us)
    assert data["device_kernels"] == len(timeline.device)
    assert data["step_us"] == timeline.step_us
    assert (data["launch_calls"], data["graph_launches"]) == ((0, 1) if graph else (len(timeline.device), 0))
    assert data["device_busy_us"] + data["idle_us"] == pytest.approx(data["extent_us"])


# Starts and lengths on a coarse grid, so that a picture of 700 pixels shows each span with its true width.
GRID = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 10), st.none() | st.integers(0, 5)), min_size=1, max_size=8
)


def on_grid(name, rows):
    return tuple(Span(name, float(start), float(length), number) for start, length, number in sorted(rows, key=str))


@settings(max_examples=60, deadline=None)
@given(host=GRID, device=GRID)
def test_totals_are_conserved_between_timeline_json_and_svg(tmp_path_factory, host, device):
    timeline = Timeline(on_grid("launch", host), on_grid("kernel", device), "recorded", "file")
    path = tmp_path_factory.mktemp("totals") / "trace.json"
    path.write_text(chrome_trace(timeline))
    data = as_json(TraceReport(read_trace(path)))
    assert data["device_kernels"] == len(device)
    assert data["device_busy_us"] == timeline.device_us
    assert data["device_busy_us"] + data["idle_us"] == pytest.approx(data["extent_us"])
    assert sum(data["idle_us_by_reason"].values()) == pytest.approx(data["idle_us"])
    assert data["launch_calls"] + data["graph_launches"] == len(host)

    drawn = {svg.BLUE: [], svg.ORANGE: [], svg.IDLE: []}
    for rect in ET.fromstring(timeline_svg([Panel("t", timeline, None)], width=4000)).iter(f"{NS}rect"):
        if rect.find(f"{NS}title") is not None:
            drawn[rect.get("fill")].append(float(rect.get("width")) + 1)  # and the seam: boxes are wider than 4 pixels
    scale = (4000 - 56 - 12) / timeline.step_us
    total = {fill: sum(widths) / scale for fill, widths in drawn.items()}
    assert total[svg.BLUE] == pytest.approx(timeline.host_us, abs=0.01)
    assert total[svg.ORANGE] == pytest.approx(sum(s.duration_us for s in timeline.device), abs=0.01)
    assert total[svg.IDLE] == pytest.approx(sum(g.duration_us for g in timeline.gaps), abs=0.01)
    after_last = timeline.end_us - max(s.end_us for s in timeline.device)
    assert timeline.device_us + total[svg.IDLE] + after_last == pytest.approx(timeline.step_us, abs=0.01)


def test_a_timeline_without_device_work_is_read_and_not_judged(write):
    trace = read_trace(write(chrome_trace(Timeline((Span("launch", 0, 1),), (), "measured", "here"))))
    assert trace.timeline.host == (Span("launch", 0, 1),)
    with pytest.raises(InputError, match=r"trace\.json: the timeline holds no device events\."):
        TraceReport(trace)
    with pytest.raises(InputError, match="has no numbered streams"):
        trace.on_stream(7)


def test_windows_cut_spans_and_keep_what_lies_inside():
    timeline = Timeline(
        (Span("a", 0, 10), Span("b", 20, 5, 3)), (Span("k", 8, 20, 3), Span("m", 40, 1)), "measured", "x"
    )
    cut = timeline.window(5, 22)
    assert cut.host == (Span("a", 5, 5), Span("b", 20, 2, 3))
    assert cut.device == (Span("k", 8, 14, 3),)
    assert timeline.window(-5, 100) == timeline


def test_copies_are_no_kernels():
    timeline = Timeline((), (Span("k", 0, 1), Span("k", 2, 1), Span("Memcpy", 4, 1, None, "memcpy")), "recorded", "x")
    assert timeline.kernel_counts() == {"k": 2}
    assert TraceReport(Trace("x", "recorded", {0: timeline})).device_copies == 1
