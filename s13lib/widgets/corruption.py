"""The corruption lab: the padding bug step by step, in a run of the course's own model, under each padding policy.

The run is measured when the widget is made: twelve requests are served under each policy, and each of them is also
decoded alone. What a control shows is then only looked up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from s13lib.buckets import BucketLayout
from s13lib.figures import svg
from s13lib.figures.cache_map import cache_map_svg
from s13lib.figures.corruption import StepMark, Stream, steps_svg, streams_svg
from s13lib.figures.gauges import Bar, bars_svg, stack_svg
from s13lib.figures.tables import html_table
from s13lib.graphs import PADDINGS
from s13lib.graphs.audit import Violation
from s13lib.graphs.scenario import (
    Request,
    RowRecord,
    ScenarioResult,
    StepRecord,
    by_batch_size,
    decode_alone,
    fresh_twin,
    run_scenario,
)
from s13lib.model.checkpoints import load_checkpoint
from s13lib.progress import Progress
from s13lib.widgets.base import Action, Control, ControlPanel, Rendered, State

REQUESTS, SEED, TOKENS = 12, 24, (10, 44)
BUCKETS, MAX_BATCH, BLOCKS = (1, 2, 4, 8), 8, 25
STAGE = 4
STREAMS_SHOWN = 3
ALL = 0  # the batch-size filter lets every step through
POLICY_NAMES = (
    ("naive", "naive: zeros (bug)", "naive：填零（有 bug）"),
    ("stale", "stale: left-overs (bug)", "stale：残留（有 bug）"),
    ("scratch", "scratch: a block of its own", "scratch：专用 block"),
    ("skip", "skip: slot −1", "skip：slot −1"),
)
WORDS = {
    "en": {
        "map": "The KV cache after step {}, block by block",
        "streams": "What the requests say: under {} and alone",
        "logits": "Largest difference of each row's logits from the same request decoded alone",
        "row": "row {}: {}",
        "note": "Measured on {1}. Full bar: {0:.2g}, the largest difference that either bug makes in this run.",
        "sentence": "Policy {policy}, step {step} of {steps}: running requests: {n}, in {where}. {verdict} {harm}",
        "bucket": "bucket {}, so {} padding rows",
        "exact": "bucket {}, no padding row",
        "one": "bucket {}, so 1 padding row",
        "alarm": "The audit raises an alarm: {}.",
        "alarm_more": "The audit raises an alarm: {} (and {} more in this step).",
        "quiet": "The audit is content: every row writes where it may.",
        "padding_row": "padding row {} writes to slot {} of block {}, which belongs to {}",
        "real_row": "row {} writes to slot {} of block {}, which belongs to {}",
        "harm": "Rows with other logits than alone: {} of {}, by up to {:.2g}.",
        "no_harm": "Every row's logits are bit for bit what it gets alone.",
        "rows_header": ("request", "row", "cache slots that differ", "largest logit difference", "text"),
        "rows_caption": "This step, measured",
        "same": "same as alone",
        "parts": "differs from character {}",
        "sizes_header": ("batch size n", "bucket", "steps", "with an alarm", "with other logits"),
        "sizes_caption": "All steps under {}, by batch size",
    },
    "zh": {
        "map": "第 {} 步之后的 KV cache，逐块来看",
        "streams": "各请求说了什么：{} 与单独运行对照",
        "logits": "每一行的 logits 与同一请求单独运行时的最大差别",
        "row": "第 {} 行：{}",
        "note": "实测，设备为 {1}。满格为 {0:.2g}，即两种 bug 在这次运行里造成的最大差别。",
        "sentence": "策略 {policy}，共 {steps} 步中的第 {step} 步：{n} 个请求，{where}。{verdict}{harm}",
        "bucket": "放进桶 {}，补齐 {} 行",
        "exact": "正好是桶 {}，无需补齐",
        "one": "放进桶 {}，补齐 1 行",
        "alarm": "审计报警：{}。",
        "alarm_more": "审计报警：{}（这一步另有 {} 处）。",
        "quiet": "审计没有意见：每一行都写在自己该写的地方。",
        "padding_row": "补齐的第 {0} 行写进了 block {2} 的 slot {1}，而它属于 {3}",
        "real_row": "第 {0} 行写进了 block {2} 的 slot {1}，而它属于 {3}",
        "harm": "{1} 行中有 {0} 行的 logits 与单独运行时不同，最大差别 {2:.2g}。",
        "no_harm": "每一行的 logits 都与单独运行时逐位相同。",
        "rows_header": ("请求", "行", "不同的 cache slot", "logits 最大差别", "文本"),
        "rows_caption": "这一步，实测",
        "same": "与单独运行相同",
        "parts": "从第 {} 个字符起不同",
        "sizes_header": ("batch 大小 n", "桶", "步数", "有报警", "logits 有出入"),
        "sizes_caption": "{} 下的所有步，按 batch 大小",
    },
}


@dataclass(frozen=True)
class Lab:
    """A run under each policy, what each request says alone, and each request's prompt and texts."""

    results: dict[str, ScenarioResult]
    prompts: tuple[str, ...]
    alone: tuple[str, ...]
    made: dict[str, tuple[str, ...]]  # policy → what each request said under it
    device: str
    block_size: int

    @property
    def steps(self) -> int:
        """How many decode steps a run has: the same for all policies, since arrivals and lengths are."""
        return len(self.results["scratch"].steps)

    @property
    def largest_difference(self) -> float:
        """The largest logit difference of any policy's run."""
        return max(record.largest_difference for result in self.results.values() for record in result.steps)


@lru_cache(maxsize=1)
def run_lab() -> Lab:
    """Serve the requests under each policy, and alone. Takes some seconds at the first call, with a progress bar."""
    checkpoint = load_checkpoint("bard")
    texts = json.loads((resources.files("s13lib.data") / "prompts.json").read_text(encoding="utf-8"))[:REQUESTS]
    prompts = [checkpoint.tokenizer.encode(text) for text in texts]
    model = checkpoint.model(STAGE, max_rows=MAX_BATCH, blocks=BLOCKS)
    decode = checkpoint.tokenizer.decode
    # A policy's run takes about as long as all requests alone.
    with Progress("serving the requests under each policy", (len(PADDINGS) + 1) * REQUESTS) as bar:
        alone = decode_alone(model, prompts, SEED, TOKENS, on_request=bar.update)
        results = {}
        for policy in PADDINGS:
            results[policy] = run_scenario(
                fresh_twin(model), prompts, BucketLayout(BUCKETS), policy, SEED, MAX_BATCH, TOKENS, details=True
            )
            bar.update(REQUESTS)
    made = {policy: tuple(decode(r.made) for r in result.requests) for policy, result in results.items()}
    size = model.cache.block_size
    return Lab(results, tuple(texts), tuple(map(decode, alone)), made, model.device.description, size)


def corruption_widget(language: str | None = None, scale: float = 1.0) -> ControlPanel:
    """The padding bug step by step: who wrote where, what it did to logits and texts, and what the audit said.

    Args:
        language: "en" or "zh"; the notebook's own if left out.
        scale: 1.5 or 2 for a projector.
    """
    return ControlPanel(controls(run_lab()), render, language, scale, ACTIONS, follow)


def controls(lab: Lab) -> tuple[Control, ...]:
    """The controls for a run: its policies, its batch sizes, its steps. It starts at the first alarm."""
    sizes = sorted({record.n for record in lab.results["naive"].steps})
    options = ((ALL, "all", "全部"), *((n, str(n), str(n)) for n in sizes))
    first = next_alarm(lab.results["naive"].steps, 0)
    return (
        Control("policy", "padding", "补齐策略", "dropdown", "naive", options=POLICY_NAMES, width="330px"),
        Control("n", "batch size", "batch 大小", "dropdown", ALL, options=options, width="200px"),
        Control("step", "step", "步", "slider", first, low=1, high=lab.steps, width="420px"),
    )


def next_alarm(steps: Many[StepRecord], after: int, n: int = ALL) -> int:
    """The number of the first step after step ``after`` with an alarm, the search going round; ``after`` if none has.

    Steps are numbered from 1, as on the slider.
    """
    order = [*range(after + 1, len(steps) + 1), *range(1, after + 1)]
    return next((at for at in order if steps[at - 1].violations and n in (ALL, steps[at - 1].n)), max(after, 1))


def _to_next_alarm(state: State) -> State:
    return {"step": next_alarm(run_lab().results[state["policy"]].steps, state["step"], state["n"])}


ACTIONS = (Action("alarm", "next alarm", "下一次报警", _to_next_alarm),)


def follow(state: State, changes: State) -> State:
    """With a batch size chosen, the slider halts only at steps of that size, in the direction in which it moved."""
    n = changes.get("n", state["n"])
    if n == ALL:
        return {}
    wanted, before = changes.get("step", state["step"]), state["step"]
    fits = [at for at, record in enumerate(run_lab().results["scratch"].steps, start=1) if record.n == n]
    ahead, behind = [at for at in fits if at >= wanted], [at for at in fits if at <= wanted]
    forward = ahead[0] if ahead else fits[-1]
    back = behind[-1] if behind else fits[0]
    if wanted == before:  # the filter moved, not the slider: the nearest step
        return {"step": min(forward, back, key=lambda at: abs(at - wanted))}
    return {"step": forward if wanted > before else back}


def render(state: State, language: str) -> Rendered:
    """What the lab shows for a state."""
    words, lab = WORDS[language], run_lab()
    policy, at = state["policy"], state["step"] - 1
    result = lab.results[policy]
    record = result.steps[at]
    marks, chosen = marks_of(result, state["n"])
    streams = streams_of(lab, policy, at)
    struck = {violation.slot for violation in record.violations}
    pictures = [
        steps_svg(marks, at, chosen, language),
        cache_map_svg(
            record.detail.block_map, lab.block_size, struck, language, title=words["map"].format(state["step"])
        ),
        streams_svg(streams, policy, language, title=words["streams"].format(policy)),
        bars_svg(_bars(record.detail.rows, lab, words), words["logits"], note=_note(lab, words)),
    ]
    sentence = _sentence(words, policy, state["step"], lab, record)
    table = _rows_table(words, lab, policy, record) + _sizes_table(words, policy, result)
    return Rendered(stack_svg(pictures, 700, sentence, sentence), sentence, table)


def marks_of(result: ScenarioResult, n: int) -> tuple[list[StepMark], list[int] | None]:
    """The run's steps for the strip, and the positions of those of batch size ``n``."""
    marks = [
        StepMark(at, r.n, r.bucket or r.n, bool(r.violations), r.rows_differing)
        for at, r in enumerate(result.steps, start=1)
    ]
    return marks, None if n == ALL else [at for at, r in enumerate(result.steps) if r.n == n]


def streams_of(lab: Lab, policy: str, at: int) -> list[Stream]:
    """The texts of up to three requests after a step: of those that run, the ones that the bugs hurt most."""
    result = lab.results[policy]
    made = tokens_after(result, at)
    running = {row.request for row in result.steps[at].detail.rows}
    worst = hurt(lab, policy)

    def rank(number: int) -> tuple[bool, bool, float, float]:
        request = result.requests[number]
        stream = _stream(lab, policy, request, number, made[request.name], running)
        return request.name in running, stream.parts_at is not None, worst[number], number

    started = [number for number, request in enumerate(result.requests) if request.name in made]
    shown = sorted(sorted(started, key=rank, reverse=True)[:STREAMS_SHOWN])
    requests = result.requests
    return [_stream(lab, policy, requests[i], i, made[requests[i].name], running) for i in shown]


def tokens_after(result: ScenarioResult, at: int) -> dict[str, int]:
    """How many tokens each request has made after the step at position ``at``; requests yet to come are left out."""
    made: dict[str, int] = {}
    for record in result.steps[: at + 1]:
        made |= {row.request: row.made + 1 for row in record.detail.rows}
    return made


def hurt(lab: Lab, policy: str) -> list[float]:
    """The largest logit difference that each request meets, in this policy's run, or else a little of any other's."""
    worst = [0.0] * len(lab.prompts)
    for name, result in lab.results.items():
        number = {request.name: i for i, request in enumerate(result.requests)}
        weight = 1.0 if name == policy else 1e-6
        for record in result.steps:
            for row in record.detail.rows:
                i = number[row.request]
                worst[i] = max(worst[i], weight * row.difference)
    return worst


def _stream(lab: Lab, policy: str, request: Request, number: int, tokens: int, running: set[str]) -> Stream:
    # bard's tokens are characters, so the first so many tokens are the first so many characters.
    said, alone = lab.made[policy][number][:tokens], lab.alone[number][:tokens]
    return Stream(request.name, lab.prompts[number], said, alone, request.name not in running)


def _bars(rows: Many[RowRecord], lab: Lab, words: dict[str, str]) -> list[Bar]:
    full = lab.largest_difference or 1.0
    return [
        Bar(
            words["row"].format(at, row.request),
            row.difference,
            f"{row.difference:.2g}" if row.difference else "0",
            svg.VERMILION if row.difference else svg.BLUE,
            full,
        )
        for at, row in enumerate(rows)
    ]


def _note(lab: Lab, words: dict[str, str]) -> str:
    return words["note"].format(lab.largest_difference, lab.device)


def verdict(words: dict[str, str], violations: Many[Violation]) -> str:
    """The audit's word on a step."""
    if not violations:
        return words["quiet"]
    first = violations[0]
    key = "padding_row" if first.padding else "real_row"
    said = words[key].format(first.row, first.slot, first.block, first.owner)
    if len(violations) == 1:
        return words["alarm"].format(said)
    return words["alarm_more"].format(said, len(violations) - 1)


def _sentence(words: dict[str, str], policy: str, step: int, lab: Lab, record: StepRecord) -> str:
    key = {0: "exact", 1: "one"}.get(record.padding_rows, "bucket")
    harm = words["no_harm"]
    if record.rows_differing:
        harm = words["harm"].format(record.rows_differing, record.n, record.largest_difference)
    return words["sentence"].format(
        policy=policy,
        step=step,
        steps=lab.steps,
        n=record.n,
        where=words[key].format(record.bucket, record.padding_rows),
        verdict=verdict(words, record.violations),
        harm=harm,
    )


def _rows_table(words: dict[str, str], lab: Lab, policy: str, record: StepRecord) -> str:
    names = [request.name for request in lab.results[policy].requests]
    rows = []
    for at, row in enumerate(record.detail.rows):
        number = names.index(row.request)
        request = lab.results[policy].requests[number]
        parts_at = _stream(lab, policy, request, number, row.made + 1, {row.request}).parts_at
        text = words["same"] if parts_at is None else words["parts"].format(parts_at + 1)
        rows.append((row.request, at, row.corrupted_slots, f"{row.difference:.3g}", text))
    return html_table(words["rows_header"], rows, words["rows_caption"])


def _sizes_table(words: dict[str, str], policy: str, result: ScenarioResult) -> str:
    rows = [(row.n, row.bucket or "–", row.steps, row.alarms, row.steps_differing) for row in by_batch_size(result)]
    return html_table(words["sizes_header"], rows, words["sizes_caption"].format(policy))
