# ---
# title_en: Operator fusion
# title_zh: 算子融合
# minutes: 25
# ---
# %% [markdown] lang="en"
# # Operator fusion
#
# *About 25 minutes. 中文版：[算子融合](../zh/02_fusion.ipynb).*
#
# Two ways lead out of the wait that lesson 1 measured. This is the first: **fewer launches**. Neighbouring operations
# become one kernel, and what passed between them through memory stays in registers.
#
# At the end of this lesson you can
#
# * follow one layer from 15 kernels to 4 and say, for each step, why it is allowed;
# * count what fusion saves: kernels, intermediate tensors, bytes;
# * check that the outputs did not change, with a check that is able to fail;
# * say what fusion does *not* save at batch 1;
# * write a fused kernel and launch it.
#
# **Predict** before you run a cell.
# %% [markdown] lang="zh"
# # 算子融合
#
# *约 25 分钟。English: [Operator fusion](../en/02_fusion.ipynb).*
#
# 第 1 课量出了 GPU 的等待。要摆脱它有两条路，这是第一条：**减少启动次数**。把相邻的操作合成一个
# kernel，它们之间原本要经过显存的值，就留在寄存器里。
#
# 学完这一课，你能够：
#
# * 跟着一层从 15 个 kernel 走到 4 个，并说清每一步为什么可行；
# * 算出融合省了什么：kernel、中间张量、字节；
# * 检查输出没有改变，而且所用的检查真的会报错；
# * 说出 batch 为 1 时融合**省不了**什么；
# * 亲手写一个融合 kernel 并启动它。
#
# 运行单元格之前请**先猜**。
# %%
import inspect
from dataclasses import replace
from html import escape

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display

from s13lib.commands.fusion import stage_rows
from s13lib.commands.output import table
from s13lib.device import F32, best_device
from s13lib.kernels import reference
from s13lib.model import Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.model.generate import generate
from s13lib.model.sampling import Sampling
from s13lib.model.stages import LAYERS
from s13lib.profiling.calibrate import shape_of
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.steps import eager_step, running_batch
from s13lib.simulator import PRESETS, DTypes, Setup, Workload, step_kernels
from s13lib.widgets import ledger_widget, say

device = best_device(default="softgpu")
banner = device.banner()
quiet = "not contended" in banner
print(banner)
# %% [markdown] lang="en"
# The line above names the device on which this lesson *measures*. If it says *contended*, or names one processor,
# counts and outputs stay right but times do not.
#
# ## One layer, nothing fused
#
# Below is the library's own code for one decoder layer, not a sketch. Each `k.…(…)` launches one kernel. The last
# arguments are what the kernel writes; all of these tensors pass through memory.
#
# **Predict:** which two neighbours would you merge first?
# %% [markdown] lang="zh"
# 上面那行是本课**实测**所用的设备。如果其中有 *contended*，或者只有一个处理器，那么计数和输出仍然正确，时间却不可信。
#
# ## 一层，什么都不融合
#
# 下面就是库里一个 decoder 层的真实代码，不是示意。每个 `k.…(…)` 启动一个
# kernel，排在最后的参数是它写出的张量，这些张量都要经过显存。
#
# **先猜**：你会先合并哪两个相邻的操作？
# %%
CONTEXT = 64
bard = load_checkpoint("bard")
# One layer of bard in float32; counts and bytes come from the stage's table of operations.
bard_setup = Setup(
    shape=shape_of(bard.config, "bard"), context=CONTEXT, dtypes=DTypes(4, 4, 4), parts=("layers",), base_stage=15
)
ledger = {row["stage"]: row for row in stage_rows(bard_setup)}


def marked_lines(source):
    """(line, whether it differs from the stage before) for each line of ``source``."""
    open_brackets = 0
    for line in source.splitlines():
        mark = "# <-" in line or open_brackets > 0
        line = line.replace("# <-", "").replace("# fmt: skip", "").rstrip()
        open_brackets = open_brackets + line.count("(") - line.count(")") if mark else 0
        yield line, mark


def show_stage(stage):
    """Show one layer's code at ``stage``, new lines marked, and what the layer costs there."""
    lines = list(marked_lines(inspect.getsource(LAYERS[stage])))
    style = "font-family:ui-monospace,Menlo,Consolas,monospace;"
    style += "background:#ffffff;color:#1a1a1a;font-size:12px;line-height:1.45;overflow-x:auto;padding:8px"
    new = "background:#fbe3b5;color:#1a1a1a;font-weight:600"
    page = "\n".join(
        f'<span style="{new}">▸ {escape(line)}</span>' if mark else f"  {escape(line)}" for line, mark in lines
    )
    text = "\n".join(f"{'>' if mark else ' '} {line}" for line, mark in lines)
    display({"text/html": f'<pre style="{style}">{page}</pre>', "text/plain": text}, raw=True)
    row = ledger[stage]
    launches, tensors, size = row["kernels_per_step"], row["intermediates_per_layer"], row["activation_bytes"]
    say(
        f"{stage} kernels a layer · {launches} launches a token · {tensors} tensors written a layer · "
        f"{size:,} bytes of activations a layer",
        f"每层 {stage} 个 kernel · 每个 token 启动 {launches} 次 · 每层写出 {tensors} 个张量 · "
        f"每层激活值 {size:,} 字节",
    )


show_stage(15)
# %% [markdown] lang="en"
# ## 15 → 11: small operations ride along
#
# A product holds its result in a register before it stores it. Adding the residual there is free, so the adds become
# **epilogues** of `o` and `down`. In the same way SiLU·mul rides on `up`, and writing the new key and value into the
# cache rides on RoPE, which has just computed the key.
#
# Marked lines are new. Look for what is gone as well: `b.delta`, `b.up` and `b.k_rope` are no longer written.
# %% [markdown] lang="zh"
# ## 15 → 11：小操作搭便车
#
# 矩阵乘在写出结果之前，结果还在寄存器里。这时顺手加上残差，几乎不花代价，于是两次加法成了
# `o` 和 `down` 的**尾声**（epilogue）。同理，SiLU·mul 搭在 `up` 上；把新的 key、value 写进缓存则搭在 RoPE 上，key 正是它刚算出来的。
#
# 标出的是新写法。也请看看少了什么：`b.delta`、`b.up`、`b.k_rope` 都不再写出。
# %%
show_stage(11)
# %% [markdown] lang="en"
# ## 11 → 9: pack Q, K and V
#
# Three products read the same input. Put their weights under one another once, when the model is loaded, and one kernel
# makes all three.
#
# **Predict:** two launches fewer. How many tensors fewer?
# %% [markdown] lang="zh"
# ## 11 → 9：打包 Q、K、V
#
# 三次矩阵乘读的是同一个输入。加载模型时把三份权重上下叠好，一个 kernel 就能算出三者。
#
# **先猜**：启动少了两次。张量少了几个？
# %%
show_stage(9)
# %% [markdown] lang="en"
# None: q, k and v are written as before. What is saved is two launches and reading the input twice more. Fewer kernels
# is not the same as fewer intermediates.
#
# With grouped-query attention q is wider than k and v. Cutting the packed result into equal thirds is a bug that has
# shipped (vllm#13686).
#
# ## 9 → 7: the four classic fusions
#
# * **residual add + RMSNorm** in one kernel;
# * **Q, K, V packed** (done);
# * **RoPE and the cache write in attention's prologue**: q is rotated where it is used;
# * **gate, up and SiLU·mul in one pass**.
#
# One thing moves *back*: `o` and `down` are plain products again, since the add can ride only once and now belongs to
# the norm behind it. The add at the end of a layer therefore joins the *next* layer's norm. Layer 0 has none to join,
# hence `if first`.
# %% [markdown] lang="zh"
# 一个也没少：q、k、v 照样写出。省下的是两次启动，以及重复读两遍输入。kernel 变少，不等于中间张量变少。
#
# 用 grouped-query attention 时，q 比 k、v 宽。把打包的结果平均切成三份，是一个真实发布过的 bug（vllm#13686）。
#
# ## 9 → 7：四种经典融合
#
# * **残差加法与 RMSNorm** 合成一个 kernel；
# * **Q、K、V 打包**（上一步已经做了）；
# * **RoPE 和写缓存并入注意力的前奏**（prologue）：q 在用到它的地方才旋转；
# * **gate、up 和 SiLU·mul 一趟做完**。
#
# 也有一处**退了回去**：`o` 和 `down` 又成了普通的矩阵乘。一次加法只能搭一趟车，现在它归后面的
# norm。所以一层末尾的加法要并入**下一层**的 norm；第 0 层前面没有加法，这就是 `if first` 的由来。
# %%
show_stage(7)
# %% [markdown] lang="en"
# ## 7 → 5: norms become prologues
#
# A product can normalise its input row itself, before it starts. On a GPU every block of that kernel then repeats the
# norm. At batch 1 this is one short row, already in the cache, so repeating it is cheaper than a launch. With many rows
# it stops being cheap. The adds return to `o` and `down`.
# %% [markdown] lang="zh"
# ## 7 → 5：norm 变成前奏
#
# 矩阵乘可以在开工之前自己把输入行归一化。在 GPU 上，这个 kernel 的每个 block 都要重做一遍 norm。batch 为 1
# 时，只有短短一行，而且已在缓存里，重做比多启动一次便宜。行数一多，就不再划算。两次加法又回到 `o` 和 `down` 上。
# %%
show_stage(5)
# %% [markdown] lang="en"
# ## 5 → 4: as far as it goes
#
# Four kernels, one for each place where *every* output needs *every* input: x → q, k, v; attention → o; x → gate, up;
# activation → down. Between two of them all parts of the device must have finished. A kernel boundary is the plain way
# to get that.
#
# On SoftGPU, one thread of execution, attention + `o` needs nothing special. On a GPU it does: the heads are computed
# by different blocks, whose shares of `o` must be added up (atomics, and the order of the sum is no longer fixed), or
# each block computes a head again. That makes stage 5 a good place to stop on a GPU.
# %% [markdown] lang="zh"
# ## 5 → 4：走到尽头
#
# 四个 kernel，各对应一处“**每个**输出都要用到**全部**输入”的地方：x → q、k、v；注意力 → o；x → gate、up；激活 →
# down。两处之间，设备的各个部分必须都已算完，而 kernel 的边界正是最简单的同步办法。
#
# SoftGPU 只有一个执行线程，注意力与 `o` 合并毫不费力。GPU 上却不然：各个 head 由不同的 block 计算，它们对 `o`
# 的贡献要么用原子加累起来（求和的次序从此不固定），要么每个 block 把 head 重算一遍。所以在 GPU
# 上，停在上一级往往更合适。
# %%
show_stage(4)
# %% [markdown] lang="en"
# ## The ledger
#
# The same path as a picture. Step through the stages and watch kernels merge.
#
# **Predict:** between which stages does the number of kernels fall while the number of tensors stays?
# %% [markdown] lang="zh"
# ## 融合账本
#
# 把同一条路画成图。逐级切换，看 kernel 怎样合并。
#
# **先猜**：在哪几级之间，kernel 变少而张量的个数不变？
# %%
ledger_widget()
# %% [markdown] lang="en"
# ## Did the outputs change?
#
# A fused kernel that is fast and wrong is worthless. Run the same prompt through all six stages and through the plain
# PyTorch decoder, and compare the logits of the next token.
#
# **Predict:** will the stages agree to the last bit? Will PyTorch?
# %% [markdown] lang="zh"
# ## 输出变了吗？
#
# 又快又错的融合 kernel 一文不值。让同一段 prompt 走一遍六个级别，再走一遍纯 PyTorch 的 decoder，比较下一个 token 的
# logits。
#
# **先猜**：六个级别会逐位相同吗？PyTorch 呢？
# %%
prompt = bard.tokenizer.encode("ROMEO.\nBut soft, what light")
models = {stage: bard.model(stage, max_rows=CONTEXT, blocks=16) for stage in LAYERS}


def next_logits(model):
    """Prefill all of the prompt but its last token, then one decode step: the logits (vocab,) after the prompt."""
    sequence = Sequence("romeo")
    model.prefill(sequence, prompt[:-1])
    return model.decode([sequence], prompt[-1:])[0]


logits = {stage: next_logits(model) for stage, model in models.items()}
textbook = bard.textbook()(torch.tensor([prompt]))[0, -1]

rows = []
for name, values in [*logits.items(), ("PyTorch", textbook)]:
    difference = (values - logits[15]).abs().max().item()
    letter = bard.tokenizer.decode([int(values.argmax())])
    rows.append((str(name), f"{difference:.1e}", str(torch.equal(values, logits[15])), repr(letter)))
print(table(("stage", "largest difference from 15", "bit-equal", "likeliest next"), rows))
# %%
sampling = Sampling(temperature=0.8, seed=13)
texts = {stage: bard.tokenizer.decode(generate(models[stage], [prompt], 60, sampling)[0]) for stage in (15, 4)}
same = texts[15] == texts[4]
print("ROMEO.\nBut soft, what light" + texts[4])
say(
    f"\n60 tokens, sampled with one seed, at 15 and at 4 kernels a layer: {'same text' if same else 'texts differ'}.",
    f"\n以同一个随机种子采样 60 个 token，每层 15 个与 4 个 kernel 得到的文本{'完全相同' if same else '不同'}。",
)
# %% [markdown] lang="en"
# The stages agree bit for bit, because SoftGPU's fused kernels do each row's arithmetic in the same order. PyTorch sums
# in another order and differs by rounding.
#
# Do **not** expect bit-equality from fusion on a GPU. There a fused kernel may sum in another order, and in bf16 it
# even skips a rounding: a value that stays in a register is never rounded to 16 bits. So compare with a tolerance taken
# from the number format, look at the likeliest token, and keep a comparison in float32 or float64 for the hard cases.
#
# ## What does it save in time?
#
# **Predict:** from 15 to 4 kernels, launches fall to about a quarter. Does the launching time fall to a quarter as
# well? And the kernels' time?
# %% [markdown] lang="zh"
# 各级逐位相同，因为 SoftGPU 的融合 kernel 对每一行都按同样的次序计算。PyTorch 求和的次序不同，差别只是舍入。
#
# 在 GPU 上，**不要**指望融合之后逐位相同。那里的融合 kernel 可能换了求和次序；用 bf16
# 时还会少一次舍入：留在寄存器里的值从不舍入到 16 位。所以比较时要按数值格式定容差，看最可能的 token，难判断的情形再用
# float32 或 float64 比一遍。
#
# ## 省了多少时间？
#
# **先猜**：从 15 个到 4 个 kernel，启动次数降到大约四分之一。启动的时间也降到四分之一吗？kernel 的时间呢？
# %%
steps = {stage: eager_step(model, running_batch(model, rows=1, context=CONTEXT)) for stage, model in models.items()}
seconds = 0 if quiet else 3  # on a busy machine, go on for a while: the quietest repeat counts
measured = measure_steps(device, steps, repeats=40, recorded=20, seconds=seconds)

figure, axes = plt.subplots(figsize=(7, 2.8), dpi=100)
places = np.arange(len(measured))
found = measured.values()
axes.bar(places - 0.27, [m.host_us for m in found], 0.26, color="#0072B2", label="CPU: launching")
axes.bar(places, [m.device_busy_us for m in found], 0.26, color="#E69F00", label="GPU: kernels")
axes.bar(places + 0.27, [m.step_us for m in found], 0.26, color="#595959", label="the step")
axes.set_xticks(places, [f"{stage}\n{m.launches} launches" for stage, m in measured.items()], fontsize=9)
axes.set_ylabel("µs, measured")
axes.set_xlabel("kernels a layer")
axes.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()
most, least = measured[15], measured[4]
say(
    f"Measured, 15 → 4 kernels a layer: launches {most.launches} → {least.launches} "
    f"({least.launches / most.launches:.0%}), launching time {least.host_us / most.host_us:.0%}, "
    f"kernel time {least.device_busy_us / most.device_busy_us:.0%}, step {most.step_us / least.step_us:.2f}× as fast.",
    f"实测，每层 15 → 4 个 kernel：启动 {most.launches} → {least.launches} 次"
    f"（{least.launches / most.launches:.0%}），启动时间为原来的 {least.host_us / most.host_us:.0%}，"
    f"kernel 时间为 {least.device_busy_us / most.device_busy_us:.0%}，一步快到 {most.step_us / least.step_us:.2f} 倍。",
)
if not quiet:
    say(
        "The machine is contended: a kernel that is interrupted counts as a long one. Trust the launches and the order "
        "of magnitude, not the third digit.",
        "机器正忙：kernel 若中途被打断，会显得很长。启动次数和数量级可信，细小的差别不可信。",
    )
# %% [markdown] lang="en"
# A launch of a fused kernel costs more than a launch of a plain one: it has more arguments to check and pack. So the
# launching time falls by less than the number of launches.
#
# For comparison, the *modelled* step of SmolLM2-360M on an H100. The last column is the same stage replayed as one
# graph (lesson 3).
# %% [markdown] lang="zh"
# 启动一个融合 kernel 比启动一个普通的贵：要检查、打包的参数更多。所以启动时间降得没有启动次数那么多。
#
# 作为对照，下面是 H100 上 SmolLM2-360M 一步的**模型推算**。最后一列是同一级别用一张 graph 回放（第 3 课）。
# %%
rows = [
    (
        str(row["stage"]),
        str(row["kernels_per_step"]),
        f"{row['step_ms']:.2f}",
        f"{row['utilization']:.0%}",
        f"{row['graph_step_ms']:.2f}",
    )
    for row in stage_rows(PRESETS["smollm2-360m-h100"])
]
print(table(("kernels a layer", "launches", "step, ms", "GPU busy", "as one graph, ms"), rows, left=0))
# %% [markdown] lang="en"
# Look at the last column. A graph removes the CPU's launches at every stage, and still fusion makes it faster: each
# kernel has a start and an end on the device, 1.3 to 3 µs of boundary on today's GPUs, and a graph does not remove
# those. Only fewer kernels do.
#
# ## What fusion does not save at batch 1
#
# "Intermediates stay in registers and need not travel to memory and back." True. Now weigh it. Take a large model,
# Llama-3-8B in bf16, and add up all bytes that a layer moves.
#
# **Predict:** from 15 to 4 kernels a layer, by what share do the bytes fall at batch 1? 30 %? 3 %? Less?
# %% [markdown] lang="zh"
# 看最后一列。不论哪一级，graph 都去掉了 CPU 的启动，可是融合仍然让它更快：每个 kernel 在设备上有头有尾，在今天的 GPU
# 上，一个边界要 1.3 到 3 µs，graph 去不掉它。只有减少 kernel 才行。
#
# ## batch 为 1 时，融合省不了什么
#
# “中间值留在寄存器里，不必往返显存。”这话没错。现在来称一称它的分量。取一个大模型，bf16 的
# Llama-3-8B，把一层搬运的字节全加起来。
#
# **先猜**：从每层 15 个 kernel 到 4 个，batch 为 1 时字节数减少多少？30%？3%？还是更少？
# %%
llama = replace(PRESETS["llama-3-8b-h200"], context=1024)


def layer_bytes(stage, work):
    """Bytes of one layer by kind: weights, cached keys and values, activations."""
    kernels = step_kernels(llama.shape, stage, work, llama.dtypes, ("layers",))
    kinds = ("weight_bytes", "cache_bytes", "activation_bytes")
    return [sum(getattr(kernel, kind) for kernel in kernels) / llama.shape.layers for kind in kinds]


cases = {f"decode, batch {batch}": Workload.decode(batch, llama.context) for batch in (1, 16, 256)}
cases["prefill, 2048 tokens"] = Workload.prefill(2048)
rows = []
for name, work in cases.items():
    unfused, fused = layer_bytes(15, work), layer_bytes(4, work)
    saved = sum(unfused) - sum(fused)
    rows.append((name, *(f"{size / 1e6:,.1f}" for size in (*unfused, saved)), f"{saved / sum(unfused):.2%}"))
print(table(("one layer, MB", "weights", "KV read", "activations", "fusion saves", "of all bytes"), rows))
first, *_, last = stage_rows(llama)
say(
    f"\nComputed: Llama-3-8B, bf16, context {llama.context}. Modelled on an H200 at batch 1, a token takes "
    f"{first['step_ms']:.2f} ms at {first['stage']} kernels a layer and {last['step_ms']:.2f} ms at {last['stage']}.",
    f"\n由形状算出：Llama-3-8B，bf16，context {llama.context}。按模型推算，H200 上 batch 为 1 时，一个 token 在每层 "
    f"{first['stage']} 个 kernel 时要 {first['step_ms']:.2f} ms，在 {last['stage']} 个时要 {last['step_ms']:.2f} ms。",
)


# %% [markdown] lang="en"
# At batch 1 nearly all bytes are weights, which every stage must read. What fusion saves then is **launches and kernel
# boundaries**, not memory traffic. On a model of this size the GPU is the larger term even at batch 1, so what is left
# is the boundaries alone.
#
# The traffic argument is right elsewhere:
#
# * many rows, above all prefill: there activations are much of the bytes (though arithmetic bounds such a step);
# * chains of element-wise operations with no weights, such as the dozens that the textbook decoder runs;
# * attention that never writes its score matrix;
# * quantised weights on a CPU: unpacking and multiplying in one pass, instead of writing the unpacked weights (lesson
#   7).
#
# ## Write one yourself
#
# Your turn: the residual add and the RMSNorm behind it, in one kernel. `@device.kernel` compiles a Python function; the
# annotations say what each argument is, and a kernel returns nothing: it writes into its out-parameters.
#
# **Predict:** the sum `residual + delta` is needed twice, by the norm and by the next layer. Which of its trips through
# memory can the fused kernel save?
# %% [markdown] lang="zh"
# batch 为 1 时，搬运的字节几乎全是权重，哪一级都得读。这时融合省下的是**启动和 kernel
# 边界**，不是显存流量。模型这么大时，batch 为 1 也是 GPU 那一项更大，能省的就只剩边界了。
#
# 流量这个理由在别处成立：
#
# * 行数多的时候，尤其是 prefill：激活值占了字节的一大块（不过这样的一步受算力限制）；
# * 一长串没有权重的逐元素操作，教科书 decoder 里就有几十个；
# * 从不写出分数矩阵的注意力；
# * CPU 上的量化权重：边解包边相乘，一趟做完，不必先写出解包后的权重（第 7 课）。
#
# ## 自己写一个
#
# 轮到你了：把残差加法和它后面的 RMSNorm 写成一个 kernel。`@device.kernel` 编译一个 Python
# 函数；注解说明每个参数是什么。kernel 没有返回值，结果写进输出参数。
#
# **先猜**：`residual + delta` 这个和要用两次：norm 要用，下一层也要用。融合之后，它往返显存的哪一趟可以省掉？
# %%
@device.kernel
def my_add_rms_norm(residual: F32[2], delta: F32[2], weight: F32[1], eps: float, out_residual: F32[2], out: F32[2]):
    for row in range(residual.shape[0]):
        squares = np.float32(0)
        for i in range(residual.shape[1]):
            total = residual[row, i] + delta[row, i]
            out_residual[row, i] = total  # the next layer needs it
            squares += total * total  # and the norm takes it from the register
        inverse = np.float32(1) / np.sqrt(squares / np.float32(residual.shape[1]) + np.float32(eps))
        for i in range(residual.shape[1]):
            out[row, i] = out_residual[row, i] * inverse * weight[i]


hidden, eps = bard.config.hidden, bard.config.norm_eps
torch.manual_seed(13)
residual, delta = device.tensor(torch.randn(1, hidden)), device.tensor(torch.randn(1, hidden))
weight = device.tensor(torch.randn(hidden))
summed, normed = device.empty((1, hidden)), device.empty((1, hidden))

my_add_rms_norm(residual, delta, weight, eps, summed, normed)  # asynchronous: it returns before the kernel has run
device.synchronize()
print(normed[0, :4])


# %% [markdown] lang="en"
# It still writes the sum, because somebody needs it. It saves *reading* it back for the squares, and one launch.
#
# Now check it against plain torch. A check that has never failed proves little, so here is also a wrong kernel with a
# mistake of a kind that has shipped (nano-vllm#170): it puts the *normalised* row into the residual.
# %% [markdown] lang="zh"
# 这个和照样要写出，因为后面有人要用。省下的是为求平方而**再读**它一遍，以及一次启动。
#
# 现在拿它与纯 torch 对照。从没报过错的检查说明不了什么，所以这里再放一个写错的
# kernel，犯的是一类真实发布过的错误（nano-vllm#170）：把**归一化之后**的行写进了残差。
# %%
@device.kernel
def wrong_add_rms_norm(residual: F32[2], delta: F32[2], weight: F32[1], eps: float, out_residual: F32[2], out: F32[2]):
    for row in range(residual.shape[0]):
        squares = np.float32(0)
        for i in range(residual.shape[1]):
            out_residual[row, i] = residual[row, i] + delta[row, i]
            squares += out_residual[row, i] * out_residual[row, i]
        inverse = np.float32(1) / np.sqrt(squares / np.float32(residual.shape[1]) + np.float32(eps))
        for i in range(residual.shape[1]):
            out_residual[row, i] = out_residual[row, i] * inverse  # the mistake
            out[row, i] = out_residual[row, i] * weight[i]


def check(launch):
    """Compare a fused kernel with the reference: the sum, the norm, and that the inputs are as they were."""
    got_sum, got_norm = device.empty((1, hidden)), device.empty((1, hidden))
    before = residual.clone(), delta.clone()
    launch(residual, delta, weight, eps, got_sum, got_norm)
    device.synchronize()
    want_sum, want_norm = torch.empty(1, hidden), torch.empty(1, hidden)
    reference.add_rms_norm(residual, delta, weight, eps, want_sum, want_norm)
    faults = []
    if not torch.allclose(got_sum, want_sum, rtol=1e-5, atol=1e-6):
        faults.append("out_residual")
    if not torch.allclose(got_norm, want_norm, rtol=1e-5, atol=1e-6):
        faults.append("out")
    if not (torch.equal(residual, before[0]) and torch.equal(delta, before[1])):
        faults.append("inputs")
    return faults


for launch in (my_add_rms_norm, wrong_add_rms_norm):
    print(f"{launch.__name__:<20}", "correct" if not (faults := check(launch)) else f"WRONG: {', '.join(faults)}")
# %% [markdown] lang="en"
# The wrong kernel's `out` is right. Only the residual is spoilt, which the *next* layer reads. A check of `out` alone
# would have passed it.
#
# Last, the time: your kernel against `add` followed by `rms_norm`, as often as bard's step needs the pair.
#
# **Predict:** half the launches. Half the time?
# %% [markdown] lang="zh"
# 写错的 kernel，`out` 竟是对的。坏掉的只有残差，而读它的是**下一层**。只检查 `out` 的话，就让它混过去了。
#
# 最后看时间：你的 kernel，对比先 `add` 再 `rms_norm`，次数与 bard 一步所需的相同。
#
# **先猜**：启动少了一半，时间也少一半吗？
# %%
pairs = 2 * bard.config.layers
k = device.kernels


def two_kernels():
    for _ in range(pairs):
        k.add(residual, delta, summed)
        k.rms_norm(summed, weight, eps, normed)


def one_kernel():
    for _ in range(pairs):
        my_add_rms_norm(residual, delta, weight, eps, summed, normed)


timed = measure_steps(device, {"add, rms_norm": two_kernels, "yours": one_kernel}, repeats=30, recorded=10)
rows = [
    (name, str(m.launches), f"{m.host_us:,.0f}", f"{m.device_busy_us:,.0f}", f"{m.step_us:,.0f}")
    for name, m in timed.items()
]
print(table(("measured", "launches", "launching, µs", "kernels, µs", "all, µs"), rows))
two, one = timed["add, rms_norm"], timed["yours"]
say(
    f"\n{two.step_us / one.step_us:.2f}× as fast with {one.launches / two.launches:.0%} of the launches. The kernels "
    f"themselves are short: launching takes {one.host_us / max(one.device_busy_us, 0.1):,.0f} times as long.",
    f"\n启动次数为原来的 {one.launches / two.launches:.0%}，快到 {two.step_us / one.step_us:.2f} 倍。"
    f"kernel 本身很短：启动所花的时间是它的 {one.host_us / max(one.device_busy_us, 0.1):,.0f} 倍。",
)
# %% [markdown] lang="en"
# Your kernel has more arguments than each of the two, so its launch costs a little more. And it is compiled with bounds
# checks, so that a mistake is reported and does not crash Python; the built-in kernels are compiled without.
#
# Try it: break `my_add_rms_norm` on purpose (forget `eps`, take the mean over the wrong length, read one element past
# the end) and see what `check` and `synchronize` say.
#
# ## Recap
#
# * From 15 to 4 kernels a layer each step has its own reason: epilogue, packing, prologue, one pass.
# * Four is the number of all-to-all dependencies in a Llama layer. An add can ride only once.
# * At batch 1 fusion saves launches and kernel boundaries, and hardly any bytes. With many rows it saves bytes too.
# * A graph removes launches but no boundaries: fusion helps under a graph as well.
# * Check all outputs and the inputs, with a check that you have seen fail.
#
# **Exercise:** Exercise 2, *fuse RMSNorm*, in `exercises/`: fuse the add and the norm in the textbook decoder, and
# count the intermediates that vanish. Next is lesson 3: what is left of the launches becomes *one* call.
# %% [markdown] lang="zh"
# 你的 kernel 参数比那两个都多，所以单次启动稍贵一点。它编译时还带着越界检查，出错会报告出来，不会弄崩 Python；内置的
# kernel 不带。
#
# 试一试：故意弄坏 `my_add_rms_norm`（漏掉 `eps`、除错了长度、多读一个元素），看 `check` 和 `synchronize` 怎么说。
#
# ## 小结
#
# * 从每层 15 个 kernel 到 4 个，每一步各有理由：尾声、打包、前奏、一趟做完。
# * 四，是 Llama 一层里“每个输出都要用到全部输入”之处的个数。一次加法只能搭一趟车。
# * batch 为 1 时，融合省的是启动和 kernel 边界，字节几乎不省。行数多时，字节也省。
# * graph 去掉启动，去不掉边界：有了 graph，融合照样有用。
# * 所有输出和输入都要检查，而且要亲眼见过检查报错。
#
# **练习**：练习 2（融合 RMSNorm），在 `exercises/` 里：把教科书 decoder 的加法和 norm
# 融合起来，数一数少了几个中间张量。接下来是第 3 课：剩下的启动，合成**一次**调用。
