"""Inside a capture torch may look at shapes and take views; anything else is refused, and the device stays clean."""

from __future__ import annotations

import copy as copying

import numpy as np
import pytest
import torch

from s13lib.device import CaptureError

READS = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "bool": lambda x: bool(x[0]),
    "if": lambda x: 1 if x[0] else 0,
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "index": lambda x: [1, 2][x.view(torch.int32)[0]],
    "in": lambda x: 1.0 in x,
    "print": str,
    "repr": repr,
    "f-string": lambda x: f"{x[0]:.3f}",
    "np.asarray": lambda x: np.asarray(x),
    "np.add": lambda x: np.add(x, 1),
    "from_dlpack": np.from_dlpack,
    "deepcopy": copying.deepcopy,
    "list": lambda x: [float(each) for each in x],
}
COMPUTATIONS = {
    "+": lambda x: x + 1,
    "+=": lambda x: x.__iadd__(1),
    "*": lambda x: 2 * x,
    "@": lambda x: x @ x,
    "==": lambda x: x == x,
    "sum": torch.sum,
    "clone": torch.clone,
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "copy_ out": lambda x: torch.ones(4).copy_(x),
    "to": lambda x: x.to(torch.float64),
    "fill_": lambda x: x.fill_(0.0),
    "zero_": lambda x: x.zero_(),
    "normal_": lambda x: x.normal_(),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "mask": lambda x: x[x > 0],
    "gather": lambda x: x[torch.tensor([0, 1])],
    "cat": lambda x: torch.cat([torch.ones(1), x]),
    "zeros_like": torch.zeros_like,
    "linear": lambda x: torch.nn.functional.linear(x.view(2, 2), torch.ones(2, 2)),
    "silu": torch.nn.functional.silu,
    "contiguous": lambda x: x.view(2, 2).t().contiguous(),
    "reshape that copies": lambda x: x.view(2, 2).t().reshape(4),
    "equal": lambda x: torch.equal(x, x),
    "out=": lambda x: torch.add(torch.ones(4), 1, out=x),
    "resize_": lambda x: x.resize_(400),
    "set_": lambda x: x.set_(torch.ones(4)),
    "storage": lambda x: x.untyped_storage()[0],
}
HARMLESS = {
    "metadata": lambda x: (
        x.shape,
        x.size(),
        x.dim(),
        x.ndim,
        x.dtype,
        x.device,
        x.numel(),
        x.nbytes,
        x.itemsize,
        len(x),
    ),
    "layout": lambda x: (x.stride(), x.is_contiguous(), x.storage_offset(), x.layout, x.is_cpu, x.requires_grad),
    "data_ptr": lambda x: (x.data_ptr(), x.untyped_storage().data_ptr()),
    "slice": lambda x: (x[1:3], x[0], x[...], x[None]),
    "view": lambda x: (
        x.view(2, 2),
        x.view(torch.int32),
        x.reshape(2, 2),
        x.view_as(x),
        x.flatten(),
        x.unflatten(0, (2, 2)),
    ),
    "dimensions": lambda x: (x.unsqueeze(0), x.squeeze(), x.view(2, 2).T, x.view(2, 2).permute(1, 0), x.expand(3, 4)),
    "pieces": lambda x: (x.split(2), x.chunk(2), x.unbind(), x.narrow(0, 1, 2), x.view(2, 2).select(0, 1), x.detach()),
    "host tensors": lambda x: (torch.ones(3).sum().item(), torch.arange(4).tolist(), str(torch.zeros(2))),
}


def the_device_is_clean(device, run):
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    assert (x + 1).tolist() == [2.0, 3.0]
    with device.graph() as graph:
        run.scale(x, y, 2.0)
    assert y.tolist() == [0.0, 0.0]
    graph.replay()
    device.synchronize()
    return y.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("name", READS)
def test_reads_are_refused(device, run, name):
    x = device.tensor([1.0, 0.0, 0.0, 0.0])
    with pytest.raises(CaptureError, match="reads a tensor inside a capture"), device.graph():
        READS[name](x)
    assert the_device_is_clean(device, run)


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_computations_are_refused_and_change_nothing(device, run, name):
    x = device.tensor([1.0, 2.0, 3.0, 4.0])
    address = x.data_ptr()
    with (
        pytest.raises(CaptureError, match=r"SoftGPU records only its own kernels; use device\.kernels"),
        device.graph(),
    ):
        COMPUTATIONS[name](x)
    assert (x.tolist(), x.data_ptr()) == ([1.0, 2.0, 3.0, 4.0], address)
    assert the_device_is_clean(device, run)


@pytest.mark.parametrize("name", HARMLESS)
def test_metadata_views_and_host_tensors_are_free(device, name):
    x = device.tensor([1.0, 2.0, 3.0, 4.0])
    with device.graph() as graph:
        HARMLESS[name](x)
    assert graph.ready


@pytest.mark.parametrize("make", ["inside", "view", "bfloat16", "host tensor after a launch"])
def test_which_tensors_are_guarded(device, run, make):
    x = device.tensor([1.0, 2.0])
    foreign = torch.ones(2)
    guarded = {
        "inside": lambda: device.empty(2),
        "view": lambda: x[1:].view(1, 1),
        "bfloat16": lambda: device.empty(2, torch.bfloat16),
        "host tensor after a launch": lambda: (run.copy(foreign, x), foreign)[1],
    }[make]
    with pytest.raises(CaptureError), device.graph():
        guarded().add(1)


def test_the_message_names_the_kernel_to_use(device):
    x = device.tensor([1.0])
    with pytest.raises(CaptureError, match=r"torch's copy on .* use device\.kernels\.copy\."), device.graph():
        x.copy_(torch.ones(1))


def test_a_tensor_where_a_number_belongs_is_a_read(device, run):
    x, factor = device.tensor([1.0]), device.tensor([2.0])
    with pytest.raises(CaptureError, match="reads a tensor"), device.graph():
        run.scale(x, x, factor)
    run.scale(x, x, factor)
    device.synchronize()
    assert x.item() == 2.0


@pytest.mark.parametrize("use", ["synchronize", "zeros", "tensor"])
def test_the_devices_own_host_work_is_refused(device, run, use):
    calls = {
        "synchronize": device.synchronize,
        "zeros": lambda: device.zeros(3),
        "tensor": lambda: device.tensor([1.0]),
    }
    with pytest.raises(CaptureError, match="capture"), device.graph():
        calls[use]()
    assert the_device_is_clean(device, run)
