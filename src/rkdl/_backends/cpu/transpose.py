"""The transpose of a matrix, block by block in registers."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rkdl._backends.cpu.jit import compiled
from rkdl._backends.cpu.vectors import INDEX, LANE, VECTOR_BYTES, Vectors, data_of


@intrinsic
def _transpose_block(typingctx, source, row, column, target):
    """Transpose the block at (`row`, `column`), as many rows and columns as a vector has lanes."""
    signature = types.void(source, types.int64, types.int64, target)

    def codegen(context, builder, sig, args):
        vectors = Vectors(context, builder, sig.args[0].dtype)
        lanes = vectors.lanes
        arrays = [context.make_array(sig.args[i])(context, builder, args[i]) for i in (0, 3)]
        widths = [builder.extract_value(array.shape, 1) for array in arrays]
        data = [data_of(context, builder, sig.args[i], args[i]) for i in (0, 3)]

        def place(width, row, i, column):
            return builder.add(builder.mul(builder.add(row, ir.Constant(INDEX, i)), width), column)

        block = [vectors.load(data[0], place(widths[0], args[1], i, args[2])) for i in range(lanes)]
        kind = ir.VectorType(LANE, lanes)
        # Interleave two vectors: their first halves, and their second.
        orders = [
            ir.Constant(kind, [start + i // 2 + (i % 2) * lanes for i in range(lanes)]) for start in (0, lanes // 2)
        ]
        half = lanes // 2
        for _ in range(lanes.bit_length() - 1):
            block = [builder.shuffle_vector(block[i], block[i + half], order) for i in range(half) for order in orders]
        wide = context.get_value_type(sig.args[3].dtype)
        for i, numbers in enumerate(block):
            offset = place(widths[1], args[2], i, args[1])
            if wide == vectors.element:
                vectors.store(numbers, data[1], offset)
                continue
            numbers = builder.fpext(numbers, ir.VectorType(wide, lanes))
            address = builder.bitcast(builder.gep(data[1], [offset], inbounds=True), numbers.type.as_pointer())
            builder.store(numbers, address, align=sig.args[3].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature, codegen


@compiled()
def transpose_into(source, n_columns, target):
    """Write the transpose of the first columns of `source` to `target` (same dtype or float64); both C-contiguous."""
    n_rows = len(source)
    lanes = VECTOR_BYTES // source.itemsize
    whole_rows, whole_columns = n_rows // lanes * lanes, n_columns // lanes * lanes
    # Columns in the outer loop, so that rows of the target are written contiguously.
    for column in range(0, whole_columns, lanes):
        for row in range(0, whole_rows, lanes):
            _transpose_block(source, row, column, target)
    for row in range(whole_rows, n_rows):
        for column in range(whole_columns):
            target[column, row] = source[row, column]
    for row in range(n_rows):
        for column in range(whole_columns, n_columns):
            target[column, row] = source[row, column]
