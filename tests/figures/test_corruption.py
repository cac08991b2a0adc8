"""The lab's strip of steps and its text streams: what is marked is what the data say, in both languages."""

import xml.etree.ElementTree as ET

import pytest

from s13lib.errors import InputError
from s13lib.figures.corruption import StepMark, Stream, steps_svg, streams_svg

NS = "{http://www.w3.org/2000/svg}"
STEPS = [StepMark(1, 2, 2, False, 0), StepMark(2, 3, 4, True, 1), StepMark(3, 3, 4, False, 2)]


def bars(picture):
    return [g for g in ET.fromstring(picture).iter(f"{NS}g") if g.get("class") == "step"]


def test_bars_are_as_high_as_their_rows():
    found = bars(steps_svg(STEPS, 1))
    heights = [[float(rect.get("height")) for rect in list(bar.iter(f"{NS}rect"))[1:]] for bar in found]
    assert heights == [[14], [21, 7], [21, 7]]  # seven pixels a row: requests, then padding
    assert [bar.find(f"{NS}path") is not None for bar in found] == [False, True, False]  # alarms
    assert [bar.find(f"{NS}circle") is not None for bar in found] == [False, True, True]  # other logits
    assert [bar.findtext(f"{NS}title") for bar in found] == [
        "step 1: 2 requests in 2 rows",
        "step 2: 3 requests in 4 rows; the audit raises an alarm; rows with other logits than alone: 1",
        "step 3: 3 requests in 4 rows; rows with other logits than alone: 2",
    ]
    chinese = bars(steps_svg(STEPS, 1, language="zh"))[1].findtext(f"{NS}title")
    assert chinese == "第 2 步：3 个请求，共 4 行；审计报警；1 行的 logits 与单独运行时不同"


def test_the_current_step_is_outlined_and_the_others_fade():
    picture = steps_svg(STEPS, 2, chosen=[2])
    now = next(rect for rect in ET.fromstring(picture).iter(f"{NS}rect") if rect.get("class") == "now")
    assert float(now.get("x")) == pytest.approx(12 + 2 * 24 - 1.5)
    assert [bar.get("opacity") for bar in bars(picture)] == ["0.25", "0.25", None]
    assert all(bar.get("opacity") is None for bar in bars(steps_svg(STEPS, 2)))


@pytest.mark.parametrize(
    ("said", "alone", "parts_at"),
    [("abc", "abc", None), ("abc", "abd", 2), ("ab", "abc", 2), ("", "", None), ("x", "y", 0)],
)
def test_where_two_texts_part(said, alone, parts_at):
    assert Stream("r", "", said, alone).parts_at == parts_at


def lines(picture):
    """Of each line of monospaced text: (text, whether it is marked) of its parts."""
    found = []
    for text in ET.fromstring(picture).iter(f"{NS}text"):
        spans = [(s.text.replace("\u00a0", " "), s.get("text-decoration") == "underline") for s in text]
        found += [spans] if spans else []
    return found


def test_streams_mark_what_differs():
    picture = streams_svg([Stream("request 1", "A.\n", "to be", "to go")], "naive")
    assert lines(picture) == [
        [("A./", False), ("to ", False), ("be", True)],
        [("A./", False), ("to ", False), ("go", True)],
    ]
    assert "request 1: another text from character 4 on" in picture
    assert "request 1：从第 4 个字符起不同" in streams_svg([Stream("request 1", "A.", "to be", "to go")], "naive", "zh")
    same = streams_svg([Stream("request 1", "<&>", "b", "b", ended=True)], "skip")
    assert lines(same) == [[("<&>", False), ("b", False)]] * 2
    assert "request 1: the same so far; finished" in same


def test_long_texts_keep_their_ends():
    long = "x" * 500
    picture = streams_svg([Stream("r", "prompt", long + "yes", long + "no.")], "scratch", width=480)
    (mine, theirs) = lines(picture)
    assert [spans[0] for spans in (mine, theirs)] == [("…", False)] * 2
    assert (mine[-1], theirs[-1]) == (("yes", True), ("no.", True))
    widest = max(sum(len(text) for text, _ in spans) for spans in (mine, theirs))
    assert 40 <= widest <= 62  # of 480 pixels, less the label, at 7.3 a character


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="steps"):
        steps_svg([], 0)
    with pytest.raises(InputError, match="current"):
        steps_svg(STEPS, 3)
    with pytest.raises(InputError, match="language"):
        streams_svg([], "naive", "xx")
