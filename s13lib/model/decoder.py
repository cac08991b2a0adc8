"""DecoderModel: a decode step as a sequence of kernel launches, at the fusion stage one asks for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import s13lib.kernels.softgpu  # noqa: F401 — registers the kernels
from s13lib.device import DeviceError, SoftGPU, best_device, prepare
from s13lib.device.kernel import REGISTRY
from s13lib.device.launch import Namespace
from s13lib.errors import InputError, require
from s13lib.kernels import in_format
from s13lib.kernels.textbook import DecoderConfig, rope_tables
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import PagedKVCache, Sequence
from s13lib.model.stages import LAYERS, final_norm, kernels_of, shared
from s13lib.model.weights import DecoderWeights
from s13lib.progress import Progress


class DecoderModel:
    """A Llama-architecture decoder with its paged KV cache.

    Args:
        config: the model's shape.
        weights: on ``device``.
        stage: fusion stage, 15, 11, 9, 7, 5 or 4 kernels a layer.
        device: default ``best_device()``.
        max_rows: most rows of a step; longer prompts are fed in pieces.
        blocks: cache blocks that sequences may own; default: room for 8 sequences of full length, at most 4,096.
        block_size: tokens a block.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        stage: int = 15,
        device: SoftGPU | None = None,
        max_rows: int = 256,
        blocks: int | None = None,
        block_size: int = 16,
    ) -> None:
        require(stage in LAYERS, "stage", stage, f"one of {', '.join(map(str, LAYERS))}")
        require(isinstance(max_rows, int) and max_rows >= 1, "max_rows", max_rows, "a whole number of at least 1")
        self.config, self.stage, self.max_rows = config, stage, max_rows
        self.device = device if device is not None else best_device()
        prepare(REGISTRY[name] for name in kernels_of(stage, weights.layer_format, weights.head_format))
        if blocks is None:
            blocks = min(8 * -(-config.max_context // block_size), 4096)
        self.cache = PagedKVCache(config, self.device, blocks, block_size)
        # One turn a pair: the textbook's table says every angle twice, the kernels read it once.
        cos, sin = rope_tables(torch.arange(config.max_context), config.head_dim, config.rope_theta, torch.float64)
        half = config.head_dim // 2
        self._cos = self.device.tensor(cos[:, :half].to(torch.float32).contiguous(), name="cos")
        self._sin = self.device.tensor(sin[:, :half].to(torch.float32).contiguous(), name="sin")
        self._inputs = DecodeBatch.static(self.device, max_rows, self.cache.max_blocks)
        self._buffers = StepBuffers(self.device, config, max_rows)
        self.weights_generation = 0
        self.weights = weights

    @property
    def weights(self) -> DecoderWeights:
        """The weights. Replacing them does not reach graphs that were captured before; copying into them does."""
        return self._weights

    @weights.setter
    def weights(self, weights: DecoderWeights) -> None:
        self._weights = weights
        self._layer_kernels = KernelsFor(self.device.kernels, weights.layer_format)
        self._head_kernels = KernelsFor(self.device.kernels, weights.head_format)
        self.weights_generation += 1

    def launch_step(
        self, inputs: DecodeBatch, logits: Tensor, buffers: StepBuffers | None = None, last_only: bool = False
    ) -> None:
        """Launch every kernel of one step, in order; returns before they have run.

        Args:
            inputs: on the device.
            logits: where the result goes, (rows, vocab), or (1, vocab) with ``last_only``.
            buffers: for the intermediates; default new ones. Inside a capture those belong to the graph's pool.
            last_only: compute the logits of the last row alone, as prefill needs.
        """
        b = buffers or StepBuffers(self.device, self.config, inputs.rows)
        k, head = self._layer_kernels, self._head_kernels
        m = shared(self.config, self._cos, self._sin, inputs)
        layer = LAYERS[self.stage]
        head.embedding(inputs.input_ids, self.weights.embedding, b.x)
        for number, weights in enumerate(self.weights.layers):
            layer(k, m, weights, self.cache.k[number], self.cache.v[number], b, number == 0)
        if last_only:
            b = b.last()
        final_norm(k, m, self.weights.final_norm, b, self.stage)
        head.linear(b.normed, self.weights.lm_head, logits)

    def forward(self, batch: DecodeBatch, last_only: bool = False) -> Tensor:
        """Run one eager step and return a copy of its logits, (rows, vocab), or (1, vocab) with ``last_only``.

        Raises:
            InputError: more than ``max_rows`` rows.
            DeviceError: a token, position, slot or block out of range; nothing out of range was written.
        """
        require(1 <= batch.rows <= self.max_rows, "rows", batch.rows, f"1 to {self.max_rows} (max_rows)")
        inputs, buffers = self.eager_buffers(batch.rows)
        logits = buffers.logits[:1] if last_only else buffers.logits
        inputs.copy_from(batch)
        self.launch_step(inputs, logits, buffers, last_only)
        self.device.synchronize()
        return logits.clone()

    def eager_buffers(self, rows: int) -> tuple[DecodeBatch, StepBuffers]:
        """The model's own inputs and intermediates for an eager step of ``rows`` rows."""
        return self._inputs.first(rows), self._buffers.first(rows)

    def prefill(self, sequence: Sequence, tokens: list[int]) -> Tensor:
        """Feed ``tokens`` to ``sequence`` and return the logits (vocab,) after the last. Always eager.

        Prompts longer than ``max_rows`` are fed in pieces, which changes no bit.
        """
        require(len(tokens) >= 1, "tokens", tokens, "at least one token")
        start = sequence.length
        self.cache.extend(sequence, len(tokens))
        try:
            with Progress("reading the prompt", len(tokens)) as bar:
                for first in range(0, len(tokens), self.max_rows):
                    piece = tokens[first : first + self.max_rows]
                    rows = [(token, sequence, start + first + i) for i, token in enumerate(piece)]
                    logits = self.forward(DecodeBatch.of(self.cache, rows), last_only=True)
                    bar.update(len(piece))
        except DeviceError:
            self.cache.shrink(sequence, len(tokens))  # what was not computed is not held
            raise
        return logits[0]

    def decode(self, sequences: list[Sequence], tokens: list[int]) -> Tensor:
        """Feed one token to each sequence and return the logits, (len(sequences), vocab)."""
        batch = self.next_batch(sequences, tokens)
        try:
            return self.forward(batch)
        except (DeviceError, InputError):
            for sequence in sequences:
                self.cache.shrink(sequence, 1)
            raise

    def next_batch(self, sequences: list[Sequence], tokens: list[int]) -> DecodeBatch:
        """The batch that feeds ``tokens[i]`` to ``sequences[i]``: makes room in the cache for each, or for none."""
        require(len(tokens) == len(sequences), "tokens", len(tokens), f"{len(sequences)}, one for each sequence")
        names = [sequence.name for sequence in sequences]
        require(len(set(map(id, sequences))) == len(sequences), "sequences", names, "different ones: a row each")
        extended = []
        try:
            for sequence in sequences:
                self.cache.extend(sequence, 1)
                extended.append(sequence)
        except InputError:
            for sequence in reversed(extended):
                self.cache.shrink(sequence, 1)
            raise
        return DecodeBatch.of(self.cache, [(t, s, s.length - 1) for t, s in zip(tokens, sequences, strict=True)])


class KernelsFor:
    """``device.kernels`` for weights of one format: ``linear`` is ``linear_q8_0`` here, if they are in q8_0."""

    def __init__(self, kernels: Namespace, weight_format: str) -> None:
        self._kernels, self._format = kernels, weight_format

    def __getattr__(self, name: str) -> Callable:
        launch = getattr(self._kernels, in_format(name, self._format))
        setattr(self, name, launch)
        return launch


class StepBuffers:
    """A step's intermediates by name, (rows, width) float32 each, allocated when a stage first asks for them."""

    def __init__(
        self, device: SoftGPU, config: DecoderConfig, rows: int, view: Callable[[str], Tensor] | None = None
    ) -> None:
        self._device, self._config, self._rows, self._view = device, config, rows, view

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        shape = (self._rows, _width(self._config, name))
        tensor = self._view(name) if self._view else self._device.empty(shape, name=name)
        setattr(self, name, tensor)
        return tensor

    def first(self, rows: int) -> StepBuffers:
        """The first rows, as views."""
        return StepBuffers(self._device, self._config, rows, lambda name: getattr(self, name)[:rows])

    def last(self) -> StepBuffers:
        """The last row, as views."""
        return StepBuffers(self._device, self._config, 1, lambda name: getattr(self, name)[-1:])


def _width(config: DecoderConfig, name: str) -> int:
    if name in ("x", "normed", "delta"):
        return config.hidden
    if name in ("q", "q_rope", "mixed"):
        return config.heads * config.head_dim
    if name in ("k", "v", "k_rope"):
        return config.kv_heads * config.head_dim
    if name in ("gate", "up", "gated"):
        return config.ffn
    if name == "logits":
        return config.vocab
    raise AttributeError(name)
