"""Exercise 6: how its timelines are made. All times are multiples of 1/4 µs, so that sums and comparisons are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from s13lib.grading.part import Text
from s13lib.simulator.timeline import Span, Timeline

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
    "one question": Text("made for one question of the rule", "为规则里的一个问题而编"),
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
