"""The textbook decoder: its conventions pinned by hand-computed values, and its cache against the full forward."""

from __future__ import annotations

import math

import pytest
import torch

from s13lib.kernels.textbook import (
    Attention,
    DecoderConfig,
    RMSNorm,
    SwiGLU,
    TextbookDecoder,
    apply_rope,
    repeat_kv,
    rope_tables,
)


def small_config(**changes) -> DecoderConfig:
    shape = {
        "layers": 3,
        "hidden": 12,
        "ffn": 20,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 6,
        "vocab": 17,
        "rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "tied": True,
        "max_context": 32,
    }
    return DecoderConfig(**(shape | changes))


def random_decoder(dtype: torch.dtype = torch.float64, **changes) -> TextbookDecoder:
    torch.manual_seed(5)
    model = TextbookDecoder(small_config(**changes))
    for name, weight in model.named_parameters():
        if "norm" in name:  # ones would hide a forgotten weight
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model.to(dtype).eval()


# ---- RMSNorm


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-6), (torch.bfloat16, 2**-8)])
def test_rms_norm_by_hand_and_its_input_stays(dtype: torch.dtype, bound: float) -> None:
    """x = residual = [3, 4]: mean square 12.5, so 3/√12.5 and 4/√12.5; bf16 rounds by at most 2⁻⁹ relative."""
    x = torch.tensor([3.0, 4.0], dtype=dtype)
    out = RMSNorm(2, eps=0.0).to(dtype)(x)
    assert out.dtype == dtype
    assert out.tolist() == pytest.approx([0.848528, 1.131371], rel=bound)
    assert x.tolist() == [3.0, 4.0]


def test_rms_norm_adds_eps_inside_the_root_and_multiplies_by_the_weight() -> None:
    norm = RMSNorm(2, eps=3.5)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, -1.0]))
    assert norm(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([2 * 3 / 4, -4 / 4])  # √(12.5 + 3.5) = 4


def test_rms_norm_squares_in_fp32_when_x_is_fp16() -> None:
    """300² overflows fp16 (65504); widened first, the answer is 1."""
    x = torch.full((4,), 300.0, dtype=torch.float16)
    assert RMSNorm(4, eps=0.0).half()(x).tolist() == pytest.approx([1.0] * 4, abs=2**-10)


# ---- RoPE


def test_rope_tables_by_hand() -> None:
    """D = 4, theta = 100: pair 0 turns by 1 radian a position, pair 1 by 100^(−1/2) = 0.1."""
    cos, sin = rope_tables(torch.tensor([0, 3]), 4, 100.0, torch.float64)
    assert cos[0].tolist() == [1.0] * 4
    assert sin[0].tolist() == [0.0] * 4
    assert cos[1].tolist() == pytest.approx([math.cos(3), math.cos(0.3), math.cos(3), math.cos(0.3)], abs=1e-15)
    assert sin[1].tolist() == pytest.approx([math.sin(3), math.sin(0.3), math.sin(3), math.sin(0.3)], abs=1e-15)


# x = [1, 2, 3, 4] at position 3 with the tables above, to six places.
HALF_SPLIT = [-1.413352, 0.728592, -2.828857, 4.412386]  # (1, 3) turned by 3, (2, 4) by 0.3
INTERLEAVED = [-1.272233, -1.838865, 1.683929, 4.707907]  # (1, 2) turned by 3, (3, 4) by 0.3


def test_rope_is_half_split_and_not_interleaved() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
    cos, sin = rope_tables(torch.tensor([3]), 4, 100.0, torch.float64)
    turned = apply_rope(x, cos, sin).flatten().tolist()
    assert turned == pytest.approx(HALF_SPLIT, abs=1e-6)
    assert all(abs(a - b) > 0.1 for a, b in zip(turned, INTERLEAVED, strict=True))


def test_rope_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(at_q: int, at_k: int) -> float:
        turned_q = apply_rope(q, *rope_tables(torch.tensor([at_q]), 8, 10000.0, torch.float64))
        turned_k = apply_rope(k, *rope_tables(torch.tensor([at_k]), 8, 10000.0, torch.float64))
        return (turned_q * turned_k).sum().item()

    assert score(107, 100) == pytest.approx(score(7, 0), abs=1e-12)
    assert abs(score(8, 0) - score(7, 0)) > 1e-3


# ---- GQA and SwiGLU


def test_gqa_splits_qkv_by_head_counts_not_in_thirds() -> None:
    """4 heads and 1 KV head of 2 with hidden 12: rows 0..11 of an identity pass on q = 0..7, k = 8, 9, v = 10, 11."""
    attention = Attention(small_config(hidden=12, heads=4, kv_heads=1, head_dim=2))
    assert attention.q_proj.weight.shape == (8, 12)
    assert attention.k_proj.weight.shape == attention.v_proj.weight.shape == (2, 12)
    packed = torch.eye(12)
    with torch.no_grad():
        attention.q_proj.weight.copy_(packed[:8])
        attention.k_proj.weight.copy_(packed[8:10])
        attention.v_proj.weight.copy_(packed[10:])
        attention.o_proj.weight.copy_(torch.eye(12, 8))
    cache = [None]
    cos, sin = rope_tables(torch.tensor([0]), 2, 10000.0, torch.float32)
    out = attention(torch.arange(12.0).view(1, 1, 12), cos, sin, cache, 0)
    key, value = cache[0]
    assert key.flatten().tolist() == [8.0, 9.0]
    assert value.flatten().tolist() == [10.0, 11.0]
    assert out.flatten().tolist() == [10.0, 11.0] * 4 + [0.0] * 4  # one token: each head gives its KV head's value


def test_neighbouring_query_heads_share_a_kv_head() -> None:
    kv = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
    assert repeat_kv(kv, 3).flatten().tolist() == [10.0] * 3 + [20.0] * 3


def test_attention_by_hand() -> None:
    """One head of 2, keys of zero: equal weights over the past, so token t's output is the mean of values 0..t."""
    attention = Attention(small_config(hidden=2, heads=1, kv_heads=1, head_dim=2))
    with torch.no_grad():
        attention.k_proj.weight.zero_()
        attention.v_proj.weight.copy_(torch.eye(2))
        attention.o_proj.weight.copy_(torch.eye(2))
    x = torch.tensor([[[2.0, 0.0], [4.0, 6.0], [0.0, 3.0]]])
    out = attention(x, *rope_tables(torch.arange(3), 2, 10000.0, torch.float32), None, 0)
    assert out.flatten().tolist() == pytest.approx([2.0, 0.0, 3.0, 3.0, 2.0, 3.0])


def test_attention_divides_scores_by_the_root_of_the_head_size() -> None:
    """D = 4 at position 0 and 0 (no turn): scores (0, 2·ln 3 / √4), so the weights are 1/4 and 3/4."""
    attention = Attention(small_config(hidden=4, heads=1, kv_heads=1, head_dim=4))
    with torch.no_grad():
        attention.q_proj.weight.zero_()
        attention.q_proj.weight[0, 0] = 2 * math.log(3)
        attention.k_proj.weight.copy_(torch.diag(torch.tensor([0.0, 0.0, 0.0, 0.0])))
        attention.k_proj.weight[0, 1] = 1.0
        attention.v_proj.weight.copy_(torch.eye(4))
        attention.o_proj.weight.copy_(torch.eye(4))
    x = torch.tensor([[[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]])
    unturned = torch.ones(2, 4), torch.zeros(2, 4)
    assert attention(x, *unturned, None, 0)[0, 1].tolist() == pytest.approx([1.0, 0.75, 0.0, 0.0])


def test_swiglu_puts_the_silu_on_gate() -> None:
    """gate = 2, up = −3: silu(2)·(−3) = −5.284783; with gate and up swapped silu(−3)·2 = −0.284555."""
    ffn = SwiGLU(small_config(hidden=1, ffn=1))
    with torch.no_grad():
        ffn.gate_proj.weight.fill_(2.0)
        ffn.up_proj.weight.fill_(-3.0)
        ffn.down_proj.weight.fill_(1.0)
    assert ffn(torch.ones(1, 1, 1)).item() == pytest.approx(-5.284783, abs=1e-6)


# ---- the whole decoder


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("first", [1, 5, 10])
def test_cached_decode_equals_the_full_forward(kv_heads: int, first: int) -> None:
    """A prompt of `first` tokens, a chunk of 2, then one by one. float64: the bound covers the order of sums."""
    model = random_decoder(kv_heads=kv_heads)
    ids = torch.randint(17, (2, 15), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = model(ids)
        cache = model.new_cache()
        parts = [model(ids[:, :first], cache), model(ids[:, first : first + 2], cache)]
        parts += [model(ids[:, i : i + 1], cache) for i in range(first + 2, 15)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-12)
    assert cache[0][0].shape == (2, kv_heads, 15, 6)


def test_a_token_sees_no_later_token() -> None:
    model = random_decoder()
    ids = torch.randint(17, (1, 12), generator=torch.Generator().manual_seed(2))
    changed = ids.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 17
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amin(dim=-1).gt(0).all()


def test_tied_and_untied_heads() -> None:
    tied, untied = random_decoder(tied=True), random_decoder(tied=False)
    assert "lm_head.weight" not in tied.state_dict()
    weights = tied.state_dict() | {"lm_head.weight": tied.model.embed_tokens.weight * 2}
    untied.load_state_dict(weights)
    ids = torch.tensor([[3, 1, 4]])
    torch.testing.assert_close(untied(ids), tied(ids) * 2, rtol=1e-14, atol=0)


def test_weight_names_are_hugging_face_llamas() -> None:
    layer = [
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ]
    wanted = {f"model.layers.{i}.{name}.weight" for i in range(3) for name in layer}
    wanted |= {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    assert set(random_decoder(tied=False).state_dict()) == wanted


def test_bf16_and_fp32_stay_near_float64() -> None:
    ids = torch.randint(17, (1, 20), generator=torch.Generator().manual_seed(3))
    exact = random_decoder(torch.float64)(ids)
    scale = exact.abs().max().item()
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        logits = random_decoder(dtype)(ids)
        assert logits.dtype == dtype
        assert (logits.double() - exact).abs().max().item() < bound * scale


@pytest.mark.parametrize("changes", [{"heads": 4, "kv_heads": 3}, {"kv_heads": 0}, {"head_dim": 5}])
def test_impossible_shapes_are_refused(changes: dict) -> None:
    with pytest.raises(ValueError, match=r"kv_heads|head_dim"):
        small_config(**changes)


def test_a_context_beyond_the_maximum_is_refused() -> None:
    model = random_decoder(max_context=8)
    cache = model.new_cache()
    model(torch.zeros(1, 8, dtype=torch.int64), cache)
    with pytest.raises(ValueError, match="context of 9 tokens is longer than max_context=8"):
        model(torch.zeros(1, 1, dtype=torch.int64), cache)
