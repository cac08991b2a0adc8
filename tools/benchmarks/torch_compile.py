"""torch.compile on a CPU: step time beside SoftGPU, seconds to compile, and how often it compiles again.

The step is the textbook decoder's, at a context of 64 tokens. For step times each batch size is compiled for itself
(``dynamic=False``), torch's strongest case, and with an empty cache. Compilations are counted with Dynamo alone (its
guards decide, whatever generates the code), over the first layers of bard: the count does not depend on the depth.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import tempfile
import time

import torch

from s13lib.device import best_device
from s13lib.errors import InputError
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.measure import measure_steps
from tools.benchmarks.decode import CONTEXT, reading, steps_of, torch_step
from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import COMPILED_BATCHES, COMPILED_MODELS, DYNAMIC, GROWTH

COUNTED_LAYERS = 2


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    result = recompiled_rows()
    for name in COMPILED_MODELS:
        for batch in COMPILED_BATCHES:
            keys = {what: f"torch_compile.{name}.b{batch}.{what}" for what in ("step", "eager", "compile")}
            try:
                result += step_rows(load_checkpoint(name), batch, keys, 10 if quick else 40)
            except InputError as reason:
                result += missing(keys.values(), reason)
    return result


def step_rows(checkpoint: Checkpoint, batch: int, keys: dict[str, str], repeats: int) -> list[Row]:
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        return missing(keys.values(), "torch.compile needs a C++ compiler on a CPU, and none was found.")
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        compiled = torch_step(checkpoint, batch, wrap=lambda decoder: torch.compile(decoder, dynamic=False))
        start = time.perf_counter()
        compiled()
        seconds = time.perf_counter() - start
        ours = steps_of(checkpoint, batch, (4,))["stage 4 graph"]
        launches = {"ours": ours, "compiled": compiled, "eager": torch_step(checkpoint, batch)}
        m = measure_steps(best_device(), launches, repeats, recorded=1)
    us = {name: reading(step) for name, step in m.items()}
    return [
        Row(keys["step"], us["ours"], us["compiled"]),
        Row(keys["eager"], us["compiled"], us["eager"]),
        Row(keys["compile"], Reading(seconds)),
    ]


def recompiled_rows() -> list[Row]:
    """Compilations while the batch, or the context, takes ``GROWTH`` values one after the other."""
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # that it stops compiling at its limit is counted below
    bard = load_checkpoint("bard")
    shallow = dataclasses.replace(bard, config=dataclasses.replace(bard.config, layers=COUNTED_LAYERS))
    layers = tuple(f"model.layers.{n}." for n in range(COUNTED_LAYERS, bard.config.layers))
    state = {name: tensor for name, tensor in bard.state.items() if not name.startswith(layers)}
    shallow = dataclasses.replace(shallow, state=state)
    sizes = {
        "batch": [(n, CONTEXT) for n in range(1, GROWTH + 1)],
        "context": [(1, CONTEXT + n) for n in range(GROWTH)],
    }
    return [
        Row(f"torch_compile.recompiled.{vary}.{key}", Reading(compilations(shallow, met, dynamic)))
        for vary, met in sizes.items()
        for key, dynamic in DYNAMIC.items()
    ]


def compilations(checkpoint: Checkpoint, met: list[tuple[int, int]], dynamic: bool | None) -> int:
    """How many graphs Dynamo makes while it meets these (batch, context) sizes."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    decoder = checkpoint.textbook()
    compiled = torch.compile(decoder, dynamic=dynamic, backend="eager")
    for batch, context in met:
        cache = decoder.new_cache()
        decoder(torch.zeros((batch, context - 1), dtype=torch.int64), cache)
        compiled(torch.ones((batch, 1), dtype=torch.int64), cache)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
