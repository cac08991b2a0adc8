"""The built-in workloads: the same at every call, and close to the public statistics they are modelled on."""

import pytest

from s13lib.buckets import WORKLOADS, chat, code, generate
from s13lib.errors import InputError


def test_chat_is_close_to_the_azure_conversation_trace():
    traffic = chat()
    # Little's law: 5.53 requests/s × 211 tokens × 25 ms = 29.2; the trace has mean 29.13, median 29.
    assert traffic.mean == pytest.approx(29.2, abs=1)
    assert traffic.percentile(50) in (28, 29, 30)
    assert traffic.largest < 70
    assert traffic.origin == "modelled: chat (Azure 2023 statistics), load ×1, 25 ms a step"


def test_code_runs_small_batches():
    traffic = code()
    # 2.57 requests/s × 28 tokens × 25 ms = 1.80 over all time, and 1.80/(1 − e^−1.80) over the steps that run at all.
    assert traffic.mean == pytest.approx(2.15, abs=0.1)
    assert traffic.largest < 20


@pytest.mark.parametrize("name", WORKLOADS)
def test_full_load_saturates(name):
    traffic = generate(name, load=WORKLOADS[name].full_load(cap=256))
    assert traffic.largest == 256
    assert traffic.counts[256] / traffic.steps > 0.9


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_traffic(name):
    first, again, other = (generate(name, load=4, seed=seed) for seed in (13, 13, 14))
    assert first.parts.tolist() == again.parts.tolist()
    assert first.parts.tolist() != other.parts.tolist()
    assert first.mean == pytest.approx(other.mean, rel=0.05)  # another draw tells the same story
    assert first.name == f"{name} ×4"


def test_options():
    assert chat(load=4, cap=100).largest == 100
    assert chat(step_ms=50).mean == pytest.approx(2 * chat().mean, rel=0.01)


def test_bad_options():
    with pytest.raises(InputError, match=r"^workload: unknown name 'chatt'; did you mean chat\?$"):
        generate("chatt")
    with pytest.raises(InputError, match=r"^load is -1: must be a number"):
        chat(load=-1)
    with pytest.raises(InputError, match=r"^cap is 0: must be a whole number"):
        code(cap=0)
    with pytest.raises(InputError, match=r"^chat: the traffic is empty"):
        generate("chat", requests=0)
