"""Calibration: what launches and kernels cost on this machine's device, measured, for the simulator's launch model.

The host's part of a launch grows with the number of arguments that it checks. A kernel takes a floor plus, for each
operation that it fuses, its work divided by a rate:

    kernel µs = floor + Σ linear: max(bytes / bandwidth, FLOP / linear rate) + FLOP of attention / attention rate
                + bytes of everything else / elementwise rate

The rates are those of the un-fused kernels of one model, so a prediction for any other stage is out of sample. They
hold for that model: the bandwidth of weights that stay in the processor's cache is not that of a larger model's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from s13lib.errors import InputError, look_up, shortened
from s13lib.kernels import KERNEL_FOR
from s13lib.simulator import DTypes, Kernel, ModelShape, Workload, launch_times, step_kernels

MOST = 1e15  # a larger number in a stored calibration is damage
RATES = ("reference_us", "bandwidth", "linear_rate", "attention_rate", "elementwise_rate")  # what one divides by
FLOAT32 = DTypes(4, 4, 4)
LINEAR = ("q", "k", "v", "o", "gate", "up", "down", "lm_head")


@dataclass(frozen=True)
class Calibration:
    """Measured costs of one device. Times in microseconds, rates in bytes or FLOP a microsecond.

    Args:
        name: what the user calls it.
        model: the checkpoint whose kernels were measured.
        device: the banner of the device when it was measured.
        date: ISO date.
        contended: whether other work held processors: then times are off, and intervals are wide.
        reference_us: the un-fused step at batch 1, launched one by one: by it a later run sees that the machine's speed
            has changed.
        launch_base_us, launch_argument_us: host time of a launch = base + argument · number of parameters.
        launch_spread: interquartile range of a launch's cost ÷ its median.
        graph_base_us, graph_node_us: host time of a replay = base + node · nodes.
        latency_us: from the end of a launch to the start of its kernel on an idle device.
        wait_us: from the end of the last kernel to the host's going on.
        graph_gap_us: device time between two nodes of a graph.
        floor_us: shortest kernel.
        bandwidth, linear_rate, attention_rate, elementwise_rate: see the module's docstring.
    """

    name: str
    model: str
    device: str
    date: str
    contended: bool
    reference_us: float
    launch_base_us: float
    launch_argument_us: float
    launch_spread: float
    graph_base_us: float
    graph_node_us: float
    latency_us: float
    wait_us: float
    graph_gap_us: float
    floor_us: float
    bandwidth: float
    linear_rate: float
    attention_rate: float
    elementwise_rate: float

    @property
    def one_processor(self) -> bool:
        """Whether the device had one processor only: then host and device took turns."""
        return ", 1 usable processor:" in self.device

    def is_of(self, description: str) -> bool:
        """Whether the device measured is the one that ``description`` names, apart from contention."""
        return self.device == description or self.device.startswith((f"{description},", f"{description}:"))

    def kernel_us(self, kernel: Kernel, shape: ModelShape, work: Workload) -> float:
        """Modelled time of one kernel."""
        total = self.floor_us
        for alone in operations_of(kernel, shape, work):
            if alone.operations[0] in LINEAR:
                total += max(alone.weight_bytes / self.bandwidth, alone.flops / self.linear_rate)
            elif alone.operations[0] == "attention":
                total += alone.flops / self.attention_rate
            else:
                total += alone.activation_bytes / self.elementwise_rate
        return total

    def launch_us(self, kernel: Kernel, parameters: dict[str, int]) -> float:
        """Modelled host time of one launch; ``parameters`` counts those of each kernel by name."""
        return self.launch_base_us + self.launch_argument_us * parameters[KERNEL_FOR[kernel.operations]]

    def step(
        self, shape: ModelShape, stage: int, work: Workload, graph: bool, parameters: dict[str, int]
    ) -> Prediction:
        """Predict one step."""
        kernels = step_kernels(shape, stage, work, FLOAT32)
        kernel_us = [self.kernel_us(k, shape, work) for k in kernels]
        n = len(kernels)
        if graph:
            launches = [self.graph_base_us + self.graph_node_us * n] + [0.0] * (n - 1)
            times = launch_times(launches, kernel_us, n, self.latency_us, self.graph_gap_us)
        else:
            launches = [self.launch_us(k, parameters) for k in kernels]
            times = launch_times(launches, kernel_us, latency_us=self.latency_us)
        return Prediction(times.device_end_us[-1] + self.wait_us, sum(launches), sum(kernel_us))


@dataclass(frozen=True)
class Prediction:
    """A predicted step, microseconds: the recurrence's total, and the two sums whose larger one is the naive guess."""

    step_us: float
    host_us: float
    device_us: float

    @property
    def naive_us(self) -> float:
        """max(host, device)."""
        return max(self.host_us, self.device_us)


@lru_cache(maxsize=64)
def _unfused(shape: ModelShape, work: Workload) -> dict[str, Kernel]:
    return {k.operations[0]: k for k in step_kernels(shape, 15, work, FLOAT32)}


def operations_of(kernel: Kernel, shape: ModelShape, work: Workload) -> list[Kernel]:
    """The operations that a kernel fuses, each as a kernel of its own."""
    return [_unfused(shape, work)[operation] for operation in kernel.operations]


def fit_nonnegative(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares of relative errors with coefficients of at least 0: drop the most negative one and fit again."""
    scaled = features / target[:, None]
    kept = list(range(features.shape[1]))
    while kept:
        solution = np.linalg.lstsq(scaled[:, kept], np.ones(len(target)), rcond=None)[0]
        if (solution >= 0).all():
            break
        kept.pop(int(solution.argmin()))
    full = np.zeros(features.shape[1])
    full[kept] = solution if kept else []
    return full


def config_folder() -> Path:
    """The user's configuration folder: ``S13_CONFIG_DIR``, else the system's custom."""
    if named := os.environ.get("S13_CONFIG_DIR"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or "~/AppData/Roaming").expanduser() / "s13lib"
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/s13lib").expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "s13lib"


def load_calibrations() -> dict[str, Calibration]:
    """All stored calibrations by name; an unreadable file is an ``InputError``."""
    path = config_folder() / "calibrations.json"
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("it is no JSON object")
        return {name: _checked(name, entry) for name, entry in stored.items()}
    except (OSError, ValueError, RecursionError) as error:
        why = (
            "it is nested too deep" if isinstance(error, RecursionError) else getattr(error, "strerror", None) or error
        )
        raise InputError(f"{path} cannot be used: {why}; remove it and run s13 calibrate again.") from error


def _checked(name: str, entry: object) -> Calibration:
    """The calibration that a stored entry holds; a ``ValueError`` says what is wrong with it."""
    if not name.isprintable() or not isinstance(entry, dict):
        raise ValueError(f"its entry {shortened(name)} is no calibration")
    values = {}
    for f in fields(Calibration):
        if f.name not in entry:
            raise ValueError(f"entry {shortened(name)} lacks {f.name}")
        value = entry[f.name]
        if f.type == "str":
            good, allowed = isinstance(value, str) and bool(value) and value.isprintable(), "printable text"
        elif f.type == "bool":
            good, allowed = isinstance(value, bool), "true or false"
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            positive = f.name in RATES
            # Written so that NaN fails too.
            good = number and (0 < value <= MOST if positive else 0 <= value <= MOST)
            allowed = "a number above 0" if positive else "a number of at least 0"
        if not good:
            raise ValueError(f"{f.name} of entry {shortened(name)} is {shortened(value)} and must be {allowed}")
        values[f.name] = value
    return Calibration(**values)


def find_calibration(name: str) -> Calibration:
    """A stored calibration; without one, a sentence that says how to get it."""
    known = load_calibrations()
    if not known:
        raise InputError("no calibration is stored on this machine yet: run s13 calibrate first.")
    return look_up(known, name, "calibration")


def check_storage() -> None:
    """Raise an ``InputError`` where a calibration could not be stored: to know it before minutes of measuring."""
    load_calibrations()
    folder = config_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error


def store_calibration(calibration: Calibration) -> Path:
    """Add or replace a calibration by its name; the file appears whole. Returns its path."""
    known = load_calibrations() | {calibration.name: calibration}
    path = config_folder() / "calibrations.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps({n: asdict(c) for n, c in known.items()}, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def fit_launches(counts: Sequence[int], costs_us: Sequence[float]) -> tuple[float, float]:
    """(base, per argument) of a launch's cost, from pairs of argument count and cost."""
    features = np.column_stack([np.ones(len(counts)), np.asarray(counts, float)])
    base, argument = fit_nonnegative(features, np.asarray(costs_us, float))
    return float(base), float(argument)
