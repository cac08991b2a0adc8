"""The machinery of widgets: language, controls that agree with the state, refusals, and what viewers get."""

import json

import pytest

from s13lib.errors import InputError
from s13lib.widgets import Action, Control, ControlPanel, Rendered, language, pick, say, show_svg

CONTROLS = (
    Control("size", "size", "大小", "slider", 4, low=1, high=9),
    Control("share", "share", "比例", "slider", 0.5, low=0.0, high=1.0, step=0.25),
    Control("batch", "batch", "batch 大小", "log-slider", 1, low=1, high=1000),
    Control("kind", "kind", "种类", "dropdown", "a", options=(("a", "A", "甲"), ("b", "B", "乙"))),
    Control("way", "way", "方式", "radio", 1, options=((1, "one", "一"), (2, "two", "二"))),
    Control("on", "on", "开关", "toggle", False),
    Control("words", "words", "文字", "text", "x"),
    Control("memory", "memory", "记忆", "hidden", ()),
)


class Recorder:
    """A render that remembers every state that it was asked for."""

    def __init__(self):
        self.states = []

    def __call__(self, state, language):
        if state["words"] == "bad":
            raise InputError("words is 'bad': must be good.")
        self.states.append(state)
        seen = json.dumps({**state, "language": language}, ensure_ascii=False)
        return Rendered(f"<svg><title>{len(self.states)}</title></svg>", seen, f"<table>{seen}</table>")


@pytest.fixture
def render():
    return Recorder()


@pytest.mark.parametrize(
    ("variable", "folder", "wanted", "expected"),
    [
        (None, "elsewhere", None, "en"),
        (None, "zh", None, "zh"),
        (None, "en", None, "en"),
        ("zh", "en", None, "zh"),
        ("", "zh", None, "zh"),
        ("zh", "zh", "en", "en"),
    ],
)
def test_language_is_argument_then_variable_then_folder(monkeypatch, tmp_path, variable, folder, wanted, expected):
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.delenv("S13_LANGUAGE", raising=False)
    if variable is not None:
        monkeypatch.setenv("S13_LANGUAGE", variable)
    assert language(wanted) == expected
    assert pick("yes", "是", wanted) == {"en": "yes", "zh": "是"}[expected]


def test_unknown_language_is_refused(monkeypatch):
    monkeypatch.setenv("S13_LANGUAGE", "fr")
    with pytest.raises(InputError, match="S13_LANGUAGE"):
        language()
    with pytest.raises(InputError, match="language: unknown name 'de'"):
        language("de")


def test_say_prints_one_of_both(monkeypatch, capsys):
    monkeypatch.setenv("S13_LANGUAGE", "zh")
    say(f"{1 + 1} kernels", f"{1 + 1} 个 kernel")
    assert capsys.readouterr().out == "2 个 kernel\n"


def test_starts_with_the_defaults(render):
    panel = ControlPanel(CONTROLS, render, "en")
    assert panel.state == {c.name: c.default for c in CONTROLS}
    assert render.states == [panel.state]
    assert '"language": "en"' in panel.rendered.sentence
    assert "memory" not in panel.controls
    assert set(panel.boxes) == {"size", "share", "batch"}


MOVES = [
    ("size", 7, "controls", 7),
    ("size", 3, "boxes", 3),
    ("share", 3, "controls", 0.75),  # a slider of steps halts at its stops: this is the fourth
    ("share", 0.83, "boxes", 0.83),  # and its box takes any value
    ("share", 0.3, "boxes", 0.3),
    ("batch", 30, "boxes", 30),
    ("kind", "b", "controls", "b"),
    ("way", 2, "controls", 2),
    ("on", True, "controls", True),
    ("words", "y", "controls", "y"),
]


@pytest.mark.parametrize(("name", "value", "part", "expected"), MOVES)
def test_every_control_redraws_once_and_reaches_state_picture_and_sentence(render, name, value, part, expected):
    panel = ControlPanel(CONTROLS, render, "en")
    getattr(panel, part)[name].value = value
    assert panel.state == {**{c.name: c.default for c in CONTROLS}, name: expected}
    assert len(render.states) == 2
    assert render.states[-1] == panel.state
    assert panel.picture.value == panel.rendered.svg == "<svg><title>2</title></svg>"
    assert panel.numbers.value == panel.rendered.table_html
    assert 'aria-live="polite"' in panel.sentence.value
    assert f"&quot;{name}&quot;" in panel.sentence.value  # the sentence is escaped


def test_slider_and_number_box_follow_each_other(render):
    panel = ControlPanel(CONTROLS, render, "en")
    panel.controls["size"].value = 8
    assert panel.boxes["size"].value == 8
    panel.boxes["size"].value = 2
    assert panel.controls["size"].value == 2
    stops = CONTROLS[2].all_stops()
    panel.controls["batch"].value = stops.index(128)
    assert panel.state["batch"] == panel.boxes["batch"].value == 128
    panel.boxes["batch"].value = 130  # no stop of the slider: it stands at the nearest, the state keeps 130
    assert panel.state["batch"] == panel.boxes["batch"].value == 130
    assert stops[panel.controls["batch"].value] == 128


def test_a_number_box_stays_within_its_bounds(render):
    panel = ControlPanel(CONTROLS, render, "en")
    panel.boxes["batch"].value = 5000
    assert panel.state["batch"] == 1000
    panel.boxes["batch"].value = -3
    assert panel.state["batch"] == 1


def test_stops_grow_and_meet_bounds_and_powers_of_two():
    stops = CONTROLS[2].all_stops()
    assert stops[0] == 1
    assert stops[-1] == 1000
    assert list(stops) == sorted(set(stops))
    assert {2, 4, 8, 16, 32, 64, 128, 256, 512} <= set(stops)


def test_last_value_wins_after_many_moves(render):
    panel = ControlPanel(CONTROLS, render, "en")
    for value in [*range(1, 10)] * 4:
        panel.controls["size"].value = value
    assert panel.state["size"] == 9
    assert render.states[-1]["size"] == 9
    assert f"<title>{len(render.states)}</title>" in panel.picture.value


def test_set_changes_all_at_once(render):
    panel = ControlPanel(CONTROLS, render, "en")
    panel.set(size=9, share=1, batch=77, kind="b", way=2, on=True, words="z", memory=(1, 2))
    assert len(render.states) == 2
    assert panel.state["memory"] == (1, 2)
    assert panel.controls["kind"].value == "b"
    assert panel.controls["way"].value == 2
    assert panel.controls["on"].value is True
    assert panel.controls["words"].value == "z"
    assert panel.boxes["batch"].value == 77
    panel.state["size"] = 1  # a copy
    assert panel.state["size"] == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "size is 0: must be a whole number from 1 to 9"),
        ({"size": 2.5}, "size is 2.5"),
        ({"size": True}, "size is True"),
        ({"share": 1.1}, "share is 1.1: must be a number from 0.0 to 1.0"),
        ({"share": float("nan")}, "share is nan"),
        ({"batch": "1"}, "batch is '1'"),
        ({"kind": "c"}, "kind is 'c': must be one of a, b"),
        ({"way": True}, "way is True"),  # True == 1, but is no choice
        ({"on": 1}, "on is 1: must be True or False"),
        ({"words": 3}, "words is 3: must be a text"),
        ({"siz": 3}, "unknown name 'siz'; did you mean size"),
        ({"size": 3, "kind": "c"}, "kind is 'c'"),
        ({"size": 3, "words": "bad"}, "words is 'bad': must be good"),
    ],
)
def test_set_refuses_and_leaves_everything(render, changes, message):
    panel = ControlPanel(CONTROLS, render, "en")
    before, shown = panel.state, panel.rendered
    with pytest.raises(InputError, match=message):
        panel.set(**changes)
    assert panel.state == before
    assert panel.rendered == shown
    assert panel.controls["size"].value == 4
    panel.set(size=5)
    assert panel.state["size"] == 5


def test_a_bad_text_is_said_in_place_of_the_picture_and_a_good_one_comes_back(render):
    panel = ControlPanel(CONTROLS, render, "en")
    panel.controls["words"].value = "bad"
    assert panel.picture.value == ""
    assert panel.numbers.value == ""
    assert "must be good" in panel.sentence.value
    panel.controls["words"].value = "good"
    assert panel.picture.value.startswith("<svg>")
    assert panel.rendered.sentence.startswith("{")


def test_link_disabled_notes_and_actions(render):
    panel = ControlPanel(
        CONTROLS,
        render,
        "zh",
        actions=(Action("more", "more", "更多", lambda state: {"size": state["size"] + 1}),),
        link=lambda state, changes: {"batch": 10 * changes["size"]} if "size" in changes else {},
        disabled=lambda state: ("share",) if state["on"] else (),
        notes=lambda state, language: f"<b>{language} {state['size']}</b>",
    )
    assert panel.buttons["more"].description == "更多"
    panel.buttons["more"].click()
    assert (panel.state["size"], panel.state["batch"]) == (5, 50)
    assert panel.note.value == "<b>zh 5</b>"
    assert not panel.controls["share"].disabled
    panel.set(on=True)
    assert panel.controls["share"].disabled
    assert panel.boxes["share"].disabled
    assert not panel.controls["size"].disabled


@pytest.mark.parametrize("language", ["en", "zh"])
def test_labels_are_in_the_language(render, language):
    panel = ControlPanel(CONTROLS, render, language)
    for control in CONTROLS[:-1]:
        assert panel.controls[control.name].description == control.label(language)
    assert [label for label, _ in panel.controls["kind"].options] == {"en": ["A", "B"], "zh": ["甲", "乙"]}[language]
    assert panel.boxes["size"].tooltip == {"en": "size", "zh": "大小"}[language]


def test_one_bundle_for_live_and_static_viewers(render):
    panel = ControlPanel(CONTROLS, render, "en")
    panel.set(size=9)
    bundle = panel._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/plain"}
    assert bundle["image/svg+xml"] == panel.rendered.svg
    assert bundle["text/plain"] == panel.rendered.sentence
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.box.model_id


def test_projector_size_and_its_bounds(render):
    panel = ControlPanel(CONTROLS, render, "en", scale=1.5)
    assert "s13-scale-150" in panel.box._dom_classes
    assert ".s13-scale-150 { zoom: 1.5; }" in panel.box.children[0].value
    for scale in (0, 5, "2"):
        with pytest.raises(InputError, match="scale"):
            ControlPanel(CONTROLS, render, "en", scale=scale)


def test_a_control_with_a_bad_default_or_kind_is_refused():
    with pytest.raises(InputError, match="size is 10"):
        Control("size", "size", "大小", "slider", 10, low=1, high=9)
    with pytest.raises(InputError, match="kind of control size is 'dial'"):
        Control("size", "size", "大小", "dial", 1)


def test_show_svg_shows_a_picture_in_every_viewer(monkeypatch):
    shown = []
    monkeypatch.setattr("s13lib.widgets.base.display", lambda data, raw: shown.append((data, raw)))
    show_svg("<svg/>", "nothing")
    assert shown == [({"text/html": "<svg/>", "image/svg+xml": "<svg/>", "text/plain": "nothing"}, True)]
    with pytest.raises(InputError, match="an SVG document"):
        show_svg("<p>no</p>")
