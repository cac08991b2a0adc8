"""What bounds a trace: launches, the device, both in turn, or why that cannot be told; and what would help."""

from __future__ import annotations

from dataclasses import dataclass

from s13lib.figures.svg import format_us

# Idle time below a tenth is not worth a change: removing all of it makes the whole at most 1.1 times faster.
WORTHWHILE = 0.10
# Where at least three launches in four found an idle device, the device's queue is empty throughout: the host sets
# the pace. With fewer, launch-bound and device-bound stretches alternate.
STARVED = 0.75
# Where kernels and launches both vary, many launches are a hair early and find the device still busy, and the host sets
# the pace all the same. So a step is launch-bound too when the device waits for launches for longer than it works:
# no change to kernels could then shorten the step as much as one to launches.
# Above half, one reason outweighs all others together.
MOST = 0.5
# A kernel cannot start before its launch does. Both clocks are aligned by the profiler to about a microsecond.
CLOCK_SLACK_US = 1.0
CLOCKS_DISAGREE = 0.05  # of the launches: fewer are stray
SHOWN = 0.005  # a share that is not printed as nothing

LAUNCH_BOUND, DEVICE_BOUND, MIXED, UNDECIDED = "launch-bound", "device-bound", "mixed", "not decidable"
GRAPH, FUSION, HOST = "graph", "fusion", "host"


@dataclass(frozen=True)
class Evidence:
    """What the verdict rests on. Shares are of the time from the first start to the last end of device work.

    Args:
        kernels: on the device.
        extent_us: that time.
        busy: share in which the device worked.
        idle: reason (see ``gaps.REASONS``) → share.
        idle_before_eager: share of gaps that end with a launch of one kernel that came late.
        idle_before_replays: share of gaps that end with a graph launch that came late.
        starved: share of launches that found the device idle.
        early: share of launches whose kernel starts before they do.
        queue_delay_us: median time from a launch's end to its kernel's start; None without launches.
        long_pause: what the host did in the longest pause.
        host_larger: whether the launches' total exceeds the device's; None where the file does not hold a whole step.
        unseen_us: time from the first launch to its kernel in which the file does not show what the device did.
    """

    kernels: int
    extent_us: float
    busy: float
    idle: dict[str, float]
    idle_before_eager: float
    starved: float
    early: float
    queue_delay_us: float | None
    long_pause: str | None = None
    idle_before_replays: float = 0.0
    host_larger: bool | None = None
    unseen_us: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """One of the four verdicts, and what would help: any of "graph", "fusion" and "host" (less host work between
    replays), nothing, or None where it is not known.

    ``why`` and ``advice`` say so in words.
    """

    name: str
    why: str
    would_help: tuple[str, ...] | None
    advice: str


def judge(e: Evidence) -> Verdict:
    """The verdict, by the thresholds of this module.

    Pauses of the host (gaps over a millisecond) are set apart: what is judged is the time between them, unless they
    are most of the time.
    """
    if (unsure := _why_not_decidable(e)) is not None:
        return Verdict(UNDECIDED, unsure, None, "not known")
    active = 1 - e.idle["pause"]
    busy, late, boundary = e.busy / active, e.idle["launch"] / active, e.idle["boundary"] / active
    starved = f"{e.starved:.0%} of the launches found it idle"
    if busy + boundary < 1 - WORTHWHILE:
        starving = e.starved >= STARVED and late >= MOST * (1 - busy)
        # In a whole step the totals are known, and the larger one is the bottleneck: the verdict never denies that.
        launch_bound = (starving or late > busy) and e.host_larger is not False
        name = LAUNCH_BOUND if launch_bound else MIXED
        why = f"the device is busy {busy:.1%} of the time and waits for launches {late:.1%}; {starved}"
    elif e.starved >= STARVED or e.host_larger:
        yet = starved if e.starved >= STARVED else "the launches' total is the larger one"
        name, why = MIXED, f"host and device are level: the device is busy {busy:.1%} of the time, and yet {yet}"
    else:
        between = f", and {boundary:.1%} lies between two queued kernels" if boundary >= SHOWN else ""
        name, why = DEVICE_BOUND, f"the device is busy {busy:.1%} of the time{between}"
    if e.queue_delay_us is not None:
        why += f"; a kernel typically starts {delay(e.queue_delay_us)}"
    if e.idle["pause"] >= SHOWN:
        why += f"; pauses of the host, {e.idle['pause']:.1%} of the whole, are set apart"
    if e.unseen_us >= WORTHWHILE * (e.extent_us + e.unseen_us):
        why += (
            f"; what the device did in the {format_us(e.unseen_us)} between the first launch and its kernel is not in "
            "the file, and does not count"
        )
    helps, advice = _what_helps(e.idle_before_eager / active, e.idle_before_replays / active, boundary)
    if name == MIXED and not helps:
        advice = "launches and kernels would both have to get shorter"
    return Verdict(name, why, helps, advice)


def _why_not_decidable(e: Evidence) -> str | None:
    idle = sum(e.idle.values())
    if e.kernels < 2 or e.extent_us <= 0:
        return f"{e.kernels} kernel{'s' * (e.kernels != 1)}: there are no gaps between kernels to judge by"
    if e.early > CLOCKS_DISAGREE:
        return (
            f"{e.early:.0%} of the kernels start before their launch does: "
            "the clocks of host and device disagree in this file"
        )
    if idle < WORTHWHILE:
        return None
    if e.idle["unknown"] >= MOST * idle:
        return (
            f"the device idles {idle:.1%} of the time, mostly before kernels whose launch is not in the file: "
            "record host activities too (ProfilerActivity.CPU)"
        )
    if e.idle["pause"] >= MOST:
        under = f", the longest under {e.long_pause}" if e.long_pause else ""
        return f"in {e.idle['pause']:.1%} of the time the host launches nothing for a millisecond or more{under}"
    if e.idle["blocked"] >= MOST * idle:
        return f"the device idles {idle:.1%} of the time, mostly with work already queued: " + (
            "it waits for another stream, another device or an event"
            if e.host_larger is None
            else "its thread got no processor, as on a contended machine"
        )
    return None


def delay(us: float) -> str:
    """When a kernel starts, against its launch call's return."""
    return f"{format_us(us)} after its launch" if us >= 0 else "before its launch call returns"


def _what_helps(eager: float, replays: float, boundary: float) -> tuple[tuple[str, ...], str]:
    """Names and a sentence, from shares of the time."""
    helps, parts = [], []
    if eager >= WORTHWHILE:
        helps.append(GRAPH)
        parts.append(f"a graph would remove up to {eager:.0%} of the time, the waits for single launches")
    if eager + boundary >= WORTHWHILE:
        helps.append(FUSION)
        parts.append(
            f"fusion would shrink {eager + boundary:.0%} of the time, the waits and boundaries that each kernel brings"
        )
    if replays >= WORTHWHILE:
        helps.append(HOST)
        parts.append(
            f"{replays:.0%} of the time the device waits for the host between replays: neither a graph nor fusion "
            "removes that, only less host work there"
        )
    if not helps:
        parts.append("waits and kernel boundaries together are less than a tenth of the time")
    return tuple(helps), "; ".join(parts)
