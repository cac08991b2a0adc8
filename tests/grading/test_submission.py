"""Notebooks as they come back: changed by editors, cut off, empty; read, or refused with a sentence."""

import json

import pytest

from s13lib.grading.manifest import exercises
from s13lib.grading.submission import MOST_NOTEBOOK, Refused, read_submission
from tests.grading.conftest import notebook

DEFINES = "def step_us(a, b):\n    return 1"


def changed(raw, change):
    data = json.loads(raw)
    change(data)
    return json.dumps(data).encode()


def test_a_notebook_as_handed_out():
    read = read_submission(notebook(DEFINES))
    assert (read.exercise.number, read.language, read.flags) == (5, "en", ())
    assert read.code.names == {"step_us"}


def vscode(data):
    data["metadata"] = {"language_info": {"name": "python", "version": "3.12"}}
    for cell in data["cells"]:
        cell["metadata"] = {"nbgrader": {"grade_id": "5a-answer"}, "vscode": {"languageId": "python"}}


def colab(data):
    data["nbformat_minor"] = 0
    data["metadata"] = {"colab": {"provenance": []}, "kernelspec": {"name": "python3"}}
    for cell in data["cells"]:
        cell["metadata"] = {"id": "AbC123", "colab": {"base_uri": "https://localhost:8080/"}}
        cell["source"] = cell["source"].splitlines(keepends=True)


def kernel(data):
    data["metadata"]["kernelspec"] = {"name": "my-env", "display_name": "Mine", "language": "python"}


def outputs(data):
    for cell in data["cells"]:
        cell |= {"execution_count": 7, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["x" * 9_000]}]}


def format_4_4(data):
    data["nbformat_minor"] = 4
    for cell in data["cells"]:
        cell.pop("id", None)


def format_3(data):
    cells = [{"cell_type": "code", "input": cell["source"], "language": "python"} for cell in data.pop("cells")]
    data |= {"nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells}]}


def extra(data):
    data["cells"] += [{"cell_type": "raw", "source": "?"}, {"cell_type": "markdown", "source": ["# mine"]}]


def odd(data):
    data["cells"] += [{}, {"cell_type": 7}, {"cell_type": "code", "source": None, "metadata": None}]


@pytest.mark.parametrize("change", [kernel, outputs, format_4_4, format_3, extra, odd])
def test_what_editors_change_does_not_matter(change):
    before = read_submission(notebook(DEFINES))
    after = read_submission(changed(notebook(DEFINES), change))
    assert after.exercise == before.exercise
    assert after.code.statements == before.code.statements
    assert after.flags == ()


@pytest.mark.parametrize(("change", "flag"), [(vscode, "recognised by its cells"), (colab, "recognised by its names")])
def test_lost_metadata_is_flagged(change, flag):
    read = read_submission(changed(notebook(DEFINES), change))
    assert read.exercise.number == 5
    assert read.flags == (flag,)


def test_outputs_and_metadata_do_not_change_the_digest_and_code_does():
    digest = read_submission(notebook(DEFINES)).digest
    assert read_submission(changed(notebook(DEFINES), outputs)).digest == digest
    assert read_submission(notebook(DEFINES + "  # mine")).digest != digest


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.file)
def test_every_exercise_is_recognised_by_its_names(exercise):
    stubs = [f"def {part.answer}():\n    pass" for part in exercise.parts]
    assert (
        read_submission(json.dumps({"cells": [{"cell_type": "code", "source": s} for s in stubs]}).encode()).exercise
        == exercise
    )


def test_the_language_is_the_notebooks():
    prose = {"cell_type": "markdown", "source": "写出这个函数：最后一个 kernel 结束的时刻。"}
    lost = {"cells": [prose, {"cell_type": "code", "source": DEFINES}]}
    assert read_submission(json.dumps(lost).encode()).language == "zh"
    lost["metadata"] = {"s13": {"exercise": 5, "language": "en"}}
    assert read_submission(json.dumps(lost).encode()).language == "en"


@pytest.mark.parametrize(
    "line",
    [
        "from s13lib.grading.parts import two_lanes",
        "import s13lib.grading.guard",
        "def f():\n    from s13lib.grading import judge",
    ],
)
def test_imports_of_the_grader_are_flagged(line):
    assert read_submission(notebook(DEFINES, line)).flags == ("imports the grader's modules",)
    assert read_submission(notebook(DEFINES, "from s13lib.grading import check, hint, inputs, progress")).flags == ()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"%PDF-1.4", "cannot be read as JSON"),
        (notebook(DEFINES)[:-20], "cannot be read as JSON"),
        (b"\xff\xfe" + '{"cells": []}'.encode("utf-16-le"), "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b"[1, 2]", "but no notebook"),
        (b'{"a": 1}', "but no notebook"),
        (b'{"cells": 3}', "but no notebook"),
        (b'{"cells": [3]}', "but no notebook"),
        (b'{"cells": [' + b"{}," * 6_000 + b"{}]}", "more than 5,000 cells"),
        (b'{"cells": []}', "answers no exercise"),
        (notebook("x = 1", exercise=None, s13={}), "answers no exercise"),
        (notebook(DEFINES, exercise=77), "exercise 77, which is not in this course"),
        (notebook(DEFINES, exercise="5"), "exercise '5', which is not in this course"),
        (
            notebook(DEFINES, s13={"exercise": 5, "version": 0}),
            "version 0 of exercise 5, and the checks are for version",
        ),
        (notebook(DEFINES, s13={"exercise": 5, "version": 99}), "version 99 of exercise 5"),
    ],
)
def test_a_file_that_cannot_be_graded_is_refused_with_a_sentence(raw, words):
    with pytest.raises(Refused, match=words) as refused:
        read_submission(raw)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(Refused, match="larger than 32 MiB"):
        read_submission(b"x" * (MOST_NOTEBOOK + 1))
