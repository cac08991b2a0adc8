# ---
# title_en: Capture and replay
# title_zh: 捕获与回放
# minutes: 15
# ---
# %% [markdown] lang="en"
# # Capture and replay
#
# *About 15 minutes. 中文版：[捕获与回放](../zh/03_capture.ipynb).*
#
# A graph is a recording of launches. Replaying it costs the host one call, whatever the number of kernels. The price is
# a set of rules, and all of them follow from one sentence:
#
# > **A graph records addresses, not values.**
#
# At the end of this lesson you can
#
# * read a recorded graph and say what a replay will do,
# * foresee six ways in which a careless runner goes wrong, and break them on purpose,
# * say what looks forbidden and works,
# * build a runner that none of these faults can reach, and measure what it saves.
# %% [markdown] lang="zh"
# # 捕获与回放
#
# *约 15 分钟。English: [Capture and replay](../en/03_capture.ipynb).*
#
# graph 就是一份启动记录。不管里面有多少个 kernel，回放时主机只要调用一次。代价是一组规矩，而它们全都来自同一句话：
#
# > **graph 记录的是地址，不是数值。**
#
# 学完这一课，你能够：
#
# * 读懂一张录好的 graph，说出回放时会发生什么；
# * 预见一个粗心的 runner 会以哪六种方式出错，并亲手让它们一一发生；
# * 说出哪些做法看似不行、其实可以；
# * 写出一个不怕这些错误的 runner，并测出它省了多少。
# %%
import inspect

import torch

from s13lib.device import CaptureError, best_device
from s13lib.errors import InputError
from s13lib.figures import Panel, timeline_svg
from s13lib.graphs import GraphRunner
from s13lib.model import Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.recorded import recorded_trace
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.widgets import language, pick, say, show_svg

device = best_device(default="softgpu")
banner = device.banner()
print(banner)
# %% [markdown] lang="en"
# ## A graph of two nodes
#
# `with device.graph() as graph:` records the launches inside it **instead of running them**. Two kernels: y = 2x, then
# z = y. The tensors have names only so that the print-out can show them.
#
# **Predict:** x is 1 during the capture. What is z right after the `with` block?
# %% [markdown] lang="zh"
# ## 只有两个节点的 graph
#
# `with device.graph() as graph:` 会把里面的启动**记录下来，而不执行**。这里有两个 kernel：y = 2x，然后 z = y。给张量起名字，只是为了打印时能看清楚。
#
# **先猜**：捕获时 x 是 1。`with` 块刚结束时，z 是多少？
# %%
x = device.tensor([1.0], name="x")
y, z = device.zeros(1, name="y"), device.zeros(1, name="z")
with device.graph() as graph:
    device.kernels.scale(x, y, 2.0)
    device.kernels.copy(y, z)
print(graph)
say(f"z after the capture: {z.item():g}. Nothing has run.", f"捕获之后 z = {z.item():g}：什么都还没有执行。")
graph.replay()
device.synchronize()
say(f"z after a replay: {z.item():g}.", f"回放一次之后 z = {z.item():g}。")
# %% [markdown] lang="en"
# Read the print-out again: kernel, address read, address written, and the number 2.0. That is *all* the graph knows. It
# does not know Python variables, your function, or that x held a 1.
#
# Now let us break things. Each fault below is one that real engines have shipped.
# %% [markdown] lang="zh"
# 再看一遍打印结果：kernel、读的地址、写的地址，还有数字 2.0。graph 知道的**就这些**。它不知道 Python 变量，不知道你的函数，也不知道 x 里放过一个 1。
#
# 下面开始搞破坏。每一个错误都真的在某个引擎里出现过。
# %% [markdown] lang="en"
# ## Fault 1: a rebound input
#
# **Predict:** we give the name `x` to a new tensor that holds 5, and replay. What is z?
# %% [markdown] lang="zh"
# ## 错误一：换了一个张量
#
# **先猜**：让名字 `x` 指向一个装着 5 的新张量，再回放。z 是多少？
# %%
captured_x = x
x = device.tensor([5.0])  # a new tensor at a new address
graph.replay()
device.synchronize()
rebound = z.item()
captured_x.copy_(x)  # the right way: new values at the old address
graph.replay()
device.synchronize()
copied = z.item()
say(
    f"After rebinding: {rebound:g}, computed from the old address. After copying into the old tensor: {copied:g}.",
    f"换了名字之后：{rebound:g}，仍然是从旧地址算出来的。拷贝进旧张量之后：{copied:g}。",
)
# %% [markdown] lang="en"
# Rule: keep **static buffers**, and copy every input into them. (Public case: onnxruntime#29782.)
#
# ## Fault 2: a Python number
#
# **Predict:** `factor` is 1 at the capture and 2 afterwards; x is 3. What does a replay give, and what does calling the
# function give?
# %% [markdown] lang="zh"
# 规矩：准备好**静态缓冲区**，每次都把输入拷贝进去。（公开案例：onnxruntime#29782。）
#
# ## 错误二：一个 Python 数字
#
# **先猜**：捕获时 `factor` 是 1，之后改成 2；x 是 3。回放得到多少？直接调用函数又得到多少？
# %%
x, y = device.tensor([3.0]), device.empty(1)
factor = 1.0


def step():
    device.kernels.scale(x, y, factor)


with device.graph() as graph:
    step()
factor = 2.0
graph.replay()
device.synchronize()
replayed = y.item()
step()
device.synchronize()
called = y.item()
say(f"Replay: {replayed:g}. Python again: {called:g}.", f"回放：{replayed:g}。重新调用 Python：{called:g}。")
# %% [markdown] lang="en"
# The number was copied into the packet at the capture. A context length or a maximum baked in this way keeps attending
# to too few tokens (flash-attention#1164). Rule: what changes between steps must lie **in a tensor**.
#
# ## Fault 3: looking at a value during the capture
#
# During a capture nothing runs, so a value that Python reads there is stale, and a branch on it is frozen. SoftGPU
# refuses, as CUDA does. Prints count as reads.
# %% [markdown] lang="zh"
# 数字在捕获时就被抄进了 packet。上下文长度或某个最大值要是这样写死，之后就会一直漏看 token（flash-attention#1164）。规矩：步与步之间会变的东西，必须放在**张量里**。
#
# ## 错误三：捕获时偷看数值
#
# 捕获期间什么也不执行，Python 读到的值是旧的，根据它做的分支也会被冻结。SoftGPU 和 CUDA 一样会拒绝；打印也算读。
# %%
for look in (lambda: y.item(), lambda: bool(y > 0), lambda: print(y), lambda: y + 1):
    try:
        with device.graph():
            device.kernels.scale(x, y, 2.0)
            look()
    except CaptureError as error:
        print("CaptureError:", error)
# %% [markdown] lang="en"
# (Computations such as `y + 1` are the one difference: CUDA would record PyTorch's own kernel. SoftGPU records only its
# own kernels, and the message names the one to use.) The device is clean afterwards: the next capture works.
#
# ## Fault 4: keeping the output without a copy
#
# From here on we take a real model: `bard`, 32 layers, fused to 4 kernels a layer. A bare runner that returns its static
# output looks right, until you keep a result.
# %% [markdown] lang="zh"
# （唯一的差别是 `y + 1` 这类计算：CUDA 会把 PyTorch 自己的 kernel 录下来，SoftGPU 只录自己的 kernel，报错信息会告诉你该用哪一个。）报错之后设备是干净的，下一次捕获照常进行。
#
# ## 错误四：不拷贝就留着输出
#
# 从这里起换成真的模型：`bard`，32 层，融合到每层 4 个 kernel。一个直接返回静态输出的 runner 看上去没问题，直到你把结果留下来。
# %%
bard = load_checkpoint("bard")
model = bard.model(stage=4, max_rows=64, blocks=64)


class BareRunner:
    """What one writes first: static buffers, a graph, and nothing else."""

    def __init__(self, model, batch_size):
        self.inputs, self.buffers = model.eager_buffers(batch_size)
        self.logits = model.device.empty((batch_size, model.config.vocab))
        with model.device.graph() as self.graph:
            model.launch_step(self.inputs, self.logits)

    def run(self, batch):
        for mine, theirs in zip(self.inputs.tensors(), batch.tensors(), strict=True):
            mine[: batch.rows].copy_(theirs)
        self.graph.replay()
        device.synchronize()
        return self.logits[: batch.rows]


bare = BareRunner(model, 4)
juliet = Sequence("juliet")
model.prefill(juliet, bard.tokenizer.encode("JULIET.\nO"))
first = bare.run(model.next_batch([juliet], [1]))
kept = first.clone()
bare.run(model.next_batch([juliet], [2]))
changed = not torch.equal(first, kept)
say(
    f"Did the first result change when the second step ran? {changed}.",
    f"第二步运行之后，第一步的结果变了吗？{'变了' if changed else '没有'}。",
)
# %% [markdown] lang="en"
# Rule: return a **copy** of the first n rows (sglang#35546).
#
# ## Fault 5: stale rows
#
# `BareRunner` copies only the real rows. The rows beyond keep what an earlier, larger batch left there, and a replay
# runs them all: it writes their keys and values to wherever their old slots point.
# %% [markdown] lang="zh"
# 规矩：返回前 n 行的**拷贝**（sglang#35546）。
#
# ## 错误五：残留的行
#
# `BareRunner` 只拷贝真实的行。后面的行还留着上一批更大的 batch 的内容，而回放会把所有行都算一遍，把它们的 key 和 value 写进旧 slot 指向的地方。
# %%
three = [Sequence(name) for name in ("a", "b", "c")]
for sequence in three:
    model.prefill(sequence, bard.tokenizer.encode("HAMLET.\n"))
bare.run(model.next_batch([juliet, *three], [1, 2, 3, 4]))
bare.run(model.next_batch([juliet], [5]))
left = bare.inputs.slot_mapping.tolist()
own = model.cache.slot(juliet, juliet.length - 1)
say(
    f"A batch of one, and the buffers hold the slots {left}: only {own} is this step's own. The other three were "
    "written again. If their blocks belonged to somebody else by now, that request would be corrupted.",
    f"batch 只有一行，缓冲区里的 slot 却是 {left}：只有 {own} 属于这一步，另外三个又被写了一遍。"
    "要是那些 block 已经分给了别人，那个请求的缓存就被污染了。",
)
for sequence in three:
    model.cache.release(sequence)
# %% [markdown] lang="en"
# Rule: build the whole padded batch and copy **every row** (Diffulex#44, vllm#41841). Lesson 5 is about this one.
#
# ## Fault 6: replaced weights
#
# **Predict:** we replace a weight tensor by another one, twice as large. Does a replay see it? And if we multiply the
# old tensor in place?
# %% [markdown] lang="zh"
# 规矩：构造完整的补齐 batch，**每一行**都拷贝（Diffulex#44、vllm#41841）。第 5 课专讲这个。
#
# ## 错误六：换掉了权重
#
# **先猜**：用另一个数值大一倍的张量替换权重，回放看得见吗？如果在原来的张量上原地乘 2 呢？
# %%
weight = device.tensor(torch.ones(4, 4))
rows, out = device.tensor(torch.ones(1, 4)), device.empty((1, 4))
with device.graph() as graph:
    device.kernels.linear(rows, weight, out)


def replay():
    graph.replay()
    device.synchronize()
    return out[0, 0].item()


old_weight, weight = weight, device.tensor(2 * torch.ones(4, 4))
after_replacing = replay()
old_weight.mul_(2)
after_in_place = replay()
say(
    f"After replacing: {after_replacing:g}, the old weight (the graph keeps it alive). In place: {after_in_place:g}.",
    f"替换之后：{after_replacing:g}，还是旧权重（graph 会让它一直活着）。原地修改之后：{after_in_place:g}。",
)
# %% [markdown] lang="en"
# ## What looks forbidden and works
#
# "Never allocate inside a capture" is a rule that one often hears. It is too strict: an allocation inside goes to the
# **graph's own pool**, its address is recorded like any other, and it stays where it is. Several graphs may even share
# one pool, as long as they never run at the same time.
# %% [markdown] lang="zh"
# ## 看似不行，其实可以
#
# 常听到一条规矩：“捕获时绝不能分配内存”。这话说得太死了：捕获中分配的内存来自 **graph 自己的内存池**，地址同样被记录下来，之后也不会挪动。几张 graph 甚至可以共用一个池，只要它们不同时运行。
# %%
x, result = device.tensor([3.0]), device.empty(1)
with device.graph() as graph:
    scratch = device.empty(1)  # allocated inside
    device.kernels.scale(x, scratch, 2.0)
    device.kernels.scale(scratch, result, 10.0)
graph.replay()
device.synchronize()
say(
    f"The result is right: {result.item():g}. The pool holds {graph.pool_bytes} bytes.",
    f"结果是对的：{result.item():g}。内存池占 {graph.pool_bytes} 字节。",
)
# %% [markdown] lang="en"
# ## What only CUDA shows
#
# *Read, not measured here (PyTorch's documentation on CUDA graphs).* On CUDA one warms up **on a side stream** before
# the capture: libraries such as cuBLAS create their workspaces at the first call, kernels are loaded lazily, and neither
# may happen inside the capture. The legacy default stream cannot be captured at all. SoftGPU has one stream and compiles
# its kernels before they are launched, so you cannot see this fault here.
#
# ## The library's runner
#
# `GraphRunner` is what remains once all six faults are designed out. Read its `fill` and `replay`.
# %% [markdown] lang="zh"
# ## 只有 CUDA 上才看得到的
#
# （读来的，不是在这里测的；出处是 PyTorch 文档中关于 CUDA graph 的部分。）在 CUDA 上，捕获之前要先在**另一条 stream**（side stream）上预热：cuBLAS 之类的库在第一次调用时才创建工作区，kernel 也是用到才加载，这两件事都不能发生在捕获过程中；旧式（legacy）的默认 stream 根本不能捕获。SoftGPU 只有一条 stream，kernel 在启动之前就已编译好，所以在这里看不到这类错误。
#
# ## 库里的 runner
#
# 把这六种错误都从设计上排除之后，剩下的就是 `GraphRunner`。读一读它的 `fill` 和 `replay`。
# %%
print(inspect.getsource(GraphRunner.fill))
print(inspect.getsource(GraphRunner.replay))
# %% [markdown] lang="en"
# | fault | what prevents it |
# |---|---|
# | rebound input | `_check_inputs` compares addresses at each run and names the input |
# | Python number | everything that changes is a tensor of `DecodeBatch`: positions, slots, tables, lengths |
# | reading in capture | the device refuses it |
# | output kept | `run` returns a clone of the first n rows |
# | stale rows | `padded` fills every row, `copy_from` copies every row |
# | replaced weights | a generation counter; a clear error instead of old results |
# %% [markdown] lang="zh"
# | 错误 | 靠什么避免 |
# |---|---|
# | 换了输入张量 | `_check_inputs` 每次运行都核对地址，并指出是哪个输入 |
# | Python 数字 | 会变的都是 `DecodeBatch` 里的张量：位置、slot、block table、长度 |
# | 捕获时读数值 | 设备直接拒绝 |
# | 留着输出 | `run` 返回前 n 行的拷贝 |
# | 残留的行 | `padded` 填满每一行，`copy_from` 拷贝每一行 |
# | 换掉权重 | 用一个版本计数器，宁可明确报错，也不返回旧结果 |
# %%
runner = GraphRunner(model, 4)
runner.inputs = type(runner.inputs)(runner.inputs.input_ids.clone(), *runner.inputs.tensors()[1:])
try:
    runner.run(model.next_batch([juliet], [1]))
except InputError as error:
    print("InputError:", error)
# %% [markdown] lang="en"
# ## Measure
#
# One decode step of bard at batch 1, un-fused (15 kernels a layer), launched one by one and as a graph.
#
# **Predict:** by what factor does the *host's* time fall? And the step's?
# %% [markdown] lang="zh"
# ## 测量
#
# bard 在 batch 为 1 时的一步 decode，不融合（每层 15 个 kernel），逐个启动与用一张 graph 回放。
#
# **先猜**：主机的时间会降到几分之一？整步的时间呢？
# %%
plain = bard.model(stage=15, max_rows=64, blocks=blocks_needed(1, 64))
batch = running_batch(plain, 1, 64)
one_by_one = eager_step(plain, batch)
graph_runner = GraphRunner(plain, 1)
graph_runner.run(batch)
measured = measure_steps(device, {"eager": one_by_one, "graph": graph_runner.graph.replay}, repeats=20, recorded=8)
eager, graph = measured["eager"], measured["graph"]
say(
    f"Measured: {eager.launches} launches keep the host busy for {eager.host_us:,.0f} µs, one replay for "
    f"{graph.host_us:,.1f} µs: {eager.host_us / graph.host_us:,.0f} times less. The step falls from {eager.step_us:,.0f} "
    f"to {graph.step_us:,.0f} µs, {eager.step_us / graph.step_us:.1f}×.",
    f"实测：{eager.launches} 次启动让主机忙了 {eager.host_us:,.0f} µs，一次回放只要 {graph.host_us:,.1f} µs，"
    f"只有原来的 1/{eager.host_us / graph.host_us:,.0f}。整步从 {eager.step_us:,.0f} µs 降到 {graph.step_us:,.0f} µs，"
    f"快到 {eager.step_us / graph.step_us:.1f} 倍。",
)
titles = pick("one by one", "逐个启动"), pick("one replay", "一次回放")
panels = [Panel(title, step.timeline) for title, step in zip(titles, (eager, graph), strict=True)]
show_svg(timeline_svg(panels, language()))
if "not contended" not in banner:
    quiet = [recorded_trace(f"softgpu-bard-stage15-{kind}").timeline for kind in ("eager", "graph")]
    titles = [pick(f"{title}, on a quiet machine", f"{title}，安静的机器") for title in titles]
    show_svg(timeline_svg([Panel(*pair) for pair in zip(titles, quiet, strict=True)], language()))
# %% [markdown] lang="en"
# The kernels are the same, and so is what the device must do. A graph removes host time, never device time: that is why
# the second lane is now full, and why the gain ends when the device is the limit (lesson 6).
#
# ## Recap
#
# * A graph is a list of kernels, addresses and numbers; replay runs no Python.
# * Copy inputs in, every row; copy outputs out; keep what changes in tensors; replace nothing.
# * Allocation inside a capture is fine: it belongs to the graph's pool.
# * One graph has one batch size. Real batches change at every step: that is lesson 4.
#
# **Exercise 4, Capture:** make a `GraphRunner` from a bare graph.
# %% [markdown] lang="zh"
# kernel 还是那些 kernel，设备要做的事一点没少。graph 省的是主机的时间，从来不是设备的时间：所以第二行现在排满了；也正因为这样，一旦设备成为瓶颈，收益就到头了（第 6 课）。
#
# ## 小结
#
# * graph 就是一串 kernel、地址和数字；回放时不运行 Python。
# * 输入拷进去，每一行都拷；输出拷出来；会变的放进张量；什么都别替换。
# * 捕获时可以分配内存：它属于 graph 的内存池。
# * 一张 graph 只有一个 batch 大小，而真实的 batch 每一步都在变：这是第 4 课的内容。
#
# **练习 4（捕获）**：从一张裸的 graph 出发，写出一个 `GraphRunner`。
