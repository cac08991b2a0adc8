"""The committed checkpoint `bard`: its files agree, it has learned what its card says, and its trainer is sound."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import shutil
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from s13lib.kernels import textbook
from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder

ROOT = Path(__file__).resolve().parent.parent
BARD = ROOT / "s13lib" / "data" / "bard"

# Macbeth, act V: a play that was held out of the training texts whole.
PASSAGE = """She should have died hereafter;
There would have been a time for such a word.--
To-morrow, and to-morrow, and to-morrow,
Creeps in this petty pace from day to day,
To the last syllable of recorded time;
And all our yesterdays have lighted fools
The way to dusty death. Out, out, brief candle!
Life's but a walking shadow; a poor player,
That struts and frets his hour upon the stage,
And then is heard no more: it is a tale
Told by an idiot, full of sound and fury,
Signifying nothing.
"""
PASSAGE_BOUND = 1.50  # nats a character; measured when the checkpoint was made: 1.375


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    return json.loads((BARD / "vocab.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def config() -> DecoderConfig:
    return DecoderConfig(**json.loads((BARD / "config.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return load_file(BARD / "model.safetensors")


@pytest.fixture(scope="module")
def model(config: DecoderConfig, tensors: dict[str, torch.Tensor]) -> TextbookDecoder:
    decoder = TextbookDecoder(config)
    decoder.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return decoder.eval()


@torch.no_grad()
def loss(model: TextbookDecoder, vocabulary: list[str], text: str) -> float:
    """Mean nats a character of `text`, the first character not counted."""
    ids = torch.tensor([vocabulary.index(character) for character in text])
    return F.cross_entropy(model(ids[None, :-1])[0], ids[1:]).item()


# ---- the files


def test_the_file_is_small_and_fp16(tensors: dict[str, torch.Tensor]) -> None:
    assert (BARD / "model.safetensors").stat().st_size <= 4_000_000
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_config_names_every_field_and_the_shape_promised(config: DecoderConfig) -> None:
    stored = json.loads((BARD / "config.json").read_text(encoding="utf-8"))
    assert list(stored) == [field.name for field in fields(DecoderConfig)]
    assert (config.layers, config.hidden) == (32, 64)
    assert config.heads > config.kv_heads  # GQA, so that a wrong split shows
    assert config.tied
    assert config.max_context >= 512


def test_weights_and_config_agree(config: DecoderConfig, tensors: dict[str, torch.Tensor]) -> None:
    expected = {name: weight.shape for name, weight in TextbookDecoder(config).state_dict().items()}
    assert {name: tensor.shape for name, tensor in tensors.items()} == expected


def test_vocabulary_is_single_characters_in_order(vocabulary: list[str], config: DecoderConfig) -> None:
    assert len(vocabulary) == config.vocab
    assert all(len(character) == 1 for character in vocabulary)
    assert vocabulary == sorted(set(vocabulary))
    letters = "abcdefghijklmnopqrstuvwxyz"
    assert set(letters + letters.upper() + "\n ,.;:!?'-[]") <= set(vocabulary)


def test_vocabulary_round_trip(vocabulary: list[str]) -> None:
    ids = [vocabulary.index(character) for character in PASSAGE]
    assert "".join(vocabulary[i] for i in ids) == PASSAGE


def test_the_card_says_what_a_card_must(config: DecoderConfig, tensors: dict[str, torch.Tensor]) -> None:
    card = (BARD / "README.md").read_text(encoding="utf-8")
    for needed in ("Open Knowledge Foundation", "CC BY 2.5", "MIT", "public domain", "tools/train_bard.py", "seed"):
        assert needed in card, needed
    assert f"{sum(tensor.numel() for tensor in tensors.values()):,} parameters" in card
    assert f"{(BARD / 'model.safetensors').stat().st_size:,} bytes" in card
    assert f"{config.vocab} characters" in card
    assert float(re.search(r"\*\*([0-9.]+) nats a character\*\*", card)[1]) < 1.70


# ---- what it learned


def test_loss_on_a_held_out_passage(model: TextbookDecoder, vocabulary: list[str]) -> None:
    assert loss(model, vocabulary, PASSAGE) < PASSAGE_BOUND


def test_the_passage_scrambled_is_not_plausible(model: TextbookDecoder, vocabulary: list[str]) -> None:
    order = torch.randperm(len(PASSAGE), generator=torch.Generator().manual_seed(0)).tolist()
    assert loss(model, vocabulary, "".join(PASSAGE[i] for i in order)) > math.log(len(vocabulary)) - 1


def interleaved_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    even, odd, c, s = x[..., ::2], x[..., 1::2], cos[:, :half], sin[:, :half]
    return torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2)


WRONG_CONVENTIONS = {
    "interleaved RoPE": ("apply_rope", interleaved_rope),
    "RoPE turned backwards": ("apply_rope", lambda x, cos, sin: x * cos - textbook.rotate_half(x) * sin),
    "no RoPE": ("apply_rope", lambda x, cos, sin: x),
    "KV heads dealt round": ("repeat_kv", lambda x, groups: x.repeat(1, groups, 1, 1)),
}


@pytest.mark.parametrize("name", WRONG_CONVENTIONS)
def test_a_wrong_convention_breaks_the_bound(
    name: str, model: TextbookDecoder, vocabulary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, replacement = WRONG_CONVENTIONS[name]
    monkeypatch.setattr(textbook, function, replacement)
    assert loss(model, vocabulary, PASSAGE) > PASSAGE_BOUND + 0.1


def test_it_works_up_to_its_full_context(model: TextbookDecoder, vocabulary: list[str], config: DecoderConfig) -> None:
    """128 characters cost no more at the end of a full context than alone; an untrained distance would cost over 1."""
    text = ("To be continued.\n\n" + PASSAGE * 2)[: config.max_context + 1]
    ids = torch.tensor([vocabulary.index(character) for character in text])
    with torch.no_grad():
        late = F.cross_entropy(model(ids[None, :-1])[0, -128:], ids[-128:])
        alone = F.cross_entropy(model(ids[None, -129:-1])[0], ids[-128:])
    assert len(ids) == config.max_context + 1
    assert late < alone + 0.1


# ---- the trainer


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_bard", ROOT / "tools" / "train_bard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TINY = DecoderConfig(
    layers=2,
    hidden=16,
    ffn=24,
    heads=4,
    kv_heads=2,
    head_dim=4,
    vocab=11,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tied=True,
    max_context=512,
)


def test_the_trained_network_is_the_textbook_network(trainer: ModuleType) -> None:
    """The fast forward that is trained gives the exported textbook model's logits; the bound is fp32 rounding."""
    weights = trainer.init_weights(TINY, seed=1)
    with torch.no_grad():
        for name, weight in weights.items():
            if name.startswith("norm"):
                weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(2))
            weight.copy_(weight.half())
        ids = torch.randint(TINY.vocab, (2, 30), generator=torch.Generator().manual_seed(3))
        tables = textbook.rope_tables(torch.arange(30), TINY.head_dim, TINY.rope_theta, torch.float32)
        fast = trainer.fast_logits(weights, TINY, ids, *tables)
        plain = trainer.textbook(TINY, trainer.to_llama_names(weights, TINY))(ids)
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-5)


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    trainer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(TINY.vocab, (3000,), generator=torch.Generator().manual_seed(4))
    options = argparse.Namespace(seed=7, steps=6, every=3, work=tmp_path, resume=False)
    last, halfway = tmp_path / "last.pt", tmp_path / "halfway.pt"
    save = trainer.save

    def save_and_keep_the_first(state: dict, path: Path) -> None:
        save(state, path)
        if path == last and not halfway.exists():
            shutil.copy(last, halfway)

    monkeypatch.setattr(trainer, "save", save_and_keep_the_first)
    trainer.train(options, TINY, ids, ids)
    unbroken = torch.load(last)["weights"]
    shutil.copy(halfway, last)
    assert torch.load(last)["step"] == 3
    options.resume = True
    trainer.train(options, TINY, ids, ids)
    resumed = torch.load(last)["weights"]
    assert all(torch.equal(resumed[name], unbroken[name]) for name in unbroken)


def test_rare_characters_and_held_out_plays_make_no_vocabulary(trainer: ModuleType) -> None:
    texts = {"a_gut.txt": "ab" * 40 + "z", trainer.HELD_OUT[0]: "q" * 100}
    assert trainer.make_vocabulary(texts) == "ab"
    assert trainer.encode("bazqb", "ab").tolist() == [1, 0, 1]


def test_texts_are_normalised_by_line_ends_and_blank_lines(trainer: ModuleType) -> None:
    assert trainer.normalise("\n\nA  \r\n\r\n\r\n\r\n\tB\rC") == "A\n\n    B\nC\n\n"
