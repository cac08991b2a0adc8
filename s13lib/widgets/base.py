"""The machinery that all widgets share: a table of controls, a state, and one pure function from state to picture.

A widget of the course is three things:

    CONTROLS = (
        Control("batch", "batch", "batch 大小", "log-slider", 1, low=1, high=1024),
        Control("launch_us", "launch, µs", "启动开销，µs", "slider", 6.0, low=0.5, high=20.0, step=0.5),
        Control("model", "model", "模型", "dropdown", "seed", options=(("seed", "the seed", "种子"), ...)),
        Control("graph", "graph", "graph", "toggle", False),
    )

    def render(state: dict, language: str) -> Rendered:     # pure: no widget in here, so tests call it directly
        return Rendered(svg, sentence, html_table(header, rows, caption))    # html_table: s13lib.figures.tables

    def my_widget(language=None, scale=1.0):
        return ControlPanel(CONTROLS, render, language, scale)

``ControlPanel`` shows the controls (each slider has a number box beside it), the picture, the sentence (announced to
screen readers) and the table. For programs and tests it has ``.state`` (a copy), ``.set(batch=128)`` (checks, then
redraws once), ``.rendered`` (what stands on the screen), ``.controls`` (name → the ipywidget that a user moves) and
``.boxes`` (name → number box). As the last expression of a cell it shows itself: live in Jupyter, and as its picture
in viewers that have no widgets.

Kinds of controls: ``slider`` (``low``, ``high``, ``step``; whole numbers if the default is one), ``log-slider``
(steps that grow with the value, or the given ``stops``; the number box takes any value between the bounds),
``dropdown`` and ``radio`` (``options`` of (value, English, Chinese)), ``toggle``, ``text`` (any string; ``render``
refuses a bad one), ``hidden`` (state without a control; any value).

Further arguments of ``ControlPanel``: ``actions`` are buttons, each with a function from the state to the changes that
a click makes; ``link(state, changes)`` may add changes that follow from others (fusion on → stage 4);
``disabled(state)`` names controls that mean nothing now; ``notes(state, language)`` gives HTML that is shown below the
controls.
A ``render`` that raises an ``InputError`` shows its sentence in place of the picture; ``.set`` raises it instead and
leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import ipywidgets as widgets
from IPython.display import display

from s13lib.errors import InputError, look_up, require
from s13lib.widgets.language import language as language_of

State = dict[str, Any]
Kind = Literal["slider", "log-slider", "dropdown", "radio", "toggle", "text", "hidden"]
KINDS = ("slider", "log-slider", "dropdown", "radio", "toggle", "text", "hidden")
CONTROL_WIDTH, BOX_WIDTH = "250px", "80px"
LABEL_WIDTH = "95px"


@dataclass(frozen=True)
class Rendered:
    """What a widget shows for one state: a picture, one sentence that says the same, and a table of its numbers."""

    svg: str
    sentence: str
    table_html: str = ""


@dataclass(frozen=True)
class Control:
    """One entry of the state and how a user changes it. Kinds and what each needs: see this module's docstring."""

    name: str
    en: str
    zh: str
    kind: Kind
    default: Any
    low: float | None = None
    high: float | None = None
    step: float = 1
    stops: tuple[float, ...] = ()
    options: tuple[tuple[Any, str, str], ...] = ()
    width: str = CONTROL_WIDTH

    def __post_init__(self) -> None:
        require(self.kind in KINDS, f"kind of control {self.name}", self.kind, f"one of {', '.join(KINDS)}")
        self.check(self.default)

    @property
    def whole(self) -> bool:
        """Whether the value is a whole number."""
        return isinstance(self.default, int)

    def label(self, language: str) -> str:
        """The control's name for people."""
        return self.zh if language == "zh" else self.en

    def check(self, value: Any) -> Any:
        """Return ``value`` as the state holds it; raise an ``InputError`` for a value that the control cannot have."""
        if self.kind in ("slider", "log-slider"):
            what = f"{'a whole number' if self.whole else 'a number'} from {self.low:,} to {self.high:,}"
            number = isinstance(value, int if self.whole else (int, float)) and not isinstance(value, bool)
            require(number and self.low <= value <= self.high, self.name, value, what)
            return value if self.whole else float(value)
        if self.kind in ("dropdown", "radio"):
            values = [v for v, _, _ in self.options]
            fits = any(v == value and type(v) is type(value) for v in values)
            require(fits, self.name, value, f"one of {', '.join(map(str, values))}")
        elif self.kind == "toggle":
            require(isinstance(value, bool), self.name, value, "True or False")
        elif self.kind == "text":
            require(isinstance(value, str), self.name, value, "a text")
        return value

    @property
    def halts(self) -> bool:
        """Whether the slider moves between stops, while its box takes any value. (A page rounds a plain slider's.)"""
        return self.kind == "log-slider" or (self.kind == "slider" and not (self.whole and self.step == 1))

    def all_stops(self) -> tuple[float, ...]:
        """Where a slider halts: the given stops, or every step; a log-slider at whole numbers about 9 % apart."""
        if self.stops:
            return self.stops
        if self.kind == "slider":
            count = round((self.high - self.low) / self.step)
            return tuple(round(self.low + at * self.step, 9) for at in range(count + 1))
        stops, power = [self.low], 0
        while (stop := round(2 ** (power / 8))) < self.high:
            if stop > stops[-1]:
                stops.append(stop)
            power += 1
        return (*stops, self.high)


@dataclass(frozen=True)
class Action:
    """A button: ``update`` takes the state and returns the changes that a click makes."""

    name: str
    en: str
    zh: str
    update: Callable[[State], State]


class ControlPanel:
    """Controls, a picture, a sentence and a table that follow one state. See this module's docstring."""

    def __init__(
        self,
        controls: Sequence[Control],
        render: Callable[[State, str], Rendered],
        language: str | None = None,
        scale: float = 1.0,
        actions: Sequence[Action] = (),
        link: Callable[[State, State], State] | None = None,
        disabled: Callable[[State], Iterable[str]] | None = None,
        notes: Callable[[State, str], str] | None = None,
    ) -> None:
        require(isinstance(scale, (int, float)) and 0.5 <= scale <= 4, "scale", scale, "from 0.5 to 4")
        self.language = language_of(language)
        self.table: dict[str, Control] = {c.name: c for c in controls}
        self._render, self._link, self._disabled, self._notes = render, link, disabled, notes
        self._state: State = {c.name: c.default for c in controls}
        self._quiet = False  # true while the panel itself moves its controls
        self.rendered = render(dict(self._state), self.language)

        self.controls: dict[str, widgets.Widget] = {}
        self.boxes: dict[str, widgets.Widget] = {}
        rows = [self._row(c) for c in controls if c.kind != "hidden"]
        self.buttons = {a.name: self._button(a) for a in actions}
        self.picture, self.sentence, self.numbers, self.note = (widgets.HTML() for _ in range(4))
        self.numbers.layout = widgets.Layout(max_width="100%", overflow="auto")  # a wide table scrolls, it is not cut
        row = widgets.Layout(flex_flow="row wrap", overflow="visible")
        above = [widgets.Box(rows, layout=row)]
        if self.buttons:
            above.append(widgets.Box(list(self.buttons.values()), layout=row))
        parts = [_style(scale), *above, self.note, self.picture, self.sentence, self.numbers]
        self.box = widgets.VBox(parts, layout=widgets.Layout(overflow="visible"))
        self.box.add_class(_scale_class(scale))
        self._show()

    @property
    def state(self) -> State:
        """A copy of the state: name → value."""
        return dict(self._state)

    def set(self, **changes: Any) -> None:
        """Change the state as a user would, all at once, and redraw once.

        Raises:
            InputError: an unknown name or a value that its control cannot have; then nothing has changed.
        """
        for name, value in changes.items():
            changes[name] = look_up(self.table, name, "control").check(value)
        before, drawn = dict(self._state), self.rendered
        self._change(changes)
        try:
            self.rendered = self._render(dict(self._state), self.language)
        except InputError:
            self._state, self.rendered = before, drawn
            raise
        self._show()

    def _change(self, changes: State) -> None:
        """Put changes, and what follows from them, into the state."""
        if self._link:
            changes = {**changes, **self._link(dict(self._state), dict(changes))}
        self._state.update({name: self.table[name].check(value) for name, value in changes.items()})

    def _from_user(self, changes: State) -> None:
        """A control moved. What cannot be drawn is said in place of the picture: an exception would go to a log."""
        if self._quiet:
            return
        try:
            self._change(changes)
            self.rendered = self._render(dict(self._state), self.language)
        except InputError as error:
            self.rendered = Rendered("", str(error))
        self._show()

    def _show(self) -> None:
        """Bring every control, the picture, the sentence and the table to the state."""
        self._quiet = True
        try:
            for name, value in self._state.items():
                self._place(self.table[name], value)
            off = set(self._disabled(dict(self._state))) if self._disabled else set()
            for part in (self.controls, self.boxes):
                for name, widget in part.items():
                    widget.disabled = name in off
        finally:
            self._quiet = False
        self.note.value = self._notes(dict(self._state), self.language) if self._notes else ""
        self.picture.value = self.rendered.svg
        self.sentence.value = (
            f'<p role="status" aria-live="polite" style="font-size:14px;line-height:1.4;margin:4px 0">'
            f"{escape(self.rendered.sentence)}</p>"
        )
        self.numbers.value = self.rendered.table_html

    def _place(self, control: Control, value: Any) -> None:
        if control.kind == "hidden":
            return
        if control.name in self.boxes:
            self.boxes[control.name].value = value
        widget = self.controls[control.name]
        if control.halts:
            stops = control.all_stops()
            value = min(range(len(stops)), key=lambda at: abs(stops[at] - value))
        widget.value = value

    def _row(self, control: Control) -> widgets.Widget:
        label = control.label(self.language)
        common = {
            "description": label,
            "layout": widgets.Layout(width=control.width),
            "style": {"description_width": LABEL_WIDTH},
        }
        name, kind = control.name, control.kind
        if control.halts:
            widget = widgets.IntSlider(0, min=0, max=len(control.all_stops()) - 1, readout=False, **common)
        elif kind == "slider":
            widget = widgets.IntSlider(control.default, min=control.low, max=control.high, readout=False, **common)
        elif kind in ("dropdown", "radio"):
            chinese = self.language == "zh"
            options = [(zh if chinese else en, value) for value, en, zh in control.options]
            maker = widgets.Dropdown if kind == "dropdown" else widgets.RadioButtons
            widget = maker(options=options, value=control.default, **common)
        elif kind == "toggle":
            widget = widgets.Checkbox(control.default, description=label, indent=False)
            widget.layout = widgets.Layout(width="auto", margin="2px 12px")
        else:
            widget = widgets.Text(control.default, continuous_update=False, **common)
        self.controls[name] = widget

        def moved(change: dict[str, Any]) -> None:
            value = change["new"]
            self._from_user({name: control.all_stops()[value] if control.halts else value})

        widget.observe(moved, "value")
        if kind not in ("slider", "log-slider"):
            return widget
        maker = widgets.BoundedIntText if control.whole else widgets.BoundedFloatText
        box = maker(control.default, min=control.low, max=control.high, step=control.step, tooltip=label)
        box.layout = widgets.Layout(width=BOX_WIDTH)
        box.observe(lambda change: self._from_user({name: change["new"]}), "value")
        self.boxes[name] = box
        return widgets.HBox([widget, box], layout=widgets.Layout(overflow="visible"))

    def _button(self, action: Action) -> widgets.Button:
        button = widgets.Button(description=action.zh if self.language == "zh" else action.en)
        button.layout = widgets.Layout(width="auto")
        button.on_click(lambda _: self._from_user(action.update(dict(self._state))))
        return button

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Live where widgets live, else the picture, else the sentence."""
        view = "application/vnd.jupyter.widget-view+json"
        live = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {view: live, "image/svg+xml": self.rendered.svg, "text/plain": self.rendered.sentence}


def _scale_class(scale: float) -> str:
    return f"s13-scale-{round(scale * 100)}"


def _style(scale: float) -> widgets.HTML:
    """The projector size: everything grows, the controls too."""
    rule = f"<style>.{_scale_class(scale)} {{ zoom: {scale:g}; }}</style>"
    return widgets.HTML(rule, layout=widgets.Layout(display="none"))


def show_svg(picture: str, text: str = "") -> None:
    """Display an SVG string below the cell: inline, with its hover titles, where HTML is shown, else as a picture.

    Args:
        picture: one of ``s13lib.figures``.
        text: what is said where no picture can be shown.
    """
    require(picture.lstrip().startswith("<svg"), "picture", picture, "an SVG document")
    display({"text/html": picture, "image/svg+xml": picture, "text/plain": text or "(picture)"}, raw=True)
