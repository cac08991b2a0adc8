"""DecodeBatch: everything that a decode step is told, one row a sequence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from s13lib.device import Device
from s13lib.errors import require
from s13lib.model.cache import PagedKVCache, Sequence


@dataclass(frozen=True)
class DecodeBatch:
    """The inputs of one step, row by row. As static buffers they live on the device; else on the host.

    Args:
        input_ids: int64 (rows,), the tokens to feed.
        positions: int64 (rows,), their places in their sequences.
        slot_mapping: int64 (rows,), where their keys and values go; −1 skips the write.
        block_tables: int32 (rows, max_blocks), the sequences' blocks; entries past the context are not read.
        context_lens: int32 (rows,), tokens to attend to, the new one included.
        leases: for each row the stay in the cache (``Sequence.lease``) that it was made for; None if not known.
    """

    input_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    block_tables: Tensor
    context_lens: Tensor
    leases: tuple[object, ...] | None = None

    @property
    def rows(self) -> int:
        """How many rows the batch has."""
        return len(self.input_ids)

    @classmethod
    def static(cls, device: Device, rows: int, max_blocks: int) -> DecodeBatch:
        """Buffers on ``device``, filled with zeros."""
        return cls(
            device.zeros(rows, torch.int64, "input_ids"),
            device.zeros(rows, torch.int64, "positions"),
            device.zeros(rows, torch.int64, "slot_mapping"),
            device.zeros((rows, max_blocks), torch.int32, "block_tables"),
            device.zeros(rows, torch.int32, "context_lens"),
        )

    @classmethod
    def of(cls, cache: PagedKVCache, rows: Iterable[tuple[int, Sequence, int]]) -> DecodeBatch:
        """Rows of (token, sequence, position): the token at ``position`` of a sequence that already holds room for it.

        In decode each sequence has one row; in prefill one sequence has a row for each token of its prompt.
        """
        rows = list(rows)
        tables = torch.zeros((len(rows), cache.max_blocks), dtype=torch.int32)
        for row, (_, sequence, _) in enumerate(rows):
            tables[row, : len(sequence.blocks)] = torch.tensor(sequence.blocks, dtype=torch.int32)
        return cls(
            torch.tensor([token for token, _, _ in rows], dtype=torch.int64),
            torch.tensor([position for _, _, position in rows], dtype=torch.int64),
            torch.tensor([cache.slot(sequence, position) for _, sequence, position in rows], dtype=torch.int64),
            tables,
            torch.tensor([position + 1 for _, _, position in rows], dtype=torch.int32),
            tuple(sequence.lease for _, sequence, _ in rows),
        )

    def tensors(self) -> tuple[Tensor, ...]:
        """The five tensors, in order."""
        return tuple(self.named().values())

    def named(self) -> dict[str, Tensor]:
        """The five tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "leases"}

    def first(self, rows: int) -> DecodeBatch:
        """The first ``rows`` rows, as views."""
        require(1 <= rows <= self.rows, "rows", rows, f"1 to {self.rows}")
        return DecodeBatch(*(tensor[:rows] for tensor in self.tensors()), self.leases and self.leases[:rows])

    def copy_from(self, other: DecodeBatch) -> None:
        """Copy every row of ``other``, which has as many rows, into these buffers: no row keeps what it held."""
        require(other.rows == self.rows, "rows", other.rows, f"{self.rows}, as many as the buffers have")
        for (name, mine), theirs in zip(self.named().items(), other.tensors(), strict=True):
            # copy_ would stretch a single row over all of them, and round floats: both hide a mistake.
            given = (theirs.dtype, tuple(theirs.shape))
            require(given == (mine.dtype, tuple(mine.shape)), name, given, f"{mine.dtype} of shape {tuple(mine.shape)}")
            mine.copy_(theirs)
