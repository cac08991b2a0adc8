"""Buckets: choose the captured sizes for a traffic, and see what they waste and pin beside the best that exist."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from s13lib.buckets import (
    PRESETS,
    WORKLOADS,
    BucketLayout,
    MemoryModel,
    RowCost,
    StepTimes,
    TimeCost,
    Traffic,
    best_layout,
    generate,
    pinned_mib,
    pinned_rows,
    preset,
    row_cost,
    time_cost,
)
from s13lib.errors import InputError, require
from s13lib.figures.gauges import stack_svg, tiles_svg
from s13lib.figures.layout import LayoutPanel, layout_svg
from s13lib.figures.tables import html_table
from s13lib.progress import Progress
from s13lib.simulator import Setup, step_time_curve
from s13lib.widgets.base import Action, Control, ControlPanel, Rendered, State

MAX_BATCH = 256
ENGINE_STAGE = 7  # about what serving engines fuse
BUSY = 4.0
OWN = "own"
# name → workload, and its load; None: so many requests that the engine is always full
TRAFFICS: dict[str, tuple[str, float | None]] = {
    "chat": ("chat", 1.0),
    "code": ("code", 1.0),
    "chat-busy": ("chat", BUSY),
    "chat-full": ("chat", None),
}
TRAFFIC_NAMES = (
    ("chat", "chat", "聊天"),
    ("code", "code completion", "代码补全"),
    ("chat-busy", f"chat, {BUSY:g} times the requests", f"聊天，请求量的 {BUSY:g} 倍"),
    ("chat-full", "chat, always full", "聊天，始终满载"),
)
LAYOUT_NAMES = (*((name, name, name) for name in PRESETS), (OWN, "your own", "自己的"))
POOL_NAMES = (
    ("shared", "one shared pool", "共享一个内存池"),
    ("private", "a pool for each graph", "每张 graph 一个内存池"),
)
SMALLEST_MIB = MemoryModel().shared_mib(BucketLayout([MAX_BATCH]))
BUDGETS_MIB = (150.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 800.0, 1000.0, 1500.0, 2500.0)


def sizes_text(layout: BucketLayout) -> str:
    """A layout as it stands in the text box."""
    return ", ".join(map(str, layout))


CONTROLS = (
    Control("traffic", "traffic", "流量", "dropdown", "chat", options=TRAFFIC_NAMES, width="330px"),
    Control("layout", "start from", "布局", "dropdown", "seed", options=LAYOUT_NAMES),
    Control("sizes", "your sizes", "你的尺寸", "text", sizes_text(preset("seed")), width="660px"),
    Control("pool", "pool", "内存池", "dropdown", "shared", options=POOL_NAMES, width="330px"),
    Control(
        "budget_mib", "budget, MiB", "预算，MiB", "log-slider", 300.0, low=SMALLEST_MIB, high=2500.0, stops=BUDGETS_MIB
    ),
)
WORDS = {
    "en": {
        "rows": "padding rows → best",
        "time": "padding time → best",
        "private": "private pools → best",
        "shared": "shared pool → best",
        "yours": "yours",
        "best": "best for the budget",
        "equal": "best of as many sizes",
        "header": (
            "layout",
            "sizes",
            "padding rows",
            "padding time",
            "mean step, ms",
            "eager steps",
            "rows pinned, private / shared",
            "MiB pinned, private / shared",
        ),
        "caption": "Modelled. Mean batch {mean:.1f}; budget {budget:g} MiB with {pool}",
        "pool_private": "a pool for each graph",
        "pool_shared": "one shared pool",
        "sentence": (
            "Of the rows that your {sizes} sizes compute, {rows:.1%} are padding, and {time:.1%} of the time; "
            "they pin {private:,} rows with private pools and {shared:,} with a shared one. With {pool} they need "
            "{need:,.0f} MiB, {fits} the budget of {budget:,g} MiB, for which the best {best} sizes leave "
            "{best_rows:.1%} of the rows and {best_time:.1%} of the time as padding.{eager}"
        ),
        "within": "within",
        "over": "over",
        "eager": " {:,} of {:,} steps are above your largest size and run eager.",
        "origin": "traffic {}; step times {}",
    },
    "zh": {
        "rows": "补齐的行 → 最优",
        "time": "补齐的时间 → 最优",
        "private": "各用各的池 → 最优",
        "shared": "共享一个池 → 最优",
        "yours": "你的布局",
        "best": "预算内最优",
        "equal": "同样个数的最优",
        "header": (
            "布局",
            "尺寸个数",
            "补齐的行",
            "补齐的时间",
            "平均一步，ms",
            "eager 步",
            "占住的行，各自 / 共享",
            "占住的 MiB，各自 / 共享",
        ),
        "caption": "模型推算。平均 batch {mean:.1f}；预算 {budget:g} MiB，{pool}",
        "pool_private": "每张 graph 一个内存池",
        "pool_shared": "共享一个内存池",
        "sentence": (
            "你的 {sizes} 个尺寸所计算的行里，补齐占 {rows:.1%}，占时间的 {time:.1%}；每张 graph 各用一个内存池时"
            "占住 {private:,} 行，共享一个时占住 {shared:,} 行。{pool}时需要 {need:,.0f} MiB，"
            "{fits}预算 {budget:,g} MiB；在这个预算下，"
            "最优的 {best} 个尺寸只让补齐占 {best_rows:.1%} 的行、{best_time:.1%} 的时间。{eager}"
        ),
        "within": "没有超出",
        "over": "超出了",
        "eager": "{1:,} 步里有 {0:,} 步超过了你的最大尺寸，走 eager。",
        "origin": "流量为{}；步时间为{}",
    },
}


@dataclass(frozen=True)
class Costed:
    """A layout and what it costs on a traffic."""

    layout: BucketLayout
    rows: RowCost
    time: TimeCost


def buckets_widget(language: str | None = None, scale: float = 1.0) -> ControlPanel:
    """Captured sizes for a traffic: yours, and the best for a memory budget.

    The best layouts at the slider's stops are computed first, in a few seconds, so that a move of it stays quick.

    Args:
        language: "en" or "zh"; the notebook's own if left out.
        scale: 1.5 or 2 for a projector.
    """
    with Progress("best layouts for every budget", len(TRAFFICS) * len(POOL_NAMES) * len(BUDGETS_MIB)) as bar:
        for name in TRAFFICS:
            for pool, _, _ in POOL_NAMES:
                for budget_mib in BUDGETS_MIB:
                    best_for_budget(name, pool, budget_mib)
                    bar.update()
    take = Action("take", "take the best sizes", "采用最优的尺寸", lambda state: {"sizes": sizes_text(best_of(state))})
    return ControlPanel(CONTROLS, render, language, scale, (take,), follow)


def follow(state: State, changes: State) -> State:
    """A preset fills the text box in; sizes that somebody typed are a preset's or his own."""
    if "sizes" in changes:
        try:
            layout = layout_of(changes["sizes"])
        except InputError:
            return {"layout": OWN}
        return {"layout": next((name for name in PRESETS if preset(name, MAX_BATCH) == layout), OWN)}
    name = changes.get("layout", OWN)
    return {} if name == OWN or name not in PRESETS else {"sizes": sizes_text(preset(name, MAX_BATCH))}


def layout_of(text: str) -> BucketLayout:
    """The sizes in the text box: whole numbers with commas or spaces between them, in any order.

    Raises:
        InputError: something that is no whole number from 1 to 256, or nothing at all.
    """
    words = [word for word in re.split(r"[\s,，、;；]+", text) if word]
    require(bool(words), "your sizes", text, f"whole numbers from 1 to {MAX_BATCH}, such as 1, 2, 4, 8")
    sizes = []
    for word in words:
        size = int(word) if word.isascii() and word.isdigit() and len(word) < 6 else None
        require(size is not None and 1 <= size <= MAX_BATCH, "a size", word, f"a whole number from 1 to {MAX_BATCH}")
        sizes.append(size)
    return BucketLayout(sizes)


@lru_cache(maxsize=8)
def traffic_named(name: str) -> Traffic:
    """The traffic of a name in the list."""
    workload, load = TRAFFICS[name]
    return generate(workload, WORKLOADS[workload].full_load(MAX_BATCH) if load is None else load, MAX_BATCH)


@lru_cache(maxsize=1)
def step_times() -> StepTimes:
    """Modelled step times of every batch: what the simulator says for its standard model."""
    setup = Setup(stage=ENGINE_STAGE)
    graph_us, eager_us = step_time_curve(setup, MAX_BATCH)
    return StepTimes(np.array(graph_us), np.array(eager_us), f"modelled: {setup.provenance}, stage {setup.stage}")


@lru_cache(maxsize=512)
def best_for_budget(traffic: str, pool: str, budget_mib: float) -> BucketLayout:
    """The layout with the fewest padding rows that pins at most so much."""
    return best_layout(traffic_named(traffic), MAX_BATCH, budget=budget_mib, pool=pool)


@lru_cache(maxsize=512)
def best_of_count(traffic: str, count: int) -> BucketLayout:
    """The layout with the fewest padding rows among those of at most so many sizes."""
    return best_layout(traffic_named(traffic), MAX_BATCH, count=count)


def best_of(state: State) -> BucketLayout:
    """The best layout for a state's traffic, pool and budget."""
    return best_for_budget(state["traffic"], state["pool"], state["budget_mib"])


@lru_cache(maxsize=512)
def cost(traffic: str, layout: BucketLayout) -> Costed:
    """What a layout costs on a traffic."""
    served = traffic_named(traffic)
    return Costed(layout, row_cost(layout, served), time_cost(layout, served, step_times()))


def render(state: State, language: str) -> Rendered:
    """What the widget shows for a state."""
    words, name = WORDS[language], state["traffic"]
    layout = layout_of(state["sizes"])
    yours, best = cost(name, layout), cost(name, best_of(state))
    equal = cost(name, best_of_count(name, len(layout)))
    traffic = traffic_named(name)
    said = {value: (en, zh) for value, en, zh in TRAFFIC_NAMES}[name][language == "zh"]
    origin = words["origin"].format(traffic.origin, step_times().origin)
    if language == "zh":
        origin = origin.replace("modelled: ", "模型推算：")

    def mib(pool: str) -> str:
        return " → ".join(f"{pinned_mib(costed.layout, pool):,.0f}" for costed in (yours, best)) + " MiB"

    tiles = [
        (words["rows"], f"{yours.rows.padding_fraction:.1%} → {best.rows.padding_fraction:.1%}"),
        (words["time"], f"{yours.time.time_waste_fraction:.1%} → {best.time.time_waste_fraction:.1%}"),
        *((words[pool], mib(pool)) for pool in ("private", "shared")),
    ]
    panels = [LayoutPanel(words[key], tuple(costed.layout)) for key, costed in (("yours", yours), ("best", best))]
    pictures = [
        tiles_svg(tiles),
        layout_svg(traffic.counts.tolist(), panels, language, origin=origin),
    ]
    sentence = _sentence(words, state, yours, best)
    rows = [_row(words[key], costed) for key, costed in (("yours", yours), ("best", best), ("equal", equal))]
    pool = words[f"pool_{state['pool']}"]
    caption = words["caption"].format(mean=traffic.mean, budget=state["budget_mib"], pool=pool)
    return Rendered(stack_svg(pictures, 700, said, sentence), sentence, html_table(words["header"], rows, caption))


def _sentence(words: dict[str, str], state: State, yours: Costed, best: Costed) -> str:
    need = pinned_mib(yours.layout, state["pool"])
    return words["sentence"].format(
        sizes=len(yours.layout),
        rows=yours.rows.padding_fraction,
        time=yours.time.time_waste_fraction,
        private=pinned_rows(yours.layout, "private"),
        shared=pinned_rows(yours.layout, "shared"),
        pool=words[f"pool_{state['pool']}"],
        need=need,
        fits=words["within" if need <= state["budget_mib"] else "over"],
        budget=state["budget_mib"],
        best=len(best.layout),
        best_rows=best.rows.padding_fraction,
        best_time=best.time.time_waste_fraction,
        eager=words["eager"].format(yours.rows.eager_steps, yours.rows.steps) if yours.rows.eager_steps else "",
    )


def _row(name: str, costed: Costed) -> list[str]:
    rows, time, layout = costed.rows, costed.time, costed.layout
    return [
        name,
        str(len(layout)),
        f"{rows.padding_fraction:.1%}",
        f"{time.time_waste_fraction:.1%}",
        f"{time.step_us / 1000:.3f}",
        f"{rows.eager_steps / rows.steps:.2%}",
        f"{pinned_rows(layout, 'private'):,} / {pinned_rows(layout, 'shared'):,}",
        f"{pinned_mib(layout, 'private'):,.0f} / {pinned_mib(layout, 'shared'):,.0f}",
    ]
