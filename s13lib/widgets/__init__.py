"""Live pictures for the notebooks: state, ipywidgets around the pure functions of ``s13lib.figures``.

The widgets are loaded when they are first used, so ``from s13lib.widgets import say`` does not import ipywidgets.
"""

from importlib import import_module

from s13lib.widgets.language import language, pick, say

PLACES = {
    "Action": "base",
    "Control": "base",
    "ControlPanel": "base",
    "Rendered": "base",
    "show_svg": "base",
    "simulator_widget": "simulator",
    "ledger_widget": "ledger",
    "buckets_widget": "buckets",
    "corruption_widget": "corruption",
    "quiz_widget": "quiz",
}
__all__ = ["language", "pick", "say", *PLACES]


def __getattr__(name: str) -> object:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
