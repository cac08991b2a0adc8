"""SoftGPU: what a launch costs, how fast it wakes, how quiet it idles, and how close its GEMV comes to the memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from numba import njit

import s13lib.kernels.softgpu  # noqa: F401 — registers the kernels
from s13lib.device import SoftGPU, best_device
from s13lib.device.launch import BoundLaunch
from tools.benchmarks.harness import Reading, Row, interleaved
from tools.evidence.claims import GEMV_SHAPES, REPLAY_NODES

CACHE_BYTES = 64e6  # so many bytes of copies of a weight, and none is in cache when its turn comes again


@njit(fastmath=True)
def read(x):
    """Sum an array: as fast as one core reads memory."""
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    return [*launch_rows(quick), *idle_rows(quick), *gemv_rows(quick), *gemm_rows(quick)]


def launch_rows(quick: bool) -> list[Row]:
    """Host time of launches, checked and bound, and of replays: never more at once than the queue holds."""
    device = best_device(default="softgpu")
    x, y, norm = device.zeros((1, 64)), device.empty((1, 64)), device.zeros(64)
    bound, rms_norm = device.bind("rms_norm", x, norm, 1e-5, y), device.kernels.rms_norm
    graphs = {}
    for nodes in REPLAY_NODES:
        with device.graph() as graph:
            for _ in range(nodes):
                rms_norm(x, norm, 1e-5, y)
        graphs[nodes] = graph

    def submitted(launch: Callable[[], object], launches: int) -> float:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(launches):
            launch()
        seconds = time.perf_counter() - start
        device.synchronize()
        return seconds / launches * 1e6

    ways = {"checked": (lambda: rms_norm(x, norm, 1e-5, y), 500), "bound": (bound.launch, 500)}
    ways |= {nodes: (graph.replay, 1) for nodes, graph in graphs.items()}
    times: dict[object, list[float]] = {name: [] for name in ways}
    for _ in range(5 if quick else 60):
        for name, (launch, launches) in ways.items():
            times[name].append(submitted(launch, launches))
    us = {name: Reading.quietest(each) for name, each in times.items()}
    return [
        Row("device.launch_checked", us["checked"]),
        Row("device.launch_bound", us["bound"], us["checked"]),
        *(Row(f"device.replay.n{nodes}", us[nodes], us["bound"].times(nodes)) for nodes in REPLAY_NODES),
    ]


def idle_rows(quick: bool) -> list[Row]:
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
    return [
        Row("device.wake", Reading(median(wakes))),
        Row("device.idle", Reading((time.process_time() - before) / seconds * 100)),
    ]


def gemv_rows(quick: bool) -> list[Row]:
    device = best_device(default="softgpu")
    result = []
    for out_width, in_width in GEMV_SHAPES:
        copies = max(1, round(CACHE_BYTES / (out_width * in_width * 4)))
        weights = [device.tensor(torch.randn(out_width, in_width)) for _ in range(copies)]
        x, y = device.tensor(torch.randn(1, in_width)), device.empty((1, out_width))
        flat = [w.numpy().reshape(-1) for w in weights]
        ours = run_all(device, [device.bind("linear", x, w, y) for w in weights])

        def read_all(flat=flat) -> None:
            for array in flat:
                read(array)

        def mv(weights=weights, x=x) -> None:
            for w in weights:
                torch.mv(w, x[0])

        calls = {"ours": ours, "read": read_all, "mv": mv}
        first = not result
        if first:  # one allocation of this size is backed by large memory pages, small ones are not
            together = device.tensor(torch.cat(weights)).split(out_width)
            calls["together"] = run_all(device, [device.bind("linear", x, w, y) for w in together])
        seconds = interleaved(calls, 5 if quick else 25)
        rates = {name: each.rate(copies * out_width * in_width * 4 / 1e9) for name, each in seconds.items()}
        result += [
            Row(f"device.gemv.{out_width}x{in_width}.{peer}", rates["ours"], rates[peer]) for peer in ("read", "mv")
        ]
        if first:
            result.append(Row("device.gemv.pages", rates["together"], rates["ours"]))
    return result


def run_all(device: SoftGPU, launches: list[BoundLaunch]) -> Callable[[], None]:
    """A function that submits all of ``launches`` and waits."""

    def run() -> None:
        for each in launches:
            each.launch()
        device.synchronize()

    return run


def gemm_rows(quick: bool) -> list[Row]:
    """Several rows at once: a row's sum never depends on its neighbours, so there is no tile to share loads in."""
    device = best_device(default="softgpu")
    result = []
    weight = device.tensor(torch.randn(1536, 576))
    for batch in (4, 16, 64):
        x, y = device.tensor(torch.randn(batch, 576)), device.empty((batch, 1536))
        ours = run_all(device, [device.bind("linear", x, weight, y)])
        us = interleaved({"ours": ours, "mm": lambda x=x: torch.mm(x, weight.T)}, 20 if quick else 100)
        result.append(Row(f"device.gemm.b{batch}", us["ours"].times(1e6), us["mm"].times(1e6)))
    return result
