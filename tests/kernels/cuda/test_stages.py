"""The decoder at stages 7 and 5 on these kernels alone, on the CUDA device over its fake, against the textbook."""

import copy
from collections import Counter

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

from s13lib.device import DeviceError, cuda
from s13lib.kernels.cuda import KERNELS
from s13lib.model import DecodeBatch, DecoderModel, DecoderWeights, Sequence
from s13lib.model.stages import kernels_of
from tests.device.fake_cuda import cuda_device, fake  # noqa: F401 — fixtures
from tests.model.decoders import small_config, textbook

CONFIG = small_config(layers=2, hidden=16, ffn=20, heads=3, kv_heads=1, head_dim=6, vocab=11, max_context=64)


@pytest.fixture
def launched(monkeypatch, fake):  # noqa: F811
    """How often each kernel was bound: bound launches are those of a step."""
    monkeypatch.setattr(cuda, "REGISTRY", KERNELS)
    counted = Counter()
    for kernel in KERNELS.values():
        right = kernel.bind
        monkeypatch.setattr(kernel, "bind", lambda *a, k=kernel, b=right: (counted.update([k.name]), b(*a))[1])
    return counted


def model_of(stage, device, dtype=torch.float32):
    weights = DecoderWeights.from_state_dict(CONFIG, textbook(CONFIG).state_dict(), device, progress=False, dtype=dtype)
    return DecoderModel(CONFIG, weights, stage, device, max_rows=8, blocks=24, block_size=4)


@pytest.mark.parametrize(("dtype", "times"), [(torch.float32, 8), (torch.float16, None)], ids=["float32", "float16"])
@pytest.mark.parametrize("stage", [7, 5])
def test_prompt_and_decode_are_the_textbooks(launched, cuda_device, stage, dtype, times):  # noqa: F811
    """float32: within 8 times what the textbook itself errs in float32; float16: within 2 % of the largest logit."""
    single = textbook(CONFIG)
    prompts = [[3, 1, 4, 1, 5, 9], [2, 7]]
    follow = [[8, 2], [6, 6]]
    model, sequences = model_of(stage, cuda_device, dtype), [Sequence(), Sequence()]
    ours = [[model.prefill(s, p)] for s, p in zip(sequences, prompts, strict=True)]
    for step in range(2):
        logits = model.decode(sequences, [tokens[step] for tokens in follow])
        for mine, row in zip(ours, logits, strict=True):
            mine.append(row)
    for mine, prompt, tokens in zip(ours, prompts, follow, strict=True):
        whole = torch.tensor([prompt + tokens])
        truth = copy.deepcopy(single).double()(whole)[0, len(prompt) - 1 :]
        error = (torch.stack(mine).double() - truth).abs().max()
        own = (single(whole)[0, len(prompt) - 1 :].double() - truth).abs().max()
        assert error <= (times * own if times else 0.02 * truth.abs().max())


@pytest.mark.parametrize("stage", [7, 5])
def test_a_step_launches_the_stages_kernels_and_no_other(launched, cuda_device, stage):  # noqa: F811
    model = model_of(stage, cuda_device)
    model.prefill(Sequence(), [1])
    assert set(launched) == set(kernels_of(stage))
    assert launched.total() == stage * CONFIG.layers + 3  # embedding, final norm, head


def test_a_bad_row_is_told_by_the_devices_synchronise(launched, cuda_device):  # noqa: F811
    model, good = model_of(5, cuda_device), Sequence()
    model.cache.extend(good, 3)
    batch = DecodeBatch.of(model.cache, [(1, good, 0), (2, good, 1), (3, good, 2)])
    expected = model.forward(batch)
    batch.slot_mapping[0] = 25 * 4  # one past the scratch block
    with pytest.raises(DeviceError, match="rope_append_attention: slot 100 is out of range; the write was skipped"):
        model.forward(batch)
    batch.slot_mapping[0] = good.blocks[0] * 4
    assert torch.equal(model.forward(batch), expected)
