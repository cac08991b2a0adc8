"""Pictures as a browser lays them out: no text overlaps another or leaves the canvas, no request leaves the page."""

from dataclasses import replace

import pytest

from s13lib.figures import Panel, timeline_svg
from s13lib.simulator import PRESETS, simulate_timeline
from tests.browser.layout import check_picture

TITLES = {"en": "Decode, batch 1: launched one by one", "zh": "decode，batch 1：逐个启动"}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1200])
@pytest.mark.parametrize("preset", ["seed", "smollm2-360m-h100", "llama-3-8b-h200"])
def test_no_text_overlaps_or_leaves_the_canvas(page, language, width, preset):
    setup = PRESETS[preset]
    panels = [Panel(TITLES[language], simulate_timeline(s)) for s in (setup, replace(setup, graph=True))]
    check_picture(page, timeline_svg(panels, language, width), width, 12)
