"""Exercise 3: the padding bug: write it, find where it shows, catch it, make it impossible.

Steps are real: a small random decoder with a paged cache, captured and replayed. What a padding row holds, or what goes
wrong in a step, is what a case is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from s13lib.buckets.layout import BucketLayout
from s13lib.grading.part import Part, Text
from s13lib.grading.service import BLOCK_SIZE, BLOCKS, MOST_ROWS, SCRATCH_SLOTS, Service, changed_slots
from s13lib.graphs.padding import naive, scratch
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache

LIBRARY = tuple(f"s13lib.graphs.padding:{name}" for name in ("naive", "scratch", "skip", "stale", "_dummies"))


# ---- 3a, 3d: what padding rows hold


def careless_rows(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """Reference: zeros."""
    return naive(cache, held)


def harmless_rows(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
    """Reference: the scratch block."""
    return scratch(cache, held)


def make_batches(rng: np.random.Generator) -> list[tuple]:
    """Three requests in four rows first, then several padding rows, and other owners of block 0."""
    cases = [((5, 2, 3), 0, 4)]
    for size in (4, 6, 8):
        n = int(rng.integers(1, size - 1))
        lengths = tuple(int(tokens) for tokens in rng.integers(1, 6, n))
        cases.append((lengths, int(rng.integers(n)), size))
    return cases


def drive_padding(answer: Callable, lengths: tuple[int, ...], first: int, size: int) -> dict[str, object]:
    """Run one padded step with the answer as its policy, and see where its padding rows write.

    A policy that returns other shapes than the buffers' is not run: a graph has no place for them.
    """
    service = Service(tuple(lengths), first)
    n = len(service.lengths)
    seen: dict[str, object] = {}

    def policy(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
        rows = answer(cache, held)
        if not isinstance(rows, DecodeBatch):
            raise TypeError(f"a padding policy returns a DecodeBatch, not {type(rows).__name__}")
        seen["fields"] = {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in rows.named().items()}
        fits = seen["fields"] == {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in held.named().items()}
        return rows if fits else scratch_like(held)

    runner = service.runner(size, policy)
    batch = service.next_batch()
    before = service.image()
    runner.run(batch)
    slots = runner.inputs.slot_mapping.tolist()
    own = set(slots[:n])
    changed = [slot for slot in changed_slots(before, service.image()) if slot not in own | set(SCRATCH_SLOTS)]
    return seen | {
        "padding_rows_write": [f"slot {slot} → {service.owner(slot)}" for slot in slots[n:]],
        "overwritten": [f"slot {slot} → {service.owner(slot)}" for slot in changed],
    }


def scratch_like(held: DecodeBatch) -> DecodeBatch:
    """Rows that do nothing."""
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.slot_mapping.fill_(-1)
    return rows


def view_harmless(inputs: tuple, value: dict) -> dict:
    """Scratch block or no slot at all: both are right."""
    rows = value["padding_rows_write"]
    said = ["harmless" if row.endswith(("→ scratch block", "→ no write")) else row for row in rows]
    return value | {"padding_rows_write": said}


def tried_padding(inputs: tuple) -> Text:
    """Say the batch."""
    lengths, first, size = inputs
    n = len(lengths)
    return Text(
        f"a step of {n} requests padded to {size} rows; blocks of {BLOCK_SIZE} slots, block 0 is request {first}'s, "
        f"the scratch block is number {BLOCKS}",
        f"{n} 个请求补齐到 {size} 行的一步；每个 block 有 {BLOCK_SIZE} 个 slot，block 0 属于 request {first}，"
        f"scratch block 是 {BLOCKS} 号",
    )


# ---- 3b: the batch sizes where it shows


def sizes_where_it_shows(
    captured: list[int], padding_slots: list[int], owners: list[str | None], block_size: int, most: int
) -> list[int]:
    """Reference, over the library's layout."""
    layout = BucketLayout(captured)
    blocks = dict(enumerate(owners))

    def corrupts(n: int) -> bool:
        size = layout.pick(n) or n
        return any(blocks.get(slot // block_size) is not None for slot in padding_slots[n:size])

    return [n for n in range(1, most + 1) if corrupts(n)]


def make_layouts(rng: np.random.Generator) -> list[tuple]:
    """Every policy with owned and free blocks, batches above the largest size, and a layout out of order."""
    names = ["anna", "ben", "chen", "dora"]
    full, free0 = [*names], [None, *names[1:]]
    zeros, skip, beyond = [0] * 8, [-1] * 8, [16] * 8
    cases = [
        ([4], [0] * 4, full, 4, 4),
        ([1, 2, 4, 8], zeros, full, 4, 8),
        ([1, 2, 4, 8], zeros, free0, 4, 8),
        ([1, 2, 4, 8], beyond, full, 4, 8),
        ([1, 2, 4, 8], skip, full, 4, 8),
        ([8, 2, 4], [0, 1, 4, 5, 9, 9, 9, 12], ["anna", None, None, "dora"], 4, 11),
        ([3, 8], [12, 4, 4, 4, 4, 4, 4, 0], [None, None, None, "dora"], 4, 9),
        ([2, 6], [4, 4, 4, 0, 4, 0], ["anna", None], 4, 6),
    ]
    for _ in range(4):
        block_size = int(rng.choice([2, 4, 16]))
        blocks = int(rng.integers(4, 9))
        captured = [int(size) for size in rng.choice(range(1, 13), 3, replace=False)]
        owners = [str(rng.choice(names)) if rng.random() < 0.3 else None for _ in range(blocks)]
        slots = [int(slot) for slot in rng.integers(-1, (blocks + 1) * block_size, max(captured))]
        cases.append((captured, slots, owners, block_size, max(captured) + int(rng.integers(0, 3))))
    return cases


# ---- 3c: the assertion


def assert_padding_is_harmless(before: Tensor, after: Tensor, slot_mapping: Tensor, own_slots: list[int]) -> None:
    """Reference: the write set first, then every bit outside the slots that may change."""
    blocks, block_size = before.shape[2:4]
    scratch_slots = set(range((blocks - 1) * block_size, blocks * block_size))
    slots = slot_mapping.tolist()
    n = len(own_slots)
    assert slots[:n] == own_slots
    assert set(slots[n:]) <= scratch_slots | {-1}
    assert set(changed_slots(before, after)) <= scratch_slots | set(own_slots)


Images = tuple[Tensor, Tensor, Tensor, list[int]]  # before, after, slot_mapping, own_slots


@dataclass(frozen=True)
class Step:
    """One kind of step that the assertion is tried on.

    Attributes:
        text: what it is.
        slot: where padding rows write, from the service; None for slot −1.
        batch: changes the batch that is about to run.
        spoil: changes the cache after the step, as a faulty kernel would have.
        before: changes the cache before the first image is taken.
        steps: how often the same step runs; the images are those around the last.
        full: no padding row at all.
        lengths: of the requests, where they matter.
    """

    text: Text
    slot: Callable[[Service], list[int]] | None = None
    batch: Callable[[DecodeBatch], None] = lambda batch: None
    spoil: Callable[[Service], None] = lambda service: None
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
        _to(SCRATCH_SLOTS[0]),
    ),
    "naive": Step(
        Text("padding rows at slot 0", "补齐行写 slot 0"),
        _to(0),
    ),
    "skip": Step(
        Text("padding rows at slot −1, which the kernels skip", "补齐行的 slot 是 −1，kernel 会跳过"),
    ),
    "naive again": Step(
        Text(
            "the second of two equal steps, padding rows at slot 0: no byte changes there",
            "同样的一步走第二遍，补齐行写 slot 0：那里的字节没有变化",
        ),
        _to(0),
        steps=2,
    ),
    "full": Step(
        Text("as many requests as rows: no padding row", "请求数等于行数：没有补齐行"),
        full=True,
    ),
    "stale": Step(
        Text(
            "padding rows left by a larger batch, in a block of a request that waits",
            "补齐行是更大的 batch 留下的，写进一个正在等待的请求的 block",
        ),
        _stale,
    ),
    "NaN": Step(
        Text("NaN lay in the cache before, and still does", "缓存里本来就有 NaN，之后也还在"),
        before=_stain,
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
        _to(SCRATCH_SLOTS[0] - BLOCK_SIZE),
    ),
    "replay": Step(
        Text(
            "the second of two equal steps, padding rows skipped: no byte changes at all",
            "同样的一步走第二遍，补齐行被跳过：一个字节也没变",
        ),
        steps=2,
    ),
    "one V": Step(
        Text("a stray write into V of the last layer alone", "只有最后一层的 V 被乱写了一处"),
        spoil=lambda service: _set(service.model.cache.v[-1], service.aside.blocks[0] * BLOCK_SIZE, 0.25),
    ),
    "scratch slots": Step(
        Text("padding rows at different slots of the scratch block", "补齐行分别写 scratch block 的不同 slot"),
        lambda service: [SCRATCH_SLOTS[(row + 1) % BLOCK_SIZE] for row in range(MOST_ROWS)],
    ),
    "repeated": Step(
        Text("padding rows that repeat the last request's slot", "补齐行重复最后一个请求的 slot"),
        _own_last,
    ),
    "slot 0 is mine": Step(
        Text("a real row whose own slot is slot 0", "有一个真实的行，它自己的 slot 就是 slot 0"),
        lengths=(0, 3, 2),
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
}


def make_steps(rng: np.random.Generator) -> list[tuple]:
    """Every kind of step once. Each request is still in its first block, so that slot 0 lies in a running one's."""
    cases = []
    for kind, step in STEPS.items():
        lengths = step.lengths or tuple(map(int, rng.integers(1, BLOCK_SIZE, int(rng.integers(2, 5)))))
        cases.append((kind, lengths, len(lengths) if step.full else len(lengths) + int(rng.integers(1, 3))))
    return cases


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
    return before, service.image(), runner.inputs.slot_mapping.clone(), own_slots


def drive_assertion(answer: Callable, kind: str, lengths: tuple[int, ...], size: int) -> dict[str, str | None]:
    """Whether the assertion raises. What it returns does not count."""
    before, after, slot_mapping, own_slots = images_of(kind, tuple(lengths), size)
    try:
        answer(before.clone(), after.clone(), slot_mapping.clone(), list(own_slots))
    except AssertionError:
        return {"raises": "AssertionError"}
    return {"raises": None}


def tried_step(inputs: tuple) -> Text:
    """Say what kind of step it was."""
    kind, lengths, size = inputs
    text = STEPS[kind].text
    return Text(f"{len(lengths)} requests, {size} rows: {text.en}", f"{len(lengths)} 个请求，{size} 行：{text.zh}")


def warm_up() -> None:
    """Compile the kernels."""
    images_of("scratch", (1, 1), 3)


PARTS = {
    "3a": Part(
        careless_rows, make_batches, drive_padding, forbidden=LIBRARY, warm_up=warm_up, tried=tried_padding
    ),
    "3b": Part(sizes_where_it_shows, make_layouts),
    "3c": Part(assert_padding_is_harmless, make_steps, drive_assertion, warm_up=warm_up, tried=tried_step),
    "3d": Part(
        harmless_rows, make_batches, drive_padding, view_harmless, forbidden=LIBRARY, warm_up=warm_up,
        tried=tried_padding,
    ),
}  # fmt: skip
