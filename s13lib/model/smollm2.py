"""SmolLM2-135M-Instruct, a real model, read from the 4-bit GGUF file that ``python3 run.py smollm`` fetches.

The file is pinned by its SHA-256, so what is checked once, here, needs no further checks. Its matrices are Q4_1, its
embedding, which is also its head, is Q8_0, its norms are float32; all are widened to float32, 538 MB.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from s13lib.errors import InputError
from s13lib.kernels.textbook import DecoderConfig
from s13lib.model.checkpoints import Checkpoint
from s13lib.progress import Progress

if TYPE_CHECKING:
    from gguf import GGUFReader

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# The model was trained on 8,192 tokens. A cache costs 46 KB a token (keys and values of 3 heads of 64, 30 layers,
# float32), and DecoderModel makes room for 8 sequences of full length: 0.75 GB at 2,048 tokens, 3 GB at 8,192.
MAX_CONTEXT = 2048

# llama.cpp's names of a layer's tensors, and Hugging Face's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CONTROL = 3  # llama.cpp's token type of <|im_start|> and its like


class BpeTokenizer:
    """Byte-level BPE as SmolLM2 has it: each digit is a token of its own, then GPT-2's rules.

    Args:
        tokens: token i in GPT-2's byte alphabet, where Ġ is a space.
        merges: pairs, each "left right", the first merged first.
        special: tokens that are recognised as a whole in a text, such as ``<|im_start|>``.
    """

    def __init__(self, tokens: Sequence[str], merges: Iterable[str], special: Iterable[str]) -> None:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        pairs = [tuple(merge.split(" ")) for merge in merges]
        self._bpe = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self._bpe.decoder = decoders.ByteLevel()
        self._bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; nothing is put before or after it."""
        return self._bpe.encode(text).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``, special ones included. A character cut in two at an end reads as U+FFFD."""
        return self._bpe.decode(list(tokens), skip_special_tokens=False)


def models_folder() -> Path:
    """Where model files lie: ``S13_MODELS``, else ``models/`` in the project, else the user's cache folder."""
    if named := os.environ.get("S13_MODELS"):
        return Path(named)
    project = Path(__file__).resolve().parents[2]
    if (project / "tools" / "fetch_smollm.py").is_file():
        return project / "models"
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        caches = "~/Library/Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "s13lib" / "models"


def is_whole(path: Path) -> bool:
    """Whether ``path`` is the very file that this module reads."""
    if path.stat().st_size != FILE_BYTES:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == FILE_SHA256


def load(progress: bool = True) -> Checkpoint:
    """Load the checkpoint; takes seconds, and with ``progress`` shows how far it is.

    Raises:
        InputError: the file or a package that reads it is missing, or the file is damaged.
    """
    path = models_folder() / FILE
    if not path.is_file():
        raise InputError(
            f"smollm2: {path} is missing: fetch it with `python3 run.py smollm` in the project's folder, or set "
            "S13_MODELS to the folder that holds it."
        )
    # In units of about one tensor's widening; 30 for importing and checking, 270 for the reader's pass over the file.
    with Progress("loading SmolLM2", 30 + 270 + 272, stream=None if progress else io.StringIO()) as bar:
        try:
            import tokenizers  # noqa: F401 — so that it is missed here, not later
            from gguf import GGUFReader
        except ImportError as error:
            raise InputError(
                f"smollm2: the package {error.name} is missing: `python3 run.py smollm` installs it, and so does "
                "`pip install 's13lib[real-model]'`."
            ) from None
        try:
            whole = is_whole(path)
        except OSError as error:
            raise InputError(f"smollm2: {path} cannot be read: {error.strerror}.") from None
        if not whole:
            raise InputError(
                f"smollm2: {path} is damaged, or another file than the one expected: `python3 run.py smollm` "
                "fetches it anew."
            )
        bar.update(30)
        with ThreadPoolExecutor(1) as pool:  # so that the bar shows while the reader, which reports nothing, works
            reading = pool.submit(GGUFReader, path)
            while not wait([reading], timeout=0.2).done:
                bar.update(0)
        reader = reading.result()
        bar.update(270)
        config = read_config(reader)
        state = {}
        for tensor in reader.tensors:
            weight = widened(tensor.data, tensor.tensor_type)
            if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
                weight = half_split_rows(weight, config.head_dim)
            state[hugging_face_name(tensor.name)] = weight
            bar.update()
        end = metadata(reader, "tokenizer.ggml.eos_token_id")
        return Checkpoint("smollm2", config, state, read_tokenizer(reader), end)


def metadata(reader: GGUFReader, key: str) -> object:
    """A value of the file's metadata, as Python has it."""
    return reader.get_field(key).contents()


def read_config(reader: GGUFReader) -> DecoderConfig:
    """The model's shape, from the file's metadata; its context is cut to ``MAX_CONTEXT``."""
    return DecoderConfig(
        layers=metadata(reader, "llama.block_count"),
        hidden=metadata(reader, "llama.embedding_length"),
        ffn=metadata(reader, "llama.feed_forward_length"),
        heads=metadata(reader, "llama.attention.head_count"),
        kv_heads=metadata(reader, "llama.attention.head_count_kv"),
        head_dim=metadata(reader, "llama.rope.dimension_count"),
        vocab=metadata(reader, "llama.vocab_size"),
        rope_theta=metadata(reader, "llama.rope.freq_base"),
        norm_eps=metadata(reader, "llama.attention.layer_norm_rms_epsilon"),
        tied=all(tensor.name != "output.weight" for tensor in reader.tensors),
        max_context=min(metadata(reader, "llama.context_length"), MAX_CONTEXT),
    )


def read_tokenizer(reader: GGUFReader) -> BpeTokenizer:
    """The tokenizer, from the file's metadata."""
    tokens = metadata(reader, "tokenizer.ggml.tokens")
    kinds = metadata(reader, "tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    return BpeTokenizer(tokens, metadata(reader, "tokenizer.ggml.merges"), special)


def widened(data: np.ndarray, kind: object) -> Tensor:
    """A stored tensor as float32, in memory of its own: float32 ones would else be views of the file."""
    from gguf.quants import dequantize

    return torch.from_numpy(np.require(dequantize(data, kind), requirements="W"))


def half_split_rows(weight: Tensor, head_dim: int) -> Tensor:
    """Put the rows of a q or k projection, (heads · head_dim, hidden), back into the half-split order of RoPE's pairs.

    llama.cpp turns neighbours (2i, 2i + 1), so its converter interleaves each head's halves; Hugging Face's Llama, like
    this library, turns (i, i + head_dim/2). Source: llama.cpp, ``LlamaModel.permute`` in ``convert_hf_to_gguf.py``.
    """
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def hugging_face_name(name: str) -> str:
    """``blk.3.attn_q.weight`` → ``model.layers.3.self_attn.q_proj.weight``."""
    *block, part, suffix = name.split(".")
    return f"model.layers.{block[1]}.{LAYER_NAMES[part]}.{suffix}" if block else f"{TOP_NAMES[part]}.{suffix}"
