"""Other shapes for the same memory. NumPy's ``reshape`` would do, but Numba's takes as long as a small kernel."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from s13lib.kernels.softgpu.arithmetic import device_function


@intrinsic
def view(typing_context, array, shape):
    """The elements of a C-contiguous ``array`` as ``shape``, a tuple of as many elements. Nothing is checked.

    The view does not own its memory: it is for use inside a kernel, whose arguments outlive it.
    """
    result = types.Array(array.dtype, shape.count, "C")

    def generate(context, builder, signature, arguments):
        given = make_array(array)(context, builder, arguments[0])
        made = make_array(result)(context, builder)
        extents = cgutils.unpack_tuple(builder, arguments[1])
        item_bytes = ir.Constant(extents[0].type, context.get_abi_sizeof(context.get_data_type(array.dtype)))
        strides = [item_bytes]
        for extent in reversed(extents[1:]):
            strides.insert(0, builder.mul(strides[0], extent))
        populate_array(made, data=given.data, shape=extents, strides=strides, itemsize=item_bytes, meminfo=None)
        return made._getvalue()

    return result(array, shape), generate


@device_function
def by_head(x, head_dim):
    """View x (rows, heads·head_dim) as (rows, heads, head_dim)."""
    return view(x, (x.shape[0], x.shape[1] // head_dim, head_dim))


@device_function
def by_slot(cache):
    """View a cache (blocks, block_size, kv_heads, head_dim) as (slots, kv_heads, head_dim)."""
    return view(cache, (cache.shape[0] * cache.shape[1], cache.shape[2], cache.shape[3]))
