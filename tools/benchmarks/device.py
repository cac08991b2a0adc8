"""SoftGPU: what a launch costs, how fast it wakes, how quiet it idles, and how close its GEMV comes to the memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np
import torch
from benchmarks.harness import Row, at_least, best
from numba import njit

import s13lib.kernels.softgpu  # noqa: F401 — registers the kernels
from s13lib.device import best_device

SMOLLM2_SHAPES = ((576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576))


@njit(fastmath=True)
def _sum(x):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total


def rows(quick: bool = False) -> list[Row]:
    return [*_launch_rows(quick), *_idle_rows(quick), *_compile_rows(), *_gemv_rows(quick)]


def _launch_rows(quick: bool) -> list[Row]:
    device = best_device(default="softgpu")
    x, y = device.zeros((1, 64)), device.empty((1, 64))
    norm = device.zeros(64)
    bound = device.bind("rms_norm", x, norm, 1e-5, y)
    launches = 500  # fewer than the queue holds, so that it never pushes back

    def many(launch) -> float:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(launches):
            launch()
        seconds = time.perf_counter() - start
        device.synchronize()
        return seconds / launches * 1e6

    checked, unchecked = [], []
    rms_norm = device.kernels.rms_norm
    for _ in range(5 if quick else 30):
        checked.append(many(lambda: rms_norm(x, norm, 1e-5, y)))
        unchecked.append(many(bound.launch))
    return [
        Row("host time of a launch that checks its arguments (4 of them)", min(checked), "µs"),
        at_least(
            "host time of a launch bound once", min(unchecked), min(checked), "µs", min(checked) / min(unchecked), None
        ),
    ]


def _idle_rows(quick: bool) -> list[Row]:
    device = best_device(default="softgpu")
    x, y = device.zeros(8), device.empty(8)
    wakes = []
    for _ in range(10 if quick else 60):
        time.sleep(0.02)  # long enough that the worker is parked
        start = time.perf_counter()
        device.kernels.copy(x, y)
        device.synchronize()
        wakes.append((time.perf_counter() - start) * 1e6)
    seconds = 0.5 if quick else 2.0
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(seconds)
    idle = (time.process_time() - before) / seconds
    return [
        Row("wake-up from idle: launch to result, median", median(wakes), "µs", note=f"minimum {min(wakes):.0f} µs"),
        Row("processor share of an idle device", idle * 100, "%"),
    ]


def _compile_rows() -> list[Row]:
    program = (
        "import time; t = time.perf_counter();"
        "import s13lib.kernels.softgpu; from s13lib.device import prepare; from s13lib.device.kernel import REGISTRY;"
        "t = time.perf_counter(); prepare(REGISTRY.values()); print(time.perf_counter() - t, len(REGISTRY))"
    )
    times = []
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, NUMBA_CACHE_DIR=folder, S13_CACHE_DIR=folder, XDG_CACHE_HOME=folder)
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
            )
            times.append(float(done.stdout.split()[0]))
    count = int(done.stdout.split()[1])
    return [
        Row(f"all {count} kernels compiled, no cache", times[0], "s"),
        at_least(f"all {count} kernels from the cache", times[1], times[0], "s", times[0] / times[1], None),
    ]


def _gemv_rows(quick: bool) -> list[Row]:
    device = best_device(default="softgpu")
    result = []
    for out_width, in_width in SMOLLM2_SHAPES:
        # Enough copies of the weight that none is still in cache when its turn comes again.
        copies = max(1, round(64e6 / (out_width * in_width * 4)))
        weights = [device.tensor(torch.randn(out_width, in_width)) for _ in range(copies)]
        x, y = device.tensor(torch.randn(1, in_width)), device.empty((1, out_width))
        flat = [w.numpy().reshape(-1) for w in weights]
        bound = [device.bind("linear", x, w, y) for w in weights]

        def ours(bound=bound) -> None:
            for launch in bound:
                launch.launch()
            device.synchronize()

        def read(flat=flat) -> None:
            for array in flat:
                _sum(array)

        def mv(weights=weights, x=x) -> None:
            for w in weights:
                torch.mv(w, x[0])

        seconds = best({"ours": ours, "read": read, "mv": mv}, 5 if quick else 15)
        gigabytes = copies * out_width * in_width * 4 / 1e9
        rates = {name: gigabytes / s for name, s in seconds.items()}
        shape = f"{out_width} × {in_width}"
        result += [
            at_least(
                f"GEMV {shape}, share of one core's read bandwidth",
                rates["ours"], rates["read"], "GB/s", rates["ours"] / rates["read"], 0.8,
            ),
            at_least(
                f"GEMV {shape}, against torch.mv",
                rates["ours"], rates["mv"], "GB/s", rates["ours"] / rates["mv"], 1.3,
            ),
        ]  # fmt: skip
    return result
