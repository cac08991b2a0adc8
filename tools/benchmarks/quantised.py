"""Quantised weights on SoftGPU: the fused kernel beside the float32 one, and beside unpacking into a buffer first.

Every matrix is there in so many copies that none is still in the processor's cache when its turn comes again, as in a
model's decode step; the buffer into which one is unpacked is always the same, as a program would have it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from s13lib.device import SoftGPU, best_device
from s13lib.device.launch import BoundLaunch
from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.kernels import in_format
from s13lib.kernels.quantised import FORMATS, quantise
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.steps import blocks_needed, running_batch
from tools.benchmarks.device import read
from tools.benchmarks.harness import Reading, Row, interleaved, missing
from tools.evidence.claims import COLD_BUFFER, QUANTISED_BATCHES, QUANTISED_MODELS, QUANTISED_SHAPES

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
    with device.side_by_side():
        buffer = device.empty((out, width))

    calls: dict[str, Callable[[], list[float]]] = {}
    weights_of: dict[str, list[torch.Tensor]] = {}
    for form, each in packed.items():
        with device.side_by_side():  # as a model's weights are
            stored = [device.tensor(torch.from_numpy(each)) for _ in range(copies)]
        calls[form] = kernel_times(device, [[device.bind(in_format("linear", form), x, w, y)] for w in stored])
        if form != "f32":
            calls[f"{form} read"] = read_times([w.numpy().reshape(-1) for w in stored])
            calls[f"{form} buffer"] = kernel_times(
                device, [unpack_then_dot(device, form, x, w, buffer, y) for w in stored]
            )
        weights_of[form] = stored
    if (out, width) == COLD_BUFFER:
        many = -(-CACHE_BYTES // (out * width * 4))
        with device.side_by_side():
            buffers = [device.empty((out, width)) for _ in range(many)]
        pairs = [(w, buffers[i % many]) for i, w in enumerate(weights_of["q8_0"])]
        calls["cold"] = kernel_times(device, [unpack_then_dot(device, "q8_0", x, w, b, y) for w, b in pairs])
    us = quietest_copies(calls, repeats)

    result = []
    if "cold" in us:
        result.append(Row("quantised.cold_buffer", us["q8_0"], us["cold"]))
    for form in FORMATS:
        key, kilobytes = f"quantised.{form}.{out}x{width}", packed[form].nbytes / 1e3
        result += [
            Row(f"{key}.f32", us[form], us["f32"]),
            Row(f"{key}.buffer", us[form], us[f"{form} buffer"]),
            Row(f"{key}.reached", us[form].rate(kilobytes), us[f"{form} read"].rate(kilobytes)),
        ]
    return result


def unpack_then_dot(
    device: SoftGPU, form: str, x: torch.Tensor, weight: torch.Tensor, buffer: torch.Tensor, out: torch.Tensor
) -> list[BoundLaunch]:
    """The two launches of the other way. The embedding kernel, asked for every row, is the one that unpacks."""
    every_row = device.tensor(torch.arange(len(buffer)))
    unpack = device.bind(in_format("embedding", form), every_row, weight, buffer)
    return [unpack, device.bind("linear", x, buffer, out)]


def kernel_times(device: SoftGPU, groups: list[list[BoundLaunch]]) -> Callable[[], list[float]]:
    """A function that runs all groups of launches and gives the time that each group's kernels took, in µs."""

    def run() -> list[float]:
        with device.record() as recording:
            for group in groups:
                for launch in group:
                    launch.launch()
        spans = iter(recording.timeline.device)
        return [sum(next(spans).duration_us for _ in group) for group in groups]

    return run


def read_times(arrays: list[np.ndarray]) -> Callable[[], list[float]]:
    """The same for reading arrays of bytes, at the speed of one core."""
    arrays = [each[: each.size // 4 * 4].view(np.float32) for each in arrays]

    def run() -> list[float]:
        times = []
        for each in arrays:
            begun = time.perf_counter_ns()
            read(each)
            times.append((time.perf_counter_ns() - begun) / 1e3)
        return times

    return run


def quietest_copies(calls: dict[str, Callable[[], list[float]]], repeats: int) -> dict[str, Reading]:
    """Interleaved rounds: the mean over the copies of each one's quietest time; the spread is that of whole rounds.

    A round lasts longer than the processor stays undisturbed on a contended machine; one matrix does not.
    """
    rounds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for lap in range(repeats + 1):
        for name, call in calls.items():
            times = call()
            if lap:
                rounds[name].append(times)
    readings = {}
    for name, laps in rounds.items():
        quietest = sum(map(min, zip(*laps, strict=True)))
        readings[name] = Reading(quietest / len(laps[0]), median(map(sum, laps)) / quietest - 1)
    return readings


def run_all(device: SoftGPU, launches: list[BoundLaunch]) -> Callable[[], None]:
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
