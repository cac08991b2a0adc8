"""Exercise 5: what learners write."""

from __future__ import annotations

from s13lib.grading.part import Text, Wrong


def largest_total(launch_us, kernel_us):
    """The lower bound."""
    return max(sum(launch_us), sum(kernel_us))


def both_totals(launch_us, kernel_us):
    """As if nothing overlapped."""
    return sum(launch_us) + sum(kernel_us)


def kernels_do_not_wait(launch_us, kernel_us):
    """A kernel starts at its launch, whatever runs."""
    host = end = 0.0
    for launch, kernel in zip(launch_us, kernel_us, strict=True):
        host += launch
        end = max(end, host + kernel)
    return end


def kernels_do_not_need_their_launch(launch_us, kernel_us):
    """A kernel starts when its launch begins."""
    host = end = 0.0
    for launch, kernel in zip(launch_us, kernel_us, strict=True):
        end = max(host, end) + kernel
        host += launch
    return end


def ends_with_the_later_lane(launch_us, kernel_us):
    """The same, and the step ends with the lane that ends last."""
    return max(sum(launch_us), kernels_do_not_need_their_launch(launch_us, kernel_us))


def adds_the_maxima(launch_us, kernel_us):
    """The maximum of each pair, summed."""
    return sum(max(pair) for pair in zip(launch_us, kernel_us, strict=True))


def _with_queue(launch_us, kernel_us, queue_depth, offset, use_end):
    host = end = 0.0
    starts, ends = [], []
    for i, (launch, kernel) in enumerate(zip(launch_us, kernel_us, strict=True)):
        j = i - queue_depth + offset
        free = (ends if use_end else starts)[j] if 0 <= j < len(starts) else 0.0
        host = max(host, free) + launch
        start = max(host, end)
        end = start + kernel
        starts.append(start)
        ends.append(end)
    return end


def no_queue(launch_us, kernel_us, queue_depth):
    """The queue is ignored."""
    return _with_queue(launch_us, kernel_us, len(launch_us) + 1, 0, False)


def queue_one_deeper(launch_us, kernel_us, queue_depth):
    """Off by one: waits for kernel i − Q − 1."""
    return _with_queue(launch_us, kernel_us, queue_depth, -1, False)


def queue_one_shorter(launch_us, kernel_us, queue_depth):
    """Off by one: waits for kernel i − Q + 1."""
    return _with_queue(launch_us, kernel_us, queue_depth, 1, False)


def place_frees_at_the_end(launch_us, kernel_us, queue_depth):
    """Waits for the end of kernel i − Q."""
    return _with_queue(launch_us, kernel_us, queue_depth, 0, True)


def queued_before_its_launch(launch_us, kernel_us, queue_depth):
    """A kernel starts when its launch begins."""
    host = end = 0.0
    starts = []
    for i, (launch, kernel) in enumerate(zip(launch_us, kernel_us, strict=True)):
        host = max(host, starts[i - queue_depth] if i >= queue_depth else 0.0)
        starts.append(max(host, end))
        host, end = host + launch, starts[-1] + kernel
    return end


def even(n, total_us):
    """All launches and kernels alike."""
    return [total_us / n] * n, [total_us / n] * n


def long_kernel_first(n, total_us):
    """The device's work at the start."""
    return [total_us / n] * n, [total_us] + [0.0] * (n - 1)


def one_long_launch_first(n, total_us):
    """The totals differ: the device has almost nothing to do."""
    return [total_us] + [0.0] * (n - 1), [1.0] * n


def half_and_half(n, total_us):
    """Short kernels, then long ones, not extreme enough."""
    short, long = n // 2, n - n // 2
    return [total_us / n] * n, [0.0] * short + [total_us / long] * long


WRONG = {
    "5a": (
        Wrong("maximum of the totals", largest_total, Text(
            "This is max(host, device), the lower bound. It is right only if neither lane ever waits for the other: follow the kernels one by one.",
            "这是 max(主机, 设备)，只是下界。两条泳道从不互相等待时它才对：请一个 kernel 一个 kernel 地走。")),
        Wrong("sum of the totals", both_totals, Text(
            "Launches and kernels overlap: while a kernel runs, the host already prepares the next launch.",
            "启动和 kernel 是重叠的：kernel 在跑的时候，主机已经在准备下一次启动。")),
        Wrong("kernels overlap", kernels_do_not_wait, Text(
            "The kernels of one stream run in order: a kernel also waits for the end of the one before it.",
            "同一个 stream 里的 kernel 按顺序执行：它还要等前一个 kernel 结束。")),
        Wrong("kernel before its launch", kernels_do_not_need_their_launch, Text(
            "A kernel cannot start before its own launch has been paid for: add the launch to the host's clock first.",
            "自己的启动还没付完，kernel 不能开始：先把这次启动加到主机的时钟上。")),
        Wrong("kernel before its launch, and the later lane", ends_with_the_later_lane, Text(
            "Here each kernel starts as its launch begins, and the larger clock is returned. A kernel starts when its launch has ended, so the last thing is always a kernel.",
            "这里每个 kernel 在启动刚开始时就跑了，最后再取较大的时钟。kernel 要等启动结束才开始，所以最后结束的总是 kernel。")),
        Wrong("sum of the pairs' maxima", adds_the_maxima, Text(
            "The larger of each pair is not what a pair costs: a fast stretch of the host is saved up for later kernels.",
            "每一对取较大者不等于这一对的代价：主机领先的部分会留给后面的 kernel。")),
    ),
    "5b": (
        Wrong("no queue", no_queue, Text(
            "The queue's depth changes nothing in your answer: when it is full, the host must wait.",
            "你的答案里队列深度没有起作用：队列满了，主机就得等。")),
        Wrong("queue one too deep", queue_one_deeper, Text(
            "Off by one: with depth Q, launch i waits for kernel i − Q. Try Q = 1 by hand.",
            "差了一个：深度为 Q 时，第 i 次启动等的是第 i − Q 个 kernel。用 Q = 1 手算一遍。")),
        Wrong("queue one too short", queue_one_shorter, Text(
            "Off by one: launch i must not wait for kernel i − Q + 1. Try Q = 2 by hand.",
            "差了一个：第 i 次启动不该等第 i − Q + 1 个 kernel。用 Q = 2 手算一遍。")),
        Wrong("place frees at the end", place_frees_at_the_end, Text(
            "A place in the queue is free as soon as its kernel starts, not when it ends.",
            "kernel 一开始执行，队列里的位置就空出来了，不用等它结束。")),
        Wrong("kernel before its launch", queued_before_its_launch, Text(
            "A kernel starts when its launch begins here. It is in the queue only once the launch has been paid for: first the launch, then the start.",
            "这里 kernel 在启动刚开始时就跑了。启动付完之后，它才进队列：先加启动的时间，再定 kernel 的开始时刻。")),
    ),
    "5c": (
        Wrong("all alike", even, Text(
            "With equal launches and equal kernels the maximum is nearly exact: make the kernels unequal.",
            "启动一样长、kernel 也一样长时，取最大值几乎是准的：让 kernel 长短不一。")),
        Wrong("long kernel first", long_kernel_first, Text(
            "A long kernel at the start hides all launches behind it: move it to where nothing is left to hide.",
            "长 kernel 放在最前面，后面的启动全被它藏住了：把它移到没有什么可藏的地方。")),
        Wrong("totals differ", one_long_launch_first, Text(
            "Both lanes must sum to total_us: the error is to come from the order, not from the totals.",
            "两条泳道的总和都必须等于 total_us：误差要来自顺序，而不是来自总量。")),
        Wrong("not extreme enough", half_and_half, Text(
            "The direction is right: short kernels first, long ones last. Half short and half long brings about a third; go further.",
            "方向对了：短的在前，长的在后。一半短、一半长，大约只少三分之一；再极端一些。")),
    ),
}  # fmt: skip
