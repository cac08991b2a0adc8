"""Exercise 6: from a timeline, when the device idles and why, what bounds the step, and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from s13lib.grading.compare import plain
from s13lib.grading.part import Part, Refused, Text
from s13lib.profiling.analysis import DeviceReport
from s13lib.profiling.gaps import IdleGap
from s13lib.profiling.recorded import recorded_names, recorded_trace
from s13lib.profiling.verdict import DEVICE_BOUND, FUSION, GRAPH, HOST, LAUNCH_BOUND, MIXED, STARVED, WORTHWHILE
from s13lib.simulator.timeline import Span, Timeline

REPORT = ("s13lib.profiling.analysis:TraceReport", "s13lib.profiling.analysis:DeviceReport")
GAPS = ("s13lib.profiling.gaps:idle_gaps", "s13lib.profiling.gaps:first_wait", "s13lib.profiling.gaps:_reason")
BUSY = ("s13lib.simulator.timeline:_busy_stretches",)
VERDICT = ("s13lib.profiling.verdict:judge", "s13lib.profiling.verdict:_what_helps")


# ---- references, which rest on the library's reader of traces. All timelines here begin with an idle device.


def idle_share(timeline: Timeline) -> float:
    """Reference: the share of the time in which the device has nothing to do."""
    return 1 - DeviceReport(0, timeline, whole=True).busy_fraction


def why_idle(timeline: Timeline) -> list[tuple[float, str]]:
    """Reference: each idle stretch with its reason."""
    return [(gap.duration_us, _reason(gap)) for gap in DeviceReport(0, timeline, whole=True).gaps]


def bound_by(timeline: Timeline) -> str:
    """Reference: the rule of the exercise, which is the library's without its special cases."""
    report = DeviceReport(0, timeline, whole=True)
    share = _shares(report)
    late = share["launch"] + share["replay"]
    if late < WORTHWHILE:
        return DEVICE_BOUND
    starved = report.starved / max(1, report.could_starve)
    return LAUNCH_BOUND if late > share["busy"] or starved >= STARVED else MIXED


def what_helps(timeline: Timeline) -> list[str]:
    """Reference: the same for what would help."""
    share = _shares(DeviceReport(0, timeline, whole=True))
    worth = {GRAPH: share["launch"], FUSION: share["launch"] + share["boundary"], HOST: share["replay"]}
    return [name for name, us in worth.items() if us >= WORTHWHILE]


def _reason(gap: IdleGap) -> str:
    return "replay" if gap.reason == "launch" and gap.launch.kind == "graph" else gap.reason


def _shares(report: DeviceReport) -> dict[str, float]:
    """Of the time without the pauses: the device's work, and the idle time by reason."""
    us = {"busy": report.timeline.device_us, "launch": 0.0, "replay": 0.0, "boundary": 0.0, "pause": 0.0}
    for gap in report.gaps:
        us[_reason(gap)] += gap.duration_us
    active_us = report.extent_us - us.pop("pause")
    return {name: value / active_us for name, value in us.items()}


# ---- timelines. All times are multiples of 1/4 µs, so that sums and comparisons are exact.

MADE = "made for exercise 6: "
SCENES = {
    "short": Text("short kernels", "短的 kernel"),
    "nearly": Text("kernels nearly as long as their launches", "几乎和启动一样长的 kernel"),
    "uneven": Text("a longer kernel and two very short ones, repeated", "一个长些的 kernel 接两个很短的，反复如此"),
    "long": Text("long kernels", "长的 kernel"),
    "queued": Text("kernels that are queued, with a boundary between them", "排好队的 kernel，两两之间有边界"),
    "short, long": Text("short kernels, then long ones", "先短后长的 kernel"),
    "long, short": Text("long kernels, then short ones", "先长后短的 kernel"),
    "replay": Text("one replay of a graph", "一次 graph 回放"),
    "replays": Text("replays, with host work between them", "多次回放，中间主机有别的工作"),
    "calls": Text("calls of the host between the launches", "启动之间夹着主机的其他调用"),
    "pause": Text("long kernels, and one pause of the host", "长的 kernel，主机停顿了一次"),
    "short pause": Text("kernels nearly as long as launches, and a pause", "几乎和启动一样长的 kernel，还有一次停顿"),
    "both": Text("single launches and replays in turn", "单独启动和回放交替"),
    "streams": Text("two streams that overlap", "两个互相重叠的 stream"),
    "copies": Text("copies between the kernels", "kernel 之间有拷贝"),
    "goes on": Text("a host that goes on after the last kernel", "最后一个 kernel 之后主机还在忙"),
    "random": Text("launches, graphs, calls and kernels at random", "随机的启动、graph、调用和 kernel"),
}  # fmt: skip
RECORDED = Text("a recording that comes with the library", "库里自带的一份历史记录")


class Submission(NamedTuple):
    """What the host does next: nothing for ``wait_us``, then a call, which launches ``kernels`` of so many µs each.

    Several kernels are a graph; none is a call that launches nothing. If ``synced``, the host first waits for the
    device to end.
    """

    call_us: float
    kernels: Sequence[float] = ()
    wait_us: float = 0.0
    synced: bool = False


def played(
    scene: str,
    submissions: Iterable[Submission],
    boundary_us: float = 0.0,
    begin_us: float = 0.0,
    early_us: float = 0.0,
) -> Timeline:
    """The timeline of an endless queue: a kernel starts when its launch has ended and the one before it has, too.

    Args:
        scene: a key of ``SCENES``.
        submissions: in order.
        boundary_us: between two kernels.
        begin_us: when the first submission begins.
        early_us: how long before the end of its launch call a graph's first kernel may start.
    """
    host: list[Span] = []
    device: list[Span] = []
    now_us, free_us, correlation = begin_us, 0.0, 700
    for call_us, kernels, wait_us, synced in submissions:
        graph = len(kernels) > 1
        name, kind = ("graph launch", "graph") if graph else ("launch", "") if kernels else ("allocate", "call")
        correlation += 3  # as in a recording: neither indices nor consecutive
        begins_us = (max(now_us, free_us) if synced else now_us) + wait_us
        host.append(Span(name, begins_us, call_us, correlation if kernels else None, kind))
        now_us = host[-1].end_us
        start_us = max(now_us - early_us * graph, free_us + boundary_us * bool(device))
        for kernel_us in kernels:
            device.append(Span("kernel", start_us, kernel_us, correlation))
            free_us = device[-1].end_us
            start_us = free_us + boundary_us
    return Timeline(tuple(host), tuple(device), "modelled", MADE + scene)


def _quarters(rng: np.random.Generator, low: float, high: float, count: int) -> list[float]:
    return [int(q) / 4 for q in rng.integers(round(4 * low), round(4 * high) + 1, count)]


def _eager(rng: np.random.Generator, launch: tuple, kernel: tuple, count: int) -> list[Submission]:
    pairs = zip(_quarters(rng, *launch, count), _quarters(rng, *kernel, count), strict=True)
    return [Submission(launch_us, (kernel_us,)) for launch_us, kernel_us in pairs]


def _replay(rng: np.random.Generator, wait_us: float, nodes: int) -> Submission:
    """A replay of the next step, which needs the token of the last one."""
    (call_us,) = _quarters(rng, 9, 11, 1)
    return Submission(call_us, _quarters(rng, 2, 4, nodes), wait_us, synced=True)


def _pause(rng: np.random.Generator, low: int, high: int, kernel_us: float) -> Submission:
    return Submission(5.0, (kernel_us,), float(rng.integers(low, high)), synced=True)


def _begin(rng: np.random.Generator) -> float:
    return float(rng.integers(10, 400))


def _streams(rng: np.random.Generator) -> Timeline:
    """A kernel that hides a shorter one on another stream, then two that overlap in part."""
    a, b, c = (float(x) for x in rng.integers(8, 20, 3))
    host = tuple(Span("launch", 5.0 * i, 4.0, 700 + 3 * i) for i in range(4))
    starts = [9.0, 10.0, 9.0 + 2 * a + b, 9.0 + 2 * a + b + c]
    lengths = [2 * a, a, 2 * c, 2 * c]
    device = tuple(
        Span("kernel", start, length, 700 + 3 * i, lane=f"stream {7 + 6 * (i % 2)}")
        for i, (start, length) in enumerate(zip(starts, lengths, strict=True))
    )
    return Timeline(host, device, "modelled", MADE + "streams")


def _copies(rng: np.random.Generator) -> Timeline:
    """Kernels with copies in between, which keep the device busy."""
    a, b = (float(x) for x in rng.integers(8, 20, 2))
    host = tuple(Span("launch", 4.0 + 6 * i, 5.0, 700 + 3 * i) for i in range(4))
    starts = [9.0, 16.0 + a, 20.0 + a + b, 23.0 + a + 2 * b]
    lengths, kinds = [a, b, b, a], ["", "memcpy", "", "memset"]
    device = tuple(
        Span(kind or "kernel", start, length, 700 + 3 * i, kind)
        for i, (start, length, kind) in enumerate(zip(starts, lengths, kinds, strict=True))
    )
    return Timeline(host, device, "modelled", MADE + "copies")


def _random(rng: np.random.Generator, scene: str, count: int) -> Timeline:
    """Anything, in any order: single launches, graphs and calls, quick and slow ones."""
    submissions = [Submission(6.0, (2.0,))]
    for kind in rng.integers(0, 6, count):
        if kind == 0:
            submissions.append(Submission(*_quarters(rng, 3, 9, 1)))
        elif kind == 1:
            submissions.append(_replay(rng, float(rng.integers(0, 15)), 4))
        else:
            submissions += _eager(rng, (4, 8), (1, 14), 1)
    return played(scene, submissions, boundary_us=1.25, begin_us=_begin(rng))


@cache
def recorded_timelines() -> tuple[Timeline, ...]:
    """The recordings that come with the library, in the order of their names."""
    return tuple(recorded_trace(name).timeline for name in recorded_names())


def make_idle(rng: np.random.Generator) -> list[tuple]:
    """Two launches to follow by hand; streams, copies, a host that goes on; random steps, and a recording."""
    tail = Submission(6.0, wait_us=float(rng.integers(50, 90)))
    made = [
        played("short", [Submission(6.0, (2.0,))] * 2),
        _streams(rng),
        _copies(rng),
        played("goes on", [*_eager(rng, (4, 8), (1, 14), 4), tail], begin_us=20.0),
        played("short", _eager(rng, (5, 7), (1, 3), 20), begin_us=_begin(rng)),
        played("long", _eager(rng, (3, 5), (7, 12), 20), begin_us=_begin(rng)),
        played("replay", [_replay(rng, 0.0, 30)], boundary_us=1.25),
        _random(rng, "random", 20),
        recorded_timelines()[int(rng.integers(len(recorded_timelines())))],
    ]
    return [(timeline,) for timeline in made]


def make_why(rng: np.random.Generator) -> list[tuple]:
    """Each reason alone, then all of them together."""
    call = Submission(8.0)
    one, two, three = (_eager(rng, (5, 7), (1, 3), count) for count in (1, 2, 3))
    long = _eager(rng, (3, 5), (7, 12), 4)
    made = [
        played("short", [Submission(6.0, (2.0,))] * 3),
        played("queued", [Submission(4.0, (6.0,))] * 3, boundary_us=1.5),
        played("replays", [_replay(rng, 12.0 * i, 4) for i in range(2)], 1.25, early_us=7.0, begin_us=30.0),
        played("pause", [*long, _pause(rng, 1040, 1600, 9.0), *three], begin_us=_begin(rng)),
        played("calls", [call, *two, call, *one]),
        _random(rng, "random", 12),
        _random(rng, "random", 30),
    ]
    return [(timeline,) for timeline in made]


def _steps(rng: np.random.Generator) -> list[Timeline]:
    """One step of each kind that a verdict must tell apart, none near a threshold."""
    n = int(rng.integers(30, 50))
    short, nearly, long = ((5, 7), (1, 2)), ((6, 6.25), (5, 5.25)), ((4, 6), (8, 12))
    uneven = [Submission(6.0, (us,)) for _ in range(n) for us in (7.0, *_quarters(rng, 0.25, 0.5, 2))]
    first, last = [Submission(6.0, (1.0,))] * n, [Submission(6.0, (11.0,))] * n
    slow, level = _eager(rng, (4, 6), (40, 50), n), _eager(rng, (6, 6.25), (5.25, 5.5), 240)
    in_turn = [one for _ in range(6) for one in (*_eager(rng, *short, 6), _replay(rng, 8.0, 9))]
    made = {
        "short": _eager(rng, *short, n),
        "long": _eager(rng, *long, n),
        "nearly": _eager(rng, *nearly, n),
        "uneven": uneven,
        "short, long": first + last,
        "long, short": last + first,
        "replays": [one for _ in range(6) for one in (Submission(26.0, synced=True), _replay(rng, 0.0, 9))],
        "pause": [*slow, _pause(rng, 1040, 1200, 45.0), *slow],
        "short pause": [*level, _pause(rng, 1240, 1320, 5.25)],
        "both": in_turn,
    }
    return [
        *(played(scene, submissions, begin_us=_begin(rng)) for scene, submissions in made.items()),
        played("queued", _eager(rng, (3, 4), (5, 6), n), boundary_us=1.25),
        played("replay", [_replay(rng, 0.0, 60)], boundary_us=1.25, begin_us=_begin(rng)),
    ]


def make_steps(rng: np.random.Generator) -> list[tuple]:
    """Steps of each kind, and the recordings."""
    return [(timeline,) for timeline in (*_steps(rng), *recorded_timelines())]


# ---- what is compared and said


def drive_helps(answer, timeline: Timeline) -> object:
    """A set of names is as good as a list."""
    found = answer(timeline)
    return sorted(found) if isinstance(found, set | frozenset) else found


def view_helps(inputs: tuple, value: object) -> list[str]:
    """The names in a fixed order."""
    names = plain(value)
    if not isinstance(names, list) or not all(name in (GRAPH, FUSION, HOST) for name in names):
        raise Refused(
            'Return a list of any of "graph", "fusion" and "host"; an empty one where nothing of these helps.',
            '请返回一个列表，里面是 "graph"、"fusion"、"host" 中的若干个；都帮不上时返回空列表。',
        )
    return sorted(set(names), key=(GRAPH, FUSION, HOST).index)


def tried(inputs: tuple) -> Text:
    """What kind of timeline it was, in words."""
    (timeline,) = inputs
    scene = SCENES[timeline.provenance.removeprefix(MADE)] if timeline.provenance.startswith(MADE) else RECORDED
    host, device = len(timeline.host), len(timeline.device)
    return Text(
        f"{scene.en} ({host} host and {device} device spans)",
        f"{scene.zh}（主机 {host} 段，设备 {device} 段）",
    )


PARTS = {
    "6a": Part(idle_share, make_idle, forbidden=(*REPORT, *GAPS, *BUSY), tried=tried),
    "6b": Part(why_idle, make_why, forbidden=(*REPORT, *GAPS), tried=tried),
    "6c": Part(bound_by, make_steps, forbidden=(*REPORT, *GAPS, *VERDICT), tried=tried),
    "6d": Part(
        what_helps, make_steps, drive_helps, view_helps, forbidden=(*REPORT, *GAPS, *VERDICT), tried=tried
    ),
}  # fmt: skip
