"""One submitted notebook: which exercise it answers, in which language, and its code; or why it cannot be graded.

Notebooks come back changed: renamed, re-saved by another editor without our metadata and cell ids, with outputs, extra
cells and lost ones. Code and names are what counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass

from s13lib.errors import shortened
from s13lib.grading.manifest import Exercise, exercises
from s13lib.grading.statements import Code, read_code

MOST_NOTEBOOK = 32 << 20  # bytes
MOST_CELLS = 5_000
GRADE_ID = re.compile(r"([0-9]+)[a-z]-")
HAN = re.compile(r"[\u4e00-\u9fff]")
GRADER = "s13lib.grading."
OFFERED = {GRADER + name for name in ("CheckFailed", "check", "hint", "inputs", "progress")}


class Refused(Exception):
    """A file that cannot be graded; the text is one sentence for the instructor."""


@dataclass(frozen=True)
class Submission:
    """A notebook that can be graded.

    Attributes:
        exercise: what it answers.
        language: "en" or "zh", of the feedback.
        code: its code.
        digest: of the code as it stands; the same code gets the same inputs, and so the same grade.
        flags: what an instructor may want to look at.
    """

    exercise: Exercise
    language: str
    code: Code
    digest: str
    flags: tuple[str, ...] = ()


def read_submission(raw: bytes) -> Submission:
    """Read a notebook file.

    Raises:
        Refused: it is no notebook, answers no exercise, or another version of one.
    """
    notebook = _notebook(raw)
    cells = _cells(notebook)
    sources = [source for kind, source, _ in cells if kind == "code"]
    code = read_code(sources)
    metadata = notebook.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    ours = metadata.get("s13")
    ours = ours if isinstance(ours, dict) else {}
    exercise, lost = _exercise(ours, cells, code)
    digest = hashlib.sha256("\0".join([str(exercise.number), *sources]).encode("utf-8", "surrogatepass")).hexdigest()
    flags = ["recognised by its " + lost] if lost else []
    if any(name.startswith(GRADER) and name not in OFFERED for name in code.imports):
        flags.append("imports the grader's modules")
    return Submission(exercise, _language(ours, cells), code, digest, tuple(flags))


def _notebook(raw: bytes) -> dict:
    if not raw.strip():
        raise Refused("The file is empty.")
    if len(raw) > MOST_NOTEBOOK:
        raise Refused(f"The file is larger than {MOST_NOTEBOOK >> 20} MiB: clear its outputs and save it again.")
    try:
        notebook = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Refused("The file is no notebook, or is cut off: it cannot be read as JSON.") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells", notebook.get("worksheets")), list):
        raise Refused("The file is JSON, but no notebook.")
    return notebook


def _cells(notebook: dict) -> list[tuple[str, str, dict]]:
    """Kind, source and metadata of all cells, of notebook format 4 or 3."""
    if "cells" in notebook:
        found = notebook["cells"]
    else:  # format 3
        found = []
        for sheet in notebook["worksheets"]:
            cells = sheet.get("cells") if isinstance(sheet, dict) else None
            found += cells if isinstance(cells, list) else []
    if len(found) > MOST_CELLS:
        raise Refused(f"The notebook has more than {MOST_CELLS:,} cells.")
    cells = []
    for cell in found:
        if not isinstance(cell, dict):
            raise Refused("The file is JSON, but no notebook.")
        source = cell.get("source", cell.get("input", ""))
        if isinstance(source, list):
            source = "".join(line for line in source if isinstance(line, str))
        metadata = cell.get("metadata")
        kind = "code" if cell.get("cell_type") == "code" else "prose"
        cells.append((kind, source if isinstance(source, str) else "", metadata if isinstance(metadata, dict) else {}))
    return cells


def _exercise(ours: dict, cells: list[tuple[str, str, dict]], code: Code) -> tuple[Exercise, str]:
    """The exercise that a notebook answers; and by what it was recognised, where our metadata is gone."""
    if "exercise" in ours:
        exercise = _numbered(ours["exercise"])
        if exercise is None:
            raise Refused(f"It answers exercise {shortened(ours['exercise'])}, which is not in this course.")
        version = ours.get("version", exercise.version)
        if version != exercise.version:
            raise Refused(
                f"It was made from version {shortened(version)} of exercise {exercise.number}, and the checks are for "
                f"version {exercise.version}: its learner must copy the answers into the present one."
            )
        return exercise, ""
    graded = Counter()
    for _, _, metadata in cells:
        nbgrader = metadata.get("nbgrader")
        identity = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
        if isinstance(identity, str) and (match := GRADE_ID.match(identity)):
            graded[match[1][:6]] += 1
    for number, _ in graded.most_common():
        if exercise := _numbered(int(number)):
            return exercise, "cells"
    matches = [(sum(part.answer in code.names for part in one.parts), -one.number, one) for one in exercises()]
    count, _, exercise = max(matches)
    if count == 0:
        raise Refused("It answers no exercise of this course: it defines none of the names that they ask for.")
    return exercise, "names"


def _numbered(number: object) -> Exercise | None:
    return next((one for one in exercises() if type(number) is int and one.number == number), None)


def _language(ours: dict, cells: list[tuple[str, str, dict]]) -> str:
    if ours.get("language") in ("en", "zh"):
        return ours["language"]
    prose = "".join(source for kind, source, _ in cells if kind == "prose")
    return "zh" if len(HAN.findall(prose)) > len(prose) / 10 else "en"
