"""The quiz as a widget: answer first, explanation after. Its state outlives the cell, and goes out as JSON.

The options are buttons, not radio buttons: in JupyterLab's command mode the arrow keys belong to the notebook, and a
group of radio buttons could not be moved through. Tab and Enter (or Space) reach everything here.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from s13lib.errors import InputError, look_up, require
from s13lib.figures.quiz import (
    Question,
    answer_html,
    parse_quiz,
    progress_svg,
    question_html,
    quiz_html,
    result_html,
    score,
    sentence,
)
from s13lib.widgets.base import Rendered
from s13lib.widgets.language import language as language_of

WORDS = {
    "en": {
        "answer": "Answer",
        "next": "Next question",
        "finish": "Show the result",
        "review": "Back to question 1",
        "back": "Back",
        "again": "Start again",
        "picked": "{letter} is chosen. “Answer” makes it count.",
        "choose": "Choose an answer first.",
    },
    "zh": {
        "answer": "作答",
        "next": "下一题",
        "finish": "看结果",
        "review": "回到第 1 题",
        "back": "上一题",
        "again": "重新开始",
        "picked": "已选 {letter}，按“作答”后生效。",
        "choose": "请先选一个答案。",
    },
}
LETTERS = "ABCDEFGH"
# A button holds one line of fixed height; these options need several. Colour is not alone: ● and ○ say what is chosen.
STYLE = """<style>
.s13-quiz .s13-option {
  height: auto; min-height: 32px; width: calc(100% - 8px); max-width: 700px;
  margin: 3px 4px; padding: 6px 10px 6px 40px;
  line-height: 1.45; font-size: 14px; text-align: left; white-space: normal; text-indent: -31px;
  background: #f4f4f4; color: #1a1a1a; border: 1px solid #8c8c8c; border-radius: 4px;
}
.s13-quiz .s13-option:disabled { opacity: 1; color: #595959; }
.s13-quiz .s13-option.s13-picked { background: #d9ecf8; color: #1a1a1a; border: 2px solid #0072B2; }
.s13-quiz .jupyter-button:focus-visible { outline: 3px solid #E69F00; outline-offset: 1px; }
.s13-quiz p { margin: 4px 0; }
</style>"""

# name → the learner's state. A cell that is run again makes a new widget, which goes on where the old one was.
_STORE: dict[str, dict[str, Any]] = {}


@cache
def quiz_questions() -> tuple[Question, ...]:
    """The six questions of the course."""
    return parse_quiz(json.loads((resources.files("s13lib.data") / "quiz.json").read_text(encoding="utf-8")))


class Quiz:
    """A learner's quiz. ``answer``, ``go`` and ``restart`` do what the buttons do.

    Args:
        name: a given name of the learner's choice; the state is kept under it, and it goes into the exported result.
        language: "en" or "zh"; default the notebook's.
        scale: 1.5 or 2 for a projector.
    """

    def __init__(self, name: str = "", language: str | None = None, scale: float = 1.0) -> None:
        require(isinstance(name, str), "name", name, "a text")
        require(isinstance(scale, (int, float)) and 0.5 <= scale <= 4, "scale", scale, "from 0.5 to 4")
        self.name, self.language = name, language_of(language)
        self.questions = quiz_questions()
        self._state = _STORE.setdefault(name, {"at": 0, "picked": None, "answers": {}})
        self._words, self._hint = WORDS[self.language], ""

        self.progress, self.status, self.question, self.feedback = (widgets.HTML() for _ in range(4))
        self.options = [widgets.Button() for _ in range(max(len(q.options) for q in self.questions))]
        for number, button in enumerate(self.options):
            button.add_class("s13-option")
            button.on_click(lambda _, number=number: self._pick(number))
        self.main, self.back, self.again = (
            widgets.Button(description=self._words[key], layout=widgets.Layout(width="auto"))
            for key in ("answer", "back", "again")
        )
        self.main.button_style = "primary"
        self.main.on_click(lambda _: self._main())
        self.back.on_click(lambda _: self.go(self._state["at"] - 1))
        self.again.on_click(lambda _: self.restart())
        style = widgets.HTML(STYLE + f"<style>.s13-quiz-{round(scale * 100)} {{ zoom: {scale:g}; }}</style>")
        buttons = widgets.HBox([self.main, self.back, self.again], layout=widgets.Layout(flex_flow="row wrap"))
        self.box = widgets.VBox(
            [style, self.progress, self.question, *self.options, self.status, buttons, self.feedback]
        )
        for each in ("s13-quiz", f"s13-quiz-{round(scale * 100)}"):
            self.box.add_class(each)
        self._show()

    # ---- for programs and tests

    @property
    def state(self) -> dict[str, Any]:
        """A copy: ``at`` (0 is the first question, 6 the result), ``picked`` (not yet answered), ``answers``."""
        return {**self._state, "answers": dict(self._state["answers"])}

    @property
    def score(self) -> int:
        """How many questions are answered right."""
        return score(self.questions, self._state["answers"])

    @property
    def rendered(self) -> Rendered:
        """What stands on the screen: the progress picture, the sentence, and the result's table."""
        answers, at = self._state["answers"], self._state["at"]
        return Rendered(
            progress_svg(self.questions, answers, at, self.language),
            sentence(self.questions, answers, at, self.language),
            result_html(self.questions, answers, self.language),
        )

    def set(self, **changes: Any) -> None:
        """Set ``at`` (0 to 6) or ``picked`` (an option of that question), as a user would.

        Raises:
            InputError: an unknown name or value; then nothing has changed.
        """
        for name in changes:
            look_up({"at": 0, "picked": 0}, name, "control")
        at = changes.get("at", self._state["at"])
        self._check_at(at)
        if (picked := changes.get("picked")) is not None:
            require(at < len(self.questions), "picked", picked, "left out on the page of results")
            self.questions[at].option(picked)
        if at != self._state["at"]:
            self.go(at)
        if picked is not None:
            self._state["picked"] = picked
            self._show()

    def answer(self, option: str) -> bool:
        """Answer the current question; return whether that was right. A second answer is refused."""
        question = self._current()
        require(question is not None, "answer", option, "given on a question's page")
        answers = self._state["answers"]
        if question.id in answers:
            raise InputError(f"question {question.id} is answered already: restart() clears all answers.")
        answers[question.id] = question.option(option).id
        self._state["picked"] = None
        self._show()
        return answers[question.id] == question.right.id

    def go(self, at: int) -> None:
        """Show question ``at``, counted from 0; the number of questions means the result."""
        self._check_at(at)
        self._state.update(at=at, picked=None)
        self._show()

    def restart(self) -> None:
        """Forget all answers."""
        self._state.update(at=0, picked=None, answers={})
        self._show()

    def results(self) -> dict[str, Any]:
        """Name, answers and score, and nothing else about the learner."""
        answers = self._state["answers"]
        return {
            "schema": "s13lib quiz",
            "version": 1,
            "name": self.name,
            "score": self.score,
            "questions": len(self.questions),
            "answers": [
                {"question": q.id, "answer": answers.get(q.id), "right": answers.get(q.id) == q.right.id}
                for q in self.questions
            ],
        }

    def export(self, path: str | Path) -> Path:
        """Write ``results()`` as JSON, for a class; return the path.

        Raises:
            InputError: the file cannot be written.
        """
        path = Path(path)
        try:
            path.write_text(json.dumps(self.results(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
        return path

    # ---- what users do

    def _main(self) -> None:
        question, answers = self._current(), self._state["answers"]
        if question is None:
            self._turn_to(0)
        elif question.id in answers:
            self._turn_to(self._state["at"] + 1)
        elif self._state["picked"] is None:
            self._hint = self._words["choose"]
            self._show()
        else:
            self.answer(self._state["picked"])

    def _turn_to(self, at: int) -> None:
        """Show a page, and put the keyboard's focus on its first option where that can still be chosen."""
        self.go(at)
        question = self._current()
        if question is not None and question.id not in self._state["answers"]:
            self.options[0].focus()

    def _pick(self, number: int) -> None:
        self._state["picked"] = self._current().shuffled(self.name)[number].id
        self._show()

    # ---- what users see

    def _check_at(self, at: object) -> None:
        allowed = f"a whole number from 0 to {len(self.questions)}"
        whole = isinstance(at, int) and not isinstance(at, bool)
        require(whole and 0 <= at <= len(self.questions), "at", at, allowed)

    def _current(self) -> Question | None:
        at = self._state["at"]
        return self.questions[at] if at < len(self.questions) else None

    def _show(self) -> None:
        rendered, question, at = self.rendered, self._current(), self._state["at"]
        chosen = self._state["answers"].get(question.id) if question else None
        self.progress.value = rendered.svg
        if question is None:
            self.question.value, self.feedback.value, label = rendered.table_html, "", "review"
        else:
            self.question.value = question_html(self.questions, at, self.language)
            explained = answer_html(question, chosen, self.language) if chosen else ""
            self.feedback.value = f'<div role="status" aria-live="polite">{explained}</div>'
            last = at == len(self.questions) - 1
            label = "answer" if chosen is None else "finish" if last else "next"
        said = self._show_options(question, chosen) or rendered.sentence
        said, self._hint = self._hint or said, ""
        self.status.value = f'<p role="status" aria-live="polite" style="font-size:14px">{escape(said)}</p>'
        self.main.description = self._words[label]
        self.back.disabled = at == 0
        self.again.disabled = not self._state["answers"]

    def _show_options(self, question: Question | None, chosen: str | None) -> str:
        """Bring the option buttons to the state; return what is to be said about the one that is picked."""
        shown, marked, said = question.shuffled(self.name) if question else (), chosen or self._state["picked"], ""
        for number, button in enumerate(self.options):
            button.layout.display = None if number < len(shown) else "none"
            if number >= len(shown):
                continue
            option, letter = shown[number], LETTERS[number]
            is_marked = option.id == marked
            verdict = "" if chosen is None or not (option.right or is_marked) else " ✓" if option.right else " ✗"
            button.description = f"{'●' if is_marked else '○'} {letter}{verdict}  {option.text[self.language]}"
            (button.add_class if is_marked else button.remove_class)("s13-picked")
            button.disabled = chosen is not None
            if is_marked and chosen is None:
                said = self._words["picked"].format(letter=letter)
        return said

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Live where widgets live; else the questions with their answers folded away; else the sentence."""
        live = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        rendered = self.rendered
        return {
            "application/vnd.jupyter.widget-view+json": live,
            "text/html": quiz_html(self.questions, self.language, self.name),
            "image/svg+xml": rendered.svg,
            "text/plain": rendered.sentence,
        }


def quiz_widget(name: str = "", language: str | None = None, scale: float = 1.0) -> Quiz:
    """The quiz; as the last expression of a cell it shows itself. See ``Quiz``."""
    return Quiz(name, language, scale)
