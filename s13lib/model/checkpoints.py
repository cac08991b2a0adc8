"""Checkpoints by name: ``bard``, which the library ships, and ``smollm2``, which ``run.py smollm`` fetches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Protocol

import torch
from safetensors.torch import load
from torch import Tensor
from torch.overrides import TorchFunctionMode

from s13lib.device import Device, best_device
from s13lib.errors import look_up
from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder
from s13lib.model.decoder import DecoderModel
from s13lib.model.stages import Stage
from s13lib.model.tokenizer import CharTokenizer
from s13lib.model.weights import DecoderWeights


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """The text of ``tokens``."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """A trained model as it was stored.

    Args:
        name: of ``CHECKPOINTS``.
        config: its shape.
        state: weights under Hugging Face's names, RoPE half-split; any float type.
        tokenizer: text to tokens and back.
        end: the token that ends a text, None if there is none.
    """

    name: str
    config: DecoderConfig
    state: Mapping[str, Tensor]
    tokenizer: Tokenizer
    end: int | None

    def model(
        self, stage: Stage | None = None, device: Device | None = None, weight_format: str = "f32", **options: object
    ) -> DecoderModel:
        """The decoder at a fusion stage, by default the device's first.

        Its weights are as the device keeps them ("f32"), or quantised from what was stored (q8_0, q4_0; on SoftGPU).

        ``options`` are those of ``DecoderModel``.
        """
        device = device if device is not None else best_device()
        weights = DecoderWeights.from_state_dict(self.config, self.state, device, weight_format=weight_format)
        return DecoderModel(self.config, weights, stage, device, **options)

    def textbook(self) -> TextbookDecoder:
        """The same weights in the textbook PyTorch decoder, float32."""
        with torch.device("meta"), _NoDraw():  # the weights come from the file
            decoder = TextbookDecoder(self.config)
        decoder.load_state_dict({name: tensor.float() for name, tensor in self.state.items()}, assign=True)
        return decoder.eval().requires_grad_(False)


class _NoDraw(TorchFunctionMode):
    """Modules are made without first drawing their weights, for which torch would load its compiler: a second."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        if getattr(function, "__module__", "") == "torch.nn.init":
            return arguments[0] if arguments else named["tensor"]
        return function(*arguments, **(named or {}))


def load_bard() -> Checkpoint:
    """The course's own character-level model; see ``s13lib/data/bard/README.md``."""
    folder = resources.files("s13lib.data") / "bard"
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = CharTokenizer(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    config = DecoderConfig(**{name: described[name] for name in DecoderConfig.__dataclass_fields__})
    return Checkpoint("bard", config, load((folder / "model.safetensors").read_bytes()), tokenizer, None)


def load_smollm2() -> Checkpoint:
    """SmolLM2-135M-Instruct, once ``run.py smollm`` has fetched it."""
    from s13lib.model import smollm2  # needs packages that the rest does not

    return smollm2.load()


CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {"bard": load_bard, "smollm2": load_smollm2}


def load_checkpoint(name: str) -> Checkpoint:
    """Load a checkpoint; an unknown name is an ``InputError``."""
    return look_up(CHECKPOINTS, name, "model")()
