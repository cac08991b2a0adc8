"""The simulator's and the ledger's pictures as a browser lays them out: nothing overlaps, leaves it or loads."""

from dataclasses import replace

import pytest

from s13lib.figures.ledger import ledger_svg
from s13lib.figures.step import step_svg
from s13lib.simulator import MODELS, PRESETS, STAGES, simulate
from tests.browser.layout import check_picture

SMOL = PRESETS["smollm2-360m-h100"]
STEPS = {
    "seed": PRESETS["seed"],
    "both": replace(PRESETS["seed"], stage=4, graph=True),
    "large": replace(PRESETS["llama-3-8b-h200"], batch=1024, context=131072, parts=("layers",)),
    "slow": replace(SMOL, stage=15, costs=replace(SMOL.costs, launch_us=100.0)),
    "one layer": replace(SMOL, shape=replace(SMOL.shape, layers=1), stage=4),
}
LEDGERS = {str(stage): replace(SMOL, stage=stage) for stage in STAGES} | {
    "large": replace(SMOL, shape=MODELS["llama-3-8b"], batch=1024, context=131072, stage=15),
    "large 4": replace(SMOL, shape=MODELS["llama-3-8b"], batch=1024, context=131072, stage=4),
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1200])
@pytest.mark.parametrize("step", STEPS)
def test_simulator(page, language, width, step):
    page.set_viewport_size({"width": 1300, "height": 900})
    check_picture(page, step_svg(simulate(STEPS[step]), language, width), width, 20)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1200])
@pytest.mark.parametrize("entry", LEDGERS)
def test_ledger(page, language, width, entry):
    page.set_viewport_size({"width": 1300, "height": 900})
    picture = ledger_svg(LEDGERS[entry], language, width)
    check_picture(page, picture, width, 40)
    outside = page.evaluate(
        "() => { const boxes = [...document.querySelectorAll('.kernel')].map(k => k.getBoundingClientRect());"
        " const within = t => { const b = t.getBoundingClientRect(); const hit = boxes.filter(k => b.left >= k.left &&"
        " b.left < k.right && (b.top + b.bottom) / 2 >= k.top && (b.top + b.bottom) / 2 <= k.bottom);"
        " return hit.length == 0 || (b.right <= hit[0].right && b.bottom <= hit[0].bottom + 1) };"
        " return [...document.querySelectorAll('text')].filter(t => !within(t)).map(t => t.textContent) }"
    )
    assert outside == []  # an operation's name lies within its kernel
