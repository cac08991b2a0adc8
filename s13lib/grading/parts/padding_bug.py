"""Exercise 3: the padding bug: write it, find where it shows, catch it, make it impossible.

Steps are real: a small random decoder with a paged cache, captured and replayed. What a padding row holds, or what goes
wrong in a step, is what a case is about.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from s13lib.buckets.layout import BucketLayout
from s13lib.device import DeviceError
from s13lib.grading.padding_steps import STEPS, Images, images_of, scratch_like
from s13lib.grading.part import Part, Refused, Text
from s13lib.grading.service import BLOCK_SIZE, BLOCKS, SCRATCH_SLOTS, Service, changed_slots
from s13lib.graphs.padding import naive, scratch
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache

HARMLESS = ("→ scratch block", "→ no write")
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

    A policy that returns other shapes than the buffers' is not run: a graph has no place for them. Where the device
    reports an error, its words are all that there is to observe.
    """
    service = Service(tuple(lengths), first)
    n = len(service.lengths)
    fields: dict[str, Tensor] = {}

    def policy(cache: PagedKVCache, held: DecodeBatch) -> DecodeBatch:
        places = _places(held)
        rows = answer(cache, held)
        if not isinstance(rows, DecodeBatch):
            raise TypeError(f"a padding policy returns a DecodeBatch, not {type(rows).__name__}")
        fields.update({name: tensor.clone() for name, tensor in rows.named().items()})
        return rows if _places(rows) == places else scratch_like(held)

    runner = service.runner(size, policy)
    batch = service.next_batch()
    before = service.image()
    try:
        runner.run(batch)
    except DeviceError as error:
        return {"DeviceError": str(error).rpartition(": ")[2]}
    slots = runner.inputs.slot_mapping.tolist()
    own = set(slots[:n])
    changed = [slot for slot in changed_slots(before, service.image()) if slot not in own | set(SCRATCH_SLOTS)]
    return fields | {
        "padding rows write": [f"slot {slot} → {service.owner(slot)}" for slot in slots[n:]],
        "overwritten": [f"slot {slot} → {service.owner(slot)}" for slot in changed],
    }


def _places(rows: DecodeBatch) -> dict[str, str]:
    """The place that each field needs."""
    return {name: _place(tensor) for name, tensor in rows.named().items()}


def _place(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


STOPPED = {  # how the device's words begin → what they mean here
    "slot": Text(
        "A slot lies outside the cache: slots run from 0 to the end of the scratch block, which is already the last "
        "block; only −1 means no write.",
        "有一个 slot 在缓存之外：slot 从 0 到 scratch block 的末尾为止，scratch block 已经是最后一个 block；"
        "只有 −1 表示不写。",
    ),
    "block": Text(
        "A block table names a block that does not exist: its entries are numbers of blocks, from 0 to that of the "
        "scratch block.",
        "block table 里有一个不存在的 block：里面填的是 block 的编号，从 0 到 scratch block 为止。",
    ),
    "token": Text(
        "A padding row's token is outside the vocabulary: the row runs through the embedding as well.",
        "补齐行的 token 不在词表里：补齐行一样要查嵌入表。",
    ),
    "position": Text(
        "A padding row's position is out of range: its key is rotated as well.",
        "补齐行的位置越界了：它的 key 一样要做旋转。",
    ),
    "context length": Text(
        "A padding row's context length is longer than its block table has slots, or negative.",
        "补齐行的上下文长度超出了它的 block table 所能容纳的 slot 数，或者是负数。",
    ),
}  # fmt: skip


def _refuse_what_stopped(value: dict) -> None:
    words = value.get("DeviceError")
    if words is not None:
        other = Text("The device reports an error in this step.", "设备在这一步里报告了错误。")
        said = next((text for start, text in STOPPED.items() if words.startswith(start)), other)
        raise Refused(said.en, said.zh)


def view_careless(inputs: tuple, value: dict) -> dict:
    """What every field holds, and who is hit."""
    _refuse_what_stopped(value)
    return {name: seen for name, seen in value.items() if name != "padding rows write"}


def view_harmless(inputs: tuple, value: dict) -> dict:
    """Scratch block or no slot at all: both are right. What the fields hold does not matter, if it fits."""
    _refuse_what_stopped(value)
    rows = ["harmless" if row.endswith(HARMLESS) else row for row in value["padding rows write"]]
    places = {name: _place(seen) for name, seen in value.items() if isinstance(seen, Tensor)}
    return {"padding rows write": rows, "overwritten": value["overwritten"], **places}


def policy_inputs(inputs: tuple) -> tuple[PagedKVCache, DecodeBatch]:
    """What a policy gets: the cache, and what the padding rows hold."""
    lengths, first, size = inputs
    service = Service(tuple(lengths), first)
    service.next_batch()
    held = DecodeBatch(*(tensor[len(lengths) : size].clone() for tensor in service.inputs.tensors()))
    return service.model.cache, held


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


def make_steps(rng: np.random.Generator) -> list[tuple]:
    """Every kind of step once. Each request is still in its first block, so that slot 0 lies in a running one's."""
    cases = []
    for kind, step in STEPS.items():
        lengths = step.lengths or tuple(map(int, rng.integers(1, BLOCK_SIZE, int(rng.integers(2, 5)))))
        cases.append((kind, lengths, len(lengths) if step.full else len(lengths) + int(rng.integers(1, 3))))
    return cases


def snapshots(inputs: tuple) -> Images:
    """What the assertion gets: copies, for it may write into them."""
    kind, lengths, size = inputs
    before, after, slot_mapping, own_slots = images_of(kind, tuple(lengths), size)
    return before.clone(), after.clone(), slot_mapping.clone(), list(own_slots)


def drive_assertion(answer: Callable, kind: str, lengths: tuple[int, ...], size: int) -> str:
    """Whether the assertion raises. What it returns does not count."""
    images = snapshots((kind, lengths, size))
    try:
        answer(*images)
    except AssertionError:
        return "AssertionError"
    return "silent"


def tried_step(inputs: tuple) -> Text:
    """Say what kind of step it was, and what is right there."""
    kind, lengths, size = inputs
    step = STEPS[kind]
    must, must_zh = ("a right step", "正确的一步") if step.right else ("must be caught", "必须报警")
    return Text(
        f"{len(lengths)} requests, {size} rows: {step.text.en} ({must})",
        f"{len(lengths)} 个请求，{size} 行：{step.text.zh}（{must_zh}）",
    )


def warm_up() -> None:
    """Compile the kernels."""
    images_of("scratch", (1, 1), 3)


PARTS = {
    "3a": Part(
        careless_rows, make_batches, drive_padding, view_careless, forbidden=LIBRARY, warm_up=warm_up,
        tried=tried_padding, shown_inputs=policy_inputs,
    ),
    "3b": Part(sizes_where_it_shows, make_layouts),
    "3c": Part(
        assert_padding_is_harmless, make_steps, drive_assertion, warm_up=warm_up, tried=tried_step,
        shown_inputs=snapshots,
    ),
    "3d": Part(
        harmless_rows, make_batches, drive_padding, view_harmless, forbidden=LIBRARY, warm_up=warm_up,
        tried=tried_padding, shown_inputs=policy_inputs,
    ),
}  # fmt: skip
