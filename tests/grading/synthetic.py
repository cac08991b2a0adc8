"""Submissions of a class that does not exist: right, wrong, hostile and damaged, with the grades they must get."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path

from s13lib.grading.manifest import Exercise, exercises, wrong_answers
from tests.grading.conftest import notebook
from tools.build_exercises import read_source, without_solution
from tools.notebook_source import Code

WRONG_IMPORT = re.compile(r"from s13lib\.grading\.wrong(?:\.(\w+) import|\s+import (\w+))")


@dataclass(frozen=True)
class Made:
    """One file, and what grading must say: points by part (None: refused) and the mistakes by name."""

    learner: str
    raw: bytes
    points: dict[str, int] | None
    mistakes: dict[str, str] = field(default_factory=dict)
    status: str = "graded"
    reason: str = ""
    flags: str = ""


def full(exercise: Exercise) -> dict[str, int]:
    """Full points."""
    return {part.key: part.points for part in exercise.parts}


def none_of(exercise: Exercise) -> dict[str, int]:
    """No points."""
    return dict.fromkeys(full(exercise), 0)


def code_cells(exercise: Exercise, stub: str | None = None) -> list[str]:
    """The solution's code cells; part ``stub`` ("all": every part) as it is handed out."""
    entries = {part.key: part for part in exercise.parts}
    cells = []
    for cell in read_source(exercise):
        if isinstance(cell, Code):
            left = cell.part in entries and stub in ("all", cell.part)
            cells.append(without_solution(cell.text, entries[cell.part]) if left else cell.text)
            if cell.part in entries:
                cells.append(f'check("{cell.part}", {entries[cell.part].answer})')
    return [*cells, "progress()"]


def wrong_modules(name: str) -> dict[str, str]:
    """The sources of a module of wrong answers and of all that it imports from its package, the latter first."""
    source = resources.files("s13lib.grading.wrong").joinpath(f"{name}.py").read_text(encoding="utf-8")
    found = {}
    for match in WRONG_IMPORT.finditer(source):
        found |= wrong_modules(match[1] or match[2])
    return found | {name: source}


def wrong_cells(exercise: Exercise, key: str, name: str) -> list[str]:
    """The solution with the answer to one part replaced by a named wrong answer, which the learner brings along."""
    package = "s13lib.grading.wrong"
    lines = [
        "import sys, types",
        f"package = sys.modules['{package}'] = types.ModuleType('{package}')",
        "package.__path__ = []",
    ]
    for module, source in wrong_modules(exercise.name).items():
        assert import_module(f"{package}.{module}")
        lines += [
            f"module = sys.modules['{package}.{module}'] = package.{module} = types.ModuleType('{package}.{module}')",
            f"done = exec({source!r}, module.__dict__)",
        ]
    answer = next(part.answer for part in exercise.parts if part.key == key)
    lines.append(f"{answer} = {{wrong.name: wrong.answer for wrong in module.WRONG['{key}']}}[{name!r}]")
    return [*code_cells(exercise), "\n".join(lines)]


def right() -> Iterator[Made]:
    """The solutions, and the notebooks as they are handed out."""
    for exercise in exercises():
        yield Made(
            f"right-{exercise.number}", notebook(*code_cells(exercise), exercise=exercise.number), full(exercise)
        )
    lanes = exercises()[-2]
    yield Made("untouched", notebook(*code_cells(lanes, "all"), exercise=lanes.number), none_of(lanes))


def wrong() -> Iterator[Made]:
    """Of each exercise one named wrong answer to its first part and one to its last; the other parts are right."""
    for exercise in exercises():
        for part, pick in ((exercise.parts[0], 0), (exercise.parts[-1], -1)):
            name = wrong_answers(part.key)[pick].name
            raw = notebook(*wrong_cells(exercise, part.key, name), exercise=exercise.number)
            yield Made(f"wrong-{part.key}", raw, full(exercise) | {part.key: 0}, {part.key: name})


HOSTILE = {
    "loops": "while True: pass",
    "exits": "import os; os._exit(0)",
    "floods": "while True: print('x' * 10_000)",
    "eats": "bytearray(16 << 30)",
    "forks": "import os\n    while True: os.fork()",
    "fills": "for n in range(999): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))",
    "spies": "open('/etc/passwd').read()",
    "phones": "import socket; socket.create_connection(('127.0.0.1', 22))",
    "jams": "import os\n    try: [os.write(fd, b'x' * 9999) for fd in range(3, 64)]\n    except OSError: pass",
    "kills": "import os; os.kill(os.getppid(), 9)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "mutates": "launch_us.append(1.0)",
    "borrows": "from s13lib.simulator.launch import launch_times; launch_times(launch_us, kernel_us, 1)",
}


def hostile() -> Iterator[Made]:
    """Exercise 5 with an attack in its second answer: that part is lost, and nothing else."""
    (lanes,) = (exercise for exercise in exercises() if exercise.number == 5)
    for name, body in HOSTILE.items():
        attack = f"def step_us_with_queue(launch_us, kernel_us, queue_depth):\n    {body}"
        yield Made(f"hostile-{name}", notebook(*code_cells(lanes), attack), full(lanes) | {"5b": 0})
    yield Made("hostile-top", notebook("import os\ngone = os._exit(1)", *code_cells(lanes)), full(lanes))


def damaged() -> Iterator[Made]:
    """Files that cannot be graded, and some that were changed and can."""
    (lanes,) = (exercise for exercise in exercises() if exercise.number == 5)
    good = notebook(*code_cells(lanes))
    old = {"exercise": 5, "version": lanes.version - 1, "language": "en"}
    for name, raw, reason in (
        ("empty", b"", "is empty"),
        ("cut", good[: len(good) // 2], "cannot be read as JSON"),
        ("pdf", b"%PDF-1.4 homework", "cannot be read as JSON"),
        ("other", notebook("x = 1", s13={}), "answers no exercise"),
        ("old", notebook(*code_cells(lanes), s13=old), "was made from version"),
        ("long", good + b" " * (33 << 20), "larger than"),
    ):
        yield Made(f"damaged-{name}", raw, None, status="refused", reason=reason)
    lost = json.loads(good)
    lost["metadata"], lost["cells"] = {"colab": {}}, [*lost["cells"], {"cell_type": "code", "source": "def broken(:"}]
    yield Made("changed-colab", json.dumps(lost).encode(), full(lanes), flags="recognised by its names")
    missing = [cell for cell in code_cells(lanes) if "fool_the_maximum" not in cell]
    yield Made("changed-missing", notebook(*missing), full(lanes) | {"5c": 0})
    old_format = json.loads(good)
    cells = [{"cell_type": "code", "input": cell["source"]} for cell in old_format.pop("cells")]
    old_format |= {"nbformat": 3, "worksheets": [{"cells": cells}]}
    yield Made("changed-format-3", json.dumps(old_format).encode(), full(lanes))


def everybody() -> list[Made]:
    """All of them."""
    return [*right(), *wrong(), *hostile(), *damaged()]


def hand_in(folder: Path, made: list[Made]) -> None:
    """Write them as a folder of learners."""
    for one in made:
        path = folder / one.learner / "notebook.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(one.raw)
