"""Timeline → Chrome trace JSON: named lanes and arrows from launch to kernel. Perfetto opens it.

A timeline has two lanes, host and device, or one for each host thread and stream where its spans name them.
``s13lib.traces.read_trace`` gives the same timeline back.
"""

from __future__ import annotations

import json

from s13lib.simulator.timeline import Span, Timeline

SCHEMA = "s13lib timeline"
HOST, DEVICE = "Host (CPU)", "Device (GPU)"
HOST_CATEGORY = "host"
DEVICE_CATEGORIES = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}  # all else is a "kernel"


def chrome_trace(timeline: Timeline) -> str:
    """The timeline in the Trace Event Format (complete events and flow events, microseconds) as JSON text.

    Raises ``ValueError`` for a time that is not finite: JSON has no word for it.
    """
    # Slices of one lane must not overlap, or Perfetto hides some: hence a lane a thread and a stream.
    lanes = [(HOST, lane) for lane in dict.fromkeys(s.lane for s in timeline.host)] or [(HOST, "")]
    lanes += [(DEVICE, lane) for lane in dict.fromkeys(s.lane for s in timeline.device)] or [(DEVICE, "")]
    number = {lane: i for i, lane in enumerate(lanes)}
    events = [_name("process_name", 0, f"{timeline.source}: {timeline.provenance}")]
    events += [_name("thread_name", i, f"{side}, {lane}" if lane else side) for (side, lane), i in number.items()]
    events += [_slice(span, number[HOST, span.lane], HOST_CATEGORY) for span in timeline.host]
    events += [
        _slice(span, number[DEVICE, span.lane], DEVICE_CATEGORIES.get(span.kind, "kernel")) for span in timeline.device
    ]
    launches = {span.correlation: span for span in timeline.host if span.correlation is not None}
    for span in timeline.device:
        launch = launches.pop(span.correlation, None)  # one arrow a launch: a replay's goes to its first kernel
        if launch is not None:
            events += _arrow(launch, number[HOST, launch.lane], span, number[DEVICE, span.lane])
    return json.dumps(
        {
            "displayTimeUnit": "ns",
            "otherData": {"schema": SCHEMA, "source": timeline.source, "provenance": timeline.provenance},
            "traceEvents": events,
        },
        allow_nan=False,
    )


def _name(kind: str, lane: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": 0, "tid": lane, "args": {"name": name}}


def _slice(span: Span, lane: int, category: str) -> dict:
    event = {"ph": "X", "cat": category, "name": span.name, "pid": 0, "tid": lane}
    event |= {"ts": span.start_us, "dur": span.duration_us}
    known = {"correlation": span.correlation, "kind": span.kind or None, "lane": span.lane or None}
    args = {key: value for key, value in known.items() if value is not None}
    return event | {"args": args} if args else event


def _arrow(launch: Span, launch_lane: int, kernel: Span, kernel_lane: int) -> list[dict]:
    common = {"cat": "launch", "name": "launch", "id": launch.correlation, "pid": 0}
    return [
        {"ph": "s", **common, "tid": launch_lane, "ts": launch.start_us},
        {"ph": "f", "bp": "e", **common, "tid": kernel_lane, "ts": kernel.start_us},
    ]
