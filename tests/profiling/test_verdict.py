"""Gaps and their reasons, what the host did under them, and the verdict, on timelines whose truth is known."""

from dataclasses import replace

import pytest

from s13lib.profiling import HostOps, Trace, TraceReport, idle_gaps, telling_panel, telling_svg
from s13lib.profiling.recorded import recorded_trace
from s13lib.profiling.scene import COPY_FILL
from s13lib.profiling.verdict import Evidence, judge
from s13lib.simulator import PRESETS, LaunchCosts, Span, Timeline, launch_times, simulate_timeline

SEED = PRESETS["seed"]


def report(timeline, ops=()):
    return TraceReport(Trace("file", timeline.source, {0: timeline}, host_ops=HostOps(ops)))


def modelled(launch_us, kernel_us):
    times = launch_times(launch_us, kernel_us)
    host, device = (times.host_start_us, times.host_end_us), (times.device_start_us, times.device_end_us)
    spans = [
        tuple(Span("x", start, end - start, i) for i, (start, end) in enumerate(zip(*lane, strict=True)))
        for lane in (host, device)
    ]
    return Timeline(*spans, "modelled", "the recurrence")


# ---- gaps


def timeline_with(launch, second_kernel_start):
    """A kernel from 0 to 100 µs, then one that the given launch submitted."""
    return Timeline(
        (Span("launch", -10, 5, 1), launch),
        (Span("a", 0, 100, 1), Span("b", second_kernel_start, 10, 2)),
        "recorded",
        "by hand",
    )


@pytest.mark.parametrize(
    ("launch", "start", "reason"),
    [
        (Span("launch", 140, 8, 2), 150, "launch"),  # launched at 148, started 2 µs later
        (Span("launch", 140, 30, 2), 150, "launch"),  # a kernel may start before its launch returns
        (Span("launch", 99, 3, 2), 108, "launch"),  # just too late: the rest is the way to the device
        (Span("launch", 1140, 8, 2), 1150, "pause"),
        (Span("launch", 10, 5, 2), 103, "boundary"),
        (Span("launch", 10, 5, 2), 111, "blocked"),
        (Span("launch", 99, 3, 2), 200, "blocked"),  # too late by 2 µs, and that is not what 100 µs are for
        (Span("launch", 140, 8, 3), 150, "unknown"),
    ],
)
def test_each_gap_has_its_reason(launch, start, reason):
    (gap,) = idle_gaps(timeline_with(launch, start))
    assert (gap.start_us, gap.duration_us, gap.reason) == (100, start - 100, reason)
    assert gap.ended_by.name == "b"
    assert gap.for_host is (reason in ("launch", "pause"))


def test_later_nodes_of_a_graph_wait_for_no_launch():
    # The first node runs while the launch call is still busy with the rest.
    nodes = tuple(Span("node", 10 * i, 8, 1) for i in range(4))
    replay = Timeline((Span("cudaGraphLaunch", -5, 100, 1, "graph"),), nodes, "recorded", "x")
    assert [g.reason for g in idle_gaps(replay)] == ["boundary"] * 3


def test_rounding_of_time_stamps_is_no_gap():
    kernels = (Span("a", 0, 5, 1), Span("b", 5.001, 5, 2))
    assert list(idle_gaps(Timeline((), kernels, "recorded", "x"))) == []


def test_the_most_specific_operation_on_the_launching_thread_explains_a_gap():
    ops = HostOps(
        [
            Span("step", 0, 1000, lane="main"),
            Span("linear", 90, 70, lane="main"),
            Span("too short", 100, 20, lane="main"),
            Span("elsewhere", 100, 30, lane="loader"),
        ]
    )
    assert ops.under(100, 150, "main") == "linear"
    assert ops.under(100, 150) == "elsewhere"
    assert ops.under(300, 350, "loader") == "step"  # nothing on that thread
    assert ops.under(2000, 2001) is None
    assert HostOps().under(0, 1) is None
    assert ops.shifted(50).under(151, 199, "main") == "linear"
    assert (ops.start_us, ops.shifted(50).start_us, len(ops)) == (0, 50, 4)


# ---- verdicts


@pytest.mark.parametrize(
    ("timeline", "verdict", "helps"),
    [
        (simulate_timeline(SEED), "launch-bound", ("graph", "fusion")),
        (simulate_timeline(replace(SEED, batch=20)), "launch-bound", ("graph", "fusion")),
        (simulate_timeline(replace(SEED, batch=28)), "mixed", ()),  # level: busy 97 %, and each launch finds it idle
        (simulate_timeline(replace(SEED, batch=64)), "device-bound", ()),
        (simulate_timeline(replace(SEED, graph=True)), "device-bound", ()),
        (modelled([6.0] * 288, [1.0] * 144 + [11.0] * 144), "mixed", ("graph", "fusion")),
        (modelled([6.0] * 40, [3.0] * 40), "launch-bound", ("graph", "fusion")),
    ],
    ids=["seed", "batch 20", "level", "batch 64", "graph", "two stretches", "uniform"],
)
def test_verdicts_on_modelled_steps(timeline, verdict, helps):
    found = report(timeline).verdict
    assert (found.name, found.would_help) == (verdict, helps)
    assert found.why
    assert found.advice


def test_short_kernels_in_a_graph_are_device_bound_and_fusion_helps():
    short = replace(SEED, graph=True, stage=15, costs=LaunchCosts(graph_gap_us=1.3))
    found = report(simulate_timeline(short)).verdict
    assert (found.name, found.would_help) == ("device-bound", ("fusion",))
    assert "lies between two queued kernels" in found.why


def test_pauses_of_the_host_are_set_apart():
    busy = modelled([1.0] * 30, [100.0] * 30)
    moved = tuple(replace(s, start_us=s.start_us + 5000) for s in busy.host + busy.device)
    later = tuple(replace(s, correlation=s.correlation + 100) for s in moved)
    twice = Timeline(busy.host + later[:30], busy.device + later[30:], "recorded", "two bursts")
    found = report(twice, [Span("load_batch", 3000, 2000), Span("step", 0, 9000)])
    assert found.idle_us_by_reason["pause"] == pytest.approx(2000)
    assert found.verdict.name == "device-bound"
    assert "pauses of the host, 25.0% of the whole, are set apart" in found.verdict.why
    assert found.host_operation(found.gaps[0]) == "load_batch"


GOOD = Evidence(
    kernels=100,
    extent_us=1000.0,
    busy=0.5,
    idle={"launch": 0.5, "pause": 0.0, "boundary": 0.0, "blocked": 0.0, "unknown": 0.0},
    idle_before_eager=0.5,
    starved=1.0,
    early=0.0,
    queue_delay_us=2.0,
)


def idle(**shares):
    return {**dict.fromkeys(GOOD.idle, 0.0), **shares}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernels": 1}, "1 kernel: there are no gaps between kernels to judge by"),
        ({"kernels": 0}, "0 kernels: there are no gaps"),
        ({"extent_us": 0.0}, "no gaps between kernels"),
        ({"early": 0.4}, "40% of the kernels start before their launch does: the clocks"),
        ({"idle": idle(unknown=0.3, launch=0.2)}, "mostly before kernels whose launch is not in the file"),
        ({"idle": idle(pause=0.6), "busy": 0.4, "long_pause": "load"}, "a millisecond or more, the longest under load"),
        ({"idle": idle(blocked=0.5)}, "mostly with work already queued: it waits for another stream"),
    ],
)
def test_what_cannot_be_decided_says_why(change, words):
    assert judge(GOOD).name == "launch-bound"
    found = judge(replace(GOOD, **change))
    assert (found.name, found.would_help, found.advice) == ("not decidable", None, "not known")
    assert words in found.why


def test_a_busy_device_needs_no_launches_in_the_file():
    found = judge(replace(GOOD, busy=0.95, idle=idle(unknown=0.05), starved=0.0, queue_delay_us=None))
    assert (found.name, found.why) == ("device-bound", "the device is busy 95.0% of the time")


def test_a_launch_bound_graph_wants_less_host_work_between_replays():
    found = judge(replace(GOOD, idle_before_eager=0.0, idle_before_replays=0.4))
    assert (found.name, found.would_help) == ("launch-bound", ("host",))
    assert "40% of the time the device waits for the host between replays" in found.advice


# ---- the picture


def test_the_picture_shows_the_longest_gap_and_nine_kernels_on_each_side():
    kernels = [Span(f"k{i}", 10.0 * i + (50 if i >= 20 else 0), 8.0, i) for i in range(40)]
    host = tuple(Span("launch", s.start_us - 3, 2.0, s.correlation) for s in kernels)
    panel = telling_panel(report(Timeline(host, tuple(kernels), "recorded", "x"), [Span("sleep", 195, 50)]))
    assert panel.title == "18 of 40 kernels, 228 of 451 µs. The longest gap: 52 µs, the CPU is in sleep"
    assert [s.name for s in panel.timeline.device] == [f"k{i}" for i in range(11, 29)]
    assert panel.timeline.provenance == "a stretch of file"


def test_a_long_kernel_does_not_hide_the_gap():
    host = (Span("launch", -5, 1, 1), Span("launch", 1018, 1, 2))
    kernels = (Span("a", 0, 1000, 1), Span("b", 1020, 5000, 2))
    panel = telling_panel(report(Timeline(host, kernels, "recorded", "x")))
    assert (panel.timeline.start_us, panel.timeline.end_us) == (1000 - 80, 1020 + 80)


@pytest.mark.parametrize(
    ("device_before", "language", "title", "calls"),
    [
        (
            (),
            "en",
            "First 50 of 51 kernels, 499 µs of 2.00 ms. "
            "One graph launch: 500 µs of CPU, 50 kernels, 499 µs of GPU, 100 µs later",
            0,
        ),
        (
            (Span("k", 0, 590, 9),),
            "en",
            "First 51 of 52 kernels, 1.10 of 2.00 ms. One graph launch: 500 µs of CPU, 50 kernels, 499 µs of GPU",
            2,
        ),
        (
            (Span("k", 0, 590, 9),),
            "zh",
            "共 52 个 kernel、2.00 ms；图中：前 51 个、1.10 ms。"
            "一次 graph 启动：CPU 用时 500 µs，50 个 kernel，GPU 用时 499 µs",
            2,
        ),
    ],
    ids=["what the device did before is not in the file", "it is", "in Chinese"],
)
def test_where_graphs_run_most_kernels_the_picture_is_one_replay(device_before, language, title, calls):
    nodes = tuple(Span("node", 600.0 + 10 * i, 9, 1) for i in range(50))
    host = (Span("g", 0, 500, 1, "graph"), Span("launch", 520, 5, 2))
    timeline = Timeline(host, (*device_before, *nodes, Span("k", 2000, 5, 2)), "recorded", "x")
    panel = telling_panel(report(timeline), language)
    assert panel.title == title
    assert len(panel.timeline.host) == calls
    assert len(panel.timeline.device) == 50 + len(device_before)


def test_a_picture_stays_small():
    nodes = tuple(Span("node", 10.0 + i, 1, 1) for i in range(5000))
    panel = telling_panel(report(Timeline((Span("g", 0, 5, 1),), nodes, "recorded", "x")))
    assert len(panel.timeline.device) < 1500


def test_a_step_that_waits_longer_than_it_works_is_launch_bound():
    """However many launches come a hair early: the shipped eager recording has a third of those."""
    late = replace(GOOD, busy=0.41, idle=idle(launch=0.57, boundary=0.02), starved=0.65)
    assert judge(late).name == "launch-bound"
    assert judge(replace(late, busy=0.5, idle=idle(launch=0.48, boundary=0.02))).name == "mixed"
    for name, verdict in (("stage15-eager", "launch-bound"), ("stage15-graph", "device-bound")):
        assert TraceReport(recorded_trace(f"softgpu-bard-{name}")).verdict.name == verdict


def test_the_verdict_on_a_whole_step_never_denies_the_larger_total():
    late = replace(GOOD, busy=0.4, idle=idle(launch=0.6))
    assert judge(replace(late, host_larger=True)).name == "launch-bound"
    assert judge(replace(late, host_larger=False)).name == "mixed"
    busy = replace(GOOD, busy=0.95, idle=idle(launch=0.05), starved=0.1)
    assert judge(replace(busy, host_larger=False)).name == "device-bound"
    found = judge(replace(busy, host_larger=True))
    assert (found.name, "the launches' total is the larger one" in found.why) == ("mixed", True)


def test_a_loop_of_replays_is_not_told_to_fuse():
    host = tuple(Span("replay", 100.0 * i, 60.0, i, "graph") for i in range(8))
    device = tuple(Span("k", 100.0 * i + 60 + 10 * j, 10.0, i) for i in range(8) for j in range(2))
    found = report(Timeline(host, device, "recorded", "x")).verdict
    assert (found.name, found.would_help) == ("launch-bound", ("host",))


def test_a_kernel_that_starts_before_its_launch_returns_is_said_in_words():
    assert "a kernel typically starts before its launch call returns" in judge(replace(GOOD, queue_delay_us=-0.6)).why


def test_where_streams_overlap_the_busiest_is_drawn():
    kernels = (
        Span("a", 0, 50, 1, lane="stream 7"),
        Span("b", 40, 20, 2, lane="stream 9"),
        Span("c", 80, 9, 3, "", "s"),
    )
    host = tuple(Span("launch", i, 0.5, i) for i in range(1, 4))
    panel = telling_panel(report(Timeline(host, kernels, "recorded", "x")))
    assert [s.name for s in panel.timeline.device] == ["a", "c"]
    assert [s.correlation for s in panel.timeline.host] == [1, 3]
    assert panel.timeline.provenance == "a stretch of file; where its 3 streams overlap, stream 7 alone"


def test_two_pictures_share_a_scale_only_where_both_are_whole():
    small = report(simulate_timeline(replace(SEED, graph=True)))
    assert telling_svg([small, small]).count("<svg") == 1
    apart = telling_svg([small, report(simulate_timeline(SEED))])
    assert apart.count("<svg") == 3
    assert "After, own time scale: " in apart


def test_copies_have_a_colour_of_their_own():
    device = (Span("k", 0, 10, 1), Span("Memcpy <DtoH>", 30, 10, 2, "memcpy"), Span("k", 50, 10, 3))
    picture = telling_svg([report(Timeline((), device, "recorded", "x"))])
    assert picture.count(f'fill="{COPY_FILL}"') == 2  # and the legend
    assert "GPU copies or fills memory" in picture
