"""Exercise 1: what its checks accept and refuse, and that its references are right by another way."""

from itertools import combinations

import numpy as np
import pytest

from s13lib.errors import InputError
from s13lib.grading import guard, inputs
from s13lib.grading.judge import judge
from s13lib.grading.manifest import part
from s13lib.grading.part import Refused

TRAFFIC = {2: 10, 5: 4, 8: 1}


def padding(sizes, traffic):
    return sum(steps * (min(size for size in sizes if size >= n) - n) for n, steps in traffic.items())


def layouts(max_batch):
    return [[*some, max_batch] for k in range(max_batch) for some in combinations(range(1, max_batch), k)]


def pinned(sizes, pool, graph_mib, row_mib):
    return graph_mib * len(sizes) + row_mib * (sum(sizes) if pool == "private" else max(sizes))


def checked(key, answer, seed=1):
    return judge(key, lambda case: guard.observe(part(key), answer, case), seed)


@pytest.mark.parametrize(
    ("sizes", "private", "shared"),
    [([4, 4, 2], 23.0, 22.0), ([16, 1, 8, 4], 54.5, 48.0), ([8, 2, 8], 25.0, 24.0)],
)
def test_repeated_and_unsorted_sizes(sizes, private, shared):  # FastDeploy#2902
    reference = part("1a").reference
    assert reference(sizes, "private", 10, 0.5) == private
    assert reference(sizes, "shared", 10, 0.5) == shared


@pytest.mark.parametrize(("key", "pool"), [("1b", "private"), ("1c", "shared")])
def test_the_reference_is_the_best_of_all_layouts(key, pool):
    this = part(key)
    for seed in range(5):
        for case in this.make(np.random.default_rng(seed)):
            traffic, max_batch, budget, *memory = case
            if max_batch > 12:  # too many to try
                continue
            affordable = [sizes for sizes in layouts(max_batch) if pinned(sizes, pool, *memory) <= budget]
            best = min(padding(sizes, traffic) for sizes in affordable)
            assert this.view(case, this.reference(*case)) == {"padding rows": best}


def test_the_telling_cases_have_one_answer():
    best = {
        key: [part(key).reference(*case) for case in part(key).make(np.random.default_rng(3))[:2]]
        for key in ("1b", "1c")
    }
    assert best == {"1b": [[2, 8], [1, 4, 7, 11]], "1c": [[2, 8], [6, 14, 22, 26, 31]]}


INPUTS = (TRAFFIC, 8, 12.0, 1.0, 1.0)


@pytest.mark.parametrize("sizes", [[2, 8], (8, 2), [8, 2, 8], np.array([2, 8]), [np.int64(2), 8]])
def test_a_layout_in_any_form_and_order(sizes):
    assert part("1b").view(INPUTS, sizes) == {"padding rows": 12}


def test_equally_good_layouts_are_equal():
    case = ({1: 3, 2: 3, 3: 3}, 3, 7.0, 1.0, 1.0)
    assert part("1b").view(case, [1, 3]) == part("1b").view(case, [2, 3]) == {"padding rows": 3}


@pytest.mark.parametrize(
    ("sizes", "en", "zh"),
    [
        ([2, 5], "The largest size must be max_batch = 8; yours is 5.", "最大的尺寸必须是 max_batch = 8"),
        ([2, 8, 9], "The largest size must be max_batch = 8; yours is 9.", "最大的尺寸必须是 max_batch = 8"),
        ([2, 5, 8], "[2, 5, 8] pins 18 MiB; the budget is 12 MiB.", "[2, 5, 8] 占用 18 MiB，预算是 12 MiB。"),
        ([], "Return a list of batch sizes", "请返回一个 batch 大小的列表"),
        ([0, 8], "Return a list of batch sizes", "请返回一个 batch 大小的列表"),
        ([2.0, 8], "Return a list of batch sizes", "请返回一个 batch 大小的列表"),
        (12, "Return a list of batch sizes", "请返回一个 batch 大小的列表"),
        (None, "Return a list of batch sizes", "请返回一个 batch 大小的列表"),
    ],
)  # fmt: skip
def test_a_layout_that_is_not_allowed_is_refused_in_both_languages(sizes, en, zh):  # a missing top: nano-vllm PR#216
    with pytest.raises(Refused) as refusal:
        part("1b").view(INPUTS, sizes)
    assert refusal.value.text.en.startswith(en)
    assert refusal.value.text.zh.startswith(zh)


def test_the_refusal_reaches_the_learner():
    verdict = checked("1c", lambda traffic, max_batch, budget_mib, graph_mib, row_mib: [1, 2])
    assert verdict.why.zh == "最大的尺寸必须是 max_batch = 8，你给的是 2。"
    assert verdict.came.en == "[1, 2]"


def test_the_library_is_closed_whatever_it_is_called():
    def borrows(traffic, max_batch, budget_mib, graph_mib, row_mib):
        from s13lib.buckets import MemoryModel, Traffic
        from s13lib.buckets import best_layout as mine

        memory = MemoryModel(graph_mib, row_mib)
        return list(mine(Traffic.from_counts(traffic), max_batch, budget=budget_mib, memory=memory))

    verdict = checked("1c", borrows)
    assert not verdict.passed
    assert "a call of s13lib.buckets" in verdict.came.en


def test_rows_above_the_largest_size_count_and_pad_nothing():  # vllm#7999
    held_out = {5: 12, 8: 3, 10: 2}
    index, fitted, share = part("1d").reference([[2, 8], [6, 8]], {2: 30, 6: 10}, held_out)
    assert (index, fitted) == (1, 0.5)
    assert share == pytest.approx(12 / (12 + 60 + 24 + 20))


def test_every_held_out_case_has_an_eager_step():
    for seed in range(5):
        for layouts_, _, held_out in part("1d").make(np.random.default_rng(seed)):
            tops = {sizes[-1] for sizes in layouts_}
            assert len(tops) == 1
            assert max(held_out) > tops.pop()


def test_the_inputs_of_a_case_can_be_looked_at():
    traffic, *rest = inputs("1c", seed=5, case=2)
    assert (*rest,) == (31, 68.0, 10.0, 0.5)
    assert traffic == part("1c").make(np.random.default_rng(5))[1][0]
    with pytest.raises(InputError, match="case is 6: must be a whole number from 1 to 5"):
        inputs("1c", seed=5, case=6)
