"""A Llama decoder with a paged KV cache, at every fusion stage, on any device of ``s13lib.device``."""

from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder
from s13lib.model.batch import DecodeBatch
from s13lib.model.buffers import StepBuffers
from s13lib.model.cache import BlockAllocator, PagedKVCache, Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.model.generate import Generation, generate
from s13lib.model.sampling import Sampling
from s13lib.model.stages import stages_of
from s13lib.model.weights import DecoderWeights

__all__ = [
    "BlockAllocator",
    "DecodeBatch",
    "DecoderConfig",
    "DecoderModel",
    "DecoderWeights",
    "Generation",
    "PagedKVCache",
    "Sampling",
    "Sequence",
    "StepBuffers",
    "TextbookDecoder",
    "generate",
    "stages_of",
]
