"""Step times: measured files, interpolation, and no extrapolation."""

import numpy as np
import pytest

from s13lib.buckets import BucketLayout, StepTimes, Traffic, read_step_times, time_cost
from s13lib.errors import InputError


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> StepTimes:
        path = tmp_path / "times.txt"
        path.write_text(text)
        return read_step_times(path)

    return read


@pytest.mark.parametrize(
    "text",
    [
        "batch,graph_us,eager_us\n8,40,800\n2,10,200\n",
        "eager_us,batch,graph_us,device\n200,2,10,H200\n800,8,40,H200\n",
        '{"graph_us": {"2": 10, "8": 40}, "eager_us": {"8": 800, "2": 200}, "device": "H200"}',
    ],
)
def test_between_given_sizes_times_are_interpolated(read, text):
    times = read(text)
    assert times.graph(np.array([2, 3, 5, 8])).tolist() == [10, 15, 25, 40]
    assert times.eager(np.array([4])).tolist() == [400]
    assert times.origin == "measured: times.txt"


def test_they_are_never_extrapolated(read):
    times = read("batch,graph_us,eager_us\n2,10,200\n8,40,800\n")
    for size in (1, 9, 100):
        message = (
            rf"^step times: graph_us is needed at batch {size}, and known for batch 2 to 8 \(measured: times\.txt\)"
        )
        with pytest.raises(InputError, match=message):
            times.graph(np.array([4, size]))
    with pytest.raises(InputError, match=r"^step times: eager_us is needed at batch 9, and known for batch 2 to 8"):
        time_cost(BucketLayout([8]), Traffic.from_counts({3: 1, 9: 1}), times)


def test_the_curves_may_reach_differently_far(read):
    times = read('{"graph_us": {"1": 10, "2": 12}, "eager_us": {"1": 90, "64": 153}}')
    assert times.eager(np.array([64, 33])).tolist() == [153, 122]
    with pytest.raises(InputError, match=r"^step times: graph_us is needed at batch 3, and known for batch 1 to 2"):
        times.graph(np.array([3]))


HEADER = "batch,graph_us,eager_us\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty."),
        (HEADER, "holds no step time."),
        ("batch,graph_us\n1,2\n", "no column eager_us; its columns are batch, graph_us."),
        (HEADER + "1,2,3\nx,2,3\n", "line 3: batch is 'x': must be a whole number, 0 to 10^12."),
        (HEADER + "0,2,3\n", "line 2: graph_us: batch is 0: must be a whole number, 1 to 8192."),
        (HEADER + "1,nan,3\n", "line 2: graph_us of batch 1 is 'nan': must be a finite time above 0, in µs."),
        (HEADER + "1,2,0\n", "line 2: eager_us of batch 1 is '0': must be a finite time above 0, in µs."),
        (HEADER + "1,2,-3\n", "line 2: eager_us of batch 1 is '-3': must be a finite time above 0, in µs."),
        (HEADER + "1,2,fast\n", "line 2: eager_us of batch 1 is 'fast': must be a finite time above 0, in µs."),
        (HEADER + "1,2,3\n1,2,3\n", "line 3: graph_us of batch 1 is given twice."),
        ('{"graph_us": {"1": 2}}', '"eager_us" must be an object such as {"1": 310.5, "8": 322.0}.'),
        ('{"graph_us": {"1": 2}, "eager_us": {}}', "holds no step time."),
        (
            '{"graph_us": {"one": 2}, "eager_us": {"1": 3}}',
            "graph_us: batch is 'one': must be a whole number, 1 to 8192.",
        ),
        (
            '{"graph_us": {"1": null}, "eager_us": {"1": 3}}',
            "graph_us of batch 1 is None: must be a finite time above 0",
        ),
        (
            '{"graph_us": {"1": true}, "eager_us": {"1": 3}}',
            "graph_us of batch 1 is True: must be a finite time above 0",
        ),
        ('{"graph_us": {"1": 2}, "eager_us": {"1": NaN}}', "eager_us of batch 1 is nan: must be a finite time above 0"),
        ('{"graph_us": 5', "not valid JSON"),
    ],
)
def test_bad_files_are_told_in_one_sentence(read, text, message):
    with pytest.raises(InputError) as error:
        read(text)
    assert message in str(error.value)
    assert "times.txt" in str(error.value)


def test_bad_arrays():
    good = np.array([0, 1.0, 2.0])
    with pytest.raises(InputError, match=r"^graph_us\[2\] is -2\.0: must be a finite time above 0\.$"):
        StepTimes(np.array([0, 1.0, -2.0]), good)
    with pytest.raises(InputError, match=r"^eager_us\[1\] is inf: must be a finite time above 0\.$"):
        StepTimes(good, np.array([0, np.inf, 2.0]))
    with pytest.raises(InputError, match=r"^graph_us and eager_us have the shapes \(3,\) and \(2,\)"):
        StepTimes(good, good[:2])
