"""Exercise 6: what learners write."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from s13lib.grading.part import Text, Wrong
from s13lib.simulator.timeline import Span, Timeline

PAUSE_US = 1000.0

# ---- 6a


def _until(timeline: Timeline) -> float:
    return max(span.end_us for span in timeline.device)


def _covered_us(spans: tuple[Span, ...]) -> float:
    """The time that spans cover; overlaps count once."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start_us):
        total += max(0.0, span.end_us - max(until, span.start_us))
        until = max(until, span.end_us)
    return total


def _idle_share(timeline: Timeline, busy_us: float | None = None, begin: float | None = None, end: float | None = None):
    begin = timeline.start_us if begin is None else begin
    whole_us = (_until(timeline) if end is None else end) - begin
    return 1 - (_covered_us(timeline.device) if busy_us is None else busy_us) / whole_us


def streams_added(timeline):
    """Durations are summed over the streams."""
    return _idle_share(timeline, sum(span.duration_us for span in timeline.device))


def from_the_first_kernel(timeline):
    """The wait before the first kernel does not count."""
    return _idle_share(timeline, begin=min(span.start_us for span in timeline.device))


def until_the_host_ends(timeline):
    """The time after the last kernel counts."""
    return _idle_share(timeline, end=timeline.end_us)


def from_zero(timeline):
    """The clock is taken to begin at 0."""
    return _idle_share(timeline, begin=0.0)


def kernels_alone(timeline):
    """Copies are no work."""
    return _idle_share(timeline, _covered_us(tuple(span for span in timeline.device if not span.kind)))


def step_minus_host(timeline):
    """The device idles while the host does not."""
    return _idle_share(timeline, timeline.host_us)


def from_the_last_started(timeline):
    """Each kernel is compared with the one that started before it, not with the one that ended last."""
    idle_us, until = 0.0, timeline.start_us
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        idle_us += max(0.0, span.start_us - until)
        until = span.end_us
    return idle_us / (_until(timeline) - timeline.start_us)


def busy_share(timeline):
    """The other share."""
    return 1 - _idle_share(timeline)


# ---- 6b. Each idle stretch: (start, duration, the work that ends it, its launch, whether it is that launch's first).

Stretch = tuple[float, float, Span, Span, bool]


def _stretches(timeline: Timeline, first_wait: bool = True) -> Iterator[Stretch]:
    launches = {span.correlation: span for span in timeline.host}
    seen: set[int | None] = set()
    until = timeline.start_us if first_wait else min(span.start_us for span in timeline.device)
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        if span.start_us > until:
            first = span.correlation not in seen
            yield until, span.start_us - until, span, launches[span.correlation], first
        seen.add(span.correlation)
        until = max(until, span.end_us)


def _reason(stretch: Stretch) -> str:
    start_us, duration_us, _, launch, first = stretch
    if not first or launch.end_us <= start_us:
        return "boundary"
    if duration_us > PAUSE_US:
        return "pause"
    return "replay" if launch.kind == "graph" else "launch"


def _why(timeline: Timeline, reason: Callable[[Stretch], str] = _reason, first_wait: bool = True):
    return [(stretch[1], reason(stretch)) for stretch in _stretches(timeline, first_wait)]


def never_a_boundary(timeline):
    """Every idle stretch is the host's fault."""

    def reason(stretch: Stretch) -> str:
        _, duration_us, _, launch, _ = stretch
        return _reason((launch.start_us, duration_us, *stretch[2:4], True))

    return _why(timeline, reason)


def first_wait_forgotten(timeline):
    """The wait before the first kernel is left out."""
    return _why(timeline, first_wait=False)


def by_the_start_of_the_launch(timeline):
    """A launch that has begun counts as queued."""

    def reason(stretch: Stretch) -> str:
        queued = stretch[3].start_us <= stretch[0] and stretch[0] != timeline.start_us
        return "boundary" if queued else _reason(stretch)

    return _why(timeline, reason)


def nodes_are_launches(timeline):
    """Every node of a graph is taken for its first."""
    return _why(timeline, lambda s: _reason((*s[:4], True)))


def pauses_are_launches(timeline):
    """No pause is told apart."""
    names = {"pause": "launch"}
    return _why(timeline, lambda s: names.get(_reason(s), _reason(s)))


def replays_are_launches(timeline):
    """A graph launch is not told apart."""
    names = {"replay": "launch"}
    return _why(timeline, lambda s: names.get(_reason(s), _reason(s)))


def by_place(timeline):
    """The n-th kernel belongs to the n-th host span."""
    place = {id(span): i for i, span in enumerate(timeline.device)}

    def reason(stretch: Stretch) -> str:
        start_us, duration_us, span, _, first = stretch
        launch = timeline.host[min(place[id(span)], len(timeline.host) - 1)]
        return _reason((start_us, duration_us, span, launch, first))

    return _why(timeline, reason)


# ---- 6c and 6d


def _shares(timeline: Timeline, without_pauses: bool = True) -> dict[str, float]:
    us = {"busy": _covered_us(timeline.device), "launch": 0.0, "replay": 0.0, "boundary": 0.0, "pause": 0.0}
    for duration_us, reason in _why(timeline):
        us[reason] += duration_us
    time_us = sum(us.values()) - us["pause"] * without_pauses
    return {name: value / time_us for name, value in us.items()}


def _starved(timeline: Timeline) -> tuple[int, int, int]:
    """Launches that found the device idle, launches, idle stretches; all without the first."""
    reasons = [_reason(stretch) for stretch in _stretches(timeline, first_wait=False)]
    starved = sum(reason != "boundary" for reason in reasons)
    return starved, len({span.correlation for span in timeline.device}) - 1, len(reasons)


def _bound(late: float, busy: float, starved: float) -> str:
    if late < 0.1:
        return "device-bound"
    return "launch-bound" if late > busy or starved >= 0.75 else "mixed"


def _verdict(timeline: Timeline, share: dict[str, float] | None = None, boundary: bool = False) -> str:
    share = share or _shares(timeline)
    starved, launches, _ = _starved(timeline)
    late = share["launch"] + share["replay"] + share["boundary"] * boundary
    return _bound(late, share["busy"], starved / max(1, launches))


def larger_total(timeline):
    """The larger total wins."""
    return "launch-bound" if timeline.host_us > _covered_us(timeline.device) else "device-bound"


def never_mixed(timeline):
    """Busy or not."""
    return "device-bound" if _verdict(timeline) == "device-bound" else "launch-bound"


def pauses_count(timeline):
    """Pauses are time like any other, and waits for launches."""
    share = _shares(timeline, without_pauses=False)
    return _verdict(timeline, share | {"launch": share["launch"] + share["pause"]})


def boundaries_are_waits(timeline):
    """All idle time is taken for waits."""
    return _verdict(timeline, boundary=True)


def longer_wait_alone(timeline):
    """The share of starved launches is not looked at."""
    share = _shares(timeline)
    return _bound(share["launch"] + share["replay"], share["busy"], 0.0)


def starved_alone(timeline):
    """Whether the device waits for longer than it works is not looked at."""
    return _verdict(timeline, _shares(timeline) | {"busy": 1.0})


def share_of_the_gaps(timeline):
    """Starved launches are divided by the idle stretches instead of by the launches."""
    share = _shares(timeline)
    starved, _, stretches = _starved(timeline)
    return _bound(share["launch"] + share["replay"], share["busy"], starved / max(1, stretches))


def _helps(share: dict[str, float], graph=("launch",), fusion=("launch", "boundary"), host=("replay",), least=0.1):
    worth = {"graph": graph, "fusion": fusion, "host": host}
    return [name for name, reasons in worth.items() if sum(share[reason] for reason in reasons) >= least]


def graph_removes_boundaries(timeline):
    """A graph is taken to remove the boundaries too."""
    return _helps(_shares(timeline), graph=("launch", "boundary"))


def fusion_removes_boundaries_alone(timeline):
    """Fusion is taken to save no launches."""
    return _helps(_shares(timeline), fusion=("boundary",))


def fusion_removes_launches_alone(timeline):
    """Fusion is taken to leave the boundaries."""
    return _helps(_shares(timeline), fusion=("launch",))


def graph_for_replays(timeline):
    """Waits before replays are taken for launches."""
    return _helps(_shares(timeline), graph=("launch", "replay"), fusion=("launch", "replay", "boundary"), host=())


def share_of_all(timeline):
    """The pauses stay in the time."""
    return _helps(_shares(timeline, without_pauses=False))


def pauses_are_host_work(timeline):
    """Pauses count for "host"."""
    return _helps(_shares(timeline), host=("replay", "pause"))


def by_the_verdict(timeline):
    """Launch-bound or mixed: both; device-bound: nothing."""
    return [] if _verdict(timeline) == "device-bound" else ["graph", "fusion"]


def anything_at_all(timeline):
    """No wait is too small."""
    return _helps(_shares(timeline), least=1e-12)


WRONG = {
    "6a": (
        Wrong("first wait forgotten", from_the_first_kernel, Text(
            "The device is idle before its first kernel too: the time begins with the first launch.",
            "第一个 kernel 之前，设备也是空闲的：时间要从第一次启动算起。")),
        Wrong("streams added up", streams_added, Text(
            "Two kernels that run at the same time on two streams keep the device busy once, not twice.",
            "两个 stream 上同时运行的两个 kernel，设备只忙一份时间，不是两份。")),
        Wrong("compared with the last start", from_the_last_started, Text(
            "The work that started last need not be the one that ends last: a long kernel on another stream may still run.",
            "最后开始的工作不一定最后结束：另一个 stream 上可能还有一个长 kernel 在跑。")),
        Wrong("until the host ends", until_the_host_ends, Text(
            "You count the time after the last kernel. Here the time ends with the device's last work, whatever the host still does.",
            "你把最后一个 kernel 之后的时间也算进去了。这里时间到设备的最后一份工作为止，不管主机之后还做什么。")),
        Wrong("from zero", from_zero, Text(
            "The clock of a timeline need not begin at 0: measure from its first span.",
            "时间线的时钟不一定从 0 开始：要从第一段的开头量起。")),
        Wrong("kernels alone", kernels_alone, Text(
            "A copy is work of the device too: it is not idle meanwhile.",
            "拷贝也是设备的工作：拷贝的时候它并不空闲。")),
        Wrong("time without the host", step_minus_host, Text(
            "That is the share of the time in which the host launches nothing. The two lanes overlap: look at the device's alone.",
            "这是主机没有在启动的时间占比。两条泳道是重叠的：只看设备那一条。")),
        Wrong("the busy share", busy_share, Text(
            "That is the busy share: asked for is the rest.",
            "这是忙碌的占比，要的是剩下的那部分。")),
    ),
    "6b": (
        Wrong("start of the launch", by_the_start_of_the_launch, Text(
            "A launch that has only begun has put nothing into the queue yet: compare the end of the launch call with the idle stretch.",
            "启动刚刚开始时，队列里还什么都没有：要拿启动调用的结束时刻和空隙比。")),
        Wrong("never a boundary", never_a_boundary, Text(
            "Not every idle stretch is the host's fault: where the next work was queued already, it is a boundary.",
            "空隙不都怪主机：下一份工作早已排在队列里时，那是边界。")),
        Wrong("nodes taken for launches", nodes_are_launches, Text(
            "The later kernels of a graph wait for no launch, even if the launch call still runs: only the first one does.",
            "graph 里靠后的 kernel 不等任何启动，哪怕启动调用还没结束：只有第一个 kernel 才等。")),
        Wrong("paired by place", by_place, Text(
            "The n-th kernel need not belong to the n-th host span: calls launch nothing, graphs launch many. Pair by `correlation`.",
            "第 n 个 kernel 不一定属于主机的第 n 段：有的调用什么也不启动，graph 一次启动许多。要按 `correlation` 配对。")),
        Wrong("first wait forgotten", first_wait_forgotten, Text(
            "The wait for the first kernel is an idle stretch too: it begins with the timeline.",
            "等第一个 kernel 的时间也是空隙：它从时间线的开头算起。")),
        Wrong("pauses taken for launches", pauses_are_launches, Text(
            "No launch takes a millisecond: a longer wait for the host is a pause.",
            "没有哪次启动要花一毫秒：等主机等得比这还久，就是停顿。")),
        Wrong("replays taken for launches", replays_are_launches, Text(
            "A late graph launch has a reason of its own: look at the launch's `kind`.",
            "graph 启动来晚了，另有一个原因名：看看启动的 `kind`。")),
    ),
    "6c": (
        Wrong("the larger total", larger_total, Text(
            "You compare the totals of the two lanes. They do not say when the work comes: short kernels first, long ones later, and the device waits all the same.",
            "你比较的是两条泳道的总量。总量不说明先后：短 kernel 在前、长 kernel 在后，设备照样要等。")),
        Wrong("never mixed", never_mixed, Text(
            "There is a third answer, for steps in which the device waits in one stretch and works in another.",
            "还有第三种答案：有的时段设备在等，有的时段设备一直在忙。")),
        Wrong("pauses count", pauses_count, Text(
            "A pause says nothing about launches. Take it out of the waits, and out of the time that you divide by.",
            "停顿和启动无关。等待里不要算它，作除数的时间里也不要算它。")),
        Wrong("boundaries are waits", boundaries_are_waits, Text(
            "At a boundary the device does not wait for the host: the next kernel is queued already.",
            "在边界上设备等的不是主机：下一个 kernel 早已排好队。")),
        Wrong("share of the idle stretches", share_of_the_gaps, Text(
            "Of all launches, how many starved the device? You divide by the idle stretches: the launches that found it busy left none.",
            "所有启动里，有多少次让设备挨饿？你除以的是空隙数，而碰上设备在忙的启动没有留下空隙。")),
        Wrong("starved launches left out", longer_wait_alone, Text(
            "A step can be launch-bound although the device works longer than it waits: when nearly every launch finds it idle.",
            "即使设备忙的时间比等的时间长，也可能受启动限制：几乎每次启动都碰上它空闲。")),
        Wrong("starved launches alone", starved_alone, Text(
            "A step can be launch-bound although many launches find the device busy: when it waits for longer than it works.",
            "即使许多次启动碰上设备在忙，也可能受启动限制：它等的时间比忙的时间还长。")),
    ),
    "6d": (
        Wrong("by the verdict alone", by_the_verdict, Text(
            "What bounds a step and what helps are two questions: a device-bound step may have boundaries that fusion removes, and late replays need no graph.",
            "受什么限制和什么能帮上忙是两个问题：受设备限制的一步，也可能有融合能去掉的边界；而回放来晚了，用不着再来一张 graph。")),
        Wrong("a graph removes boundaries", graph_removes_boundaries, Text(
            "A graph removes launches. Its kernels still follow one another: the boundaries on the device stay.",
            "graph 去掉的是启动。里面的 kernel 仍要一个接一个地执行：设备上的边界还在。")),
        Wrong("a graph for late replays", graph_for_replays, Text(
            "Before a replay there is a graph already. What makes it late is the host's work in between.",
            "回放本来就已经是 graph 了。让它来晚的，是两次回放之间主机的工作。")),
        Wrong("fusion removes boundaries alone", fusion_removes_boundaries_alone, Text(
            "A kernel that is fused away takes its launch along too, not only its boundary.",
            "被融合掉的 kernel 不光带走边界，也带走它的那次启动。")),
        Wrong("fusion removes launches alone", fusion_removes_launches_alone, Text(
            "A kernel that is fused away takes its boundary along too, not only its launch.",
            "被融合掉的 kernel 不光带走启动，也带走它的边界。")),
        Wrong("share of all time", share_of_all, Text(
            "Pauses are set apart: take them out of the time that you divide by.",
            "停顿要另算：作除数的时间里不要算它。")),
        Wrong("pauses are host work", pauses_are_host_work, Text(
            '"host" is for late replays alone. A pause says nothing about how steps run.',
            "“host” 只管来晚了的回放。停顿说明不了每一步是怎么跑的。")),
        Wrong("anything at all", anything_at_all, Text(
            "A wait of less than a tenth of the time is not worth a change: removing all of it makes the step hardly faster.",
            "不到十分之一的等待不值得去改：全部去掉，这一步也快不了多少。")),
    ),
}  # fmt: skip
