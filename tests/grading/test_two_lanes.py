"""Exercise 5: the examples of its notebook, and what its last part makes of answers that nearly reach the aim."""

import pytest

from s13lib.grading import guard
from s13lib.grading.judge import judge
from s13lib.grading.manifest import part
from s13lib.grading.part import Text
from s13lib.grading.parts.two_lanes import ENOUGH


def test_the_examples_of_the_notebook():
    assert part("5a").reference([1, 1, 6], [4, 1, 1]) == 9
    with_queue = part("5b").reference
    assert with_queue([1] * 4, [5] * 4, 1) == 21
    assert [with_queue([1, 1, 1, 6], [5, 5, 5, 1], depth) for depth in (1, 2)] == [18, 17]


@pytest.mark.parametrize("short", [3, 4, 5])
def test_half_and_half_is_recognised_and_told_by_how_much_it_falls_short(short):
    def half(n, total_us):
        few = n * short // 8
        return [total_us / n] * n, [0.0] * few + [total_us / (n - few)] * (n - few)

    verdict = judge("5c", lambda inputs: guard.observe(part("5c"), half, inputs), seed=1)
    assert verdict.likely == "not extreme enough"
    assert verdict.expected == ENOUGH
    assert verdict.came.en.startswith("too little, and the longer kernels come last (falls short by ")
    assert verdict.came.zh.startswith("不够多，而且长的 kernel 在后（少了 ")


def test_the_other_ways_to_fool_it_are_right_too():
    view = part("5c").view
    assert view((10, 100.0), ([100.0] + [0.0] * 9, [10.0] * 10)) == ENOUGH
    too_little = view((10, 100.0), ([0.0] * 9 + [100.0], [10.0] * 10))
    assert too_little.value.en == "too little, and all kernels are alike, the launches are not"
    assert too_little.note == Text("falls short by 9 %, at least 40 % wanted", "少了 9 %，至少要 40 %")
    middle = view((9, 90.0), ([10.0] * 9, [0.0] * 4 + [90.0] + [0.0] * 4))
    assert middle.value.zh == "不够多，而且前后的工作一样多"
