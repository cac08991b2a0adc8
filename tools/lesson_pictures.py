"""One picture a lesson, for the READMEs' table: made by the functions that draw in the lessons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from s13lib.figures import Panel, timeline_svg
from s13lib.figures.cache_map import cache_map_svg
from s13lib.figures.quiz import progress_svg
from s13lib.profiling import TraceReport, telling_svg
from s13lib.profiling.recorded import recorded_trace
from s13lib.simulator import PRESETS, Setup, simulate_timeline
from s13lib.widgets import buckets, corruption, ledger, quiz

STEP = PRESETS["smollm2-360m-h100"]
WIDTH = 230  # pixels in the table; a click opens the lesson


def steps(*panels: tuple[str, str, Setup]) -> Callable[[str], str]:
    """A picture of modelled steps: a title in both languages and a setup for each."""

    def draw(language: str) -> str:
        chosen = [Panel((en, zh)[language == "zh"], simulate_timeline(setup)) for en, zh, setup in panels]
        return timeline_svg(chosen, language)

    return draw


def widget_picture(module: object, **changes: object) -> Callable[[str], str]:
    """What a widget shows in its first state, with ``changes``."""

    def draw(language: str) -> str:
        state = {control.name: control.default for control in module.CONTROLS}
        return module.render(state | changes, language).svg

    return draw


def corrupted_cache(language: str) -> str:
    """The cache of the corruption lab at the first alarm."""
    lab = corruption.run_lab()
    results = lab.results["naive"].steps
    record = results[corruption.next_alarm(results, 0) - 1]
    struck = {violation.slot for violation in record.violations}
    return cache_map_svg(record.detail.block_map, lab.block_size, struck, language)


def recorded(language: str) -> str:
    """The telling stretch of a recorded trace."""
    return telling_svg([TraceReport(recorded_trace("softgpu-bard-stage15-eager"))], language)


def questions(language: str) -> str:
    """The quiz at its first question."""
    return progress_svg(quiz.quiz_questions(), {}, 0, language)


PICTURES: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "00": (
        "gaps, then none",
        "先有空隙，后来没有",
        steps(
            ("Launched one by one", "逐个启动", STEP),
            ("One graph replay", "一次 graph 回放", replace(STEP, graph=True)),
        ),
    ),
    "01": (
        "a step with gaps",
        "有空隙的一步",
        steps(("9 kernels a layer, batch 1", "每层 9 个 kernel，batch 1", STEP)),
    ),
    "02": ("the fusion ledger", "融合账本", widget_picture(ledger, stage=7)),
    "03": (
        "one replay, no gaps",
        "一次回放，没有空隙",
        steps(("One graph replay", "一次 graph 回放", replace(STEP, graph=True))),
    ),
    "04": ("bucket layouts", "桶的布局", widget_picture(buckets)),
    "05": ("the cache by owner", "按主人看 cache", corrupted_cache),
    "06": (
        "batch 128: the gaps have closed",
        "batch 128：空隙合上了",
        steps(("Batch 128, launched one by one", "batch 128，逐个启动", replace(STEP, batch=128))),
    ),
    "07": ("a recorded trace", "录下的 trace", recorded),
    "08": ("six questions", "六道题", questions),
}
