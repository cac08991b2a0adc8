"""A row's result depends on the form that ran and on nothing else of the batch, bit for bit. So does a repetition."""

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

from s13lib.kernels.cuda import KERNELS
from s13lib.kernels.cuda.forms import ATTENTION, LINEAR, form_for

MOST = 17
SIZES = {"kv_heads": 1, "heads": 3, "head_dim": 10, "hidden": 45, "width": 9, "block_size": 4, "vocabulary": 19}
PER_ROW = [name for name in KERNELS if name not in ("copy", "scale", "append_kv")]
TABLE = {"rope_append_attention": ATTENTION, "embedding": None, "add": None, "rms_norm": None, "add_rms_norm": None}


def forms_of(name):
    """The row counts 1 … MOST by the form that takes them."""
    table = TABLE.get(name, LINEAR)
    groups: dict = {}
    for rows in range(1, MOST + 1):
        groups.setdefault(table and form_for(rows, table), []).append(rows)
    return groups


def test_the_switches_stand_where_the_tables_say():
    assert [rows[-1] for rows in forms_of("linear").values()] == [2, 16, 17]
    assert [rows[-1] for rows in forms_of("rope_append_attention").values()] == [4, 16, 17]
    assert [form.most_rows for form in LINEAR] == [2, 16, 32, 64, 2**31]
    assert [form.most_rows for form in ATTENTION] == [4, 16, 64, 2**31]


@pytest.mark.parametrize("name", PER_ROW)
def test_every_batch_size_of_a_form_gives_the_same_rows(make_case, launch, bits, name):
    contexts = [1, 3, 33, 70, 8, 90, 2, 64, 65, 31, 12, 5, 100, 4, 7, 9, 32]
    case = make_case(name, 1, rows=MOST, contexts=contexts, **SIZES)
    for sizes in forms_of(name).values():
        most = case.rows(slice(0, sizes[-1]))
        full = most.copy()
        assert launch(full) == 0
        for rows in {sizes[0], sizes[len(sizes) // 2]}:
            index = torch.arange(sizes[-1] - rows, sizes[-1])  # the last rows, so that each also changes its place
            part = most.rows(index)
            assert launch(part) == 0
            for p, computed in part.outputs.items():
                if not p.endswith("cache"):
                    assert bits(computed) == bits(full.arguments[p][index]), (p, rows)
                elif part.slots:
                    slots = part.slots
                    assert bits(computed.flatten(0, 1)[slots]) == bits(full.arguments[p].flatten(0, 1)[slots]), p


@pytest.mark.parametrize("name", ["rms_norm_qkv", "rope_append_attention"])
def test_a_permutation_of_the_rows_permutes_the_results(make_case, launch, bits, name):
    case = make_case(name, 2, rows=6, contexts=[70, 1, 40, 33, 5, 90], **SIZES)
    full, order = case.copy(), torch.tensor([3, 0, 5, 1, 4, 2])
    permuted = case.rows(order)
    assert launch(full) == launch(permuted) == 0
    for p, computed in permuted.outputs.items():
        if not p.endswith("cache"):
            assert bits(computed) == bits(full.arguments[p][order]), p


@pytest.mark.parametrize("name", ["linear_qkv", "rope_append_attention"])
def test_a_second_launch_gives_the_same_bits(make_case, launch, bits, name):
    case = make_case(name, 3, rows=3, contexts=[290, 33, 64], **SIZES)
    once, twice = case.copy(), case.copy()
    assert launch(once) == launch(twice) == launch(twice) == 0
    for p in once.outputs:
        assert bits(once.arguments[p]) == bits(twice.arguments[p])


def test_other_blocks_for_the_same_tokens_change_no_bit(make_case, launch, bits):
    case = make_case("rope_append_attention", 3, rows=4, contexts=[1, 15, 64, 100], **SIZES | {"block_size": 16})
    moved = case.copy()
    blocks = len(case.arguments["k_cache"])
    to = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))
    for cache in ("k_cache", "v_cache"):
        moved.arguments[cache][to] = case.arguments[cache]
    table, slot = case.arguments["block_tables"], case.arguments["slot_mapping"]
    moved.arguments["block_tables"] = torch.where(table >= 0, to[table.clamp(min=0).long()].int(), table)
    moved.arguments["slot_mapping"] = to[slot // 16] * 16 + slot % 16
    assert launch(case) == launch(moved) == 0
    assert bits(case.arguments["out"]) == bits(moved.arguments["out"])
