"""How fast a decode step is: three shapes, three stages, eager and graph, five batch sizes; and torch.compile."""

from __future__ import annotations

import datetime
import gc
import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from gpu_parts.bench import CONTEXT, SHAPES, TORCH, Bench, step_bytes
from s13lib.graphs import GraphRunner
from s13lib.model import DecodeBatch, DecoderModel
from s13lib.model.stages import Stage
from s13lib.model.torch_stage import torch_step
from s13lib.profiling.steps import eager_step
from s13lib.simulator.chrome_trace import chrome_trace

BATCHES = (1, 4, 16, 64, 128)
COMPILED_BATCHES = (1, 16)
TRACE_BYTES = 300_000


def context_of(bench: Bench) -> int:
    return 20 if bench.dry else CONTEXT


def shape(name: str) -> Callable[[Bench], None]:
    """The part that measures one shape: interleaved medians of CUDA-event times."""

    def measure(bench: Bench) -> None:
        if name != SHAPES[0]:
            bench.needs_gpu()  # the dry mode's toy is the same for all
        batches = (1,) if bench.dry else BATCHES
        models = bench.models(bench.config(name), max(batches))
        for rows in batches:
            try:
                one_batch_size(bench, name, models, rows)
            except torch.OutOfMemoryError:
                bench.line(f"batch {rows}", "left out: it does not fit into this GPU's memory")
                gc.collect()
                torch.cuda.empty_cache()

    measure.__doc__ = f"{name}: a step's time by stage, path and batch."
    return measure


def one_batch_size(bench: Bench, name: str, models: dict[Stage, DecoderModel], rows: int) -> None:
    context = context_of(bench)
    steps: dict[tuple[Stage, str], Callable[[], None]] = {}
    for stage, model in models.items():
        batch = bench.batch(model, rows, context)
        steps[stage, "eager"] = eager_step(model, batch)
        if bench.dry and stage == TORCH:
            continue
        runner = GraphRunner(model, rows)
        runner.fill(batch)
        steps[stage, "graph"] = runner.graph.replay
    needed = step_bytes(models[TORCH], rows, context)
    for (stage, path), us in bench.medians_us(steps).items():
        facts = {"shape": name, "stage": stage, "path": path, "batch": rows, "us": us, "bytes": needed}
        bench.line(f"batch {rows}, stage {stage}, {path}", round(us, 1), "µs", **facts)


def compiled(bench: Bench) -> None:
    """Stage torch through ``torch.compile(mode="reduce-overhead")``; batch 1 of all shapes first, for the goals."""
    for rows in COMPILED_BATCHES:
        for name in SHAPES[:1] if bench.dry else SHAPES:
            model = bench.models(bench.config(name), rows, (TORCH,))[TORCH]
            batch = bench.batch(model, rows, context_of(bench))
            label = f"{name}, batch {rows}, torch.compile"
            step, why = compile_step(model, batch, bench.dry)
            us = bench.medians_us({"compiled": step}, seconds=2.0)["compiled"]
            if bench.dry:
                bench.line(label, "traced as one graph, not compiled: that needs a GPU")
                return
            facts = {"shape": name, "stage": "compile", "path": "reduce-overhead", "batch": rows, "us": us}
            bench.line(label, round(us, 1), "µs", **facts, skipped=why)
            if why:
                bench.line(f"{label}: it did not use a graph", why)
            torch.compiler.reset()
            del model, step
            gc.collect()
            torch.cuda.empty_cache()


def compile_step(model: DecoderModel, batch: DecodeBatch, dry: bool) -> tuple[Callable[[], None], str]:
    """(the compiled step, warmed up; why it uses no graph, empty if it does)."""
    from torch._dynamo import mark_static_address
    from torch._dynamo.utils import counters

    inputs, buffers = model.eager_buffers(batch.rows)
    inputs.copy_from(batch)
    logits = buffers.logits
    # Addresses that never change: without this, a graph that writes into the cache is refused, and weights are copied.
    layers = [getattr(layer, name) for layer in model.weights.layers for name in layer.__dataclass_fields__]
    weights = [model.weights.embedding, model.weights.lm_head, model.weights.final_norm]
    for tensor in (*layers, *weights, *model.cache.k, *model.cache.v, *inputs.tensors(), logits):
        mark_static_address(tensor)
    counters.clear()
    options = {"backend": "eager"} if dry else {"mode": "reduce-overhead"}
    step = torch.compile(partial(torch_step, model, inputs, logits, False), fullgraph=True, dynamic=False, **options)
    for _ in range(1 if dry else 4):
        step()
    skips = counters["inductor"].get("cudagraph_skips", 0)
    return step, f"{skips} graphs skipped by torch" if skips else ""


def traces(bench: Bench) -> None:
    """One step of SmolLM2-360M as a trace that ``s13 trace`` reads: stage torch eager, stage 5 eager and as a graph."""
    bench.needs_gpu()
    models = bench.models(bench.config(SHAPES[0]), 1, (TORCH, 5))
    steps = {}
    for stage, model in models.items():
        batch = bench.batch(model, 1, context_of(bench))
        steps[f"stage-{stage}-eager"] = eager_step(model, batch)
        if stage == 5:
            runner = GraphRunner(model, 1)
            runner.fill(batch)
            steps["stage-5-graph"] = runner.graph.replay
    layers = models[5].config.layers
    for name, step in steps.items():
        step()
        with bench.device.record() as recording:
            step()
        timeline = recording.timeline
        kernels = sum(timeline.kernel_counts().values())
        bench.line(
            f"{name}: kernels of a step, counted", kernels, f"({kernels / layers:.1f} a layer of {layers}, all told)"
        )
        where = f"{name}, SmolLM2-360M, random weights, batch 1, context {CONTEXT}, {bench.device.description}"
        text = chrome_trace(
            replace(timeline, source="recorded", provenance=f"{where}, {datetime.date.today().isoformat()}")
        )
        data = gzip.compress(text.encode(), mtime=0)
        path = bench.folder / f"cuda-{name}.json.gz"
        path.write_bytes(data)
        bench.line(f"{name}: {path.name}", len(data), "bytes", len(data) < TRACE_BYTES)
        bench.line(f"{name}: busy while recorded", round(100 * timeline.utilization, 1), "% of the step")


PARTS: dict[str, Callable[[Bench], None]] = {"traces": traces, "compile": compiled}
