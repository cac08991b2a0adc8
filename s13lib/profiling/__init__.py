"""Timelines from trace files: read, judge, compare, and pick what to draw."""

from s13lib.profiling.analysis import GraphLaunch, TraceReport
from s13lib.profiling.compare import TraceChange
from s13lib.profiling.gaps import REASONS, IdleGap, idle_gaps
from s13lib.profiling.scene import telling_panel, telling_svg
from s13lib.profiling.verdict import Verdict
from s13lib.traces import HostOps, Trace, read_trace

__all__ = [
    "REASONS",
    "GraphLaunch",
    "HostOps",
    "IdleGap",
    "Trace",
    "TraceChange",
    "TraceReport",
    "Verdict",
    "idle_gaps",
    "read_trace",
    "telling_panel",
    "telling_svg",
]
