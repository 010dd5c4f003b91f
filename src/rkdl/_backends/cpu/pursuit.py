"""Greedy pursuit on a chunk: OMP and OLS, both from the Gram matrix and the correlations alone.

At step k, with b the chosen atom, a the correlations with the residual and u the squared norms that the chosen
atoms leave of the others, one new row of the factor does everything:

    w = (G_b - sum_{q<k} w_q[b] w_q) / sqrt(u_b),   y_k = a_b / sqrt(u_b),   a -= y_k w,   u -= w * w

OMP picks the largest a^2, OLS the largest a^2 / u (`SCORES`). One back substitution at the end gives the coefficients,
and the residual's squared norm is that of the signal minus the sum of y_k^2. A signal is done when it has `n_nonzero`
atoms, when its squared residual is at most `residual_tol`, when the best correlation left is rounding, or when the best
atom lies in the span of those chosen (`pursue_rows`).

The inner loop is in explicit vector instructions: a plain one took 2.3 to 5 times as long. Compilers leave it scalar or
split it into many short ones, because they cannot know that the rows do not overlap. Therefore LLVM is given the vector
instructions, and a step of the pursuit is one pass over the atoms with everything in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from rkdl._backends.cpu.jit import compiled, intrinsic
from rkdl._backends.cpu.vectors import INDEX, LANE, VECTOR_BYTES, Vectors, data_of, width_of

# Vectors per iteration of a loop, so that latencies overlap.
UNROLL = 4

# Score of every greedy pursuit, from vectors of correlations a and squared norms u, by the operations of `Vectors`. The
# first atom is always that of the largest correlation.
SCORES = {
    "ols": lambda vectors, a, u, penalty: vectors.divide(vectors.times(a, a), u),
    "omp": lambda vectors, a, u, penalty: vectors.times(a, a),
}


class Best:
    """The largest score so far and its index, one candidate per lane."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        builder = vectors.builder
        self.score = cgutils.alloca_once_value(builder, vectors.constant(0.0))
        zero = ir.Constant(vectors.index_type, [0] * vectors.lanes)
        self.index = cgutils.alloca_once_value(builder, zero)
        # The slots are reused by every call in a loop.
        builder.store(vectors.constant(0.0), self.score)
        builder.store(zero, self.index)

    def update(self, scores, start) -> None:
        """Compare scores of the atoms from `start` on; an equal score does not replace an earlier one."""
        builder = self.vectors.builder
        first = start if self.vectors.number.width == INDEX.width else builder.trunc(start, self.vectors.number)
        numbers = builder.add(self.vectors.spread(first, self.vectors.index_type), self.vectors.lane_numbers())
        best, index = builder.load(self.score), builder.load(self.index)
        better = builder.fcmp_ordered(">", scores, best)
        builder.store(builder.select(better, scores, best), self.score)
        builder.store(builder.select(better, numbers, index), self.index)

    def argmax(self):
        """The index of the largest score, the lowest one among equals."""
        vectors, builder = self.vectors, self.vectors.builder
        scores, numbers = builder.load(self.score), builder.load(self.index)
        # No score is NaN, so that LLVM may use the machine's maximum.
        plain = ("nnan", "nsz")

        def larger(left, right):
            return builder.select(builder.fcmp_ordered(">", left, right, flags=plain), left, right, flags=plain)

        def smaller(left, right):
            return builder.select(builder.icmp_signed("<", left, right), left, right)

        largest = vectors.reduce(scores, larger)
        holds = builder.fcmp_ordered("==", scores, vectors.spread(largest))
        lanes = builder.zext(builder.bitcast(holds, ir.IntType(vectors.lanes)), LANE)
        lane = builder.cttz(lanes, ir.Constant(ir.IntType(1), 0))
        found = cgutils.alloca_once(builder, vectors.number)
        builder.store(builder.extract_element(numbers, lane), found)
        # Several lanes rarely hold the maximum; one is found faster by its bit than by comparing all.
        others = builder.and_(lanes, builder.sub(lanes, ir.Constant(LANE, 1)))
        with builder.if_then(builder.icmp_unsigned("!=", others, ir.Constant(LANE, 0)), likely=False):
            last = ir.Constant(vectors.index_type, [2**31 - 1] * vectors.lanes)
            held = builder.select(holds, numbers, last)
            builder.store(vectors.reduce(held, smaller), found)
        number = builder.load(found)
        return number if vectors.number.width == INDEX.width else builder.sext(number, INDEX)


def over_blocks(builder, n_vectors, body) -> None:
    """Run ``body(first vector, count)`` over all vectors, `UNROLL` at a time and the rest one by one."""
    zero, block = ir.Constant(INDEX, 0), ir.Constant(INDEX, UNROLL)
    unrolled = builder.mul(builder.sdiv(n_vectors, block), block)
    with cgutils.for_range_slice(builder, zero, unrolled, block, INDEX) as (vector, _):
        body(vector, UNROLL)
    with cgutils.for_range_slice(builder, unrolled, n_vectors, ir.Constant(INDEX, 1), INDEX) as (vector, _):
        body(vector, 1)


def begin_by(scores: Mapping[Any, Callable[..., Any]]) -> Any:
    """The start of a pursuit, an intrinsic that picks the first atom by one of these scores."""

    @intrinsic
    def begin(typingctx, rule, correlations, t, work, norms, penalties, floor):
        """Copy row t of `correlations`, and the norms, to `work`; index of the atom with the best score.

        A row that is copied number by number could not be read back as vectors before it has left the store buffer.
        """
        index = types.int64
        signature = index(index, correlations, index, work, norms, penalties, work.dtype)

        def codegen(context, builder, sig, args):
            vectors = Vectors(context, builder, sig.args[1].dtype)
            source, data, norms, penalties = (data_of(context, builder, sig.args[i], args[i]) for i in (1, 3, 4, 5))
            n_atoms, width = (width_of(context, builder, sig.args[i], args[i]) for i in (1, 3))
            source = builder.gep(source, [builder.mul(args[2], n_atoms)], inbounds=True)
            lanes = ir.Constant(INDEX, vectors.lanes)

            def body(consider, vector, count) -> None:
                for i in range(count):
                    start = builder.mul(builder.add(vector, ir.Constant(INDEX, i)), lanes)
                    a = vectors.load_some(source, start, builder.sub(n_atoms, start))
                    u = vectors.load(norms, start)
                    vectors.store(a, data, start)
                    vectors.store(u, data, builder.add(width, start))
                    consider(a, u, start)

            n_vectors = builder.sdiv(width, lanes)
            return choose(vectors, scores, args[0], penalties, vectors.spread(args[6]), n_vectors, body)

        return signature, codegen

    return begin


def advance_by(scores: Mapping[Any, Callable[..., Any]]) -> Any:
    """The step of a pursuit, an intrinsic that picks the next atom by one of these scores."""

    @intrinsic
    def advance(
        typingctx, rule, work, factor, gram, weights, penalties, atom, step, n_vectors, inverse, projection, floor
    ):
        """New row of the factor, new correlations and norms; index of the atom with the best score.

        `rule` is the place in `scores`. Rows of `work`: correlations a, norms u. Rows of `factor` lie in blocks of
        columns, see `pursue_rows`; `weights` holds ``w_q[b]``, q < step.
        """
        real, index = work.dtype, types.int64
        signature = index(index, work, factor, gram, weights, penalties, index, index, index, real, real, real)

        def codegen(context, builder, sig, args):
            rule, atom, step, n_vectors = args[0], args[6], args[7], args[8]
            vectors = Vectors(context, builder, sig.args[1].dtype)
            pointers = (data_of(context, builder, sig.args[i], args[i]) for i in range(1, 6))
            data, factor, gram_data, weights, penalties = pointers
            shape = context.make_array(sig.args[2])(context, builder, args[2]).shape
            n_rows = builder.extract_value(shape, 0)
            width = builder.mul(n_vectors, ir.Constant(INDEX, vectors.lanes))
            gram_data = builder.gep(gram_data, [builder.mul(atom, width)], inbounds=True)
            norms = builder.gep(data, [width], inbounds=True)
            inverse, projection, floor = (vectors.spread(value) for value in args[9:])
            slots = [cgutils.alloca_once(builder, vectors.type) for _ in range(UNROLL)]

            def body(consider, vector, count) -> None:
                block = Block(vectors, factor, n_rows, vector, count)
                for slot, start in zip(slots, block.starts, strict=False):
                    builder.store(vectors.load(gram_data, start), slot)
                with cgutils.for_range(builder, step, intp=INDEX) as loop:
                    weight = vectors.spread(builder.load(builder.gep(weights, [loop.index], inbounds=True)))
                    places = block.row(loop.index)
                    for slot, place in zip(slots, places, strict=False):
                        old = vectors.load(block.data, place)
                        builder.store(vectors.multiply_subtract(builder.load(slot), weight, old), slot)
                for slot, start, place in zip(slots, block.starts, block.row(step), strict=False):
                    row = vectors.times(builder.load(slot), inverse)
                    vectors.store(row, block.data, place)
                    a = vectors.multiply_subtract(vectors.load(data, start), projection, row)
                    vectors.store(a, data, start)
                    u = vectors.multiply_subtract(vectors.load(norms, start), row, row)
                    vectors.store(u, norms, start)
                    consider(a, u, start)

            return choose(vectors, scores, rule, penalties, floor, n_vectors, body)

        return signature, codegen

    return advance


class Block:
    """Some vectors of columns of the factor, from the vector `vector` on."""

    def __init__(self, vectors: Vectors, factor, n_rows, vector, count: int) -> None:
        self.vectors, builder = vectors, vectors.builder
        lanes = ir.Constant(INDEX, vectors.lanes)
        self.starts = [builder.mul(builder.add(vector, ir.Constant(INDEX, i)), lanes) for i in range(count)]
        self.data = builder.gep(factor, [builder.mul(n_rows, self.starts[0])], inbounds=True)

    def row(self, number) -> list:
        """Places of the vectors of a row."""
        builder, lanes, count = self.vectors.builder, self.vectors.lanes, len(self.starts)
        first = builder.mul(number, ir.Constant(INDEX, count * lanes))
        return [builder.add(first, ir.Constant(INDEX, i * lanes)) for i in range(count)]


def choose(vectors: Vectors, scores: Mapping[Any, Callable[..., Any]], rule, penalties, floor, n_vectors, body):
    """Run ``body(consider, vector, count)`` over all vectors; index of the atom with the best score of a rule.

    ``consider(a, u, start)`` is given the correlations and norms of a vector of atoms.
    """
    builder = vectors.builder
    found = cgutils.alloca_once_value(builder, ir.Constant(INDEX, 0))
    for place, score in enumerate(scores.values()):
        with builder.if_then(builder.icmp_signed("==", rule, ir.Constant(INDEX, place))):
            best = Best(vectors)

            def consider(a, u, start, score=score, best=best) -> None:
                usable = builder.fcmp_ordered(">", u, floor)
                # Not read by a score that has no use for it.
                penalty = vectors.load(penalties, start)
                best.update(builder.select(usable, score(vectors, a, u, penalty), vectors.constant(0.0)), start)

            over_blocks(builder, n_vectors, partial(body, consider))
            builder.store(best.argmax(), found)
    return builder.load(found)


@compiled(fastmath=True)
def complete_row(gram, dictionary, atom, observed, scales, t):
    """Compute a row of the Gram matrix that is not known yet, for signal t where atoms are `observed` in part."""
    row = gram[atom]
    if row[atom] != 0.0:
        return
    own = dictionary[atom]
    if len(observed) != 0:
        own = own * observed[t] * scales[t, atom]
    for j in range(len(dictionary)):
        other = dictionary[j]
        total = own[0] * other[0]
        for i in range(1, len(own)):
            total += own[i] * other[i]
        row[j] = total
    if len(observed) != 0:
        for j in range(len(dictionary)):
            row[j] *= scales[t, j]
    # Exactly, or it could be chosen twice.
    row[atom] = 1.0


@compiled()
def forget_rows(gram, observed, t):
    """Clear the Gram matrix for signal t, unless it is observed where the signal before it is."""
    if t > 0 and (observed[t] != observed[t - 1]).any():
        for j in range(len(gram)):
            gram[j, j] = 0.0


_begin, _advance = begin_by(SCORES), advance_by(SCORES)


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def pursue_rows(
    rule,
    correlations,
    gram,
    dictionary,
    observed,
    scales,
    squared_norms,
    residual_tol,
    eps,
    indices,
    values,
    counts,
    residuals,
):
    """Codes of all rows of `correlations` by a rule of `SCORES`; the arguments after it are those of every pursuit.

    All arrays are C-contiguous and of one dtype, whose rounding unit is `eps`. Atoms have unit norm, or zero if they
    must not be used. `gram` has rows padded with zeros to whole vectors. If `dictionary` has rows, they are the atoms,
    and `gram` starts as zeros: `complete_row` computes a row before it is read. If `observed` has rows, one per signal,
    atoms are multiplied by it, and `scales` makes them of unit norm; `correlations` are with these.

    `indices` and `values` (c, n_nonzero) are room for the entries of all rows, which are written one after another from
    their beginning, indices ascending in a row. `counts` are their numbers, whose sum is returned, and `residuals`
    squared norms, not negative.
    """
    n_signals = len(correlations)
    n_nonzero = indices.shape[1]
    width = gram.shape[1]
    lanes = VECTOR_BYTES // correlations.itemsize
    n_vectors = width // lanes
    dtype = correlations.dtype
    one, zero = dtype.type(1), dtype.type(0)
    # An atom this close to the span of the chosen ones differs from it by rounding only.
    floor = np.sqrt(eps)
    # A correlation this far below the first one, allowing for the worst-conditioned atom, is rounding.
    noise = (dtype.type(8) * eps) ** 2

    work = np.zeros((2, width), dtype=dtype)
    norms = np.ones(width, dtype=dtype)
    # Blocks of UNROLL vectors, then of one, each with its columns of all rows one after another: a step reads the
    # factor from beginning to end, as fast as the cache delivers it.
    factor = np.empty((n_nonzero, width), dtype=dtype)
    entries = factor.reshape(factor.size)
    wide = n_vectors // UNROLL * UNROLL * lanes
    # triangle[k, q] = w_q[b_k]; its diagonal holds sqrt(u_b).
    triangle = np.zeros((n_nonzero, n_nonzero), dtype=dtype)
    chosen = np.zeros(n_nonzero, dtype=np.int64)
    projections = np.zeros(n_nonzero, dtype=dtype)
    coefficients = np.zeros(n_nonzero, dtype=dtype)
    indices, values = indices.reshape(indices.size), values.reshape(values.size)
    total = 0

    for t in range(n_signals):
        if len(observed) != 0:
            forget_rows(gram, observed, t)
        b = _begin(rule, correlations, t, work, norms, norms, floor)
        residual = squared_norms[t]
        threshold = zero
        smallest = one
        count = 0
        while count < n_nonzero and residual > residual_tol:
            norm = work[1, b]
            correlation = work[0, b]
            square = correlation * correlation
            if not (square * smallest > threshold) or not (norm > floor):
                break
            smallest = min(smallest, norm)
            root = np.sqrt(norm)
            projection = correlation / root
            stride = UNROLL * lanes if b < wide else lanes
            first = b & -stride
            place = first * n_nonzero + b - first
            for q in range(count):
                triangle[count, q] = entries[place + q * stride]
            triangle[count, count] = root
            chosen[count] = b
            projections[count] = projection
            residual -= projection * projection
            if count == 0:
                threshold = noise * square
            count += 1
            if count == n_nonzero or residual <= residual_tol:
                break
            if len(dictionary) != 0:
                complete_row(gram, dictionary, b, observed, scales, t)
            row = triangle[count - 1]
            b = _advance(rule, work, factor, gram, row, norms, b, count - 1, n_vectors, one / root, projection, floor)

        for k in range(count - 1, -1, -1):
            value = projections[k]
            for q in range(k + 1, count):
                value -= triangle[q, k] * coefficients[q]
            coefficients[k] = value / triangle[k, k]
        # An atom's position is the number of chosen ones before it: the branches of a sort are unpredictable.
        for k in range(count):
            index = chosen[k]
            place = total
            for q in range(count):
                place += chosen[q] < index
            indices[place] = index
            values[place] = coefficients[k]
        counts[t] = count
        total += count
        residuals[t] = max(residual, zero)
    return total
