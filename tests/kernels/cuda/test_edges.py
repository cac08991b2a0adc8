"""What padding, a learner or a corrupted cache may hand a kernel: skipped, reported, and nothing else touched."""

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

from s13lib.device.types import BLOCK, CONTEXT, ERROR_MASK, ERROR_SHIFT, POSITION, SLOT, TOKEN, describe_error
from s13lib.kernels.cuda import KERNELS
from s13lib.kernels.cuda.forms import ATTENTION

FAR = 2**39 + 5
"""Fits the error word, and no address is near it."""
SIZES = {"kv_heads": 2, "heads": 4, "head_dim": 6, "hidden": 21, "width": 9, "block_size": 4}


def word(kind, value):
    return kind << ERROR_SHIFT | value & ERROR_MASK


@pytest.fixture(params=ATTENTION[:2], ids=lambda form: f"{form.splits}pieces")
def trio(request, make_case, launch, only_form):
    """Three rows before and after a faultless run, the middle one long enough for several pieces."""
    only_form(request.param)

    def build(name="rope_append_attention"):
        before = make_case(name, 4, rows=3, contexts=[5, 90, 20], **SIZES)
        good = before.copy()
        assert launch(good) == 0
        return before, good

    return build


def check_skipped(before, good, ran, bits, kept=()):
    """Row 1's outputs and its cache slot are what they were before; the other rows are what they should be."""
    for p, computed in ran.outputs.items():
        expected = good.arguments[p].clone()
        if p.endswith("cache") and before.slots and p not in kept:
            expected.flatten(0, 1)[before.slots[1]] = before.arguments[p].flatten(0, 1)[before.slots[1]]
        elif not p.endswith("cache") and p not in kept:
            expected[1] = before.arguments[p][1]
        assert bits(computed) == bits(expected), p


@pytest.mark.parametrize("slot", [-2, "one too many", FAR, -FAR])
@pytest.mark.parametrize("name", ["rope_append_attention", "append_kv"])
def test_a_slot_out_of_range_writes_nothing(trio, launch, bits, name, slot):
    before, good = trio(name)
    value = len(before.arguments["k_cache"]) * 4 if slot == "one too many" else slot
    ran = before.copy()
    ran.arguments["slot_mapping"][1] = value
    if "context_lens" in ran.arguments:
        ran.arguments["context_lens"][1] = 0  # else row 1 would attend to the token that was not written
    assert launch(ran) == word(SLOT, value)
    if name == "rope_append_attention":
        assert ran.arguments["out"][1].tolist() == [0.0] * 24
        ran.arguments["out"][1] = before.arguments["out"][1]
    check_skipped(before, good, ran, bits)


@pytest.mark.parametrize("name", ["rope_append_attention", "append_kv"])
def test_slot_minus_one_is_skipped_without_an_error(trio, launch, bits, name):
    before, good = trio(name)
    ran = before.copy()
    ran.arguments["slot_mapping"][1] = -1
    if "context_lens" in ran.arguments:
        ran.arguments["context_lens"][1] = 0
    assert launch(ran) == 0
    if name == "rope_append_attention":
        assert ran.arguments["out"][1].tolist() == [0.0] * 24
        ran.arguments["out"][1] = before.arguments["out"][1]
    check_skipped(before, good, ran, bits)


def test_without_a_slot_a_row_reads_what_the_cache_holds(trio, launch):
    """Slot −1 and a context: the newest token is the cache's, as in the reference."""
    before, _ = trio()
    ran = before.copy()
    ran.arguments["slot_mapping"][1] = -1
    slot = before.slots[1]
    for cache in ("k_cache", "v_cache"):
        ran.arguments[cache].flatten(0, 1)[slot] = 0.25
    truth = ran.reference()
    assert launch(ran) == 0
    torch.testing.assert_close(ran.arguments["out"].double(), truth.arguments["out"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("position", [-1, "one too many", FAR, -FAR])
def test_a_position_out_of_range_skips_the_row(trio, launch, bits, position):
    before, good = trio()
    value = len(before.arguments["cos"]) if position == "one too many" else position
    ran = before.copy()
    ran.arguments["positions"][1] = value
    assert launch(ran) == word(POSITION, value)
    check_skipped(before, good, ran, bits)


@pytest.mark.parametrize("context", [-1, "one too many", 2**31 - 1, -(2**31)])
def test_a_context_out_of_range_skips_the_row(trio, launch, bits, context):
    before, good = trio()
    value = before.arguments["block_tables"].shape[1] * 4 + 1 if context == "one too many" else context
    ran = before.copy()
    ran.arguments["context_lens"][1] = value
    assert launch(ran) == word(CONTEXT, value)
    check_skipped(before, good, ran, bits, kept=("k_cache", "v_cache"))


@pytest.mark.parametrize("column", [0, 9, 22])
@pytest.mark.parametrize("block", [-1, "one too many", 2**31 - 1])
def test_a_block_out_of_range_skips_the_row(trio, launch, bits, block, column):
    before, good = trio()
    value = len(before.arguments["k_cache"]) if block == "one too many" else block
    ran = before.copy()
    ran.arguments["block_tables"][1, column] = value
    assert launch(ran) == word(BLOCK, value)
    check_skipped(before, good, ran, bits, kept=("k_cache", "v_cache"))


@pytest.mark.parametrize("token", [-1, 19, FAR])
def test_a_token_out_of_range_skips_the_row(make_case, launch, bits, token):
    before = make_case("embedding", 4, rows=3, hidden=21)
    good, ran = before.copy(), before.copy()
    assert launch(good) == 0
    ran.arguments["input_ids"][1] = token
    assert launch(ran) == word(TOKEN, token)
    check_skipped(before, good, ran, bits)
    if token != FAR:
        assert describe_error(word(TOKEN, token)) == f"token {token} is outside the vocabulary; the row was skipped"


def test_an_error_that_is_there_already_stays(make_case):
    case = make_case("embedding", rows=3)
    case.arguments["input_ids"][1] = 77
    flag = torch.tensor([word(SLOT, 5)])
    KERNELS["embedding"].bind(flag, *case.arguments.values()).launch()
    assert int(flag) == word(SLOT, 5)


def test_after_an_error_the_next_launch_is_right(trio, launch, bits):
    """What programs count arrivals with is as it was, although some of a row's programs did not get that far."""
    before, good = trio()
    broken = before.copy()
    broken.arguments["context_lens"][1] = -1
    broken.arguments["block_tables"][2, 0] = -1
    assert launch(broken) != 0
    again = before.copy()
    assert launch(again) == 0
    assert bits(again.arguments["out"]) == bits(good.arguments["out"])


def test_a_dummy_row_of_context_0_or_1_is_finite(make_case, launch):
    """Row 0: context 0 and slot −1 (nano-vllm). Row 1: context 1 and slot 0 of a scratch block (SGLang)."""
    case = make_case("rope_append_attention", 1, rows=3, contexts=[0, 1, 30], **SIZES)
    assert launch(case) == 0
    assert case.arguments["out"].isfinite().all()
    assert case.arguments["out"][0].tolist() == [0.0] * 24
    v = case.arguments["v"][1].view(2, 6).repeat_interleave(2, dim=0).flatten()
    torch.testing.assert_close(case.arguments["out"][1], v, rtol=1e-6, atol=1e-6)


def test_dummy_rows_that_share_a_slot_change_no_real_row(make_case, launch, bits):
    """Five scratch rows behind two real ones: all write the same slot."""
    case = make_case("rope_append_attention", 1, rows=7, contexts=[20, 9, 1, 1, 1, 1, 1], **SIZES)
    alone = case.rows(slice(0, 2))
    case.arguments["block_tables"][2:] = case.arguments["block_tables"][2]
    case.arguments["slot_mapping"][2:] = case.arguments["slot_mapping"][2]
    case.arguments["positions"][2:] = 0
    assert launch(case) == 0
    # In one form: rows 2 and 7 are not, so the two real rows run in the larger one as well.
    padded = alone.copy()
    for p in ("q", "k", "v", "positions", "slot_mapping", "block_tables", "context_lens", "out"):
        rest = case.arguments[p][2:].clone()
        rest = torch.full_like(rest, -1) if p == "slot_mapping" else rest
        padded.arguments[p] = torch.cat([alone.arguments[p], rest])
    padded.arguments["context_lens"][2:] = 0
    assert launch(padded) == 0
    assert bits(case.arguments["out"][:2]) == bits(padded.arguments["out"][:2])
    assert case.arguments["out"].isfinite().all()


@pytest.mark.parametrize("name", KERNELS)
def test_an_empty_batch_is_nothing_to_do(make_case, launch, name):
    case = make_case(name, rows=2).rows(slice(0, 0))
    if name in ("copy", "scale"):
        case.arguments |= {p: torch.empty(0) for p in ("x", "out")}
    before = case.copy()
    assert launch(case) == 0
    for p, t in case.outputs.items():
        assert torch.equal(t.nan_to_num(), before.arguments[p].nan_to_num())


IN_PLACE = [
    ("scale", {"out": "x"}),
    ("rms_norm", {"out": "x"}),
    ("add", {"out": "x"}),
    ("linear_add", {"out": "residual"}),
    ("add_rms_norm", {"out_residual": "residual"}),
    ("add_rms_norm", {"out_residual": "residual", "out": "delta"}),
]


@pytest.mark.parametrize(("name", "same"), IN_PLACE)
def test_in_place_as_documented_gives_the_same(make_case, launch, bits, name, same):
    case = make_case(name, 3, rows=3, **SIZES)
    apart, together = case.copy(), case.copy()
    for out, given in same.items():
        together.arguments[out] = together.arguments[given]
    assert launch(apart) == launch(together) == 0
    for p in apart.outputs:
        assert bits(apart.arguments[p]) == bits(together.arguments[p]), p


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize(
    "name", ["rms_norm", "linear_add", "rms_norm_qkv", "gate_up_silu_mul", "rope_append_attention"]
)
def test_nan_in_a_row_stays_in_its_row_and_is_not_lost(make_case, launch, name, rows):
    case = make_case(name, 5, rows=rows, contexts=[9, 70, 3][:rows], **SIZES)
    case.arguments["q" if "attention" in name else "x"][1] = torch.nan
    for p in (p for p in case.outputs if p.startswith("out")):
        case.arguments[p].fill_(7)
    assert launch(case) == 0
    for p in (p for p in case.outputs if p.startswith("out")):
        nan_rows = case.arguments[p].isnan()
        assert nan_rows.all(dim=1).tolist() == [r == 1 for r in range(rows)], p
        assert not nan_rows[0].any(), p


def test_softmax_survives_scores_that_overflow_exp(make_case, launch):
    case = make_case("rope_append_attention", 7, rows=3, contexts=[20, 90, 3], **SIZES)
    case.arguments["q"] *= 1e4
    assert launch(case) == 0
    assert case.arguments["out"].isfinite().all()
