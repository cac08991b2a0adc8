"""The compiled entry of a kernel: it reads the arguments out of a packet, calls the function and returns an error word.

A packet is a row of 64-bit words: the entry's own address, then for each parameter an array's address and its
dimensions, or a number. The entry returns 0, the kernel's error word (positive), or, if the function raised, minus the
address of Numba's description of the exception: a device thread without the GIL cannot raise, and must not stop.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

WORD = ir.IntType(64)
RESULT_MASK = (1 << 56) - 1  # keeps a stray return value of a learner's kernel from looking like an exception


def make_entry(function: Callable, argument_types: tuple) -> Callable:
    """A Python function ``entry(packet_address) -> error word``, to be compiled as a C function."""

    @intrinsic
    def call(typing_context, packet):
        def generate(context, builder, signature, arguments):
            function.compile(argument_types)
            compiled = function.overloads[argument_types]
            context.active_code_library.add_linking_library(compiled.library)
            words = _read_words(builder, arguments[0], sum(map(_words_of, argument_types)))
            values = [_read_argument(context, builder, kind, words) for kind in argument_types]
            status, result = context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, values)
            return_type = compiled.signature.return_type
            word = WORD(0)
            if return_type is not types.none:
                word = builder.and_(context.cast(builder, result, return_type, types.int64), WORD(RESULT_MASK))
            return builder.select(status.is_error, builder.neg(builder.ptrtoint(status.excinfoptr, WORD)), word)

        return types.int64(types.int64), generate

    def entry(packet):
        return call(packet)

    return entry


def _words_of(kind: types.Type) -> int:
    return 1 + (kind.ndim if isinstance(kind, types.Array) else 0)


def _read_words(builder, packet, count):
    """An iterator over the argument words of a packet, which follow the entry's address."""
    start = builder.inttoptr(packet, WORD.as_pointer())
    return iter([builder.load(builder.gep(start, [WORD(1 + i)])) for i in range(count)])


def _read_argument(context, builder, kind, words):
    """The native value of one argument: a number, or an array over memory that someone else owns."""
    if kind == types.float64:
        return builder.bitcast(next(words), ir.DoubleType())
    if not isinstance(kind, types.Array):
        return next(words)
    array = make_array(kind)(context, builder)
    data = builder.inttoptr(next(words), array.data.type)
    shape = [next(words) for _ in range(kind.ndim)]
    item_bytes = WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [item_bytes]
    for extent in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item_bytes, meminfo=None)
    return array._getvalue()


class _ExceptionInfo(ctypes.Structure):
    """Numba's own layout (``excinfo_t``): a pickled (class, arguments, location) and its size come first."""

    _fields_ = (("pickle", ctypes.c_void_p), ("size", ctypes.c_int32))


def describe_exception(address: int) -> str:
    """What a kernel raised, such as "IndexError: index is out of bounds". ``address`` comes from an entry."""
    info = _ExceptionInfo.from_address(address)
    try:
        kind, arguments, _ = pickle.loads(ctypes.string_at(info.pickle, info.size))
    except Exception:  # the class may not be importable here
        return "an exception"
    known = [str(a) for a in arguments or () if isinstance(a, str | int | float)]
    return ": ".join([kind.__name__, *([", ".join(known)] if known else [])])
