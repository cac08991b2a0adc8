# ---
# title_en: Start here
# title_zh: 从这里开始
# minutes: 10
# ---
# %% [markdown] lang="en"
# # Start here
#
# *About 10 minutes. 中文版：[从这里开始](../zh/00_start_here.ipynb).*
#
# A language model writes one token at a time. Serve a single user and look at the GPU while it writes: for about half
# of the time it does nothing. It is not short of memory bandwidth. It waits for the CPU, which hands it hundreds of
# tiny jobs for each token.
#
# Two things remove that wait. **Operator fusion** makes fewer jobs of the same work. **CUDA Graphs** hand all jobs over
# at once. This course takes both apart, on your own machine, whether or not it has a GPU.
#
# At the end of the course you can
#
# * profile a decode step and say what it waits for,
# * fuse kernels and count what that saves, and what it does not,
# * capture a step as a graph, and foresee which changes a replay cannot see,
# * choose the batch sizes to capture for your own traffic,
# * recognise the padding bug, and write the check that catches it,
# * tell when none of this helps, and which switch to try first in vLLM, SGLang and others.
#
# In this first lesson you meet the device, learn to read a figure, and see the wait disappear.
# %% [markdown] lang="zh"
# # 从这里开始
#
# *约 10 分钟。English: [Start here](../en/00_start_here.ipynb).*
#
# 语言模型一次只写一个 token。只服务一个用户时，看看 GPU 在写字的这段时间里做什么：差不多有一半时间，它什么也没做。
# 它缺的不是显存带宽。它在等 CPU：每写一个 token，CPU 都要把几百件小活儿一件一件交给它。
#
# 有两个办法能消除这种等待。**算子融合**把同样的工作并成更少的几件；**CUDA Graph** 把所有的活儿一次交完。
# 这门课就在你自己的机器上把这两件事拆开来看，有没有 GPU 都行。
#
# 学完之后，你能够：
#
# * 剖析一步 decode，说出它在等什么；
# * 融合 kernel，算清楚省下了什么、没省下什么；
# * 把一步 decode 捕获成 graph，并预见哪些改动是回放看不见的；
# * 根据自己的流量，选出该捕获哪些 batch 大小；
# * 认出补齐污染这个 bug，并写出能抓住它的检查；
# * 判断什么时候这一切都没有用，以及在 vLLM、SGLang 等引擎里该先动哪个开关。
#
# 这一课先认识设备，学会读图，再亲眼看到等待消失。
# %% [markdown] lang="en"
# ## How to work with a lesson
#
# Run a cell with **Shift + Enter**, from top to bottom. Where it says **Predict**, stop and commit to an answer before
# you run the next cell: a wrong guess teaches more than no guess. If something looks odd, choose *Kernel → Restart
# Kernel and Run All Cells*; each lesson starts from nothing and takes about a minute.
#
# You need some Python, and a rough idea of what a Transformer layer does. You need no CUDA. A few words carry the
# course:
#
# | word | meaning |
# |---|---|
# | **kernel** | one job for the device, such as a matrix-vector product |
# | **launch** | what the host does to hand one kernel to the device |
# | **host**, **device** | the CPU that runs Python, and the GPU (or what stands in for it) that runs kernels |
# | **decode step** | all kernels that make the next token of each running request |
#
# First, the device that this machine offers.
# %% [markdown] lang="zh"
# ## 怎样使用每一课
#
# 按 **Shift + Enter** 运行一个单元格，从上往下依次进行。看到**先猜**时请停一停，心里定好答案再运行下一格：
# 猜错了，也比不猜学到的多。如果哪里不对劲，就选菜单 *Kernel → Restart Kernel and Run All Cells*；
# 每一课都从零开始，跑完大约一分钟。
#
# 你需要会一点 Python，大致知道 Transformer 的一层在做什么；不需要懂 CUDA。下面几个词会贯穿全课：
#
# | 词 | 意思 |
# |---|---|
# | **kernel** | 交给设备的一件活儿，例如一次矩阵乘向量 |
# | **启动**（launch） | 主机为了把一个 kernel 交给设备所做的事 |
# | **主机**、**设备** | 运行 Python 的 CPU；运行 kernel 的 GPU（或者它的替身） |
# | **decode 的一步** | 为每个正在运行的请求算出下一个 token 的全部 kernel |
#
# 先看看这台机器能提供什么设备。
# %%
from s13lib.device import best_device
from s13lib.figures import Panel, timeline_svg
from s13lib.graphs import GraphRunner
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.recorded import recorded_trace
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.simulator import PRESETS, simulate_timeline
from s13lib.widgets import language, pick, say, show_svg

device = best_device(default="softgpu")
banner = device.banner()
print(banner)
# %% [markdown] lang="en"
# **SoftGPU** is a device made of software: a thread of its own takes kernels from a queue and runs them in order,
# while Python goes on. Launches cost host time, kernels run later, a graph is replayed with one call. That is all this
# subject needs. So what you see below is not a film: it happens on your machine, and is measured there.
#
# The next cell says what the line above means for your numbers.
# %% [markdown] lang="zh"
# **SoftGPU** 是一个用软件做成的设备：它有自己的线程，从队列里取出 kernel 依次执行，Python 则继续往下走。
# 启动要花主机的时间，kernel 稍后才执行，graph 用一次调用回放：这门课要用到的，它都有了。
# 所以下面看到的不是录像，而是在你的机器上真实发生、当场测出来的。
#
# 下一格会说明：上面那一行对你将看到的数字意味着什么。
# %%
if device.processors == 1:
    say(
        "One processor: host and device must take turns, so times measured here mean nothing. Results are still "
        "right. This lesson shows recorded figures instead.",
        "只有一个处理器：主机和设备只能轮流运行，这里测出的时间没有意义，但计算结果仍然正确。"
        "这一课会改用历史记录的图。",
    )
elif "not contended" in banner:
    say(
        f"{device.processors} processors, and nobody else is using them: your numbers can be trusted.",
        f"{device.processors} 个处理器，也没有别的程序来抢：测出的数字可以相信。",
    )
else:
    say(
        "Other work holds a processor just now. Every lesson still runs, but single times may be twice what they "
        "should be, or more. Close what you can, and run the cell above again.",
        "现在有别的程序占着处理器。每一课照样能跑，但单个时间可能是应有值的两倍以上。"
        "请关掉能关的程序，再运行一次上面那一格。",
    )
# %% [markdown] lang="en"
# ## How to read a figure
#
# Every figure of this kind has two lanes on one time axis. A **blue** box on the CPU lane is a launch. An **orange**
# box on the GPU lane is a kernel. The **grey** between orange boxes is what the course is about: the device has nothing
# to do. Rest the mouse on a box to see its name and its times. Only the first 18 launches are drawn; the first line
# under the title speaks of the whole step.
#
# Here is a small model on a large GPU, serving one request.
# %% [markdown] lang="zh"
# ## 怎样读图
#
# 这类图都有两条泳道，共用一根时间轴。CPU 那一行的**蓝色**方块是一次启动，GPU 那一行的**橙色**方块是一个 kernel。
# 橙色方块之间的**灰色**就是这门课的主题：设备没有事情可做。把鼠标停在方块上，可以看到它的名字和时间。
# 图里只画前 18 次启动；标题下面第一行说的则是完整的一步。
#
# 下面是一个小模型在一块大 GPU 上只服务一个请求时的样子。
# %%
modelled = simulate_timeline(PRESETS["smollm2-360m-h100"])
title = pick("SmolLM2-360M on an H100, batch 1, no fusion, no graph", "SmolLM2-360M，H100，batch 1，不融合，不用 graph")
show_svg(timeline_svg([Panel(title, modelled)], language()))
# %% [markdown] lang="en"
# Now the second line under the title. It says **where the numbers come from**, and there are only three answers:
#
# * **modelled**: computed from constants, which stand beside it. No such GPU was near this notebook.
# * **measured**: it happened on the device in the banner, just now.
# * **recorded**: it was measured earlier; file, device and date stand beside it.
#
# A figure without such a line does not count. Here are the modelled step from above and a recorded one: a step of the
# course's own small model, on SoftGPU.
# %% [markdown] lang="zh"
# 再看标题下面的第二行。它说明**数字从哪里来**，答案只有三种：
#
# * **模型推算**（modelled）：由旁边写明的常数算出来，这台机器上并没有那块 GPU；
# * **实测**（measured）：刚刚在开头那一行所说的设备上真实发生；
# * **历史记录**（recorded）：以前测得的，旁边写着文件、设备和日期。
#
# 没有这一行的数字不算数。下面列出上面那张图里推算的一步，再加上一段历史记录：课程自带的小模型在 SoftGPU 上的一步。
# %%
recorded = recorded_trace("softgpu-bard-stage15-eager").timeline
for timeline in (modelled, recorded):
    say(
        f"{timeline.source:<9} step {timeline.step_us:5,.0f} µs, device busy {timeline.utilization:.0%} of it"
        f"   ({timeline.provenance})",
        f"{timeline.source:<9} 每步 {timeline.step_us:5,.0f} µs，其中设备忙碌 {timeline.utilization:.0%}"
        f"   （{timeline.provenance}）",
    )
# %% [markdown] lang="en"
# ## A taste: the gaps
#
# `bard` is a language model that comes with the course. It is small, but it is a real one: 32 layers, trained on plays.
# We run one decode step for one request in the plainest way, 15 kernels a layer, each launched by Python.
#
# **Predict:** for how much of this step will the device of *your* machine be busy? Nearly all of it, half of it, a
# tenth?
# %% [markdown] lang="zh"
# ## 先尝一口：空隙
#
# `bard` 是课程自带的语言模型。它很小，但货真价实：32 层，用戏剧文本训练而成。
# 我们用最朴素的方式为一个请求跑一步 decode：每层 15 个 kernel，由 Python 一个一个启动。
#
# **先猜**：在**你的**机器上，这一步里设备有多少时间在忙？几乎全部、一半，还是十分之一？
# %%
CONTEXT = 64  # tokens that the request has so far
checkpoint = load_checkpoint("bard")
plain = checkpoint.model(stage=15, max_rows=1, blocks=blocks_needed(1, CONTEXT))
plain_batch = running_batch(plain, 1, CONTEXT)

before = measure_steps(device, {"before": eager_step(plain, plain_batch)}, repeats=15, recorded=5)["before"].timeline
if device.processors == 1:
    before = recorded  # what is measured on one processor says nothing
title_before = pick("Before: 15 kernels a layer, launched one by one", "优化前：每层 15 个 kernel，逐个启动")
show_svg(timeline_svg([Panel(title_before, before)], language()))
if device.processors > 1 and "not contended" not in banner:
    title_quiet = pick(
        "For comparison: the same step on a quiet machine", "对照：同样的一步，在没有别的程序打扰的机器上"
    )
    show_svg(timeline_svg([Panel(title_quiet, recorded)], language()))
# %%
say(
    f"{len(before.host)} launches for one token. The device worked {before.device_us:,.0f} µs of the step's "
    f"{before.step_us:,.0f} µs ({before.utilization:.0%}); it waited {before.step_us - before.device_us:,.0f} µs. "
    "A faster device would only wait longer.",
    f"为了一个 token，启动了 {len(before.host)} 次。这一步用了 {before.step_us:,.0f} µs，"
    f"设备只工作了 {before.device_us:,.0f} µs（{before.utilization:.0%}），其余 {before.step_us - before.device_us:,.0f} µs 都在等。"
    "换一个更快的设备，只会等得更久。",
)
# %% [markdown] lang="en"
# ## Then, no gaps
#
# Now both remedies at once. The same layer is fused into 4 kernels. Then the whole step is captured as one graph, so
# that a single call submits all of it.
#
# **Predict:** how many times faster will the step be? And what will the GPU lane look like?
# %% [markdown] lang="zh"
# ## 再来：没有空隙
#
# 现在两味药一起用：同样的一层融合成 4 个 kernel；然后把整个一步捕获成一张 graph，只要一次调用就全部提交。
#
# **先猜**：这一步会快多少倍？GPU 那一行又会是什么样子？
# %%
fused = checkpoint.model(stage=4, max_rows=1, blocks=blocks_needed(1, CONTEXT))
fused_batch = running_batch(fused, 1, CONTEXT)
runner = GraphRunner(fused, batch_size=1)  # captures the step
logits_after = runner.run(fused_batch)

both = {"before": eager_step(plain, plain_batch), "after": runner.graph.replay}
measured = measure_steps(device, both, repeats=15, recorded=5)  # in turns, so that a disturbance meets both
before, after = measured["before"].timeline, measured["after"].timeline
if device.processors == 1:
    before, after = recorded, recorded_trace("softgpu-bard-stage4-graph").timeline
title_after = pick("After: 4 kernels a layer, one graph replay", "优化后：每层 4 个 kernel，一次 graph 回放")
show_svg(timeline_svg([Panel(title_before, before), Panel(title_after, after)], language()))
if device.processors > 1 and "not contended" not in banner:
    say("The same two steps on a quiet machine:", "同样的两步，在没有别的程序打扰的机器上：")
    quiet_after = recorded_trace("softgpu-bard-stage4-graph").timeline
    show_svg(timeline_svg([Panel(title_before, recorded), Panel(title_after, quiet_after)], language()))
# %%
say(
    f"Submissions by the host: {len(before.host)} before, {len(after.host)} after. "
    f"Kernels: {len(before.device)} before, {len(after.device)} after.\n"
    f"Step: {before.step_us:,.0f} µs before, {after.step_us:,.0f} µs after: {before.step_us / after.step_us:.1f} times "
    f"as fast. Device busy: {before.utilization:.0%} before, {after.utilization:.0%} after.",
    f"主机提交的次数：之前 {len(before.host)} 次，之后 {len(after.host)} 次。"
    f"kernel 数：之前 {len(before.device)} 个，之后 {len(after.device)} 个。\n"
    f"每步：之前 {before.step_us:,.0f} µs，之后 {after.step_us:,.0f} µs，"
    f"速度是原来的 {before.step_us / after.step_us:.1f} 倍。"
    f"设备忙碌：之前 {before.utilization:.0%}，之后 {after.utilization:.0%}。",
)
# %% [markdown] lang="en"
# ## The answer must stay the same
#
# Speed is easy if the result may change. **Predict:** will the two ways agree on the next character? On all digits of
# the logits?
# %% [markdown] lang="zh"
# ## 答案必须不变
#
# 如果允许结果变，快是很容易的。**先猜**：两种做法算出的下一个字符相同吗？logits 的每一位数字都相同吗？
# %%
logits_before = plain.forward(plain_batch)
characters = [checkpoint.tokenizer.decode([int(logits.argmax())]) for logits in (logits_before, logits_after)]
difference = (logits_before - logits_after).abs().max().item()
say(
    f"Next character: {characters[0]!r} before, {characters[1]!r} after. "
    f"Largest difference of any logit: {difference:.1e}.",
    f"下一个字符：之前 {characters[0]!r}，之后 {characters[1]!r}。logits 的最大差值：{difference:.1e}。",
)
assert characters[0] == characters[1]
assert difference < 1e-4  # rounding at most
# %% [markdown] lang="en"
# ## Recap
#
# * At batch 1 a decode step is hundreds of short kernels, and the device waits for the host between them.
# * Fewer kernels and one submission close the gaps; the answer stays the same.
# * Every figure says whether it is modelled, measured or recorded.
#
# What you saw works here because nothing changed between two steps. In a real server everything changes: the batch, the
# addresses, the lengths. That is where the rest of the course is.
#
# | lesson | the question that it answers |
# |---|---|
# | [1 Profile](01_profile.ipynb) | Where does the time of one token go? |
# | [2 Fusion](02_fusion.ipynb) | Which kernels can become one, and what does it save? |
# | [3 Capture](03_capture.ipynb) | What does a graph remember, and what can it not see? |
# | [4 Buckets](04_buckets.ipynb) | The batch changes at every step, a graph cannot: what now? |
# | [5 The padding bug](05_padding_bug.ipynb) | How can a row that nobody reads spoil somebody's text? |
# | [6 When it stops mattering](06_when_it_stops.ipynb) | From where on is all this useless? |
# | [7 In production](07_in_production.ipynb) | What do vLLM, SGLang, TensorRT-LLM and others do? |
# | [8 Quiz](08_quiz.ipynb) | Do you know it now? |
#
# Each lesson names its exercise at the end. This one has none: go on with [lesson 1](01_profile.ipynb).
#
# Something looked wrong? In a terminal (*File → New → Terminal*) `s13 doctor` checks this machine and says what to do.
# %% [markdown] lang="zh"
# ## 小结
#
# * batch 为 1 时，decode 的一步是几百个很短的 kernel，设备在它们之间等主机。
# * kernel 更少、一次提交，空隙就合上了，而答案不变。
# * 每张图都写明：是模型推算、实测，还是历史记录。
#
# 刚才能这样做，是因为前后两步之间什么都没有变。真实的服务里样样都在变：batch、地址、长度。课程余下的部分讲的就是这些。
#
# | 课 | 它回答的问题 |
# |---|---|
# | [1 剖析](01_profile.ipynb) | 一个 token 的时间花在哪里？ |
# | [2 融合](02_fusion.ipynb) | 哪些 kernel 能并成一个，省下了什么？ |
# | [3 捕获与回放](03_capture.ipynb) | graph 记住了什么，又看不见什么？ |
# | [4 分桶](04_buckets.ipynb) | batch 每一步都在变，graph 却不能变，怎么办？ |
# | [5 补齐污染](05_padding_bug.ipynb) | 没有人读的一行，怎么会弄坏别人的文字？ |
# | [6 什么时候不再重要](06_when_it_stops.ipynb) | 从哪里开始，这一切就没有用了？ |
# | [7 生产环境](07_in_production.ipynb) | vLLM、SGLang、TensorRT-LLM 等引擎各自怎么做？ |
# | [8 习题](08_quiz.ipynb) | 现在你掌握了吗？ |
#
# 每一课的末尾会指出对应的练习。这一课没有练习，请接着读[第 1 课](01_profile.ipynb)。
#
# 觉得哪里不对？在终端里（*File → New → Terminal*）运行 `s13 doctor`，它会检查这台机器，并告诉你该怎么办。
