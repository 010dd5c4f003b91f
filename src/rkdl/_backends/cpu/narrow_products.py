"""Products of long rows with a few others, as inner products in vector registers.

BLAS first packs both factors into tiles, which pays only if there are many others. A fit of DL with 100 atoms on dense
signals of 784 numbers takes a fourth less time.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from rkdl._backends.cpu.jit import compiled, intrinsic
from rkdl._backends.cpu.vectors import FAST, INDEX, VECTOR_BYTES, Vectors, data_of, emit_prefetch, width_of

# Rows and others whose inner products are computed together, in 24 of AVX-512's 32 registers.
TILE_ROWS, TILE_OTHERS = 6, 4


@intrinsic
def _inner_products(typingctx, rows, row, others, other, products, ahead, step):
    """Inner products of the rows from `row` on and the others from `other` on, one tile.

    With every vector, two lines of the cache are prefetched, from the number `ahead` of the rows on, `step` apart.
    """
    signature = types.void(rows, types.int64, others, types.int64, products, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        vectors = Vectors(context, builder, sig.args[0].dtype)
        lanes = ir.Constant(INDEX, vectors.lanes)
        row_data, other_data, target = (data_of(context, builder, sig.args[i], args[i]) for i in (0, 2, 4))
        size, width = (width_of(context, builder, sig.args[i], args[i]) for i in (0, 4))

        def pointers(data, first, count: int) -> list:
            places = [builder.add(first, ir.Constant(INDEX, i)) for i in range(count)]
            return [builder.gep(data, [builder.mul(place, size)], inbounds=True) for place in places]

        left, right = pointers(row_data, args[1], TILE_ROWS), pointers(other_data, args[3], TILE_OTHERS)
        slots = [[cgutils.alloca_once(builder, vectors.type) for _ in right] for _ in left]
        for slot in (slot for line in slots for slot in line):
            builder.store(vectors.constant(0.0), slot)
        whole = builder.mul(builder.sdiv(size, lanes), lanes)
        with cgutils.for_range_slice(builder, ir.Constant(INDEX, 0), whole, lanes, INDEX) as (start, _):
            factors = [vectors.load(pointer, start) for pointer in right]
            offset = builder.mul(builder.sdiv(start, lanes), builder.mul(args[6], ir.Constant(INDEX, 2)))
            place = builder.add(args[5], offset)
            emit_prefetch(builder, row_data, place)
            emit_prefetch(builder, row_data, builder.add(place, args[6]))
            for pointer, line in zip(left, slots, strict=True):
                numbers = vectors.load(pointer, start)
                for factor, slot in zip(factors, line, strict=True):
                    total = builder.fadd(builder.load(slot), vectors.times(numbers, factor), flags=FAST)
                    builder.store(total, slot)
        totals = [[cgutils.alloca_once(builder, vectors.element) for _ in right] for _ in left]
        for line, vector_line in zip(totals, slots, strict=True):
            for slot, vector_slot in zip(line, vector_line, strict=True):
                builder.store(vectors.reduce(builder.load(vector_slot), builder.fadd), slot)
        with cgutils.for_range_slice(builder, whole, size, ir.Constant(INDEX, 1), INDEX) as (place, _):
            factors = [builder.load(builder.gep(pointer, [place], inbounds=True)) for pointer in right]
            for pointer, line in zip(left, totals, strict=True):
                number = builder.load(builder.gep(pointer, [place], inbounds=True))
                for factor, slot in zip(factors, line, strict=True):
                    term = builder.fmul(number, factor, flags=FAST)
                    builder.store(builder.fadd(builder.load(slot), term, flags=FAST), slot)
        for i, line in enumerate(totals):
            base = builder.mul(builder.add(args[1], ir.Constant(INDEX, i)), width)
            for j, slot in enumerate(line):
                place = builder.add(builder.add(base, args[3]), ir.Constant(INDEX, j))
                builder.store(builder.load(slot), builder.gep(target, [place], inbounds=True))
        return context.get_dummy_value()

    return signature, codegen


@compiled(error_model="numpy")
def multiply_narrow(rows, others, products):
    """``rows @ others.T`` into `products`; there is at least one tile of rows and of others.

    The last tile overlaps the one before it where it must, and computes the same numbers again.
    """
    n_rows, n_others = products.shape
    # The next rows, too short for the processor to foresee them, are spread over the tiles: all at once they would
    # displace those in use.
    size, n_tiles = rows.shape[1], -(-n_others // TILE_OTHERS)
    part = TILE_ROWS * size // n_tiles
    step = part * (VECTOR_BYTES // rows.itemsize) // (2 * size)
    for row in range(0, n_rows, TILE_ROWS):
        ahead = min(row + TILE_ROWS, n_rows - TILE_ROWS) * size
        for tile in range(n_tiles):
            other = min(tile * TILE_OTHERS, n_others - TILE_OTHERS)
            _inner_products(rows, min(row, n_rows - TILE_ROWS), others, other, products, ahead + tile * part, step)
