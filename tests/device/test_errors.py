"""Kernel errors: told once by the next synchronize, harmless for what follows."""

from __future__ import annotations

import pytest
import torch

from s13lib.device import F32, I64, CaptureError, DeviceError, SoftGPU
from s13lib.device.types import BLOCK, CONTEXT, ERROR_MASK, ERROR_SHIFT, POSITION, SLOT, TOKEN, describe_error
from s13lib.errors import InputError


def test_an_error_word_changes_no_byte_and_is_told_once(device, run):
    out = device.tensor([1.0, 2.0, 3.0])
    run.put(99, 5.0, out)
    with pytest.raises(DeviceError, match=r"^put: slot 99 is out of range; the write was skipped$"):
        device.synchronize()
    assert out.tolist() == [1.0, 2.0, 3.0]
    device.synchronize()


def test_an_error_does_not_poison_later_work(device, run):
    out = device.zeros(2)
    run.put(-7, 1.0, out)
    run.put(0, 4.0, out)
    run.put(55, 1.0, out)
    run.put(1, 5.0, out)
    with pytest.raises(DeviceError, match=r"put: slot -7 is out of range.*1 more"):
        device.synchronize()
    assert out.tolist() == [4.0, 5.0]
    run.scale(out, out, 2.0)
    device.synchronize()
    assert out.tolist() == [8.0, 10.0]


def test_an_error_in_a_replay_names_the_node_each_time(device, run):
    out = device.zeros(2)
    with device.graph() as graph:
        run.put(0, 1.0, out)
        run.put(2, 1.0, out)
    for _ in range(2):
        graph.replay()
        with pytest.raises(DeviceError, match=r"put \(node 1 of a replayed graph\): slot 2"):
            device.synchronize()
    assert out.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "word"),
    [(SLOT, "slot"), (BLOCK, "block"), (TOKEN, "token"), (POSITION, "position"), (CONTEXT, "context length")],
)
@pytest.mark.parametrize("value", [-1, 0, 99, 2**39 - 1, -(2**39)])
def test_error_words_keep_kind_and_value(kind, word, value):
    assert describe_error(kind << ERROR_SHIFT | (value & ERROR_MASK)).startswith(f"{word} {value} is ")


def test_what_a_learners_kernel_raises_is_told(device):
    @device.kernel
    def careless(mode: int, n: int, out: F32[1]):
        if mode == 0:
            out[n] = 1.0
        elif mode == 1:
            out[0] = 10 // n
        elif mode == 2:
            raise ValueError("mode 2 is not written yet")

    out = device.zeros(3)
    for mode, n, message in (
        (0, 3, "careless: IndexError: index is out of bounds"),
        (0, -4, "careless: IndexError: index is out of bounds"),
        (1, 0, "careless: ZeroDivisionError"),
        (2, 0, "careless: ValueError: mode 2 is not written yet"),
    ):
        careless(mode, n, out)
        with pytest.raises(DeviceError, match=message):
            device.synchronize()
        assert out.tolist() == [0.0, 0.0, 0.0]
    careless(0, -1, out)
    device.synchronize()
    assert out.tolist() == [0.0, 0.0, 1.0]


def test_a_learners_kernel_may_return_nothing_or_any_number(device):
    @device.kernel
    def answer(n: int, out: I64[1]):
        out[0] = n
        return -n

    out = device.zeros(1, torch.int64)
    answer(0, out)
    device.synchronize()
    answer(5, out)
    with pytest.raises(DeviceError, match="answer: error"):
        device.synchronize()
    assert out.item() == 5


def test_a_kernel_that_does_not_compile_says_why(device):
    with pytest.raises(InputError, match=r"kernel odd does not compile: .*undefined_name"):

        @device.kernel
        def odd(x: F32[1]):
            x[0] = undefined_name  # noqa: F821


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(x): pass", "kernel f: the type of x is None"),
        ("def f(x: Unheard): pass", "kernel f: a parameter's type is not known: name 'Unheard'"),
        ("def f(x: str): pass", "kernel f: the type of x is <class 'str'>"),
        ("def f(x: F32[1], *rest): pass", "kernel f: parameter is '*rest'"),
        ("def f(x: F32[1], n: int = 3): pass", "kernel f: parameter is 'n: int = 3'"),
        ("def f(_x: F32[1]): pass", "kernel f: parameter is '_x"),
    ],
)
def test_a_kernels_parameters_are_checked_when_it_is_defined(device, source, message):
    scope = {"F32": F32}
    exec(source, scope)
    with pytest.raises(InputError) as caught:
        device.kernel(scope["f"])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("rank", [0, 9, "1"])
def test_ranks_are_checked(rank):
    with pytest.raises(InputError, match="rank"):
        F32[rank]


def test_errors_of_one_device_stay_with_it(kernels):
    first, second = SoftGPU(), SoftGPU()
    first.launcher(kernels.put)(9, 1.0, first.zeros(1))
    second.launcher(kernels.put)(0, 1.0, second.zeros(1))
    second.synchronize()
    with pytest.raises(DeviceError, match="slot 9"):
        first.synchronize()
    first.close()
    second.close()


def test_the_two_errors_are_not_input_errors():
    assert not issubclass(DeviceError, InputError)
    assert not issubclass(CaptureError, InputError)
