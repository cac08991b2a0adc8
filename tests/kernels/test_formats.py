"""q8_0 and q4_0: the bytes, as worked out by hand and as llama.cpp's own Python package makes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.kernels.quantised import BLOCK, FORMATS, LARGEST, dequantise, from_gguf, quantise, row_bytes
from s13lib.model import smollm2

HALF_STEP = {"q8_0": 0.5, "q4_0": 1.0}
STEPS = {"q8_0": 127, "q4_0": 8}


def weights(seed, rows=3, blocks=4, low=-6, high=3):
    """Rows of very different sizes, one block of zeros among them."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((rows, blocks * BLOCK)) * 10.0 ** random.uniform(low, high, (rows, 1))
    matrix[0, :BLOCK] = 0
    return matrix.astype(np.float32)


def gguf_quantise(matrix, name):
    gguf = pytest.importorskip("gguf")
    return gguf.quants.quantize(matrix, gguf.GGMLQuantizationType[name.upper()])


# ---- by hand


def test_a_q8_0_block_by_hand():
    """The largest magnitude is 254, so d = 2 (float16 0x4000), and halves are rounded away from zero."""
    block = np.zeros((1, BLOCK), np.float32)
    block[0, :6] = 254, -254, 3, -3, 2.9, 1
    packed = quantise(block, "q8_0")
    assert packed.tolist() == [[0x00, 0x40, 127, 256 - 127, 2, 256 - 2, 1, 1, *[0] * 26]]
    assert dequantise(packed, "q8_0")[0, :6].tolist() == [254, -254, 4, -4, 2, 2]


def test_a_q4_0_block_by_hand():
    """The weight of largest magnitude, 8, is −8 steps of d = −1 (float16 0xBC00); weight 16 shares a byte with 0."""
    block = np.zeros((1, BLOCK), np.float32)
    block[0, 0], block[0, 1], block[0, 15], block[0, 16], block[0, 31] = 8, -7.9, 2.4, -3, 1
    packed = quantise(block, "q4_0")
    low = {0: 0, 1: 15, 15: 6}  # q + 8 with q = w / −1: −8, 7.9 (which stops at 7), −2.4
    high = {0: 11, 15: 7}
    bytes_ = [low.get(i, 8) | high.get(i, 8) << 4 for i in range(16)]
    assert packed.tolist() == [[0x00, 0xBC, *bytes_]]
    assert dequantise(packed, "q4_0")[0, [0, 1, 15, 16, 31]].tolist() == [8, -7, 2, -3, 1]


def test_sizes():
    assert [row_bytes(576, name) for name in FORMATS] == [576 // 32 * 34, 576 // 32 * 18]
    assert [f.bytes_per_weight for f in FORMATS.values()] == [1.0625, 0.5625]
    assert quantise(np.zeros((0, 64), np.float32), "q8_0").shape == (0, 68)


# ---- against the gguf package


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_are_those_of_the_gguf_package(name, seed):
    gguf = pytest.importorskip("gguf")
    matrix = weights(seed, rows=40, blocks=18)
    packed = quantise(matrix, name)
    assert np.array_equal(packed, gguf_quantise(matrix, name))
    theirs = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[name.upper()])
    assert np.array_equal(dequantise(packed, name), theirs)


@pytest.mark.parametrize("name", FORMATS)
def test_many_blocks_are_packed_as_few_are(name):
    matrix = weights(1, rows=500, blocks=20)  # more blocks than are packed at once
    assert np.array_equal(quantise(matrix, name), np.concatenate([quantise(matrix[i : i + 7], name) for i in range(0, 500, 7)]))  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_read_straight_from_a_gguf_file(name, tmp_path):
    gguf = pytest.importorskip("gguf")
    matrix, path = weights(2, rows=5, blocks=3), tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kind = gguf.GGMLQuantizationType[name.upper()]
    writer.add_tensor("blk.0.ffn_up.weight", gguf_quantise(matrix, name), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", matrix[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    packed_tensor, plain_tensor = gguf.GGUFReader(path).tensors
    found, packed = from_gguf(packed_tensor)
    assert found == name
    assert np.array_equal(packed, quantise(matrix, name))
    with pytest.raises(InputError) as error:
        from_gguf(plain_tensor)
    assert str(error.value) == "output_norm.weight: format is 'f32': must be one of q8_0, q4_0."


def test_smollm2s_own_embedding_is_what_packing_its_float32_form_gives():
    """Its file holds it in q8_0: so nothing is lost where this library widens it and packs it again."""
    gguf = pytest.importorskip("gguf")
    path = smollm2.models_folder() / smollm2.FILE
    if not path.is_file():
        pytest.skip(f"{path} is missing: `python3 run.py smollm` fetches it")
    (tensor,) = (t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight")
    name, packed = from_gguf(tensor)
    assert (name, packed.shape) == ("q8_0", (49152, 612))
    assert np.array_equal(quantise(dequantise(packed, name), name), packed)


# ---- properties

FLOATS = st.floats(-LARGEST, LARGEST, width=32)
MATRICES = st.lists(st.lists(FLOATS, min_size=BLOCK, max_size=BLOCK), min_size=1, max_size=3)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=150, deadline=None)
@given(values=MATRICES)
def test_the_rounding_is_within_its_bound(name, values):
    matrix = np.array(values, np.float32)
    back = dequantise(quantise(matrix, name), name).astype(np.float64)
    largest = np.abs(matrix).max(axis=1, keepdims=True).astype(np.float64)
    steps = STEPS[name]
    bound = HALF_STEP[name] * largest / steps + np.maximum(2.0**-11 * largest, 2.0**-25 * steps)
    assert (np.abs(back - matrix) <= bound * (1 + 1e-6)).all()


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=100, deadline=None)
@given(values=MATRICES)
def test_packing_what_was_unpacked_changes_no_weight(name, values):
    once = dequantise(quantise(np.array(values, np.float32), name), name)
    if once.max(initial=0) <= LARGEST and once.min(initial=0) >= -LARGEST:
        assert np.array_equal(dequantise(quantise(once, name), name), once)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=100, deadline=None)
@given(data=st.binary(min_size=68, max_size=68), scale=st.floats(-LARGEST, LARGEST, width=16))
def test_any_bytes_mean_scale_times_integer(name, data, scale):
    """Blocks that no quantiser made: −128, a negative scale."""
    form = FORMATS[name]
    block = np.frombuffer(data[: form.block_bytes], np.uint8).copy()
    block[:2] = np.array([scale], np.float16).view(np.uint8)
    if name == "q8_0":
        integers = [int(b) - 256 * (b > 127) for b in block[2:]]
    else:
        integers = [int(b) % 16 - 8 for b in block[2:]] + [int(b) // 16 - 8 for b in block[2:]]
    assert dequantise(block[None], name)[0].tolist() == [float(np.float16(scale)) * q for q in integers]


# ---- bad input


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quantise(np.zeros((2, 40), np.float32), "q8_0"), "q8_0: row width is 40: must be a multiple of 32"),
        (lambda: quantise(np.zeros(32, np.float32), "q4_0"), r"q4_0: weight's shape is \(32,\): must be \("),
        (lambda: quantise(np.full((1, 32), np.nan, np.float32), "q4_0"), "the largest weight is nan: must be finite"),
        (lambda: quantise(np.full((1, 32), -1e6, np.float32), "q8_0"), "the largest weight is 1000000.0: must be finite, and at most 65504"),  # noqa: E501
        (lambda: quantise(np.zeros((1, 32), np.float32), "q8_1"), "format: unknown name 'q8_1'; did you mean q8_0"),
        (lambda: dequantise(np.zeros((1, 40), np.uint8), "q8_0"), r"q8_0: packed is 'uint8\(1, 40\)': must be uint8"),
        (lambda: dequantise(np.zeros((1, 34), np.float32), "q8_0"), r"q8_0: packed is 'float32\(1, 34\)': must be "),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        call()
    assert "\n" not in str(error.value)
