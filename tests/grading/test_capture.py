"""Exercise 4: what its device sees, the public bugs that it stands for, and other right answers."""

import copy

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from s13lib.device import DeviceError, SoftGPU, best_device
from s13lib.grading import guard
from s13lib.grading.judge import judge
from s13lib.grading.manifest import part
from s13lib.grading.parts import capture as checks
from s13lib.grading.watched import WatchedDevice, watched
from s13lib.grading.wrong import runners


@pytest.fixture
def device():
    checks.warm_up()
    with watched() as device:
        yield device


@pytest.fixture
def doubled(device):
    """y = 2x, recorded."""
    x, y = device.tensor([1.0]), device.zeros(1)
    with device.graph() as graph:
        device.kernels.scale(x, y, 2.0)
    return x, y, graph


def test_an_early_device_has_run_when_replay_returns(device, doubled):
    x, y, graph = doubled
    graph.replay()
    x.fill_(5.0)
    assert y.tolist() == [2.0]


def test_a_late_device_begins_when_somebody_waits(device, doubled):
    x, y, graph = doubled
    device.late = True
    graph.replay()
    assert y.tolist() == [0.0]
    x.fill_(5.0)
    device.synchronize()
    assert y.tolist() == [10.0]


def test_a_late_device_keeps_the_order_of_launches(device, doubled):
    _, y, graph = doubled
    z = device.zeros(1)
    device.late = True
    graph.replay()
    device.kernels.copy(y, z)
    device.synchronize()
    assert z.tolist() == [2.0]


def test_it_counts_captures_replays_and_launches_but_not_copies_nor_what_is_captured(device, doubled):
    x, y, graph = doubled
    device.kernels.scale(x, y, 3.0)
    device.kernels.copy(x, y)
    graph.replay()
    graph.replay()
    device.synchronize()
    assert (device.captures, device.replays, device.launches) == (1, 2, 1)


def test_it_is_the_notebooks_own_device_and_as_it_was_afterwards():
    plain = best_device()
    kernels, attributes = plain.kernels, set(vars(plain))
    with watched() as device:
        assert device is plain
        assert type(plain) is WatchedDevice
        assert plain.kernels is not kernels
    assert type(plain) is SoftGPU
    assert plain.kernels is kernels
    assert set(vars(plain)) == attributes


def test_one_answers_error_is_not_the_next_ones():
    for _ in range(2):
        with watched() as device:
            tokens, table, out = device.tensor([9]), device.zeros((2, 1)), device.empty((1, 1))
            device.synchronize()
            device.kernels.embedding(tokens, table, out)
    with watched() as device:
        device.kernels.embedding(tokens, table, out)
        with pytest.raises(DeviceError):
            device.synchronize()


def test_a_device_left_in_a_capture_is_replaced():
    left = best_device()
    capture = left.graph()
    capture.__enter__()
    try:
        with watched() as device:
            assert device is not left
            assert device is best_device()
    finally:
        capture.__exit__(None, None, None)


# ---- the references, against plain torch


def test_the_reference_of_4a_computes_what_torch_does():
    for weight, calls in checks.make_fixed(np.random.default_rng(3)):
        seen = checks.drive_fixed(checks.FixedRunner, weight, calls)
        for out, (x, shift) in zip(seen["outputs"], calls, strict=True):
            assert torch.allclose(out, (x + shift) @ weight.T, atol=1e-5)


@pytest.mark.parametrize("make", [checks.make_padded, checks.make_safe])
def test_the_reference_runners_compute_and_store_what_torch_does(make):
    for seed in range(5):
        for weight, cache, rows, calls in make(np.random.default_rng(seed)):
            seen = checks.drive_safe(checks.SafeRunner, weight, cache, rows, calls)
            outputs, expected, factor, refused = iter(seen["outputs_kept"]), cache.clone(), 1.0, False
            for what, data, where in calls:
                if what == "run" and len(data) <= rows and not refused:
                    normed = data / torch.sqrt(data.square().mean(1, keepdim=True) + checks.EPS)
                    out = next(outputs)
                    assert torch.allclose(out, normed @ (factor * weight).T, atol=1e-5)
                    expected[0, where], expected[1, where] = normed, out
                elif what == "passed on":
                    expected[:, where] = data
                factor *= 2 if what == "scaled" else 1
                refused = what in ("replaced", "moved") or (refused and what != "put back")
            assert torch.allclose(seen["cache"], expected, atol=1e-5)
            assert next(outputs, None) is None


# ---- public bugs: each shows, and only where it must


def runs(answer, drive, case):
    return drive(answer, *copy.deepcopy(case))


def test_d3_a_stale_row_strikes_only_after_the_batch_has_shrunk():
    full, shrinking, _ = checks.make_padded(np.random.default_rng(1))
    hit = [run["others_written"] for run in runs(runners.StaleRows, checks.drive_padded, full)["runs"]]
    assert hit == [[], []]
    seen = runs(runners.StaleRows, checks.drive_padded, shrinking)["runs"]
    assert seen[1]["others_written"] == [int(shrinking[3][0][2][-1])]


def test_d4_the_static_output_changes_under_its_owner():
    """sglang#35546."""
    case = checks.make_padded(np.random.default_rng(1))[0]
    first, second = runs(runners.StaticOutput, checks.drive_padded, case)["outputs_kept"]
    assert torch.equal(first, second)


def test_d5_and_d6_a_rebound_input_and_a_frozen_number_give_old_results():
    """onnxruntime#29782, flash-attention#1164."""
    weight, calls = checks.make_fixed(np.random.default_rng(1))[1]
    rebound = checks.drive_fixed(runners.RebindsBoth, weight, calls)["outputs"]
    assert all(not out.any() for out in rebound)
    frozen = checks.drive_fixed(runners.FrozenShift, weight, calls)["outputs"]
    assert torch.allclose(frozen[0], calls[0][0] @ weight.T, atol=1e-5)


# ---- other right answers


class ByKernel(runners.Fixed):
    """Copies in and out by launches of its own."""

    def run(self, x, shift):
        self.device.kernels.copy(x.flatten(), self.x.view(-1))
        self.device.kernels.copy(torch.full_like(x, shift).flatten(), self.shift.view(-1))
        self.graph.replay()
        out = self.device.empty(tuple(x.shape))
        self.device.kernels.copy(self.out.view(-1), out.view(-1))
        self.device.synchronize()
        return out


class WholeBatch:
    """Builds the padded batch on the host, keeps plain torch buffers, allocates the output inside the capture."""

    def __init__(self, device, step, rows, width):
        self.device, self.rows = device, rows
        self.x, self.slots = torch.zeros(rows, width), torch.full((rows,), -1)
        with device.graph() as self.graph:
            self.out = device.empty((rows, width))
            step(self.x, self.slots, self.out)

    def run(self, x, slots):
        missing = self.rows - len(x)
        if missing < 0:
            raise ValueError
        self.x.copy_(torch.cat([x, torch.zeros(missing, x.shape[1])]))
        self.slots.copy_(torch.cat([slots, torch.full((missing,), -1)]))
        self.graph.replay()
        self.device.synchronize()
        return torch.stack(list(self.out[: len(x)]))


class NotebooksDevice(runners.Fixed):
    """Uses the name ``device`` of the notebook where it was given one."""

    def replay(self):
        self.graph.replay()
        best_device().synchronize()


class AsksTheGraph(runners.Safe):
    """Looks for the weight's address among what the graph reads."""

    def remember(self):
        self.reads = {operand.address for node in self.graph.nodes for operand in node.reads}

    def replaced(self):
        return self.step.weight.data_ptr() not in self.reads


@pytest.mark.parametrize(
    ("key", "answer"), [("4a", ByKernel), ("4a", NotebooksDevice), ("4b", WholeBatch), ("4c", AsksTheGraph)]
)
def test_another_right_answer_passes(key, answer):
    for seed in (1, 2, 3):
        verdict = judge(key, lambda inputs: guard.observe(part(key), answer, inputs), seed)
        assert verdict.passed, (verdict.tried.en, verdict.expected.en, verdict.came.en)


class WritesIntoItsArguments(runners.Padded):
    """Right, but the caller's tensors are not what they were."""

    def run(self, x, slots):
        result = super().run(x, slots)
        slots.fill_(-1)
        return result


def test_an_answer_that_writes_into_its_arguments_is_caught():
    verdict = judge("4b", lambda inputs: guard.observe(part("4b"), WritesIntoItsArguments, inputs), 1)
    assert verdict.came.en == "calls overwritten"


@pytest.mark.parametrize(("key", "right"), [("4a", runners.Fixed), ("4b", runners.Padded), ("4c", runners.Safe)])
def test_the_wrong_answers_stand_on_right_ones(key, right):
    """So that each of them is wrong in one thing alone."""
    verdict = judge(key, lambda inputs: guard.observe(part(key), right, inputs), 1)
    assert verdict.passed
