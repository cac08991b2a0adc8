"""Make the pictures and fill the generated blocks of READMEs and docs; ``--check`` fails when they are not up to date.

A block stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. No figure of theirs is typed by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s13lib.buckets import PRESETS as LAYOUTS  # noqa: E402
from s13lib.buckets import best_layout, chat, code, held_out, pinned_rows, preset, row_cost, time_cost  # noqa: E402
from s13lib.commands.buckets import ENGINE_STAGE, modelled_times  # noqa: E402
from s13lib.commands.fusion import stage_rows  # noqa: E402
from s13lib.figures import Panel, timeline_svg  # noqa: E402
from s13lib.grading.manifest import exercises  # noqa: E402
from s13lib.simulator import PARTS, PRESETS, simulate, simulate_timeline  # noqa: E402
from tools.lesson_pictures import PICTURES, WIDTH  # noqa: E402

STEP = PRESETS["smollm2-360m-h100"]
COUNT = 13

TITLES = {
    "en": (
        "Before: 9 kernels a layer, launched one by one",
        "Fused: 4 kernels a layer, launched one by one",
        "After: fused, one graph replay",
    ),
    "zh": (
        "优化前：每层 9 个 kernel，逐个启动",
        "融合后：每层 4 个 kernel，逐个启动",
        "优化后：融合，并用一次 graph 回放",
    ),
}
WORDS = {
    "en": {
        "step": "{model} on an {gpu}, batch 1, layers alone, modelled: {launches} launches × {launch:g} µs keep "
        "the CPU busy for {host:.2f} ms, the kernels take {device:.2f} ms, so the GPU idles "
        "{idle:.0%} of a {step:.2f} ms step. "
        "Fused to 4 kernels a layer and replayed as one graph, the step takes {after:.2f} ms: {gain:.1f}×.",
        "fusion": "| kernels a layer | launches a step | intermediates a layer | step, ms | as one graph, ms |",
        "buckets": "| layout | sizes | padding rows | time that padding costs | rows pinned: one pool / a pool each |",
        "best": "**best {count} (`s13 buckets`)**",
        "held_out": "Held out: a layout fitted to the first half of that traffic ({fitted:.1%} padding there) pads "
        "{later:.1%} on the second half, but {other:.0%} on code traffic. Fit again when your traffic changes.",
    },
    "zh": {
        "step": "{model}，{gpu}，batch 1，只计 Transformer 层，不含 embedding 和 lm_head（按成本模型推算）："
        "{launches} 次启动 × {launch:g} µs，"
        "CPU 要忙 {host:.2f} ms，而 kernel 总共只跑 {device:.2f} ms，所以在 {step:.2f} ms 的一步里 GPU 有 "
        "{idle:.0%} 的时间闲着。"
        "融合到每层 4 个 kernel、再用一张 graph 回放之后，一步只要 {after:.2f} ms，速度是原来的 {gain:.1f} 倍。",
        "fusion": "| 每层 kernel 数 | 每步启动数 | 每层中间张量数 | 每步 ms | 用一张 graph，ms |",
        "buckets": "| 捕获尺寸方案 | 尺寸个数 | 补齐行占比 | 补齐耗时占比 | 常驻显存的行数：共享池 / 各自独立的池 |",
        "best": "**最优 {count} 个（`s13 buckets`）**",
        "held_out": "留出检验：只用这份流量的前一半来选（在那里补齐占 {fitted:.1%}），用到后一半是 {later:.1%}，"
        "但换成代码补全流量就是 {other:.0%}。流量变了，就要重新选。",
    },
}


def picture(language: str) -> str:
    """The batch-1 step before and after, as SVG."""
    setups = (STEP, replace(STEP, stage=4), replace(STEP, stage=4, graph=True))
    panels = [Panel(t, simulate_timeline(s)) for t, s in zip(TITLES[language], setups, strict=True)]
    return timeline_svg(panels, language) + "\n"


def step_block(language: str) -> str:
    before, after = simulate(STEP), simulate(replace(STEP, stage=4, graph=True))
    return WORDS[language]["step"].format(
        model="SmolLM2-360M",
        gpu="H100",
        launches=before.kernels_per_step,
        launch=STEP.costs.launch_us,
        host=before.host_us / 1000,
        device=before.device_us / 1000,
        idle=1 - before.utilization,
        step=before.step_us / 1000,
        after=after.step_us / 1000,
        gain=after.speedup,
    )


def fusion_block(language: str) -> str:
    lines = [WORDS[language]["fusion"], "|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {r['kernels_per_layer']} | {r['kernels_per_step']} | {r['intermediates_per_layer']} "
        f"| {r['step_ms']:.2f} | {r['graph_step_ms']:.2f} |"
        for r in stage_rows(STEP)
    ]
    return "\n".join(lines)


def buckets_block(language: str) -> str:
    traffic = chat()
    best = WORDS[language]["best"].format(count=COUNT)
    layouts = {best: best_layout(traffic, count=COUNT)} | {name: preset(name) for name in LAYOUTS}
    times = modelled_times(replace(STEP, stage=ENGINE_STAGE, parts=PARTS), 256)
    lines = [WORDS[language]["buckets"], "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {name} | {len(layout)} | {row_cost(layout, traffic).padding_fraction:.1%} "
        f"| {time_cost(layout, traffic, times).time_waste_fraction:.1%} "
        f"| {pinned_rows(layout, 'shared')} / {pinned_rows(layout, 'private'):,} |"
        for name, layout in layouts.items()
    ]
    return "\n".join(lines)


def held_out_block(language: str) -> str:
    report = held_out(chat(), lambda part: best_layout(part, count=COUNT), [code()])
    fitted, later, other = (e.rows.padding_fraction for e in report.evaluations)
    return WORDS[language]["held_out"].format(fitted=fitted, later=later, other=other)


LEARNED = {
    "00": ("the device, how to read a figure, and the wait that disappears", "认识设备、学会看数字，看着等待消失"),
    "01": (
        "profile a decode step; what it waits for; why more GPUs do not help",
        "剖析一步 decode：它在等什么，为什么多加 GPU 没用",
    ),
    "02": (
        "the stages from 15 kernels a layer to 4; write a fused kernel",
        "从每层 15 个 kernel 到 4 个；自己写一个融合 kernel",
    ),
    "03": (
        "addresses, not values: six faults, and the runner without them",
        "地址而不是数值：六种错误，以及没有这些错误的 runner",
    ),
    "04": ("pad, count the price, find the best sizes for a traffic", "补齐与它的代价；为一种流量找出最好的尺寸"),
    "05": ("switch the bug on, watch it, catch it", "打开补齐污染 bug，观察它，抓住它"),
    "06": ("the crossover, prefill, and the calibrated model", "交叉点、prefill，以及校准过的模型"),
    "07": ("what engines do, your own trace and your own log", "各家引擎怎么做；读你自己的 trace 和日志"),
    "08": ("six questions, and what comes next", "六道题，以及接下来学什么"),
}


def lessons_block(language: str) -> str:
    at = ("en", "zh").index(language)
    lines = [("| | lesson | minutes | what you learn |", "| | 课 | 分钟 | 学到什么 |")[at], "|---|---|---:|---|"]
    for path in sorted((ROOT / "notebooks" / "src").glob("*.py")):
        head = dict(re.findall(r"^# (\w+): (.*)$", path.read_text(encoding="utf-8")[:400], re.MULTILINE))
        link = f"notebooks/{language}/{path.stem}.ipynb"
        number, title = path.stem[:2], head[f"title_{language}"]
        picture = (
            f'<img src="docs/pictures/lesson-{number}-{language}.svg" width="{WIDTH}" alt="{PICTURES[number][at]}">'
        )
        cells = (f"[{picture}]({link})", f"{number} [{title}]({link})", head["minutes"], LEARNED[number][at])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def exercises_block(language: str) -> str:
    at = ("en", "zh").index(language)
    head = ("| exercise | parts | points | minutes |", "| 练习 | 小题 | 分数 | 分钟 |")[at]
    lines = [head, "|---|---|---:|---:|"]
    for one in exercises():
        parts = ("; ", "；")[at].join(f"{part.key} {part.title.in_(language)}" for part in one.parts)
        minutes = sum(part.minutes for part in one.parts)
        lines.append(f"| {one.number} {one.title.in_(language)} | {parts} | {one.points} | {minutes} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[str], str]] = {
    "step": step_block,
    "fusion": fusion_block,
    "buckets": buckets_block,
    "lessons": lessons_block,
    "held_out": held_out_block,
    "exercises": exercises_block,
}
PAGES = {"README.md": "en", "README.zh.md": "zh", "docs/instructors.md": "en", "docs/instructors.zh.md": "zh"}


def outputs() -> dict[Path, str]:
    """Every generated file and its content."""
    pictures = ROOT / "docs" / "pictures"
    made = {pictures / f"step-{language}.svg": picture(language) for language in TITLES}
    for number, (_, _, draw) in PICTURES.items():
        made |= {pictures / f"lesson-{number}-{language}.svg": draw(language) + "\n" for language in TITLES}
    for name, language in PAGES.items():
        path = ROOT / name
        made[path] = re.sub(
            r"(<!-- generated: (\w+) -->\n)(?:.*?\n)??(<!-- end -->)",
            lambda m, language=language: f"{m[1]}{BLOCKS[m[2]](language)}\n{m[3]}",
            path.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
    return made


def main(arguments: list[str]) -> int:
    stale = []
    for path, text in outputs().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT))
            if "--check" not in arguments:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{'stale' if '--check' in arguments else 'wrote'}: {path}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
