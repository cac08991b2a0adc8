"""The cache map: owner and state read without colours, and corrupted slots stand in their places."""

import xml.etree.ElementTree as ET

import pytest

from s13lib.errors import InputError
from s13lib.figures.cache_map import cache_map_svg, map_summary, short_name
from s13lib.graphs.audit import BlockState

NS = "{http://www.w3.org/2000/svg}"
BLOCKS = (
    BlockState(0, "owned", "request 12", "request 12", ()),
    BlockState(1, "corrupted", "request 3", "padding row 3", (16, 21)),
    BlockState(2, "corrupted", "request 4", "padding row 2", (47,)),
    BlockState(3, "free", "", "", ()),
    BlockState(4, "scratch", "", "padding row 1", ()),
)


def tiles(picture):
    return [g for g in ET.fromstring(picture).iter(f"{NS}g") if (g.get("class") or "").startswith("block")]


def texts(tile):
    return [text.text for text in tile.iter(f"{NS}text")]


def test_states_and_owners_read_without_colours():
    found = tiles(cache_map_svg(BLOCKS))
    assert [tile.get("class") for tile in found] == [f"block {block.state}" for block in BLOCKS]
    assert [texts(tile) for tile in found] == [
        ["R12", "0"],
        ["R3", "1", "2 slots"],
        ["R4", "2", "slot 47"],
        ["3"],
        ["S", "4"],
    ]
    frames = [tile.find(f"{NS}rect") for tile in found]
    assert [frame.get("stroke-dasharray") for frame in frames] == [None, None, None, "3 3", None]
    assert [frame.get("stroke-width") for frame in frames] == ["1", "3", "3", "1", "1"]
    assert [frame.get("fill").startswith("url(#s13-hatch") for frame in frames] == [False, True, True, False, True]
    assert [tile.find(f"{NS}path") is not None for tile in found] == [False, True, True, False, False]  # the cross


def test_corrupted_slots_stand_in_their_places_and_new_ones_are_longer():
    tile = tiles(cache_map_svg(BLOCKS, 16, struck={21}))[1]
    frame, *marks = tile.iter(f"{NS}rect")
    left = float(frame.get("x")) - 1.5
    assert [float(mark.get("x")) - left for mark in marks] == pytest.approx([4, 4 + 5 * 38 / 16], abs=0.01)
    assert [mark.get("class") for mark in marks] == ["slot", "struck"]
    assert float(marks[1].get("height")) == 2 * float(marks[0].get("height"))


def test_hover_titles_and_summary_in_both_languages():
    titles = [tile.findtext(f"{NS}title") for tile in tiles(cache_map_svg(BLOCKS))]
    assert titles[1] == "block 1; belongs to request 3; last written by padding row 3; corrupted slots 16, 21"
    assert titles[3:] == ["block 3; free", "block 4; scratch; last written by padding row 1"]
    chinese = [tile.findtext(f"{NS}title") for tile in tiles(cache_map_svg(BLOCKS, language="zh"))]
    assert chinese[1] == "block 1；属于 request 3；最后写入者：padding row 3；被污染的 slot：16, 21"
    assert map_summary(BLOCKS) == (
        "blocks owned: 1, free: 1, scratch: 1, corrupted: 2; block 1, corrupted slots 16, 21; "
        "block 2, corrupted slots 47"
    )
    assert map_summary(BLOCKS[:1], "zh") == "有主 1 块，空闲 0 块，scratch 1 块，已污染 0 块；没有块被污染"


@pytest.mark.parametrize(
    ("name", "short"), [("request 7", "R7"), ("Romeo", "Romeo"), ("Rosencrantz", "Rose…"), ("r 1", "R1"), ("", "")]
)
def test_short_names(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize("width", [480, 700, 1000])
def test_tiles_wrap_within_the_width(width):
    many = [BlockState(i, "free", "", "", ()) for i in range(100)]
    root = ET.fromstring(cache_map_svg(many, width=width))
    frames = [tile.find(f"{NS}rect") for tile in root.iter(f"{NS}g")]
    places = {(float(f.get("x")), float(f.get("y"))) for f in frames}
    assert len(places) == 100
    assert max(x for x, _ in places) + 46 <= width - 12
    assert max(y for _, y in places) + 54 < float(root.get("height"))


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="blocks"):
        cache_map_svg([])
    with pytest.raises(InputError, match="state of a block"):
        cache_map_svg([BlockState(0, "lost", "", "", ())])
    with pytest.raises(InputError, match="language"):
        cache_map_svg(BLOCKS, language="fr")
