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
from s13lib.grading import check, hint, progress


# %% [markdown] part="5a" lang="en"
# Write `step_us(launch_us, kernel_us)`: the time at which the last kernel ends; 0 when there is none. The queue
# between the lanes never fills here.
# %% [markdown] part="5a" lang="zh"
# 写出 `step_us(launch_us, kernel_us)`：最后一个 kernel 结束的时刻；一个 kernel 也没有时返回 0。这一题里，两条泳道之间的队列永远不会满。
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
# A launch needs a place in a queue of `queue_depth` places. Its place is free again as soon as its kernel *starts*. A
# host that finds the queue full waits, and only then pays for the launch. Write
# `step_us_with_queue(launch_us, kernel_us, queue_depth)`.
# %% [markdown] part="5b" lang="zh"
# 每次启动都要在队列里占一个位置，队列一共有 `queue_depth` 个位置。kernel 一**开始**执行，它的位置就空出来。主机发现队列满了就等，等到之后才付这次启动的时间。写出 `step_us_with_queue(launch_us, kernel_us, queue_depth)`。
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
