"""Exercise 6c and 6d: what learners make of the rule."""

from __future__ import annotations

from s13lib.grading.part import Text, Wrong
from s13lib.grading.wrong.read_trace_stretches import covered_us, reason_of, stretches, why
from s13lib.simulator.timeline import Timeline

# ---- 6c


def _shares(timeline: Timeline, without_pauses: bool = True) -> dict[str, float]:
    us = {"busy": covered_us(timeline.device), "launch": 0.0, "replay": 0.0, "boundary": 0.0, "pause": 0.0}
    for duration_us, reason in why(timeline):
        us[reason] += duration_us
    time_us = sum(us.values()) - us["pause"] * without_pauses
    return {name: value / time_us for name, value in us.items()}


def _starved(timeline: Timeline) -> tuple[int, int, int]:
    """Launches that found the device idle, launches, idle stretches; all without the first."""
    reasons = [reason_of(stretch) for stretch in stretches(timeline, first_wait=False)]
    starved = sum(reason != "boundary" for reason in reasons)
    return starved, len({span.correlation for span in timeline.device}) - 1, len(reasons)


def _bound(late: float, busy: float, starved: float) -> str:
    if late < 0.1:
        return "device-bound"
    return "launch-bound" if late > busy or starved >= 0.75 else "mixed"


def _verdict(
    timeline: Timeline, share: dict[str, float] | None = None, boundary: bool = False, starved: float | None = None
) -> str:
    share = share or _shares(timeline)
    if starved is None:
        count, launches, _ = _starved(timeline)
        starved = count / max(1, launches)
    late = share["launch"] + share["replay"] + share["boundary"] * boundary
    return _bound(late, share["busy"], starved)


def larger_total(timeline):
    """The larger total wins."""
    return "launch-bound" if timeline.host_us > covered_us(timeline.device) else "device-bound"


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


def first_launch_counted(timeline):
    """The first launch counts like any other."""
    starved, launches, _ = _starved(timeline)
    return _verdict(timeline, starved=(starved + 1) / (launches + 1))


def calls_are_launches(timeline):
    """Every host span but the first is taken for a launch."""
    return _verdict(timeline, starved=_starved(timeline)[0] / max(1, len(timeline.host) - 1))


def kernels_are_launches(timeline):
    """Every piece of work but the first is taken for a launch."""
    return _verdict(timeline, starved=_starved(timeline)[0] / max(1, len(timeline.device) - 1))


def _starved_by(timeline: Timeline, *reasons: str) -> str:
    starved = sum(reason_of(stretch) in reasons for stretch in stretches(timeline, first_wait=False))
    return _verdict(timeline, starved=starved / max(1, _starved(timeline)[1]))


def starved_by_launches_alone(timeline):
    """Stretches of reason "launch" alone starve."""
    return _starved_by(timeline, "launch")


def pauses_do_not_starve(timeline):
    """A pause starves nothing."""
    return _starved_by(timeline, "launch", "replay")


def second_rule_first(timeline):
    """The second rule is asked before the first."""
    share, (starved, launches, _) = _shares(timeline), _starved(timeline)
    late = share["launch"] + share["replay"]
    if late > share["busy"] or starved >= 0.75 * launches > 0:
        return "launch-bound"
    return "device-bound" if late < 0.1 else "mixed"


def half_of_the_time(timeline):
    """Late is compared with half of the time instead of with busy."""
    return _verdict(timeline, _shares(timeline) | {"busy": 0.5})


def replays_are_not_late(timeline):
    """Waits for replays are not counted as late."""
    return _verdict(timeline, _shares(timeline) | {"replay": 0.0})


def pauses_are_time(timeline):
    """Pauses are no waits, but stay in the time."""
    return _verdict(timeline, _shares(timeline, without_pauses=False))


def ten_percent_are_too_little(timeline):
    """Just 10 % late counts as less."""
    share = _shares(timeline)
    return "device-bound" if share["launch"] + share["replay"] == 0.1 else _verdict(timeline)


def as_late_as_busy(timeline):
    """Late as long as busy counts as longer."""
    share = _shares(timeline)
    return "launch-bound" if share["launch"] + share["replay"] == share["busy"] else _verdict(timeline)


def three_quarters_are_too_few(timeline):
    """Just 75 % starved counts as less."""
    starved, launches, _ = _starved(timeline)
    return _verdict(timeline, starved=0.0 if starved == 0.75 * launches else starved / max(1, launches))


# ---- 6d


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


def graph_removes_replays_too(timeline):
    """A graph is taken to remove the waits before replays, as "host" does."""
    return _helps(_shares(timeline), graph=("launch", "replay"))


def more_than_a_tenth(timeline):
    """Just 10 % counts as less."""
    return _helps(_shares(timeline), least=0.1 + 1e-12)


BOUND = (
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
    Wrong("half of the time", half_of_the_time, Text(
        "*late* is to be compared with *busy*, not with half of the time: boundaries are neither.",
        "*late* 要和 *busy* 比，不是和时间的一半比：边界两者都不是。")),
    Wrong("first launch counted", first_launch_counted, Text(
        "The first launch always finds the device idle. Leave it out twice: of the launches that starved, and of those that you divide by.",
        "第一次启动总会碰上设备空闲。有两处都不要算它：挨饿的次数里，和作除数的启动次数里。")),
    Wrong("calls taken for launches", calls_are_launches, Text(
        "Calls that launch nothing are host spans too: count launches, not host spans.",
        "什么也不启动的调用也是主机的一段：要数的是启动，不是主机的段数。")),
    Wrong("kernels taken for launches", kernels_are_launches, Text(
        "A graph launch is one launch, however many kernels it has: you divide by the kernels.",
        "一次 graph 启动不管有多少个 kernel，都只是一次启动：你除以的是 kernel 数。")),
    Wrong("starved by launches alone", starved_by_launches_alone, Text(
        "A late replay and a pause starve the device too, not only a late single launch.",
        "来晚了的回放和停顿也会让设备挨饿，不光是来晚了的单独启动。")),
    Wrong("pauses do not starve", pauses_do_not_starve, Text(
        "A pause is taken out of the time, but the launch after it did starve the device.",
        "停顿不算进时间，但停顿之后的那次启动确实让设备挨饿了。")),
    Wrong("second rule first", second_rule_first, Text(
        "Ask the first rule first: where less than a tenth is late, the step is device-bound, however many launches starved the device.",
        "先问第一条：*late* 不到十分之一时就是受设备限制，不管有多少次启动让设备挨饿。")),
    Wrong("replays are not late", replays_are_not_late, Text(
        'Two kinds of stretches are *late*: "launch" and "replay".',
        "*late* 包括两种空隙：“launch” 和 “replay”。")),
    Wrong("pauses stay in the time", pauses_are_time, Text(
        "The share of *late* is to be taken of the time without the pauses: yours is diluted by them.",
        "*late* 的占比要对“不含停顿的时间”来算：你的被停顿冲淡了。")),
    Wrong("ten per cent", ten_percent_are_too_little, Text(
        "Look at the limit of the first rule: 10 % to the point is not less than 10 %.",
        "看看第一条的界限：正好 10% 不算“不到 10%”。")),
    Wrong("as late as busy", as_late_as_busy, Text(
        "Look at the limit of the second rule: *late* must be more than *busy*; as much is not enough.",
        "看看第二条的界限：*late* 要比 *busy* 长；一样长还不够。")),
    Wrong("three quarters", three_quarters_are_too_few, Text(
        "Look at the limit of the second rule: 75 % starved to the point is at least 75 %.",
        "看看第二条的界限：*starved* 正好 75%，就已经“不小于 75%”。")),
)  # fmt: skip

HELPS = (
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
    Wrong("a graph removes replays too", graph_removes_replays_too, Text(
        '"graph" removes the waits for single launches alone. A replay that is late is a graph already: that is for "host".',
        "“graph” 只去掉等单独启动的时间。来晚了的回放本来就是 graph，那归 “host” 管。")),
    Wrong("more than a tenth", more_than_a_tenth, Text(
        "At least 10 % is asked for: 10 % to the point is worth a try.",
        "要的是“至少 10%”：正好 10% 也值得一试。")),
)  # fmt: skip
