"""Matrix products that skip the zeros of one factor.

Rows (or neighbouring columns) of that factor are processed in blocks of four: where all four are zero, nothing is read
or multiplied, and what is read of the other factor serves all four. Sums stay in registers until a block is done.
Coding 50,000 images of MNIST, four fifths zeros, against 256 atoms takes less than half the time of BLAS, and a fit of
ORKDL a fifth less.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from rkdl._backends.cpu.jit import compiled, intrinsic
from rkdl._backends.cpu.vectors import FAST, INDEX, VECTOR_BYTES, Vectors, data_of, width_of

# Rows or columns per block.
ROW_BLOCK = 4
# Bytes of rows searched for zeros before they are multiplied: few enough to stay in the cache.
_SEARCHED = 1 << 19

# Unsigned, so that Numba does not check for negative indices.
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
# Vectors per block.
_BLOCKS = (4, 2, 1)

_OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


@intrinsic
def _mask(typingctx, array, start):
    """One bit per number, for four vectors from `start` on, set where the number is not zero."""
    signature = types.uint64(array, types.int64)

    def codegen(context, builder, sig, args):
        vectors = Vectors(context, builder, sig.args[0].dtype)
        data = data_of(context, builder, sig.args[0], args[0])
        mask = ir.Constant(INDEX, 0)
        for i in range(4):
            numbers = vectors.load(data, builder.add(args[1], ir.Constant(INDEX, i * vectors.lanes)))
            # Unordered, so that a NaN counts.
            bits = builder.fcmp_unordered("!=", numbers, vectors.constant(0.0))
            bits = builder.zext(builder.bitcast(bits, ir.IntType(vectors.lanes)), INDEX)
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(INDEX, i * vectors.lanes)))
        return mask

    return signature, codegen


@intrinsic
def _lowest(typingctx, mask):
    """Index of the lowest bit that is set."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic
def _accumulate(typingctx, n_vectors, places, values, start, stop, source, column, totals, row, total_column):
    """Add to a block of `totals`, four rows by `n_vectors` vectors, combinations of rows of `source`.

    Entries `start` to `stop` of the list are the rows of `source` (`places`) and the weight of each in the four
    (`values`, four per entry); `column` and `total_column` are where the block begins.
    """
    index = types.int64
    signature = types.void(index, places, values, index, index, source, index, totals, index, index)

    def codegen(context, builder, sig, args):
        vectors = Vectors(context, builder, sig.args[2].dtype)
        place, value, origin, target = (data_of(context, builder, sig.args[i], args[i]) for i in (1, 2, 5, 7))
        origin_width, target_width = (width_of(context, builder, sig.args[i], args[i]) for i in (5, 7))

        def add(count: int) -> None:
            offsets = [ir.Constant(INDEX, i * vectors.lanes) for i in range(count)]
            bases = [
                builder.add(builder.mul(builder.add(args[8], ir.Constant(INDEX, j)), target_width), args[9])
                for j in range(ROW_BLOCK)
            ]
            starts = [[builder.add(base, offset) for offset in offsets] for base in bases]
            slots = [[cgutils.alloca_once(builder, vectors.type) for _ in offsets] for _ in bases]
            pairs = [pair for line in zip(slots, starts, strict=True) for pair in zip(*line, strict=True)]
            for slot, at in pairs:
                builder.store(vectors.load(target, at), slot)
            one = ir.Constant(INDEX, 1)
            with cgutils.for_range_slice(builder, args[3], args[4], one, INDEX) as (entry, _):
                source_row = builder.zext(builder.load(builder.gep(place, [entry], inbounds=True)), INDEX)
                base = builder.add(builder.mul(source_row, origin_width), args[6])
                first = builder.mul(entry, ir.Constant(INDEX, ROW_BLOCK))
                own = [builder.add(first, ir.Constant(INDEX, j)) for j in range(ROW_BLOCK)]
                factors = [vectors.spread(builder.load(builder.gep(value, [at], inbounds=True))) for at in own]
                for i, offset in enumerate(offsets):
                    numbers = vectors.load(origin, builder.add(base, offset))
                    for factor, row_slots in zip(factors, slots, strict=True):
                        total = builder.fadd(builder.load(row_slots[i]), vectors.times(factor, numbers), flags=FAST)
                        builder.store(total, row_slots[i])
            for slot, at in pairs:
                vectors.store(builder.load(slot), target, at)

        for count in _BLOCKS:
            with builder.if_then(builder.icmp_signed("==", args[0], ir.Constant(INDEX, count))):
                add(count)
        return context.get_dummy_value()

    return signature, codegen


@compiled(**_OPTIONS)
def _block_vectors(left):
    """Vectors in the next block, with `left` still to do."""
    return 4 if left >= 4 else 2 if left >= 2 else 1


@compiled(**_OPTIONS)
def _append_columns(rows, first, start, mask, places, values, count):
    """Append the columns of a mask, the first of which is `start`, and the four rows' numbers in them."""
    while mask != 0:
        column = np.uint64(start + _lowest(mask))
        places[count] = column
        for j in range(ROW_BLOCK):
            values[count, j] = rows[np.uint64(first + j), column]
        count += np.uint64(1)
        mask &= mask - np.uint64(1)
    return count


@compiled(**_OPTIONS)
def _list_columns(rows, first, places, values, count):
    """Append the columns in which one of four rows, from `first` on, is not zero; the list's new length."""
    # Unsigned, so that Numba does not check for negative indices.
    count = np.uint64(count)
    size = rows.shape[1]
    step = 4 * (VECTOR_BYTES // rows.itemsize)
    whole = size // step * step
    for start in range(0, whole, step):
        mask = np.uint64(0)
        for j in range(ROW_BLOCK):
            mask |= _mask(rows, (first + j) * size + start)
        count = _append_columns(rows, first, start, mask, places, values, count)
    if whole < size:
        # The last vectors overlap those before, whose columns are listed already.
        begin = size - step
        mask = np.uint64(0)
        for j in range(ROW_BLOCK):
            mask |= _mask(rows, (first + j) * size + begin)
        listed = np.uint64(whole - begin)
        count = _append_columns(rows, first, begin, mask >> listed << listed, places, values, count)
    return np.int64(count)


@compiled(**_OPTIONS)
def multiply_rows(rows, transposed, products):
    """``products = rows @ transposed``; `transposed` has its columns padded with zeros to whole vectors.

    Rows are at least four vectors long.
    """
    n_rows, size = rows.shape
    width = products.shape[1]
    dtype = rows.dtype
    lanes = VECTOR_BYTES // rows.itemsize
    n_vectors = transposed.shape[1] // lanes
    block = np.empty((ROW_BLOCK, 4 * lanes), dtype=dtype)
    # The last rows, padded to a whole block.
    rest = np.zeros((ROW_BLOCK, size), dtype=dtype)
    whole = n_rows // ROW_BLOCK * ROW_BLOCK
    for i in range(whole, n_rows):
        for k in range(size):
            rest[i - whole, k] = rows[i, k]
    n_groups = max(1, _SEARCHED // (ROW_BLOCK * size * rows.itemsize))
    places = np.empty(n_groups * size, dtype=np.int32)
    values = np.empty((n_groups * size, ROW_BLOCK), dtype=dtype)
    ends = np.zeros(n_groups + 1, dtype=np.int64)
    top = 0
    while top < n_rows:
        count = n_here = 0
        while n_here < n_groups and top + n_here * ROW_BLOCK < n_rows:
            first = top + n_here * ROW_BLOCK
            if first < whole:
                count = _list_columns(rows, first, places, values, count)
            else:
                count = _list_columns(rest, 0, places, values, count)
            n_here += 1
            ends[n_here] = count
        vector = 0
        while vector < n_vectors:
            n_block = _block_vectors(n_vectors - vector)
            column = vector * lanes
            n_columns = min(n_block * lanes, width - column)
            for group in range(n_here):
                block[:] = 0
                _accumulate(n_block, places, values, ends[group], ends[group + 1], transposed, column, block, 0, 0)
                first = top + group * ROW_BLOCK
                for j in range(min(ROW_BLOCK, n_rows - first)):
                    for i in range(n_columns):
                        products[first + j, column + i] = block[j, i]
            vector += n_block
        top += n_here * ROW_BLOCK


@compiled(**_OPTIONS)
def _find_fours(rows, first, masks):
    """One bit per four neighbouring columns that are not all zero, for the `len(masks)` rows from `first` on."""
    size = rows.shape[1]
    step = 4 * (VECTOR_BYTES // rows.itemsize)
    for i in range(len(masks)):
        for number in range(masks.shape[1]):
            # The last vectors overlap those before, whose columns are listed already.
            begin = min(number * step, size - step)
            mask = _mask(rows, (first + i) * size + begin) >> np.uint64(number * step - begin)
            mask |= mask >> np.uint64(1)
            mask |= mask >> np.uint64(2)
            masks[i, number] = mask & np.uint64(0x1111111111111111)


@compiled(**_OPTIONS)
def _list_rows(rows, first, start, masks, places, values, counts):
    """List, for every four of the columns from `start` on, the rows that are not zero there and their numbers."""
    size = rows.shape[1]
    is_whole = start + 4 * (VECTOR_BYTES // rows.itemsize) <= size
    counts[:] = 0
    for i in range(len(masks)):
        mask = masks[i]
        t = first + i
        row = rows[t]
        while mask != 0:
            offset = np.uint64(_lowest(mask))
            group = offset >> np.uint64(2)
            count = counts[group]
            places[group, np.uint64(count)] = t
            column, target = np.uint64(start) + offset, values[group, np.uint64(count)]
            if is_whole:
                # Read before anything is written, so that the four are moved as one vector.
                four = row[column], row[column + _ONE], row[column + _TWO], row[column + _THREE]
                target[0], target[1], target[2], target[3] = four
            else:
                for j in range(min(ROW_BLOCK, size - np.int64(column))):
                    target[j] = row[np.int64(column) + j]
            counts[group] = count + 1
            mask &= mask - np.uint64(1)


@compiled(**_OPTIONS)
def combine_rows(rows, weights, totals):
    """Add ``rows.T @ weights`` to `totals`, whose rows are padded to blocks and whose columns to whole vectors."""
    n_rows, size = rows.shape
    lanes = VECTOR_BYTES // rows.itemsize
    step = 4 * lanes
    n_vectors = weights.shape[1] // lanes
    n_batch = min(n_rows, max(16, _SEARCHED // (size * rows.itemsize)))
    # Lists a power of two apart would compete for the same cache lines.
    pitch = n_batch + 9 - n_batch % 8
    masks = np.empty((n_batch, -(-size // step)), dtype=np.uint64)
    # For every group of four columns the rows that are not zero there, and their numbers.
    places = np.empty((step // ROW_BLOCK, pitch), dtype=np.int32)
    values = np.empty((step // ROW_BLOCK, pitch, ROW_BLOCK), dtype=rows.dtype)
    counts = np.zeros(step // ROW_BLOCK, dtype=np.int64)
    for first in range(0, n_rows, n_batch):
        n_here = min(n_batch, n_rows - first)
        # Rows are read once, in order; later reads hit the cache.
        _find_fours(rows, first, masks[:n_here])
        for number in range(masks.shape[1]):
            start = number * step
            _list_rows(rows, first, start, masks[:n_here, number], places, values, counts)
            for group in range(len(counts)):
                entry = group * pitch
                stop = entry + counts[group]
                vector = 0
                while vector < n_vectors and stop > entry:
                    n_block = _block_vectors(n_vectors - vector)
                    column = vector * lanes
                    row = start + group * ROW_BLOCK
                    _accumulate(n_block, places, values, entry, stop, weights, column, totals, row, column)
                    vector += n_block
