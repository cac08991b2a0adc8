"""The CUDA device's own logic over a fake of torch.cuda: order of calls, pools, errors. It does not say CUDA works."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from s13lib import device as devices
from s13lib.device import CaptureError, CudaDevice, DeviceError, SoftGPU, best_device, cuda_record
from s13lib.device.cuda_graph import CudaPool
from s13lib.errors import InputError
from tests.profiling.kineto import launch_and_kernel

ROOT = Path(__file__).parents[2]


def doubled(device):
    x, y = device.tensor([1.0, 2.0]), device.zeros(2)
    with device.graph() as graph:
        device.kernels.scale(x, y, 2.0)
    return x, y, graph


# ---- which device


def test_without_a_gpu_the_cuda_device_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError) as error:
        CudaDevice()
    assert str(error.value) == f"the CUDA device cannot be used: torch {torch.__version__} sees no CUDA GPU here."


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_command_line_says_so_with_exit_code_2():
    done = subprocess.run(
        [sys.executable, "-m", "s13lib", "decode"],
        cwd=ROOT,
        env={"S13_DEVICE": "cuda", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    sentence = f"error: S13_DEVICE is 'cuda', and torch {torch.__version__} sees no CUDA GPU here: "
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{sentence}unset it or set it to softgpu.\n"


@pytest.mark.parametrize(
    ("gpu", "triton", "chosen"),
    [(True, True, "cuda"), (True, False, "softgpu"), (False, True, "softgpu"), (False, False, "softgpu")],
)
def test_auto_is_cuda_where_there_is_a_gpu_and_triton(monkeypatch, gpu, triton, chosen):
    monkeypatch.setattr(devices, "cuda_problem", lambda: None if gpu else "no GPU")
    monkeypatch.setattr(devices, "kernels_problem", lambda: None if triton else "no triton")
    assert devices.best_kind() == chosen


def test_the_choice_is_made_anew_when_the_environment_changes(monkeypatch, fake):
    monkeypatch.setattr(devices, "_best", None)
    monkeypatch.setenv("S13_DEVICE", "softgpu")
    soft = best_device()
    assert isinstance(soft, SoftGPU)
    assert best_device() is soft
    monkeypatch.setattr(devices, "CudaDevice", lambda: "a CUDA device")
    monkeypatch.setenv("S13_DEVICE", "cuda")
    assert best_device() == "a CUDA device"
    soft.close()


def test_a_program_may_need_one_device_and_the_environment_still_decides(monkeypatch):
    monkeypatch.setattr(devices, "best_kind", lambda: "cuda")
    monkeypatch.setattr(devices, "cuda_problem", lambda: None)
    monkeypatch.setattr(devices, "CudaDevice", lambda: SimpleNamespace(kind="cuda", usable=True))
    monkeypatch.setattr(devices, "SoftGPU", lambda: SimpleNamespace(kind="softgpu", usable=True))
    monkeypatch.setattr(devices, "_best", None)
    monkeypatch.setattr(devices, "_default", "auto")
    monkeypatch.delenv("S13_DEVICE")
    assert best_device().kind == "cuda"
    assert best_device(default="softgpu").kind == "softgpu"
    assert best_device().kind == "softgpu"
    monkeypatch.setenv("S13_DEVICE", "cuda")
    assert best_device(default="softgpu").kind == "cuda"
    with pytest.raises(InputError, match="default: unknown name 'sotfgpu'; did you mean softgpu"):
        best_device(default="sotfgpu")


def test_everything_but_softgpu_imports_without_numba():
    code = """
import sys
for name in ("numba", "llvmlite", "safetensors", "matplotlib", "IPython", "ipywidgets"): sys.modules[name] = None
import s13lib.device, s13lib.model, s13lib.graphs.scenario, s13lib.profiling.measure, s13lib.kernels.reference
try: from s13lib.device import SoftGPU
except ModuleNotFoundError as error: print(error.name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("numba\n", "")


# ---- launches


def test_a_launch_runs_and_an_error_is_told_by_the_next_synchronise_alone(cuda_device):
    x = cuda_device.tensor([[1.0], [2.0]])
    out = cuda_device.zeros((2, 1))
    cuda_device.kernels.embedding(cuda_device.tensor([1, 0]), x, out)
    cuda_device.synchronize()
    assert out.tolist() == [[2.0], [1.0]]
    cuda_device.kernels.embedding(cuda_device.tensor([7, 0]), x, out)
    cuda_device.kernels.append_kv(
        x, x, cuda_device.tensor([99, 0]), *(cuda_device.zeros((2, 2, 1, 1)) for _ in range(2))
    )
    with pytest.raises(DeviceError) as error:
        cuda_device.synchronize()
    assert str(error.value) == (
        "embedding: token 7 is outside the vocabulary; the row was skipped (1 more kernels reported errors: append_kv)"
    )
    cuda_device.synchronize()
    assert out.tolist() == [[2.0], [1.0]]


def test_an_error_of_cuda_itself_is_a_device_error(cuda_device, monkeypatch):
    def fail(where=None):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with pytest.raises(DeviceError, match=r"^CUDA error: an illegal memory access was encountered: this process can"):
        cuda_device.synchronize()


def test_an_unknown_kernel_is_named(cuda_device):
    with pytest.raises(InputError, match=r"device\.kernels: unknown name 'rms_nrom'; did you mean rms_norm"):
        cuda_device.kernels.rms_nrom()
    assert "add_rms_norm" in dir(cuda_device.kernels)


# ---- graphs: the order of calls


def test_capture_runs_on_the_side_stream_with_the_pool_and_nothing_runs_before_a_replay(fake, cuda_device):
    _, y, graph = doubled(cuda_device)
    assert y.tolist() == [0.0, 0.0]
    assert (graph.node_count, len(graph), graph.ready) == (1, 1, True)
    graph.replay()
    cuda_device.synchronize()
    assert y.tolist() == [2.0, 4.0]
    assert fake.log == [
        "synchronize",
        "empty_cache",
        "capture begins on side, pool (0, 1)",
        "capture ends",
        "instantiate",
        "replay on default",
        "synchronize",
    ]


def test_warm_up_is_ordered_between_the_two_streams_and_waits(fake, cuda_device):
    x, y = cuda_device.tensor([1.0]), cuda_device.zeros(1)
    with cuda_device.warm_up():
        assert fake.stream is cuda_device.side_stream
        cuda_device.kernels.scale(x, y, 3.0)
    assert y.item() == 3.0
    assert fake.log == ["side waits for default", "default waits for side", "synchronize"]


def test_a_replay_reads_what_lies_at_the_old_address(cuda_device):
    x, y, graph = doubled(cuda_device)
    old, x = x, cuda_device.tensor([5.0, 5.0])  # rebound: the graph does not see it
    graph.replay()
    assert y.tolist() == [2.0, 4.0]
    old.copy_(x)
    graph.replay()
    assert y.tolist() == [10.0, 10.0]


def test_graphs_share_a_pool_by_its_handle_and_its_bytes_are_the_allocators(fake, cuda_device):
    x, y, first = doubled(cuda_device)
    with cuda_device.graph(first.pool) as second:
        cuda_device.kernels.scale(y, x, 2.0)
    with cuda_device.graph() as third:
        cuda_device.kernels.scale(y, x, 2.0)
    begun = [line for line in fake.log if line.startswith("capture begins")]
    assert begun == [f"capture begins on side, pool (0, {number})" for number in (1, 1, 2)]
    fake.segments[:] = [
        {"total_size": 2 << 20, "segment_pool_id": (0, 1)},
        {"total_size": 20 << 20, "segment_pool_id": (0, 2)},
        {"total_size": 4 << 20, "segment_pool_id": (0, 1)},
        {"total_size": 64 << 20, "segment_pool_id": (0, 0)},
    ]
    assert (first.pool_bytes, second.pool_bytes, third.pool_bytes) == (6 << 20, 6 << 20, 20 << 20)
    assert repr(first) == "CudaGraph(1 nodes, 6,291,456 bytes of pool)"


def test_a_graph_keeps_its_inputs_alive_and_leaves_the_pools_memory_to_the_pool(cuda_device):
    x, y = cuda_device.tensor([1.0]), cuda_device.zeros(1)
    with cuda_device.graph() as graph:
        inside = cuda_device.empty(1)
        cuda_device.kernels.scale(x, inside, 2.0)
        cuda_device.kernels.scale(inside, y, 2.0)
    outside = {x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()}
    assert set(graph._storages) == outside
    before = [cuda_device.bind("scale", x, y, 2.0), cuda_device.bind("scale", y, x, 2.0)]
    with cuda_device.graph() as graph:
        cuda_device.submit(before)
    assert set(graph._storages) == outside
    assert graph.node_count == 2
    cuda_device.submit(before)
    assert (x.item(), y.item()) == (4.0, 2.0)


# ---- graphs: what goes wrong


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (lambda d, y: y.item(), "item reads a tensor inside a capture, where nothing has run yet"),
        (lambda d, y: print(y), "reads a tensor inside a capture, where nothing has run yet"),
        (lambda d, y: bool(y[0] > 0), "bool reads a tensor inside a capture"),
        (lambda d, y: d.synchronize(), "synchronize inside a capture: nothing is running"),
        (lambda d, y: d.zeros(1), "device.zeros inside a capture: the fill would be part of the graph"),
        (lambda d, y: d.tensor([1.0]), "device.tensor inside a capture: the host copies"),
        (lambda d, y: d.graph().__enter__(), "a capture is already open on this device: captures do not nest."),
    ],
)
def test_what_a_capture_refuses_and_that_the_device_works_on(fake, cuda_device, misuse, sentence):
    y = cuda_device.zeros(2)
    with pytest.raises(CaptureError, match=sentence), cuda_device.graph() as graph:
        misuse(cuda_device, y)
    assert fake.stream is fake.default
    with pytest.raises(InputError, match="this graph was not captured"):
        graph.replay()
    *_, again = doubled(cuda_device)
    assert again.ready


def test_torchs_own_operators_may_be_captured(cuda_device):
    y = cuda_device.zeros(2)
    with cuda_device.graph() as graph:
        y.add_(1)
    assert graph.ready


def test_a_capture_that_cuda_ends_is_a_capture_error_and_the_stream_comes_back(fake, cuda_device):
    with pytest.raises(CaptureError) as error, cuda_device.graph():
        torch.cuda.synchronize()  # what a library might do inside
    assert str(error.value) == "CUDA cannot capture this: CUDA error: operation not permitted when stream is capturing"
    assert fake.stream is fake.default
    fake.log.clear()
    with pytest.raises(CaptureError) as error, cuda_device.graph():
        fake.invalidated = True
    assert str(error.value) == (
        "CUDA cannot capture this: CUDA error: operation failed due to a previous error during capture"
    )
    assert fake.stream is fake.default
    *_, graph = doubled(cuda_device)
    assert graph.ready


def test_a_lack_of_memory_inside_a_capture_stays_what_it_is(fake, cuda_device):
    with pytest.raises(torch.OutOfMemoryError), cuda_device.graph():
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert fake.stream is fake.default


def test_another_error_inside_a_capture_stays_what_it_is(cuda_device):
    with pytest.raises(KeyError), cuda_device.graph():
        raise KeyError("mine")
    with pytest.raises(InputError, match="pool is 3: must be None or another CUDA graph's pool"):
        cuda_device.graph(3)
    assert isinstance(cuda_device.pool(), CudaPool)


def test_a_replay_inside_a_capture_is_refused(cuda_device):
    *_, graph = doubled(cuda_device)
    with pytest.raises(CaptureError, match="a graph cannot record another one"), cuda_device.graph():
        graph.replay()


def test_a_capture_that_does_not_begin_leaves_nothing_behind(fake, cuda_device, monkeypatch):
    def refuse(self, pool=None):
        raise RuntimeError("CUDA error: out of memory")

    raw = type(torch.cuda.CUDAGraph())
    monkeypatch.setattr(raw, "capture_begin", refuse)
    with pytest.raises(RuntimeError, match="out of memory"), cuda_device.graph():
        pass
    assert fake.stream is fake.default
    cuda_device.synchronize()


# ---- recording


class FakeProfile:
    """Writes the events that a test gives it, as ``torch.profiler.profile`` writes its own."""

    events: tuple = ()

    def __init__(self, activities):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def export_chrome_trace(self, path):
        Path(path).write_text(json.dumps({"traceEvents": list(self.events)}))


def test_a_recording_is_read_by_the_reader_of_trace_files(cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_record, "profile", FakeProfile)
    FakeProfile.events = [*launch_and_kernel(1000, 1, name="gemv"), *launch_and_kernel(1010, 2, name="norm")]
    with cuda_device.record() as recording:
        with pytest.raises(InputError, match="recordings do not nest"), cuda_device.record():
            pass
        with pytest.raises(InputError, match="still open"):
            _ = recording.timeline
    timeline = recording.timeline
    assert (timeline.source, timeline.provenance) == ("measured", cuda_device.description)
    assert [(s.name, s.start_us, s.duration_us) for s in timeline.device] == [("gemv", 6, 3), ("norm", 16, 3)]
    assert [s.name for s in timeline.host] == ["cudaLaunchKernel"] * 2
    FakeProfile.events = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]
    with pytest.raises(InputError, match="the recording has no kernel"), cuda_device.record():
        pass


# ---- a learner's kernel


def test_softgpus_kernel_body_is_refused_with_what_to_write_instead(cuda_device):
    with pytest.raises(InputError, match="kernel scale_it is a plain Python function, as SoftGPU compiles them"):

        @cuda_device.kernel
        def scale_it(x, out):
            out[0] = x[0]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_triton_kernel_needs_a_grid_and_is_launched_with_its_constants(cuda_device):
    launches = []

    class Jit:  # as much of triton.jit's result as a launch uses
        __name__ = "twice"

        def fn(self):
            """Doc."""

        def __getitem__(self, grid):
            return lambda *arguments, **constants: launches.append((grid, arguments, constants))

    with pytest.raises(InputError, match="kernel twice: grid is None: must be given"):
        cuda_device.kernel(Jit())
    twice = cuda_device.kernel(grid=lambda x, out: (len(x),), out=("out",), BLOCK=4)(Jit())
    x, out = cuda_device.tensor([1.0, 2.0]), cuda_device.empty(2)
    twice(x, out)
    cuda_device.kernels.twice(x, out)
    assert launches == [((2,), (x, out), {"BLOCK": 4})] * 2
    bad = cuda_device.kernel(grid=(0,))(Jit())
    with pytest.raises(InputError, match=r"kernel twice: grid is \(0,\): must be a tuple of one to three"):
        bad(x)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_real_triton_kernel_runs_in_the_interpreter(cuda_device):
    import triton
    import triton.language as tl

    if not triton.knobs.runtime.interpret:
        pytest.skip("TRITON_INTERPRET is not set, and there is no GPU")

    @cuda_device.kernel(grid=lambda x, out, n: (triton.cdiv(n, 4),), BLOCK=4)
    @triton.jit
    def triple(x, out, n, BLOCK: tl.constexpr):
        """Three times x."""
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, 3 * tl.load(x + i, mask=i < n), mask=i < n)

    x, out = cuda_device.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), cuda_device.zeros(6)
    cuda_device.kernels.triple(x, out, 5)
    assert out.tolist() == [3.0, 6.0, 9.0, 12.0, 15.0, 0.0]
    assert triple.__doc__ == "Three times x."


def test_flags_are_one_word_a_kernel_at_a_fixed_address(cuda_device):
    flags = cuda_device._flags
    assert flags.of("a").data_ptr() == flags.of("a").data_ptr() != flags.of("b").data_ptr()
    flags.of("b").fill_((5 << 48) | (1 << 40) | 9)  # a kernel's own mark above the word
    assert flags.take() == {"b": (1 << 40) | 9}
    assert flags.take() == {}
    for number in range(62):
        flags.of(f"kernel {number}")
    with pytest.raises(InputError, match="kernels that report errors is 65: must be at most 64"):
        flags.of("one more")
