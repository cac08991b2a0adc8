"""Trace files in, as timelines: the PyTorch profiler's, and what ``chrome_trace`` wrote. ``profiling`` judges them."""

from s13lib.traces.host_ops import HostOps
from s13lib.traces.reader import read_trace
from s13lib.traces.trace import Trace

__all__ = ["HostOps", "Trace", "read_trace"]
