"""Sparse coding of signals with missing numbers: rkdl and SPAMS, and what is predicted.

Run with ``python -m benchmarks.missing [--write]``. Half of the numbers of noisy sums of S atoms are missing, of every
signal others or, "shared", those of one of 20 patterns. Errors are shares of the energy that is known, and of that
which is missing. One thread, and the processor's time, the shortest of several runs of both in turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.pages import put
from rkdl import sparse_encode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "codes-results.md"
S, REPEATS, PATTERNS, NOISE = 5, 7, 20, 0.05
SIZES = {"5,000 x 64, 256 atoms": (5_000, 64, 256), "1,000 x 256, 1,024 atoms": (1_000, 256, 1_024)}


def problem(n_signals: int, n_features: int, n_atoms: int, *, shared: bool) -> tuple[np.ndarray, ...]:
    """Signals, where they are known, and the dictionary, in float32."""
    rng = np.random.default_rng(0)
    D = rng.standard_normal((n_atoms, n_features))
    D /= np.linalg.norm(D, axis=1, keepdims=True)
    X = NOISE * rng.standard_normal((n_signals, n_features))
    for row in X:
        row += rng.standard_normal(S) @ D[rng.choice(n_atoms, S, replace=False)]
    known = rng.random(X.shape) < 0.5
    if shared:
        known = known[rng.integers(0, PATTERNS, n_signals)]
    return X.astype(np.float32), known, D.astype(np.float32)


def measured(size: str, *, shared: bool) -> Iterator[tuple[str, float, list[float]]]:
    """Every library, its microseconds per signal, and the two errors."""
    import spams

    X, known, D = problem(*SIZES[size], shared=shared)
    holes, parts = np.where(known, X, np.nan), [np.asfortranarray(part.T) for part in (X, D, known)]
    options = {"missing": "ignore", "pursuit": "omp", "n_jobs": 1, "sparse_output": True}
    # Without eps, SPAMS compares with what happens to be in memory.
    encoders = {
        "rkdl": lambda: sparse_encode(holes, D, n_nonzero_coefs=S, **options),
        "SPAMS": lambda: spams.ompMask(*parts, L=S, eps=0.0, numThreads=1).T,
    }
    codes = {library: encode() for library, encode in encoders.items()}
    seconds: dict[str, list[float]] = {library: [] for library in encoders}
    for _ in range(REPEATS):
        for library, encode in encoders.items():
            start = time.process_time()
            encode()
            seconds[library].append(time.process_time() - start)
    for library, found in codes.items():
        left = (X - found @ D) ** 2
        errors = [float(left[part].sum() / (X[part] ** 2).sum()) for part in (known, ~known)]
        yield library, min(seconds[library]) / len(X) * 1e6, errors


def table() -> Iterator[str]:
    """Lines of the table."""
    yield "| signals | missing | library | microseconds per signal | error of what is known | of what is missing |"
    yield "|---|---|---|---|---|---|"
    for size in SIZES:
        for kind in ("each", "shared"):
            for library, microseconds, errors in measured(size, shared=kind == "shared"):
                shares = " | ".join(f"{error:.1%}" for error in errors)
                yield f"| {size} | {kind} | {library} | {microseconds:.3g} | {shares} |"


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/codes-results.md")
    arguments = parser.parse_args(argv)
    with threadpool_limits(1):
        lines = list(table())
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "missing", ["", *lines, ""])


if __name__ == "__main__":
    main()
