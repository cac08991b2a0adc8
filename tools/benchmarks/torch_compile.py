"""torch.compile on a CPU: step time beside SoftGPU, seconds to compile, and how often it compiles again.

The step is the textbook decoder's, at a context of 64 tokens. For step times each batch size is compiled for itself
(``dynamic=False``), torch's strongest case, and with an empty cache.
"""

from __future__ import annotations

import os
import tempfile
import time

import torch

from s13lib.device import best_device
from s13lib.errors import InputError, require
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling.compiled import compilations, cpp_compiler, textbook_step
from s13lib.profiling.measure import measure_steps
from tools.benchmarks.decode import CONTEXT, reading, steps_of
from tools.benchmarks.harness import Reading, Row, missing
from tools.evidence.claims import COMPILED_BATCHES, COMPILED_MODELS, DYNAMIC, GROWTH


def rows(quick: bool = False) -> list[Row]:
    torch.set_num_threads(1)
    result = recompiled_rows()
    for name in COMPILED_MODELS:
        keys = {
            batch: {what: f"torch_compile.{name}.b{batch}.{what}" for what in ("step", "eager", "compile")}
            for batch in COMPILED_BATCHES
        }
        try:
            require(cpp_compiler() is not None, "the C++ compiler", None, "there: torch.compile needs one on a CPU")
            checkpoint = load_checkpoint(name)
        except InputError as reason:
            result += missing((key for each in keys.values() for key in each.values()), reason)
            continue
        for batch in COMPILED_BATCHES:
            result += step_rows(checkpoint, batch, keys[batch], 5 if quick else 10)
    return result


def step_rows(checkpoint: Checkpoint, batch: int, keys: dict[str, str], repeats: int) -> list[Row]:
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        compiled = textbook_step(checkpoint, batch, CONTEXT, lambda decoder: torch.compile(decoder, dynamic=False))
        start = time.perf_counter()
        compiled()
        seconds = time.perf_counter() - start
        ours = steps_of(checkpoint, batch, (4,))["stage 4 graph"]
        launches = {"ours": ours, "compiled": compiled, "eager": textbook_step(checkpoint, batch, CONTEXT)}
        m = measure_steps(best_device(default="softgpu"), launches, repeats, recorded=1)
    us = {name: reading(step) for name, step in m.items()}
    return [
        Row(keys["step"], us["ours"], us["compiled"]),
        Row(keys["eager"], us["compiled"], us["eager"]),
        Row(keys["compile"], Reading(seconds)),
    ]


def recompiled_rows() -> list[Row]:
    """Compilations while the batch, or the context, takes ``GROWTH`` values one after the other."""
    bard = load_checkpoint("bard")
    met = {
        "batch": [(n, CONTEXT) for n in range(1, GROWTH + 1)],
        "context": [(1, CONTEXT + n) for n in range(GROWTH)],
    }
    return [
        Row(f"torch_compile.recompiled.{vary}.{key}", Reading(compilations(bard, sizes, dynamic)))
        for vary, sizes in met.items()
        for key, dynamic in DYNAMIC.items()
    ]
