"""``s13 check`` finds what is wrong with the exercises, and ``s13 progress`` shows what is solved."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from s13lib.cli import main
from s13lib.commands import check
from s13lib.grading import complete, sandbox, store
from s13lib.grading.complete import manifest_faults, notebook_faults
from s13lib.grading.manifest import exercises
from s13lib.grading.part import Text, Wrong

ROOT = Path(__file__).resolve().parents[2]
LANES = next(exercise for exercise in exercises() if exercise.number == 5)


def test_the_manifest_has_no_faults():
    pytest.importorskip("numba")
    assert list(manifest_faults()) == []


def changed(**fields):
    return dataclasses.replace(LANES, parts=(dataclasses.replace(LANES.parts[0], **fields), *LANES.parts[1:]))


@pytest.mark.parametrize(
    ("exercise", "words"),
    [
        (changed(key="5x"), "its parts are 5x, 5b, 5c"),
        (changed(points=0), "5a: points from 1"),
        (changed(difficulty=4), "5a: points from 1"),
        (changed(minutes=0), "5a: points from 1"),
        (changed(hint=Text("", "")), "5a, hint: the English text is missing"),
        (changed(hint=Text("a hint that helps a lot", "a hint that helps")), "5a, hint: the Chinese text is missing"),
        (changed(title=Text("题目", "题目")), "5a, title: the English text is missing, short or not English"),
        (dataclasses.replace(LANES, name="nothing"), "5a: its checks are missing"),
    ],
)
def test_a_fault_in_the_manifest_is_found(exercise, words, monkeypatch):
    monkeypatch.setattr(complete, "exercises", lambda: (exercise,))
    monkeypatch.setattr("s13lib.grading.manifest.exercises", lambda: (exercise,))
    assert any(words in fault for fault in manifest_faults())


def test_too_few_wrong_answers_are_found(monkeypatch):
    one = Wrong("one", len, Text("It is simply not right.", "这样做是不对的，请再看看。"))
    monkeypatch.setattr(complete, "wrong_answers", lambda key: (one, one))
    found = list(manifest_faults())
    assert "5a: 2 named wrong answers: at least 4, each with a name of its own." in found


@pytest.fixture
def copy(tmp_path):
    """Exercise 5's files in a folder of their own."""
    for kind in ("exercises/en", "exercises/zh", "solutions/en", "solutions/zh"):
        (tmp_path / kind).mkdir(parents=True)
        shutil.copy(ROOT / kind / f"{LANES.file}.ipynb", tmp_path / kind)
    (tmp_path / "solutions/src").mkdir()
    shutil.copy(ROOT / "solutions/src" / f"{LANES.file}.py", tmp_path / "solutions/src")
    return tmp_path


def edit(root, place, change):
    path = root / place / f"{LANES.file}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell = next(
        cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "def step_us(" in "".join(cell["source"])
    )
    cell["source"] = change("".join(cell["source"]))
    path.write_text(json.dumps(notebook), encoding="utf-8")


def faults(root):
    return list(notebook_faults(root, LANES, sandboxed=sandbox.problem() is None))


def test_the_notebooks_have_no_faults(copy):
    assert faults(copy) == []


def test_a_missing_notebook_is_found(copy):
    (copy / f"exercises/zh/{LANES.file}.ipynb").unlink()
    assert f"exercises/zh/{LANES.file}.ipynb: No such file or directory" in faults(copy)


def test_an_exercise_that_gives_the_answer_away_is_found(copy):
    edit(copy, "exercises/en", lambda text: text.replace("raise", "# device = max(host, device) + kernel\n    raise"))
    edit(copy, "exercises/zh", lambda text: text + "\n# device = max(host, device) + kernel")
    found = faults(copy)
    assert "5_two_lanes: the code differs between the two languages in exercises." in found
    for language in ("en", "zh"):
        place = f"exercises/{language}/{LANES.file}.ipynb"
        assert f"{place} shows a line of the solution: device = max(host, device) + kernel" in found


def test_a_stub_that_passes_and_a_solution_that_does_not_are_found(copy):
    solution = json.loads((copy / f"solutions/en/{LANES.file}.ipynb").read_text(encoding="utf-8"))
    right = next("".join(c["source"]) for c in solution["cells"] if "def step_us(" in "".join(c["source"]))
    for language in ("en", "zh"):
        edit(copy, f"exercises/{language}", lambda text: right)
        edit(copy, f"solutions/{language}", lambda text: "def step_us(launch_us, kernel_us):\n    return 0.0")
    found = faults(copy)
    assert "5a: the stub must fail and name the part: it passes." in found
    assert "5a: the solution does not pass: 0 where 7." in found
    place = f"exercises/en/{LANES.file}.ipynb shows a line of the solution: device = max(host, device) + kernel"
    assert place in found


def test_the_command_ends_with_one_line_and_a_code(monkeypatch, capsys):
    monkeypatch.setattr(check, "checkout", lambda: None)
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("stubs and solutions not checked: no checkout here.\n")
    assert out.count("\n") == 1
    monkeypatch.setattr(check, "manifest_faults", lambda: ["5a: broken."])
    assert main(["check"]) == 1
    assert capsys.readouterr().out == "5a: broken.\n1 fault in the exercises.\n"


@pytest.mark.parametrize(
    ("options", "system", "words"),
    [((), "en_US.UTF-8", "3 of "), ((), "zh_CN.UTF-8", "已得 3 分"), (("--language", "zh"), "C", "已得 3 分")],
)
def test_progress_is_shown_in_the_language_of_the_reader(options, system, words, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "progress.json"))
    monkeypatch.delenv("S13_LANGUAGE", raising=False)
    monkeypatch.setenv("LC_ALL", system)
    store.add_solved("5a")
    assert main(["progress", *options]) == 0
    out = capsys.readouterr().out
    assert words in out
    assert "5a ✓" in out
    assert main(["progress", "--language", "fr"]) == 2
