"""Kernels: plain functions over typed arrays and scalars, compiled to machine code that a device calls by address.

    @kernel(out=("out",))
    def scale(x: F32[1], out: F32[1], factor: float):
        for i in range(x.size):
            out[i] = factor * x[i]

A kernel writes into its out-parameters and returns nothing, or an error word (see ``types``): 0 if all went well.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from numba import from_dtype, njit, types
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError

from s13lib.device.cache import KernelCache, fingerprint
from s13lib.device.entry import make_entry
from s13lib.device.shapes import ShapeRule
from s13lib.device.types import ArrayType
from s13lib.errors import InputError, require
from s13lib.progress import Progress

# Reassociation lets the compiler use vectors for sums. Full fastmath is no faster (measured) and loses NaN checks.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}
SCALARS = {int: types.int64, float: types.float64}

#: The built-in kernels by name; ``@kernel`` adds to it, and ``device.kernels`` looks there.
REGISTRY: dict[str, Kernel] = {}
_names: dict[int, str] = {}  # by address of the compiled entry, to say which kernel reported an error


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: an ``ArrayType``, ``int`` or ``float``; ``written`` if it is an output."""

    name: str
    type: ArrayType | type
    written: bool

    @property
    def is_array(self) -> bool:
        """Whether a tensor goes here, not a number."""
        return isinstance(self.type, ArrayType)

    @property
    def numba_type(self) -> types.Type:
        """What the compiler sees."""
        if not self.is_array:
            return SCALARS[self.type]
        return types.Array(from_dtype(self.type.element.kernel_dtype), self.type.rank, "C")


class Kernel:
    """A compiled function with a table of parameters.

    Args:
        python_function: the annotated function.
        out: names of the parameters that it writes; found in its source if not given.
        shapes: which of the arguments' dimensions must agree, see ``s13lib.device.shapes``.
        checked: compile with bounds and division checks, so that an error is reported instead of crashing the process.
    """

    def __init__(
        self,
        python_function: Callable,
        out: Iterable[str] | None = None,
        checked: bool = False,
        shapes: str | ShapeRule = "",
    ) -> None:
        self.python_function = python_function
        self.name: str = python_function.__name__
        self.parameters = _parameters(python_function, out)
        self.shapes = ShapeRule.parse(shapes) if isinstance(shapes, str) else shapes
        self.shapes.check_against(self.name, {p.name: p.type.rank for p in self.parameters if p.is_array})
        self.__doc__ = python_function.__doc__
        self._options = {
            "fastmath": FAST_MATH,
            "boundscheck": checked,
            "error_model": "python" if checked else "numpy",
        }

    def __repr__(self) -> str:
        names = [f"{p.name}: {p.type.__name__ if p.type in SCALARS else p.type}" for p in self.parameters]
        return f"Kernel({self.name}({', '.join(names)}))"

    @cached_property
    def function(self) -> Callable:
        """The compiled function itself, to be called on NumPy arrays. It returns the error word, or ``None``."""
        function = njit(**self._options)(self.python_function)
        function._cache = KernelCache(self.name, fingerprint(self.python_function, self._options))
        return function

    @cached_property
    def address(self) -> int:
        """The address of the compiled ``int64(int64 packet_address)`` that a device calls. Compiles at first use."""
        argument_types = tuple(p.numba_type for p in self.parameters)
        entry = make_entry(self.function, argument_types)
        code = CFunc(entry, ((types.int64,), types.int64), {}, {})
        code._cache = KernelCache(f"{self.name}-entry", fingerprint(entry, {"types": repr(argument_types)}))
        try:
            code.compile()
        except NumbaError as error:
            raise InputError(f"kernel {self.name} does not compile: {_reason(error)}") from None
        self._code = code  # frees the machine code when it goes
        _names[code.address] = self.name
        return code.address


def kernel(
    function: Callable | None = None, *, out: Iterable[str] | None = None, shapes: str = ""
) -> Kernel | Callable:
    """Register a built-in kernel: ``@kernel`` or ``@kernel(out=("out",), shapes="x[n] out[n]")``.

    A built-in kernel is compiled without bounds checks: it must not raise, and checks the indices that it is given.
    That the shapes of its arguments agree is checked at each launch, by ``shapes``.
    """
    if function is None:
        return lambda function: kernel(function, out=out, shapes=shapes)
    REGISTRY[function.__name__] = Kernel(function, out, shapes=shapes)
    return REGISTRY[function.__name__]


def helper(function: Callable) -> Callable:
    """A function that kernels call, compiled with the same arithmetic flags."""
    return njit(fastmath=FAST_MATH, error_model="numpy")(function)


def prepare(kernels: Iterable[Kernel]) -> None:
    """Compile, or load from the cache, all of ``kernels`` now, with a progress bar."""
    kernels = list(kernels)
    with Progress("preparing kernels (compiled at the first use only)", len(kernels)) as bar:
        for each in kernels:
            _ = each.address
            bar.update()


def name_at(address: int) -> str:
    """The name of the kernel whose compiled entry lies at ``address``."""
    return _names.get(address, "a kernel")


def _parameters(function: Callable, out: Iterable[str] | None) -> tuple[Parameter, ...]:
    where = f"kernel {function.__name__}"
    try:
        signature = inspect.signature(function, eval_str=True).parameters.values()
    except NameError as error:
        raise InputError(f"{where}: a parameter's type is not known: {error}.") from None
    for p in signature:
        plain = p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty and not p.name.startswith("_")
        require(plain, f"{where}: parameter", str(p), "positional, without a default, and not begin with an underscore")
        known = isinstance(p.annotation, ArrayType) or p.annotation in SCALARS
        found = None if p.annotation is p.empty else p.annotation
        require(known, f"{where}: the type of {p.name}", found, "an array such as F32[1], or int, or float")
    arrays = {p.name for p in signature if isinstance(p.annotation, ArrayType)}
    written = _written_names(function) & arrays if out is None else set(out)
    require(written <= arrays, f"{where}: out", out, f"names of array parameters ({', '.join(arrays)})")
    return tuple(Parameter(p.name, p.annotation, p.name in written) for p in signature)


def _written_names(function: Callable) -> set[str]:
    """Names that the function assigns into (``name[...] = ...``); all of its parameters if its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return set(inspect.signature(function).parameters)
    targets = (n.value for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return {n.id for n in targets if isinstance(n, ast.Name)}


def _reason(error: NumbaError) -> str:
    """What Numba says, without the stages of its own work."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(line for line in lines if not line.startswith(("Failed in nopython mode", "During:")))
