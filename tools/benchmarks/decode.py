"""Decode steps of bard and SmolLM2: stages, graphs, and PyTorch eager with the same weights."""

from __future__ import annotations

import time

import torch
from benchmarks.harness import Row, at_least

from s13lib.device import best_device
from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.measure import MeasuredStep, measure_steps
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch

CONTEXT = 64
BATCHES = (1, 2, 4, 8, 16)


def rows(quick: bool = False) -> list[Row]:
    result = bard_rows(5 if quick else 60) + crossover_rows(5 if quick else 30) + replay_rows(20 if quick else 300)
    try:
        smollm2 = load_checkpoint("smollm2")
    except InputError as error:
        return [*result, Row(f"SmolLM2-135M left out: {error}", 0, "")]
    return result + smollm2_rows(smollm2, 3 if quick else 12)


def steps_of(checkpoint: Checkpoint, batch: int, stages: tuple[int, ...]) -> dict[str, callable]:
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


def torch_step(checkpoint: Checkpoint, batch: int):
    """One decode step of the textbook decoder on the CPU, its cache cut back each time."""
    decoder = checkpoint.textbook()
    cache = decoder.new_cache()
    decoder(torch.zeros((batch, CONTEXT - 1), dtype=torch.int64), cache)
    kept = list(cache)
    token = torch.ones((batch, 1), dtype=torch.int64)

    def step() -> None:
        cache[:] = kept
        decoder(token, cache)

    return step


def measured(checkpoint: Checkpoint, batch: int, stages: tuple[int, ...], repeats: int) -> dict[str, MeasuredStep]:
    """SoftGPU and PyTorch eager interleaved; PyTorch runs on the host alone, so its device share means nothing."""
    launches = steps_of(checkpoint, batch, stages)
    device, both = best_device(default="softgpu"), launches | {"torch eager": torch_step(checkpoint, batch)}
    return measure_steps(device, both, repeats)


def bard_rows(repeats: int) -> list[Row]:
    m = measured(load_checkpoint("bard"), 1, (15, 4), repeats)
    torch_us, slow = m["torch eager"].step_us, m["stage 15 eager"].step_us
    result = [Row("bard, batch 1, PyTorch eager: step", torch_us, "µs")]
    for name in ("stage 15 eager", "stage 15 graph", "stage 4 eager", "stage 4 graph"):
        step = m[name]
        against_torch = {"stage 4 eager": 8.0, "stage 4 graph": 15.0}.get(name)
        result.append(
            at_least(f"bard, batch 1, {name}: step, against PyTorch eager", step.step_us, torch_us, "µs",
                     torch_us / step.step_us, against_torch)
        )  # fmt: skip
        result.append(Row(f"bard, batch 1, {name}: host", step.host_us, "µs"))
        result.append(Row(f"bard, batch 1, {name}: device busy", step.device_busy_share * 100, "%"))
    best = m["stage 4 graph"].step_us
    result.append(at_least("bard, batch 1: stage 4 graph against stage 15 eager", best, slow, "µs", slow / best, 3.5))
    return result


def crossover_rows(repeats: int) -> list[Row]:
    bard, result = load_checkpoint("bard"), []
    for batch in BATCHES:
        m = measure_steps(best_device(default="softgpu"), steps_of(bard, batch, (15,)), repeats)
        eager, graph = m["stage 15 eager"], m["stage 15 graph"]
        bound = "host" if eager.host_us > eager.device_busy_us else "device"
        claim = (
            f"bard, batch {batch}, stage 15: graph against eager ({bound}-bound, busy {eager.device_busy_share:.0%})"
        )
        result.append(at_least(claim, graph.step_us, eager.step_us, "µs", eager.step_us / graph.step_us, None))
    return result


def replay_rows(repeats: int) -> list[Row]:
    """Host time of a replay by the number of nodes."""
    device = best_device(default="softgpu")
    x, y = device.zeros(8), device.empty(8)
    result = []
    for nodes in (32, 128, 352, 480):
        with device.graph() as graph:
            for _ in range(nodes):
                device.kernels.copy(x, y)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            graph.replay()
            times.append(time.perf_counter() - start)
            device.synchronize()
        result.append(Row(f"host time of a replay, {nodes} nodes", min(times) * 1e6, "µs"))
    return result


def smollm2_rows(checkpoint: Checkpoint, repeats: int) -> list[Row]:
    m = measured(checkpoint, 1, (4,), repeats)
    eager, graph, torch_eager = (m[name].step_us for name in ("stage 4 eager", "stage 4 graph", "torch eager"))
    return [
        at_least("SmolLM2-135M, stage 4 eager against PyTorch eager, one thread", 1e6 / eager, 1e6 / torch_eager,
                 "tokens/s", torch_eager / eager, 1.2),
        at_least("SmolLM2-135M, stage 4: graph against eager (device-bound)", graph, eager, "µs", eager / graph, None),
    ]  # fmt: skip
