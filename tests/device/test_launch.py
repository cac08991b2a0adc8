"""Launching: asynchronous, in order, bounded, checked, and holding memory exactly as long as needed."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import pytest
import torch

from s13lib.device import F16, F32, F64, I32, I64, U8, SoftGPU
from s13lib.device.ring import DEPTH
from s13lib.errors import InputError


def test_a_launch_returns_before_its_kernel_has_run(device, run, door):
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    door.shut()
    run.scale(x, y, 3.0)
    assert y.tolist() == [0.0, 0.0]
    door.open()
    device.synchronize()
    assert y.tolist() == [3.0, 6.0]


def test_launches_run_in_order(device, run):
    x, one = device.tensor([1.0]), device.tensor([1.0])
    expected = 1.0
    for step in range(1000):
        if step % 3:
            run.add(x, one, x)
            expected += 1.0
        else:
            run.scale(x, x, 0.5)
            expected *= 0.5
    device.synchronize()
    assert x.item() == torch.tensor(expected, dtype=torch.float32).item()


def test_the_queue_pushes_back_at_1024(device, run, door):
    counter = device.zeros(1, torch.int64)
    assert DEPTH == 1024
    door.shut()
    for _ in range(1023):
        run.count(counter)
    late = threading.Thread(target=run.count, args=(counter,))
    late.start()
    late.join(0.2)
    assert late.is_alive()
    assert counter.item() == 0
    door.open()
    late.join(10)
    assert not late.is_alive()
    device.synchronize()
    assert counter.item() == 1024


def test_bound_and_unbound_launches_do_the_same(device, kernels, run):
    x, y = device.tensor([1.0, 2.0, 3.0]), device.zeros(3)
    by_kernel, by_launcher = device.bind(kernels.scale, x, y, 2.0), device.bind(run.scale, x, y, 3.0)
    for bound, factor in ((by_kernel, 2.0), (by_launcher, 3.0), (by_kernel, 2.0)):
        bound.launch()
        device.synchronize()
        assert y.tolist() == [factor, 2 * factor, 3 * factor]


def test_a_bound_launch_keeps_its_memory(device, kernels):
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    bound = device.bind(kernels.scale, x, y, 2.0)
    x.data = torch.tensor([100.0, 100.0])
    del x
    noise = [device.tensor([7.0, 7.0]) for _ in range(50)]
    bound.launch()
    device.synchronize()
    assert y.tolist() == [2.0, 4.0]
    assert len(noise) == 50


def test_arguments_may_be_named(device, run):
    x, y = device.tensor([1.0]), device.zeros(1)
    run.scale(x, factor=4, out=y)
    device.synchronize()
    assert y.item() == 4.0


def test_every_element_type_and_rank_arrives(device):
    @device.kernel
    def gather(a: F64[3], b: I32[2], c: I64[1], d: U8[1], e: F16[1], n: int, x: float, out: F64[1]):
        out[0] = a[1, 2, 3]
        out[1] = b[2, 1]
        out[2] = c[0] + d[1]
        out[3] = e[0]
        out[4] = n + x
        out[5] = a.shape[0] * 100 + a.shape[1] * 10 + a.shape[2]

    a = device.tensor(torch.arange(24, dtype=torch.float64).reshape(2, 3, 4))
    b = device.tensor(torch.arange(6, dtype=torch.int32).reshape(3, 2))
    c, d = device.tensor([1 << 40]), device.tensor([0, 200], torch.uint8)
    e, out = device.tensor([1.0], torch.float16), device.zeros(6, torch.float64)
    gather(a, b, c, d, e, -5, 0.25, out)
    device.synchronize()
    assert out.tolist() == [23.0, 5.0, (1 << 40) + 200.0, 0x3C00, -4.75, 234.0]


def test_views_and_empty_tensors(device, run):
    x, y = device.tensor([1.0, 2.0, 3.0, 4.0]), device.zeros(4)
    run.scale(x[1:3], y[2:4], 10.0)
    run.copy(device.empty(0), device.empty(0))
    device.synchronize()
    assert y.tolist() == [0.0, 0.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda d: ([1.0], d.empty(1), 1.0), "scale: x is of type list: must be a tensor."),
        (
            lambda d: (d.empty(1, torch.float64), d.empty(1), 1.0),
            "scale: x.dtype is torch.float64: must be torch.float32.",
        ),
        (lambda d: (d.empty(1), d.empty((1, 1)), 1.0), "scale: out.shape is (1, 1): must be of 1 dimension."),
        (lambda d: (d.empty(4)[::2], d.empty(2), 1.0), "scale: x.stride() is (2,): must be contiguous for (2,)."),
        (lambda d: (d.empty(1), d.empty(1), "much"), "scale: factor is 'much': must be a number."),
        (lambda d: (d.empty(1), d.empty(1), d.empty(2)), "scale: factor is 'tensor of shape (2,)': must be a number."),
        (lambda d: (torch.empty(1, device="meta"), d.empty(1), 1.0), "scale: x.device is 'meta'"),
    ],
)
@pytest.mark.parametrize("how", ["launch", "bind"])
def test_wrong_arguments_are_told_and_nothing_is_queued(device, run, arguments, message, how):
    queued = device._queue.submitted
    launch = run.scale if how == "launch" else lambda *given: device.bind(run.scale, *given)
    with pytest.raises(InputError) as caught:
        launch(*arguments(device))
    assert str(caught.value).startswith(message)
    assert device._queue.submitted == queued


def test_a_missing_argument_is_a_type_error_that_names_it(device, run):
    with pytest.raises(TypeError, match="factor"):
        run.scale(device.empty(1), device.empty(1))


def test_an_unknown_kernel_name_gets_a_suggestion(device):
    @device.kernel
    def halve(x: F32[1], out: F32[1]):
        out[0] = x[0] / 2

    assert device.kernels.halve is halve
    with pytest.raises(InputError, match=r"device\.kernels: unknown name 'halv'"):
        _ = device.kernels.halv


@pytest.mark.parametrize("shape", [-1, (2, -3), (1.5,), (True,), "ab"])
def test_shapes_are_checked(device, shape):
    with pytest.raises(InputError, match="shape is"):
        device.empty(shape)


def test_memory_that_dies_before_its_launch_has_run_is_not_reused(device, run, door):
    x, y, z = device.tensor([1.0] * 64), device.zeros(64), device.zeros(64)
    swapped = device.tensor([2.0] * 64)
    door.shut()
    run.copy(x, y)
    run.copy(swapped, z)
    swapped.data = torch.zeros(64)  # the tensor lives on, its memory does not
    del x
    gc.collect()
    noise = [device.tensor([9.0] * 64) for _ in range(100)]
    door.open()
    device.synchronize()
    assert y.tolist() == [1.0] * 64
    assert z.tolist() == [2.0] * 64
    assert len(noise) == 100


def test_synchronize_gives_back_the_memory_of_finished_launches(device, run):
    y = device.zeros(1 << 16)
    device.synchronize()
    before = device.allocated_bytes
    run.copy(device.zeros(1 << 16), y)
    device.synchronize()
    assert device.allocated_bytes == before


def test_a_hundred_thousand_launches_leak_nothing(device, kernels, run):
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    bound = device.bind(kernels.scale, x, y, 2.0)

    def launch(times):
        for _ in range(times):
            run.scale(x, y, 2.0)
            bound.launch()
        device.synchronize()

    launch(2000)
    gc.collect()
    objects, allocated = len(gc.get_objects()), device.allocated_bytes
    tracemalloc.start()
    try:
        launch(50_000)
        gc.collect()
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 100_000  # bytes: less than one a launch
    assert len(gc.get_objects()) - objects < 200
    assert device.allocated_bytes == allocated


def test_unsynchronised_launches_hold_a_bounded_number_of_tensors(device, run):
    y = device.zeros(1)
    for _ in range(20_000):
        run.copy(device.tensor([1.0]), y)
    assert device.allocated_bytes < 64 * (DEPTH + 100)
    device.synchronize()
    assert device.allocated_bytes == 64


def test_launches_from_several_threads_all_run(device, run):
    counter = device.zeros(1, torch.int64)
    own = [device.zeros(1, torch.int64) for _ in range(4)]

    def work(mine):
        for step in range(3000):
            run.count(counter)
            run.count(mine)
            if step % 500 == 0:
                device.synchronize()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in own]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert counter.item() == 12_000
    assert [mine.item() for mine in own] == [3000] * 4


def test_several_devices_work_side_by_side(kernels):
    devices = [SoftGPU() for _ in range(3)]
    outputs = []
    for number, device in enumerate(devices):
        x, y = device.tensor([1.0, 2.0]), device.zeros(2)
        outputs.append(y)
        for _ in range(100):
            device.launcher(kernels.scale)(x, y, float(number))
    for number, (device, y) in enumerate(zip(devices, outputs, strict=True)):
        device.synchronize()
        assert y.tolist() == [number, 2.0 * number]
        device.close()


def test_a_closed_device_refuses_launches_and_waits(device, run):
    x = device.tensor([1.0])
    device.close()
    for use in (lambda: run.copy(x, x), device.synchronize, lambda: device.graph().__enter__()):
        with pytest.raises(InputError, match="closed"):
            use()
    device.close()


def test_a_dropped_device_ends_its_thread():
    before = threading.active_count()
    device = SoftGPU()
    assert threading.active_count() == before + 1
    del device
    gc.collect()
    assert threading.active_count() == before
