"""What an exercise calls: ``check``, ``inputs``, ``hint`` and ``progress``, in the notebook's language."""

from __future__ import annotations

import numpy as np

from s13lib.errors import require_whole
from s13lib.grading import guard, judge, manifest, store
from s13lib.grading.part import Text, Verdict
from s13lib.grading.texts import counted
from s13lib.grading.wrapping import columns, wrapped
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
        f"{key} is right: {counted(entry.points, 'point')}. "
        f"{counted(verdict.cases, 'case')} with fresh inputs (seed {seed}).",
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
    rows = [
        (words["tried"], verdict.tried),
        (words["expected"], verdict.expected),
        (words["came"], verdict.came),
        (words["why"], verdict.why),
        (words["again"], what_next(verdict, entry.answer)),
    ]
    margin = 4 + max(columns(word) for word, _ in rows)
    lines = [
        f"  {word}{' ' * (margin - 2 - columns(word))}{wrapped(text.in_(spoken), margin)}"
        for word, text in rows
        if text.in_(spoken)
    ]
    return "\n".join([head, *lines])


def what_next(verdict: Verdict, answer: str) -> Text:
    """What one may call after a check that failed, each on its own line, to copy."""
    key, seed = verdict.part, verdict.seed
    again, look = f'check("{key}", {answer}, seed={seed})', f'inputs("{key}", seed={seed}, case={verdict.case})'
    return Text(
        f'same inputs: {again}\nto look at them: {look}\na hint: hint("{key}")',
        f'再试同样的输入：{again}\n看看这组输入：{look}\n要提示：hint("{key}")',
    )


def inputs(key: str, seed: int, case: int) -> object:
    """What one case of a check gives to your answer: a check that fails names its seed and the case (from 1).

    Returns:
        a tuple of the arguments, so that ``answer(*inputs(…))`` repeats the case; for parts whose answer is used in
        another way, what the part says.
    """
    require_whole("seed", seed, 0, 2**32 - 1)
    part = manifest.part(key)
    cases = part.make(np.random.default_rng(seed))
    require_whole("case", case, 1, len(cases))
    return part.shown_inputs(cases[case - 1]) if part.shown_inputs else cases[case - 1]


def hint(key: str) -> None:
    """Print the hint of a part."""
    print(wrapped(manifest.entry(key).hint.in_(language())))


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
    total = pick(f"{reached} of {counted(most, 'point')}", f"共 {most} 分，已得 {reached} 分", spoken)
    return "\n".join([*lines, total])
