"""Quantised weights on SoftGPU: the fused kernel beside the float32 one, and beside unpacking into a buffer first.

Every matrix is there in so many copies that none is still in the processor's cache when its turn comes again, as in a
model's decode step; the buffer into which one is unpacked is always the same, as a program would have it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from s13lib.device import SoftGPU, best_device
from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.kernels import in_format
from s13lib.kernels.quantised import FORMATS, quantise
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.steps import blocks_needed, running_batch
from tools.benchmarks.device import read
from tools.benchmarks.harness import Reading, Row, interleaved, missing
from tools.evidence.claims import QUANTISED_BATCHES, QUANTISED_MODELS, QUANTISED_SHAPES

CACHE_BYTES = 64 << 20  # at least so many bytes of the smallest format: twice the largest caches
CONTEXT = 64


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    device = best_device()
    result = [
        row
        for out, width in QUANTISED_SHAPES
        for row in matrix_rows(device, out, width, 3 if quick else 40)
    ]  # fmt: skip
    for batch in QUANTISED_BATCHES:
        result += batch_rows(device, batch, 20 if quick else 200)
    for name in QUANTISED_MODELS:
        try:
            result += model_rows(load_checkpoint(name), 5 if quick else 40)
        except InputError as reason:
            keys = [f"quantised.{name}.{form}.{what}" for form in FORMATS for what in ("rate", "moved")]
            result += missing(keys, reason)
    return result


def matrix_rows(device: SoftGPU, out: int, width: int, repeats: int) -> list[Row]:
    """One product with one row of activations: microseconds a matrix, and the bandwidth that is reached."""
    weight = np.random.default_rng(0).standard_normal((out, width), dtype=np.float32)
    packed = {"f32": weight} | {form: quantise(weight, form) for form in FORMATS}
    copies = -(-CACHE_BYTES // min(each.nbytes for each in packed.values()))
    x, y = device.tensor(torch.randn(1, width)), device.empty((1, out))
    buffer, every_row = device.empty((out, width)), device.tensor(torch.arange(out))

    calls, stored = {}, {}
    for form, each in packed.items():
        stored[form] = [device.tensor(torch.from_numpy(each)) for _ in range(copies)]
        linear = in_format("linear", form)
        calls[form] = run_all(device, [device.bind(linear, x, w, y) for w in stored[form]])
        if form != "f32":
            flat = [w.numpy().reshape(-1)[: w.numel() // 4 * 4].view(np.float32) for w in stored[form]]
            calls[f"{form} read"] = lambda flat=flat: [read(part) for part in flat]
            # The embedding kernel with every row in order is the kernel that unpacks a matrix.
            then = device.bind("linear", x, buffer, y)
            unpack = [device.bind(in_format("embedding", form), every_row, w, buffer) for w in stored[form]]
            calls[f"{form} buffer"] = run_all(device, [launch for each in unpack for launch in (each, then)])
    us = {name: each.times(1e6 / copies) for name, each in interleaved(calls, repeats).items()}

    result = []
    for form in FORMATS:
        key, gigabytes = f"quantised.{form}.{out}x{width}", packed[form].nbytes / 1e3
        result += [
            Row(f"{key}.f32", us[form], us["f32"]),
            Row(f"{key}.buffer", us[form], us[f"{form} buffer"]),
            Row(f"{key}.reached", us[form].rate(gigabytes), us[f"{form} read"].rate(gigabytes)),
        ]
    return result


def run_all(device: SoftGPU, launches: list) -> Callable[[], None]:
    """A function that submits all of ``launches`` and waits."""

    def run() -> None:
        for each in launches:
            each.launch()
        device.synchronize()

    return run


def batch_rows(device: SoftGPU, batch: int, repeats: int) -> list[Row]:
    """More rows against one matrix, which is in cache after the first: now arithmetic counts, not bytes."""
    weight = torch.randn(1536, 576)
    x, y = device.tensor(torch.randn(batch, 576)), device.empty((batch, 1536))
    stored = {"f32": weight} | {form: torch.from_numpy(quantise(weight.numpy(), form)) for form in FORMATS}
    bound = {form: device.bind(in_format("linear", form), x, device.tensor(w), y) for form, w in stored.items()}
    us = interleaved({form: run_all(device, [launch]) for form, launch in bound.items()}, repeats)
    return [Row(f"quantised.{form}.b{batch}", us[form].times(1e6), us["f32"].times(1e6)) for form in FORMATS]


def model_rows(checkpoint: Checkpoint, repeats: int) -> list[Row]:
    """Decode steps of batch 1, stage 4 as one graph."""
    replays, moved = {}, {}
    for form in ("f32", *FORMATS):
        model = checkpoint.model(4, weight_format=form, max_rows=64, blocks=blocks_needed(1, CONTEXT))
        runner = GraphRunner(model, 1)
        runner.run(running_batch(model, 1, CONTEXT))
        replays[form], moved[form] = runner.graph.replay, model.weights.step_bytes / 1e6
    steps = measure_steps(best_device(), replays, repeats, recorded=1)
    rate = {form: Reading(1e6 / step.step_us, step.noise) for form, step in steps.items()}
    result = []
    for form in FORMATS:
        key = f"quantised.{checkpoint.name}.{form}"
        result += [
            Row(f"{key}.rate", rate[form], rate["f32"]),
            Row(f"{key}.moved", Reading(moved[form]), Reading(moved["f32"])),
        ]
    return result
