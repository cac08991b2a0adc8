# %% [markdown] lang="en"
# # Exercise 5: Two lanes
#
# A step has two lanes: the host pays for launches, the device runs kernels. Lesson 6 says that
# `max(host, device)` is a lower bound. Here you compute the real time, and find out where the bound is far off.
#
# Times are in microseconds. Launch *i* costs `launch_us[i]`, its kernel runs for `kernel_us[i]`. The device runs its
# kernels in order, one at a time. Both lanes start at time 0.
# %% [markdown] lang="zh"
# # 练习 5：两条泳道
#
# 一步有两条泳道：主机付启动的时间，设备执行 kernel。第 6 课说 max(主机, 设备) 是下界。这里你来算真正的时间，并找出这个下界在哪里差得很远。
#
# 时间的单位都是微秒。第 *i* 次启动花 `launch_us[i]`，它的 kernel 执行 `kernel_us[i]`。设备按顺序执行 kernel，一次一个。两条泳道都从时刻 0 开始。
# %% part="setup"
from s13lib.figures import Panel, timeline_svg
from s13lib.grading import check, hint, inputs, progress
from s13lib.simulator import Span, Timeline
from s13lib.widgets import language, pick, say, show_svg


# %% [markdown] part="5a" lang="en"
# A kernel can start when its launch has been paid for **and** the kernel before it has ended. (The launch hands the
# kernel over at its end; while the host still prepares it, the device knows nothing of it.) Write
# `step_us(launch_us, kernel_us)`: the time at which the last kernel ends; 0 when there is none. The queue between the
# lanes never fills here.
#
# Example: `step_us([1, 1, 6], [4, 1, 1])` is 9. The launches have been paid for at 1, 2 and 8, and the kernels run from
# 1 to 5, 5 to 6 and 8 to 9.
# %% [markdown] part="5a" lang="zh"
# 一个 kernel 要等自己的启动已经付完，**并且**前一个 kernel 已经结束，才能开始。（启动到结束时才把 kernel 交出去；主机还在准备的时候，设备对它一无所知。）写出 `step_us(launch_us, kernel_us)`：最后一个 kernel 结束的时刻；一个 kernel 也没有时返回 0。这一题里，两条泳道之间的队列永远不会满。
#
# 例：`step_us([1, 1, 6], [4, 1, 1])` 是 9。三次启动在 1、2、8 付完，三个 kernel 分别从 1 跑到 5、5 到 6、8 到 9。
# %% part="5a"
def step_us(launch_us, kernel_us):
    ### BEGIN SOLUTION
    host = device = 0.0
    for launch, kernel in zip(launch_us, kernel_us):
        host += launch
        device = max(host, device) + kernel
    return device
    ### END SOLUTION


# %% [markdown] part="5b" lang="en"
# A launch needs a place in a queue of `queue_depth` places. Its place is free again as soon as its kernel *starts*: the
# queue holds what waits, and a running kernel has left it. A host that finds the queue full waits, and only then pays
# for the launch. As before, a kernel can start when its launch has been paid for and the kernel before it has ended.
# Write `step_us_with_queue(launch_us, kernel_us, queue_depth)`.
#
# Example: launches `[1, 1, 1, 1]`, kernels `[5, 5, 5, 5]`, depth 1. The launches have been paid for at 1, 2, 7 and 12:
# the third could begin only at 6, when the second kernel started. The kernels run without a pause from 1 to 21, so the
# result is 21, as without a limit. With launches `[1, 1, 1, 6]` and kernels `[5, 5, 5, 1]` the wait is felt: 18 at
# depth 1, and 17 at depth 2.
# %% [markdown] part="5b" lang="zh"
# 每次启动都要在队列里占一个位置，队列一共有 `queue_depth` 个位置。kernel 一**开始**执行，它的位置就空出来：队列里放的是在等的，正在跑的已经离开了队列。主机发现队列满了就等，等到之后才付这次启动的时间。和前面一样，一个 kernel 要等自己的启动已经付完、前一个 kernel 已经结束，才能开始。写出 `step_us_with_queue(launch_us, kernel_us, queue_depth)`。
#
# 例：启动 `[1, 1, 1, 1]`，kernel `[5, 5, 5, 5]`，深度 1。四次启动在 1、2、7、12 付完：第三次要到 6，也就是第二个 kernel 开始的时候，才能动手。kernel 从 1 到 21 一个接一个，没有停过，所以结果是 21，和队列没有限制时一样。换成启动 `[1, 1, 1, 6]`、kernel `[5, 5, 5, 1]`，等待就显出来了：深度 1 时是 18，深度 2 时是 17。
# %% part="5b"
def step_us_with_queue(launch_us, kernel_us, queue_depth):
    ### BEGIN SOLUTION
    host = device = 0.0
    starts = []
    for i, (launch, kernel) in enumerate(zip(launch_us, kernel_us)):
        if i >= queue_depth:
            host = max(host, starts[i - queue_depth])
        host += launch
        starts.append(max(host, device))
        device = starts[-1] + kernel
    return device
    ### END SOLUTION


# %% [markdown] part="5c" lang="en"
# Now fool the maximum. Return two lists of `n` times, launches and kernels, that **each** sum to `total_us`, so that
# `max(host, device)` says `total_us`, while the step really takes so long that the maximum falls short by at least
# 40 % of the real time. Write `fool_the_maximum(n, total_us)`; `n` is at least 8.
# %% [markdown] part="5c" lang="zh"
# 现在来骗过最大值。返回两个列表，各 `n` 个时间，分别是启动和 kernel，**各自**的总和都是 `total_us`，于是 max(主机, 设备) 给出 `total_us`；而这一步真正花的时间要长得多，使最大值比真实时间至少少 40%。写出 `fool_the_maximum(n, total_us)`；`n` 不小于 8。
# %% part="5c"
def fool_the_maximum(n, total_us):
    ### BEGIN SOLUTION
    return [total_us / n] * n, [0.0] * (n - 1) + [total_us]
    ### END SOLUTION


# %% [markdown] lang="en"
# ## Your answer as a picture
#
# The times below are yours: kernel *i* ends when a step of the first *i* launches does. Where does the device wait? Try
# other lists too, such as `draw([10.0] * 8, [10.0] * 8)`, for which the maximum is nearly right.
# %% [markdown] lang="zh"
# ## 把你的答案画出来
#
# 下图里的时刻都来自你的答案：只有前 *i* 次启动的一步何时结束，第 *i* 个 kernel 就何时结束。设备在哪里等？再换别的列表试试，比如 `draw([10.0] * 8, [10.0] * 8)`，这时取最大值差不多是对的。
# %%
def draw(launch_us, kernel_us):
    """Show a step, by what your step_us gives for its first launches."""
    ends = [step_us(launch_us[:i], kernel_us[:i]) for i in range(1, len(launch_us) + 1)]
    host = [Span("launch", sum(launch_us[:i]), launch, i) for i, launch in enumerate(launch_us)]
    device = [Span("kernel", end - kernel, kernel, i) for i, (kernel, end) in enumerate(zip(kernel_us, ends))]
    timeline = Timeline(tuple(host), tuple(device), "modelled", pick("by your step_us", "由你的 step_us 算出"))
    show_svg(timeline_svg([Panel(pick("your step", "你的一步"), timeline)], language()))


def look():
    """Draw your answers, once they are there."""
    try:
        draw(*fool_the_maximum(8, 80.0))
    except NotImplementedError as error:
        say(f"First write what is missing: {error}.", f"先把缺的写完：{error}。")


look()
