"""Feedback for each learner, in the language of the notebook: Markdown to paste, and HTML to open."""

from __future__ import annotations

import hashlib
import html
import re
from collections import defaultdict
from collections.abc import Iterable

from s13lib import __version__
from s13lib.grading.batch import Row
from s13lib.grading.grader import Note
from s13lib.grading.notebook import explanation
from s13lib.grading.part import Trouble
from s13lib.grading.results import printable
from s13lib.grading.texts import TROUBLES

WORDS = {
    "en": {
        "title": "Feedback for {}",
        "exercise": "Exercise {}: {}",
        "points": "{} of {} points",
        "right": "right",
        "not graded": "Not graded, which is no zero. Ask your instructor. The reason: {}",
        "notes": "What did not run in your notebook (code cells count from 1):",
        "by": "Graded by s13lib {}: each part on fresh inputs, the same ones for the same code.",
    },
    "zh": {
        "title": "给 {} 的反馈",
        "exercise": "练习 {}：{}",
        "points": "{} / {} 分",
        "right": "正确",
        "not graded": "没有评分，但这不是零分。请联系老师。原因：{}",
        "notes": "你的 notebook 里有这些没有运行成功（代码单元格从 1 数起）：",
        "by": "由 s13lib {} 评分：每一题都用新生成的输入检查；同样的代码得到同样的输入。",
    },
}
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "pre{background:#f4f4f4;padding:1em;white-space:pre-wrap}"
)
Block = tuple[str, str]  # kind ("h1", "h2", "h3", "p", "pre") and text


def files(rows: Iterable[Row]) -> dict[str, str]:
    """All feedback files: name to text, two for each learner."""
    by_learner = defaultdict(list)
    for row in rows:
        by_learner[row.learner].append(row)
    made = {}
    for learner, mine in by_learner.items():
        language = next((row.submission.language for row in mine if row.submission), "en")
        blocks = list(_blocks(learner, mine, language))
        stem = file_stem(learner)
        made[f"{stem}.md"] = as_markdown(blocks)
        made[f"{stem}.html"] = as_html(blocks, language)
    return made


def file_stem(learner: str) -> str:
    """A file name for a learner: letters, digits and a few marks; changed names get a digest, so that none collide."""
    safe = re.sub(r"[^\w.@+-]+", "_", learner).strip("._")[:80]
    changed = safe != learner or safe.casefold() != safe
    return f"{safe}-{hashlib.sha256(learner.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}" if changed else safe


def _blocks(learner: str, rows: list[Row], language: str) -> Iterable[Block]:
    words = WORDS[language]
    yield "h1", words["title"].format(learner)
    for row in rows:
        if row.submission is None:
            yield "h2", re.split(r"[/\\\\:]", row.file)[-1]  # the path before it is the instructor's
        else:
            exercise = row.submission.exercise
            yield "h2", words["exercise"].format(exercise.number, exercise.title.in_(language))
        if row.status != "graded":
            yield "p", words["not graded"].format(row.reason)
            continue
        yield "p", words["points"].format(sum(row.reached.values()), row.submission.exercise.points)
        titles = {part.key: part for part in row.submission.exercise.parts}
        for verdict in row.grade.verdicts:
            part = titles[verdict.part]
            reached = words["points"].format(row.reached[verdict.part], part.points)
            yield "h3", f"{verdict.part} · {part.title.in_(language)} · {reached}"
            yield ("p", words["right"]) if verdict.passed else ("pre", explanation(verdict, language))
        lines = [*row.submission.code.faults, *(_said(note, language) for note in row.grade.notes)]
        if lines:
            yield "p", words["notes"]
            yield "pre", "\n".join(lines)
    yield "p", words["by"].format(__version__)


def _said(note: Note, language: str) -> str:
    trouble: Trouble = note.trouble
    return f"{note.place}: {TROUBLES[trouble.kind][0].in_(language).format(trouble.detail)}"


def as_markdown(blocks: Iterable[Block]) -> str:
    """The blocks as Markdown. Whatever comes from a learner is shown as it is, and marks nothing up."""
    made = []
    for kind, text in blocks:
        if kind == "pre":
            made.append("\n".join(f"    {printable(line)}" for line in text.split("\n")))
        else:
            plain = re.sub(r"([\\`*_{}\[\]<>#|~!&])", r"\\\1", printable(text))
            made.append({"p": "", "h1": "# ", "h2": "## ", "h3": "### "}[kind] + plain)
    return "\n\n".join(made) + "\n"


def as_html(blocks: Iterable[Block], language: str) -> str:
    """The blocks as a page that loads nothing from elsewhere."""
    blocks = list(blocks)
    body = []
    for kind, text in blocks:
        plain = "\n".join(printable(line) for line in text.split("\n")) if kind == "pre" else printable(text)
        body.append(f"<{kind}>{html.escape(plain)}</{kind}>")
    title = html.escape(printable(blocks[0][1]))
    return (
        f'<!doctype html>\n<html lang="{language}">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )
