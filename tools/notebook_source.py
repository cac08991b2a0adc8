"""Read a source of notebooks: code cells once, prose cells in pairs, English directly followed by Chinese.

The format is jupytext's ``py:percent``. A prose cell says its language, ``# %% [markdown] lang="en"``; in an exercise
a cell may say the part that it belongs to, ``part="2a"``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import jupytext
import nbformat

LANGUAGES = ("en", "zh")
HAN = re.compile(r"[\u4e00-\u9fff]")
FOREIGN = 0.1  # an English cell may name a Chinese word, no more


class SourceError(Exception):
    """A source breaks the rules; the message is one sentence that names the file and the cell."""


@dataclass(frozen=True)
class Prose:
    """A prose cell in each language."""

    en: str
    zh: str
    part: str | None = None


@dataclass(frozen=True)
class Code:
    """A code cell, the same in all languages."""

    text: str
    part: str | None = None

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

    def is_prose(self, language: str, allowed: tuple[str, ...]) -> bool:
        """Whether this is prose in that language, with no other metadata than ``allowed``."""
        return (
            self.kind == "markdown"
            and self.metadata.get("lang") == language
            and set(self.metadata) <= {"lang", *allowed}
        )


def read_cells(body: str, name: str, metadata: tuple[str, ...] = ()) -> tuple[Prose | Code, ...]:
    """Read the cells of a source named ``name``, whose cells may carry ``metadata``.

    A ``SourceError`` names the first rule that it breaks.
    """
    raw = [RawCell.read(cell) for cell in jupytext.reads(body, fmt="py:percent").cells]
    cells: list[Prose | Code] = []
    rest = iter(enumerate(raw, start=1))
    for number, cell in rest:
        where = f"{name}, cell {number} ({excerpt(cell.text)})"
        part = cell.metadata.get("part")
        if cell.kind == "code":
            if extra := sorted(cell.metadata.keys() - set(metadata)):
                raise SourceError(f"{where}: a code cell is for both languages and takes no {extra}.")
            if not cell.text.strip():
                raise SourceError(f"{where}: the code cell is empty.")
            if not re.match(r"\s*[%!]", cell.text) and (trouble := syntax_error(cell.text)):
                raise SourceError(f"{where}: {trouble}.")
            cells.append(Code(cell.text, part))
            continue
        if not cell.is_prose("en", metadata):
            raise SourceError(f'{where}: expected code, or prose with lang="en" followed by its lang="zh" twin.')
        _, twin = next(rest, (0, None))
        if twin is None or not twin.is_prose("zh", metadata) or twin.metadata.get("part") != part:
            raise SourceError(f'{where}: the English prose lacks its lang="zh" twin, which must follow at once.')
        if len(HAN.findall(cell.text)) > FOREIGN * len(cell.text) or not HAN.search(twin.text):
            raise SourceError(f"{where}: the English cell must be English, and its twin Chinese.")
        cells.append(Prose(cell.text, twin.text, part))
    if not cells or not isinstance(cells[0], Prose) or not all(t.startswith("# ") for t in (cells[0].en, cells[0].zh)):
        raise SourceError(f"{name}: the first cell must be prose that starts with the title, `# …`.")
    return tuple(cells)


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
