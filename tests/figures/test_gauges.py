"""Tiles, bars and stacks: what is drawn is what was given, and it stays on the canvas."""

import xml.etree.ElementTree as ET

import pytest

from s13lib.errors import InputError
from s13lib.figures import svg
from s13lib.figures.gauges import Bar, bars_svg, stack_svg, tiles_svg, wrap
from s13lib.figures.tables import html_table

NS = "{http://www.w3.org/2000/svg}"


def test_bars_share_a_scale_or_have_their_own():
    picture = bars_svg(
        [Bar("a", 4, "four", svg.BLUE), Bar("b", 1, "one", svg.ORANGE), Bar("c", 0.5, "half", svg.GREEN, full=1)], "t"
    )
    widths = {r.get("fill"): float(r.get("width")) for r in ET.fromstring(picture).iter(f"{NS}rect")}
    assert widths[svg.ORANGE] == pytest.approx(widths[svg.BLUE] / 4, abs=0.01)
    assert widths[svg.GREEN] == pytest.approx(widths[svg.IDLE] / 2, abs=0.01)
    assert widths[svg.IDLE] == pytest.approx(widths[svg.BLUE], abs=0.01)


def test_bars_of_nothing_and_beyond_full_stay_in_place():
    picture = bars_svg([Bar("a", 0, "0", svg.BLUE), Bar("b", 0, "0", svg.ORANGE), Bar("c", 3, "3", "red", full=1)], "t")
    widths = {r.get("fill"): float(r.get("width")) for r in ET.fromstring(picture).iter(f"{NS}rect")}
    assert widths[svg.BLUE] == widths[svg.ORANGE] == 0.5
    assert widths["red"] == widths[svg.IDLE]


def test_tiles_escape_and_cut_what_does_not_fit():
    picture = tiles_svg([("<b>", "x" * 200), ("two", "2")], 480)
    root = ET.fromstring(picture)
    assert next(root.iter(f"{NS}text")).text == "<b>"
    assert next(root.iter(f"{NS}rect")).get("fill") == svg.PAPER
    hover = [r.findtext(f"{NS}title") for r in root.iter(f"{NS}rect") if r.find(f"{NS}title") is not None]
    assert hover[0] == "<b>: " + "x" * 200
    assert all(svg.text_width(t.text, int(t.get("font-size"))) < 230 for t in root.iter(f"{NS}text"))


def test_stack_adds_heights_and_keeps_every_text():
    one, two = tiles_svg([("a", "1")]), bars_svg([Bar("b", 1, "1.5", svg.BLUE)], "t")
    root = ET.fromstring(stack_svg([one, two], 700, "both", "said"))
    heights = [float(ET.fromstring(p).get("height")) for p in (one, two)]
    assert float(root.get("height")) == pytest.approx(sum(heights))
    assert [g.get("transform") for g in root.iter(f"{NS}g")] == ["translate(0 0)", f"translate(0 {heights[0]:g})"]
    assert [t.text for t in root.iter(f"{NS}text")] == ["a", "1", "t", "b", "1.5"]
    assert root.findtext(f"{NS}title") == "both"


@pytest.mark.parametrize(
    "content",
    [
        "the longer one sets the step, so only that one helps",
        "两者同时进行：一步有多久，由较长的一项决定，用 CUDA Graph 才有用。",
    ],
)
def test_wrap_loses_nothing_and_fits(content):
    lines = wrap(content, 150, 12)
    assert len(lines) > 1
    assert "".join(lines).replace(" ", "") == content.replace(" ", "")
    assert all(svg.text_width(line, 12) <= 150 + 12 for line in lines)
    assert not any(line[0] in "，。：" for line in lines)
    assert wrap("", 150, 12) == []


def test_narrow_and_empty_pictures_are_refused():
    for make in (lambda: tiles_svg([]), lambda: bars_svg([], "t"), lambda: tiles_svg([("a", "b")], 479)):
        with pytest.raises(InputError):
            make()


def test_table_escapes_and_names_rows_and_columns():
    root = ET.fromstring(html_table(("a", "b"), [("<x>", 1), ("y", "2&3")], "c"))
    assert root.findtext("caption") == "c"
    assert [c.text for c in root.findall("thead/tr/th")] == ["a", "b"]
    assert [[c.text for c in row] for row in root.findall("tbody/tr")] == [["<x>", "1"], ["y", "2&3"]]
    assert [row[0].get("scope") for row in root.findall("tbody/tr")] == ["row", "row"]
    assert ET.fromstring(html_table(("a",), [])).find("caption") is None
