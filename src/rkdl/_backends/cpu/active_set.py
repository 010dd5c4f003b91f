"""Codes with penalties or signs on a chunk: the lasso, the elastic net, and greedy pursuit with non-negative codes.

All are one active-set method on the Gram matrix G and the correlations c, after Lawson and Hanson. Of the atoms not in
use, the one of the largest score enters, with the sign of its correlation a with the residual, if ``|a| > alpha``. With
A the atoms in use and s their signs, the coefficients move towards the minimum

    (G_AA + l2) z = c_A - alpha s

and an atom whose coefficient would change its sign leaves at zero, until none would. The objective falls at every step.
Without a limit on the number of atoms, the end is the minimum over all codes, because no ``|a|`` exceeds alpha; with
alpha zero and non-negative codes, it is non-negative least squares on the atoms in use.

The factor and its rows are those of `rkdl._backends.cpu.pursuit`, where alpha is subtracted in y. An atom leaves by
rotations that turn what it adds to the span into the last row, which is then taken out of a and u.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from rkdl._backends.cpu.jit import compiled, intrinsic
from rkdl._backends.cpu.pursuit import (
    SCORES,
    UNROLL,
    Block,
    advance_by,
    begin_by,
    choose,
    complete_row,
    forget_rows,
    pursue_rows,
)
from rkdl._backends.cpu.vectors import INDEX, VECTOR_BYTES, Vectors, data_of, width_of

Penalty: TypeAlias = "float | np.ndarray"
# Atoms that the factor has room for at first; twice as many where a signal needs more.
ROOM = 16
# Steps per atom of the limit after which coding a signal ends; only rounding makes one need more.
MOST_STEPS = 10


def _of_excess(score, is_positive: bool):
    """The score of what correlations exceed the penalty by; negative ones count only where codes may be negative."""

    def excess_score(vectors, a, u, penalty):
        excess = vectors.subtract(a if is_positive else vectors.magnitude(a), penalty)
        is_larger = vectors.builder.fcmp_ordered(">", excess, vectors.constant(0.0))
        found = score(vectors, excess, u, penalty)
        return vectors.builder.select(is_larger, found, vectors.constant(0.0))

    return excess_score


# For every rule of `SCORES`, codes of any sign and then non-negative ones.
_SIGNED = {(name, sign): _of_excess(score, sign) for name, score in SCORES.items() for sign in (False, True)}
_begin, _advance = begin_by(_SIGNED), advance_by(_SIGNED)


@intrinsic
def _retreat(typingctx, rule, work, factor, rotations, penalties, position, count, n_vectors, removed, floor):
    """Rotate the factor from row `position` on, and take its last row out; index of the atom with the best score.

    `rotations` has cosines and sines of the rows `position` to `count`, which is the last one.
    """
    real, index = work.dtype, types.int64
    signature = index(index, work, factor, rotations, penalties, index, index, index, real, real)

    def codegen(context, builder, sig, args):
        position, last, n_vectors = args[5:8]
        vectors = Vectors(context, builder, sig.args[1].dtype)
        data, factor, cosines, penalties = (data_of(context, builder, sig.args[i], args[i]) for i in range(1, 5))
        n_rows = builder.extract_value(context.make_array(sig.args[2])(context, builder, args[2]).shape, 0)
        sines = builder.gep(cosines, [width_of(context, builder, sig.args[3], args[3])], inbounds=True)
        width = builder.mul(n_vectors, ir.Constant(INDEX, vectors.lanes))
        norms = builder.gep(data, [width], inbounds=True)
        removed, floor = (vectors.spread(value) for value in args[8:])
        slots = [cgutils.alloca_once(builder, vectors.type) for _ in range(UNROLL)]

        def body(consider, vector, count) -> None:
            block = Block(vectors, factor, n_rows, vector, count)
            for slot, place in zip(slots, block.row(position), strict=False):
                builder.store(vectors.load(block.data, place), slot)
            with cgutils.for_range(builder, last, start=position, intp=INDEX) as loop:
                cosine, sine = (
                    vectors.spread(builder.load(builder.gep(part, [loop.index], inbounds=True)))
                    for part in (cosines, sines)
                )
                following = block.row(builder.add(loop.index, ir.Constant(INDEX, 1)))
                for slot, place, after in zip(slots, block.row(loop.index), following, strict=False):
                    carried, other = builder.load(slot), vectors.load(block.data, after)
                    vectors.store(vectors.multiply_add(vectors.times(sine, other), cosine, carried), block.data, place)
                    builder.store(vectors.multiply_subtract(vectors.times(cosine, other), sine, carried), slot)
            for slot, start in zip(slots, block.starts, strict=False):
                row = builder.load(slot)
                a = vectors.multiply_add(vectors.load(data, start), removed, row)
                u = vectors.multiply_add(vectors.load(norms, start), row, row)
                vectors.store(a, data, start)
                vectors.store(u, norms, start)
                consider(a, u, start)

        return choose(vectors, _SIGNED, args[0], penalties, floor, n_vectors, body)

    return signature, codegen


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _read_column(entries, n_rows, wide, stride, lanes, atom, count, column):
    """The first `count` entries of a column of the factor."""
    step = stride if atom < wide else lanes
    first = atom & -step
    place = first * n_rows + atom - first
    for q in range(count):
        column[q] = entries[place + q * step]


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _solve_back(triangle, count, target):
    """Solve with the transposed triangle in place."""
    for k in range(count - 1, -1, -1):
        row = triangle[k]
        value = target[k] / row[k]
        target[k] = value
        for q in range(k):
            target[q] -= row[q] * value


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _take_out(triangle, rotations, projections, found, signs, chosen, position, last):
    """Take out the atom at `position` of the `last` + 1 in use, by rotations that make the rest a triangle again.

    Returns the projection on what only this atom added to the span.
    """
    for k in range(position, last):
        triangle[k, : k + 2] = triangle[k + 1, : k + 2]
        chosen[k], signs[k], found[k] = chosen[k + 1], signs[k + 1], found[k + 1]
    for q in range(position, last):
        left, right = triangle[q, q], triangle[q, q + 1]
        length = np.sqrt(left * left + right * right)
        cosine, sine = left / length, right / length
        rotations[0, q], rotations[1, q] = cosine, sine
        for k in range(q, last):
            row = triangle[k]
            left, right = row[q], row[q + 1]
            row[q], row[q + 1] = cosine * left + sine * right, cosine * right - sine * left
        left, right = projections[q], projections[q + 1]
        projections[q], projections[q + 1] = cosine * left + sine * right, cosine * right - sine * left
    return projections[last]


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _find_dependent(work, alpha, is_positive, threshold, limit):
    """The atom whose correlation exceeds its penalty most, of those with norms up to `limit`; -1 if none does."""
    best, found = threshold, -1
    for j in range(len(alpha)):
        excess = (work[0, j] if is_positive else abs(work[0, j])) - alpha[j]
        if excess > 0 and excess * excess > best and -np.inf < work[1, j] <= limit:
            best, found = excess * excess, j
    return found


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _first_zero(found, changes, signs, count):
    """The coefficient that is zero first on the way along `changes`, and how far that is; -1 if none is."""
    which, way = -1, found.dtype.type(np.inf)
    for k in range(count):
        falls = -changes[k] * signs[k]
        if falls > 0 and found[k] * signs[k] < way * falls:
            which, way = k, found[k] * signs[k] / falls
    return which, way


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def pursue_signed(
    kind,
    penalties,
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
    """Codes of all rows of `correlations`; arguments from there on are those of `rkdl._backends.cpu.pursuit`.

    `kind` is the place in `_SIGNED`. Rows of `penalties` (2, width), padded by zeros, are alpha and l2 of every atom;
    `residuals` do not include them.
    """
    own, is_positive = penalties.copy(), kind % 2 == 1
    alpha, l2 = own[0], own[1]
    n_nonzero, width = indices.shape[1], gram.shape[1]
    lanes = VECTOR_BYTES // correlations.itemsize
    n_vectors, stride = width // lanes, UNROLL * lanes
    wide = n_vectors // UNROLL * stride
    dtype = correlations.dtype
    one, zero, never = dtype.type(1), dtype.type(0), dtype.type(-np.inf)
    has_penalty = alpha.max() > zero
    root_eps = np.sqrt(eps)
    noise = (dtype.type(8) * eps) ** 2
    norms = one + l2
    most_steps = MOST_STEPS * n_nonzero + 20
    work = np.zeros((2, width), dtype=dtype)
    indices, values = indices.reshape(indices.size), values.reshape(values.size)
    room, needed = 0, min(n_nonzero, ROOM)

    t = total = 0
    while t < len(correlations):
        if room < needed:
            room = needed
            factor = np.empty((room, width), dtype=dtype)
            entries = factor.reshape(factor.size)
            triangle, rotations = np.zeros((room, room), dtype=dtype), np.empty((2, room), dtype=dtype)
            rows = np.empty((5, room), dtype=dtype)
            projections, target, found, signs, minimum = rows[0], rows[1], rows[2], rows[3], rows[4]
            chosen = np.empty(room, dtype=np.int64)
        if len(observed) != 0:
            forget_rows(gram, observed, t)
            for j in range(len(gram)):
                scale = scales[t, j]
                alpha[j], l2[j] = penalties[0, j] * scale, penalties[1, j] * scale * scale
                norms[j] = one + l2[j]
        b = _begin(kind, correlations, t, work, norms, alpha, root_eps)
        # With a penalty, atoms in the span of those in use matter too, and only rounding ends the span; unless it is so
        # small that it does not bound the coefficients, whose squares times eps are then the error of the objective.
        is_bound = has_penalty and alpha[b] > root_eps * abs(work[0, b])
        floor = dtype.type(100) * eps if is_bound else root_eps
        energy, threshold, smallest = squared_norms[t], zero, one
        count = n_steps = 0
        while n_steps < most_steps and energy > residual_tol and (count < n_nonzero or has_penalty):
            n_steps += 1
            start, sign = zero, one if is_positive or work[0, b] > zero else -one
            excess = sign * work[0, b] - alpha[b]
            is_usable = count < n_nonzero and excess > zero and work[1, b] > floor
            if not (is_usable and excess * excess * (one if is_bound else smallest) > threshold):
                # In the span of the atoms in use, an atom takes the place of one of them, at the same residual.
                limit = floor if count < n_nonzero else -never
                least = dtype.type(64) * threshold
                b = _find_dependent(work, alpha, is_positive, least, limit) if is_bound and count > 0 else -1
                if b < 0:
                    break
                sign = one if is_positive or work[0, b] > zero else -one
                excess = sign * work[0, b] - alpha[b]
                while count > 0:
                    _read_column(entries, room, wide, stride, lanes, b, count, target)
                    _solve_back(triangle, count, target)
                    for k in range(count):
                        target[k] *= -sign
                    leaving, way = _first_zero(found, target, signs, count)
                    # Before that is the minimum, of an atom that is not quite in the span.
                    if leaving < 0 or excess < way * work[1, b]:
                        break
                    for k in range(count):
                        found[k] += way * target[k]
                    start += sign * way
                    atom = chosen[leaving]
                    _read_column(entries, room, wide, stride, lanes, atom, count, target)
                    work[1, atom] = norms[atom] - np.dot(target[:count], target[:count])
                    count -= 1
                    removed = _take_out(triangle, rotations, projections, found, signs, chosen, leaving, count)
                    energy += removed * removed
                    _retreat(kind, work, factor, rotations, alpha, leaving, count, n_vectors, removed, floor)
                    if work[1, b] > floor:
                        break
            # An atom that stays in the span though it took the place of another gives way to those in use.
            has_row = not (work[1, b] > floor and count < n_nonzero)
            if has_row and start == zero:
                work[1, b] = never
                continue
            if not has_row and count == room:
                needed = min(2 * room, n_nonzero)
                break
            entered, root, projection = b, one, zero
            if has_row:
                work[1, b] = never
            else:
                root = np.sqrt(work[1, b])
                projection = (work[0, b] - sign * alpha[b]) / root
                row = triangle[count]
                _read_column(entries, room, wide, stride, lanes, b, count, row)
                row[count] = root
                smallest = min(smallest, work[1, b])
                if count == 0:
                    threshold = noise * work[0, b] * work[0, b]
                chosen[count], signs[count], projections[count], found[count] = b, sign, projection, start
                work[1, b] = never
                energy -= projection * projection
                count += 1
            while True:
                # Towards the minimum, as far as no coefficient changes its sign.
                minimum[:count] = projections[:count]
                _solve_back(triangle, count, minimum)
                for k in range(count):
                    target[k] = minimum[k] - found[k]
                leaving, way = _first_zero(found, target, signs, count)
                is_settled = leaving < 0 or way > one
                is_done = is_settled and (energy <= residual_tol or (count == n_nonzero and not has_penalty))
                if not (has_row or is_done):
                    if len(dictionary) != 0:
                        complete_row(gram, dictionary, b, observed, scales, t)
                    last, scale = count - 1, one / root
                    b = _advance(kind, work, factor, gram, row, alpha, b, last, n_vectors, scale, projection, floor)
                    has_row = True
                if is_settled:
                    found[:count] = minimum[:count]
                    break
                for k in range(count):
                    found[k] += way * target[k]
                n_steps += 1
                atom = chosen[leaving]
                _read_column(entries, room, wide, stride, lanes, atom, count, target)
                # An atom that leaves before it has moved would enter again.
                has_moved = atom != entered or way > zero or start != zero
                work[1, atom] = norms[atom] - np.dot(target[:count], target[:count]) if has_moved else never
                count -= 1
                removed = _take_out(triangle, rotations, projections, found, signs, chosen, leaving, count)
                energy += removed * removed
                b = _retreat(kind, work, factor, rotations, alpha, leaving, count, n_vectors, removed, floor)
        if needed > room:
            continue
        for k in range(count):
            index, value = chosen[k], found[k]
            position = total
            for q in range(count):
                position += chosen[q] < index
            indices[position] = index
            values[position] = value
            energy -= dtype.type(2) * alpha[index] * abs(value) + l2[index] * value * value
        counts[t] = count
        residuals[t] = max(energy, zero)
        t += 1
        total += count
    return total


def _pursue(rule: int, is_positive: bool, alpha: Penalty, l2: Penalty, *problem: Any) -> int:
    """Codes with these penalties, of which every atom may have its own (n,)."""
    correlations, gram = problem[:2]
    penalties = np.zeros((2, gram.shape[1]), dtype=gram.dtype)
    for own, penalty in zip(penalties, (alpha, l2), strict=True):
        own[: correlations.shape[1]] = penalty
    total: int = pursue_signed(2 * rule + is_positive, penalties, *problem)
    return total


def _greedy(rule: int, is_positive: bool, alpha: Penalty, l2: Penalty, *problem: Any) -> int:
    """A greedy pursuit, whose codes are least squares on their support."""
    total: int = _pursue(rule, is_positive, 0.0, 0.0, *problem) if is_positive else pursue_rows(rule, *problem)
    return total


# Every pursuit by the name that users give: a function of whether codes are non-negative, the penalties, and the
# arguments of `pursue_rows` after the first.
PURSUITS: dict[str, Callable[..., int]] = {name: partial(_greedy, rule) for rule, name in enumerate(SCORES)}
# By the score of OLS the atom enters that lowers the objective most, which saves steps.
PURSUITS["lasso"] = partial(_pursue, list(SCORES).index("ols"))
