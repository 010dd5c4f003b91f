"""Vector instructions for Numba's kernels, in LLVM's own terms.

LLVM lowers them to whatever the machine has (AVX-512, AVX2, NEON, ...).
"""

from __future__ import annotations

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config

from rkdl._backends.cpu.jit import intrinsic

# Bytes per vector: one register of AVX-512, two of AVX2, four of NEON.
VECTOR_BYTES = 64
INDEX = ir.IntType(64)
LANE = ir.IntType(32)
FAST = ("contract", "nsz", "arcp")
HAS_AVX512 = "+avx512f" in (getattr(config, "CPU_FEATURES", None) or binding.get_host_cpu_features().flatten())


def whole_vectors(count: int, dtype: np.dtype) -> int:
    """The number of entries rounded up to whole vectors."""
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-count // lanes) * lanes


class Vectors:
    """Emits vector code for one element type."""

    def __init__(self, context, builder, dtype) -> None:
        self.builder = builder
        self.element = context.get_value_type(dtype)
        self.lanes = VECTOR_BYTES // (dtype.bitwidth // 8)
        self.type = ir.VectorType(self.element, self.lanes)
        # As wide as the elements, so that one mask serves both.
        self.number = ir.IntType(dtype.bitwidth)
        self.index_type = ir.VectorType(self.number, self.lanes)
        self.align = dtype.bitwidth // 8

    def constant(self, value: float) -> ir.Constant:
        return ir.Constant(self.type, [value] * self.lanes)

    def spread(self, scalar, kind=None):
        """Broadcast a scalar to every lane."""
        kind = kind or self.type
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(LANE, 0))
        mask = ir.Constant(ir.VectorType(LANE, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), mask)

    def _pointer(self, base, offset):
        address = self.builder.gep(base, [offset], inbounds=True)
        return self.builder.bitcast(address, self.type.as_pointer())

    def load(self, base, offset):
        return self.builder.load(self._pointer(base, offset), align=self.align)

    def load_some(self, base, offset, count):
        """The first `count` numbers, fewer than a vector has, and zeros; nothing beyond them is read."""
        builder, flag = self.builder, ir.IntType(1)
        pointer = self._pointer(base, offset)
        wanted = ir.VectorType(flag, self.lanes)
        kind = ir.FunctionType(self.type, [pointer.type, LANE, wanted, self.type])
        name = f"llvm.masked.load.v{self.lanes}f{self.number.width}.p0"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        count = count if self.number.width == INDEX.width else builder.trunc(count, self.number)
        mask = builder.icmp_signed("<", self.lane_numbers(), self.spread(count, self.index_type))
        return builder.call(function, [pointer, ir.Constant(LANE, self.align), mask, self.constant(0.0)])

    def store(self, value, base, offset) -> None:
        self.builder.store(value, self._pointer(base, offset), align=self.align)

    def times(self, left, right):
        return self.builder.fmul(left, right, flags=FAST)

    def divide(self, left, right):
        return self.builder.fdiv(left, right, flags=FAST)

    def subtract(self, left, right):
        return self.builder.fsub(left, right, flags=FAST)

    def magnitude(self, values):
        return self.builder.select(
            self.builder.fcmp_ordered("<", values, self.constant(0.0)), self.builder.fneg(values), values
        )

    def multiply_add(self, value, left, right):
        """``value + left * right``."""
        return self.builder.fadd(value, self.times(left, right), flags=FAST)

    def multiply_subtract(self, value, left, right):
        """``value - left * right``."""
        return self.builder.fsub(value, self.times(left, right), flags=FAST)

    def reduce(self, values, combine):
        """One number from the lanes of a vector, halves combined until one lane is left."""
        builder, lanes = self.builder, self.lanes
        while lanes > 1:
            lanes //= 2
            mask_type = ir.VectorType(LANE, lanes)
            low = builder.shuffle_vector(values, values, ir.Constant(mask_type, list(range(lanes))))
            high = builder.shuffle_vector(values, values, ir.Constant(mask_type, list(range(lanes, 2 * lanes))))
            values = combine(low, high)
        return builder.extract_element(values, ir.Constant(LANE, 0))

    def lane_numbers(self):
        return ir.Constant(self.index_type, list(range(self.lanes)))


def width_of(context, builder, kind, value):
    """Number of columns of an array."""
    return builder.extract_value(context.make_array(kind)(context, builder, value).shape, 1)


def data_of(context, builder, kind, value):
    """Pointer to the first number of an array."""
    return context.make_array(kind)(context, builder, value).data


def emit_prefetch(builder, data, place) -> None:
    """Prefetch the cache line of the number at flat index `place`."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    address = builder.bitcast(builder.gep(data, [place], inbounds=True), byte)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # For reading, high locality, data cache.
    builder.call(function, [address, *(ir.Constant(flag, n) for n in (0, 3, 1))])


@intrinsic
def prefetch(typingctx, array, place):
    """Prefetch the cache line of the number at flat index `place` of a C-contiguous array."""

    def codegen(context, builder, sig, args):
        emit_prefetch(builder, data_of(context, builder, sig.args[0], args[0]), args[1])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen
