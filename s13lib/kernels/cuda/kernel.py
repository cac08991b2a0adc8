"""CudaKernel: a Triton kernel with the name and the arguments of its SoftGPU twin; bound once, launched often.

A bound launch has done everything that does not change from launch to launch: the checks of shapes and types, the
choice of the form, the compilation, the addresses. What is left is one call into Triton's launcher, with integers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from torch import Tensor

from s13lib.device.shapes import ShapeRule
from s13lib.device.types import ArrayType
from s13lib.errors import InputError, require

INTERPRETED = triton.knobs.runtime.interpret
"""Whether Triton's interpreter runs the kernels, on the CPU: TRITON_INTERPRET was 1 when this module was imported."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)

#: The kernels by name; ``@cuda_kernel`` adds to it.
KERNELS: dict[str, CudaKernel] = {}


@dataclass(frozen=True)
class Plan:
    """A launch of a Triton function: what ``function[grid](*arguments, **constants, **options)`` says.

    ``arguments`` are its first parameters in order, ``constants`` its ``tl.constexpr`` ones by name, ``options`` are
    Triton's (num_warps, num_stages).
    """

    function: Any
    grid: tuple[int, int, int]
    arguments: tuple
    constants: dict[str, object]
    options: dict[str, int] = field(default_factory=dict)

    def compile(self) -> Any:
        """Compile for the arguments' types and alignments, or take from Triton's cache. Nothing is launched."""
        return self.function.warmup(*self.arguments, grid=self.grid, **self.constants, **self.options)


class BoundLaunch:
    """A launch whose arguments were checked and whose kernel was compiled: ``launch()`` as often as one likes.

    It holds its tensors, so that the addresses stay valid.
    """

    __slots__ = ("_arguments", "_run", "arguments", "kernel", "plan")

    def __init__(self, kernel: CudaKernel, arguments: tuple, plan: Plan | None) -> None:
        self.kernel, self.arguments, self.plan = kernel, arguments, plan
        self._arguments: tuple = ()
        if plan is None:
            self._run = _nothing_to_do
        elif INTERPRETED:
            self._run = _interpreted(plan)
        else:
            # Integers instead of tensors: the launcher then asks neither torch nor the driver about each of them.
            named = {**dict(zip(plan.function.arg_names, plan.arguments, strict=False)), **plan.constants}
            ordered = (named[name] for name in plan.function.arg_names)
            self._arguments = tuple(a.data_ptr() if isinstance(a, Tensor) else a for a in ordered)
            self._run = plan.compile()[plan.grid]

    def __repr__(self) -> str:
        return f"BoundLaunch({self.kernel.name})"

    def launch(self, stream: int | None = None) -> None:
        """Queue the launch on ``stream``, a raw handle (``torch.cuda.Stream.cuda_stream``); default the current one."""
        self._run(*self._arguments, stream=stream)


def _nothing_to_do(stream: int | None = None) -> None:
    """The launch of an empty batch."""


def _interpreted(plan: Plan) -> Callable:
    def run(stream: int | None = None) -> None:
        plan.function[plan.grid](*plan.arguments, **plan.constants)

    return run


class CudaKernel:
    """One kernel of the table ``KERNELS``.

    Args:
        plan: a function (error flag, *arguments) → ``Plan`` whose parameters are annotated as those of a SoftGPU
            kernel; here ``F32`` stands for any type in ``FLOATS``. It may rely on checked arguments and on at least one
            row.
        shapes: which dimensions must agree, see ``s13lib.device.shapes``.
    """

    def __init__(self, plan: Callable[..., Plan], shapes: str) -> None:
        self._plan = plan
        self.name, self.__doc__ = plan.__name__, plan.__doc__
        _, *given = inspect.signature(plan, eval_str=True).parameters.values()
        #: The type of each parameter by name: an ``ArrayType``, or ``float``.
        self.parameters: dict[str, ArrayType | type] = {p.name: p.annotation for p in given}
        self.shapes = ShapeRule.parse(shapes)

    def __repr__(self) -> str:
        return f"CudaKernel({self.name})"

    def plan(self, error_flag: Tensor, *arguments: object) -> Plan | None:
        """Check the arguments and choose the form; None for an empty batch. Compiles nothing.

        Raises:
            InputError: a tensor of the wrong type, place, layout or shape.
        """
        self._check(error_flag, arguments)
        if any(isinstance(a, Tensor) and a.numel() == 0 for a in arguments):
            return None
        return self._plan(error_flag, *arguments)

    def bind(self, error_flag: Tensor, *arguments: object) -> BoundLaunch:
        """Check, choose the form, compile if need be: a launch that is ready. ``error_flag`` is int64 (1,)."""
        return BoundLaunch(self, arguments, self.plan(error_flag, *arguments))

    def _check(self, error_flag: Tensor, arguments: tuple) -> None:
        expected = list(self.parameters)
        allowed = f"{len(expected)}: {', '.join(expected)}"
        require(len(arguments) == len(expected), f"{self.name}: the number of arguments", len(arguments), allowed)
        shapes = {}
        for (name, kind), value in zip(self.parameters.items(), arguments, strict=True):
            where = f"{self.name}: {name}"
            if not isinstance(kind, ArrayType):
                require(isinstance(value, int | float), where, value, "a number")
                continue
            if not isinstance(value, Tensor):
                raise InputError(f"{where} is of type {type(value).__name__}: must be a tensor.")
            exact = kind.element.tensor_dtype
            dtypes = FLOATS if exact is torch.float32 else (exact,)
            require(value.dtype in dtypes, f"{where}.dtype", value.dtype, " or ".join(map(str, dtypes)))
            place = str(error_flag.device)
            require(value.device == error_flag.device, f"{where}.device", str(value.device), f"the device's, {place}")
            rank = f"of {kind.rank} dimension{'s'[: kind.rank > 1]}"
            require(value.ndim == kind.rank, f"{where}.shape", tuple(value.shape), rank)
            require(value.is_contiguous(), f"{where}.stride()", value.stride(), f"contiguous for {tuple(value.shape)}")
            shapes[name] = tuple(value.shape)
        self.shapes.explain(self.name, shapes)


def cuda_kernel(shapes: str) -> Callable[[Callable[..., Plan]], CudaKernel]:
    """Register a plan as the kernel of its name: ``@cuda_kernel("x[n] out[n]")``. Names and rules are SoftGPU's."""

    def register(plan: Callable[..., Plan]) -> CudaKernel:
        KERNELS[plan.__name__] = CudaKernel(plan, shapes)
        return KERNELS[plan.__name__]

    return register
