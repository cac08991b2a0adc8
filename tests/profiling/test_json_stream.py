"""The streaming parser: the same events as the standard library's in any cutting, one sentence for what is no trace."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.errors import InputError
from s13lib.traces import json_stream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def streamed(path):
    found = {"traceEvents": []}
    for key, value in json_stream.stream_trace(path):
        if key == "traceEvents":
            found[key].append(value)
        else:
            found[key] = value
    return found


@settings(max_examples=100, deadline=None)
@given(
    headers=st.dictionaries(st.text(max_size=5).filter(lambda k: k != "traceEvents"), VALUES, max_size=3),
    events=st.lists(VALUES, max_size=6),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
    packed=st.booleans(),
    first=st.booleans(),
)
def test_any_trace_in_any_chunks(tmp_path_factory, headers, events, chunk, indent, ascii_only, packed, first):
    data = {"traceEvents": events, **headers} if first else {**headers, "traceEvents": events}
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    path = tmp_path_factory.mktemp("stream") / "trace.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        assert streamed(path) == data


def test_a_bare_list_and_stray_commas(write):
    assert streamed(write('[{"a": 1}, {"b": 2},\n]'))["traceEvents"] == [{"a": 1}, {"b": 2}]
    assert streamed(write('\ufeff{"traceEvents": [1, 2,], }'))["traceEvents"] == [1, 2]
    assert streamed(write('{"traceEvents": [1], "x": 5, "traceEvents": [2]}')) == {"traceEvents": [1, 2], "x": 5}


def test_a_number_is_not_taken_before_its_end(write, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", 1)
    assert streamed(write('{"a": 0.5, "traceEvents": [1.25, -3e2, 17], "b":2}')) == {
        "a": 0.5,
        "traceEvents": [1.25, -300.0, 17],
        "b": 2,
    }


def test_memory_is_bounded_by_an_event(write, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", 64)
    longest = 0
    read_more = json_stream._Text._read_more

    def watched(text):
        nonlocal longest
        more = read_more(text)
        longest = max(longest, len(text._buffer))
        return more

    monkeypatch.setattr(json_stream._Text, "_read_more", watched)
    event = {"name": "k" * 100}
    assert len(streamed(write([event] * 2000))["traceEvents"]) == 2000
    assert longest < 400


def test_a_value_without_end_is_given_up_early(write, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", 64)
    monkeypatch.setattr(json_stream, "LONGEST_VALUE", 1000)
    with pytest.raises(InputError, match="not valid JSON"):
        streamed(write('{"traceEvents": [{"a": b' + "x" * 10_000))


WHOLE = json.dumps({"a": {"b": [1, 2.5e-3]}, "traceEvents": [{"name": "kä\n", "ts": -1.5}] * 3, "z": True})


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_text_cut_anywhere_is_cut_short(write, cut):
    with pytest.raises(InputError, match=r"the trace is cut short \(.*\): copy or record it again\.$"):
        streamed(write(WHOLE[:cut]))


def test_a_gzip_cut_anywhere_is_cut_short(write, tmp_path):
    packed = write(WHOLE, "whole.gz").read_bytes()
    for cut in range(3, len(packed)):
        (tmp_path / "cut.gz").write_bytes(packed[:cut])
        with pytest.raises(InputError, match="the trace is cut short"):
            streamed(tmp_path / "cut.gz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        (" \n\t", "the file is empty"),
        ("hello", "not a trace: a Chrome trace is JSON, or that in gzip, and starts with { or ["),
        (bytes(range(256)), "not a trace"),
        (b"PK\x03\x04rest of a zip", "not a trace"),
        ("{}", "not a trace: its JSON has no traceEvents"),
        ('{"model": {"name": "x"}}', "not a trace: its JSON has no traceEvents"),
        ('{"traceEvents": {"a": 1}}', "not a trace: its traceEvents is no list"),
        ('{"traceEvents": [{"a" 1}, {}, {}, {}]}', "not a trace: its text is not valid JSON (Expecting ':' delimiter)"),
        ('{"traceEvents": [{}, nope, {}, {}, {}]}', "its text after event 1 is not valid JSON"),
        ('{"traceEvents": []} {"more": 1}', "more text follows its end"),
        ("{1: 2}", "a key is no text"),
        ('{"a" "traceEvents": []}', "':' is expected and '\"' is there"),
        ('{"traceEvents": [' + "[" * 100_000, "nested too deep"),
        ('{"traceEvents": [' + "1" * 5000 + ", 2]}", "not valid JSON (Exceeds the limit"),
        (b"\x1f\x8b\x08\x00 damaged beyond repair", "the gzip data are damaged"),
    ],
)
def test_what_is_no_trace(write, content, words):
    with pytest.raises(InputError) as error:
        streamed(write(content))
    assert words in str(error.value)
    assert "trace.json: " in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no such file\."):
        streamed(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is a directory: name a file\."):
        streamed(tmp_path)
