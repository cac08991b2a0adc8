"""Step times: measured files, interpolation, and no extrapolation."""

import warnings

import numpy as np
import pytest

from s13lib.buckets import BucketLayout, StepTimes, Traffic, read_step_times, time_cost
from s13lib.errors import InputError


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> StepTimes:
        path = tmp_path / "times.txt"
        path.write_text(text, encoding="utf-8")
        return read_step_times(path)

    return read


@pytest.mark.parametrize(
    "text",
    [
        "batch,graph_us,eager_us\n8,40,800\n2,10,200\n",
        "eager_us,batch,graph_us,device\n200,2,10,H200\n800,8,40,H200\n",
        '{"graph_us": {"2": 10, "8": 40}, "eager_us": {"8": 800, "2": 200}, "device": "H200"}',
        '\ufeff \n\t\n"Batch", "graph_us" ,"eager_us"\n"8",40.0,8e2\n \t \n\n2,"1e1",+200.\n',
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
        (HEADER + "1,nan,3\n", "line 2: graph_us of batch 1 is 'nan': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,2,0\n", "line 2: eager_us of batch 1 is '0': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,2,-3\n", "line 2: eager_us of batch 1 is '-3': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,2,fast\n", "line 2: eager_us of batch 1 is 'fast': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,2,3\n1,2,3\n", "line 3: graph_us of batch 1 is given twice."),
        ('{"graph_us": {"1": 2}}', '"eager_us" must be an object such as {"1": 310.5, "8": 322.0}.'),
        ('{"graph_us": {"1": 2}, "eager_us": {}}', "holds no step time."),
        (
            '{"graph_us": {"one": 2}, "eager_us": {"1": 3}}',
            "graph_us: batch is 'one': must be a whole number, 1 to 8192.",
        ),
        (
            '{"graph_us": {"1": null}, "eager_us": {"1": 3}}',
            "graph_us of batch 1 is None: must be a time from 10^-6 to 10^12, in µs.",
        ),
        (
            '{"graph_us": {"1": true}, "eager_us": {"1": 3}}',
            "graph_us of batch 1 is True: must be a time from 10^-6 to 10^12, in µs.",
        ),
        (
            '{"graph_us": {"1": 2}, "eager_us": {"1": NaN}}',
            "eager_us of batch 1 is nan: must be a time from 10^-6 to 10^12, in µs.",
        ),
        ('{"graph_us": 5', "not valid JSON"),
        (HEADER + f"1,{'9' * 400},3\n", "9999': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,1e308,3\n", "graph_us of batch 1 is '1e308': must be a time from 10^-6 to 10^12, in µs."),
        (HEADER + "1,1000000000000.1,3\n", "graph_us of batch 1 is '1000000000000.1': must be a time from"),
        (HEADER + "1,5e-324,3\n", "graph_us of batch 1 is '5e-324': must be a time from 10^-6"),
        (HEADER + "1,1_0,3\n", "graph_us of batch 1 is '1_0': must be a time from"),
        (HEADER + "1,１２,3\n", "graph_us of batch 1 is '１２': must be a time from"),
        (HEADER + "1,infinity,3\n", "graph_us of batch 1 is 'infinity': must be a time from"),
        (HEADER + f"{'1' * 400},2,3\n", "1111': must be a whole number, 0 to 10^12."),
        ("batch,graph_us,eager_us,Graph_us\n1,2,3,4\n", "column graph_us is there 2 times."),
        (f'{{"graph_us": {{"1": {"9" * 400}}}, "eager_us": {{"1": 3}}}}', "9999': must be a time from"),
        (f'{{"graph_us": {{"1": {"9" * 9000}}}, "eager_us": {{"1": 3}}}}', "9999': must be a time from"),
        ('{"graph_us": {"1": 1e999}, "eager_us": {"1": 3}}', "graph_us of batch 1 is inf: must be a time from"),
        ('{"graph_us": {"1": [2]}, "eager_us": {"1": 3}}', "graph_us of batch 1 is a list: must be a time from"),
        (f'{{"graph_us": {{"{"1" * 400}": 2}}, "eager_us": {{"1": 3}}}}', "1111': must be a whole number, 1 to"),
        ('{"graph_us": {"1": 2, "1": 3}, "eager_us": {"1": 3}}', "the key '1' is repeated in its JSON."),
        ('{"graph_us": {"1": 2}, "eager_us": {"1": 3}, "graph_us": {}}', "the key 'graph_us' is repeated in its JSON."),
    ],
)
def test_bad_files_are_told_in_one_sentence(read, text, message):
    with pytest.raises(InputError) as error:
        read(text)
    assert message in str(error.value)
    assert "times.txt" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_the_shortest_and_the_longest_times_give_finite_costs(read):
    times = read("batch,graph_us,eager_us\n1,1e-6,1e12\n2,1000000000000,0.000001\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost = time_cost(BucketLayout([2]), Traffic.from_counts({1: 2**39, 2: 1}), times)
    values = (cost.step_us, cost.time_waste_fraction, cost.gain_us, cost.gain_fraction)
    assert all(np.isfinite(value) for value in values)


def test_bad_arrays():
    good = np.array([0, 1.0, 2.0])
    with pytest.raises(InputError, match=r"^graph_us\[2\] is -2\.0: must be a time from 10\^-6 to 10\^12, in µs\.$"):
        StepTimes(np.array([0, 1.0, -2.0]), good)
    with pytest.raises(InputError, match=r"^eager_us\[1\] is inf: must be a time from 10\^-6 to 10\^12, in µs\.$"):
        StepTimes(good, np.array([0, np.inf, 2.0]))
    for bad in (1e308, 1.1e12, 1e-7, 5e-324):
        with pytest.raises(InputError, match=r"^eager_us\[1\] is .*: must be a time from 10\^-6 to 10\^12, in µs\.$"):
            StepTimes(good, [0, bad, 2.0])
    for bad in ([0, 10**400, 2], [[1], [1, 2]], ["a", "b", "c"], None):
        with pytest.raises(InputError, match=r"^graph_us (is not an array of times|and eager_us have the shapes)"):
            StepTimes(bad, good)
    with pytest.raises(InputError, match=r"^graph_us and eager_us have the shapes \(3,\) and \(2,\)"):
        StepTimes(good, good[:2])
