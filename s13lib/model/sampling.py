"""From logits to a token: greedy, or sampled with temperature and top-k, seeded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from s13lib.errors import require


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Args:
        temperature: 0 is greedy; above, logits are divided by it.
        top_k: keep the k likeliest tokens; None keeps all.
        seed: each request draws from its own stream of it, so its neighbours in the batch do not matter.
    """

    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        ok = self.temperature == 0 or 0.001 <= self.temperature <= 1000
        require(ok, "temperature", self.temperature, "0 (greedy) or from 0.001 to 1000")
        ok = self.top_k is None or (isinstance(self.top_k, int) and self.top_k >= 1)
        require(ok, "top_k", self.top_k, "None or a whole number of at least 1")

    def stream(self, request: int) -> torch.Generator:
        """The random stream of request number ``request``."""
        digest = hashlib.sha256(f"{self.seed} {request}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def choose(self, logits: Tensor, stream: torch.Generator) -> int:
        """The next token after ``logits`` (vocab,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        scaled = logits.double() / self.temperature
        if self.top_k is not None and self.top_k < len(scaled):
            scaled[scaled < scaled.topk(self.top_k).values[-1]] = float("-inf")
        return int(torch.multinomial(torch.softmax(scaled, dim=-1), 1, generator=stream))
