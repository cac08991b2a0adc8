"""Recording on CUDA: torch's profiler writes a trace, and the reader of trace files makes the timeline of it.

What is said of the profiler and of CUPTI, NVIDIA's library under it, was read in PyTorch's documentation of
``torch.profiler``.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

from s13lib.errors import InputError
from s13lib.simulator.timeline import Timeline
from s13lib.traces import read_trace

if TYPE_CHECKING:
    from s13lib.device.cuda import CudaDevice

ACTIVITIES = (ProfilerActivity.CPU, ProfilerActivity.CUDA)


class CudaRecording:
    """A context: what the host calls and the device runs inside it. Afterwards ``timeline`` holds it.

    The spans are those of any PyTorch-profiler trace: launches and copies by the names of the CUDA calls, kernels by
    their own, a replay's kernels with the correlation of its launch. The profiler makes each call on the host slower.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._profiler: profile | None = None
        self._timeline: Timeline | None = None

    def __enter__(self) -> CudaRecording:
        if self._device._recorder is not None:
            raise InputError("this device is already recording: recordings do not nest.")
        if not self._device._profiled:  # the first profile of a process starts CUPTI, which takes long
            with profile(activities=ACTIVITIES):
                torch.cuda.synchronize()
            self._device._profiled = True
        torch.cuda.synchronize()
        self._device._recorder = self
        self._profiler = profile(activities=ACTIVITIES)
        self._profiler.__enter__()
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        try:
            torch.cuda.synchronize()
        finally:
            self._device._recorder = None
            self._profiler.__exit__(kind, *rest)
        if kind is None:
            self._timeline = self._read()
        self._profiler = None

    @property
    def timeline(self) -> Timeline:
        """The measured ``Timeline``, in microseconds from the first event."""
        if self._timeline is None:
            raise InputError("the recording is still open: read its timeline after the with block.")
        return self._timeline

    def _read(self) -> Timeline:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recording.json"
            self._profiler.export_chrome_trace(str(path))
            try:
                timeline = read_trace(path).timeline
            except InputError as error:
                raise InputError(
                    "the recording has no kernel: either nothing was launched inside it, or the profiler may not watch "
                    f"the GPU here (CUPTI needs permission). The reader says: {error}"
                ) from None
        return replace(timeline, source="measured", provenance=self._device.description)
