"""The recordings that ship with the library: readable, labelled, and of the steps that their names say."""

import pytest

from s13lib.errors import InputError
from s13lib.profiling.recorded import recorded_names, recorded_trace


def test_every_recording_is_a_labelled_timeline_of_the_step_that_it_names():
    names = recorded_names()
    assert names == [f"softgpu-bard-stage{s}-{p}" for s in (15, 4) for p in ("eager", "graph")]
    for name in names:
        timeline = recorded_trace(name).timeline
        stage = 15 if "stage15" in name else 4
        assert timeline.source == "recorded"
        assert timeline.provenance.startswith(f"{name}, batch 1, context 64, SoftGPU on ")
        assert timeline.provenance[-10:-6].isdigit()  # the date
        assert len(timeline.device) == 32 * stage + 3
        assert len(timeline.host) == (1 if "graph" in name else 32 * stage + 3)


def test_the_recordings_show_the_lessons_picture():
    steps = {name: recorded_trace(name).timeline for name in recorded_names()}
    assert steps["softgpu-bard-stage15-eager"].bottleneck == "host"
    assert steps["softgpu-bard-stage15-eager"].utilization < 0.6
    assert steps["softgpu-bard-stage4-graph"].bottleneck == "device"
    assert steps["softgpu-bard-stage4-graph"].utilization > 0.9


def test_an_unknown_recording_is_named():
    with pytest.raises(InputError, match="recording: unknown name 'softgpu-bard-stage9-eager'; did you mean softgpu-"):
        recorded_trace("softgpu-bard-stage9-eager")
