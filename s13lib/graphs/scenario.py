"""The padding scenario: requests join and leave, blocks are recycled, and every request is also decoded alone.

A policy's run decides the tokens; the same tokens are then decoded without any padding in a cache of their own (the
shadow). What differs between the two is what the policy did. ``decode_alone`` tells what each request would have said.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from s13lib.buckets.layout import BucketLayout
from s13lib.errors import require
from s13lib.graphs.audit import BlockState, CacheAudit, Violation
from s13lib.graphs.bucketed import BucketedRunner
from s13lib.model.cache import PagedKVCache, Sequence
from s13lib.model.decoder import DecoderModel
from s13lib.model.sampling import Sampling
from s13lib.simulator.scheduler import Scheduler

# Requests come in bursts, as real ones do: batches that only ever grow hide the stale bug.
PAUSE_STEPS = (4, 16)
TOKENS = (6, 40)
SAMPLING = Sampling(temperature=0.8)  # greedy text loops, and hides what corruption does


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
class RowRecord:
    """One real row of a step: whose it is, how many tokens that request had made before the step, and the harm.

    ``difference`` is the largest difference of the row's logits from the shadow's, ``corrupted_slots`` counts the
    request's slots whose bytes differ from the shadow's after the step.
    """

    request: str
    made: int
    difference: float
    corrupted_slots: int


@dataclass(frozen=True)
class StepDetail:
    """What a picture of one step needs: its real rows, and the cache's blocks just after it."""

    rows: tuple[RowRecord, ...]
    block_map: tuple[BlockState, ...]


@dataclass(frozen=True)
class StepRecord:
    """One decode step: what ran, what the audit saw, and what it did to the real rows.

    ``bucket`` is None for an eager step. ``corrupted_slots`` counts slots of running requests whose bytes differ from
    the shadow's after the step, ``rows_differing`` the real rows whose logits do. ``detail`` is None unless
    ``run_scenario`` was asked for it.
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
    detail: StepDetail | None = None


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
    tokens: tuple[int, int] = TOKENS,
    sampling: Sampling = SAMPLING,
    details: bool = False,
) -> ScenarioResult:
    """Serve ``prompts`` under a padding policy and compare every step with each request decoded alone.

    Args:
        model: its cache serves the policy's run; a second model with the same weights is made for the shadow.
        prompts: one request each.
        buckets: captured sizes.
        padding: the policy's name.
        seed: of arrivals, lengths and sampling. The same seed gives the same run if the model's cache was not used
            before; else blocks may be handed out in another order, and a bug hits other requests (``fresh_twin``).
        max_batch: most requests that run together.
        tokens: fewest and most tokens that a request makes.
        sampling: how tokens are drawn.
        details: keep a ``StepDetail`` of each step.
    """
    require(len(prompts) >= 1, "prompts", prompts, "at least one")
    require(1 <= tokens[0] <= tokens[1], "tokens", tokens, "(fewest, most), both at least 1")
    shadow = fresh_twin(model)
    audit = CacheAudit(model.cache, padding, strict=False)
    runner = BucketedRunner(model, buckets, padding, audit=audit, progress=False)
    requests = _requests(prompts, seed, tokens, sampling)
    scheduler: Scheduler[Request] = Scheduler(max_batch)
    waiting, records, worst = list(requests), [], ()
    step = 0
    try:
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
                record = _step(step, runner, shadow, running, audit, sampling, details)
                if record.corrupted_slots > max((r.corrupted_slots for r in records), default=0):
                    worst = tuple(audit.block_map())
                records.append(record)
                for request in scheduler.advance():
                    model.cache.release(request.sequence)
                    shadow.cache.release(request.shadow)
            step += 1
    finally:  # also after an error, for instance a cache that is too small for all of them
        for request in requests:
            model.cache.release(request.sequence)
    return ScenarioResult(padding, tuple(records), tuple(requests), worst or tuple(audit.block_map()))


def decode_alone(
    model: DecoderModel,
    prompts: Many[list[int]],
    seed: int = 0,
    tokens: tuple[int, int] = TOKENS,
    sampling: Sampling = SAMPLING,
    on_request: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """What each request of ``run_scenario`` would have made had it never met another.

    The arguments are those of ``run_scenario``; each request has the same length and draws from the same random stream
    there and here. It is decoded with a batch of one, eager, in a cache of its own.

    Returns the tokens made for each prompt, to be compared with ``Request.made``.
    """
    twin, made = fresh_twin(model), []
    for request in _requests(prompts, seed, tokens, sampling):
        logits = twin.prefill(request.shadow, request.prompt)
        request.made.append(sampling.choose(logits, request.stream))
        for _ in range(request.tokens):
            logits = twin.decode([request.shadow], request.made[-1:])[0]
            request.made.append(sampling.choose(logits, request.stream))
        twin.cache.release(request.shadow)
        made.append(request.made)
        on_request()
    return made


def fresh_twin(model: DecoderModel) -> DecoderModel:
    """A model with the same weights and a cache of its own, of the same size, that nothing has used yet."""
    return DecoderModel(
        model.config,
        model.weights,
        model.stage,
        model.device,
        max_rows=model.max_rows,
        blocks=model.cache.allocator.blocks,
        block_size=model.cache.block_size,
    )


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
    details: bool,
) -> StepRecord:
    model, n = runner.model, len(running)
    seen = len(audit.violations)
    made = [len(request.made) for request in running]
    fed = [request.made[-1] for request in running]
    logits = runner.forward(model.next_batch([r.sequence for r in running], fed))
    alone = shadow.decode(
        [r.shadow for r in running], fed
    )  # row by row what each gets alone: a property of the kernels
    for request, row in zip(running, logits, strict=True):
        request.made.append(sampling.choose(row, request.stream))
    differ = (logits != alone).any(dim=1)
    furthest = (logits - alone).abs().amax(dim=1)
    slots = corrupted_slots(model, [r.sequence for r in running], shadow, [r.shadow for r in running])
    detail = None
    if details:
        columns = zip(running, made, furthest.tolist(), slots, strict=True)
        rows = tuple(RowRecord(r.name, count, difference, hurt) for r, count, difference, hurt in columns)
        detail = StepDetail(rows, tuple(audit.block_map()))
    bucket = runner.layout.pick(n)
    return StepRecord(
        step=step,
        n=n,
        bucket=bucket,
        padding_rows=0 if bucket is None else bucket - n,
        violations=tuple(audit.violations[seen:]),
        corrupted_slots=sum(slots),
        rows_differing=int(differ.sum()),
        largest_difference=float(furthest.max()),
        argmax_flips=int((logits.argmax(1) != alone.argmax(1)).sum()),
        detail=detail,
    )


def corrupted_slots(
    model: DecoderModel, sequences: Many[Sequence], shadow: DecoderModel, twins: Many[Sequence]
) -> list[int]:
    """How many tokens of each sequence have other bytes in the cache than the same sequence decoded alone."""

    def slots(cache: PagedKVCache, held: Many[Sequence]) -> torch.Tensor:
        return torch.tensor([cache.slot(s, position) for s in held for position in range(s.length)])

    ours, theirs = slots(model.cache, sequences), slots(shadow.cache, twins)
    different = torch.zeros(len(ours), dtype=torch.bool)
    for mine, alone in zip(model.cache.k + model.cache.v, shadow.cache.k + shadow.cache.v, strict=True):
        different |= (mine.flatten(0, 1)[ours] != alone.flatten(0, 1)[theirs]).flatten(1).any(dim=1).cpu()
    return [int(part.sum()) for part in different.split([s.length for s in sequences])]


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
