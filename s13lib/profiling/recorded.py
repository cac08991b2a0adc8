"""Timelines that were recorded when the library was made, for learners whose own machine cannot show them."""

from __future__ import annotations

from importlib import resources

from s13lib.errors import look_up
from s13lib.traces.reader import read_trace
from s13lib.traces.trace import Trace

SUFFIX = ".json.gz"


def recorded_names() -> list[str]:
    """The names of the recordings, such as ``softgpu-bard-stage15-eager``."""
    folder = resources.files("s13lib.data") / "recorded"
    return sorted(f.name.removesuffix(SUFFIX) for f in folder.iterdir() if f.name.endswith(SUFFIX))


def recorded_trace(name: str) -> Trace:
    """Read a recording; its timeline's provenance names machine and date. An unknown name is an ``InputError``."""
    look_up(dict.fromkeys(recorded_names()), name, "recording")
    with resources.as_file(resources.files("s13lib.data") / "recorded" / (name + SUFFIX)) as path:
        return read_trace(path)
