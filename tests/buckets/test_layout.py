"""BucketLayout and the engines' lists: D7, D8 and D9 of the public bugs."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s13lib.buckets import PRESETS, BucketLayout, preset
from s13lib.errors import InputError


def test_sizes_are_sorted_and_unique():  # D9
    layout = BucketLayout([16, 1, 8, 4])
    assert layout.sizes == (1, 4, 8, 16)
    assert [layout.pick(n) for n in (1, 2, 5, 8, 9)] == [1, 4, 8, 8, 16]
    assert BucketLayout([4, 4, 2]).sizes == (2, 4)
    assert len(BucketLayout([4, 4, 2])) == 2
    assert BucketLayout([7]).pick(7) == 7
    assert BucketLayout(np.array([3, 1])).sizes == (1, 3)
    assert BucketLayout([2, 1]) == BucketLayout((1, 2))


@pytest.mark.parametrize("sizes", [[0, -1], [0], [-4, 8], [2.5], [8.0], ["8"], [True], [float("nan")], [None], [8193]])
def test_a_size_must_be_a_positive_whole_number(sizes):  # D9
    message = f"a layout's batch size is {sizes[0]!r}: must be a whole number, 1 to 8192."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        BucketLayout(sizes)


def test_an_empty_list_is_an_error():  # D9
    with pytest.raises(InputError, match=r"^sizes is empty: a layout needs at least one batch size"):
        BucketLayout([])


def test_above_the_top_runs_eager():  # D8
    layout = preset("seed")
    assert layout.pick(256) == 256
    assert layout.pick(257) is None
    assert layout.top == 256


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_an_empty_batch_has_no_size(n):  # D8
    with pytest.raises(InputError, match=rf"^n is {n}: must be a whole number, 1 to 8192\.$"):
        preset("seed").pick(n)


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(1, 310))
def test_pick_is_the_smallest_size_that_holds_the_batch(sizes, n):
    assert BucketLayout(sizes).pick(n) == min((size for size in sizes if size >= n), default=None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_list_ends_at_the_maximum(name):  # D7
    for maximum in range(1, 601):
        sizes = PRESETS[name](maximum).sizes
        assert sizes[0] == 1
        assert sizes[-1] == maximum
        assert list(sizes) == sorted(set(sizes))


def test_the_lists_are_the_engines_own():
    assert preset("seed").sizes == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    assert preset("vllm", 512).sizes == (1, 2, 4, *range(8, 249, 8), *range(256, 513, 16))
    assert len(preset("vllm", 512)) == 51
    assert preset("sglang", 600).sizes == (
        *(1, 2, 4, 8, 12),
        *range(16, 257, 8),
        *range(272, 497, 16),
        *(512, 544, 576, 600),
    )
    assert preset("tensorrt-llm", 300).sizes == (1, 2, 4, *range(8, 129, 8), 192, 256, 300)
    assert preset("nano-vllm", 100).sizes == (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 100)
    assert preset("mini-sglang", 30).sizes == (1, 2, 4, 8, 16, 24, 30)
    assert preset("powers-of-two", 48).sizes == (1, 2, 4, 8, 16, 32, 48)


def test_bad_presets():
    with pytest.raises(InputError, match=r"^layout preset: unknown name 'vlm'; did you mean vllm"):
        preset("vlm")
    with pytest.raises(InputError, match=r"^max_batch is 0: must be a whole number, 1 to 8192\.$"):
        preset("vllm", 0)
