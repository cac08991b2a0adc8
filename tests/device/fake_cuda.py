"""A thin fake of the calls of ``torch.cuda`` that our graph code makes, on CPU tensors, and kernels that obey it.

It shows in which order our code calls, on which stream and with which pool, and what a replay then reads. It says
nothing about CUDA itself. A captured launch does not run; a replay runs what was captured, over the captured tensors.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from s13lib import kernels
from s13lib.device import cuda, cuda_graph
from s13lib.device.cuda import CudaDevice
from s13lib.device.types import ERROR_MASK, ERROR_SHIFT, SLOT, TOKEN
from s13lib.kernels import NAMES, reference


class Stream:
    def __init__(self, fake, name="side"):
        self._fake, self.name = fake, name

    def wait_stream(self, other):
        self._fake.log.append(f"{self.name} waits for {other.name}")


class RawGraph:
    def __init__(self, fake, keep_graph=False):
        self._fake, self.launches, self.pool, self.executable = fake, [], None, not keep_graph

    def capture_begin(self, pool=None):
        self._fake.log.append(f"capture begins on {self._fake.stream.name}, pool {pool}")
        self._fake.capturing, self.pool = self, pool

    def capture_end(self):
        self._fake.log.append("capture ends")
        self._fake.capturing = None
        if self._fake.invalidated:
            self._fake.invalidated = False
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nmore lines")

    def instantiate(self):
        self._fake.log.append("instantiate")
        self.executable = True

    def replay(self):
        assert self.executable
        self._fake.log.append(f"replay on {self._fake.stream.name}")
        for run in self.launches:
            run()


class FakeCuda:
    """``log`` holds the calls in order; ``launched`` counts launches by kernel name, ``bound`` bindings."""

    def __init__(self):
        self.log, self.capturing, self.invalidated, self.pools = [], None, False, 0
        self.default = self.stream = Stream(self, "default")
        self.launched, self.bound = [], []
        self.segments = []

    def run(self, name, work):
        if self.capturing is not None:
            self.capturing.launches.append(work)
        else:
            self.launched.append(name)
            work()

    @contextmanager
    def on(self, stream):
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def next_pool(self):
        self.pools += 1
        return (0, self.pools)

    def synchronize(self, device=None):
        if self.capturing is not None:
            self.invalidated = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.log.append("synchronize")


class FakeKernel:
    """A kernel of the decoder, by the reference; an index out of range sets the flag and skips the whole launch."""

    def __init__(self, fake, name):
        self._fake, self.name, self._function = fake, name, getattr(reference, name)

    def bind(self, error_flag, *arguments):
        self._fake.bound.append(self.name)
        assert error_flag.shape == (1,)
        assert error_flag.dtype == torch.int64

        def work():
            try:
                self._function(*arguments)
            except IndexError as error:
                kind = TOKEN if "token" in str(error) else SLOT
                value = int(str(error).split()[1])
                if error_flag.item() == 0:
                    error_flag.fill_(kind << ERROR_SHIFT | (value & ERROR_MASK))

        return SimpleNamespace(launch=lambda: self._fake.run(self.name, work), arguments=arguments)


class FakeCudaDevice(CudaDevice):
    """The device over the fake: all its tensors are the CPU's."""

    place = "cpu"
    weight_dtype = torch.float32


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCuda()
    replaced = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_name": lambda where=None: "Fake GPU",
        "Stream": lambda: Stream(fake),
        "stream": fake.on,
        "current_stream": lambda: fake.stream,
        "synchronize": fake.synchronize,
        "empty_cache": lambda: fake.log.append("empty_cache"),
        "CUDAGraph": lambda keep_graph=False: RawGraph(fake, keep_graph),
        "graph_pool_handle": fake.next_pool,
        "memory_snapshot": lambda: fake.segments,
        "memory_allocated": lambda where=None: 0,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(cuda_graph, "count_nodes", lambda raw: len(raw.launches))
    monkeypatch.setattr(cuda, "REGISTRY", {name: FakeKernel(fake, name) for name in NAMES})
    load = kernels.load
    monkeypatch.setattr(kernels, "load", lambda kind: None if kind == "cuda" else load(kind))
    return fake


@pytest.fixture
def cuda_device(fake):
    return FakeCudaDevice()
