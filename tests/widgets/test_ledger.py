"""The ledger widget steps through the stages and shows the ledger of its state."""

from dataclasses import replace

import pytest

from s13lib.errors import InputError
from s13lib.figures.ledger import ledger_sentence, ledger_svg, ledger_table
from s13lib.simulator import GPUS, MODELS, PRESETS, STAGES, LaunchCosts
from s13lib.widgets import ledger_widget


def expected(state, language):
    setup = replace(
        PRESETS["smollm2-360m-h100"],
        shape=MODELS[state["model"]],
        device=GPUS[state["gpu"]],
        stage=state["stage"],
        batch=state["batch"],
        context=state["context"],
        costs=LaunchCosts(launch_us=state["launch_us"]),
    )
    return ledger_svg(setup, language), ledger_sentence(setup, language), ledger_table(setup, language)


def shown(panel):
    return panel.rendered.svg, panel.rendered.sentence, panel.rendered.table_html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_buttons_step_through_all_stages_and_stop_at_the_ends(language):
    panel = ledger_widget(language)
    seen = [panel.state["stage"]]
    for _ in range(6):
        panel.buttons["fuse"].click()
        assert shown(panel) == expected(panel.state, language)
        seen.append(panel.state["stage"])
    assert seen == [15, 11, 9, 7, 5, 4, 4]
    for _ in range(6):
        panel.buttons["split"].click()
    assert panel.state["stage"] == panel.controls["stage"].value == 15


MOVES = [
    *(("stage", "controls", s) for s in STAGES if s != 15),
    *(("model", "controls", m) for m in MODELS if m != "smollm2-360m"),
    *(("gpu", "controls", g) for g in GPUS if g != "h100"),
    ("batch", "boxes", 37),
    ("batch", "controls", 20),
    ("context", "boxes", 9000),
    ("launch_us", "controls", 10.0),
    ("launch_us", "boxes", 0.7),
]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("name", "part", "value"), MOVES)
def test_every_control(language, name, part, value):
    panel = ledger_widget(language)
    before = panel.state
    getattr(panel, part)[name].value = value
    assert panel.state != before
    assert {k: v for k, v in panel.state.items() if k != name} == {k: v for k, v in before.items() if k != name}
    assert shown(panel) == expected(panel.state, language)
    assert panel.picture.value == panel.rendered.svg


@pytest.mark.parametrize("changes", [{"stage": 8}, {"batch": 0}, {"model": "x"}, {"context": -1}, {"launch_us": 99.0}])
def test_bad_states_are_refused(changes):
    panel = ledger_widget("en")
    before = panel.state
    with pytest.raises(InputError, match=next(iter(changes))):
        panel.set(**changes)
    assert panel.state == before
