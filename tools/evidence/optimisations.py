"""For each optimisation: what must stay true, the shapes where it loses, and the trap in measuring it.

``{key:ratio}`` and its like are figures of the record. Tests are named, so that the page can be checked against them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.evidence.claims import Words


@dataclass(frozen=True)
class Optimisation:
    """One row of the second table."""

    name: Words
    invariant: Words
    tests: tuple[str, ...]  # "file::test": assert the invariant
    loses: Words
    trap: Words


OPTIMISATIONS = [
    Optimisation(
        Words("Operator fusion", "算子融合"),
        Words(
            "Every stage gives the reference's logits within the rounding bound, and launches just the kernels of "
            "the table.",
            "每一级的 logits 与参考实现之差都在舍入误差界之内，启动的 kernel 与表中所列完全一致。",
        ),
        (
            "tests/model/test_decoder.py::test_logits_are_the_references_over_200_teacher_forced_tokens",
            "tests/model/test_decoder.py::test_a_step_launches_the_simulators_kernels_layer_by_layer",
        ),
        Words(
            "Inside a graph there are no launches left to save. Stage 4 against stage 15, both as one graph: "
            "{decode.fusion.b1:ratio} at batch 1, {decode.fusion.b64:ratio} at batch 64. On a GPU a kernel boundary "
            "costs more than on SoftGPU, and fusion keeps a gain there.",
            "graph 里已经没有启动可省。stage 4 对比 stage 15，都用一张 graph：batch 1 时 {decode.fusion.b1:ratio}，"
            "batch 64 时 {decode.fusion.b64:ratio}。GPU 上 kernel 之间的边界比 SoftGPU 贵，融合在那里仍有收益。",
        ),
        Words(
            "Eager against eager shows saved launches and saved memory traffic in one figure. Compare graph with "
            "graph to see the second alone.",
            "拿 eager 比 eager，看到的是省下的启动加上省下的访存。要单看后者，得拿 graph 比 graph。",
        ),
    ),
    Optimisation(
        Words("One graph replay", "用一张 graph 回放"),
        Words(
            "Replay and eager at the same padded shape are equal bit for bit, at every batch size.",
            "补齐到同样形状时，回放与 eager 逐位相同，任何 batch 大小都如此。",
        ),
        (
            "tests/graphs/test_runner.py::test_replay_is_eager_bit_for_bit_at_every_batch_size_to_256",
            "tests/graphs/test_runner.py::test_enforce_eager_pads_alike_and_is_bit_equal",
        ),
        Words(
            "Nothing is left to gain where the device is the bottleneck: {decode.graph.b64:ratio} at batch 64 of bard, "
            "{decode.smollm2.graph:ratio} on SmolLM2-135M. It loses where padding then nearly doubles the batch: 33 "
            "requests padded to 64, {decode.padded:ratio}.",
            "设备本身是瓶颈的时候没有收益：bard 在 batch 64 时 {decode.graph.b64:ratio}，SmolLM2-135M 上 "
            "{decode.smollm2.graph:ratio}。这时补齐又让 batch 几乎翻倍，就会输：33 个请求补齐到 64，"
            "{decode.padded:ratio}。",
        ),
        Words(
            "A replay returns at once. Without `synchronize` one measures the submission "
            "({decode.bard.stage_4_graph.host:ours}), not the step ({decode.bard.stage_4_graph:ours}).",
            "回放会立刻返回。不 `synchronize`，测到的是提交（{decode.bard.stage_4_graph.host:ours}），"
            "不是一步（{decode.bard.stage_4_graph:ours}）。",
        ),
    ),
    Optimisation(
        Words("Padding to captured sizes, best sizes", "补齐到捕获尺寸，最优尺寸"),
        Words(
            "The layout is the true optimum (equal to brute force); padding rows write nothing that a real row owns.",
            "求得的方案就是最优解（与穷举一致）；补齐行绝不写真实行拥有的位置。",
        ),
        (
            "tests/buckets/test_optimiser.py::test_equals_brute_force",
            "tests/graphs/test_padding.py::test_right_policies_never_alarm_and_change_exactly_the_real_rows_slots",
        ),
        Words(
            "On traffic that it was not fitted to: a fixed list can be better there (modelled; the README has the "
            "held-out figures).",
            "换成没见过的流量：那里一张固定的列表可能更好（按成本模型推算；留出检验的数字在 README 里）。",
        ),
        Words(
            "Padding as a share of rows is not padding as a share of time: at small batch a step reads the weights "
            "whatever the rows. And judge a layout on traffic that it was not fitted to.",
            "补齐占多少行，不等于补齐占多少时间：batch 小的时候，不管几行都要把权重读一遍。"
            "还要用拟合时没见过的流量来评判。",
        ),
    ),
    Optimisation(
        Words("Launches bound once", "启动只绑定一次"),
        Words(
            "A bound launch does what a checked one does, and keeps its memory alive.",
            "绑定过的启动与每次检查的启动效果相同，并且让它用到的内存一直有效。",
        ),
        (
            "tests/device/test_launch.py::test_bound_and_unbound_launches_do_the_same",
            "tests/device/test_launch.py::test_a_bound_launch_keeps_its_memory",
        ),
        Words(
            "Where tensors change with every call: each new binding costs a checked launch "
            "({device.launch_checked:ours}) and saves nothing.",
            "每次调用都换张量的时候：每次重新绑定都要付一次检查的代价（{device.launch_checked:ours}），什么也没省下。",
        ),
        Words(
            "The queue holds 1,024 launches and then pushes back: a longer loop measures the device.",
            "队列深 1024，满了就会反压：循环再长，测到的就是设备了。",
        ),
    ),
    Optimisation(
        Words("GEMV that never mixes rows", "行与行互不影响的 GEMV"),
        Words(
            "A row's result depends neither on the batch size nor on the row's place: batched, padded and alone are "
            "equal bit for bit.",
            "一行的结果与 batch 大小、与它排第几行都无关：成批、补齐、单独计算，逐位相同。",
        ),
        (
            "tests/kernels/test_row_independence.py::test_every_batch_size_gives_the_same_rows",
            "tests/model/test_decoder.py::test_a_mixed_batch_gives_each_request_bit_for_bit_what_it_gets_alone",
        ),
        Words(
            "With many rows, since no tile shares loads between them. Against `torch.mm`: {device.gemm.b4:ratio} at 4 "
            "rows, {device.gemm.b16:ratio} at 16, {device.gemm.b64:ratio} at 64.",
            "行数多的时候，因为没有让多行共用载入的分块。对比 `torch.mm`：4 行时 {device.gemm.b4:ratio}，16 行时 "
            "{device.gemm.b16:ratio}，64 行时 {device.gemm.b64:ratio}。",
        ),
        Words(
            "A weight used twice comes from the cache the second time: use enough copies that none is still there "
            "(64 MB of them here).",
            "同一个权重用第二次时已经在缓存里了：要准备足够多的副本，让缓存装不下（这里是 64 MB）。",
        ),
    ),
    Optimisation(
        Words("Quantised weights, unpacked in the dot", "量化权重，在点积里解包"),
        Words(
            "The kernels compute with the very weights that the bytes stand for, within the bound of a float64 "
            "reference, and a row depends on no other.",
            "kernel 用的就是那些字节所代表的权重，与 float64 参考之差在误差界之内；一行的结果与别的行无关。",
        ),
        (
            "tests/kernels/test_quantised.py::test_within_the_bound_and_fully_overwritten",
            "tests/kernels/test_quantised.py::test_a_rows_result_depends_neither_on_the_batch_nor_on_its_place",
        ),
        Words(
            "With the weights in cache, arithmetic counts and not bytes. At 64 rows, against float32: q8_0 "
            "{quantised.q8_0.b64:ratio}, q4_0 {quantised.q4_0.b64:ratio}. q4_0 takes about half of q8_0's bytes for "
            "the layers, and more work to unpack: SmolLM2-135M against float32, q4_0 "
            "{quantised.smollm2.q4_0.rate:ratio}, q8_0 {quantised.smollm2.q8_0.rate:ratio}.",
            "权重都在缓存里时，起作用的是运算而不是字节。64 行时对比 float32：q8_0 {quantised.q8_0.b64:ratio}，q4_0 "
            "{quantised.q4_0.b64:ratio}。各层用 q4_0 时，要读的字节大约是 q8_0 的一半，但解包更费事："
            "SmolLM2-135M 上对比 float32，"
            "q4_0 是 {quantised.smollm2.q4_0.rate:ratio}，q8_0 是 {quantised.smollm2.q8_0.rate:ratio}。",
        ),
        Words(
            "A small matrix stays in cache between two repeats: with too few copies one measures arithmetic and calls "
            "it bandwidth.",
            "小矩阵在两次重复之间一直留在缓存里：副本不够多，测到的就是运算，却以为是带宽。",
        ),
    ),
    Optimisation(
        Words("Compiled kernels kept on disk", "编译好的 kernel 存在磁盘上"),
        Words(
            "A change in anything that a kernel uses, or in the compiler's options, is compiled anew.",
            "kernel 用到的任何东西变了，或者编译选项变了，就会重新编译。",
        ),
        (
            "tests/device/test_cache.py::test_a_change_in_anything_it_uses_changes_the_key",
            "tests/device/test_cache.py::test_the_compilers_options_change_the_key",
        ),
        Words(
            "At the first use: {waiting.kernels.cold:ours} for all kernels, with a progress bar; later "
            "{waiting.kernels.warm:ours}.",
            "第一次使用时：编译全部 kernel 要 {waiting.kernels.cold:ours}，有进度条；"
            "以后只要 {waiting.kernels.warm:ours}。",
        ),
        Words(
            "A cache that another run filled: cold figures need an empty folder of their own.",
            "缓存可能早被别的运行填满：要测冷启动，就得用一个空的缓存目录。",
        ),
    ),
    Optimisation(
        Words("A worker that parks", "会休眠的工作线程"),
        Words(
            "No launch is lost, whatever the worker does: launches run in order, and all of them.",
            "不管工作线程在做什么，启动一次也不会丢：按顺序执行，全部执行。",
        ),
        (
            "tests/device/test_launch.py::test_launches_run_in_order",
            "tests/device/test_launch.py::test_launches_from_several_threads_all_run",
        ),
        Words(
            "One short launch after a pause: waking takes {device.wake:ours}, many times the kernel.",
            "停顿之后只启动一个短 kernel：唤醒要 {device.wake:ours}，是 kernel 本身的许多倍。",
        ),
        Words(
            "The first step of a loop contains a wake-up: run one step unmeasured.",
            "循环的第一步里含有一次唤醒：先空跑一步，不计时。",
        ),
    ),
    Optimisation(
        Words("torch.compile (the peer)", "torch.compile（对照方）"),
        Words(
            "Not ours, and measured as its users meet it: logits differ from eager's by rounding alone.",
            "不是我们的优化，按使用者的实际体验来测：logits 与 eager 只差舍入。",
        ),
        ("tests/profiling/test_compiled.py::test_a_compiled_step_gives_the_eager_logits",),
        Words(
            "It compiles anew when sizes change. Over 12 batch sizes: {torch_compile.recompiled.batch.default:ours} "
            "compilations by default, {torch_compile.recompiled.batch.static:ours} with `dynamic=False`, where it "
            "stops at its limit and runs eager. A first step costs {torch_compile.bard.b1.compile:ours} (bard, "
            "batch 1). Against PyTorch eager: {torch_compile.bard.b1.eager:ratio} at batch 1, "
            "{torch_compile.bard.b16.eager:ratio} at batch 16, where the profiler shows most of the step in one fused "
            "loop: Inductor takes the product of query and keys apart and puts it into the softmax.",
            "尺寸一变就重新编译。走过 12 个 batch 大小：默认编译 {torch_compile.recompiled.batch.default:ours} 次；"
            "`dynamic=False` 编译 {torch_compile.recompiled.batch.static:ours} 次，到上限后退回 eager。"
            "第一步要花 {torch_compile.bard.b1.compile:ours}（bard，batch 1）。对比 PyTorch eager：batch 1 时 "
            "{torch_compile.bard.b1.eager:ratio}，batch 16 时 {torch_compile.bard.b16.eager:ratio}；用 profiler 看，"
            "那时大部分时间花在一个融合循环里：Inductor 把 query 与 key 的乘积拆开，并进了 softmax。",
        ),
        Words(
            "Inductor's cache outlives the process: a second run “compiles” in a fraction of the time. And beyond "
            "`recompile_limit` it silently times eager code.",
            "Inductor 的缓存在进程结束后仍在：再跑一次，“编译”只要几分之一的时间。而超过 `recompile_limit` 之后，"
            "测到的其实悄悄变成了 eager。",
        ),
    ),
]

# Why a figure stays below its aim, as a measurement explains it; by patterns of keys, the first that matches.
EXPLANATIONS: dict[str, Words] = {
    "quantised.*.buffer": Words(
        "the buffer of so small a matrix stays in the processor's cache, where writing and reading it is cheap; memory "
        "gives up the packed bytes to both at the same speed. Against buffers that are in no cache the ratio is "
        "{quantised.cold_buffer:ratio}; where the buffer is larger than the cache, it is "
        "{quantised.q8_0.49152x576.buffer:ratio}.",
        "矩阵这么小，缓冲区一直留在处理器的缓存里，写和读都很便宜；而从内存读权重，两边一样快。换成不在缓存里的缓冲区，"
        "倍数是 {quantised.cold_buffer:ratio}；缓冲区比缓存还大时是 {quantised.q8_0.49152x576.buffer:ratio}。",
    ),
    "device.gemv.*.read": Words(
        "a matrix below 4 MB is an allocation of its own, in small memory pages, and each page costs a translation of "
        "its address. The same 576 × 576 matrices in one allocation, which the system backs with 2 MB pages, reach "
        "{device.gemv.pages:ours} instead of {device.gemv.pages:peer}; the largest matrix, which has such pages by "
        "itself, reaches {device.gemv.49152x576.read:ratio} of the read bandwidth.",
        "小于 4 MB 的矩阵各自分配，用的是小内存页，每一页都要做一次地址转换。同样这些 576 × 576 的矩阵放进一大块内存、"
        "由系统配上 2 MB 的大页之后，速度从 {device.gemv.pages:peer} 升到 {device.gemv.pages:ours}；"
        "本身就有大页的最大矩阵达到读带宽的 {device.gemv.49152x576.read:ratio}。",
    ),
}
