"""The calls of a case of exercise 4 as code, for the steps that its notebook defines."""

from __future__ import annotations

from torch import Tensor


class Code(str):
    """Lines of code, shown as they are: what a learner may run in the notebook to repeat a case."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _literal(tensor: Tensor) -> str:
    rounded = tensor.double().numpy().round(3) if tensor.is_floating_point() else tensor.numpy()
    return f"torch.tensor({rounded.tolist()})"


def fixed_as_code(inputs: tuple) -> Code:
    """The calls of a case, for the notebook's ShiftStep."""
    weight, calls = inputs
    rows, width = calls[0][0].shape
    lines = [f"step = ShiftStep({_literal(weight)})", f"runner = FixedRunner(device, step, {rows}, {width})"]
    return Code("\n".join([*lines, *(f"runner.run({_literal(x)}, {shift})" for x, shift in calls)]))


def script_as_code(runner: str, step: str, slots: int, inputs: tuple) -> Code:
    """A script, for the notebook's ``step``, whose cache has so many slots."""
    weight, _, rows, calls = inputs
    lines = [
        f"step = {step}({_literal(weight)}, slots={slots})",
        f"runner = {runner}(device, step, {rows}, {len(weight)})",
    ]
    attribute = "weight.data" if any(what == "moved" for what, *_ in calls) else "weight"
    for what, data, where in calls:
        if what == "run":
            too_many = "  # ValueError: too many rows" if len(where) > rows else ""
            lines.append(f"runner.run({_literal(data)}, {_literal(where)}){too_many}")
        else:
            lines += [line.format(where=where, data=_literal(data), attribute=attribute) for line in CODE[what]]
    return Code("\n".join(lines))


CODE = {
    "passed on": ("step.k_cache[0, {where}, 0] = step.v_cache[0, {where}, 0] = {data}  # another request's now",),
    "scaled": ("step.weight.mul_(2)",),
    "replaced": ("old = step.weight", "step.weight = device.tensor({data})  # from now on run raises ValueError"),
    "moved": (
        "old = step.weight.data",
        "step.weight.data = device.tensor({data})  # from now on run raises ValueError",
    ),
    "put back": ("step.weight.data = old",),
}
