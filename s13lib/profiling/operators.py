"""How many operators PyTorch itself runs for one decode step of the textbook decoder: what a naive program launches."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

LAUNCHES_NOTHING = ("promote_types",)  # asks for a type, not for data


class _Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.computing: Counter[str] = Counter()
        self.views: Counter[str] = Counter()

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        name = operation._schema.name.removeprefix("aten::")
        if name in LAUNCHES_NOTHING:
            return operation(*arguments, **(named or {}))
        (self.views if operation.is_view or name in ("_unsafe_view", "detach") else self.computing)[name] += 1
        return operation(*arguments, **(named or {}))


def count_operators(decoder: nn.Module, context: int = 64, batch: int = 1) -> tuple[Counter[str], Counter[str]]:
    """Count the ATen operators of one decode step of ``batch`` requests with ``context`` − 1 tokens in the cache.

    Returns (operators that compute, operators that only make views). On a GPU each of the first kind launches at least
    one kernel; views launch none.
    """
    cache = decoder.new_cache()
    if context > 1:
        decoder(torch.zeros((batch, context - 1), dtype=torch.int64), cache)
    with _Count() as count:
        decoder(torch.zeros((batch, 1), dtype=torch.int64), cache)
    return count.computing, count.views
