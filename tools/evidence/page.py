"""``docs/evidence.md`` and ``docs/evidence.zh.md``, whole, and the READMEs' measured paragraphs, from the record."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from string import ascii_uppercase

from tools.evidence.claims import GROUPS, Words
from tools.evidence.optimisations import EXPLANATIONS, OPTIMISATIONS
from tools.evidence.record import QUIET, Figure, Record, Run, shown

INTRODUCTION = Words(
    """# Evidence

*Generated from [evidence.json](evidence.json). 中文版：[evidence.zh.md](evidence.zh.md).*

Every claim of speed stands here, won or lost, as the benchmark suite measured it. How to read a row:

* **ours** and **peer** are the quietest of interleaved repeats in one process: other work can only make a repeat
  slower. The **spread** says how far the median of the repeats lies beyond, ours / peer.
* **ratio**: how many times better ours is. Above 1 we win, below 1 we lose.
* **aim**: what was set before it was measured. An aim that was missed stays, with the reason below.
* The device is SoftGPU, which runs on a CPU thread. PyTorch, torch.compile and llama.cpp get one thread too.
* Where others held more than {quiet:.0%} of the processors meanwhile, the machine was **contended**: times are too
  long there, and a ratio says more than a time.
""",
    """# 证据

*本页由 [evidence.json](evidence.json) 生成。English: [evidence.md](evidence.md).*

凡是关于速度的说法，不论输赢，都列在这里，数字出自基准测试。每一行这样读：

* **我们**和**对照**都取同一进程里交替重复测量中最安静的一次，因为别的负载只会让某次变慢。**离散**表示各次重复的
  中位数比它高出多少，写作“我们 / 对照”。
* **比值**：我们好多少倍。大于 1 是赢，小于 1 是输。
* **目标**是测量之前定下的。没达到的目标也留着，原因写在后面。
* 设备是 SoftGPU，跑在一个 CPU 线程上。PyTorch、torch.compile 和 llama.cpp 也各用一个线程。
* 测量期间其他进程占用的处理器超过 {quiet:.0%}，就算**有争用**：那时测得的时间偏长，比值比时间更可信。
""",
)
SUMMARY = Words(
    "{measured} figures of {all} were measured. {met} of {aims} aims were met.",
    "{all} 项里测了 {measured} 项；{aims} 个目标达到了 {met} 个。",
)
MACHINE = Words("Machine {}: {}, {} processors, {}; {}.", "机器 {}：{}，{} 个处理器，{}；{}。")
RUNS = Words(
    "| part | date | machine | others held | took | repeat it |\n|---|---|---|---|---:|---|",
    "| 部分 | 日期 | 机器 | 其他进程占用 | 用时 | 重新测量 |\n|---|---|---|---|---:|---|",
)
HELD = Words("{share:.0%}: {state}{quick}", "{share:.0%}，{state}{quick}")
STATE = Words(
    {True: "quiet", False: "**contended**", None: "not known"}, {True: "安静", False: "**有争用**", None: "不详"}
)
QUICK = Words("; a quick look, few repeats", "；快速测量，重复次数少")
SECONDS = Words("{:.0f} s", "{:.0f} 秒")
HEADER = Words(
    ("what was measured", "ours", "peer", "ratio", "aim", "spread"),
    ("测了什么", "我们", "对照", "比值", "目标", "离散"),
)
PEAK = Words("peak memory", "内存峰值")
MET = Words({True: "met", False: "**missed**"}, {True: "达到", False: "**未达到**"})
NOT_MEASURED = Words("not measured", "未测量")
NOT_YET = Words("not measured yet", "尚未测量")
NOTHING_SHORT = Words("Every aim was met.", "目标全部达到。")
SHORT = Words("{what} ({figure}, aim {aim})", "{what}（{figure}，目标 {aim}）")
UNEXPLAINED = Words("not explained yet.", "尚未解释。")
DISTURBED = Words(
    "others held {share:.0%} of the processors meanwhile: to be measured again on a quiet machine.",
    "测量期间其他进程占用了 {share:.0%} 的处理器：要在安静的机器上重测。",
)
NOTHING_MISSING = Words("Nothing: every claim has its figures.", "没有：每一项都有数字。")
HOLDS = Words("**Must hold:** {} Asserted by {}.", "**必须成立：**{}由 {} 断言。")
LOSES = Words("**Loses:** {}", "**会输：**{}")
TRAP = Words("**Trap:** {}", "**陷阱：**{}")
AND, COLON, SEMICOLON = Words(" and ", "、"), Words(": ", "："), Words("; ", "；")
TITLES = {
    "runs": Words("When and where", "何时、何地"),
    "short": Words("What fell short, and the measurement that explains it", "没达到的目标，以及解释它的测量"),
    "missing": Words("What was not measured", "没有测量的"),
    "optimisations": Words(
        "Each optimisation: what must hold, where it loses, how one fools oneself",
        "每项优化：什么必须成立，在哪里会输，怎样会骗到自己",
    ),
}
REPEAT = Words(
    """## Measure it yourself

`python3 run.py bench` runs all parts and prints their tables, `python3 run.py bench device` one of them, and `--quick`
takes fewer repeats. The part `llama_cpp` needs an environment of its own, which `.venv/bin/python tools/llamacpp.py`
builds once, and SmolLM2 needs `python3 run.py smollm`. `--publish` writes the record and this page.
""",
    """## 自己测一遍

`python3 run.py bench` 会跑完所有部分并打印表格；`python3 run.py bench device` 只跑其中一部分；`--quick` 减少重复次数。
`llama_cpp` 部分需要一个单独的环境，用 `.venv/bin/python tools/llamacpp.py` 构建一次即可；SmolLM2 需要先运行
`python3 run.py smollm`。加上 `--publish` 会写入记录，并重新生成本页。
""",
)
README_STEP = Words(
    "Measured on {processor} ({date}, {state}): one decode step of `bard` at batch 1 takes "
    "{decode.bard.stage_15_eager:ours} un-fused and launched one by one, and {decode.bard.stage_4_graph:ours} fused "
    "and as one graph: {decode.bard.both:ratio}. PyTorch eager takes {decode.bard.stage_4_graph:peer} for it.",
    "在 {processor} 上实测（{date}，{state}）：`bard` 在 batch 1 时的一步 decode，未融合、逐个启动要 "
    "{decode.bard.stage_15_eager:ours}，融合后用一张 graph 只要 {decode.bard.stage_4_graph:ours}"
    "（{decode.bard.both:ratio}）；PyTorch eager 要 {decode.bard.stage_4_graph:peer}。",
)
README_LLAMA = Words(
    " SmolLM2-135M with 8-bit weights makes {llama_cpp.q8_0.rate:ours} on one thread, llama.cpp "
    "{llama_cpp.q8_0.rate:peer} ({llama_cpp.q8_0.rate:ratio}).",
    "SmolLM2-135M 用 8 位权重、单线程，速度是 {llama_cpp.q8_0.rate:ours}，llama.cpp 是 {llama_cpp.q8_0.rate:peer}"
    "（{llama_cpp.q8_0.rate:ratio}）。",
)
README_REST = Words(
    " All {measured} measured figures ({met} of {aims} aims met), where each optimisation loses, and how to repeat it "
    "all: [docs/evidence.md](docs/evidence.md).",
    "全部 {measured} 项实测数字（{aims} 个目标达到 {met} 个）、每项优化在哪里会输、怎样重测，都在 "
    "[docs/evidence.zh.md](docs/evidence.zh.md)。",
)
README_STATE = Words(
    {True: "on a quiet machine", False: "on a contended machine", None: "contention not known"},
    {True: "机器安静", False: "机器有争用", None: "争用情况不详"},
)


def page(record: Record, language: str) -> str:
    """The whole page."""
    sections = {
        TITLES["runs"]: runs(record, language),
        **{title: [table(record.of_group(group), language)] for group, title in GROUPS.items()},
        TITLES["short"]: shortfalls(record, language),
        TITLES["missing"]: not_measured(record, language),
        TITLES["optimisations"]: optimisations(record, language),
    }
    lines = [INTRODUCTION(language).format(quiet=QUIET), summary(record, SUMMARY, language)]
    for title, section in sections.items():
        lines += ["", f"## {title(language)}", "", *section]
    return "\n".join([*lines, "", REPEAT(language)])


def summary(record: Record, sentence: Words, language: str) -> str:
    """How many claims have figures, and how many aims were met."""
    judged = [each.met for each in record.figures.values() if each.met is not None]
    return sentence(language).format(
        measured=len(record.measured()), all=len(record.figures), met=sum(judged), aims=len(judged)
    )


def runs(record: Record, language: str) -> Iterator[str]:
    """The machines, and of each group date, machine, contention and the command that repeats it."""
    machines = list(dict.fromkeys(machine(run, language) for run in record.runs.values()))
    yield from (text.format(letter) for letter, text in zip(ascii_uppercase, machines, strict=False))
    yield from ("", RUNS(language))
    for group, title in GROUPS.items():
        if run := record.runs.get(group):
            letter = ascii_uppercase[machines.index(machine(run, language))]
            cells = (title(language), run.date, letter, held(run, language), SECONDS(language).format(run.seconds))
            yield f"| {' | '.join(cells)} | `python3 run.py bench {group}` |"


def machine(run: Run, language: str) -> str:
    """A machine and the versions that matter, in a line with a hole for its letter."""
    m = run.machine
    versions = ", ".join(f"{name} {m[name]}" for name in ("python", "torch", "numba", "numpy") if name in m)
    return MACHINE(language).format("{}", m["processor"], m["processors"], m["system"], versions)


def held(run: Run, language: str) -> str:
    """How contended a run was, and whether it was a quick one."""
    state, quick = STATE(language)[run.quiet], QUICK(language) if run.quick else ""
    if run.others_share is None:
        return state + quick
    return HELD(language).format(share=run.others_share, state=state, quick=quick)


def table(figures: list[Figure], language: str) -> str:
    """The rows of a group; the column for memory only where some row has it."""
    with_peak = any(each.peak_mib is not None for each in figures)
    header = [*HEADER(language), *([PEAK(language)] if with_peak else [])]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    for each in figures:
        cells = [each.claim.text(language), *cells_of(each, language)]
        if with_peak:
            cells.append("" if each.peak_mib is None else f"{each.peak_mib:,.0f} MiB")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cells_of(each: Figure, language: str) -> list[str]:
    """ours, peer, ratio, aim, spread."""
    aim = each.claim.aim
    if each.ours is None:
        return [NOT_MEASURED(language), "", "", aim, ""]
    spreads = [f"+{spread:.0%}" for spread in (each.spread, each.peer_spread) if spread is not None]
    return [
        shown(each.ours, each.claim.unit),
        "" if each.peer is None else shown(each.peer, each.claim.unit),
        "" if each.ratio is None else f"{each.ratio:.2f}×",
        f"{aim}{COLON(language)}{MET(language)[each.met]}" if aim else "",
        " / ".join(spreads),
    ]


def explanation(key: str) -> Words | None:
    """Why a figure stays below its aim."""
    return next((words for pattern, words in EXPLANATIONS.items() if fnmatchcase(key, pattern)), None)


def reason(record: Record, each: Figure, language: str) -> str:
    """Why a figure stays below its aim: as a measurement explains it, or since the machine was contended."""
    if words := explanation(each.claim.key):
        return record.fill(words(language))
    run = record.runs[each.claim.group]
    return DISTURBED(language).format(share=run.others_share) if run.quiet is False else UNEXPLAINED(language)


def shortfalls(record: Record, language: str) -> list[str]:
    """Each missed aim with its explanation; those with the same one together."""
    by_reason: dict[str, list[str]] = {}
    for each in record.fell_short():
        figure = f"{each.ratio:.2f}×" if each.claim.ratio_at_least is not None else shown(each.ours, each.claim.unit)
        line = SHORT(language).format(what=each.claim.text(language), figure=figure, aim=each.claim.aim)
        by_reason.setdefault(reason(record, each, language), []).append(line)
    lines = [f"* {SEMICOLON(language).join(names)}{COLON(language)}{why}" for why, names in by_reason.items()]
    return lines or [NOTHING_SHORT(language)]


def not_measured(record: Record, language: str) -> list[str]:
    """Each claim without figures and the reason, as the suite gave it; those with the same one together."""
    by_reason: dict[str, list[str]] = {}
    for group in GROUPS:
        lacking = [each for each in record.of_group(group) if each.ours is None]
        reasons = {each.missing for each in lacking}
        if len(lacking) == len(record.of_group(group)) and len(reasons) == 1:  # all of it, for one reason
            by_reason.setdefault(reasons.pop() or NOT_YET(language), []).append(f"`{group}.*` ({len(lacking)})")
            continue
        for each in lacking:
            by_reason.setdefault(each.missing or NOT_YET(language), []).append(f"`{each.claim.key}`")
    lines = [f"* {reason}{COLON(language)}{', '.join(keys)}" for reason, keys in by_reason.items()]
    return lines or [NOTHING_MISSING(language)]


def optimisations(record: Record, language: str) -> Iterator[str]:
    """A section for each."""
    for each in OPTIMISATIONS:
        tests = AND(language).join(f"`{test}`" for test in each.tests)
        yield from ("", f"### {each.name(language)}", "")
        yield f"* {HOLDS(language).format(each.invariant(language), tests)}"
        yield f"* {LOSES(language).format(record.fill(each.loses(language)))}"
        yield f"* {TRAP(language).format(record.fill(each.trap(language)))}"


FIRST_RUN = Words(
    "The first prints the report of which this page shows parts, and the same comparison measured on your own machine; "
    "in a fresh clone it sets up `.venv` before that{demo}. The second runs lint, format check and tests{test}, and "
    "says what it skipped and why.",
    "前一条打印一份报告（本页摘录了其中几段），再在你的机器上把同样的对比实测一遍；"
    "在新克隆的目录里，它会先建好 `.venv`{demo}。"
    "后一条做 lint、格式检查和测试{test}，并说明跳过了什么、为什么。",
)
FIRST_RUN_MINUTES = Words(
    " (about {minutes} min, measured on {processors} cores)", "（约 {minutes} 分钟，{processors} 核上实测）"
)


def first_run_paragraph(record: Record, language: str) -> str:
    """What a README says of its first two commands; how long they take only where that was measured."""
    words = {}
    for task in ("demo", "test"):
        seconds = record.figures[f"clone.{task}"].ours
        words[task] = ""
        if seconds is not None:
            minutes, processors = max(1, round(seconds / 60)), record.runs["clone"].machine["processors"]
            words[task] = FIRST_RUN_MINUTES(language).format(minutes=minutes, processors=processors)
    return FIRST_RUN(language).format(**words)


def measured_paragraph(record: Record, language: str) -> str:
    """What a README says of speed; a sentence whose figures were not measured is left out."""
    sentences = []
    for group, sentence in (("decode", README_STEP), ("llama_cpp", README_LLAMA)):
        text = sentence(language)
        if (run := record.runs.get(group)) and record.has_all_of(text):
            state = README_STATE(language)[run.quiet]
            filled = record.fill(text)
            sentences.append(filled.format(processor=run.machine["processor"], date=run.date, state=state))
    rest = summary(record, README_REST, language)
    return "".join([*sentences, rest]).strip()
