"""What each fusion stage removes: kernels, intermediates, bytes, and what that does to a step.

example:
  s13 fusion --model llama-3-8b --gpu h200 --context 1024
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from s13lib.commands.output import ms, print_json, table
from s13lib.commands.setup import add_setup_arguments, setup_from
from s13lib.simulator import STAGES, Setup, middle_layer, simulate, step_us

SMALL_SHARE = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_setup_arguments(parser, varying=("stage", "graph", "prefill"))
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    setup = setup_from(arguments, Setup())
    if arguments.json:
        print_json(
            {
                "source": "modelled",
                "constants": setup.provenance,
                "parts": list(setup.parts),
                "stages": stage_rows(setup),
            }
        )
    else:
        print(as_text(setup))
    return 0


def stage_rows(setup: Setup) -> list[dict[str, object]]:
    """One row a stage, under stable keys. Bytes are one layer's."""
    rows = []
    for stage in STAGES:
        at = replace(setup, stage=stage)
        layer = middle_layer(at)
        eager = simulate(at)
        written = [t for kernel in layer for t in kernel.outputs if "_cache" not in t]
        rows.append(
            {
                "stage": stage,
                "kernels": [kernel.name for kernel in layer],
                "kernels_per_layer": len(layer),
                "kernels_per_step": eager.kernels_per_step,
                "intermediates_per_layer": len(written),
                "weight_bytes": sum(k.weight_bytes for k in layer),
                "cache_bytes": sum(k.cache_bytes for k in layer),
                "activation_bytes": sum(k.activation_bytes for k in layer),
                "step_ms": eager.step_us / 1000,
                "bottleneck": eager.bottleneck,
                "utilization": eager.utilization,
                "speedup": eager.speedup,
                "graph_step_ms": step_us(replace(at, graph=True)) / 1000,
            }
        )
    return rows


def _gain(saved: float) -> str:
    """What fusion is for, given the share of the bytes that it saves."""
    if saved < SMALL_SHARE:
        return "The gain is launches and kernel boundaries."
    return "The gain is launches, kernel boundaries and memory traffic."


def as_text(setup: Setup) -> str:
    """The ledger for people."""
    rows = stage_rows(setup)
    header = ("stage", "kernels/step", "intermediates", "activations", "step ms", "bound by", "busy", "graph ms")
    lines = [
        (
            str(r["stage"]),
            str(r["kernels_per_step"]),
            str(r["intermediates_per_layer"]),
            f"{r['activation_bytes'] / 1000:,.0f} KB",
            ms(r["step_ms"] * 1000),
            r["bottleneck"],
            f"{r['utilization']:.0%}",
            ms(r["graph_step_ms"] * 1000),
        )
        for r in rows
    ]
    most, least = rows[0], rows[-1]
    total = most["weight_bytes"] + most["cache_bytes"] + most["activation_bytes"]
    saved = (most["activation_bytes"] - least["activation_bytes"]) / total
    return "\n".join(
        [
            f"Modelled: {setup.provenance}; batch {setup.batch}, context {setup.context}.",
            f"Launches and times count: {', '.join(setup.parts)}.",
            "Intermediates and activation bytes are one layer's; a stage is named by its kernels a layer.",
            table(header, lines),
            f"A layer also reads {most['weight_bytes'] / 1e6:.1f} MB of weights and {most['cache_bytes'] / 1e6:.1f} MB "
            f"of cached keys and values at every stage:",
            f"from {most['stage']} to {least['stage']} kernels fusion saves {saved:.2%} of the bytes. {_gain(saved)}",
            *(f"  {r['stage']:>2}: {' · '.join(r['kernels'])}" for r in rows),
        ]
    )
