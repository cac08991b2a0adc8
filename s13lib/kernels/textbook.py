"""The textbook Llama decoder in plain PyTorch: what everyone writes first, and what the course then fuses.

Nothing here is clever, on purpose. Every operation has its own line, so that a reader (or a profiler) can count them,
and so that the fused kernels have something plain to agree with. Shapes are named by one letter each: B batch, T new
tokens, S all tokens seen so far, h hidden, f FFN width, H query heads, K key/value heads, D head size, V vocabulary.
Weight names are those of Hugging Face's Llama, so its safetensors files load as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a Llama decoder; sizes count elements, `max_context` counts tokens."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float
    norm_eps: float
    tied: bool
    max_context: int

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got heads={self.heads}, kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even (RoPE turns pairs), got {self.head_dim}")


# One (key, value) pair per layer, each [B, K, S, D]; a layer that has seen nothing yet holds None.
Cache = list[tuple[Tensor, Tensor] | None]


def at_least_float32(x: Tensor) -> Tensor:
    """Widen bf16 and fp16 to fp32; leave fp32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rope_tables(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, D] of the rotary angles at `positions` [T]; the second half of D repeats the first.

    Pair i turns by position · theta^(−2i/D). Angles are computed in float64 and rounded once, to `dtype`.
    """
    pair = torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device)  # [D/2]
    angle = positions.to(torch.float64)[:, None] * theta ** (-pair / head_dim)  # [T, D/2]
    angle = torch.cat((angle, angle), dim=-1)  # [T, D]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate_half(x: Tensor) -> Tensor:
    """[..., D] → [..., D]: (first half, second half) becomes (−second half, first half)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, D], cos and sin [T, D] → [B, heads, T, D]; half-split pairs (i, i + D/2), as Llama has them.

    The interleaved convention pairs (2i, 2i + 1) instead: the same weights under it give fluent nonsense.
    """
    return x * cos + rotate_half(x) * sin


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """[B, K, S, D] → [B, K·groups, S, D]: query heads g·groups … g·groups + groups − 1 share key/value head g."""
    return x.repeat_interleave(groups, dim=1)


class RMSNorm(nn.Module):
    """x [..., h] → [..., h]: x / sqrt(mean(x²) + eps) · weight, in the naive steps; never writes into x."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - the class says it
        wide = at_least_float32(x)
        mean_square = wide.pow(2).mean(dim=-1, keepdim=True)  # [..., 1]
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return normed.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query causal attention: x [B, T, h] → [B, T, h]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.q_proj = nn.Linear(config.hidden, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """cos and sin [T, D]; `cache[layer]`, where there is a cache, grows by the T new keys and values."""
        c = self.config
        batch, new, _ = x.shape
        q = self.q_proj(x).view(batch, new, c.heads, c.head_dim).transpose(1, 2)  # [B, H, T, D]
        k = self.k_proj(x).view(batch, new, c.kv_heads, c.head_dim).transpose(1, 2)  # [B, K, T, D]
        v = self.v_proj(x).view(batch, new, c.kv_heads, c.head_dim).transpose(1, 2)  # [B, K, T, D]
        q = apply_rope(q, cos, sin)
        k = apply_rope(k, cos, sin)
        if cache is not None:
            if cache[layer] is not None:
                past_k, past_v = cache[layer]
                k = torch.cat((past_k, k), dim=2)  # [B, K, S, D]
                v = torch.cat((past_v, v), dim=2)
            cache[layer] = (k, v)
        k = repeat_kv(k, c.heads // c.kv_heads)  # [B, H, S, D]
        v = repeat_kv(v, c.heads // c.kv_heads)
        scores = (q @ k.transpose(2, 3)) * c.head_dim**-0.5  # [B, H, T, S]
        seen = k.shape[2]
        future = torch.ones(new, seen, dtype=torch.bool, device=x.device).triu(seen - new + 1)  # [T, S]
        scores = scores.masked_fill(future, float("-inf"))
        weights = torch.softmax(at_least_float32(scores), dim=-1).to(x.dtype)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, new, c.heads * c.head_dim)  # [B, T, H·D]
        return self.o_proj(mixed)


class SwiGLU(nn.Module):
    """x [B, T, h] → [B, T, h]: down(silu(gate(x)) · up(x)); the SiLU is on gate, not on up."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - the class says it
        gate = self.gate_proj(x)  # [B, T, f]
        up = self.up_proj(x)  # [B, T, f]
        return self.down_proj(nn.functional.silu(gate) * up)


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then that plus ffn(norm(that)); [B, T, h] → [B, T, h]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None, layer: int) -> Tensor:  # noqa: D102
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Token ids [B, T] → the final norm's output [B, T, h]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)

    def forward(self, input_ids: Tensor, cache: Cache | None = None) -> Tensor:  # noqa: D102 - the class says it
        past = 0 if cache is None or cache[0] is None else cache[0][0].shape[2]
        total = past + input_ids.shape[1]
        if total > self.config.max_context:
            raise ValueError(f"context of {total} tokens is longer than max_context={self.config.max_context}")
        x = self.embed_tokens(input_ids)  # [B, T, h]
        positions = torch.arange(past, total, device=input_ids.device)  # [T]
        cos, sin = rope_tables(positions, self.config.head_dim, self.config.rope_theta, x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, cache, number)
        return self.norm(x)


class TextbookDecoder(nn.Module):
    """Token ids [B, T] → logits [B, T, V].

    With `cache = model.new_cache()` passed in, a call appends its T tokens to the cache and its positions go on from
    there: a prompt is one call, each further token a call with T = 1. Without a cache each call starts at position 0.
    Raises ValueError when the context would be longer than `config.max_context`.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def new_cache(self) -> Cache:
        """An empty cache: one None per layer."""
        return [None] * self.config.layers

    def forward(self, input_ids: Tensor, cache: Cache | None = None) -> Tensor:  # noqa: D102 - the class says it
        x = self.model(input_ids, cache)  # [B, T, h]
        head = self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight  # [V, h]
        return x @ head.T
