"""The paged KV cache: blocks of memory, who owns them, and one scratch block that nobody owns.

The layout is PagedAttention's (Kwon et al. 2023, arXiv:2309.06180): a sequence's keys and values lie in blocks of
``block_size`` tokens anywhere in the cache; its block table lists them; slot = block · block_size + offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from s13lib.device import SoftGPU
from s13lib.errors import InputError, require
from s13lib.kernels.textbook import DecoderConfig


class BlockAllocator:
    """Hands out blocks 0 … ``blocks`` − 1. The block that was freed last is handed out first."""

    def __init__(self, blocks: int) -> None:
        require(isinstance(blocks, int) and blocks >= 1, "blocks", blocks, "a whole number of at least 1")
        self.blocks = blocks
        self._free = list(range(blocks - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def free_blocks(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    def allocate(self) -> int:
        """Take a block; an ``InputError`` when all are taken."""
        if not self._free:
            raise InputError(f"the KV cache is full: all {self.blocks} blocks are taken.")
        block = self._free.pop()
        self._taken.add(block)
        return block

    def free(self, block: int) -> None:
        """Give a block back; an ``InputError`` for one that is free already or not the allocator's."""
        if block not in self._taken:
            inside = 0 <= block < self.blocks
            why = "it is free already" if inside else f"the cache has blocks 0 to {self.blocks - 1}"
            raise InputError(f"block {block} cannot be freed: {why}.")
        self._taken.remove(block)
        self._free.append(block)


@dataclass(eq=False)
class Sequence:
    """One request's place in the cache: its blocks in order, and how many of its tokens they hold.

    ``lease`` stands for one stay in the cache: a sequence that gave its blocks back and comes again has another, so
    that nobody takes its old slots for its own.
    """

    name: str = ""
    blocks: list[int] = field(default_factory=list)
    length: int = 0
    lease: object = field(default_factory=object, repr=False)


class PagedKVCache:
    """Keys and values of all layers: one pair of tensors (blocks + 1, block_size, kv_heads, head_dim) a layer.

    The last block is the scratch block: outside the allocator, never a sequence's, free for padding rows to write to.

    Args:
        config: the model's shape.
        device: where the tensors live.
        blocks: blocks that sequences may own.
        block_size: tokens a block.
    """

    def __init__(self, config: DecoderConfig, device: SoftGPU, blocks: int, block_size: int = 16) -> None:
        require(isinstance(block_size, int) and block_size >= 1, "block_size", block_size, "at least 1")
        self.allocator = BlockAllocator(blocks)
        self.block_size = block_size
        self.scratch_block = blocks
        self.max_context = config.max_context
        self.owners: dict[int, Sequence] = {}  # block → the sequence that has it
        shape = (blocks + 1, block_size, config.kv_heads, config.head_dim)
        with device.side_by_side():
            self.k = [device.zeros(shape, name=f"k_cache.{layer}") for layer in range(config.layers)]
            self.v = [device.zeros(shape, name=f"v_cache.{layer}") for layer in range(config.layers)]

    @property
    def max_blocks(self) -> int:
        """Width of a block table: blocks of the longest sequence that the model takes."""
        return self.blocks_for(self.max_context)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks ``tokens`` tokens need."""
        return -(-tokens // self.block_size)

    def extend(self, sequence: Sequence, tokens: int) -> None:
        """Make room for ``tokens`` more tokens and count them as held. Nothing changes if the room is not there."""
        self._check_owner(sequence)
        length = sequence.length + tokens
        if length > self.max_context:
            raise InputError(f"a sequence of {length} tokens is too long: the model takes {self.max_context}.")
        missing = self.blocks_for(length) - len(sequence.blocks)
        if missing > self.allocator.free_blocks:
            raise InputError(
                f"the KV cache is full: {missing} more blocks are needed, {self.allocator.free_blocks} of "
                f"{self.allocator.blocks} are free."
            )
        for _ in range(missing):
            block = self.allocator.allocate()
            self.owners[block] = sequence
            sequence.blocks.append(block)
        sequence.length = length

    def release(self, sequence: Sequence) -> None:
        """Give all blocks of ``sequence`` back; its first block will be handed out next."""
        self._check_owner(sequence)
        for block in reversed(sequence.blocks):
            self.allocator.free(block)
            del self.owners[block]
        sequence.blocks, sequence.length, sequence.lease = [], 0, object()

    def shrink(self, sequence: Sequence, tokens: int) -> None:
        """Take the last ``tokens`` tokens back, and the blocks that only they needed: undoes ``extend``."""
        sequence.length -= tokens
        while len(sequence.blocks) > self.blocks_for(sequence.length):
            block = sequence.blocks.pop()
            self.allocator.free(block)
            del self.owners[block]

    def _check_owner(self, sequence: Sequence) -> None:
        if any(self.owners.get(block) is not sequence for block in sequence.blocks):
            raise InputError(
                f"sequence {sequence.name!r} has blocks that this cache did not give it: use its own cache."
            )

    def slot(self, sequence: Sequence, position: int) -> int:
        """The slot that holds token ``position`` of ``sequence``."""
        require(0 <= position < sequence.length, "position", position, f"0 to {sequence.length - 1} in this sequence")
        return sequence.blocks[position // self.block_size] * self.block_size + position % self.block_size
