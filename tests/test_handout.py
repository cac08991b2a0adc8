"""What learners get: a course that works, and no solution."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from s13lib.grading.manifest import exercises
from tools.build_exercises import REGION, source_of
from tools.handout import FOLDER, for_learners, write_zip

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def handout(tmp_path_factory):
    path = tmp_path_factory.mktemp("handout") / "course.zip"
    write_zip(path)
    with zipfile.ZipFile(path) as archive:
        return {name.removeprefix(f"{FOLDER}/"): archive.read(name) for name in archive.namelist()}


def test_it_holds_the_course(handout):
    for exercise in exercises():
        assert f"exercises/en/{exercise.file}.ipynb" in handout
        assert f"exercises/zh/{exercise.file}.ipynb" in handout
    for name in ("run.py", "README.md", "requirements.txt", "tools/lab.py", "s13lib/grading/notebook.py"):
        assert name in handout
    assert "notebooks/zh/05_padding_bug.ipynb" in handout


def test_it_holds_no_solution(handout):
    assert not [name for name in handout if name.startswith(("solutions/", "tests/"))]
    for exercise in exercises():
        source = source_of(exercise).read_text(encoding="utf-8")
        told = REGION.sub("", source)  # a line that is shown anyway gives nothing away
        telling = [
            line.strip()
            for region in REGION.finditer(source)
            for line in region[0].split("\n")[1:-1]
            if len(line.strip()) > 30 and line.strip() not in told
        ]
        shown = b"".join(handout[f"exercises/{language}/{exercise.file}.ipynb"] for language in ("en", "zh")).decode()
        code = re.sub(r'\\"', '"', shown)
        assert telling or exercise.parts
        assert [line for line in telling if line in code] == []


def test_the_same_files_make_the_same_zip(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    write_zip(first)
    write_zip(second)
    assert first.read_bytes() == second.read_bytes()


def test_what_is_left_out():
    names = ["run.py", "solutions/src/5_two_lanes.py", "tests/test_run.py", ".ci/run", "exercises/en/5_two_lanes.ipynb"]
    assert for_learners(names) == ["run.py", "exercises/en/5_two_lanes.ipynb"]


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    command = [sys.executable, "tools/handout.py", "--output", str(tmp_path / "missing" / "a.zip")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("handout: --output")
    assert "Traceback" not in done.stderr
