"""Weights on a device, packed as the kernels read them, from a state dict under Hugging Face's names.

Matrices are float32, or quantised: then they are packed rows (``s13lib.kernels.quantised``), uint8 (out, row_bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from s13lib.device import SoftGPU
from s13lib.errors import InputError, require
from s13lib.kernels.quantised import F32_FORMAT, FORMATS, HEAD_FORMAT, quantise
from s13lib.kernels.textbook import DecoderConfig
from s13lib.progress import Progress


@dataclass(frozen=True)
class LayerWeights:
    """One layer. q, k, v are views of the rows of ``qkv``; gate and up are views of ``gate_up``.

    Shapes, in weights: norm, norm_2 (hidden,); qkv (q_width + 2·kv_width, hidden); o (hidden, q_width);
    gate_up (2·ffn, hidden); down (hidden, ffn).
    """

    norm: Tensor
    qkv: Tensor
    o: Tensor
    norm_2: Tensor
    gate_up: Tensor
    down: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    gate: Tensor
    up: Tensor


@dataclass(frozen=True)
class DecoderWeights:
    """All weights: embedding and lm_head (vocab, hidden), one tensor if tied, and final_norm (hidden,).

    ``layer_format`` is that of the layers' matrices, ``head_format`` that of embedding and head; norms are float32.
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    lm_head: Tensor
    layer_format: str = F32_FORMAT
    head_format: str = F32_FORMAT

    @classmethod
    def from_state_dict(
        cls,
        config: DecoderConfig,
        state: Mapping[str, Tensor],
        device: SoftGPU,
        progress: bool = True,
        weight_format: str = F32_FORMAT,
    ) -> DecoderWeights:
        """Copy weights to ``device``, with every matrix in ``weight_format``: f32, q8_0 or q4_0.

        With q4_0 the embedding, which is also the head if they are tied, is q8_0: one rounding to 4 bits there costs
        every token.

        Raises:
            InputError: a missing tensor or one of another shape; a width that is no multiple of the format's 32.
        """
        formats = (F32_FORMAT, *FORMATS)
        require(weight_format in formats, "weight_format", weight_format, f"one of {', '.join(formats)}")
        head_format = F32_FORMAT if weight_format == F32_FORMAT else HEAD_FORMAT
        q_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def put(name: str, parts: list[str], width: int, heights: list[int], form: str = weight_format) -> Tensor:
            tensors = []
            for part, height in zip(parts, heights, strict=True):
                expected = (height, width) if width else (height,)
                if part not in state:
                    raise InputError(f"weights: {part} is missing.")
                if tuple(state[part].shape) != expected:
                    raise InputError(f"weights: {part} has shape {tuple(state[part].shape)}: must be {expected}.")
                tensors.append(state[part].to(torch.float32))
            whole = torch.cat(tensors)
            if width and form != F32_FORMAT:
                whole = torch.from_numpy(quantise(whole.numpy(), form))
            return device.tensor(whole, name=name)

        layers = []
        with Progress("loading weights", config.layers, show=progress) as bar, device.side_by_side():
            embedding = put("embedding", ["model.embed_tokens.weight"], config.hidden, [config.vocab], head_format)
            for number in range(config.layers):
                at, short = f"model.layers.{number}.", f"layer.{number}."
                projections = [f"{at}self_attn.{which}_proj.weight" for which in "qkv"]
                qkv = put(f"{short}qkv", projections, config.hidden, [q_width, kv_width, kv_width])
                ffn = [f"{at}mlp.{which}_proj.weight" for which in ("gate", "up")]
                gate_up = put(f"{short}gate_up", ffn, config.hidden, [config.ffn] * 2)
                q, k, v = qkv.split([q_width, kv_width, kv_width])
                gate, up = gate_up.split(config.ffn)
                layers.append(
                    LayerWeights(
                        norm=put(f"{short}norm", [f"{at}input_layernorm.weight"], 0, [config.hidden]),
                        qkv=qkv,
                        o=put(f"{short}o", [f"{at}self_attn.o_proj.weight"], q_width, [config.hidden]),
                        norm_2=put(f"{short}norm_2", [f"{at}post_attention_layernorm.weight"], 0, [config.hidden]),
                        gate_up=gate_up,
                        down=put(f"{short}down", [f"{at}mlp.down_proj.weight"], config.ffn, [config.hidden]),
                        q=q,
                        k=k,
                        v=v,
                        gate=gate,
                        up=up,
                    )
                )
                bar.update()
            final_norm = put("final_norm", ["model.norm.weight"], 0, [config.hidden])
            head = embedding
            if not config.tied:
                head = put("lm_head", ["lm_head.weight"], config.hidden, [config.vocab], head_format)
        return cls(embedding, tuple(layers), final_norm, head, weight_format, head_format)

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that a decode step reads: all but the embedding, of which it reads a row for each token."""
        read = [self.final_norm, self.lm_head]
        read += [t for w in self.layers for t in (w.norm, w.qkv, w.o, w.norm_2, w.gate_up, w.down)]
        return sum(t.numel() * t.element_size() for t in read)
