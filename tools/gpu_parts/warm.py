"""Triton compiles each kernel for each shape and form, a second or two each: all of them now, on all processors.

What is compiled lies in Triton's cache on disk, where the later parts find it; their time limits count on that.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_parts.bench import CONTEXT, SHAPES, Bench
from gpu_parts.correctness import KERNEL_DTYPES, KERNEL_ROWS, arguments
from gpu_parts.speed import BATCHES
from s13lib import kernels
from s13lib.device.processors import usable_processors

MOST_WORKERS = 12

_bench: Bench  # set before the workers are forked; each makes its own device of it


@dataclass(frozen=True)
class Task:
    """Kernels to compile: those of a step of one layer, or, without a stage, the kernel of that name alone."""

    name: str
    stage: int | None = None
    rows: int = 0

    def __str__(self) -> str:
        return self.name if self.stage is None else f"{self.name}, stage {self.stage}, batch {self.rows}"


def triton(bench: Bench) -> None:
    """Compile in as many processes as there are processors, at most a dozen; a failure is told and ends nothing."""
    global _bench
    bench.needs_gpu()
    from s13lib.kernels.cuda import KERNELS

    _bench = bench
    tasks = [Task(shape, stage, rows) for shape in SHAPES for rows in BATCHES for stage in (7, 5)]
    tasks += [Task(name) for name in KERNELS]
    workers = min(MOST_WORKERS, max(1, usable_processors() - 1))
    start, failed = time.monotonic(), 0
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for task, error in pool.imap_unordered(compile_task, tasks):
            if error:
                failed += 1
                bench.line(str(task), error, "", ok=False)
    seconds = round(time.monotonic() - start, 1)
    bench.line(f"{len(tasks)} sets of kernels, {workers} processes", f"{seconds} s, {failed} failed")


def compile_task(task: Task) -> tuple[Task, str]:
    """Compile one task's kernels; returns what went wrong, or nothing."""
    try:
        compile_kernel(_bench, task.name) if task.stage is None else compile_step(_bench, task)
    except Exception as error:
        return task, f"{type(error).__name__}: {error}".splitlines()[0]
    return task, ""


def compile_step(bench: Bench, task: Task) -> None:
    """Bind and launch a step: a model of one layer has the kernels of all."""
    model = bench.models(bench.config(task.name, layers=1), task.rows, (task.stage,))[task.stage]
    model.forward(bench.batch(model, task.rows, CONTEXT))
    del model
    torch.cuda.empty_cache()


def compile_kernel(bench: Bench, name: str) -> None:
    """Bind a kernel as the part ``kernels`` will."""
    from s13lib.kernels.cuda import KERNELS

    kernels.load("cuda")
    where = bench.device.where
    for dtype in KERNEL_DTYPES:
        for rows in KERNEL_ROWS:
            given = arguments(bench, name, rows, dtype)
            bench.device.bind(KERNELS[name], *(a.to(where) if isinstance(a, Tensor) else a for a in given))
