"""Traffic files: request traces, histograms, and one clear sentence for each thing that can be wrong."""

import io
import os
import sys
import tracemalloc
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from s13lib.buckets import best_layout, files, preset, read_step_times, read_traffic, row_cost
from s13lib.errors import InputError

AZURE = Path(__file__).parents[2].parent / "shared" / "data" / "AzureLLMInferenceTrace_conv.csv"
needs_azure = pytest.mark.skipif(not AZURE.exists(), reason="../shared/data with the Azure trace is not here")


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "traffic.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture(scope="module")
def azure():
    return read_traffic(AZURE)


@needs_azure
def test_the_azure_trace(azure):
    assert azure.steps == 140_348
    assert round(azure.mean, 2) == 29.13
    assert (azure.percentile(50), azure.percentile(99), azure.largest) == (29, 47, 57)


@needs_azure
@pytest.mark.parametrize(
    ("layout", "percent"),
    [
        (lambda traffic: preset("vllm"), 10.59),
        (lambda traffic: preset("seed"), 15.91),
        (lambda traffic: preset("powers-of-two"), 29.32),
        (lambda traffic: best_layout(traffic, 256, count=9), 6.00),
        (lambda traffic: best_layout(traffic, 256, count=13), 3.61),
        (lambda traffic: best_layout(traffic, 57, count=13), 3.19),
    ],
    ids=["vllm", "seed", "powers-of-two", "best 9", "best 13", "best 13 to 57"],
)
def test_the_azure_table(azure, layout, percent):
    assert 100 * row_cost(layout(azure), azure).padding_fraction == pytest.approx(percent, abs=0.05)


def test_requests_by_hand(write):
    # 25 ms a step: A makes 3 tokens in steps 0–2, B arrives at exactly 25 ms (step 1), C at 26 ms (step 2).
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.9900000,374,3\r\n"
        "2023-11-17 00:00:00.0150000,10,1\r\n"
        "2023-11-17 00:00:00.0160000,10,2\r\n"
        "2023-11-17 00:00:00.0170000,10,0\r\n"
        "\r\n"
        "2023-11-17 00:00:01.0000000,10,1"
    )
    traffic = read_traffic(write(text))
    assert traffic.counts.tolist() == [0, 3, 2]  # 1, 2, 2, 1, then a lone step
    assert traffic.origin == "recorded: traffic.txt, 25 ms a step, at most 256 running, load ×1"
    assert read_traffic(write(text), cap=1).counts.tolist() == [0, 7]
    assert read_traffic(write(text), load=1000).counts.tolist() == [0, 1, 1, 0, 1]  # A, then all four, then A and C


def test_the_load_compresses_the_times(write):
    lines = [f"{second},5,40" for second in range(0, 40, 2)]
    path = write("\n".join(["timestamp,contexttokens,generatedtokens", *lines]))
    assert read_traffic(path).counts.tolist() == [0, 800]
    assert read_traffic(path, load=2).counts.tolist() == [0, 800]
    assert read_traffic(path, load=4).largest == 2
    assert read_traffic(path, step_ms=100).largest == 2


@pytest.mark.parametrize(
    "head",
    [
        '"TIMESTAMP","ContextTokens","GeneratedTokens"\n',
        '"TIMESTAMP", "ContextTokens", "GeneratedTokens"\n',
        '\n \n\t\n"TIMESTAMP","prompt, if any","GeneratedTokens"\n \n',
        " TIMESTAMP ,x, generatedtokens\n\n",
    ],
)
def test_heads_of_request_files(write, head):
    traffic = read_traffic(write(head + '"2024-05-10 00:00:00","a, b",2\n  \n2024-05-10 00:00:00.025,5,"1"\n'))
    assert traffic.counts.tolist() == [0, 1, 1]


def test_times_in_other_forms(write):
    plain = read_traffic(write("TIMESTAMP,GeneratedTokens\n2024-05-10 00:00:00,2\n2024-05-10 00:00:00.025,1\n"))
    zoned = read_traffic(
        write("GeneratedTokens,TIMESTAMP\n2,2024-05-10T00:00:00+00:00\n1,2024-05-10 02:00:00.025+02:00\n")
    )
    seconds = read_traffic(write("\ufeffTIMESTAMP, GeneratedTokens\n12, 2\n12.025, 1\n"))
    assert plain.counts.tolist() == zoned.counts.tolist() == seconds.counts.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        '{"1": 10, "8": 3}',
        '\n {"histogram": {"1": 10, "8": 3.0, "0": 77}, "unit": "steps"}',
        "batch,count\n1,10\n8,3\n",
        "Count,when,Batch\n4,x,1\n3,y,8\n6,z,1\n0,z,0\n",
        '"batch","count"\n"1","10"\n8,3\n',
        '"Batch" , "Count"\n 1 , "10"\n"8" ,3\n',
        ' \t\n\n"batch","count"\n \t \n1,10\n\n   \n8,3\n \n',
        "\ufeff\r\n  \r\nbatch,count,note,note\r\n1,10,,\r\n \r\n8,3,a,b\r\n",
    ],
)
def test_histograms(write, text):
    traffic = read_traffic(write(text))
    assert traffic.counts.tolist() == [0, 10, 0, 0, 0, 0, 0, 0, 3]
    assert traffic.origin == "recorded: traffic.txt"


def test_built_in_workloads_go_by_name():
    assert read_traffic("chat", load=2).origin.startswith("modelled: chat")
    assert read_traffic("code", cap=4).largest == 4


REQUESTS = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty."),
        (" \n\n", "the file is empty."),
        (REQUESTS, "the traffic is empty, not one decode step ran."),
        (REQUESTS + "2023-11-16 18:15:46,5,0\n", "the traffic is empty, not one decode step ran."),
        ("TIMESTAMP,Tokens\n1,2\n", "no column GeneratedTokens; its columns are TIMESTAMP, Tokens."),
        ("Time,GeneratedTokens\n1,2\n", "no column TIMESTAMP; its columns are Time, GeneratedTokens."),
        (REQUESTS + "1,2,3\n1,2\n", "line 3 has 2 of 3 columns."),
        (REQUESTS + "1,2,3\n2,2,x\n", "line 3: GeneratedTokens is 'x': must be a whole number, 0 to 10^12."),
        (REQUESTS + "1,2,-3\n", "line 2: GeneratedTokens is '-3': must be a whole number, 0 to 10^12."),
        (REQUESTS + "1,2,nan\n", "line 2: GeneratedTokens is 'nan': must be a whole number, 0 to 10^12."),
        (REQUESTS + "1,2,\n", "line 2: GeneratedTokens is '': must be a whole number, 0 to 10^12."),
        (REQUESTS + "1,2,1.5\n", "line 2: GeneratedTokens is '1.5': must be a whole number, 0 to 10^12."),
        (REQUESTS + "nan,2,3\n", "line 2: TIMESTAMP is 'nan': must be a date and time"),
        (REQUESTS + "-1,2,3\n", "line 2: TIMESTAMP is '-1': must be a date and time"),
        (REQUESTS + "2023-13-16 18:15:46,2,3\n", "line 2: TIMESTAMP is '2023-13-16 18:15:46': must be a date and time"),
        (REQUESTS + "5,2,3\n\n4,2,3\n", "line 4 is earlier than the line before: sort the file by TIMESTAMP."),
        ("batch,steps\n1,2\n", "no column count; its columns are batch, steps."),
        ("batch,count\n1,-2\n", "line 2: count is '-2': must be a whole number, 0 to 10^12."),
        ("batch,count\n1,2\nNaN,2\n", "line 3: batch is 'NaN': must be a whole number, 0 to 10^12."),
        ("batch,count\n", "the traffic is empty, not one decode step ran."),
        ("batch,count\n3,0\n", "the traffic is empty, not one decode step ran."),
        ("batch,count\n9999,1\n", "line 2: batch is 9999: must be a whole number, 0 to 8192."),
        ("{}", "the traffic is empty, not one decode step ran."),
        ('{"1": 0, "2": 0}', "the traffic is empty, not one decode step ran."),
        ('{"1": -5}', "the count of batch size 1 is -5: must be a whole number"),
        ('{"1": NaN}', "the count of batch size 1 is nan: must be a whole number"),
        ('{"1": Infinity}', "the count of batch size 1 is inf: must be a whole number"),
        ('{"1": "7"}', "the count of batch size 1 is '7': must be a whole number"),
        ('{"1": [7]}', 'the count of batch size 1 is a list; write {"1": 10, "2": 7}.'),
        ('{"x": 5}', '\'x\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"-1": 5}', '\'-1\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"1": 5, "1": 6}', "the key '1' is repeated in its JSON."),
        ('{"1": 5, "01": 6}', "batch size 1 is given twice."),
        ('{"histogram": [1, 2]}', '"histogram" must be an object such as {"1": 10, "2": 7}.'),
        ('{"1": 5', "not valid JSON"),
        ('{"1": ' + "9" * 5000 + "}", "9999': must be a whole number of at least 0, below 2^40."),
        ('{"1": ' + "-" + "9" * 400 + "}", "9999': must be a whole number of at least 0, below 2^40."),
        ('{"1": 1e300}', "00540160: must be a whole number of at least 0, below 2^40."),
        ('{"' + "1" * 5000 + '": 1}', '1111\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"' + "x" * 5000 + '": 1}', 'xxxx\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"1\\n": 1}', "'1\\n' is not a batch size"),
        ('{"histogram": {"1": 5, "2": 6, "1": 5}}', "the key '1' is repeated in its JSON."),
        ('{"1": ' + "[" * 900 + "]" * 900 + "}", "the count of batch size 1 is a list"),
        ('{"1": ' + '{"a": ' * 99 + "7" + "}" * 100, "the count of batch size 1 is an object"),
        ('{"1": 10}' + (" " * 999 + "\n") * 17_000, "not valid JSON here (longer than 16,777,216 characters)."),
        ("batch,count,count\n1,2,3\n", "column count is there 2 times."),
        ('"Batch","count",batch\n1,2,3\n', "column batch is there 2 times."),
        ("TIMESTAMP,GeneratedTokens,timestamp\n1,2,3\n", "column TIMESTAMP is there 2 times."),
        ("batch,count\n1," + "9" * 5000 + "\n", "9999': must be a whole number, 0 to 10^12."),
        ("batch,count\n" + "9" * 5000 + ",1\n", "9999': must be a whole number, 0 to 10^12."),
        ("batch,count\n1,1000000000001\n", "line 2: count is '1000000000001': must be a whole number, 0 to 10^12."),
        ("batch,count\n1,１２\n", "line 2: count is '１２': must be a whole number, 0 to 10^12."),
        (REQUESTS + "9" * 5000 + ",2,3\n", "9999': must be a date and time"),
        (REQUESTS + "2023-11-16 18:15:46+00:00.5,2,3\n", "line 2: TIMESTAMP is '2023-11-16 18:15:46+00:00.5': must be"),
        (REQUESTS + "2023-11-16 18:15:46.１,2,3\n", "line 2: TIMESTAMP is '2023-11-16 18:15:46.１': must be a date"),
        (
            REQUESTS + "1,2,1000000000000\n30000000000,2,1000000000000\n",
            "number of steps is 2000000000000: must be below",
        ),
        ("batch,a\x1b[2Jb\n1,2\n", r"no column count; its columns are batch, a\x1b[2Jb."),
        ("batch," + "a" * 9000 + "\n1,2\n", "no column count; its columns are batch, aaa"),
        ("batch,count\n1,2," + "x" * (1 << 20) + "\n", "line 2 is longer than 1,048,576 bytes."),
        ("x" * (1 << 21), "line 1 is longer than 1,048,576 bytes."),
        ('{"1": 5' + " " * (1 << 20) + "}", "line 1 is longer than 1,048,576 bytes."),
        ("batch,count\n1,2\n".encode("utf-16"), "is text in UTF-16: save it as UTF-8."),
        ('{"1": ' + "[" * 100_000, "not valid JSON"),
        (
            "a,b\n1,2\n",
            "not a request CSV (TIMESTAMP, GeneratedTokens), a histogram (JSON, or CSV with batch, count) or",
        ),
        ("[1, 2]", "it starts with '[1, 2]'."),
        (b"batch,count\n1,\xff\n", "line 2 is not text in UTF-8."),
        (b'{"1": 5, "\xff": 2}', "line 1 is not text in UTF-8."),
        (b"batch,count\n1,\0\n", "line 2 is not text (it holds a zero byte)."),
        ("batch,count\n" + "1" * 200_000 + ",2\n", "line 2 is not CSV (field larger than field limit"),
    ],
)
def test_bad_files_are_told_in_one_sentence(write, text, message):
    path = write(text)
    with pytest.raises(InputError) as error:
        read_traffic(path)
    assert message in str(error.value)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file\.$"):
        read_traffic(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r" is a directory: name a file\.$"):
        read_traffic(tmp_path)
    with pytest.raises(InputError, match=r": cannot be read \("):
        read_traffic(tmp_path / ("x" * 5000))


READERS = [read_traffic, read_step_times]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("read", READERS)
def test_only_a_regular_file_can_be_read_twice(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null", "/dev/tty"):
        message = r" is a pipe or a device, which cannot be read twice: save it to a file\.$"
        with pytest.raises(InputError, match=message):
            read(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["two\nlines", "two\r\nlines", "a\x1b[31mb", "a\u2028b", "a\x85b", "a\udcffb", "a\0b"])
def test_a_file_name_never_breaks_a_message(read, name, tmp_path):
    (shown,) = {c for c in name if not c.isprintable()} - {"\n"} or {"\n"}
    for create in (False, True):
        if create and "\0" not in name:
            (tmp_path / name).write_text("TIMESTAMP,ContextTokens\n1,2\n")
        with pytest.raises(InputError) as error:
            read(tmp_path / name)
        message = str(error.value)
        assert repr(shown)[1:-1] in message
        assert message.isprintable()


def test_a_file_name_never_breaks_a_table(tmp_path):
    for text in ('{"1": 5}', "batch,count\n1,5\n", "TIMESTAMP,GeneratedTokens\n1,5\n"):
        (tmp_path / "two\nlines").write_text(text)
        traffic = read_traffic(tmp_path / "two\nlines")
        assert traffic.name == r"two\nlines"
        assert traffic.origin.startswith(r"recorded: two\nlines")


def test_the_longest_line_is_read(write):
    line = b"1,5," + b"x" * (files.LONGEST_LINE - 5) + b"\n"
    assert len(line) == files.LONGEST_LINE
    text = b"batch,count,note\n" + line
    with pytest.raises(InputError, match="field larger than field limit"):
        read_traffic(write(text))
    assert len(list(files.lines_of(write(text)))[1]) == files.LONGEST_LINE - 1


def test_the_largest_count_is_read(write):
    text = "batch,count\n1,1000000000000\n2,000000000000000000000000000005\n"
    assert read_traffic(write(text)).counts.tolist() == [0, 10**12, 5]


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("batch,count", "7,3"),
        (
            "| Unpadded Tokens | Runtime Mode | Count |",
            "INFO: GET /v1/completions 200 OK\n" * 99 + "| 7 | FULL | 300 |",
        ),
    ],
    ids=["histogram", "log"],
)
def test_a_large_file_streams(write, head, row):
    lines = 100_000
    path = write("\n".join([head, *[row] * (lines // (row.count("\n") + 1))]))
    tracemalloc.start()
    try:
        traffic = read_traffic(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert traffic.counts[7] == 3 * lines
    assert peak < 300_000  # the lines of the file would take more than 5 MB


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shows"), [(Terminal, True), (io.StringIO, False)])
def test_a_large_file_shows_its_progress_on_a_terminal(write, monkeypatch, stream, shows):
    seconds = count(step=0.01)  # each look at the clock
    monkeypatch.setattr("s13lib.progress.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr("sys.stderr", stream())
    read_traffic(write("batch,count\n" + "1,1\n" * 1000, "large\nfile.csv"))
    written = sys.stderr.getvalue()
    assert bool(written) == shows
    if shows:
        assert r"reading large\nfile.csv [############............]  50%" in written
        assert written.split("\r")[-1] == ""  # the line is left clean
        assert "\n" not in written


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e-9, True])
@pytest.mark.parametrize("argument", ["step_ms", "load"])
def test_bad_options(write, argument, value):
    path = write(REQUESTS + "1,2,3\n")
    with pytest.raises(InputError, match=rf"^{argument} is {value!r}: must be a number from 0\.000001 to 1,000,000\.$"):
        read_traffic(path, **{argument: value})


def test_a_histogram_has_no_load(write):
    with pytest.raises(InputError, match=r"^load is 2: must be 1 for .*, which holds batch sizes and no arrival times"):
        read_traffic(write('{"1": 5}'), load=2)
