"""Find the batch sizes that an engine should capture for your traffic, and compare them with engines' own lists.

--traffic takes a request CSV (TIMESTAMP, GeneratedTokens), a vLLM log written with --cudagraph-metrics, a histogram
as JSON or CSV (batch, count), or a built-in workload: chat or code.

example:
  s13 buckets --traffic chat --count 13
  s13 buckets --traffic requests.csv --count 13 --export vllm
  s13 buckets --traffic vllm.log --budget-mib 512 --pool private --multiple-of 8
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from s13lib.buckets import (
    EXPORTS,
    POOLS,
    PRESETS,
    WORKLOADS,
    BucketLayout,
    Evaluation,
    HeldOutReport,
    MemoryModel,
    RowCost,
    StepTimes,
    TimeCost,
    Traffic,
    best_layout,
    capture_seconds,
    check_max_batch,
    export,
    generate,
    held_out,
    pinned_mib,
    pinned_rows,
    preset,
    read_step_times,
    read_traffic,
    row_cost,
    time_cost,
)
from s13lib.commands.output import number, print_json, table, whole
from s13lib.commands.setup import add_setup_arguments, setup_from
from s13lib.errors import InputError, look_up
from s13lib.simulator import Setup, step_time_curve

DEFAULT_COUNT = 13  # as many as the lesson's list
ENGINE_STAGE = 7  # modelled step times: about what serving engines fuse
SIZES_SHOWN = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--traffic", default="chat", metavar="FILE", help="a file, or one of: chat, code (default: chat)")
    add("--step-ms", type=number, default=25.0, metavar="MS", help="request CSV: time of a decode step (default 25)")
    add("--cap", type=whole, default=256, metavar="N", help="request CSV: most requests that run (default 256)")
    add("--load", type=number, default=1.0, metavar="X", help="request CSV: multiplies the arrival rate (default 1)")
    add("--vllm-mode", default="FULL", metavar="LIST", help="vLLM log: modes whose rows are decode (default FULL)")
    add("--count", type=whole, metavar="K", help=f"at most K sizes (default {DEFAULT_COUNT})")
    add("--budget-mib", type=number, metavar="M", help="at most M MiB of pinned memory, instead of --count")
    add("--pool", default="shared", metavar="KIND", help="shared (one pool, as engines do) or private (a pool a graph)")
    add("--graph-mib", type=number, default=MemoryModel().graph_mib, metavar="M", help="memory of a graph, any size")
    add("--row-mib", type=number, default=MemoryModel().row_mib, metavar="M", help="further memory for each row")
    add("--capture-seconds", type=number, metavar="S", help="time to capture one graph, for the total")
    add("--max-batch", default="256", metavar="N", help='largest batch to cover, or "observed" (default 256)')
    add("--multiple-of", type=whole, default=1, metavar="N", help="restrict sizes to multiples")
    add("--objective", default="rows", metavar="WHAT", help="rows (least padding) or time (least mean step time)")
    add("--eager-tail", action="store_true", help="objective time: batches above the largest size may run eager")
    add("--step-times", metavar="FILE", help="measured step times (batch, graph_us, eager_us) instead of modelled ones")
    add("--export", metavar="ENGINE", help=f"print the setting to paste: {', '.join(EXPORTS)}")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")
    add_setup_arguments(parser, varying=("batch", "prefill", "graph", "base_stage"))


@dataclass(frozen=True)
class Question:
    """What is asked: the traffic, what limits the layout, and how it is costed."""

    traffic: Traffic
    times: StepTimes
    max_batch: int
    count: int | None = DEFAULT_COUNT
    budget_mib: float | None = None
    pool: str = "shared"
    memory: MemoryModel = MemoryModel()  # noqa: RUF009 — frozen
    objective: str = "rows"
    eager_tail: bool = False
    multiple_of: int = 1
    seconds_per_graph: float | None = None

    def fit(self, traffic: Traffic) -> BucketLayout:
        """The best layout for ``traffic`` under the question's limits."""
        return best_layout(
            traffic,
            self.max_batch,
            count=self.count,
            budget=self.budget_mib,
            pool=self.pool,
            memory=self.memory,
            objective=self.objective,
            times=self.times,
            eager_tail=self.eager_tail,
            multiple_of=self.multiple_of,
        )


@dataclass(frozen=True)
class Costed:
    """A layout and what it costs on the question's traffic."""

    layout: BucketLayout
    rows: RowCost
    time: TimeCost
    pinned_rows: int
    pinned_mib: float
    capture_s: float | None


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    look_up(POOLS, arguments.pool, "--pool")
    if arguments.export is not None:
        look_up(EXPORTS, arguments.export, "--export")
    question = question_from(arguments)
    best = cost(question, question.fit(question.traffic))
    baselines = {name: cost(question, preset(name, question.max_batch)) for name in PRESETS}
    others = [generate(name) for name in WORKLOADS if name != arguments.traffic]
    check = held_out(question.traffic, question.fit, others)
    setting = export(best.layout, arguments.export) if arguments.export else None
    if arguments.json:
        print_json(as_json(question, best, baselines, check, setting))
    else:
        print(as_text(question, best, baselines, check, setting))
    return 0


def question_from(arguments: argparse.Namespace) -> Question:
    """The question that the options describe."""
    if arguments.count is not None and arguments.budget_mib is not None:
        raise InputError("--count and --budget-mib: give one of the two.")
    modes = tuple(mode.strip() for mode in arguments.vllm_mode.split(","))
    traffic = read_traffic(arguments.traffic, arguments.step_ms, arguments.cap, arguments.load, modes)
    if arguments.max_batch == "observed":
        max_batch = traffic.largest
    else:
        try:
            max_batch = whole(arguments.max_batch)
        except argparse.ArgumentTypeError as error:
            raise InputError(f'--max-batch: {error}, nor "observed".') from None
    count = arguments.count if arguments.count is not None or arguments.budget_mib is not None else DEFAULT_COUNT
    if arguments.step_times:
        times = read_step_times(arguments.step_times)
    else:
        reach = max(check_max_batch(max_batch, arguments.multiple_of), traffic.largest)
        times = modelled_times(setup_from(arguments, Setup(stage=ENGINE_STAGE)), reach)
    return Question(
        traffic=traffic,
        times=times,
        max_batch=max_batch,
        count=count,
        budget_mib=arguments.budget_mib,
        pool=arguments.pool,
        memory=MemoryModel(arguments.graph_mib, arguments.row_mib),
        objective=arguments.objective,
        eager_tail=arguments.eager_tail,
        multiple_of=arguments.multiple_of,
        seconds_per_graph=arguments.capture_seconds,
    )


def modelled_times(setup: Setup, max_batch: int) -> StepTimes:
    """The simulator's step times for every batch up to ``max_batch``."""
    graph_us, eager_us = step_time_curve(setup, max_batch)
    counted = ", ".join(setup.parts)
    origin = f"modelled: {setup.provenance}; stage {setup.stage}, context {setup.context}; counted: {counted}"
    return StepTimes(np.array(graph_us), np.array(eager_us), origin)


def cost(question: Question, layout: BucketLayout) -> Costed:
    """What ``layout`` costs on the question's traffic."""
    seconds = question.seconds_per_graph
    return Costed(
        layout,
        row_cost(layout, question.traffic),
        time_cost(layout, question.traffic, question.times),
        pinned_rows(layout, question.pool),
        pinned_mib(layout, question.pool, question.memory),
        None if seconds is None else capture_seconds(layout, seconds),
    )


def costed_json(costed: Costed) -> dict[str, object]:
    """One costed layout under stable keys (documented in docs/cli.md)."""
    return {
        "layout": list(costed.layout),
        "padding_fraction": costed.rows.padding_fraction,
        "time_waste_fraction": costed.time.time_waste_fraction,
        "pinned_rows": costed.pinned_rows,
        "pinned_mib": costed.pinned_mib,
        "capture_seconds": costed.capture_s,
        "eager_steps_fraction": costed.rows.eager_steps / costed.rows.steps,
        "step_us": costed.time.step_us,
        "replay_saves_us": costed.time.replay_saves_us,
        "padding_costs_us": costed.time.padding_us,
        "gain_fraction": costed.time.gain_fraction,
    }


def as_json(
    question: Question, best: Costed, baselines: dict[str, Costed], check: HeldOutReport, setting: str | None
) -> dict[str, object]:
    """The answer under stable keys."""
    traffic = question.traffic
    return {
        **costed_json(best),
        "pool": question.pool,
        "max_batch": question.max_batch,
        "traffic": {
            "name": traffic.name,
            "origin": traffic.origin,
            "steps": traffic.steps,
            "mean": traffic.mean,
            "median": traffic.percentile(50),
            "p99": traffic.percentile(99),
            "max": traffic.largest,
        },
        "step_times": question.times.origin,
        "baselines": {name: costed_json(c) for name, c in baselines.items()},
        "held_out": {
            "note": check.note,
            "layout": list(check.layout),
            "padding_fraction": {e.traffic.name: e.rows.padding_fraction for e in check.evaluations},
        },
        "export": setting,
    }


def as_text(
    question: Question, best: Costed, baselines: dict[str, Costed], check: HeldOutReport, setting: str | None
) -> str:
    """The answer for people."""
    t = question.traffic
    time = best.time
    lines = [
        f"Traffic: {t.name} ({t.origin})",
        f"  {t.steps:,} decode steps; running batch: mean {t.mean:.1f}, median {t.percentile(50)}, "
        f"99th percentile {t.percentile(99)}, largest {t.largest}",
        f"Step times {question.times.origin}",
        "",
        layout_table(question, best, baselines),
        f"MiB: {question.memory.graph_mib:g} a graph and {question.memory.row_mib:g} a row (--graph-mib, --row-mib).",
        "",
        f"Best layout: {_sizes(best.layout)}",
        f"Against eager at the exact batch, a mean step: replay saves {time.replay_saves_us:,.0f} µs, padding costs "
        f"{time.padding_us:,.0f} µs, net {time.gain_fraction:.1%} of {time.eager_step_us:,.0f} µs.",
        f"Held out: {check.note}",
        *(_evaluation(e) for e in check.evaluations),
    ]
    if setting:
        lines += ["", "Paste:", setting]
    return "\n".join(lines)


def layout_table(question: Question, best: Costed, baselines: dict[str, Costed]) -> str:
    """The best layout above the engines' lists: padding, time waste, pinned memory."""
    header = ["layout", "sizes", "padding", "time waste", "pinned rows", f"{question.pool} MiB"]
    if question.seconds_per_graph is not None:
        header.append("capture s")
    if eager := any(c.rows.eager_steps for c in (best, *baselines.values())):
        header.append("eager steps")
    rows = []
    for name, c in (("best", best), *baselines.items()):
        row = [
            name,
            str(len(c.layout)),
            f"{c.rows.padding_fraction:.2%}",
            f"{c.time.time_waste_fraction:.2%}",
            f"{c.pinned_rows:,}",
            f"{c.pinned_mib:,.0f}",
        ]
        if c.capture_s is not None:
            row.append(f"{c.capture_s:,.1f}")
        if eager:
            row.append(f"{c.rows.eager_steps / c.rows.steps:.1%}")
        rows.append(row)
    return table(header, rows)


def _evaluation(e: Evaluation) -> str:
    eager = f", {e.rows.eager_steps / e.rows.steps:.1%} of the steps eager" if e.rows.eager_steps else ""
    kind = "held out" if e.held_out else "fitted to"
    return f"  {kind} {e.traffic.name}: {e.rows.padding_fraction:.1%} padding{eager}"


def _sizes(layout: BucketLayout) -> str:
    sizes = [str(size) for size in layout]
    if len(sizes) > SIZES_SHOWN:
        sizes = [*sizes[: SIZES_SHOWN - 3], "…", *sizes[-2:]]
    return " ".join(sizes)
