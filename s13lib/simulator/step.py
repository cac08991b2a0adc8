"""One decode step or prefill, modelled: its timeline, its read-outs, and how they move with the batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from s13lib.errors import InputError, require, require_whole
from s13lib.simulator.gpus import GPU, GPUS
from s13lib.simulator.launch import LaunchCosts, LaunchTimes, launch_times
from s13lib.simulator.shapes import MODELS, ModelShape
from s13lib.simulator.stages import (
    PARTS,
    DTypes,
    Kernel,
    Workload,
    check_parts,
    check_stage,
    step_kernels,
)
from s13lib.simulator.timeline import Span, Timeline


@dataclass(frozen=True)
class SeedLaw:
    """The kernel-time law of the lesson's own simulator, which knows layers and batch but no GPU.

    Device time of a step = ``launch_floor_us`` × launches + ``operations`` × layers × (1.0 + 0.1 · batch) µs, spread
    evenly over the launches.
    """

    launch_floor_us: float = 2.0
    operations: int = 9
    base_us: float = 1.0
    row_us: float = 0.1

    def kernel_us(self, launches: int, layers: int, rows: int) -> float:
        """Time of each kernel of a step, in microseconds."""
        work_us = self.operations * layers * (self.base_us + self.row_us * rows)
        return self.launch_floor_us + work_us / launches


@dataclass(frozen=True)
class Setup:
    """Everything that a modelled step depends on.

    Args:
        shape: the model.
        device: a ``GPU`` (floor plus roofline) or the ``SeedLaw``.
        batch: sequences that decode together.
        context: tokens of each sequence, the new one included.
        prefill: when given, the step is the prefill of a prompt of that many tokens instead of a decode step.
        stage: fusion stage, kernels a layer.
        graph: replay a captured graph instead of launching kernel by kernel.
        costs: what launches cost.
        dtypes: bytes an element.
        parts: which parts of the step are counted.
        base_stage: the stage of the un-optimised step that ``speedup`` compares with, always eager.
    """

    shape: ModelShape = MODELS["smollm2-360m"]
    device: GPU | SeedLaw = GPUS["h100"]
    batch: int = 1
    context: int = 512
    prefill: int | None = None
    stage: int = 15
    graph: bool = False
    costs: LaunchCosts = field(default_factory=LaunchCosts)
    dtypes: DTypes = field(default_factory=DTypes)
    parts: tuple[str, ...] = PARTS
    base_stage: int = 15

    def __post_init__(self) -> None:
        check_stage(self.stage)
        check_stage(self.base_stage)
        object.__setattr__(self, "parts", check_parts(self.parts))
        _ = self.workload  # raises for a bad batch, context or prompt length
        require(
            self.prefill is None or not isinstance(self.device, SeedLaw),
            "prefill",
            self.prefill,
            "left out with the seed's law, which knows decode steps alone",
        )
        require(
            self.parts == ("layers",) or not isinstance(self.device, SeedLaw),
            "parts",
            self.parts,
            "('layers',) with the seed's law, which knows layers alone",
        )

    @property
    def workload(self) -> Workload:
        """What the step computes."""
        if self.prefill is not None:
            return Workload.prefill(self.prefill)
        return Workload.decode(self.batch, self.context)

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the step, in order of launch."""
        return step_kernels(self.shape, self.stage, self.workload, self.dtypes, self.parts)

    def kernel_us(self, kernels: tuple[Kernel, ...]) -> list[float]:
        """Modelled time of each kernel, in microseconds."""
        if isinstance(self.device, SeedLaw):
            each = self.device.kernel_us(len(kernels), self.shape.layers, self.workload.rows)
            return [each] * len(kernels)
        distinct = {id(k): k for k in kernels}  # layers share their kernels
        times = {i: self.device.kernel_us(k.bytes_moved, k.flops) for i, k in distinct.items()}
        return [times[id(k)] for k in kernels]

    def host_us(self, launches: int) -> float:
        """Host time of a step of so many launches, in microseconds, when the queue never fills."""
        return self.costs.replay_us(launches) if self.graph else self.costs.launch_us * launches

    @property
    def provenance(self) -> str:
        """The constants behind the figures, in words."""
        c = self.costs
        launch = f"{c.launch_us:g} µs a launch" if not self.graph else f"graph {c.replay_us(len(self.kernels())):g} µs"
        if isinstance(self.device, SeedLaw):
            law = self.device
            layer = f"{law.operations} × ({law.base_us:g} + {law.row_us:g} × batch) µs a layer"
            where = f"the seed's law, {law.launch_floor_us:g} µs a kernel and {layer}"
        else:
            g = self.device
            where = f"{g.name}, {g.efficiency:g} of {g.bandwidth_tb_s:g} TB/s, floor {g.floor_us:g} µs"
        return f"{self.shape.name} on {where}; {launch}"


PRESETS: dict[str, Setup] = {
    # The lesson's simulator as it starts: 32 layers, 9 kernels each, batch 1, 6 µs a launch, nothing else counted.
    "seed": Setup(
        shape=replace(MODELS["llama-2-7b"], name="seed", source="the lesson: 32 layers"),
        device=SeedLaw(),
        stage=9,
        parts=("layers",),
        base_stage=9,
    ),
    # The physical model behind the lesson's 0.89 ms: no 7B model reads its weights that fast.
    "smollm2-360m-h100": Setup(stage=9, parts=("layers",), base_stage=9),
    "llama-3-8b-h200": Setup(shape=MODELS["llama-3-8b"], device=GPUS["h200"]),
}


@dataclass(frozen=True)
class StepReport:
    """The read-outs of one modelled step. Times in microseconds, shares 0 to 1."""

    setup: Setup
    timeline: Timeline
    kernels_per_step: int
    step_us: float
    host_us: float
    device_us: float
    bottleneck: Literal["host", "device"]
    utilization: float
    speedup: float
    bandwidth_share: float | None
    flop_share: float | None

    @property
    def first_launches(self) -> Timeline:
        """The first 18 launches, as many as the lesson's picture shows."""
        return self.timeline.first(18)


def simulate_timeline(setup: Setup) -> Timeline:
    """The modelled timeline of one step."""
    kernels = setup.kernels()
    kernel_us = setup.kernel_us(kernels)
    times = _times(setup, kernel_us)
    names = [k.name for k in kernels]
    if setup.graph:
        host = (Span("graph replay", 0.0, times.host_end_us[0], 0),)
        correlations = [0] * len(kernels)
    else:
        correlations = list(range(len(kernels)))
        labels = {name: f"launch {name}" for name in set(names)}
        host = tuple(
            Span(labels[name], start, end - start, i)
            for name, start, end, i in zip(names, times.host_start_us, times.host_end_us, correlations, strict=True)
        )
    device = tuple(map(Span, names, times.device_start_us, kernel_us, correlations))
    return Timeline(host, device, "modelled", setup.provenance)


def middle_layer(setup: Setup) -> tuple[Kernel, ...]:
    """The kernels of one layer that has a layer below and one above it, whatever parts the setup counts."""
    three = replace(setup, shape=replace(setup.shape, layers=3))
    kernels = step_kernels(three.shape, three.stage, three.workload, three.dtypes, ("layers",))
    return kernels[len(kernels) // 3 : 2 * len(kernels) // 3]


def step_us(setup: Setup) -> float:
    """Modelled time of one step."""
    return _times(setup, setup.kernel_us(setup.kernels())).device_end_us[-1]


def _times(setup: Setup, kernel_us: list[float]) -> LaunchTimes:
    """A replay is one launch whose kernels follow one another with the graph's own gap; eager is the recurrence."""
    costs, n = setup.costs, len(kernel_us)
    if setup.graph:  # the recurrence with one launch that pays for all, and a queue that never fills
        launches = [costs.replay_us(n)] + [0.0] * (n - 1)
        return launch_times(launches, kernel_us, n, costs.latency_us, costs.graph_gap_us)
    return launch_times([costs.launch_us] * n, kernel_us, costs.queue_depth, costs.latency_us, costs.gap_us)


def simulate(setup: Setup) -> StepReport:
    """Model one step and read everything off."""
    timeline = simulate_timeline(setup)
    base = replace(setup, stage=setup.base_stage, graph=False)
    kernels = setup.kernels()
    bandwidth_share = flop_share = None
    if isinstance(setup.device, GPU):
        per_us = timeline.step_us * 1e6
        bandwidth_share = sum(k.bytes_moved for k in kernels) / (per_us * setup.device.bandwidth_tb_s)
        flop_share = sum(k.flops for k in kernels) / (per_us * setup.device.peak_tflop_s)
    return StepReport(
        setup=setup,
        timeline=timeline,
        kernels_per_step=len(kernels),
        step_us=timeline.step_us,
        host_us=timeline.host_us,
        device_us=timeline.device_us,
        bottleneck=timeline.bottleneck,
        utilization=timeline.utilization,
        speedup=step_us(base) / timeline.step_us,
        bandwidth_share=bandwidth_share,
        flop_share=flop_share,
    )


def sweep(setup: Setup, batches: Iterable[int]) -> list[StepReport]:
    """One report for each batch size."""
    return [simulate(replace(setup, batch=batch)) for batch in batches]


def crossover(setup: Setup, limit: int = 4096) -> int | None:
    """The smallest batch whose kernels take at least as long as their launches, or None up to ``limit``.

    Kernel times never fall with the batch and launches do not depend on it, so the search may bisect.
    """
    require_whole("limit", limit, 1, 1_000_000)
    if setup.prefill is not None:
        raise InputError("crossover is over batch sizes of a decode step: leave prefill out.")

    def device_bound(batch: int) -> bool:
        at = replace(setup, batch=batch)
        kernels = at.kernels()
        return sum(at.kernel_us(kernels)) >= at.host_us(len(kernels)) * (1 - 1e-9)

    if not device_bound(limit):
        return None
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if device_bound(middle) else (middle, high)
    return high


EXACT_TO, COARSE_STEP = 512, 16


def step_time_curve(setup: Setup, max_batch: int) -> tuple[list[float], list[float]]:
    """Modelled step times for padding decisions: (replay_us, eager_us), each indexed by batch, entry 0 unused (0.0).

    Above batch 512 every sixteenth batch is computed, and those between are interpolated linearly: the model is smooth
    there.
    """
    require_whole("max_batch", max_batch, 1, 100_000)
    known = [*range(1, min(max_batch, EXACT_TO) + 1), *range(EXACT_TO + COARSE_STEP, max_batch, COARSE_STEP)]
    known += [max_batch] if max_batch > known[-1] else []

    def curve(graph: bool) -> list[float]:
        times = [0.0]
        for batch in known:
            time_us = step_us(replace(setup, batch=batch, graph=graph))
            gap, last = batch - len(times) + 1, times[-1]
            times += [last + (time_us - last) * i / gap for i in range(1, gap)] + [time_us]
        return times

    return curve(graph=True), curve(graph=False)
