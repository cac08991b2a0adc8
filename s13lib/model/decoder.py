"""DecoderModel: a decode step as a sequence of kernel launches, at the fusion stage one asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from s13lib import kernels
from s13lib.device import Device, DeviceError, best_device
from s13lib.errors import InputError, require
from s13lib.kernels import in_format
from s13lib.kernels.textbook import DecoderConfig, rope_tables
from s13lib.model.batch import DecodeBatch
from s13lib.model.buffers import StepBuffers
from s13lib.model.cache import PagedKVCache, Sequence
from s13lib.model.stages import LAYERS, TORCH, Binder, Stage, check_stage, final_norm, kernels_of, shared, stages_of
from s13lib.model.torch_stage import torch_step
from s13lib.model.weights import DecoderWeights
from s13lib.progress import Progress

if importlib.util.find_spec("numba") is not None:
    kernels.load("softgpu")  # whoever imports the model finds them in device.kernels, before there is a model


class DecoderModel:
    """A Llama-architecture decoder with its paged KV cache.

    Args:
        config: the model's shape.
        weights: on ``device``.
        stage: fusion stage, kernels a layer: 15, 11, 9, 7, 5 or 4 on SoftGPU; "torch", 7 or 5 on CUDA. Default: the
            device's first, nothing fused.
        device: default ``best_device()``.
        max_rows: most rows of a step; longer prompts are fed in pieces.
        blocks: cache blocks that sequences may own; default: room for 8 sequences of full length, at most 4,096.
        block_size: tokens a block.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        stage: Stage | None = None,
        device: Device | None = None,
        max_rows: int = 256,
        blocks: int | None = None,
        block_size: int = 16,
    ) -> None:
        self.device = device if device is not None else best_device()
        stage = stages_of(self.device)[0] if stage is None else stage
        check_stage(stage, self.device)
        require(isinstance(max_rows, int) and max_rows >= 1, "max_rows", max_rows, "a whole number of at least 1")
        self.config, self.stage, self.max_rows = config, stage, max_rows
        if stage != TORCH:
            kernels.load(self.device.kind)
            self.device.prepare(kernels_of(stage, weights.layer_format, weights.head_format))
        if blocks is None:
            blocks = min(8 * -(-config.max_context // block_size), 4096)
        self.cache = PagedKVCache(config, self.device, blocks, block_size, weights.dtype)
        # One turn a pair: the textbook's table says every angle twice, the kernels read it once.
        cos, sin = rope_tables(torch.arange(config.max_context), config.head_dim, config.rope_theta, torch.float64)
        half = config.head_dim // 2
        self._cos = self.device.tensor(cos[:, :half].to(torch.float32).contiguous(), name="cos")
        self._sin = self.device.tensor(sin[:, :half].to(torch.float32).contiguous(), name="sin")
        self._inputs = DecodeBatch.static(self.device, max_rows, self.cache.max_blocks)
        self._eager: dict[int, tuple[DecodeBatch, StepBuffers]] = {}
        self.weights_generation = 0
        self.weights = weights
        self._buffers = self.new_buffers(max_rows)

    @property
    def weights(self) -> DecoderWeights:
        """The weights. Replacing them does not reach graphs that were captured before; copying into them does."""
        return self._weights

    @weights.setter
    def weights(self, weights: DecoderWeights) -> None:
        self._weights = weights
        self._layer_kernels, self._head_kernels = self._kernels_for(self.device.kernels)
        self.weights_generation += 1
        self._eager.clear()  # launches that were bound to the old ones

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
        if self.stage == TORCH:
            torch_step(self, inputs, logits, last_only)
            return
        b = buffers or self.new_buffers(inputs.rows)
        if not self.device.binds_steps:
            self._launch(self._layer_kernels, self._head_kernels, inputs, logits, b, last_only)
            return
        tensors = (logits, self.cache.k[0], *inputs.tensors())
        key = (self.weights_generation, last_only, *((t.data_ptr(), *t.shape) for t in tensors))
        if key not in b.bound:
            binder = Binder(self.device)
            self._launch(*self._kernels_for(binder), inputs, logits, b, last_only)
            b.bound[key] = binder.launches
        self.device.submit(b.bound[key])

    def _kernels_for(self, kernels: object) -> tuple[KernelsFor, KernelsFor]:
        """The launch functions of the layers, and of embedding and head, in their weights' formats."""
        return KernelsFor(kernels, self._weights.layer_format), KernelsFor(kernels, self._weights.head_format)

    def _launch(
        self, k: KernelsFor, head: KernelsFor, inputs: DecodeBatch, logits: Tensor, b: StepBuffers, last_only: bool
    ) -> None:
        """The step's kernels through ``k.<name>(...)``, and of embedding and head through ``head``."""
        m = shared(self.config, self._cos, self._sin, inputs)
        layer = LAYERS[self.stage]
        head.embedding(inputs.input_ids, self.weights.embedding, b.x)
        for number, weights in enumerate(self.weights.layers):
            layer(k, m, weights, self.cache.k[number], self.cache.v[number], b, number == 0)
        if last_only:
            b = b.last()
        final_norm(k, m, self.weights.final_norm, b, self.stage)
        head.linear(b.normed, self.weights.lm_head, logits)

    def rope_rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (rows, head_dim/2) of the angles at ``positions`` (rows,), in PyTorch's operators."""
        return self._cos[positions], self._sin[positions]

    def forward(self, batch: DecodeBatch, last_only: bool = False) -> Tensor:
        """Run one eager step; return a copy of its logits on the host, (rows, vocab), or (1, vocab) with ``last_only``.

        Raises:
            InputError: more than ``max_rows`` rows.
            DeviceError: a token, position, slot or block out of range; nothing out of range was written.
        """
        require(1 <= batch.rows <= self.max_rows, "rows", batch.rows, f"1 to {self.max_rows} (max_rows)")
        self.check_indices(batch)
        inputs, buffers = self.eager_buffers(batch.rows)
        logits = buffers.logits[:1] if last_only else buffers.logits
        inputs.copy_from(batch)
        self.launch_step(inputs, logits, buffers, last_only)
        self.device.synchronize()
        return logits.to("cpu", copy=True)

    def check_indices(self, batch: DecodeBatch) -> None:
        """At stage ``torch``, refuse a batch (on the host) with an index out of range: PyTorch's operators would not.

        At the other stages the kernels skip it and report it.

        Raises:
            InputError: naming the index.
        """
        if self.stage != TORCH:
            return
        slots, width = (self.cache.scratch_block + 1) * self.cache.block_size, batch.block_tables.shape[1]
        allowed = {
            "input_ids": (0, self.config.vocab),
            "positions": (0, self.config.max_context),
            "slot_mapping": (-1, slots),
            "block_tables": (0, self.cache.scratch_block + 1),
            "context_lens": (0, width * self.cache.block_size + 1),
        }
        for name, tensor in batch.named().items():
            least, end = allowed[name]
            for extreme in (int(tensor.min()), int(tensor.max())):
                require(least <= extreme < end, name, extreme, f"{least} to {end - 1}")

    def new_buffers(self, rows: int) -> StepBuffers:
        """Buffers for a step of ``rows`` rows; nothing is allocated before a kernel needs it."""
        return StepBuffers(self.device, self.config, rows, self.weights.dtype)

    def eager_buffers(self, rows: int) -> tuple[DecodeBatch, StepBuffers]:
        """The model's own inputs and intermediates for an eager step of ``rows`` rows, the same ones at each call."""
        if rows not in self._eager:
            self._eager[rows] = self._inputs.first(rows), self._buffers.first(rows)
        return self._eager[rows]

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
        except (DeviceError, InputError):
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
    """Launch functions, or a ``Binder``, for weights of one format: ``linear`` is ``linear_q8_0`` here in q8_0."""

    def __init__(self, kernels: object, weight_format: str) -> None:
        self._kernels, self._format = kernels, weight_format

    def __getattr__(self, name: str) -> Callable:
        launch = getattr(self._kernels, in_format(name, self._format))
        setattr(self, name, launch)
        return launch
