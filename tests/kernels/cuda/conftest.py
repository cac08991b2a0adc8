"""The Triton kernels in Triton's interpreter, on CPU tensors: right results, and nothing about speed."""

import warnings
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")
import triton.language as tl
from triton.runtime import interpreter

from s13lib.kernels.cuda import INTERPRETED, KERNELS, attention, linear, scratch
from s13lib.kernels.cuda.errors import report
from s13lib.kernels.cuda.forms import ANY
from tests.kernels.conftest import Case

# What stays float32 beside float16 weights: the residual stream, tables, norm weights.
GUARD = 1234.0
FLOAT32 = ("residual", "out_residual", "delta", "norm_weight", "cos", "sin")


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter():
    """The interpreter replaces all of Triton's language at every call of a device function, and never puts it back:
    two thirds of the time. Once is enough.
    """
    if not INTERPRETED:
        pytest.skip("TRITON_INTERPRET is not 1: these tests run the kernels in Triton's interpreter")
    for function in (tl.sum, report):  # one that sees tl.core, one that sees tl
        interpreter._patch_lang(function.fn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "__call__", lambda self, *a, **k: self.rewrite()(*a, **k))
        yield


def launch(case: Case) -> int:
    """Run the kernel on the case's own tensors; return the error word.

    Scratch memory holds NaN before, and outputs lie in larger tensors: what is read too early or written too far shows.
    """
    for held in scratch._kept.get((torch.device("cpu"), torch.float32), []):
        held.fill_(torch.nan)
    guards = {}
    for name in case.outputs:
        if name.startswith("out") and len({id(t) for t in case.arguments.values()}) == len(case.arguments):
            guards[name] = torch.full((len(case.arguments[name]) + 2, *case.arguments[name].shape[1:]), GUARD)
            guards[name] = guards[name].to(case.arguments[name].dtype)
            case.arguments[name] = guards[name][:-2].copy_(case.arguments[name])
    flag = torch.zeros(1, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of NaN and of 1/0, where a GPU goes on
        KERNELS[case.name].bind(flag, *case.arguments.values()).launch()
    for name, guarded in guards.items():
        assert (guarded[-2:] == GUARD).all(), f"{name} was written behind its end"
    return int(flag)


def in_dtype(case: Case, dtype: torch.dtype) -> Case:
    """The case with weights, cache and most activations in ``dtype``."""
    keep = FLOAT32 + (("x",) if case.name.startswith("rms_norm") else ())

    def cast(name, value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or name in keep:
            return value
        return value.to(dtype)

    return case.copy(**{name: cast(name, value) for name, value in case.arguments.items()})


@pytest.fixture(name="launch")
def launch_fixture():
    return launch


@pytest.fixture(name="in_dtype")
def in_dtype_fixture():
    return in_dtype


@pytest.fixture
def only_form(monkeypatch):
    """Call with a form to have it used for any number of rows."""

    def use(form):
        for module, table in ((linear, "LINEAR"), (attention, "ATTENTION")):
            if form in getattr(module, table):
                monkeypatch.setattr(module, table, (replace(form, most_rows=ANY),))

    return use
