"""What rows beyond the real ones hold when a batch is padded to a captured size. Two right designs, two famous bugs.

A padding row runs the same kernels as a real one, and those write its key and value into the cache. Whose block that
is decides everything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from s13lib.errors import look_up
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache

# (cache, what the rows beyond n hold now) → what they shall hold
Padding = Callable[[PagedKVCache, DecodeBatch], DecodeBatch]


def _dummies(held: DecodeBatch, slot: int, block: int, context: int) -> DecodeBatch:
    """As many rows as ``held``: token 0 at position 0, written to ``slot``, attending to ``context`` tokens."""
    rows = held.rows
    return DecodeBatch(
        torch.zeros(rows, dtype=torch.int64),
        torch.zeros(rows, dtype=torch.int64),
        torch.full((rows,), slot, dtype=torch.int64),
        torch.full(held.block_tables.shape, block, dtype=torch.int32),
        torch.full((rows,), context, dtype=torch.int32),
    )


def scratch(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """Right: write to and read from the scratch block, which no sequence ever owns (SGLang, TensorRT-LLM)."""
    return _dummies(held, cache.scratch_block * cache.block_size, cache.scratch_block, context=1)


def skip(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """Right: slot −1, which the kernels do not write, and nothing to attend to (vLLM, nano-vllm)."""
    return _dummies(held, slot=-1, block=0, context=0)


def stale(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """A bug: the rows keep what an earlier, larger batch left there, and write to blocks that now belong to others.

    Shipped in Diffulex#44 and vllm#41841. It shows only after a batch has shrunk.
    """
    return held


def naive(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """A bug: zeros, which point at slot 0 of block 0: a real block, the first that was handed out (rvllm#32)."""
    return _dummies(held, slot=0, block=0, context=1)


PADDINGS: dict[str, Padding] = {"scratch": scratch, "skip": skip, "stale": stale, "naive": naive}


def padding_named(name: str) -> Padding:
    """The policy of that name; an unknown name is an ``InputError``."""
    return look_up(PADDINGS, name, "padding")
