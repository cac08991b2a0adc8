"""Every Triton kernel in every form against float64: float32 within the derived bound, float16 near it."""

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

from s13lib.kernels.bounds import Bounded, excess
from s13lib.kernels.cuda import KERNELS
from s13lib.kernels.cuda.forms import ATTENTION, LINEAR, Gemv
from tests.kernels.test_against_reference import expected

LINEARS = [name for name in KERNELS if "linear" in name or "gate_up" in name or "qkv" in name]
ODD = {"kv_heads": 2, "heads": 6, "head_dim": 6, "hidden": 77, "width": 19, "block_size": 7}
EVEN = {"kv_heads": 1, "heads": 4, "head_dim": 16, "hidden": 64, "width": 32, "block_size": 16}
FLOAT16_UNIT = 2.0**-11


def check(case, launch, in_dtype, dtype):
    if dtype is torch.float16:
        case = in_dtype(case, dtype)
    truth = case.reference()
    bounded = expected(case) if dtype is torch.float32 else {}
    ran = case.copy()
    assert launch(ran) == 0
    for name, computed in ran.outputs.items():
        true = truth.arguments[name]
        assert torch.equal(computed.isnan(), true.isnan()), name  # in the caches NaN marks what no one wrote
        computed, true = computed.nan_to_num(), true.nan_to_num()
        if name in bounded:
            # Twice the bound, which is for a single pass: pieces of a context are scaled once more.
            assert excess(computed, Bounded(true, 2 * bounded[name].error.nan_to_num())) <= 1, name
        else:
            # Operands are exact; what tensor cores are given, the softmax weights and the result are rounded.
            tolerance = 4 * FLOAT16_UNIT * true.abs().max() if computed.dtype is torch.float16 else 1e-3
            assert (computed.double() - true).abs().max() <= tolerance, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", [n for n in KERNELS if n not in LINEARS and n != "rope_append_attention"])
def test_small_kernels(make_case, launch, in_dtype, name, rows, dtype):
    for seed in range(3):
        check(make_case(name, seed, rows=rows), launch, in_dtype, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("form", LINEAR, ids=[f"{type(f).__name__.lower()}{f.most_rows}" for f in LINEAR])
@pytest.mark.parametrize("name", LINEARS)
def test_linear_layers_in_every_form(make_case, launch, in_dtype, only_form, name, form, dtype):
    only_form(form)
    for rows, sizes in ((1, ODD), (3, EVEN)) if isinstance(form, Gemv) else ((3, ODD), (17, EVEN)):
        check(make_case(name, 1, rows=rows, **sizes), launch, in_dtype, dtype)


@pytest.mark.parametrize("name", ["linear", "rms_norm_qkv"])
def test_a_reduction_of_several_chunks_and_a_rest(make_case, launch, in_dtype, name):
    for rows in (2, 3):
        case = make_case(name, 2, rows=rows, hidden=2085, width=5, kv_heads=1, heads=1, head_dim=4)
        check(case, launch, in_dtype, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("form", ATTENTION, ids=[f"{f.splits}pieces" for f in ATTENTION])
@pytest.mark.parametrize("sizes", [ODD, EVEN], ids=["odd", "even"])
def test_attention_in_every_form(make_case, launch, in_dtype, only_form, sizes, form, dtype):
    """Scattered blocks, contexts that end at, before and behind the edge of a block, of a tile, of a piece."""
    only_form(form)
    contexts = [1, sizes["block_size"], sizes["block_size"] + 1, form.tile - 1, form.tile + 1, 3 * form.tile, 290]
    check(make_case("rope_append_attention", 3, rows=7, contexts=contexts, **sizes), launch, in_dtype, dtype)


@pytest.mark.parametrize("group", [1, 2, 8])
def test_attention_for_other_groups_and_head_sizes(make_case, launch, in_dtype, group):
    for head_dim in (2, 34):
        sizes = {"kv_heads": 3, "heads": 3 * group, "head_dim": head_dim, "block_size": 4}
        case = make_case("rope_append_attention", 4, rows=2, contexts=[5, 70], **sizes)
        check(case, launch, in_dtype, torch.float32)


def test_the_check_fails_a_relative_error_of_one_percent(make_case, launch, in_dtype):
    def wrongly(case):
        case.arguments["weight"].mul_(1.01)
        return launch(case)

    for dtype in (torch.float32, torch.float16):
        with pytest.raises(AssertionError):
            check(make_case("linear", 1, rows=3, **ODD), wrongly, in_dtype, dtype)
