"""Rows of one sequence in one launch, as when a prompt is fed: each attends to those before it."""

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

from s13lib.kernels import reference
from s13lib.kernels.cuda.forms import ATTENTION
from tests.kernels.conftest import Case

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCKS, LONGEST = 4, 2, 6, 4, 48, 128


def prompt_case(sequences, seed=0):
    """``sequences`` lists (tokens already cached, rows of the prompt): one launch for all of them."""
    random = torch.Generator().manual_seed(seed)
    free = torch.randperm(BLOCKS, generator=random).tolist()
    caches = torch.full((2, BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM), torch.nan)
    positions, slots, tables = [], [], []
    for cached, new in sequences:
        blocks = [free.pop() for _ in range(-(-(cached + new) // BLOCK_SIZE))]
        slot = [blocks[t // BLOCK_SIZE] * BLOCK_SIZE + t % BLOCK_SIZE for t in range(cached + new)]
        for s in slot[:cached]:
            caches.flatten(1, 2)[:, s] = torch.randn((2, KV_HEADS, HEAD_DIM), generator=random)
        positions += range(cached, cached + new)
        slots += slot[cached:]
        tables += [blocks + [-7] * (LONGEST // BLOCK_SIZE - len(blocks))] * new
    rows = len(positions)

    def normal(width):
        return torch.randn((rows, width), generator=random)

    cos, sin = reference.rope_tables(1e4, HEAD_DIM, LONGEST)
    return Case(
        "rope_append_attention",
        {
            "q": normal(HEADS * HEAD_DIM),
            "k": normal(KV_HEADS * HEAD_DIM),
            "v": normal(KV_HEADS * HEAD_DIM),
            "cos": cos,
            "sin": sin,
            "positions": torch.tensor(positions),
            "slot_mapping": torch.tensor(slots),
            "block_tables": torch.tensor(tables, dtype=torch.int32),
            "context_lens": torch.tensor(positions, dtype=torch.int32) + 1,
            "scale": HEAD_DIM**-0.5,
            "k_cache": caches[0].clone(),
            "v_cache": caches[1].clone(),
            "out": torch.full((rows, HEADS * HEAD_DIM), torch.nan),
        },
    )


PROMPTS = {
    "one": [(0, 6)],
    "a prompt that goes on": [(30, 5)],
    "behind decode rows": [(30, 1), (5, 1), (3, 4), (12, 1)],
    "two, over several tiles": [(60, 7), (0, 8)],
}


@pytest.mark.parametrize("form", ATTENTION[:2], ids=[f"{f.splits}pieces" for f in ATTENTION[:2]])
@pytest.mark.parametrize("sequences", PROMPTS.values(), ids=PROMPTS)
def test_rows_of_a_prompt_see_each_other(launch, only_form, sequences, form):
    only_form(form)
    case = prompt_case(sequences)
    truth = case.reference()
    assert launch(case) == 0
    for p, computed in case.outputs.items():
        torch.testing.assert_close(computed.double(), truth.arguments[p], rtol=1e-5, atol=1e-5, equal_nan=True)


def test_feeding_a_prompt_in_pieces_changes_no_bit(launch, only_form, bits):
    only_form(ATTENTION[1])
    whole = prompt_case([(7, 11)])
    pieces = whole.copy()
    assert launch(whole) == 0
    for index in (slice(0, 4), slice(4, 5), slice(5, 11)):
        part = pieces.rows(index)
        part.arguments |= {p: pieces.arguments[p] for p in ("k_cache", "v_cache")}
        assert launch(part) == 0
        assert bits(part.arguments["out"]) == bits(whole.arguments["out"][index])
    for cache in ("k_cache", "v_cache"):
        assert bits(pieces.arguments[cache]) == bits(whole.arguments[cache])


def test_in_half_precision_a_row_reads_its_own_token_as_the_cache_will_hold_it(launch, in_dtype, only_form, bits):
    """Else the token would weigh a little more or less in its own step than in all later ones."""
    only_form(ATTENTION[1])
    step = in_dtype(prompt_case([(5, 1)]), torch.float16)
    step.arguments |= {p: step.arguments[p].float() for p in ("k", "v")}  # finer than the cache
    again = step.copy()
    assert launch(step) == 0
    again.arguments |= {p: step.arguments[p].clone() for p in ("k_cache", "v_cache")}
    again.arguments["slot_mapping"][:] = -1  # now the token comes from the cache
    assert launch(again) == 0
    assert bits(step.arguments["out"]) == bits(again.arguments["out"])
