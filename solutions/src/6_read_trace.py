# %% [markdown] lang="en"
# # Exercise 6: Read a trace
#
# You get timelines without a label, and say what each is bound by and what would help: by looking first, then in code
# that works on any timeline.
#
# A `Timeline` holds two tuples of spans, each in order of start. `timeline.host` is what the host did, `timeline.device`
# what the device did: kernels and copies. Times are in microseconds. A span has
#
# * `start_us`, `end_us` and `duration_us`;
# * `correlation`: a launch and the device's work that it caused have the same number. A graph launch causes many;
# * `kind`: on the host `"graph"` for a graph launch, `"call"` for a call that launches nothing, `""` for the launch of
#   one kernel; on the device `""` for a kernel, and `"memcpy"` or `"memset"` for a copy.
# %% [markdown] lang="zh"
# # 练习 6：读一份 trace
#
# 给你几份没有标注的时间线，请说出每一份受什么限制、什么能帮上忙。先用眼睛看，再写出对任何时间线都管用的代码。
#
# `Timeline` 里有两个元组，各由若干段组成，按开始时刻排好。`timeline.host` 是主机做的事，`timeline.device` 是设备做的事：kernel 和拷贝。时间的单位是微秒。每一段有
#
# * `start_us`、`end_us` 和 `duration_us`；
# * `correlation`：一次启动，和它引起的设备工作，编号相同。一次 graph 启动会引起许多份工作；
# * `kind`：在主机上，`"graph"` 是 graph 启动，`"call"` 是什么也不启动的调用，`""` 是单个 kernel 的启动；在设备上，`""` 是 kernel，`"memcpy"` 和 `"memset"` 是拷贝。
# %% part="setup"
import random
from dataclasses import replace

from s13lib.figures import Panel, timeline_svg
from s13lib.grading import check, hint, inputs, progress
from s13lib.profiling.recorded import recorded_names, recorded_trace
from s13lib.simulator import Span, Timeline
from s13lib.widgets import language, pick, say, show_svg


def draw(timelines, launches=18):
    """Show timelines by name, the first so many launches of each."""
    show_svg(timeline_svg([Panel(name, timeline, launches) for name, timeline in timelines.items()], language()))


# %% [markdown] lang="en"
# ## Look first
#
# Four recordings of one decode step, the same model each time, in an order that means nothing. Each picture shows the
# beginning of the step. **Predict**, for each: is it bound by launches, by the device, or is it mixed? Would a graph
# help? Would fusion?
# %% [markdown] lang="zh"
# ## 先看
#
# 四份历史记录，都是同一个模型的一步 decode，顺序没有意义。每张图画的是这一步的开头。**先猜**：每一份是受启动限制、受设备限制，还是混合？用 graph 有帮助吗？融合呢？
# %%
names = recorded_names()
random.Random(6).shuffle(names)
files = {}
for letter, name in zip("ABCD", names):
    timeline = recorded_trace(name).timeline
    where_and_when = timeline.provenance[timeline.provenance.index("SoftGPU") :]  # without the label
    files[letter] = replace(timeline, provenance=where_and_when)
draw(files)
# %% [markdown] lang="en"
# The rest of this exercise turns that look into four functions. A small timeline serves as the example for all of them:
# %% [markdown] lang="zh"
# 接下来，把这一眼变成四个函数。下面这份小小的时间线是各小题共用的例子：
# %%
example = Timeline(
    host=(Span("launch", 0, 6, 11), Span("graph launch", 6, 10, 14, "graph"), Span("launch", 16, 5, 17)),
    device=(Span("norm", 6, 2, 11), Span("gemv", 16, 3, 14), Span("add", 20, 3, 14), Span("copy", 24, 2, 17, "memcpy")),
    source="modelled",
    provenance=pick("made up for this exercise", "为本练习编的"),
)
draw({pick("the example", "例子"): example})


# %% [markdown] part="6a" lang="en"
# Write `idle_share(timeline)`: the share of the time, 0 to 1, in which the device does nothing.
#
# * The time begins with the first launch, at `timeline.start_us`: the wait for the first kernel counts. It ends with the
#   device's last work, even if the host still does something.
# * Work on two streams may overlap, and a long kernel may outlast several that start after it. Two at a time keep the
#   device busy once.
# * Copies are work.
#
# Each timeline has device work. Its `device_us`, `utilization` and `gaps` would be half the answer, so they are closed
# in this part; later parts may use them.
#
# Example: `idle_share(example)` is 16 ÷ 26, 0.615….
# %% [markdown] part="6a" lang="zh"
# 写出 `idle_share(timeline)`：设备什么也没做的时间占多少，0 到 1。
#
# * 时间从第一次启动开始，也就是 `timeline.start_us`：等第一个 kernel 的时间也算。时间到设备的最后一份工作为止，哪怕主机之后还在做别的。
# * 两个 stream 上的工作可能重叠，一个长 kernel 也可能比它后面开始的几个都结束得晚。同时跑两个，设备也只忙一份时间。
# * 拷贝也是工作。
#
# 每份时间线都有设备工作。它的 `device_us`、`utilization` 和 `gaps` 等于半个答案，所以这一小题里不能用；后面的小题可以用。
#
# 例：`idle_share(example)` 是 16 ÷ 26，即 0.615…。
# %% part="6a"
def idle_share(timeline):
    ### BEGIN SOLUTION
    idle_us, busy_until = 0.0, timeline.start_us
    for work in timeline.device:
        idle_us += max(0.0, work.start_us - busy_until)
        busy_until = max(busy_until, work.end_us)
    return idle_us / (busy_until - timeline.start_us)
    ### END SOLUTION


# %% [markdown] part="6b" lang="en"
# An idle stretch is ended by a piece of work. To know why the device idled, look at the launch of that work. Ask in this
# order:
#
# 1. Has the device already run other work of the same launch? Then it is a later kernel of a graph: `"boundary"`.
# 2. Had the launch call ended when the stretch began, or at that very moment? Then the work was queued: `"boundary"`.
# 3. The device waited for the host. For more than 1000 µs? `"pause"`.
# 4. Was it a graph launch? `"replay"`. Otherwise `"launch"`.
#
# Write `why_idle(timeline)`: a list with a pair `(duration_us, reason)` for each idle stretch, in order of time, the wait
# for the first kernel included.
#
# Example: `why_idle(example)` is `[(6, "launch"), (8, "replay"), (1, "boundary"), (1, "boundary")]`.
#
# When a check fails, it names a seed and a case. `draw({"failed": inputs("6b", seed=…, case=…)[0]})` shows it.
# %% [markdown] part="6b" lang="zh"
# 每一段空隙都由一份工作来结束。要知道设备为什么空闲，就看这份工作的启动。按下面的顺序判断：
#
# 1. 设备是不是已经做过同一次启动的其他工作？是的话，这是 graph 里靠后的 kernel：`"boundary"`。
# 2. 空隙开始时，启动调用是不是已经结束（正好在那一刻结束也算）？是的话，工作早已排好队：`"boundary"`。
# 3. 否则设备是在等主机。等了超过 1000 µs？`"pause"`。
# 4. 那是一次 graph 启动吗？`"replay"`。不是就是 `"launch"`。
#
# 写出 `why_idle(timeline)`：一个列表，每一段空隙对应一对 `(duration_us, reason)`，按时间先后排列，等第一个 kernel 的那一段也在内。
#
# 例：`why_idle(example)` 是 `[(6, "launch"), (8, "replay"), (1, "boundary"), (1, "boundary")]`。
#
# 检查没通过时，会给出 seed 和第几组输入。`draw({"failed": inputs("6b", seed=…, case=…)[0]})` 能把它画出来。
# %% part="6b"
def why_idle(timeline):
    ### BEGIN SOLUTION
    launches = {span.correlation: span for span in timeline.host}
    seen, found, busy_until = set(), [], timeline.start_us
    for work in timeline.device:
        if work.start_us > busy_until:
            duration_us, launch = work.start_us - busy_until, launches[work.correlation]
            if work.correlation in seen or launch.end_us <= busy_until:
                reason = "boundary"
            elif duration_us > 1000:
                reason = "pause"
            else:
                reason = "replay" if launch.kind == "graph" else "launch"
            found.append((duration_us, reason))
        seen.add(work.correlation)
        busy_until = max(busy_until, work.end_us)
    return found
    ### END SOLUTION


# %% [markdown] part="6c" lang="en"
# Now judge. Pauses of the host are set apart: they say nothing about launches. So **the time** is that of 6a less the
# `"pause"` stretches, and of this time
#
# * *late* is what the `"launch"` and `"replay"` stretches make,
# * *busy* is what the device works.
#
# A launch *starved* the device if its work ended a stretch of reason `"launch"`, `"replay"` or `"pause"`. The first
# launch of a timeline always does, so it is left out; so are calls that launch nothing. The share of starved launches
# among the others is *starved* (0 where there are no others).
#
# Write `bound_by(timeline)`. Its rule, in this order:
#
# 1. *late* is less than 10 % of the time: `"device-bound"`.
# 2. *late* is more than *busy*, or *starved* is at least 75 %: `"launch-bound"`.
# 3. Otherwise `"mixed"`: the device waits in one stretch, and works through a full queue in another.
#
# Example: in `example` 14 of 26 µs are late and 10 busy; one of two launches starved. `"launch-bound"`.
#
# (This is the rule of `s13 trace`, without its special cases.)
# %% [markdown] part="6c" lang="zh"
# 现在来判断。主机的停顿另算：它和启动无关。所以这里说的**时间**，是 6a 里的时间减去 `"pause"` 的空隙。在这段时间里
#
# * *late* 是 `"launch"` 和 `"replay"` 空隙的总和；
# * *busy* 是设备忙碌的时间。
#
# 如果一次启动的工作结束的是一段 `"launch"`、`"replay"` 或 `"pause"` 空隙，就说这次启动让设备**挨饿**。每份时间线的第一次启动总是如此，所以不算它；什么也不启动的调用也不算。其余启动中挨饿的占比就是 *starved*（没有其余启动时为 0）。
#
# 写出 `bound_by(timeline)`，规则按顺序是：
#
# 1. *late* 不到这段时间的 10%：`"device-bound"`。
# 2. *late* 比 *busy* 长，或者 *starved* 不小于 75%：`"launch-bound"`。
# 3. 否则是 `"mixed"`：有时设备在等，有时队列是满的，设备一直在忙。
#
# 例：`example` 的 26 µs 里，late 14，busy 10；两次启动里有一次挨饿。结果是 `"launch-bound"`。
#
# （这就是 `s13 trace` 的规则，只是没有它的那些特殊情形。）
# %% part="6c"
def bound_by(timeline):
    ### BEGIN SOLUTION
    stretches = why_idle(timeline)
    late_us = sum(us for us, reason in stretches if reason in ("launch", "replay"))
    active_us = timeline.device_us + sum(us for us, reason in stretches if reason != "pause")
    if late_us < 0.1 * active_us:
        return "device-bound"
    launches = len({work.correlation for work in timeline.device}) - 1
    starved = sum(reason != "boundary" for _, reason in stretches[1:])
    if late_us > timeline.device_us or starved >= 0.75 * launches > 0:
        return "launch-bound"
    return "mixed"
    ### END SOLUTION


# %% [markdown] part="6d" lang="en"
# What bounds a step and what would help are two questions. Each remedy removes certain stretches, and is worth a try if
# these make at least 10 % of the time (as in 6c, without the pauses):
#
# * `"graph"` removes the waits for single launches, `"launch"`;
# * `"fusion"` removes kernels, each with its launch and its boundary: `"launch"` and `"boundary"` together;
# * `"host"`, less host work between replays, removes `"replay"`.
#
# Write `what_helps(timeline)`: a list of the names that are worth it, in any order. Where it is empty, only a larger batch
# or a faster device gives more tokens a second.
#
# Example: `what_helps(example)` has all three: 6, 8 and 8 of 26 µs.
# %% [markdown] part="6d" lang="zh"
# 受什么限制，和什么能帮上忙，是两个问题。每一招能去掉某几种空隙；如果这几种空隙至少占时间的 10%（与 6c 一样，不含停顿），就值得一试：
#
# * `"graph"` 去掉等单独启动的时间，即 `"launch"`；
# * `"fusion"` 去掉 kernel，连同各自的启动和边界：`"launch"` 加 `"boundary"`；
# * `"host"` 是减少两次回放之间主机的工作，去掉 `"replay"`。
#
# 写出 `what_helps(timeline)`：值得一试的那些名字组成的列表，顺序不限。列表为空时，要想每秒生成更多 token，只有增大 batch，或者换更快的设备。
#
# 例：`what_helps(example)` 三个都有：在 26 µs 里分别占 6、8、8。
# %% part="6d"
def what_helps(timeline):
    ### BEGIN SOLUTION
    us = {"launch": 0.0, "replay": 0.0, "boundary": 0.0, "pause": 0.0}
    for duration_us, reason in why_idle(timeline):
        us[reason] += duration_us
    removes = {"graph": us["launch"], "fusion": us["launch"] + us["boundary"], "host": us["replay"]}
    active_us = timeline.device_us + us["launch"] + us["replay"] + us["boundary"]
    return [name for name, removed_us in removes.items() if removed_us >= 0.1 * active_us]
    ### END SOLUTION


# %% [markdown] lang="en"
# ## The labels
#
# Your functions on the four recordings, and what they are. Compare with what you predicted.
# %% [markdown] lang="zh"
# ## 揭晓
#
# 用你的函数来读这四份记录，再看它们各是什么。和你先前的猜测比一比。
# %%
try:
    for letter, timeline in files.items():
        helps = " + ".join(what_helps(timeline)) or "-"
        print(f"{letter}: idle {idle_share(timeline):4.0%}, {bound_by(timeline):12}, helps: {helps}")
    print(*(f"\n{letter} = {name}" for letter, name in zip(files, names)))
except NotImplementedError as error:
    say(f"First write what is missing: {error}.", f"先把缺的写完：{error}。")
