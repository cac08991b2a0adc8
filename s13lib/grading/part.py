"""A part of an exercise, as data: inputs, how an answer is driven, the reference, and the named wrong answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from s13lib.errors import InputError


@dataclass(frozen=True)
class Text:
    """A text in both languages of the course."""

    en: str
    zh: str

    def in_(self, language: str) -> str:
        """The text in "en" or "zh"."""
        return self.zh if language == "zh" else self.en


class Refused(InputError):
    """What a view raises for a value that cannot be right: one sentence, in both languages."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.text = Text(en, zh)


def call(answer: Callable, *inputs: object) -> object:
    """The usual drive: call the answer."""
    return answer(*inputs)


def nothing() -> None:
    """The usual warm-up."""


def as_it_is(inputs: tuple, value: object) -> object:
    """The usual view: compare what came."""
    return value


@dataclass(frozen=True)
class Part:
    """How one part is checked.

    Attributes:
        reference: a right answer, of the signature that the learner's must have.
        make: fresh inputs from a random generator, a tuple for each case; small cases first. They are plain values
            (numbers, strings, tuples, lists, dictionaries), NumPy arrays, torch tensors and Timelines: nothing else
            passes the pipe to the learner's process.
        drive: runs *in the learner's process*: uses the answer on one case's inputs and returns an observation, in
            plain values as above. Default: calls it. It must not decide anything.
        view: runs in the judge: what of an observation is compared, such as a layout's cost where several layouts are
            equally good. May raise ``Refused`` (or an ``InputError``), whose sentence becomes the explanation.
        tolerance: relative and absolute, for floating-point numbers and arrays.
        forbidden: "module:name" of library functions that would be the answer; calling one is caught.
        writes: names of parameters that an answer is meant to write into. All others must stay as they were.
        seconds: time limit for one case.
        warm_up: called before a case's clock starts: what does not depend on the answer, such as kernels to compile.
        tried: says what a case tried, for cases whose inputs are too large to print.
    """

    reference: Callable
    make: Callable[[np.random.Generator], list[tuple]]
    drive: Callable[..., object] = call
    view: Callable[[tuple, object], object] = as_it_is
    tolerance: float = 1e-6
    forbidden: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    seconds: float = 5.0
    warm_up: Callable[[], object] = nothing
    tried: Callable[[tuple], Text] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the inputs: those of ``drive`` after the answer, or the reference's where drive is ``call``."""
        function = self.reference if self.drive is call else self.drive
        names = tuple(inspect.signature(function).parameters)
        return names if self.drive is call else names[1:]


@dataclass(frozen=True)
class Wrong:
    """A named wrong answer: what learners really write, and the sentence that helps them.

    Attributes:
        name: a short name, such as "eps outside the root".
        answer: the wrong answer itself, of the reference's signature.
        why: the likely mistake and what to look at; never the solution's code.
    """

    name: str
    answer: Callable
    why: Text


@dataclass(frozen=True)
class Trouble:
    """Why an answer gave no value.

    ``kind`` is one of "todo" (a stub), "raised", "exit", "slow", "flood" (too much output), "borrowed" (a forbidden
    function was called), "died" (its process ended), "signature" (cannot be called so), "unreadable" (a value that
    cannot be read back). ``detail`` is the error's text or the name that matters.
    """

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Observation:
    """What one case gave: a value, or the trouble instead; and which inputs were written into."""

    value: object = None
    trouble: Trouble | None = None
    mutated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of one part. ``case`` counts from 1; the texts are empty when it passed.

    ``likely`` is the name of the wrong answer that the learner's behaves like, where there is one.
    """

    part: str
    passed: bool
    seed: int
    cases: int
    case: int = 0
    tried: Text = field(default_factory=lambda: Text("", ""))
    expected: Text = field(default_factory=lambda: Text("", ""))
    came: Text = field(default_factory=lambda: Text("", ""))
    why: Text = field(default_factory=lambda: Text("", ""))
    likely: str | None = None
