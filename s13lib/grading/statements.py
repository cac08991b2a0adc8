"""A notebook's code as the statements that are worth running: imports, definitions, assignments, compound statements.

Calls on their own (checks, prints, plots) and what only a notebook understands (``%magic``, ``!shell``) are left out.
Each statement keeps its line in its cell, so that a traceback names the line that the learner sees.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST_CODE = 500_000  # characters of one cell
RUNS_THE_CELL = re.compile(r"%%(time|timeit|capture|prun)\b.*")  # cell magics whose cell is Python
OTHER_CELL = re.compile(r"\s*%%")
NOT_PYTHON = re.compile(r"\s*([%!?]|[\w.]+\?+\s*$|[\w, ]+=\s*[%!])|.*[\w)\]]\?+\s*$")
LEFT_OUT = (ast.Expr, ast.Pass, ast.Assert, ast.Raise, ast.Return, ast.Delete)


@dataclass(frozen=True)
class Statement:
    """One statement: its text, on the line where it stands in its cell (cells count from 1, code cells alone)."""

    text: str
    cell: int
    line: int

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class Code:
    """What a notebook's code cells hold.

    Attributes:
        statements: what is to be run, in order.
        faults: a sentence for each cell that cannot be read.
        names: what is defined at the top level.
        stubs: those of them that only raise, as handed out.
        shape: a digest that does not see comments, spacing and docstrings.
        imports: dotted names of what is imported anywhere in the code.
    """

    statements: tuple[Statement, ...]
    faults: tuple[str, ...]
    names: frozenset[str]
    stubs: frozenset[str]
    shape: str
    imports: frozenset[str]


def read_code(cells: Iterable[str]) -> Code:
    """Read code cells. Never raises: a cell that Python cannot read is a fault."""
    statements, faults, names, stubs, imports = [], [], set(), set(), set()
    shape = hashlib.sha256()
    for number, cell in enumerate(cells, start=1):
        try:
            text, tree = _parsed(cell)
            for node in tree.body:
                if isinstance(node, LEFT_OUT):
                    continue
                names.update(_defined(node))
                (stubs.update if _only_raises(node) else stubs.difference_update)(_defined(node))
                imports.update(_imported(node))
                shape.update(ast.dump(_without_docstrings(node)).encode("utf-8", "backslashreplace"))
                statements.append(_statement(node, text, number))
        except SyntaxError as error:
            faults.append(f"cell {number}: {error.msg}, line {error.lineno}")
        except (ValueError, RecursionError, MemoryError):  # nested too deep, a lone surrogate
            faults.append(f"cell {number}: Python cannot read it")
    return Code(
        tuple(statements), tuple(faults), frozenset(names), frozenset(stubs), shape.hexdigest(), frozenset(imports)
    )


def _parsed(cell: str) -> tuple[str, ast.Module]:
    """A cell as Python text and tree. Only where it is no Python are the notebook's own lines taken out."""
    if len(cell) > MOST_CODE:
        raise ValueError
    text = cell.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as an invalid escape in a string
        try:
            return text, ast.parse(text)
        except SyntaxError:
            text = "\n".join(_plain_lines(text.split("\n")))
            return text, ast.parse(text)


def _plain_lines(lines: list[str]) -> Iterator[str]:
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if RUNS_THE_CELL.match(lines[first]):
        lines = [*lines[:first], "", *lines[first + 1 :]]
    elif OTHER_CELL.match(lines[first]):
        return
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        yield f"{indent}pass" if NOT_PYTHON.match(line) else line


def _statement(node: ast.stmt, text: str, cell: int) -> Statement:
    lines = text.split("\n")
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    start = 0 if first < node.lineno else _characters(lines[first - 1], node.col_offset)
    picked = lines[first - 1 : node.end_lineno]
    picked[-1] = picked[-1][: _characters(picked[-1], node.end_col_offset)]
    picked[0] = picked[0][start:]
    return Statement("\n" * (first - 1) + "\n".join(picked) + "\n", cell, first)


def _characters(line: str, offset: int) -> int:
    """An offset in UTF-8 bytes, as Python's parser counts, in characters."""
    return len(line.encode()[:offset].decode())


def _defined(node: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def _only_raises(node: ast.stmt) -> bool:
    """Whether a function does nothing but raise, after its docstring."""
    body = node.body if isinstance(node, ast.FunctionDef) else []
    body = [part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _imported(node: ast.stmt) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield from (f"{part.module or ''}.{alias.name}" for alias in part.names)


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    """The statement itself, its docstrings taken out: it is not needed with them any more."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(part, False):
            del part.body[0]
    return node
