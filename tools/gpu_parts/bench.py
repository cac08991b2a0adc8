"""What every part needs: the device, models with random weights, truth in float64, times, and lines of results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TextIO, TypeVar

import torch
from torch import Tensor

from gpu_parts.dry import DryDevice
from s13lib.device import CudaDevice
from s13lib.kernels import reference
from s13lib.model import DecodeBatch, DecoderConfig, DecoderModel, DecoderWeights, Sequence
from s13lib.model.stages import TORCH, Stage, final_norm, layer_15, shared
from s13lib.model.weights import LayerWeights, RandomState
from s13lib.simulator.shapes import MODELS

K = TypeVar("K")

STAGES: tuple[Stage, ...] = (TORCH, 7, 5)
SHAPES = ("smollm2-360m", "llama-3.2-1b", "llama-3-8b")
# What a shape of the simulator leaves open (config.json of the same repositories): RoPE's theta, and a tied head.
THETA_AND_TIED = {"smollm2-360m": (1e5, True), "llama-3.2-1b": (5e5, True), "llama-3-8b": (5e5, False)}
CONTEXT = 512
BLOCK_SIZE = 16
MOST_ERROR = 8  # in units of the weights' roundoff, relative to the largest value: see ``error_units``


class NotInDryMode(Exception):
    """This needs a GPU."""


@dataclass
class Bench:
    """One part's surroundings.

    Args:
        part: its name.
        out: where its lines go, JSON, one a line, each written at once: what a killed part found is not lost.
        folder: where files go.
        dry: no GPU.
        seed: of all random numbers.
    """

    part: str
    out: TextIO
    folder: Path
    dry: bool
    seed: int

    @cached_property
    def device(self) -> CudaDevice:
        """Made at first use: a part that forks must not have woken CUDA before."""
        return DryDevice() if self.dry else CudaDevice()

    @cached_property
    def random(self) -> torch.Generator:
        """The host's random numbers."""
        return torch.Generator().manual_seed(self.seed)

    def line(self, name: str, value: object, unit: str = "", ok: bool | None = None, **facts: object) -> None:
        """Write a result: ``ok`` says whether a check held, None for a measurement; ``facts`` are for the goals."""
        row = {"part": self.part, "name": name, "value": value, "unit": unit, "ok": ok, **facts}
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()

    def needs_gpu(self) -> None:
        """End the part here in the dry mode."""
        if self.dry:
            raise NotInDryMode

    # ---- models

    def small_config(self) -> DecoderConfig:
        """SmolLM2-135M's widths, four layers; in the dry mode a toy."""
        if self.dry:
            return DecoderConfig(1, 16, 16, 1, 1, 16, 12, 1e4, 1e-5, True, 32)
        s = MODELS["smollm2-135m"]
        return DecoderConfig(4, s.hidden, s.ffn, s.heads, s.kv_heads, s.head_dim, s.vocab, 1e5, 1e-5, True, 1024)

    def config(self, name: str, layers: int | None = None) -> DecoderConfig:
        """The shape of that name with room for ``CONTEXT`` tokens and a few more; in the dry mode a toy."""
        if self.dry:
            return self.small_config()
        s, (theta, tied) = MODELS[name], THETA_AND_TIED[name]
        return DecoderConfig(
            layers or s.layers,
            s.hidden,
            s.ffn,
            s.heads,
            s.kv_heads,
            s.head_dim,
            s.vocab,
            theta,
            1e-5,
            tied,
            CONTEXT + BLOCK_SIZE,
        )

    def models(
        self, config: DecoderConfig, rows: int, stages: tuple[Stage, ...] = STAGES, context: int = CONTEXT
    ) -> dict[Stage, DecoderModel]:
        """A model for each stage, all with the same random weights and the same cache, which holds random numbers."""
        weights = DecoderWeights.from_state_dict(
            config, RandomState(config, self.device, self.seed), self.device, progress=False
        )
        blocks, found, cache = rows * -(-min(context, config.max_context) // BLOCK_SIZE), {}, None
        for stage in stages:
            model = DecoderModel(config, weights, stage, self.device, rows, 1 if found else blocks, BLOCK_SIZE)
            if cache is None:
                cache = model.cache
                stream = torch.Generator(self.device.where).manual_seed(self.seed)
                for tensor in cache.k + cache.v:
                    tensor.normal_(generator=stream)
            model.cache = cache
            found[stage] = model
        return found

    def batch(self, model: DecoderModel, rows: int, context: int) -> DecodeBatch:
        """``rows`` requests whose new token is their ``context``-th; the tokens before are whatever the cache holds."""
        sequences = [Sequence(f"request {row}") for row in range(rows)]
        for sequence in sequences:
            model.cache.extend(sequence, context - 1)
        tokens = torch.randint(model.config.vocab, (rows,), generator=self.random).tolist()
        batch = model.next_batch(sequences, tokens)
        for sequence in sequences:
            model.cache.release(sequence)  # the batch keeps their blocks, and the next batch may have them again
        return batch

    # ---- truth

    def logits_in_float64(self, model: DecoderModel, batch: DecodeBatch) -> Tensor:
        """What ``batch`` gives in exact arithmetic, from the model's own weights and cache as they lie there now."""
        config, weights = model.config, model.weights
        wide = DecodeBatch(*batch.tensors())
        angles = model.rope_rows(torch.arange(config.max_context, device=self.device.where))
        m = shared(config, *(table.double().cpu() for table in angles), wide)
        widths = {"hidden": config.hidden, "q": config.heads * config.head_dim, "kv": config.kv_heads * config.head_dim}
        widths |= {"ffn": config.ffn}
        names = {"x": "hidden", "normed": "hidden", "delta": "hidden", "q": "q", "q_rope": "q", "mixed": "q"}
        names |= {"k": "kv", "v": "kv", "k_rope": "kv", "gate": "ffn", "up": "ffn", "gated": "ffn"}
        b = SimpleNamespace(**{n: torch.zeros(batch.rows, widths[w], dtype=torch.float64) for n, w in names.items()})
        reference.embedding(batch.input_ids, _wide(weights.embedding), b.x)
        for number, layer in enumerate(weights.layers):
            exact = LayerWeights(**{name: _wide(getattr(layer, name)) for name in layer.__dataclass_fields__})
            layer_15(reference, m, exact, _wide(model.cache.k[number]), _wide(model.cache.v[number]), b, number == 0)
        final_norm(reference, m, _wide(weights.final_norm), b, 15)
        logits = torch.zeros(batch.rows, config.vocab, dtype=torch.float64)
        reference.linear(b.normed, _wide(weights.lm_head), logits)
        return logits

    # ---- time

    def burst_us(self, step: Callable[[], None], steps: int) -> float:
        """Microseconds a step over ``steps`` of them in a row, by CUDA events; in the dry mode by the host's clock."""
        self.device.synchronize()
        if self.dry:
            start = time.perf_counter()
            for _ in range(steps):
                step()
            return (time.perf_counter() - start) * 1e6 / steps
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / steps

    def medians_us(
        self, steps: Mapping[K, Callable[[], None]], rounds: int = 15, burst: int = 5, seconds: float = 4.0
    ) -> dict[K, float]:
        """The median of interleaved bursts of each step; fewer rounds, at least 3, once ``seconds`` have passed."""
        rounds, burst = (1, 1) if self.dry else (rounds, burst)
        times: dict[K, list[float]] = {name: [] for name in steps}
        for step in () if self.dry else steps.values():
            step()
        started = time.monotonic()
        for lap in range(rounds):
            for name, step in steps.items():
                times[name].append(self.burst_us(step, burst))
            if lap >= 2 and time.monotonic() - started > seconds:
                break
        return {name: median(found) for name, found in times.items()}

    def host_us(self, call: Callable[[], None], repeats: int, calls: int = 1) -> float:
        """The median of the host's own microseconds for a call that does not wait."""
        times = []
        for _ in range(1 if self.dry else repeats):
            self.device.synchronize()
            start = time.perf_counter_ns()
            for _ in range(calls):
                call()
            times.append((time.perf_counter_ns() - start) / 1e3 / calls)
        self.device.synchronize()
        return median(times)


def error_units(computed: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    """The largest error ÷ the largest exact value, in units of ``dtype``'s roundoff; 1e9 for NaN."""
    distance = (computed.double().cpu() - exact).abs().nan_to_num(nan=torch.inf).max()
    unit = torch.finfo(dtype).eps / 2
    return min(float(distance / exact.abs().max().clamp(min=1e-30) / unit), 1e9)


def step_bytes(model: DecoderModel, rows: int, context: int) -> int:
    """Bytes that a step cannot do without: weights of layers and head once, and all rows' keys and values."""
    weights = model.weights
    tensors = [weights.lm_head, weights.final_norm]
    for layer in weights.layers:
        tensors += [layer.norm, layer.qkv, layer.o, layer.norm_2, layer.gate_up, layer.down]
    c = model.config
    cache = 2 * c.layers * rows * context * c.kv_heads * c.head_dim * model.cache.k[0].itemsize
    return sum(tensor.nbytes for tensor in tensors) + cache


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double().cpu()
