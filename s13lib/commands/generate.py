"""Continue a prompt with a real model on this machine's device, at the fusion stage of your choice.

example:
  s13 generate
  s13 generate --prompt "ROMEO." --tokens 300 --temperature 0.8 --stage 4
  s13 generate --model smollm2 --prompt "Once upon a time" --tokens 64
  s13 generate --model smollm2 --weight-format q8_0
"""

from __future__ import annotations

import argparse
import sys
import time

from s13lib.commands.decode import STAGES_HELP, chosen_stage
from s13lib.commands.output import number, print_json, stage, whole
from s13lib.kernels.quantised import F32_FORMAT, FORMATS
from s13lib.model import Generation, Sampling, generate
from s13lib.model.checkpoints import CHECKPOINTS, load_checkpoint

PROMPTS = {"bard": "JULIET.\n", "smollm2": "Once upon a time"}
DEFAULT_STAGE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--model", default="bard", metavar="NAME", help=f"one of {', '.join(CHECKPOINTS)} (default bard)")
    add("--prompt", metavar="TEXT", help="what to continue (default: one that suits the model)")
    add("--tokens", type=whole, default=200, metavar="N", help="most tokens to make (default 200)")
    add("--stage", type=stage, metavar="N", help=f"{STAGES_HELP} (default the most fused)")
    formats = ", ".join((F32_FORMAT, *FORMATS))
    add("--weight-format", default=F32_FORMAT, metavar="NAME", help=f"one of {formats} (default {F32_FORMAT})")
    add("--temperature", type=number, metavar="T", help="0 is greedy (default: bard 0.8, smollm2 0)")
    add("--top-k", type=whole, metavar="K", help="keep the K likeliest tokens")
    add("--seed", type=whole, default=0, metavar="N", help="of the sampling (default 0)")
    add("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    temperature = arguments.temperature
    if temperature is None:
        temperature = 0.8 if arguments.model == "bard" else 0.0  # a character model loops when it is greedy
    sampling = Sampling(temperature, arguments.top_k, arguments.seed)
    arguments.stage = chosen_stage(arguments.stage, DEFAULT_STAGE)
    checkpoint = load_checkpoint(arguments.model)
    prompt = PROMPTS[arguments.model] if arguments.prompt is None else arguments.prompt
    tokens = checkpoint.tokenizer.encode(prompt)
    block_size = 16
    blocks = max(1, -(-(len(tokens) + max(arguments.tokens, 0)) // block_size))
    model = checkpoint.model(
        chosen_stage(arguments.stage, DEFAULT_STAGE),
        weight_format=arguments.weight_format,
        blocks=min(blocks, 4096),
        block_size=block_size,
    )

    shown = ""

    def show(request: Generation) -> None:
        nonlocal shown
        if len(request.tokens) == 1:
            sys.stdout.write(prompt)
        text = checkpoint.tokenizer.decode(request.tokens)
        if not text.endswith("\ufffd"):  # a character whose bytes are not all there yet
            sys.stdout.write(text[len(shown) :])
            sys.stdout.flush()
            shown = text

    started = time.perf_counter()
    on_token = (lambda request: None) if arguments.json else show
    (made,) = generate(model, [tokens], arguments.tokens, sampling, end=checkpoint.end, on_token=on_token)
    seconds = time.perf_counter() - started
    if arguments.json:
        print_json(
            {
                "source": "measured",
                "device": model.device.banner(),
                "model": checkpoint.name,
                "stage": model.stage,
                "weight_format": arguments.weight_format,
                "prompt": prompt,
                "text": checkpoint.tokenizer.decode(made),
                "tokens": made,
                "seconds": seconds,
                "tokens_per_second": len(made) / seconds,
            }
        )
    else:
        print(f"\n\n{len(made)} tokens in {seconds:.2f} s: {len(made) / seconds:,.0f} a second, prefill included.")
        weights = f"{model.stage} kernels a layer, weights in {arguments.weight_format}"
        print(f"Measured: {checkpoint.name}, {weights}, eager, on {model.device.banner()}.")
    return 0
