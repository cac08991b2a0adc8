"""CacheAudit: who owns which block of the KV cache, and who is about to write where.

A step's writes are known before it runs: the slot mapping of all its rows, padding rows included. Comparing the cache
with its own image from before the step is not enough, since a padding row that strikes once writes the same bytes again
at every later step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache, Sequence

State = Literal["owned", "free", "scratch", "corrupted"]
Row = tuple[int, int, int]  # token, position, slot


class CacheCorruption(AssertionError):
    """A row is about to write to a slot of somebody else."""


@dataclass(frozen=True)
class Violation:
    """A write to a slot that is not the row's own."""

    row: int
    slot: int
    block: int
    owner: str
    padding: bool
    policy: str

    def __str__(self) -> str:
        kind = f"padding row {self.row} ({self.policy})" if self.padding else f"row {self.row}"
        return f"{kind} writes to slot {self.slot} of block {self.block}, which belongs to {self.owner}"


@dataclass(frozen=True)
class BlockState:
    """One block, for a picture: whose it is, who wrote to it last, and whether a stranger did."""

    block: int
    state: State
    owner: str
    last_writer: str
    corrupted_slots: tuple[int, ...]


class CacheAudit:
    """Checks the writes of each step against the owners of the blocks.

    A row may write to a block of the sequence that it was filled in for, to the scratch block, or nowhere (slot −1). A
    row that was filled in for nobody (a padding row) or for a sequence that has lost the block meanwhile (a stale row)
    corrupts the cache if the block has another owner. A write to a block that nobody owns harms nobody yet: it is
    counted in ``strays``.

    Args:
        cache: knows the owners.
        policy: the padding policy's name, for messages.
        strict: raise at the first violation; else collect them in ``violations``.
    """

    def __init__(self, cache: PagedKVCache, policy: str = "", strict: bool = True) -> None:
        self.cache, self.policy, self.strict = cache, policy, strict
        self.violations: list[Violation] = []
        self.strays = 0
        self._filled: dict[int, tuple[Row, object]] = {}  # row → what it last held as a real row, and for which lease
        self._last_writer: dict[int, str] = {}
        self._corrupted: dict[int, tuple[Sequence, set[int]]] = {}

    def check(self, inputs: DecodeBatch, real_rows: int, leases: tuple[object, ...] | None = None) -> list[Violation]:
        """Check a step that is about to run: the rows of ``inputs``, of which the first ``real_rows`` are real.

        ``leases`` says for which stay in the cache each real row was made (``DecodeBatch.leases``). Without it a row is
        taken to belong to whoever owns the block that its own block table names for its position.

        It reads three small inputs and no cache, so it may be called at every step. Returns the step's violations.

        Raises:
            CacheCorruption: in strict mode, naming block, slot, owner, row and policy.
        """
        rows = zip(inputs.input_ids.tolist(), inputs.positions.tolist(), inputs.slot_mapping.tolist(), strict=True)
        found = []
        for number, row in enumerate(rows):
            slot = row[2]
            block = slot // self.cache.block_size
            owner = self.cache.owners.get(block)
            if number < real_rows:
                lease = leases[number] if leases is not None else self._lease_by_table(inputs, number, row[1])
                self._filled[number] = (row, lease)
            if slot < 0 or block == self.cache.scratch_block:
                continue
            held, lease = self._filled.get(number, (None, None))
            mine = lease if held == row else None  # a padding row that was filled in anew is nobody's
            if owner is None:
                self.strays += 1
            elif owner.lease is not mine:
                found.append(Violation(number, slot, block, owner.name, number >= real_rows, self.policy))
                self._mark(block, owner, slot)
            mark = owner.name if owner is not None and owner.lease is mine else f"row {number}"
            self._last_writer[block] = mark if number < real_rows else f"padding row {number}"
        self.violations += found
        if found and self.strict:
            more = f" ({len(found) - 1} more such rows in this step)" if len(found) > 1 else ""
            raise CacheCorruption(f"{found[0]}{more}.")
        return found

    def block_map(self) -> list[BlockState]:
        """The state of every block, the scratch block last."""
        states = []
        for block in range(self.cache.allocator.blocks + 1):
            owner = self.cache.owners.get(block)
            hurt, slots = self._corrupted.get(block, (None, set()))
            if block == self.cache.scratch_block:
                state: State = "scratch"
            elif owner is None:
                state = "free"
            else:
                state = "corrupted" if hurt is owner else "owned"
            marked = tuple(sorted(slots)) if state == "corrupted" else ()
            name = owner.name if owner is not None else ""
            states.append(BlockState(block, state, name, self._last_writer.get(block, ""), marked))
        return states

    def _lease_by_table(self, inputs: DecodeBatch, row: int, position: int) -> object | None:
        place = position // self.cache.block_size
        if not 0 <= place < inputs.block_tables.shape[1]:
            return None
        owner = self.cache.owners.get(int(inputs.block_tables[row, place]))
        return None if owner is None else owner.lease

    def _mark(self, block: int, owner: Sequence, slot: int) -> None:
        hurt, slots = self._corrupted.get(block, (owner, set()))
        if hurt is not owner:  # the block was given to another since
            slots = set()
        slots.add(slot)
        self._corrupted[block] = (owner, slots)
