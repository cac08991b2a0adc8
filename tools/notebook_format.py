"""Notebooks as they are stored: deterministic, without outputs or state, with ids that depend on the text alone."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

# All that a built notebook says about itself, but for its titles. JupyterLab would add versions; they are not kept.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
FOLDED = {"jupyter": {"source_hidden": True}}  # JupyterLab shows the output, and the code behind a click
WIDE_START = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef“‘]")
WIDE_END = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef”’]$")
WIDE_STOP = re.compile(r"[，。；：、！？（）「」”]\**$")


@dataclass(frozen=True)
class Built:
    """A notebook as it should be stored: where, in words (``place`` is its folder, ``source`` its source), and what."""

    path: Path
    place: str
    source: str
    text: str


def stored(cells: list[nbformat.NotebookNode], s13: dict[str, object], title: str) -> str:
    """The text of a notebook of these cells; ``s13`` is what the course says about it."""
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=METADATA | {"s13": s13, "title": title})
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
    if any(cell.get("metadata", {}).keys() - {"jupyter", "nbgrader"} for cell in cells):
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


def faults_of(notebooks: list[Built]) -> list[str]:
    """One sentence for all that is wrong with stored notebooks of one source, which should hold the same code."""
    found, texts = [], []
    for built in notebooks:
        name = f"{built.place}/{built.path.name}"
        if not built.path.exists():
            found.append(f"{name}: missing.")
            continue
        text = built.path.read_text(encoding="utf-8")
        state = untidy(text)
        found += [f"{name}: {trouble}." for trouble in state]
        if text != built.text and not state:
            found.append(f"{name}: differs from its source, {built.source}.")
        if "is not JSON" not in state:
            texts.append(text)
    if len({tuple(code_of(text)) for text in texts}) > 1:
        found.append(f"{notebooks[0].path.stem}: code cells differ between the two languages.")
    return found


def orphans(folders: dict[str, Path], names: set[str]) -> list[str]:
    """A sentence for each notebook in ``folders`` (by their name in words) whose source is not among ``names``."""
    return [
        f"{place}/{path.name}: has no source."
        for place, folder in folders.items()
        for path in sorted(folder.glob("*.ipynb"))
        if path.stem not in names
    ]


def write_stale(notebooks: list[Built]) -> list[Path]:
    """Write those notebooks that are not stored as they should be; return their paths."""
    written = []
    for built in notebooks:
        if not built.path.exists() or built.path.read_text(encoding="utf-8") != built.text:
            built.path.parent.mkdir(parents=True, exist_ok=True)
            built.path.write_text(built.text, encoding="utf-8", newline="\n")
            written.append(built.path)
    return written
