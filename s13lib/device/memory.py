"""Device memory: one storage per allocation, at an address that never changes, and pools that graphs share."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from s13lib.errors import require

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
PIECE = 32 << 20  # bytes of a piece that several blocks share
NUMPY_TYPES = {
    torch.from_numpy(np.zeros(1, kind)).dtype: kind
    for kind in (np.float32, np.float64, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_)
}


@dataclass(frozen=True)
class Allocation:
    """What stands at an address: its name, if the program gave one, and its size in bytes."""

    name: str | None
    nbytes: int


class Block:
    """A piece of raw memory. It is freed when the last tensor, pool and graph that refer to it are gone."""

    __slots__ = ("__weakref__", "address", "bytes")

    def __init__(self, nbytes: int, memory: Memory) -> None:
        capacity = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        raw = memory.raw(capacity + ALIGNMENT)
        first = -raw.ctypes.data % ALIGNMENT
        self.bytes = raw[first : first + capacity]
        self.address = raw.ctypes.data + first
        memory.blocks.add(self)

    def __len__(self) -> int:
        return len(self.bytes)


class Memory:
    """All allocations of one device.

    ``retire(block)`` is called when a block's tensor dies: launches that are still queued may use it.
    """

    def __init__(self, retire: Callable[[Block], None]) -> None:
        self.blocks: weakref.WeakSet[Block] = weakref.WeakSet()
        self._retire = retire
        self._piece: np.ndarray | None = None  # what is left of the large piece that ``side_by_side`` fills
        self._allocations: dict[int, Allocation] = {}

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all blocks that are alive."""
        return sum(map(len, self.blocks))

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Blocks made inside lie one after the other in large pieces of memory, each of which lives as long as its
        blocks: for what comes and goes together. The system backs a large array with large pages (NumPy asks for them
        from 4 MB on); small arrays get small pages, and the translation of their addresses is what then limits reading.
        """
        outer, self._piece = self._piece, np.empty(0, np.uint8)
        try:
            yield
        finally:
            self._piece = outer

    def raw(self, nbytes: int) -> np.ndarray:
        """Bytes of a block, uninitialised."""
        if self._piece is None or nbytes > PIECE:
            return np.empty(nbytes, np.uint8)
        if len(self._piece) < nbytes:
            self._piece = np.empty(PIECE, np.uint8)
        raw, self._piece = self._piece[:nbytes], self._piece[nbytes:]
        return raw

    def find(self, tensor: torch.Tensor) -> Allocation | None:
        """The allocation that a tensor is, or is a view of; ``None`` for memory that is not this device's."""
        return self._allocations.get(tensor.untyped_storage().data_ptr())

    def tensor(
        self,
        block: Block,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        name: str | None,
        when_freed: Callable[[Block], None] | None = None,
    ) -> torch.Tensor:
        """A contiguous tensor at the start of ``block``, with a storage of its own."""
        nbytes = element_count(shape) * dtype.itemsize
        allocation = Allocation(name, nbytes)
        self._allocations[block.address] = allocation
        kind = NUMPY_TYPES.get(dtype)
        raw = block.bytes[:nbytes]
        array = raw.view(kind).reshape(shape) if kind else raw
        # The array under torch.from_numpy lives exactly as long as the storage; a tensor does not: a view outlives it.
        weakref.finalize(array, self._freed, block.address, allocation, block, when_freed).atexit = False
        tensor = torch.from_numpy(array)
        return tensor if kind else tensor.view(dtype).view(shape)

    def _freed(self, address: int, allocation: Allocation, block: Block, when_freed: Callable | None) -> None:
        if self._allocations.get(address) is allocation:
            del self._allocations[address]
        self._retire(block)
        if when_freed is not None:
            when_freed(block)


class Pool:
    """Memory that graphs share: each capture starts again with all of it.

    So graphs that never run at the same time need only what the largest needs, if the largest is captured first: a
    later, larger request finds no block that fits. A tensor allocated inside a capture is therefore overwritten by the
    other graphs of its pool; outputs belong outside.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._blocks: list[weakref.ref[Block]] = []
        self._free: list[Block] = []
        self._capturing: list[Block] | None = None

    def __repr__(self) -> str:
        return f"Pool({self.pool_bytes:,} bytes in {len(self._live())} blocks)"

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pool's graphs hold now."""
        return sum(map(len, self._live()))

    def _live(self) -> list[Block]:
        return [block for reference in self._blocks if (block := reference()) is not None]

    def begin(self) -> None:
        """A capture begins: everything is free again."""
        self._free = self._live()
        self._blocks = list(map(weakref.ref, self._free))
        self._capturing = []

    def end(self) -> list[Block]:
        """A capture ends: the blocks that it used. Whoever holds them keeps them in the pool."""
        used, self._capturing, self._free = self._capturing, None, []
        return used

    def is_using(self, address: int) -> bool:
        """Whether the capture that is open has a block at this address."""
        return any(block.address == address for block in self._capturing)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str | None) -> torch.Tensor:
        """A tensor on the smallest free block that fits, else on a new one."""
        nbytes = element_count(shape) * dtype.itemsize
        fitting = [block for block in self._free if len(block) >= nbytes]
        block = min(fitting, key=len) if fitting else Block(nbytes, self._memory)
        if fitting:
            self._free.remove(block)
        else:
            self._blocks.append(weakref.ref(block))
        capture = self._capturing
        capture.append(block)

        def give_back(block: Block) -> None:
            if self._capturing is capture:  # its last tensor died in the capture that made it: launches run in order
                self._free.append(block)

        return self._memory.tensor(block, shape, dtype, name, give_back)


def element_count(shape: tuple[int, ...]) -> int:
    """How many elements a shape has."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def checked_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """A shape as a tuple; an ``InputError`` if a dimension is negative or not an integer."""
    given = (shape,) if isinstance(shape, int) else tuple(shape)
    ok = all(isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in given)
    require(ok, "shape", shape, "an integer or a tuple of integers, none negative")
    return given
