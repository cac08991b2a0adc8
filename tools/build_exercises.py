"""Build exercises and solutions, in both languages, from their one source each: ``solutions/src/N_name.py``.

The source holds the solution; what an exercise leaves out stands between ``### BEGIN SOLUTION`` and ``### END
SOLUTION``, and becomes a line that fails and names the part. The manifest (``s13lib/data/exercises.toml``) gives the
rest: the table of parts, the heading of each part, and the cell that checks it. Cells carry nbgrader's metadata, so
that nbgrader takes the solutions as its source and the exercises as its release.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s13lib.grading.manifest import Exercise, PartEntry, exercises  # noqa: E402
from tools.notebook_format import Built, cell_id, faults_of, joined, orphans, stored, write_stale  # noqa: E402
from tools.notebook_source import LANGUAGES, Code, Prose, SourceError, read_cells  # noqa: E402

KINDS = ("exercises", "solutions")
SETUP = "setup"
REGION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION[ \t]*$", re.DOTALL | re.MULTILINE)
WORDS = {
    "en": {
        "table": "| part | points | difficulty | minutes |\n|---|---:|---|---:|",
        "row": "| {key} {title} | {points} | {stars} | {minutes} |",
        "how": "Write each answer where the stub raises an error, run the cell, then run the check below it: it tries "
        'your answer on fresh inputs and says what is wrong, and why. `hint("{first}")` shows the hint of a part. '
        "Progress stays on your machine; you can stop at any time. The ideas are those of lesson {lesson}.",
        "head": "## {key} · {title}\n\n*{points} points, difficulty {stars}, about {minutes} minutes*",
        "end": "## Where you stand",
    },
    "zh": {
        "table": "| 小题 | 分数 | 难度 | 分钟 |\n|---|---:|---|---:|",
        "row": "| {key} {title} | {points} | {stars} | {minutes} |",
        "how": '把答案写在占位代码报错的地方，运行这个单元格，再运行下面的检查：它会用新生成的输入来试你的答案，告诉你哪里不对、为什么。`hint("{first}")` 给出某一小题的提示。进度保存在你自己的机器上，随时可以停下。用到的想法都在第 {lesson} 课里。',
        "head": "## {key} · {title}\n\n*{points} 分，难度 {stars}，约 {minutes} 分钟*",
        "end": "## 进展如何",
    },
}


def words_of(entry: PartEntry, language: str) -> dict[str, object]:
    """What the table and the heading say about a part."""
    stars = "★" * entry.difficulty + "☆" * (3 - entry.difficulty)
    title = entry.title.in_(language)
    return {"key": entry.key, "title": title, "points": entry.points, "stars": stars, "minutes": entry.minutes}


def source_of(exercise: Exercise, folder: Path = ROOT) -> Path:
    """The source of an exercise."""
    return folder / "solutions" / "src" / f"{exercise.file}.py"


def built_path(exercise: Exercise, kind: str, language: str, folder: Path = ROOT) -> Path:
    """Where a notebook lies; ``kind`` is "exercises" or "solutions"."""
    return folder / kind / language / f"{exercise.file}.ipynb"


def read_source(exercise: Exercise, folder: Path = ROOT) -> tuple[Prose | Code, ...]:
    """The cells of an exercise's source. A ``SourceError`` names the first rule that it breaks.

    Each part of the manifest has one code cell, which defines its answer's name and marks a solution; parts stand in
    the manifest's order, and solutions nowhere else.
    """
    path = source_of(exercise, folder)
    if not path.exists():
        raise SourceError(f"solutions/src/{path.name}: missing.")
    cells = read_cells(path.read_text(encoding="utf-8"), path.name, metadata=("part",))
    keys = [entry.key for entry in exercise.parts]
    if strange := {cell.part for cell in cells} - {None, SETUP, *keys}:
        raise SourceError(f"{path.name}: the manifest knows no part {', '.join(sorted(strange))}.")
    answers = [cell for cell in cells if isinstance(cell, Code) and cell.part in keys]
    if [cell.part for cell in answers] != keys:
        raise SourceError(f"{path.name}: one code cell for each part, in the order {', '.join(keys)}.")
    for cell, entry in zip(answers, exercise.parts, strict=True):
        if not REGION.search(cell.text) or not re.search(rf"^(def|class) {entry.answer}\b", cell.text, re.MULTILINE):
            raise SourceError(f"{path.name}: the cell of {entry.key} must define {entry.answer} and mark its solution.")
    for cell in cells:
        text = cell.text if isinstance(cell, Code) else cell.en + cell.zh
        if "SOLUTION" in text and cell not in answers:
            raise SourceError(f"{path.name}: a solution stands outside the parts' code cells.")
    return cells


def without_solution(text: str, entry: PartEntry) -> str:
    """An answer cell as the exercise shows it: a line that fails, naming the part, in the solution's place."""
    return REGION.sub(rf'\1raise NotImplementedError("{entry.key}: write {entry.answer}")', text)


def nbgrader(identity: str, points: int | None = None) -> dict[str, object]:
    """nbgrader's metadata of a cell: one to answer in, or with ``points`` one that checks."""
    marks = {"grade_id": identity, "schema_version": 3, "task": False}
    if points is None:
        return {"nbgrader": marks | {"grade": False, "locked": False, "solution": True, "cell_type": "code"}}
    return {
        "nbgrader": marks | {"grade": True, "locked": True, "solution": False, "cell_type": "code", "points": points}
    }


def notebook_text(exercise: Exercise, cells: tuple[Prose | Code, ...], kind: str, language: str) -> str:
    """A notebook of one kind and language, as it is stored."""
    words = WORDS[language]
    entries = {entry.key: entry for entry in exercise.parts}
    seen: dict[str, int] = {}
    begun: set[str] = set()
    out = []

    def prose(text: str, identity: str) -> None:
        out.append(nbformat.v4.new_markdown_cell(text, id=identity))

    for number, cell in enumerate(cells):
        entry = entries.get(cell.part)
        if entry and entry.key not in begun:
            begun.add(entry.key)
            prose(words["head"].format(**words_of(entry, language)), f"{entry.key}-head")
        if isinstance(cell, Prose):
            prose(joined(cell.zh) if language == "zh" else cell.en, cell_id(cell.en, seen))
        elif entry is None:
            out.append(nbformat.v4.new_code_cell(cell.text, id=cell_id(cell.text, seen)))
        else:
            text = cell.text if kind == "solutions" else without_solution(cell.text, entry)
            answer, checks = f"{entry.key}-answer", f"{entry.key}-check"
            out.append(nbformat.v4.new_code_cell(text, id=answer, metadata=nbgrader(answer)))
            check = f'check("{entry.key}", {entry.answer})'
            out.append(nbformat.v4.new_code_cell(check, id=checks, metadata=nbgrader(checks, entry.points)))
        if number == 0:
            rows = [words["row"].format(**words_of(entry, language)) for entry in exercise.parts]
            how = words["how"].format(first=exercise.parts[0].key, lesson=int(exercise.lesson.partition("_")[0]))
            prose("\n".join([words["table"], *rows, "", how]), "parts")
    prose(words["end"], "end")
    out.append(nbformat.v4.new_code_cell("progress()", id="progress"))
    s13 = {
        "exercise": exercise.number,
        "version": exercise.version,
        "language": language,
        "minutes": sum(entry.minutes for entry in exercise.parts),
        "source": f"solutions/src/{exercise.file}.py",
    }
    return stored(out, s13, exercise.title.in_(language))


def chosen(only: list[str] | None) -> list[Exercise]:
    """All exercises, or those whose files' names start so."""
    return [exercise for exercise in exercises() if not only or exercise.file.startswith(tuple(only))]


def built_from(exercise: Exercise, kind: str, folder: Path = ROOT) -> list[Built]:
    """The notebooks of one kind that an exercise gives. Raises ``SourceError``."""
    cells = read_source(exercise, folder)
    source = f"solutions/src/{exercise.file}.py"
    return [
        Built(
            built_path(exercise, kind, language, folder),
            f"{kind}/{language}",
            source,
            notebook_text(exercise, cells, kind, language),
        )
        for language in LANGUAGES
    ]


def faults(folder: Path = ROOT, only: list[str] | None = None) -> list[str]:
    """One sentence for all that is wrong: in the sources, and in what is stored."""
    found = []
    for exercise in chosen(only):
        try:
            for kind in KINDS:
                found += faults_of(built_from(exercise, kind, folder))
        except SourceError as error:
            found.append(str(error))
    names = {exercise.file for exercise in exercises()}
    places = {f"{kind}/{language}": folder / kind / language for kind in KINDS for language in LANGUAGES}
    found += orphans(places, names)
    strays = sorted(path.name for path in (folder / "solutions" / "src").glob("*.py") if path.stem not in names)
    return found + [f"solutions/src/{name}: is not in the manifest." for name in strays]


def build(folder: Path = ROOT, only: list[str] | None = None) -> list[Path]:
    """Write the notebooks that are stale, and return their paths."""
    return [
        written
        for exercise in chosen(only)
        for kind in KINDS
        for written in write_stale(built_from(exercise, kind, folder))
    ]
