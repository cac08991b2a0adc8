"""Continuous-batching generation on the shared scheduler: requests join, make a token a step, and leave."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch
from torch import Tensor

from s13lib.errors import InputError, require
from s13lib.model.batch import DecodeBatch
from s13lib.model.cache import Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.model.sampling import Sampling
from s13lib.progress import Progress
from s13lib.simulator.scheduler import Scheduler


@dataclass(eq=False)
class Generation:
    """One request: its prompt, what it has made so far, and where it lives in the cache."""

    number: int
    prompt: list[int]
    stream: torch.Generator
    tokens: list[int] = field(default_factory=list)
    sequence: Sequence = field(default_factory=Sequence)


def generate(
    model: DecoderModel,
    prompts: Many[Many[int]],
    tokens: int,
    sampling: Sampling = Sampling(),  # noqa: B008 — frozen
    max_batch: int = 64,
    end: int | None = None,
    step: Callable[[DecodeBatch], Tensor] | None = None,
    on_token: Callable[[Generation], None] = lambda request: None,
) -> list[list[int]]:
    """Generate up to ``tokens`` tokens after each prompt; requests are batched as they come and go.

    A request joins once the cache has room for all of it, so none is ever thrown out half-way.

    Args:
        model: its cache holds the sequences.
        prompts: token lists, none empty.
        tokens: most tokens to make for each.
        sampling: greedy by default.
        max_batch: most requests that run together.
        end: a token that ends a request; it is not part of the result.
        step: runs a decode batch and returns its logits, for instance a graph runner's; default: the model, eager.
        on_token: called with the request after each new token, for instance to print it.

    Returns the tokens made for each prompt, in order.
    """
    require(isinstance(tokens, int) and tokens >= 1, "tokens", tokens, "a whole number of at least 1")
    cache, step = model.cache, step or model.forward
    total_blocks = cache.allocator.blocks
    requests = []
    for number, prompt in enumerate(prompts):
        require(len(prompt) >= 1, f"prompt {number}", list(prompt), "at least one token")
        length = len(prompt) + tokens
        if length > cache.max_context:
            raise InputError(
                f"prompt {number} has {len(prompt)} tokens: with {tokens} new ones it exceeds the model's "
                f"{cache.max_context}."
            )
        if cache.blocks_for(length) > total_blocks:
            raise InputError(
                f"prompt {number} needs {cache.blocks_for(length)} cache blocks: there are {total_blocks}."
            )
        requests.append(Generation(number, list(prompt), sampling.stream(number)))

    promised: dict[Generation, int] = {}  # blocks that running requests may still claim

    def has_room(request: Generation) -> bool:
        needed = cache.blocks_for(len(request.prompt) + tokens)
        claimed = sum(blocks - len(r.sequence.blocks) for r, blocks in promised.items())
        if needed > cache.allocator.free_blocks - claimed:
            return False
        promised[request] = needed
        return True

    scheduler: Scheduler[Generation] = Scheduler(min(max_batch, model.max_rows), has_room)
    for request in requests:
        scheduler.submit(request, tokens)

    def accept(request: Generation, logits: Tensor) -> None:
        bar.update()
        token = sampling.choose(logits, request.stream)
        if token == end:
            scheduler.stop(request)
            leave(request)
        else:
            request.tokens.append(token)
            on_token(request)

    def leave(request: Generation) -> None:
        cache.release(request.sequence)
        del promised[request]

    try:
        with Progress("generating", len(requests) * tokens) as bar:
            while not scheduler.idle:
                fresh = scheduler.admit()
                running = [r for r in scheduler.running if r not in set(fresh)]
                if not fresh and not running:
                    raise InputError("the KV cache has no room for the next request: other sequences hold its blocks.")
                for request in fresh:  # prefill makes a request's first token, decode the others
                    accept(request, model.prefill(request.sequence, request.prompt))
                if running:
                    batch = model.next_batch([r.sequence for r in running], [r.tokens[-1] for r in running])
                    for request, logits in zip(running, step(batch), strict=True):
                        accept(request, logits)
                if scheduler.batch_size:
                    for request in scheduler.advance():
                        leave(request)
    finally:
        for request in promised:
            cache.release(request.sequence)
    return [request.tokens for request in requests]
