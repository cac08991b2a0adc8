"""The four padding policies under the audit: no false alarm, no missed one, and the scenario that shows both bugs."""

import random

import pytest
import torch

from s13lib.buckets import BucketLayout, preset
from s13lib.graphs import PADDINGS, BucketedRunner, CacheAudit, CacheCorruption
from s13lib.graphs.scenario import by_batch_size, decode_alone, fresh_twin, run_scenario
from s13lib.model import DecodeBatch, Sequence
from tests.graphs.test_runner import TWO_LAYERS
from tests.model.decoders import decoder_model


@pytest.fixture
def crowd(device):
    """256 running requests of one block each, and NaN wherever nothing was written."""
    model = decoder_model(TWO_LAYERS, 4, device, blocks=300, block_size=8)
    for tensor in model.cache.k + model.cache.v:
        tensor[: model.cache.scratch_block] = float("nan")
    rng, sequences = random.Random(0), [Sequence(f"request {i}") for i in range(256)]
    for sequence in sequences:
        model.prefill(sequence, [rng.randrange(TWO_LAYERS.vocab) for _ in range(rng.randint(1, 7))])
    return model, model.next_batch(sequences, [rng.randrange(TWO_LAYERS.vocab) for _ in sequences])


def images(model):
    return [tensor.clone() for tensor in model.cache.k + model.cache.v]


def changed_slots(model, before):
    """Slots whose bytes differ from an earlier image, the scratch block left out."""
    slots = set()
    for tensor, old in zip(model.cache.k + model.cache.v, before, strict=True):
        rows = slice(0, model.cache.scratch_block)
        same = (tensor[rows] == old[rows]) | (tensor[rows].isnan() & old[rows].isnan())
        slots |= set((~same.flatten(2).all(2)).flatten().nonzero().flatten().tolist())
    return slots


@pytest.mark.parametrize("padding", ["scratch", "skip"])
def test_right_policies_never_alarm_and_change_exactly_the_real_rows_slots(crowd, padding):
    model, batch = crowd
    audit = CacheAudit(model.cache, padding)
    runner = BucketedRunner(model, preset("seed"), padding, audit=audit, progress=False)
    exact = model.forward(batch)
    for n in range(1, 257):
        runner.runners[runner.layout.pick(n)].logits.fill_(float("nan"))
        before = images(model)
        batch.input_ids[:n] = (batch.input_ids[:n] + 1) % TWO_LAYERS.vocab
        out = runner.forward(batch.first(n))
        assert torch.isfinite(out).all()
        assert changed_slots(model, before) <= set(batch.slot_mapping[:n].tolist())
        if n in (1, 3, 50, 255, 256):
            assert torch.equal(out, model.forward(batch.first(n)))
    assert audit.violations == []
    assert audit.strays == 0
    for tensor in model.cache.k + model.cache.v:
        assert torch.isfinite(tensor[model.cache.scratch_block]).all()
    assert exact.shape == (256, TWO_LAYERS.vocab)


def test_naive_alarms_at_every_n_that_is_no_bucket_and_at_no_other(crowd):
    model, batch = crowd
    audit = CacheAudit(model.cache, "naive", strict=False)
    runner = BucketedRunner(model, preset("seed"), "naive", audit=audit, progress=False)
    alarmed = set()
    for n in range(1, 257):
        seen = len(audit.violations)
        runner.forward(batch.first(n))
        if len(audit.violations) > seen:
            alarmed.add(n)
            assert audit.violations[-1].owner == "request 0"
            assert audit.violations[-1].slot == 0
    assert alarmed == set(range(1, 257)) - set(preset("seed"))
    states = {state.block: state for state in audit.block_map()}
    assert (states[0].state, states[0].owner, states[0].corrupted_slots) == ("corrupted", "request 0", (0,))
    assert states[0].last_writer == "request 0"  # at 256, a bucket, its own row wrote last
    assert states[1].state == "owned"
    assert states[299].state == "free"
    assert states[300].state == "scratch"


def test_an_alarm_names_block_slot_owner_row_and_policy_before_anything_is_written(crowd):
    model, batch = crowd
    runner = BucketedRunner(model, [4], "naive", audit=CacheAudit(model.cache, "naive"), progress=False)
    before = images(model)
    with pytest.raises(CacheCorruption) as alarm:
        runner.forward(batch.first(3))
    assert str(alarm.value) == ("padding row 3 (naive) writes to slot 0 of block 0, which belongs to request 0.")
    assert changed_slots(model, before) == set()


@pytest.mark.parametrize("seed", range(4))
def test_stale_alarms_exactly_when_a_row_beyond_n_holds_a_slot_that_is_anothers(device, seed):
    """The oracle keeps the rows of the buffers itself: (slot, for whom), and asks the cache who owns the block now."""
    model = decoder_model(TWO_LAYERS, 4, device, blocks=24, block_size=8)
    audit = CacheAudit(model.cache, "stale", strict=False)
    runner = BucketedRunner(model, [1, 2, 4, 8, 16], "stale", audit=audit, progress=False)
    rng, running, held, alarms, largest = random.Random(seed), [], {}, 0, 0
    for step in range(120):
        for sequence in [s for s in running if s.length >= 40 or rng.random() < 0.12]:
            running.remove(sequence)
            model.cache.release(sequence)
        while len(running) < 12 and model.cache.allocator.free_blocks > 6 and rng.random() < 0.45:
            running.append(Sequence(f"request {step}"))
            model.prefill(running[-1], [rng.randrange(13) for _ in range(rng.randint(1, 9))])
        growable = [s for s in running if model.cache.allocator.free_blocks or s.length % 8]
        if not growable:
            continue
        batch = model.next_batch(growable, [rng.randrange(13) for _ in growable])
        n, size = batch.rows, runner.layout.pick(batch.rows)
        for row, sequence in enumerate(growable):
            held[row] = (int(batch.slot_mapping[row]), sequence)
        expected = {
            row
            for row in range(n, size)
            if row in held and model.cache.owners.get(held[row][0] // 8) not in (None, held[row][1])
        }
        seen = len(audit.violations)
        runner.forward(batch)
        assert {violation.row for violation in audit.violations[seen:]} == expected
        if expected:
            assert n < largest
            alarms += 1
        largest = max(largest, n)
    assert alarms > 0


@pytest.mark.parametrize("padding", list(PADDINGS))
def test_the_scenario_finds_what_each_policy_does(device, padding):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=40, block_size=8, max_rows=64)
    rng = random.Random(7)
    prompts = [[rng.randrange(13) for _ in range(rng.randint(2, 12))] for _ in range(30)]
    result = run_scenario(model, prompts, BucketLayout([1, 2, 4, 8, 16]), padding, seed=3, tokens=(4, 30))
    assert all(len(r.made) == r.tokens + 1 for r in result.requests)
    alarmed = [s for s in result.steps if s.violations]
    hurt = [s for s in result.steps if s.corrupted_slots or s.rows_differing]
    if padding in ("scratch", "skip"):
        assert alarmed == hurt == []
    else:
        assert alarmed
        assert hurt
        assert min(s.step for s in alarmed) <= min(s.step for s in hurt)  # nothing goes wrong without an alarm before
        assert all(s.padding_rows for s in alarmed)
        assert any(state.state == "corrupted" for state in result.block_map)
    table = by_batch_size(result)
    assert sum(row.steps for row in table) == len(result.steps)
    assert sum(row.alarms for row in table) == len(alarmed)
    assert model.cache.allocator.free_blocks == 40


def test_a_dummy_row_attends_to_nothing_that_is_not_finite(crowd):
    model, batch = crowd
    for padding in ("scratch", "skip"):
        runner = BucketedRunner(model, [8], padding, progress=False)
        runner.forward(batch.first(3))
        assert torch.isfinite(runner.runners[8].logits).all(), padding


def test_copying_every_row_leaves_no_stale_one(crowd):
    model, batch = crowd
    runner = BucketedRunner(model, [4], progress=False)
    runner.forward(batch.first(4))
    runner.forward(batch.first(2))
    scratch = model.cache.scratch_block * 8
    assert runner.inputs.slot_mapping.tolist() == [*batch.slot_mapping[:2].tolist(), scratch, scratch]
    assert isinstance(runner.inputs, DecodeBatch)


def test_details_of_a_step_and_what_each_request_says_alone(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=40, block_size=8, max_rows=64)
    rng = random.Random(7)
    prompts = [[rng.randrange(13) for _ in range(rng.randint(2, 12))] for _ in range(30)]
    sizes, tokens = BucketLayout([1, 2, 4, 8, 16]), (4, 30)
    alone = decode_alone(model, prompts, seed=3, tokens=tokens)
    assert model.cache.owners == {}  # it ran in a cache of its own
    runs = {p: run_scenario(fresh_twin(model), prompts, sizes, p, 3, tokens=tokens, details=True) for p in PADDINGS}
    assert [r.made for r in runs["scratch"].requests] == [r.made for r in runs["skip"].requests] == alone
    assert [r.made for r in runs["naive"].requests] != alone
    for policy, result in runs.items():
        made = {request.name: 1 for request in result.requests}  # the first token comes from the prefill
        for record in result.steps:
            rows = record.detail.rows
            assert len(rows) == record.n
            assert sum(row.corrupted_slots for row in rows) == record.corrupted_slots
            assert max(row.difference for row in rows) == record.largest_difference
            assert sum(row.difference > 0 for row in rows) == record.rows_differing
            for row in rows:
                assert row.made == made[row.request]
                made[row.request] += 1
            running = {block.owner for block in record.detail.block_map if block.owner}
            assert running == {row.request for row in rows}
            struck = {violation.slot for violation in record.violations}
            assert struck <= {slot for block in record.detail.block_map for slot in block.corrupted_slots}
        assert made == {request.name: len(request.made) for request in result.requests}, policy
    again = run_scenario(fresh_twin(model), prompts, sizes, "naive", 3, tokens=tokens)
    assert [r.made for r in again.requests] == [r.made for r in runs["naive"].requests]
    assert all(record.detail is None for record in again.steps)
