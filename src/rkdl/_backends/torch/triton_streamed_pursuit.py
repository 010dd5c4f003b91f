"""The pursuit with many non-zeros or atoms as two Triton kernels: one chooses atoms, the other finds coefficients.

The first is a fixed number of programs that code one signal after another, each with a scratch of its own for the
factor's rows, so that the scratch is reused and stays in the L2 cache. The rows are stored in half the signals'
precision, since only the choice of the next atom depends on them. The second eliminates the chosen atoms one by one
from their entries of the Gram matrix, in full precision and in the order of their choice, so that it knows the exact
residual after each and applies the stopping rules. Signals whose choice needed more precision than the rows had are
coded again with rows in full precision.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.pursuit import Parts, pursue_plainly
from rkdl._backends.torch.triton_kernels import limit_on, on_device

# Beyond these a program's vectors, or its system of equations, are far too large for its registers.
LARGEST_WIDTH, LARGEST_NONZERO = 65_536, 128
# Bytes of rows that the L2 cache holds, words of a signal's vectors that a multiprocessor's registers hold, and the
# most programs and warps of a multiprocessor.
CACHED_BYTES, RESIDENT_WORDS, MOST_PROGRAMS, MOST_WARPS = 72 << 20, 8192, 16, 16


@triton.jit
def _first_of_largest(scores, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """As `first_of_largest`, of vectors in parts."""
    bits = ()
    most = tl.zeros((BLOCK,), tl.int64 if scores[0].dtype == tl.float64 else tl.int32)
    for p in tl.static_range(PARTS):
        bits = bits + (scores[p].to(most.dtype, bitcast=True),)
        most = tl.maximum(most, bits[p])
    largest = tl.max(most, axis=0)
    places = tl.full((BLOCK,), PARTS * BLOCK - 1, tl.int32)
    for p in tl.static_range(PARTS):
        is_largest = bits[p] == largest
        places = tl.minimum(places, tl.where(is_largest, p * BLOCK + tl.arange(0, BLOCK), PARTS * BLOCK - 1))
    return tl.min(places, axis=0), largest


@triton.jit
def _choose_kernel(
    correlations,
    gram,
    squared_norms,
    limit,
    chosen,
    counts,
    scratch,
    projections,
    n_signals,
    n_atoms,
    FLOOR: tl.constexpr,
    LEAST: tl.constexpr,
    MARGIN: tl.constexpr,
    NONZERO: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    OLS: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
    IS_HALF: tl.constexpr,
):
    """The atoms of every signal in the order of their choice; a count below zero says that the choice is in doubt.

    Vectors of the length of the atoms are held in `PARTS` parts, because one alone must have a power of two as length.
    """
    WIDTH: tl.constexpr = PARTS * BLOCK
    columns = tl.arange(0, BLOCK)
    dtype = correlations.dtype.element_ty
    row_dtype = scratch.dtype.element_ty
    program = tl.program_id(0).to(tl.int64)
    own_rows = scratch + program * (NONZERO + ROWS) * WIDTH
    own_projections = projections + program * (NONZERO + ROWS)
    for t in range(program, n_signals, tl.num_programs(0)):
        own = correlations + t * n_atoms
        a, u, scores = (), (), ()
        for p in tl.static_range(PARTS):
            a = a + (tl.load(own + p * BLOCK + columns, mask=p * BLOCK + columns < n_atoms, other=0.0),)
            u = u + (tl.full((BLOCK,), 1.0, dtype),)
            scores = scores + (tl.abs(a[p]),)
        residual = tl.load(squared_norms + t)
        tolerance = tl.load(limit)
        # The residual is known to the precision of the rows.
        doubt = residual * MARGIN
        b, most = _first_of_largest(scores, BLOCK, PARTS)
        k = 0
        is_alive = (residual > tolerance) & (most > 0)
        is_open = False
        if HAS_LIMIT:
            if IS_HALF:
                is_open = is_alive & (tolerance < 2.0 * doubt)
                is_alive = is_alive & (tolerance >= 2.0 * doubt)
            tolerance -= doubt
        while is_alive:
            tl.store(chosen + t * NONZERO + k, b)
            is_alive = k + 1 < NONZERO
            if is_alive:
                correlation = tl.load(own + b)
                norm = tl.full((), 1.0, dtype)
                gram_row = gram + b.to(tl.int64) * WIDTH
                row = ()
                for p in tl.static_range(PARTS):
                    row = row + (tl.load(gram_row + p * BLOCK + columns, eviction_policy="evict_first"),)
                n_tiles = (k + ROWS - 1) // ROWS
                for i in range(n_tiles):
                    # There and back, so that the rows read last are in the cache when the next step begins.
                    tile = tl.where(k % 2 == 0, i, n_tiles - 1 - i)
                    first = own_rows + tile * (ROWS * WIDTH)
                    rows, at_b = first + columns, first + b
                    own_part = own_projections + tile * ROWS
                    n_known = k - tile * ROWS
                    entries, less = (), ()
                    for p in tl.static_range(PARTS):
                        # A few rows at a time are summed in their own precision, which is twice as fast.
                        total = tl.zeros((BLOCK,), row_dtype)
                        for r in tl.static_range(ROWS):
                            if p == 0:
                                entries = entries + (tl.load(at_b + r * WIDTH, mask=r < n_known, other=0.0),)
                            earlier = tl.load(rows + (r * WIDTH + p * BLOCK), eviction_policy="evict_last")
                            total += entries[r] * earlier
                            if p == 0:
                                norm -= entries[r].to(dtype) * entries[r].to(dtype)
                                correlation -= entries[r].to(dtype) * tl.load(own_part + r)
                        less = less + (row[p] - total.to(dtype),)
                    row = less
                is_new = norm > LEAST
                if is_new:
                    root = 1.0 / tl.sqrt(norm)
                    projection = correlation * root
                    tl.store(own_projections + k, projection)
                    left, norms = (), ()
                    for p in tl.static_range(PARTS):
                        scaled = row[p] * root
                        tl.store(own_rows + k * WIDTH + p * BLOCK + columns, scaled.to(row_dtype))
                        left = left + (a[p] - projection * scaled,)
                        norms = norms + (u[p] - scaled * scaled,)
                    a, u = left, norms
                    residual -= projection * projection
                    if HAS_LIMIT:
                        is_alive = residual > tolerance
                    k += 1
                elif IS_HALF:
                    is_open = True
                    is_alive = False
                # An atom in the span of those chosen is passed over.
                norms, scores = (), ()
                for p in tl.static_range(PARTS):
                    norm_left = tl.where(p * BLOCK + columns == b, 0.0, u[p])
                    norms = norms + (norm_left,)
                    score = tl.abs(a[p])
                    if OLS:
                        score = score * tl.rsqrt(norm_left)
                    scores = scores + (tl.where(norm_left > FLOOR, score, 0.0),)
                u = norms
                b, most = _first_of_largest(scores, BLOCK, PARTS)
                is_alive = is_alive & (most > 0)
            else:
                k += 1
            tl.debug_barrier()
        tl.store(counts + t, tl.where(is_open, -1 - k, k))


@triton.jit
def _solve_kernel(
    correlations,
    gram,
    squared_norms,
    limit,
    chosen,
    counts,
    indices,
    values,
    residuals,
    lines,
    orders,
    n_signals,
    n_atoms,
    gram_stride,
    FLOOR: tl.constexpr,
    NOISE: tl.constexpr,
    NONZERO: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
):
    """Coefficients and residuals of the atoms that the rules admit; a count below zero says that there may be more."""
    steps = tl.arange(0, STEPS)
    dtype = correlations.dtype.element_ty
    tolerance = tl.load(limit)
    program = tl.program_id(0).to(tl.int64)
    own_lines = lines + program * (4 * STEPS)
    own_order = orders + program * STEPS
    for t in range(program, n_signals, tl.num_programs(0)):
        count = tl.load(counts + t)
        is_open = count < 0
        n_chosen = tl.where(is_open, -1 - count, count)
        is_known = steps < n_chosen
        atoms = tl.load(chosen + t * NONZERO + steps, mask=is_known, other=0)
        places = atoms[:, None].to(tl.int64) * gram_stride + atoms[None, :]
        system = tl.load(gram + places, mask=is_known[:, None] & is_known[None, :], other=0.0)
        right = tl.load(correlations + t * n_atoms + atoms, mask=is_known, other=0.0)
        residual = tl.load(squared_norms + t)
        smallest = tl.full((), 1.0, dtype)
        threshold = tl.full((), 0.0, dtype)
        k = 0
        is_alive = n_chosen > 0
        while is_alive:
            # Row k, through memory that is used in turns, because a register cannot be addressed by k.
            line = own_lines + (k % 2) * (2 * STEPS)
            tl.store(
                line + steps[None, :] + 0 * steps[:, None], system, mask=(steps[:, None] == k) & (steps >= 0)[None, :]
            )
            tl.store(line + STEPS + steps, right, mask=steps == k)
            tl.debug_barrier()
            pivot, correlation = tl.load(line + k), tl.load(line + STEPS + k)
            square = correlation * correlation
            if pivot > FLOOR:
                is_alive = square * smallest > threshold
                if is_alive:
                    if k == 0:
                        threshold = square * NOISE
                    smallest = tl.minimum(smallest, pivot)
                    residual -= square / pivot
                    # Sweep: with its own entry less by one, row k is updated by the same formula as the others.
                    across = tl.where(steps == k, pivot - 1.0, tl.load(line + steps))
                    scaled = across / pivot
                    right -= scaled * correlation
                    system -= scaled[:, None] * across[None, :]
                    k += 1
                    is_alive = k < n_chosen
                    if HAS_LIMIT:
                        is_alive = is_alive & (residual > tolerance)
            else:
                is_open = True
                n_chosen = k
                is_alive = False
        # The rules were to end the code, not the atoms that were chosen.
        if HAS_LIMIT:
            is_open = is_open | ((k < NONZERO) & (residual > tolerance))
        is_open = is_open & (k == n_chosen)
        order = tl.where(steps < k, atoms, n_atoms + steps)
        tl.store(own_order + steps, order)
        tl.debug_barrier()
        # Indices ascending; atoms that were not taken come last.
        places = tl.zeros((STEPS,), tl.int32)
        for start in range(0, NONZERO, BLOCK):
            others = tl.load(own_order + start + tl.arange(0, BLOCK))
            places += tl.sum((others[None, :] < order[:, None]).to(tl.int32), axis=1)
        target = t * NONZERO + places
        tl.store(indices + target, tl.where(steps < k, atoms, 0), mask=steps < NONZERO)
        tl.store(values + target, tl.where(steps < k, right, 0.0), mask=steps < NONZERO)
        tl.store(counts + t, tl.where(is_open, -1, k))
        tl.store(residuals + t, tl.maximum(residual, 0.0))
        tl.debug_barrier()


def fits(n_atoms: int, n_nonzero: int) -> bool:
    """Whether the sizes are within reach."""
    return n_atoms <= LARGEST_WIDTH and n_nonzero <= LARGEST_NONZERO


def _parts_of(n_atoms: int) -> tuple[int, int]:
    """Length and number of a vector's parts, so that long ones are padded to the next eighth of a power of two only."""
    width = max(32, triton.next_power_of_2(n_atoms))
    parts = {5: (width // 8, 5), 6: (width // 4, 3), 7: (width // 8, 7)}
    return parts.get(triton.cdiv(8 * n_atoms, width), (width, 1)) if width >= 1024 else (width, 1)


def _n_cores(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _choose(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    row_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The chosen atoms (c, s) in order, and their counts (c,)."""
    n_signals, n_atoms = correlations.shape
    dtype, device = correlations.dtype, correlations.device
    block, n_parts = _parts_of(n_atoms)
    width = block * n_parts
    rows = 4 if width <= 8192 else 2
    n_cores = _n_cores(device)
    # As many programs as the registers hold, or fewer with more warps where the cache is too small for their rows.
    words = width * dtype.itemsize // 4
    resident = max(1, min(MOST_PROGRAMS, RESIDENT_WORDS // words))
    per_core = max(1, min(resident, CACHED_BYTES // (n_cores * n_nonzero * width * row_dtype.itemsize)))
    warps = triton.cdiv(words, 1024)
    if per_core < resident:
        warps = max(warps, MOST_WARPS // per_core)
    warps = max(1, min(MOST_WARPS, triton.next_power_of_2(warps)))
    n_programs = max(1, min(n_signals, n_cores * per_core))
    # Rows that no step has written must be finite.
    scratch = torch.zeros((n_programs, n_nonzero + rows, width), dtype=row_dtype, device=device)
    projections = torch.zeros((n_programs, n_nonzero + rows), dtype=dtype, device=device)
    chosen = torch.empty((n_signals, n_nonzero), dtype=torch.int32, device=device)
    counts = torch.empty(n_signals, dtype=torch.int32, device=device)
    is_half = row_dtype != dtype
    floor, row_eps = torch.finfo(dtype).eps ** 0.5, torch.finfo(row_dtype).eps
    with on_device(device):
        _choose_kernel[(n_programs,)](
            correlations,
            # Rows that begin at multiples of a vector and need no mask; padding by nothing would copy.
            torch.nn.functional.pad(gram, (0, width - n_atoms)) if n_atoms < width else gram,
            squared_norms,
            limit_on(residual_tol, dtype, device),
            chosen,
            counts,
            scratch,
            projections,
            n_signals,
            n_atoms,
            FLOOR=floor,
            LEAST=8.0 * row_eps if is_half else floor,
            MARGIN=row_eps,
            NONZERO=n_nonzero,
            BLOCK=block,
            PARTS=n_parts,
            ROWS=rows,
            OLS=ols,
            HAS_LIMIT=residual_tol >= 0.0,
            IS_HALF=is_half,
            num_warps=warps,
        )
    return chosen, counts


def _solve(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    residual_tol: float,
    chosen: torch.Tensor,
    counts: torch.Tensor,
) -> Parts:
    """Indices, values, counts and residuals of what was chosen; counts below zero where the code is not complete."""
    n_signals, n_atoms = correlations.shape
    dtype, device = correlations.dtype, correlations.device
    n_nonzero = chosen.shape[1]
    steps = max(16, triton.next_power_of_2(n_nonzero))
    indices = torch.empty((n_signals, n_nonzero), dtype=torch.int32, device=device)
    values = torch.empty((n_signals, n_nonzero), dtype=dtype, device=device)
    residuals = torch.empty(n_signals, dtype=dtype, device=device)
    n_programs = max(1, min(n_signals, MOST_PROGRAMS * _n_cores(device)))
    lines = torch.empty((n_programs, 4, steps), dtype=dtype, device=device)
    orders = torch.empty((n_programs, steps), dtype=torch.int32, device=device)
    eps = torch.finfo(dtype).eps
    with on_device(device):
        _solve_kernel[(n_programs,)](
            correlations,
            gram,
            squared_norms,
            limit_on(residual_tol, dtype, device),
            chosen,
            counts,
            indices,
            values,
            residuals,
            lines,
            orders,
            n_signals,
            n_atoms,
            gram.stride(0),
            FLOOR=eps**0.5,
            NOISE=(8.0 * eps) ** 2,
            NONZERO=n_nonzero,
            STEPS=steps,
            BLOCK=min(steps, 32),
            HAS_LIMIT=residual_tol >= 0.0,
            num_warps=max(1, steps // 32) * dtype.itemsize // 4,
        )
    return indices, values, counts, residuals


def pursue(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
) -> Parts:
    """Indices and values (c, s) ascending and padded by zeros, counts (c,) and squared residuals (c,)."""
    correlations, gram = correlations.contiguous(), gram.contiguous()
    options = n_nonzero, residual_tol, ols
    half = torch.float32 if correlations.dtype == torch.float64 else torch.float16
    parts = _pursue(correlations, gram, squared_norms, *options, half)
    for attempt in (partial(_pursue, row_dtype=correlations.dtype), pursue_plainly):
        again = torch.nonzero(parts[2] < 0)[:, 0]
        if not len(again):
            break
        for part, new in zip(parts, attempt(correlations[again], gram, squared_norms[again], *options), strict=True):
            part[again] = new
    return parts


def _pursue(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    row_dtype: torch.dtype,
) -> Parts:
    chosen, counts = _choose(correlations, gram, squared_norms, n_nonzero, residual_tol, ols, row_dtype)
    return _solve(correlations, gram, squared_norms, residual_tol, chosen, counts)
