"""Exercise 4: what learners write, and what helps them."""

from __future__ import annotations

from s13lib.grading.part import Text, Wrong
from s13lib.grading.wrong import runners

STATIC = Text(
    "An earlier result changed when a later call ran: what you return is the static buffer, or a view of it. Hand out a copy.",
    "后面的调用一运行，前面的结果就变了：你返回的是静态缓冲区，或者它的视图。请返回一份拷贝。",
)
STALE = Text(
    "Rows beyond n keep the slots of an earlier, larger batch, and a replay writes there again: by now they belong to another request. Look at the whole buffer before the replay.",
    "n 之后的行还留着之前更大的 batch 的 slot，回放会把那里再写一遍，而那些 slot 现在已经是别的请求的了。回放之前看看整个缓冲区。",
)
ZERO = Text(
    "The warm-up runs for real. Your buffers held zeros then, so slot 0 was overwritten before the first request came. Make the rows harmless first.",
    "预热是真的在运行。那时缓冲区里全是零，于是第一个请求还没来，slot 0 就被覆盖了。先把每一行变成无害的。",
)
WRONG = {
    "4a": (
        Wrong("rebinds x", runners.Rebinds, Text(
            "self.x = x gives the name to another tensor. The graph reads the old address: put new values into the old tensor.",
            "self.x = x 只是让名字指向了另一个张量。graph 读的是旧地址：要把新的数值放进旧的张量里。")),
        Wrong("rebinds both inputs", runners.RebindsBoth, Text(
            "Both inputs are new tensors at each call, and the graph still reads the ones of the capture: keep those, and write into them.",
            "两个输入每次都换成了新张量，而 graph 读的还是捕获时的那两个：留着它们，往里面写。")),
        Wrong("shift stays at the capture's", runners.FrozenShift, Text(
            "shift never reaches the graph: what changes from call to call must be written into a tensor that was captured.",
            "shift 没有传到 graph 里：每次调用都会变的东西，必须写进捕获时用的那个张量。")),
        Wrong("shift stays at the first call's", runners.FirstShiftStays, Text(
            "The first shift is used for ever. It changes with each call: write it into its buffer each time.",
            "一直用的是第一次的 shift。它每次调用都会变：每次都要写进缓冲区。")),
        Wrong("a capture at each call", runners.CapturesEachTime, Text(
            "You capture in run: that costs more than launching. Capture once, in the constructor, and only replay afterwards.",
            "你在 run 里捕获：这比直接启动还费时间。只在构造函数里捕获一次，之后只回放。")),
        Wrong("runs eagerly", runners.Eager, Text(
            "There is no graph: run calls the step, kernel by kernel. The numbers are right, and nothing was saved.",
            "这里没有 graph：run 还是在一个 kernel 一个 kernel 地启动。数值是对的，却什么也没省下。")),
        Wrong("captures, then runs eagerly", runners.CapturesForNothing, Text(
            "The graph is recorded but never replayed: run calls the step again.",
            "graph 录好了，却从来没有回放：run 又去调用了 step。")),
        Wrong("runs the step and replays", runners.StepAndReplay, Text(
            "run calls the step and replays it as well: everything is computed twice.",
            "run 既调用了 step 又回放了一遍：所有东西都算了两次。")),
        Wrong("does not wait", runners.DoesNotWait, Text(
            "A replay is asynchronous: when it returns, the device may not even have begun. Wait for the device before anybody reads the output.",
            "回放是异步的：调用返回时，设备可能还没开始算。别人读输出之前，要先等设备做完。")),
        Wrong("replay before the copy", runners.ReplaysBeforeCopying, Text(
            "Your results are one call late: the replay ran before the new values were in the buffers.",
            "你的结果晚了一次：新数值还没进缓冲区，回放就已经跑了。")),
        Wrong("never replays", runners.NeverReplays, Text(
            "A capture runs nothing, and nothing was replayed: the output is still what it was at the start.",
            "捕获什么也不执行，而你又没有回放：输出还是一开始的样子。")),
        Wrong("only the first row", runners.OnlyFirstRow, Text(
            "Only the first row of x was copied; the rest is from the capture.",
            "x 只拷贝了第一行，其余的行还是捕获时的内容。")),
    ),
    "4b": (
        Wrong("stale rows", runners.StaleRows, STALE),
        Wrong("static output", runners.StaticOutput, STATIC),
        Wrong("rows of zeros", runners.ZeroRows, Text(
            "Rows beyond n are filled with zeros, and 0 is a slot: somebody's. Which slot stores nothing?",
            "n 之后的行填成了零，而 0 也是一个 slot，它有主人。哪个 slot 表示不存？")),
        Wrong("values cleared, slots not", runners.StaleSlotsZeroedX, Text(
            "You clear x beyond n, but the slots there still point at other requests: now zeros are written to them.",
            "n 之后的 x 清零了，slot 却还指着别的请求：于是写过去的是零。")),
        Wrong("one padding row", runners.OneRowCleared, Text(
            "Only one row beyond n is made harmless. All of them run, up to the captured size.",
            "n 之后只处理了一行。一直到捕获尺寸为止，每一行都会运行。")),
        Wrong("warm-up at slot 0", runners.WarmUpAtZero, ZERO),
        Wrong("rebinds the inputs", runners.RebindsSlots, Text(
            "The padded batch lies in new tensors, and the graph reads the old ones: copy all rows into the buffers of the capture.",
            "补齐好的 batch 放在了新张量里，而 graph 读的是旧的：把所有行拷进捕获时的缓冲区。")),
        Wrong("slots stay at the capture's", runners.FrozenSlots, Text(
            "The slots never reach the graph, so nothing is stored: both inputs have to be copied at each call.",
            "slots 没有传到 graph 里，所以什么也没有存：两个输入每次调用都要拷贝。")),
        Wrong("all rows returned", runners.AllRows, Text(
            "You return the padding rows, too: the caller gave n rows and wants n rows.",
            "你把补齐行也返回了：调用者给了 n 行，要的也是 n 行。")),
        Wrong("rows cut off", runners.CutsOff, Text(
            "Rows that do not fit are dropped without a word: those requests would never get a token. Raise ValueError.",
            "装不下的行被悄悄丢掉了：那些请求永远等不到 token。请抛出 ValueError。")),
        Wrong("no error of one's own", runners.NoCheck, Text(
            "Too many rows end in torch's RuntimeError about shapes, somewhere in the middle. Check first, and raise a ValueError that says how many rows are allowed.",
            "行数太多时，中途冒出来的是 torch 关于形状的 RuntimeError。请先检查，再抛出 ValueError，说明最多允许几行。")),
        Wrong("None for too many rows", runners.ReturnsNothing, Text(
            "Too many rows give None, and the caller notices much later. Raise ValueError.",
            "行数太多时返回 None，调用者要过很久才会发现。请抛出 ValueError。")),
        Wrong("runs eagerly", runners.RunsEager, Text(
            "run calls the step at the batch's exact size. No padding, no stale rows, and no graph: it must replay.",
            "run 直接按 batch 的实际大小调用 step。不用补齐，也没有残留的行，可是也没用 graph：这里要求回放。")),
    ),
    "4c": (
        Wrong("no warm-up", runners.NoWarmUp, Text(
            "The step's first call makes something of its own, and a capture cannot record that. Call it once before the capture.",
            "step 第一次被调用时要准备一些自己的东西，捕获录不下来。捕获之前先调用它一次。")),
        Wrong("warm-up at slot 0", runners.WarmUpAtSlotZero, ZERO),
        Wrong("a replaced weight is not noticed", runners.NotNoticed, Text(
            "The weight was replaced, and the graph went on with the old one without a word. Remember at the capture where it lies, and compare at each call.",
            "权重换掉了，graph 却不声不响地继续用旧的。捕获时记下它在哪里，每次调用都核对。")),
        Wrong("compares objects", runners.SameObject, Text(
            "step.weight.data = … leaves the tensor object and changes its memory. A graph knows addresses, not Python objects: compare addresses.",
            "step.weight.data = … 没有换张量对象，却换了它的内存。graph 认的是地址，不是 Python 对象：要比较地址。")),
        Wrong("compares values", runners.SameValues, Text(
            "You refuse a weight that was changed in place. That one works: the graph reads the new values at the old address. Compare where it lies, not what it holds.",
            "原地修改的权重也被你拒绝了。那是可以的：graph 会在旧地址上读到新数值。要比较它在哪里，而不是里面是什么。")),
        Wrong("captures anew", runners.CapturesAnew, Text(
            "You capture again when the weight was replaced. Here an error is asked for: a capture in the middle of serving stalls everybody, so the caller decides.",
            "权重换掉之后你又捕获了一次。这里要求报错：服务途中突然捕获，会让所有人都等着，应当由调用者决定。")),
        Wrong("checks after the replay", runners.ChecksTooLate, Text(
            "The error comes after the replay: by then the old weight's results are in the cache. Check before anything runs.",
            "报错是在回放之后：那时缓存里已经写进了用旧权重算出的结果。要在运行任何东西之前检查。")),
        Wrong("stale rows", runners.SafeStale, STALE),
        Wrong("static output", runners.SafeStatic, STATIC),
    ),
}  # fmt: skip
