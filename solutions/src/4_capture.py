# %% [markdown] lang="en"
# # Exercise 4: Capture
#
# `device.graph()` records launches, `graph.replay()` runs them again at the recorded addresses. That is all a bare graph
# does. What lies between it and a runner that one may use in a server is this exercise: static buffers, copying in,
# waiting, copying out, rows that nobody filled, a warm-up, and a weight that moves.
#
# You write three classes, each a little more careful than the one before. The device is `device`; what you need of it:
#
# | | |
# |---|---|
# | `device.zeros(shape)`, `device.zeros(rows, torch.int64)` | a tensor on the device, at an address that stays |
# | `with device.graph() as graph:` | record the launches inside instead of running them |
# | `graph.replay()` | run them, asynchronously: it returns at once |
# | `device.synchronize()` | wait until all that was launched or replayed has run |
# | `tensor.copy_(other)`, `tensor.fill_(number)` | write into a tensor that exists |
# %% [markdown] lang="zh"
# # 练习 4：捕获
#
# `device.graph()` 把启动录下来，`graph.replay()` 在录下的地址上再跑一遍。裸的 graph 只会这些。从它到一个能放进服务里用的 runner，中间还差什么，就是这个练习：静态缓冲区、拷入、等待、拷出、没有人填的行、预热，还有会搬家的权重。
#
# 你要写三个类，一个比一个周到。设备是 `device`，用得到的有：
#
# | | |
# |---|---|
# | `device.zeros(shape)`、`device.zeros(rows, torch.int64)` | 设备上的张量，地址不会变 |
# | `with device.graph() as graph:` | 录下里面的启动，而不执行 |
# | `graph.replay()` | 异步执行：调用马上返回 |
# | `device.synchronize()` | 等到所有启动和回放都执行完 |
# | `tensor.copy_(other)`、`tensor.fill_(number)` | 往已有的张量里写 |
# %% part="setup"
import torch

import s13lib.kernels.softgpu
from s13lib.device import CaptureError, best_device
from s13lib.grading import check, hint, inputs, progress

device = best_device(default="softgpu")


def spans(call):
    """What the host and the device did during a call, by name."""
    with device.record() as recording:
        call()
    timeline = recording.timeline
    print("host:  ", ", ".join(span.name for span in timeline.host))
    print("device:", ", ".join(span.name for span in timeline.device))


# %% [markdown] part="4a" lang="en"
# A *step* is a function that launches a few kernels. Here is one of two launches; the check brings others:
# %% [markdown] part="4a" lang="zh"
# 一**步**就是启动几个 kernel 的一个函数。下面这个启动两次；检查会用别的：
# %%
class ShiftStep:
    """out = (x + shift)·weightᵀ; x, shift and out are (rows, width)."""

    def __init__(self, weight):
        self.weight = device.tensor(weight)

    def __call__(self, x, shift, out):
        shifted = device.empty(tuple(x.shape))
        device.kernels.add(x, shift, shifted)
        device.kernels.linear(shifted, self.weight, out)


def run_it_eagerly():
    step = ShiftStep([[1.0, 0.0], [0.0, 2.0]])
    x, shift, out = device.tensor([[1.0, 1.0]]), device.tensor([[10.0, 10.0]]), device.empty((1, 2))
    spans(lambda: step(x, shift, out))
    print("out:   ", out.tolist())


run_it_eagerly()


# %% [markdown] part="4a" lang="en"
# Write a class `FixedRunner(device, step, rows, width)`:
#
# * The constructor makes the buffers that the step needs, float32 (rows, width) each, and captures the step, once.
#   After that `step` is never called again.
# * `run(x, shift)` computes one step and returns its output, (rows, width). `x` is a float32 tensor (rows, width),
#   another one at each call; `shift` is a Python number, the same for all elements, another one at each call. When it
#   returns, the output is there. It replays once, and launches nothing else (copies are allowed).
#
# With the step above, `run(torch.tensor([[1.0, 1.0]]), 10.0)` gives `[[11, 22]]`, and after that
# `run(torch.tensor([[0.0, 1.0]]), 1.0)` gives `[[1, 4]]`. The check counts on the device what was captured, replayed and
# launched.
# %% [markdown] part="4a" lang="zh"
# 写一个类 `FixedRunner(device, step, rows, width)`：
#
# * 构造函数建好 step 需要的缓冲区，都是 float32、(rows, width)，然后捕获 step，只捕获一次。从此以后不再调用 `step`。
# * `run(x, shift)` 算一步并返回输出，形状 (rows, width)。`x` 是 float32 张量 (rows, width)，每次调用都不同；`shift` 是一个 Python 数，对所有元素都一样，每次调用也不同。返回时输出必须已经算好。每次只回放一次，不再启动别的（拷贝可以）。
#
# 用上面的 step，`run(torch.tensor([[1.0, 1.0]]), 10.0)` 得到 `[[11, 22]]`，接着 `run(torch.tensor([[0.0, 1.0]]), 1.0)` 得到 `[[1, 4]]`。捕获、回放和启动各有几次，检查是在设备上数的。
# %% part="4a"
class FixedRunner:
    def __init__(self, device, step, rows, width):
        ### BEGIN SOLUTION
        self.device = device
        self.x = device.zeros((rows, width))
        self.shift = device.zeros((rows, width))
        self.out = device.zeros((rows, width))
        with device.graph() as self.graph:
            step(self.x, self.shift, self.out)
        ### END SOLUTION

    def run(self, x, shift):
        ### BEGIN SOLUTION
        self.x.copy_(x)
        self.shift.fill_(shift)
        self.graph.replay()
        self.device.synchronize()
        return self.out
        ### END SOLUTION


# %% [markdown] part="4a" lang="en"
# The same step through your runner. What does the host do now, and what the device?
# %% [markdown] part="4a" lang="zh"
# 同一步，换成你的 runner。现在主机做了什么，设备又做了什么？
# %%
def run_it_as_a_graph():
    runner = FixedRunner(device, ShiftStep([[1.0, 0.0], [0.0, 2.0]]), 1, 2)
    spans(lambda: runner.run(torch.tensor([[1.0, 1.0]]), 10.0))
    print("out:   ", runner.run(torch.tensor([[1.0, 1.0]]), 10.0).tolist())


run_it_as_a_graph()


# %% [markdown] part="4b" lang="en"
# A real step also writes: each row stores its key and value in a cache, at its slot. This step does so in three
# launches. Slot −1 stores nothing.
# %% [markdown] part="4b" lang="zh"
# 真正的一步还要写东西：每一行把自己的 key 和 value 存进缓存里它的 slot。下面这一步启动三次，就是这样做的。slot −1 表示不存。
# %%
class CacheStep:
    """out = norm(x)·weightᵀ; row i stores norm(x[i]) and out[i] at slots[i]. x, out (rows, width), slots int64 (rows,)."""

    def __init__(self, weight, slots):
        width = len(weight)
        self.weight, self.gain = device.tensor(weight), device.tensor(torch.ones(width))
        self.k_cache, self.v_cache = device.zeros((1, slots, 1, width)), device.zeros((1, slots, 1, width))

    def __call__(self, x, slots, out):
        normed = device.empty(tuple(x.shape))
        device.kernels.rms_norm(x, self.gain, 1e-5, normed)
        device.kernels.linear(normed, self.weight, out)
        device.kernels.append_kv(normed, out, slots, self.k_cache, self.v_cache)

    def stored(self):
        """Slots that hold something."""
        return self.v_cache[0, :, 0].any(1).nonzero().flatten().tolist()


# %% [markdown] part="4b" lang="en"
# Write `PaddedRunner(device, step, rows, width)`, captured once for `rows` rows, whose batches are shorter at times:
#
# * `run(x, slots)`: `x` float32 (n, width), `slots` int64 (n,), with n from 1 to `rows`. Row i is stored at `slots[i]`,
#   and **nothing else is stored**, whatever an earlier batch left in the buffers: its slots may belong to others by now.
# * It returns the n rows of the output, (n, width). A result that the caller keeps must not change when `run` is called
#   again.
# * More than `rows` rows: a `ValueError`, before anything happens.
#
# As in 4a, one capture in the constructor, one replay a call, and no other launches but copies; and the constructor
# stores nothing.
# %% [markdown] part="4b" lang="zh"
# 写出 `PaddedRunner(device, step, rows, width)`：按 `rows` 行捕获一次，而来的 batch 有时更短：
#
# * `run(x, slots)`：`x` 是 float32、(n, width)，`slots` 是 int64、(n,)，n 从 1 到 `rows`。第 i 行存到 `slots[i]`，**别的什么都不存**，不管之前的 batch 在缓冲区里留下了什么：那些 slot 现在可能已经是别人的了。
# * 返回输出的 n 行，形状 (n, width)。调用者留着的结果，在下一次 `run` 之后不能变。
# * 超过 `rows` 行：什么都不做，先抛出 `ValueError`。
#
# 和 4a 一样，只在构造函数里捕获一次，每次调用回放一次，除了拷贝不启动别的；构造函数也不能往缓存里存东西。
# %% part="4b"
class PaddedRunner:
    def __init__(self, device, step, rows, width):
        ### BEGIN SOLUTION
        self.device, self.rows = device, rows
        self.x, self.out = device.zeros((rows, width)), device.zeros((rows, width))
        self.slots = device.zeros(rows, torch.int64)
        self.slots.fill_(-1)
        with device.graph() as self.graph:
            step(self.x, self.slots, self.out)
        ### END SOLUTION

    def run(self, x, slots):
        ### BEGIN SOLUTION
        n = len(x)
        if n > self.rows:
            raise ValueError(f"{n} rows: this graph was captured for at most {self.rows}")
        self.x[:n].copy_(x)
        self.slots[:n].copy_(slots)
        self.slots[n:].fill_(-1)
        self.graph.replay()
        self.device.synchronize()
        return self.out[:n].clone()
        ### END SOLUTION


# %% [markdown] part="4b" lang="en"
# Three rows at slots 5, 6, 7; then the cache is emptied, and one row comes, at slot 9. **Predict** what is stored then.
# %% [markdown] part="4b" lang="zh"
# 先来三行，存到 slot 5、6、7；然后把缓存清空，再来一行，存到 slot 9。**先猜**：最后存着的是哪些？
# %%
def shrink():
    step = CacheStep([[1.0, 0.0], [0.0, 2.0]], slots=12)
    runner = PaddedRunner(device, step, 4, 2)
    runner.run(torch.ones(3, 2), torch.tensor([5, 6, 7]))
    print("stored after three rows:", step.stored())
    step.k_cache.zero_()
    step.v_cache.zero_()
    runner.run(torch.ones(1, 2), torch.tensor([9]))
    print("stored after one row:   ", step.stored())


shrink()


# %% [markdown] part="4c" lang="en"
# On CUDA a step must run once before it is captured: libraries make their workspaces at their first call, and a capture
# cannot record that. SoftGPU's kernels need no such thing, so here is a step that does:
# %% [markdown] part="4c" lang="zh"
# 在 CUDA 上，捕获之前必须先跑一次：有些库第一次被调用时才创建工作区，而捕获录不下这件事。SoftGPU 的 kernel 不需要这样，所以这里准备了一个需要的 step：
# %%
class LazyStep(CacheStep):
    """Makes its gain when it is called for the first time."""

    def __init__(self, weight, slots):
        super().__init__(weight, slots)
        self.gain = None

    def __call__(self, x, slots, out):
        if self.gain is None:
            self.gain = device.tensor(torch.ones(len(self.weight)))
        super().__call__(x, slots, out)


def capture_it_cold():
    try:
        PaddedRunner(device, LazyStep([[1.0, 0.0], [0.0, 2.0]], slots=12), 4, 2)
    except CaptureError as error:
        print("CaptureError:", error)


capture_it_cold()


# %% [markdown] part="4c" lang="en"
# Write `SafeRunner(device, step, rows, width)`: all that `PaddedRunner` does, and
#
# * it works with such a step. The warm-up runs for real; still, the constructor must store nothing.
# * `step.weight` is the tensor that the step reads. When it was **replaced** after the capture (`step.weight = other`) or
#   its **memory** was (`step.weight.data = other`), the graph goes on with the old one. Then `run` raises a `ValueError`
#   before anything runs.
# * A weight that was changed **in place** (`step.weight.mul_(2)`) is fine: the graph reads the new values. And once the
#   old weight is put back, `run` works again. It never captures a second time.
# %% [markdown] part="4c" lang="zh"
# 写出 `SafeRunner(device, step, rows, width)`：`PaddedRunner` 能做的它都能做，另外
#
# * 它能用于这样的 step。预热是真的跑一步；即便如此，构造函数也不能往缓存里存任何东西。
# * `step.weight` 是 step 读取的权重张量。如果捕获之后它被**换掉**了（`step.weight = other`），或者它的**内存**被换掉了（`step.weight.data = other`），graph 会继续用旧的。这时 `run` 要在运行任何东西之前抛出 `ValueError`。
# * **原地**修改的权重（`step.weight.mul_(2)`）没有问题：graph 会读到新数值。把旧权重换回来之后，`run` 又能正常工作。任何时候都不捕获第二次。
# %% part="4c"
class SafeRunner:
    def __init__(self, device, step, rows, width):
        ### BEGIN SOLUTION
        self.device, self.step, self.rows = device, step, rows
        self.x, self.out = device.zeros((rows, width)), device.zeros((rows, width))
        self.slots = device.zeros(rows, torch.int64)
        self.slots.fill_(-1)  # before the warm-up: it runs for real
        step(self.x, self.slots, self.out)
        device.synchronize()
        with device.graph() as self.graph:
            step(self.x, self.slots, self.out)
        self.weight_address = step.weight.data_ptr()
        ### END SOLUTION

    def run(self, x, slots):
        ### BEGIN SOLUTION
        n = len(x)
        if n > self.rows:
            raise ValueError(f"{n} rows: this graph was captured for at most {self.rows}")
        if self.step.weight.data_ptr() != self.weight_address:
            raise ValueError("step.weight was replaced after the capture: the graph still reads the old one")
        self.x[:n].copy_(x)
        self.slots[:n].copy_(slots)
        self.slots[n:].fill_(-1)
        self.graph.replay()
        self.device.synchronize()
        return self.out[:n].clone()
        ### END SOLUTION


# %% [markdown] part="4c" lang="en"
# That is a `GraphRunner`. The library's differs in little: five inputs instead of two, padding rows that another object
# chooses, buffers and a memory pool that several runners share. Read it: `s13lib/graphs/runner.py`.
# %% [markdown] part="4c" lang="zh"
# 这就是一个 `GraphRunner`。库里的那个差别不大：输入是五个而不是两个，补齐行由另一个对象决定，几个 runner 共用缓冲区和内存池。可以读一读 `s13lib/graphs/runner.py`。
