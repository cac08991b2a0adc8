"""Judge observations: the verdict on a part, and the likely mistake.

The judge never runs the learner's code. It asks for observations, computes what the reference gives, and where an
answer is wrong it drives the named wrong answers: the one that behaves as the learner's on all cases explains it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from s13lib.errors import InputError
from s13lib.grading import guard
from s13lib.grading.compare import difference, shortened_text, shown
from s13lib.grading.manifest import entry, wrong_answers
from s13lib.grading.manifest import part as part_of
from s13lib.grading.part import Observation, Part, Refused, Text, Trouble, Verdict, Wrong
from s13lib.grading.texts import MUTATED, TROUBLES

VIEW_SECONDS = 10.0

Observe = Callable[[tuple], Observation]  # inputs of one case → what the learner's answer gave


def fresh_seed() -> int:
    """A seed to print, short enough to type."""
    return int(np.random.default_rng().integers(1, 1_000_000))


def judge(key: str, observe: Observe, seed: int) -> Verdict:
    """Check part ``key`` on fresh inputs made from ``seed``; ``observe`` runs the learner's answer on one case."""
    part = part_of(key)
    cases = part.make(np.random.default_rng(seed))
    for number, inputs in enumerate(cases, start=1):
        observation = observe(inputs)
        verdict = judge_case(part, inputs, observation)
        if verdict is not None:
            expected, came, why = verdict
            likely = None
            if observation.trouble is None or observation.trouble.kind == "raised":
                seen = [observation if other is inputs else None for other in cases]
                likely = likely_mistake(key, part, cases, seen, observe)
            return Verdict(
                key, False, seed, len(cases), number, tried(key, part, inputs), expected, came,
                likely.why if likely else why, likely.name if likely else None,
            )  # fmt: skip
    return Verdict(key, True, seed, len(cases))


def judge_case(part: Part, inputs: tuple, observation: Observation) -> tuple[Text, Text, Text] | None:
    """None if one case is right; else what was expected, what came, and why, as far as this case tells."""
    expected = viewed(part, inputs, reference_value(part, part.reference, inputs))
    expectation = Text(shown(expected), shown(expected))
    trouble = observation.trouble
    value = None
    if trouble is None:
        try:
            value = viewed(part, inputs, observation.value)
        except InputError as error:
            came = Text(shown(observation.value), shown(observation.value))
            return expectation, came, error.text if isinstance(error, Refused) else Text(str(error), str(error))
        except (Exception, guard.TooSlow):  # not even of the kind that the view expects
            trouble = Trouble("unreadable", shown(observation.value))
    if trouble is not None:
        came, why = TROUBLES[trouble.kind]
        detail = shortened_text(trouble.detail)
        return expectation, Text(came.en.format(detail), came.zh.format(detail)), why
    if observation.mutated:
        names = ", ".join(observation.mutated)
        unchanged = Text(f"{names} unchanged", f"{names} 保持不变")
        return (
            unchanged,
            Text(f"{names} overwritten", f"{names} 被改写"),
            Text(MUTATED.en.format(names), MUTATED.zh.format(names)),
        )
    differs = difference(value, expected, part.tolerance)
    return (*differs, Text("", "")) if differs else None


def reference_value(part: Part, answer: Callable, inputs: tuple) -> object:
    """What a trusted answer gives: driven with a copy of the inputs."""
    return part.drive(answer, *copy.deepcopy(inputs))


def viewed(part: Part, inputs: tuple, value: object) -> object:
    """What of a value is compared. A value can be such that a view of it never ends: it raises ``TooSlow``."""
    with guard.time_limit(VIEW_SECONDS):
        return part.view(copy.deepcopy(inputs), value)


def likely_mistake(
    key: str, part: Part, cases: Sequence[tuple], seen: list[Observation | None], observe: Observe
) -> Wrong | None:
    """The first named wrong answer that behaves as the learner's on every case. The cases not yet seen are observed."""
    candidates = list(wrong_answers(key))
    for inputs, known in zip(cases, seen, strict=True):
        observation = known if known is not None else observe(inputs)
        candidates = [wrong for wrong in candidates if behaves_alike(part, wrong, inputs, observation)]
        if not candidates:
            return None
    return candidates[0]


def behaves_alike(part: Part, wrong: Wrong, inputs: tuple, observation: Observation) -> bool:
    """Whether a wrong answer, driven here, gives what was observed: value, exception or overwritten argument."""
    mine = guard.observe(part, wrong.answer, inputs)  # ours, but may raise on purpose
    if mine.trouble is not None or observation.trouble is not None:
        return _kind(mine.trouble) == _kind(observation.trouble)
    if mine.mutated != observation.mutated:
        return False
    try:
        theirs, ours = viewed(part, inputs, observation.value), viewed(part, inputs, mine.value)
    except InputError:
        theirs, ours = observation.value, mine.value
    except (Exception, guard.TooSlow):  # a value of another kind
        return False
    return difference(theirs, ours, part.tolerance) is None


def _kind(trouble: Trouble | None) -> tuple[str, str]:
    """What makes two troubles the same: the kind and, for exceptions, the class."""
    return ("", "") if trouble is None else (trouble.kind, trouble.detail.split(":")[0].split(" ")[0])


def tried(key: str, part: Part, inputs: tuple) -> Text:
    """What a case tried, as a call where it is short enough to read."""
    if part.tried is not None:
        return part.tried(inputs)
    arguments = ", ".join(f"{name}={shown(value)}" for name, value in zip(part.parameters, inputs, strict=True))
    call = f"{entry(key).answer}({arguments})"
    return Text(call, call)
