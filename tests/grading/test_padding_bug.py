"""Exercise 3: its steps are what they claim, it agrees with the library's audit, and other right answers pass."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from s13lib.grading import guard, inputs
from s13lib.grading.judge import judge
from s13lib.grading.manifest import part
from s13lib.grading.padding_steps import STEPS, images_of
from s13lib.grading.parts import padding_bug as checks
from s13lib.grading.service import BLOCK_SIZE, BLOCKS, SCRATCH_SLOTS, Service, changed_slots
from s13lib.graphs import CacheAudit, CacheCorruption
from s13lib.graphs.padding import PADDINGS
from s13lib.model import DecodeBatch

SILENT = {"scratch", "skip", "full", "NaN", "replay", "scratch slots", "slot 0 is mine"}


def passes(key, answer, seeds=(1, 2)):
    verdicts = [judge(key, lambda inputs: guard.observe(part(key), answer, inputs), seed) for seed in seeds]
    return [(verdict.passed, verdict.tried.en, verdict.came.en) for verdict in verdicts if not verdict.passed] == []


@pytest.fixture(params=STEPS)
def kind(request):
    return request.param


def images(kind):
    lengths = STEPS[kind].lengths or (2, 3)
    return images_of(kind, lengths, len(lengths) if STEPS[kind].full else len(lengths) + 2)


def test_the_assertion_fires_on_the_broken_steps_alone(kind):
    assert STEPS[kind].right is (kind in SILENT)
    if kind in SILENT:
        checks.assert_padding_is_harmless(*images(kind))
    else:
        with pytest.raises(AssertionError):
            checks.assert_padding_is_harmless(*images(kind))


def strays(kind):
    before, after, _, own = images(kind)
    return set(changed_slots(before, after)) - set(own) - set(SCRATCH_SLOTS)


def test_a_padding_row_that_strikes_twice_shows_no_byte():
    """Why a comparison of before and after is not enough."""
    assert strays("naive") == {0}
    assert strays("naive again") == set()


def test_d2_a_kernel_that_takes_minus_one_for_an_index_is_right_on_paper():
    """vllm#43810: the slot mapping is innocent."""
    _, _, slot_mapping, own = images("last slot")
    assert slot_mapping.tolist() == [*own, -1, -1]
    assert strays("last slot") == {BLOCKS * BLOCK_SIZE - 1}


def test_the_small_strays_are_small():
    for kind, sign_alone in (("one bit", False), ("minus zero", True)):
        before, after, *_ = images(kind)
        differ = before.view(torch.int32) != after.view(torch.int32)
        stray = differ[:, :, :BLOCKS].flatten(2, 3)
        stray[:, :, images(kind)[3]] = False
        assert stray.sum() == 1
        old, new = before[differ], after[differ]
        assert bool(((old == 0) & (new == 0)).any()) is sign_alone


def test_d1_zeros_hit_at_three_of_four_and_not_at_four():
    """rvllm#32."""
    three = checks.drive_padding(checks.careless_rows, (5, 2, 3), 0, 4)
    four = checks.drive_padding(checks.careless_rows, (5, 2, 3, 1), 0, 4)
    assert three["overwritten"] == ["slot 0 → request 0"]
    assert four["overwritten"] == four["padding rows write"] == []


def test_d3_stale_rows_hit_a_request_outside_the_batch():
    """Diffulex#44, vllm#41841."""
    seen = checks.drive_padding(lambda cache, held: held, (5, 2, 3), 0, 4)
    assert seen["overwritten"] == ["slot 28 → waiting request"]


@pytest.mark.parametrize("policy", PADDINGS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
def test_the_assertion_agrees_with_the_librarys_audit(policy, n):
    """On a real step of each policy, at each batch size."""
    service = Service((2,) * n)
    size = next(size for size in (1, 2, 4, 8) if size >= n)
    runner = service.runner(size, PADDINGS[policy])
    batch = service.next_batch()
    runner.fill(batch)
    before = service.image()
    runner.replay()
    after, slot_mapping, own = service.image(), runner.inputs.slot_mapping, batch.slot_mapping.tolist()
    try:
        CacheAudit(service.model.cache, policy).check(runner.inputs, n, batch.leases)
        checks.assert_padding_is_harmless(before, after, slot_mapping, own)
    except CacheCorruption:
        with pytest.raises(AssertionError):
            checks.assert_padding_is_harmless(before, after, slot_mapping, own)
        assert size != n
        assert policy in ("stale", "naive")


def test_where_it_shows_is_where_real_steps_are_hit():
    """3b knows only slots and owners; here is what happens at each n."""
    owners = ["someone"] + [None] * (BLOCKS - 1)
    computed = checks.sizes_where_it_shows([1, 2, 4, 8], [0] * 8, owners, BLOCK_SIZE, 8)
    hit = [
        n
        for n, size in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (6, 8), (7, 8), (8, 8))
        if checks.drive_padding(checks.careless_rows, (2,) * n, 0, size)["overwritten"]
    ]
    assert computed == hit == [3, 5, 6, 7]


# ---- what the device says, and what a learner may look at


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("input_ids", 999, "A padding row's token"),
        ("positions", 999, "A padding row's position"),
        ("context_lens", 999, "A padding row's context length"),
        ("block_tables", 999, "A block table names"),
        ("slot_mapping", 999, "A slot lies outside"),
    ],
)
@pytest.mark.parametrize("key", ["3a", "3d"])
def test_an_error_of_the_device_is_explained_by_its_own_words(key, field, value, why):
    def answer(cache, held):
        rows = scratch_slots_in_turn(cache, held)
        rows.named()[field].fill_(value)
        return rows

    verdict = judge(key, lambda inputs: guard.observe(part(key), answer, inputs), 1)
    assert verdict.why.en.startswith(why)
    assert verdict.came.en.startswith("DeviceError")


def test_a_learner_sees_what_the_answer_gets():
    cache, held = inputs("3a", 1, 1)
    assert held.rows == 1
    assert held.input_ids.tolist() == [5]
    assert cache.scratch_block == BLOCKS
    assert cache.owners[0].name == "request 0"
    before, after, slot_mapping, own_slots = inputs("3c", 1, 4)
    assert before.shape == after.shape
    assert slot_mapping.tolist()[: len(own_slots)] == own_slots
    with pytest.raises(AssertionError):
        checks.assert_padding_is_harmless(before, after, slot_mapping, own_slots)


# ---- other right answers


def in_place(cache, held):
    for tensor in held.tensors():
        tensor.zero_()
    held.context_lens.fill_(1)
    return held


def skips(cache, held):
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.slot_mapping.fill_(-1)
    return rows


def scratch_slots_in_turn(cache, held):
    rows = in_place(cache, held)
    first = cache.scratch_block * cache.block_size
    rows.slot_mapping.copy_(first + torch.arange(held.rows) % cache.block_size)
    return rows


def by_bytes(before, after, slot_mapping, own_slots):
    """Slot by slot, in NumPy, raising by hand."""
    blocks, size = before.shape[2:4]
    first_scratch = (blocks - 1) * size
    for row, slot in enumerate(slot_mapping.numpy()):
        if row < len(own_slots):
            if slot != own_slots[row]:
                raise AssertionError("not its own")
        elif slot != -1 and not first_scratch <= slot < first_scratch + size:
            raise AssertionError("a padding row")
    old, new = (np.ascontiguousarray(np.moveaxis(x.flatten(2, 3).numpy(), 2, 0)) for x in (before, after))
    for slot in range(first_scratch):
        if slot not in own_slots and old[slot].tobytes() != new[slot].tobytes():
            raise AssertionError("bytes")
    return True


@pytest.mark.parametrize(
    ("key", "answer"),
    [("3a", in_place), ("3c", by_bytes), ("3d", skips), ("3d", scratch_slots_in_turn)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_another_right_answer_passes(key, answer):
    assert passes(key, answer)
