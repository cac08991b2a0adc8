"""The timeline picture: every span and gap is there, in place, in both languages, and nothing leaves the canvas."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from s13lib.errors import InputError
from s13lib.figures import Panel, svg, timeline_svg
from s13lib.simulator import PRESETS, Span, Timeline, simulate_timeline

NS = "{http://www.w3.org/2000/svg}"
TIMELINE = Timeline(
    (Span("launch a", 0, 10, 0), Span("launch b", 10, 10, 1)),
    (Span("a", 10, 5, 0), Span("b", 20, 20, 1)),
    "measured",
    "by hand",
)


def boxes(picture):
    """(hover title, fill, x, width) of every box of a lane."""
    root = ET.fromstring(picture)
    return [
        (rect.findtext(f"{NS}title"), rect.get("fill"), float(rect.get("x")), float(rect.get("width")))
        for rect in root.iter(f"{NS}rect")
        if rect.find(f"{NS}title") is not None
    ]


def test_boxes_stand_where_their_times_are():
    found = boxes(timeline_svg([Panel("t", TIMELINE)], width=700))
    assert [f for _, f, _, _ in found] == [svg.BLUE] * 2 + [svg.IDLE] * 2 + [svg.ORANGE] * 2
    left, right = 56, 688
    per_us = (right - left) / 40
    places = {title.split(":")[0]: (x, width) for title, fill, x, width in found if fill != svg.IDLE}
    for name, start, duration in (("launch b", 10, 10), ("a", 10, 5), ("b", 20, 20)):
        x, width = places[name]
        assert x == pytest.approx(left + start * per_us, abs=0.01)
        assert width == pytest.approx(duration * per_us - 1, abs=0.01)  # less the seam
    idle = [(x, width) for _, fill, x, width in found if fill == svg.IDLE]
    assert idle[1][0] == pytest.approx(left + 15 * per_us, abs=0.01)
    assert "a: 5 µs, 10 µs → 15 µs" in [title for title, *_ in found]
    assert "GPU idle 5 µs, waits for b" in [title for title, *_ in found]


def test_panels_share_one_scale_and_the_read_out_covers_the_whole_step():
    seed = PRESETS["seed"]
    picture = timeline_svg(
        [Panel("eager", simulate_timeline(seed)), Panel("graph", simulate_timeline(replace(seed, graph=True)))]
    )
    assert "step 1.73 ms, GPU busy 52%; the first 18 of 288 kernels are drawn" in picture
    assert (
        "modelled: seed on the seed&#x27;s law, 2 µs a kernel and 9 × (1 + 0.1 × batch) µs a layer; 6 µs a launch"
        in picture
    )
    assert "step 903 µs, GPU busy 99%; the first 18 of 288" in picture
    launches = [b for b in boxes(picture) if b[1] == svg.BLUE]
    assert len(launches) == 18 + 1
    assert launches[-1][3] / launches[0][3] == pytest.approx(10 / 6, rel=0.02)


def test_chinese_labels():
    picture = timeline_svg([Panel("时间线", TIMELINE)], "zh")
    assert "CPU：构造并提交一次启动" in picture
    assert "每步 40 µs，GPU 忙碌 62%" in picture
    assert "实测：by hand" in picture


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [480, 700, 1400])
def test_everything_stays_on_the_canvas(language, width):
    picture = timeline_svg([Panel("x" * 300, simulate_timeline(PRESETS["seed"]))], language, width)
    root = ET.fromstring(picture)
    height = float(root.get("height"))
    for rect in root.iter(f"{NS}rect"):
        assert float(rect.get("x")) >= 0
        assert float(rect.get("x")) + float(rect.get("width")) <= width + 0.01
        assert float(rect.get("y")) + float(rect.get("height")) <= height
    for line in root.iter(f"{NS}text"):
        size = int(line.get("font-size"))
        if line.get("text-anchor") is None:
            assert float(line.get("x")) + svg.text_width(line.text, size) <= width
        assert float(line.get("y")) <= height


def test_hostile_names_are_escaped():
    nasty = "<script>alert('x')</script>&\""
    timeline = Timeline((Span(nasty, 0, 1, 0),), (Span(nasty, 1, 1, 0),), "recorded", nasty)
    picture = timeline_svg([Panel(nasty, timeline)])
    assert "<script" not in picture
    assert any(title.startswith(nasty) for title, *_ in boxes(picture))


def test_an_empty_timeline_draws():
    ET.fromstring(timeline_svg([Panel("nothing", Timeline((), (), "modelled", "nothing"))]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "panels is []: must be at least one panel."),
        (([Panel("t", TIMELINE)], "fr"), "language: unknown name 'fr'; allowed: en, zh."),
        (([Panel("t", TIMELINE)], "en", 100), "width is 100: must be at least 480 pixels."),
    ],
)
def test_bad_input_is_one_sentence(arguments, message):
    with pytest.raises(InputError) as error:
        timeline_svg(*arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 100, [0, 20, 40, 60, 80, 100]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (3, 3, [3])],
)
def test_round_ticks(low, high, ticks):
    assert svg.round_ticks(low, high) == pytest.approx(ticks)


def test_fit_cuts_with_an_ellipsis():
    assert svg.fit("short", 100, 12) == "short"
    cut = svg.fit("很长的标题" * 20, 100, 12)
    assert cut.endswith("…")
    assert svg.text_width(cut, 12) <= 100


def test_a_long_provenance_is_wrapped_and_never_cut():
    long = "recorded on " + " ".join(f"part{i}" for i in range(40)) + " 2026-12-01"
    picture = timeline_svg([Panel("t", Timeline(TIMELINE.host, TIMELINE.device, "recorded", long))], width=480)
    lines = [line.text for line in ET.fromstring(picture).iter(f"{NS}text") if line.get("font-size") == "11"]
    shown = [line for line in lines if "part" in line or "2026" in line]
    assert len(shown) > 1
    assert " ".join(shown) == f"recorded: {long}"


def test_a_stretch_is_not_called_a_step():
    picture = timeline_svg([Panel("t", TIMELINE, None, stretch=True)])
    assert "this stretch 40 µs, GPU busy 62%" in picture
    assert "step 40" not in picture
    assert "这一段 40 µs" in timeline_svg([Panel("t", TIMELINE, None, stretch=True)], "zh")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x00", "\ufffd"),
        ("a\x1bb", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("\uffff", "\ufffd"),
        ("\x7f", "\x7f"),
        ("<&>\"'", "<&>\"'"),
        ("𝄞 核", "𝄞 核"),
    ],
)
def test_any_name_of_a_kernel_gives_a_well_formed_picture(name, shown):
    spans = (Span(name, 0, 2, 1),), (Span(name, 2, 1, 1),)
    picture = timeline_svg([Panel(name, Timeline(*spans, "recorded", name))])
    assert any(shown in (element.text or "") for element in ET.fromstring(picture).iter())
