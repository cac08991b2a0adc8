"""The steps that exercise 3c tries an assertion on: right ones, and each with one thing that goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from s13lib.grading.part import Text
from s13lib.grading.service import BLOCK_SIZE, BLOCKS, MOST_ROWS, SCRATCH_SLOTS, Service
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache

Images = tuple[Tensor, Tensor, Tensor, list[int]]  # before, after, slot_mapping, own_slots


@dataclass(frozen=True)
class Step:
    """One kind of step that the assertion is tried on.

    Attributes:
        text: what it is.
        right: whether the assertion must stay silent.
        slot: where padding rows write, from the service; None for slot −1.
        batch: changes the batch that is about to run.
        spoil: changes the cache after the step, as a faulty kernel would have.
        noted: changes the slot mapping that is handed over.
        before: changes the cache before the first image is taken.
        steps: how often the same step runs; the images are those around the last.
        full: no padding row at all.
        lengths: of the requests, where they matter.
    """

    text: Text
    right: bool = False
    slot: Callable[[Service], list[int]] | None = None
    batch: Callable[[DecodeBatch], None] = lambda batch: None
    spoil: Callable[[Service], None] = lambda service: None
    noted: Callable[[Tensor, int], None] = lambda slots, n: None
    before: Callable[[Service], None] = lambda service: None
    steps: int = 1
    full: bool = False
    lengths: tuple[int, ...] | None = None


def _to(slot: int) -> Callable[[Service], list[int]]:
    return lambda service: [slot] * MOST_ROWS


def _own_last(service: Service) -> list[int]:
    last = service.requests[-1]
    return [service.model.cache.slot(last, last.length - 1)] * MOST_ROWS


def _stale(service: Service) -> list[int]:
    return [service.aside.blocks[0] * BLOCK_SIZE] * MOST_ROWS


def _swap(batch: DecodeBatch) -> None:
    batch.slot_mapping[:2] = batch.slot_mapping[:2].flip(0)


def _unsaved(batch: DecodeBatch) -> None:
    batch.slot_mapping[1] = -1


def _set(cache_tensor: Tensor, slot: int, value: float) -> None:
    cache_tensor.flatten(0, 1)[slot, -1, -1] = value


def _last_real_slot(service: Service) -> None:
    """Slot −1 taken as Python takes it, in the blocks that requests may own."""
    for tensor in service.model.cache.k + service.model.cache.v:
        tensor[:-1].flatten(0, 1)[-1] = 0.25


def _earlier_token(service: Service) -> None:
    """The first token of the last request, whose new one lies in the same block."""
    for tensor in service.model.cache.k + service.model.cache.v:
        tensor[service.requests[-1].blocks[0], 0] = 0.25


def _untouched_slot(service: Service) -> int:
    return max(block for block in range(BLOCKS) if block not in service.model.cache.owners) * BLOCK_SIZE


def _next_float(service: Service) -> None:
    victim = service.model.cache.k[1].flatten(0, 1)[service.aside.blocks[0] * BLOCK_SIZE]
    victim[0, 0] = torch.nextafter(victim[0, 0], torch.tensor(torch.inf))


def _stain(service: Service) -> None:
    """What a cache may hold anywhere, and a step must leave alone: NaN."""
    for tensor in service.model.cache.k + service.model.cache.v:
        tensor[-3:, 1:] = torch.nan


STEPS = {
    "scratch": Step(
        Text("padding rows in the scratch block", "补齐行写进 scratch block"),
        slot=_to(SCRATCH_SLOTS[0]),
        right=True,
    ),
    "naive": Step(
        Text("padding rows at slot 0", "补齐行写 slot 0"),
        slot=_to(0),
    ),
    "skip": Step(
        Text("padding rows at slot −1, which the kernels skip", "补齐行的 slot 是 −1，kernel 会跳过"),
        right=True,
    ),
    "naive again": Step(
        Text(
            "the second of two equal steps, padding rows at slot 0: no byte changes there",
            "同样的一步走第二遍，补齐行写 slot 0：那里的字节没有变化",
        ),
        slot=_to(0),
        steps=2,
    ),
    "full": Step(
        Text("as many requests as rows: no padding row", "请求数等于行数：没有补齐行"),
        full=True,
        right=True,
    ),
    "stale": Step(
        Text(
            "padding rows left by a larger batch, in a block of a request that waits",
            "补齐行是更大的 batch 留下的，写进一个正在等待的请求的 block",
        ),
        slot=_stale,
    ),
    "NaN": Step(
        Text("NaN lay in the cache before, and still does", "缓存里本来就有 NaN，之后也还在"),
        before=_stain,
        right=True,
    ),
    "last slot": Step(
        Text(
            "slot −1 in the mapping, which the kernel took for the last slot of the last real block",
            "slot_mapping 里是 −1，kernel 却把它当成最后一个真实 block 的最后一个 slot",
        ),
        spoil=_last_real_slot,
    ),
    "off by one": Step(
        Text("padding rows one block before the scratch block", "补齐行写进 scratch block 的前一个 block"),
        slot=_to(SCRATCH_SLOTS[0] - BLOCK_SIZE),
    ),
    "replay": Step(
        Text(
            "the second of two equal steps, padding rows skipped: no byte changes at all",
            "同样的一步走第二遍，补齐行被跳过：一个字节也没变",
        ),
        steps=2,
        right=True,
    ),
    "one V": Step(
        Text("a stray write into V of the last layer alone", "只有最后一层的 V 被乱写了一处"),
        spoil=lambda service: _set(service.model.cache.v[-1], service.aside.blocks[0] * BLOCK_SIZE, 0.25),
    ),
    "scratch slots": Step(
        Text("padding rows at different slots of the scratch block", "补齐行分别写 scratch block 的不同 slot"),
        slot=lambda service: [SCRATCH_SLOTS[(row + 1) % BLOCK_SIZE] for row in range(MOST_ROWS)],
        right=True,
    ),
    "repeated": Step(
        Text("padding rows that repeat the last request's slot", "补齐行重复最后一个请求的 slot"),
        slot=_own_last,
    ),
    "slot 0 is mine": Step(
        Text("a real row whose own slot is slot 0", "有一个真实的行，它自己的 slot 就是 slot 0"),
        lengths=(0, 3, 2),
        right=True,
    ),
    "unsaved": Step(
        Text("a real row at slot −1: its token is not stored", "一个真实的行用了 slot −1：它的 token 没有存下来"),
        batch=_unsaved,
    ),
    "swapped": Step(
        Text("two real rows with each other's slot", "两个真实的行互换了 slot"),
        batch=_swap,
    ),
    "one bit": Step(
        Text("a stray write that changes one number by one bit", "乱写的一处只让一个数变了一位"),
        spoil=_next_float,
    ),
    "minus zero": Step(
        Text("a stray write of −0.0 over 0.0", "乱写的一处把 0.0 写成了 −0.0"),
        spoil=lambda service: _set(service.model.cache.k[1], _untouched_slot(service), -0.0),
    ),
    "own block": Step(
        Text(
            "a kernel writes over an earlier token of a running request, in the block of its own slot",
            "kernel 写坏了一个运行中的请求之前的 token，就在它自己的 slot 所在的 block 里",
        ),
        spoil=_earlier_token,
    ),
    "beyond": Step(
        Text("padding rows at slots behind the scratch block", "补齐行的 slot 在 scratch block 之后"),
        noted=lambda slots, n: slots[n:].fill_(SCRATCH_SLOTS.stop),
    ),
    "below": Step(
        Text("padding rows at slot −2", "补齐行的 slot 是 −2"),
        noted=lambda slots, n: slots[n:].fill_(-2),
    ),
}


def scratch_like(held: DecodeBatch) -> DecodeBatch:
    """Rows that do nothing."""
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.slot_mapping.fill_(-1)
    return rows


@lru_cache(maxsize=64)
def images_of(kind: str, lengths: tuple[int, ...], size: int) -> Images:
    """Run a step of this kind and take its images: the same for every answer that is tried."""
    step = STEPS[kind]
    service = Service(lengths)
    batch = service.next_batch()
    own_slots = batch.slot_mapping.tolist()
    step.before(service)
    step.batch(batch)
    slots = step.slot(service) if step.slot else [-1] * MOST_ROWS

    def padding(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
        rows = scratch_like(held)
        rows.context_lens.fill_(1)
        rows.slot_mapping.copy_(torch.tensor(slots[: held.rows]))
        return rows

    runner = service.runner(size, padding)
    for _ in range(step.steps):
        before = service.image()
        runner.run(batch)
    step.spoil(service)
    slot_mapping = runner.inputs.slot_mapping.clone()
    step.noted(slot_mapping, len(lengths))
    return before, service.image(), slot_mapping, own_slots
