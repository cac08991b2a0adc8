"""device.record(): every launch with its host span, device span and correlation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from s13lib.errors import InputError


def spans_in_order(spans):
    return all(first.end_us <= second.start_us + 1e-6 for first, second in pairwise(spans))


def test_launches_are_stamped_on_both_sides(device, kernels, run):
    x, y = device.tensor([1.0]), device.zeros(1)
    bound = device.bind(kernels.copy, x, y)
    with device.record() as recording:
        for _ in range(20):
            run.scale(x, y, 2.0)
            bound.launch()
    timeline = recording.timeline
    assert [span.name for span in timeline.host] == ["scale", "copy"] * 20
    assert [span.name for span in timeline.device] == ["scale", "copy"] * 20
    numbers = [span.correlation for span in timeline.host]
    assert numbers == list(range(numbers[0], numbers[0] + 40))
    assert [span.correlation for span in timeline.device] == numbers
    assert timeline.source == "measured"
    assert "SoftGPU" in timeline.provenance


def test_spans_do_not_overlap_and_no_kernel_starts_before_its_launch(device, run):
    x, y = device.tensor([1.0] * 5000), device.zeros(5000)
    with device.record() as recording:
        for _ in range(200):
            run.scale(x, y, 2.0)
    timeline = recording.timeline
    assert spans_in_order(timeline.host)
    assert spans_in_order(timeline.device)
    assert all(span.duration_us > 0 for span in timeline.device)
    assert all(kernel.start_us > launch.start_us for launch, kernel in zip(timeline.host, timeline.device, strict=True))
    assert 0 <= timeline.host[0].start_us < timeline.device[-1].end_us


def test_a_replay_is_one_host_span_with_many_device_spans(device, run):
    x = device.tensor([1.0])
    with device.graph() as graph:
        for _ in range(3):
            run.scale(x, x, 2.0)
        run.copy(x, x)
    run.copy(x, x)
    with device.record() as recording:
        graph.replay()
        run.copy(x, x)
        graph.replay()
    first, single, second = recording.timeline.host
    assert (first.name, first.kind) == ("graph replay (4 nodes)", "graph")
    assert (single.name, single.kind) == ("copy", "")
    kernels = [(span.name, span.correlation) for span in recording.timeline.device]
    replay = ["scale", "scale", "scale", "copy"]
    assert kernels == [
        *((name, first.correlation) for name in replay),
        ("copy", single.correlation),
        *((name, second.correlation) for name in replay),
    ]
    assert spans_in_order(recording.timeline.device)


def test_a_recording_longer_than_the_queue_and_its_chunks(device, run):
    x = device.tensor([1.0])
    with device.record() as recording:
        for _ in range(10_000):
            run.copy(x, x)
    assert len(recording.timeline.device) == 10_000
    assert spans_in_order(recording.timeline.device)


def test_recording_changes_no_result_and_leaves_nothing_behind(device, run):
    x = device.tensor([1.0])
    with device.record():
        run.scale(x, x, 2.0)
    with device.record() as second:
        pass
    run.scale(x, x, 2.0)
    device.synchronize()
    assert x.item() == 4.0
    assert (second.timeline.host, second.timeline.device) == ((), ())


def test_a_capture_inside_a_recording_records_nothing(device, run):
    x = device.tensor([1.0])
    with device.record() as recording, device.graph() as graph:
        run.scale(x, x, 2.0)
    assert recording.timeline.host == ()
    assert len(graph) == 1


def test_recordings_do_not_nest_and_are_read_afterwards(device):
    with device.record() as recording:
        with pytest.raises(InputError, match="nest"), device.record():
            pass
        with pytest.raises(InputError, match="open"):
            _ = recording.timeline
    assert recording.timeline.device == ()
