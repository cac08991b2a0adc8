"""Trace files → Trace: PyTorch-profiler (Kineto) traces of CUDA and ROCm devices, and what ``chrome_trace`` wrote.

Kineto writes complete events (``ph`` X) with ``ts`` and ``dur`` in microseconds, whole or not. Device work is told by
its category, a launch by its name, and both share ``args.correlation``; a graph's kernels all have that of its launch.
https://github.com/pytorch/kineto; the Trace Event Format is described in the Chromium project's documentation.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from s13lib.errors import InputError
from s13lib.simulator import Span, Timeline
from s13lib.simulator.chrome_trace import HOST_CATEGORY, SCHEMA
from s13lib.simulator.timeline import Source
from s13lib.traces.host_ops import HostOps
from s13lib.traces.json_stream import EVENTS, stream_trace
from s13lib.traces.matching import Call, Work, calls_of_devices
from s13lib.traces.trace import Trace, stream_lane

LAUNCH_CALLS = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
)
GRAPH_LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch")
WORK_KINDS = {"kernel": "", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}
API_CATEGORIES = ("runtime", "driver")  # cuda_runtime, cuda_driver, hip_runtime, and Runtime of old versions
NO_HOST_OPERATION = ("gpu_user_annotation", "trace")  # on the device's rows; the profiler's own span
LARGEST_US = 1e16  # the year 2286 in µs since 1970; larger numbers are damage, and their sums would be infinite
EPOCH_US = 1.4e15  # 2014, before there was Kineto: a later time stamp counts from 1970, an earlier one from a base
DATE = re.compile(r"\d{4}-\d{2}-\d{2}\b")  # in the provenance of an exported timeline
KEPT_HEADERS = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "otherData")


def read_trace(path: str | Path) -> Trace:
    """Read a Chrome trace file, plain or gzip, of any size.

    A file that ``chrome_trace`` wrote gives back the same timeline, as ``trace.timeline``. Events that lack a field
    are used as far as they go: without a usable time they are left out (and counted in ``Trace.skipped``), without
    a correlation they belong to no launch.

    Raises:
        InputError: one sentence, for a file that is missing, empty, cut short, damaged, no trace, or without any
            device events.
    """
    if not str(path):
        raise InputError("the trace's name is empty: name a file.")
    path = Path(path)
    headers: dict[str, object] = {}
    events: _Exported | _Kineto | None = None
    found = 0
    for key, value in stream_trace(path):
        if key != EVENTS:
            if key in KEPT_HEADERS:
                headers[key] = value
            continue
        if events is None:
            events = _Exported() if _dict(headers.get("otherData")).get("schema") == SCHEMA else _Kineto()
        found += 1
        if isinstance(value, dict):
            events.add(value)
    if events is None:
        raise InputError(f"{path}: the trace holds no events.")
    if not events.seen:
        raise InputError(f"{path}: not a trace: none of the {found:,} values in its list is an event.")
    return events.trace(path, headers)


class _Exported:
    """Events that ``chrome_trace`` wrote: spans as they were, in their order."""

    def __init__(self) -> None:
        self._host: list[Span] = []
        self._device: list[Span] = []
        self.seen = self._skipped = 0

    def add(self, event: dict) -> None:
        self.seen += 1
        if event.get("ph") != "X":
            return
        if (times := _times(event)) is None:
            self._skipped += 1
            return
        args = _dict(event.get("args"))
        correlation = args.get("correlation")
        correlation = correlation if type(correlation) is int else None
        name, kind, lane = (_text(text) for text in (event.get("name"), args.get("kind"), args.get("lane")))
        span = Span(name, *times, correlation, kind, lane)
        (self._host if event.get("cat") == HOST_CATEGORY else self._device).append(span)

    def trace(self, path: Path, headers: dict[str, object]) -> Trace:
        origin = _dict(headers.get("otherData"))
        source = origin.get("source") if origin.get("source") in get_args(Source) else "recorded"
        provenance = _text(origin.get("provenance"))
        if self._skipped and not self._device:
            raise InputError(f"{path}: {_unusable(self._skipped, self.seen)}")
        timeline = Timeline(tuple(self._host), tuple(self._device), source, provenance)
        date = (DATE.findall(provenance) or [None])[-1]
        return Trace(
            path.name,
            source,
            {0: timeline},
            host_ops=HostOps(self._host),
            date=date,
            skipped=self._skipped,
            exported=True,
        )


class _Kineto:
    """Events of the PyTorch profiler."""

    def __init__(self) -> None:
        self._work: list[Work] = []
        self._calls: list[Call] = []
        self._ops = HostOps()
        self._steps: list[float] = []
        self._names: dict[str, str] = {}  # one object for each name, however often it occurs
        self.seen = self._skipped = 0

    def add(self, event: dict) -> None:
        self.seen += 1
        if event.get("ph") != "X":
            return
        category = _text(event.get("cat")).lower()
        name = _text(event.get("name"))
        launch = name in LAUNCH_CALLS or name in GRAPH_LAUNCHES
        name = self._names.get(name) or self._names.setdefault(name, _printable(name))
        if (times := _times(event)) is None:
            self._skipped += category in WORK_KINDS or launch
        elif category in WORK_KINDS:
            self._add_work(event, name, *times, WORK_KINDS[category])
        elif category not in NO_HOST_OPERATION:
            process, thread = str(event.get("pid")), event.get("tid")
            lane = f"process {process}, thread {thread}"
            lane = self._names.setdefault(lane, lane)
            self._ops.add(name, *times, lane)
            if launch or category.endswith(API_CATEGORIES):
                correlation = _correlation(_dict(event.get("args")).get("correlation"))
                if launch or correlation is not None:
                    self._calls.append(Call(*times, name, correlation, lane, process))
            elif name.startswith("ProfilerStep"):
                self._steps.append(times[1])

    def _add_work(self, event: dict, name: str, start: float, duration: float, kind: str) -> None:
        args = _dict(event.get("args"))
        device = _whole(args.get("device"), _whole(event.get("pid"), 0))
        lane = stream_lane(_whole(args.get("stream"), _whole(event.get("tid"), 0)))
        lane = self._names.setdefault(lane, lane)
        self._work.append(Work(start, duration, name, _correlation(args.get("correlation")), kind, lane, device))

    def trace(self, path: Path, headers: dict[str, object]) -> Trace:
        if not self._work and self._skipped:
            raise InputError(f"{path}: {_unusable(self._skipped, self.seen)}")
        if not self._work:
            why = "a trace of the CPU alone, unless the profiler was asked for ProfilerActivity.CUDA"
            raise InputError(f"{path}: none of its {self.seen:,} events is a device's kernel or copy ({why}).")
        # A stream cannot run the same kernel twice at a time: an event that occurs twice was written twice.
        self._work, self._calls = list(dict.fromkeys(self._work)), list(dict.fromkeys(self._calls))
        origin = min(self._ops.start_us, min(w.start_us for w in self._work))
        date, names = _date(origin, headers.get("baseTimeNanoseconds")), _device_names(headers.get("deviceProperties"))
        timelines = {}
        for device, calls in calls_of_devices(self._work, self._calls).items():
            provenance = ", ".join(filter(None, [path.name, names.get(device, f"GPU {device}"), date]))
            work = [w for w in self._work if w.device == device]
            timelines[device] = Timeline(
                tuple(_launches(calls, work, origin)),
                tuple(
                    Span(w.name, w.start_us - origin, w.duration_us, w.correlation, w.kind, w.lane)
                    for w in sorted(work, key=lambda w: w.start_us)
                ),
                "recorded",
                provenance,
            )
        rank = _dict(headers.get("distributedInfo")).get("rank")
        return Trace(
            name=path.name,
            source="recorded",
            timelines=timelines,
            device_names=names,
            host_ops=self._ops.shifted(-origin),
            profiler_steps_us=tuple(self._steps),
            date=date,
            rank=rank if type(rank) is int else None,
            skipped=self._skipped,
        )


def _launches(calls: list[Call], work: list[Work], origin: float) -> list[Span]:
    """The calls that launch or submit something, in order. Others (queries, waits) stay host operations."""
    kernels = Counter(w.correlation for w in work if not w.kind)
    submitted = {w.correlation for w in work} - {None}
    found = []
    for call in sorted(calls, key=lambda c: c.start_us):
        count = kernels[call.correlation] if call.correlation is not None else 0
        if call.name in LAUNCH_CALLS:
            kind = ""
        elif call.name in GRAPH_LAUNCHES:
            kind = "graph"
        elif count and "launch" in call.name.lower():  # such as cudaLaunchCooperativeKernel
            kind = "graph" if "graph" in call.name.lower() else ""
        elif call.correlation in submitted:
            kind = "call"
        else:
            continue
        found.append(Span(call.name, call.start_us - origin, call.duration_us, call.correlation, kind, call.lane))
    return found


# ---- fields that may be missing or wrong


def _unusable(skipped: int, seen: int) -> str:
    return (
        f"the times of {skipped:,} of its {seen:,} events cannot be used, and no kernel or copy is left: "
        "ts and dur must be numbers, and dur not negative."
    )


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    # Half a surrogate pair is valid in JSON, but no text: it can be neither printed nor written.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _times(event: dict) -> tuple[float, float] | None:
    """Start and duration; None where one is missing, no number, or out of all bounds."""
    start, duration = event.get("ts"), event.get("dur")
    for value in (start, duration):
        good = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST_US <= value <= LARGEST_US
        if not good:
            return None
    return (start, duration) if duration >= 0 else None


def _whole(value: object, otherwise: int) -> int:
    return value if type(value) is int and 0 <= value <= LARGEST_US else otherwise


def _correlation(value: object) -> int | None:
    # 0 is the profiler's word for none.
    return _whole(value, 0) or None


def _device_names(properties: object) -> dict[int, str]:
    found = {}
    for each in properties if isinstance(properties, list) else []:
        number, name = _dict(each).get("id"), _text(_dict(each).get("name")).strip()
        if type(number) is int and name:
            found[number] = name
    return found


def _date(origin_us: float, base_ns: object) -> str | None:
    """The day (UTC) of a time stamp, which counts from 1970 or, in newer files, from ``baseTimeNanoseconds``."""
    base_us = base_ns / 1000 if type(base_ns) is int and 0 <= base_ns <= 1000 * LARGEST_US else 0
    seconds = (origin_us + base_us) / 1e6
    if not EPOCH_US / 1e6 < seconds < LARGEST_US / 1e6:
        return None
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
