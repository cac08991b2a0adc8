"""Every claim of speed that the project makes, in one table: what is said, in which unit, with which aim.

A claim's key begins with its group, a module of ``tools/benchmarks``; the group measures it, and the record
(``docs/evidence.json``) keeps the figures. Here stand words and aims alone: no measured figure is typed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("en", "zh")

HIGHER_IS_BETTER = ("tokens/s", "GB/s")  # all other units are better when lower


class Words(NamedTuple):
    """A sentence in both languages."""

    en: str
    zh: str

    def __call__(self, language: str) -> str:
        return getattr(self, language)


@dataclass(frozen=True)
class Claim:
    """One row of the table.

    Args:
        key: "group.name".
        text: what was measured; for a row with a peer, against whom.
        unit: of both figures.
        ratio_at_least: the aim for ``ratio``: how many times better ours is than the peer's.
        at_most: the aim for our figure.
    """

    key: str
    text: Words
    unit: str
    ratio_at_least: float | None = None
    at_most: float | None = None

    @property
    def group(self) -> str:
        """The module of ``tools/benchmarks`` that measures it."""
        return self.key.partition(".")[0]

    @property
    def aim(self) -> str:
        """The aim as it is printed; empty if there is none."""
        if self.ratio_at_least is not None:
            return f"≥ {self.ratio_at_least:g}×"
        return "" if self.at_most is None else f"≤ {self.at_most:g} {self.unit}"

    def ratio(self, ours: float, peer: float) -> float:
        """How many times better ours is: above 1, we win."""
        return ours / peer if self.unit in HIGHER_IS_BETTER else peer / ours

    def met(self, ours: float, peer: float | None) -> bool | None:
        """Whether the figures reach the aim; None without one."""
        if self.ratio_at_least is not None:
            return peer is not None and self.ratio(ours, peer) >= self.ratio_at_least
        return None if self.at_most is None else ours <= self.at_most


def claim(key: str, en: str, zh: str, unit: str, **aims: float) -> Claim:
    """A claim, written on few lines."""
    return Claim(key, Words(en, zh), unit, **aims)


GROUPS: dict[str, Words] = {
    "foundation": Words("Simulator, optimiser, command line", "模拟器、优化器、命令行"),
    "device": Words("SoftGPU: launches, waking, idling, GEMV", "SoftGPU：启动、唤醒、空闲、GEMV"),
    "decode": Words("Decode steps: fusion and graphs", "decode 步：融合与 graph"),
    "quantised": Words("Quantised weights on SoftGPU", "SoftGPU 上的量化权重"),
    "torch_compile": Words("Beside torch.compile on a CPU", "与 CPU 上的 torch.compile 对照"),
    "llama_cpp": Words("Beside llama.cpp on a CPU", "与 CPU 上的 llama.cpp 对照"),
    "waiting": Words("What a learner waits for", "学习者要等多久"),
    "clone": Words("The first two commands in a fresh clone", "新克隆里的头两条命令"),
}
ON_REQUEST = ("clone",)  # takes many minutes and the network: measured only when it is named

FOUNDATION = [
    claim("foundation.import_simulator", "`import s13lib.simulator`, beyond Python's own start",
          "`import s13lib.simulator`，不含 Python 自身启动", "s", at_most=0.2),
    claim("foundation.import_buckets", "`import s13lib.buckets`, beyond Python's own start",
          "`import s13lib.buckets`，不含 Python 自身启动", "s", at_most=0.2),
    claim("foundation.report", "`s13 report`, whole process", "`s13 report`，整个进程", "s", at_most=1.5),
    claim("foundation.layout_count", "exact bucket layout, N = 512, at most 64 sizes",
          "精确的分桶方案，N = 512，最多 64 个尺寸", "s", at_most=0.3),
    claim("foundation.layout_budget", "exact bucket layout, N = 512, a budget of 1,024 units, private pools",
          "精确的分桶方案，N = 512，各用各的池，预算 1,024 单位", "s", at_most=5),
]  # fmt: skip

GEMV_SHAPES = ((576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576))  # out × in: SmolLM2-135M's
REPLAY_NODES = (32, 128, 352, 480)
DEVICE = [
    claim("device.launch_checked", "host time of a launch that checks its 4 arguments",
          "一次启动的 CPU 时间，每次检查 4 个参数", "µs"),
    claim("device.launch_bound", "host time of a launch bound once, against one that checks",
          "只绑定一次的启动的 CPU 时间，对比每次都检查的", "µs"),
    *(claim(f"device.replay.n{n}", f"host time of one replay of {n} nodes, against {n} bound launches",
            f"回放 {n} 个节点的 CPU 时间，对比 {n} 次已绑定的启动", "µs") for n in REPLAY_NODES),
    claim("device.wake", "wake-up from idle: launch to result, median", "从空闲中唤醒：从启动到结果，中位数", "µs"),
    claim("device.idle", "processor share of an idle device", "设备空闲时占用的处理器", "%"),
    *(row for out, width in GEMV_SHAPES for row in (
        claim(f"device.gemv.{out}x{width}.read", f"GEMV {out} × {width}, against one core's read bandwidth",
              f"GEMV {out} × {width}，对比单核的读带宽", "GB/s", ratio_at_least=0.8),
        claim(f"device.gemv.{out}x{width}.mv", f"GEMV {out} × {width}, against `torch.mv`",
              f"GEMV {out} × {width}，对比 `torch.mv`", "GB/s", ratio_at_least=1.3),
    )),
    claim("device.gemv.pages", "GEMV 576 × 576: all weights in one large allocation, against an allocation for each",
          "GEMV 576 × 576：权重都放在一大块内存里，对比每个单独分配", "GB/s"),
    *(claim(f"device.gemm.b{rows}", f"linear 1536 × 576, {rows} rows at once, against `torch.mm`",
            f"linear 1536 × 576，一次 {rows} 行，对比 `torch.mm`", "µs") for rows in (4, 16, 64)),
]  # fmt: skip

BATCHES = (1, 2, 4, 8, 16, 64)
BARD_PATHS = {"stage 15 eager": None, "stage 15 graph": None, "stage 4 eager": 8.0, "stage 4 graph": 15.0}
DECODE = [
    *(claim(f"decode.bard.{path.replace(' ', '_')}", f"bard, batch 1, {path}: step, against PyTorch eager",
            f"bard，batch 1，{path}：每步，对比 PyTorch eager", "µs", ratio_at_least=aim)
      for path, aim in BARD_PATHS.items()),
    claim("decode.bard.both", "bard, batch 1: stage 4 graph, against stage 15 eager",
          "bard，batch 1：stage 4 graph，对比 stage 15 eager", "µs", ratio_at_least=3.5),
    *(claim(f"decode.bard.{path.replace(' ', '_')}.{key}",
            f"bard, batch 1, {path}: {en}", f"bard，batch 1，{path}：{zh}", unit)
      for path in BARD_PATHS
      for key, en, zh, unit in (("host", "host time", "CPU 时间", "µs"), ("idle", "device idle", "设备空闲", "%"))),
    *(claim(f"decode.graph.b{batch}", f"bard, batch {batch}, stage 15: one graph, against eager",
            f"bard，batch {batch}，stage 15：一张 graph，对比 eager", "µs") for batch in BATCHES),
    *(claim(f"decode.fusion.b{batch}", f"bard, batch {batch}, both as one graph: stage 4, against stage 15",
            f"bard，batch {batch}，都用一张 graph：stage 4，对比 stage 15", "µs") for batch in BATCHES),
    claim("decode.padded", "bard, 33 requests, stage 15: padded to 64 and replayed, against eager at 33",
          "bard，33 个请求，stage 15：补齐到 64 再回放，对比不补齐的 eager", "µs"),
    claim("decode.smollm2.eager", "SmolLM2-135M, batch 1, stage 4 eager, against PyTorch eager on one thread",
          "SmolLM2-135M，batch 1，stage 4 eager，对比单线程的 PyTorch eager", "tokens/s", ratio_at_least=1.2),
    claim("decode.smollm2.graph", "SmolLM2-135M, batch 1, stage 4: one graph, against eager",
          "SmolLM2-135M，batch 1，stage 4：一张 graph，对比 eager", "µs"),
]  # fmt: skip

COMPILED_MODELS = {"bard": "bard", "smollm2": "SmolLM2-135M"}
COMPILED_BATCHES = (1, 4, 16)
DYNAMIC = {"default": None, "static": False, "dynamic": True}  # the argument `dynamic` of torch.compile
GROWTH = 12  # batch sizes, or context lengths, met one after the other
TORCH_COMPILE = [
    *(row for model, name in COMPILED_MODELS.items() for batch in COMPILED_BATCHES for row in (
        claim(f"torch_compile.{model}.b{batch}.step", f"{name}, batch {batch}: stage 4 graph, against torch.compile",
              f"{name}，batch {batch}：stage 4 graph，对比 torch.compile", "µs"),
        claim(f"torch_compile.{model}.b{batch}.eager", f"{name}, batch {batch}: torch.compile, against PyTorch eager",
              f"{name}，batch {batch}：torch.compile，对比 PyTorch eager", "µs"),
        claim(f"torch_compile.{model}.b{batch}.compile", f"{name}, batch {batch}: seconds to compile, no cache",
              f"{name}，batch {batch}：编译用时，没有缓存", "s"),
    )),
    *(claim(f"torch_compile.recompiled.{vary}.{key}",
            f"compilations over {GROWTH} {en}, `dynamic={value}`",
            f"{zh}走过 {GROWTH} 个，`dynamic={value}`：编译次数", "")
      for vary, en, zh in (("batch", "batch sizes", "batch 大小"), ("context", "context lengths", "上下文长度"))
      for key, value in DYNAMIC.items()),
]  # fmt: skip

LLAMA_FORMATS = {"f32": None, "q8_0": 0.8, "q4_0": None}  # aims for ours ÷ theirs
LLAMA_CPP = [
    row for format, aim in LLAMA_FORMATS.items() for row in (
        claim(f"llama_cpp.{format}.rate",
              f"SmolLM2-135M, {format}, batch 1, one thread: stage 4 graph, against llama.cpp",
              f"SmolLM2-135M，{format}，batch 1，单线程：stage 4 graph，对比 llama.cpp",
              "tokens/s", ratio_at_least=aim),
        claim(f"llama_cpp.{format}.moved",
              f"SmolLM2-135M, {format}: bytes of weights read for one token, ours and theirs",
              f"SmolLM2-135M，{format}：每个 token 要读的权重字节，双方", "MB"),
        claim(f"llama_cpp.{format}.reached", f"SmolLM2-135M, {format}: bandwidth reached, ours and theirs",
              f"SmolLM2-135M，{format}：达到的带宽，双方", "GB/s"),
    )
]  # fmt: skip

LESSONS = sorted(path.stem for path in (ROOT / "notebooks" / "src").glob("*.py"))
WAITING = [
    *(claim(f"waiting.import.{module.replace('.', '_')}", f"`import {module}`, beyond Python's own start",
            f"`import {module}`，不含 Python 自身启动", "s")
      for module in ("s13lib", "numpy", "torch", "s13lib.model", "s13lib.graphs", "s13lib.widgets")),
    claim("waiting.first_launch.cold", "first launch of one kernel, nothing compiled yet (import torch included)",
          "第一次启动一个 kernel，什么都还没编译（含 import torch）", "s"),
    claim("waiting.first_launch.warm", "the same with all compiled, against nothing compiled",
          "同上，全部已编译，对比什么都没编译", "s"),
    claim("waiting.kernels.cold", "all kernels of the library compiled", "编译库里的全部 kernel", "s"),
    claim("waiting.kernels.warm", "all kernels of the library from the cache, against compiled",
          "从缓存载入全部 kernel，对比现编译", "s"),
    claim("waiting.load.bard", "bard loaded, stage 4", "载入 bard，stage 4", "s"),
    claim("waiting.load.smollm2", "SmolLM2-135M loaded, stage 4", "载入 SmolLM2-135M，stage 4", "s"),
    *(claim(f"waiting.notebook.{language}.{name}", f"notebook {language}/{name}, from top to bottom",
            f"notebook {language}/{name}，从头跑到尾", "s", at_most=60)
      for name in LESSONS for language in LANGUAGES),
]  # fmt: skip

QUANTISED_SHAPES = ((576, 576), (960, 576), (3072, 576), (576, 1536), (49152, 576), (11008, 4096))  # out × in
QUANTISED_AIMS = {"q8_0": (2.3, 3.0), "q4_0": (None, None)}  # against float32; against unpacking first
COLD_BUFFER = (3072, 576)
QUANTISED_BATCHES = (4, 16, 64)
QUANTISED_MODELS = {"bard": "bard", "smollm2": "SmolLM2-135M"}
QUANTISED = [
    *(row for out, width in QUANTISED_SHAPES for form, (dot, buffer) in QUANTISED_AIMS.items() for row in (
        claim(f"quantised.{form}.{out}x{width}.f32", f"{form} {out} × {width}, one row: fused, against float32",
              f"{form} {out} × {width}，一行：融合 kernel，对比 float32", "µs", ratio_at_least=dot),
        claim(f"quantised.{form}.{out}x{width}.buffer",
              f"{form} {out} × {width}, one row: fused, against unpacking to a float32 buffer, then the dot",
              f"{form} {out} × {width}，一行：融合 kernel，对比先解包到 float32 缓冲区再点积", "µs",
              ratio_at_least=buffer),
        claim(f"quantised.{form}.{out}x{width}.reached",
              f"{form} {out} × {width}, one row: bandwidth of the fused kernel, against reading the same bytes",
              f"{form} {out} × {width}，一行：融合 kernel 达到的带宽，对比只读同样的字节", "GB/s"),
    )),
    claim("quantised.cold_buffer",
          "q8_0 {} × {}, one row: fused, against a buffer that is in no cache when its turn comes".format(*COLD_BUFFER),
          "q8_0 {} × {}，一行：融合 kernel，对比轮到时不在缓存里的缓冲区".format(*COLD_BUFFER), "µs"),
    *(claim(f"quantised.{form}.b{batch}", f"{form} 1536 × 576, {batch} rows at once: fused, against float32",
            f"{form} 1536 × 576，一次 {batch} 行：融合 kernel，对比 float32", "µs")
      for batch in QUANTISED_BATCHES for form in QUANTISED_AIMS),
    *(row for model, name in QUANTISED_MODELS.items() for form in QUANTISED_AIMS for row in (
        claim(f"quantised.{model}.{form}.rate", f"{name}, batch 1, stage 4 graph: {form}, against float32",
              f"{name}，batch 1，stage 4 graph：{form}，对比 float32", "tokens/s"),
        claim(f"quantised.{model}.{form}.moved", f"{name}: bytes of weights read for one token, {form} and float32",
              f"{name}：每个 token 要读的权重字节，{form} 和 float32", "MB"),
    )),
]  # fmt: skip

CLONE = [
    claim("clone.demo", "`python3 run.py demo`, set-up and downloads included",
          "`python3 run.py demo`，含安装和下载", "s"),
    claim("clone.test", "`python3 run.py test` after it", "随后的 `python3 run.py test`", "s"),
]  # fmt: skip

CLAIMS: dict[str, Claim] = {
    each.key: each
    for group in (FOUNDATION, DEVICE, DECODE, QUANTISED, TORCH_COMPILE, LLAMA_CPP, WAITING, CLONE)
    for each in group
}


def of_group(group: str) -> Iterator[Claim]:
    """The claims that ``group`` measures."""
    return (each for each in CLAIMS.values() if each.group == group)
