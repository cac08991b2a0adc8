"""Kernels that read quantised weights against the float64 reference on the same weights, within a derived bound."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import torch

from s13lib.device import DeviceError, SoftGPU
from s13lib.device.kernel import REGISTRY
from s13lib.errors import InputError
from s13lib.kernels import MATRIX_KERNELS, bounds, in_format
from s13lib.kernels.bounds import Bounded, excess
from s13lib.kernels.quantised import BLOCK, FORMATS, dequantise, quantise
from tests.kernels.test_against_reference import expected

BOTH = [(name, form) for name in MATRIX_KERNELS for form in FORMATS]


def quantised_linear(x, weight):
    """What a product with quantised weights may err by: the activations' rounding, and float32's."""
    return bounds.linear(bounds.sixteen_bit(x), weight)


class Twin:
    """A case whose weight is quantised: ``case`` holds what it stands for, in float32, ``packed`` the rows."""

    def __init__(self, case, form, packed=None):
        self.form = form
        self.packed = quantise(case.arguments["weight"].numpy(), form) if packed is None else packed
        self.case = case.copy(weight=torch.from_numpy(dequantise(self.packed, form)))
        self.kernel = REGISTRY[in_format(case.name, form)]

    def rows(self, index):
        return Twin(self.case.rows(index), self.form, self.packed)

    def copy(self):
        return Twin(self.case, self.form, self.packed)

    def run(self):
        weight = self.packed.view(FORMATS[self.form].element.kernel_dtype)
        arguments = (
            t.numpy() if isinstance(t, torch.Tensor) else t for t in (self.case.arguments | {"weight": 0}).values()
        )
        arguments = [weight if p == "weight" else a for p, a in zip(self.case.arguments, arguments, strict=True)]
        return self.kernel.function(*arguments) or 0

    @property
    def outputs(self):
        return self.case.outputs


@pytest.fixture
def make_twin(make_case):
    def make(name, form, seed=0, rows=None, contexts=None, blocks=None):
        blocks = blocks or [1, 2, 3, 7][seed % 4]
        sizes = {"hidden": BLOCK * blocks, "head_dim": 32, "kv_heads": 1 + seed % 2, "heads": (1 + seed % 2) * 3}
        return Twin(make_case(name, seed, rows, contexts, **sizes), form)

    return make


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("name", "form"), BOTH)
def test_within_the_bound_and_fully_overwritten(make_twin, name, form, seed):
    twin = make_twin(name, form, seed)
    truth = twin.case.reference()
    bounded = expected(twin.case, quantised_linear)
    assert twin.run() == 0
    for p, computed in twin.outputs.items():
        true = truth.arguments[p]
        assert torch.equal(computed.isnan(), true.isnan()), p
        if p in bounded:  # not the caches that are only read
            error = bounded[p].error.nan_to_num()
            assert excess(computed.nan_to_num(), Bounded(true.nan_to_num(), error)) <= 1, p


@pytest.mark.parametrize(("name", "form"), BOTH)
def test_the_bound_is_tight_enough_to_fail_the_error_of_activations_in_8_bits(make_twin, name, form):
    """A 250th of a block's largest activation: what llama.cpp's kernels err by. Here it must show."""
    twin = make_twin(name, form, seed=3, rows=40)
    twin.run()
    if name == "embedding":
        assert torch.equal(twin.outputs["out"], twin.case.reference().arguments["out"].float())
        return
    for p, bounded in expected(twin.case, quantised_linear).items():
        if p == "v_cache":
            continue
        wrong = twin.outputs[p] * (1 + 1 / 254)
        assert excess(wrong.nan_to_num(), bounded.map(torch.nan_to_num)) > 1, p


@pytest.mark.parametrize("form", FORMATS)
def test_integers_come_out_exactly(form):
    """Scales of 1 and activations that are whole numbers, the largest of each block 32767: no rounding anywhere."""
    random = np.random.default_rng(0)
    most = {"q8_0": 127, "q4_0": -8}[form]
    weight = random.integers(-7, 8, (9, 5 * BLOCK)).astype(np.float32)
    weight[:, ::BLOCK] = most  # with d = ±1
    x = random.integers(-9, 10, (4, 5 * BLOCK)).astype(np.float32)
    x[:, 7::BLOCK] = 32767
    out = np.empty((4, 9), np.float32)
    packed = quantise(weight, form)
    assert np.array_equal(dequantise(packed, form), weight)
    kernel = REGISTRY[in_format("linear", form)]
    kernel.function(x, packed.view(FORMATS[form].element.kernel_dtype), out)
    assert np.array_equal(out, x.astype(np.float64) @ weight.T.astype(np.float64))


@pytest.mark.parametrize("form", FORMATS)
def test_any_bytes_are_read_as_the_format_says(form):
    """All byte values, and scales from the smallest float16 to the largest, of both signs."""
    random = np.random.default_rng(1)
    block_bytes = FORMATS[form].block_bytes
    packed = random.integers(0, 256, (300, 2 * block_bytes), dtype=np.uint8)
    scales = random.integers(0, 1 << 16, (300, 2), dtype=np.uint16).view(np.float16)
    scales = np.where(np.isfinite(scales), scales, np.float16(6e-8))  # the smallest there is
    packed.reshape(600, block_bytes)[:, :2] = scales.reshape(600, 1).view(np.uint8)
    weight = torch.from_numpy(dequantise(packed, form))
    x = torch.from_numpy(random.standard_normal((3, 2 * BLOCK)).astype(np.float32))
    out = np.empty((3, 300), np.float32)
    typed = packed.view(FORMATS[form].element.kernel_dtype)
    REGISTRY[in_format("linear", form)].function(x.numpy(), typed, out)
    assert excess(torch.from_numpy(out), quantised_linear(bounds.exact(x), bounds.exact(weight))) <= 1
    widened = np.empty((300, 2 * BLOCK), np.float32)
    REGISTRY[in_format("embedding", form)].function(np.arange(300), typed, widened)
    assert np.array_equal(widened, weight.numpy())


@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e30])
@pytest.mark.parametrize("form", FORMATS)
def test_activations_of_any_size(make_twin, form, size):
    twin = make_twin("linear", form, seed=2, rows=3)
    twin.case.arguments["x"] *= size
    truth = twin.case.reference().arguments["out"]
    assert twin.run() == 0
    assert excess(twin.outputs["out"], Bounded(truth, expected(twin.case, quantised_linear)["out"].error)) <= 1


@pytest.mark.parametrize("what", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("name", "form"), [b for b in BOTH if b[0] != "embedding"])
def test_what_is_not_finite_stays_in_its_row_and_is_not_lost(make_twin, name, form, what):
    twin = make_twin(name, form, seed=5, rows=3)
    given = next(p for p in ("x", "q") if p in twin.case.arguments)
    twin.case.arguments[given][1, 3] = what
    assert twin.run() == 0
    for p in (p for p in twin.outputs if p.startswith("out")):
        assert (~twin.outputs[p].isfinite()).reshape(3, -1).any(dim=1).tolist() == [False, True, False], p


# ---- rows


def assert_same_rows(full, part, index, bits):
    for p, computed in part.outputs.items():
        if p.endswith("cache"):
            if not part.case.slots:
                continue
            cached = [t.case.arguments[p].flatten(0, 1)[t.case.slots] for t in (full, part)]
            assert bits(cached[1]) == bits(cached[0][index]), p
        else:
            assert bits(computed) == bits(full.outputs[p][index]), p


@pytest.mark.parametrize(("name", "form"), BOTH)
def test_a_rows_result_depends_neither_on_the_batch_nor_on_its_place(make_twin, bits, name, form):
    random = torch.Generator().manual_seed(5)
    largest = 37
    contexts = torch.randint(1, 60, (largest,), generator=random).tolist()
    full = make_twin(name, form, seed=1, rows=largest, contexts=contexts)
    untouched = full.copy()
    assert full.run() == 0
    for rows in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 36):
        index = torch.randperm(largest, generator=random)[:rows]
        part = untouched.rows(index)
        assert part.run() == 0
        assert_same_rows(full, part, index, bits)


@pytest.mark.parametrize("form", FORMATS)
def test_the_product_is_the_same_in_every_kernel(make_case, bits, form):
    """Unlike float32's: the order of its sums is written down, not left to the compiler."""
    case = make_case("linear", seed=1, rows=3, hidden=96, width=64)
    alone = Twin(case, form)
    assert alone.run() == 0
    added = make_case("linear_add", seed=1, rows=3, hidden=96, width=64)
    added.arguments |= {"x": case.arguments["x"], "weight": case.arguments["weight"]}
    added.arguments["residual"] = torch.zeros_like(added.arguments["residual"])
    added = Twin(added, form)
    assert added.run() == 0
    assert bits(added.outputs["out"]) == bits(alone.outputs["out"])


# ---- on the device


@pytest.fixture(scope="module")
def device():
    device = SoftGPU()
    yield device
    device.close()


@pytest.mark.parametrize(("name", "form"), BOTH)
def test_a_launch_and_a_replay_write_what_the_function_writes(make_twin, bits, device, name, form):
    called = make_twin(name, form, seed=6, rows=5)
    given = called.case.arguments | {"weight": torch.from_numpy(called.packed)}
    given = {p: device.tensor(t) if isinstance(t, torch.Tensor) else t for p, t in given.items()}
    before = {p: given[p].clone() for p in called.outputs}
    assert called.run() == 0
    launch = getattr(device.kernels, in_format(name, form))
    launch(*given.values())
    device.synchronize()
    for p, computed in called.outputs.items():
        assert bits(given[p]) == bits(computed), p
        given[p].copy_(before[p])
    bound = device.bind(launch, *given.values())
    with device.graph() as graph:
        bound.launch()
    graph.replay()
    device.synchronize()
    for p, computed in called.outputs.items():
        assert bits(given[p]) == bits(computed), p


def test_errors_are_the_original_kernels_own(make_twin, device):
    weight, out = device.tensor(quantise(np.full((2, 32), 127, np.float32), "q8_0")), device.zeros((2, 32))
    device.kernels.embedding_q8_0(device.tensor([0, 9]), weight, out)
    with pytest.raises(DeviceError, match="embedding_q8_0: token 9 is outside the vocabulary; the row was skipped"):
        device.synchronize()
    assert out[:, 0].tolist() == [127, 0]

    good = make_twin("attention_linear_add", "q4_0", rows=3, contexts=[5, 9, 2])
    bad = good.copy()
    bad.case.arguments["context_lens"][1] = -1
    assert good.run() == 0
    assert bad.run() != 0
    out, expected_out = bad.outputs["out"], good.outputs["out"]
    assert out[1].isnan().all()
    assert torch.equal(out[[0, 2]], expected_out[[0, 2]])


def test_shapes_and_types_that_do_not_fit_are_one_sentence(device):
    launch = device.kernels.linear_q8_0
    for x, weight, sentence in [
        (device.zeros((1, 64)), device.zeros((4, 34), torch.uint8),
         "linear_q8_0: weight.shape is (4, 34): must be [m, n // 32 * 34] = (4, 68), as its other arguments."),
        (device.zeros((1, 40)), device.zeros((4, 34), torch.uint8),
         "linear_q8_0: shapes must satisfy n % 32 == 0: n = 40."),
        (device.zeros((1, 32)), device.zeros((4, 34)),
         "linear_q8_0: weight.dtype is torch.float32: must be torch.uint8."),
        (device.zeros((1, 32)), device.zeros((4, 18), torch.uint8),
         "linear_q8_0: weight.shape is (4, 18): must be [m, n // 32 * 34] = (4, 34), as its other arguments."),
    ]:  # fmt: skip
        with pytest.raises(InputError) as error:
            launch(x, weight, device.zeros((1, 4)))
        assert str(error.value) == sentence


def test_a_twin_says_what_it_is_and_the_originals_are_as_they_were():
    twin, original = REGISTRY["rms_norm_qkv_q4_0"], REGISTRY["rms_norm_qkv"]
    assert repr(twin) == repr(original).replace("rms_norm_qkv(", "rms_norm_qkv_q4_0(").replace("weight: F32[2]", "weight: Q4_0[2]")  # fmt: skip  # noqa: E501
    assert twin.__doc__.startswith("``rms_norm_qkv`` with ``weight`` in q4_0: packed rows")
    assert [p.written for p in twin.parameters] == [p.written for p in original.parameters]
    assert set(REGISTRY) >= {in_format(name, form) for name, form in BOTH}
    assert in_format("rope", "q8_0") == "rope"
    assert in_format("linear", "f32") == "linear"


# ---- other processors

ON_ANOTHER_PROCESSOR = """
import sys
import os
import platform
import subprocess
import sys

import numpy as np
import s13lib.kernels.softgpu
from s13lib.device.kernel import REGISTRY
from s13lib.kernels.quantised import FORMATS

given = dict(np.load(sys.argv[1]))
for form in FORMATS:
    packed = given[form].view(FORMATS[form].element.kernel_dtype)
    REGISTRY["linear_" + form].function(given["x"], packed, out := np.empty((3, 9), np.float32))
    REGISTRY["embedding_" + form].function(np.arange(9), packed, widened := np.empty((9, 96), np.float32))
    given |= {"out " + form: out, "widened " + form: widened}
np.savez(sys.argv[2], **given)
"""


def test_a_processor_without_wide_vectors_gives_the_same_bits(tmp_path):
    """Nothing but the baseline of 64-bit x86: no conversion of float16, no fused multiply-add, four lanes."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the baseline that is asked for here is that of x86-64")
    random = np.random.default_rng(3)
    weight = random.standard_normal((9, 96)).astype(np.float32)
    weight[3] *= 1e-6  # scales below float16's normal range
    given = {form: quantise(weight, form) for form in FORMATS}
    given["x"] = random.standard_normal((3, 96)).astype(np.float32)
    np.savez(tmp_path / "given.npz", **given)
    results = []
    for name, settings in (("here", {}), ("there", {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""})):
        command = [sys.executable, "-c", ON_ANOTHER_PROCESSOR, tmp_path / "given.npz", tmp_path / f"{name}.npz"]
        subprocess.run(command, env=os.environ | settings, check=True)
        results.append(dict(np.load(tmp_path / f"{name}.npz")))
    here, there = results
    assert len(here) == 7
    for key, value in here.items():
        if key.startswith("out"):  # the rounding of the activations is left to the compiler, to one unit of 65534
            np.testing.assert_allclose(there[key], value, rtol=0, atol=2e-4 * np.abs(value).max())
        else:
            assert np.array_equal(there[key], value), key
