"""The quiz as pure functions: questions as data, the score, and HTML for a question, its answer and the result."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s13lib.errors import InputError, look_up, require
from s13lib.figures import svg

LANGUAGES = ("en", "zh")
Text = Mapping[str, str]  # language → text; `code` stands between backticks
Answers = Mapping[str, str]  # id of a question → id of the option that was chosen

WORDS = {
    "en": {
        "question": "Question {at} of {total}",
        "score": "Score {score}/{total}",
        "open": "Question {at} of {total} is open. Score {score}/{total}.",
        "answered": "Question {at} of {total} is answered. Score {score}/{total}.",
        "done": "All questions are done. Score {score}/{total}.",
        "left": "{left} questions are not answered yet. Score {score}/{total}.",
        "one_left": "One question is not answered yet. Score {score}/{total}.",
        "right": "Right.",
        "wrong": "Not right.",
        "yours": "You chose",
        "answer": "The answer",
        "why": "Explanation",
        "others": "Why the others are wrong",
        "read": "Read again",
        "where": "lesson {number}, {title}: “{section}”",
        "show": "Show the answer",
        "number": "#",
        "of": "Question",
        "verdict": "Your answer",
        "unanswered": "not answered",
        "was_right": "✓ right",
        "was_wrong": "✗ wrong",
    },
    "zh": {
        "question": "第 {at} 题 / 共 {total} 题",
        "score": "得分 {score}/{total}",
        "open": "第 {at} 题（共 {total} 题）尚未作答。得分 {score}/{total}。",
        "answered": "第 {at} 题（共 {total} 题）已作答。得分 {score}/{total}。",
        "done": "全部答完。得分 {score}/{total}。",
        "left": "还有 {left} 题没有作答。得分 {score}/{total}。",
        "one_left": "还有 1 题没有作答。得分 {score}/{total}。",
        "right": "答对了。",
        "wrong": "答错了。",
        "yours": "你选的是",
        "answer": "正确答案",
        "why": "解析",
        "others": "其余选项错在哪里",
        "read": "回头重读",
        "where": "第 {number} 课《{title}》的“{section}”",
        "show": "看答案",
        "number": "#",
        "of": "题目",
        "verdict": "你的回答",
        "unanswered": "未作答",
        "was_right": "✓ 正确",
        "was_wrong": "✗ 错误",
    },
}
BOX, BOX_GAP, STRIP_HEIGHT = 40, 8, 52


@dataclass(frozen=True)
class Reading:
    """A section of a lesson: ``lesson`` is its file, such as 03_capture."""

    lesson: str
    title: Text
    section: Text

    def where(self, language: str) -> str:
        """The place in words."""
        words = WORDS[language]["where"]
        return words.format(number=int(self.lesson[:2]), title=self.title[language], section=self.section[language])


@dataclass(frozen=True)
class Option:
    """One answer. A wrong one says why, and which section to read again; the right one has neither."""

    id: str
    right: bool
    text: Text
    why: Text | None = None
    read: Reading | None = None


@dataclass(frozen=True)
class Question:
    """A question with its options, exactly one of them right."""

    id: str
    question: Text
    options: tuple[Option, ...]
    explanation: Text

    @property
    def right(self) -> Option:
        """The right option."""
        return next(option for option in self.options if option.right)

    def option(self, name: str) -> Option:
        """The option with that id; an unknown one is an ``InputError``."""
        return look_up({option.id: option for option in self.options}, name, f"answer to {self.id}")

    def shuffled(self, seed: str = "") -> tuple[Option, ...]:
        """The options in an order that depends on the question and ``seed`` alone: the same in every run."""
        mixed = list(self.options)
        random.Random(f"{self.id} {seed}").shuffle(mixed)
        return tuple(mixed)


# ---- questions as data


def parse_quiz(data: object) -> tuple[Question, ...]:
    """The questions of a quiz file (see ``s13lib/data/quiz.json``).

    Raises:
        InputError: one sentence that names the question, for anything missing, doubled or in one language alone.
    """
    lessons = {
        name: _text(title, f"lesson {name}") for name, title in _field(data, "lessons", dict, "the quiz").items()
    }
    questions = tuple(_question(item, lessons) for item in _field(data, "questions", list, "the quiz"))
    require(len(questions) > 0, "questions", questions, "at least one question")
    _unique([q.id for q in questions], "the quiz")
    return questions


def _question(data: object, lessons: Mapping[str, Text]) -> Question:
    name = _field(data, "id", str, "a question")
    where = f"question {name}"
    options = tuple(_option(item, where, lessons) for item in _field(data, "options", list, where))
    right = sum(option.right for option in options)
    require(right == 1, f"{where}: number of right options", right, "1")
    require(len(options) >= 3, f"{where}: number of options", len(options), "at least 3")
    _unique([option.id for option in options], where)
    for language in LANGUAGES:
        _unique([option.text[language] for option in options], where)
    return Question(
        name,
        _text(_field(data, "question", dict, where), where),
        options,
        _text(_field(data, "explanation", dict, where), f"{where}: explanation"),
    )


def _option(data: object, where: str, lessons: Mapping[str, Text]) -> Option:
    name = _field(data, "id", str, f"an option of {where}")
    where = f"{where}, option {name}"
    text = _text(_field(data, "text", dict, where), where)
    for language in LANGUAGES:
        require("`" not in text[language], where, text[language], "plain text: a button shows no code")
    if data.get("right"):
        return Option(name, True, text)
    read = _field(data, "read", dict, where)
    lesson = _field(read, "lesson", str, where)
    section = _text(_field(read, "section", dict, where), f"{where}: section")
    reading = Reading(lesson, look_up(lessons, lesson, f"{where}: lesson"), section)
    return Option(name, False, text, _text(_field(data, "why", dict, where), f"{where}: why"), reading)


def _field(data: object, key: str, kind: type, where: str) -> object:
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, kind) or not value:
        raise InputError(f"{where}: {key!r} is missing or no {kind.__name__}.")
    return value


def _text(value: Text, where: str) -> Text:
    for language in LANGUAGES:
        found = value.get(language)
        require(isinstance(found, str) and bool(found.strip()), f"{where}: {language}", found, "a text")
    require(set(value) == set(LANGUAGES), where, sorted(value), f"in {' and '.join(LANGUAGES)}")
    return value


def _unique(names: Sequence[str], where: str) -> None:
    doubled = {name for name in names if names.count(name) > 1}
    require(not doubled, where, sorted(doubled), "free of doubles")


# ---- read-outs


def score(questions: Sequence[Question], answers: Answers) -> int:
    """How many questions are answered right."""
    return sum(answers.get(q.id) == q.right.id for q in questions)


def sentence(questions: Sequence[Question], answers: Answers, at: int, language: str = "en") -> str:
    """Where the learner stands, in one sentence or two. ``at`` counts from 0; the number of questions is the result."""
    words = look_up(WORDS, language, "language")
    total, left = len(questions), sum(q.id not in answers for q in questions)
    if at < total:
        key = "answered" if questions[at].id in answers else "open"
    else:
        key = "done" if not left else "one_left" if left == 1 else "left"
    return words[key].format(at=at + 1, total=total, left=left, score=score(questions, answers))


# ---- pictures


def progress_svg(questions: Sequence[Question], answers: Answers, at: int, language: str = "en") -> str:
    """A box a question: its number, right (✓), wrong (✗) or open, the current one framed; then the score."""
    words = look_up(WORDS, language, "language")
    body = ""
    for number, question in enumerate(questions):
        chosen = answers.get(question.id)
        x = float(BOX_GAP + number * (BOX + BOX_GAP))
        right = chosen == question.right.id
        fill, ink, mark = (
            (svg.IDLE, svg.INK, "")
            if chosen is None
            else ((svg.BLUE, svg.PAPER, " ✓") if right else (svg.VERMILION, svg.PAPER, " ✗"))
        )
        verdict = words["unanswered"] if chosen is None else words["was_right" if right else "was_wrong"]
        hover = svg.element("title", svg.escape(f"{number + 1}: {verdict}"))
        frame = {"stroke": svg.INK, "stroke_width": 3} if number == at else {}
        body += svg.element("rect", hover, x=x, y=8, width=BOX, height=BOX - 4, rx=4, fill=fill, **frame)
        body += svg.text(f"{number + 1}{mark}", x + BOX / 2, 31, 15, ink, text_anchor="middle", font_weight="600")
    said = words["score"].format(score=score(questions, answers), total=len(questions))
    x = BOX_GAP + len(questions) * (BOX + BOX_GAP) + 8
    body += svg.text(said, x, 32, 17, font_weight="600")
    width = x + svg.text_width(said, 17) + BOX_GAP
    return svg.document(body, width, STRIP_HEIGHT, said, sentence(questions, answers, at, language))


def inline(text: str) -> str:
    """A text as HTML: escaped, with ``<code>`` for what stands between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", svg.escape(text))


def question_html(questions: Sequence[Question], at: int, language: str = "en") -> str:
    """The question's number and text."""
    words = look_up(WORDS, language, "language")
    number = words["question"].format(at=at + 1, total=len(questions))
    return _block(
        f'<p style="margin:0;color:{svg.MUTED}">{number}</p>'
        f'<p style="margin:4px 0;font-size:16px;font-weight:600">{inline(questions[at].question[language])}</p>'
    )


def answer_html(question: Question, chosen: str, language: str = "en") -> str:
    """After the answer: the verdict; if wrong, why and what to read again; the explanation; the other wrong options."""
    words = look_up(WORDS, language, "language")
    option, right = question.option(chosen), question.right
    colour = svg.BLUE if option.right else svg.VERMILION
    verdict = ("✓ " + words["right"]) if option.right else ("✗ " + words["wrong"])
    out = f'<p style="margin:4px 0;color:{colour};font-size:16px;font-weight:600">{verdict}</p>'
    if not option.right:
        out += _line(words["yours"], option.text[language]) + f"<p>{inline(option.why[language])}</p>"
        out += _line(words["read"], option.read.where(language))
    out += _line(words["answer"], right.text[language]) + _line(words["why"], question.explanation[language])
    others = [o for o in question.options if not o.right and o is not option]
    listed = "".join(_wrong(o, language) for o in others)
    return _block(out + f"<details><summary>{words['others']}</summary><ul>{listed}</ul></details>", colour)


def result_html(questions: Sequence[Question], answers: Answers, language: str = "en") -> str:
    """A table: each question, right or wrong, and the section to read again."""
    words = look_up(WORDS, language, "language")
    cell = 'style="text-align:left;vertical-align:top;padding:4px 8px;white-space:normal"'
    heads = "".join(f"<th {cell}>{words[key]}</th>" for key in ("number", "of", "verdict", "read"))
    rows = ""
    for number, question in enumerate(questions, start=1):
        chosen = answers.get(question.id)
        option = question.option(chosen) if chosen else None
        verdict = words["unanswered"] if option is None else words["was_right" if option.right else "was_wrong"]
        again = option.read.where(language) if option is not None and option.read else ""
        cells = (str(number), inline(question.question[language]), verdict, svg.escape(again))
        rows += "<tr>" + "".join(f"<td {cell}>{text}</td>" for text in cells) + "</tr>"
    caption = words["score"].format(score=score(questions, answers), total=len(questions))
    head = f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
    return f'<table style="max-width:700px;font-size:14px">{head}<tbody>{rows}</tbody></table>'


def quiz_html(questions: Sequence[Question], language: str = "en", seed: str = "") -> str:
    """The whole quiz for pages that have no widgets: each answer is folded away until the reader opens it."""
    words = look_up(WORDS, language, "language")
    out = ""
    for at, question in enumerate(questions):
        options = "".join(f"<li>{inline(o.text[language])}</li>" for o in question.shuffled(seed))
        wrong = "".join(_wrong(o, language) for o in question.options if not o.right)
        answer = _line(words["answer"], question.right.text[language])
        answer += _line(words["why"], question.explanation[language]) + f"<p>{words['others']}</p><ul>{wrong}</ul>"
        out += f'<div style="margin-top:20px">{question_html(questions, at, language)}</div><ol type="A">{options}</ol>'
        out += f"<details><summary>{words['show']}</summary>{_block(answer, svg.BLUE)}</details>"
    return f'<div style="max-width:700px">{out}</div>'


def _wrong(option: Option, language: str) -> str:
    read = WORDS[language]["read"] + (": " if language == "en" else "：") + option.read.where(language)
    return (
        f"<li><em>{inline(option.text[language])}</em><br>{inline(option.why[language])} "
        f'<span style="color:{svg.MUTED}">{svg.escape(read)}</span></li>'
    )


def _line(label: str, text: str) -> str:
    return f'<p style="margin:6px 0"><strong>{svg.escape(label)}</strong><br>{inline(text)}</p>'


def _block(content: str, colour: str = "") -> str:
    edge = f"border-left:4px solid {colour};padding-left:12px;" if colour else ""
    return f'<div style="max-width:700px;font-size:14px;line-height:1.5;white-space:normal;{edge}">{content}</div>'
