"""One modelled step as the lesson's simulator shows it: read-outs, the first launches on two lanes, where time goes."""

from __future__ import annotations

from itertools import pairwise

from s13lib.errors import look_up
from s13lib.figures import svg
from s13lib.figures.gauges import Bar, bars_svg, stack_svg, tiles_svg
from s13lib.figures.tables import html_table
from s13lib.figures.timeline import Panel, timeline_svg
from s13lib.simulator import StepReport

SHOWN_LAUNCHES = 18
ROUNDING_US = 1e-6  # the recurrence adds thousands of floats: less than this is not a wait
WORDS = {
    "en": {
        "kernels": "kernels a step",
        "step": "time of a step",
        "bottleneck": "bottleneck",
        "speedup": "speed-up",
        "host": "CPU launches",
        "device": "GPU kernels",
        "busy": "GPU utilisation",
        "where": "Where the time goes",
        "overlap": "Both run at the same time: the longer one sets the step, so only shortening that one helps.",
        "step_of": "Batch {batch}, {stage} kernels a layer, {how}",
        "eager": "launched one by one",
        "graph": "one graph replay",
        "quantity": "modelled",
        "value": "value",
        "calls": "host calls a step",
        "waits": "GPU waits after its first kernel",
        "waits_value": "{count}, {time} in all",
        "speedup_over": "speed-up over {base} kernels a layer launched one by one",
        "bandwidth": "share of the data sheet's bandwidth",
        "constants": "constants",
        "host_bound": (
            "The CPU is the bottleneck: its {calls} launches take {host}, the {kernels} kernels only {device}, so the "
            "GPU is busy {busy} of a step of {step}; speed-up {speedup} over {base} kernels a layer "
            "launched one by one (modelled)."
        ),
        "device_bound": (
            "The GPU is the bottleneck: its {kernels} kernels take {device}, the CPU's launches {host}, so the GPU is "
            "busy {busy} of a step of {step}; speed-up {speedup} over {base} kernels a layer "
            "launched one by one (modelled)."
        ),
    },
    "zh": {
        "kernels": "每步 kernel",
        "step": "一步的时间",
        "bottleneck": "瓶颈",
        "speedup": "加速比",
        "host": "CPU 启动",
        "device": "GPU 执行",
        "busy": "GPU 利用率",
        "where": "时间去了哪里",
        "overlap": "两者同时进行：一步有多久，由较长的一项决定，所以只有缩短它才有用。",
        "step_of": "batch {batch}，每层 {stage} 个 kernel，{how}",
        "eager": "逐个启动",
        "graph": "一次 graph 回放",
        "quantity": "模型推算",
        "value": "数值",
        "calls": "每步的 CPU 调用",
        "waits": "第一个 kernel 之后 GPU 等待",
        "waits_value": "{count} 次，共 {time}",
        "speedup_over": "相对“每层 {base} 个 kernel、逐个启动”的加速比",
        "bandwidth": "占标称带宽的比例",
        "constants": "所用常数",
        "host_bound": (
            "瓶颈在 CPU：{calls} 次启动要 {host}，而 {kernels} 个 kernel 只要 {device}，所以在 {step} 的一步里，"
            "GPU 只有 {busy} 的时间在忙；与每层 {base} 个 kernel、逐个启动相比，加速比为 {speedup}（模型推算）。"
        ),
        "device_bound": (
            "瓶颈在 GPU：{kernels} 个 kernel 要 {device}，CPU 的启动只要 {host}，所以在 {step} 的一步里，"
            "GPU 有 {busy} 的时间在忙；与每层 {base} 个 kernel、逐个启动相比，加速比为 {speedup}（模型推算）。"
        ),
    },
}


def milliseconds(time_us: float) -> str:
    """A time for the read-outs: milliseconds with two digits, as the lesson shows them."""
    return f"{time_us / 1000:.2f} ms"


def step_svg(report: StepReport, language: str = "en", width: int = 700) -> str:
    """Four read-outs, the first 18 launches on a CPU and a GPU lane, and two bars for the time of each, one picture.

    Args:
        report: from ``s13lib.simulator.simulate``.
        language: "en" or "zh".
        width: pixels, at least 480.
    """
    words = look_up(WORDS, language, "language")
    setup = report.setup
    title = words["step_of"].format(
        batch=setup.batch, stage=setup.stage, how=words["graph" if setup.graph else "eager"]
    )
    tiles = [
        (words["kernels"], f"{report.kernels_per_step:,}"),
        (words["step"], milliseconds(report.step_us)),
        (words["bottleneck"], words[report.bottleneck]),
        (words["speedup"], f"{report.speedup:.2f}×"),
    ]
    bars = [
        Bar(words["host"], report.host_us, milliseconds(report.host_us), svg.BLUE),
        Bar(words["device"], report.device_us, milliseconds(report.device_us), svg.ORANGE),
        Bar(words["busy"], report.utilization, f"{report.utilization:.0%}", svg.ORANGE, full=1.0),
    ]
    pictures = [
        tiles_svg(tiles, width),
        timeline_svg([Panel(title, report.timeline, SHOWN_LAUNCHES)], language, width),
        bars_svg(bars, words["where"], width, words["overlap"]),
    ]
    return stack_svg(pictures, width, title, step_sentence(report, language))


def step_sentence(report: StepReport, language: str = "en") -> str:
    """The picture in one sentence."""
    words = look_up(WORDS, language, "language")
    return words[f"{report.bottleneck}_bound"].format(
        calls=f"{len(report.timeline.host):,}",
        kernels=f"{report.kernels_per_step:,}",
        host=milliseconds(report.host_us),
        device=milliseconds(report.device_us),
        step=milliseconds(report.step_us),
        busy=f"{report.utilization:.0%}",
        speedup=f"{report.speedup:.2f}×",
        base=report.setup.base_stage,
    )


def waits(report: StepReport) -> tuple[int, float]:
    """How often, and how long in all (µs), the GPU waits once its first kernel has run.

    A modelled device runs its kernels in order and one at a time, so neighbours are enough to look at.
    """
    kernels = report.timeline.device
    pauses = [after.start_us - before.end_us for before, after in pairwise(kernels)]
    pauses = [pause for pause in pauses if pause > ROUNDING_US]
    return len(pauses), sum(pauses)


def step_table(report: StepReport, language: str = "en") -> str:
    """The numbers of the picture and those that it has no room for, as an HTML table."""
    words = look_up(WORDS, language, "language")
    count, waited_us = waits(report)
    rows = [
        (words["kernels"], f"{report.kernels_per_step:,}"),
        (words["calls"], f"{len(report.timeline.host):,}"),
        (words["step"], milliseconds(report.step_us)),
        (words["host"], milliseconds(report.host_us)),
        (words["device"], milliseconds(report.device_us)),
        (words["bottleneck"], words[report.bottleneck]),
        (words["busy"], f"{report.utilization:.0%}"),
        (words["waits"], words["waits_value"].format(count=count, time=milliseconds(waited_us))),
        (words["speedup_over"].format(base=report.setup.base_stage), f"{report.speedup:.2f}×"),
    ]
    if report.bandwidth_share is not None:
        rows.append((words["bandwidth"], f"{report.bandwidth_share:.1%}"))
    rows.append((words["constants"], report.timeline.provenance))
    return html_table((words["quantity"], words["value"]), rows)
