"""Capture and replay: CUDA's rules, with the values of the bugs that shipped elsewhere (D5, D6)."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from s13lib.device import F32, CaptureError, Graph, SoftGPU
from s13lib.errors import InputError


def test_d5_a_rebound_tensor_is_not_seen_and_a_copied_value_is(device, run):
    x, y = device.tensor([1.0]), device.zeros(1)
    with device.graph() as graph:
        run.scale(x, y, 2.0)
    old = x
    x = device.tensor([5.0])
    graph.replay()
    device.synchronize()
    assert y.item() == 2.0
    old.copy_(x)
    graph.replay()
    device.synchronize()
    assert y.item() == 10.0


def test_d6_a_python_number_is_frozen(device, run):
    x, y = device.tensor([1.0]), device.zeros(1)
    factor = 1.0

    def step():
        run.scale(x, y, factor)

    with device.graph() as graph:
        step()
    factor = 2.0
    x.fill_(3.0)
    graph.replay()
    device.synchronize()
    assert y.item() == 3.0
    step()
    device.synchronize()
    assert y.item() == 6.0


def test_d6_a_python_loop_count_is_frozen(device, run):
    steps, total, one = 2, device.zeros(1), device.tensor([1.0])
    with device.graph() as graph:
        for _ in range(steps):
            run.add(total, one, total)
    steps = 5
    graph.replay()
    device.synchronize()
    assert total.item() == 2.0


def test_a_capture_runs_nothing(device, run):
    x, y = device.tensor([1.0]), device.zeros(1)
    with device.graph() as graph:
        run.scale(x, y, 2.0)
        assert len(graph) == 0
    device.synchronize()
    assert y.item() == 0.0
    assert len(graph) == 1


def test_python_side_effects_happen_once(device, run):
    x, calls = device.tensor([1.0]), []
    with device.graph() as graph:
        calls.append("captured")
        run.scale(x, x, 2.0)
    for _ in range(3):
        graph.replay()
    device.synchronize()
    assert x.item() == 8.0
    assert calls == ["captured"]


def test_bound_launches_are_captured_too(device, kernels):
    x = device.tensor([1.0])
    bound = device.bind(kernels.scale, x, x, 3.0)
    with device.graph() as graph:
        bound.launch()
        bound.launch()
    del bound
    gc.collect()
    graph.replay()
    device.synchronize()
    assert x.item() == 9.0


def test_a_learners_kernel_is_captured_like_a_built_in_one(device):
    @device.kernel
    def triple(x: F32[1], out: F32[1]):
        for i in range(x.size):
            out[i] = 3.0 * x[i]

    x, y = device.tensor([2.0]), device.zeros(1)
    with device.graph() as graph:
        triple(x, y)
    graph.replay()
    device.synchronize()
    assert y.item() == 6.0
    assert graph.nodes[0].kernel == "triple"


def test_replaced_weights_are_not_seen_and_weights_copied_into_are(device, run):
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight = torch.nn.Parameter(device.tensor([[1.0, 2.0]]), requires_grad=False)
    y = device.zeros(2)
    with device.graph() as graph:
        run.scale(layer.weight.view(2), y, 1.0)
    original = layer.weight.detach()
    layer.weight.data = torch.tensor([[7.0, 8.0]])
    graph.replay()
    device.synchronize()
    assert y.tolist() == [1.0, 2.0]
    original.copy_(torch.tensor([[7.0, 8.0]]))
    graph.replay()
    device.synchronize()
    assert y.tolist() == [7.0, 8.0]


def test_a_graph_keeps_alive_all_that_it_points_at(device, run):
    y = device.zeros(1000)

    def capture():
        x, swapped = device.tensor([1.5] * 1000), device.tensor([2.0] * 1000)
        foreign = torch.full((1000,), 4.0)
        with device.graph() as graph:
            inner = device.empty(1000)
            run.scale(x, inner, 2.0)
            run.add(inner, swapped, inner)
            run.add(inner, foreign, y)
        swapped.data = torch.zeros(1000)
        return graph

    graph = capture()
    gc.collect()
    noise = [device.tensor([99.0] * 1000) for _ in range(200)]
    graph.replay()
    device.synchronize()
    assert y.tolist() == [9.0] * 1000
    assert len(noise) == 200


def test_a_freed_graph_gives_its_memory_back(device, run):
    y = device.zeros(10_000)
    gc.collect()
    before = device.allocated_bytes
    with device.graph() as graph:
        x, inner = device.empty(10_000), device.empty(10_000)
        run.copy(x, inner)
        run.copy(inner, y)
    assert device.allocated_bytes - before == 2 * 40_000
    graph.replay()
    del graph, x, inner
    gc.collect()
    device.synchronize()
    assert device.allocated_bytes == before


def test_a_graph_dropped_while_its_replay_is_queued_still_runs(device, run, door):
    y = device.zeros(1)
    with device.graph() as graph:
        x = device.empty(1)
        run.add(y, y, x)
        run.copy(x, y)
    y.fill_(1.0)
    door.shut()
    for _ in range(3):
        graph.replay()
    del graph, x
    gc.collect()
    door.open()
    device.synchronize()
    assert y.item() == 8.0


def test_a_replay_is_one_submission_whatever_its_length(device, run, door):
    x, one = device.zeros(1), device.tensor([1.0])
    with device.graph() as graph:
        for _ in range(5000):  # more nodes than the queue is deep
            run.add(x, one, x)
    before = device._queue.submitted
    graph.replay()
    assert device._queue.submitted == before + 1
    device.synchronize()
    assert x.item() == 5000.0


def test_replays_and_launches_keep_their_order(device, run):
    x, one = device.tensor([1.0]), device.tensor([1.0])
    with device.graph() as graph:
        run.scale(x, x, 2.0)
    for _ in range(3):
        graph.replay()
        run.add(x, one, x)
    device.synchronize()
    assert x.item() == 15.0


def test_an_empty_graph_replays_as_nothing(device):
    with device.graph() as graph:
        pass
    graph.replay()
    device.synchronize()
    assert len(graph) == 0


def test_many_replays_change_no_address_and_no_memory(device, run):
    x, y = device.tensor([1.0] * 100), device.zeros(100)
    with device.graph() as graph:
        inner = device.empty(100)
        run.copy(x, inner)
        run.copy(inner, y)
    addresses = [tensor.data_ptr() for tensor in (x, inner, y)]
    operands = [node.reads + node.writes for node in graph.nodes]
    graph.replay()
    device.synchronize()
    allocated = device.allocated_bytes
    for step in range(1000):
        x.fill_(float(step))
        graph.replay()
        device.synchronize()
    assert y.tolist() == [999.0] * 100
    assert [tensor.data_ptr() for tensor in (x, inner, y)] == addresses
    assert [operand.address for operands in operands for operand in operands] == [
        x.data_ptr(), inner.data_ptr(), inner.data_ptr(), y.data_ptr()
    ]  # fmt: skip
    assert device.allocated_bytes == allocated


def test_a_graph_prints_its_nodes(device, run):
    x, y = device.tensor([1.0, 2.0], name="x"), device.zeros(2, name="logits")
    with device.graph() as graph:
        inner = device.empty(2)
        run.scale(x, inner, 2.0)
        run.copy(inner[1:], y[1:])
    first, second = str(graph).splitlines()[1:]
    assert (
        first.split()
        == f"0 scale: reads x@{x.data_ptr():#x}; writes out@{inner.data_ptr():#x}; with factor=2.0".split()
    )
    assert f"copy: reads x@{inner.data_ptr() + 4:#x}; writes logits+4@{y.data_ptr() + 4:#x}" in second
    assert repr(graph) == "Graph(2 nodes, 64 bytes of pool)"


def test_captures_do_not_nest_and_the_outer_one_survives(device, run):
    x = device.tensor([1.0])
    with device.graph() as graph:
        run.scale(x, x, 2.0)
        with pytest.raises(CaptureError, match="nest"), device.graph():
            pass
        run.scale(x, x, 2.0)
    graph.replay()
    device.synchronize()
    assert x.item() == 4.0


def test_two_devices_may_capture_at_once(device, run, kernels):
    other = SoftGPU()
    x, y = device.tensor([1.0]), other.tensor([1.0])
    with device.graph() as first, other.graph() as second:
        run.scale(x, x, 2.0)
        other.launcher(kernels.scale)(y, y, 3.0)
    first.replay()
    second.replay()
    device.synchronize()
    other.synchronize()
    assert (x.item(), y.item()) == (2.0, 3.0)
    other.close()


def test_another_threads_launch_during_a_capture_is_refused(device, run):
    x, y, refused = device.tensor([1.0]), device.tensor([1.0]), []

    def intrude():
        try:
            run.scale(y, y, 9.0)
        except CaptureError as error:
            refused.append(str(error))

    with device.graph() as graph:
        run.scale(x, x, 2.0)
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert "another thread" in refused[0]
    assert len(graph) == 1
    intrude()
    device.synchronize()
    assert (y.item(), len(refused)) == (9.0, 1)


def test_an_error_inside_a_capture_leaves_the_device_clean(device, run):
    x = device.tensor([1.0])
    gc.collect()
    before = device.allocated_bytes
    broken = None

    def mistaken():
        nonlocal broken
        with device.graph() as broken:
            run.scale(x, device.empty(100), 2.0)
            raise KeyError("a mistake of the captured function")

    with pytest.raises(KeyError):
        mistaken()
    gc.collect()
    assert device.allocated_bytes == before
    with pytest.raises(InputError, match="not captured"):
        broken.replay()
    run.scale(x, x, 5.0)
    device.synchronize()
    assert x.item() == 5.0
    with device.graph() as graph:
        run.scale(x, x, 2.0)
    graph.replay()
    device.synchronize()
    assert x.item() == 10.0
    assert isinstance(graph, Graph)


def test_a_graph_cannot_be_replayed_inside_a_capture_or_before_its_end(device, run):
    x = device.tensor([1.0])
    with device.graph() as inner:
        run.scale(x, x, 2.0)
    with pytest.raises(InputError, match="not captured"), device.graph() as open_graph:
        open_graph.replay()
    with pytest.raises(CaptureError, match="replay"), device.graph():
        inner.replay()
    inner.replay()
    device.synchronize()
    assert x.item() == 2.0
