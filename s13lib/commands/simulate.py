"""Model one decode step or prefill and say where its time goes.

example:
  s13 simulate --preset seed
  s13 simulate --model llama-3-8b --gpu h200 --batch 4 --stage 7 --graph --svg step.svg --chrome-trace step.json
"""

from __future__ import annotations

import argparse

from s13lib.commands.output import ms, print_json, write_files
from s13lib.commands.setup import add_setup_arguments, setup_from
from s13lib.errors import look_up
from s13lib.figures import Panel, timeline_svg
from s13lib.figures.timeline import LABELS
from s13lib.simulator import GPU, Setup, StepReport, Timeline, chrome_trace, simulate

SHOWN_LAUNCHES = 18
LANE_CHARACTERS = 96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_setup_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")
    parser.add_argument("--chrome-trace", metavar="FILE", help="write the timeline for Perfetto (ui.perfetto.dev)")
    parser.add_argument("--svg", metavar="FILE", help="draw the first 18 launches")
    parser.add_argument("--language", default="en", metavar="en|zh", help="labels of the picture")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    look_up(LABELS, arguments.language, "--language")
    report = simulate(setup_from(arguments, Setup()))

    def picture() -> str:
        panel = Panel(describe(report.setup, arguments.language), report.timeline, SHOWN_LAUNCHES)
        return timeline_svg([panel], arguments.language)

    written = write_files(
        [
            (arguments.chrome_trace, "--chrome-trace", lambda: chrome_trace(report.timeline)),
            (arguments.svg, "--svg", picture),
        ]
    )
    if arguments.json:
        print_json(as_json(report))
    else:
        print(as_text(report))
        for name in written:
            print(f"wrote {name}")
    return 0


DESCRIPTIONS = {
    "en": (
        "prefill of {0} tokens",
        "decode, batch {0}",
        "{0} kernels a layer",
        "one graph replay",
        "launched one by one",
    ),
    "zh": ("prefill {0} 个 token", "decode，batch {0}", "每层 {0} 个 kernel", "一次 graph 回放", "逐个启动"),
}


def describe(setup: Setup, language: str = "en") -> str:
    """The step in a few words."""
    prefill, decode, stage, replayed, launched = DESCRIPTIONS[language]
    what = prefill.format(setup.prefill) if setup.prefill else decode.format(setup.batch)
    parts = (what, stage.format(setup.stage), replayed if setup.graph else launched)
    return ("，" if language == "zh" else ", ").join(parts)


def as_json(report: StepReport) -> dict[str, object]:
    """The report under stable keys (documented in docs/cli.md)."""
    setup = report.setup
    return {
        "source": "modelled",
        "constants": setup.provenance,
        "model": setup.shape.name,
        "device": setup.device.name if isinstance(setup.device, GPU) else "seed law",
        "batch": None if setup.prefill else setup.batch,
        "context": None if setup.prefill else setup.context,
        "prefill": setup.prefill,
        "stage": setup.stage,
        "graph": setup.graph,
        "parts": list(setup.parts),
        "kernels_per_step": report.kernels_per_step,
        "step_ms": report.step_us / 1000,
        "host_ms": report.host_us / 1000,
        "device_ms": report.device_us / 1000,
        "bottleneck": report.bottleneck,
        "utilization": report.utilization,
        "speedup": report.speedup,
        "bandwidth_share": report.bandwidth_share,
        "flop_share": report.flop_share,
        "first_launches": [
            {"name": s.name, "start_us": s.start_us, "duration_us": s.duration_us, "lane": lane}
            for lane, spans in (("host", report.first_launches.host), ("device", report.first_launches.device))
            for s in spans
        ],
    }


def as_text(report: StepReport) -> str:
    """The report for people."""
    setup = report.setup
    larger = {
        "host": "host: the CPU's launches take longer than the GPU's kernels",
        "device": "device: the GPU's kernels take longer than the CPU's launches",
    }
    rows = [
        ("Step", describe(setup)),
        ("Modelled with", setup.provenance),
        ("Counted", ", ".join(setup.parts)),
        ("Kernels per step", str(report.kernels_per_step)),
        ("Step time", f"{ms(report.step_us)} ms (host and device overlap)"),
        ("Host, launches", f"{ms(report.host_us)} ms"),
        ("Device, kernels", f"{ms(report.device_us)} ms"),
        ("Bottleneck", larger[report.bottleneck]),
        ("GPU utilisation", f"{report.utilization:.0%}"),
        ("Speed-up", f"{report.speedup:.2f}× over {setup.base_stage} kernels a layer launched one by one"),
    ]
    if isinstance(setup.device, GPU):
        gpu = setup.device
        rows += [
            ("Useful bandwidth", f"{report.bandwidth_share:.1%} of {gpu.bandwidth_tb_s:g} TB/s"),
            ("Useful arithmetic", f"{report.flop_share:.2%} of {gpu.peak_tflop_s:g} TFLOP/s"),
        ]
    lines = [f"{name:<18} {value}" for name, value in rows]
    return "\n".join([*lines, "", *_lanes(report.first_launches)])


def _lanes(timeline: Timeline) -> list[str]:
    """The first launches as two lines of text: ``|`` starts a launch or kernel, ``.`` is an idle device."""
    per_character = timeline.step_us / LANE_CHARACTERS
    lanes = []
    for name, spans, idle in (("CPU", timeline.host, " "), ("GPU", timeline.device, ".")):
        lane = [idle] * LANE_CHARACTERS
        for span in spans:
            first = round((span.start_us - timeline.start_us) / per_character)
            last = round((span.end_us - timeline.start_us) / per_character)
            for at in range(first, min(max(last, first + 1), LANE_CHARACTERS)):
                lane[at] = "|" if at == first else "#"
        lanes.append(f"{name} {''.join(lane).rstrip()}")
    count = max(len(timeline.host), len(timeline.device))
    return [f"The first {count} launches, {timeline.step_us:.1f} µs (. = the GPU waits)", *lanes]
