"""Build the notebooks of both languages from their one source each; ``--check`` fails when they are not up to date.

A lesson's source, ``notebooks/src/NN_name.py``, holds code cells once and prose cells in pairs: English
(``lang="en"``), directly followed by Chinese (``lang="zh"``). Exercises come from ``solutions/src`` (see
``tools/build_exercises.py``). What is built holds no output and no state, and a cell keeps its id for as long as its
English text or its code stays: so a diff of a built notebook shows what changed, and nothing else.

    python tools/build_notebooks.py                  write all that is stale
    python tools/build_notebooks.py --only 04        one lesson (or several: --only 04 05), or an exercise: --only 2
    python tools/build_notebooks.py --check          write nothing; say what is wrong, and exit with 1
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import build_exercises  # noqa: E402
from tools.notebook_format import (  # noqa: E402
    FOLDED,
    Built,
    cell_id,
    faults_of,
    joined,
    orphans,
    stored,
    write_stale,
)
from tools.notebook_source import LANGUAGES, Code, Prose, SourceError, read_cells  # noqa: E402

NOTEBOOKS = ROOT / "notebooks"
FIELDS = ("title_en", "title_zh", "minutes")


@dataclass(frozen=True)
class Lesson:
    """One source, read: its name (``00_start_here``), titles by language, minutes, and cells in order."""

    name: str
    titles: dict[str, str]
    minutes: int
    cells: tuple[Prose | Code, ...]


def read_lesson(path: Path) -> Lesson:
    """Read a source file; a ``SourceError`` names the first rule it breaks."""
    fields, body = split_header(path.read_text(encoding="utf-8"), path.name)
    titles = {language: fields[f"title_{language}"] for language in LANGUAGES}
    return Lesson(path.stem, titles, int(fields["minutes"]), read_cells(body, path.name))


def split_header(text: str, name: str) -> tuple[dict[str, str], str]:
    """The fields between the two ``# ---`` lines at the top, and the rest."""
    match = re.match(r"# ---\n(.*?)# ---\n", text, re.DOTALL)
    rows = re.findall(r"^# (\w+): (.+)$", match[1], re.MULTILINE) if match else []
    fields = {key: value.strip().strip("\"'") for key, value in rows}
    if tuple(fields) != FIELDS or not fields["minutes"].isdecimal():
        raise SourceError(f"{name}: the header must hold {', '.join(FIELDS)} (a whole number), in this order.")
    return fields, text[match.end() :]


def notebook_text(lesson: Lesson, language: str) -> str:
    """The lesson's notebook in one language, as it is stored: deterministic, without outputs or state."""
    seen: dict[str, int] = {}
    cells = []
    for cell in lesson.cells:
        identity = cell_id(cell.en if isinstance(cell, Prose) else cell.text, seen)
        if isinstance(cell, Code):
            metadata = FOLDED if cell.only_speaks else {}
            cells.append(nbformat.v4.new_code_cell(cell.text, id=identity, metadata=metadata))
        else:
            prose = joined(cell.zh) if language == "zh" else cell.en
            cells.append(nbformat.v4.new_markdown_cell(prose, id=identity))
    s13 = {"language": language, "minutes": lesson.minutes, "source": f"notebooks/src/{lesson.name}.py"}
    return stored(cells, s13, lesson.titles[language])


def built_path(name: str, language: str, folder: Path = NOTEBOOKS) -> Path:
    """Where a lesson's notebook of one language lies."""
    return folder / language / f"{name}.ipynb"


def sources(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[Path]:
    """The source files in order; of those, with ``only``, the ones whose names start so."""
    paths = sorted((folder / "src").glob("*.py"))
    return [path for path in paths if not only or path.name.startswith(tuple(only))]


def built_from(path: Path, folder: Path = NOTEBOOKS) -> list[Built]:
    """The notebooks that a source gives. Raises ``SourceError``."""
    lesson = read_lesson(path)
    source = f"notebooks/src/{path.name}"
    return [
        Built(
            built_path(lesson.name, language, folder), f"notebooks/{language}", source, notebook_text(lesson, language)
        )
        for language in LANGUAGES
    ]


def faults(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[str]:
    """One sentence for all that is wrong: in the sources, and in what is stored of each language."""
    found = []
    for path in sources(folder, only):
        try:
            found += faults_of(built_from(path, folder))
        except SourceError as error:
            found.append(str(error))
    names = {path.stem for path in sources(folder)}
    return found + orphans({f"notebooks/{language}": folder / language for language in LANGUAGES}, names)


def build(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[Path]:
    """Write the notebooks that are stale, and return their paths."""
    return [written for path in sources(folder, only) for written in write_stale(built_from(path, folder))]


def main(arguments: list[str]) -> int:
    """Build, or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is wrong")
    parser.add_argument("--only", nargs="+", metavar="NN", help="lessons or exercises whose file names start so")
    options = parser.parse_args(arguments)
    if options.check:
        found = faults(only=options.only) + build_exercises.faults(only=options.only)
        print("\n".join(found) if found else "The notebooks are up to date, complete in both languages, and clean.")
        if found:
            print("Edit notebooks/src or solutions/src, then: python3 run.py notebooks")
        return 1 if found else 0
    try:
        for path in build(only=options.only) + build_exercises.build(only=options.only):
            print(f"wrote: {path.relative_to(ROOT)}")
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
