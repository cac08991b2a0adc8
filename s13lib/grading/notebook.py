"""What an exercise calls: ``check``, ``inputs``, ``hint`` and ``progress``, in the notebook's language."""

from __future__ import annotations

import numpy as np

from s13lib.errors import require_whole
from s13lib.grading import guard, judge, manifest, store
from s13lib.grading.part import Verdict
from s13lib.widgets.language import language, pick, say

WORDS = {
    "en": {"tried": "tried", "expected": "expected", "came": "came", "why": "likely", "again": "again"},
    "zh": {"tried": "试了", "expected": "应为", "came": "得到", "why": "多半", "again": "重来"},
}


class CheckFailed(Exception):
    """A part is not right yet. The text says what was tried, expected and came, and the likely mistake.

    A notebook shows the text alone, without a traceback. To whoever runs the notebook (nbgrader, a test) it is an
    error of the cell: a part that is not right cannot be mistaken for one that is.
    """

    def __init__(self, text: str, verdict: Verdict) -> None:
        super().__init__(text)
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:
        return str(self).split("\n")


def check(key: str, answer: object, *, seed: int | None = None) -> None:
    """Check an answer on fresh random inputs; say so if it is right, raise ``CheckFailed`` if not.

    Args:
        key: the part, such as "2a".
        answer: your function or class.
        seed: repeats the inputs of an earlier check, which prints its seed.
    """
    entry = manifest.entry(key)
    if seed is None:
        seed = judge.fresh_seed()
    require_whole("seed", seed, 0, 2**32 - 1)
    part = manifest.part(key)
    verdict = judge.judge(key, lambda inputs: guard.observe(part, answer, inputs), seed)
    if not verdict.passed:
        raise CheckFailed(explanation(verdict, language()), verdict)
    store.add_solved(key)
    say(
        f"{key} is right: {entry.points} points. {verdict.cases} cases with fresh inputs (seed {seed}).",
        f"{key} 正确：{entry.points} 分。用新生成的输入试了 {verdict.cases} 组（seed {seed}）。",
    )


def explanation(verdict: Verdict, spoken: str) -> str:
    """A failed verdict in words, a line each: tried, expected, came, likely mistake, how to repeat it."""
    words, entry = WORDS[spoken], manifest.entry(verdict.part)
    head = (
        f"{verdict.part}：第 {verdict.case} 组输入（共 {verdict.cases} 组）还不对。"
        if spoken == "zh"
        else f"{verdict.part} is not right yet: case {verdict.case} of {verdict.cases}."
    )
    lines = [(words["tried"], verdict.tried), (words["expected"], verdict.expected), (words["came"], verdict.came)]
    lines.append((words["why"], verdict.why))
    width = max(len(word) for word in words.values())
    rows = [f"  {word:<{width}}  {text.in_(spoken)}" for word, text in lines if text.in_(spoken)]
    again = f'check("{verdict.part}", {entry.answer}, seed={verdict.seed})'
    hint_text = f'hint("{verdict.part}")'
    tail = (
        f"再试同样的输入：{again}；要提示：{hint_text}"
        if spoken == "zh"
        else f"same inputs: {again}; a hint: {hint_text}"
    )
    return "\n".join([head, *rows, f"  {words['again']:<{width}}  {tail}"])


def inputs(key: str, seed: int, case: int) -> tuple:
    """The inputs of one case of a check, to look at: the check names its seed, and the case that failed (from 1)."""
    require_whole("seed", seed, 0, 2**32 - 1)
    cases = manifest.part(key).make(np.random.default_rng(seed))
    require_whole("case", case, 1, len(cases))
    return cases[case - 1]


def hint(key: str) -> None:
    """Print the hint of a part."""
    print(manifest.entry(key).hint.in_(language()))


def progress() -> None:
    """Print which parts are solved, and the points."""
    print(progress_text(language()))


def progress_text(spoken: str) -> str:
    """The progress table: an exercise a line, its parts, and the points."""
    done = store.solved()
    lines = []
    reached = 0
    for exercise in manifest.exercises():
        parts = "  ".join(f"{part.key} {'✓' if part.key in done else '·'}" for part in exercise.parts)
        points = sum(part.points for part in exercise.parts if part.key in done)
        reached += points
        lines.append(f"{exercise.number}  {points:>3}/{exercise.points:<3} {parts:<32} {exercise.title.in_(spoken)}")
    most = sum(exercise.points for exercise in manifest.exercises())
    total = pick(f"{reached} of {most} points", f"共 {most} 分，已得 {reached} 分", spoken)
    return "\n".join([*lines, total])
