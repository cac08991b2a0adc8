"""On a GPU programs run in any order. The interpreter has one order; here it is turned round, and no bit may change."""

import pytest

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")
from triton.runtime.interpreter import interpreter_builder

from s13lib.kernels.cuda import KERNELS
from tests.kernels.cuda.test_prompt import prompt_case

SIZES = {"kv_heads": 2, "heads": 4, "head_dim": 6, "hidden": 33, "width": 9, "block_size": 4}


@pytest.fixture
def backwards(monkeypatch):
    """Call to have the last program of a grid run first from then on."""
    right = interpreter_builder.set_grid_idx

    def turn_round():
        def wrong_way(*place):
            right(*(n - 1 - i for n, i in zip(interpreter_builder.grid_dim, place, strict=True)))

        monkeypatch.setattr(interpreter_builder, "set_grid_idx", wrong_way)

    return turn_round


@pytest.mark.parametrize("name", KERNELS)
def test_the_last_program_may_run_first(make_case, launch, bits, backwards, name):
    forwards = make_case(name, 1, rows=3, contexts=[70, 290, 2], **SIZES)
    other_way = forwards.copy()
    assert launch(forwards) == 0
    backwards()
    assert launch(other_way) == 0
    for p, computed in other_way.outputs.items():
        assert bits(computed) == bits(forwards.arguments[p]), p


def test_a_prompts_rows_do_not_wait_for_each_other(launch, bits, backwards):
    """The last row attends before any key has been written to the cache, where NaN stands."""
    forwards = prompt_case([(5, 12), (33, 4)])
    other_way = forwards.copy()
    assert launch(forwards) == 0
    backwards()
    assert launch(other_way) == 0
    assert other_way.arguments["out"].isfinite().all()
    for p, computed in other_way.outputs.items():
        assert bits(computed) == bits(forwards.arguments[p]), p
