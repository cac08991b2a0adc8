"""The pictures of buckets and of the corruption lab as a browser lays them out: no text overlaps or is cut off."""

import pytest

from s13lib.widgets import buckets, corruption
from tests.browser.layout import check_picture

START = {control.name: control.default for control in buckets.CONTROLS}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("traffic", list(buckets.TRAFFICS))
@pytest.mark.parametrize("sizes", [START["sizes"], "4", ", ".join(map(str, range(1, 257)))])
def test_buckets(page, language, traffic, sizes):
    check_picture(page, buckets.render({**START, "traffic": traffic, "sizes": sizes}, language).svg, 700, 12)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("policy", ["naive", "stale", "scratch"])
@pytest.mark.parametrize("step", [1, 25, 46, 66])
def test_corruption_lab(page, language, policy, step):
    check_picture(page, corruption.render({"policy": policy, "n": 0, "step": step}, language).svg, 700, 12)
