"""torch.compile as a peer: the textbook decoder's decode step, compiled or not, and how often it is compiled anew."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Callable, Iterable

import torch

from s13lib.model.checkpoints import Checkpoint

COUNTED_LAYERS = 2


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile needs on a CPU; None if none is found."""
    return next((found for name in ("c++", "g++", "clang++", "cl") if (found := shutil.which(name))), None)


def textbook_step(
    checkpoint: Checkpoint, batch: int, context: int, wrap: Callable[[Callable], Callable] = lambda decoder: decoder
) -> Callable[[], torch.Tensor]:
    """A function that runs one decode step of the textbook decoder on the CPU and returns its logits (batch, 1, vocab).

    Each call makes the ``context``-th token of ``batch`` requests: its cache is cut back first. ``wrap`` may compile.
    """
    decoder = checkpoint.textbook()
    cache = decoder.new_cache()
    decoder(torch.zeros((batch, context - 1), dtype=torch.int64), cache)
    kept = list(cache)
    token = torch.ones((batch, 1), dtype=torch.int64)
    run = wrap(decoder)

    def step() -> torch.Tensor:
        cache[:] = kept
        return run(token, cache)

    return step


def compilations(checkpoint: Checkpoint, sizes: Iterable[tuple[int, int]], dynamic: bool | None = None) -> int:
    """How often torch.compile compiles a decode step that meets these (batch, context) sizes one after the other.

    Counted with Dynamo alone: its guards decide when to compile, whatever then generates the code. And over the first
    two layers: the count does not depend on the depth, only the wait does. ``dynamic`` is torch.compile's. Beyond
    ``torch._dynamo.config.recompile_limit`` (8) torch compiles no more and runs eager.
    """
    gone = tuple(f"model.layers.{n}." for n in range(COUNTED_LAYERS, checkpoint.config.layers))
    shallow = dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, layers=min(COUNTED_LAYERS, checkpoint.config.layers)),
        state={name: tensor for name, tensor in checkpoint.state.items() if not name.startswith(gone)},
    )
    decoder = shallow.textbook()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(decoder, dynamic=dynamic, backend="eager")
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns at its limit, which is what is counted here
    try:
        for batch, context in sizes:
            cache = decoder.new_cache()
            decoder(torch.zeros((batch, context - 1), dtype=torch.int64), cache)
            compiled(torch.ones((batch, 1), dtype=torch.int64), cache)
    finally:
        log.setLevel(level)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
