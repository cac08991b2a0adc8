# %% [markdown] lang="en"
# # Exercise 2: Fuse RMSNorm with the residual add
#
# Lesson 2 fused the residual add with the norm behind it, as a kernel. Here you do it from the start: in PyTorch, then
# inside the textbook decoder, with an account of what it saves, then in place and in 16 bits, and last as a kernel of
# your own.
#
# Throughout, `x` is what attention or the FFN has just given, and `residual` is the stream that it is added to. Below is
# the textbook's layer, and its norm.
# %% [markdown] lang="zh"
# # 练习 2：融合 RMSNorm 与残差加法
#
# 第 2 课把残差加法和它后面的 norm 融合成了一个 kernel。这里你从头做一遍：先用 PyTorch 写，再放进教科书 decoder，算清楚省了什么，然后改成原地写、在 16 位下也要对，最后写成自己的 kernel。
#
# 整个练习里，`x` 是注意力或 FFN 刚给出的结果，`residual` 是它要加上去的残差流。下面是教科书里的一层，以及它的 norm。
# %% part="setup"
import inspect

import numpy as np
import torch

from s13lib.commands.output import table
from s13lib.device import F32, SoftGPU
from s13lib.figures import Panel, timeline_svg
from s13lib.grading import check, hint, inputs, progress
from s13lib.kernels.textbook import Block, RMSNorm, rope_tables
from s13lib.model.checkpoints import load_checkpoint
from s13lib.profiling.intermediates import record_operations
from s13lib.profiling.measure import measure_steps
from s13lib.widgets import language, pick, say, show_svg

torch.set_grad_enabled(False)
device = SoftGPU()
bard = load_checkpoint("bard")
textbook = bard.textbook().model
print(inspect.getsource(Block.forward))
print(inspect.getsource(RMSNorm.forward))


# %% [markdown] part="2a" lang="en"
# Write `fused_add_rms_norm(x, residual, weight, eps)`. It returns two new tensors:
#
# * the **normed** one: the sum of `x` and `residual`, normalised over the last dimension and times `weight`, as the
#   textbook's norm does it;
# * the **new residual**: the sum itself, which the next add needs.
#
# `x` and `residual` have the same shape, `[h]`, `[b, h]` or `[b, t, h]`, in float32; `weight` is `[h]`; `eps` is a number.
# The arguments stay as they are: the caller may still need them.
#
# Example: `x = [1, 2]`, `residual = [2, 2]`, `weight = [1, 1]`, `eps = 0` give `[0.848528, 1.131371]` and `[3, 4]`.
# %% [markdown] part="2a" lang="zh"
# 写出 `fused_add_rms_norm(x, residual, weight, eps)`，返回两个新的张量：
#
# * **归一化后的张量**：`x` 与 `residual` 之和，沿最后一维归一化，再乘 `weight`，做法与教科书的 norm 相同；
# * **新的残差**：和本身，下一次加法要用。
#
# `x` 和 `residual` 形状相同，是 `[h]`、`[b, h]` 或 `[b, t, h]`，类型为 float32；`weight` 是 `[h]`；`eps` 是一个数。参数要保持原样：调用者可能还要用。
#
# 例：`x = [1, 2]`、`residual = [2, 2]`、`weight = [1, 1]`、`eps = 0`，得到 `[0.848528, 1.131371]` 和 `[3, 4]`。
# %% part="2a"
def fused_add_rms_norm(x, residual, weight, eps):
    ### BEGIN SOLUTION
    total = x + residual
    mean_square = total.pow(2).mean(dim=-1, keepdim=True)
    return total * torch.rsqrt(mean_square + eps) * weight, total
    ### END SOLUTION


# %% [markdown] part="2b" lang="en"
# Now put it where the textbook adds and normalises. **First guess:** of the two adds in a layer, how many have a norm
# directly behind them?
#
# Write `fused_layers(blocks, norm, x, cos, sin, cache, add_rms_norm)`. It gives what this loop gives:
#
# ```python
# for number, block in enumerate(blocks):
#     x = block(x, cos, sin, cache, number)
# return norm(x)
# ```
#
# but **every** residual add is done by `add_rms_norm`, together with the norm that comes next. So it is called twice as
# often as there are layers, six times for three; the norm before the first add has nothing to fuse with and is called
# by itself.
#
# * `add_rms_norm(x, residual, weight, eps)` is given to you and works like your 2a: it returns normed, new residual.
# * `blocks` holds at least one `Block`. Call its parts as its `forward` does: `block.self_attn(…, cos, sin, cache,
#   number)`, `block.mlp(…)`, and the norms `block.input_layernorm` and `block.post_attention_layernorm`.
# * `norm` is the decoder's final norm. Each norm has a `.weight` and an `.eps` of its own.
# * `x` is `[b, t, h]`. `cache` is a list with an entry for each layer, or `None`: hand it on.
# %% [markdown] part="2b" lang="zh"
# 现在把它放到教科书里相加、归一化的地方。**先猜**：一层里的两次加法，有几次后面直接跟着 norm？
#
# 写出 `fused_layers(blocks, norm, x, cos, sin, cache, add_rms_norm)`。它的结果与这个循环相同：
#
# ```python
# for number, block in enumerate(blocks):
#     x = block(x, cos, sin, cache, number)
# return norm(x)
# ```
#
# 但是**每一次**残差加法都要交给 `add_rms_norm`，连同接下来的那个 norm 一起做。所以它的调用次数是层数的两倍，三层就是六次；第一次加法之前的 norm 没有东西可融合，单独调用。
#
# * `add_rms_norm(x, residual, weight, eps)` 已经给你，用法同你的 2a：返回归一化后的张量和新的残差。
# * `blocks` 里至少有一个 `Block`。各部分的调用方式与它的 `forward` 相同：`block.self_attn(…, cos, sin, cache, number)`、`block.mlp(…)`，以及两个 norm：`block.input_layernorm` 和 `block.post_attention_layernorm`。
# * `norm` 是 decoder 最终的 norm。每个 norm 都有自己的 `.weight` 和 `.eps`。
# * `x` 是 `[b, t, h]`。`cache` 是每层一项的列表，或者是 `None`：原样传下去。
# %% part="2b"
def fused_layers(blocks, norm, x, cos, sin, cache, add_rms_norm):
    ### BEGIN SOLUTION
    residual = x
    normed = blocks[0].input_layernorm(x)
    for number, block in enumerate(blocks):
        attended = block.self_attn(normed, cos, sin, cache, number)
        second = block.post_attention_layernorm
        normed, residual = add_rms_norm(attended, residual, second.weight, second.eps)
        following = blocks[number + 1].input_layernorm if number + 1 < len(blocks) else norm
        normed, residual = add_rms_norm(block.mlp(normed), residual, following.weight, following.eps)
    return normed
    ### END SOLUTION


# %% [markdown] lang="en"
# Both of your functions in a whole model, bard with its 32 layers: did the output change?
# %% [markdown] lang="zh"
# 把你的两个函数放进整个模型，32 层的 bard：输出变了吗？
# %%
tokens = torch.tensor([bard.tokenizer.encode("ROMEO.\nBut soft, what light")])
embedded = textbook.embed_tokens(tokens)
angles = rope_tables(torch.arange(tokens.shape[1]), bard.config.head_dim, bard.config.rope_theta, torch.float32)


def plain_layers():
    x = embedded
    for number, block in enumerate(textbook.layers):
        x = block(x, *angles, None, number)
    return textbook.norm(x)


def layers_with(add_rms_norm):
    return fused_layers(textbook.layers, textbook.norm, embedded, *angles, None, add_rms_norm)


def compare_outputs():
    largest = (layers_with(fused_add_rms_norm) - plain_layers()).abs().max().item()
    say(
        f"Measured: the largest difference from the textbook is {largest:.1e}.",
        f"实测：与教科书的最大差别是 {largest:.1e}。",
    )


compare_outputs()


# %% [markdown] part="2c" lang="en"
# Your 2a is one *function*. Is it one *kernel*? `record_operations(function, *arguments)` runs a function and notes each
# PyTorch operation. Its record is a dictionary; every piece of memory has a number:
#
# * `"inputs"`: the memory that was there before, arguments and weights;
# * `"steps"`: `(operation, memory, bytes)`, where `memory` is the number of the memory that the operation's result lies
#   in, and `bytes` is the size of that memory;
# * `"outputs"`: the memory of what the function returned.
#
# A view (`view`, `t`, `select`, …) and an operation in place (`add_`, `mul_`, …) give a number that was there already.
#
# An **intermediate** is memory that some step gave, and that is neither an input nor an output. Write
# `intermediates(record)`: how many there are, and their bytes in total, as a pair.
#
# Example: `{"inputs": [0], "steps": [("exp", 1, 64), ("t", 1, 64), ("sum", 2, 4), ("mul", 3, 64)], "outputs": [3]}` has
# two intermediates (1 and 2) with 68 bytes: `(2, 68)`. With no step it is `(0, 0)`.
# %% [markdown] part="2c" lang="zh"
# 你的 2a 是一个**函数**。它是一个 **kernel** 吗？`record_operations(function, *arguments)` 运行一个函数，并记下每个 PyTorch 操作。记录是一个字典，每块内存有一个编号：
#
# * `"inputs"`：本来就在的内存，也就是参数和权重；
# * `"steps"`：`(operation, memory, bytes)`，`memory` 是操作的结果所在内存的编号，`bytes` 是那块内存的大小；
# * `"outputs"`：函数返回值所在的内存。
#
# 视图（`view`、`t`、`select` 等）和原地操作（`add_`、`mul_` 等）给出的编号，前面已经有过。
#
# **中间张量**是某一步给出、既不是输入也不是输出的内存。写出 `intermediates(record)`：有几个，一共多少字节，作为一对返回。
#
# 例：`{"inputs": [0], "steps": [("exp", 1, 64), ("t", 1, 64), ("sum", 2, 4), ("mul", 3, 64)], "outputs": [3]}` 有两个中间张量（1 和 2），共 68 字节：`(2, 68)`。一步也没有时是 `(0, 0)`。
# %% part="2c"
def intermediates(record):
    ### BEGIN SOLUTION
    outside = {*record["inputs"], *record["outputs"]}
    sizes = {memory: size for _, memory, size in record["steps"] if memory not in outside}
    return len(sizes), sum(sizes.values())
    ### END SOLUTION


# %% [markdown] lang="en"
# Now count: the textbook's add and norm for one token of bard, in float32 and in bfloat16; your 2a; and SoftGPU's fused
# kernel.
#
# **Predict:** how many intermediates has your 2a?
# %% [markdown] lang="zh"
# 现在来数：bard 的一个 token，教科书的加法和 norm，用 float32 和 bfloat16；你的 2a；以及 SoftGPU 的融合 kernel。
#
# **先猜**：你的 2a 有几个中间张量？
# %%
hidden = bard.config.hidden
weight, eps = torch.ones(hidden), bard.config.norm_eps
norms = {dtype: RMSNorm(hidden, eps).to(dtype) for dtype in (torch.float32, torch.bfloat16)}


def textbook_pair(x, residual, weight, eps):
    total = x + residual
    return norms[x.dtype](total), total


def one_kernel(x, residual, weight, eps):
    normed, total = torch.empty_like(x), torch.empty_like(x)
    x, residual, total_rows, normed_rows = (t.view(-1, hidden) for t in (x, residual, total, normed))
    device.kernels.add_rms_norm(residual, x, weight, eps, total_rows, normed_rows)
    device.synchronize()
    return normed, total


def count(function, dtype=torch.float32):
    x, residual = torch.randn(2, 1, hidden).to(dtype).unbind()
    return intermediates(record_operations(function, x, residual, weight.to(dtype), eps))


def show_counts():
    ways = {
        "textbook, float32": count(textbook_pair),
        "textbook, bfloat16": count(textbook_pair, torch.bfloat16),
        "your 2a, float32": count(fused_add_rms_norm),
        "one kernel, float32": count(one_kernel),
    }
    rows = [(way, str(number), str(size)) for way, (number, size) in ways.items()]
    print(table(("counted: one add and norm", "intermediates", "bytes"), rows))
    before, _ = intermediates(record_operations(plain_layers))
    after, _ = intermediates(record_operations(layers_with, one_kernel))
    layers = bard.config.layers
    each = (before - after) / layers
    say(
        f"\nCounted in all {layers} layers of bard, float32: {before} intermediates in the textbook, {after} with one "
        f"kernel for each add and norm: {each:g} fewer in each layer.",
        f"\n在 bard 的全部 {layers} 层里数（float32）：教科书有 {before} 个中间张量，"
        f"每对加法和 norm 用一个 kernel 时有 {after} 个：每层少了 {each:g} 个。",
    )


show_counts()


# %% [markdown] lang="en"
# Calling something a fused function does not fuse it: PyTorch still runs one operation after another, and each writes its
# result to memory. Only a kernel keeps them in registers.
# %% [markdown] lang="zh"
# 把函数叫作“融合”，并不会真的融合：PyTorch 照样一个操作接一个操作地跑，每个都把结果写进内存。只有 kernel 才能让它们留在寄存器里。
# %% [markdown] part="2d" lang="en"
# Engines run this in 16 bits, and in place, so that not even the two results need new memory. Write
# `fused_add_rms_norm_(x, residual, weight, eps)`: afterwards `residual` holds the sum and `x` holds the normed values.
# What it returns does not matter.
#
# **In place:** `x` and `residual` do not overlap, but they may be views of one memory, such as its left and its right
# columns, and so need not be contiguous. Write *into* them.
#
# **Rounding:** all tensors have one type, float32 or bfloat16, and the result must equal the textbook's to the last bit.
# So it rounds to that type where the textbook does, and nowhere else:
#
# 1. the sum is rounded: that is the new residual, and what the norm reads;
# 2. squares, mean, eps, root and the product with it: all in float32;
# 3. the normalised row is rounded;
# 4. it is multiplied by `weight` in the tensors' own type (which rounds once more).
#
# Example: with the numbers of 2a in bfloat16, `residual` becomes `[3, 4]` and `x` becomes `[0.84765625, 1.1328125]`. To
# try more, compare with the textbook's `norms[torch.bfloat16](x + residual)` of the cell above, whose weights are ones.
# %% [markdown] part="2d" lang="zh"
# 真正的引擎用 16 位跑这一步，而且原地写，这样连两个结果也不需要新的内存。写出 `fused_add_rms_norm_(x, residual, weight, eps)`：执行之后，`residual` 里是和，`x` 里是归一化后的值。返回什么都行。
#
# **原地写**：`x` 和 `residual` 互不重叠，但它们可能是同一块内存的视图，比如它的左半列和右半列，所以不一定连续。要写**进**它们里面。
#
# **舍入**：所有张量类型相同，float32 或 bfloat16，结果必须与教科书逐位相同。所以教科书在哪里舍入到这个类型，它就在哪里舍入，别处不舍入：
#
# 1. 和要舍入：它就是新的残差，也是 norm 读到的值；
# 2. 平方、均值、eps、开方，以及与它相乘，都用 float32；
# 3. 归一化后的行要舍入；
# 4. 再用张量自己的类型乘 `weight`（又舍入一次）。
#
# 例：2a 的那组数用 bfloat16，`residual` 变成 `[3, 4]`，`x` 变成 `[0.84765625, 1.1328125]`。想多试几组，可以和教科书比：上面单元格里的 `norms[torch.bfloat16](x + residual)`，它的权重全是 1。
# %% part="2d"
def fused_add_rms_norm_(x, residual, weight, eps):
    ### BEGIN SOLUTION
    residual.add_(x)
    wide = residual.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
    x.copy_(normed.to(x.dtype) * weight)
    ### END SOLUTION


# %% [markdown] part="2e" lang="en"
# Last, one launch instead of two. Write the kernel `fused_add_rms_norm_kernel`, again in place: `residual` becomes the
# sum, `x` becomes the normed values, in float32. New is `rows`: only the first `rows` rows of `x` and `residual` are real.
# The rows behind them are padding and **stay exactly as they are**; `rows` may be 0.
#
# `x` and `residual` are `[n, h]`, `weight` is `[h]`. A kernel is a plain function of numbers and arrays: loops, indices
# (`x[row, i]`, `x.shape[1]`) and `np.sqrt`. It returns nothing. Leave `@device.kernel` away: the check first runs your
# function as plain Python, where a loop without end can be stopped, and then compiles it and launches it. You can do the
# first yourself:
#
# ```python
# x = np.array([[1, 2], [7, 7]], np.float32)
# residual = np.array([[2, 2], [8, 8]], np.float32)
# fused_add_rms_norm_kernel(x, residual, np.ones(2, np.float32), 0.0, 1)
# ```
#
# makes `x` `[[0.848528, 1.131371], [7, 7]]` and `residual` `[[3, 4], [8, 8]]`.
# %% [markdown] part="2e" lang="zh"
# 最后，把两次启动变成一次。写出 kernel `fused_add_rms_norm_kernel`，仍然原地写：`residual` 变成和，`x` 变成归一化后的值，类型 float32。新的参数是 `rows`：`x` 和 `residual` 只有前 `rows` 行是真的。后面的行是补齐，**必须原样不动**；`rows` 可以是 0。
#
# `x` 和 `residual` 是 `[n, h]`，`weight` 是 `[h]`。kernel 就是一个只用数和数组的普通函数：循环、下标（`x[row, i]`、`x.shape[1]`）和 `np.sqrt`。它没有返回值。不要写 `@device.kernel`：检查会先把你的函数当作纯 Python 来跑，死循环可以停下来；然后才编译、启动。第一步你自己也能做：
#
# ```python
# x = np.array([[1, 2], [7, 7]], np.float32)
# residual = np.array([[2, 2], [8, 8]], np.float32)
# fused_add_rms_norm_kernel(x, residual, np.ones(2, np.float32), 0.0, 1)
# ```
#
# 之后 `x` 是 `[[0.848528, 1.131371], [7, 7]]`，`residual` 是 `[[3, 4], [8, 8]]`。
# %% part="2e"
def fused_add_rms_norm_kernel(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    ### BEGIN SOLUTION
    for row in range(rows):
        squares = np.float32(0)
        for i in range(x.shape[1]):
            total = residual[row, i] + x[row, i]
            residual[row, i] = total
            squares += total * total
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[row, i] = residual[row, i] * inverse * weight[i]
    ### END SOLUTION


# %% [markdown] lang="en"
# Here is your kernel beside the two kernels that it replaces, as often as one step of bard needs them.
#
# **Predict:** how many launches does a step save, and does the device's work shrink as well?
# %% [markdown] lang="zh"
# 下面把你的 kernel 和它取代的两个 kernel 放在一起，次数与 bard 一步所需的相同。
#
# **先猜**：一步省下多少次启动？设备的工作也变少了吗？
# %%
x, residual, total = (device.tensor(torch.randn(1, hidden)) for _ in range(3))
gain = device.tensor(torch.ones(hidden))
pairs = 2 * bard.config.layers


def two_kernels():
    for _ in range(pairs):
        device.kernels.add(residual, x, total)
        device.kernels.rms_norm(total, gain, eps, x)


def show_launches():
    launch = device.kernel(fused_add_rms_norm_kernel, out=("x", "residual"))

    def your_kernel():
        for _ in range(pairs):
            launch(x, residual, gain, eps, 1)

    print(device.banner())
    two, one = measure_steps(device, {"two": two_kernels, "one": your_kernel}, repeats=30, recorded=10).values()
    panels = [Panel("add, rms_norm", two.timeline), Panel(pick("your kernel", "你的 kernel"), one.timeline)]
    show_svg(timeline_svg(panels, language()))
    say(
        f"Measured: {two.launches} → {one.launches} launches, {two.step_us:,.0f} → {one.step_us:,.0f} µs; the device "
        f"works for {two.device_busy_us:,.0f} → {one.device_busy_us:,.0f} µs of it.",
        f"实测：启动 {two.launches} → {one.launches} 次，{two.step_us:,.0f} → {one.step_us:,.0f} µs；"
        f"其中设备工作 {two.device_busy_us:,.0f} → {one.device_busy_us:,.0f} µs。",
    )


show_launches()
