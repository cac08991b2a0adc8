"""Exercise 1: what learners write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate, combinations

from s13lib.grading.part import Text, Wrong

# ---- 1a


def repeats_counted(sizes, pool, graph_mib, row_mib):
    """Each entry of the list is a graph."""
    return graph_mib * len(sizes) + row_mib * (sum(sizes) if pool == "private" else max(sizes))


def always_private(sizes, pool, graph_mib, row_mib):
    """The pool is not looked at: private."""
    return graph_mib * len(set(sizes)) + row_mib * sum(set(sizes))


def always_shared(sizes, pool, graph_mib, row_mib):
    """The pool is not looked at: shared."""
    return graph_mib * len(set(sizes)) + row_mib * max(sizes)


def one_graph_when_shared(sizes, pool, graph_mib, row_mib):
    """A shared pool shares the graphs' own part too."""
    return graph_mib + row_mib * max(sizes) if pool == "shared" else always_private(sizes, pool, graph_mib, row_mib)


def rows_alone(sizes, pool, graph_mib, row_mib):
    """The graphs' own part is left out."""
    return row_mib * (sum(set(sizes)) if pool == "private" else max(sizes))


def last_is_largest(sizes, pool, graph_mib, row_mib):
    """The list is taken for sorted."""
    return graph_mib * len(set(sizes)) + row_mib * (sum(set(sizes)) if pool == "private" else sizes[-1])


# ---- 1b and 1c. Each shortcut is a way to price padding, a way to price memory, or a way to search.

Search = tuple[dict[int, int], int, float, float, float]


def _padding(sizes: Iterable[int], traffic: dict[int, int]) -> int:
    sizes = sorted(sizes)
    served = ((next((s for s in sizes if s >= n), n), n, steps) for n, steps in traffic.items())
    return sum((size - n) * steps for size, n, steps in served)


def _next_size_up(sizes: Iterable[int], traffic: dict[int, int]) -> int:
    # A batch of exactly a captured size goes to the next one.
    sizes = sorted(sizes)
    served = ((next((s for s in sizes if s > n), sizes[-1]), n, steps) for n, steps in traffic.items())
    return sum((size - n) * steps for size, n, steps in served)


def _private(sizes: list[int], graph_mib: float, row_mib: float) -> float:
    return graph_mib * len(sizes) + row_mib * sum(sizes)


def _shared(sizes: list[int], graph_mib: float, row_mib: float) -> float:
    return graph_mib * len(sizes) + row_mib * max(sizes)


def _unweighted(traffic: dict[int, int]) -> dict[int, int]:
    return dict.fromkeys(traffic, 1)


@cache
def _subsets(max_batch: int) -> list[list[int]]:
    return [list(some) for k in range(max_batch) for some in combinations(range(1, max_batch), k)]


def _tried_all(problem: Search, memory: Callable, padding: Callable = _padding, key: Callable | None = None):
    """All layouts that end in max_batch: the one that is best by ``key``, at first by its padding."""
    traffic, max_batch, budget, graph_mib, row_mib = problem
    layouts = ([*some, max_batch] for some in _subsets(max_batch))
    affordable = [s for s in layouts if memory(s, graph_mib, row_mib) <= budget]
    return min(affordable, key=key or (lambda sizes: (padding(sizes, traffic), len(sizes))))


def _greedy(problem: Search, memory: Callable) -> list[int]:
    """Add the size that saves most, while the budget lasts."""
    traffic, max_batch, budget, graph_mib, row_mib = problem
    sizes = [max_batch]
    while True:
        more = [[n, *sizes] for n in range(1, max_batch) if n not in sizes]
        more = [s for s in more if memory(s, graph_mib, row_mib) <= budget]
        best = min(more, key=lambda s: _padding(s, traffic), default=sizes)
        if _padding(best, traffic) >= _padding(sizes, traffic):
            return sorted(sizes)
        sizes = best


def _powers(problem: Search, memory: Callable) -> list[int]:
    """1, 2, 4, … from the smallest, while the budget lasts."""
    _, max_batch, budget, graph_mib, row_mib = problem
    sizes = [max_batch]
    for bit in range(max_batch.bit_length()):
        more = sorted({1 << bit, *sizes})
        if 1 << bit < max_batch and memory(more, graph_mib, row_mib) <= budget:
            sizes = more
    return sizes


def private_greedy(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Adds one size at a time."""
    return _greedy((traffic, max_batch, budget_mib, graph_mib, row_mib), _private)


def private_powers(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Powers of two."""
    return _powers((traffic, max_batch, budget_mib, graph_mib, row_mib), _private)


def private_top_forgotten(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """The layout may end anywhere: the single size 1 pads nothing, since all else is eager."""
    return [1]


def private_over_budget(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Priced as one shared pool."""
    return _tried_all((traffic, max_batch, budget_mib, graph_mib, row_mib), _shared)


def private_below_budget(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """A layout that meets the budget exactly is thrown away."""
    smallest = [max_batch]
    if _private(smallest, graph_mib, row_mib) == budget_mib:
        return smallest
    return _tried_all((traffic, max_batch, budget_mib - 0.01, graph_mib, row_mib), _private)


def private_most_sizes(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """As many sizes as the budget buys, then the least padding among those."""
    problem = (traffic, max_batch, budget_mib, graph_mib, row_mib)
    return _tried_all(problem, _private, key=lambda sizes: (-len(sizes), _padding(sizes, traffic)))


def private_unweighted(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Each batch size counts once, however many steps ran at it."""
    return _tried_all((_unweighted(traffic), max_batch, budget_mib, graph_mib, row_mib), _private)


def private_next_size_up(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Off by one: n equal to a size goes to the next size."""
    return _tried_all((traffic, max_batch, budget_mib, graph_mib, row_mib), _private, _next_size_up)


def _best_of(k: int, traffic: dict[int, int], max_batch: int) -> list[int]:
    """The best layout with at most k sizes, by dynamic programming over the last size."""
    steps = list(accumulate(traffic.get(n, 0) for n in range(max_batch + 1)))
    best = {0: (0, [])}  # last size → computed rows so far, sizes
    for _ in range(k):
        grown = dict(best)
        for last in range(1, max_batch + 1):
            ways = [
                (rows + last * (steps[last] - steps[before]), [*sizes, last])
                for before, (rows, sizes) in best.items()
                if before < last
            ]
            grown[last] = min([*ways, grown[last]] if last in grown else ways)
        best = grown
    return best[max_batch][1]


def _affordable(max_batch: int, budget_mib: float, graph_mib: float, row_mib: float) -> int:
    return int((budget_mib - row_mib * max_batch) / graph_mib)


def shared_greedy(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Adds one size at a time."""
    return _greedy((traffic, max_batch, budget_mib, graph_mib, row_mib), _shared)


def shared_even(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """A plain grid of as many sizes as the budget buys."""
    k = _affordable(max_batch, budget_mib, graph_mib, row_mib)
    return [round(max_batch * i / k) for i in range(1, k + 1)]


def shared_quantiles(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Sizes that cut the steps into equal parts."""
    k = _affordable(max_batch, budget_mib, graph_mib, row_mib)
    steps = [n for n in sorted(traffic) for _ in range(traffic[n])]
    return sorted({*(steps[len(steps) * i // k - 1] for i in range(1, k)), max_batch})


def shared_powers(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Powers of two, from the smallest."""
    return _powers((traffic, max_batch, budget_mib, graph_mib, row_mib), _shared)


def shared_one_too_few(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """The top is counted twice."""
    return _best_of(_affordable(max_batch, budget_mib, graph_mib, row_mib) - 1, traffic, max_batch)


def shared_one_too_many(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """The top is not counted."""
    return _best_of(_affordable(max_batch, budget_mib, graph_mib, row_mib) + 1, traffic, max_batch)


def shared_unweighted(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """Each batch size counts once."""
    return _best_of(_affordable(max_batch, budget_mib, graph_mib, row_mib), _unweighted(traffic), max_batch)


def shared_top_forgotten(traffic, max_batch, budget_mib, graph_mib, row_mib):
    """All sizes go where the traffic is; batches above are eager."""
    return _best_of(_affordable(max_batch, budget_mib, graph_mib, row_mib), traffic, max(traffic))


# ---- 1d


def _shares(layouts, traffic, share):
    return [share(sizes, traffic) for sizes in layouts]


def _rows(sizes: list[int], traffic: dict[int, int], above: Callable = lambda n, top: n) -> tuple[int, int]:
    """Padding and real rows; ``above`` says as how many rows a batch above the top counts."""
    padding = real = 0
    for n, steps in traffic.items():
        size = next((s for s in sizes if s >= n), None)
        padding += steps * (size - n) if size else 0
        real += steps * (n if size else above(n, sizes[-1]))
    return padding, real


def _share(sizes, traffic):
    padding, real = _rows(sizes, traffic)
    return padding / (padding + real)


def _choice(layouts, fitted, held_out, share=_share, by=None):
    chosen = _shares(layouts, held_out if by is None else by, share)
    best = chosen.index(min(chosen))
    return best, share(layouts[best], fitted), share(layouts[best], held_out)


def chosen_on_fitted(layouts, fitted, held_out):
    """The best on the traffic that it was fitted to."""
    return _choice(layouts, fitted, held_out, by=fitted)


def over_real_rows(layouts, fitted, held_out):
    """Padding ÷ real rows."""

    def share(sizes, traffic):
        padding, real = _rows(sizes, traffic)
        return padding / real

    return _choice(layouts, fitted, held_out, share)


def eager_rows_forgotten(layouts, fitted, held_out):
    """Steps above the largest size are skipped."""

    def share(sizes, traffic):
        padding, real = _rows(sizes, traffic, lambda n, top: 0)
        return padding / (padding + real)

    return _choice(layouts, fitted, held_out, share)


def cut_to_the_top(layouts, fitted, held_out):
    """A batch above the largest size counts as the largest size."""

    def share(sizes, traffic):
        padding, real = _rows(sizes, traffic, lambda n, top: top)
        return padding / (padding + real)

    return _choice(layouts, fitted, held_out, share)


def mean_of_steps(layouts, fitted, held_out):
    """The mean of the steps' own shares: a step of 2 rows weighs as much as one of 200."""

    def share(sizes, traffic):
        total = sum(steps * _share(sizes, {n: 1}) for n, steps in traffic.items())
        return total / sum(traffic.values())

    return _choice(layouts, fitted, held_out, share)


def steps_forgotten(layouts, fitted, held_out):
    """Each batch size counts once."""
    return _choice(layouts, _unweighted(fitted), _unweighted(held_out))


def both_together(layouts, fitted, held_out):
    """Chosen on both traffics together."""
    both = {n: fitted.get(n, 0) + held_out.get(n, 0) for n in {*fitted, *held_out}}
    return _choice(layouts, fitted, held_out, by=both)


WRONG = {
    "1a": (
        Wrong("repeats counted", repeats_counted, Text(
            "A size that stands in the list twice is captured once: look at a list with a repeated size.",
            "同一个尺寸在列表里出现两次，也只捕获一次：看看有重复尺寸的那组输入。")),
        Wrong("always private pools", always_private, Text(
            "Your answer is the same for both pools. With one shared pool all graphs use the same rows, one after the other.",
            "你的答案对两种内存池都一样。共享一个池时，所有 graph 先后使用同一批行。")),
        Wrong("always one shared pool", always_shared, Text(
            "Your answer is the same for both pools. With private pools no graph may use another one's rows.",
            "你的答案对两种内存池都一样。各用各的池时，一张 graph 不能用别的 graph 的行。")),
        Wrong("one graph when shared", one_graph_when_shared, Text(
            "The pool shares the rows. Each graph's own part, its nodes and bookkeeping, cannot be shared.",
            "共享内存池只共享那些行。每张 graph 自己的部分（节点和登记信息）是共享不了的。")),
        Wrong("rows alone", rows_alone, Text(
            "These are the rows' MiB alone. Each captured graph also costs graph_mib, however small it is.",
            "这只是那些行的 MiB。每捕获一张 graph，无论多小，还要付一份 graph_mib。")),
        Wrong("last is largest", last_is_largest, Text(
            "The sizes come in any order: the last one need not be the largest.",
            "尺寸的顺序是任意的：最后一个不一定最大。")),
    ),
    "1b": (
        Wrong("top forgotten", private_top_forgotten, Text(
            "A batch above the largest size pads nothing, so an answer without large sizes looks free. It must reach max_batch.",
            "比最大尺寸还大的 batch 不补齐，所以不要大尺寸看上去一点也不浪费。但尺寸必须一直到 max_batch。")),
        Wrong("priced as a shared pool", private_over_budget, Text(
            "This fits the budget only with one shared pool. Here each graph keeps rows of its own: the sizes add up.",
            "只有共享一个池时，这个布局才放得进预算。这里每张 graph 都有自己的行：各个尺寸要加起来。")),
        Wrong("greedy", private_greedy, Text(
            "The size that saves most right now may be in the way of two better ones. Adding one at a time does not find the best.",
            "眼下省得最多的那个尺寸，可能挡住后面更好的两个。一次加一个，找不到最优。")),
        Wrong("as many sizes as possible", private_most_sizes, Text(
            "More sizes are not the aim: a few sizes in the right places may pad less than many small, cheap ones.",
            "目标不是尺寸多：少数几个放对地方的尺寸，可能比许多便宜的小尺寸补齐得更少。")),
        Wrong("steps not counted", private_unweighted, Text(
            "Each batch size counts once in your padding. Weigh it with the number of steps that ran at it.",
            "在你的补齐里，每个 batch 大小只算了一次。要乘上在这个大小上跑了多少步。")),
        Wrong("next size up", private_next_size_up, Text(
            "A batch that equals a captured size needs no padding: it is served by that size, not by the next.",
            "batch 恰好等于某个捕获尺寸时不用补齐：就用这个尺寸，而不是下一个。")),
        Wrong("strictly below the budget", private_below_budget, Text(
            "A layout that uses the budget up to the last MiB is still within it.",
            "把预算用到最后一个 MiB 的布局，仍然没有超出预算。")),
        Wrong("powers of two", private_powers, Text(
            "Powers of two do not look at the traffic. Where do most of the steps lie?",
            "2 的幂没有看流量。大多数的步落在哪里？")),
    ),
    "1c": (
        Wrong("greedy", shared_greedy, Text(
            "Adding the size that saves most, one at a time, does not find the best: an early choice cannot be taken back.",
            "一次加一个当下省得最多的尺寸，找不到最优：早先的选择收不回来。")),
        Wrong("one size too many", shared_one_too_many, Text(
            "That is one graph more than the budget pays for: max_batch is one of the graphs too.",
            "这比预算付得起的多了一张 graph：max_batch 本身也是其中一张。")),
        Wrong("one size too few", shared_one_too_few, Text(
            "The budget pays for one more graph. max_batch is one of them, and its rows are paid once.",
            "预算还付得起一张 graph。max_batch 算其中一张，它的行只付一次。")),
        Wrong("steps not counted", shared_unweighted, Text(
            "Each batch size counts once in your padding. Weigh it with the number of steps that ran at it.",
            "在你的补齐里，每个 batch 大小只算了一次。要乘上在这个大小上跑了多少步。")),
        Wrong("top forgotten", shared_top_forgotten, Text(
            "Your sizes end where this traffic ends. The layout must reach max_batch, even if no step ran there.",
            "你的尺寸到这份流量的最大 batch 为止。布局必须一直到 max_batch，哪怕那里一步也没有跑过。")),
        Wrong("plain grid", shared_even, Text(
            "An even grid does not look at the traffic. It is a good guess for unknown traffic, not the least padding for this one.",
            "均匀的尺寸没有看流量。流量未知时它是个好选择，但对这份流量，它的补齐不是最少的。")),
        Wrong("quantiles", shared_quantiles, Text(
            "Equal numbers of steps in each interval is not least padding: a step may be padded by one row or by many.",
            "让每个区间的步数相等，并不等于补齐最少：同样一步，可能补一行，也可能补很多行。")),
        Wrong("powers of two", shared_powers, Text(
            "Powers of two do not look at the traffic. Where do most of the steps lie?",
            "2 的幂没有看流量。大多数的步落在哪里？")),
    ),
    "1d": (
        Wrong("chosen on the fitted traffic", chosen_on_fitted, Text(
            "You chose by the traffic that the layouts were fitted to: that says how well they remember, not how well they hold.",
            "你按拟合用的流量来选：那只说明布局记得多牢，说明不了换一份流量还行不行。")),
        Wrong("over the real rows", over_real_rows, Text(
            "That is padding ÷ real rows. The share is of all computed rows: padding and real together.",
            "这是补齐 ÷ 真实的行。要的是补齐占所有计算行的比例：分母是补齐加真实的行。")),
        Wrong("eager rows forgotten", eager_rows_forgotten, Text(
            "Steps above the largest size run eager. They pad nothing, but their rows are computed rows too.",
            "超过最大尺寸的步走 eager。它们不补齐，但它们的行也是计算过的行。")),
        Wrong("cut to the top", cut_to_the_top, Text(
            "A batch above the largest size is not cut to it: it runs eager with all of its rows.",
            "超过最大尺寸的 batch 不会被裁到最大尺寸：它带着所有的行走 eager。")),
        Wrong("mean of the steps' shares", mean_of_steps, Text(
            "A mean of the steps' own shares lets a step of two rows weigh as much as one of two hundred. Add up rows, divide once.",
            "把每一步自己的比例取平均，两行的一步就和两百行的一步一样重。先把行数加起来，最后只除一次。")),
        Wrong("steps not counted", steps_forgotten, Text(
            "Each batch size counts once in your sums. Weigh it with the number of steps that ran at it.",
            "在你的求和里，每个 batch 大小只算了一次。要乘上在这个大小上跑了多少步。")),
        Wrong("chosen on both traffics", both_together, Text(
            "You chose on both traffics together. The fitted one has had its say already: choose on the held-out one alone.",
            "你是在两份流量合起来之后选的。拟合用的那份已经起过作用了：只按没参与拟合的那份来选。")),
    ),
}  # fmt: skip
