# ---
# title_en: When it stops mattering
# title_zh: 什么时候不再重要
# minutes: 20
# ---
# %% [markdown] lang="en"
# # When it stops mattering
#
# *About 20 minutes. 中文版：[什么时候不再重要](../zh/06_when_it_stops.ipynb).*
#
# Launching costs the same for each step, whatever the kernels do. Make the kernels longer, and launching hides behind
# them. From there on, graphs bring nothing. This lesson finds that point, the **crossover**, in three ways, and checks
# a model against your own machine.
#
# At the end of this lesson you can
#
# * find the crossover by batch, by hidden size and by context,
# * calibrate a simulator on your machine, and say how far to trust it,
# * say when a large batch closes the gaps, and when it does not,
# * explain why long prompts need no graph and short ones might,
# * give an example where max(host, device) is far off.
# %% [markdown] lang="zh"
# # 什么时候不再重要
#
# *约 20 分钟。English: [When it stops mattering](../en/06_when_it_stops.ipynb).*
#
# 不管 kernel 做什么，每一步的启动开销都一样。kernel 变长，启动就藏到它们后面去了；从那以后，再用 graph 也没有收益。这一课用三种方式找到这个**交叉点**，并拿你自己的机器来检验模型。
#
# 学完这一课，你能够：
#
# * 分别沿 batch、hidden 大小和上下文长度找到交叉点；
# * 在自己的机器上校准模拟器，并说出它可以信到什么程度；
# * 说出大 batch 什么时候能合上空隙，什么时候不能；
# * 解释为什么长 prompt 用不着 graph，而短的也许用得着；
# * 举出一个 max(主机, 设备) 差得很远的例子。
# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from s13lib.commands.output import table
from s13lib.device import best_device
from s13lib.figures import Panel, timeline_svg
from s13lib.graphs import GraphRunner
from s13lib.kernels.textbook import DecoderConfig, TextbookDecoder
from s13lib.model import DecodeBatch, DecoderModel, DecoderWeights, Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.calibrate import calibrate, check_order, parameter_counts, shape_of
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.simulator import PRESETS, Setup, Workload, crossover, launch_times, simulate, step_us
from s13lib.widgets import language, pick, say, show_svg, simulator_widget

device = best_device(default="softgpu")
banner = device.banner()
quiet = "not contended" in banner
print(banner)
if not quiet:
    say(
        "Other work shares the processors, or there is only one. Times measured below may be off by a factor of two and "
        "more, so a crossover may lie elsewhere than on a quiet machine. The modelled H100 figures are not touched.",
        "处理器上有别的程序，或者只有一个处理器。下面测出的时间可能差两倍以上，交叉点也可能和安静的机器上不同。"
        "模型推算的 H100 数字不受影响。",
    )
# %% [markdown] lang="en"
# ## Calibrate first
#
# The simulator needs a few costs: of a launch, of a replay, of kernels by their work. On an H100 we take them from
# public figures. On *your* machine we can measure them, from the un-fused bard at batch 1, 4 and 16. This takes a few
# seconds.
# %% [markdown] lang="zh"
# ## 先校准
#
# 模拟器需要几项开销：一次启动、一次回放，以及 kernel 按工作量要花的时间。H100 上的取自公开数字；而在**你的**机器上可以直接测：用不融合的 bard，batch 为 1、4、16。要几秒钟。
# %%
bard = load_checkpoint("bard")
calibration = calibrate(bard, device, "lesson 6", repeats=10, seconds=1)
c, counts = calibration, parameter_counts()
say(
    f"Measured: a launch costs {c.launch_base_us:.2f} µs and {c.launch_argument_us:.2f} µs for each argument, "
    f"a replay {c.graph_base_us:.1f} µs.\nA kernel takes at least {c.floor_us:.2f} µs; matrix products run at "
    f"{c.linear_rate / 1000:.1f} GFLOP/s, attention at {c.attention_rate / 1000:.1f}.",
    f"实测：一次启动 {c.launch_base_us:.2f} µs，每个参数再加 {c.launch_argument_us:.2f} µs；一次回放 "
    f"{c.graph_base_us:.1f} µs。\n一个 kernel 至少 {c.floor_us:.2f} µs；矩阵乘每秒 {c.linear_rate / 1000:.1f} GFLOP，"
    f"注意力每秒 {c.attention_rate / 1000:.1f} GFLOP。",
)
# %% [markdown] lang="en"
# ## Three ways to longer kernels
#
# Each of the three changes the work of a kernel and not the number of launches:
#
# * **batch**: more rows for each kernel,
# * **hidden size**: larger matrices (models with random weights: time does not care what the weights are),
# * **context**: attention reads more keys and values.
#
# For each point we measure the step launched one by one and as a graph. The host's time and the device's are what
# crosses.
#
# **Predict:** at which batch does bard's device time (15 kernels a layer) reach its launch time: 2, 8, 32? And which of
# the two curves stays flat?
# %% [markdown] lang="zh"
# ## 让 kernel 变长的三种办法
#
# 三种办法都改变 kernel 的工作量，但不改变启动次数：
#
# * **batch**：每个 kernel 算更多行；
# * **hidden 大小**：矩阵更大（用随机权重的模型：权重取什么值，不影响时间）；
# * **上下文**：注意力要读更多的 key 和 value。
#
# 每个点都测两种：逐个启动，和用一张 graph 回放。会相交的，是主机的时间和设备的时间。
#
# **先猜**：bard（每层 15 个 kernel）的设备时间在 batch 为多少时追上启动时间：2、8，还是 32？两条曲线里，哪一条是平的？
# %%


def random_model(hidden, layers=8):
    """A model of this width with random weights, and its configuration."""
    config = DecoderConfig(
        layers=layers,
        hidden=hidden,
        ffn=3 * hidden,
        heads=hidden // 16,
        kv_heads=hidden // 32,
        head_dim=16,
        vocab=72,
        rope_theta=1e4,
        norm_eps=1e-5,
        tied=True,
        max_context=512,
    )
    torch.manual_seed(0)
    weights = DecoderWeights.from_state_dict(config, TextbookDecoder(config).state_dict(), device, progress=False)
    return DecoderModel(config, weights, 15, device, max_rows=64, blocks=blocks_needed(1, 64))


def bard_model(batch, context):
    """Bard without fusion, with room for this batch."""
    return bard.model(stage=15, max_rows=256, blocks=blocks_needed(batch, context))


cases = {("batch", batch): (bard_model(batch, 64), batch, 64) for batch in (1, 2, 4, 8, 16)}
cases |= {("hidden size", hidden): (random_model(hidden), 1, 64) for hidden in (64, 128, 256)}
cases |= {("context", context): (bard_model(2, context), 2, context) for context in (16, 128, 480)}

ways, predicted, keep = {}, {}, []
for key, (model, batch, context) in cases.items():
    inputs = running_batch(model, batch, context)
    runner = GraphRunner(model, batch)
    runner.run(inputs)
    keep.append(runner)
    ways[key, False] = eager_step(model, inputs)
    ways[key, True] = runner.graph.replay
    shape, work = shape_of(model.config, "case"), Workload.decode(batch, context)
    for graph in (False, True):
        predicted[key, graph] = calibration.step(shape, 15, work, graph, counts)
measured = measure_steps(device, ways, repeats=8, recorded=4, seconds=0 if quiet else 6)

figure, panels = plt.subplots(1, 3, figsize=(7, 3.0), dpi=100)
notes = {"batch": "bard, context 64", "hidden size": "8 layers, batch 1", "context": "bard, batch 2"}
for axes, (what, note) in zip(panels, notes.items(), strict=True):
    keys = [key for key in cases if key[0] == what]
    at = [value for _, value in keys]
    host = [measured[key, False].host_us / 1000 for key in keys]
    busy = [measured[key, False].device_busy_us / 1000 for key in keys]
    axes.plot(at, host, "o", color="#0072B2", label="host, measured")
    axes.plot(at, [predicted[key, False].host_us / 1000 for key in keys], "--", color="#0072B2", label="host, modelled")
    axes.plot(at, busy, "s", color="#D55E00", label="device, measured")
    axes.plot(
        at, [predicted[key, False].device_us / 1000 for key in keys], "--", color="#D55E00", label="device, modelled"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(at, map(str, at))
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.minorticks_off()
    axes.set_xlabel(what)
    axes.set_title(note, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("ms a step")
labels = panels[0].get_legend_handles_labels()
figure.legend(*labels, loc="lower center", ncols=4, frameon=False, fontsize=8, columnspacing=1.2)
figure.tight_layout(rect=(0, 0.08, 1, 1))
plt.show()
# %%
lines = []
for key in cases:
    eager, graph = measured[key, False], measured[key, True]
    model_eager, model_graph = predicted[key, False], predicted[key, True]
    lines.append(
        (
            f"{key[0]} {key[1]}",
            f"{eager.device_busy_us / eager.host_us:.2f}",
            f"{model_eager.device_us / model_eager.host_us:.2f}",
            f"{eager.step_us:,.0f}",
            f"{model_eager.step_us:,.0f}",
            f"{eager.step_us / graph.step_us:.2f}×",
            f"{model_eager.step_us / model_graph.step_us:.2f}×",
        )
    )
header = ("", "device/host", "modelled", "step, µs", "modelled", "graph gains", "modelled")
print(table(header, lines))


def first_bound(what, ratio):
    """The first measured point at which the device's time reaches the host's."""
    return next((str(key[1]) for key in cases if key[0] == what and ratio(key) >= 1), pick("none here", "这里没有"))


for what in notes:
    found = first_bound(what, lambda key: measured[key, False].device_busy_us / measured[key, False].host_us)
    expected = first_bound(what, lambda key: predicted[key, False].device_us / predicted[key, False].host_us)
    say(
        f"{what}: the device is the limit from {found} on (measured), {expected} (modelled).",
        f"{what}：实测从 {found} 起设备成为瓶颈；模型推算：{expected}。",
    )
for what in notes:
    errors = [
        abs(predicted[key, graph].step_us / measured[key, graph].step_us - 1)
        for key in cases
        if key[0] == what
        for graph in (False, True)
    ]
    say(
        f"{what}: modelled steps are off by {sum(errors) / len(errors):.0%} in the mean, {max(errors):.0%} at most.",
        f"{what}：推算的每步时间平均相差 {sum(errors) / len(errors):.0%}，最多 {max(errors):.0%}。",
    )
if not quiet:
    say(
        "The machine is not quiet: launching thread and device thread are interrupted in turns, which lengthens the steps\n"
        "launched one by one most of all. Gains above look larger than on a quiet machine, and the errors too.",
        "这台机器并不安静：启动线程和设备线程轮流被打断，逐个启动的步拖得最长。\n所以上面的收益看起来比安静的机器上大，误差也更大。",
    )
# %% [markdown] lang="en"
# Read the table line by line. Where device ÷ host is well below 1, a graph gains a lot. Where it is above 1, the gain
# goes towards 1.00×. That is the whole rule, and the three knobs are only three ways along it. Host time is flat,
# except where a slow device makes the launching thread wait or shares a processor with it.
#
# The model was fitted to three bard steps, at context 64. Other batches of bard are close to that. Other hidden sizes
# and contexts are farther away, and larger errors are no surprise there: a larger matrix runs at another rate than a
# small one. A calibrated model tells you *which side* of the crossover you are on more surely than how long a step
# takes. `s13 calibrate` stores such a calibration with more repeats, `s13 predict` checks it.
#
# ## Drag the batch to 128
#
# Now the H100, *modelled*. SmolLM2-360M, 9 kernels a layer, 6 µs a launch, no fusion switch, no graph. Drag the batch
# to 128: do the gaps close by themselves?
#
# **Predict:** yes? For every context?
# %% [markdown] lang="zh"
# 一行一行地读这张表。设备 ÷ 主机远小于 1 的地方，graph 收益很大；大于 1 的地方，收益趋近于 1.00 倍。规律就是这一条，三个旋钮只是沿着它走的三条路。主机时间是平的，除非设备太慢，让启动线程等它，或者和它抢同一个处理器。
#
# 模型只拟合了 bard 的三步，上下文都是 64。bard 的其他 batch 离它很近；别的 hidden 大小和上下文离得远，误差更大也不足为奇：大矩阵和小矩阵跑的速率并不相同。校准过的模型，说“在交叉点的**哪一边**”比说“一步要多久”更可靠。`s13 calibrate` 会用更多次重复做同样的校准并存下来，`s13 predict` 会检验它。
#
# ## 把 batch 拖到 128
#
# 换成 H100，**模型推算**：SmolLM2-360M，每层 9 个 kernel，每次启动 6 µs，不开融合，不用 graph。把 batch 拖到 128，空隙会自己合上吗？
#
# **先猜**：会合上吗？不管上下文多长都会吗？
# %%
h100 = PRESETS["smollm2-360m-h100"]
reports = [
    simulate(replace(h100, batch=batch, context=context)) for batch, context in ((1, 512), (128, 512), (128, 128))
]
panels = []
for r in reports:
    title = f"batch {r.setup.batch}, context {r.setup.context}"
    panels.append(Panel(title, r.timeline))
show_svg(timeline_svg(panels, language()))
lines = []
for context in (64, 128, 256, 512, 1024, 4096):
    r = simulate(replace(h100, batch=128, context=context))
    at = crossover(replace(h100, context=context))
    lines.append(
        (
            str(context),
            f"{r.host_us:,.0f}",
            f"{r.device_us:,.0f}",
            f"{r.utilization:.0%}",
            str(at) if at else pick("none up to 4,096", "4,096 以内没有"),
        )
    )
print(table(("context", "launches, µs", "kernels, µs", "busy at batch 128", "crossover batch"), lines, left=0))
long, short = reports[1], reports[2]
say(
    f"Modelled, batch 128. Context 512: kernels {long.device_us:,.0f} µs against launches {long.host_us:,.0f} µs, "
    f"the gaps close.\nContext 128: {short.device_us:,.0f} µs, they stay open and the device is busy for {short.utilization:.0%}.",
    f"模型推算，batch 128。上下文 512：kernel {long.device_us:,.0f} µs，启动 {long.host_us:,.0f} µs，空隙合上了。\n"
    f"上下文 128：kernel 只有 {short.device_us:,.0f} µs，空隙还在，设备忙碌 {short.utilization:.0%}。",
)
# %% [markdown] lang="en"
# For this small model it is mostly attention that grows with the batch: each request brings keys and values of its own.
# The weights are read once, whatever the batch. So a batch of short requests may leave the device waiting, and "at
# batch 128 the gaps close" is true only together with a context. (Even where the totals have crossed, single kernels,
# such as a norm, are shorter than a launch, but the queue is full by then.)
#
# Try it. Take the model SmolLM2-360M, both switches off, batch 128, and move the context. Then the two tasks.
# %% [markdown] lang="zh"
# 对这样的小模型，随 batch 增长的主要是注意力：每个请求都带来自己的 key 和 value，而权重不管 batch 多大都只读一遍。所以一批短请求仍可能让设备空等；“batch 到 128，空隙自己合上”这句话，要连同上下文长度一起说才成立。（即使总时间已经反超，个别 kernel，例如 norm，仍比一次启动短；只是那时队列已经排满了。）
#
# 动手试试：模型选 SmolLM2-360M，两个开关都关，batch 设为 128，再拖动上下文。然后完成那两个任务。
# %%
simulator_widget()
# %% [markdown] lang="en"
# ## Prefill
#
# Prefill feeds a whole prompt in one step: the same number of launches, but each kernel has as many rows as the prompt
# has tokens.
#
# **Predict:** from how many prompt tokens on is bard's device busy all the time?
# %% [markdown] lang="zh"
# ## prefill
#
# prefill 用一步喂进整个 prompt：启动次数一样，但 prompt 有多少个 token，每个 kernel 就有多少行。
#
# **先猜**：prompt 要有多少个 token，bard 的设备才会一直忙着？
# %%


def prefill_step(tokens):
    """A function that launches the prefill of so many tokens, un-fused; its inputs are copied in once."""
    model, prompt = bard_model(1, tokens), Sequence("prompt")
    model.cache.extend(prompt, tokens)
    batch = DecodeBatch.of(model.cache, [(7 * i % 72, prompt, i) for i in range(tokens)])
    inputs, buffers = model.eager_buffers(tokens)
    inputs.copy_from(batch)
    return lambda: model.launch_step(inputs, buffers.logits[:1], buffers, last_only=True)


prompts = measure_steps(
    device,
    {tokens: prefill_step(tokens) for tokens in (1, 4, 16, 64)},
    repeats=8,
    recorded=4,
    seconds=0 if quiet else 2,
)
lines = [
    (str(tokens), f"{p.host_us:,.0f}", f"{p.device_busy_us:,.0f}", f"{p.step_us:,.0f}", f"{p.device_busy_share:.0%}")
    for tokens, p in prompts.items()
]
print(table(("prompt (measured, bard)", "launches, µs", "kernels, µs", "step, µs", "busy"), lines, left=0))
print()
lines = []
for name in ("smollm2-360m-h100", "llama-3-8b-h200"):
    for tokens in (16, 128, 1024, 4096):
        setup = replace(PRESETS[name], stage=11, prefill=tokens, batch=1)
        r = simulate(setup)
        gain = r.step_us / step_us(replace(setup, graph=True))
        lines.append((name, str(tokens), f"{r.step_us / 1000:,.2f}", f"{r.utilization:.0%}", f"{gain:.2f}×"))
print(table(("modelled, 11 kernels a layer", "prompt", "step, ms", "busy", "a graph would gain"), lines))
# %% [markdown] lang="en"
# A long prompt hides its launches behind arithmetic. That is the classical reason why prefill takes no graph: lengths
# are without bound, so there is no small set to capture, and nothing is lost. A **short** prompt on a small model is as
# launch-bound as decode. So the rule is not absolute: vLLM by default replays full graphs for decode and *piecewise*
# ones for prefill (everything but attention, padded to captured token counts).
#
# ## Where max(host, device) lies
#
# So far: a step takes the larger of the two totals. That is a lower bound. Take 288 launches of 6 µs, 144 kernels of
# 1 µs and 144 of 11 µs. Host total and device total are equal. Only the *order* of the kernels changes.
#
# **Predict:** which order is the slowest: short ones first, long ones first, or in turns? By how much?
# %% [markdown] lang="zh"
# 长 prompt 会把启动藏到计算后面。prefill 通常不用 graph，经典的理由就在这里：长度没有上限，列不出一小组可捕获的尺寸，而且不用也没有损失。但在小模型上，**短** prompt 和 decode 一样受启动限制。所以这条规矩并不绝对：vLLM 默认对 decode 用完整的 graph，对 prefill 用**分段**的 graph（除注意力以外的部分，补齐到捕获过的 token 数）。
#
# ## max(主机, 设备) 在哪里会骗人
#
# 到目前为止：一步的时间等于两个总和里较大的那个。其实那只是下界。取 288 次启动，每次 6 µs；144 个 1 µs 的 kernel，144 个 11 µs 的 kernel。主机总和与设备总和相等，变的只有 kernel 的**顺序**。
#
# **先猜**：哪种顺序最慢：短的在前、长的在前，还是交替？慢多少？
# %%
HALF = 144
orders = {
    pick("short ones first", "短的在前"): [1.0] * HALF + [11.0] * HALF,
    pick("long ones first", "长的在前"): [11.0] * HALF + [1.0] * HALF,
    pick("in turns", "交替"): [1.0, 11.0] * HALF,
}
launches = [6.0] * (2 * HALF)
for name, kernels in orders.items():
    naive = max(sum(launches), sum(kernels))
    total = launch_times(launches, kernels).device_end_us[-1]
    say(
        f"{name:<17} max(host, device) {naive:,.0f} µs, the step {total:,.0f} µs: {total / naive - 1:+.1%} (modelled)",
        f"{name}：max(主机, 设备) {naive:,.0f} µs，一步实际 {total:,.0f} µs，{total / naive - 1:+.1%}（模型推算）",
    )
# %% [markdown] lang="en"
# With the short ones first, the device cannot work ahead: it waits for each launch. Then the long ones come, and now
# the host has nothing to gain by being early. The two halves add up instead of overlapping. The recurrence of the
# simulator (kernel i starts when it is launched *and* kernel i − 1 has ended) gets it right. So does a real device?
# The next cell runs 150 short kernels and then 150 long ones on SoftGPU.
# %% [markdown] lang="zh"
# 短的在前，设备没法提前干活，每一个都要等启动；轮到长的时，主机再早提交也没有用。前后两半是相加，而不是重叠。模拟器用的递推式（第 i 个 kernel 要等它被启动**并且**第 i − 1 个结束）能算对。真实的设备也是这样吗？下一格在 SoftGPU 上先跑 150 个短 kernel，再跑 150 个长的。
# %%
order = check_order(device, repeats=30)
say(
    f"Measured {order.measured_us:,.0f} µs. The recurrence says {order.recurrence_us:,.0f} µs "
    f"({order.recurrence_us / order.measured_us - 1:+.0%}),\nmax(host, device) {order.naive_us:,.0f} µs "
    f"({order.naive_us / order.measured_us - 1:+.0%}).",
    f"实测 {order.measured_us:,.0f} µs。递推式给出 {order.recurrence_us:,.0f} µs"
    f"（{order.recurrence_us / order.measured_us - 1:+.0%}），max(主机, 设备) 给出 {order.naive_us:,.0f} µs"
    f"（{order.naive_us / order.measured_us - 1:+.0%}）。",
)
if not quiet:
    say(
        "On this busy machine single launches and kernels are interrupted, and medians leave that out: both predictions "
        "are too low.\nOn a quiet machine the recurrence is close, and max(host, device) stays far off.",
        "这台机器正忙，个别启动和 kernel 会被打断，而中位数不含这些，所以两个预测都偏低。\n"
        "在安静的机器上，递推式很准，max(主机, 设备) 仍然差得很远。",
    )
# %% [markdown] lang="en"
# A real step has such a tail: the language-model head is one long kernel after many short ones. It cannot overlap with
# launches that are over already.
#
# ## Batching and graphs cover for each other
#
# Last question. *Modelled*, SmolLM2-360M on an H100, 9 kernels a layer: tokens a second against the batch, one by one
# and with a graph.
#
# **Predict:** batch 1 or batch 256: where does batching alone help most, and where does the graph?
# %% [markdown] lang="zh"
# 真实的一步就有这样的尾巴：lm_head 是许多短 kernel 之后的一个长 kernel，前面的启动早已结束，没法和它重叠。
#
# ## 批处理和 graph 互相兜底
#
# 最后一个问题。**模型推算**，H100 上的 SmolLM2-360M，每层 9 个 kernel：每秒 token 数随 batch 的变化，逐个启动与用 graph。
#
# **先猜**：batch 从 1 到 256，单靠批处理在哪里帮助最大？graph 呢？
# %%
batches = [1, 2, 4, 8, 16, 32, 64, 128, 256]
full = Setup(stage=9)
eager_us = [step_us(replace(full, batch=batch)) for batch in batches]
graph_us = [step_us(replace(full, batch=batch, graph=True)) for batch in batches]
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), dpi=100)
for times, label, style in ((eager_us, "one by one", "o-"), (graph_us, "graph", "s--")):
    rate = [1000 * batch / us for batch, us in zip(batches, times, strict=True)]
    left.plot(batches, rate, style, label=label, ms=4, color="#0072B2" if label != "graph" else "#D55E00")
left.set_xscale("log", base=2)
left.set_yscale("log")
left.set_xlabel("batch")
left.set_ylabel("thousand tokens a second")
left.legend(frameon=False, fontsize=8)
gains = [e / g for e, g in zip(eager_us, graph_us, strict=True)]
right.plot(batches, gains, "o-", color="#595959", ms=4)
right.axhline(1, color="#aaaaaa", linewidth=0.8)
right.set_xscale("log", base=2)
right.set_xlabel("batch")
right.set_ylabel("the graph's gain, ×")
for axes in (left, right):
    axes.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
    axes.spines[["top", "right"]].set_visible(False)
figure.suptitle("modelled: SmolLM2-360M, H100, context 512", fontsize=9)
figure.tight_layout()
plt.show()
say(
    f"A step one by one takes {eager_us[0]:,.0f} µs at batch 1 and {eager_us[4]:,.0f} µs at batch 16: "
    f"{16 * eager_us[0] / eager_us[4]:.1f} times the tokens a second.\nThe graph gains {gains[0]:.2f}× at batch 1, "
    f"{gains[4]:.2f}× at batch 16, {gains[-1]:.2f}× at batch 256.",
    f"逐个启动时，一步在 batch 1 要 {eager_us[0]:,.0f} µs，在 batch 16 要 {eager_us[4]:,.0f} µs："
    f"每秒 token 数是 {16 * eager_us[0] / eager_us[4]:.1f} 倍。\ngraph 的收益：batch 1 为 {gains[0]:.2f} 倍，"
    f"batch 16 为 {gains[4]:.2f} 倍，batch 256 为 {gains[-1]:.2f} 倍。",
)
# %% [markdown] lang="en"
# While the host is the limit, more requests ride along nearly free: batching fills the wait with other people's tokens.
# A graph removes the wait itself. With many users the first is enough; with one user, who wants the answer *soon*, only
# the second helps. That is how the two cover for each other: graphs matter most exactly where batching helps least, in
# low-latency service with few requests. And since traffic comes and goes, a server wants both.
#
# ## Recap
#
# * Launching is a fixed cost for each step. More work in the same launches (batch, width, context, prompt) hides it.
# * Compare the two totals: device ÷ host below 1 means that graphs and fusion help; well above 1, a graph does nothing.
# * "Batch 128" says nothing without model and context. Measure, or calibrate and predict.
# * max(host, device) is a lower bound: a launch-bound stretch before a device-bound one adds up.
# * Long prompts need no graph. Short ones are like decode.
#
# **Exercise 5, Two lanes:** in `exercises/`. Next: [lesson 7](07_in_production.ipynb), what real engines do.
# %% [markdown] lang="zh"
# 主机是瓶颈时，多几个请求几乎是搭便车：批处理用别人的 token 填满等待，graph 则把等待本身去掉。用户多，有前者就够；只有一个用户，而他想**早点**看到答案，那就只有后者管用。两者就是这样互相兜底的：graph 最重要的场合，恰好是批处理帮助最小的场合，也就是低延迟、低并发的服务。流量时高时低，所以服务器两样都要。
#
# ## 小结
#
# * 启动是每一步的固定成本。同样多次启动里做更多的事（batch、宽度、上下文、prompt），就能把它藏住。
# * 比较两个总和：设备 ÷ 主机小于 1，graph 和融合有用；远大于 1，graph 什么也省不了。
# * 不说模型和上下文，“batch 128”就没有意义。去测，或者先校准再预测。
# * max(主机, 设备) 只是下界：受启动限制的一段排在受设备限制的一段之前，两段会相加。
# * 长 prompt 用不着 graph；短的和 decode 一样。
#
# **练习 5（两条泳道）**：在 `exercises/` 里。接下来是[第 7 课](07_in_production.ipynb)：真实的引擎怎么做。
