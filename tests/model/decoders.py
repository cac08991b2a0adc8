"""Small decoders with random weights, and the textbook decoder that holds the same ones."""

from functools import cache

import torch

from s13lib.device import SoftGPU
from s13lib.model import DecoderConfig, DecoderModel, DecoderWeights, TextbookDecoder

STAGES = (15, 11, 9, 7, 5, 4)


def small_config(**changes) -> DecoderConfig:
    sizes = {"layers": 3, "hidden": 24, "ffn": 40, "heads": 6, "kv_heads": 2, "head_dim": 10, "vocab": 31}
    return DecoderConfig(**(sizes | {"rope_theta": 1e4, "norm_eps": 1e-5, "tied": False, "max_context": 320} | changes))


@cache
def textbook(config: DecoderConfig, seed: int = 0) -> TextbookDecoder:
    """The textbook decoder with weights that make attention and logits vary: not the flat ones of a fresh model."""
    torch.manual_seed(seed)
    decoder = TextbookDecoder(config).eval().requires_grad_(False)
    for name, weight in decoder.named_parameters():
        if "norm" in name:
            weight.copy_(1 + 0.3 * torch.randn_like(weight))
        else:
            weight.mul_(2.0)
    return decoder


def decoder_model(config: DecoderConfig, stage: int, device: SoftGPU, **options) -> DecoderModel:
    weights = DecoderWeights.from_state_dict(config, textbook(config).state_dict(), device, progress=False)
    return DecoderModel(config, weights, stage, device, **options)
