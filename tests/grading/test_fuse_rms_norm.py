"""Exercise 2: the public bug that it stands for, its references against the library, right answers of other kinds."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from s13lib.device import F32, SoftGPU, best_device
from s13lib.grading import guard
from s13lib.grading.judge import judge, judge_case
from s13lib.grading.manifest import part
from s13lib.grading.part import Trouble
from s13lib.grading.parts import fuse_rms_norm as exercise
from s13lib.grading.wrong.fuse_rms_norm import WRONG
from s13lib.kernels import reference as kernels
from s13lib.kernels.textbook import DecoderConfig, rope_tables

SEEDS = range(20)


def checked(key, answer, seed=1):
    return judge(key, lambda inputs: guard.observe(part(key), answer, inputs), seed)


def assert_right(key, answer, seeds=SEEDS):
    for seed in seeds:
        verdict = checked(key, answer, seed)
        assert verdict.passed, (seed, verdict.tried.en, verdict.expected.en, verdict.came.en, verdict.why.en)


def failed_cases(key, answer, seed=1):
    """The cases (inputs) that an answer gets wrong."""
    cases = part(key).make(np.random.default_rng(seed))
    return [i for i in cases if judge_case(part(key), i, guard.observe(part(key), answer, i))]


# ---- nano-vllm#170: the fused norm writes into the residual, in fp32 only


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sum_of_a_tensor_with_itself_leaves_it_alone(dtype):
    x = torch.tensor([3.0, 4.0], dtype=dtype)
    normed, total = exercise.fused_add_rms_norm(x, x, torch.ones(2, dtype=dtype), 0.0)
    assert x.tolist() == [3, 4]
    assert total.tolist() == [6, 8]
    torch.testing.assert_close(normed, torch.tensor([0.848528, 1.131371], dtype=dtype))


def test_the_shipped_bug_shows_in_fp32_and_not_in_bf16():
    shipped = next(wrong.answer for wrong in WRONG["2d"] if "copies nothing" in wrong.name)
    assert {memory.dtype for memory, *_ in failed_cases("2d", shipped)} == {torch.float32}
    narrow = next(wrong.answer for wrong in WRONG["2d"] if wrong.name == "squares in 16 bits")
    assert {memory.dtype for memory, *_ in failed_cases("2d", narrow)} == {torch.bfloat16}


# ---- the references against the library


def test_the_fused_layers_are_the_textbooks():
    config = DecoderConfig(3, 16, 24, 2, 1, 8, 1, 1e4, 1e-5, True, 64)
    blocks, norm = exercise.make_blocks(config, seed=5)
    x = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(1))
    cos, sin = rope_tables(torch.arange(4), 8, 1e4, torch.float32)
    plain = exercise._plain_layers(blocks, norm, x, cos, sin)
    fused = exercise.drive_stack(exercise.fused_layers, 3, 5, x, None)
    assert fused["calls of add_rms_norm"] == 6
    assert torch.allclose(fused["output"], plain, rtol=1e-5, atol=1e-5)


def test_five_intermediates_vanish_in_fp32_and_seven_in_bf16():
    counted = [exercise.intermediates(record) for (record,) in exercise.make_records(np.random.default_rng(3))]
    assert counted[0][0] == 1
    assert [number for number, _ in counted[4:7]] == [5, 7, 4]  # PyTorch's own norm adds eps in place


def test_the_kernels_reference_agrees_with_the_library():
    for inputs in exercise.make_rows(np.random.default_rng(4)):
        _, x, residual, weight, eps, rows = inputs
        got = exercise.drive_kernel(exercise.fused_add_rms_norm_kernel, *inputs)
        want_x, want_residual = torch.tensor(x), torch.tensor(residual)
        real = want_residual[:rows], want_x[:rows]
        total, normed = torch.empty_like(real[0]), torch.empty_like(real[1])
        kernels.add_rms_norm(*real, torch.tensor(weight), eps, total, normed)
        want_residual[:rows], want_x[:rows] = total, normed
        np.testing.assert_allclose(np.asarray(got["residual"]), want_residual, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(got["x"]), want_x, rtol=1e-5, atol=1e-6)


# ---- right answers that are written otherwise


def test_pytorchs_own_norm_is_right_in_2a():
    def answer(x, residual, weight, eps):
        total = residual + x
        return torch.nn.functional.rms_norm(total, weight.shape, weight, eps), total

    assert_right("2a", answer)


def by_division(x, residual, weight, eps):
    total = x + residual
    wide = total.to(torch.float32)
    mean_square = (wide * wide).sum(-1, keepdim=True) / wide.shape[-1]
    normed = (wide / torch.sqrt(mean_square + eps)).to(x.dtype)
    residual[:] = total
    x[:] = weight * normed


def in_float64(x, residual, weight, eps):
    residual += x
    wide = residual.double()
    x.copy_((wide * (wide.pow(2).mean(-1, keepdim=True) + eps) ** -0.5).to(x.dtype) * weight)


def by_its_own_2a(x, residual, weight, eps):
    def fused_add_rms_norm(x, residual, weight, eps):
        total = x + residual
        wide = total.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, True) + eps)).to(x.dtype) * weight, total

    normed, total = fused_add_rms_norm(x, residual, weight, eps)
    residual.copy_(total)
    x.copy_(normed)


@pytest.mark.parametrize("answer", [by_division, in_float64, by_its_own_2a])
def test_other_ways_to_round_alike_are_right(answer):
    assert_right("2d", answer, range(40))


def wide_sums(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    n = x.shape[1]
    for r in range(rows):
        squares = 0
        for i in range(n):
            x[r, i] += residual[r, i]
            residual[r, i] = x[r, i]
            squares += x[r, i] ** 2
        for i in range(n):
            x[r, i] /= (squares / n + eps) ** 0.5
            x[r, i] *= weight[i]


def row_by_row(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    for r in range(rows):
        residual[r] += x[r]
        x[r] = residual[r] / np.sqrt(np.mean(residual[r] ** 2) + np.float32(eps)) * weight


def other_names(delta: F32[2], stream: F32[2], gain: F32[1], epsilon: float, n: int):
    for r in range(n):
        stream[r] += delta[r]
        delta[r] = stream[r] / np.sqrt(np.mean(stream[r] ** 2) + np.float32(epsilon)) * gain


@pytest.mark.parametrize("answer", [wide_sums, row_by_row, other_names])
def test_other_kernels_are_right(answer):
    assert_right("2e", answer, range(5))


# ---- kernels that go wrong


def test_a_kernel_may_be_decorated():
    assert_right("2e", SoftGPU().kernel(wide_sums), range(2))


def test_a_kernel_that_does_not_compile_is_told_in_one_line():
    def answer(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
        total = residual[:rows] + x[:rows]
        square = np.mean(total * total, axis=1, keepdims=True)
        residual[:rows] = total
        x[:rows] = total / np.sqrt(square + eps) * weight

    verdict = checked("2e", answer)
    assert verdict.case == 6  # plain Python is content
    assert "\n" not in verdict.why.en
    assert "does not compile" in verdict.why.en
    assert "at `square = np.mean(total * total, axis=1, keepdims=True)`" in verdict.why.en
    assert "编译不了" in verdict.why.zh


def test_a_kernel_without_types_is_told():
    def answer(x, residual, weight, eps, rows):
        wide_sums(x, residual, weight, eps, rows)

    verdict = checked("2e", answer)
    assert "type of x" in verdict.why.en


def test_a_loop_without_end_never_reaches_the_device(monkeypatch):
    def answer(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
        row = 0
        while row < rows:
            x[row, 0] = 0

    monkeypatch.setattr(exercise, "PYTHON_SECONDS", 0.3)
    inputs = ("SoftGPU", *part("2e").make(np.random.default_rng(1))[0][1:])
    assert guard.observe(part("2e"), answer, inputs).trouble == Trouble("slow", "0.3")
    best_device().synchronize()


@pytest.mark.parametrize("inner", [0.1, 9.0])
def test_time_limits_may_be_nested(inner):
    def in_both():
        with guard.time_limit(inner):
            while True:
                pass

    def behind_the_inner():
        with guard.time_limit(inner):
            pass
        while True:
            pass

    assert guard.attempt(in_both, 0.3)[1] == Trouble("slow", f"{min(inner, 0.3):g}")
    assert guard.attempt(behind_the_inner, 0.3)[1] == Trouble("slow", "0.3")


def test_a_kernel_that_writes_into_its_weight_is_told():
    def answer(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
        wide_sums(x, residual, weight, eps, rows)
        weight[0] = 0

    assert "weight" in checked("2e", answer).came.en
