"""Error and time of every kind of codes against the number of non-zeros, as a picture and a Markdown table.

Run with ``python -m benchmarks.coders [--write]``. Signals are patches of the sample images, the dictionaries other
patches: with their means removed for codes of any sign, as they are for non-negative ones, where every signal is a sum
of parts. For L1, the errors are of its own codes, and of least squares on their support. ``--write`` puts picture and
table into docs/codes-results.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from threadpoolctl import threadpool_limits

from benchmarks.environment import THREADS
from benchmarks.pages import put
from rkdl import sparse_encode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "codes-results.md"
PICTURE = PAGE.parent / "images" / "coders.png"
NON_ZEROS = (1, 2, 3, 4, 6, 8, 12, 16)
SHOWN = (2, 4, 8, 16)
N_SIGNALS, N_ATOMS, PATCH = 2_000, 256, 8
N_TIMED, REPEATS = 500, 41  # short runs, which other processes rarely interrupt
REFITTED = 500  # signals with least squares on the support
GREEDY = {"OMP": {"pursuit": "omp"}, "OLS": {}, "non-negative OLS": {"positive_code": True}}
PENALISED = {"L1": {}, "non-negative L1": {"positive_code": True}}
COLORS = {"OMP": "C0", "OLS": "C1", "L1": "C2"}


class Point(NamedTuple):
    """Non-zeros per signal, share of the energy lost, that lost by least squares on the support, microseconds."""

    n_nonzero: float
    left: float
    refitted: float
    microseconds: float


def patches(*, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Signals, and a dictionary of other patches, all grey and float32."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    found = []
    for image in load_sample_images().images:
        windows = sliding_window_view(image.mean(axis=2) / 255.0, (PATCH, PATCH)).reshape(-1, PATCH * PATCH)
        found.append(windows[rng.choice(len(windows), 2 * N_SIGNALS, replace=False)])
    rows = np.concatenate(found).astype(np.float32)
    rows = rows - rows.mean(axis=1, keepdims=True) if centred else rows
    rows = rng.permutation(rows[np.linalg.norm(rows, axis=1) > 0.1])
    return rows[:N_SIGNALS], rows[N_SIGNALS : N_SIGNALS + N_ATOMS]


def measure(X: np.ndarray, D: np.ndarray, **options) -> Point:
    """Codes; the time is the shortest of several runs on a part of the signals."""
    codes, seconds = sparse_encode(X, D, n_jobs=1, sparse_output=True, **options), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        sparse_encode(X[:N_TIMED], D, n_jobs=1, sparse_output=True, **options)
        seconds.append(time.perf_counter() - start)
    wide = D.astype(float)
    squares = np.sum((X - codes.astype(float) @ wide) ** 2, axis=1)
    refitted = 0.0
    for x, start, stop in zip(X[:REFITTED], codes.indptr, codes.indptr[1:], strict=False):
        support = wide[codes.indices[start:stop]]
        refitted += np.sum((x - np.linalg.lstsq(support.T, x, rcond=None)[0] @ support) ** 2)
    left = squares.sum() / np.sum(X.astype(float) ** 2)
    return Point(codes.nnz / len(X), left, left * refitted / squares[:REFITTED].sum(), min(seconds) / N_TIMED * 1e6)


def with_penalty(X: np.ndarray, D: np.ndarray, n_nonzero: int, **options) -> Point:
    """L1 with the penalty that leaves this many non-zeros, to a few percent."""
    low, high = 1e-4, 10.0
    for _ in range(18):
        alpha = (low * high) ** 0.5
        nnz = sparse_encode(X[:500], D, pursuit="lasso", alpha=alpha, sparse_output=True, **options).nnz
        low, high = (alpha, high) if nnz > 500 * n_nonzero else (low, alpha)
    return measure(X, D, pursuit="lasso", alpha=high, **options)


def curves() -> Iterator[tuple[str, list[Point]]]:
    """Every coder with its points, one per number of non-zeros."""
    for name, options in {**GREEDY, **PENALISED}.items():
        X, D = patches(centred="positive_code" not in options)
        D /= np.linalg.norm(D, axis=1, keepdims=True)
        if name in GREEDY:
            yield name, [measure(X, D, n_nonzero_coefs=s, **options) for s in NON_ZEROS]
        else:
            yield name, [with_penalty(X, D, s, **options) for s in NON_ZEROS]


def plot(found: dict[str, list[Point]], path: Path) -> None:
    """Error and time against the number of non-zeros, signals of either sign left and non-negative ones right."""
    import matplotlib.pyplot as plt

    import rkdl.plotting  # noqa: F401 (registers the style)

    with plt.style.context("rkdl.figures"):
        figure, axes = plt.subplots(2, 2, figsize=(9.0, 5.6), layout="constrained", sharex=True, sharey="row")
        for name, points in found.items():
            column = int(name.startswith("non-negative"))
            own, color = np.array(points), COLORS[name.rsplit(" ", 1)[-1]]
            for row, values in enumerate((100.0 * own[:, 1], own[:, 3])):
                axes[row, column].plot(own[:, 0], values, marker="o", color=color, label=name)
            if name in PENALISED:
                axes[0, column].plot(own[:, 0], 100 * own[:, 2], "o--", color=color, label=f"{name}, refitted")
        for ax, title in zip(axes[0], ("patches without their mean", "patches as they are"), strict=True):
            ax.set(title=title, yscale="log")
            ax.legend()
        for ax in axes[1]:
            ax.set(xlabel="non-zeros per signal", ylim=(0.0, None))
        axes[0, 0].set_ylabel("energy lost (%)")
        axes[1, 0].set_ylabel("microseconds per signal")
        figure.savefig(path)
    plt.close(figure)


def table(found: dict[str, list[Point]]) -> Iterator[str]:
    """Lines of the table: energy lost, and time, at some numbers of non-zeros."""
    columns = " | ".join(f"energy lost, {s} non-zeros" for s in SHOWN)
    yield f"| codes | {columns} | microseconds, {SHOWN[1]} and {SHOWN[-1]} |"
    yield "|---" * (len(SHOWN) + 2) + "|"
    for name, points in found.items():
        own = dict(zip(NON_ZEROS, points, strict=True))
        times = " and ".join(f"{own[s].microseconds:.2g}" for s in (SHOWN[1], SHOWN[-1]))
        yield f"| {name} | {' | '.join(f'{own[s].left:.1%}' for s in SHOWN)} | {times} |"
        if name in PENALISED:
            yield f"| {name}, refitted | {' | '.join(f'{own[s].refitted:.1%}' for s in SHOWN)} | |"


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coders", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put picture and table into docs/codes-results.md")
    arguments = parser.parse_args(argv)
    with threadpool_limits(THREADS):
        found = dict(curves())
    lines = list(table(found))
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "coders", ["", *lines, ""])
        plot(found, PICTURE)


if __name__ == "__main__":
    main()
