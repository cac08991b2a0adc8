"""The layout picture: its areas are the rows that ``row_cost`` counts, in both languages and on the canvas."""

import re
import xml.etree.ElementTree as ET

import pytest

from s13lib.buckets import BucketLayout, Traffic, generate, preset, row_cost
from s13lib.errors import InputError
from s13lib.figures import svg
from s13lib.figures.layout import LayoutPanel, layout_svg

NS = "{http://www.w3.org/2000/svg}"
COUNTS = [0, 0, 0, 10, 0, 5]  # ten steps at n = 3, five at n = 5


def areas(picture):
    """name of a path → the areas of its bars, left to right (x, width × height)."""
    found = {}
    for path in ET.fromstring(picture).iter(f"{NS}path"):
        bars = re.findall(r"M([\d.]+) [\d.]+v-([\d.]+)h([\d.]+)", path.get("d"))
        found[path.get("class")] = [(float(x), float(high) * float(wide)) for x, high, wide in bars]
    return found


def test_areas_are_rows():
    picture = layout_svg(COUNTS, [LayoutPanel("two sizes", (4, 2))])
    drawn = areas(picture)
    # n = 3 in size 4: 30 rows of requests and 10 of padding; n = 5 above both sizes: 25 rows, eager
    assert {name: len(bars) for name, bars in drawn.items()} == {"real": 1, "padding": 1, "eager": 1}
    real, padding, eager = (drawn[name][0] for name in ("real", "padding", "eager"))
    assert padding[1] / real[1] == pytest.approx(10 / 30, rel=0.01)
    assert eager[1] / real[1] == pytest.approx(25 / 30, rel=0.01)
    assert real[0] == padding[0] < eager[0]
    assert "2 sizes, 15.4% of the rows are padding" in picture  # 10 of 65
    assert "n = 3 to 4, captured size 4: 66.7% of the steps, 25.0% of their rows are padding" in picture
    assert "n = 5 to 5, above every captured size: 33.3% of the steps, eager" in picture
    assert "eager: above the largest size" in picture


@pytest.mark.parametrize("name", ["seed", "vllm", "powers-of-two"])
@pytest.mark.parametrize("workload", ["chat", "code"])
def test_the_read_out_is_what_row_cost_says(name, workload):
    traffic, layout = generate(workload), preset(name)
    fraction = row_cost(layout, traffic).padding_fraction
    picture = layout_svg(traffic.counts, [LayoutPanel(name, tuple(layout))])
    assert f"{len(layout)} sizes, {fraction:.1%} of the rows are padding" in picture
    drawn = areas(picture)
    real, padding = (sum(area for _, area in drawn.get(key, [])) for key in ("real", "padding"))
    assert padding / (padding + real) == pytest.approx(fraction, abs=0.01)  # places are rounded to a tenth of a pixel
    assert "eager: above" not in picture


def test_captured_sizes_stand_where_their_bars_end():
    picture = layout_svg(COUNTS, [LayoutPanel("sizes", (1, 3, 64, 128, 200, 256, 300))])
    lines = [line for line in ET.fromstring(picture).iter(f"{NS}line") if line.get("class") == "size"]
    per_n = (700 - 24) / 6  # the axis ends one beyond the traffic
    assert [float(line.get("x1")) for line in lines] == pytest.approx([12 + per_n, 12 + 3 * per_n], abs=0.01)
    assert [line.findtext(f"{NS}title") for line in lines] == ["captured size 1", "captured size 3"]
    assert "and 64, …, 300 →" in picture


def test_panels_share_their_scales():
    one = areas(layout_svg(COUNTS, [LayoutPanel("a", (3, 5)), LayoutPanel("b", (8,))]))
    alone = areas(layout_svg(COUNTS, [LayoutPanel("a", (3, 5))]))
    assert alone["real"][0][1] > one["real"][0][1]  # beside panel b, whose bars are taller


def test_chinese():
    picture = layout_svg(COUNTS, [LayoutPanel("两个尺寸", (2, 4))], "zh", origin="实测：x")
    assert "2 个尺寸，补齐占 15.4% 的行" in picture
    assert "n = 3 到 4，捕获尺寸 4：占 66.7% 的步，其中 25.0% 的行是补齐" in picture
    assert "n = 5 到 5，超过所有捕获尺寸：占 33.3% 的步，走 eager" in picture
    assert "eager：超过最大尺寸" in picture
    assert "实测：x" in picture
    assert "of the" not in picture


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1200])
def test_everything_stays_on_the_canvas(language, width):
    counts = Traffic.from_counts({1: 5, 700: 3, 8192: 1}).counts
    panels = [LayoutPanel("x" * 200, tuple(BucketLayout(range(1, 8193, 7)))), LayoutPanel("<b>&", (4,))]
    picture = layout_svg(counts, panels, language, width, "origin " * 60)
    root = ET.fromstring(picture)
    height = float(root.get("height"))
    for rect in root.iter(f"{NS}rect"):
        if rect.get("class") or rect.get("x"):
            assert 0 <= float(rect.get("x")) <= width
            assert float(rect.get("x")) + float(rect.get("width")) <= width + 0.01
            assert float(rect.get("y")) + float(rect.get("height")) <= height
    for line in root.iter(f"{NS}text"):
        if line.get("text-anchor") is None:
            assert float(line.get("x")) + svg.text_width(line.text, int(line.get("font-size"))) <= width
    assert "&lt;b&gt;&amp;" in picture


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="counts"):
        layout_svg([3, 0, 0], [LayoutPanel("a", (1,))])
    with pytest.raises(InputError, match="panels"):
        layout_svg(COUNTS, [])
    with pytest.raises(InputError, match="width"):
        layout_svg(COUNTS, [LayoutPanel("a", (1,))], width=479)
    with pytest.raises(InputError, match="language"):
        layout_svg(COUNTS, [LayoutPanel("a", (1,))], "de")
