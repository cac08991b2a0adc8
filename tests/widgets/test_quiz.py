"""The quiz widget: answer first, once; state that outlives the cell; a result with a given name and nothing more."""

import json

import ipywidgets
import pytest

from s13lib.errors import InputError
from s13lib.widgets import quiz, quiz_widget

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def empty_store(monkeypatch):
    monkeypatch.setattr(quiz, "_STORE", {})


def shown_options(widget):
    return [button for button in widget.options if button.layout.display != "none"]


def press(widget, option):
    """Click the option with that id, then the main button."""
    at = [o.id for o in widget.questions[widget.state["at"]].shuffled(widget.name)].index(option)
    widget.options[at].click()
    widget.main.click()


def test_it_starts_at_the_first_question_with_nothing_chosen():
    widget = quiz_widget()
    assert widget.state == {"at": 0, "picked": None, "answers": {}}
    assert widget.score == 0
    first = widget.questions[0]
    assert [b.description for b in shown_options(widget)] == [
        f"○ {letter}  {option.text['en']}" for letter, option in zip("ABCD", first.shuffled(), strict=True)
    ]
    assert widget.main.description == "Answer"
    assert (widget.back.disabled, widget.again.disabled) == (True, True)
    assert first.question["en"] in widget.question.value
    assert first.explanation["en"] not in widget.feedback.value


def test_a_choice_is_no_answer_until_the_main_button_is_pressed():
    widget = quiz_widget()
    widget.options[1].click()
    assert widget.state == {"at": 0, "picked": "lookup", "answers": {}}
    assert [b.description[0] for b in widget.options] == ["○", "●", "○", "○"]
    assert ["s13-picked" in b._dom_classes for b in widget.options] == [False, True, False, False]
    assert "B is chosen" in widget.status.value
    assert widget.questions[0].explanation["en"] not in widget.feedback.value
    widget.options[2].click()
    assert widget.state["picked"] == "function"
    widget.main.click()
    assert widget.state == {"at": 0, "picked": None, "answers": {"records": "function"}}


def test_pressing_answer_with_nothing_chosen_says_what_to_do():
    widget = quiz_widget(language="zh")
    widget.main.click()
    assert widget.state["answers"] == {}
    assert "请先选一个答案。" in widget.status.value
    widget.options[0].click()
    assert "请先选一个答案。" not in widget.status.value


def test_after_a_wrong_answer_the_explanation_stands_there_and_the_options_are_locked():
    widget = quiz_widget()
    press(widget, "values")
    wrong = widget.questions[0].option("values")
    for part in (wrong.why["en"], wrong.read.where("en"), widget.questions[0].explanation["en"]):
        assert part in widget.feedback.value
    assert all(b.disabled for b in shown_options(widget))
    heads = [b.description.split("  ")[0] for b in shown_options(widget)]
    assert heads == ["○ A ✓", "○ B", "○ C", "● D ✗"]
    assert widget.main.description == "Next question"
    with pytest.raises(InputError, match="question records is answered already"):
        widget.answer("addresses")


def test_a_whole_round_with_the_buttons_alone():
    widget = quiz_widget()
    chosen = {"records": "addresses", "launch-bound": "sum", "fusion-or-graph": "kernels-or-cost", "bucket": "pad"}
    chosen |= {"scratch": "drift", "stops": "never"}
    for number, (question, option) in enumerate(chosen.items()):
        assert widget.questions[widget.state["at"]].id == question
        press(widget, option)
        assert widget.main.description == ("Show the result" if number == 5 else "Next question")
        widget.main.click()
    assert widget.state == {"at": 6, "picked": None, "answers": chosen}
    assert widget.score == 4
    assert widget.rendered.sentence == "All questions are done. Score 4/6."
    assert widget.question.value == widget.rendered.table_html
    assert shown_options(widget) == []
    widget.main.click()  # back to question 1
    assert widget.state["at"] == 0
    widget.again.click()
    assert widget.state == {"at": 0, "picked": None, "answers": {}}
    assert not any(b.disabled for b in shown_options(widget))


def test_back_shows_the_earlier_question_as_it_was_answered():
    widget = quiz_widget()
    press(widget, "addresses")
    widget.main.click()
    widget.back.click()
    assert widget.state["at"] == 0
    assert "✓ Right." in widget.feedback.value
    assert [b.description[0] for b in widget.options] == ["●", "○", "○", "○"]


def test_the_focus_goes_to_the_first_option_of_the_next_question(monkeypatch):
    focused = []
    monkeypatch.setattr(ipywidgets.Button, "focus", lambda self: focused.append(self))
    widget = quiz_widget()
    press(widget, "addresses")
    assert focused == []  # it stays on the main button, which is now "Next question"
    widget.main.click()
    assert focused == [widget.options[0]]


def test_running_the_cell_again_goes_on_where_the_learner_was_by_name_and_in_either_language():
    first = quiz_widget("amara")
    press(first, "values")
    first.main.click()
    again = quiz_widget("amara", language="zh")
    assert again.state == {"at": 1, "picked": None, "answers": {"records": "values"}}
    assert "得分 0/6" in again.status.value
    assert quiz_widget("bo").state["answers"] == {}
    assert quiz_widget().state["answers"] == {}


def test_set_does_what_a_user_does_and_refuses_the_rest():
    widget = quiz_widget()
    widget.set(at=3, picked="pad")
    assert widget.state == {"at": 3, "picked": "pad", "answers": {}}
    for changes, message in (
        ({"at": 7}, "at is 7: must be a whole number from 0 to 6."),
        ({"at": True}, "at is True"),
        ({"picked": "padd"}, "answer to bucket: unknown name 'padd'; did you mean pad"),
        ({"at": 6, "picked": "pad"}, "picked is 'pad': must be left out on the page of results."),
        ({"answers": {}}, "control: unknown name 'answers'"),
    ):
        with pytest.raises(InputError, match=message):
            widget.set(**changes)
        assert widget.state == {"at": 3, "picked": "pad", "answers": {}}


def test_the_state_given_out_is_a_copy():
    widget = quiz_widget()
    widget.state["answers"]["records"] = "addresses"
    assert widget.score == 0


def test_the_exported_result_holds_name_answers_and_score_and_nothing_else(tmp_path):
    widget = quiz_widget("阿玛拉")
    widget.answer("addresses")
    widget.go(1)
    widget.answer("gpus")
    path = widget.export(tmp_path / "result.json")
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "schema": "s13lib quiz",
        "version": 1,
        "name": "阿玛拉",
        "score": 1,
        "questions": 6,
        "answers": [
            {"question": "records", "answer": "addresses", "right": True},
            {"question": "launch-bound", "answer": "gpus", "right": False},
            *(
                {"question": name, "answer": None, "right": False}
                for name in ("fusion-or-graph", "bucket", "scratch", "stops")
            ),
        ],
    }
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        widget.export(tmp_path / "missing" / "result.json")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_shows_itself_live_and_as_a_page_where_no_widget_lives(language):
    widget = quiz_widget(language=language)
    bundle = widget._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "image/svg+xml", "text/plain"}
    assert bundle[VIEW]["model_id"] == widget.box.model_id
    assert bundle["text/html"].count("<details>") == 6
    assert bundle["text/plain"] == widget.rendered.sentence
    assert bundle["image/svg+xml"] == widget.rendered.svg == widget.progress.value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": None}, "name is None: must be a text."),
        ({"scale": 9}, "scale is 9: must be from 0.5 to 4."),
        ({"language": "fr"}, "language: unknown name 'fr'"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        quiz_widget(**arguments)
