"""The pursuit with many non-zeros or atoms as a Triton kernel: the factor's rows stream through the cache.

A fixed number of programs codes one signal after another, each with a scratch of its own for the factor's rows, so that
the scratch is reused and stays in the L2 cache. The rows are stored in half the signals' precision: the choice of atoms
is all that sees them. Entries of the factor, projections, residuals and the stopping rules come from the Gram matrix,
by the inverse of the triangular factor, in full precision.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.triton_kernels import first_of_largest, limit_on, on_device

# Bytes that the factor's rows of all programs may take.
SCRATCH_BYTES = 1 << 31
# Beyond these a program's vectors, or its triangular factor, are far too large for its registers.
LARGEST_WIDTH, LARGEST_NONZERO = 65_536, 128


@triton.jit
def _streamed_kernel(
    correlations,
    gram,
    squared_norms,
    limit,
    indices,
    values,
    counts,
    residuals,
    scratch,
    inverses,
    weights,
    orders,
    n_signals,
    n_atoms,
    n_columns,
    gram_stride,
    FLOOR: tl.constexpr,
    NOISE: tl.constexpr,
    NONZERO: tl.constexpr,
    STEPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    OLS: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
):
    columns = tl.arange(0, WIDTH)
    inside = columns < n_atoms
    # Whole vectors of the scratch: what lies beyond is neither read nor written.
    is_stored = columns < n_columns
    steps = tl.arange(0, STEPS)
    dtype = correlations.dtype.element_ty
    tolerance = tl.load(limit)
    program = tl.program_id(0).to(tl.int64)
    own_rows = scratch + program * STEPS * WIDTH
    own_weights = weights + program * STEPS
    own_order = orders + program * STEPS
    inverse = inverses + program * STEPS * STEPS
    for t in range(program, n_signals, tl.num_programs(0)):
        own = correlations + t * n_atoms
        a = tl.load(own + columns, mask=inside, other=0.0)
        u = tl.full((WIDTH,), 1.0, dtype)
        residual = tl.load(squared_norms + t)
        b, most = first_of_largest(a * a, columns, WIDTH)
        chosen = tl.full((STEPS,), 0, tl.int32)
        # Coefficients of the atoms chosen so far.
        solution = tl.zeros((STEPS,), dtype)
        smallest = tl.full((), 1.0, dtype)
        threshold = tl.full((), 0.0, dtype)
        k = 0
        is_alive = (residual > tolerance) & (most > 0)
        while is_alive:
            crossed = tl.load(gram + chosen.to(tl.int64) * gram_stride + b, mask=steps < k, other=0.0)
            correlation = tl.load(own + b) - tl.sum(crossed * solution, axis=0)
            square = correlation * correlation
            norm = tl.full((), 1.0, dtype)
            combined = tl.zeros((STEPS,), dtype)
            for start in range(0, k, BLOCK):
                taken = start + tl.arange(0, BLOCK)
                is_known = (taken < k)[:, None] & (steps[None, :] <= taken[:, None])
                triangle = tl.load(inverse + taken[:, None] * STEPS + steps[None, :], mask=is_known, other=0.0)
                entries = tl.sum(triangle * crossed[None, :], axis=1)
                tl.store(own_weights + taken, entries)
                norm -= tl.sum(entries * entries, axis=0)
                combined += tl.sum(entries[:, None] * triangle, axis=0)
            # An atom in the span of those chosen is passed over.
            if norm > FLOOR:
                is_alive = square * smallest > threshold
                if is_alive:
                    if k == 0:
                        threshold = square * NOISE
                    smallest = tl.minimum(smallest, norm)
                    root = 1.0 / tl.sqrt(norm)
                    projection = correlation * root
                    residual -= projection * projection
                    combined = tl.where(steps == k, root, -root * combined)
                    tl.store(inverse + k * STEPS + steps, combined, mask=steps <= k)
                    solution += projection * combined
                    chosen = tl.where(steps == k, b, chosen)
                    tl.debug_barrier()
                    if k + 1 < NONZERO:
                        row = tl.load(gram + b.to(tl.int64) * gram_stride + columns, mask=inside, other=0.0)
                        n_tiles = (k + ROWS - 1) // ROWS
                        for i in range(n_tiles):
                            # There and back, so that the rows read last are in the cache when the next step begins.
                            tile = tl.where(k % 2 == 0, i, n_tiles - 1 - i)
                            # The weights of rows after the last are zero.
                            taken = tile * ROWS + tl.arange(0, ROWS)
                            places = own_rows + taken[:, None] * WIDTH + columns[None, :]
                            rows = tl.load(places, mask=is_stored[None, :], other=0.0)
                            row -= tl.sum(tl.load(own_weights + taken)[:, None] * rows.to(dtype), axis=0)
                        row *= root
                        tl.store(own_rows + k * WIDTH + columns, row.to(scratch.dtype.element_ty), mask=is_stored)
                        a -= projection * row
                        u -= row * row
                    k += 1
                    is_alive = k < NONZERO
                    if HAS_LIMIT:
                        is_alive = is_alive & (residual > tolerance)
            if is_alive:
                u = tl.where(columns == b, 0.0, u)
                scores = a * a
                if OLS:
                    scores = scores / u
                b, most = first_of_largest(tl.where(u > FLOOR, scores, 0.0), columns, WIDTH)
                is_alive = most > 0
            tl.debug_barrier()
        # Indices ascending; atoms that were not taken come last.
        order = tl.where(steps < k, chosen, n_atoms + steps)
        tl.store(own_order + steps, order)
        tl.debug_barrier()
        places = tl.zeros((STEPS,), tl.int32)
        for start in range(0, NONZERO, BLOCK):
            others = tl.load(own_order + start + tl.arange(0, BLOCK))
            places += tl.sum((others[None, :] < order[:, None]).to(tl.int32), axis=1)
        target = t * NONZERO + places
        tl.store(indices + target, tl.where(steps < k, chosen, 0), mask=steps < NONZERO)
        tl.store(values + target, solution, mask=steps < NONZERO)
        tl.store(counts + t, k)
        tl.store(residuals + t, tl.maximum(residual, 0.0))
        tl.debug_barrier()


def fits(n_atoms: int, n_nonzero: int) -> bool:
    """Whether the sizes are within reach."""
    return n_atoms <= LARGEST_WIDTH and n_nonzero <= LARGEST_NONZERO


def _warps_for(width: int, itemsize: int) -> int:
    """Warps of a program: a thread's share of a row is a few vectors."""
    warps = {2048: 4, 4096: 4}.get(width, min(16, max(1, width // (512 if width < 2048 else 1024))))
    return warps * itemsize // 4


def pursue(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Indices and values (c, s) ascending and padded by zeros, counts (c,) and squared residuals (c,)."""
    n_signals, n_atoms = correlations.shape
    dtype, device = correlations.dtype, correlations.device
    half = torch.float32 if dtype == torch.float64 else torch.float16
    width, steps = max(32, triton.next_power_of_2(n_atoms)), max(16, triton.next_power_of_2(n_nonzero))
    warps = _warps_for(width, correlations.element_size())
    row_bytes = steps * width * half.itemsize
    n_cores = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    n_programs = min(n_signals, n_cores * max(1, min(16 // warps, SCRATCH_BYTES // (n_cores * row_bytes))))
    # Rows that no step has written must be finite.
    scratch = torch.zeros((n_programs, steps, width), dtype=half, device=device)
    inverses = torch.empty((n_programs, steps, steps), dtype=dtype, device=device)
    weights = torch.empty((n_programs, steps), dtype=dtype, device=device)
    orders = torch.empty((n_programs, steps), dtype=torch.int32, device=device)
    indices = torch.empty((n_signals, n_nonzero), dtype=torch.int32, device=device)
    values = torch.empty((n_signals, n_nonzero), dtype=dtype, device=device)
    counts = torch.empty(n_signals, dtype=torch.int32, device=device)
    residuals = torch.empty(n_signals, dtype=dtype, device=device)
    eps = torch.finfo(dtype).eps
    with on_device(device):
        _streamed_kernel[(n_programs,)](
            correlations.contiguous(),
            gram,
            squared_norms,
            limit_on(residual_tol, dtype, device),
            indices,
            values,
            counts,
            residuals,
            scratch,
            inverses,
            weights,
            orders,
            n_signals,
            n_atoms,
            triton.cdiv(n_atoms, 16) * 16,
            gram.stride(0),
            FLOOR=eps**0.5,
            NOISE=(8.0 * eps) ** 2,
            NONZERO=n_nonzero,
            STEPS=steps,
            WIDTH=width,
            ROWS=8 if warps == 2 or steps >= 128 else 4,
            BLOCK=min(steps, 16 * warps),
            OLS=ols,
            HAS_LIMIT=residual_tol >= 0.0,
            num_warps=warps,
        )
    return indices, values, counts, residuals
