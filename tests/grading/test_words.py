"""What a check says, and how: short lines, sentences instead of dictionaries, both languages."""

import pytest

from s13lib.errors import InputError
from s13lib.grading import guard, inputs, judge, notebook
from s13lib.grading.compare import difference, first_sentences, said, shown
from s13lib.grading.manifest import entries, part
from s13lib.grading.part import Observation, Text, Trouble
from s13lib.grading.texts import counted
from s13lib.grading.wrapping import NOT_FIRST, NOT_LAST, WIDTH, columns, wrapped

HINTS = [text for entry in entries().values() for text in (entry.hint.en, entry.hint.zh)]


@pytest.mark.parametrize("text", [*HINTS, "x" * 500, "字" * 500, "（字" * 90, "字。" * 90, ""])
@pytest.mark.parametrize("indent", [0, 12])
def test_lines_end_by_the_last_column_and_lose_nothing(text, indent):
    lines = wrapped(text, indent).split("\n")
    assert all(line.startswith(" " * indent) for line in lines[1:])
    assert all(columns(line) <= WIDTH - indent * (i == 0) for i, line in enumerate(lines))
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in filter(None, map(str.strip, lines[1:])):
        assert line[0] not in NOT_FIRST
    for line in filter(None, map(str.strip, lines[:-1])):
        assert line[-1] not in NOT_LAST


def test_words_stay_whole_and_wide_letters_count_twice():
    assert wrapped("word " * 40).split("\n")[0] == ("word " * 17).strip()
    assert wrapped("字" * 50).split("\n") == ["字" * 44, "字" * 6]
    assert columns("a字：b") == 6


def test_a_dictionary_is_said_as_a_sentence_and_a_traffic_stays_code():
    assert said({"padding_rows": 468, "captures": 1}) == Text(
        "padding rows: 468, captures: 1", "padding rows：468，captures：1"
    )
    named = {Text("padding rows", "补齐行数"): 468, "why": "late"}
    assert said(named) == Text("padding rows: 468, why: late", "补齐行数：468，why：late")
    assert said({2: 10}).en == shown({2: 10}) == "{2: 10}"


def test_places_are_named_in_words():
    assert difference((1, 2.5, 3), (1, 2.0, 3), 1e-6) == (
        Text("value 2 of 3: 2", "第 2 个值（共 3 个）：2"),
        Text("value 2 of 3: 2.5", "第 2 个值（共 3 个）：2.5"),
    )
    assert difference([1.0], [1.0, 2.0], 1e-6)[1].en == "1 entry: [1]"
    rows = Text("rows", "行数")
    assert difference({rows: [1, 2]}, {rows: [1, 3]}, 1e-6)[0] == Text("rows[1]: 3", "行数[1]：3")


def test_long_exceptions_end_with_a_sentence():
    text = "Shapes do not match.\n" + "They are 3 and 4. " * 40
    assert first_sentences(text).endswith("They are 3 and 4.")
    assert len(first_sentences(text)) <= 400
    assert first_sentences("x" * 500) == "x" * 399 + "…"
    assert first_sentences("Short.\n  Two lines.") == "Short. Two lines."


def test_advice_at_the_end_of_an_exception_is_kept():
    def answer(launch_us, kernel_us):
        raise ValueError("a long sentence about what is wrong here, " * 5 + "and the advice")

    seen = guard.observe(part("5a"), answer, ([1.0], [1.0]))
    assert "and the advice (line" in seen.trouble.detail
    verdict = judge.judge("5a", lambda _: seen, seed=1)
    assert "and the advice (line" in verdict.came.en


class Endless:
    def __repr__(self):
        while True:
            pass


def test_what_is_no_function_is_shown(monkeypatch):
    assert guard.observe(part("1a"), 5, ()).trouble == Trouble("no function", "5")
    monkeypatch.setattr(guard, "SHOW_SECONDS", 0.1)
    assert guard.observe(part("1a"), Endless(), ()).trouble == Trouble("no function", "Endless")


def test_slowness_may_mean_more_than_an_endless_loop():
    slow = Observation(trouble=Trouble("slow", "5"))
    verdict = judge.judge("1c", lambda _: slow, seed=1)
    assert verdict.came.en == "nothing within 5 s"
    assert "Trying all layouts takes too long" in verdict.why.en
    assert "A loop that does not end?" in judge.judge("1a", lambda _: slow, seed=1).why.en


@pytest.mark.parametrize("spoken", ["en", "zh"])
def test_a_failed_check_says_how_to_get_its_inputs(spoken):
    verdict = judge.judge("5a", lambda _: Observation(1.0), seed=7)
    lines = notebook.explanation(verdict, spoken).split("\n")
    assert lines[-3].endswith('check("5a", step_us, seed=7)')
    assert lines[-2].endswith('inputs("5a", seed=7, case=1)')
    assert lines[-1].endswith('hint("5a")')
    assert all(columns(line) <= WIDTH for line in lines)
    assert inputs("5a", seed=7, case=1) == ([2.0], [5.0])


def test_a_part_may_show_what_its_answer_really_gets(monkeypatch):
    import dataclasses

    shows = dataclasses.replace(part("5a"), shown_inputs=lambda case: {"launches": case[0]})
    monkeypatch.setattr(notebook.manifest, "part", lambda key: shows)
    assert inputs("5a", seed=7, case=1) == {"launches": [2.0]}
    with pytest.raises(InputError, match="case is 0"):
        inputs("5a", seed=7, case=0)


def test_counted():
    assert [counted(1, "point"), counted(2, "point"), counted(0, "entry", "entries")] == [
        "1 point", "2 points", "0 entries",
    ]  # fmt: skip
