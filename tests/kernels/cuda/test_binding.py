"""The table of kernels, the checks of a binding, and what a bound launch holds on to."""

import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

import s13lib.kernels.softgpu  # noqa: F401 — registers the twins
from s13lib.device.errors import CaptureError
from s13lib.device.kernel import REGISTRY
from s13lib.errors import InputError
from s13lib.kernels.cuda import KERNELS
from s13lib.kernels.cuda.scratch import scratch
from s13lib.model.stages import kernels_of


def test_all_kernels_of_stages_7_and_5_are_there():
    assert {*kernels_of(7), *kernels_of(5)} <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_arguments_and_shape_rule_are_the_softgpu_kernels(name):
    twin = REGISTRY[name]
    assert list(KERNELS[name].parameters.items()) == [(p.name, p.type) for p in twin.parameters]
    assert KERNELS[name].shapes == twin.shapes
    assert KERNELS[name].name == name


def test_the_package_needs_no_numba():
    code = "import sys; sys.modules['numba'] = None; import s13lib.kernels.cuda"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_triton_importing_it_is_one_sentence_and_the_rest_works():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import s13lib.device, s13lib.kernels, s13lib.model, s13lib.errors\n"
        "try: import s13lib.kernels.cuda\n"
        "except s13lib.errors.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the CUDA kernels need the package triton, which is not installed (it is for Linux).\n"


def test_a_bound_launch_reads_what_its_tensors_hold_when_it_runs(make_case):
    case = make_case("linear", 1, rows=2, hidden=9, width=5)
    x, weight, out = case.arguments.values()
    bound = KERNELS["linear"].bind(torch.zeros(1, dtype=torch.int64), x, weight, out)
    for factor in (1.0, 3.0):
        x.fill_(factor)
        bound.launch()
        torch.testing.assert_close(out, x @ weight.T)
    assert bound.arguments == (x, weight, out)
    assert repr(bound) == "BoundLaunch(linear)"


def bind(make_case, name, **changes):
    arguments = make_case(name, 1, rows=2, hidden=9, width=5).arguments | changes
    return KERNELS[name].bind(torch.zeros(1, dtype=torch.int64), *arguments.values())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("linear", {"x": [1.0]}, "linear: x is of type list: must be a tensor."),
        (
            "linear",
            {"x": torch.zeros(2, 9, dtype=torch.float64)},
            "linear: x.dtype is torch.float64: must be torch.float32 or torch.float16 or torch.bfloat16.",
        ),
        (
            "embedding",
            {"input_ids": torch.zeros(2, dtype=torch.int32)},
            "embedding: input_ids.dtype is torch.int32: must be torch.int64.",
        ),
        ("linear", {"x": torch.zeros(9)}, "linear: x.shape is (9,): must be of 2 dimensions."),
        ("linear", {"x": torch.zeros(9, 2).T}, "linear: x.stride() is (1, 2): must be contiguous for (2, 9)."),
        ("linear", {"x": torch.zeros(2, 9, device="meta")}, "linear: x.device is 'meta': must be the device's, cpu."),
        (
            "linear",
            {"weight": torch.zeros(5, 8)},
            "linear: weight.shape is (5, 8): must be [m, n] = (5, 9), as its other arguments.",
        ),
        ("rms_norm", {"eps": "small"}, "rms_norm: eps is 'small': must be a number."),
        ("rms_norm", {"more": 1}, "rms_norm: the number of arguments is 5: must be 4: x, weight, eps, out."),
    ],
)
def test_bad_arguments_are_one_sentence(make_case, name, changes, message):
    with pytest.raises(InputError) as error:
        bind(make_case, name, **changes)
    assert str(error.value) == message


def test_a_row_too_wide_for_registers_is_refused():
    wide = torch.zeros(1, 65537)
    with pytest.raises(InputError, match="rms_norm: the row's width is 65537: must be at most 65536"):
        KERNELS["rms_norm"].bind(torch.zeros(1, dtype=torch.int64), wide, wide[0], 1e-5, wide)


def test_scratch_grows_and_is_never_taken_back():
    place, kind = torch.device("cpu"), torch.int16
    small = scratch(place, kind, 10)
    assert small.tolist() == [0] * 10
    assert scratch(place, kind, 5).data_ptr() == small.data_ptr()
    large = scratch(place, kind, 11)
    assert len(large) == 20
    assert scratch(place, kind, 20).data_ptr() == large.data_ptr() != small.data_ptr()
    assert small.tolist() == [0] * 10


def test_scratch_is_not_made_inside_a_capture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    class Place:
        type = "cuda"

    with pytest.raises(CaptureError, match="run the step once before the capture"):
        scratch(Place(), torch.int16, 10)
