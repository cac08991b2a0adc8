"""GraphRunner: one captured decode step, static buffers, and the rules that a bare graph leaves to its user."""

from __future__ import annotations

import torch
from torch import Tensor

from s13lib.device.protocol import Graph, Pool
from s13lib.errors import InputError, require
from s13lib.graphs.padding import Padding, padding_named, scratch
from s13lib.model.batch import DecodeBatch
from s13lib.model.decoder import DecoderModel


class GraphRunner:
    """A decode step of ``batch_size`` rows, captured once and replayed for batches of up to that many.

    A graph records addresses, not values: each run copies its inputs into the same buffers, every row of them, and
    returns a copy of its outputs.

    Args:
        model: whose step is captured. Its cache is part of the graph.
        batch_size: rows of the captured step, at most ``model.max_rows``.
        max_blocks: width of the captured block table; default: the longest sequence that the model takes.
        inputs: static buffers to capture against, so that several runners can share theirs; default new ones.
        logits: where the graph writes, (batch_size, vocab), outside the pool; default a new tensor.
        pool: the pool of another runner's graph, to share its memory. Capture the largest first.
        padding: what rows beyond the real ones hold, one of ``s13lib.graphs.padding`` or its name.
    """

    def __init__(
        self,
        model: DecoderModel,
        batch_size: int,
        max_blocks: int | None = None,
        inputs: DecodeBatch | None = None,
        logits: Tensor | None = None,
        pool: Pool | None = None,
        padding: Padding | str = scratch,
    ) -> None:
        whole = isinstance(batch_size, int) and 1 <= batch_size <= model.max_rows
        require(whole, "batch_size", batch_size, f"1 to {model.max_rows}, the model's max_rows")
        self.model, self.batch_size = model, batch_size
        self.padding = padding_named(padding) if isinstance(padding, str) else padding
        self.inputs = inputs if inputs is not None else static_inputs(model, batch_size, max_blocks)
        self.logits = logits if logits is not None else model.device.empty((batch_size, model.config.vocab))
        # Kernels compile here, and a bad shape fails here, with everything still eager. The buffers hold padding rows,
        # so this writes to the scratch block alone.
        with model.device.warm_up():
            model.launch_step(self.inputs, self.logits)
        with model.device.graph(pool) as graph:
            model.launch_step(self.inputs, self.logits, model.new_buffers(batch_size))
        self.graph: Graph = graph
        self._input_addresses = _addresses(self.inputs)
        # Kept: a CUDA graph holds addresses, not tensors (PyTorch's notes on CUDA graphs), and we see those of our own
        # kernels alone, not what PyTorch's operators read.
        self._weights = model.weights
        self._weights_generation = model.weights_generation
        self._model_addresses = _model_addresses(model)
        self._cache = model.cache

    def __repr__(self) -> str:
        return f"GraphRunner(batch size {self.batch_size}, stage {self.model.stage}, {self.graph!r})"

    @property
    def max_blocks(self) -> int:
        """Width of the captured block table."""
        return self.inputs.block_tables.shape[1]

    def fits(self, batch: DecodeBatch) -> bool:
        """Whether every sequence of ``batch`` fits into the captured block table."""
        return int(batch.context_lens.max()) <= self.max_blocks * self.model.cache.block_size

    def fill(self, batch: DecodeBatch) -> None:
        """Copy ``batch`` and its padding rows into the static buffers."""
        n = batch.rows
        require(1 <= n <= self.batch_size, "rows", n, f"1 to {self.batch_size}, the captured batch size")
        if not self.fits(batch):
            raise InputError(
                f"context length {int(batch.context_lens.max())} is too long for the captured block table: it holds "
                f"{self.max_blocks * self.model.cache.block_size} tokens; run this batch eager or capture a wider one."
            )
        self.model.check_indices(batch)
        narrow = DecodeBatch(*batch.tensors()[:3], batch.block_tables[:, : self.max_blocks], batch.context_lens)
        self.inputs.copy_from(padded(narrow, self.inputs, self.padding, self.model))

    def replay(self) -> None:
        """Replay over what the buffers hold, and wait. The addresses that the graph relies on are checked first."""
        self._check_inputs()
        if self.model.weights_generation != self._weights_generation:
            raise InputError(
                "the model's weights were replaced after the capture: the graph still reads the old ones; capture "
                "again, or copy new values into the old tensors."
            )
        if self.model.cache is not self._cache:
            raise InputError("the model's cache was replaced after the capture: the graph still uses the old one.")
        self.graph.replay()
        self.model.device.synchronize()

    def launch_eager(self) -> None:
        """The same padded step, launched kernel by kernel: what replay must equal bit for bit."""
        _, buffers = self.model.eager_buffers(self.batch_size)
        self.model.launch_step(self.inputs, self.logits, buffers)
        self.model.device.synchronize()

    def run(self, batch: DecodeBatch) -> Tensor:
        """Copy ``batch`` in, replay, return a copy of its rows' logits on the host, (batch.rows, vocab).

        Raises:
            InputError: no or too many rows, a context that the captured block table cannot hold, a static input that
                is no longer where it was, or weights replaced since the capture.
            DeviceError: a token, position, slot or block out of range; nothing out of range was written.
        """
        self.fill(batch)
        self.replay()
        return self.logits[: batch.rows].to("cpu", copy=True)

    def check(self) -> None:
        """The full check, for debugging: inputs, weights and cache are all where they were at capture."""
        self._check_inputs()
        now = _model_addresses(self.model)
        for name, address in self._model_addresses.items():
            if now.get(name) != address:
                raise InputError(f"{name} was re-allocated after the capture: the graph still uses the old memory.")

    def _check_inputs(self) -> None:
        now = _addresses(self.inputs)
        for name, address in self._input_addresses.items():
            if now[name] != address:
                raise InputError(
                    f"static input {name} was re-allocated: the graph reads its old address {address:#x}; copy into "
                    "the old tensor instead of replacing it."
                )


def static_inputs(model: DecoderModel, rows: int, max_blocks: int | None = None) -> DecodeBatch:
    """Static input buffers that hold harmless scratch rows."""
    blocks = model.cache.max_blocks if max_blocks is None else max_blocks
    allowed = f"1 to {model.cache.max_blocks}, the model's longest block table"
    require(isinstance(blocks, int) and 1 <= blocks <= model.cache.max_blocks, "max_blocks", blocks, allowed)
    inputs = DecodeBatch.static(model.device, rows, blocks)
    inputs.copy_from(scratch(model.cache, inputs))
    return inputs


def padded(batch: DecodeBatch, inputs: DecodeBatch, padding: Padding, model: DecoderModel) -> DecodeBatch:
    """``batch`` followed by the padding rows that fill it up to the rows of ``inputs``. Every row is there."""
    n = batch.rows
    if n == inputs.rows:
        return batch
    held = DecodeBatch(*(tensor[n:].cpu() for tensor in inputs.tensors()))
    rest = padding(model.cache, held)
    return DecodeBatch(*(torch.cat(pair) for pair in zip(batch.tensors(), rest.tensors(), strict=True)))


def _addresses(batch: DecodeBatch) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in batch.named().items()}


def _model_addresses(model: DecoderModel) -> dict[str, int]:
    weights = model.weights
    named = {"embedding": weights.embedding, "final_norm": weights.final_norm, "lm_head": weights.lm_head}
    for number, layer in enumerate(weights.layers):
        named |= {f"layer.{number}.{name}": getattr(layer, name) for name in layer.__dataclass_fields__}
    for number, pair in enumerate(zip(model.cache.k, model.cache.v, strict=True)):
        named |= {f"{which}_cache.{number}": tensor for which, tensor in zip("kv", pair, strict=True)}
    return {name: tensor.data_ptr() for name, tensor in named.items()}
