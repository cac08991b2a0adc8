"""The record of operations: which memory is new, which was there, and which is a result."""

import torch

from s13lib.kernels.textbook import RMSNorm
from s13lib.profiling.intermediates import record_operations


def test_each_new_tensor_has_a_memory_of_its_own():
    x, y = torch.ones(4), torch.ones(4)
    record = record_operations(lambda x, y: (x + y).exp(), x, y)
    assert record == {"inputs": [0, 1], "steps": [("add", 2, 16), ("exp", 3, 16)], "outputs": [3]}


def test_views_and_operations_in_place_share_their_memory():
    x = torch.ones(2, 4, dtype=torch.bfloat16)

    def run(x):
        x.mul_(2)
        first, second = (x + x).chunk(2, dim=1)
        return first.add_(second).t(), x

    assert record_operations(run, x) == {
        "inputs": [0],
        "steps": [("mul_", 0, 16), ("add", 1, 16), ("split", 1, 16), ("split", 1, 16), ("add_", 1, 16), ("t", 1, 16)],
        "outputs": [1, 0],
    }


def test_weights_are_inputs_too_and_freed_memory_is_not_counted_again():
    norm = RMSNorm(8, 1e-5)
    record = record_operations(lambda x: norm(norm(x)), torch.randn(2, 8))
    assert len(record["inputs"]) == 2  # x and the weight
    assert [memory for _, memory, _ in record["steps"]] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    assert [size for name, _, size in record["steps"] if name == "rsqrt"] == [8, 8]
    assert record["outputs"] == [13]


def test_what_is_returned_without_an_operation_is_an_input():
    assert record_operations(lambda x: x, torch.ones(3)) == {"inputs": [0], "steps": [], "outputs": [0]}
