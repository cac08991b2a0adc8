"""Build the notebooks of both languages from their one source each; ``--check`` fails when they are not up to date.

A source, ``notebooks/src/NN_name.py``, holds code cells once and prose cells in pairs: English (``lang="en"``),
directly followed by Chinese (``lang="zh"``). What is built holds no output and no state, and a cell keeps its id for as
long as its English text or its code stays: so a diff of a built notebook shows what changed, and nothing else.

    python tools/build_notebooks.py                  write all that is stale
    python tools/build_notebooks.py --only 04        one lesson (or several: --only 04 05)
    python tools/build_notebooks.py --check          write nothing; say what is wrong, and exit with 1
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
LANGUAGES = ("en", "zh")
FIELDS = ("title_en", "title_zh", "minutes")

# All that a built notebook says about itself, but for its titles. JupyterLab would add versions; they are not kept.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
FOLDED = {"jupyter": {"source_hidden": True}}  # JupyterLab shows the output, and the code behind a click
HAN = re.compile(r"[\u4e00-\u9fff]")
WIDE_START = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef“‘]")
WIDE_END = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef”’]$")
WIDE_STOP = re.compile(r"[，。；：、！？（）「」”]\**$")
FOREIGN = 0.1  # an English cell may name a Chinese word, no more


class SourceError(Exception):
    """A source breaks the rules; the message is one sentence that names the file and the cell."""


@dataclass(frozen=True)
class Prose:
    """A prose cell in each language."""

    en: str
    zh: str


@dataclass(frozen=True)
class Code:
    """A code cell, the same in all languages."""

    text: str

    @property
    def only_speaks(self) -> bool:
        """Whether it does nothing but print prose with numbers in it: such code is folded, since one reads its output.

        That is: calls of ``say``, at most chosen by ``if`` or repeated by ``for``.
        """
        body = [] if self.text.lstrip().startswith(("%", "!")) else ast.parse(self.text).body
        return bool(body) and all(map(speaks, body))


def speaks(node: ast.stmt) -> bool:
    """Whether a statement is ``say(...)``, or chooses or repeats nothing else."""
    if isinstance(node, ast.If | ast.For):
        return all(map(speaks, [*node.body, *node.orelse]))
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "say"


@dataclass(frozen=True)
class Lesson:
    """One source, read: its name (``00_start_here``), titles by language, minutes, and cells in order."""

    name: str
    titles: dict[str, str]
    minutes: int
    cells: tuple[Prose | Code, ...]


# ---- source to lesson


@dataclass(frozen=True)
class RawCell:
    """A cell as jupytext reads it, without its notes on blank lines."""

    kind: str
    text: str
    metadata: dict[str, object]

    @classmethod
    def read(cls, cell: nbformat.NotebookNode) -> RawCell:
        """Take over one cell."""
        metadata = {key: value for key, value in cell.metadata.items() if not key.startswith("lines_to_")}
        return cls(cell.cell_type, cell.source.strip("\n"), metadata)

    def is_prose(self, language: str) -> bool:
        """Whether this is prose in that language, and nothing more."""
        return self.kind == "markdown" and self.metadata == {"lang": language}


def read_lesson(path: Path) -> Lesson:
    """Read a source file; a ``SourceError`` names the first rule it breaks."""
    text = path.read_text(encoding="utf-8")
    fields, body = split_header(text, path.name)
    raw = [RawCell.read(cell) for cell in jupytext.reads(body, fmt="py:percent").cells]
    cells: list[Prose | Code] = []
    rest = iter(enumerate(raw, start=1))
    for number, cell in rest:
        where = f"{path.name}, cell {number} ({excerpt(cell.text)})"
        if cell.kind == "code":
            if cell.metadata:
                raise SourceError(f"{where}: a code cell is for both languages and takes no {sorted(cell.metadata)}.")
            if not cell.text.strip():
                raise SourceError(f"{where}: the code cell is empty.")
            if not re.match(r"\s*[%!]", cell.text) and (trouble := syntax_error(cell.text)):
                raise SourceError(f"{where}: {trouble}.")
            cells.append(Code(cell.text))
            continue
        if not cell.is_prose("en"):
            raise SourceError(f'{where}: expected code, or prose with lang="en" followed by its lang="zh" twin.')
        _, twin = next(rest, (0, None))
        if twin is None or not twin.is_prose("zh"):
            raise SourceError(f'{where}: the English prose lacks its lang="zh" twin, which must follow at once.')
        if len(HAN.findall(cell.text)) > FOREIGN * len(cell.text) or not HAN.search(twin.text):
            raise SourceError(f"{where}: the English cell must be English, and its twin Chinese.")
        cells.append(Prose(cell.text, twin.text))
    if not cells or not isinstance(cells[0], Prose) or not all(t.startswith("# ") for t in (cells[0].en, cells[0].zh)):
        raise SourceError(f"{path.name}: the first cell must be prose that starts with the title, `# …`.")
    titles = {language: fields[f"title_{language}"] for language in LANGUAGES}
    return Lesson(path.stem, titles, int(fields["minutes"]), tuple(cells))


def split_header(text: str, name: str) -> tuple[dict[str, str], str]:
    """The fields between the two ``# ---`` lines at the top, and the rest."""
    match = re.match(r"# ---\n(.*?)# ---\n", text, re.DOTALL)
    rows = re.findall(r"^# (\w+): (.+)$", match[1], re.MULTILINE) if match else []
    fields = {key: value.strip().strip("\"'") for key, value in rows}
    if tuple(fields) != FIELDS or not fields["minutes"].isdecimal():
        raise SourceError(f"{name}: the header must hold {', '.join(FIELDS)} (a whole number), in this order.")
    return fields, text[match.end() :]


def syntax_error(code: str) -> str | None:
    """What Python cannot read in a cell; None if it can read all."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}"
    return None


def excerpt(source: str) -> str:
    """The first line of a cell, short enough for a message."""
    line = source.strip().partition("\n")[0]
    return repr(line if len(line) <= 50 else line[:49] + "…")


# ---- lesson to notebook


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
    metadata = METADATA | {"s13": s13, "title": lesson.titles[language]}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook, indent=1, ensure_ascii=False, sort_keys=True).rstrip("\n") + "\n"


def joined(prose: str) -> str:
    """Chinese prose with its wrapped lines joined: a browser would show a space at each line's end.

    A line is joined to the one before it after Chinese punctuation, or between Chinese characters. Headings, tables,
    quotes, code and the starts of list items keep their lines.
    """
    lines: list[str] = []
    in_code = False
    for line in prose.split("\n"):
        fence = line.lstrip().startswith("```")
        text, before = line.lstrip(), lines[-1] if lines else ""
        starts_block = not text or re.match(r"[#|>]|[-+*] |\d+[.)] |<", text)
        flows = before and not re.match(r"\s*[#|>]", before) and not in_code and not fence and not starts_block
        if flows and (WIDE_STOP.search(before) or (WIDE_END.search(before) and WIDE_START.match(text))):
            lines[-1] += text
        else:
            lines.append(line)
        in_code ^= fence
    return "\n".join(lines)


def cell_id(text: str, seen: dict[str, int]) -> str:
    """An id that depends on the text alone, so that cells inserted elsewhere do not change it; repeats are counted."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    seen[digest] = seen.get(digest, 0) + 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def built_path(name: str, language: str, folder: Path = NOTEBOOKS) -> Path:
    """Where a lesson's notebook of one language lies."""
    return folder / language / f"{name}.ipynb"


def sources(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[Path]:
    """The source files in order; of those, with ``only``, the ones whose names start so."""
    paths = sorted((folder / "src").glob("*.py"))
    return [path for path in paths if not only or path.name.startswith(tuple(only))]


# ---- what is wrong with what is stored


def untidy(text: str) -> list[str]:
    """What a stored notebook holds that no stored notebook may: outputs, counts, widget state, foreign metadata."""
    try:
        notebook = json.loads(text)
    except ValueError:
        return ["is not JSON"]
    found = []
    cells = notebook.get("cells", [])
    if any(cell.get("outputs") for cell in cells):
        found.append("holds outputs")
    if any(cell.get("execution_count") is not None for cell in cells):
        found.append("holds execution counts")
    if any(cell.get("attachments") for cell in cells):
        found.append("holds attachments")
    if any(cell.get("metadata") not in ({}, FOLDED) for cell in cells):
        found.append("holds metadata of cells")
    metadata = notebook.get("metadata", {})
    if "widgets" in metadata:
        found.append("holds the state of widgets")
    if extra := sorted(metadata.keys() - {*METADATA, "s13", "title", "widgets"}):
        found.append(f"holds metadata of its own: {', '.join(extra)}")
    return found


def code_of(text: str) -> list[str]:
    """The code cells of a stored notebook, in order."""
    cells = json.loads(text)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def faults(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[str]:
    """One sentence for all that ``--check`` finds: in the sources, and in what is stored of each language."""
    found = []
    names = {path.stem for path in sources(folder)}
    for path in sources(folder, only):
        try:
            lesson = read_lesson(path)
        except SourceError as error:
            found.append(str(error))
            continue
        stored = {}
        for language in LANGUAGES:
            built = built_path(lesson.name, language, folder)
            place = f"notebooks/{language}/{built.name}"
            if not built.exists():
                found.append(f"{place}: missing.")
                continue
            stored[language] = built.read_text(encoding="utf-8")
            state = untidy(stored[language])
            found += [f"{place}: {trouble}." for trouble in state]
            if stored[language] != notebook_text(lesson, language) and not state:
                found.append(f"{place}: differs from its source, notebooks/src/{path.name}.")
        if len(stored) == 2 and "is not JSON" not in (untidy(stored["en"]) + untidy(stored["zh"])):  # noqa: SIM102
            if code_of(stored["en"]) != code_of(stored["zh"]):
                found.append(f"{lesson.name}: code cells differ between the two languages.")
    for language in LANGUAGES:
        orphans = sorted(path.name for path in (folder / language).glob("*.ipynb") if path.stem not in names)
        found += [f"notebooks/{language}/{name}: has no source." for name in orphans]
    return found


def build(folder: Path = NOTEBOOKS, only: list[str] | None = None) -> list[Path]:
    """Write the notebooks that are stale, and return their paths."""
    written = []
    for path in sources(folder, only):
        lesson = read_lesson(path)
        for language in LANGUAGES:
            built, text = built_path(lesson.name, language, folder), notebook_text(lesson, language)
            if not built.exists() or built.read_text(encoding="utf-8") != text:
                built.parent.mkdir(parents=True, exist_ok=True)
                built.write_text(text, encoding="utf-8", newline="\n")
                written.append(built)
    return written


def main(arguments: list[str]) -> int:
    """Build, or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is wrong")
    parser.add_argument("--only", nargs="+", metavar="NN", help="lessons whose file names start so")
    options = parser.parse_args(arguments)
    if options.check:
        found = faults(only=options.only)
        print("\n".join(found) if found else "The notebooks are up to date, complete in both languages, and clean.")
        if found:
            print("Edit notebooks/src, then: python3 run.py notebooks")
        return 1 if found else 0
    try:
        for path in build(only=options.only):
            print(f"wrote: {path.relative_to(ROOT)}")
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
