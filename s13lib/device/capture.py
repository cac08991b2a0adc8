"""What torch may do inside a capture: look at a tensor's shape and take views of it, and nothing else.

A capture runs no kernel, so a value read there would be stale and a value computed there would be frozen or lost. Two
hooks are needed: torch's function mode sees the reads (``item``, ``numpy``, ``print``...), its dispatch mode the
computations, and neither sees all of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from s13lib.device.errors import CaptureError

READS = {
    "item", "tolist", "numpy", "cpu", "to_dlpack", "__dlpack__", "__array__", "__bool__", "__int__", "__float__",
    "__complex__", "__index__", "__contains__", "__repr__", "__str__", "__format__", "__deepcopy__", "storage",
}  # fmt: skip
METADATA = {
    "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "sym_is_contiguous", "size", "stride", "numel",
    "is_contiguous", "is_non_overlapping_and_dense", "is_strides_like_format", "storage_offset", "dim", "layout",
    "device", "is_pinned", "detach", "alias", "view_copy",
}  # fmt: skip
# Which kernel does the work of a torch operation.
KERNEL_FOR = {
    "copy_": "copy", "clone": "copy", "_to_copy": "copy", "add": "add", "add_": "add", "mul": "scale", "mul_": "scale",
    "mm": "linear", "addmm": "linear", "matmul": "linear", "embedding": "embedding", "silu": "silu_mul",
    "index_put_": "append_kv", "_scaled_dot_product_flash_attention_for_cpu": "paged_attention",
}  # fmt: skip


class CaptureGuard:
    """A context in which torch operations on device tensors raise ``CaptureError``.

    ``is_on_device(tensor)`` says which tensors are meant; others are the host's own affair. With ``computations`` false
    only reads are refused: CUDA records torch's own operators (read in PyTorch's notes on CUDA graphs).
    """

    def __init__(self, is_on_device: Callable[[torch.Tensor], bool], computations: bool = True) -> None:
        refuse_computations = (_RefuseComputations(is_on_device),) if computations else ()
        self._modes = (_RefuseReads(is_on_device), *refuse_computations)
        self._stack = ExitStack()

    def __enter__(self) -> None:
        for mode in self._modes:
            self._stack.enter_context(mode)

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


class _RefuseReads(TorchFunctionMode):
    def __init__(self, is_on_device: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self._is_on_device = is_on_device

    def __torch_function__(self, function, types, arguments=(), named=None):
        name = getattr(function, "__name__", "")
        if name in READS and any(map(self._is_on_device, _tensors(arguments))):
            raise CaptureError(
                f"{name.strip('_')} reads a tensor inside a capture, where nothing has run yet: "
                "read it after graph.replay() and device.synchronize()."
            )
        return function(*arguments, **(named or {}))


class _RefuseComputations(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler at the first capture, which takes more than a second."""
        return False

    def __init__(self, is_on_device: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self._is_on_device = is_on_device

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        name = operation._schema.name.rpartition("::")[2]
        harmless = operation.is_view or name in METADATA
        if not harmless and any(map(self._is_on_device, _tensors((arguments, named)))):
            raise CaptureError(
                f"torch's {name.strip('_')} on a device tensor inside a capture: CUDA would record it, SoftGPU records "
                f"only its own kernels; use {_advice(name)}."
            )
        return operation(*arguments, **(named or {}))


def _advice(operation: str) -> str:
    kernel = KERNEL_FOR.get(operation)
    return f"device.kernels.{kernel}" if kernel else "device.kernels, or write one with @device.kernel"


def _tensors(arguments: object) -> Iterator[torch.Tensor]:
    if isinstance(arguments, torch.Tensor):
        yield arguments
    elif isinstance(arguments, tuple | list):
        for each in arguments:
            yield from _tensors(each)
    elif isinstance(arguments, dict):
        yield from _tensors(list(arguments.values()))
