"""CUDA behind the device protocol, over ``torch.cuda``: streams, graphs, one shared pool, the profiler's timeline.

What is said here about CUDA and PyTorch was read in their documentation; whoever wrote it had no GPU to run it on.
``tools/gpu_check.py`` runs all of it on one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from s13lib.device.cuda_graph import CudaCapture, CudaPool
from s13lib.device.cuda_record import CudaRecording
from s13lib.device.error_flags import ErrorFlags
from s13lib.device.errors import CaptureError, DeviceError
from s13lib.device.memory import checked_shape
from s13lib.device.processors import contention, usable_processors
from s13lib.device.protocol import BoundLaunch
from s13lib.device.triton_kernel import Grid, TritonKernel
from s13lib.device.types import describe_error
from s13lib.errors import InputError, look_up, require


class CudaKernel(Protocol):
    """What the device launches: a Triton kernel with its checks. Its arguments are those of SoftGPU's of that name."""

    name: str

    def bind(self, error_flag: torch.Tensor, *arguments: object) -> BoundLaunch:
        """Check the arguments; ``error_flag`` is int64 (1,) and takes the first error word of the kernel."""


#: The built-in kernels by name; ``s13lib.kernels.load("cuda")`` fills it.
REGISTRY: dict[str, CudaKernel] = {}


def cuda_problem() -> str | None:
    """Why this process cannot use CUDA, as the end of a sentence; None if it can."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA GPU here"
    return None


def kernels_problem() -> str | None:
    """Why the Triton kernels cannot run here, as the end of a sentence; None if they can."""
    return None if importlib.util.find_spec("triton") else "the package triton is missing"


class CudaDevice:
    """The GPU that is torch's current one. Launches go to torch's current stream, in order.

    Two rules differ from SoftGPU's. PyTorch's own operators may be part of a graph. And an index out of range is
    skipped and reported by this library's kernels alone: in PyTorch's operators it ends the process's use of the GPU.

    Raises:
        InputError: there is no GPU.
    """

    kind = "cuda"
    place = "cuda"  # torch's name of where its tensors are
    binds_steps = True

    def __init__(self) -> None:
        if problem := cuda_problem():
            raise InputError(f"the CUDA device cannot be used: {problem}.")
        self.where = torch.device(self.place, torch.cuda.current_device())
        #: Warm-ups and captures run here, all on one stream: the default one cannot be captured.
        self.side_stream = torch.cuda.Stream()
        self.processors = usable_processors()
        self._flags = ErrorFlags(self.where)
        self._capture: CudaCapture | None = None
        self._recorder: CudaRecording | None = None
        self._profiled = False
        #: Launch functions by name: ``device.kernels.scale(x, out, 2.0)`` queues a launch and returns at once.
        self.kernels = CudaNamespace(self)

    def __repr__(self) -> str:
        return f"CudaDevice({self.description})"

    @property
    def description(self) -> str:
        """What this device is, for the provenance of a measurement."""
        return f"{torch.cuda.get_device_name(self.where)}, CUDA {torch.version.cuda}, torch {torch.__version__}"

    def banner(self) -> str:
        """One line for the top of a notebook: the device, and whether the host's times can be trusted (20 ms)."""
        return f"{self.description}, {contention(self.processors)}"

    @property
    def weight_dtype(self) -> torch.dtype:
        """bfloat16 where the GPU computes in it, else float16."""
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    @property
    def usable(self) -> bool:
        """Always: a process keeps its GPU."""
        return True

    # Memory

    def empty(
        self, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32, name: str | None = None
    ) -> torch.Tensor:
        """A tensor at a fixed address, with unspecified contents. Inside a capture it belongs to the graph's pool.

        ``name`` is not used: CUDA does not tell which tensors a graph's nodes read.
        """
        tensor = torch.empty(checked_shape(shape), dtype=dtype, device=self.where)
        return tensor if self._capture is None else self._capture.allocated(tensor)

    def zeros(
        self, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32, name: str | None = None
    ) -> torch.Tensor:
        """Like ``empty``, filled with zeros. Refused inside a capture, as on SoftGPU: the fill would be replayed."""
        self._refuse_in_capture("device.zeros", "the fill would be part of the graph")
        return self.empty(shape, dtype, name).zero_()

    def tensor(self, data: object, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
        """A new device tensor with a copy of ``data`` (a tensor, an array or nested lists)."""
        self._refuse_in_capture("device.tensor", "the host copies, and a graph cannot record that")
        source = torch.as_tensor(data, dtype=dtype).detach()
        return self.empty(tuple(source.shape), source.dtype, name).copy_(source)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that torch's tensors use now."""
        return torch.cuda.memory_allocated(self.where)

    def side_by_side(self) -> AbstractContextManager[None]:
        """Nothing: CUDA's allocator cuts tensors from large pieces anyway (read in PyTorch's caching allocator)."""
        return nullcontext()

    def pool(self) -> CudaPool:
        """A new memory pool for ``graph(pool)``."""
        return CudaPool()

    # Launching

    def kernel(self, function: Callable | None = None, *, grid: Grid | None = None, **constants: object) -> Callable:
        """Make a kernel of a learner's Triton function; see ``TritonKernel`` for ``grid`` and ``constants``.

        ::

            @device.kernel(grid=lambda x, out, n: (triton.cdiv(n, 1024),), BLOCK=1024)
            @triton.jit
            def double(x, out, n, BLOCK: tl.constexpr): ...

        Returns its launch function, which is also ``device.kernels.<name>`` unless a built-in kernel has that name.
        """
        if function is None:
            return lambda function: self.kernel(function, grid=grid, **constants)
        constants.pop("out", None)  # SoftGPU asks which parameters are written; a CUDA graph does not show it
        return self.kernels._add(TritonKernel(function, grid, constants))

    def prepare(self, names: Iterable[str]) -> None:
        """See that all of these kernels are there. Triton compiles each at its first launch."""
        for name in names:
            getattr(self.kernels, name)

    def bind(self, kernel: CudaKernel | Callable | str, *arguments: object) -> BoundLaunch:
        """Check a launch's arguments now; ``.launch()`` on the result submits it. It keeps their memory alive."""
        if isinstance(kernel, str):
            kernel = getattr(self.kernels, kernel)
        kernel = getattr(kernel, "kernel", kernel)
        if self._capture is not None:
            self._capture.keep(arguments)
        return kernel.bind(self._flags.of(kernel.name), *arguments)

    def submit(self, launches: Sequence[BoundLaunch]) -> None:
        """Queue bound launches, in order; inside a capture the graph keeps their memory alive."""
        if self._capture is not None:
            for launch in launches:
                self._capture.keep(launch.arguments)
        for launch in launches:
            launch.launch()

    def synchronize(self) -> None:
        """Wait until all launches have run; ``DeviceError`` if a kernel reported an error since the last call."""
        self._refuse_in_capture("synchronize", "nothing is running, and a graph cannot record a wait")
        try:
            torch.cuda.synchronize(self.where)
            found = self._flags.take()
        except RuntimeError as error:
            first = str(error).strip().splitlines()[0]
            raise DeviceError(f"{first}: this process can no longer use the GPU; start it again.") from error
        if found:
            (name, word), *others = found.items()
            more = f" ({len(others)} more kernels reported errors: {', '.join(k for k, _ in others)})" if others else ""
            raise DeviceError(f"{name}: {describe_error(word)}{more}")

    # Graphs and measurement

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Run a step on the side stream, ordered after all that was launched before, and wait for it.

        Libraries such as cuBLAS make their workspaces at a first call, for each stream, and Triton compiles: neither
        may happen inside a capture (read in PyTorch's notes on CUDA graphs).
        """
        self.side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_stream):
            yield
        torch.cuda.current_stream().wait_stream(self.side_stream)
        self.synchronize()

    def graph(self, pool: CudaPool | None = None) -> CudaCapture:
        """A context that records launches instead of running them: ``with device.graph() as graph: ...``.

        ``pool`` is another graph's ``pool`` to share its memory (capture the largest graph first).
        """
        require(pool is None or isinstance(pool, CudaPool), "pool", pool, "None or another CUDA graph's pool")
        return CudaCapture(self, pool)

    def record(self) -> CudaRecording:
        """A context that profiles launches: ``with device.record() as recording: ...``, then ``recording.timeline``."""
        return CudaRecording(self)

    def close(self) -> None:
        """Nothing to end: the GPU's work goes on without a thread of this process."""

    def _refuse_in_capture(self, what: str, why: str) -> None:
        if self._capture is not None:
            raise CaptureError(f"{what} inside a capture: {why}; do it before or after.")


class CudaNamespace:
    """``device.kernels``: launch functions by name, of the built-in kernels and of the learner's own."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._own: dict[str, CudaKernel] = {}

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._own and name not in REGISTRY:
            return self._launcher(self._own[name])
        return self._launcher(look_up(REGISTRY, name, "device.kernels"))

    def __dir__(self) -> list[str]:
        return sorted({*REGISTRY, *self._own})

    def _add(self, kernel: CudaKernel) -> Callable:
        self._own[kernel.name] = kernel
        return self._launcher(kernel)

    def _launcher(self, kernel: CudaKernel) -> Any:
        def launch(*arguments: object) -> None:
            self._device.bind(kernel, *arguments).launch()

        launch.__name__ = launch.__qualname__ = kernel.name
        launch.__doc__ = kernel.__doc__
        launch.kernel = kernel
        return launch
