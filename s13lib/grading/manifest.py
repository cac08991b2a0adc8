"""The manifest, ``s13lib/data/exercises.toml``: order, points, minutes, hints and version of all exercises."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources

from s13lib.errors import look_up
from s13lib.grading.part import Part, Text, Wrong


@dataclass(frozen=True)
class PartEntry:
    """A part in the manifest. ``answer`` is the name that the learner defines; difficulty is from 1 to 3."""

    key: str
    answer: str
    points: int
    difficulty: int
    minutes: int
    title: Text
    hint: Text


@dataclass(frozen=True)
class Exercise:
    """An exercise in the manifest: ``name`` names its files, its module of checks and that of its wrong answers."""

    number: int
    name: str
    version: int
    lesson: str
    title: Text
    parts: tuple[PartEntry, ...]

    @property
    def file(self) -> str:
        """The stem of its notebooks."""
        return f"{self.number}_{self.name}"

    @property
    def points(self) -> int:
        """The most that can be reached."""
        return sum(part.points for part in self.parts)


@cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises in their order."""
    text = resources.files("s13lib.data").joinpath("exercises.toml").read_text(encoding="utf-8")
    return tuple(_exercise(row) for row in tomllib.loads(text)["exercise"])


def _exercise(row: dict) -> Exercise:
    parts = [
        PartEntry(**{**part, "title": Text(**part["title"]), "hint": Text(**part["hint"])}) for part in row["part"]
    ]
    return Exercise(
        **{k: v for k, v in row.items() if k not in ("part", "title")}, title=Text(**row["title"]), parts=tuple(parts)
    )


def entries() -> dict[str, PartEntry]:
    """All parts by key."""
    return {part.key: part for exercise in exercises() for part in exercise.parts}


def entry(key: str) -> PartEntry:
    """A part's entry; an unknown key is an ``InputError``."""
    return look_up(entries(), key, "part")


def exercise_of(key: str) -> Exercise:
    """The exercise that a part belongs to."""
    entry(key)
    return next(exercise for exercise in exercises() if any(part.key == key for part in exercise.parts))


def part(key: str) -> Part:
    """How a part is checked."""
    return import_module(f"s13lib.grading.parts.{exercise_of(key).name}").PARTS[key]


def wrong_answers(key: str) -> tuple[Wrong, ...]:
    """A part's named wrong answers, the likeliest first."""
    return import_module(f"s13lib.grading.wrong.{exercise_of(key).name}").WRONG[key]
