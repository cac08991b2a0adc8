"""GraphRunner and BucketedRunner: replay equals eager bit for bit, and misuse is refused or counted."""

import gc
import random

import pytest
import torch

from s13lib.buckets import preset, read_traffic
from s13lib.errors import InputError
from s13lib.graphs import BucketedRunner, GraphRunner
from s13lib.model import DecodeBatch, DecoderWeights, Sequence, generate
from tests.model.decoders import STAGES, decoder_model, small_config, textbook

TWO_LAYERS = small_config(layers=2, hidden=16, ffn=24, heads=2, kv_heads=1, head_dim=8, vocab=13, max_context=64)


def random_batch(model, rows, rng, longest=None):
    """Random tokens, positions and block tables over distinct blocks: what decode of ``rows`` requests feeds."""
    cache = model.cache
    size, per_row = cache.block_size, cache.allocator.blocks // rows
    longest = min(longest or model.config.max_context, per_row * size)
    blocks = rng.sample(range(cache.allocator.blocks), rows * per_row)
    entries = []
    for row in range(rows):
        length = rng.randint(1, longest)
        sequence = Sequence(blocks=blocks[row * per_row : row * per_row + cache.blocks_for(length)], length=length)
        entries.append((rng.randrange(model.config.vocab), sequence, length - 1))
    return DecodeBatch.of(cache, entries)


def fill_cache(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.cache.k + model.cache.v:
        tensor.copy_(torch.randn(tensor.shape, generator=generator))


@pytest.mark.parametrize("stage", STAGES)
def test_replay_is_eager_bit_for_bit_at_every_batch_size_to_256(device, stage):
    model = decoder_model(TWO_LAYERS, stage, device, blocks=512, block_size=8)
    fill_cache(model)
    runner = BucketedRunner(model, preset("seed"), progress=False)
    rng = random.Random(stage)
    for n in range(1, 257):
        batch = random_batch(model, n, rng)
        replayed = runner.forward(batch)
        size = runner.layout.pick(n)
        runner.runners[size].launch_eager()
        assert torch.equal(runner.runners[size].logits[:n], replayed), n
        assert torch.equal(model.forward(batch), replayed), n  # nor does padding change a real row


def test_a_run_takes_the_changed_values_not_the_captured_ones(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    fill_cache(model)
    runner, rng = GraphRunner(model, 4), random.Random(0)
    outputs = []
    for rows in (4, 2, 3, 4, 1):
        batch = random_batch(model, rows, rng)
        outputs.append(runner.run(batch))
        assert torch.equal(outputs[-1], model.forward(batch))
    assert len({tuple(out[0].tolist()) for out in outputs}) == 5


def test_a_thousand_replays_change_no_address_and_no_memory_total(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    runner, rng = BucketedRunner(model, [1, 2, 4], progress=False), random.Random(1)
    batches = [random_batch(model, n, rng) for n in (1, 2, 3, 4)]
    for batch in batches:
        runner.forward(batch)
    gc.collect()

    def state():
        return device.allocated_bytes, runner.pool_bytes, [t.data_ptr() for t in runner.inputs.tensors()]

    before = state()
    for i in range(1000):
        runner.forward(batches[i % 4])
    gc.collect()
    assert state() == before
    for each in runner.runners.values():
        each.check()


def test_graphs_share_one_pool_that_holds_the_largest_ones_needs(device):
    model = decoder_model(TWO_LAYERS, 15, device, blocks=64, block_size=8)
    shared = BucketedRunner(model, [1, 2, 4, 8], progress=False)
    assert shared.pool_bytes == GraphRunner(model, 8).graph.pool_bytes
    assert len({id(r.graph.pool) for r in shared.runners.values()}) == 1
    assert shared.inputs.rows == 8
    for size, runner in shared.runners.items():
        assert runner.inputs.input_ids.data_ptr() == shared.inputs.input_ids.data_ptr()
        assert runner.graph.nodes[-1].writes[0].nbytes == size * TWO_LAYERS.vocab * 4


def test_above_the_largest_bucket_a_step_is_eager_whole_and_counted(device):
    model = decoder_model(TWO_LAYERS, 5, device, blocks=64, block_size=8)
    fill_cache(model)
    runner = BucketedRunner(model, [1, 4], progress=False)
    batch = random_batch(model, 7, random.Random(2))
    out = runner.forward(batch)
    assert out.shape == (7, TWO_LAYERS.vocab)
    assert torch.equal(out, model.forward(batch))
    assert runner.dispatches == {(7, 7, "NONE"): 1}


def test_enforce_eager_pads_alike_and_is_bit_equal(device):
    model = decoder_model(TWO_LAYERS, 7, device, blocks=64, block_size=8)
    fill_cache(model)
    graph = BucketedRunner(model, [4], progress=False)
    eager = BucketedRunner(model, [4], enforce_eager=True, progress=False)
    batch = random_batch(model, 3, random.Random(3))
    assert torch.equal(graph.forward(batch), eager.forward(batch))
    assert graph.dispatches == {(3, 4, "FULL"): 1}
    assert eager.dispatches == {(3, 4, "NONE"): 1}


def test_a_sequence_longer_than_the_captured_block_table_is_never_cut(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    fill_cache(model)
    runner = BucketedRunner(model, [2], max_blocks=2, progress=False)
    sequence = Sequence(blocks=[3, 9, 4], length=20)
    long = DecodeBatch.of(model.cache, [(1, sequence, 19)])
    assert torch.equal(runner.forward(long), model.forward(long))
    assert runner.dispatches == {(1, 1, "NONE"): 1}
    with pytest.raises(InputError, match="context length 20 is too long for the captured block table: it holds 16 tok"):
        runner.runners[2].run(long)
    short = DecodeBatch.of(model.cache, [(1, sequence, 15)])
    assert torch.equal(runner.forward(short), model.forward(short))
    assert runner.dispatches[(1, 2, "FULL")] == 1


def test_with_the_cache_full_a_padded_step_still_replays(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=3, block_size=8)
    sequences = [Sequence() for _ in range(3)]
    for sequence in sequences:
        model.prefill(sequence, [1, 2, 3])
    assert model.cache.allocator.free_blocks == 0
    runner = BucketedRunner(model, [1, 4], progress=False)
    batch = model.next_batch(sequences, [4, 5, 6])
    assert torch.equal(runner.forward(batch), model.forward(batch))
    assert runner.dispatches == {(3, 4, "FULL"): 1}


def test_statistics_are_read_back_as_traffic(device, tmp_path):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    runner, rng = BucketedRunner(model, [1, 4], progress=False), random.Random(4)
    for n in (1, 1, 1, 3, 3, 4, 6):
        runner.forward(random_batch(model, n, rng))
    table = runner.statistics()
    assert table.splitlines()[0].split("|")[1:6] == [
        " Unpadded Tokens ", " Padded Tokens ", " Num Paddings ", " Runtime Mode ", " Count "
    ]  # fmt: skip
    log = tmp_path / "runner.log"
    log.write_text(table)
    assert read_traffic(log).counts.tolist() == [0, 3, 0, 2, 1]
    assert read_traffic(log, modes=("FULL", "NONE")).counts.tolist() == [0, 3, 0, 2, 1, 0, 1]


def test_generation_through_a_runner_is_generation_eager(device):
    model = decoder_model(small_config(), 4, device)
    prompts = [[1, 2, 3], [4], [5, 6, 7], [8, 9], [2] * 20]
    runner = BucketedRunner(model, [1, 2, 4, 8], progress=False)
    assert generate(model, prompts, 10, step=runner.forward) == generate(model, prompts, 10)
    assert sum(runner.dispatches.values()) == 9


def test_replaced_weights_are_refused_and_copied_ones_are_seen(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    fill_cache(model)
    runner = GraphRunner(model, 2)
    batch = random_batch(model, 2, random.Random(5))
    before = runner.run(batch)
    model.weights.layers[0].o.mul_(2)
    after = runner.run(batch)
    assert not torch.equal(before, after)
    assert torch.equal(after, model.forward(batch))
    model.weights = DecoderWeights.from_state_dict(TWO_LAYERS, textbook(TWO_LAYERS).state_dict(), device, False)
    with pytest.raises(InputError, match="the model's weights were replaced after the capture"):
        runner.run(batch)
    with pytest.raises(InputError, match=r"embedding was re-allocated after the capture"):
        runner.check()


def test_a_reallocated_static_input_is_named(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    runner = GraphRunner(model, 2)
    old = runner.inputs
    runner.inputs = DecodeBatch(old.input_ids, old.positions.clone(), *old.tensors()[2:])
    with pytest.raises(
        InputError, match=r"static input positions was re-allocated: the graph reads its old address 0x"
    ):
        runner.run(random_batch(model, 2, random.Random(6)))
    runner.inputs = old
    runner.run(random_batch(model, 2, random.Random(6)))
    model.cache.k[1] = model.cache.k[1].clone()
    with pytest.raises(InputError, match=r"k_cache.1 was re-allocated after the capture"):
        runner.check()


def test_a_runner_says_what_runs_eager(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8)
    text = repr(BucketedRunner(model, [2, 1], progress=False))
    assert "decode: sizes 1, 2, replayed, padding scratch" in text
    assert "prefill and batches above 2: eager" in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: BucketedRunner(m, []), "at least one"),
        (lambda m: BucketedRunner(m, [0, 1]), "0"),
        (lambda m: BucketedRunner(m, [1, 300]), "bucket 300 is above the model's largest batch, 256 rows"),
        (lambda m: BucketedRunner(m, [1], padding="scrach"), "padding: unknown name 'scrach'; did you mean scratch?"),
        (lambda m: BucketedRunner(m, [1], max_blocks=99), "max_blocks is 99: must be 1 to 8"),
        (lambda m: GraphRunner(m, 0), "batch_size is 0: must be 1 to 256"),
        (lambda m: GraphRunner(m, 2).run(random_batch(m, 3, random.Random(0))), "rows is 3: must be 1 to 2"),
        (lambda m: BucketedRunner(m, [1], progress=False).forward(DecodeBatch.of(m.cache, [])), "rows is 0: must be"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(device, call, message):
    with pytest.raises(InputError) as error:
        call(decoder_model(TWO_LAYERS, 4, device, blocks=64, block_size=8))
    assert message in str(error.value)
