"""The whole story on one page: where launches bind, what fusion removes, what padding costs. All of it is modelled.

Needs NumPy alone. Other models and GPUs: the options below; more detail: s13 simulate, sweep, fusion, buckets.

example:
  s13 report
  s13 report --model llama-3-8b --gpu h200 --traffic code
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from s13lib.buckets import (
    PRESETS,
    ROWS,
    WORKLOADS,
    StepTimes,
    Traffic,
    best_layout,
    pinned_rows,
    preset,
    read_traffic,
    row_cost,
    time_cost,
)
from s13lib.commands import fusion, sweep
from s13lib.commands.buckets import DEFAULT_COUNT, ENGINE_STAGE, modelled_times
from s13lib.commands.output import heading, print_json, table
from s13lib.commands.setup import add_setup_arguments, setup_from
from s13lib.simulator import Setup

MAX_BATCH = 256
TEXT_STAGE = 11  # the lesson's list of kernels
TRAFFIC_HELP = f"{', '.join(WORKLOADS)}, or a file as s13 buckets reads it (default: chat)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_setup_arguments(parser, varying=("batch", "prefill", "graph"))
    parser.add_argument("--traffic", default="chat", metavar="FILE", help=TRAFFIC_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    setup = setup_from(arguments, Setup(stage=TEXT_STAGE, base_stage=TEXT_STAGE, parts=("layers",)))
    swept = sweep.sweep_result(setup, sweep.DEFAULT_BATCHES)
    traffic = read_traffic(arguments.traffic)
    times = modelled_times(replace(setup, stage=ENGINE_STAGE), max(MAX_BATCH, traffic.largest))
    layouts = layout_rows(traffic, times)
    if arguments.json:
        print_json({"sweep": swept, "fusion": fusion.stage_rows(setup), "buckets": layouts})
        return 0
    sections = [
        (f"1. A batch sweep at {setup.stage} kernels a layer: where do launches bind?", sweep.as_text(setup, swept)),
        ("2. Fusion: from 15 kernels a layer to 4", fusion.as_text(setup)),
        ("3. Bucket layouts: padding against pinned memory", layout_text(traffic, times.origin, layouts)),
    ]
    print("\n\n".join(f"{heading(title)}\n{text}" for title, text in sections))
    return 0


def layout_rows(traffic: Traffic, times: StepTimes) -> list[dict[str, object]]:
    """Each engine's list on ``traffic``, and beside it the best layout of equal memory."""
    rows = []
    for name in PRESETS:
        layout = preset(name, MAX_BATCH)
        # One shared pool: its memory is the largest size's and a graph's own, so equal memory is an equal count.
        equal_count = best_layout(traffic, MAX_BATCH, count=len(layout))
        private = pinned_rows(layout, "private")
        equal_rows = best_layout(traffic, MAX_BATCH, budget=private, pool="private", memory=ROWS)
        rows.append(
            {
                "layout": name,
                "sizes": len(layout),
                "padding_fraction": row_cost(layout, traffic).padding_fraction,
                "time_waste_fraction": time_cost(layout, traffic, times).time_waste_fraction,
                "pinned_rows_shared": pinned_rows(layout, "shared"),
                "pinned_rows_private": private,
                "best_padding_fraction_shared": row_cost(equal_count, traffic).padding_fraction,
                "best_padding_fraction_private": row_cost(equal_rows, traffic).padding_fraction,
            }
        )
    best = best_layout(traffic, MAX_BATCH, count=DEFAULT_COUNT)
    best_private = pinned_rows(best, "private")
    equal_rows = best_layout(traffic, MAX_BATCH, budget=best_private, pool="private", memory=ROWS)
    rows.append(
        {
            "layout": f"best {DEFAULT_COUNT}",
            "sizes": len(best),
            "padding_fraction": row_cost(best, traffic).padding_fraction,
            "time_waste_fraction": time_cost(best, traffic, times).time_waste_fraction,
            "pinned_rows_shared": pinned_rows(best, "shared"),
            "pinned_rows_private": best_private,
            "best_padding_fraction_shared": row_cost(best, traffic).padding_fraction,
            "best_padding_fraction_private": row_cost(equal_rows, traffic).padding_fraction,
        }
    )
    return rows


def layout_text(traffic: Traffic, origin: str, rows: list[dict]) -> str:
    """The comparison for people."""
    header = ("layout", "sizes", "padding", "best, same sizes", "time waste", "shared", "private", "best, same private")
    lines = [
        (
            r["layout"],
            str(r["sizes"]),
            f"{r['padding_fraction']:.2%}",
            f"{r['best_padding_fraction_shared']:.2%}",
            f"{r['time_waste_fraction']:.2%}",
            str(r["pinned_rows_shared"]),
            f"{r['pinned_rows_private']:,}",
            f"{r['best_padding_fraction_private']:.2%}",
        )
        for r in rows
    ]
    return "\n".join(
        [
            f"Traffic: {traffic.name} ({traffic.origin}), running batch {traffic.mean:.1f} in the mean, "
            f"{traffic.largest} at most.",
            table(header, lines),
            "padding: share of computed rows that are padding. time waste: what it costs in time, with step times",
            f"{origin}.",
            "shared, private: rows that graphs pin in one pool, or in a pool each. best: the padding of the best",
            "layout with as many sizes, so as much shared memory, and with as many rows in pools of their own.",
            "s13 buckets --traffic FILE finds the best layout for your own traffic.",
        ]
    )
