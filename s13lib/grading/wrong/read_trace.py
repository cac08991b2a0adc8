"""Exercise 6: what learners write."""

from __future__ import annotations

from s13lib.grading.part import Text, Wrong
from s13lib.grading.wrong.read_trace_stretches import PAUSE_US, Stretch, covered_us, reason_of, why
from s13lib.grading.wrong.read_trace_verdict import BOUND, HELPS
from s13lib.simulator.timeline import Timeline

# ---- 6a


def _until(timeline: Timeline) -> float:
    return max(span.end_us for span in timeline.device)


def _idle_share(timeline: Timeline, busy_us: float | None = None, begin: float | None = None, end: float | None = None):
    begin = timeline.start_us if begin is None else begin
    whole_us = (_until(timeline) if end is None else end) - begin
    return 1 - (covered_us(timeline.device) if busy_us is None else busy_us) / whole_us


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
    return _idle_share(timeline, covered_us(tuple(span for span in timeline.device if not span.kind)))


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


# ---- 6b


def never_a_boundary(timeline):
    """Every idle stretch is the host's fault."""

    def reason(stretch: Stretch) -> str:
        _, duration_us, _, launch, _ = stretch
        return reason_of((launch.start_us, duration_us, *stretch[2:4], True))

    return why(timeline, reason)


def first_wait_forgotten(timeline):
    """The wait before the first kernel is left out."""
    return why(timeline, first_wait=False)


def by_the_start_of_the_launch(timeline):
    """A launch that has begun counts as queued."""

    def reason(stretch: Stretch) -> str:
        return "boundary" if stretch[3].start_us <= stretch[0] else reason_of(stretch)

    return why(timeline, reason)


def begun_before(timeline):
    """The same, but a launch that begins with the stretch does not count."""
    return why(timeline, lambda s: "boundary" if s[3].start_us < s[0] else reason_of(s))


def nodes_are_launches(timeline):
    """Every node of a graph is taken for its first."""
    return why(timeline, lambda s: reason_of((*s[:4], True)))


def pauses_are_launches(timeline):
    """No pause is told apart."""
    names = {"pause": "launch"}
    return why(timeline, lambda s: names.get(reason_of(s), reason_of(s)))


def replays_are_launches(timeline):
    """A graph launch is not told apart."""
    names = {"replay": "launch"}
    return why(timeline, lambda s: names.get(reason_of(s), reason_of(s)))


def by_place(timeline):
    """The n-th kernel belongs to the n-th host span."""
    place = {id(span): i for i, span in enumerate(timeline.device)}

    def reason(stretch: Stretch) -> str:
        start_us, duration_us, span, _, first = stretch
        launch = timeline.host[min(place[id(span)], len(timeline.host) - 1)]
        return reason_of((start_us, duration_us, span, launch, first))

    return why(timeline, reason)


def pauses_first(timeline):
    """Whether it is a pause is asked before whether the work was queued."""
    return why(timeline, lambda s: "pause" if s[1] > PAUSE_US else reason_of(s))


def overlaps_ignored(timeline):
    """Each piece of work is compared with the one that started before it, not with what has ended last."""
    found, seen, until = [], set(), timeline.start_us
    launches = {span.correlation: span for span in timeline.host}
    for span in sorted(timeline.device, key=lambda s: s.start_us):
        if span.start_us > until:
            stretch = until, span.start_us - until, span, launches[span.correlation], span.correlation not in seen
            found.append((stretch[1], reason_of(stretch)))
        seen.add(span.correlation)
        until = span.end_us
    return found


def remembered_at_gaps(timeline):
    """A correlation is only remembered where its work ended an idle stretch."""
    met: set[int | None] = set()

    def reason(stretch: Stretch) -> str:
        correlation = stretch[2].correlation
        first = correlation not in met
        met.add(correlation)
        return reason_of((*stretch[:4], first))

    return why(timeline, reason)


def a_millisecond_is_a_pause(timeline):
    """1000 µs to the point count as more."""
    return why(timeline, lambda s: "pause" if s[1] == PAUSE_US and reason_of(s) != "boundary" else reason_of(s))


def queued_strictly_before(timeline):
    """A launch that ends the moment the stretch begins counts as late."""
    return why(timeline, lambda s: reason_of((s[0] - (s[3].end_us == s[0]), *s[1:])))


def by_the_start_of_the_work(timeline):
    """A launch that ended before its work began counts as queued."""
    return why(timeline, lambda s: "boundary" if s[3].end_us <= s[2].start_us else reason_of(s))


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
        Wrong("start of the launch, strictly", begun_before, Text(
            "A launch that began before the stretch may still run when the device falls idle: its end is what counts, not its start.",
            "空隙之前就开始的启动，到设备空下来时可能还没结束：要看的是它的结束时刻，不是开始时刻。")),
        Wrong("start of the work", by_the_start_of_the_work, Text(
            "Every launch has ended when its own work starts. The question is whether it had ended when the idle stretch began.",
            "工作开始的时候，它的启动当然已经结束了。要问的是：空隙开始的时候，启动是不是已经结束。")),
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
        Wrong("pauses first", pauses_first, Text(
            "A pause is asked for third: queued work, or a later kernel of a graph, may take more than 1000 µs to start for other reasons.",
            "停顿是第三个才问的：排好队的工作、graph 里靠后的 kernel，也可能因为别的原因晚 1000 µs 以上。")),
        Wrong("overlaps ignored", overlaps_ignored, Text(
            "The work that started last need not end last: a long kernel on another stream may still keep the device busy. Move your mark forward only.",
            "最后开始的工作不一定最后结束：另一个 stream 上的长 kernel 可能还让设备忙着。标记只能往后移。")),
        Wrong("remembered at gaps alone", remembered_at_gaps, Text(
            "The first kernel of a graph may leave no gap. Remember the correlation of every piece of work, not only where the device was idle.",
            "graph 的第一个 kernel 前面可能没有空隙。每一份工作的 correlation 都要记下来，不能只在设备空闲的地方记。")),
        Wrong("a millisecond is a pause", a_millisecond_is_a_pause, Text(
            "Look at the limit: a pause lasts for more than 1000 µs; 1000 µs to the point is none.",
            "看看界限：停顿要超过 1000 µs；正好 1000 µs 还不算。")),
        Wrong("queued strictly before", queued_strictly_before, Text(
            "A launch that ends at the very moment at which the stretch begins has put its work into the queue: a boundary.",
            "启动正好在空隙开始的那一刻结束，工作就已经排进队列：这是边界。")),
    ),
    "6c": BOUND,
    "6d": HELPS,
}  # fmt: skip
