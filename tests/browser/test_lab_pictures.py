"""The pictures of buckets and of the corruption lab as a browser lays them out: no text overlaps or is cut off."""

from itertools import combinations

import pytest

from s13lib.widgets import buckets, corruption
from tests.browser.test_pictures import text_boxes

START = {control.name: control.default for control in buckets.CONTROLS}


def check(page, picture, width=700):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    boxes = text_boxes(page, picture)
    assert len(boxes) > 12
    for name, left, top, right, _ in boxes:
        assert left >= 0, name
        assert top >= 0, name
        assert right <= width, name
    for (one, l1, t1, r1, b1), (two, l2, t2, r2, b2) in combinations(boxes, 2):
        apart = r1 <= l2 or r2 <= l1 or b1 - 1 <= t2 or b2 - 1 <= t1  # line boxes may touch by a pixel
        assert apart, (one, two)
    assert requests == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("traffic", list(buckets.TRAFFICS))
@pytest.mark.parametrize("sizes", [START["sizes"], "4", ", ".join(map(str, range(1, 257)))])
def test_buckets(page, language, traffic, sizes):
    check(page, buckets.render({**START, "traffic": traffic, "sizes": sizes}, language).svg)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("policy", ["naive", "stale", "scratch"])
@pytest.mark.parametrize("step", [1, 25, 46, 66])
def test_corruption_lab(page, language, policy, step):
    check(page, corruption.render({"policy": policy, "n": 0, "step": step}, language).svg)
