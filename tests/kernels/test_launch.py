"""The same kernels through SoftGPU's queue: launched, and replayed from a graph, they write the same bits."""

import pytest
import torch

from s13lib.device import DeviceError, SoftGPU
from s13lib.device.kernel import REGISTRY
from s13lib.kernels import NAMES


@pytest.fixture(scope="module")
def device():
    device = SoftGPU()
    yield device
    device.close()


def test_every_name_is_registered():
    assert set(NAMES) <= set(REGISTRY)


@pytest.mark.parametrize("name", NAMES)
def test_a_launch_and_a_replay_write_what_the_function_writes(make_case, bits, device, name):
    called = make_case(name, seed=6, rows=5)
    launched = called.copy()
    for p, t in launched.arguments.items():
        if isinstance(t, torch.Tensor):
            launched.arguments[p] = device.tensor(t)
    before = {p: t.clone() for p, t in launched.outputs.items()}
    assert called.run() == 0

    getattr(device.kernels, name)(*launched.arguments.values())
    device.synchronize()
    for p, t in launched.outputs.items():
        assert bits(t) == bits(called.arguments[p]), p

    for p, t in launched.outputs.items():
        t.copy_(before[p])
    with device.graph() as graph:
        getattr(device.kernels, name)(*launched.arguments.values())
    graph.replay()
    device.synchronize()
    for p, t in launched.outputs.items():
        assert bits(t) == bits(called.arguments[p]), p


def test_an_error_word_becomes_a_sentence_and_does_not_stay(device):
    ids, weight, out = device.tensor([0, 9]), device.tensor([[1.0], [2.0]]), device.zeros((2, 1))
    device.kernels.embedding(ids, weight, out)
    with pytest.raises(DeviceError, match="embedding: token 9 is outside the vocabulary"):
        device.synchronize()
    assert out.tolist() == [[1], [0]]
    device.synchronize()


def test_outputs_are_declared(make_case):
    """What a kernel says it writes is what the reference writes: a graph's audit relies on it."""
    for name in NAMES:
        case = make_case(name, seed=2, rows=3)
        after = case.reference()
        written = {
            p
            for p, t in case.arguments.items()
            if isinstance(t, torch.Tensor)
            and not torch.equal(t.double().nan_to_num(7e7), after.arguments[p].nan_to_num(7e7))
        }
        assert written == {p.name for p in REGISTRY[name].parameters if p.written}, name
