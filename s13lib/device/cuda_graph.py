"""CUDA graphs behind the device protocol: capture on a side stream, one pool for several graphs, replay.

The rules are PyTorch's (read in its documentation, "CUDA Graphs" in the CUDA semantics notes; nothing here was run on a
GPU when it was written): warm up and capture on a stream that is not the default one, use the same stream for all
captures that share a pool, copy new inputs to the old addresses, and keep alive what the graph points at.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

import torch

from s13lib.device.capture import CaptureGuard
from s13lib.device.errors import CaptureError, DeviceError
from s13lib.errors import InputError

if TYPE_CHECKING:
    from s13lib.device.cuda import CudaDevice


class CudaPool:
    """A private pool of torch's caching allocator, which graphs share if they never run at the same time."""

    def __init__(self) -> None:
        self.handle = torch.cuda.graph_pool_handle()

    def __repr__(self) -> str:
        return f"CudaPool({self.pool_bytes:,} bytes)"

    @property
    def pool_bytes(self) -> int:
        """Bytes of device memory that the allocator holds for this pool, free pieces of it included.

        Measured from the allocator's own list of segments. What the driver keeps for the graph itself is not in it.
        """
        mine = tuple(self.handle)
        segments = torch.cuda.memory_snapshot()
        return sum(s["total_size"] for s in segments if tuple(s.get("segment_pool_id", ())) == mine)


class CudaGraph:
    """What ``device.graph()`` recorded on CUDA. It keeps alive the memory of the launches made inside the capture.

    Not what PyTorch's own operators read, nor a launch that was bound before and launched inside by its own ``launch``
    (``device.submit`` sees it).

    Attributes:
        pool: the memory of allocations inside the capture; pass it to ``device.graph`` to share it.
        node_count: kernels, copies and fills in it, asked of the driver; None if that did not answer.
    """

    def __init__(self, device: CudaDevice, pool: CudaPool) -> None:
        self._device, self.pool = device, pool
        self._raw: torch.cuda.CUDAGraph | None = None
        self._storages: dict[int, object] = {}
        self.node_count: int | None = None
        self.ready = False

    def __len__(self) -> int:
        if self.node_count is None:
            raise InputError("how many nodes this graph has is not known: the driver did not say.")
        return self.node_count

    def __repr__(self) -> str:
        if not self.ready:
            return "CudaGraph(not captured)"
        nodes = "an unknown number of" if self.node_count is None else f"{self.node_count}"
        return f"CudaGraph({nodes} nodes, {self.pool_bytes:,} bytes of pool)"

    @property
    def pool_bytes(self) -> int:
        """Bytes in this graph's pool, which other graphs may share."""
        return self.pool.pool_bytes

    def replay(self) -> None:
        """Queue all nodes on the current stream with one submission. Asynchronous, like a launch."""
        if not self.ready:
            raise InputError("this graph was not captured: its capture is still open, or ended in an error.")
        if self._device._capture is not None:
            raise CaptureError("graph.replay() inside a capture: a graph cannot record another one.")
        self._raw.replay()


class CudaCapture:
    """The context that ``CudaDevice.graph`` returns. Launches inside it become nodes of a graph instead of running."""

    def __init__(self, device: CudaDevice, pool: CudaPool | None) -> None:
        self._device = device
        self.pool = pool if pool is not None else CudaPool()
        self._graph = CudaGraph(device, self.pool)
        self._own: set[int] = set()  # storages of the pool that this capture allocated
        self._stream = torch.cuda.stream(device.side_stream)
        # A read would end the capture with CUDA's own error; refused beforehand, it ends with a sentence that helps.
        self._guard = CaptureGuard(lambda tensor: tensor.device.type == device.where.type, computations=False)

    def __enter__(self) -> CudaGraph:
        if self._device._capture is not None:
            raise CaptureError("a capture is already open on this device: captures do not nest.")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # unused memory of the common pool, which the graph's own cannot take from
        # keep_graph: its nodes can be counted before it is made executable.
        raw = self._graph._raw = torch.cuda.CUDAGraph(keep_graph=True)
        self._stream.__enter__()
        try:
            raw.capture_begin(pool=self.pool.handle)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise
        self._device._capture = self
        self._guard.__enter__()
        return self._graph

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        self._guard.__exit__()
        self._device._capture = None
        graph, failure = self._graph, error
        try:
            graph._raw.capture_end()
        except RuntimeError as broken:  # CUDA ended the capture when the body did what cannot be captured
            failure = error if error is not None else broken
        finally:
            self._stream.__exit__(None, None, None)
        if failure is not None:
            graph._storages.clear()
            graph._raw = None
            told_apart = CaptureError | DeviceError | torch.OutOfMemoryError
            if isinstance(failure, RuntimeError) and not isinstance(failure, told_apart):
                raise CaptureError(f"CUDA cannot capture this: {_first_line(failure)}") from failure
            return
        graph.node_count = count_nodes(graph._raw)
        graph._raw.instantiate()
        graph.ready = True

    def allocated(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note that ``tensor`` is the pool's: the graph must not hold it, or no other graph could use its memory."""
        self._own.add(tensor.untyped_storage().data_ptr())
        return tensor

    def keep(self, arguments: tuple) -> None:
        """Keep alive, as long as the graph, all memory of a launch's arguments that is not the pool's."""
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                storage = argument.untyped_storage()
                if storage.data_ptr() not in self._own:
                    self._graph._storages[storage.data_ptr()] = storage


def count_nodes(graph: torch.cuda.CUDAGraph) -> int | None:
    """Ask the driver how many nodes a captured graph has (``cuGraphGetNodes``, CUDA driver API); None if it cannot."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_size_t()
        failed = driver.cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
    except (OSError, AttributeError, RuntimeError):
        return None
    return None if failed else count.value


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
