"""Traffic files: request traces, histograms, and one clear sentence for each thing that can be wrong."""

import os
from pathlib import Path

import pytest

from s13lib.buckets import best_layout, preset, read_traffic, row_cost
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
        ("batch,count\n9999,1\n", "batch size is 9999: must be a whole number, 0 to 8192."),
        ("{}", "the traffic is empty, not one decode step ran."),
        ('{"1": 0, "2": 0}', "the traffic is empty, not one decode step ran."),
        ('{"1": -5}', "the count of batch size 1 is -5: must be a whole number"),
        ('{"1": NaN}', "the count of batch size 1 is nan: must be a whole number"),
        ('{"1": Infinity}', "the count of batch size 1 is inf: must be a whole number"),
        ('{"1": "7"}', "the count of batch size 1 is '7': must be a whole number"),
        ('{"1": [7]}', "the count of batch size 1 is [7]: must be a whole number"),
        ('{"x": 5}', '\'x\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"-1": 5}', '\'-1\' is not a batch size; write {"1": 10, "2": 7}.'),
        ('{"1": 5, "1": 6}', "a key is repeated in its JSON."),
        ('{"1": 5, "01": 6}', "batch size 1 is given twice."),
        ('{"histogram": [1, 2]}', '"histogram" must be an object such as {"1": 10, "2": 7}.'),
        ('{"1": 5', "not valid JSON"),
        ('{"1": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"1": ' + "[" * 100_000, "not valid JSON"),
        (
            "a,b\n1,2\n",
            "not a request CSV (TIMESTAMP, GeneratedTokens), a histogram (JSON, or CSV with batch, count) or",
        ),
        ("[1, 2]", "it starts with '[1, 2]'."),
        (b"batch,count\n1,\xff\n", "line 2 is not text in UTF-8."),
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


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file\.$"):
        read_traffic(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r" is a directory: name a file\.$"):
        read_traffic(tmp_path)
    with pytest.raises(InputError, match=r": cannot be read \("):
        read_traffic(tmp_path / ("x" * 5000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_cannot_be_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r" is a pipe, which cannot be read twice: save it to a file\.$"):
        read_traffic(tmp_path / "pipe")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e-9, True])
@pytest.mark.parametrize("argument", ["step_ms", "load"])
def test_bad_options(write, argument, value):
    path = write(REQUESTS + "1,2,3\n")
    with pytest.raises(InputError, match=rf"^{argument} is {value!r}: must be a number from 0\.000001 to 1,000,000\.$"):
        read_traffic(path, **{argument: value})


def test_a_histogram_has_no_load(write):
    with pytest.raises(InputError, match=r"^load is 2: must be 1 for .*, which holds batch sizes and no arrival times"):
        read_traffic(write('{"1": 5}'), load=2)
