"""Generation: batched equals alone, room in the cache is respected, sampling is seeded and exact."""

import pytest
import torch

from s13lib.errors import InputError
from s13lib.model import Sampling, generate
from tests.model.decoders import decoder_model, small_config

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11], [12, 13], [3, 1]]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, top_k=7, seed=5)])
def test_requests_in_a_batch_get_what_they_get_alone(device, sampling):
    model = decoder_model(small_config(), 4, device)
    together = generate(model, PROMPTS, 12, sampling)
    assert [len(tokens) for tokens in together] == [12] * 5
    for number, prompt in enumerate(PROMPTS):
        # The same request number, so the same random stream; its neighbours make one token each and leave.
        alone = generate(model, [*PROMPTS[:number], prompt], 12, sampling, max_batch=1)
        assert alone[number] == together[number]
    assert model.cache.allocator.free_blocks == model.cache.allocator.blocks


def test_a_small_cache_makes_requests_wait_and_none_is_lost(device):
    roomy = generate(decoder_model(small_config(), 11, device), PROMPTS, 9)
    tight = decoder_model(small_config(), 11, device, blocks=4, block_size=8)
    assert generate(tight, PROMPTS, 9) == roomy
    assert tight.cache.allocator.free_blocks == 4


def test_an_end_token_ends_a_request_and_is_not_returned(device):
    model = decoder_model(small_config(), 4, device)
    free = generate(model, PROMPTS, 12)
    end = free[0][3]
    ended = generate(model, PROMPTS, 12, end=end)
    for tokens, full in zip(ended, free, strict=True):
        assert tokens == (full[: full.index(end)] if end in full else full)
    assert model.cache.allocator.free_blocks == model.cache.allocator.blocks


def test_tokens_are_handed_on_as_they_come_and_a_step_of_ones_own_is_used(device):
    model = decoder_model(small_config(), 4, device)
    seen, rows = [], []

    def step(batch):
        rows.append(batch.rows)
        return model.forward(batch)

    out = generate(model, PROMPTS[:2], 4, step=step, on_token=lambda r: seen.append((r.number, r.tokens[-1])))
    assert rows == [2, 2, 2]  # the first token of each comes from its prefill
    assert [token for number, token in seen if number == 0] == out[0]
    assert [token for number, token in seen if number == 1] == out[1]


def test_an_error_in_a_step_gives_the_cache_back(device):
    model = decoder_model(small_config(), 4, device)

    def step(batch):
        raise RuntimeError("the runner broke")

    with pytest.raises(RuntimeError, match="the runner broke"):
        generate(model, PROMPTS, 4, step=step)
    assert model.cache.allocator.free_blocks == model.cache.allocator.blocks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1], []], 4), "prompt 1 is []: must be at least one token."),
        (([[1]], 0), "tokens is 0: must be a whole number of at least 1."),
        (([[1] * 300], 30), "prompt 0 has 300 tokens: with 30 new ones it exceeds the model's 320."),
        (([[1] * 100], 30), "prompt 0 needs 9 cache blocks: there are 4."),
    ],
)
def test_bad_input_is_one_sentence(device, arguments, message):
    with pytest.raises(InputError) as error:
        generate(decoder_model(small_config(), 4, device, blocks=4), *arguments)
    assert str(error.value) == message


def test_greedy_takes_the_largest_and_top_k_leaves_k():
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0])
    assert Sampling().choose(logits, None) == 1
    draws = {Sampling(temperature=5, top_k=2).choose(logits, Sampling().stream(i)) for i in range(200)}
    assert draws == {1, 3}


def test_sampling_follows_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0]) * 0.7
    sampling, stream = Sampling(temperature=0.7), Sampling(seed=3).stream(0)
    counts = torch.zeros(3)
    for _ in range(4000):
        counts[sampling.choose(logits, stream)] += 1
    expected = torch.softmax(torch.tensor([0.0, 1.0, 2.0]), 0)
    assert torch.allclose(counts / 4000, expected, atol=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, "temperature is -1: must be 0 (greedy) or from 0.001 to 1000."),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": 5e-324}, "temperature is 5e-324"),
        ({"top_k": 0}, "top_k is 0: must be None or a whole number of at least 1."),
    ],
)
def test_sampling_refuses_nonsense(arguments, message):
    with pytest.raises(InputError) as error:
        Sampling(**arguments)
    assert message in str(error.value)
