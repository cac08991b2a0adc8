"""Shapes that must agree: every built-in kernel refuses a launch whose arguments do not fit together."""

import re

import pytest
import torch

import s13lib.kernels.softgpu  # noqa: F401 — registers the kernels
from s13lib.device import best_device
from s13lib.device.kernel import REGISTRY, Kernel
from s13lib.device.shapes import ShapeRule
from s13lib.device.types import F32
from s13lib.errors import InputError
from s13lib.kernels import NAMES

SIZES = {
    "rows": 3, "n": 8, "m": 6, "hidden": 8, "width": 8, "q": 8, "kv": 4, "vocab": 5, "longest": 9, "half": 2,
    "blocks": 4, "size": 2, "kv_heads": 1, "head_dim": 4, "most": 3,
}  # fmt: skip


def bind(kernel, shapes):
    device = best_device()
    values = [device.zeros(shapes[p.name], p.type.element.tensor_dtype) if p.is_array else 1 for p in kernel.parameters]
    device.bind(kernel, *values)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_extent_of_any_argument_is_refused(name):
    kernel = REGISTRY[name]
    rule = kernel.shapes
    good = {array: tuple(eval(text, {}, SIZES) for text in texts) for array, texts in rule.dimensions.items()}
    assert set(good) == {p.name for p in kernel.parameters if p.is_array}
    bind(kernel, good)
    texts = [*rule.conditions, *(text for dims in rule.dimensions.values() for text in dims)]
    for array, shape in good.items():
        for axis, dimension in enumerate(rule.dimensions[array]):
            if sum(dimension in re.findall(r"\w+", text) for text in texts) == 1:
                continue  # nothing else depends on it: any extent is right
            bad = good | {array: tuple(extent + (at == axis) for at, extent in enumerate(shape))}
            with pytest.raises(InputError, match=rf"^{name}: .* must "):
                bind(kernel, bad)


def test_the_message_names_the_array_and_the_rule():
    device = best_device()
    with pytest.raises(InputError) as error:
        device.kernels.linear(device.zeros((1, 4)), device.zeros((8, 4)), device.zeros((1, 7)))
    assert str(error.value) == ("linear: out.shape is (1, 7): must be [rows, m] = (1, 8), as its other arguments.")
    with pytest.raises(InputError) as error:
        device.kernels.rope(
            device.zeros((1, 6)), device.zeros((1, 4)), device.zeros((9, 2)), device.zeros((9, 2)),
            device.zeros(1, torch.int64), device.zeros((1, 6)), device.zeros((1, 4)),
        )  # fmt: skip
    assert str(error.value) == "rope: shapes must satisfy width % (2*half) == 0: width = 6, half = 2."


def test_a_refused_launch_leaves_the_queue_as_it_was():
    device = best_device()
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    with pytest.raises(InputError):
        device.kernels.copy(x, device.zeros(3))
    device.kernels.copy(x, y)
    device.synchronize()
    assert y.tolist() == [1.0, 2.0]


def test_a_rule_must_fit_its_kernel():
    def two(x: F32[1], out: F32[1]):
        out[0] = x[0]

    with pytest.raises(InputError, match="shapes is 'y'"):
        Kernel(two, shapes="x[n] y[n]")
    with pytest.raises(InputError, match="shapes is 'k'"):
        Kernel(two, shapes="x[n] out[2*k]")


def test_expressions_of_a_rule():
    rule = ShapeRule.parse("x[rows, n] out[2*n, rows]; n % rows == 0")
    assert rule.bound() == {"rows": ("x", 0), "n": ("x", 1)}
    assert rule.expressions() == ["_out_0 == 2*_x_1", "_out_1 == _x_0", "(_x_1 % _x_0 == 0)"]
