"""Every kernel that reads a weight matrix, once more for each quantised format: ``linear_q8_0`` and its like.

It is the same Python function: only its ``weight`` has another type, and rows of so many bytes. The functions that it
calls go by that type (``s13lib.kernels.softgpu.weights``). Nothing is compiled before the first launch.
"""

from __future__ import annotations

from types import FunctionType

import s13lib.kernels.softgpu.elementwise
import s13lib.kernels.softgpu.fused
import s13lib.kernels.softgpu.linear  # noqa: F401 — these register the kernels that are read here
from s13lib.device.kernel import REGISTRY, Kernel
from s13lib.device.shapes import ShapeRule
from s13lib.kernels import MATRIX_KERNELS, in_format
from s13lib.kernels.quantised import BLOCK, FORMATS, Format


def with_weight_in(original: Kernel, form: Format) -> Kernel:
    """``original`` with ``weight`` as packed rows of ``form``, uint8 (rows, row_bytes); its widths are whole blocks."""
    function = original.python_function
    twin = FunctionType(
        function.__code__, function.__globals__, in_format(original.name, form.name), None, function.__closure__
    )
    twin.__annotations__ = function.__annotations__ | {"weight": form.element[2]}
    twin.__doc__ = (
        f"``{original.name}`` with ``weight`` in {form.name}: packed rows, uint8 (…, width / {BLOCK} · "
        f"{form.block_bytes}).\n\n    {function.__doc__}"
    )
    rows, width = original.shapes.dimensions["weight"]
    dimensions = original.shapes.dimensions | {"weight": (rows, f"{width} // {BLOCK} * {form.block_bytes}")}
    shapes = ShapeRule(dimensions, (*original.shapes.conditions, f"{width} % {BLOCK} == 0"))
    return Kernel(twin, out=[p.name for p in original.parameters if p.written], shapes=shapes)


for _name in MATRIX_KERNELS:
    for _form in FORMATS.values():
        REGISTRY[in_format(_name, _form.name)] = with_weight_in(REGISTRY[_name], _form)
