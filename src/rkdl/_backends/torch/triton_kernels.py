"""The pursuit and the RBF kernel's exponential as Triton kernels.

The pursuit is that of `rkdl._backends.cpu.pursuit`, one signal a program at a time, with everything that has the length
of the atoms in registers: correlations, norms left, and the factor's rows. What one atom contributes to the factor,
``w_q[b]``, is found by forward substitution in a few entries of the Gram matrix, so that the only thing the threads of
a program have to agree on is which atom scored highest.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import no_type_check

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.pursuit import Parts, Problem, widened

# Atoms times non-zeros, and non-zeros, up to which this pursuit is faster than the streamed one; with few atoms, whose
# rows fit the registers of one warp, more non-zeros.
LARGEST_STATE, LARGEST_NONZERO = 8192, 8
FEW_ATOMS, LARGEST_NONZERO_OF_FEW = 256, 14
# Width from which vectors are divided; beyond the second, this pursuit of divided vectors is slower than the streamed
# one with more than so many non-zeros.
LEAST_DIVIDED, FEW_DIVIDED, LARGEST_NONZERO_OF_DIVIDED = 512, 384, 5
# Width from which a thread reads several numbers at a time, if they begin at multiples of a vector.
LEAST_PADDED = 256


@triton.jit
@no_type_check
def _pursue_kernel(
    correlations,
    gram,
    squared_norms,
    limit,
    counts,
    indices,
    values,
    residuals,
    n_atoms,
    gram_stride,
    FLOOR: tl.constexpr,
    NOISE: tl.constexpr,
    NONZERO: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    IS_FULL: tl.constexpr,
    IS_GRAM_FULL: tl.constexpr,
    OLS: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
):
    """The code of a signal; vectors of the length of the atoms are held in `PARTS` parts."""
    columns = tl.arange(0, BLOCK)
    t = tl.program_id(0)
    dtype = correlations.dtype.element_ty
    tolerance = tl.load(limit)
    own = correlations + t.to(tl.int64) * n_atoms
    a, u, scores = (), (), ()
    for p in tl.static_range(PARTS):
        a = a + (_part(own, p, columns, n_atoms, BLOCK, IS_FULL),)
        u = u + (tl.full((BLOCK,), 1.0, dtype),)
        scores = scores + (a[p] * a[p],)
    residual = tl.load(squared_norms + t)
    b, _ = first_of_largest(scores, BLOCK, PARTS)
    is_alive = residual > tolerance
    smallest = tl.full((), 1.0, dtype)
    threshold = tl.full((), 0.0, dtype)
    count = tl.full((), 0, tl.int32)
    # Of the atoms chosen so far: index, entries of the factor, one over its diagonal, projection, the factor's row.
    chosen, triangle, inverses, projections, rows = (), (), (), (), ()
    for k in tl.static_range(NONZERO):
        correlation = tl.load(own + b)
        norm = tl.full((), 1.0, dtype)
        entries = ()
        for q in tl.static_range(k):
            entry = tl.load(gram + chosen[q].to(tl.int64) * gram_stride + b)
            for r in tl.static_range(q):
                entry -= triangle[q * (q - 1) // 2 + r] * entries[r]
            entry *= inverses[q]
            norm -= entry * entry
            correlation -= entry * projections[q]
            entries = entries + (entry,)
        square = correlation * correlation
        is_alive = is_alive & (square * smallest > threshold) & (norm > FLOOR)
        smallest = tl.minimum(smallest, norm)
        if k == 0:
            threshold = square * NOISE
        inverse = tl.where(is_alive, 1.0 / tl.sqrt(norm), 0.0)
        projection = tl.where(is_alive, correlation * inverse, 0.0)
        residual -= projection * projection
        count += is_alive.to(tl.int32)
        chosen = chosen + (b,)
        triangle = triangle + entries
        inverses = inverses + (inverse,)
        projections = projections + (projection,)
        if HAS_LIMIT:
            is_alive = is_alive & (residual > tolerance)
        if k + 1 < NONZERO:
            left, norms, scores = (), (), ()
            for p in tl.static_range(PARTS):
                row = _part(gram + b.to(tl.int64) * gram_stride, p, columns, n_atoms, BLOCK, IS_GRAM_FULL)
                for q in tl.static_range(k):
                    row -= entries[q] * rows[q * PARTS + p]
                row *= inverse
                rows = rows + (row,)
                left = left + (a[p] - projection * row,)
                norms = norms + (u[p] - row * row,)
                weight = _reciprocal(norms[p]) if OLS else 1.0
                scores = scores + (tl.where(norms[p] > FLOOR, left[p] * left[p] * weight, 0.0),)
            a, u = left, norms
            b, _ = first_of_largest(scores, BLOCK, PARTS)
    solution = ()
    for i in tl.static_range(NONZERO):
        value = projections[NONZERO - 1 - i]
        for j in tl.static_range(i):
            value -= triangle[(NONZERO - 1 - j) * (NONZERO - 2 - j) // 2 + NONZERO - 1 - i] * solution[j]
        solution = solution + (value * inverses[NONZERO - 1 - i],)
    target = t.to(tl.int64) * NONZERO
    for k in tl.static_range(NONZERO):
        place = tl.full((), 0, tl.int32)
        for q in tl.static_range(NONZERO):
            # Atoms that were not taken come last.
            if q < k:
                place += ((chosen[q] < chosen[k]) | (k >= count)).to(tl.int32)
            if q > k:
                place += ((chosen[q] < chosen[k]) & (q < count)).to(tl.int32)
        tl.store(indices + target + place, tl.where(k < count, chosen[k], 0))
        tl.store(values + target + place, solution[NONZERO - 1 - k])
    tl.store(counts + t, count)
    tl.store(residuals + t, tl.maximum(residual, 0.0))


@triton.jit
def _reciprocal(x):
    """``1 / x`` to the last bit or two; numbers here are far from the ends of the range."""
    if x.dtype == tl.float32:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def _part(start, p, columns, n_atoms, BLOCK: tl.constexpr, IS_FULL: tl.constexpr):
    """Part p of a vector, padded by zeros."""
    if IS_FULL:
        return tl.load(start + p * BLOCK + columns)
    return tl.load(start + p * BLOCK + columns, mask=p * BLOCK + columns < n_atoms, other=0.0)


@triton.jit
@no_type_check
def first_of_largest(scores, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Index of the largest of non-negative numbers in parts, the first among equals, and its bits.

    The bits are ordered as the numbers are.
    """
    LAST: tl.constexpr = PARTS * BLOCK - 1
    columns = tl.arange(0, BLOCK)
    most = scores[0].to(tl.int64 if scores[0].dtype == tl.float64 else tl.int32, bitcast=True)
    bits = (most,)
    for p in tl.static_range(1, PARTS):
        bits = bits + (scores[p].to(most.dtype, bitcast=True),)
        most = tl.maximum(most, bits[p])
    largest = tl.max(most, axis=0)
    places = tl.where(bits[0] == largest, columns, LAST)
    for p in tl.static_range(1, PARTS):
        places = tl.minimum(places, tl.where(bits[p] == largest, p * BLOCK + columns, LAST))
    return tl.min(places, axis=0), largest


def on_device(device: torch.device) -> AbstractContextManager:
    """Kernels are launched on the current device; Triton's interpreter works on CPU tensors."""
    is_elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    return torch.cuda.device(device) if is_elsewhere else nullcontext()


def warps_for(width: int, n_nonzero: int, itemsize: int) -> int:
    """Warps of a program: one while its rows fit the registers of one, as many as they need after that."""
    words = width * itemsize // 4
    warps = 1
    if words > FEW_ATOMS or n_nonzero > LARGEST_NONZERO_OF_FEW:
        while (n_nonzero + 3) * words > 3520 * warps and warps < 16:
            warps *= 2
    return warps


def _registers_for(width: int, n_parts: int, n_nonzero: int, itemsize: int, warps: int) -> int | None:
    """Fewer registers than the compiler would take: more programs at a time, which is worth a few spilled words."""
    needed = (n_nonzero + 3) * width * itemsize // (128 * warps)
    if needed <= 88:
        return 96
    return 128 if n_parts > 1 and needed <= 112 else None


def parts_of(n_atoms: int) -> tuple[int, int]:
    """Length and number of a vector's parts, so that long ones are padded to the next eighth of a power of two only.

    One part must have a power of two as length.
    """
    width = max(32, triton.next_power_of_2(n_atoms))
    eighths = triton.cdiv(8 * n_atoms, width)
    if width < LEAST_DIVIDED or eighths == 8 or (eighths == 7 and width == LEAST_DIVIDED):
        return width, 1
    return (width // 4, 3) if eighths == 6 else (width // 8, eighths)


def fits(problem: Problem) -> bool:
    """Whether this pursuit is faster than the streamed one."""
    n_nonzero = problem.n_nonzero
    block, n_parts = parts_of(problem.correlations.shape[1])
    words = block * n_parts * problem.correlations.element_size() // 4
    if words <= FEW_ATOMS:
        return n_nonzero <= LARGEST_NONZERO_OF_FEW
    most = LARGEST_NONZERO_OF_DIVIDED if n_parts > 1 and words > FEW_DIVIDED else LARGEST_NONZERO
    return n_nonzero <= most and n_nonzero * words <= LARGEST_STATE


@lru_cache(maxsize=64)
def limit_on(residual_tol: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tolerance on the device, in full precision; below zero there is none."""
    limits = torch.finfo(dtype)
    tolerance = min(residual_tol, limits.max) if residual_tol >= 0.0 else limits.min
    return torch.full((1,), tolerance, dtype=dtype, device=device)


def kernel_input(problem: Problem) -> tuple[torch.Tensor, ...]:
    """What every kernel of a pursuit reads."""
    like = problem.correlations
    return *problem[:3], limit_on(problem.residual_tol, like.dtype, like.device)


def stopping_rules(problem: Problem) -> dict[str, float | bool]:
    """What a kernel takes for rounding, as in `pursue_rows` of the CPU, and whether there is a tolerance."""
    eps = torch.finfo(problem.correlations.dtype).eps
    return {"FLOOR": eps**0.5, "NOISE": (8.0 * eps) ** 2, "HAS_LIMIT": problem.residual_tol >= 0.0}


def pursue(problem: Problem) -> Parts:
    """What `rkdl._backends.torch.pursuit.pursue` finds."""
    n_signals, n_atoms = problem.correlations.shape
    itemsize, n_nonzero = problem.correlations.element_size(), problem.n_nonzero
    found = problem.empty_parts()
    block, n_parts = parts_of(n_atoms)
    width = block * n_parts
    warps = warps_for(width, n_nonzero, itemsize)
    gram = widened(problem.gram, width) if width >= LEAST_PADDED else problem.gram
    problem = problem._replace(correlations=problem.correlations.contiguous(), gram=gram)
    with on_device(gram.device):
        _pursue_kernel[(n_signals,)](
            *kernel_input(problem),
            *found,
            n_atoms,
            gram.stride(0),
            NONZERO=n_nonzero,
            BLOCK=block,
            PARTS=n_parts,
            IS_FULL=width == n_atoms,
            IS_GRAM_FULL=width == gram.shape[1],
            OLS=problem.ols,
            num_warps=warps,
            maxnreg=_registers_for(width, n_parts, n_nonzero, itemsize, warps),
            **stopping_rules(problem),
        )
    return found


@triton.jit
def _rbf_kernel(
    values, own, other, largest, n_columns, ROUNDING: tl.constexpr, BLOCK: tl.constexpr, IS_ONE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    place = values + row * n_columns + columns
    left, right = tl.load(own + row), tl.load(other + columns, mask=inside, other=0.0)
    # Infinity becomes NaN, or a signal at infinity would be treated as one that is far away.
    left += left - left
    if IS_ONE:
        most = tl.max(right, axis=0)
    else:
        most = tl.load(largest)
    near = tl.where(most * ROUNDING > 1e-4, ROUNDING, 0.0).to(left.dtype)
    exponents = tl.load(place, mask=inside, other=0.0) - left - right
    exponents = tl.where(exponents > -near * (left + right), 0.0, exponents)
    tl.store(place, tl.exp(tl.where(exponents > 0.0, 0.0, exponents)), mask=inside)


def finish_rbf(values: torch.Tensor, own: torch.Tensor, other: torch.Tensor, rounding: float) -> None:
    """``exp(min(values - own_t - other_i, 0))`` in place; `transform` of RKDL takes an eighth to half less time.

    Where `rounding` shows in the largest of `other`, an exponent within ``rounding (own_t + other_i)`` of zero is
    zero.
    """
    n_rows, n_columns = values.shape
    block = min(1024, triton.next_power_of_2(n_columns))
    is_one = n_columns <= block
    with on_device(values.device):
        _rbf_kernel[(n_rows, triton.cdiv(n_columns, block))](
            values,
            own,
            other,
            other if is_one else other.max(),
            n_columns,
            ROUNDING=rounding,
            BLOCK=block,
            IS_ONE=is_one,
            num_warps=4,
        )
