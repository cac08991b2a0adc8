"""Model shapes: the numbers of a Llama-architecture decoder that decide what a decode step costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from s13lib.errors import require, require_whole

MOST_LAYERS, MOST = 1000, 10_000_000  # far above any model; larger numbers are typing errors


@dataclass(frozen=True)
class ModelShape:
    """A Llama-architecture decoder: RMSNorm, grouped-query attention, RoPE, SwiGLU.

    Args:
        name: for print-outs.
        layers: decoder layers.
        hidden: width of the residual stream.
        ffn: width of the feed-forward block.
        heads: query heads.
        kv_heads: key and value heads; must divide ``heads``.
        head_dim: width of a head.
        vocab: rows of the embedding and of the language-model head.
        source: where the figures come from.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    source: str = "given by the user"

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.type == "int":
                require_whole(f"model {f.name}", getattr(self, f.name), 1, MOST_LAYERS if f.name == "layers" else MOST)
        require(self.heads % self.kv_heads == 0, "model kv_heads", self.kv_heads, f"a divisor of heads ({self.heads})")

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together (the values are as wide)."""
        return self.kv_heads * self.head_dim


def _hf(repository: str) -> str:
    return f"config.json of {repository}"


MODELS: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape("bard", 32, 64, 192, 4, 2, 16, 72, "s13lib/data/bard/config.json"),
        ModelShape("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, _hf("HuggingFaceTB/SmolLM2-135M")),
        ModelShape("smollm2-360m", 32, 960, 2560, 15, 5, 64, 49152, _hf("HuggingFaceTB/SmolLM2-360M")),
        ModelShape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, _hf("meta-llama/Llama-3.2-1B")),
        ModelShape("llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, _hf("meta-llama/Llama-2-7b-hf")),
        ModelShape("llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, _hf("meta-llama/Meta-Llama-3-8B")),
    )
}
