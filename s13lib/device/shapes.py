"""Which shapes of a kernel's arguments belong together: ``"x[rows, n] weight[m, n] out[rows, m]"``.

A name that stands alone as a dimension is bound where it first does; every other dimension must equal its expression.
After a semicolon may follow conditions between names, separated by commas. A built-in kernel has no bounds checks of
its own, so this is what keeps a launch with the wrong shapes from writing past the end of a tensor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from s13lib.errors import InputError, require

_ARRAY = re.compile(r"(\w+)\[([^\]]*)\]")
_NAME = re.compile(r"[a-z]\w*")


@dataclass(frozen=True)
class ShapeRule:
    """A parsed rule. ``dimensions`` holds the text of each dimension by array, ``conditions`` the rest."""

    dimensions: dict[str, tuple[str, ...]]
    conditions: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> ShapeRule:
        """Read a rule; see the module's docstring."""
        arrays, _, conditions = text.partition(";")
        dimensions = {name: tuple(d.strip() for d in inner.split(",")) for name, inner in _ARRAY.findall(arrays)}
        return cls(dimensions, tuple(c.strip() for c in conditions.split(",") if c.strip()))

    def bound(self) -> dict[str, tuple[str, int]]:
        """Where each name is bound: (array, axis)."""
        found: dict[str, tuple[str, int]] = {}
        for array, dimensions in self.dimensions.items():
            for axis, text in enumerate(dimensions):
                if _NAME.fullmatch(text):
                    found.setdefault(text, (array, axis))
        return found

    def check_against(self, kernel: str, ranks: dict[str, int]) -> None:
        """Refuse a rule that names other arrays or ranks than the kernel has, or a name that is bound nowhere."""
        bound = self.bound()
        for array, dimensions in self.dimensions.items():
            require(ranks.get(array) == len(dimensions), f"kernel {kernel}: shapes", array, "an array of that rank")
        for text in (*self.conditions, *(d for dims in self.dimensions.values() for d in dims)):
            for name in _NAME.findall(text):
                require(name in bound, f"kernel {kernel}: shapes", name, "a dimension of its own somewhere")

    def expressions(self) -> list[str]:
        """Python conditions over variables ``_<array>_<axis>``, all of which must hold."""
        bound = self.bound()

        def variables(text: str) -> str:
            return _NAME.sub(lambda m: "_{}_{}".format(*bound[m[0]]), text)

        found = []
        for array, dimensions in self.dimensions.items():
            for axis, text in enumerate(dimensions):
                if bound.get(text) != (array, axis):
                    found.append(f"_{array}_{axis} == {variables(text)}")
        return found + [f"({variables(condition)})" for condition in self.conditions]

    def explain(self, kernel: str, shapes: dict[str, tuple[int, ...]]) -> None:
        """Raise an ``InputError`` that names the first array whose shape breaks the rule."""
        values = {name: shapes[array][axis] for name, (array, axis) in self.bound().items()}
        for array, dimensions in self.dimensions.items():
            wanted = tuple(_evaluate(text, values) for text in dimensions)
            if shapes[array] != wanted:
                rule = f"[{', '.join(dimensions)}] = {wanted}"
                raise InputError(f"{kernel}: {array}.shape is {shapes[array]}: must be {rule}, as its other arguments.")
        for condition in self.conditions:
            if not _evaluate(condition, values):
                given = ", ".join(f"{name} = {values[name]}" for name in dict.fromkeys(_NAME.findall(condition)))
                raise InputError(f"{kernel}: shapes must satisfy {condition}: {given}.")


def _evaluate(text: str, values: dict[str, int]) -> int:
    return eval(text, {"__builtins__": {}}, dict(values))  # the text is the kernel author's own, not a user's
