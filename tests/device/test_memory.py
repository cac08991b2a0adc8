"""Storages, names and pools."""

from __future__ import annotations

import gc

import pytest
import torch

from s13lib.device import SoftGPU
from s13lib.errors import InputError

ROW = 1024  # float32 values: 4096 bytes


def capture(device, run, rows, pool=None):
    with device.graph(pool) as graph:
        scratch = device.empty((rows, ROW))
        run.scale(scratch.view(-1), scratch.view(-1), 2.0)
    return graph, scratch


@pytest.mark.parametrize(("sizes", "rows"), [((8, 4, 2, 1), 8), ((1, 2, 4, 8), 15), ((4, 8, 2), 12)])
def test_d12_a_shared_pool_holds_the_largest_if_it_is_captured_first(device, run, sizes, rows):
    pool = device.pool()
    before = device.allocated_bytes
    graphs = [capture(device, run, size, pool)[0] for size in sizes]
    assert pool.pool_bytes == rows * ROW * 4
    assert device.allocated_bytes - before == rows * ROW * 4
    assert {graph.pool_bytes for graph in graphs} == {rows * ROW * 4}


def test_private_pools_add_up(device, run):
    before = device.allocated_bytes
    graphs = [capture(device, run, size)[0] for size in (8, 4, 2, 1)]
    assert device.allocated_bytes - before == 15 * ROW * 4
    assert [graph.pool_bytes for graph in graphs] == [8 * ROW * 4, 4 * ROW * 4, 2 * ROW * 4, ROW * 4]


def test_the_next_graph_gets_the_same_storages_even_while_the_first_ones_tensors_live(device, run):
    first, kept = capture(device, run, 8)
    _, second = capture(device, run, 4, first.pool)
    assert second.data_ptr() == kept.data_ptr()


def test_graphs_that_share_a_pool_give_the_same_values_in_any_order(device, run):
    inputs, outputs, graphs = [], [], []
    pool = device.pool()
    for n in (4, 2, 3):
        x, y = device.tensor([float(n)] * n), device.zeros(n)
        with device.graph(pool) as graph:
            inner = device.empty(n)
            run.scale(x, inner, 10.0)
            run.add(inner, inner, y)
        inputs.append(x)
        outputs.append(y)
        graphs.append(graph)
    for index in (2, 0, 1, 1, 2, 0):
        outputs[index].zero_()
        graphs[index].replay()
        device.synchronize()
        n = len(outputs[index])
        assert outputs[index].tolist() == [20.0 * n] * n


def test_memory_freed_inside_a_capture_serves_again_inside_it(device, run):
    x, y = device.tensor([1.0] * ROW), device.zeros(ROW)
    with device.graph() as graph:
        current = x
        for _ in range(10):
            following = device.empty(ROW)
            run.scale(current, following, 2.0)
            current = following
        run.copy(current, y)
        del current, following
    assert graph.pool_bytes == 2 * ROW * 4  # one being read, one being written
    graph.replay()
    device.synchronize()
    assert y.tolist() == [1024.0] * ROW


def test_a_pool_shrinks_with_its_graphs(device, run):
    pool = device.pool()
    large, scratch = capture(device, run, 8, pool)
    with device.graph(pool) as small:
        first, second = device.empty((8, ROW)), device.empty((4, ROW))
        run.copy(second.view(-1)[:1], first.view(-1)[:1])
    assert pool.pool_bytes == 12 * ROW * 4
    del large, scratch, small, first, second
    gc.collect()
    device.synchronize()
    assert pool.pool_bytes == 0


def test_a_pool_belongs_to_its_device(device, run):
    other = SoftGPU()
    with pytest.raises(InputError, match="a pool of this device"):
        device.graph(other.pool())
    with pytest.raises(InputError, match="pool is 3"):
        device.graph(3)
    other.close()


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
def test_tensors_are_plain_contiguous_and_aligned(device, dtype, shape):
    x = device.zeros(shape, dtype)
    assert (x.shape, x.dtype, type(x), x.device.type) == (shape, dtype, torch.Tensor, "cpu")
    assert x.is_contiguous()
    assert x.data_ptr() % 64 == 0
    assert not x.any()


def test_each_allocation_has_a_storage_of_its_own_that_cannot_grow(device):
    x, y = device.zeros(4), device.zeros(4)
    assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()
    assert x.untyped_storage().nbytes() == 16
    with pytest.raises(RuntimeError):
        x.resize_(1_000_000)


def test_memory_lives_as_long_as_a_view_of_it(device):
    before = device.allocated_bytes
    x = device.tensor([1.0] * 1024)
    view = x[512:]
    del x
    gc.collect()
    assert device.allocated_bytes - before == 4096
    assert view.sum().item() == 512.0
    del view
    gc.collect()
    assert device.allocated_bytes == before


def test_device_tensor_copies(device):
    host = torch.tensor([1.0, 2.0])
    x = device.tensor(host, name="x")
    host.zero_()
    assert x.tolist() == [1.0, 2.0]
    assert device.tensor([1, 2]).dtype == torch.int64
    assert device.tensor([1, 2], torch.float32).dtype == torch.float32


def test_tensors_side_by_side_share_a_piece_and_nothing_else(device):
    before = device.allocated_bytes
    with device.side_by_side():
        first = device.tensor([1.0] * 100, name="first")
        with device.side_by_side():
            apart = device.zeros(16)
        second = device.zeros((3, 5), torch.uint8, name="second")
        large = device.empty(40 << 20, torch.uint8)  # more than a piece: by itself
    outside = device.zeros(16)
    assert (
        second.data_ptr() - first.data_ptr() == 448 + 64
    )  # 400 bytes and the gap that aligns the next, in lines of 64
    for tensor in (apart, large, outside):
        assert not 0 <= tensor.data_ptr() - first.data_ptr() < 32 << 20
    assert all(t.data_ptr() % 64 == 0 for t in (first, second, apart, large, outside))
    assert [device._memory.find(t).name for t in (first, second)] == ["first", "second"]
    assert device.allocated_bytes - before == 448 + 64 + 64 + (40 << 20) + 64
    with pytest.raises(RuntimeError):
        first.view(100).resize_(1000)
    second.fill_(7)
    assert first.tolist() == [1.0] * 100
    del first, large
    gc.collect()
    assert second.tolist() == [[7] * 5] * 3
    assert device.allocated_bytes - before == 64 + 64 + 64


def test_side_by_side_ends_with_an_exception(device):
    with pytest.raises(InputError), device.side_by_side():
        device.empty(-1)
    assert device._memory._piece is None
