"""The pursuit with many non-zeros or atoms as two Triton kernels: one chooses atoms, the other finds coefficients.

The first is a fixed number of programs that code one signal after another, each with a scratch of its own for the
factor's rows, so that the scratch is reused and stays in the L2 cache. The rows are stored in half the signals'
precision, since only the choice of the next atom depends on them. The second eliminates the chosen atoms one by one
from their entries of the Gram matrix, in full precision and in the order of their choice, so that it knows the exact
residual after each and applies the stopping rules. Signals whose choice needed more precision than the rows had are
coded again with rows in full precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.pursuit import Parts, Problem, pursue_on_host, widened
from rkdl._backends.torch.triton_kernels import first_of_largest, kernel_input, on_device, parts_of, stopping_rules

# Beyond these a program's vectors, or its system of equations, are far too large for its registers.
LARGEST_WIDTH, LARGEST_NONZERO = 65_536, 128
# Bytes of rows that the caches serve well: all rows, and those that registers do not hold.
CACHED_BYTES, CACHED_BYTES_BESIDE_HELD = 72 << 20, 80 << 20
# Words of a signal's vectors that a multiprocessor's registers hold, and its most programs and warps.
RESIDENT_WORDS, MOST_PROGRAMS, MOST_WARPS = 8192, 16, 16
# Numbers of rows that a thread holds beside its vectors, and the most rows.
HELD_NUMBERS, MOST_HELD = 96, 24


@triton.jit
def _packed(halves, BLOCK: tl.constexpr):
    """Neighbouring halves in one word, because a register would hold only one of them."""
    low, high = tl.split(tl.reshape(halves.to(tl.int16, bitcast=True), (BLOCK // 2, 2)))
    return (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)


@triton.jit
def _unpacked(words, BLOCK: tl.constexpr):
    """The halves of `_packed`."""
    low, high = (words & 0xFFFF).to(tl.int16), (words >> 16).to(tl.int16)
    return tl.reshape(tl.join(low, high), (BLOCK,)).to(tl.float16, bitcast=True)


@triton.jit
@no_type_check
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
    HELD: tl.constexpr,
    OLS: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
    IS_HALF: tl.constexpr,
):
    """The atoms of every signal in the order of their choice; a count below zero says that the choice is in doubt.

    Vectors of the length of the atoms are held in `PARTS` parts, because one alone must have a power of two as length.
    The first `HELD` rows, which are read most often, stay in registers.
    """
    WIDTH: tl.constexpr = PARTS * BLOCK
    columns = tl.arange(0, BLOCK)
    dtype = correlations.dtype.element_ty
    row_dtype = scratch.dtype.element_ty
    program = tl.program_id(0).to(tl.int64)
    own_rows = scratch + program * (NONZERO + ROWS) * WIDTH
    own_projections = projections + program * (NONZERO + ROWS)
    held = ()
    for _ in tl.static_range(HELD * PARTS):
        held = held + (tl.zeros((BLOCK // 2,), tl.int32),)
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
        b, most = first_of_largest(scores, BLOCK, PARTS)
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
                for group in tl.static_range(HELD // ROWS):
                    entries, reduced = (), ()
                    for r in tl.static_range(ROWS):
                        place = group * ROWS + r
                        entry = tl.load(own_rows + place * WIDTH + b, mask=place < k, other=0.0)
                        entries = entries + (entry,)
                        norm -= entry.to(dtype) * entry.to(dtype)
                        correlation -= entry.to(dtype) * tl.load(own_projections + place)
                    for p in tl.static_range(PARTS):
                        total = tl.zeros((BLOCK,), row_dtype)
                        for r in tl.static_range(ROWS):
                            total += entries[r] * _unpacked(held[(group * ROWS + r) * PARTS + p], BLOCK)
                        reduced = reduced + (row[p] - total.to(dtype),)
                    row = reduced
                n_tiles = (k + ROWS - 1) // ROWS
                for i in range(HELD // ROWS, n_tiles):
                    # In alternating directions, so that the rows read last are in the cache when the next step begins.
                    tile = tl.where(k % 2 == 0, i, n_tiles - 1 + HELD // ROWS - i)
                    first = own_rows + tile * (ROWS * WIDTH)
                    rows, at_b = first + columns, first + b
                    own_part = own_projections + tile * ROWS
                    n_known = k - tile * ROWS
                    entries, reduced = (), ()
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
                        reduced = reduced + (row[p] - total.to(dtype),)
                    row = reduced
                is_new = norm > LEAST
                if is_new:
                    root = 1.0 / tl.sqrt(norm)
                    projection = correlation * root
                    tl.store(own_projections + k, projection)
                    left, norms, stored = (), (), ()
                    for p in tl.static_range(PARTS):
                        scaled = row[p] * root
                        stored = stored + (scaled.to(row_dtype),)
                        tl.store(own_rows + k * WIDTH + p * BLOCK + columns, stored[p])
                        left = left + (a[p] - projection * scaled,)
                        norms = norms + (u[p] - scaled * scaled,)
                    a, u = left, norms
                    if HELD > 0:
                        kept, packed = (), ()
                        for p in tl.static_range(PARTS):
                            packed = packed + (_packed(stored[p], BLOCK),)
                        for r in tl.static_range(HELD):
                            for p in tl.static_range(PARTS):
                                kept = kept + (tl.where(k == r, packed[p], held[r * PARTS + p]),)
                        held = kept
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
                b, most = first_of_largest(scores, BLOCK, PARTS)
                is_alive = is_alive & (most > 0)
            else:
                k += 1
            tl.debug_barrier()
        tl.store(counts + t, tl.where(is_open, -1 - k, k))


@triton.jit
@no_type_check
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
    SIDE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
):
    """Coefficients and residuals of the atoms that the rules admit; a count below zero says that there may be more.

    The system of equations is held in square blocks, `PARTS` in a row, because the side of a block must be a power of
    two.
    """
    STEPS: tl.constexpr = PARTS * SIDE
    dtype = correlations.dtype.element_ty
    tolerance = tl.load(limit)
    program = tl.program_id(0).to(tl.int64)
    own_lines = lines + program * (4 * STEPS)
    own_order = orders + program * STEPS
    steps = ()
    for p in tl.static_range(PARTS):
        steps = steps + (p * SIDE + tl.arange(0, SIDE),)
    for t in range(program, n_signals, tl.num_programs(0)):
        count = tl.load(counts + t)
        is_open = count < 0
        n_chosen = tl.where(is_open, -1 - count, count)
        atoms, right, system = (), (), ()
        for p in tl.static_range(PARTS):
            atoms = atoms + (tl.load(chosen + t * NONZERO + steps[p], mask=steps[p] < n_chosen, other=0),)
            own = correlations + t * n_atoms + atoms[p]
            right = right + (tl.load(own, mask=steps[p] < n_chosen, other=0.0),)
        for p in tl.static_range(PARTS):
            for q in tl.static_range(PARTS):
                is_known = (steps[p] < n_chosen)[:, None] & (steps[q] < n_chosen)[None, :]
                at = gram + atoms[p][:, None].to(tl.int64) * gram_stride + atoms[q][None, :]
                system = system + (tl.load(at, mask=is_known, other=0.0),)
        residual = tl.load(squared_norms + t)
        smallest = tl.full((), 1.0, dtype)
        threshold = tl.full((), 0.0, dtype)
        k = 0
        turn = 0
        is_alive = n_chosen > 0
        while is_alive:
            # Row k, through memory that is used in turns, because a register cannot be addressed by k.
            line = own_lines + turn * (2 * STEPS)
            turn = 1 - turn
            for p in tl.static_range(PARTS):
                is_next = steps[p] == k
                for q in tl.static_range(PARTS):
                    place = line + (steps[p][:, None] - k) * STEPS + steps[q][None, :]
                    tl.store(place, system[p * PARTS + q], mask=is_next[:, None])
                tl.store(line + STEPS + steps[p], right[p], mask=is_next)
            tl.debug_barrier()
            pivot, correlation = tl.load(line + k), tl.load(line + STEPS + k)
            # Independent of the atoms before, and more than rounding.
            is_fit = pivot > FLOOR
            is_taken = is_fit & (correlation * correlation * smallest > threshold)
            threshold = tl.where(k == 0, correlation * correlation * NOISE, threshold)
            across = ()
            for p in tl.static_range(PARTS):
                # Sweep: with its own entry decreased by one, row k is updated by the same formula as the others.
                across = across + (tl.where(steps[p] == k, pivot - 1.0, tl.load(line + steps[p])),)
            right, system = _swept(right, system, across, tl.where(is_taken, pivot, 0.0), correlation, PARTS)
            smallest = tl.where(is_taken, tl.minimum(smallest, pivot), smallest)
            residual -= tl.where(is_taken, correlation * correlation / pivot, 0.0)
            is_open = is_open | ~is_fit
            n_chosen = tl.where(is_fit, n_chosen, k)
            k += is_taken.to(tl.int32)
            is_alive = is_taken & (k < n_chosen)
            if HAS_LIMIT:
                is_alive = is_alive & (residual > tolerance)
        # The rules were to end the code, not the atoms that were chosen.
        if HAS_LIMIT:
            is_open = is_open | ((k < NONZERO) & (residual > tolerance))
        is_open = is_open & (k == n_chosen)
        for p in tl.static_range(PARTS):
            tl.store(own_order + steps[p], tl.where(steps[p] < k, atoms[p], n_atoms + steps[p]))
        tl.debug_barrier()
        for p in tl.static_range(PARTS):
            # Indices ascending; atoms that were not taken come last.
            order = tl.where(steps[p] < k, atoms[p], n_atoms + steps[p])
            places = steps[p] * 0
            for start in range(0, NONZERO, BLOCK):
                others = tl.load(own_order + start + tl.arange(0, BLOCK))
                places += tl.sum((others[None, :] < order[:, None]).to(tl.int32), axis=1)
            target = t * NONZERO + places
            tl.store(indices + target, tl.where(steps[p] < k, atoms[p], 0), mask=steps[p] < NONZERO)
            tl.store(values + target, tl.where(steps[p] < k, right[p], 0.0), mask=steps[p] < NONZERO)
        tl.store(counts + t, tl.where(is_open, -1, k))
        tl.store(residuals + t, tl.maximum(residual, 0.0))
        tl.debug_barrier()


@triton.jit
@no_type_check
def _swept(right, system, across, pivot, correlation, PARTS: tl.constexpr):
    """The right-hand side and the blocks of a system without a row's part in them; a pivot of zero changes nothing."""
    new_right, new_system, scaled = (), (), ()
    for p in tl.static_range(PARTS):
        scaled = scaled + (tl.where(pivot > 0.0, across[p] / pivot, 0.0),)
        new_right = new_right + (right[p] - scaled[p] * correlation,)
    for p in tl.static_range(PARTS):
        for q in tl.static_range(PARTS):
            new_system = new_system + (system[p * PARTS + q] - scaled[p][:, None] * across[q][None, :],)
    return new_right, new_system


def fits(problem: Problem) -> bool:
    """Whether the sizes are within reach; with a tolerance most codes are, whatever the number of non-zeros."""
    is_short = problem.n_nonzero <= LARGEST_NONZERO or problem.residual_tol >= 0.0
    return problem.correlations.shape[1] <= LARGEST_WIDTH and is_short


class _Plan(NamedTuple):
    """How `_choose_kernel` runs."""

    block: int
    n_parts: int
    rows: int  # that are summed at a time
    held: int  # that stay in registers
    warps: int  # of a program
    per_core: int  # programs on a multiprocessor


def _plan(n_atoms: int, n_nonzero: int, dtype: torch.dtype, row_dtype: torch.dtype, n_cores: int) -> _Plan:
    """As many programs as the registers hold, or fewer with more warps where the cache is too small for their rows."""
    block, n_parts = parts_of(n_atoms)
    width = block * n_parts
    words = width * dtype.itemsize // 4
    warps = min(MOST_WARPS, triton.next_power_of_2(triton.cdiv(words, 1280)))
    resident = max(1, min(MOST_PROGRAMS, RESIDENT_WORDS // min(words, 1024 * warps)))
    rows = 4 if width <= (10240 if row_dtype == torch.float16 else 8192) else 2
    if resident * n_nonzero * n_cores * width * row_dtype.itemsize <= CACHED_BYTES:
        return _Plan(block, n_parts, rows, 0, warps, resident)
    if resident == 1:
        return _Plan(block, n_parts, rows, _n_held(width, rows, warps, row_dtype), warps, 1)
    if n_parts == 7:
        # Divided by more warps, parts this short would leave a thread one number of each.
        block, n_parts, width = 8 * block, 1, 8 * block
    # Programs that the cache has no room for leave registers, which hold rows in their place.
    for per_core in range(resident - 1, 0, -1):
        warps = max(1, min(MOST_WARPS >> (per_core.bit_length() - 1), block // 64))
        held = min(_n_held(width, rows, warps, row_dtype), n_nonzero // rows * rows)
        n_bytes = per_core * (n_nonzero - held) * n_cores * width * row_dtype.itemsize
        if per_core * warps <= MOST_WARPS and n_bytes <= CACHED_BYTES_BESIDE_HELD:
            break
    return _Plan(block, n_parts, rows, held, warps, per_core)


def _n_held(width: int, rows: int, warps: int, row_dtype: torch.dtype) -> int:
    """Rows that the registers of a program hold."""
    if row_dtype != torch.float16 or rows < 4:
        return 0
    return min(MOST_HELD, HELD_NUMBERS // max(1, width // (32 * warps)) // rows * rows)


def _n_cores(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _choose(problem: Problem, row_dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The chosen atoms (c, s) in order, and their counts (c,)."""
    n_signals, n_atoms = problem.correlations.shape
    dtype, device, n_nonzero = problem.correlations.dtype, problem.correlations.device, problem.n_nonzero
    n_cores = _n_cores(device)
    block, n_parts, rows, held, warps, per_core = _plan(n_atoms, n_nonzero, dtype, row_dtype, n_cores)
    width = block * n_parts
    n_programs = max(1, min(n_signals, n_cores * per_core))
    # Rows of the scratch that no step has written must be finite.
    scratch = torch.zeros((n_programs, n_nonzero + rows, width), dtype=row_dtype, device=device)
    projections = torch.zeros((n_programs, n_nonzero + rows), dtype=dtype, device=device)
    chosen = torch.empty((n_signals, n_nonzero), dtype=torch.int32, device=device)
    counts = torch.empty(n_signals, dtype=torch.int32, device=device)
    is_half = row_dtype != dtype
    floor, row_eps = torch.finfo(dtype).eps ** 0.5, torch.finfo(row_dtype).eps
    with on_device(device):
        _choose_kernel[(n_programs,)](
            # Rows of the Gram matrix begin at multiples of a vector and need no mask.
            *kernel_input(problem._replace(gram=widened(problem.gram, width))),
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
            HELD=held,
            OLS=problem.ols,
            HAS_LIMIT=problem.residual_tol >= 0.0,
            IS_HALF=is_half,
            num_warps=warps,
        )
    return chosen, counts


def _blocks_of(n_nonzero: int) -> tuple[int, int]:
    """Side of a system's blocks, and their number in a row: between powers of two several small ones."""
    for side, n_parts in ((16, 1), (32, 1), (16, 3), (64, 1), (16, 5), (32, 3)):
        if n_nonzero <= side * n_parts:
            return side, n_parts
    return 128, 1


def _solve(problem: Problem, chosen: torch.Tensor, counts: torch.Tensor) -> Parts:
    """Counts, indices, values and residuals of the chosen atoms; counts below zero where the code is not complete."""
    n_signals, n_atoms = problem.correlations.shape
    dtype, device = problem.correlations.dtype, problem.correlations.device
    side, n_parts = _blocks_of(problem.n_nonzero)
    steps = side * n_parts
    found = counts, *problem.empty_parts()[1:]
    n_programs = max(1, min(n_signals, MOST_PROGRAMS * _n_cores(device)))
    lines = torch.empty((n_programs, 4, steps), dtype=dtype, device=device)
    orders = torch.empty((n_programs, steps), dtype=torch.int32, device=device)
    with on_device(device):
        _solve_kernel[(n_programs,)](
            *kernel_input(problem),
            chosen,
            *found,
            lines,
            orders,
            n_signals,
            n_atoms,
            problem.gram.stride(0),
            NONZERO=problem.n_nonzero,
            SIDE=side,
            PARTS=n_parts,
            BLOCK=min(side, 32),
            # As few as hold the system in their registers.
            num_warps=max(1, triton.next_power_of_2(triton.cdiv(steps * steps, 4096))) * dtype.itemsize // 4,
            **stopping_rules(problem),
        )
    return found


def pursue(problem: Problem) -> Parts:
    """What `rkdl._backends.torch.pursuit.pursue` finds; codes that the kernels cannot complete are found on the CPU."""
    dtype, n_nonzero = problem.correlations.dtype, problem.n_nonzero
    problem = problem._replace(correlations=problem.correlations.contiguous(), gram=problem.gram.contiguous())
    short = problem._replace(n_nonzero=min(n_nonzero, LARGEST_NONZERO))
    parts = _solve(short, *_choose(short, torch.float32 if dtype == torch.float64 else torch.float16))

    def repeat(is_open: torch.Tensor, whole: Problem, work: Callable[[Problem], Parts]) -> None:
        rows = torch.nonzero(is_open)[:, 0]
        given = whole._replace(correlations=whole.correlations[rows], squared_norms=whole.squared_norms[rows])
        for part, new in zip(parts, work(given), strict=True):
            part[rows] = new

    is_open = parts[0] < 0
    if is_open.any():
        repeat(is_open, short, lambda given: _solve(given, *_choose(given, dtype)))
        is_open = parts[0] < 0
    if short.n_nonzero < n_nonzero:
        counts, indices, values, residuals = parts
        is_open |= (counts == short.n_nonzero) & (residuals > problem.residual_tol)
        parts = counts, widened(indices, n_nonzero), widened(values, n_nonzero), residuals
    if is_open.any():
        repeat(is_open, problem, pursue_on_host)
    return parts
