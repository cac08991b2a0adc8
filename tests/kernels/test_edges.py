"""What a padded batch, a learner or a corrupted cache may hand a kernel."""

import numpy as np
import pytest
import torch

from s13lib.device.types import BLOCK, CONTEXT, ERROR_MASK, ERROR_SHIFT, POSITION, SLOT, TOKEN
from s13lib.kernels import NAMES, softgpu
from s13lib.kernels.bounds import EXP_UNITS, UNIT
from s13lib.kernels.softgpu.arithmetic import exp32

WITH = {
    "slot_mapping": ["append_kv", "rope_append", "rope_append_attention", "rms_norm_qkv_rope_append"],
    "positions": ["rope", "rope_append", "rope_append_attention", "rms_norm_qkv_rope_append"],
    "context_lens": ["paged_attention", "rope_append_attention", "attention_linear_add"],
}
FAR = 2**39 + 5
"""Fits the error word, and no address is near it."""


def test_the_lists_above_are_complete(make_case):
    for parameter, names in WITH.items():
        assert sorted(names) == sorted(n for n in NAMES if parameter in make_case(n).arguments)


def word(kind, value):
    return kind << ERROR_SHIFT | value & ERROR_MASK


@pytest.fixture
def trio(make_case):
    """A case of three rows, before and after a faultless run."""

    def build(name, **changes):
        before = make_case(name, seed=4, rows=3, contexts=[5, 9, 20], block_size=4)
        good = before.copy()
        assert good.run() == 0
        faulty = before.copy(**changes)
        for p in changes:
            assert faulty.arguments[p].dtype == before.arguments[p].dtype
        return before, good, faulty

    return build


def check_skipped(before, good, ran, bits, kept=()):
    """Row 1's outputs and its cache slot are what they were before; the other rows are what they should be.

    Outputs named in ``kept`` do not depend on what was wrong: row 1 is written there too.
    """
    for p, computed in ran.outputs.items():
        expected = good.arguments[p].clone()
        if p.endswith("cache") and before.slots:
            if p not in kept:
                flat, was = expected.flatten(0, 1), before.arguments[p].flatten(0, 1)
                flat[before.slots[1]] = was[before.slots[1]]
        elif p not in kept:
            expected[1] = before.arguments[p][1]
        assert bits(computed) == bits(expected), p


@pytest.mark.parametrize("slot", [-2, "one too many", FAR, -FAR])
@pytest.mark.parametrize("name", WITH["slot_mapping"])
def test_a_slot_out_of_range_writes_nothing(trio, bits, name, slot):
    before, good, _ = trio(name)
    slots = before.arguments["k_cache"].shape[0] * 4
    value = slots if slot == "one too many" else slot
    mapping = before.arguments["slot_mapping"].clone()
    mapping[1] = value
    ran = before.copy(slot_mapping=mapping)
    if "context_lens" in before.arguments:
        ran.arguments["context_lens"][1] = 0  # else row 1 would attend to the token that was not written
    assert ran.run() == word(SLOT, value)
    if name == "rope_append_attention":
        assert ran.arguments["out"][1].abs().max() == 0
        ran.arguments["out"][1] = before.arguments["out"][1]
    check_skipped(before, good, ran, bits, kept=("out_q",))


@pytest.mark.parametrize("name", WITH["slot_mapping"])
def test_slot_minus_one_is_skipped_without_an_error(trio, bits, name):
    before, good, _ = trio(name)
    ran = before.copy()
    ran.arguments["slot_mapping"][1] = -1
    if "context_lens" in before.arguments:
        ran.arguments["context_lens"][1] = 0
    assert ran.run() == 0
    if name == "rope_append_attention":
        assert ran.arguments["out"][1].abs().max() == 0
        ran.arguments["out"][1] = before.arguments["out"][1]
    check_skipped(before, good, ran, bits, kept=("out_q",))


@pytest.mark.parametrize("position", [-1, "one too many", FAR, -FAR])
@pytest.mark.parametrize("name", WITH["positions"])
def test_a_position_out_of_range_skips_the_row(trio, bits, name, position):
    before, good, _ = trio(name)
    value = len(before.arguments["cos"]) if position == "one too many" else position
    ran = before.copy()
    ran.arguments["positions"][1] = value
    assert ran.run() == word(POSITION, value)
    check_skipped(before, good, ran, bits)


@pytest.mark.parametrize("context", [-1, "one too many", 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("name", WITH["context_lens"])
def test_a_context_out_of_range_skips_the_row(trio, bits, name, context):
    before, good, _ = trio(name)
    value = before.arguments["block_tables"].shape[1] * 4 + 1 if context == "one too many" else context
    ran = before.copy()
    ran.arguments["context_lens"][1] = value
    assert ran.run() == word(CONTEXT, value)
    check_skipped(before, good, ran, bits, kept=("k_cache", "v_cache"))


@pytest.mark.parametrize("column", [0, 2])
@pytest.mark.parametrize("block", [-1, "one too many", 2**31 - 1])
@pytest.mark.parametrize("name", WITH["context_lens"])
def test_a_block_out_of_range_skips_the_row(trio, bits, name, block, column):
    before, good, _ = trio(name)
    value = before.arguments["k_cache"].shape[0] if block == "one too many" else block
    ran = before.copy()
    ran.arguments["block_tables"][1, column] = value
    assert ran.run() == word(BLOCK, value)
    check_skipped(before, good, ran, bits, kept=("k_cache", "v_cache"))


@pytest.mark.parametrize("token", [-1, 19, FAR])
def test_a_token_out_of_range_skips_the_row(trio, bits, token):
    before, good, _ = trio("embedding")
    ran = before.copy()
    ran.arguments["input_ids"][1] = token
    assert ran.run() == word(TOKEN, token)
    check_skipped(before, good, ran, bits)


def test_the_first_error_is_the_one_reported(make_case):
    case = make_case("embedding", rows=5)
    case.arguments["input_ids"][1:4] = torch.tensor([77, 88, -1])
    assert case.run() == word(TOKEN, 77)


@pytest.mark.parametrize("bad", [[0], [4], [1, 2], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_attention_linear_add_projects_all_rows_around_those_in_error(make_case, bits, bad):
    before = make_case("attention_linear_add", seed=2, rows=5, contexts=[3, 8, 1, 20, 9])
    good, ran = before.copy(), before.copy()
    assert good.run() == 0
    ran.arguments["context_lens"][bad] = -3
    assert ran.run() == word(CONTEXT, -3)
    expected = good.arguments["out"].clone()
    expected[bad] = before.arguments["out"][bad]
    assert bits(ran.arguments["out"]) == bits(expected)


@pytest.mark.parametrize("name", WITH["context_lens"])
def test_a_dummy_row_of_context_0_or_1_is_finite(make_case, name):
    """Row 0: context 0 and slot −1 (nano-vllm). Row 1: context 1 and slot 0 of a scratch block (SGLang)."""
    case = make_case(name, seed=1, rows=3, contexts=[0, 1, 30])
    assert case.run() == 0
    assert case.arguments["out"].isfinite().all()
    if name != "attention_linear_add":
        assert case.arguments["out"][0].tolist() == [0.0] * case.arguments["out"].shape[1]
        v = case.arguments["v_cache"].flatten(0, 1)[
            case.arguments["block_tables"][1, 0] * case.arguments["v_cache"].shape[1]
        ]
        group = case.arguments["out"].shape[1] // v.numel()
        assert torch.equal(case.arguments["out"][1], v.repeat_interleave(group, dim=0).flatten())


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_is_nothing_to_do(make_case, name):
    case = make_case(name, rows=2).rows(slice(0, 0))
    before = case.copy()
    assert case.run() == 0
    for p, t in case.outputs.items():
        assert torch.equal(t.nan_to_num(), before.arguments[p].nan_to_num())


IN_PLACE = [
    ("scale", {"out": "x"}),
    ("copy", {"out": "x"}),
    ("rms_norm", {"out": "x"}),
    ("add", {"out": "x"}),
    ("add", {"out": "y"}),
    ("silu_mul", {"out": "gate"}),
    ("silu_mul", {"out": "up"}),
    ("rope", {"out_q": "q", "out_k": "k"}),
    ("rope_append", {"out_q": "q"}),
    ("linear_add", {"out": "residual"}),
    ("attention_linear_add", {"out": "residual"}),
    ("add_rms_norm", {"out_residual": "residual"}),
    ("add_rms_norm", {"out_residual": "residual", "out": "delta"}),
    ("add_rms_norm", {"out_residual": "delta"}),
]


@pytest.mark.parametrize(("name", "same"), IN_PLACE)
def test_in_place_as_documented_gives_the_same(make_case, name, same):
    """To one rounding: in place the loop may be compiled without vectors, and fuse a product and a sum elsewhere."""
    case = make_case(name, seed=3, rows=7)
    apart, together = case.copy(), case.copy()
    for out, given in same.items():
        together.arguments[out] = together.arguments[given]
    assert apart.run() == together.run() == 0
    for p in apart.outputs:
        torch.testing.assert_close(
            together.arguments[p], apart.arguments[p], rtol=4 * UNIT, atol=4 * UNIT, equal_nan=True
        )


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("embedding", "append_kv", "copy")])
def test_nan_in_a_row_stays_in_its_row_and_is_not_lost(make_case, name):
    case = make_case(name, seed=5, rows=3)
    given = next(p for p in ("x", "q", "gate", "residual") if p in case.arguments)
    case.arguments[given][1] = torch.nan
    assert case.run() == 0
    for p in (p for p in case.outputs if p.startswith("out") and not (name == "rope" and p == "out_k")):
        nan_rows = case.arguments[p].isnan().reshape(3, -1)
        assert nan_rows.all(dim=1).tolist() == [False, True, False], p
        assert not nan_rows[[0, 2]].any(), p


def test_exp_is_as_exact_as_the_bounds_say():
    x = np.concatenate([np.linspace(-87.3, 87.3, 400_001), np.linspace(-1, 1, 400_001)]).astype(np.float32)
    true = np.exp(x.astype(np.float64))
    computed = np.array([exp32(v) for v in x[::40]], dtype=np.float64)
    assert (np.abs(computed - true[::40]) / true[::40]).max() <= EXP_UNITS * UNIT
    assert np.isnan(exp32(np.float32(np.nan)))
    assert exp32(np.float32(0)) == 1
    assert exp32(np.float32(np.inf)) == exp32(np.float32(88)) > 8e37
    assert 0 < exp32(np.float32(-np.inf)) == exp32(np.float32(-100)) < 2e-38


def test_softmax_survives_scores_that_overflow_exp(make_case):
    case = make_case("paged_attention", seed=7, rows=4)
    case.arguments["q"] *= 1e4
    assert case.run() == 0
    assert case.arguments["out"].isfinite().all()


def test_silu_of_large_gates(make_case):
    gate = torch.tensor([[-1e30, -200.0, -88.0, 88.0, 200.0, 1e30]])
    up = torch.ones_like(gate)
    out = torch.empty_like(gate)
    softgpu.silu_mul.function(gate.numpy(), up.numpy(), out.numpy())
    assert out[0, 3:].tolist() == gate[0, 3:].tolist()
    assert out[0, 1:3].abs().max() < 1e-35
    assert abs(out[0, 0].item()) <= 1e30 * 1.3e-38
