"""torch.compile as a peer: the same logits, and compilations that are counted."""

import dataclasses

import pytest
import torch

from s13lib.model.checkpoints import load_bard
from s13lib.profiling.compiled import compilations, cpp_compiler, textbook_step

CONTEXT = 6


@pytest.fixture(scope="module")
def bard():
    """Its first layer, which compiles in seconds."""
    whole = load_bard()
    gone = tuple(f"model.layers.{n}." for n in range(1, whole.config.layers))
    state = {name: tensor for name, tensor in whole.state.items() if not name.startswith(gone)}
    return dataclasses.replace(whole, config=dataclasses.replace(whole.config, layers=1), state=state)


def test_a_step_makes_the_last_token_of_its_context_again_and_again(bard):
    step = textbook_step(bard, 2, CONTEXT)
    tokens = torch.tensor([[0] * (CONTEXT - 1) + [1]] * 2)
    expected = bard.textbook()(tokens)[:, -1:]
    for _ in range(3):
        assert torch.allclose(step(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(cpp_compiler() is None, reason="torch.compile needs a C++ compiler on a CPU, and none was found")
def test_a_compiled_step_gives_the_eager_logits(bard):
    compiled = textbook_step(bard, 1, CONTEXT, lambda decoder: torch.compile(decoder, dynamic=False))
    assert torch.allclose(compiled(), textbook_step(bard, 1, CONTEXT)(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "dynamic", "count"),
    [
        ([(2, 6)] * 3, None, 1),
        ([(2, 6), (3, 6), (4, 6)], None, 2),  # the second time with a size that may vary
        ([(2, 6), (3, 6), (4, 6)], False, 3),
        ([(5, 11), (7, 11), (9, 11)], True, 1),
        ([(1, 6), (2, 6), (3, 6)], True, 2),  # 1 is always compiled for itself
        ([(2, context) for context in range(6, 18)], False, 8),  # and eager from there on
    ],
)
def test_compilations_are_counted(bard, sizes, dynamic, count):
    assert compilations(bard, sizes, dynamic) == count
