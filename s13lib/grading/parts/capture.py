"""Exercise 4: a graph runner from a bare graph.

The steps are the check's own: two or three launches, with a cache that every row writes to. A script of calls is run,
and what the device saw is observed, together with the outputs and the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

import s13lib.kernels.softgpu  # noqa: F401 — registers the kernels
from s13lib.device import SoftGPU, prepare
from s13lib.device.kernel import REGISTRY
from s13lib.grading.part import Part, Text
from s13lib.grading.watched import WatchedDevice, watched

EPS = 1e-5
BLOCKS, BLOCK_SIZE = 4, 4
SLOTS = BLOCKS * BLOCK_SIZE
KERNELS = ("add", "linear", "rms_norm", "append_kv", "copy")


# ---- the steps


class ShiftStep:
    """out = (x + shift)·weightᵀ, in two launches: x, shift, out (rows, width)."""

    def __init__(self, device: SoftGPU, weight: Tensor) -> None:
        self.device, self.weight, self.calls = device, device.tensor(weight), 0

    def __call__(self, x: Tensor, shift: Tensor, out: Tensor) -> None:
        """Launch."""
        self.calls += 1
        shifted = self.device.empty(tuple(x.shape))
        self.device.kernels.add(x, shift, shifted)
        self.device.kernels.linear(shifted, self.weight, out)


class CacheStep:
    """out = norm(x)·weightᵀ, and every row stores norm(x) and out at its slot, in three launches.

    Args:
        device: where it runs.
        weight: (width, width).
        cache: what the cache holds at the start, (2, slots, width).
        lazy: make what the norm needs at the first call, as libraries do on CUDA; a capture cannot.
    """

    def __init__(self, device: SoftGPU, weight: Tensor, cache: Tensor, lazy: bool) -> None:
        self.device, self.weight, self.calls = device, device.tensor(weight), 0
        shape = (BLOCKS, BLOCK_SIZE, 1, weight.shape[0])
        self.k_cache, self.v_cache = (device.tensor(part.reshape(shape)) for part in cache)
        self.gain = None if lazy else self._ones()

    def _ones(self) -> Tensor:
        return self.device.tensor(torch.ones(self.weight.shape[0]))

    def __call__(self, x: Tensor, slots: Tensor, out: Tensor) -> None:
        """Launch: x, out (rows, width), slots int64 (rows,); slot −1 stores nothing."""
        self.calls += 1
        if self.gain is None:
            self.gain = self._ones()
        normed = self.device.empty(tuple(x.shape))
        self.device.kernels.rms_norm(x, self.gain, EPS, normed)
        self.device.kernels.linear(normed, self.weight, out)
        self.device.kernels.append_kv(normed, out, slots, self.k_cache, self.v_cache)

    def image(self) -> Tensor:
        """The cache now, (2, slots, width)."""
        return torch.stack([self.k_cache.view(SLOTS, -1), self.v_cache.view(SLOTS, -1)])


# ---- references


class FixedRunner:
    """Reference of 4a: a captured step of exactly ``rows`` rows."""

    def __init__(self, device: SoftGPU, step: Callable, rows: int, width: int) -> None:
        self.device = device
        self.x, self.shift, self.out = (device.zeros((rows, width)) for _ in range(3))
        with device.graph() as self.graph:
            step(self.x, self.shift, self.out)

    def run(self, x: Tensor, shift: float) -> Tensor:
        """Copy in, replay, wait."""
        self.x.copy_(x)
        self.shift.fill_(shift)
        self.graph.replay()
        self.device.synchronize()
        return self.out


class PaddedRunner:
    """Reference of 4b: batches of up to ``rows`` rows."""

    def __init__(self, device: SoftGPU, step: Callable, rows: int, width: int) -> None:
        self.device, self.step, self.rows = device, step, rows
        self.x, self.out = device.zeros((rows, width)), device.zeros((rows, width))
        self.slots = device.zeros(rows, torch.int64).fill_(-1)
        self.capture()

    def capture(self) -> None:
        """Record the step."""
        with self.device.graph() as self.graph:
            self.step(self.x, self.slots, self.out)

    def run(self, x: Tensor, slots: Tensor) -> Tensor:
        """Fill every row, replay, return a copy of the real ones."""
        n = len(x)
        if n > self.rows:
            raise ValueError(f"{n} rows: this graph was captured for {self.rows}")
        self.x[:n].copy_(x)
        self.slots[:n].copy_(slots)
        self.slots[n:].fill_(-1)
        self.graph.replay()
        self.device.synchronize()
        return self.out[:n].clone()


class SafeRunner(PaddedRunner):
    """Reference of 4c: warmed up, and it notices a replaced weight."""

    def capture(self) -> None:
        """Run the step once on rows that store nothing, then record it."""
        self.step(self.x, self.slots, self.out)
        self.device.synchronize()
        super().capture()
        self.address = self.step.weight.data_ptr()

    def run(self, x: Tensor, slots: Tensor) -> Tensor:
        """Refuse once the weight lies elsewhere."""
        if self.step.weight.data_ptr() != self.address:
            raise ValueError("the weight was replaced after the capture: the graph still reads the old one")
        return super().run(x, slots)


# ---- 4a


def make_fixed(rng: np.random.Generator) -> list[tuple]:
    """One row of two numbers first, then more."""
    cases = []
    for rows, width in ((1, 2), (3, 4), (int(rng.integers(2, 6)), int(rng.integers(3, 9)))):
        calls = [(_numbers(rng, rows, width), round(float(rng.uniform(-3, 3)), 2)) for _ in range(4)]
        cases.append((_numbers(rng, width, width), calls))
    return cases


def drive_fixed(answer: Callable, weight: Tensor, calls: list) -> dict[str, object]:
    """Make a runner, call it, and note what each call gave and what the device saw."""
    rows, width = calls[0][0].shape
    outputs, runs = [], []
    with watched() as device:
        step = ShiftStep(device, weight)
        runner = answer(device, step, rows, width)
        for number, (x, shift) in enumerate(calls):
            seen = _Seen(device, step, late=number % 2 == 1)
            outputs.append(copy.deepcopy(runner.run(x, shift)))
            runs.append(seen.so_far())
        return {"captures": device.captures, "runs": runs, "outputs": outputs}


class _Seen:
    """What the device and the step see during one call."""

    def __init__(self, device: WatchedDevice, step: ShiftStep | CacheStep, late: bool) -> None:
        self._device, self._step = device, step
        device.late = late
        self._before = self._counts()

    def _counts(self) -> dict[str, int]:
        return {
            "replays": self._device.replays,
            "launches": self._device.launches,
            "step_calls": self._step.calls,
        }

    def so_far(self) -> dict[str, int]:
        """The counts since the start; afterwards nothing runs any more."""
        counts = {name: count - self._before[name] for name, count in self._counts().items()}
        self._device.settle()
        return counts


def tried_fixed(inputs: tuple) -> Text:
    """Say the calls."""
    _, calls = inputs
    rows, width = calls[0][0].shape
    shifts = ", ".join(f"run(x, {shift})" for _, shift in calls)
    return Text(
        f"FixedRunner(device, step, {rows}, {width}), then {shifts}, with another x each time",
        f"FixedRunner(device, step, {rows}, {width})，然后 {shifts}，每次的 x 都不同",
    )


# ---- 4b, 4c: scripts of calls


def _numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(rng.uniform(-1, 1, shape).round(3).astype(np.float32))


class _Script:
    """Calls in the order in which they are made; every slot is used by one request at a time."""

    def __init__(self, rng: np.random.Generator, rows: int, width: int) -> None:
        self._rng, self._width = rng, width
        self._free = [int(slot) for slot in rng.permutation(np.arange(1, SLOTS))]  # slot 0 is somebody's, always
        self.calls: list[tuple] = []
        self._last: list[int] = []
        self.inputs = (_numbers(rng, width, width), _numbers(rng, 2, SLOTS, width), rows, self.calls)

    def run(self, n: int) -> None:
        """A batch of n rows, each with a slot that was free."""
        self._last = [self._free.pop() for _ in range(n)]
        self.calls.append(("run", _numbers(self._rng, n, self._width), torch.tensor(self._last)))

    def too_many(self, n: int) -> None:
        """A batch of more rows than were captured. Its slots stay free."""
        self.calls.append(("run", _numbers(self._rng, n, self._width), torch.tensor(self._free[:n])))

    def passed_on(self) -> None:
        """The last row's request ended: another one has its slot now, and has stored something there."""
        self.calls.append(("passed on", _numbers(self._rng, self._width), self._last[-1]))

    def weight(self, how: str) -> None:
        """Something happens to the weight."""
        self.calls.append((how, _numbers(self._rng, self._width, self._width), 0))


def make_padded(rng: np.random.Generator) -> list[tuple]:
    """Full batches, then shrinking ones after a slot has changed hands, then one too large."""
    full, shrinking, large = _Script(rng, 2, 2), _Script(rng, 4, 3), _Script(rng, 3, int(rng.integers(2, 7)))
    full.run(2)
    full.run(2)
    for n in (4, 3, 1, 2):
        shrinking.run(n)
        shrinking.passed_on()
    large.run(2)
    large.too_many(4 + int(rng.integers(0, 3)))
    large.run(3)
    large.run(1)
    return [full.inputs, shrinking.inputs, large.inputs]


def make_safe(rng: np.random.Generator) -> list[tuple]:
    """Weights that change in place, are replaced, or lie elsewhere; and everything of 4b."""
    kept, replaced, moved = (_Script(rng, rows, width) for rows, width in ((2, 2), (3, 4), (4, 3)))
    kept.run(2)
    kept.weight("scaled")
    kept.run(1)
    replaced.run(3)
    for how in ("replaced", "put back"):
        replaced.weight(how)
        replaced.run(2)
    moved.run(4)
    for how in ("moved", "put back"):
        moved.passed_on()
        moved.weight(how)
        moved.run(2)
    moved.too_many(5)
    return [kept.inputs, replaced.inputs, moved.inputs]


def drive_script(answer: Callable, weight: Tensor, cache: Tensor, rows: int, calls: list, lazy: bool) -> dict:
    """Run a script. The outputs are looked at when all is over: whoever keeps one must still have it then."""
    kept, runs = [], []
    with watched() as device:
        step = CacheStep(device, weight, cache, lazy)
        before, first = step.image(), (step.weight, step.weight.data)
        runner = answer(device, step, rows, len(weight))
        device.settle()
        made = _changed(before, step.image())
        for number, (what, data, where) in enumerate(calls):
            if what != "run":
                _happen(step, what, data, where, first)
                continue
            before, own = step.image(), set(where.tolist())
            seen = _Seen(device, step, late=number % 2 == 1)
            try:
                kept.append(runner.run(data, where))
                outcome = "returned"
            except Exception as error:
                if len(where) <= rows and step.weight.data_ptr() == first[1].data_ptr():
                    raise  # nothing that a runner should refuse
                outcome, own = "ValueError" if isinstance(error, ValueError) else type(error).__name__, set()
            counts = seen.so_far()
            others = sorted(set(_changed(before, step.image())) - own)
            runs.append({"outcome": outcome, **counts, "others_written": others})
        return {
            "captures": device.captures, "written_by_constructor": made, "runs": runs,
            "outputs_kept": copy.deepcopy(kept), "cache": step.image(),
        }  # fmt: skip


def _changed(before: Tensor, after: Tensor) -> list[int]:
    return (before != after).any(2).any(0).nonzero().flatten().tolist()


def _happen(step: CacheStep, what: str, data: Tensor, where: int, first: tuple[Tensor, Tensor]) -> None:
    """What others do between two calls."""
    if what == "passed on":
        for tensor in (step.k_cache, step.v_cache):
            tensor.view(SLOTS, -1)[where] = data
    elif what == "scaled":
        step.weight.mul_(2)
    elif what == "replaced":
        step.weight = step.device.tensor(data)
    elif what == "moved":  # the same tensor object, other memory
        step.weight.data = step.device.tensor(data)
    elif what == "put back":
        step.weight, step.weight.data = first[0], first[1]


def view_script(inputs: tuple, value: dict) -> dict:
    """A refused call need not have replayed: its counts say nothing."""
    silent = {"replays": None, "launches": None, "step_calls": None}
    runs = [run if run["outcome"] == "returned" else run | silent for run in value["runs"]]
    return value | {"runs": runs}


HAPPENED = {
    "passed on": Text("its last slot goes to another request", "最后一行的 slot 归了另一个请求"),
    "scaled": Text("step.weight.mul_(2)", "step.weight.mul_(2)"),
    "replaced": Text("step.weight = another tensor", "step.weight = 另一个张量"),
    "moved": Text("step.weight.data = another tensor", "step.weight.data = 另一个张量"),
    "put back": Text("the old weight is put back", "换回原来的权重"),
}


def tried_script(name: str, inputs: tuple) -> Text:
    """Say the script."""
    weight, _, rows, calls = inputs
    said = {
        language: [
            f"run(x, {where.tolist()})" if what == "run" else HAPPENED[what].in_(language)
            for what, _, where in calls
        ]
        for language in ("en", "zh")
    }  # fmt: skip
    made = f"{name}(device, step, {rows}, {len(weight)})"
    return Text("; ".join([made, *said["en"]]), "；".join([made, *said["zh"]]))


def warm_up() -> None:
    """Compile the kernels, start the device, and capture once: the first capture of a process takes seconds."""
    prepare(REGISTRY[name] for name in KERNELS)
    with watched() as device, device.graph():
        device.empty(1)


def drive_padded(answer: Callable, weight: Tensor, cache: Tensor, rows: int, calls: list) -> dict:
    """A step that needs no warm-up."""
    return drive_script(answer, weight, cache, rows, calls, lazy=False)


def drive_safe(answer: Callable, weight: Tensor, cache: Tensor, rows: int, calls: list) -> dict:
    """A step that needs one."""
    return drive_script(answer, weight, cache, rows, calls, lazy=True)


def script_part(reference: type, make: Callable, drive: Callable) -> Part:
    """A part that runs scripts."""
    said = partial(tried_script, reference.__name__)
    return Part(reference, make, drive, view_script, warm_up=warm_up, tried=said)


PARTS = {
    "4a": Part(FixedRunner, make_fixed, drive_fixed, warm_up=warm_up, tried=tried_fixed),
    "4b": script_part(PaddedRunner, make_padded, drive_padded),
    "4c": script_part(SafeRunner, make_safe, drive_safe),
}
