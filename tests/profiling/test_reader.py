"""Kineto traces: launch calls, graphs, categories, streams, devices and ranks; fields that are missing or wrong."""

import pytest

from s13lib.errors import InputError
from s13lib.profiling import TraceReport, read_trace
from s13lib.simulator import Span, Timeline, chrome_trace
from s13lib.traces.reader import GRAPH_LAUNCHES, LAUNCH_CALLS
from tests.profiling.kineto import call, kernel, launch_and_kernel, op


def report(path):
    return TraceReport(read_trace(path))


def test_a_small_trace_becomes_a_timeline_from_its_first_event(write):
    events = [
        op(1000.25, 8, "aten::mm"),
        *launch_and_kernel(1002, 17),
        op(990.25, 1, "gpu", category="gpu_user_annotation"),
    ]
    trace = read_trace(write(events, deviceProperties=[{"id": 0, "name": "Card 9"}]))
    lane = "process 100, thread 100"
    assert trace.timeline.host == (Span("cudaLaunchKernel", 1.75, 5, 17, lane=lane),)
    assert trace.timeline.device == (Span("k", 7.75, 3, 17, lane="stream 7"),)
    assert (trace.timeline.source, trace.timeline.provenance) == ("recorded", "trace.json, Card 9")
    assert trace.label == "recorded (trace.json)"
    assert trace.host_ops.under(2, 7) == "cudaLaunchKernel"
    assert trace.host_ops.under(0, 1.5) == "aten::mm"


def test_the_six_launch_calls_are_those_of_the_issue():
    assert set(LAUNCH_CALLS) == {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
    }


@pytest.mark.parametrize("name", [*LAUNCH_CALLS, "cudaLaunchCooperativeKernel"])
@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"])
def test_launch_calls(write, name, category):
    found = report(
        write([call(0, 4, 1, name, category=category), call(9, 6, 2, name), kernel(6, 2, 1), kernel(16, 2, 2)])
    )
    assert found.launches_by_name == {name: 2}
    assert (found.launch_calls, found.launch_median_us, len(found.graphs)) == (2, 5, 0)
    assert found.queue_delay_us == 1.5


def test_a_launch_whose_kernel_is_not_in_the_file_counts(write):
    found = report(write([call(0, 4, 1), call(10, 6, 2), kernel(20, 1, 2)]))
    assert (found.launch_calls, found.device_kernels) == (2, 1)


def test_calls_that_launch_nothing_are_no_launches(write):
    events = [
        call(0, 9, 1, "cudaStreamSynchronize"),
        call(10, 4, 2, "cudaMemcpyAsync"),
        kernel(20, 5, 2, "Memcpy HtoD", category="gpu_memcpy"),
        call(30, 4, 3, "hipMemcpyAsync"),
        kernel(40, 5, 3, "__amd_rocclr_copyBuffer"),  # ROCm copies with a kernel
        call(50, 4, 4, "cudaLaunchHostFunc"),
    ]
    found = report(write(events))
    assert (found.launch_calls, found.launch_median_us, len(found.graphs)) == (0, None, 0)
    assert (found.device_kernels, found.device_copies) == (1, 1)
    assert [s.kind for s in found.trace.timeline.host] == ["call", "call"]


@pytest.mark.parametrize("name", [*GRAPH_LAUNCHES, "someGraphLaunch_v2"])
def test_a_graph_launch_has_many_kernels_on_one_correlation(write, name):
    nodes = [kernel(30 + 10 * i, 8, 7, f"k{i}") for i in range(5)]
    copy = kernel(80, 4, 7, "Memcpy DtoD", category="gpu_memcpy")
    found = report(write([call(0, 20, 7, name), *nodes, copy, *launch_and_kernel(100, 8)]))
    (graph,) = found.graphs
    assert (graph.name, graph.nodes, graph.host_us, graph.device_us, graph.queue_delay_us) == (name, 5, 20, 54, 10)
    assert found.launch_calls == 1


@pytest.mark.parametrize("category", ["kernel", "Kernel", "KERNEL"])
def test_either_capitalisation(write, category):
    events = [
        *launch_and_kernel(0, 1, category=category),
        kernel(30, 1, 2, "Memcpy", category="gpu_memcpy"),
        kernel(40, 1, 3, "Memset", category="Memset"),
    ]
    found = report(write(events))
    assert (found.device_kernels, found.device_copies) == (1, 2)


def test_integer_and_float_microseconds_agree(write):
    whole = [*launch_and_kernel(10, 1), *launch_and_kernel(30, 2)]
    broken = [event | {"ts": event["ts"] + 0.0, "dur": float(event["dur"])} for event in whole]
    assert read_trace(write(whole)).timeline == read_trace(write(broken)).timeline
    with_fraction = report(write([event | {"ts": event["ts"] * 1.5} for event in whole]))
    assert with_fraction.gaps[0].duration_us == 27


def test_several_streams_overlap_and_count_once(write):
    events = [
        call(0, 2, 1),
        call(3, 2, 2),
        kernel(10, 20, 1, stream=7),
        kernel(20, 20, 2, stream=16),
        *launch_and_kernel(50, 3, launch_us=9, stream=7, kernel_us=10),
    ]
    path = write(events)
    found = report(path)
    assert (found.busy_us, found.extent_us) == (40, 70)  # 10 µs from the first launch to its kernel
    assert found.busy_fraction == pytest.approx(4 / 7)
    assert found.trace.streams == {"stream 7": 2, "stream 16": 1}
    alone = TraceReport(read_trace(path).on_stream(16))
    assert (alone.device_kernels, alone.launch_calls, alone.busy_us) == (1, 1, 20)
    assert alone.trace.timeline.provenance == "trace.json, GPU 0, stream 16"
    with pytest.raises(InputError, match=r"stream is 9: trace\.json has stream 7, stream 16\."):
        read_trace(path).on_stream(9)


def test_devices_are_reported_one_by_one_and_together(write):
    events = [
        *launch_and_kernel(0, 1, device=0, kernel_us=10),
        *launch_and_kernel(20, 2, device=1, kernel_us=20),
        *launch_and_kernel(40, 3, device=0, kernel_us=10),
    ]
    found = report(write(events, deviceProperties=[{"id": 1, "name": "One"}, {"id": 0}, "x"]))
    assert [(d.device, d.extent_us, d.timeline.device_us, len(d.timeline.host)) for d in found.devices] == [
        (0, 56, 20, 2),
        (1, 26, 20, 1),
    ]
    assert (found.busy_us, found.extent_us, found.launch_calls) == (40, 82, 3)
    assert found.trace.device_names == {1: "One"}
    assert found.trace.timeline.provenance == "trace.json, GPU 0"


def ranks(correlations):
    """Two processes, each with a device, whose launches come from the given correlations."""
    events = []
    for rank, numbers in enumerate(correlations):
        for i, number in enumerate(numbers):
            at = 100 * i + 7 * rank
            events.append(call(at, 5 + rank, number, process=500 + rank))
            events.append(kernel(at + 30, 10, number, device=rank))
    return events


@pytest.mark.parametrize("second", [[1, 2, 3], [1, 9, 8], [4, 5, 6]], ids=["all collide", "some collide", "none"])
def test_ranks_whose_correlations_collide_keep_their_own_launches(write, second):
    found = report(write(ranks([[1, 2, 3], second])))
    assert [[s.duration_us for s in d.timeline.host] for d in found.devices] == [[5, 5, 5], [6, 6, 6]]
    assert found.launch_calls == 6
    assert found.queue_delay_us == 24.5


def test_the_rank_and_the_day_are_told(write):
    events = launch_and_kernel(3_600e6, 1)
    path = write(events, distributedInfo={"rank": 3, "world_size": 8}, baseTimeNanoseconds=1_700_000_000 * 10**9)
    assert (read_trace(path).rank, read_trace(path).date) == (3, "2023-11-14")
    assert read_trace(write(launch_and_kernel(1_600_000_000_000_000, 1))).date == "2020-09-13"
    assert read_trace(write(events)).date is None


def test_profiler_steps_give_the_step(write):
    steps = [
        op(100 * i, length, f"ProfilerStep#{i}", category="user_annotation") for i, length in enumerate([80, 90, 70])
    ]
    found = report(write([*steps, *launch_and_kernel(5, 1)]))
    assert (found.step_us, found.step_from) == (80, "median of 3 profiler steps")
    without = report(write(launch_and_kernel(5, 1)))
    assert (without.step_us, without.step_from) == (9, "first start to last end")


MISSING = object()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"ts": MISSING}, (1, 1)),
        ({"dur": MISSING}, (1, 1)),
        ({"ts": "12"}, (1, 1)),
        ({"ts": True}, (1, 1)),
        ({"ts": float("nan")}, (1, 1)),
        ({"ts": float("inf")}, (1, 1)),
        ({"ts": 10**400}, (1, 1)),
        ({"dur": 1e300}, (1, 1)),
        ({"dur": -1}, (1, 1)),
        ({"dur": None}, (1, 1)),
        ({"cat": MISSING}, (1, 0)),
        ({"cat": ["kernel"]}, (1, 0)),
        ({"ph": MISSING}, (1, 0)),
        ({"args": MISSING}, (2, 0)),
        ({"args": [1]}, (2, 0)),
        ({"args": {"correlation": "x"}}, (2, 0)),
        ({"args": {"correlation": None, "device": {}, "stream": -3}}, (2, 0)),
        ({"args": {"correlation": 2**80}}, (2, 0)),
        ({"name": MISSING}, (2, 0)),
        ({"name": 5}, (2, 0)),
        ({"pid": MISSING, "tid": []}, (2, 0)),
    ],
)
def test_fields_that_are_missing_or_wrong(write, change, left):
    events = [*launch_and_kernel(0, 1), *launch_and_kernel(20, 2)]
    events[3] = {k: v for k, v in (events[3] | change).items() if v is not MISSING}
    found = report(write(events))
    assert (found.device_kernels, found.trace.skipped) == left
    assert found.launch_calls == 2


def test_events_that_are_no_objects_are_passed_over(write):
    assert report(write([None, 5, "x", [], *launch_and_kernel(0, 1), {}])).device_kernels == 1


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "the trace holds no events."),
        ([op(0, 1, "aten::mm")], "none of its 1 events is a device's kernel or copy"),
        ([{"ph": "M"}, call(0, 1, 1)], "none of its 2 events is a device's kernel or copy"),
    ],
)
def test_a_trace_without_device_work(write, events, words):
    with pytest.raises(InputError) as error:
        read_trace(write(events))
    assert words in str(error.value)


def test_gzip_is_told_by_content(write, tmp_path):
    packed = write(launch_and_kernel(0, 1), "x.gz")
    plain = packed.rename(tmp_path / "trace.json")
    assert report(plain).device_kernels == 1


def test_events_that_occur_twice_count_once_and_make_no_graph(write):
    events = [call(0, 4, 1), kernel(6, 2, 1), call(10, 4, 2, "cudaLaunchCooperativeKernel"), kernel(16, 2, 2)]
    found = report(write([event for event in events for _ in range(3)]))
    assert (found.device_kernels, found.launch_calls, len(found.graphs)) == (2, 2, 0)
    moved = [*events, kernel(7, 2, 1), kernel(18, 2, 2)]  # not the same, and still a launch of one kernel by its name
    assert (report(write(moved)).launch_calls, len(report(write(moved)).graphs)) == (2, 0)


@pytest.mark.parametrize("change", [{"dur": -1}, {"ts": "12"}])
def test_times_that_cannot_be_used_are_the_reason_given(write, change):
    events = [event | change for event in launch_and_kernel(0, 1)]
    with pytest.raises(
        InputError, match="the times of 2 of its 2 events cannot be used, and no kernel or copy is left"
    ):
        read_trace(write(events))
    exported = chrome_trace(Timeline((), (Span("k", 0, 1),), "measured", "here")).replace('"dur": 1', '"dur": -1')
    with pytest.raises(InputError, match="the times of 1 of its 4 events cannot be used"):
        read_trace(write(exported))


def test_the_wait_before_the_first_kernel(write):
    soon, late = report(write(launch_and_kernel(100, 1))), report(write([call(100, 5, 1), kernel(300, 3, 1)]))
    assert [(g.start_us, g.duration_us, g.reason) for g in soon.gaps] == [(0, 6, "launch")]
    assert late.gaps == ()  # what the device did meanwhile is not in the file
    graph = report(write([call(0, 5, 1, "cudaGraphLaunch"), kernel(300, 30, 1), kernel(330, 30, 1)]))
    words = "what the device did in the 295 µs between the first launch and its kernel is not in the file"
    assert words in graph.verdict.why
    whole = Timeline((Span("g", 0, 5, 1, "graph"),), (Span("k", 300, 30, 1), Span("k", 330, 30, 1)), "measured", "here")
    ours = report(write(chrome_trace(whole)))
    assert (ours.idle_us, ours.extent_us, ours.busy_fraction) == (300, 360, whole.utilization)


def test_an_exported_trace_keeps_where_it_is_from_and_its_day(write):
    events = launch_and_kernel(1_600_000_000_000_000, 1)
    first = read_trace(write(events, deviceProperties=[{"id": 0, "name": "Card 9"}]))
    again = read_trace(write(chrome_trace(first.timeline), "again.json"))
    assert (again.timeline.provenance, again.date) == ("trace.json, Card 9, 2020-09-13", "2020-09-13")
    assert (again.exported, again.whole) == (True, False)
    assert read_trace(write(chrome_trace(Timeline((), (Span("k", 0, 1),), "recorded", "x")))).whole
