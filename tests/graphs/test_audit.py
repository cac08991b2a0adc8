"""What the padding scenario does not produce: wrong real rows, requests that come back, foreign sequences."""

from dataclasses import replace

import pytest
import torch

from s13lib.errors import InputError
from s13lib.graphs import BucketedRunner, CacheAudit, CacheCorruption
from s13lib.model import Sequence
from tests.graphs.test_runner import TWO_LAYERS
from tests.model.decoders import decoder_model


@pytest.fixture
def model(device):
    return decoder_model(TWO_LAYERS, 4, device, blocks=12, block_size=8, max_rows=16)


def admit(model, tokens, name):
    sequence = Sequence(name)
    model.prefill(sequence, tokens)
    return sequence


@pytest.mark.parametrize("with_leases", [True, False])
def test_a_real_row_with_anothers_slot_is_an_alarm(model, with_leases):
    a, b = admit(model, [1, 2], "A"), admit(model, [3, 4], "B")
    batch = model.next_batch([a, b], [5, 6])
    wrong = batch.slot_mapping.clone()
    wrong[0] = model.cache.slot(b, 0)
    batch = replace(batch, slot_mapping=wrong, leases=batch.leases if with_leases else None)
    runner = BucketedRunner(model, [2], audit=CacheAudit(model.cache), progress=False)
    with pytest.raises(CacheCorruption, match=r"^row 0 writes to slot \d+ of block \d+, which belongs to B\.$"):
        runner.forward(batch)


def test_a_batch_that_outlived_its_request_is_an_alarm(model):
    a = admit(model, [1, 2], "A")
    kept = model.next_batch([a], [3])
    model.cache.release(a)
    admit(model, [4, 5, 6], "Z")
    runner = BucketedRunner(model, [1], audit=CacheAudit(model.cache), progress=False)
    with pytest.raises(CacheCorruption, match=r"row 0 writes .* which belongs to Z"):
        runner.forward(kept)


def test_a_request_that_comes_back_does_not_own_its_old_slots(model):
    a, b = admit(model, [1, 2], "A"), admit(model, [3, 4], "B")
    audit = CacheAudit(model.cache, "stale")
    runner = BucketedRunner(model, [2], "stale", audit=audit, progress=False)
    runner.forward(model.next_batch([a, b], [5, 6]))
    model.cache.release(b)
    model.prefill(b, [7, 8, 9, 10])  # preempted and resumed: the same object, the same block, other contents
    with pytest.raises(CacheCorruption, match=r"padding row 1 \(stale\) writes to slot .* which belongs to B"):
        runner.forward(model.next_batch([a], [11]))


def test_the_audit_of_another_models_cache_is_refused(model, device):
    other = decoder_model(TWO_LAYERS, 4, device, blocks=4, block_size=8)
    with pytest.raises(InputError, match="audit watches another model's cache"):
        BucketedRunner(model, [1], audit=CacheAudit(other.cache), progress=False)


def test_a_sequence_of_another_cache_is_refused(model, device):
    other = decoder_model(TWO_LAYERS, 4, device, blocks=12, block_size=8)
    foreign, own = admit(model, [1, 2], "foreign"), admit(other, [1, 2], "own")
    for call in (
        lambda: other.cache.release(foreign),
        lambda: other.decode([foreign], [3]),
        lambda: other.prefill(foreign, [3]),
    ):
        with pytest.raises(InputError, match="sequence 'foreign' has blocks that this cache did not give it"):
            call()
    assert other.cache.owners == dict.fromkeys(own.blocks, own)
    assert foreign.length == 2


def test_next_batch_takes_room_for_all_or_for_none(device):
    model = decoder_model(TWO_LAYERS, 4, device, blocks=2, block_size=2)
    a, b = admit(model, [1], "A"), admit(model, [2, 3], "B")
    with pytest.raises(InputError, match="the KV cache is full"):
        model.next_batch([a, b], [4, 5])
    assert (a.length, b.length) == (1, 2)
    with pytest.raises(InputError, match="must be different ones: a row each"):
        model.next_batch([a, a], [4, 5])
    assert a.length == 1
    alone = decoder_model(TWO_LAYERS, 4, device, blocks=2, block_size=2)
    twin = admit(alone, [1], "A")
    assert torch.equal(model.decode([a], [4]), alone.decode([twin], [4]))


def test_a_step_that_failed_is_not_held(model):
    from s13lib.device import DeviceError

    a = admit(model, [1, 2], "A")
    with pytest.raises(DeviceError, match="token 99 is outside the vocabulary"):
        model.decode([a], [99])
    with pytest.raises(DeviceError, match="token 99 is outside the vocabulary"):
        model.prefill(a, [3] * 20 + [99])
    assert (a.length, len(a.blocks)) == (2, 1)
    twin = admit(model, [1, 2], "twin")
    assert torch.equal(model.decode([a], [3]), model.decode([twin], [3]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: {"slot_mapping": b.slot_mapping[:1]}, "slot_mapping is"),
        (lambda b: {"block_tables": b.block_tables[:1]}, "block_tables is"),
        (lambda b: {"context_lens": b.context_lens.float()}, "context_lens is"),
        (lambda b: {"positions": b.positions[:1]}, "positions is"),
    ],
)
def test_a_misshapen_batch_is_refused_and_not_stretched(model, change, message):
    batch = model.next_batch([admit(model, [1], "A"), admit(model, [2], "B")], [3, 4])
    with pytest.raises(InputError, match=message):
        model.forward(replace(batch, **change(batch)))
    runner = BucketedRunner(model, [2], progress=False)
    with pytest.raises(InputError, match=message):
        runner.forward(replace(batch, **change(batch)))


def test_a_closed_device_refuses_replays_and_a_replaced_cache_is_named(model):
    from s13lib.device import SoftGPU
    from s13lib.graphs import GraphRunner

    device = SoftGPU()
    x = device.tensor([1.0])
    with device.graph() as graph:
        device.kernels.scale(x, x, 2.0)
    device.close()
    with pytest.raises(InputError, match="this SoftGPU was closed"):
        graph.replay()
    runner = GraphRunner(model, 1, padding="skip")
    batch = model.next_batch([admit(model, [1], "A")], [2])
    runner.run(batch)
    model.cache = type(model.cache)(model.config, model.device, 4)
    with pytest.raises(InputError, match="the model's cache was replaced after the capture"):
        runner.run(batch)


def test_a_learners_kernel_never_takes_a_built_ins_place(device):
    program = """
from s13lib.device import SoftGPU, F32
device = SoftGPU()
@device.kernel
def scale(x: F32[1], out: F32[1], factor: float):
    out[0] = -1.0
x, y = device.tensor([3.0]), device.zeros(1)
scale(x, y, 2.0); device.synchronize(); own = y.item()
import s13lib.kernels.softgpu
device.kernels.scale(x, y, 2.0); device.synchronize()
print(own, y.item())
"""
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-1.0", "6.0"]
