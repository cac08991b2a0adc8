"""CudaKernel: a Triton kernel under the name and with the arguments of its SoftGPU twin; bound once, launched often.

A bound launch has done everything that does not change from launch to launch: the checks of shapes and types, the choice
of the form, the compilation, the addresses. What is left is one call into Triton's launcher, with plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton
from torch import Tensor

import s13lib.kernels.softgpu  # noqa: F401 — registers the twins, whose parameters and shape rules are used here
from s13lib.device.kernel import REGISTRY
from s13lib.errors import InputError, require

INTERPRETED = triton.knobs.runtime.interpret
"""Whether Triton's interpreter runs the kernels, on the CPU: TRITON_INTERPRET=1 when this module was imported."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
MOST_BOUND = 8192
"""Bound launches that a launcher keeps: enough for 32 layers × 7 kernels × 36 batch sizes."""


@dataclass(frozen=True)
class Plan:
    """A launch of a Triton function: what ``function[grid](*arguments, **constants, **options)`` says.

    ``arguments`` are its first parameters in order, ``constants`` its ``tl.constexpr`` ones by name, ``options`` are
    Triton's (num_warps, num_stages).
    """

    function: triton.runtime.jit.KernelInterface
    grid: tuple[int, int, int]
    arguments: tuple
    constants: dict[str, object]
    options: dict[str, int] = field(default_factory=dict)

    def compile(self) -> object:
        """Compile for the arguments' types and alignments, or take from Triton's cache. Nothing is launched."""
        return self.function.warmup(*self.arguments, grid=self.grid, **self.constants, **self.options)


class BoundLaunch:
    """A launch whose arguments were checked and whose kernel was compiled: ``launch()`` as often as one likes.

    It holds its tensors, so that the addresses stay valid.
    """

    __slots__ = ("_arguments", "_run", "arguments", "kernel", "plan")

    def __init__(self, kernel: CudaKernel, arguments: tuple, plan: Plan | None) -> None:
        self.kernel, self.arguments, self.plan = kernel, arguments, plan
        if plan is None:
            self._arguments, self._run = (), _nothing_to_do
        elif INTERPRETED:
            self._arguments, self._run = (), _interpreted(plan)
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
        name: that of the SoftGPU kernel whose parameters it has, in the same order.
        plan: (error flag, *arguments) → ``Plan``; it may rely on checked arguments and on at least one row.
    """

    def __init__(self, name: str, plan: Callable[..., Plan]) -> None:
        self.name, self._plan = name, plan
        twin = REGISTRY[name]
        self.parameters, self.shapes, self.__doc__ = twin.parameters, twin.shapes, twin.__doc__

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

    def launcher(self, error_flag: Tensor, stream_of: Callable[[], int | None] = lambda: None) -> Callable[..., None]:
        """A function that launches on its arguments: what ``device.kernels.<name>`` is.

        It remembers bound launches by address, shape and type, so that a step which uses the same buffers again pays
        for a look-up and not for a binding. ``stream_of()`` says where to launch.
        """
        bound: dict[tuple, BoundLaunch] = {}
        key_of = self._key_function()

        def launch(*arguments: object) -> None:
            try:
                key = key_of(*arguments)
                found = bound.get(key)
            except (AttributeError, TypeError):  # not tensors, or not as many: the check says which
                found = key = None
            if found is None:
                found = self.bind(error_flag, *arguments)
                if len(bound) >= MOST_BOUND:
                    bound.clear()
                # Without its tensors: whoever lies at that address with that shape and type is meant.
                found.arguments = ()
                bound[key] = found
            found.launch(stream_of())

        launch.__name__ = launch.__qualname__ = self.name
        launch.__doc__ = self.__doc__
        launch.kernel = self
        return launch

    def _key_function(self) -> Callable[..., tuple]:
        """All that a bound launch depends on, in one tuple. Written out, since a loop would cost several times as much."""
        parts = [
            f"{p.name}.data_ptr(), {p.name}.shape, {p.name}.dtype, {p.name}.is_contiguous()" if p.is_array else p.name
            for p in self.parameters
        ]
        return eval(f"lambda {', '.join(p.name for p in self.parameters)}: ({', '.join(parts)},)")

    def _check(self, error_flag: Tensor, arguments: tuple) -> None:
        expected = [p.name for p in self.parameters]
        require(len(arguments) == len(expected), f"{self.name}: arguments", len(arguments), ", ".join(expected))
        shapes = {}
        for parameter, value in zip(self.parameters, arguments, strict=True):
            where = f"{self.name}: {parameter.name}"
            if not parameter.is_array:
                require(isinstance(value, int | float), where, value, "a number")
                continue
            if not isinstance(value, Tensor):
                raise InputError(f"{where} is of type {type(value).__name__}: must be a tensor.")
            exact, rank = parameter.type.element.tensor_dtype, parameter.type.rank
            dtypes = FLOATS if exact is torch.float32 else (exact,)
            require(value.dtype in dtypes, f"{where}.dtype", value.dtype, " or ".join(map(str, dtypes)))
            require(value.device == error_flag.device, f"{where}.device", str(value.device), str(error_flag.device))
            require(value.ndim == rank, f"{where}.shape", tuple(value.shape), f"of {rank} dimension{'s'[: rank > 1]}")
            require(value.is_contiguous(), f"{where}.stride()", value.stride(), "contiguous")
            shapes[parameter.name] = tuple(value.shape)
        self.shapes.explain(self.name, shapes)
