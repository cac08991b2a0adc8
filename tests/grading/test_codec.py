"""What passes the pipe comes out as it went in; whatever else the bytes say is one error, and runs nothing."""

import json
import math
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from s13lib.grading.codec import MOST_TEXT, NUMPY_TYPES, TORCH_TYPES, CodecError, decode, encode
from s13lib.grading.compare import same
from s13lib.grading.manifest import entries, part
from s13lib.grading.messages import packed, unpacked
from s13lib.grading.part import Observation, Trouble
from s13lib.simulator.timeline import Span, Timeline

torch = pytest.importorskip("torch")

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ARRAYS = st.sampled_from(NUMPY_TYPES).flatmap(
    lambda name: npst.arrays(np.dtype(name), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
PLAIN = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def alike(a, b):
    """Equal to the last bit, kinds and types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


@given(PLAIN)
@settings(deadline=None)
def test_a_value_comes_back_as_it_was(value):
    assert alike(decode(encode(value)), value)


@pytest.mark.parametrize("name", TORCH_TYPES)
def test_tensors_of_every_type(name):
    values = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, name))
    for tensor in (values, values[:, 1:], values.t(), values[:0], values[0, 0], values.expand(2, 2, 3)):
        back = decode(encode(tensor))
        assert isinstance(back, torch.Tensor)
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(back, tensor)
        back.zero_()  # its own memory


def test_the_bits_of_bfloat16_and_of_nan_travel():
    tensor = torch.tensor([1.0, -0.0, math.nan, math.inf, 3.140625]).to(torch.bfloat16)
    assert torch.equal(decode(encode(tensor)).view(torch.int16), tensor.view(torch.int16))


def test_a_transposed_tensor_arrives_transposed():
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    assert decode(encode(tensor)).stride() == tensor.stride()


def test_one_object_given_twice_stays_one():
    tensor, array = torch.ones(2), np.ones(2)
    a, b, (c, d) = decode(encode((tensor, tensor, [array, array])))
    assert a is b
    assert c is d


def test_numbers_of_numpy_keep_their_type():
    assert alike(
        decode(encode([np.float32(0.1), np.int64(3), np.bool_(True)])), [np.float32(0.1), np.int64(3), np.bool_(True)]
    )


def test_a_timeline_travels():
    spans = (Span("a", 0.0, 1.5, 7), Span("b", 2, 0.5, None, "graph", "lane"))
    timeline = Timeline(spans, spans[:1], "recorded", "a file")
    assert decode(encode([timeline])) == [timeline]


class Own:
    """A class of a learner's."""

    def __reduce__(self):
        raise AssertionError("pickle was used")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Own(), "type Own"),
        (object, "type type"),
        (len, "type builtin_function_or_method"),
        ({1, 2}, "type set"),
        (1j, "type complex"),
        (b"x", "type bytes"),
        (np.array([1, "x"], dtype=object), "dtype object"),
        (np.array(["x"]), "dtype <U1"),
        (np.array([1 + 1j]), "dtype complex128"),
        (np.zeros(2, ">f4"), "dtype >f4"),
        (torch.zeros(2, dtype=torch.complex64), "dtype complex64"),
        (torch.zeros(2, 2).to_sparse(), "dtype float32"),
        pytest.param(10**5000, "cannot be written down", id="digits"),
        pytest.param("x" * (MOST_TEXT + 1), "may pass", id="text"),
        pytest.param(np.zeros(65 << 20, np.uint8), "may pass", id="array"),
    ],
)
def test_other_kinds_are_refused_by_name(value, words):
    with pytest.raises(CodecError, match=words):
        encode(value)


def test_a_value_in_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(CodecError, match="nested"):
        encode(value)


def message(data, blob=b""):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return struct.pack("<I", len(text)) + text + blob


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 3,
        struct.pack("<I", 1 << 31) + b"{}",
        message(b"not json"),
        message(b"\xff\xfe"),
        message(b"[" * 100_000),
        message(b"9" * 5_000),
        message({"a": 1}),
        message(["list", {"a": 1}]),
        message([]),
        message([["list"]]),
        message(["class", "os", "system"]),
        message(["dict", 1]),
        message(["dict", [["list"], 1]]),
        message(["again", 0]),
        message(["again", -1]),
        message(["again", True]),
        message(["array", "object", [1], [0]], b"x" * 8),
        message(["array", "float64", [2], [0]], b"x" * 8),
        message(["array", "float64", [-1], [0]], b"x" * 8),
        message(["array", "float64", [1 << 62, 1 << 62], [0, 1]], b"x" * 8),
        message(["array", "float64", [True], [0]], b"x" * 8),
        message(["array", "float64", 1, [0]], b"x" * 8),
        message(["array", "float64", [1], [1]], b"x" * 8),
        message(["array", "float64", [1], [None]], b"x" * 8),
        message(["array", ["float64"], [1], [0]], b"x" * 8),
        message(["array", "float64", [1] * 40, list(range(40))], b"x" * 8),
        message(["array", "float64", [1], [0]], b"x" * 9),
        message(["tensor", "complex64", [1], [0]], b"x" * 8),
        message(["number", "float64", [2], [0], 3], b"x" * 16),
        message(["timeline", [], [], "dreamt", "x"]),
        message(["timeline", [["a", 0, "1", None, "", ""]], [], "measured", "x"]),
        message(["timeline", [["a", 0, float("nan"), None, "", ""]], [], "measured", "x"]),
        message(["timeline", [["a", 0, 1]], [], "measured", "x"]),
        message(1, b"left over"),
    ],
)
def test_bytes_that_are_no_value(raw):
    with pytest.raises(CodecError):
        decode(raw)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_a_value_or_one_error(raw):
    for candidate in (raw, struct.pack("<I", len(raw)) + raw):
        with suppress(CodecError):
            decode(candidate)


@given(PLAIN, st.data())
@settings(deadline=None)
def test_a_message_with_changed_bytes_is_a_value_or_one_error(value, data):
    raw = bytearray(encode(value))
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CodecError):
        decode(bytes(raw))


def test_a_byte_that_is_no_bool_becomes_one():
    array = decode(message(["array", "bool", [3], [0]], b"\x00\x01\x07"))
    assert array.tobytes() == b"\x00\x01\x01"


# ---- observations


@pytest.mark.parametrize(
    "observation",
    [Observation(3.5), Observation(trouble=Trouble("raised", "x")), Observation([1], None, ("launch_us",))],
)
def test_an_observation_travels(observation):
    assert unpacked(decode(encode(packed(observation))), part("5a")) == observation


GOOD = {"value": 1, "trouble": None, "mutated": ()}


@pytest.mark.parametrize(
    "reply",
    [
        None,
        7,
        {},
        {"value": 1},
        GOOD | {"more": 1},
        GOOD | {"trouble": "slow"},
        GOOD | {"trouble": ("nonsense", "")},
        GOOD | {"trouble": ("raised", 1)},
        GOOD | {"trouble": ("raised", "x" * 2_000)},
        GOOD | {"mutated": ["launch_us"]},
        GOOD | {"mutated": ("other",)},
        GOOD | {"mutated": (1,)},
    ],
)
def test_a_reply_that_no_guard_makes(reply):
    with pytest.raises(CodecError):
        unpacked(reply, part("5a"))


@pytest.mark.parametrize("key", entries())
def test_the_inputs_of_every_part_pass_as_they_are(key):
    pytest.importorskip("numba")
    for inputs in part(key).make(np.random.default_rng(1)):
        back = decode(encode(inputs))
        assert same(back, inputs)
        assert str(back) == str(inputs)
