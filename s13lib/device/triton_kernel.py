"""A learner's Triton kernel on CUDA: ``@device.kernel(grid=...)`` above ``@triton.jit``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from s13lib.errors import InputError, require

Grid = tuple[int, ...] | Callable[..., tuple[int, ...]]
EXAMPLE = "@device.kernel(grid=lambda x, out, n: (triton.cdiv(n, 1024),), BLOCK=1024) above @triton.jit"


@dataclass(frozen=True)
class TritonLaunch:
    """One launch of a learner's kernel, its grid and arguments fixed."""

    kernel: TritonKernel
    arguments: tuple
    grid: tuple[int, ...]

    def launch(self) -> None:
        """Queue the launch on the current stream."""
        self.kernel.function[self.grid](*self.arguments, **self.kernel.constants)


class TritonKernel:
    """A ``@triton.jit`` function together with what a launch of it needs beside its arguments.

    Args:
        function: what ``@triton.jit`` made. Tensors come to it as pointers.
        grid: how many programs run, one to three numbers, or a function of the launch's arguments that says so.
        constants: its ``tl.constexpr`` parameters, and Triton's own options such as ``num_warps``.
    """

    def __init__(self, function: Callable, grid: Grid | None, constants: dict[str, object]) -> None:
        name = getattr(function, "__name__", repr(function))
        if not (hasattr(function, "fn") and hasattr(function, "__getitem__")):
            raise InputError(
                f"kernel {name} is a plain Python function, as SoftGPU compiles them: a kernel for CUDA is written in "
                f"Triton, {EXAMPLE}; or run on SoftGPU with S13_DEVICE=softgpu."
            )
        require(grid is not None, f"kernel {name}: grid", grid, f"given: {EXAMPLE}")
        self.name, self.function, self.grid, self.constants = name, function, grid, constants
        self.__doc__ = function.fn.__doc__

    def __repr__(self) -> str:
        return f"TritonKernel({self.name})"

    def bind(self, error_flag: torch.Tensor, *arguments: object) -> TritonLaunch:
        """Fix the arguments of a launch. ``error_flag`` is not used: what is out of range is the kernel's own care."""
        grid = self.grid(*arguments) if callable(self.grid) else self.grid
        fits = isinstance(grid, tuple) and 1 <= len(grid) <= 3 and all(isinstance(n, int) and n >= 1 for n in grid)
        require(fits, f"kernel {self.name}: grid", grid, "a tuple of one to three whole numbers, each at least 1")
        return TritonLaunch(self, arguments, grid)
