"""Decode steps of bard and SmolLM2: stages, graphs, and PyTorch eager with the same weights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from s13lib.device import best_device
from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.compiled import textbook_step
from s13lib.profiling.measure import MeasuredStep, measure_steps
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import BARD_PATHS, BATCHES

CONTEXT = 64


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    bard = load_checkpoint("bard")
    result = bard_rows(bard, 5 if quick else 60) + batch_rows(bard, 5 if quick else 30)
    try:
        smollm2 = load_checkpoint("smollm2")
    except InputError as error:
        return result + missing(("decode.smollm2.eager", "decode.smollm2.graph"), error)
    return result + smollm2_rows(smollm2, 3 if quick else 20)


def steps_of(checkpoint: Checkpoint, batch: int, stages: tuple[int, ...]) -> dict[str, Callable[[], None]]:
    """Launch functions by name, eager and as a graph, each over a model of its own."""
    launches = {}
    for stage in stages:
        model = checkpoint.model(stage, max_rows=64, blocks=blocks_needed(batch, CONTEXT))
        inputs = running_batch(model, batch, CONTEXT)
        launches[f"stage {stage} eager"] = eager_step(model, inputs)
        runner = GraphRunner(model, batch)
        runner.run(inputs)
        launches[f"stage {stage} graph"] = runner.graph.replay
    return launches


def reading(step: MeasuredStep) -> Reading:
    """Microseconds of a step."""
    return Reading(step.step_us, step.noise)


def bard_rows(bard: Checkpoint, repeats: int) -> list[Row]:
    """SoftGPU and PyTorch eager interleaved; PyTorch runs on the host alone, so it has no device share."""
    m = measure_steps(
        best_device(default="softgpu"),
        steps_of(bard, 1, (15, 4)) | {"torch": textbook_step(bard, 1, CONTEXT)},
        repeats,
        seconds=repeats / 10,
    )
    result = [Row("decode.bard.both", reading(m["stage 4 graph"]), reading(m["stage 15 eager"]))]
    for path in BARD_PATHS:
        key, step = f"decode.bard.{path.replace(' ', '_')}", m[path]
        result += [
            Row(key, reading(step), reading(m["torch"])),
            Row(f"{key}.host", Reading(step.host_us)),
            Row(f"{key}.idle", Reading(100 * (1 - step.device_busy_share))),
        ]
    return result


def batch_rows(bard: Checkpoint, repeats: int) -> list[Row]:
    """What a graph and what fusion bring by batch size, and a batch that padding nearly doubles."""
    result = []
    for batch in BATCHES:
        m = measure_steps(best_device(default="softgpu"), steps_of(bard, batch, (15, 4)), repeats, recorded=1)
        slow, graph, fused = (reading(m[name]) for name in ("stage 15 eager", "stage 15 graph", "stage 4 graph"))
        result += [Row(f"decode.graph.b{batch}", graph, slow), Row(f"decode.fusion.b{batch}", fused, graph)]
    eager, padded = steps_of(bard, 33, (15,))["stage 15 eager"], steps_of(bard, 64, (15,))["stage 15 graph"]
    m = measure_steps(best_device(default="softgpu"), {"eager": eager, "padded": padded}, repeats, recorded=1)
    return [*result, Row("decode.padded", reading(m["padded"]), reading(m["eager"]))]


def smollm2_rows(smollm2: Checkpoint, repeats: int) -> list[Row]:
    m = measure_steps(
        best_device(default="softgpu"),
        steps_of(smollm2, 1, (4,)) | {"torch": textbook_step(smollm2, 1, CONTEXT)},
        repeats,
        recorded=1,
    )
    eager, graph, peer = (reading(m[name]) for name in ("stage 4 eager", "stage 4 graph", "torch"))
    return [
        Row("decode.smollm2.eager", eager.rate(1e6), peer.rate(1e6)),
        Row("decode.smollm2.graph", graph, eager),
    ]
