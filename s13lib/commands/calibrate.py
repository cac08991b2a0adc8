"""Measure what launches and kernels cost on this machine's device, and keep it for s13 predict.

example:
  s13 calibrate
  s13 calibrate --name quiet --repeats 60
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from s13lib.commands.output import number, print_json, whole
from s13lib.device import best_device
from s13lib.errors import require
from s13lib.model.checkpoints import CHECKPOINTS, load_checkpoint
from s13lib.profiling.calibrate import calibrate, require_softgpu
from s13lib.profiling.calibration import Calibration, check_storage, store_calibration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--name", default="here", metavar="NAME", help="what to call the entry (default here)")
    add("--model", default="bard", metavar="NAME", help=f"one of {', '.join(CHECKPOINTS)} (default bard)")
    add("--repeats", type=whole, default=40, metavar="N", help="repeats of each measurement (default 40)")
    add("--seconds", type=number, default=8.0, metavar="S", help="go on for at least so long (default 8)")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    name = arguments.name
    require(bool(name) and name.isprintable() and len(name) <= 60, "--name", name, "1 to 60 printable characters")
    require(2 <= arguments.repeats <= 1000, "--repeats", arguments.repeats, "2 to 1000")
    require(0 <= arguments.seconds <= 3600, "--seconds", arguments.seconds, "0 to 3600")
    check_storage()
    device = require_softgpu(best_device())
    checkpoint = load_checkpoint(arguments.model)
    calibration = calibrate(checkpoint, device, name, repeats=arguments.repeats, seconds=arguments.seconds)
    path = store_calibration(calibration)
    if arguments.json:
        print_json({"source": "measured", **asdict(calibration)})
    else:
        print(as_text(calibration))
        print(f"Stored as {name!r} in {path}; s13 predict holds it against measurements.")
    return 0


def as_text(c: Calibration) -> str:
    """The calibration for people."""
    base, argument = f"{c.launch_base_us:.2f}", f"{c.launch_argument_us:.2f}"
    rows = [
        ("Launch", f"{base} µs + {argument} µs an argument; middle half of launches within {c.launch_spread:.0%}"),
        ("Graph launch", f"{c.graph_base_us:.2f} µs + {c.graph_node_us * 1000:.2f} ns a node"),
        ("Start, end", f"{c.latency_us:.2f} µs to a kernel's start, {c.wait_us:.2f} µs from the last one's end"),
        ("Kernel", f"floor {c.floor_us:.2f} µs, gap in a graph {c.graph_gap_us * 1000:.0f} ns"),
        ("Linear", f"{c.bandwidth / 1e3:.1f} GB/s of weights, at most {c.linear_rate / 1e3:.1f} GFLOP/s"),
        ("Attention", f"{c.attention_rate / 1e3:.1f} GFLOP/s"),
        ("Everything else", f"{c.elementwise_rate / 1e3:.1f} GB/s"),
        ("Measured", f"{c.date}, {c.model}, {c.device}"),
    ]
    lines = [f"{name:<16} {value}" for name, value in rows]
    if c.one_processor:
        lines.append(
            "With one processor host and device take turns, and calibrating again will not help: give this process two."
        )
    elif c.contended:
        lines.append("The machine was contended: calibrate again when it is quiet.")
    return "\n".join(lines)
