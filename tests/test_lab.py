"""The working copies: an update never touches what a learner wrote, and never leaves an untouched copy behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lab import copy_course, system_language

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def course(tmp_path):
    for name in ("notebooks/en/00_a.ipynb", "notebooks/zh/00_a.ipynb", "exercises/en/1_b.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("old")
    return tmp_path


def work(course, name):
    return course / "work" / name


def test_everything_is_copied_once(course):
    assert copy_course(course) == []
    names = sorted(path.relative_to(course / "work").as_posix() for path in (course / "work").rglob("*.ipynb"))
    assert names == ["exercises/en/1_b.ipynb", "notebooks/en/00_a.ipynb", "notebooks/zh/00_a.ipynb"]


def test_an_untouched_copy_follows_the_original_and_a_changed_one_stays(course):
    copy_course(course)
    work(course, "exercises/en/1_b.ipynb").write_text("my answer")
    for name in ("notebooks/en/00_a.ipynb", "exercises/en/1_b.ipynb"):
        (course / name).write_text("new")
    assert copy_course(course) == ["exercises/en/1_b.ipynb"]
    assert work(course, "notebooks/en/00_a.ipynb").read_text() == "new"
    assert work(course, "exercises/en/1_b.ipynb").read_text() == "my answer"
    assert copy_course(course) == ["exercises/en/1_b.ipynb"]  # told again until it is settled
    work(course, "exercises/en/1_b.ipynb").unlink()
    assert copy_course(course) == []
    assert work(course, "exercises/en/1_b.ipynb").read_text() == "new"


def test_a_changed_copy_of_an_unchanged_original_is_not_mentioned(course):
    copy_course(course)
    work(course, "exercises/en/1_b.ipynb").write_text("my answer")
    assert copy_course(course) == []
    assert work(course, "exercises/en/1_b.ipynb").read_text() == "my answer"


@pytest.mark.parametrize("record", ["", "{", "[]", json.dumps({"notebooks/en/00_a.ipynb": 3})])
def test_a_damaged_record_loses_nothing(course, record):
    copy_course(course)
    work(course, "exercises/en/1_b.ipynb").write_text("my answer")
    work(course, "copies.json").write_text(record)
    copy_course(course)
    assert work(course, "exercises/en/1_b.ipynb").read_text() == "my answer"


@pytest.mark.parametrize(("variable", "expected"), [("zh_CN.UTF-8", "zh"), ("en_US.UTF-8", "en"), ("de_DE", "en")])
def test_the_systems_language_decides(monkeypatch, variable, expected):
    monkeypatch.setenv("LC_ALL", variable)
    assert system_language() == expected


def test_the_command_says_where_the_course_starts(tmp_path):
    done = subprocess.run(
        [sys.executable, "tools/lab.py", "--copy-only", "--language", "zh"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("it starts with work/notebooks/zh/00_start_here.ipynb.\n")
    assert (ROOT / "work/notebooks/zh/00_start_here.ipynb").exists()
