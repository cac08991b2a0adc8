"""What compiled code needs: raw memory, atomics, a call by address, the system's clock and its waits.

All of it compiles without the GIL. Addresses are plain 64-bit integers. Linux is what the tests run on; the macOS and
Windows branches follow those systems' documentation and have not been run here.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from s13lib.device.cache import KernelCache, fingerprint

WORD = ir.IntType(64)
WINDOWS, MACOS = sys.platform == "win32", sys.platform == "darwin"


def compiled(signature: str, release_gil: bool = False) -> Callable[[Callable], Callable]:
    """A decorator: ``njit`` with this project's cache, compiled at the first call of ``entry_point``."""

    def decorate(function: Callable) -> Callable:
        options = {"nogil": release_gil}
        dispatcher = njit(**options)(function)
        dispatcher._cache = KernelCache(function.__name__, fingerprint(function, options))
        dispatcher.s13_signature = signature
        return dispatcher

    return decorate


def entry_point(dispatcher: Callable) -> Callable:
    """The bare C entry of a ``compiled`` function: half the call cost of Numba's dispatcher (measured: 118, 239 ns)."""
    dispatcher.compile(dispatcher.s13_signature)
    (result,) = dispatcher.overloads.values()
    return result.entry_point


@intrinsic
def load(typing_context, address):
    """Read the word at an address."""

    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], WORD.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def store(typing_context, address, value):
    """Write the word at an address."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], WORD.as_pointer()))

    return types.void(types.int64, types.int64), generate


# Sequentially consistent, not merely acquire and release: parking writes one word and then reads another ("I sleep; is
# there work?") while the host does the reverse, and with weaker ordering both could see the old value.
@intrinsic
def load_atomic(typing_context, address):
    """Read a word that another thread writes."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_atomic(typing_context, address, value):
    """Write a word that another thread reads."""

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], WORD.as_pointer()), "seq_cst", 8)

    return types.void(types.int64, types.int64), generate


@intrinsic
def exchange(typing_context, address, value):
    """Write a word and return what it held, in one step."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("xchg", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def add_atomic(typing_context, address, value):
    """Add to a word and return what it held, in one step."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def call_address(typing_context, address, argument):
    """Call the compiled function ``int64(int64)`` at an address."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(WORD, [WORD])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [arguments[1]])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def stack_words(typing_context):
    """The address of two words on the caller's own stack, for the structures that system calls fill in."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(cgutils.alloca_once(builder, WORD, size=2), WORD)

    return types.int64(), generate


def _system(library: object, name: str, signature: object) -> types.ExternalFunction:
    """A C function by name. (A ctypes pointer would do too, but code that holds one cannot be cached.)"""
    symbol = f"s13_{name}"
    llvmlite.binding.add_symbol(symbol, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    return types.ExternalFunction(symbol, signature)


I32, I64 = types.int32, types.int64
# To be called with the GIL held only.
take_reference = _system(ctypes.pythonapi, "Py_IncRef", types.void(I64))
drop_reference = _system(ctypes.pythonapi, "Py_DecRef", types.void(I64))

if WINDOWS:  # pragma: no cover (not run here)
    _kernel32 = ctypes.WinDLL("kernel32")
    _kernel32.CreateEventW.restype = ctypes.c_void_p
    _counter = _system(_kernel32, "QueryPerformanceCounter", I32(I64))
    _frequency = _system(_kernel32, "QueryPerformanceFrequency", I32(I64))
    _switch = _system(_kernel32, "SwitchToThread", I32())
    _sleep_ms = _system(_kernel32, "Sleep", types.void(I32))
    _wait = _system(_kernel32, "WaitForSingleObject", I32(I64, I32))
    _set = _system(_kernel32, "SetEvent", I32(I64))

    @njit
    def now_ns():
        """Nanoseconds on the monotonic clock."""
        words = stack_words()
        _counter(words)
        _frequency(words + 8)
        ticks, per_second = load(words), load(words + 8)
        return ticks // per_second * 1_000_000_000 + ticks % per_second * 1_000_000_000 // per_second

    @njit
    def give_way():
        """Let another thread have the processor."""
        _switch()

    @njit
    def doze():
        """Sleep for a short while."""
        _sleep_ms(1)

    @njit
    def sleep_until_woken(handle, limit_ms):
        """Sleep until the bell rings, at most ``limit_ms`` milliseconds."""
        _wait(handle, limit_ms)

    @njit
    def wake(handle):
        """Ring the bell."""
        _set(handle)

    def open_bell() -> tuple[int, int]:
        """A handle to wait on and one to ring, the same here: an event that resets itself."""
        handle = _kernel32.CreateEventW(None, False, False, None)
        return handle, handle

    def close_bell(bell: tuple[int, int]) -> None:
        """Close both handles."""
        _kernel32.CloseHandle(ctypes.c_void_p(bell[0]))

else:
    _libc = ctypes.CDLL(None)
    _CLOCK = 8 if MACOS else 1  # CLOCK_UPTIME_RAW, CLOCK_MONOTONIC: what time.perf_counter_ns reads
    _clock_gettime = _system(_libc, "clock_gettime", I32(I32, I64))
    _sched_yield = _system(_libc, "sched_yield", I32())
    _usleep = _system(_libc, "usleep", I32(I32))
    _poll = _system(_libc, "poll", I32(I64, I64, I32))
    _read = _system(_libc, "read", I64(I32, I64, I64))
    _write = _system(_libc, "write", I64(I32, I64, I64))

    @njit
    def now_ns():
        """Nanoseconds on the monotonic clock."""
        words = stack_words()
        _clock_gettime(_CLOCK, words)
        return load(words) * 1_000_000_000 + load(words + 8)

    @njit
    def give_way():
        """Let another thread have the processor."""
        _sched_yield()

    @njit
    def doze():
        """Sleep for a short while."""
        _usleep(50)

    @njit
    def sleep_until_woken(handle, limit_ms):
        """Sleep until the bell rings, at most ``limit_ms`` milliseconds."""
        words = stack_words()
        store(words, handle | 1 << 32)  # struct pollfd {int fd; short events = POLLIN; short revents}
        if _poll(words, 1, limit_ms) > 0:
            _read(handle, words, 16)

    @njit
    def wake(handle):
        """Ring the bell."""
        _write(handle, stack_words(), 1)

    def open_bell() -> tuple[int, int]:
        """The two ends of a pipe: one to wait on, one to ring. Neither ever blocks."""
        bell = os.pipe()
        for end in bell:
            os.set_blocking(end, False)
        return bell

    def close_bell(bell: tuple[int, int]) -> None:
        """Close both ends."""
        for end in bell:
            os.close(end)
