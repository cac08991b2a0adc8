"""Two built-in workloads, ``chat`` and ``code``: modelled traffic, the same at every call.

Modelled after the public statistics of the Azure LLM inference traces of November 2023 (Azure/AzurePublicDataset,
CC-BY 4.0; P. Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting", ISCA 2024):
conversation, 19,366 requests in 3,502 s with 129 output tokens in the median and 211 in the mean; code, 8,819 requests
in about 3,435 s with 13 and 28. Arrivals are Poisson, which real ones are not (they come in bursts and in waves of the
day), and output lengths log-normal with that median and mean. No line of the traces is in this project.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from s13lib.buckets.layout import batch_size
from s13lib.buckets.traffic import Traffic, running_batches, steps_per_nanosecond
from s13lib.errors import look_up


@dataclass(frozen=True)
class Workload:
    """What a generator needs to know: arrivals per second, and the median and mean of the output tokens."""

    requests_per_s: float
    median_tokens: float
    mean_tokens: float

    def full_load(self, cap: int = 256, step_ms: float = 25.0) -> float:
        """Return the load factor that offers 1.25 × what ``cap`` running requests serve, so that they always run."""
        offered = self.requests_per_s * self.mean_tokens * step_ms / 1000  # Little's law: the mean running batch
        return 1.25 * batch_size(cap, "cap") / offered


WORKLOADS = {
    "chat": Workload(requests_per_s=19_366 / 3_502, median_tokens=129, mean_tokens=211),
    "code": Workload(requests_per_s=8_819 / 3_435, median_tokens=13, mean_tokens=28),
}


def generate(
    workload: str, load: float = 1.0, cap: int = 256, step_ms: float = 25.0, requests: int = 16_000, seed: int = 13
) -> Traffic:
    """Make the traffic of ``requests`` requests of a built-in workload, up to the last arrival.

    Args:
        workload: ``"chat"`` or ``"code"``.
        load: multiplies the rate of arrival; ``WORKLOADS[workload].full_load(cap)`` keeps ``cap`` requests running.
        cap: most requests that run together.
        step_ms: the time of a decode step, in ms.
        requests: how many requests arrive.
        seed: of Python's own generator; the same seed gives the same traffic on every machine.
    """
    shape = look_up(WORKLOADS, workload, "workload")
    steps_per_s = float(steps_per_nanosecond(step_ms, load) * 10**9)

    def arrivals() -> Iterator[tuple[int, int]]:
        draw = random.Random(f"{workload} {seed}")
        mu, sigma = math.log(shape.median_tokens), math.sqrt(2 * math.log(shape.mean_tokens / shape.median_tokens))
        now_s = 0.0
        for _ in range(requests):
            now_s += draw.expovariate(shape.requests_per_s)
            yield math.ceil(now_s * steps_per_s), max(1, round(draw.lognormvariate(mu, sigma)))

    # Stopping at the last arrival leaves out the long emptying of the engine, which a service that goes on never shows.
    runs = running_batches(arrivals(), cap, drain=False)
    origin = f"modelled: {workload} (Azure 2023 statistics), load ×{load:.4g}, {step_ms:g} ms a step"
    return Traffic.from_runs(runs, workload if load == 1 else f"{workload} ×{load:.3g}", origin)


def chat(load: float = 1.0, cap: int = 256, step_ms: float = 25.0) -> Traffic:
    """Make chat traffic (modelled): about 29 requests run at load 1. See ``generate``."""
    return generate("chat", load, cap, step_ms)


def code(load: float = 1.0, cap: int = 256, step_ms: float = 25.0) -> Traffic:
    """Make code-completion traffic (modelled): about 2 requests run at load 1. See ``generate``."""
    return generate("code", load, cap, step_ms)
