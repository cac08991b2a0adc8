"""Decode steps to measure: a running batch, and functions that launch one step over it without waiting."""

from __future__ import annotations

from collections.abc import Callable

from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import Sequence
from s13lib.model.decoder import DecoderModel

BLOCK_SIZE = 16


def blocks_needed(rows: int, context: int) -> int:
    """Cache blocks for ``rows`` requests of ``context`` tokens."""
    return rows * -(-context // BLOCK_SIZE)


def running_batch(model: DecoderModel, rows: int, context: int) -> DecodeBatch:
    """A decode batch of ``rows`` requests whose new token is their ``context``-th."""
    sequences = [Sequence(f"request {row}") for row in range(rows)]
    vocab = model.config.vocab
    for row, sequence in enumerate(sequences):
        if context > 1:
            model.prefill(sequence, [(row + 7 * i) % vocab for i in range(context - 1)])
    return model.next_batch(sequences, [row % vocab for row in range(rows)])


def eager_step(model: DecoderModel, batch: DecodeBatch) -> Callable[[], None]:
    """A function that launches one eager step over ``batch``, which is copied in once."""
    inputs, buffers = model.eager_buffers(batch.rows)
    inputs.copy_from(batch)
    return lambda: model.launch_step(inputs, buffers.logits, buffers)
