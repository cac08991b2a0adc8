"""The padding scenario: requests join and leave, blocks are recycled, and every request is also decoded alone.

A policy's run decides the tokens; the same tokens are then decoded without any padding in a cache of their own (the
shadow). What differs between the two is what the policy did.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from s13lib.buckets.layout import BucketLayout
from s13lib.errors import require
from s13lib.graphs.audit import BlockState, CacheAudit, Violation
from s13lib.graphs.bucketed import BucketedRunner
from s13lib.model.cache import Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.model.sampling import Sampling
from s13lib.simulator.scheduler import Scheduler

# Requests come in bursts, as real ones do: batches that only ever grow hide the stale bug.
PAUSE_STEPS = (4, 16)


@dataclass(eq=False)
class Request:
    """One request of the scenario: when it comes, what it asks, what it got under the policy."""

    name: str
    arrival: int
    prompt: list[int]
    tokens: int
    stream: torch.Generator
    sequence: Sequence
    shadow: Sequence = field(default_factory=Sequence)
    made: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StepRecord:
    """One decode step: what ran, what the audit saw, and what it did to the real rows.

    ``bucket`` is None for an eager step. ``corrupted_slots`` counts slots of running requests whose bytes differ from
    the shadow's after the step, ``rows_differing`` the real rows whose logits do.
    """

    step: int
    n: int
    bucket: int | None
    padding_rows: int
    violations: tuple[Violation, ...]
    corrupted_slots: int
    rows_differing: int
    largest_difference: float
    argmax_flips: int


@dataclass(frozen=True)
class ScenarioResult:
    """All steps, the tokens that each request got, and the cache's blocks at the worst step (for a picture)."""

    policy: str
    steps: tuple[StepRecord, ...]
    requests: tuple[Request, ...]
    block_map: tuple[BlockState, ...]


def run_scenario(
    model: DecoderModel,
    prompts: Many[list[int]],
    buckets: BucketLayout,
    padding: str,
    seed: int = 0,
    max_batch: int = 12,
    tokens: tuple[int, int] = (6, 40),
    sampling: Sampling = Sampling(temperature=0.8),  # noqa: B008 — frozen
) -> ScenarioResult:
    """Serve ``prompts`` under a padding policy and compare every step with each request decoded alone.

    Args:
        model: its cache serves the policy's run; a second model with the same weights is made for the shadow.
        prompts: one request each.
        buckets: captured sizes.
        padding: the policy's name.
        seed: of arrivals, lengths and sampling; the same seed gives the same run.
        max_batch: most requests that run together.
        tokens: fewest and most tokens that a request makes.
        sampling: how tokens are drawn.
    """
    require(len(prompts) >= 1, "prompts", prompts, "at least one")
    shadow = DecoderModel(
        model.config,
        model.weights,
        model.stage,
        model.device,
        max_rows=model.max_rows,
        blocks=model.cache.allocator.blocks,
        block_size=model.cache.block_size,
    )
    audit = CacheAudit(model.cache, padding, strict=False)
    runner = BucketedRunner(model, buckets, padding, audit=audit, progress=False)
    requests = _requests(prompts, seed, tokens, sampling)
    scheduler: Scheduler[Request] = Scheduler(max_batch)
    waiting, records, worst = list(requests), [], ()
    step = 0
    while waiting or not scheduler.idle:
        while waiting and waiting[0].arrival <= step:
            request = waiting.pop(0)
            scheduler.submit(request, request.tokens)
        for request in scheduler.admit():
            logits = model.prefill(request.sequence, request.prompt)
            shadow.prefill(request.shadow, request.prompt)
            request.made.append(sampling.choose(logits, request.stream))
        running = scheduler.running
        if running:
            record = _step(step, runner, shadow, running, audit, sampling)
            if record.corrupted_slots > max((r.corrupted_slots for r in records), default=0):
                worst = tuple(audit.block_map())
            records.append(record)
            for request in scheduler.advance():
                model.cache.release(request.sequence)
                shadow.cache.release(request.shadow)
        step += 1
    return ScenarioResult(padding, tuple(records), tuple(requests), worst or tuple(audit.block_map()))


def _requests(prompts: Many[list[int]], seed: int, tokens: tuple[int, int], sampling: Sampling) -> list[Request]:
    draw, arrival, requests = random.Random(seed), 0, []
    for number, prompt in enumerate(prompts):
        name = f"request {number}"
        made = draw.randint(*tokens)
        requests.append(Request(name, arrival, prompt, made, sampling.stream(number), Sequence(name)))
        if draw.random() < 0.3:
            arrival += draw.randint(*PAUSE_STEPS)
    return requests


def _step(
    step: int,
    runner: BucketedRunner,
    shadow: DecoderModel,
    running: list[Request],
    audit: CacheAudit,
    sampling: Sampling,
) -> StepRecord:
    model, n = runner.model, len(running)
    seen = len(audit.violations)
    fed = [request.made[-1] for request in running]
    logits = runner.forward(model.next_batch([r.sequence for r in running], fed))
    alone = shadow.decode(
        [r.shadow for r in running], fed
    )  # row by row what each gets alone: a property of the kernels
    for request, row in zip(running, logits, strict=True):
        request.made.append(sampling.choose(row, request.stream))
    differ = (logits != alone).any(dim=1)
    bucket = runner.layout.pick(n)
    return StepRecord(
        step=step,
        n=n,
        bucket=bucket,
        padding_rows=0 if bucket is None else bucket - n,
        violations=tuple(audit.violations[seen:]),
        corrupted_slots=sum(corrupted_slots(model, r.sequence, shadow, r.shadow) for r in running),
        rows_differing=int(differ.sum()),
        largest_difference=float((logits - alone).abs().max()),
        argmax_flips=int((logits.argmax(1) != alone.argmax(1)).sum()),
    )


def corrupted_slots(model: DecoderModel, sequence: Sequence, shadow: DecoderModel, twin: Sequence) -> int:
    """How many of a sequence's tokens have other bytes in the cache than the same sequence decoded alone."""
    size = model.cache.block_size
    different = torch.zeros(sequence.length, dtype=torch.bool)
    for ours, theirs in zip(model.cache.k + model.cache.v, shadow.cache.k + shadow.cache.v, strict=True):
        mine = ours[sequence.blocks].reshape(len(sequence.blocks) * size, -1)[: sequence.length]
        alone = theirs[twin.blocks].reshape(len(twin.blocks) * size, -1)[: sequence.length]
        different |= (mine != alone).any(dim=1)
    return int(different.sum())


@dataclass(frozen=True)
class BatchSizeRow:
    """What one policy did in all steps of one batch size."""

    n: int
    bucket: int | None
    steps: int
    alarms: int
    steps_differing: int
    argmax_flips: int


def by_batch_size(result: ScenarioResult) -> list[BatchSizeRow]:
    """The scenario's steps summed by batch size."""
    rows = []
    for n in sorted({record.n for record in result.steps}):
        steps = [record for record in result.steps if record.n == n]
        rows.append(
            BatchSizeRow(
                n,
                steps[0].bucket,
                len(steps),
                sum(bool(record.violations) for record in steps),
                sum(bool(record.rows_differing) for record in steps),
                sum(record.argmax_flips for record in steps),
            )
        )
    return rows
