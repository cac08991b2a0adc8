"""Catch an answer that calls the library's own solution, under whatever name it was imported.

While an answer runs, the code of each forbidden function is exchanged for code that raises: the function object stays
the same, so aliases and earlier imports make no difference.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from importlib import import_module
from types import CodeType, FunctionType

from s13lib.grading.part import Part


class Borrowed(BaseException):
    """A forbidden function was called; the text names it."""


def _trip(*arguments, **named):
    raise 0  # noqa: B016 - the constant is exchanged for a Borrowed


def _tripwire(function: FunctionType, name: str) -> CodeType:
    """Code that raises ``Borrowed(name)``. It needs no globals, and has the function's free variables."""
    constants = tuple(Borrowed(name) if value == 0 else value for value in _trip.__code__.co_consts)
    return _trip.__code__.replace(co_consts=constants, co_freevars=function.__code__.co_freevars)


def _functions(target: object, name: str) -> Iterator[tuple[FunctionType, str]]:
    """The Python functions of a function or a class."""
    target = inspect.unwrap(target) if callable(target) else target
    if isinstance(target, FunctionType):
        yield target, name
    elif inspect.isclass(target):
        for attribute, value in vars(target).items():
            if isinstance(value, FunctionType) and value.__module__ == target.__module__:
                yield value, f"{name}.{attribute}"


def forbidden_functions(part: Part) -> dict[FunctionType, str]:
    """All functions that an answer to ``part`` may not call, with the names to say; the reference among them."""
    named: list[tuple[object, str]] = [(part.reference, "the reference answer")]
    for place in part.forbidden:
        module, _, name = place.partition(":")
        named.append((getattr(import_module(module), name), f"{module}.{name}"))
    return {function: said for target, name in named for function, said in _functions(target, name)}


@contextlib.contextmanager
def tripwires(part: Part) -> Iterator[None]:
    """While open, every forbidden function of ``part`` raises ``Borrowed`` when it is called."""
    kept: list[tuple[FunctionType, CodeType]] = []
    try:
        for function, name in forbidden_functions(part).items():
            kept.append((function, function.__code__))
            function.__code__ = _tripwire(function, name)
        yield
    finally:
        for function, code in kept:
            function.__code__ = code
