"""Switch the padding bug on and watch it: requests join and leave under each padding policy, and every request is also
decoded alone. Prints at which batch sizes the audit raises an alarm and at which the outputs differ.

example:
  s13 padding
  s13 padding --policy naive --requests 24 --seed 3
"""

from __future__ import annotations

import argparse
import json
from importlib import resources

from s13lib.buckets import BucketLayout
from s13lib.commands.decode import STAGES_HELP, chosen_stage
from s13lib.commands.output import print_json, stage, table, whole, whole_list
from s13lib.errors import look_up, require
from s13lib.graphs import PADDINGS
from s13lib.graphs.scenario import ScenarioResult, by_batch_size, fresh_twin, run_scenario
from s13lib.model.checkpoints import CHECKPOINTS, load_checkpoint
from s13lib.progress import Progress

DEFAULT_BUCKETS = [1, 2, 4, 8, 16]
TEXT_SHOWN = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--policy", metavar="P", help=f"one of {', '.join(PADDINGS)} (default: all four)")
    add("--model", default="bard", metavar="NAME", help=f"one of {', '.join(CHECKPOINTS)} (default bard)")
    add("--stage", type=stage, metavar="N", help=f"{STAGES_HELP} (default the most fused)")
    add("--requests", type=whole, default=24, metavar="N", help="requests in all (default 24)")
    add("--buckets", type=whole_list, default=DEFAULT_BUCKETS, metavar="LIST", help="captured sizes (1,2,4,8,16)")
    add("--seed", type=whole, default=5, metavar="N", help="of arrivals, lengths and sampling (default 5)")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.policy is not None:
        look_up(PADDINGS, arguments.policy, "--policy")
    require(1 <= arguments.requests <= 1000, "--requests", arguments.requests, "1 to 1000")
    policies = list(PADDINGS) if arguments.policy is None else [arguments.policy]
    layout = BucketLayout(arguments.buckets)
    checkpoint = load_checkpoint(arguments.model)
    texts = json.loads((resources.files("s13lib.data") / "prompts.json").read_text(encoding="utf-8"))
    prompts = [checkpoint.tokenizer.encode(texts[i % len(texts)]) for i in range(arguments.requests)]
    model = checkpoint.model(chosen_stage(arguments.stage, 4), max_rows=max(64, layout.top), blocks=160)
    results = []
    with Progress("serving under each policy", len(policies)) as bar:
        for policy in policies:
            served = fresh_twin(model)  # a cache that was used before hands its blocks out in another order
            results.append(run_scenario(served, prompts, layout, policy, arguments.seed, max_batch=12))
            bar.update()
    if arguments.json:
        print_json(as_json(results, model.device.banner(), checkpoint.tokenizer.decode))
    else:
        print(as_text(results, model.device.banner(), checkpoint.tokenizer.decode))
    return 0


def as_json(results: list[ScenarioResult], device: str, decode) -> dict[str, object]:
    """The scenario under stable keys (documented in docs/cli.md)."""
    return {
        "source": "measured",
        "device": device,
        "policies": {
            result.policy: {
                "steps": len(result.steps),
                "alarms": sum(bool(step.violations) for step in result.steps),
                "steps_differing": sum(bool(step.rows_differing) for step in result.steps),
                "corrupted_slots": max(step.corrupted_slots for step in result.steps),
                "argmax_flips": sum(step.argmax_flips for step in result.steps),
                "largest_difference": max(step.largest_difference for step in result.steps),
                "first_alarm": next((str(v) for step in result.steps for v in step.violations), None),
                "by_batch": [row.__dict__ for row in by_batch_size(result)],
                "texts": [decode(request.made) for request in result.requests],
            }
            for result in results
        },
    }


def as_text(results: list[ScenarioResult], device: str, decode) -> str:
    """The n × policy table, and what a reader of the outputs would see."""
    rows = {result.policy: {row.n: row for row in by_batch_size(result)} for result in results}
    sizes = sorted({n for of_policy in rows.values() for n in of_policy})
    lines = []
    for n in sizes:
        bucket = next(of_policy[n].bucket for of_policy in rows.values() if n in of_policy)
        cells = [str(n), "eager" if bucket is None else str(bucket)]
        for of_policy in rows.values():
            row = of_policy.get(n)
            cells.append("" if row is None else f"{row.steps} / {row.alarms} / {row.steps_differing}")
        lines.append(cells)
    header = ["n", "bucket", *rows]
    out = [f"Measured on {device}.", "Each cell: decode steps of n requests / steps with an alarm / steps whose logits"]
    out += ["differ from the same requests decoded alone.", table(header, lines, left=0), ""]
    for result in results:
        first = next((v for step in result.steps for v in step.violations), None)
        largest = max(step.largest_difference for step in result.steps)
        flips = sum(step.argmax_flips for step in result.steps)
        slots = max(step.corrupted_slots for step in result.steps)
        if first is None and not largest:
            out.append(f"{result.policy}: no alarm; every row is bit for bit what it is alone.")
            continue
        out.append(
            f"{result.policy}: {first}. At the worst step {slots} slots of running requests hold other bytes; logits "
            f"differ by up to {largest:.2g}, and {flips} likeliest tokens changed."
        )
        hurt = next(r for r in result.requests if first is None or r.name == first.owner)
        text = decode(hurt.prompt + hurt.made)[:TEXT_SHOWN].replace("\n", " / ")
        out.append(f"  What {hurt.name} reads like: {text}")
    return "\n".join(out)
