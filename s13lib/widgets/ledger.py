"""The fusion ledger: step from 15 kernels a layer to 4 and see what each stage merges and what it saves."""

from __future__ import annotations

from dataclasses import replace

from s13lib.figures.ledger import ledger_sentence, ledger_svg, ledger_table
from s13lib.simulator import GPUS, MODELS, PRESETS, STAGES, LaunchCosts, Setup
from s13lib.widgets.base import Action, Control, ControlPanel, Rendered, State

START = PRESETS["smollm2-360m-h100"]  # the physical model behind the lesson's numbers
STAGE_OPTIONS = tuple((stage, f"{stage} kernels a layer", f"每层 {stage} 个 kernel") for stage in STAGES)
CONTROLS = (
    Control("stage", "stage", "阶段", "dropdown", 15, options=STAGE_OPTIONS),
    Control("model", "model", "模型", "dropdown", START.shape.name, options=tuple((n, n, n) for n in MODELS)),
    Control("gpu", "GPU", "GPU", "dropdown", START.device.name, options=tuple((n, n, n) for n in GPUS)),
    Control("batch", "batch", "batch 大小", "log-slider", 1, low=1, high=1024),
    Control("context", "context", "上下文长度", "log-slider", 512, low=1, high=131072),
    Control("launch_us", "launch, µs", "启动开销，µs", "slider", 6.0, low=0.5, high=20.0, step=0.5),
)


def ledger_widget(language: str | None = None, scale: float = 1.0) -> ControlPanel:
    """The fusion ledger, starting with 15 kernels a layer.

    Args:
        language: "en" or "zh"; the notebook's own if left out.
        scale: 1.5 or 2 for a projector.
    """
    actions = (
        Action("fuse", "fuse more →", "再融合 →", lambda state: _move(state, +1)),
        Action("split", "← take apart", "← 拆开", lambda state: _move(state, -1)),
    )
    return ControlPanel(CONTROLS, render, language, scale, actions)


def _move(state: State, by: int) -> State:
    """The next or previous stage; the ends stay where they are."""
    order = list(STAGES)
    return {"stage": order[min(max(order.index(state["stage"]) + by, 0), len(order) - 1)]}


def render(state: State, language: str) -> Rendered:
    """What the ledger shows for a state."""
    setup = setup_of(state)
    return Rendered(ledger_svg(setup, language), ledger_sentence(setup, language), ledger_table(setup, language))


def setup_of(state: State) -> Setup:
    """The step that a state describes; layers alone, since only layers are fused."""
    return replace(
        START,
        shape=MODELS[state["model"]],
        device=GPUS[state["gpu"]],
        stage=state["stage"],
        batch=state["batch"],
        context=state["context"],
        costs=LaunchCosts(launch_us=state["launch_us"]),
    )
