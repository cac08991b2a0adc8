"""Hold the calibrated launch model against this machine: predicted and measured step time over a grid of steps.

Run s13 calibrate first.

example:
  s13 predict
  s13 predict --batches 1,4 --stages 15,4
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

from s13lib.commands.output import number, print_json, table, whole, whole_list
from s13lib.device import best_device
from s13lib.errors import require, require_whole
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.calibrate import Cell, OrderCheck, check_order, prediction_grid, require_softgpu
from s13lib.profiling.calibration import Calibration, find_calibration

NOTABLE_DRIFT = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--calibration", default="here", metavar="NAME", help="which stored entry (default here)")
    add("--batches", type=whole_list, default=[1, 2, 4, 8, 16], metavar="LIST", help="batch sizes (1,2,4,8,16)")
    add("--stages", type=whole_list, default=[15, 11, 7, 4], metavar="LIST", help="fusion stages (15,11,7,4)")
    add("--repeats", type=whole, default=20, metavar="N", help="repeats of each measurement (default 20)")
    add("--seconds", type=number, default=12.0, metavar="S", help="go on for at least so long (default 12)")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require(1 <= arguments.repeats <= 1000, "--repeats", arguments.repeats, "1 to 1000")
    require(0 <= arguments.seconds <= 3600, "--seconds", arguments.seconds, "0 to 3600")
    for batch in arguments.batches:
        require_whole("--batches", batch, 1, 64)
    calibration = find_calibration(arguments.calibration)
    device = require_softgpu(best_device())
    banner = device.banner()
    checkpoint = load_checkpoint(calibration.model)
    cells, reference = prediction_grid(
        calibration,
        checkpoint,
        device,
        arguments.batches,
        arguments.stages,
        repeats=arguments.repeats,
        seconds=arguments.seconds,
    )
    order = check_order(device)
    now = Now(
        device=banner,
        other_device=not calibration.is_of(device.description),
        contended=calibration.contended or "not contended" not in banner or reference.disturbed,
        drift=reference.step_us / calibration.reference_us,
    )
    if arguments.json:
        print_json(as_json(calibration, cells, order, now))
    else:
        print(as_text(calibration, cells, order, now))
    return 0


@dataclass(frozen=True)
class Now:
    """The machine at the time of the prediction.

    Args:
        device: its banner.
        other_device: whether the calibration is another device's.
        contended: whether either measurement was disturbed.
        drift: how many times as long the calibration's own reference step takes now.
    """

    device: str
    other_device: bool
    contended: bool
    drift: float


def as_json(calibration: Calibration, cells: list[Cell], order: OrderCheck, now: Now) -> dict[str, object]:
    """The comparison under stable keys (documented in docs/cli.md)."""
    return {
        "source": "modelled and measured",
        "calibration": calibration.name,
        "date": calibration.date,
        "device": calibration.device,
        "measured_on": now.device,
        "other_device": now.other_device,
        "contended": now.contended,
        "speed_drift": now.drift,
        "median_error": median(abs(cell.error) for cell in cells),
        "wrong_bottlenecks": sum(not c.right_bottleneck and not c.near_crossover for c in cells),
        "order_measured_us": order.measured_us,
        "order_recurrence_us": order.recurrence_us,
        "order_naive_us": order.naive_us,
        "cells": [
            {
                "batch": cell.batch,
                "stage": cell.stage,
                "path": "graph" if cell.graph else "eager",
                "measured_us": cell.measured.step_us,
                "median_us": cell.measured.median_step_us,
                "predicted_us": cell.predicted.step_us,
                "interval_low_us": cell.interval_us(calibration, now.contended)[0],
                "interval_high_us": cell.interval_us(calibration, now.contended)[1],
                "error": cell.error,
                "measured_host_us": cell.measured.host_us,
                "measured_device_us": cell.measured.device_busy_us,
                "predicted_host_us": cell.predicted.host_us,
                "predicted_device_us": cell.predicted.device_us,
                "right_bottleneck": cell.right_bottleneck,
                "near_crossover": cell.near_crossover,
            }
            for cell in cells
        ],
    }


def as_text(calibration: Calibration, cells: list[Cell], order: OrderCheck, now: Now) -> str:
    """The comparison for people."""
    header = (
        "batch",
        "stage",
        "path",
        "measured µs",
        "to median",
        "predicted µs",
        "interval",
        "error",
        "bound by",
        "predicted",
    )
    lines = []
    for cell in cells:
        measured = cell.measured
        bound = "host" if measured.host_us > measured.device_busy_us else "device"
        predicted = "host" if cell.predicted.host_us > cell.predicted.device_us else "device"
        mark = "" if cell.right_bottleneck else (" (near)" if cell.near_crossover else " WRONG")
        lines.append(
            (
                str(cell.batch),
                str(cell.stage),
                "graph" if cell.graph else "eager",
                f"{measured.step_us:,.0f}",
                f"+{measured.median_step_us / measured.step_us - 1:.0%}",
                f"{cell.predicted.step_us:,.0f}",
                "{:,.0f}–{:,.0f}".format(*cell.interval_us(calibration, now.contended)),
                f"{cell.error:+.1%}",
                bound,
                predicted + mark,
            )
        )
    errors = [abs(cell.error) for cell in cells]
    wrong = sum(not c.right_bottleneck and not c.near_crossover for c in cells)
    out = [
        f"Modelled with calibration {calibration.name!r} ({calibration.date}, {calibration.device});",
        f"measured now on {now.device}.",
        "'to median': how far the median of the repeats lies above the quietest. 'interval': by the spread of launches"
        + (", or of the cell's own repeats where that is wider." if now.contended else "."),
        table(header, lines),
        f"Median error {median(errors):.1%}, largest {max(errors):.1%}; wrong bottleneck in {wrong} of {len(cells)} "
        "cells, those within 15% of the crossover left out.",
        f"Short kernels before long ones, measured {order.measured_us:,.0f} µs: the recurrence errs by "
        f"{order.recurrence_error:.1%}, max(host, device) by {order.naive_error:.1%}.",
    ]
    if now.other_device:
        out.append("The calibration is another device's: run s13 calibrate here to judge the model.")
    if abs(now.drift - 1) > NOTABLE_DRIFT:
        out.append(
            "The machine's own speed has changed since the calibration: its reference step takes "
            f"{now.drift:.2f} times as long now. Calibrate again to judge the model."
        )
    if ", 1 usable processor:" in now.device:
        out.append("With one processor host and device take turns: these times say nothing about the model.")
    elif now.contended:
        out.append(
            "The machine was or is contended: intervals are widened, and each measured time may be anywhere up to its "
            "median and beyond."
        )
    return "\n".join(out)
