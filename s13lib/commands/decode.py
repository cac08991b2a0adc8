"""Measure one decode step of a real model on this machine's device: launched kernel by kernel, or as a graph.

example:
  s13 decode --stage 15
  s13 decode --stage 4 --graph --batch 3
  s13 decode --graph --batch 3 --padding naive --audit
  s13 decode --compare
"""

from __future__ import annotations

import argparse

from s13lib.buckets.layout import preset
from s13lib.commands.output import print_json, stage, table, whole
from s13lib.device import best_device
from s13lib.errors import InputError, look_up, require, require_whole
from s13lib.graphs import PADDINGS, BucketedRunner, CacheAudit, GraphRunner
from s13lib.model import DecoderModel, stages_of
from s13lib.model.checkpoints import CHECKPOINTS, load_checkpoint
from s13lib.model.stages import Stage
from s13lib.profiling.measure import MeasuredStep, measure_steps
from s13lib.profiling.steps import BLOCK_SIZE, blocks_needed, eager_step, running_batch

MOST_ROWS = 1024
STAGES_HELP = "kernels a layer: 15, 11, 9, 7, 5 or 4; on CUDA torch, 7 or 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--model", default="bard", metavar="NAME", help=f"one of {', '.join(CHECKPOINTS)} (default bard)")
    add("--stage", type=stage, metavar="N", help=f"{STAGES_HELP} (default 15, torch)")
    add("--batch", type=whole, default=1, metavar="N", help="requests that decode together (default 1)")
    add("--context", type=whole, default=64, metavar="N", help="tokens of each request (default 64)")
    add("--graph", action="store_true", help="pad to one of the lesson's captured sizes and replay its graph")
    add("--padding", default="scratch", metavar="P", help=f"what padding rows hold: {', '.join(PADDINGS)}")
    add("--compare", action="store_true", help="un-fused and fused, eager and graph, interleaved in one run")
    add("--audit", action="store_true", help="check who writes where before the step runs")
    add("--repeats", type=whole, default=40, metavar="N", help="timed repeats; the quietest counts (default 40)")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require_whole("--batch", arguments.batch, 1, MOST_ROWS)
    require(arguments.context >= 1, "--context", arguments.context, "at least 1")
    require_whole("--repeats", arguments.repeats, 1, 10_000)
    look_up(PADDINGS, arguments.padding, "--padding")
    if arguments.audit and not arguments.graph:
        raise InputError("--audit checks padded steps: add --graph.")
    if arguments.compare:
        if arguments.graph or arguments.audit:
            raise InputError("--compare measures eager and graph by itself: leave --graph and --audit out.")
        return compare(arguments)
    arguments.stage = chosen_stage(arguments.stage, 15)
    layout = preset("seed")
    bucket = layout.pick(arguments.batch) if arguments.graph else None
    model = load_model(arguments.model, arguments.stage, max(bucket or 0, arguments.batch), arguments.context)
    batch = running_batch(model, arguments.batch, arguments.context)
    audit = CacheAudit(model.cache, arguments.padding, strict=False) if arguments.audit else None
    if bucket is None:
        step = measure_steps(model.device, {"eager": eager_step(model, batch)}, arguments.repeats)["eager"]
    else:
        runner = BucketedRunner(model, [bucket], arguments.padding, audit=audit)
        runner.forward(batch)  # fills the buffers, checks the writes
        step = measure_steps(model.device, {"graph": runner.runners[bucket].graph.replay}, arguments.repeats)["graph"]
    result = as_json(arguments, model, step, bucket, audit)
    if arguments.json:
        print_json(result)
    else:
        print(as_text(result))
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """The lesson's two switches, the device's least and most fused stage, eager and graph, in one interleaved run."""
    stages = stages_of(best_device())
    compared = [(which, graph) for which in (stages[0], stages[-1]) for graph in (False, True)]
    steps, models = {}, {}
    for which, graph in compared:
        if which not in models:
            models[which] = load_model(arguments.model, which, arguments.batch, arguments.context)
            batch = running_batch(models[which], arguments.batch, arguments.context)
        model = models[which]
        if graph:
            runner = GraphRunner(model, arguments.batch)
            runner.run(batch)
            steps[which, graph] = runner.graph.replay
        else:
            steps[which, graph] = eager_step(model, batch)
    measured = measure_steps(model.device, steps, arguments.repeats)
    slowest = measured[compared[0]].step_us
    rows = [
        {
            "stage": which,
            "path": "graph" if graph else "eager",
            "launches": step.launches,
            "kernels": step.kernels,
            "step_us": step.step_us,
            "median_step_us": step.median_step_us,
            "host_us": step.host_us,
            "device_busy_us": step.device_busy_us,
            "device_busy_share": step.device_busy_share,
            "speedup": slowest / step.step_us,
        }
        for (which, graph), step in measured.items()
    ]
    shape = {"model": arguments.model, "batch": arguments.batch, "context": arguments.context}
    result = {"source": "measured", "device": model.device.banner(), **shape, "rows": rows}
    if arguments.json:
        print_json(result)
        return 0
    header = ("kernels a layer", "path", "submissions", "step µs", "host µs", "device busy", "speed-up")
    lines = [
        (
            str(r["stage"]),
            r["path"],
            str(r["launches"]),
            f"{r['step_us']:,.0f}",
            f"{r['host_us']:,.0f}",
            f"{r['device_busy_share']:.0%}",
            f"{r['speedup']:.1f}×",
        )
        for r in rows
    ]
    print(f"One decode step of {arguments.model}, batch {arguments.batch}, context {arguments.context}.")
    print(table(header, lines, left=2))
    print(f"Measured on {result['device']}.")
    return 0


def chosen_stage(asked: Stage | None, default: int) -> Stage:
    """What was asked for, else SoftGPU's ``default``, or the stage that comes nearest to it on another device."""
    if asked is not None:
        return asked
    there = stages_of(best_device())
    return default if default in there else there[0 if default > there[1] else -1]


def load_model(name: str, stage: Stage, rows: int, context: int) -> DecoderModel:
    """The checkpoint with room for ``rows`` requests of ``context`` tokens."""
    checkpoint = load_checkpoint(name)
    longest = checkpoint.config.max_context
    require(context <= longest, "--context", context, f"at most {longest}, the longest that {name} takes")
    blocks = blocks_needed(rows, context)
    return checkpoint.model(stage, max_rows=max(rows, 64), blocks=blocks, block_size=BLOCK_SIZE)


def as_json(
    arguments: argparse.Namespace, model: DecoderModel, step: MeasuredStep, bucket: int | None, audit: CacheAudit | None
) -> dict[str, object]:
    """The measurement under stable keys (documented in docs/cli.md)."""
    return {
        "source": "measured",
        "device": model.device.banner(),
        "model": arguments.model,
        "stage": model.stage,
        "batch": arguments.batch,
        "context": arguments.context,
        "path": "eager" if bucket is None else "graph",
        "bucket": bucket,
        "padding": None if bucket is None else arguments.padding,
        "launches": step.launches,
        "kernels": step.kernels,
        "step_us": step.step_us,
        "median_step_us": step.median_step_us,
        "host_us": step.host_us,
        "device_busy_us": step.device_busy_us,
        "device_busy_share": step.device_busy_share,
        "violations": None if audit is None else [str(violation) for violation in audit.violations],
    }


def as_text(result: dict) -> str:
    """The measurement for people."""
    if result["path"] == "graph":
        how = f"one replay, padded to {result['bucket']} rows ({result['padding']})"
    else:
        how = "launched one by one"
    a_layer = f"{result['stage']} a layer" if isinstance(result["stage"], int) else f"stage {result['stage']}"
    bound = "host" if result["host_us"] > result["device_busy_us"] else "device"
    rows = [
        ("Step", f"{result['model']}, batch {result['batch']}, context {result['context']}, {how}"),
        ("Kernels", f"{result['kernels']} ({a_layer}), {result['launches']} submissions by the host"),
        ("Step time", f"{result['step_us']:,.0f} µs (median of the repeats {result['median_step_us']:,.0f})"),
        ("Host, launches", f"{result['host_us']:,.0f} µs"),
        ("Device, kernels", f"{result['device_busy_us']:,.0f} µs, busy {result['device_busy_share']:.0%} of the step"),
        ("Bottleneck", bound),
        ("Measured on", result["device"]),
    ]
    lines = [f"{name:<18} {value}" for name, value in rows]
    if result["violations"] is not None:
        verdict = result["violations"] or ["every row writes to its own slot, the scratch block, or nowhere"]
        lines += ["", "Audit:", *(f"  {line}" for line in verdict)]
    return "\n".join(lines)
