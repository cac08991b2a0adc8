"""The inner loops over quantised weights, as explicit vector operations.

A plain loop over blocks of small integers is compiled to something slower than the float32 one (three to four times as
slow as this, measured): the compiler does not find that a sum of products of 16-bit integers is one instruction. Here
LLVM is told: eight lanes; in each block 32 integers are widened to 16 bits, multiplied by the activations' integers,
added up exactly in 32 bits, and only then, once a block, made float and scaled. It is plain LLVM, without instructions
of any one processor; on x86 it becomes ``vpmaddwd``. Both functions are compiled without re-association, so a (row,
output) pair comes out the same in every kernel.
"""

from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from s13lib.kernels.quantised import BLOCK, FORMATS

inlined = njit(error_model="numpy", forceinline=True)  # and no re-association

LANES = 8
BYTE, SHORT, INT, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, LANES)
HALF_BLOCK = BLOCK // 2  # 16-bit integers that are multiplied at once

Q8_0, Q4_0 = (from_dtype(FORMATS[name].element.kernel_dtype) for name in ("q8_0", "q4_0"))
"""What the compiler knows a byte of each format by."""


def _all(kind, value, count):
    return ir.Constant(ir.VectorType(kind, count), [value] * count)


def _picked(builder, vector, indices):
    """The elements of ``vector`` at ``indices``."""
    return builder.shuffle_vector(
        vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(ir.VectorType(INT, len(indices)), indices)
    )


def _spread(builder, value, count):
    """``value`` in each of ``count`` lanes."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, count), ir.Undefined), value, INT(0))
    return _picked(builder, one, [0] * count)


def _load(builder, start, offset, kind, count):
    """``count`` elements of ``kind``, which need not be aligned, ``offset`` elements behind the pointer ``start``."""
    pointer = builder.gep(builder.bitcast(start, kind.as_pointer()), [offset])
    return builder.load(builder.bitcast(pointer, ir.VectorType(kind, count).as_pointer()), align=1)


def _scale(context, builder, block, count):
    """The float16 at the start of a block, as float32 in each of ``count`` lanes.

    By the x86 instruction for it where there is one; else by integers: exponent and fraction are moved to where float32
    has them, and 2**112 makes up for the other exponent bias. Both are exact.
    """
    half = builder.load(builder.bitcast(block, SHORT.as_pointer()), align=1)
    if "+f16c" in context.codegen().magic_tuple()[-1]:
        halves = builder.bitcast(_spread(builder, half, count), ir.VectorType(ir.HalfType(), count))
        return builder.fpext(halves, ir.VectorType(FLOAT, count))
    moved = builder.and_(builder.shl(builder.sext(half, INT), INT(13)), INT(0x8FFFE000 - 2**32))
    return _spread(builder, builder.fmul(builder.bitcast(moved, FLOAT), FLOAT(2.0**112)), count)


def _integers_q8_0(builder, block):
    """A block's integers, 16 bits wide: the first sixteen and the others."""
    wide = ir.VectorType(SHORT, HALF_BLOCK)
    return [builder.sext(_load(builder, block, WORD(2 + i), BYTE, HALF_BLOCK), wide) for i in (0, HALF_BLOCK)]


def _integers_q4_0(builder, block):
    """The same: the low halves of all bytes come first."""
    packed = builder.zext(_load(builder, block, WORD(2), BYTE, HALF_BLOCK), ir.VectorType(SHORT, HALF_BLOCK))
    low = builder.and_(packed, _all(SHORT, 15, HALF_BLOCK))
    high = builder.lshr(packed, _all(SHORT, 4, HALF_BLOCK))
    return [builder.sub(half, _all(SHORT, 8, HALF_BLOCK)) for half in (low, high)]


def _format_of(byte):
    """How a byte's type says that its block is read: (bytes of a block, the function that gives its integers).

    By name and not from a table: the kernels' cache follows names to what machine code depends on.
    """
    if byte == Q8_0:
        return FORMATS["q8_0"].block_bytes, _integers_q8_0
    return FORMATS["q4_0"].block_bytes, _integers_q4_0


def _pointer(context, builder, kind, array):
    return builder.bitcast(make_array(kind)(context, builder, array).data, BYTE.as_pointer())


def _sum_of_pairs(builder, a, b):
    """For two vectors of 16-bit integers a[2i]·b[2i] + a[2i + 1]·b[2i + 1], in 32 bits, where it cannot overflow."""
    wide = ir.VectorType(INT, HALF_BLOCK)
    product = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (_picked(builder, product, list(range(first, HALF_BLOCK, 2))) for first in (0, 1))
    return builder.add(even, odd)


@inlined
def block_dot(weight_row, values, scales):
    """Σ d·s·Σ q·v over a row's blocks: weight_row (row_bytes,) of a format's bytes, values int16 (width,) and scales
    float32 (width / 32,) the activations' integers and scales. Nothing is checked.
    """
    return _block_dot(weight_row, values, scales)


@inlined
def unpack_row(weight_row, out):
    """out (width,) = the weights that weight_row (row_bytes,) stands for, exact. Nothing is checked."""
    _unpack_row(weight_row, out)


@intrinsic
def _block_dot(typing_context, weight_row, values, scales):
    block_bytes, integers = _format_of(weight_row.dtype)

    def generate(context, builder, signature, arguments):
        weight, value = (_pointer(context, builder, k, a) for k, a in zip(signature.args[:2], arguments, strict=False))
        scale = make_array(scales)(context, builder, arguments[2])
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS] * 3), f"llvm.fma.v{LANES}f32"
        )
        sums = [cgutils.alloca_once_value(builder, _all(FLOAT, 0.0, LANES)) for _ in range(2)]
        (blocks,) = cgutils.unpack_tuple(builder, scale.shape)

        def add_block(index, total):
            block = builder.gep(weight, [builder.mul(index, WORD(block_bytes))])
            first = builder.mul(index, WORD(BLOCK))
            low, high = (
                _sum_of_pairs(
                    builder, q, _load(builder, value, builder.add(first, WORD(i * HALF_BLOCK)), SHORT, HALF_BLOCK)
                )
                for i, q in enumerate(integers(builder, block))
            )
            of_values = _spread(builder, builder.load(builder.gep(scale.data, [index])), LANES)
            factor = builder.fmul(_scale(context, builder, block, LANES), of_values)
            products = builder.sitofp(builder.add(low, high), FLOATS)
            more = builder.call(fma, [factor, products, builder.load(total)])
            builder.store(more, total)

        # Two sums in turn: a single one would have to wait for its own last addition.
        with cgutils.for_range(builder, builder.lshr(blocks, WORD(1))) as pair:
            for i, total in enumerate(sums):
                add_block(builder.add(builder.shl(pair.index, WORD(1)), WORD(i)), total)
        with builder.if_then(builder.trunc(blocks, ir.IntType(1))):
            add_block(builder.sub(blocks, WORD(1)), sums[0])
        lanes, count = builder.fadd(*map(builder.load, sums)), LANES
        while count > 1:
            count //= 2
            halves = (_picked(builder, lanes, list(range(first, first + count))) for first in (0, count))
            lanes = builder.fadd(*halves)
        return builder.extract_element(lanes, INT(0))

    return types.float32(weight_row, values, scales), generate


@intrinsic
def _unpack_row(typing_context, weight_row, out):
    block_bytes, integers = _format_of(weight_row.dtype)
    half_block = ir.VectorType(FLOAT, HALF_BLOCK)

    def generate(context, builder, signature, arguments):
        weight, target = (_pointer(context, builder, k, a) for k, a in zip(signature.args, arguments, strict=True))
        (width,) = cgutils.unpack_tuple(builder, make_array(out)(context, builder, arguments[1]).shape)
        with cgutils.for_range(builder, builder.sdiv(width, WORD(BLOCK))) as loop:
            block = builder.gep(weight, [builder.mul(loop.index, WORD(block_bytes))])
            scale = _scale(context, builder, block, HALF_BLOCK)
            for i, q in enumerate(integers(builder, block)):
                first = builder.add(builder.mul(loop.index, WORD(BLOCK)), WORD(i * HALF_BLOCK))
                place = builder.gep(builder.bitcast(target, FLOAT.as_pointer()), [first])
                weights = builder.fmul(scale, builder.sitofp(q, half_block))
                builder.store(weights, builder.bitcast(place, half_block.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(weight_row, out), generate
