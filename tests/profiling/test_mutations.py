"""The reader never crashes: whatever was done to a trace, a report comes out, or one sentence."""

import gzip
import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.commands.trace import as_json, as_text, change_as_json, change_as_text
from s13lib.errors import InputError
from s13lib.figures import timeline_svg
from s13lib.profiling import TraceChange, TraceReport, read_trace, telling_panel
from s13lib.simulator import PRESETS, chrome_trace, simulate_timeline
from tests.profiling.kineto import call, kernel, launch_and_kernel, op

KINETO = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "Card"}],
    "distributedInfo": {"rank": 1},
    "baseTimeNanoseconds": 1_700_000_000 * 10**9,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": "python"}},
        op(0, 90, "ProfilerStep#1", category="user_annotation"),
        *[event for i in range(6) for event in launch_and_kernel(20 * i, i + 1, stream=7 + i % 2, device=i // 4)],
        op(15, 8, "aten::mm"),
        call(130, 9, 50, "cudaGraphLaunch"),
        *[kernel(140 + 3 * i, 2, 50) for i in range(5)],
        call(160, 2, 51, "cudaMemcpyAsync"),
        kernel(165, 2, 51, "Memcpy HtoD", category="gpu_memcpy"),
        {"ph": "s", "id": 1, "pid": 100, "tid": 100, "ts": 0, "cat": "ac2g", "name": "ac2g"},
    ],
}
EXPORTED = json.loads(chrome_trace(simulate_timeline(PRESETS["seed"]).first(8)))
NUMBERS = [-1, 0, 2**31, 2**64, 10**400, -(10**15), 1e16, 1e300, float("nan"), float("inf"), float("-inf")]
OTHERS = [None, True, "", "kernel", "12", "\ud800", "\0", [], [1], {}, {"correlation": 1}]
STRANGE = st.sampled_from([*NUMBERS, *OTHERS])


def check(path):
    """Run everything that looks at a trace; a wrong answer here is any exception but InputError."""
    try:
        report = TraceReport(read_trace(path))
    except InputError as error:
        problem = str(error)
    else:
        return check_report(report)
    assert "\n" not in problem
    return None


def check_report(report):
    data = as_json(report)
    json.dumps(data, allow_nan=False)
    assert data["device_kernels"] + data["device_copies"] >= 1
    assert data["device_busy_fraction"] is None or 0 <= data["device_busy_fraction"] <= 1 + 1e-9
    assert data["device_busy_us"] + data["idle_us"] == pytest.approx(data["extent_us"], rel=1e-6, abs=1)
    assert sum(g["nodes"] for g in data["graphs"]) <= data["device_kernels"]
    assert as_text(report)
    change = TraceChange(report, report)
    assert "No figure changed." in change_as_text(change)
    json.dumps(change_as_json(change), allow_nan=False)
    ET.fromstring(timeline_svg([telling_panel(report)]).encode())
    chrome_trace(report.trace.timeline)
    return report


def dropped(draw, events):
    del events[draw(st.integers(0, len(events) - 1))]


def duplicated(draw, events):
    events.insert(draw(st.integers(0, len(events))), json.loads(json.dumps(draw(st.sampled_from(events)))))


def reordered(draw, events):
    events[:] = draw(st.permutations(events))


def field_of(draw, events):
    """An event and one of its fields, inside its arguments or not."""
    event = draw(st.sampled_from(events))
    where = event["args"] if isinstance(event.get("args"), dict) and event["args"] and draw(st.booleans()) else event
    return where, draw(st.sampled_from(sorted(where) or ["ts"]))


def field_removed(draw, events):
    where, key = field_of(draw, events)
    where.pop(key, None)


def field_changed(draw, events):
    where, key = field_of(draw, events)
    where[key] = draw(STRANGE)


def time_moved(draw, events):
    event = draw(st.sampled_from(events))
    event["ts"] = draw(st.floats(-1e6, 1e6) | st.integers(-200, 200))
    event["dur"] = draw(st.floats(0, 1e5) | st.integers(-1, 200))


def replaced(draw, events):
    events[draw(st.integers(0, len(events) - 1))] = draw(STRANGE)


MUTATIONS = [dropped, duplicated, reordered, field_removed, field_changed, time_moved, replaced]


@st.composite
def mutated(draw):
    data = json.loads(json.dumps(draw(st.sampled_from([KINETO, EXPORTED]))))
    for mutation in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=12)):
        events = [event for event in data["traceEvents"] if isinstance(event, dict)]
        if not events:
            break
        if mutation in (dropped, duplicated, reordered, replaced):
            mutation(draw, data["traceEvents"])
        else:
            mutation(draw, events)
    for key in draw(st.lists(st.sampled_from(sorted(data)), max_size=1)):
        data[key] = draw(STRANGE)
    return data


@settings(max_examples=250, deadline=None)
@given(data=mutated())
def test_a_mutated_trace_gives_a_report_or_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("mutated") / "trace.json"
    path.write_text(json.dumps(data))
    check(path)


@settings(max_examples=100, deadline=None)
@given(order=st.permutations(KINETO["traceEvents"]))
def test_the_order_of_events_does_not_matter(tmp_path_factory, order):
    path = tmp_path_factory.mktemp("order") / "trace.json"
    path.write_text(json.dumps(KINETO | {"traceEvents": order}))
    found = as_json(check(path))
    path.write_text(json.dumps(KINETO))
    assert found == as_json(check(path))


@settings(max_examples=150, deadline=None)
@given(
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3)), min_size=1, max_size=4),
    packed=st.booleans(),
    source=st.sampled_from([KINETO, EXPORTED]),
)
def test_damaged_bytes_give_a_report_or_a_sentence(tmp_path_factory, edits, packed, source):
    content = json.dumps(source).encode()
    content = bytearray(gzip.compress(content, 1) if packed else content)
    for where, by in edits:
        at = int(where * len(content))
        content[at : at + 2] = by
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    path.write_bytes(content)
    check(path)


def test_the_unharmed_traces_are_what_they_seem(write):
    report = check(write(json.dumps(KINETO)))
    assert (report.device_kernels, report.device_copies, report.launch_calls, len(report.graphs)) == (11, 1, 6, 1)
    assert check(write(json.dumps(EXPORTED))).device_kernels == 8
