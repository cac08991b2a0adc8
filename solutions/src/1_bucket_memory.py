# %% [markdown] lang="en"
# # Exercise 1: Bucket memory
#
# An engine captures graphs for a few batch sizes and pads each batch to the next one. Here you compute the memory
# that such a layout pins, find the layout that wastes least within a budget, and then find out what a layout is worth
# on a day that it has not seen.
#
# A **layout** is the list of captured sizes. A batch of *n* is served by the smallest size that holds it; the rows
# beyond *n* are padding. Above the largest size there is no graph: that step runs eager, with its *n* rows and no
# padding.
#
# **Traffic** is a dictionary from batch size to decode steps: `{1: 30, 6: 20}` means that 30 steps ran one request, and
# 20 steps ran six.
# %% [markdown] lang="zh"
# # 练习 1：桶的内存
#
# 引擎只为少数几个 batch 大小捕获 graph，再把每个 batch 补齐到下一个尺寸。这里你来算一个布局占住多少内存，在预算之内找出浪费最少的布局，最后看看：换到它没见过的一天，这个布局还值多少。
#
# **布局**就是捕获尺寸的列表。大小为 *n* 的 batch 用装得下它的最小尺寸，超出 *n* 的行就是补齐。比最大尺寸还大的没有 graph 可用：这一步走 eager，只算自己的 *n* 行，不补齐。
#
# **流量**是一个字典，从 batch 大小到 decode 步数：`{1: 30, 6: 20}` 表示有 30 步只跑一个请求，有 20 步跑六个请求。
# %% part="setup"
from itertools import accumulate, combinations
from math import comb

from s13lib.figures.layout import LayoutPanel, layout_svg
from s13lib.grading import check, hint, inputs, progress
from s13lib.widgets import language, pick, say, show_svg


def draw(traffic, layouts):
    """Show what layouts make of a traffic: height is rows, hatched is padding."""
    counts = [traffic.get(n, 0) for n in range(max(traffic) + 1)]
    origin = pick("modelled: made up for this exercise", "模型推算：为本练习编的")
    panels = [LayoutPanel(str(layout), layout) for layout in layouts]
    show_svg(layout_svg(counts, panels, language(), origin=origin))


# %% [markdown] part="1a" lang="en"
# A captured graph pins memory in two ways:
#
# * `graph_mib` for the graph itself, its nodes and the driver's bookkeeping, however small its batch;
# * `row_mib` for each row of intermediates: a graph of size 8 needs 8 rows.
#
# With `pool="private"` each graph has rows of its own. With `pool="shared"` all graphs use the same rows one after the
# other, captured largest first.
#
# Write `pinned_mib(sizes, pool, graph_mib, row_mib)`: the memory in MiB. The sizes come in any order, and a size that
# is listed twice is captured once.
#
# Example: `[8, 2, 8]` with 10 MiB a graph and 0.5 MiB a row pins 25 MiB in private pools and 24 MiB in a shared one.
# %% [markdown] part="1a" lang="zh"
# 捕获好的一张 graph 在两处占住内存：
#
# * graph 本身，也就是节点和驱动的登记信息：`graph_mib`，batch 再小也要这么多；
# * 中间结果，每行 `row_mib`：尺寸为 8 的 graph 要 8 行。
#
# `pool="private"` 时，每张 graph 有自己的行。`pool="shared"` 时，所有 graph 先后使用同一批行，从最大的开始捕获。
#
# 写出 `pinned_mib(sizes, pool, graph_mib, row_mib)`：占住的内存，单位 MiB。尺寸的顺序是任意的；同一个尺寸列了两次，也只捕获一次。
#
# 例：`[8, 2, 8]`，每张 graph 10 MiB，每行 0.5 MiB：各用各的池占 25 MiB，共享一个池占 24 MiB。
# %% part="1a"
def pinned_mib(sizes, pool, graph_mib, row_mib):
    ### BEGIN SOLUTION
    captured = set(sizes)
    rows = sum(captured) if pool == "private" else max(captured)
    return graph_mib * len(captured) + row_mib * rows
    ### END SOLUTION


# %% [markdown] part="1b" lang="en"
# Now a small engine with **private** pools. It runs at most `max_batch` requests together, and its graphs may pin
# `budget_mib`. Which sizes pad least?
#
# Below, two layouts for the same traffic. Their sizes have the same sum, so in private pools they pin the same memory.
# **Predict** which one pads less, then look.
# %% [markdown] part="1b" lang="zh"
# 现在是一台小引擎，内存池**各自独立**。它最多同时跑 `max_batch` 个请求，graph 一共可以占 `budget_mib`。哪些尺寸补齐得最少？
#
# 下面是同一份流量的两个布局。它们的尺寸之和相同，所以各用各的池时，占的内存也相同。**先猜**哪一个补齐得少，再看图。
# %%
draw({1: 30, 2: 10, 5: 12, 6: 20, 8: 4}, [[2, 5, 8], [1, 6, 8]])


# %% [markdown] part="1b" lang="en"
# Write `best_private(traffic, max_batch, budget_mib, graph_mib, row_mib)`: the list of sizes with the fewest padding
# rows over all steps of the traffic.
#
# * The largest size must be `max_batch`, even where no step ran at it: no batch may be left without a graph.
# * The layout may pin `budget_mib` and not more. The budget always pays for `[max_batch]` alone.
# * Where several layouts are equally good, any of them is right.
#
# `max_batch` is at most 12 here, so a computer can try all layouts.
#
# Example: traffic `{2: 10, 5: 4, 8: 1}`, `max_batch` 8, 1 MiB a graph and 1 MiB a row. A budget of 12 MiB gives
# `[2, 8]` with 12 padding rows (four steps of five requests, served at eight); 18 MiB give `[2, 5, 8]` with none.
# %% [markdown] part="1b" lang="zh"
# 写出 `best_private(traffic, max_batch, budget_mib, graph_mib, row_mib)`：对这份流量的所有步来说，补齐行数最少的尺寸列表。
#
# * 最大的尺寸必须是 `max_batch`，哪怕一步也没有跑到这么大：不能有 batch 没有 graph 可用。
# * 布局最多占 `budget_mib`，正好用完也可以。预算总够只捕获 `[max_batch]`。
# * 有几个布局一样好时，哪一个都对。
#
# 这里 `max_batch` 不超过 12，计算机可以把所有布局都试一遍。
#
# 例：流量 `{2: 10, 5: 4, 8: 1}`，`max_batch` 为 8，每张 graph 1 MiB，每行 1 MiB。预算 12 MiB 时是 `[2, 8]`，补齐 12 行（有四步是五个请求，按八行来算）；预算 18 MiB 时是 `[2, 5, 8]`，不用补齐。
# %% part="1b"
def best_private(traffic, max_batch, budget_mib, graph_mib, row_mib):
    ### BEGIN SOLUTION
    def padding(sizes):
        return sum(steps * (min(size for size in sizes if size >= n) - n) for n, steps in traffic.items())

    smaller = range(1, max_batch)
    layouts = ([*some, max_batch] for k in range(max_batch) for some in combinations(smaller, k))
    affordable = (sizes for sizes in layouts if pinned_mib(sizes, "private", graph_mib, row_mib) <= budget_mib)
    return min(affordable, key=padding)
    ### END SOLUTION


# %% [markdown] part="1c" lang="en"
# Engines share one pool, and they are larger. First think: when `max_batch` is fixed and the pool is shared, what does
# the budget still decide? Then look at how many layouts there are.
# %% [markdown] part="1c" lang="zh"
# 真正的引擎共享一个池，规模也大得多。先想一想：`max_batch` 定了，池又是共享的，预算还能决定什么？再看看一共有多少个布局。
# %%
for sizes, max_batch in ((3, 12), (7, 64), (13, 256)):
    ways = comb(max_batch - 1, sizes - 1)
    say(
        f"{sizes} sizes up to {max_batch}, the largest fixed: {ways:,} layouts.",
        f"{sizes} 个尺寸，最大 {max_batch}（已固定）：{ways:,} 个布局。",
    )


# %% [markdown] part="1c" lang="en"
# Write `best_shared(traffic, max_batch, budget_mib, graph_mib, row_mib)`: as before, but with one **shared** pool,
# `max_batch` up to 64, and budgets for up to seven graphs. Each case has five seconds: too few to try all layouts.
# (When a check fails on inputs that are too long to print, `inputs("1c", seed=…, case=…)` returns them.)
#
# Adding the size that helps most, one after the other, is quick, and is not always the best. There is an exact way that
# is quick too. Suppose that the best layout's last two sizes are *a* and *b*. What can be said of its sizes up to *a*?
# And what do the batches between *a* and *b* cost?
#
# Example: traffic `{2: 10, 5: 4, 8: 1}`, `max_batch` 8, 10 MiB a graph, 1 MiB a row, budget 30 MiB: two graphs fit
# (28 MiB), and `[2, 8]` pads 12 rows.
# %% [markdown] part="1c" lang="zh"
# 写出 `best_shared(traffic, max_batch, budget_mib, graph_mib, row_mib)`：要求同上，但**共享一个池**，`max_batch` 最大 64，预算最多够七张 graph。每组输入限时五秒，把所有布局试一遍是来不及的。（检查没通过、输入又太长显示不全时，`inputs("1c", seed=…, case=…)` 会返回那组输入。）
#
# 一次加一个、每次加当下最有用的尺寸，这样很快，却不一定最优。有一种办法既精确又快。设最优布局的最后两个尺寸是 *a* 和 *b*：它到 *a* 为止的那些尺寸，有什么特点？*a* 与 *b* 之间的 batch 又要花多少行？
#
# 例：流量 `{2: 10, 5: 4, 8: 1}`，`max_batch` 为 8，每张 graph 10 MiB，每行 1 MiB，预算 30 MiB：够两张 graph（28 MiB），`[2, 8]` 补齐 12 行。
# %% part="1c"
def best_shared(traffic, max_batch, budget_mib, graph_mib, row_mib):
    ### BEGIN SOLUTION
    graphs = int((budget_mib - row_mib * max_batch) // graph_mib)
    steps_up_to = list(accumulate(traffic.get(n, 0) for n in range(max_batch + 1)))
    best = {0: (0, [])}  # last size → (fewest computed rows for batches up to it, the sizes)
    for _ in range(graphs):
        best |= {
            last: min(
                (rows + last * (steps_up_to[last] - steps_up_to[before]), [*sizes, last])
                for before, (rows, sizes) in best.items()
                if before < last
            )
            for last in range(1, max_batch + 1)
        }
    return best[max_batch][1]
    ### END SOLUTION


# %% [markdown] part="1d" lang="en"
# A layout that was fitted to a traffic looks good on it. Tomorrow's traffic is another. Below, tomorrow: two layouts on
# the same held-out traffic. Its two steps of ten requests are above the largest size and run eager: they compute real
# rows and pad nothing.
# %% [markdown] part="1d" lang="zh"
# 按某份流量选出来的布局，在那份流量上当然好看，可明天的流量是另一份。下图就是明天：两个布局用在同一份没参与拟合的流量上。其中有两步是十个请求，超过了最大尺寸，走 eager：它们计算的都是真实的行，不补齐。
# %%
draw({5: 12, 8: 3, 10: 2}, [[2, 8], [6, 8]])


# %% [markdown] part="1d" lang="en"
# Write `choose_layout(layouts, fitted, held_out)`. It returns three values:
#
# 1. the index of the layout with the smallest share of padding on `held_out` (the first, where several are equal),
# 2. the share of padding of that layout on `fitted`,
# 3. its share of padding on `held_out`.
#
# The **share of padding** is padding rows ÷ all computed rows, padding and real together, over all steps. The rows of
# eager steps are computed rows too. Each layout is sorted, and all end in the same largest size.
#
# Example: `choose_layout([[2, 8], [6, 8]], fitted={2: 30, 6: 10}, held_out={5: 12, 8: 3, 10: 2})` is
# `(1, 0.5, 0.10344…)`: on the traffic that it was fitted to, the other layout would have looked much better.
# %% [markdown] part="1d" lang="zh"
# 写出 `choose_layout(layouts, fitted, held_out)`，返回三个值：
#
# 1. 在 `held_out` 上补齐占比最小的布局的下标（并列时取第一个）；
# 2. 这个布局在 `fitted` 上的补齐占比；
# 3. 它在 `held_out` 上的补齐占比。
#
# **补齐占比**是补齐的行数 ÷ 计算过的所有行（补齐加真实的行），对所有步一起算。走 eager 的步，它的行也是计算过的行。每个布局都已排好序，而且最大尺寸相同。
#
# 例：`choose_layout([[2, 8], [6, 8]], fitted={2: 30, 6: 10}, held_out={5: 12, 8: 3, 10: 2})` 得 `(1, 0.5, 0.10344…)`：单看拟合用的流量，另一个布局要好看得多。
# %% part="1d"
def choose_layout(layouts, fitted, held_out):
    ### BEGIN SOLUTION
    def share(sizes, traffic):
        padding = real = 0
        for n, steps in traffic.items():
            served = next((size for size in sizes if size >= n), n)
            padding += steps * (served - n)
            real += steps * n
        return padding / (padding + real)

    best = min(range(len(layouts)), key=lambda i: share(layouts[i], held_out))
    return best, share(layouts[best], fitted), share(layouts[best], held_out)
    ### END SOLUTION


# %% [markdown] lang="en"
# Done? The library does all of this too: `best_layout(traffic, max_batch=256, budget=…, pool=…)` in `s13lib.buckets`,
# and `held_out` for the last part. `s13 buckets --traffic FILE` does it for your own traffic.
# %% [markdown] lang="zh"
# 做完了吗？这些库里也都有：`s13lib.buckets` 里的 `best_layout(traffic, max_batch=256, budget=…, pool=…)`，最后一题对应 `held_out`。`s13 buckets --traffic FILE` 可以用在你自己的流量上。
