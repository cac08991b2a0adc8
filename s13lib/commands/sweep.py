"""Step time against batch size, launched one by one and as a graph, and the batch at which launches stop mattering.

example:
  s13 sweep --preset seed
  s13 sweep --model llama-3.2-1b --gpu a100 --stage 7 --batches 1,8,64,256
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from s13lib.commands.output import ms, print_json, table, whole_list
from s13lib.commands.setup import add_setup_arguments, setup_from
from s13lib.simulator import Setup, crossover, step_us, sweep

DEFAULT_BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
CROSSOVER_LIMIT = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_setup_arguments(parser, varying=("batch", "prefill", "graph"))
    parser.add_argument("--batches", type=whole_list, default=DEFAULT_BATCHES, metavar="LIST", help="batch sizes")
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    setup = setup_from(arguments, Setup())
    result = sweep_result(setup, arguments.batches)
    if arguments.json:
        print_json(result)
    else:
        print(as_text(setup, result))
    return 0


def sweep_result(setup: Setup, batches: list[int]) -> dict[str, object]:
    """The sweep under stable keys (documented in docs/cli.md)."""
    rows = [
        {
            "batch": r.setup.batch,
            "step_ms": r.step_us / 1000,
            "host_ms": r.host_us / 1000,
            "device_ms": r.device_us / 1000,
            "bottleneck": r.bottleneck,
            "utilization": r.utilization,
            "graph_step_ms": step_us(replace(r.setup, graph=True)) / 1000,
        }
        for r in sweep(setup, batches)
    ]
    return {
        "source": "modelled",
        "constants": setup.provenance,
        "context": setup.context,
        "stage": setup.stage,
        "parts": list(setup.parts),
        "kernels_per_step": len(setup.kernels()),
        "crossover_batch": crossover(setup, CROSSOVER_LIMIT),
        "rows": rows,
    }


def as_text(setup: Setup, result: dict) -> str:
    """The sweep for people."""
    header = ("batch", "host ms", "device ms", "step ms", "GPU busy", "bound by", "graph ms", "gain", "graph tok/s")
    lines = [
        (
            str(r["batch"]),
            *(ms(r[key] * 1000) for key in ("host_ms", "device_ms", "step_ms")),
            f"{r['utilization']:.0%}",
            r["bottleneck"],
            ms(r["graph_step_ms"] * 1000),
            f"{r['step_ms'] / r['graph_step_ms']:.2f}×",
            f"{r['batch'] / r['graph_step_ms'] * 1000:,.0f}",
        )
        for r in result["rows"]
    ]
    at, kernels, launch_us = result["crossover_batch"], result["kernels_per_step"], setup.costs.launch_us
    if at is None:
        where = f"Launch-bound at every batch size up to {CROSSOVER_LIMIT}."
    elif at == 1:
        where = "Device-bound at every batch size: the kernels take longer than their launches."
    else:
        where = f"From batch {at} up the kernels take longer than their launches: launch-bound below."
    return "\n".join(
        [
            f"Modelled: {setup.provenance}; context {setup.context}; counted: {', '.join(setup.parts)}.",
            f"{kernels} launches × {launch_us:g} µs = {ms(launch_us * kernels)} ms of CPU a step.",
            table(header, lines),
            where,
        ]
    )
