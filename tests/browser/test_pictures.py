"""Pictures as a browser lays them out: no text overlaps another or leaves the canvas, no request leaves the page."""

from dataclasses import replace
from itertools import combinations

import pytest

from s13lib.figures import Panel, timeline_svg
from s13lib.simulator import PRESETS, simulate_timeline

TITLES = {"en": "Decode, batch 1: launched one by one", "zh": "decode，batch 1：逐个启动"}


def text_boxes(page, picture):
    page.set_content(f"<body style='margin:0'>{picture}</body>")
    return page.evaluate(
        "() => [...document.querySelectorAll('text')].map(t => { const b = t.getBoundingClientRect();"
        " return [t.textContent, b.left, b.top, b.right, b.bottom] })"
    )


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1200])
@pytest.mark.parametrize("preset", ["seed", "smollm2-360m-h100", "llama-3-8b-h200"])
def test_no_text_overlaps_or_leaves_the_canvas(page, language, width, preset):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    setup = PRESETS[preset]
    panels = [Panel(TITLES[language], simulate_timeline(s)) for s in (setup, replace(setup, graph=True))]
    boxes = text_boxes(page, timeline_svg(panels, language, width))
    assert len(boxes) > 12
    for name, left, top, right, _ in boxes:
        assert left >= 0, name
        assert top >= 0, name
        assert right <= width, name
    for (one, l1, t1, r1, b1), (two, l2, t2, r2, b2) in combinations(boxes, 2):
        apart = r1 <= l2 or r2 <= l1 or b1 - 1 <= t2 or b2 - 1 <= t1  # line boxes may touch by a pixel
        assert apart, (one, two)
    assert requests == []
