"""A row's result depends neither on the batch size nor on the row's place in the batch: bit for bit.

This is what makes a padded, a batched and a lone decode step equal (tiles with a remainder, and a flat
loop over rows × width, both break it).
"""

import pytest
import torch

from s13lib.kernels import NAMES

LARGEST = 70

# Sizes that leave a remainder for every vector width: 16·n + 1 … + 15 between them.
SIZES = [
    {"kv_heads": 1, "heads": 3, "head_dim": 10, "hidden": 77, "width": 45, "block_size": 4},
    {"kv_heads": 2, "heads": 8, "head_dim": 16, "hidden": 64, "width": 131, "block_size": 16},
]


def _cached(case, cache):
    """What each written slot holds, in the order of the rows."""
    return case.arguments[cache].flatten(0, 1)[case.slots]


def _assert_same_rows(full, part, index, bits):
    for p, computed in part.outputs.items():
        if p.endswith("cache"):
            if part.slots:
                assert bits(_cached(part, p)) == bits(_cached(full, p)[index]), p
        else:
            assert bits(computed) == bits(full.arguments[p][index]), p


@pytest.mark.parametrize("sizes", SIZES, ids=["odd", "even"])
@pytest.mark.parametrize("name", NAMES)
def test_every_batch_size_gives_the_same_rows(make_case, bits, name, sizes):
    random = torch.Generator().manual_seed(5)
    contexts = torch.randint(1, 301, (LARGEST,), generator=random).tolist()
    case = make_case(name, seed=1, rows=LARGEST, contexts=contexts, **sizes)
    full = case.copy()
    assert full.run() == 0
    for rows in range(1, LARGEST + 1):
        index = torch.arange(LARGEST - rows, LARGEST)  # the last rows, so that each row also changes its place
        part = case.rows(index)
        assert part.run() == 0
        _assert_same_rows(full, part, index, bits)


@pytest.mark.parametrize("sizes", SIZES, ids=["odd", "even"])
@pytest.mark.parametrize("name", NAMES)
def test_a_permutation_of_the_rows_permutes_the_results(make_case, bits, name, sizes):
    random = torch.Generator().manual_seed(6)
    contexts = torch.randint(1, 301, (LARGEST,), generator=random).tolist()
    case = make_case(name, seed=2, rows=LARGEST, contexts=contexts, **sizes)
    full = case.copy()
    assert full.run() == 0
    for _ in range(3):
        index = torch.randperm(LARGEST, generator=random)
        permuted = case.rows(index)
        assert permuted.run() == 0
        _assert_same_rows(full, permuted, index, bits)


@pytest.mark.parametrize("name", ["paged_attention", "attention_linear_add", "rope_append_attention"])
def test_other_blocks_for_the_same_tokens_change_no_bit(make_case, bits, name):
    case = make_case(name, seed=3, rows=9, contexts=[1, 2, 15, 16, 17, 31, 64, 100, 300], block_size=16)
    moved = case.copy()
    blocks = len(case.arguments["k_cache"])
    to = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))
    for cache in ("k_cache", "v_cache"):
        moved.arguments[cache][to] = case.arguments[cache]
    table = case.arguments["block_tables"]
    moved.arguments["block_tables"] = torch.where(table >= 0, to[table.clamp(min=0).long()].int(), table)
    if "slot_mapping" in case.arguments:
        slot = case.arguments["slot_mapping"]
        moved.arguments["slot_mapping"] = to[slot // 16] * 16 + slot % 16
    assert case.run() == moved.run() == 0
    assert bits(case.arguments["out"]) == bits(moved.arguments["out"])


def _placed(case, before, after):
    """The same with tensor ``before`` right in front of tensor ``after`` in memory, and the others where they are."""
    moved = case.copy()
    first, second = case.arguments[before], case.arguments[after]
    memory = torch.empty(first.nbytes + second.nbytes + 64, dtype=torch.uint8)
    start = -(memory.data_ptr() + first.nbytes) % 64  # so that ``after`` is aligned, as all tensors of a device are
    for name, tensor, at in ((before, first, start), (after, second, start + first.nbytes)):
        moved.arguments[name] = memory[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return moved


@pytest.mark.parametrize("sizes", [{"head_dim": 10, "hidden": 24, "width": 20}, {"head_dim": 16, "hidden": 40}])
@pytest.mark.parametrize("name", NAMES)
def test_where_a_tensor_lies_changes_no_bit(make_case, bits, name, sizes):
    """A loop has code with vectors and without; which of them runs depends on how near to each other its arrays are.

    An output just behind a norm's weight once gave its first row by the other one, with products in another order.
    """
    case = make_case(name, seed=4, rows=5, contexts=[1, 2, 15, 16, 30], **sizes)
    apart = case.copy()
    assert apart.run() == 0
    tensors = [p for p, t in case.arguments.items() if isinstance(t, torch.Tensor) and t.is_floating_point()]
    for after in case.outputs:
        for before in tensors:
            if before != after:
                together = _placed(case, before, after)
                assert together.run() == 0
                for p, computed in together.outputs.items():
                    assert bits(computed) == bits(apart.arguments[p]), (p, before, after)
