"""The simulator: turn the knobs of one decode step and see who waits for whom. Modelled; the constants are shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape

from s13lib.figures.step import milliseconds, step_sentence, step_svg, step_table, waits
from s13lib.simulator import GPUS, MODELS, PRESETS, LaunchCosts, Setup, StepReport, crossover, simulate
from s13lib.widgets.base import Action, Control, ControlPanel, Rendered, State

UNFUSED, FUSED = 9, 4  # what the fusion switch means: the lesson's 9 kernels a layer, and the fewest possible
SEED = PRESETS["seed"]
LAUNCH_STOPS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0, 20.0, 30.0, 50.0, 100.0)
STAGES = (
    (15, "15: every operation alone", "15：每个操作各一个"),
    (11, "11: the lesson's own count", "11：课文的数法"),
    (9, "9: q, k and v in one", "9：q、k、v 合一"),
    (7, "7: four fusions", "7：四处融合"),
    (5, "5: norms and adds inside", "5：norm 与 add 并入"),
    (4, "4: the fewest possible", "4：最少"),
)
MODEL_OPTIONS = (
    ("seed", "the lesson's own law", "课文的简化模型"),
    *((name, name, name) for name in MODELS),
)
CONTROLS = (
    Control("layers", "layers", "层数", "slider", 32, low=1, high=80),
    Control("launch_us", "launch, µs", "启动开销，µs", "log-slider", 6.0, low=0.1, high=100.0, stops=LAUNCH_STOPS),
    Control("batch", "batch", "batch 大小", "log-slider", 1, low=1, high=1024),
    Control("context", "context", "上下文长度", "log-slider", 512, low=1, high=131072),
    Control("stage", "kernels/layer", "每层 kernel", "dropdown", UNFUSED, options=STAGES, width="330px"),
    Control("model", "model", "模型", "dropdown", "seed", options=MODEL_OPTIONS, width="330px"),
    Control("gpu", "GPU", "GPU", "dropdown", "h100", options=tuple((name, name, name) for name in GPUS), width="330px"),
    Control("fusion", "operator fusion", "算子融合", "toggle", False),
    Control("graph", "CUDA Graph", "CUDA Graph", "toggle", False),
    Control("done", "tasks", "任务", "hidden", ()),
)
START = {control.name: control.default for control in CONTROLS}


def simulator_widget(language: str | None = None, scale: float = 1.0) -> ControlPanel:
    """The simulator in its starting state: 32 layers, 9 kernels each, batch 1, 6 µs a launch, both switches off.

    Args:
        language: "en" or "zh"; the notebook's own if left out.
        scale: 1.5 or 2 for a projector.
    """
    again = Action("again", "start again", "从头开始", lambda state: dict(START))
    return ControlPanel(CONTROLS, render, language, scale, (again,), follow, meaningless, tasks_html)


def render(state: State, language: str) -> Rendered:
    """What the simulator shows for a state."""
    report = report_of(setup_of(state))
    return Rendered(step_svg(report, language), step_sentence(report, language), step_table(report, language))


def setup_of(state: State) -> Setup:
    """The step that a state describes. Layers alone, as in the lesson: no embedding, no language-model head."""
    seed = state["model"] == "seed"
    shape = SEED.shape if seed else MODELS[state["model"]]
    return Setup(
        shape=replace(shape, layers=state["layers"]),
        device=SEED.device if seed else GPUS[state["gpu"]],
        batch=state["batch"],
        context=SEED.context if seed else state["context"],
        stage=state["stage"],
        graph=state["graph"],
        costs=LaunchCosts(launch_us=state["launch_us"]),
        parts=("layers",),
        base_stage=UNFUSED,
    )


@lru_cache(maxsize=64)
def report_of(setup: Setup) -> StepReport:
    """``simulate``, remembered: picture and tasks ask for the same step."""
    return simulate(setup)


def meaningless(state: State) -> tuple[str, ...]:
    """The lesson's own law knows neither a context nor a GPU."""
    return ("context", "gpu") if state["model"] == "seed" else ()


def follow(state: State, changes: State) -> State:
    """What a change brings along: switch and stage agree, a model comes with its layers, tasks are ticked off."""
    more: State = {}
    if "stage" in changes:
        more["fusion"] = changes["stage"] < UNFUSED
    elif "fusion" in changes and changes["fusion"] != (state["stage"] < UNFUSED):
        more["stage"] = FUSED if changes["fusion"] else UNFUSED
    model = changes.get("model", state["model"])
    if model != state["model"] and "layers" not in changes:
        more["layers"] = (SEED.shape if model == "seed" else MODELS[model]).layers
    if "done" not in changes:
        more["done"] = progress({**state, **changes, **more})
    return more


# The two tasks. What was reached stays reached: "done" in the state holds it.


@dataclass(frozen=True)
class Task:
    """A task's text, and what is said when it is done, in both languages."""

    name: str
    ask: dict[str, str]
    found: dict[str, str]


TASKS = (
    Task(
        "flip",
        {
            "en": "Find the flip. Leave the batch at 1. Switch fusion on and look; then switch the graph on too. "
            "Which switch moves the bottleneck from the CPU to the GPU?",
            "zh": "找到翻转点。batch 保持 1，先打开算子融合看一看，再把 CUDA Graph 也打开："
            "瓶颈是在哪一步从 CPU 转到 GPU 的？",
        },
        {
            "en": "The graph. Fusion alone makes the step {fused} faster and leaves the CPU as the bottleneck; with "
            "the graph as well it is {both}, and the GPU is busy {busy} of the time.",
            "zh": "是 CUDA Graph。只有融合时快到 {fused}，瓶颈仍在 CPU；"
            "再加上 graph 是 {both}，GPU 有 {busy} 的时间在忙。",
        },
    ),
    Task(
        "batch",
        {
            "en": "Close the gaps with batch alone. Both switches off; raise only the batch until the GPU is the "
            "bottleneck.",
            "zh": "只靠 batch 合上空隙。两个开关都关着，只加大 batch，直到瓶颈转到 GPU。",
        },
        {
            "en": "At batch {batch} the kernels take {device}, their launches {host}. The smallest batch that does it "
            "here is {least}. {rest}",
            "zh": "batch 为 {batch} 时，kernel 要 {device}，启动要 {host}。"
            "在这组设置下，最小的这种 batch 是 {least}。{rest}",
        },
    ),
)
WORDS = {
    "en": {
        "title": "Two tasks (they check themselves)",
        "open": "open",
        "done": "done",
        "already": "With these settings the GPU is the bottleneck from the start: take the lesson's own law, or a "
        "smaller model.",
        "half": "Seen: with fusion alone the CPU is still the bottleneck ({host} against {device}). Now the graph.",
        "never": "With these settings no batch up to 4,096 closes the gaps: take a longer context.",
        "closed": "No gap is left after the first kernel.",
        "some": "{count} short waits stay ({time}): some kernels are still shorter than a launch.",
    },
    "zh": {
        "title": "两个任务（自动检查）",
        "open": "未完成",
        "done": "完成",
        "already": "在这组设置下，瓶颈一开始就在 GPU：请改用课文的简化模型，或更小的模型。",
        "half": "看到了：只有融合时，瓶颈仍在 CPU（{host} 对 {device}）。现在打开 graph。",
        "never": "在这组设置下，batch 到 4,096 也合不上空隙：请加大上下文长度。",
        "closed": "第一个 kernel 之后不再有空隙。",
        "some": "还剩 {count} 次短暂的等待（{time}）：有些 kernel 仍比一次启动短。",
    },
}


def progress(state: State) -> tuple[tuple[str, State], ...]:
    """``done`` after the step that ``state`` describes: (task, settings in which it was reached) pairs.

    The flip needs two sights: fusion alone, host-bound ("half"), then the graph as well, device-bound.
    """
    done = dict(state["done"])
    setup = setup_of(state)
    bound, fused = report_of(setup).bottleneck, state["stage"] < UNFUSED
    here = {name: value for name, value in state.items() if name != "done"}
    if setup.batch == 1 and fused and not setup.graph and bound == "host":
        done.setdefault("half", here)
    if setup.batch == 1 and fused and setup.graph and bound == "device" and "half" in done:
        done.setdefault("flip", here)
    if not fused and not setup.graph and setup.batch > 1 and bound == "device" and _starts_host_bound(setup):
        done.setdefault("batch", here)
    return tuple(done.items())


def _starts_host_bound(setup: Setup) -> bool:
    base = replace(setup, batch=1, stage=UNFUSED, graph=False)
    return report_of(base).bottleneck == "host"


@lru_cache(maxsize=64)
def _crossover(setup: Setup) -> int | None:
    return crossover(setup)


def tasks_html(state: State, language: str) -> str:
    """The tasks, what has been reached, and a hint where the settings stand in the way."""
    words, done = WORDS[language], dict(state["done"])
    setup = setup_of(state)
    items = ""
    for task in TASKS:
        reached = task.name in done
        remark = _found(task, done, language) if reached else _hint(task, setup, done, language)
        mark = f"☑ {words['done']}" if reached else f"☐ {words['open']}"
        items += f'<li style="margin:2px 0"><b>{mark}</b> {escape(task.ask[language])} <i>{escape(remark)}</i></li>'
    return (
        f'<div style="font-size:13px;line-height:1.4;max-width:700px"><b>{words["title"]}</b>'
        f'<ol style="margin:2px 0;padding-left:22px">{items}</ol></div>'
    )


def _found(task: Task, done: dict[str, State], language: str) -> str:
    words, found = WORDS[language], setup_of(done[task.name])
    report = report_of(found)
    if task.name == "flip":
        fused = report_of(replace(found, graph=False))
        return task.found[language].format(
            fused=f"{fused.speedup:.1f}×", both=f"{report.speedup:.1f}×", busy=f"{report.utilization:.0%}"
        )
    count, waited_us = waits(report)
    rest = words["some"].format(count=count, time=milliseconds(waited_us)) if count else words["closed"]
    return task.found[language].format(
        batch=found.batch,
        device=milliseconds(report.device_us),
        host=milliseconds(report.host_us),
        least=_crossover(replace(found, batch=1)),
        rest=rest,
    )


def _hint(task: Task, setup: Setup, done: dict[str, State], language: str) -> str:
    words = WORDS[language]
    if not _starts_host_bound(setup):
        return words["already"]
    if task.name == "flip" and "half" in done:
        fused = report_of(setup_of(done["half"]))
        return words["half"].format(host=milliseconds(fused.host_us), device=milliseconds(fused.device_us))
    if task.name == "batch" and _crossover(replace(setup, batch=1, stage=UNFUSED, graph=False)) is None:
        return words["never"]
    return ""
