"""``s13 grade`` on a whole class: exactly the expected grades, resumed after Ctrl-C, the same each time."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from s13lib.cli import main
from s13lib.grading import grader, sandbox
from s13lib.grading.batch import CourseKey
from s13lib.grading.grader import Grade
from s13lib.grading.journal import Journal
from s13lib.grading.manifest import exercises
from s13lib.grading.part import Text, Trouble, Verdict
from s13lib.grading.room import BrokenEnvironment
from tests.grading.conftest import notebook
from tests.grading.synthetic import code_cells, everybody, full, hand_in

ROOT = Path(__file__).resolve().parents[2]
LANES = next(exercise for exercise in exercises() if exercise.number == 5)
RIGHT = """def step_us(a, b):
    h = d = 0.0
    for x, y in zip(a, b):
        h += x
        d = max(h, d) + y
    return d"""


def s13(*arguments, start=subprocess.run, **options):
    command = [sys.executable, "-m", "s13lib", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return start(command, cwd=ROOT, **pipes, **options)


def table(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def lines(path):
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


# ---- the class


@pytest.fixture(scope="module")
def graded_class(tmp_path_factory, needs_sandbox):
    """The class, graded by a run that is interrupted and one that goes on: (folder, who handed in, how they ended)."""
    pytest.importorskip("numba")
    folder = tmp_path_factory.mktemp("class")
    made = everybody()
    hand_in(folder / "submitted", made)
    command = (
        "grade",
        folder / "submitted",
        "--out",
        folder / "grades.csv",
        "--feedback",
        folder / "feedback",
        "--json",
    )
    first = s13(*command, start=subprocess.Popen)
    journal = folder / "grades.csv.journal"
    end = time.monotonic() + 300
    while len(lines(journal)) < 3 and first.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=60)
    interrupted = (first.returncode, *said, lines(journal), (folder / "grades.csv").exists())
    return folder, made, interrupted, s13(*command, check=False)


def test_forty_submissions_get_exactly_the_expected_grades(graded_class):
    folder, made, _, run = graded_class
    assert run.stderr == ""
    assert run.returncode == 0
    assert len(made) >= 40
    rows = {row["learner"]: row for row in table(folder / "grades.csv")}
    assert list(rows) == sorted(one.learner for one in made)
    for one in made:
        row = rows[one.learner]
        got = {part.key: int(row[part.key]) for e in exercises() for part in e.parts if row[part.key] != ""}
        assert (one.learner, row["status"], got) == (one.learner, one.status, one.points or {})
        assert row["points"] == ("" if one.points is None else str(sum(one.points.values())))
        assert one.reason in row["reason"]
        assert one.flags in row["flags"]


def test_the_commonest_mistakes_are_named(graded_class):
    _, made, _, run = graded_class
    report = json.loads(run.stdout)
    found = {(p["part"], m["mistake"]): m["count"] for p in report["parts"] for m in p["mistakes"]}
    assert found.items() >= {((key, name), 1) for one in made for key, name in one.mistakes.items()}
    assert (report["graded"], report["refused"], report["errors"]) == (len(made) - 6, 6, 0)
    assert report["sandboxed"] is True


def test_an_interrupted_run_leaves_a_journal_and_no_grades(graded_class):
    folder, _, (code, out, err, journal, csv_there), run = graded_class
    assert (code, out) == (130, "")
    assert err.strip() == "interrupted."
    assert not csv_there
    assert len(journal) >= 3
    assert lines(folder / "grades.csv.journal")[: len(journal)] == journal
    assert json.loads(run.stdout)["new"] == len(lines(folder / "grades.csv.journal")) - len(journal)


def test_a_third_run_grades_nothing_and_says_the_same(graded_class):
    folder, *_ = graded_class
    before = (folder / "grades.csv").read_bytes()
    again = s13("grade", folder / "submitted", "--out", folder / "grades.csv", "--json", check=False)
    assert again.stderr == ""
    assert json.loads(again.stdout)["new"] == 0
    assert (folder / "grades.csv").read_bytes() == before


def test_feedback_is_written_for_each_learner(graded_class):
    folder, made, *_ = graded_class
    names = {path.name for path in (folder / "feedback").iterdir()}
    assert names == {f"{one.learner}.{kind}" for one in made for kind in ("md", "html")}
    wrong = next(one for one in made if one.mistakes)
    text = (folder / "feedback" / f"{wrong.learner}.md").read_text(encoding="utf-8")
    assert "is not right yet" in text
    assert "likely" in text
    assert str(folder) not in text
    html = (folder / "feedback" / f"{wrong.learner}.html").read_text(encoding="utf-8")
    assert "<pre>" in html
    assert "http" not in html


def test_every_column_and_key_is_documented(graded_class):
    folder, _, _, run = graded_class
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))
    parts = {part.key for exercise in exercises() for part in exercise.parts}
    assert documented >= set(table(folder / "grades.csv")[0]) - parts
    report = json.loads(run.stdout)
    inner = [report["parts"][0], report["flagged"][0], report["not_graded"][0]]
    inner += [mistake for part in report["parts"] for mistake in part["mistakes"]]
    assert documented >= {key for data in (report, *inner) for key in data}


def test_the_key_is_kept_for_its_owner_alone(graded_class):
    folder, *_ = graded_class
    path = folder / "grades.csv.key"
    assert path.stat().st_mode & 0o077 == 0
    key = path.read_text().strip()
    assert key not in (folder / "grades.csv.journal").read_text()


def test_all_processes_are_gone(graded_class):
    listing = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not [line for line in listing if str(graded_class[0]).encode() in line]


# ---- smaller runs, in this process


@pytest.fixture
def run(tmp_path, capsys, needs_sandbox):
    """Hand in notebooks by name, and grade them: (exit code, rows by learner, standard error)."""

    def grade_them(raws, *options, out="grades.csv"):
        for name, raw in raws.items():
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        code = main(["grade", str(tmp_path / "in"), "--out", str(tmp_path / out), "--jobs", "1", *options])
        said = capsys.readouterr()
        rows = table(tmp_path / out) if (tmp_path / out).exists() else []
        return code, rows, said

    return grade_them


def test_the_same_code_gets_the_same_grade_and_another_key_other_inputs(run, tmp_path):
    wrong = RIGHT.replace("max(h, d)", "(h + d)")
    raws = {"a.ipynb": notebook(RIGHT), "b.ipynb": notebook(wrong)}
    code, rows, _ = run(raws, "--key", "the first course key", "--feedback", str(tmp_path / "one"))
    assert code == 0
    again = run({}, "--key", "the first course key", "--feedback", str(tmp_path / "two"), out="again.csv")[1]
    other = run({}, "--key", "another course key", "--feedback", str(tmp_path / "three"), out="other.csv")[1]
    assert rows == again == other
    texts = [(tmp_path / name / "b.md").read_text() for name in ("one", "two", "three")]
    assert texts[0] == texts[1] != texts[2]


def test_two_files_of_one_learner(run):
    _, rows, _ = run(
        {
            "ann/1.ipynb": notebook(RIGHT),
            "ann/2.ipynb": notebook(RIGHT),
            "bob/1.ipynb": notebook(RIGHT + " # bob"),
            "bob/2.ipynb": notebook("x = 1"),
            "carol/1.ipynb": notebook("def step_us(a, b):\n    return 1 # carol"),
        }
    )
    assert [(row["learner"], row["status"], row["points"]) for row in rows] == [
        ("ann", "graded", "3"),
        ("bob", "refused", ""),
        ("bob", "refused", ""),
        ("carol", "graded", "0"),
    ]
    assert "handed in 2 times" in rows[0]["flags"]
    assert "2 different notebooks of this learner for exercise 5" in rows[1]["reason"]


def test_copies_are_flagged_and_stubs_are_not(run):
    stub = "def step_us(a, b):\n    raise NotImplementedError('5a: write step_us')"
    raws = {name: notebook(RIGHT + f"  # {name}") for name in ("ann.ipynb", "bob.ipynb")}
    raws |= {name: notebook(stub + f"  # {name}") for name in ("carol.ipynb", "dan.ipynb")}
    _, rows, said = run(raws)
    assert [row["flags"] for row in rows] == ["identical to bob", "identical to ann", "", ""]
    assert "To look at:" in said.out


def test_a_package_that_is_missing_here_is_flagged(run):
    raws = {
        "ann.ipynb": notebook("import nosuchpackage", RIGHT),
        "bob.ipynb": notebook("def step_us(a, b):\n    import other.one"),
    }
    _, rows, _ = run(raws)
    assert [row["flags"] for row in rows] == ["imports nosuchpackage, missing here", "imports other, missing here"]
    assert [row["points"] for row in rows] == ["3", "0"]


def test_only_some_exercises(run):
    raws = {"ann/5.ipynb": notebook(RIGHT), "ann/1.ipynb": notebook(*code_cells(exercises()[0]), exercise=1)}
    _, rows, _ = run(raws, "--only", "5")
    assert [(row["exercise"], row["points"]) for row in rows] == [("5", "3")]
    assert "1a" not in rows[0]


def test_hostile_names_are_harmless(run, tmp_path):
    names = {"=cmd|' /C calc'!A0": 1, "<script>alert(1)</script>": 2, "..": 3, "\u202egnp": 4, "[x](y)": 5}
    zipped = tmp_path / "in" / "export.zip"
    zipped.parent.mkdir()
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, number in names.items():
            archive.writestr(f"{name.replace('/', ':')}/x.ipynb", notebook(RIGHT + f"  # {number}"))
    code = main(
        ["grade", str(zipped), "--out", str(tmp_path / "g.csv"), "--feedback", str(tmp_path / "fb"), "--jobs", "1"]
    )
    assert code == 0
    learners = [row["learner"] for row in table(tmp_path / "g.csv")]
    assert not [learner for learner in learners if learner.startswith("=")]
    for path in (tmp_path / "fb").iterdir():
        text = path.read_text(encoding="utf-8")
        assert "\u202e" not in text
        if path.suffix == ".html":
            assert "<script>" not in text


def test_without_the_sandbox_the_report_says_so(run):
    code, rows, said = run({"ann.ipynb": notebook(RIGHT)}, "--no-sandbox")
    assert (code, rows[0]["points"]) == (0, "3")
    assert "NOT sandboxed" in said.out


def test_a_check_that_fails_is_no_zero(run, monkeypatch, tmp_path):
    from s13lib.commands import grade as command

    fault = Grade((), (), "the check of 5a: ValueError('ours')")
    monkeypatch.setattr(command, "Local", lambda jobs: Immediate(lambda task: fault))
    code, rows, said = run({"ann.ipynb": notebook(RIGHT)})
    assert code == 1
    assert (rows[0]["status"], rows[0]["points"], rows[0]["5a"]) == ("error", "", "")
    assert "ValueError" in rows[0]["reason"]
    assert "our own check failed" in said.out


class Immediate:
    """An executor that works at once."""

    def __init__(self, function):
        self.function = function

    def submit(self, function, task):
        from concurrent.futures import Future

        future = Future()
        try:
            future.set_result(self.function(task))
        except BaseException as error:
            future.set_exception(error)
        return future

    def check(self):
        pass

    def stop(self):
        pass


# ---- a broken environment is an error of the run


def test_a_reference_that_fails_ends_the_run_with_the_reason(run, monkeypatch, tmp_path):
    from s13lib.commands import grade as command

    def broken(*_):
        raise ImportError("no NumPy here")

    monkeypatch.setattr(command, "Local", lambda jobs: Immediate(grader.grade))
    monkeypatch.setattr(grader, "reference_value", broken)
    grader.prove_environment.cache_clear()
    code, rows, said = run({"ann.ipynb": notebook(RIGHT)})
    grader.prove_environment.cache_clear()
    assert (code, rows) == (2, [])
    assert "nobody gets a grade" in said.err
    assert "no NumPy here" in said.err
    assert lines(tmp_path / "grades.csv.journal") == []


def test_a_child_that_cannot_load_its_libraries_ends_the_run(run, monkeypatch):
    from s13lib.commands import grade as command

    monkeypatch.setattr(command, "Local", lambda jobs: Immediate(grader.grade))
    monkeypatch.setattr(sandbox, "CHILD", "import numpy_is_missing_here")
    grader.prove_environment.cache_clear()
    code, rows, said = run({"ann.ipynb": notebook(RIGHT)})
    grader.prove_environment.cache_clear()
    assert (code, rows) == (2, [])
    assert "No module named 'numpy_is_missing_here'" in said.err


def test_a_sandbox_that_hides_nothing_is_found_out(needs_sandbox, monkeypatch):
    monkeypatch.setattr(sandbox, "HIDDEN", ())
    with pytest.raises(BrokenEnvironment, match="does not hide the named wrong answers"):
        grader.prove_environment.__wrapped__(5, True)


def test_without_a_sandbox_it_refuses(monkeypatch, tmp_path, capsys):
    (tmp_path / "a.ipynb").write_bytes(notebook(RIGHT))
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    sandbox.problem.cache_clear()
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "g.csv")]) == 2
    sandbox.problem.cache_clear()
    assert "bubblewrap is not installed" in capsys.readouterr().err or sys.platform != "linux"
    assert not (tmp_path / "g.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "the following arguments are required: SUBMISSIONS, --out"),
        (("IN",), "the following arguments are required: --out"),
        (("IN", "--out", ""), "--out is ''"),
        (("IN", "--out", "nowhere/g.csv"), "must be a file in a folder that exists"),
        (("IN", "--out", "IN"), "must be a file in a folder that exists"),
        (("missing", "--out", "g.csv"), "SUBMISSIONS 'missing' does not exist"),
        (("IN", "--out", "g.csv", "--only", "77"), "--only is 77: must be an exercise of this course"),
        (("IN", "--out", "g.csv", "--jobs", "0"), "--jobs is 0"),
        (("IN", "--out", "g.csv", "--key", "short"), "--key is 'short': must be at least 12 characters"),
        (("IN", "--out", "g.csv", "--id-pattern", "("), "--id-pattern '(' is no regular expression"),
        (("IN", "--out", "g.csv", "--only", "1"), "hold no notebook of these exercises"),
        (("IN", "--out", "g.csv", "--feedback", "IN/a.ipynb"), "--feedback"),
        (("IN", "--out", "g.csv", "--scheduler", "nonsense://x"), "--scheduler"),
    ],
)
def test_bad_options_are_one_sentence(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "IN").mkdir()
    (tmp_path / "IN" / "a.ipynb").write_bytes(notebook(RIGHT))
    extra = [] if not options or "--scheduler" in options else ["--no-sandbox"]
    assert main(["grade", *options, *extra]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "g.csv").exists()


# ---- journal and key


def test_a_journal_survives_a_torn_line(tmp_path):
    verdict = Verdict("5a", False, 7, 3, 1, Text("t", "试"), Text("e", "应"), Text("c", "得"), Text("w", "因"), "even")
    one = Grade((verdict,), (grader.Note("cell 1, line 2", Trouble("slow", "5")),))
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.add("a", one)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with Journal(path) as journal:
        assert journal.grades == {"a": one}
        journal.add("b", one)
    with Journal(path) as journal:
        assert journal.grades == {"a": one, "b": one}
    path.write_bytes(b"\xff\xfe not a journal\n[]\n{}\n")
    with Journal(path) as journal:
        assert journal.grades == {}


def test_seeds_depend_on_key_code_and_part():
    from s13lib.grading.submission import read_submission

    one, other = (read_submission(notebook(text)) for text in (RIGHT, RIGHT + " "))
    key, second = CourseKey("a course key of ours"), CourseKey("another course key")
    assert key.seeds(one) == CourseKey("a course key of ours").seeds(one)
    seeds = [seed for k in (key, second) for submission in (one, other) for seed in k.seeds(submission).values()]
    assert len(set(seeds)) == len(seeds) == 4 * len(full(LANES))
    assert "course key" not in repr(seeds)
