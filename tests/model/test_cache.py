"""Blocks and sequences of the paged cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.model import BlockAllocator, DecodeBatch, PagedKVCache, Sequence
from tests.model.decoders import small_config


@pytest.fixture
def cache(device):
    return PagedKVCache(small_config(), device, blocks=6, block_size=4)


def test_the_block_freed_last_is_handed_out_first():
    allocator = BlockAllocator(4)
    assert [allocator.allocate() for _ in range(3)] == [0, 1, 2]
    allocator.free(0)
    allocator.free(2)
    assert [allocator.allocate() for _ in range(3)] == [2, 0, 3]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (3, "block 3 cannot be freed: it is free already."),
        (9, "block 9 cannot be freed: the cache has blocks 0 to 3."),
        (-1, "block -1 cannot be freed: the cache has blocks 0 to 3."),
    ],
)
def test_double_free_and_foreign_blocks_are_refused(block, message):
    allocator = BlockAllocator(4)
    allocator.allocate()
    with pytest.raises(InputError) as error:
        allocator.free(block)
    assert str(error.value) == message
    assert allocator.free_blocks == 3


def test_exhaustion_is_a_clear_error_that_takes_nothing(cache):
    one, two = Sequence(), Sequence()
    cache.extend(one, 20)
    with pytest.raises(InputError, match="the KV cache is full: 2 more blocks are needed, 1 of 6 are free"):
        cache.extend(two, 5)
    assert (two.blocks, two.length) == ([], 0)
    cache.extend(two, 4)
    with pytest.raises(InputError, match="the KV cache is full: all 6 blocks are taken"):
        cache.allocator.allocate()


def test_slots_follow_the_block_table(cache):
    sequence = Sequence(blocks=[5, 2], length=7)
    assert [cache.slot(sequence, p) for p in range(7)] == [20, 21, 22, 23, 8, 9, 10]
    with pytest.raises(InputError, match="position is 7: must be 0 to 6 in this sequence"):
        cache.slot(sequence, 7)


def test_a_batch_says_each_row(cache):
    sequence = Sequence(blocks=[5, 2], length=7)
    batch = DecodeBatch.of(cache, [(11, sequence, 6), (12, sequence, 3)])
    assert batch.input_ids.tolist() == [11, 12]
    assert batch.positions.tolist() == [6, 3]
    assert batch.slot_mapping.tolist() == [10, 23]
    assert batch.context_lens.tolist() == [7, 4]
    assert batch.block_tables[:, :2].tolist() == [[5, 2], [5, 2]]
    assert batch.block_tables.shape == (2, 80)


def test_the_scratch_block_is_nobodys(cache):
    assert cache.scratch_block == 6
    assert cache.k[0].shape[0] == 7
    sequences = [Sequence() for _ in range(6)]
    for sequence in sequences:
        cache.extend(sequence, 4)
    assert cache.scratch_block not in {b for s in sequences for b in s.blocks}


def test_copying_a_batch_of_another_size_is_refused(device, cache):
    buffers = DecodeBatch.static(device, 2, cache.max_blocks)
    with pytest.raises(InputError, match="rows is 1: must be 2, as many as the buffers have"):
        buffers.copy_from(DecodeBatch.of(cache, [(1, Sequence(blocks=[0], length=1), 0)]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=40))
def test_no_block_ever_has_two_owners(cache_steps):
    class Bare(PagedKVCache):  # the bookkeeping alone, without tensors
        def __init__(self):
            self.allocator, self.block_size, self.max_context = BlockAllocator(6), 4, 320
            self.owners = {}

    cache, sequences = Bare(), [Sequence() for _ in range(4)]
    for which, tokens in cache_steps:
        try:
            cache.extend(sequences[which], tokens)
        except InputError:
            cache.release(sequences[which])
        owned = [b for s in sequences for b in s.blocks]
        assert len(owned) == len(set(owned))
        assert cache.owners == {b: s for s in sequences for b in s.blocks}
        assert len(owned) + cache.allocator.free_blocks == 6
        assert all(cache.blocks_for(s.length) == len(s.blocks) for s in sequences)
