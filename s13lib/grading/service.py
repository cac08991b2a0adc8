"""A small service whose decode steps are real: what exercise 3 runs padding policies, and steps that go wrong, on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from s13lib.device import DeviceError, best_device
from s13lib.graphs.runner import GraphRunner
from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.model.weights import DecoderWeights

CONFIG = DecoderConfig(
    layers=3, hidden=16, ffn=16, heads=2, kv_heads=1, head_dim=8, vocab=32, rope_theta=1e4, norm_eps=1e-5, tied=True,
    max_context=32,
)  # fmt: skip
BLOCKS, BLOCK_SIZE, MOST_ROWS = 24, 4, 8
SCRATCH_SLOTS = range(BLOCKS * BLOCK_SIZE, (BLOCKS + 1) * BLOCK_SIZE)
NOBODY, ASIDE = "nobody", "waiting request"


@cache
def weights() -> DecoderWeights:
    """Random weights, the same in every process."""
    generator = torch.Generator().manual_seed(3)
    state = {
        name: torch.randn(tensor.shape, generator=generator) * 0.5
        for name, tensor in TextbookDecoder(CONFIG).state_dict().items()
    }
    return DecoderWeights.from_state_dict(CONFIG, state, best_device(default="softgpu"), progress=False)


@dataclass
class Service:
    """Running requests in a cache of their own, ready for a decode step of all of them.

    An earlier batch of ``MOST_ROWS`` rows has left its rows in the static buffers; its requests have ended since, and
    their blocks belong to ``aside``, a request that waits outside the batch, or are free.

    Args:
        lengths: tokens of each running request before the step; 0 for one whose first token is still to come.
        first: which of them was admitted first, and owns block 0.
    """

    lengths: tuple[int, ...]
    first: int = 0
    model: DecoderModel = field(init=False)
    requests: list[Sequence] = field(init=False)
    aside: Sequence = field(init=False)
    inputs: DecodeBatch = field(init=False)

    def __post_init__(self) -> None:
        with suppress(DeviceError):  # of an answer that was cut off
            best_device(default="softgpu").synchronize()
        self.model = DecoderModel(CONFIG, weights(), 4, best_device(default="softgpu"), MOST_ROWS, BLOCKS, BLOCK_SIZE)
        self.requests = [Sequence(f"request {number}") for number in range(len(self.lengths))]
        for request in [self.requests[self.first], *self.requests]:
            if not request.length:
                self.admit(request, self.lengths[self.requests.index(request)])
        self.inputs = DecodeBatch.static(self.model.device, MOST_ROWS, self.model.cache.max_blocks)
        self.leave_stale_rows()

    def admit(self, request: Sequence, tokens: int) -> None:
        """Prefill; no token is 0, so that a dummy's key and value differ from everyone's."""
        if tokens:
            self.model.prefill(request, [1 + (7 * request.length + 3 * i) % 31 for i in range(tokens)])

    def leave_stale_rows(self) -> None:
        """What a larger batch leaves behind: rows of requests that ended, one of whose blocks has a new owner."""
        cache = self.model.cache
        ended = [Sequence(f"ended {number}") for number in range(MOST_ROWS)]
        for sequence in ended:
            self.admit(sequence, 1)
        self.inputs.copy_from(DecodeBatch.of(cache, [(5, sequence, 0) for sequence in ended]))
        for sequence in ended:
            cache.release(sequence)
        self.aside = Sequence(ASIDE)  # takes the blocks that were freed last
        self.admit(self.aside, BLOCK_SIZE * (MOST_ROWS - 1))

    def next_batch(self) -> DecodeBatch:
        """The next decode step of all running requests."""
        return self.model.next_batch(self.requests, [1 + number for number in range(len(self.requests))])

    def runner(self, size: int, padding: Callable) -> GraphRunner:
        """A captured step of ``size`` rows over the static buffers.

        The runner's warm-up would run the stale rows, so it sees harmless ones, and the stale ones come back after it.
        """
        inputs = self.inputs.first(size)
        held = DecodeBatch(*(tensor.clone() for tensor in inputs.tensors()))
        inputs.slot_mapping.fill_(-1)
        runner = GraphRunner(self.model, size, inputs=inputs, padding=padding)
        inputs.copy_from(held)
        return runner

    def image(self) -> Tensor:
        """All keys and values now, (layers, 2, blocks + 1, block_size, kv_heads, head_dim); 0 is K, 1 is V."""
        cache = self.model.cache
        return torch.stack([torch.stack(pair) for pair in zip(cache.k, cache.v, strict=True)])

    def owner(self, slot: int) -> str:
        """Whose slot it is."""
        block = slot // BLOCK_SIZE
        if slot < 0 or block >= BLOCKS:
            return "no write" if slot == -1 else "scratch block" if slot in SCRATCH_SLOTS else "nowhere"
        holder = self.model.cache.owners.get(block)
        return NOBODY if holder is None else holder.name


def changed_slots(before: Tensor, after: Tensor) -> list[int]:
    """Slots in which a bit differs, in any layer, K or V."""
    differ = (before.view(torch.int32) != after.view(torch.int32)).flatten(2, 3).flatten(3).any(3)
    return differ.any(0).any(0).nonzero().flatten().tolist()
