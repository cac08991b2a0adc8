"""The measurements behind a ``Calibration``, and the grid that holds model and machine against each other."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

import numpy as np

from s13lib.device import Device, Graph, SoftGPU
from s13lib.device.kernel import REGISTRY
from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.kernels import KERNEL_FOR
from s13lib.model import DecoderConfig
from s13lib.model.checkpoints import Checkpoint
from s13lib.profiling.calibration import FLOAT32, LINEAR, Calibration, Prediction, fit_launches
from s13lib.profiling.measure import MeasuredStep, measure_steps
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.simulator import Kernel, ModelShape, Workload, launch_times, step_kernels

BATCHES = (1, 4, 16)  # measured for the calibration; predictions are checked at others too
REFERENCE = (1, 15, False)  # batch, stage, graph of the step by which a machine's speed is known again
REPLAY_NODES = (32, 128, 352, 480)


def require_softgpu(device: Device) -> SoftGPU:
    """``device`` itself; an ``InputError`` if it is not a SoftGPU, the only one whose launches this takes apart."""
    if device.kind != "softgpu":
        raise InputError(
            f"a calibration measures SoftGPU alone, and the device is {device.description}: set S13_DEVICE=softgpu "
            "(tools/gpu_check.py measures a GPU)."
        )
    return device


def shape_of(config: DecoderConfig, name: str) -> ModelShape:
    """The simulator's shape of a checkpoint."""
    c = config
    return ModelShape(name, c.layers, c.hidden, c.ffn, c.heads, c.kv_heads, c.head_dim, c.vocab, "its own config")


def parameter_counts() -> dict[str, int]:
    """How many parameters each kernel has."""
    return {name: len(kernel.parameters) for name, kernel in REGISTRY.items()}


def calibrate(
    checkpoint: Checkpoint, device: SoftGPU, name: str, context: int = 64, repeats: int = 40, seconds: float = 8.0
) -> Calibration:
    """Measure everything that a ``Calibration`` holds, with the un-fused kernels of ``checkpoint``.

    All measurements are interleaved over at least ``seconds``, so that each meets the machine's quietest moments.
    """
    shape, banner = shape_of(checkpoint.config, checkpoint.name), device.banner()
    steps: dict[tuple[str, int], Callable[[], None]] = {}
    for batch in BATCHES:
        model = checkpoint.model(15, device, max_rows=64, blocks=blocks_needed(batch, context))
        inputs = running_batch(model, batch, context)
        if batch == 1:
            steps["eager", batch] = eager_step(model, inputs)
        runner = GraphRunner(model, batch)
        runner.run(inputs)
        steps["graph", batch] = runner.graph.replay
    for nodes in REPLAY_NODES:
        steps["trivial", nodes] = _trivial_graph(device, nodes).replay
    found = measure_steps(device, steps, repeats, repeats, seconds, label="calibrating")
    eager = found["eager", 1]
    base, argument, spread = _launch_costs(eager, shape, context)
    return Calibration(
        name=name,
        model=checkpoint.name,
        device=banner,
        date=datetime.date.today().isoformat(),
        # The banner looks at 20 ms before the measurement, the repeats at all of it.
        contended="not contended" not in banner or eager.disturbed,
        reference_us=eager.step_us,
        launch_base_us=base,
        launch_argument_us=argument,
        launch_spread=spread,
        latency_us=_latency(eager),
        **_replay_costs({nodes: found["trivial", nodes] for nodes in REPLAY_NODES}),
        # In a graph the kernels follow one another as they do when the device is the limit.
        **_kernel_rates({batch: found["graph", batch] for batch in BATCHES}, shape, context),
    )


def _trivial_graph(device: SoftGPU, nodes: int) -> Graph:
    x, y = device.zeros(8), device.empty(8)
    with device.graph() as graph:
        for _ in range(nodes):
            device.kernels.copy(x, y)
    return graph


def _launch_costs(step: MeasuredStep, shape: ModelShape, context: int) -> tuple[float, float, float]:
    """(base, per argument, spread) from the times between the starts of successive launches."""
    kernels = step_kernels(shape, 15, Workload.decode(1, context), FLOAT32)
    counts = parameter_counts()
    starts = [span.start_us for span in step.timeline.host] + [step.timeline.host[-1].end_us]
    costs = np.diff(starts)
    costs *= step.host_us / costs.sum()  # what recording itself costs is taken out in proportion
    by_count: dict[int, list[float]] = {}
    for kernel, cost in zip(kernels, costs, strict=True):
        by_count.setdefault(counts[KERNEL_FOR[kernel.operations]], []).append(float(cost))
    medians = {count: median(found) for count, found in by_count.items()}
    pairs = [(count, medians[count]) for count, found in by_count.items() for _ in found]
    base, argument = fit_launches(*zip(*pairs, strict=True))
    # Medians leave out the launches that something interrupted: scale to the host time that was measured.
    total = sum(base + argument * counts[KERNEL_FOR[k.operations]] for k in kernels)
    scale = step.host_us / total
    low, middle, high = quantiles((c / medians[n] for n, found in by_count.items() for c in found), n=4)
    return base * scale, argument * scale, (high - low) / middle


def _latency(step: MeasuredStep) -> float:
    """From the end of a launch to the start of its kernel, where the device was idle by then: the lower quartile."""
    waits, free_at = [], 0.0
    launches = {span.correlation: span for span in step.timeline.host}
    for kernel in step.timeline.device:
        launch = launches[kernel.correlation]
        if free_at < launch.start_us:
            waits.append(kernel.start_us - launch.end_us)
        free_at = kernel.end_us
    return max(0.0, quantiles(waits, n=4)[0]) if len(waits) > 1 else 0.0


def _replay_costs(measured: dict[int, MeasuredStep]) -> dict[str, float]:
    """Host time and total time of replaying n trivial kernels, each a line in n."""
    node_us, base_us = np.polyfit(REPLAY_NODES, [measured[n].host_us for n in REPLAY_NODES], 1)
    each_us, fixed_us = np.polyfit(REPLAY_NODES, [measured[n].step_us for n in REPLAY_NODES], 1)
    kernel_us = median(span.duration_us for span in measured[REPLAY_NODES[-1]].timeline.device)
    node_us = max(0.0, float(node_us))
    return {
        "graph_base_us": max(0.0, float(base_us)),
        "graph_node_us": node_us,
        "graph_gap_us": max(0.0, float(each_us) - node_us - kernel_us),
        "wait_us": max(0.0, float(fixed_us) - float(base_us)),
    }


def _kernel_rates(measured: dict[int, MeasuredStep], shape: ModelShape, context: int) -> dict[str, float]:
    """Floor and rates from the un-fused kernels: amounts of work ÷ the time above the floor."""
    timed: dict[int, list[tuple[Kernel, float]]] = {}
    for batch, step in measured.items():
        kernels = step_kernels(shape, 15, Workload.decode(batch, context), FLOAT32)
        timed[batch] = list(zip(kernels, (s.duration_us for s in step.timeline.device), strict=True))
    floor = min(duration for _, duration in timed[min(measured)])

    def rate(batches: Iterable[int], wanted: Callable[[str], bool], amount: Callable[[Kernel], float]) -> float:
        chosen = [(k, d) for batch in batches for k, d in timed[batch] if wanted(k.operations[0])]
        # Each batch size has the same say, or the largest would decide alone.
        rates = []
        for batch in batches:
            mine = [(k, d) for k, d in timed[batch] if wanted(k.operations[0])]
            rates.append(sum(amount(k) for k, _ in mine) / max(sum(d - floor for _, d in mine), 1e-6))
        assert chosen
        return float(np.exp(np.mean(np.log(rates))))

    def is_linear(operation: str) -> bool:
        return operation in LINEAR

    def is_attention(operation: str) -> bool:
        return operation == "attention"

    def is_other(operation: str) -> bool:
        return not is_linear(operation) and not is_attention(operation)

    return {
        "floor_us": floor,
        "bandwidth": rate([min(measured)], is_linear, lambda k: k.weight_bytes),
        "linear_rate": rate([max(measured)], is_linear, lambda k: k.flops),
        "attention_rate": rate(list(measured), is_attention, lambda k: k.flops),
        "elementwise_rate": rate(list(measured), is_other, lambda k: k.activation_bytes),
    }


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: predicted against measured."""

    batch: int
    stage: int
    graph: bool
    measured: MeasuredStep
    predicted: Prediction

    @property
    def error(self) -> float:
        """Predicted ÷ measured − 1."""
        return self.predicted.step_us / self.measured.step_us - 1

    def width(self, calibration: Calibration, contended: bool) -> float:
        """Half the width of the prediction's interval, as a share of it.

        That is the spread of single launches; on a contended machine also the spread of this cell's own repeats.
        """
        return max(calibration.launch_spread, self.measured.noise) if contended else calibration.launch_spread

    def interval_us(self, calibration: Calibration, contended: bool) -> tuple[float, float]:
        """Where the step is predicted to lie."""
        width, us = self.width(calibration, contended), self.predicted.step_us
        return max(0.0, us * (1 - width)), us * (1 + width)

    @property
    def near_crossover(self) -> bool:
        """Whether the measured totals of host and device are within 15 % of each other."""
        host, device = self.measured.host_us, self.measured.device_busy_us
        return abs(host - device) <= 0.15 * max(host, device)

    @property
    def right_bottleneck(self) -> bool:
        """Whether model and measurement name the same bottleneck."""
        ours = self.predicted.host_us > self.predicted.device_us
        return ours == (self.measured.host_us > self.measured.device_busy_us)


def prediction_grid(
    calibration: Calibration,
    checkpoint: Checkpoint,
    device: SoftGPU,
    batches: Iterable[int] = (1, 2, 4, 8, 16),
    stages: Iterable[int] = (15, 11, 7, 4),
    context: int = 64,
    repeats: int = 20,
    seconds: float = 12.0,
) -> tuple[list[Cell], MeasuredStep]:
    """Measure a grid of steps, all interleaved over at least ``seconds``, and predict each.

    Returns the grid's cells and the calibration's reference step, measured along with them whether it is one or not.
    """
    shape, counts = shape_of(checkpoint.config, checkpoint.name), parameter_counts()
    steps: dict[tuple[int, int, bool], Callable[[], None]] = {}
    wanted = [(batch, stage) for batch in batches for stage in stages]
    for batch, stage in dict.fromkeys([*wanted, REFERENCE[:2]]):
        model = checkpoint.model(stage, device, max_rows=64, blocks=blocks_needed(batch, context))
        inputs = running_batch(model, batch, context)
        steps[batch, stage, False] = eager_step(model, inputs)
        if (batch, stage) not in wanted:
            continue
        runner = GraphRunner(model, batch)
        runner.run(inputs)
        steps[batch, stage, True] = runner.graph.replay
    found = measure_steps(device, steps, repeats, 10, seconds)
    cells = [
        Cell(*key, step, calibration.step(shape, key[1], Workload.decode(key[0], context), key[2], counts))
        for key, step in found.items()
        if key[:2] in wanted
    ]
    return cells, found[REFERENCE]


@dataclass(frozen=True)
class OrderCheck:
    """A launch-bound stretch before a device-bound one: where max(host, device) goes wrong. Microseconds."""

    measured_us: float
    recurrence_us: float
    naive_us: float

    @property
    def recurrence_error(self) -> float:
        """Size of the recurrence's relative error."""
        return abs(self.recurrence_us / self.measured_us - 1)

    @property
    def naive_error(self) -> float:
        """Size of the relative error of max(host, device)."""
        return abs(self.naive_us / self.measured_us - 1)


def check_order(device: SoftGPU, launches: int = 150, repeats: int = 60) -> OrderCheck:
    """Measure short kernels followed by long ones, with host and device totals about equal, and predict both ways.

    Launch and kernel times are medians of the same recorded runs, so only the way of adding them up is judged.
    """
    k = device.kernels
    x, y = device.zeros(16), device.empty(16)
    rows = device.zeros((1, 256))

    def long_kernels(width: int) -> Callable[[], None]:
        weight, out = device.zeros((width, 256)), device.empty((1, width))

        def launch() -> None:
            for _ in range(launches):
                k.linear(rows, weight, out)

        return launch

    # Kernels of twice a launch's time make the second stretch device-bound and both totals about equal: look for them.
    for width in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512):
        second = long_kernels(width)
        trial = measure_steps(device, {"trial": second}, 10, 3)["trial"]
        if trial.device_busy_us >= 1.8 * trial.host_us:
            break

    def step() -> None:
        for _ in range(launches):
            k.copy(x, y)
        second()

    measured = measure_steps(device, {"step": step}, repeats, recorded=repeats)["step"]
    timeline = measured.timeline
    starts = [span.start_us for span in timeline.host] + [timeline.host[-1].end_us]
    costs = np.diff(starts)
    launch_us, kernel_us = [], []
    for stretch in (slice(0, launches), slice(launches, 2 * launches)):
        launch_us += [float(np.median(costs[stretch]))] * launches
        kernel_us += [median(s.duration_us for s in timeline.device[stretch])] * launches
    times = launch_times(launch_us, kernel_us)
    return OrderCheck(timeline.step_us, times.device_end_us[-1], max(sum(launch_us), sum(kernel_us)))
