"""Timeline → Chrome trace JSON: two named lanes and arrows from launch to kernel. Perfetto opens it."""

from __future__ import annotations

import json

from s13lib.simulator.timeline import Span, Timeline

HOST_LANE, DEVICE_LANE = 0, 1


def chrome_trace(timeline: Timeline) -> str:
    """The timeline in the Trace Event Format (complete events and flow events, microseconds) as JSON text."""
    events = [
        _name("process_name", HOST_LANE, f"{timeline.source}: {timeline.provenance}"),
        _name("thread_name", HOST_LANE, "Host (CPU)"),
        _name("thread_name", DEVICE_LANE, "Device (GPU)"),
    ]
    events += [_slice(span, HOST_LANE, "host") for span in timeline.host]
    events += [_slice(span, DEVICE_LANE, "kernel") for span in timeline.device]
    launches = {span.correlation: span for span in timeline.host if span.correlation is not None}
    for span in timeline.device:
        launch = launches.pop(span.correlation, None)  # one arrow a launch: a replay's goes to its first kernel
        if launch is not None:
            events += _arrow(launch, span)
    return json.dumps(
        {
            "traceEvents": events,
            "displayTimeUnit": "ns",
            "otherData": {"source": timeline.source, "provenance": timeline.provenance},
        }
    )


def _name(kind: str, lane: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": 0, "tid": lane, "args": {"name": name}}


def _slice(span: Span, lane: int, category: str) -> dict:
    event = {"ph": "X", "cat": category, "name": span.name, "pid": 0, "tid": lane}
    event |= {"ts": span.start_us, "dur": span.duration_us}
    if span.correlation is not None:
        event["args"] = {"correlation": span.correlation}
    return event


def _arrow(launch: Span, kernel: Span) -> list[dict]:
    common = {"cat": "launch", "name": "launch", "id": launch.correlation, "pid": 0}
    return [
        {"ph": "s", **common, "tid": HOST_LANE, "ts": launch.start_us},
        {"ph": "f", "bp": "e", **common, "tid": DEVICE_LANE, "ts": kernel.start_us},
    ]
