"""Profile one decode step on this machine's device: where the time goes, and what the host does while the device waits.

example:
  s13 profile --stage 11
  s13 profile --stage 4 --graph --svg step.svg --chrome-trace step.json
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import replace

from s13lib.commands.decode import STAGES_HELP, chosen_stage, load_model
from s13lib.commands.output import print_json, stage, whole, write_files
from s13lib.errors import look_up, require
from s13lib.figures import Panel, timeline_svg
from s13lib.figures.timeline import LABELS
from s13lib.graphs import GraphRunner
from s13lib.model.checkpoints import CHECKPOINTS, load_checkpoint
from s13lib.profiling.measure import MeasuredStep, measure_steps
from s13lib.profiling.operators import count_operators
from s13lib.profiling.steps import eager_step, running_batch
from s13lib.simulator.chrome_trace import chrome_trace
from s13lib.simulator.timeline import Gap, Span, Timeline

GAPS_SHOWN = 5
ALONE = 0.5  # a launch that covers so much of a gap explains it alone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--model", default="bard", metavar="NAME", help=f"one of {', '.join(CHECKPOINTS)} (default bard)")
    add("--stage", type=stage, metavar="N", help=f"{STAGES_HELP} (default 11, torch)")
    add("--batch", type=whole, default=1, metavar="N", help="requests that decode together (default 1)")
    add("--context", type=whole, default=64, metavar="N", help="tokens of each request (default 64)")
    add("--graph", action="store_true", help="replay a graph captured at this batch size")
    add("--repeats", type=whole, default=40, metavar="N", help="repeats; the quietest counts (default 40)")
    add("--operators", action="store_true", help="also count PyTorch's own operators for the textbook decoder")
    add("--chrome-trace", metavar="FILE", help="write the timeline for Perfetto (ui.perfetto.dev)")
    add("--svg", metavar="FILE", help="draw the first 18 launches")
    add("--language", default="en", metavar="en|zh", help="labels of the picture")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require(1 <= arguments.batch <= 256, "--batch", arguments.batch, "1 to 256")
    require(arguments.context >= 1, "--context", arguments.context, "at least 1")
    look_up(LABELS, arguments.language, "--language")
    arguments.stage = chosen_stage(arguments.stage, 11)
    model = load_model(arguments.model, arguments.stage, arguments.batch, arguments.context)
    batch = running_batch(model, arguments.batch, arguments.context)
    if arguments.graph:
        runner = GraphRunner(model, arguments.batch)
        runner.run(batch)
        launch = runner.graph.replay
    else:
        launch = eager_step(model, batch)
    step = measure_steps(model.device, {"step": launch}, arguments.repeats, recorded=arguments.repeats)["step"]
    banner = model.device.banner()
    timeline = labelled(step.timeline, banner)
    a_layer = "stage torch" if arguments.stage == "torch" else f"{arguments.stage} kernels a layer"
    how = "one graph replay" if arguments.graph else "launched one by one"
    title = f"{arguments.model}, batch {arguments.batch}, {a_layer}, {how}"
    written = write_files(
        [
            (arguments.chrome_trace, "--chrome-trace", lambda: chrome_trace(timeline)),
            (arguments.svg, "--svg", lambda: timeline_svg([Panel(title, timeline)], arguments.language)),
        ]
    )
    operators = None
    if arguments.operators:
        textbook = load_checkpoint(arguments.model).textbook()
        operators = count_operators(textbook, arguments.context, arguments.batch)
    result = as_json(arguments, step, banner, operators)
    if arguments.json:
        print_json(result)
    else:
        print(as_text(title, result))
        for name in written:
            print(f"wrote {name}")
    return 0


def labelled(timeline: Timeline, banner: str) -> Timeline:
    """The timeline with the day and the device's contention in its provenance, which files keep."""
    device = timeline.provenance
    rest = banner.removeprefix(device)
    return replace(timeline, provenance=f"{device}, {datetime.date.today().isoformat()}{rest}")


def largest_gaps(timeline: Timeline) -> list[tuple[Gap, str]]:
    """The longest idle stretches of the device, each with what the host did meanwhile."""
    longest = sorted(timeline.gaps, key=lambda g: -g.duration_us)[:GAPS_SHOWN]
    return [(gap, host_work(timeline.host, gap)) for gap in longest]


def host_work(host: Sequence[Span], gap: Gap) -> str:
    """What the host did during a gap, in words."""
    end_us = gap.start_us + gap.duration_us
    if not any(s.end_us > gap.start_us for s in host):
        return "nothing left to launch: waiting for the device"
    within = {s: min(s.end_us, end_us) - max(s.start_us, gap.start_us) for s in host}
    within = {s: us for s, us in within.items() if us > 0}
    if any(s.kind == "graph" for s in within):
        return "replaying the graph"
    if len(within) > 1 and max(within.values()) < ALONE * gap.duration_us:
        first, *_, last = within
        return f"{len(within)} launches, from {first.name} to {last.name}"
    if sum(within.values()) < ALONE * gap.duration_us:
        return "between launches"
    return f"launching {max(within, key=within.get).name}"


def as_json(
    arguments: argparse.Namespace, step: MeasuredStep, banner: str, operators: tuple | None
) -> dict[str, object]:
    """The profile under stable keys (documented in docs/cli.md)."""
    timeline = step.timeline
    return {
        "source": "measured",
        "device": banner,
        "model": arguments.model,
        "stage": arguments.stage,
        "batch": arguments.batch,
        "context": arguments.context,
        "path": "graph" if arguments.graph else "eager",
        "launches": step.launches,
        "kernels": step.kernels,
        "step_us": timeline.step_us,
        "unrecorded_step_us": step.step_us,
        "median_step_us": step.median_step_us,
        "host_us": timeline.host_us,
        "device_us": timeline.device_us,
        "bottleneck": timeline.bottleneck,
        "utilization": timeline.utilization,
        "median_launch_us": timeline.median_launch_us,
        "gaps": len(timeline.gaps),
        "gap_us": sum(gap.duration_us for gap in timeline.gaps),
        "largest_gaps": [
            {"start_us": gap.start_us, "duration_us": gap.duration_us, "before": gap.before, "host": doing}
            for gap, doing in largest_gaps(timeline)
        ],
        "torch_operators": None if operators is None else sum(operators[0].values()),
        "torch_views": None if operators is None else sum(operators[1].values()),
    }


def as_text(title: str, r: dict) -> str:
    """The profile for people."""
    larger = {"host": "host: launching takes longer than computing", "device": "device: computing takes longer"}
    without = f"{r['unrecorded_step_us']:,.0f} µs without (median of the repeats {r['median_step_us']:,.0f})"
    rows = [
        ("Step", title),
        (
            "Launches",
            f"{r['launches']} by the host, {r['kernels']} kernels; median {r['median_launch_us']:.2f} µs each",
        ),
        ("Step time", f"{r['step_us']:,.0f} µs while recording, {without}"),
        ("Host, launches", f"{r['host_us']:,.0f} µs"),
        ("Device, kernels", f"{r['device_us']:,.0f} µs"),
        ("Bottleneck", larger[r["bottleneck"]]),
        ("Utilisation", f"{r['utilization']:.0%}"),
        ("Device idle", f"{r['gap_us']:,.0f} µs in {r['gaps']} gaps"),
    ]
    if r["torch_operators"] is not None:
        both = f"{r['torch_operators']:,} that compute, {r['torch_views']:,} views"
        rows.append(("PyTorch operators", f"{both}: what the textbook decoder runs for the same step"))
    lines = [f"{name:<18} {value}" for name, value in rows]
    lines += ["", "Longest gaps of the device, and what the host was doing:"]
    lines += [
        f"  {g['duration_us']:8.1f} µs at {g['start_us']:8.1f}  before {g['before']}: {g['host']}"
        for g in r["largest_gaps"]
    ]
    return "\n".join([*lines, "", f"Measured on {r['device']}."])
