# ---
# title_en: In production
# title_zh: 生产环境
# minutes: 20
# ---
# %% [markdown] lang="en"
# # In production
#
# *About 20 minutes. 中文版：[生产环境](../zh/07_in_production.ipynb).*
#
# You know the techniques. Now you meet them in engines that other people wrote, with other names and more switches.
#
# At the end of this lesson you can
#
# * say for each technique what it removes and what you owe for it,
# * find the same ideas in vLLM, SGLang, TensorRT-LLM, torch.compile, llama.cpp and picoLM,
# * pick the switch that splits the suspects when an output is wrong,
# * read a trace file and a vLLM log of your own.
#
# What is said about engines here was **read**, in their sources, their documentation and their issue trackers. It
# was not measured by this course, unless it says so, and engines change: look it up in your version.
# %% [markdown] lang="zh"
# # 生产环境
#
# *约 20 分钟。English: [In production](../en/07_in_production.ipynb).*
#
# 技术你已经掌握了。这一课去看别人写的引擎：同样的想法，换了名字，多了开关。
#
# 学完这一课，你能够：
#
# * 说出每项技术去掉了什么，又为此欠下了什么；
# * 在 vLLM、SGLang、TensorRT-LLM、torch.compile、llama.cpp 和 picoLM 里认出同样的想法；
# * 输出出错时，挑出最能区分嫌疑对象的那个开关；
# * 读懂自己的 trace 文件和自己的 vLLM 日志。
#
# 这一课关于引擎的说法都是**读来的**：来自它们的源码、文档和 issue，除非注明，都不是本课程实测的。引擎
# 一直在变，请以你手里的版本为准。
# %%
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from s13lib.buckets import best_layout, export, preset, read_traffic, row_cost
from s13lib.device import best_device
from s13lib.graphs import BucketedRunner, CacheAudit, GraphRunner
from s13lib.kernels.quantised import FORMATS, quantise
from s13lib.model import Sequence, TextbookDecoder
from s13lib.model.checkpoints import Checkpoint, load_checkpoint
from s13lib.profiling import TraceReport, read_trace, telling_svg
from s13lib.profiling.compare import TraceChange
from s13lib.profiling.compiled import compilations, cpp_compiler, textbook_step
from s13lib.profiling.measure import measure_steps
from s13lib.profiling.recorded import recorded_names, recorded_trace
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch
from s13lib.progress import elapsed
from s13lib.simulator import chrome_trace
from s13lib.widgets import language, pick, say, show_svg

device = best_device()
print(device.banner())
bard = load_checkpoint("bard")
folder = Path(tempfile.mkdtemp(prefix="s13-"))  # for the files that this lesson writes
# %% [markdown] lang="en"
# ## What each technique removes, and what you owe for it
#
# **Predict:** cover the last column and fill it in from memory.
#
# | technique | removes | constraint that it brings |
# |---|---|---|
# | **Fusion** | kernels: their launches, boundaries, tensors in between | a kernel to write and test for each fusion |
# | **CUDA Graph** | the CPU's work for each kernel | fixed shapes and addresses; no Python in a replay |
# | **Buckets** | the need of a graph for each batch size | padding rows, memory for each size, eager above |
# | **Scratch block**, slot −1 | the harm that a padding row does | a block that nobody may own, and a check |
# | **One shared pool** | a private pool for each graph | capture largest first; replays never overlap |
# | **Batching** | launches a token | latency: a token waits for its batch |
#
# And what do they leave? Fusion leaves the weights that are read. A graph leaves every kernel, and its boundary on
# the GPU. A scratch block leaves the padding row's computation.
#
# The first two lines remove different things. Here is what they do on this device, to one step.
# %% [markdown] lang="zh"
# ## 每项技术去掉什么，又欠下什么
#
# **先猜**：盖住最后一列，凭记忆填一遍。
#
# | 技术 | 去掉的 | 带来的约束 |
# |---|---|---|
# | **算子融合** | kernel：连同启动、边界和中间张量 | 每种融合都要写一个 kernel 并测试 |
# | **CUDA Graph** | CPU 为每个 kernel 做的工作 | shape 和地址固定；回放时不跑 Python |
# | **分桶** | “每个 batch 大小一张 graph”的需要 | 补齐行；每个尺寸都占内存；超过则 eager |
# | **临时 block**、slot −1 | 补齐行造成的伤害 | 一个谁也不能占用的 block，外加检查 |
# | **共享内存池** | 每张 graph 各自的内存池 | 从大到小捕获；回放不能重叠 |
# | **批处理** | 每个 token 分摊的启动 | 延迟：token 要等它的那一批 |
#
# 它们又留下了什么？融合留下要读的权重；graph 留下每一个 kernel 和它在 GPU 上的边界；临时 block 留下补齐行的计算。
#
# 前两行去掉的东西不同。看看它们在这台设备上对同一步各做了什么。
# %%
CONTEXT = 64
steps = {}
for stage in (15, 4):
    model = bard.model(stage, device, max_rows=8, blocks=blocks_needed(1, CONTEXT))
    batch = running_batch(model, 1, CONTEXT)
    runner = GraphRunner(model, 1)
    runner.run(batch)
    steps[stage, "eager"] = eager_step(model, batch)
    steps[stage, "graph"] = runner.graph.replay
measured = measure_steps(device, steps, repeats=15, recorded=5)
slowest = measured[15, "eager"].step_us

say(
    "kernels a layer, path   submissions  kernels  host µs  step µs  speed-up   (measured)",
    "每层 kernel 数，方式     提交次数    kernel   CPU µs  每步 µs  加速比   （实测）",
)
for (stage, path), step in measured.items():
    print(
        f"{stage:>15}, {path:<6} {step.launches:>11} {step.kernels:>8} {step.host_us:>8,.0f} {step.step_us:>8,.0f}"
        f" {slowest / step.step_us:>8.1f}×"
    )
# %% [markdown] lang="en"
# Read it by columns. Fusion lowers *submissions* and *kernels*. A graph lowers *submissions* alone. The host's time
# follows the submissions; the step follows the longer of host and device.
#
# ## The engines, side by side
#
# All of this was read; the sources stand below. First, where the speed comes from.
#
# | engine | fusion | graphs |
# |---|---|---|
# | **vLLM** | hand-written kernels, and torch.compile | full for decode sizes, piecewise for prefill (default) |
# | **SGLang** | hand-written kernels | one for each captured decode size |
# | **TensorRT-LLM** (PyTorch) | hand-written kernels | one for each captured batch size |
# | **torch.compile** | Inductor finds and writes them | `mode="reduce-overhead"`: one for each shape |
# | **llama.cpp** | hand-written: dequantise + dot in one pass | none on a CPU; its CUDA backend at batch 1 |
# | **picoLM** | hand-written: dequantise + dot in one pass | none: it runs on CPUs alone |
#
# Then, how padding is made harmless, and how to turn graphs off. vLLM, SGLang and TensorRT-LLM capture largest first
# from one shared pool, and run eager above the largest size.
#
# | engine | rows beyond the real ones | graphs off |
# |---|---|---|
# | **vLLM** | slot −1, which kernels skip; block tables at a null block | `enforce_eager=True` |
# | **SGLang** | slot 0 is kept for dummy writes; length 1 | `--disable-cuda-graph` |
# | **TensorRT-LLM** (PyTorch) | a reserved dummy request with its own block | `cuda_graph_config: null` |
# | **torch.compile** | no padding: a new shape is a new graph | `mode="default"` |
# | **llama.cpp** | no padding | `GGML_CUDA_DISABLE_GRAPHS=1` |
# | **picoLM** | no padding | nothing to turn off |
#
# Two sentences that you will still find in older texts have a date:
#
# * *“Prefill uses no graphs.”* Full graphs, no: prompts have no short list of lengths. But vLLM replays prefill in
#   pieces; attention runs eager between them.
# * *“TensorRT-LLM compiles the whole model into one fixed engine, and another shape means another build.”* That was
#   its way with TensorRT engines. Its PyTorch backend captures per batch size, like the others.
#
# What to expect from graphs in a whole engine? Public reports go from a few per cent to about twice the speed. Small
# models, few requests and fast GPUs gain most. Your trace knows better than any report; we come to it.
#
# Sources: vLLM `vllm/config/compilation.py` and *design/debug_vllm_compile*; vllm#43810; SGLang
# `sglang/srt/server_args.py`; TensorRT-LLM `tensorrt_llm/llmapi/llm_args.py`; PyTorch's pages *torch.compile* and
# *CUDAGraph Trees*; llama.cpp PR #6766 and #7302; the README of picoLM. Two small engines are worth reading whole,
# and do the same: nano-vllm (slots filled with −1) and mini-sglang (a dummy request on one extra page).
# %% [markdown] lang="zh"
# 按列来读：融合让*提交次数*和 *kernel 数*都变少；graph 只让*提交次数*变少。CPU 的时间跟着提交次数走，一步的时间则由
# CPU 和设备中较长的那个决定。
#
# ## 各个引擎对照
#
# 以下全部是读来的，出处列在后面。先看速度从哪里来。
#
# | 引擎 | 融合 | graph |
# |---|---|---|
# | **vLLM** | 手写 kernel，加上 torch.compile | 各 decode 尺寸用完整 graph；prefill 默认分段 |
# | **SGLang** | 手写 kernel | 每个捕获的 decode 尺寸一张 |
# | **TensorRT-LLM**（PyTorch 后端） | 手写 kernel | 每个捕获的 batch 大小一张 |
# | **torch.compile** | Inductor 自动找、自动写 | `mode="reduce-overhead"`：每种 shape 一张 |
# | **llama.cpp** | 手写：反量化 + 点积一趟做完 | CPU 上没有；CUDA 后端在 batch 为 1 时有 |
# | **picoLM** | 手写：反量化 + 点积一趟做完 | 没有：只跑 CPU |
#
# 再看怎样让补齐行无害，以及怎样关掉 graph。vLLM、SGLang 和 TensorRT-LLM 都从大到小捕获，共用一个内存池，
# 超过最大尺寸就走 eager。
#
# | 引擎 | 真实行以外的行 | 关掉 graph |
# |---|---|---|
# | **vLLM** | slot −1，kernel 会跳过；block table 指向空 block | `enforce_eager=True` |
# | **SGLang** | slot 0 专供占位行写入；长度为 1 | `--disable-cuda-graph` |
# | **TensorRT-LLM**（PyTorch 后端） | 保留的占位请求，有自己的 block | `cuda_graph_config: null` |
# | **torch.compile** | 不补齐：新的 shape 就是新的 graph | `mode="default"` |
# | **llama.cpp** | 不补齐 | `GGML_CUDA_DISABLE_GRAPHS=1` |
# | **picoLM** | 不补齐 | 没有可关的 |
#
# 有两句话在旧资料里还常见，但已经有了日期：
#
# * *“prefill 完全不用 graph。”* 完整的 graph 确实不用，因为提示词长度列不成一张短表。但 vLLM 会分段回放 prefill，
#   段与段之间的注意力仍是 eager。
# * *“TensorRT-LLM 把整个模型编译成一张固定的图，改 shape 就要重新构建。”* 这说的是 TensorRT engine 的路线。它的
#   PyTorch 后端和别家一样，按 batch 大小捕获。
#
# 在整个引擎里，graph 能带来多少？公开的报告从百分之几到大约两倍都有；模型小、请求少、GPU 快的时候收益最大。你自己的
# trace 比任何报告都可靠，后面会讲。
#
# 出处：vLLM 的 `vllm/config/compilation.py` 和文档 *design/debug_vllm_compile*；vllm#43810；SGLang 的
# `sglang/srt/server_args.py`；TensorRT-LLM 的 `tensorrt_llm/llmapi/llm_args.py`；PyTorch 文档 *torch.compile* 和
# *CUDAGraph Trees*；llama.cpp PR #6766、#7302；picoLM 的 README。还有两个小引擎值得通读，做法相同：nano-vllm（slot
# 填 −1）和 mini-sglang（占位请求住在额外的一页上）。
# %% [markdown] lang="en"
# ## On a CPU: no launches, and fusion still pays
#
# llama.cpp on a CPU calls a function where a GPU needs a launch. So launches are not the reason to fuse there. The
# reason is memory. A decode step reads every weight once, and does next to nothing with it. So store weights in fewer
# bytes: in **blocks** of 32 small integers that share one float16 scale. The format q8_0 has 8 bits an integer, q4_0
# has 4. A weight is scale times integer.
#
# But a dot product wants floats. Way A unpacks the matrix into a float32 buffer, and then multiplies. Way B unpacks
# in registers, inside the dot product: one fused kernel. This library's kernels read llama.cpp's formats byte for byte.
#
# **Predict:** how many times more bytes does A move than B, and how many times longer does it take?
# %% [markdown] lang="zh"
# ## 在 CPU 上：没有启动，融合照样划算
#
# 在 CPU 上，GPU 需要一次启动的地方，llama.cpp 只是调用一个函数。所以那里融合不是为了省启动，而是为了内存。decode
# 的每一步都要把所有权重读一遍，每个权重却几乎不做什么计算。那就用更少的字节来存：每 32 个小整数为一个**块**，共用
# 一个 float16 的 scale。q8_0 的整数是 8 位，q4_0 是 4 位；权重 = scale × 整数。
#
# 可是点积要的是浮点数。做法 A 先把整个矩阵解包成 float32 缓冲区，再做乘法；做法 B 在点积内部、在寄存器里解包，
# 只用一个融合 kernel。本库的 kernel 读的就是 llama.cpp 的格式，一个字节都不差。
#
# **先猜**：A 搬的字节是 B 的几倍？时间又是几倍？
# %%
ROWS, COLUMNS = 2048, 4096
torch.manual_seed(0)
weight = torch.randn(ROWS, COLUMNS)
packed = {name: torch.from_numpy(quantise(weight.numpy(), name)) for name in FORMATS}
block = packed["q8_0"][0, :34]
print("q8_0:", block[:2].view(torch.float16).item(), "×", block[2:].view(torch.int8).tolist())

x = device.tensor(torch.randn(1, COLUMNS))
plain, q8_0, q4_0 = (device.tensor(each) for each in (weight, packed["q8_0"], packed["q4_0"]))
buffer, every_row = device.empty((ROWS, COLUMNS)), device.tensor(torch.arange(ROWS))
outs = {name: device.empty((1, ROWS)) for name in ("float32", "A", "B", "B4")}


def way_a():
    """Two kernels with a buffer in between: the embedding kernel, asked for every row, unpacks the matrix."""
    device.kernels.embedding_q8_0(every_row, q8_0, buffer)
    device.kernels.linear(x, buffer, outs["A"])


ways = {
    "float32": lambda: device.kernels.linear(x, plain, outs["float32"]),
    "A": way_a,
    "B": lambda: device.kernels.linear_q8_0(x, q8_0, outs["B"]),
    "B4": lambda: device.kernels.linear_q4_0(x, q4_0, outs["B4"]),
}
cpu = measure_steps(device, ways, repeats=10, recorded=1)
# %%
kinds = {
    "float32": (pick("float32", "float32"), plain.nbytes),
    "A": (pick("A: q8_0, buffer", "A：q8_0，缓冲区"), q8_0.nbytes + 2 * buffer.nbytes),  # written once, read once
    "B": (pick("B: q8_0, fused", "B：q8_0，融合"), q8_0.nbytes),
    "B4": (pick("B: q4_0, fused", "B：q4_0，融合"), q4_0.nbytes),
}
say(
    "MB moved    µs      GB/s    error   (counted, measured; error against float32)",
    " 搬的 MB    µs      GB/s     误差   （计数、实测；误差与 float32 相比）",
)
for key, (name, moved) in kinds.items():
    error = (outs[key] - outs["float32"]).std() / outs["float32"].std()
    print(f"{moved / 1e6:>8.1f} {cpu[key].step_us:>5,.0f} {moved / cpu[key].step_us / 1e3:>9.1f} {error:>8.1%}  {name}")
of_fp16 = q8_0.nbytes / (2 * weight.numel())
times = {key: cpu[key].step_us / cpu["B"].step_us for key in kinds}
say(
    f"A moves {kinds['A'][1] / kinds['B'][1]:.1f} times the bytes of B and takes {times['A']:.1f} times as long. "
    f"B is {times['float32']:.1f} times as fast as float32.\n"
    f"Against weights in 16 bits, B reads {of_fp16:.0%} of the bytes. That is the halved traffic of which one reads.",
    f"A 搬的字节是 B 的 {kinds['A'][1] / kinds['B'][1]:.1f} 倍，用时是 B 的 {times['A']:.1f} 倍。"
    f"B 的速度是 float32 的 {times['float32']:.1f} 倍。\n"
    f"与 16 位的权重相比，B 只读 {of_fp16:.0%} 的字节：常说的“内存流量减半”就是这个意思。",
)
assert torch.allclose(outs["A"], outs["B"], atol=1e-3 * outs["A"].std())
# %% [markdown] lang="en"
# q4_0 moves about half the bytes of q8_0. Is it twice as fast? Look at the third column. One core can read only so
# fast, and float32 shows about how fast. Where q8_0 comes near that, memory is its limit too. Where q4_0 stays behind,
# its limit is arithmetic: 4-bit integers must be taken apart first. Then a faster memory would not help it; more cores
# would.
#
# Now a whole model: the same fused stage 4 as before, one graph, with each weight matrix in q8_0. Two models. One has
# the layer sizes of SmolLM2-135M, random weights, and more bytes than a cache holds. The other is bard.
#
# **Predict:** of 128 bytes a block, 34 are left. How much of the step's time is left, for each of the two?
# %% [markdown] lang="zh"
# q4_0 搬的字节约是 q8_0 的一半，速度是两倍吗？看第三列。单个核心读内存的速度有上限，float32 那一行大致就是这个上限。
# q8_0 如果接近它，瓶颈就也是内存；q4_0 如果远远落后，瓶颈就是计算：4 位的整数要先拆开才能用。这时换更快的内存没有用，
# 多用几个核心才行。
#
# 再看整个模型：还是前面那个融合到 stage 4 的一步，一张 graph，只是每个权重矩阵都换成 q8_0。模型有两个：一个的层和
# SmolLM2-135M 一样大，权重是随机的，缓存装不下；另一个是 bard。
#
# **先猜**：每块 128 字节，现在只剩 34。两个模型每一步的时间各剩多少？
# %%
SIZES = {"hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64}  # SmolLM2-135M's
config = replace(bard.config, layers=16, vocab=16384, tied=True, **SIZES)
large = Checkpoint("large", config, TextbookDecoder(config).state_dict(), bard.tokenizer, None)

models, replays = {}, {}
for checkpoint in (large, bard):
    for form in ("f32", "q8_0"):
        model = checkpoint.model(4, device, form, max_rows=8, blocks=blocks_needed(1, CONTEXT))
        runner = GraphRunner(model, 1)
        runner.run(running_batch(model, 1, CONTEXT))
        models[checkpoint.name, form], replays[checkpoint.name, form] = model, runner.graph.replay
decoded = measure_steps(device, replays, repeats=15, recorded=1)

say(
    "model, weights  MB a token  µs a token   GB/s   (measured)",
    "模型，权重      每 token MB  每 token µs  GB/s  （实测）",
)
for (name, form), step in decoded.items():
    moved = models[name, form].weights.step_bytes
    print(f"{name:<6} {form:<7} {moved / 1e6:>11.1f} {step.step_us:>11,.0f} {moved / step.step_us / 1e3:>6.1f}")
gain = {name: decoded[name, "f32"].step_us / decoded[name, "q8_0"].step_us for name in ("large", "bard")}
say(
    f"q8_0 is {gain['large']:.1f} times as fast on the large model, {gain['bard']:.1f} times on bard.",
    f"大模型上 q8_0 的速度是 f32 的 {gain['large']:.1f} 倍，bard 上是 {gain['bard']:.1f} 倍。",
)
# %% [markdown] lang="en"
# bard gains little or nothing: its weights fit in the processor's cache, reading them was never the limit, and
# unpacking costs a little. Fewer bytes help where bytes are the bottleneck, just as fewer launches help where launches
# are. How SmolLM2 itself does here, and beside llama.cpp, was measured too: the project's page `docs/evidence.md` has
# the table.
#
# And what did the rounding cost? Feed both bards the same text, and compare what they expect next.
# %% [markdown] lang="zh"
# bard 几乎不会变快，甚至会慢一点：它的权重装得进处理器的缓存，读权重本来就不是瓶颈，解包却要花一点时间。字节是瓶颈的
# 地方，减字节才有用；正如启动是瓶颈的地方，减启动才有用。SmolLM2 本身在这里跑得怎样，和 llama.cpp 相比又怎样，也都
# 测过：见项目的 `docs/evidence.zh.md`。
#
# 那么，舍入的代价呢？给两个 bard 喂同一段文字，比一比它们各自预测的下一个字符。
# %%
text = "O, she doth teach the torches to burn bright!"
expected = {}
for form in ("f32", "q8_0"):
    model = bard.model(4, device, form, max_rows=8, blocks=4)
    reader = Sequence(form)
    expected[form] = torch.stack([model.prefill(reader, [token]) for token in bard.tokenizer.encode(text)])
error = (expected["q8_0"] - expected["f32"]).abs().max()
same = (expected["q8_0"].argmax(1) == expected["f32"].argmax(1)).sum()
say(
    f"Largest difference of a logit: {error:.2f}, where logits spread by {expected['f32'].std():.1f}. "
    f"The same likeliest character at {same} of {len(text)} places. (measured)",
    f"logit 的最大差值：{error:.2f}，而 logit 的标准差是 {expected['f32'].std():.1f}。"
    f"{len(text)} 处里有 {same} 处最可能的字符相同。（实测）",
)
# %% [markdown] lang="en"
# ## Which switch first?
#
# An output is wrong, sometimes. Suspects: a kernel, the padding, the graph. A good switch takes away *one* suspect.
#
# | what you see | first switch | what it tells |
# |---|---|---|
# | wrong at some batch sizes only | graphs off, at the same padded shape | still wrong: the graph is innocent |
# | still wrong then | capture the exact size | right: it is the padding |
# | wrong after new weights, or an input seems frozen | graphs off | right: the graph reads an old address |
# | wrong everywhere, a little | fusion off | right: a fused kernel, or only its rounding |
# | out of memory at start | fewer, smaller capture sizes | each graph pins memory |
# | slow at start | fewer capture sizes; compilation off | each size costs time |
# | slow at low concurrency | none: read a trace (below) | launch-bound, or not |
# | slow above some batch | a larger top capture size | steps above the top run eager |
#
# In vLLM `enforce_eager=True` is the first thing to try with a shape or memory bug, and it is a blunt switch: it
# turns off CUDA Graphs *and* torch.compile, and with the graphs the padding to captured sizes. If it helps, go on
# with the finer ones: `-cc.cudagraph_mode=NONE` turns off graphs alone, `-cc.mode=0` compilation alone (read: vLLM's
# page on debugging its compiler). For torch.compile, `backend="eager"` and then `backend="aot_eager"` bring back one
# part at a time (read: PyTorch's troubleshooting page).
#
# Try it. The runner below has a fault: its padding rows write into a live block. Three requests, captured size four.
#
# **Predict:** which of the four runs will be wrong?
# %% [markdown] lang="zh"
# ## 先动哪个开关？
#
# 输出有时候是错的。嫌疑有三个：某个 kernel、补齐、graph。好的开关一次只排除*一个*。
#
# | 现象 | 先动的开关 | 它告诉你什么 |
# |---|---|---|
# | 只在某些 batch 大小下出错 | 关掉 graph，补齐不变 | 还是错：不怪 graph |
# | 仍然出错 | 捕获正好的尺寸 | 对了：问题在补齐 |
# | 换权重后出错，或某个输入好像不变 | 关掉 graph | 对了：graph 还在读旧地址 |
# | 到处都差一点 | 关掉融合 | 对了：某个融合 kernel，或者只是舍入 |
# | 启动时内存不够 | 捕获得少一点、小一点 | 每张 graph 都常驻内存 |
# | 启动慢 | 少捕获几个尺寸；关掉编译 | 每个尺寸都要花时间 |
# | 并发低时慢 | 先别动：读 trace（见下文） | 是否受启动限制 |
# | batch 超过某个数就慢 | 捕获更大的尺寸 | 超过最大尺寸的步都是 eager |
#
# 在 vLLM 里排查 shape 或内存 bug，先试 `enforce_eager=True`。不过这个开关很粗：它同时关掉 CUDA Graph *和*
# torch.compile，补齐到捕获尺寸也随 graph 一起没了。如果有用，再换细一点的：`-cc.cudagraph_mode=NONE` 只关 graph，
# `-cc.mode=0` 只关编译（读自 vLLM 关于调试编译的文档）。对 torch.compile，先用 `backend="eager"`，再用
# `backend="aot_eager"`，一次恢复一部分（读自 PyTorch 的排错文档）。
#
# 动手试试。下面的 runner 有一个毛病：补齐行会写进正在使用的 block。三个请求，捕获尺寸是四。
#
# **先猜**：下面四次运行，哪几次会出错？
# %%
PROMPTS = ("ROMEO.", "JULIET.", "HAMLET.")


def serve(bucket: int, padding: str, enforce_eager: bool = False) -> tuple[int, int]:
    """Decode six tokens for three requests; return (steps with a wrong logit, alarms of the audit)."""
    served, alone = (bard.model(4, device, max_rows=8, blocks=16) for _ in range(2))
    audit = CacheAudit(served.cache, padding, strict=False)
    runner = BucketedRunner(served, [bucket], padding, enforce_eager=enforce_eager, audit=audit, progress=False)
    requests, twins = ([Sequence(prompt) for prompt in PROMPTS] for _ in range(2))
    tokens = [int(served.prefill(r, bard.tokenizer.encode(p)).argmax()) for r, p in zip(requests, PROMPTS, strict=True)]
    for twin, prompt in zip(twins, PROMPTS, strict=True):
        alone.prefill(twin, bard.tokenizer.encode(prompt))
    wrong = 0
    for _ in range(6):
        expected = alone.decode(twins, tokens)
        logits = runner.forward(served.next_batch(requests, tokens))
        wrong += not torch.equal(logits, expected)
        tokens = expected.argmax(1).tolist()
    return wrong, len(audit.violations)


runs = {
    pick("as served", "原样运行"): serve(4, "naive"),
    pick("graphs off, same padding", "关掉 graph，补齐不变"): serve(4, "naive", enforce_eager=True),
    pick("exact size, no padding rows", "尺寸正好，没有补齐行"): serve(3, "naive"),
    pick("padding rows in the scratch block", "补齐行写临时 block"): serve(4, "scratch"),
}
for name, (wrong, alarms) in runs.items():
    say(f"wrong steps: {wrong} of 6   alarms: {alarms}   {name}", f"出错的步：{wrong}/6   警报：{alarms}   {name}")
assert [wrong > 0 for wrong, _ in runs.values()] == [True, True, False, False]
# %% [markdown] lang="en"
# With graphs off it is still wrong, so the graph is innocent. Without padding rows it is right, so they are the
# culprits, and the audit, which knows who owns which block, says so at the first write.
#
# Mind the trap: an eager switch that also drops the padding (as in vLLM) makes this bug vanish, and you would blame
# the graph.
#
# ## Read your own trace
#
# `read_trace` reads what the PyTorch profiler writes (CUDA and ROCm), and what this library exports. A few
# recordings ship with the library; take the un-fused eager step.
#
# **Predict:** the device is busy for which share? Would a graph help?
# %% [markdown] lang="zh"
# 关掉 graph 还是错，所以 graph 是清白的。没有补齐行就对了，所以问题出在补齐行；审计知道每个 block 归谁，
# 第一次写入时就报了警。
#
# 小心一个陷阱：如果 eager 开关连补齐也一起关掉（vLLM 就是这样），这个 bug 会消失，你就会错怪 graph。
#
# ## 读自己的 trace
#
# `read_trace` 能读 PyTorch profiler 写的文件（CUDA 和 ROCm），也能读本库导出的文件。库里自带几份历史记录，
# 先看没有融合、逐个启动的那一步。
#
# **先猜**：设备忙碌的时间占多少？用 graph 会有帮助吗？
# %%
REASONS = {
    "launch": pick("the launch came late", "启动来晚了"),
    "pause": pick("the host paused", "CPU 停顿"),
    "boundary": pick("kernel boundary", "kernel 之间的边界"),
    "blocked": pick("waited for other work", "等别的工作"),
    "unknown": pick("not in the file", "文件里没有"),
}
HELPS = {
    "graph": pick("a graph", "graph"),
    "fusion": pick("fusion", "融合"),
    "host": pick("a quicker host between replays", "缩短两次回放之间的 CPU 时间"),
}
VERDICTS = {
    "launch-bound": pick("launch-bound", "受启动限制"),
    "device-bound": pick("device-bound", "受设备限制"),
    "mixed": pick("mixed: launches and kernels take turns", "混合：启动和 kernel 轮流成为瓶颈"),
    "not decidable": pick("cannot be told from this file", "这份文件不足以判断"),
}


def read_out(report: TraceReport) -> None:
    """The figures of a trace that matter here."""
    idle = report.idle_us_by_reason
    most = max(idle, key=idle.get)
    verdict = report.verdict
    would_help = pick(" and ", "、").join(HELPS[name] for name in verdict.would_help or ())
    say(
        f"{report.trace.label}: {report.device_kernels} kernels, {report.launch_calls} single launches, "
        f"{len(report.graphs)} graph launches.\n"
        f"Busy {report.busy_fraction:.0%}. {len(report.gaps)} gaps, {report.idle_us:,.0f} µs in all; "
        f"most of it because: {REASONS[most]}.\n"
        f"Verdict: {VERDICTS[verdict.name]}. What would help: {would_help or 'neither graph nor fusion'}.",
        f"{report.trace.label}：{report.device_kernels} 个 kernel，{report.launch_calls} 次单独启动，"
        f"{len(report.graphs)} 次 graph 启动。\n"
        f"设备忙碌 {report.busy_fraction:.0%}。空隙 {len(report.gaps)} 处，共 {report.idle_us:,.0f} µs，"
        f"主要原因：{REASONS[most]}。\n"
        f"判断：{VERDICTS[verdict.name]}。能帮上忙的：{would_help or 'graph 和融合都帮不上'}。",
    )


print(*recorded_names(), sep="\n")
before = TraceReport(recorded_trace("softgpu-bard-stage15-eager"))
read_out(before)
# %% [markdown] lang="en"
# A picture cannot hold every kernel. `telling_svg` picks the stretch that shows the verdict: the longest gap, or
# the first replay.
# %% [markdown] lang="zh"
# 一张图装不下所有 kernel。`telling_svg` 会挑出最能说明判断的一段：最长的空隙，或者第一次回放。
# %%
show_svg(telling_svg([before], language()))
# %% [markdown] lang="en"
# Now the whole round on this machine: record the fused step as a graph, export it, read it back, compare it with the
# recording. The exported file also opens at ui.perfetto.dev.
#
# **Predict:** which figures go down, and does any go up?
# %% [markdown] lang="zh"
# 现在在这台机器上走完整个流程：把融合后的一步作为 graph 录下来，导出，再读回来，与历史记录对比。导出的文件也能用
# ui.perfetto.dev 打开。
#
# **先猜**：哪些数字会变小？有没有变大的？
# %%
path = folder / "my-step.json"
path.write_text(chrome_trace(measured[4, "graph"].timeline), encoding="utf-8")
after = TraceReport(read_trace(path))
read_out(after)

CHANGES = {
    "device_kernels": pick("kernels", "kernel 数"),
    "launch_calls": pick("single launches", "单独启动"),
    "graph_launches": pick("graph launches", "graph 启动"),
    "device_busy_fraction": pick("busy share", "忙碌占比"),
    "gaps": pick("gaps", "空隙数"),
    "step_us": pick("step, µs", "每步 µs"),
}
figures = TraceChange(before, after).figures
print(pick("\nrecorded → measured here", "\n历史记录 → 本机实测"))
for key, name in CHANGES.items():
    old, new = figures[key]
    print(f"{old:>8.2f} → {new:>8.2f}  {name}" if "fraction" in key else f"{old:>8,.0f} → {new:>8,.0f}  {name}")
# %% [markdown] lang="en"
# Your turn. On a machine with a GPU, the profiler writes a trace in five lines:
#
# ```python
# from torch.profiler import ProfilerActivity, profile
# with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
#     model.generate(...)  # a few decode steps
# profiler.export_chrome_trace("trace.json.gz")
# ```
#
# vLLM and SGLang write such files too, when their profiler is switched on. Put the path below and run the cell. In a
# terminal, `s13 trace FILE --svg picture.svg` does the same.
# %% [markdown] lang="zh"
# 轮到你了。在有 GPU 的机器上，用 profiler 写一份 trace 只要几行：
#
# ```python
# from torch.profiler import ProfilerActivity, profile
# with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
#     model.generate(...)  # 几步 decode
# profiler.export_chrome_trace("trace.json.gz")
# ```
#
# vLLM 和 SGLang 打开 profiler 之后也会写这样的文件。把路径填在下面，再运行这一格。在终端里，`s13 trace FILE --svg
# picture.svg` 做的是同一件事。
# %%
YOUR_TRACE = None  # "trace.json.gz"

if YOUR_TRACE is None:
    say("No trace given: this cell has nothing to do.", "没有填路径，这一格什么也不做。")
else:
    yours = TraceReport(read_trace(YOUR_TRACE))
    read_out(yours)
    show_svg(telling_svg([yours], language()))
# %% [markdown] lang="en"
# ## Read your own vLLM log
#
# With `--cudagraph-metrics` vLLM logs a table: how often which batch size was padded to which captured size, and
# whether a graph ran (`FULL`) or not (`NONE`). `BucketedRunner.statistics()` writes the same table. So serve
# something, keep the log, and ask it which sizes would have been better.
#
# **Predict:** the captured sizes are 1, 2, 4, 8, and the batch is mostly three or five. Which four sizes would you
# take?
# %% [markdown] lang="zh"
# ## 读自己的 vLLM 日志
#
# 加上 `--cudagraph-metrics`，vLLM 会在日志里写一张表：哪个 batch 大小被补齐到哪个捕获尺寸、各多少次，跑的是
# graph（`FULL`）还是没有 graph（`NONE`）。`BucketedRunner.statistics()` 写的是同样的表。所以：先服务一阵，留下日志，
# 再问它哪些尺寸更合适。
#
# **先猜**：捕获的尺寸是 1、2、4、8，而 batch 多半是三或五。如果还是四个尺寸，你会选哪些？
# %%
served = bard.model(4, device, max_rows=8, blocks=64)
runner = BucketedRunner(served, [1, 2, 4, 8], progress=False)
requests = [Sequence(f"request {i}") for i in range(8)]
for request in requests:
    served.prefill(request, bard.tokenizer.encode("O "))
for n in [1, 3, 3, 3, 5, 5, 5, 5, 3, 3, 5, 6, 8, 5, 3, 2]:  # how many requests run in each step
    runner.forward(served.next_batch(requests[:n], [0] * n))

log = folder / "server.log"
lines = [f"INFO 12:00:00 [stats] {line}" for line in runner.statistics().splitlines()]  # a log's prefix
log.write_text("\n".join(lines), encoding="utf-8")
print(log.read_text(encoding="utf-8"))
# %%
traffic = read_traffic(log)
best = best_layout(traffic, max_batch=8, count=4)
for name, layout in {pick("as captured", "现在的"): runner.layout, pick("best four", "最好的四个"): best}.items():
    share = row_cost(layout, traffic).padding_fraction
    say(
        f"{name}: sizes {list(layout)}, {share:.0%} of the computed rows are padding",
        f"{name}：尺寸 {list(layout)}，算出的行里有 {share:.0%} 是补齐",
    )
print(export(best, "vllm"))
# %% [markdown] lang="en"
# The best list misses sizes that look natural, since nothing ran there. That is the danger as well: a list fitted to
# one hour can be worse than a plain one in the next. Lesson 4 checks on held-out traffic before it believes a layout.
#
# Your log: put its path below. `modes=("FULL",)` counts decode steps alone; `NONE` rows can be prefill.
# %% [markdown] lang="zh"
# 最好的尺寸表里缺了一些看起来理所当然的尺寸，因为那里什么都没有跑过。危险也在这里：照着这一小时拟合的表，
# 下一小时可能还不如一张普通的表。第 4 课会先用没见过的流量检验，再相信一个布局。
#
# 你自己的日志：把路径填在下面。`modes=("FULL",)` 只统计 decode 步；`NONE` 的行可能是 prefill。
# %%
YOUR_LOG = None  # "vllm.log"

if YOUR_LOG is None:
    say("No log given: this cell has nothing to do.", "没有填路径，这一格什么也不做。")
else:
    yours = read_traffic(YOUR_LOG, modes=("FULL",))
    for layout in (preset("vllm"), best_layout(yours, max_batch=max(256, yours.largest), count=13)):
        print(f"{row_cost(layout, yours).padding_fraction:.1%}", list(layout))
# %% [markdown] lang="en"
# ## Optional: let a compiler fuse
#
# `torch.compile` finds fusions by itself. The cell below compiles the norm of the textbook decoder together with the
# residual add, and counts the kernels that Inductor wrote. On a CPU it needs a C++ compiler. With the cell after it, it
# takes a minute or two, so both are off; set the flag to run them.
#
# **Predict:** un-compiled, each arithmetic operation of the two is a kernel of its own. How many will Inductor write?
# %% [markdown] lang="zh"
# ## 选做：让编译器来融合
#
# `torch.compile` 会自己找可以融合的地方。下一格把教科书 decoder 里的 norm 和残差加法一起编译，数一数 Inductor
# 写了几个 kernel。在 CPU 上它需要 C++ 编译器。连同后面一格要花一两分钟，所以默认都关着；想跑就把开关改成 True。
#
# **先猜**：不编译时，其中每一次运算都是一个 kernel。Inductor 会写几个？
# %%
TRY_TORCH_COMPILE = False  # True: compile for a minute or two

skipped = None
if not TRY_TORCH_COMPILE:
    skipped = pick("Skipped: TRY_TORCH_COMPILE is False.", "已跳过：TRY_TORCH_COMPILE 是 False。")
elif cpp_compiler() is None:
    skipped = pick(
        "Skipped: torch.compile needs a C++ compiler on a CPU, and none was found.",
        "已跳过：在 CPU 上 torch.compile 需要 C++ 编译器，而这里没有找到。",
    )
if skipped:
    print(skipped)
else:
    from torch._inductor import metrics

    norm = bard.textbook().model.layers[0].input_layernorm

    def add_and_norm(residual, delta):
        """What the layer does between two blocks."""
        return norm(residual + delta)

    inputs = torch.randn(2, 1, bard.config.hidden).unbind()
    metrics.reset()
    begun = time.perf_counter()
    with elapsed("compiling"):
        compiled = torch.compile(add_and_norm)(*inputs)
    seconds = time.perf_counter() - begun
    say(
        f"{metrics.generated_kernel_count} kernel(s), after {seconds:.0f} s of compiling; "
        f"largest difference {(compiled - add_and_norm(*inputs)).abs().max():.1e}. (measured)",
        f"编译 {seconds:.0f} 秒，得到 {metrics.generated_kernel_count} 个 kernel；"
        f"最大差值 {(compiled - add_and_norm(*inputs)).abs().max():.1e}。（实测）",
    )
# %% [markdown] lang="en"
# Now the whole decode step, beside the fused step of this course as one graph. A compiler also has a price that a
# benchmark hides: it compiles again when it meets a new size.
#
# **Predict:** the batch goes through 1, 2, … 12. How often does torch compile, by default, and with `dynamic=False`?
# %% [markdown] lang="zh"
# 再看完整的一步 decode，和本课程融合后用一张 graph 的那一步放在一起。编译器还有一项代价，跑分里看不到：遇到新的尺寸，
# 它会重新编译。
#
# **先猜**：batch 依次取 1、2、……、12。默认情况下 torch 会编译几次？用 `dynamic=False` 呢？
# %%
if skipped:
    print(skipped)
else:
    whole = textbook_step(bard, 1, CONTEXT, torch.compile)
    begun = time.perf_counter()
    with elapsed("compiling the whole step"):
        whole()
    seconds = time.perf_counter() - begun
    ways = {
        "PyTorch eager": textbook_step(bard, 1, CONTEXT),
        "torch.compile": whole,
        "stage 4, graph": steps[4, "graph"],
    }
    say(f"Compiled in {seconds:.0f} s. µs a step: (measured)", f"编译用了 {seconds:.0f} 秒。每步 µs：（实测）")
    for name, step in measure_steps(device, ways, repeats=15, recorded=1).items():
        print(f"{step.step_us:>8,.0f}  {name}")
    met = [(n, CONTEXT) for n in range(1, 13)]
    for dynamic in (None, False):
        with elapsed("counting"):
            count = compilations(bard, met, dynamic)
        say(
            f"12 batch sizes, dynamic={dynamic}: {count} compilations",
            f"12 个 batch 大小，dynamic={dynamic}：编译 {count} 次",
        )
    say(
        f"After {torch._dynamo.config.recompile_limit} of them torch gives up and runs eager.",
        f"编译满 {torch._dynamo.config.recompile_limit} 次，torch 就不再编译，改跑 eager。",
    )
# %% [markdown] lang="en"
# ## Recap
#
# * Each technique removes one thing and brings one constraint. Know both before you switch it on.
# * Engines agree: graphs per decode size, one shared pool, padding rows made harmless, eager above the largest size.
# * On a CPU there is no launch to save, and fusion still pays, in bytes.
# * Hunt bugs with the switch that removes one suspect. A blunt switch that removes three tells you less than it
#   seems.
# * A trace says whether launches matter for you; a log says which sizes to capture.
#
# **Exercise 6, “Read a trace”**, gives you a file without a label and asks what would help.
#
# Next: [lesson 8, the quiz and what comes next](08_quiz.ipynb).
# %% [markdown] lang="zh"
# ## 小结
#
# * 每项技术都去掉一样东西，也带来一条约束。打开之前，两样都要清楚。
# * 各家引擎的做法是一致的：每个 decode 尺寸一张 graph，共用一个内存池，让补齐行无害，超过最大尺寸改为 eager。
# * CPU 上没有启动可省，融合照样划算，省的是字节。
# * 查 bug 时，用只排除一个嫌疑的开关。一次排除三个的粗开关，告诉你的比看上去少。
# * trace 告诉你启动开销对你重不重要；日志告诉你该捕获哪些尺寸。
#
# **练习 6“读一份 trace”**会给你一份没有标注的文件，问什么能帮上忙。
#
# 下一课：[第 8 课，习题与接下来](08_quiz.ipynb)。
