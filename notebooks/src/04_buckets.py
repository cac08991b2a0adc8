# ---
# title_en: Buckets
# title_zh: 分桶
# minutes: 20
# ---
# %% [markdown] lang="en"
# # Buckets
#
# *About 20 minutes. 中文版：[分桶](../zh/04_buckets.ipynb).*
#
# A graph has one batch size. A server has another one at every step. The way out is plain: capture a graph for a *few*
# batch sizes, and fill each real batch up to the next one. This lesson is about the few, and about the price.
#
# At the end of this lesson you can
#
# * say why no single graph serves continuous batching,
# * state what padding costs in rows, in time and in memory, and why these are three different numbers,
# * compare the sizes that real engines capture,
# * find the best sizes for your own traffic, and test them on traffic that they were not fitted to,
# * paste the result into your engine.
# %% [markdown] lang="zh"
# # 分桶
#
# *约 20 分钟。English: [Buckets](../en/04_buckets.ipynb).*
#
# 一张 graph 只有一个 batch 大小，而服务器每一步的 batch 大小都可能不同。出路很直接：只为**少数几个** batch 大小捕获 graph，再把真实的 batch 补齐到下一个尺寸。选哪几个、代价多大，就是这一课的内容。
#
# 学完这一课，你能够：
#
# * 说明为什么一张 graph 应付不了连续批处理；
# * 分别算出补齐在行数、时间和内存上的代价，并说清这为什么是三个不同的数；
# * 比较各个真实引擎捕获的尺寸；
# * 为自己的流量找出最优尺寸，再用没有参与拟合的流量检验它；
# * 把结果直接粘贴进你的引擎。
# %%
import random
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

from s13lib.buckets import (
    EXPORTS,
    PRESETS,
    WORKLOADS,
    BucketLayout,
    MemoryModel,
    StepTimes,
    best_layout,
    chat,
    code,
    export,
    held_out,
    pinned_rows,
    preset,
    row_cost,
    running_batches,
    time_cost,
)
from s13lib.commands.output import table
from s13lib.device import best_device
from s13lib.figures.layout import LayoutPanel, layout_svg
from s13lib.graphs import BucketedRunner, GraphRunner
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.simulator import Setup, step_time_curve
from s13lib.widgets import buckets_widget, language, pick, say, show_svg

device = best_device(default="softgpu")
banner = device.banner()
quiet = "not contended" in banner
print(banner)
# %% [markdown] lang="en"
# If the line says *contended* or names one processor, the times measured in this lesson may be off by a factor of two
# or more. Rows and bytes are exact on any machine.
#
# ## The batch that never holds still
#
# Continuous batching lets a request join before any step and leave after any step. That is why it fills a GPU so well,
# and it means that n, the number of running requests, moves all the time. Requests below arrive at random, with the
# rate and the lengths of a published chat trace (Azure 2023): *modelled* traffic.
#
# **Predict:** about 30 requests run at a time, and each makes some 200 tokens. For how many steps in a row does n stay
# the same: two, seven, a hundred?
# %% [markdown] lang="zh"
# 如果那一行里有 *contended*，或者只有一个处理器，这一课测出的时间可能差两倍以上。行数和字节数在任何机器上都是准的。
#
# ## 从不静止的 batch
#
# 连续批处理允许请求在任何一步之前加入、在任何一步之后离开。它正是靠这一点把 GPU 填满的；也因此，正在运行的请求数 n 一直在变。下面的请求按一份公开的聊天流量统计（Azure 2023）的速率和长度随机到达，属于**模型推算**。
#
# **先猜**：同时有约 30 个请求在跑，每个生成约 200 个 token。n 能连续多少步保持不变？两步、七步，还是一百步？
# %%
STEP_S = 0.025  # 25 ms a step
shape = WORKLOADS["chat"]
draw = random.Random(4)
mu, sigma = np.log(shape.median_tokens), np.sqrt(2 * np.log(shape.mean_tokens / shape.median_tokens))
requests, now_s = [], 0.0
for _ in range(600):
    now_s += draw.expovariate(shape.requests_per_s)
    requests.append((int(np.ceil(now_s / STEP_S)), max(1, round(draw.lognormvariate(mu, sigma)))))
n_by_step = np.concatenate([np.full(steps, n) for n, steps in running_batches(requests, cap=256, drain=False)])

figure, axes = plt.subplots(figsize=(7, 2.4), dpi=100)
axes.step(np.arange(1500), n_by_step[-1500:], where="post", color="#0072B2", linewidth=1)
axes.set_xlabel("decode step (modelled traffic: chat)")
axes.set_ylabel("running requests n")
axes.set_ylim(bottom=0)
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()

changes = np.flatnonzero(np.diff(n_by_step[-1500:])).size
say(
    f"n changed {changes} times in 1,500 steps: it holds for {1500 / (changes + 1):.1f} steps in the mean,\nand took "
    f"{len(set(n_by_step[-1500:].tolist()))} different values.",
    f"1,500 步里 n 变了 {changes} 次：平均每 {1500 / (changes + 1):.1f} 步就变，"
    f"一共出现了 {len(set(n_by_step[-1500:].tolist()))} 个不同的值。",
)
# %% [markdown] lang="en"
# One graph for each n from 1 to 256? It works, but every graph takes time to capture and memory to keep. So engines
# capture a list of sizes and take **the smallest one that holds n**. The list below is the course's thirteen sizes.
#
# **Predict:** which size serves n = 5? n = 33? And n = 257?
# %% [markdown] lang="zh"
# 从 1 到 256，每个 n 捕获一张行不行？行，但每张 graph 都要花时间捕获、花内存保存。所以引擎只捕获一串尺寸，运行时取**装得下 n 的最小一个**。下面是本课程的十三个尺寸。
#
# **先猜**：n = 5 用哪个尺寸？n = 33 呢？n = 257 呢？
# %%
seed = preset("seed")
print("captured:", *seed)
for n in (5, 33, 256, 257):
    print(f"n = {n:<3} → {seed.pick(n)}")
# %% [markdown] lang="en"
# `None` is an answer that matters: above the largest size there is no graph, and the step must run eager, at its exact
# size. A runner that writes `next(b for b in BUCKETS if b >= n)` stops with `StopIteration` there. (A public case of
# a missing top: nano-vllm PR#216.)
#
# ## Pad, replay, cut
#
# `BucketedRunner` does it all: fill the batch up, replay, return a copy of the first n rows. We capture five sizes of
# `bard` and feed it batches of several n.
#
# **Predict:** do the logits of the real rows change because of the rows behind them?
# %% [markdown] lang="zh"
# `None` 这个答案很重要：超过最大尺寸就没有 graph 可用，这一步必须按原来的大小走 eager。要是 runner 里写的是 `next(b for b in BUCKETS if b >= n)`，到这里就会抛出 `StopIteration`。（公开案例，漏掉了最大尺寸：nano-vllm PR#216。）
#
# ## 补齐、回放、裁掉
#
# `BucketedRunner` 把这些都做了：把 batch 补满，回放，返回前 n 行的拷贝。我们为 `bard` 捕获五个尺寸，再喂给它几种 n。
#
# **先猜**：后面多出来的行，会不会改变真实行的 logits？
# %%
CONTEXT, TOP = 64, 16
bard = load_checkpoint("bard")
model = bard.model(stage=15, max_rows=64, blocks=blocks_needed(TOP + 1, CONTEXT))
runner = BucketedRunner(model, [1, 2, 4, 8, TOP])
everyone = running_batch(model, TOP + 1, CONTEXT)  # 17 requests; a batch of n is the first n of them
largest = max(
    (runner.forward(everyone.first(n)) - model.forward(everyone.first(n))).abs().max().item()
    for n in (1, 3, 5, 9, 13, TOP + 1)
)
say(
    f"Largest difference of any logit between padded replay and eager at the exact n: {largest:.1e}.",
    f"补齐后回放，与按原来的 n 走 eager 相比，logits 的最大差值：{largest:.1e}。",
)
assert largest < 1e-4  # rounding at most
print(runner.statistics())
# %% [markdown] lang="en"
# The table has the shape of vLLM's own log (`--cudagraph-metrics`): `FULL` is a replay, `NONE` is eager. The real rows
# did not notice the others. They *must* not, and this is easy to get wrong: lesson 5 is about that.
#
# ## Price 1: rows
#
# Rows are simple to count. Each step computes c(n) rows, n of them for somebody. Below, the height of a bar is the rows
# that all steps of this n compute; hatched is padding.
#
# **Predict:** with the thirteen sizes, what share of all computed rows is padding for this chat traffic?
# %% [markdown] lang="zh"
# 这张表与 vLLM 自己的日志（`--cudagraph-metrics`）形状相同：`FULL` 是回放，`NONE` 是 eager。真实的行没有察觉到别的行。它们也**绝不能**察觉，而这一点很容易写错：第 5 课专讲这件事。
#
# ## 代价之一：行数
#
# 行数最好数。每一步计算 c(n) 行，其中 n 行有人要。下图里柱高是该 n 的所有步共计算的行数，斜线部分是补齐。
#
# **先猜**：对这份聊天流量，十三个尺寸会让补齐占到所有计算行的百分之几？
# %%
traffic = chat()
origin = traffic.origin.replace("modelled: ", pick("modelled: ", "模型推算："))
show_svg(
    layout_svg(
        traffic.counts.tolist(),
        [LayoutPanel(pick("the course's thirteen sizes", "课程的十三个尺寸"), seed)],
        language(),
        origin=origin,
    )
)
rows = row_cost(seed, traffic)
say(
    f"Modelled: n is {traffic.mean:.1f} in the mean and {traffic.largest} at most.\n{rows.padding_rows:,} of "
    f"{rows.padding_rows + rows.real_rows:,} computed rows are padding: {rows.padding_fraction:.1%}.",
    f"模型推算：n 平均 {traffic.mean:.1f}，最大 {traffic.largest}。共计算 {rows.padding_rows + rows.real_rows:,} 行，"
    f"其中 {rows.padding_rows:,} 行是补齐：{rows.padding_fraction:.1%}。",
)
# %% [markdown] lang="en"
# ## Price 2: time
#
# A padding row costs rows, but does it cost time? Measure: for a few n, the step of bard eager at the exact n, as a
# replay at the exact n (if only we had captured it), and as the padded replay that the runner really does.
#
# **Predict:** is a padded replay always faster than eager? At n = 3? At n = 9, padded to 16?
# %% [markdown] lang="zh"
# ## 代价之二：时间
#
# 补齐多出来的行，一定多花时间吗？来测：对几个 n，分别测 bard 的一步按原来的 n 走 eager、按原来的 n 回放（假如恰好捕获过），以及 runner 实际做的补齐后回放。
#
# **先猜**：补齐后回放总比 eager 快吗？n = 3 时呢？n = 9、补齐到 16 时呢？
# %%
measured = {}
for n in (1, 3, 5, 9, 13):
    batch = everyone.first(n)
    exact = GraphRunner(model, n)
    exact.run(batch)
    runner.forward(batch)  # leaves the padded batch in the static buffers
    size = runner.layout.pick(n)
    ways = {
        "eager": eager_step(model, batch),
        "replay": exact.graph.replay,
        "padded": runner.runners[size].graph.replay,
    }
    measured[n] = size, measure_steps(device, ways, repeats=15, recorded=3, seconds=0 if quiet else 1)

figure, axes = plt.subplots(figsize=(7, 2.8), dpi=100)
bars = {
    "eager": ("eager, exact n", "#0072B2", ""),
    "replay": ("replay, exact n", "#E69F00", ""),
    "padded": ("replay, padded", "#E69F00", "////"),
}
for place, (way, (label, colour, hatch)) in enumerate(bars.items()):
    at = np.arange(len(measured)) + 0.27 * (place - 1)
    heights = [found[way].step_us for _, found in measured.values()]
    axes.bar(at, heights, 0.25, label=label, color=colour, hatch=hatch, edgecolor="#404040", linewidth=0.5)
axes.set_xticks(range(len(measured)), [f"n = {n} → {size}" for n, (size, _) in measured.items()])
axes.set_ylabel("µs a step, measured")
axes.legend(frameon=False, fontsize=8, loc="upper left")
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()

lines = []
for n, (size, found) in measured.items():
    eager_us, exact_us, padded_us = (found[way].step_us for way in bars)
    us = (f"{value:,.0f}" for value in (eager_us, exact_us, padded_us))
    lines.append((str(n), str(size), *us, f"{padded_us - exact_us:+,.0f}", f"{eager_us / padded_us:.2f}×"))
header = ("n", "size", "eager, µs", "replay at n, µs", "padded, µs", "padding costs, µs", "padded against eager")
print(table(header, lines, left=0))
losers = [n for n, (_, found) in measured.items() if found["padded"].step_us > found["eager"].step_us]
named = ", ".join(map(str, losers))
say(
    f"Measured: padded replay was slower than eager at n = {named}."
    if losers
    else "Measured: padded replay won at each of these n.",
    f"实测：n = {named} 时，补齐后回放比 eager 还慢。" if losers else "实测：在这几个 n 上，补齐后回放都更快。",
)
if not quiet:
    say(
        "The machine is not quiet: single times here may be off by a factor of two.",
        "这台机器并不安静：这里的单个时间可能差两倍。",
    )
# %% [markdown] lang="en"
# Two things add up: what replay saves, and what padding costs. At small n the saving is the larger. But a CPU core
# computes row after row, so each padding row costs its full time, and when the device becomes the limit the saving is
# gone and the price stays. Then eager at the exact n may win. (The copying of inputs is in none of the three times.)
#
# A GPU is different at small n: a step reads all weights once, for one row or for sixteen, so a further row is cheap.
# Here is the same question for SmolLM2-360M on an H100, *modelled*, over the whole chat traffic. (The model bills a
# padding row like a real one with 512 tokens of context. A real padding row has a context of one token or none, so
# padding is still cheaper than this.)
# %% [markdown] lang="zh"
# 这里有两笔账：回放省下多少，补齐花掉多少。n 小的时候省得多。但 CPU 核心是一行一行算的，每多补一行就多花一行的时间；等到设备成了瓶颈，回放不再省时间，补齐的代价却还在。这时按原来的 n 走 eager 反而可能更快。（这三个时间都不含拷贝输入。）
#
# 换成 GPU，n 较小的时候就不一样了：一行也好，十六行也好，一步都只把权重读一遍，所以多一行很便宜。同样的问题，换成 H100 上的 SmolLM2-360M、整份聊天流量，用**模型推算**。（模型把补齐的一行也当成上下文 512 的真实行来计价。真正的补齐行，上下文只有一个 token 甚至没有，所以补齐比这里算的还要便宜。）
# %%
setup = Setup(stage=7)  # SmolLM2-360M on an H100, fused about as serving engines do
graph_us, eager_us = step_time_curve(setup, 256)
times = StepTimes(np.array(graph_us), np.array(eager_us), f"modelled: {setup.provenance}")
cost = time_cost(seed, traffic, times)
say(
    f"Modelled: {rows.padding_fraction:.1%} of the rows are padding, but {cost.time_waste_fraction:.1%} of the time.\n"
    f"A step takes {cost.step_us:,.0f} µs; all eager it would take {cost.eager_step_us:,.0f} µs.\nReplay saves "
    f"{cost.replay_saves_us:,.0f} µs, padding costs {cost.padding_us:,.1f} µs.",
    f"模型推算：补齐占 {rows.padding_fraction:.1%} 的行，却只占 {cost.time_waste_fraction:.1%} 的时间。\n"
    f"每步 {cost.step_us:,.0f} µs；全部走 eager 则要 {cost.eager_step_us:,.0f} µs。"
    f"回放省下 {cost.replay_saves_us:,.0f} µs，补齐花掉 {cost.padding_us:,.1f} µs。",
)
# %% [markdown] lang="en"
# So do not argue about padding in rows when what you pay is time. And do not carry a figure from one kind of device to
# another.
#
# ## Price 3: memory
#
# The intermediates of a captured step have fixed addresses, so their memory stays taken for as long as the graph lives.
#
# **Predict:** thirteen graphs from 1 to 256 rows. How many rows of intermediates stay allocated: 256, or more?
# %% [markdown] lang="zh"
# 所以，花的是时间，就别拿行数来争论；也别把一种设备上的数字搬到另一种设备上。
#
# ## 代价之三：内存
#
# 捕获好的一步，中间结果的地址是固定的，graph 活多久，这些内存就占多久。
#
# **先猜**：十三张 graph，从 1 行到 256 行。一共有多少行中间结果一直占着内存？256 行，还是更多？
# %%
private, shared = pinned_rows(seed, "private"), pinned_rows(seed, "shared")
say(
    f"A pool for each graph: {' + '.join(map(str, seed))} = {private} rows.\n"
    f"One pool for all: {shared} rows, what the largest needs.",
    f"每张 graph 各用一个内存池：{' + '.join(map(str, seed))} = {private} 行。\n"
    f"所有 graph 共享一个池：{shared} 行，够最大的一张用就行。",
)
# %% [markdown] lang="en"
# Graphs that never run at the same time can use the same memory one after the other. That is what engines do. The order
# matters to a pool that only hands out memory that it already has room in: capture **the largest first**, and all others
# fit into its blocks. Measured on bard's five sizes:
# %% [markdown] lang="zh"
# 从不同时运行的 graph 可以先后使用同一块内存，引擎正是这样做的。顺序也有讲究：先捕获**最大的**，其余的都能放进它留下的空间；反过来从小到大，每张都要再添新的。在 bard 的五个尺寸上实测：
# %%


def pool_bytes(sizes, share):
    """Bytes of all pools after capturing the sizes in this order."""
    graphs = []  # all kept: a pool holds what its living graphs hold
    for size in sizes:
        graphs.append(GraphRunner(model, size, pool=graphs[-1].pool if share and graphs else None).graph)
    return graphs[-1].pool_bytes if share else sum(graph.pool_bytes for graph in graphs)


sizes = list(runner.layout)
lines = [
    ("private pools", f"{pool_bytes(sizes, share=False):,}"),
    ("one pool, smallest first", f"{pool_bytes(sizes, share=True):,}"),
    ("one pool, largest first", f"{pool_bytes(sizes[::-1], share=True):,}"),
]
print(table((f"measured, bard, sizes {', '.join(map(str, sizes))}", "bytes pinned"), lines))
default = MemoryModel()
say(
    f"The library's own estimate for an engine: {default.graph_mib:g} MiB a graph and {default.row_mib:g} MiB a row.",
    f"本库对真实引擎的默认估计：每张 graph {default.graph_mib:g} MiB，每行 {default.row_mib:g} MiB。",
)
# %% [markdown] lang="en"
# A real graph also keeps something that no sharing removes: its nodes, and the driver's bookkeeping. Published figures
# are 6 to 28 MiB for each graph.
#
# ## What engines capture
#
# Now the lists of real engines (up to 256), on chat and on code completion, where only a few requests run at a time.
# Rows and time are *modelled*; the lists were read in the engines' sources. Real engines differ in a detail or two at
# the top; here each list ends in 256.
#
# **Predict:** is the longer list always the better one?
# %% [markdown] lang="zh"
# 真实的 graph 还有一部分是共享也省不掉的：节点本身和驱动的登记信息。公开的数字是每张 6 到 28 MiB。
#
# ## 各家引擎捕获什么
#
# 下面是真实引擎的尺寸表（到 256 为止），分别用在聊天和代码补全上；后者同时只有几个请求在跑。行数和时间是**模型推算**，尺寸表读自各引擎的源码。各家在最大尺寸附近略有出入，这里一律以 256 结尾。
#
# **先猜**：尺寸越多就越好吗？
# %%
completion = code()
memory = MemoryModel()
lines = []
for name in PRESETS:
    layout = preset(name)
    shares = []
    for served in (traffic, completion):
        shares.append(f"{row_cost(layout, served).padding_fraction:.1%}")
        shares.append(f"{time_cost(layout, served, times).time_waste_fraction:.2%}")
    lines.append((name, str(len(layout)), *shares, f"{memory.shared_mib(layout):,.0f}"))
header = ("layout", "sizes", "chat rows", "chat time", "code rows", "code time", "MiB, shared pool")
print(table(header, lines))
# %% [markdown] lang="en"
# Beyond some point more sizes buy little. vLLM's list is far longer than TensorRT-LLM's, and it makes no difference to
# this chat: the additional sizes lie above the batches that occur. What they cost is start-up time and memory.
#
# ## The best sizes for a traffic
#
# Which sizes are best if you may have k of them? The cost of a list is a sum over its intervals, so dynamic programming
# finds the exact answer in milliseconds: `best_layout`. The largest size must stay 256, so that no batch is without a
# graph.
#
# **Predict:** thirteen sizes, but fitted to this chat traffic. Where will they lie? And what is left of the padding?
# %% [markdown] lang="zh"
# 过了某一点，再多的尺寸也换不来什么：vLLM 的表比 TensorRT-LLM 的长得多，对这份聊天流量却没有区别，因为多出来的尺寸比实际出现的 batch 都大。它们的代价却是实实在在的：捕获更久，占的内存更多。
#
# ## 一份流量的最优尺寸
#
# 如果允许有 k 个尺寸，哪 k 个最好？一张表的代价是各个区间代价之和，所以动态规划几毫秒就能给出精确解：`best_layout`。最大尺寸必须仍是 256，这样才不会有 batch 没有 graph 可用。
#
# **先猜**：同样十三个尺寸，但按这份聊天流量来选。它们会落在哪里？补齐还剩多少？
# %%
fitted = best_layout(traffic, max_batch=256, count=len(seed))
panels = [LayoutPanel(pick("course", "课程的尺寸"), seed), LayoutPanel(pick("best", "最优"), fitted)]
show_svg(layout_svg(traffic.counts.tolist(), panels, language(), origin=origin))
print("best:", *fitted)
after = row_cost(fitted, traffic)
say(
    f"Padding rows: {rows.padding_fraction:.1%} with the thirteen sizes of the course, {after.padding_fraction:.1%} "
    f"with the thirteen best (modelled).",
    f"补齐的行：课程的十三个尺寸为 {rows.padding_fraction:.1%}，最优的十三个为 {after.padding_fraction:.1%}（模型推算）。",
)
# %% [markdown] lang="en"
# How many sizes are worth having? Each further one brings less.
# %% [markdown] lang="zh"
# 到底要几个尺寸才划算？每多一个，好处都比前一个少。
# %%
counts = range(1, 21)
figure, axes = plt.subplots(figsize=(7, 2.6), dpi=100)
for served, colour, mark in ((traffic, "#0072B2", "o"), (completion, "#D55E00", "s")):
    waste = [row_cost(best_layout(served, 256, count=k), served).padding_fraction for k in counts]
    axes.plot(counts, [100 * share for share in waste], mark + "-", color=colour, label=f"best, {served.name}", ms=4)
    own = 100 * row_cost(seed, served).padding_fraction
    axes.plot([len(seed)], [own], mark, color=colour, mfc="white", ms=8, label=f"seed, {served.name}")
axes.set_xlabel("captured sizes")
axes.set_ylabel("padding, % of rows (modelled)")
axes.set_xticks(range(1, 21, 3))
axes.legend(frameon=False, fontsize=8)
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()
# %% [markdown] lang="en"
# ## Held-out traffic
#
# A layout that was fitted to a traffic looks good on it. That proves little: tomorrow's traffic is another. So fit to
# the *first half* of the steps, and judge on the second half and on other traffic.
#
# **Predict:** which one holds on code completion: the sizes fitted to chat, or the course's plain list?
# %% [markdown] lang="zh"
# ## 没有参与拟合的流量
#
# 按某份流量选出来的尺寸，在那份流量上当然好看。这说明不了什么：明天的流量是另一份。所以只用**前一半**的步来拟合，再用后一半和别的流量来评判。
#
# **先猜**：到了代码补全上，哪一个更经得起考验：按聊天拟合的尺寸，还是课程那张普通的表？
# %%
busy = chat(load=WORKLOADS["chat"].full_load(256))


def fit(part):
    """The thirteen best sizes for a traffic."""
    return best_layout(part, 256, count=13)


for fitted_to in (traffic, busy):
    others = [other for other in (traffic, busy, completion) if other is not fitted_to]
    report = held_out(fitted_to, fit, others)
    print("sizes:", *report.layout)
    lines = [
        (
            e.traffic.name,
            "held out" if e.held_out else "fitted to",
            f"{e.rows.padding_fraction:.1%}",
            f"{row_cost(seed, e.traffic).padding_fraction:.1%}",
        )
        for e in report.evaluations
    ]
    print(table(("traffic", "", "fitted sizes", "seed sizes"), lines, left=2), end="\n\n")
fitted_busy, on_code = fit(busy), row_cost(seed, completion).padding_fraction
say(
    f"Fitted to a chat server that is always full, used for code:\n{row_cost(fitted_busy, completion).padding_fraction:.1%} "
    f"of the rows are padding. The course's list: {on_code:.1%}.",
    f"按始终满载的聊天服务拟合、用在代码补全上：补齐占 {row_cost(fitted_busy, completion).padding_fraction:.1%} 的行；"
    f"课程那张表：{on_code:.1%}。",
)
# %% [markdown] lang="en"
# That is why engines ship a plain grid, and why you should keep a few small sizes even when the fit does not ask for
# them. Fit when you know your traffic, and evaluate on a day that the fit has not seen.
#
# ## Try it
#
# Choose a traffic, a layout, a kind of pool and a memory budget. The widget shows the best layout for the budget beside
# yours. (It computes all best layouts first, which takes a few seconds.)
#
# **Tasks.** With private pools and 300 MiB: what does the optimum give up? Can you come within one per cent of it by
# hand? Take sizes fitted to one traffic, then switch to another.
# %% [markdown] lang="zh"
# 所以引擎默认给的是一张均匀的表；也正因为这样，即使拟合用不着，你也该留几个小尺寸。清楚自己的流量时再去拟合，并且用拟合没见过的某一天来评判。
#
# ## 动手试试
#
# 选一份流量、一个布局、内存池的种类和内存预算。面板会把这个预算下的最优布局和你的并排放在一起。（它会先把所有最优布局算好，要几秒钟。）
#
# **任务**：内存池各自独立、预算 300 MiB 时，最优布局舍弃了什么？你能手工调到离它不到一个百分点吗？再采用按一份流量选出的尺寸，然后换一份流量看看。
# %%
buckets_widget()
# %% [markdown] lang="en"
# ## Take it to your engine
#
# Use your own traffic: `s13 buckets --traffic FILE` reads a CSV of requests, a histogram, or a vLLM log with
# `--cudagraph-metrics`. Here are the fitted sizes, with small ones added by hand, as settings to paste. `enable_padding`
# in TensorRT-LLM is off by default: without it only the exact sizes use a graph.
# %% [markdown] lang="zh"
# ## 用到你的引擎里
#
# 请用你自己的流量：`s13 buckets --traffic FILE` 能读请求的 CSV、直方图，或者带 `--cudagraph-metrics` 的 vLLM 日志。下面是拟合出的尺寸，再手工添上几个小的，写成可以直接粘贴的设置。TensorRT-LLM 的 `enable_padding` 默认是关的：不打开，就只有恰好等于某个尺寸的 batch 才用得上 graph。
# %%
mine = BucketLayout([1, 2, 4, 8, 16, *fitted])
for engine in EXPORTS:
    print(f"# {engine}\n{export(mine, engine)}\n")
used = Counter(mine.pick(n) for n in n_by_step.tolist())
say(
    f"With these {len(mine)} sizes, {row_cost(mine, completion).padding_fraction:.1%} of the rows are padding on code and "
    f"{row_cost(mine, traffic).padding_fraction:.1%} on chat.\nThe traffic of the first picture used {len(used)} of them.",
    f"用这 {len(mine)} 个尺寸，代码补全的补齐占 {row_cost(mine, completion).padding_fraction:.1%} 的行，"
    f"聊天占 {row_cost(mine, traffic).padding_fraction:.1%}。第一张图里的流量用到了其中 {len(used)} 个。",
)
# %% [markdown] lang="en"
# ## Recap
#
# * n changes every few steps, a graph has one size: capture a few, pad to the next, run eager above the largest.
# * Padding has three prices. Rows are easy to count; time depends on the device; memory depends on the pool.
# * One shared pool, largest first: the largest size decides. Private pools: the sum of all sizes.
# * The optimum for a traffic is exact and quick to find. Judge it on traffic that it was not fitted to.
# * Padding rows must be harmless. How they fail to be is [lesson 5](05_padding_bug.ipynb).
#
# **Exercise 1, Bucket memory:** in `exercises/`.
# %% [markdown] lang="zh"
# ## 小结
#
# * n 每几步就变，一张 graph 只有一个大小：捕获几个尺寸，补齐到下一个，超过最大的走 eager。
# * 补齐有三种代价：行数好数，时间取决于设备，内存取决于内存池。
# * 共享一个池、先捕获最大的：由最大尺寸决定。各用各的池：所有尺寸之和。
# * 一份流量的最优尺寸可以精确、快速地求出，但要用没参与拟合的流量来评判。
# * 补齐的行必须无害。它们怎样闯祸，见[第 5 课](05_padding_bug.ipynb)。
#
# **练习 1（桶的内存）**：在 `exercises/` 里。
