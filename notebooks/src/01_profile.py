# ---
# title_en: Profile batch-1 decode
# title_zh: 剖析 batch 为 1 的 decode
# minutes: 20
# ---
# %% [markdown] lang="en"
# # Profile batch-1 decode
#
# *About 20 minutes. 中文版：[剖析 batch 为 1 的 decode](../zh/01_profile.ipynb).*
#
# A GPU that makes one token at a time often stands idle. In this lesson you measure how much, and find out why.
#
# At the end of this lesson you can
#
# * count the kernels of a decode step, in three ways that give three answers;
# * record the timeline of a step and read it: launches, kernels, gaps;
# * say which of two terms is the larger, and predict what shortening the other one brings;
# * explain why more GPUs do not help here.
#
# Before each measurement there is a **Predict**. Answer it before you run the cell: a wrong guess teaches more than a
# right one.
# %% [markdown] lang="zh"
# # 剖析 batch 为 1 的 decode
#
# *约 20 分钟。English: [Profile batch-1 decode](../en/01_profile.ipynb).*
#
# 一次只生成一个 token 时，GPU 常常闲着。这一课里你会亲手量出它闲了多久，并找到原因。
#
# 学完这一课，你能够：
#
# * 用三种方法数出一步 decode 有多少个 kernel，并说清三个答案为什么不同；
# * 录下一步的时间线，读懂其中的启动、kernel 和空隙；
# * 判断两项时间里哪一项更大，并预测只缩短另一项会怎样；
# * 解释为什么这时多买 GPU 没有用。
#
# 每次测量之前都有一个**先猜**。请先给出答案再运行单元格：猜错比猜对更长见识。
# %%
from collections import Counter
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from s13lib.commands.output import table
from s13lib.device import best_device
from s13lib.figures import Panel, timeline_svg
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.calibrate import shape_of
from s13lib.profiling.gaps import idle_gaps
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.operators import count_operators
from s13lib.profiling.recorded import recorded_trace
from s13lib.profiling.steps import eager_step, running_batch
from s13lib.simulator import PRESETS, Timeline, Workload, middle_layer, simulate, step_kernels
from s13lib.widgets import language, pick, say, show_svg, simulator_widget

device = best_device(default="softgpu")
banner = device.banner()
quiet = "not contended" in banner
print(banner)
# %% [markdown] lang="en"
# The line above names your device. **SoftGPU** is a real asynchronous device: a thread that takes launches from a queue
# and runs compiled kernels, while Python goes on. What it shows here is *measured*. Figures for an H100 in this lesson
# are *modelled*, and marked so.
#
# If the line says *contended* or names a single processor, other work takes turns with the device. Counts stay right,
# times do not. For that case a picture *recorded* on a quieter machine is shown further down.
#
# ## How many kernels make one token?
#
# The model is `bard`, a small Llama that was trained on Shakespeare. First its textbook form, in plain PyTorch, one
# operation a line.
#
# **Predict:** how many operators does PyTorch run to make *one* token? A hundred? A thousand?
# %% [markdown] lang="zh"
# 上面那行写着你的设备。**SoftGPU** 是一个真正异步的设备：一个线程从队列里取出启动，运行编译好的 kernel，Python
# 这边照常往下走。它给出的数字都是**实测**。本课里 H100 的数字是**模型推算**，会逐处标明。
#
# 如果那一行里有 *contended*（有别的程序在抢处理器），或者只有一个处理器，那么计数仍然正确，时间却不可信；
# 后面备有一张在较安静的机器上**录下**的图，可以对照。
#
# ## 生成一个 token 要多少个 kernel？
#
# 模型是 `bard`：一个用莎士比亚剧本训练的小 Llama。先看它的教科书写法：纯 PyTorch，一行一个操作。
#
# **先猜**：为了**一个** token，PyTorch 要执行多少个算子？一百个？一千个？
# %%
bard = load_checkpoint("bard")
layers = bard.config.layers
computing, views = count_operators(bard.textbook())
computing.pop("promote_types", None)  # asks which dtype is the wider one: it computes nothing
rows = [(name, f"{count:,}", f"{count / layers:.1f}") for name, count in computing.most_common(12)]
print(
    f"bard: {layers} layers, hidden {bard.config.hidden}, {bard.config.heads} heads, vocabulary {bard.config.vocab}\n"
)
print(table(("operator", "one token", "per layer"), rows))
total = computing.total()
say(
    f"\n{total:,} operators compute, about {total / layers:.0f} a layer. {views.total():,} more only make views of "
    "tensors.\nThese are counted, on the CPU. On a GPU each one that computes launches a kernel at least; a view "
    "launches none.",
    f"\n有 {total:,} 个算子做计算，平均每层约 {total / layers:.0f} 个；另有 {views.total():,} 个只是产生视图。\n"
    "这是在 CPU 上数出来的。换到 GPU 上，每个做计算的算子至少启动一个 kernel；视图不启动 kernel。",
)
# %% [markdown] lang="en"
# Nobody serves a model like that. Inference code has one kernel for a norm, one for RoPE, one for attention.
# Count *those* and you get the numbers that people quote. But three people get three numbers:
# %% [markdown] lang="zh"
# 线上服务不会这样写。推理代码里，norm 是一个 kernel，RoPE 是一个，注意力也是一个。按**这种** kernel
# 来数，才是大家常引用的数字。可是不同的人会数出不同的答案：
# %%
h100 = PRESETS["smollm2-360m-h100"]  # 32 layers, batch 1; layers alone are counted
launch_us = h100.costs.launch_us
rows = []
for stage in (15, 11, 9):
    names = [kernel.name for kernel in middle_layer(replace(h100, stage=stage))]
    step_launches = len(names) * h100.shape.layers
    rows.append((str(len(names)), str(step_launches), f"{step_launches * launch_us / 1000:.2f}"))
    print(f"{len(names):>2}: {' · '.join(names)}")
print()
print(table(("kernels a layer", "launches a token", f"CPU ms at {launch_us:g} µs each"), rows, left=0))
# %% [markdown] lang="en"
# * **11** is the usual count: two norms, the projections q, k, v, RoPE, attention, the output projection, and the FFN's
#   gate, up, down. It is short by four: two residual adds, SiLU·mul, and writing the new key and value into the cache.
#   In that count they silently ride on their neighbours (`o+add`, `up+silu_mul`, …).
# * **15** is the honest count with nothing fused.
# * **9** is the same list as 11, with q, k, v as one packed product. The simulator below starts there.
#
# The last column is *modelled*: launches times a launch cost that you can change. Published figures are 4–6 µs for the
# bare launch and 5–25 µs for a PyTorch operator.
#
# ## Watch one step
#
# Now run the step on the device, at 11 kernels a layer, and record it. The whole step has three launches more than the
# layers: the embedding in front, the final norm and the language-model head behind.
#
# **Predict:** for what share of the step will the device be busy?
# %% [markdown] lang="zh"
# * **11** 是最常见的数法：两个 norm，q、k、v 三个投影，RoPE，注意力，输出投影，再加 FFN 的
#   gate、up、down。它少算了四个：两次残差加法、SiLU·mul、把新的 key 和 value
#   写进缓存。按这种数法，它们已悄悄并进了相邻的 kernel（`o+add`、`up+silu_mul` 等等）。
# * **15** 才是什么都不融合时如实数出来的个数。
# * **9** 数的还是这 11 个，只是 q、k、v 合成了一次矩阵乘。下面的模拟器就从这里起步。
#
# 最后一列是**模型推算**：启动次数乘以单次启动开销，后者可以自己改。公开的数据是：裸启动 4–6 µs，经过 PyTorch
# 的一个算子 5–25 µs。
#
# ## 看一步是怎么走的
#
# 现在让设备以每层 11 个 kernel 跑一步，并录下来。整步比各层加起来多三次启动：前面有 embedding，后面有最后的 norm 和
# lm_head。
#
# **先猜**：这一步里，设备有百分之多少的时间在干活？
# %%
CONTEXT = 64
model = bard.model(stage=11, max_rows=CONTEXT, blocks=16)
seconds = 0 if quiet else 3  # on a busy machine, go on for a while: the quietest repeat counts
launch_step = eager_step(model, running_batch(model, rows=1, context=CONTEXT))
step = measure_steps(device, {"step": launch_step}, repeats=60, recorded=30, seconds=seconds)["step"]

whole = step.timeline
alone = Timeline(whole.host[1:-2], whole.device[1:-2], whole.source, whole.provenance)  # the layers alone
say(
    f"Whole step: {step.launches} launches. The layers alone: {len(alone.host)} = {layers} layers × "
    f"{len(alone.host) // layers}.\n"
    f"Measured: the layers take {alone.step_us:,.0f} µs, and the device is busy for {alone.utilization:.0%} of it.",
    f"整步：{step.launches} 次启动。只算各层：{len(alone.host)} = {layers} 层 × {len(alone.host) // layers}。\n"
    f"实测：各层共用 {alone.step_us:,.0f} µs，其中设备忙碌 {alone.utilization:.0%}。",
)
title = pick("bard on SoftGPU, 11 kernels a layer, layers alone", "SoftGPU 上的 bard，每层 11 个 kernel，只算各层")
show_svg(timeline_svg([Panel(title, alone)], language()))
if not quiet:
    say(
        "Your machine is busy or has one processor: a long grey stretch may be another program on the processor of the "
        "device's thread.\nThe recorded picture below shows what a quiet machine shows.",
        "你的机器正忙，或者只有一个处理器：这里若有很长的灰色，可能是别的程序占了设备线程的处理器。\n"
        "安静的机器上是什么样，请看下面录下的图。",
    )
# %% [markdown] lang="en"
# Blue is the CPU: each box builds and submits one launch. Orange is the device: each box runs one kernel. Grey is the
# device with nothing to do. A launch returns before its kernel has run, so the two lanes overlap.
#
# In the grey stretches nothing is wrong with the device. It has finished, and the next launch is not there yet.
#
# Here is the same kind of picture from two other sources: *recorded* on the machine on which the course was made
# (nothing fused, 15 kernels a layer), and *modelled* for SmolLM2-360M on an H100.
# %% [markdown] lang="zh"
# 蓝色是 CPU：每个方块构造并提交一次启动。橙色是设备：每个方块执行一个 kernel。灰色表示设备无事可做。启动不等 kernel
# 跑完就返回，所以两行互相重叠。
#
# 灰色的地方，设备并没有出毛病：它已经算完了，只是下一次启动还没到。
#
# 再看同一类图的另外两个来源：一张是制作本课程时在当时的机器上**录下**的（什么都没融合，每层 15 个 kernel），一张是按
# H100 上的 SmolLM2-360M **推算**的。
# %%
recorded = recorded_trace("softgpu-bard-stage15-eager").timelines[0]
modelled = simulate(replace(h100, stage=11)).timeline
panels = [
    Panel(pick("bard on SoftGPU, 15 kernels a layer", "SoftGPU 上的 bard，每层 15 个 kernel"), recorded),
    Panel(pick("SmolLM2-360M on an H100, 11 kernels a layer", "H100 上的 SmolLM2-360M，每层 11 个 kernel"), modelled),
]
show_svg(timeline_svg(panels, language()))
say(f"Recorded: {recorded.provenance}.", f"录自：{recorded.provenance}。")
# %% [markdown] lang="en"
# ## Where the time goes
#
# Three durations describe a step: the time the CPU spends on launching, the time the device spends in kernels, and the
# time from start to end.
#
# **Predict:** is the step as long as the first two together, or as long as the larger one?
# %% [markdown] lang="zh"
# ## 时间花在哪里
#
# 描述一步要用三个时长：CPU 花在启动上的时间、设备花在 kernel 上的时间、从头到尾的时间。
#
# **先猜**：一步的时长等于前两项之和，还是等于其中较大的一项？
# %%
host_us = whole.host[-1].end_us - whole.host[0].start_us  # the launches and the Python loop around them
device_us, step_us = whole.device_us, whole.step_us
bars = {
    "CPU: the loop that launches": (host_us, "#0072B2"),
    "GPU: kernels": (device_us, "#E69F00"),
    "the step": (step_us, "#595959"),
    "sum of the first two": (host_us + device_us, "#e4e4e4"),
}
figure, axes = plt.subplots(figsize=(7, 2.2), dpi=100)
for place, (value, colour) in enumerate(bars.values()):
    axes.barh(place, value, color=colour, edgecolor="#595959", linewidth=0.5)
    axes.text(value, place, f" {value:,.0f} µs", va="center")
axes.set_yticks(range(len(bars)), list(bars))
axes.invert_yaxis()
axes.set_xlim(0, 1.18 * max(step_us, host_us + device_us))
axes.set_xlabel(f"µs, measured, whole step of {step.launches} launches")
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()
larger = max(host_us, device_us)
recorded_host_us = recorded.host[-1].end_us - recorded.host[0].start_us
recorded_larger = max(recorded_host_us, recorded.device_us)
say(
    f"Measured: the larger term is {larger:,.0f} µs. The step is {step_us / larger:.2f} times that; the sum would be "
    f"{(host_us + device_us) / larger:.2f} times.\nRecorded, the step above with 15 kernels a layer: "
    f"{recorded.step_us / recorded_larger:.2f} times; the sum would be "
    f"{(recorded_host_us + recorded.device_us) / recorded_larger:.2f} times.",
    f"实测：较大的一项是 {larger:,.0f} µs，一步是它的 {step_us / larger:.2f} 倍；若是相加，就该是 "
    f"{(host_us + device_us) / larger:.2f} 倍。\n上面录下的那一步（每层 15 个 kernel）："
    f"{recorded.step_us / recorded_larger:.2f} 倍；若是相加，就该是 "
    f"{(recorded_host_us + recorded.device_us) / recorded_larger:.2f} 倍。",
)
if not quiet:
    say(
        "On a machine that is not quiet the measured step also holds its interruptions: go by the recorded one.",
        "机器不安静时，实测的一步里还有被打断的时间：请以录下的那一步为准。",
    )
# %% [markdown] lang="en"
# The two overlap, so a step takes about the **maximum** of the two, not the sum. (The maximum is a lower bound. It is
# close when launches and kernels are spread evenly, as here; lesson 6 shows a step for which it is far off.)
#
# Next: which kernels fill the orange part, and what does the device wait for in the grey part? The library sorts each
# gap by its cause: `launch` means that the next kernel had not been launched yet, `boundary` that it was queued already
# and only the hand-over took time.
# %% [markdown] lang="zh"
# 两者互相重叠，所以一步大约等于两者的**最大值**，而不是相加。（最大值其实是下界。像这里这样启动和 kernel
# 分布均匀时，它很准；第 6 课会给出一个相差很远的例子。）
#
# 接着看：橙色部分是哪些 kernel 占掉的？灰色部分里设备在等什么？库会给每段空隙归因：`launch` 表示下一个 kernel
# 还没有启动，`boundary` 表示它早已排在队里，只是交接要花一点时间。
# %%
spent: Counter[str] = Counter()
for span in whole.device:
    spent[span.name] += span.duration_us
runs = whole.kernel_counts()
rows = [
    (name, str(runs[name]), f"{us:,.0f}", f"{us / runs[name]:.2f}", f"{us / step_us:.0%}")
    for name, us in spent.most_common()
]


def idle_by_reason(timeline):
    """Idle time of the device in µs, by reason."""
    idle = Counter()
    for gap in idle_gaps(timeline):
        idle[gap.reason] += gap.duration_us
    return idle


def share_for_host(idle):
    """The share of the idle time in which the device waited for a launch."""
    return (idle["launch"] + idle["pause"]) / max(idle.total(), 0.1)


idle = idle_by_reason(whole)
rows += [(f"idle: {reason}", "", f"{us:,.0f}", "", f"{us / step_us:.0%}") for reason, us in idle.most_common()]
print(table(("measured", "runs", "µs", "µs each", "of the step"), rows))
recorded_share = share_for_host(idle_by_reason(recorded))
say(
    f"\nBetween its first and its last kernel the device was idle for {idle.total():,.0f} µs; "
    f"for {share_for_host(idle):.0%} of that the next launch was not there yet (recorded: {recorded_share:.0%}).\n"
    f"A launch took {whole.median_launch_us:.1f} µs of CPU, the average kernel "
    f"{device_us / step.kernels:.1f} µs of the device.",
    f"\n从第一个到最后一个 kernel，设备共空闲 {idle.total():,.0f} µs，其中 {share_for_host(idle):.0%} "
    f"是因为下一次启动还没到（录下的那一步：{recorded_share:.0%}）。\n"
    f"一次启动占用 CPU {whole.median_launch_us:.1f} µs，一个 kernel 平均占用设备 {device_us / step.kernels:.1f} µs。",
)
if not quiet:
    say(
        "This machine is not quiet: now and then another program takes the processor from the device's thread or from "
        "Python.\nSuch an interruption shows up as a long kernel, as a long launch, or as idle time marked `blocked`: "
        "the kernel was queued, and\nthe device did not run. Go by the recorded figures then.",
        "这台机器并不安静：别的程序不时会占走设备线程或 Python 的处理器。\n被打断的地方会显得 kernel 很长、启动很长，"
        "或者记成 `blocked`（阻塞）的空闲：kernel 已在队里，设备却没有运行。\n这时请以录下的数字为准。",
    )
# %% [markdown] lang="en"
# ## A machine that waits for a Python loop
#
# An H100 is sold as a machine of about a thousand trillion operations a second. What share of that does a batch-1 step
# use?
#
# **Predict:** half, because it idles half of the time? Or much less?
# %% [markdown] lang="zh"
# ## 一台在等 Python 循环的机器
#
# H100 的卖点是每秒约一千万亿次运算。batch 为 1 的一步用掉了其中多少？
#
# **先猜**：它有一半时间闲着，所以用掉一半？还是远远不到？
# %%
report = simulate(replace(h100, stage=11))
busy = report.utilization
gpu = h100.device
rows = [
    (
        f"arithmetic, of {gpu.peak_tflop_s:g} TFLOP/s",
        f"{report.flop_share:.3%}",
        f"{report.flop_share / busy:.3%}",
    ),
    (
        f"memory, of {gpu.bandwidth_tb_s:g} TB/s",
        f"{report.bandwidth_share:.1%}",
        f"{report.bandwidth_share / busy:.1%}",
    ),
    ("time", f"{busy:.0%}", "100%"),
]
print(table(("H100, modelled: share of its peak", "as it runs", "without the waits"), rows))

# The same for this device: its peak is one large matrix product, measured.
big_rows, width = 64, 512
x, weight = device.tensor(torch.randn(big_rows, width)), device.tensor(torch.randn(width, width))
out = device.empty((big_rows, width))
big = measure_steps(device, {"big": lambda: device.kernels.linear(x, weight, out)}, repeats=15, recorded=15)["big"]
peak_gflop_s = 2 * big_rows * width * width / big.device_busy_us / 1e3
bard_shape = shape_of(bard.config, "bard")
step_flops = sum(k.flops for k in step_kernels(bard_shape, 11, Workload.decode(1, CONTEXT)))
here_gflop_s = step_flops / step_us / 1e3
say(
    f"\nThis device, measured: {peak_gflop_s:.1f} GFLOP/s in one large product, {here_gflop_s:.1f} in the step: "
    f"{here_gflop_s / peak_gflop_s:.0%} of its peak.",
    f"\n本机设备，实测：一次大矩阵乘 {peak_gflop_s:.1f} GFLOP/s，这一步只有 {here_gflop_s:.1f}："
    f"是峰值的 {here_gflop_s / peak_gflop_s:.0%}。",
)
# %% [markdown] lang="en"
# Two different losses hide in that tiny share. Keep them apart:
#
# * **Waiting** costs the factor between the two columns. That is what this course removes.
# * **Batch 1 itself** costs the rest. Each weight is read from memory for a single row and used once, so even a perfect
#   step at batch 1 leaves nearly all arithmetic unused. There the yardstick is memory bandwidth. Batching brings that
#   factor back; fusion and graphs do not.
#
# ## Would more GPUs help?
#
# Split the model over several GPUs, and let the split be ideal: each kernel's work is divided evenly and communication
# costs nothing. The CPU still has to launch every kernel.
#
# **Predict:** how much faster is a token on eight GPUs?
# %% [markdown] lang="zh"
# 这么小的比例里藏着两种不同的损失，不要混为一谈：
#
# * **等待**造成的损失，就是两列之间的倍数。这门课要去掉的正是它。
# * 其余的损失来自 **batch 为 1 本身**：每个权重从显存读出来，只为一行数据用一次。所以即使一步毫无等待，GPU
#   的算力也几乎全部闲置，这时该用显存带宽作尺子。要找回这一部分，得靠攒 batch，而不是融合或 graph。
#
# ## 多加几块 GPU 有用吗？
#
# 把模型切到几块 GPU 上，而且切得完美：每个 kernel 的工作平分，通信不花时间。可是每个 kernel 仍然要由 CPU 启动。
#
# **先猜**：用八块 GPU，一个 token 能快多少？
# %%
rows, found = [], {}
for count in (1, 2, 4, 8):
    split = replace(gpu, bandwidth_tb_s=count * gpu.bandwidth_tb_s, peak_tflop_s=count * gpu.peak_tflop_s)
    found[count] = r = simulate(replace(h100, stage=11, device=split))
    rows.append(
        (str(count), *(f"{us / 1000:.2f}" for us in (r.host_us, r.device_us, r.step_us)), f"{r.utilization:.0%}")
    )
print(table(("GPUs", "launching, ms", "kernels, ms", "step, ms", "each GPU busy"), rows, left=0))
say(
    f"\nModelled: eight ideal GPUs make a token {found[1].step_us / found[8].step_us:.3f}× as fast, and each is busy "
    f"{found[8].utilization:.0%} of the time.",
    f"\n模型推算：理想情况下，八块 GPU 让一个 token 快到原来的 {found[1].step_us / found[8].step_us:.3f} 倍，"
    f"而每块只忙 {found[8].utilization:.0%} 的时间。",
)
# %% [markdown] lang="en"
# The kernels get shorter, the launches do not, and the launches were the longer of the two. In reality it gets worse:
# splitting a layer adds two all-reduces, which are launches as well.
#
# More GPUs can serve more *users* side by side. Each of those GPUs then waits for its own loop.
#
# ## Try it: the simulator
#
# All of this has a few knobs. The panel starts at 32 layers, 9 kernels each, batch 1, both switches off.
#
# **Predict** before you touch anything: with both switches off, which of these changes the step time?
# a) twice the layers; b) a launch of 10 µs instead of 6; c) batch 8 instead of 1.
#
# Then try the two tasks in the panel. They check themselves.
# %% [markdown] lang="zh"
# kernel 变短了，启动却没有变短，而启动本来就是较长的那一项。实际情况更糟：切开一层会多出两次
# all-reduce，它们也要启动。
#
# 更多的 GPU 可以同时服务更多**用户**。不过那时每块 GPU 都在等各自的循环。
#
# ## 动手：模拟器
#
# 上面这些可以归结为几个旋钮。面板的初始状态是 32 层、每层 9 个 kernel、batch 为 1、两个开关都关着。
#
# 动手之前**先猜**：两个开关都关着时，下面哪一项会改变每步耗时？a）层数加倍；b）启动开销从 6 µs 变成 10 µs；c）batch
# 从 1 变成 8。
#
# 然后做面板里的两个任务，做对了它会告诉你。
# %%
simulator_widget()
# %% [markdown] lang="en"
# *Modelled*, all of it: the panel's own text names the constants. a) and b) change the launching, and the step with it.
# c) makes the kernels a little longer; they still hide behind the launches, so the step stays as it was. That is the
# point of the next section.
#
# ## Shorten the larger term
#
# You may spend a month on one of two projects: kernels that run twice as fast, or launches that cost half as much.
#
# **Predict:** which one do you choose at batch 1, and which one at batch 256?
# %% [markdown] lang="zh"
# 这里全是**模型推算**，所用的常数写在面板里。a）和 b）改变了启动的时间，一步也跟着变。c）只让 kernel
# 稍稍变长，它们仍旧藏在启动后面，所以每步耗时不变。下一节讲的正是这一点。
#
# ## 只缩短较大的那一项
#
# 给你一个月，二选一：让 kernel 快一倍，或者让启动开销减半。
#
# **先猜**：batch 为 1 时选哪个？batch 为 256 时呢？
# %%
faster_gpu = replace(
    gpu, floor_us=gpu.floor_us / 2, bandwidth_tb_s=2 * gpu.bandwidth_tb_s, peak_tflop_s=2 * gpu.peak_tflop_s
)
rows = []
for batch in (1, 64, 256):
    now = replace(h100, stage=11, batch=batch)
    cheaper = replace(now, costs=replace(now.costs, launch_us=launch_us / 2))
    steps_us = [simulate(setup).step_us for setup in (now, replace(now, device=faster_gpu), cheaper)]
    gains = [f"{steps_us[0] / us:.2f}×" for us in steps_us[1:]]
    rows.append((str(batch), simulate(now).bottleneck, f"{steps_us[0] / 1000:.2f}", *gains))
header = ("batch", "larger term", "step, ms", "kernels twice as fast", "launches half as dear")
print(table(header, rows, left=0))
say("Modelled, H100, context 512, layers alone.", "模型推算：H100，context 512，只算各层。")
# %% [markdown] lang="en"
# Work on the smaller term changes next to nothing. And which term is the smaller depends on the batch. So
# **profile first**.
#
# The rule has a pleasant side as well: while the device waits, extra work on it is nearly free. Measure that here.
# Attention reads the whole context, so a longer context means more device work in the same number of launches.
#
# **Predict:** the context grows from 8 to 192 tokens. How much longer do the kernels take, and how much the step?
# %% [markdown] lang="zh"
# 在较小的那一项上下功夫，几乎没有收获。而哪一项较小，取决于 batch。所以**先 profile，再动手**。
#
# 这条规律也有讨喜的一面：设备在等的时候，多给它一点活几乎不花时间。
# 在这里量一量：注意力要读整个上下文，上下文变长，设备的活变多，启动次数却不变。
#
# **先猜**：上下文从 8 个 token 增加到 192 个，kernel 的时间变长多少？一步的时间又变长多少？
# %%
contexts = (8, 64, 192)
context_steps = {}
for context in contexts:
    longer = bard.model(stage=11, max_rows=CONTEXT, blocks=16)
    context_steps[context] = eager_step(longer, running_batch(longer, rows=1, context=context))
measured = measure_steps(device, context_steps, repeats=40, recorded=20)
rows = [
    (str(context), f"{m.host_us:,.0f}", f"{m.device_busy_us:,.0f}", f"{m.step_us:,.0f}")
    for context, m in measured.items()
]
print(table(("context", "launching, µs", "kernels, µs", "step, µs"), rows, left=0))
first, last = measured[contexts[0]], measured[contexts[-1]]
say(
    f"\nMeasured: kernels {last.device_busy_us / first.device_busy_us:.2f}× as long, step "
    f"{last.step_us / first.step_us:.2f}× as long.",
    f"\n实测：kernel 变为 {last.device_busy_us / first.device_busy_us:.2f} 倍，一步变为 "
    f"{last.step_us / first.step_us:.2f} 倍。",
)
if not quiet:
    say(
        "The machine is contended: read these as rough figures, and run the cell again in a quiet moment.",
        "机器正忙：这些数字只能看个大概，等安静时再运行一次这个单元格。",
    )
# %% [markdown] lang="en"
# ## Do it with your own model
#
# On a CUDA machine PyTorch's profiler records the same two lanes. One decode step is enough:
#
# ```python
# from torch.profiler import ProfilerActivity, profile
#
# with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
#     model.decode_one_step()          # yours, warmed up
#     torch.cuda.synchronize()
# p.export_chrome_trace("step.json")
# ```
#
# Then `s13 trace step.json` prints busy time, gaps by cause and what would help. Lesson 7 does this with a real file.
# `s13 profile --svg step.svg` draws this lesson's picture for SoftGPU.
#
# ## Recap
#
# * A token costs hundreds of launches: ask what was counted (15, 11 or 9 a layer, or PyTorch's own operators).
# * Launching and computing overlap: a step takes about the larger of the two.
# * At batch 1 launching is the larger, so the device waits. Faster kernels and more GPUs shorten the smaller term.
# * Waiting is not the only reason for the tiny share of peak: batch 1 is the other one.
# * There are two ways to shorten launching: fewer launches (**fusion**, lesson 2) and one launch for all
#   (**CUDA Graphs**, lesson 3).
#
# **Exercises:** Exercise 5, *two lanes*, computes such a timeline from launch and kernel times. Exercise 6, *read a
# trace*, finds the cause of idle time in recordings. Both lie in `exercises/`.
# %% [markdown] lang="zh"
# ## 换成你自己的模型
#
# 在有 CUDA 的机器上，PyTorch 的 profiler 录下的就是同样的两行。录一步 decode 就够了：
#
# ```python
# from torch.profiler import ProfilerActivity, profile
#
# with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
#     model.decode_one_step()          # 换成你的模型，先预热
#     torch.cuda.synchronize()
# p.export_chrome_trace("step.json")
# ```
#
# 接着运行 `s13 trace step.json`，它会给出忙碌时间、按原因分类的空隙，以及怎样做才有用。第 7 课用真实文件演示。
# `s13 profile --svg step.svg` 可以为 SoftGPU 画出本课这样的图。
#
# ## 小结
#
# * 一个 token 要启动几百次：先问清数的是什么（每层 15、11 还是 9 个，或者 PyTorch 自己的算子）。
# * 启动与计算互相重叠：一步大约等于两者中较大的一项。
# * batch 为 1 时，启动是较大的一项，所以设备在等。更快的 kernel、更多的 GPU，缩短的都是较小的一项。
# * 离峰值那么远，不全是等待的错：另一个原因是 batch 为 1。
# * 要缩短启动，有两条路：减少启动次数（**算子融合**，第 2 课），或者把全部启动合成一次（**CUDA Graph**，第 3 课）。
#
# **练习**：练习 5（两条泳道）由启动时间和 kernel 时间算出这样一张图；
# 练习 6（读一份 trace）在录下的文件里找出空闲的原因。都在 `exercises/` 里。
