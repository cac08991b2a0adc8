"""SmolLM2-135M greedily, one thread, beside llama.cpp: the same weights in the same format, the same prompt.

A token's time is the whole loop's: the step, its logits, and the pick of the next token in Python, on both sides. Every
round makes the same tokens, so each token has its own quietest repeat, and the rate is that of their sum.
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median

import torch

from s13lib.errors import InputError
from s13lib.graphs import GraphRunner
from s13lib.model import DecoderModel, Sequence
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.model.smollm2 import FILE, models_folder
from s13lib.profiling.steps import blocks_needed
from tools import llamacpp
from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import LLAMA_FORMATS

PROMPT = "Once upon a time"
TOKENS = 64


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    try:
        smollm2 = load_checkpoint("smollm2")
    except InputError as reason:
        return [row for format in LLAMA_FORMATS for row in left_out(format, reason)]
    result: list[Row] = []
    for format in LLAMA_FORMATS:
        try:
            result += format_rows(smollm2, format, 2 if quick else 5)
        except (InputError, llamacpp.NotThere) as reason:
            result += left_out(format, reason)
    return result


def left_out(format: str, reason: object) -> list[Row]:
    return missing((f"llama_cpp.{format}.{what}" for what in ("rate", "moved", "reached")), reason)


def format_rows(smollm2: Checkpoint, format: str, rounds: int) -> list[Row]:
    prompt = smollm2.tokenizer.encode(PROMPT)
    model, runner = our_model(smollm2, format, len(prompt))
    path = llamacpp.converted(models_folder() / FILE, format)
    ours, theirs, their_bytes = [], [], 0
    decode(model, runner, prompt)  # unmeasured: memory is touched, kernels are there
    for _ in range(rounds):  # each side has the processor to itself, in turn
        ours.append(decode(model, runner, prompt))
        made = llamacpp.decode(path, prompt, TOKENS, rounds=2)
        theirs, their_bytes = theirs + made["seconds"], made["bytes"]
    ours_s, theirs_s = seconds_a_token(ours), seconds_a_token(theirs)
    ours_mb, theirs_mb = model.weights.step_bytes / 1e6, their_bytes / 1e6
    return [
        Row(f"llama_cpp.{format}.rate", ours_s.rate(1), theirs_s.rate(1)),
        Row(f"llama_cpp.{format}.moved", Reading(ours_mb), Reading(theirs_mb)),
        Row(f"llama_cpp.{format}.reached", ours_s.rate(ours_mb / 1e3), theirs_s.rate(theirs_mb / 1e3)),
    ]


def our_model(smollm2: Checkpoint, format: str, prompt: int) -> tuple[DecoderModel, GraphRunner]:
    """Stage 4 as one graph of batch 1."""
    blocks = blocks_needed(1, prompt + TOKENS + 1)
    model = smollm2.model(4, weight_format=format, max_rows=64, blocks=blocks)
    return model, GraphRunner(model, 1)


def seconds_a_token(rounds: list[list[float]]) -> Reading:
    """The mean over the tokens of each one's quietest repeat; the spread is that of whole rounds."""
    quietest = sum(min(repeats) for repeats in zip(*rounds, strict=True))
    return Reading(quietest / TOKENS, median(map(sum, rounds)) / quietest - 1)


def decode(model: DecoderModel, runner: GraphRunner, prompt: list[int]) -> list[float]:
    """Seconds of each of ``TOKENS`` greedy tokens after the prompt."""
    sequence = Sequence("measured")
    token = int(model.prefill(sequence, prompt).argmax())
    times = [time.perf_counter()]
    for _ in range(TOKENS):
        token = int(runner.run(model.next_batch([sequence], [token])).argmax())
        times.append(time.perf_counter())
    model.cache.release(sequence)
    return [after - before for before, after in pairwise(times)]
