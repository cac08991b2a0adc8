"""Exercise 5: the launch recurrence, the queue that fills, and where max(host, device) is wrong."""

from __future__ import annotations

import math

import numpy as np

from s13lib.grading.part import Noted, Part, Refused, Text
from s13lib.simulator.launch import launch_times

LIBRARY = (
    "s13lib.simulator.launch:launch_times",
    "s13lib.simulator.launch:closed_form_us",
)
LEAST_ERROR = 0.4  # share of the real time by which the maximum must fall short in 5c
WANTED = f"{100 * LEAST_ERROR:.0f} %"
ENOUGH = Text(f"the maximum falls short by at least {WANTED}", f"最大值至少少 {WANTED}")
TOO_LITTLE = Text("too little, and ", "不够多，而且")
SHAPES = {
    "alike": Text("all kernels are alike, and all launches", "kernel 都一样长，启动也都一样长"),
    "launches": Text("all kernels are alike, the launches are not", "kernel 都一样长，启动不一样长"),
    "first": Text("the longer kernels come first", "长的 kernel 在前"),
    "last": Text("the longer kernels come last", "长的 kernel 在后"),
    "even": Text("as much work comes early as late", "前后的工作一样多"),
}
LEVEL = 0.01  # of the step: nearer to its middle, the work's centre counts as the middle


def step_us(launch_us: list[float], kernel_us: list[float]) -> float:
    """Reference: end of the last kernel, with a queue that never fills."""
    return _end(launch_us, kernel_us, max(1, len(launch_us)))


def step_us_with_queue(launch_us: list[float], kernel_us: list[float], queue_depth: int) -> float:
    """Reference: end of the last kernel, when at most ``queue_depth`` launches may wait."""
    return _end(launch_us, kernel_us, queue_depth)


def _end(launch_us, kernel_us, queue_depth) -> float:
    times = launch_times(launch_us, kernel_us, queue_depth)
    return times.device_end_us[-1] if times.device_end_us else 0.0


def fool_the_maximum(n: int, total_us: float) -> tuple[list[float], list[float]]:
    """Reference: equal launches, and all of the device's work in the last kernel."""
    return [total_us / n] * n, [0.0] * (n - 1) + [total_us]


def _lists(rng: np.random.Generator, n: int) -> tuple[list[float], list[float]]:
    return [[round(float(x), 1) for x in rng.uniform(0.5, 12, n)] for _ in "hd"]


def make_steps(rng: np.random.Generator) -> list[tuple]:
    """One launch, a launch-bound and a device-bound pair, mixed ones, and no launch at all."""
    small = [([2.0], [5.0]), ([6.0, 6.0, 6.0], [1.0, 1.0, 1.0]), ([1.0, 1.0, 1.0], [7.0, 7.0, 7.0])]
    mixed = [tuple(_lists(rng, n)) for n in (3, 5, 40)]
    return [*small, *mixed, ([6.0] * 20 + [1.0] * 20, [1.0] * 20 + [9.0] * 20), ([], [])]


def make_queues(rng: np.random.Generator) -> list[tuple]:
    """Queues of one, of a few, and longer than the step."""
    short = [([1.0] * 4, [5.0] * 4, depth) for depth in (1, 2, 3)]
    mixed = [(*_lists(rng, 30), int(depth)) for depth in rng.choice(range(1, 12), 4, replace=False)]
    return [*short, *(_late(rng, depth) for depth in (1, 2, 5)), *mixed, (*_lists(rng, 6), 1024)]


def _late(rng: np.random.Generator, depth: int) -> tuple:
    """Long kernels hold the host back; then come long launches, so that every moment of the wait counts to the end."""
    launches, kernels = _lists(rng, 16)
    return (
        [1.0 + x / 4 for x in launches[:8]] + [20.0 + x for x in launches[8:]],
        [15.0 + x for x in kernels[:8]] + [1.0] * 8,
        depth,
    )


def make_totals(rng: np.random.Generator) -> list[tuple]:
    """Some numbers of launches and totals."""
    return [(int(n), round(float(rng.uniform(100, 3000)), 1)) for n in rng.integers(8, 300, 4)]


def view_fooled(inputs: tuple, value: object) -> object:
    """Check the totals, and whether the maximum falls short by enough."""
    n, total_us = inputs
    if not (isinstance(value, list | tuple) and len(value) == 2):
        raise Refused(
            "Return two lists: the launches' times and the kernels' times.",
            "请返回两个列表：启动的时间和 kernel 的时间。",
        )
    launches, kernels = [[float(x) for x in lane] for lane in value]
    if (len(launches), len(kernels)) != (n, n):
        raise Refused(
            f"Both lists must hold n = {n} times; yours hold {len(launches)} and {len(kernels)}.",
            f"两个列表都要有 n = {n} 个时间；现在是 {len(launches)} 个和 {len(kernels)} 个。",
        )
    if not all(math.isfinite(x) and x >= 0 for x in (*launches, *kernels)):
        raise Refused("Every time must be a finite number of at least 0.", "每个时间都要是不小于 0 的有限数。")
    totals = sum(launches), sum(kernels)
    if not all(math.isclose(total, total_us, rel_tol=1e-6) for total in totals):
        raise Refused(
            f"Each lane must sum to {total_us} µs; yours sum to {totals[0]:.6g} and {totals[1]:.6g}.",
            f"每条泳道的总和都要是 {total_us} µs；现在是 {totals[0]:.6g} 和 {totals[1]:.6g}。",
        )
    falls_short = 1 - total_us / _end(launches, kernels, n)
    if falls_short >= LEAST_ERROR - 1e-9:
        return ENOUGH
    share = f"{100 * falls_short:.0f} %"
    note = Text(
        f"falls short by {share}, at least {WANTED} wanted",
        f"少了 {share}，至少要 {WANTED}",
    )
    return Noted(_shape(launches, kernels), note)


def _shape(launches: list[float], kernels: list[float]) -> Text:
    """In words where the long kernels stand. What of two answers that do not reach the aim is compared."""
    centre = sum(i * us for i, us in enumerate(kernels)) / sum(kernels) / (len(kernels) - 1) - 0.5
    if _alike(kernels):
        shape = "alike" if _alike(launches) else "launches"
    else:
        shape = "even" if abs(centre) < LEVEL else "last" if centre > 0 else "first"
    return Text(TOO_LITTLE.en + SHAPES[shape].en, TOO_LITTLE.zh + SHAPES[shape].zh)


def _alike(times: list[float]) -> bool:
    return max(times) - min(times) <= 1e-6 * max(times)


def tried_totals(inputs: tuple) -> Text:
    """Say the totals and the aim."""
    n, total = inputs
    return Text(
        f"n={n}, total_us={total}: max(host, device) must fall short by {WANTED} of the real time",
        f"n={n}，total_us={total}：max(主机, 设备) 要比真实时间少 {WANTED}",
    )


PARTS = {
    "5a": Part(step_us, make_steps, forbidden=LIBRARY),
    "5b": Part(step_us_with_queue, make_queues, forbidden=LIBRARY),
    "5c": Part(fool_the_maximum, make_totals, view=view_fooled, tried=tried_totals),
}
