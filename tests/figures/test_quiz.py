"""The quiz as data and as HTML: complete in both languages, one right answer each, and every mistake is named."""

import copy
import json
import re
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path

import pytest

from s13lib.errors import InputError
from s13lib.figures import svg
from s13lib.figures.quiz import (
    LANGUAGES,
    answer_html,
    parse_quiz,
    progress_svg,
    question_html,
    quiz_html,
    result_html,
    score,
    sentence,
)

DATA = json.loads((resources.files("s13lib.data") / "quiz.json").read_text(encoding="utf-8"))
QUIZ = parse_quiz(DATA)
LESSONS = Path(__file__).resolve().parents[2] / "notebooks" / "src"
NS = "{http://www.w3.org/2000/svg}"
ALL_RIGHT = {q.id: q.right.id for q in QUIZ}
ALL_WRONG = {q.id: next(o.id for o in q.options if not o.right) for q in QUIZ}


# ---- the questions that ship


def test_six_questions_cover_the_six_ideas_and_the_first_is_the_course_s_own():
    assert [q.id for q in QUIZ] == ["records", "launch-bound", "fusion-or-graph", "bucket", "scratch", "stops"]
    assert QUIZ[0].question["en"] == "What does a CUDA Graph record, and why does that limit how you use it?"
    assert all(len(q.options) == 4 for q in QUIZ)


def test_every_wrong_answer_says_why_and_where_to_read_again():
    for question in QUIZ:
        for option in question.options:
            if option.right:
                assert option.why is None
                assert option.read is None
            else:
                assert all(option.why[language] for language in LANGUAGES)
                assert all(option.read.where(language) for language in LANGUAGES)


def test_chinese_texts_are_chinese_with_full_width_punctuation():
    def texts(value):
        if isinstance(value, dict):
            yield from [value["zh"]] if set(value) == set(LANGUAGES) else (t for v in value.values() for t in texts(v))
        elif isinstance(value, list):
            yield from (t for v in value for t in texts(v))

    found = list(texts(DATA["questions"]))
    assert len(found) == 6 * (2 + 4 + 3 * 2)
    for text in found:
        assert re.search(r"[\u4e00-\u9fff]", text), text
        assert not re.search(r"[\u4e00-\u9fff][,;:?!]", text), text


@pytest.mark.parametrize(
    "reading", sorted({(o.read.lesson, o.read.section["en"]) for q in QUIZ for o in q.options if o.read})
)
def test_the_sections_to_read_again_are_headings_of_their_lessons(reading):
    lesson, _ = reading
    source = (LESSONS / f"{lesson}.py").read_text(encoding="utf-8")
    known = next(o.read for q in QUIZ for o in q.options if o.read and (o.read.lesson, o.read.section["en"]) == reading)
    headings = re.findall(r"^# ##+ (.+)$", source, re.MULTILINE)
    for language in LANGUAGES:
        assert known.section[language] in headings
        assert f"# title_{language}: {known.title[language]}\n" in source


def test_the_right_answer_is_not_betrayed_by_its_place_or_its_length():
    places = {q.id: [o.right for o in q.shuffled()].index(True) for q in QUIZ}
    assert len(set(places.values())) >= 3
    for language in LANGUAGES:
        longest = [max(q.options, key=lambda o: len(o.text[language])).right for q in QUIZ]
        assert sum(longest) <= 1


# ---- mistakes in the data


def change(path, value):
    def apply(data):
        for key in path[:-1]:
            data = data[key]
        if value is None:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return apply


FIRST = ("questions", 0)
WRONG = (*FIRST, "options", 1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("questions",), None, "the quiz: 'questions' is missing or no list."),
        ((*FIRST, "id"), None, "a question: 'id' is missing or no str."),
        ((*FIRST, "id"), "stops", r"the quiz is \['stops'\]: must be free of doubles."),
        ((*FIRST, "question", "zh"), "", "question records: zh is '': must be a text."),
        ((*FIRST, "explanation"), None, "question records: 'explanation' is missing or no dict."),
        (
            (*FIRST, "explanation", "fr"),
            "oui",
            r"question records: explanation is \['en', 'fr', 'zh'\]: must be in en and",
        ),
        ((*WRONG, "right"), True, "question records: number of right options is 2: must be 1."),
        ((*FIRST, "options", 0, "right"), False, "question records, option addresses: 'read' is missing or no dict."),
        ((*WRONG, "why"), None, "question records, option values: 'why' is missing or no dict."),
        ((*WRONG, "why", "en"), None, "question records, option values: why: en is None: must be a text."),
        (
            (*WRONG, "read", "lesson"),
            "03_captur",
            "option values: lesson: unknown name '03_captur'; did you mean 03_capt",
        ),
        ((*WRONG, "id"), "lookup", r"question records is \['lookup'\]: must be free of doubles."),
        ((*WRONG, "text", "en"), "a `b`", "option values is 'a `b`': must be plain text: a button shows no code."),
    ],
)
def test_a_mistake_in_the_data_is_one_sentence_that_names_the_place(path, value, message):
    data = copy.deepcopy(DATA)
    change(path, value)(data)
    with pytest.raises(InputError, match=message):
        parse_quiz(data)


def test_data_that_is_no_quiz_is_refused():
    for data in (None, [], {}, {"lessons": {}, "questions": []}):
        with pytest.raises(InputError, match="the quiz: 'lessons' is missing"):
            parse_quiz(data)


# ---- order, score, read-outs


def test_the_order_of_options_depends_on_question_and_seed_alone():
    for question in QUIZ:
        assert question.shuffled("amara") == question.shuffled("amara")
        assert sorted(o.id for o in question.shuffled("amara")) == sorted(o.id for o in question.options)
    assert [o.id for o in QUIZ[0].shuffled()] == ["addresses", "lookup", "function", "values"]  # the same in every run
    orders = {tuple(o.id for o in QUIZ[0].shuffled(str(seed))) for seed in range(200)}
    assert len(orders) == 24


def test_the_score_counts_right_answers():
    assert score(QUIZ, {}) == 0
    assert score(QUIZ, ALL_WRONG) == 0
    assert [score(QUIZ, dict(list(ALL_RIGHT.items())[:n])) for n in range(7)] == [0, 1, 2, 3, 4, 5, 6]
    assert score(QUIZ, {**ALL_RIGHT, "stops": "never"}) == 5


@pytest.mark.parametrize(
    ("answers", "at", "language", "expected"),
    [
        ({}, 0, "en", "Question 1 of 6 is open. Score 0/6."),
        ({"bucket": "pad"}, 3, "en", "Question 4 of 6 is answered. Score 1/6."),
        ({}, 6, "en", "6 questions are not answered yet. Score 0/6."),
        ({k: v for k, v in ALL_RIGHT.items() if k != "stops"}, 6, "en", "One question is not answered yet. Score 5/6."),
        (ALL_RIGHT, 6, "en", "All questions are done. Score 6/6."),
        (ALL_WRONG, 6, "zh", "全部答完。得分 0/6。"),
        ({}, 2, "zh", "第 3 题（共 6 题）尚未作答。得分 0/6。"),
    ],
)
def test_the_sentence_says_where_the_learner_stands(answers, at, language, expected):
    assert sentence(QUIZ, answers, at, language) == expected


def test_the_picture_has_a_box_a_question_by_verdict():
    root = ET.fromstring(progress_svg(QUIZ, {"records": "addresses", "launch-bound": "sum"}, 2))
    boxes = [r for r in root.iter(f"{NS}rect") if r.find(f"{NS}title") is not None]
    assert [b.get("fill") for b in boxes] == [svg.BLUE, svg.VERMILION] + [svg.IDLE] * 4
    assert [b.findtext(f"{NS}title") for b in boxes[:3]] == ["1: ✓ right", "2: ✗ wrong", "3: not answered"]
    assert [i for i, b in enumerate(boxes) if b.get("stroke")] == [2]
    assert "Score 1/6" in [t.text for t in root.iter(f"{NS}text")]
    width = float(root.get("width"))
    for box in boxes:
        assert float(box.get("x")) + float(box.get("width")) <= width


# ---- HTML


@pytest.mark.parametrize("language", LANGUAGES)
def test_after_a_wrong_answer_comes_why_and_where_then_the_explanation(language):
    question = QUIZ[0]
    shown = answer_html(question, "values", language)
    wrong = question.option("values")
    parts = [
        {"en": "Not right.", "zh": "答错了。"}[language],
        wrong.text[language],
        wrong.why[language],
        wrong.read.where(language),
        question.right.text[language],
        question.explanation[language],
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert shown.count("<li>") == 2  # the two others
    ET.fromstring(shown.replace("<br>", "<br/>"))


def test_after_a_right_answer_comes_the_explanation_and_nothing_to_read_again_for_it():
    shown = answer_html(QUIZ[0], "addresses")
    assert "✓ Right." in shown
    assert "You chose" not in shown
    assert QUIZ[0].explanation["en"] in shown
    assert shown.count("<li>") == 3


def test_a_question_shows_no_answer_and_an_unknown_answer_is_refused():
    shown = question_html(QUIZ, 0)
    assert "Question 1 of 6" in shown
    assert QUIZ[0].explanation["en"] not in shown
    with pytest.raises(InputError, match="answer to records: unknown name 'adresses'; did you mean addresses"):
        answer_html(QUIZ[0], "adresses")


def test_the_table_names_the_section_to_read_again_for_wrong_answers_alone():
    shown = result_html(QUIZ, {"records": "values", "bucket": "pad"}, "zh")
    rows = re.findall(r"<tr>(.*?)</tr>", shown)
    assert len(rows) == 7
    assert "✗ 错误" in rows[1]
    assert QUIZ[0].option("values").read.where("zh") in rows[1]
    assert "未作答" in rows[2]
    assert "✓ 正确" in rows[4]
    assert rows[4].endswith("></td>")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_without_widgets_folds_every_answer_away(language):
    shown = quiz_html(QUIZ, language)
    root = ET.fromstring(shown.replace("<br>", "<br/>"))
    assert len(root.findall("details")) == 6
    assert not [d for d in root.iter("details") if d.get("open")]
    outside = "".join("".join(e.itertext()) for e in root if e.tag != "details")
    inside = "".join("".join(e.itertext()) for e in root if e.tag == "details")
    for question in QUIZ:
        plain = question.explanation[language].replace("`", "")
        assert plain in inside
        assert plain not in outside
        assert all(o.text[language] in outside for o in question.options)


def test_hostile_texts_are_escaped():
    data = copy.deepcopy(DATA)
    nasty = "<script>alert('x')</script>"
    for text in (
        data["questions"][0]["question"],
        data["questions"][0]["explanation"],
        data["questions"][0]["options"][1]["why"],
    ):
        text["en"] = nasty
    for option in data["questions"][0]["options"]:
        option["text"]["en"] = nasty + option["id"]
    quiz = parse_quiz(data)
    for shown in (
        quiz_html(quiz),
        answer_html(quiz[0], "values"),
        question_html(quiz, 0),
        result_html(quiz, {"records": "values"}),
    ):
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
