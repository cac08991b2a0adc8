"""Prove that nbgrader takes the exercises as they are: in an environment of its own, with its own commands' machinery.

For each exercise, ``solutions/en`` is the source of an assignment. nbgrader generates the release from it and grades
two submissions: the solution (all points) and the built exercise of this repository (no points). Prints a line each;
the exit code is 1 if a grade is not what it should be.

nbgrader pins other packages than the course does, so it lives in ``.venv-nbgrader`` and sees the course's packages
behind its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-nbgrader"
PIN = "nbgrader==0.9.6"

# Runs in nbgrader's environment, in the folder of a course: autogrades everything and prints the scores.
GRADE = """
import logging, sys
from traitlets.config import Config
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory

config = Config()
config.CourseDirectory.root = sys.argv[1]
config.ExecutePreprocessor.timeout = 300
api = NbGraderAPI(CourseDirectory(config=config), config=config)
api.log.setLevel(logging.ERROR)
for assignment in sorted(api.get_source_assignments()):
    told = api.generate_assignment(assignment, force=True)
    if not told["success"]:
        sys.exit(told.get("error") or told["log"])
    for student in ("solution", "exercise"):
        told = api.autograde(assignment, student)
        if not told["success"]:
            sys.exit(told.get("error") or told["log"])
        with api.gradebook as book:
            graded = book.find_submission(assignment, student)
            print("GRADE", assignment, student, graded.score, graded.max_score, flush=True)
"""


def make_environment() -> Path:
    """nbgrader's environment, made once; return its Python."""
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = ENVIRONMENT / "stamp"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != PIN:
        print(f"Setting up {ENVIRONMENT.name} with {PIN}, once: about 340 MB.", flush=True)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "--no-input", PIN]
        done = subprocess.run(install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"nbgrader could not be installed:\n{done.stdout[-2000:]}")
        own = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        course = sysconfig.get_path("purelib")
        (Path(own.strip()) / "course.pth").write_text(f"import site; site.addsitedir({course!r})\n", encoding="utf-8")
        stamp.write_text(PIN, encoding="utf-8")
    return python


def main() -> int:
    """Grade; return 0 if every grade is right."""
    python = make_environment()
    with tempfile.TemporaryDirectory() as folder:
        places = (("solutions", "source"), ("solutions", "submitted/solution"), ("exercises", "submitted/exercise"))
        for kind, place in places:
            for notebook in sorted((ROOT / kind / "en").glob("*.ipynb")):
                target = Path(folder) / place / notebook.stem
                target.mkdir(parents=True)
                shutil.copy(notebook, target)
        environment = dict(os.environ, PATH=os.pathsep.join((str(python.parent), os.environ["PATH"])))
        environment["S13_PROGRESS"] = str(Path(folder) / "progress.json")
        command = [python, "-c", GRADE, folder]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("GRADE ")]
    wrong = 0
    for assignment, student, score, most in rows:
        expected = float(most) if student == "solution" else 0.0
        wrong += float(score) != expected
        verdict = "as it should be" if float(score) == expected else f"WRONG, expected {expected:g}"
        print(f"{assignment:<20} {student:<9} {float(score):g} of {float(most):g} points, {verdict}")
    if done.returncode or len(rows) != 2 * len(list((ROOT / "solutions" / "en").glob("*.ipynb"))):
        print(done.stderr[-3000:], file=sys.stderr)
        print("nbgrader did not grade everything.", file=sys.stderr)
        return 1
    print(f"nbgrader: {len(rows) - wrong} of {len(rows)} grades are right.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
