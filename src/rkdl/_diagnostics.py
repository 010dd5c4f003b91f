"""What is seen in a fit that learns nothing useful, and what to do about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkdl._kernels import RBF, Custom, Kernel, Linear, median_gamma
from rkdl._warn import warn

# Where nine tenths of all pairs are this similar, up to this, the kernel is flat: float32 cannot tell them apart.
FLAT = 1e-3
# Where half of the signals have no other one of this similarity, the kernel is nearly the identity.
ALONE = 1e-2
# A share of signals without a code, and of kernel vectors that depend on the others, that is worth a word.
EMPTY_SHARE = DEPENDENT_SHARE = 0.5


def similarities(matrix: np.ndarray) -> np.ndarray:
    """``k(x, y) / sqrt(k(x, x) k(y, y))`` from the kernel matrix of a sample; 0 where a signal has norm zero."""
    lengths = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
    found: np.ndarray = matrix * inverse * inverse[:, None]
    return found


def is_flat(matrix: np.ndarray) -> bool:
    """Whether a kernel hardly tells the signals of a sample apart, by their kernel matrix."""
    if len(matrix) < 3 or not np.isfinite(matrix).all():
        return False
    pairs = similarities(matrix)[np.triu_indices(len(matrix), k=1)]
    return bool(np.quantile(1.0 - pairs, 0.9) < FLAT)


def is_identity(matrix: np.ndarray) -> bool:
    """Whether a kernel sees hardly any similarity between the signals of a sample, by their kernel matrix."""
    if len(matrix) < 3 or not np.isfinite(matrix).all():
        return False
    others = np.abs(similarities(matrix))
    np.fill_diagonal(others, 0.0)
    return bool(np.median(others.max(axis=1)) < ALONE)


def check_kernel(kernel: Kernel, sample: np.ndarray) -> None:
    """Warn of a kernel that is nearly constant, or nearly the identity, on a sample of the signals.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    sample : ndarray of shape (n_sample, n_features)
        Signals; zeros and copies of one another do not count.
    """
    if isinstance(kernel, Linear):
        return
    rows = np.unique(sample[np.any(sample, axis=1)], axis=0).astype(np.float64)
    if len(rows) < 3:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = kernel(rows, rows)
    if is_flat(matrix):
        warn(
            f"The kernel is nearly constant on a sample of the signals (nine tenths of all pairs differ by less than "
            f"{FLAT}): every signal looks the same to it, and any error is small. {_remedy(kernel, rows, 'small')}"
        )
    elif isinstance(kernel, RBF | Custom) and is_identity(matrix):
        warn(
            f"The kernel is nearly the identity on a sample of the signals (half of them have no other one with a "
            f"value above {ALONE}): atoms represent little but themselves. {_remedy(kernel, rows, 'large')}"
        )


def _remedy(kernel: Kernel, sample: np.ndarray, fault: str) -> str:
    if isinstance(kernel, RBF):
        ratio = median_gamma(sample) / kernel.gamma
        return f"gamma is too {fault} for them: gamma='median' would be {ratio:.1g} times it."
    if isinstance(kernel, Custom):
        return "Change the kernel's width, or scale the signals."
    return "Raise gamma, lower coef0, or scale the signals."


def check_codes(name: str, n_empty: int, n_signals: int, residual_tol: float | None, places: str | None) -> None:
    """Warn where many signals have no code.

    Parameters
    ----------
    name : str
        Of the estimator.
    n_empty, n_signals : int
        Signals that are not zero and whose code is, and signals in all.
    residual_tol : float or None
        The user's.
    places : str or None
        What the signals are compared with by a kernel; None without one.
    """
    share = n_empty / max(1, n_signals)
    if share <= EMPTY_SHARE:
        return
    if residual_tol is not None:
        cause = f"residual_tol={residual_tol} is not below their squared norm in feature space: lower it."
    elif places is not None:
        other = "choose kernel_vectors='kmeans'" if places == "kernel vectors" else "use more atoms"
        cause = (
            f"the kernel between them and the {places} vanishes. Lower gamma, scale the signals, leave out extreme "
            f"ones, or {other}."
        )
    else:
        cause = "they are orthogonal to every atom. Use more atoms, or init='rpcholesky'."
    warn(f"{name}: {share:.0%} of the signals have a code of zeros: {cause}")


def check_rank(name: str, rank: int, n_vectors: int, dtype: Any) -> None:
    """Warn where most kernel vectors depend on the others.

    Parameters
    ----------
    name : str
        Of the estimator.
    rank, n_vectors : int
        Rank of the kernel matrix of the kernel vectors, and their number.
    dtype : dtype
        Of the signals: what counts as independent.
    """
    if rank < DEPENDENT_SHARE * n_vectors:
        remedy = " or give the signals in float64" if np.dtype(dtype) == np.float32 else ""
        warn(
            f"{name}: of {n_vectors} kernel vectors only {rank} are independent in {np.dtype(dtype).name} (rank_), and "
            f"the others add nothing. Use fewer kernel vectors{remedy}."
        )
