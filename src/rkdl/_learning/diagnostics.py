"""Signs that a fit learns nothing useful, and remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpstrf

from rkdl._data.signals import Signals, is_safe
from rkdl._features.kernels import Kernel, Linear
from rkdl._features.kernels.inner_products import InnerProduct
from rkdl._features.kernels.radial import Radial
from rkdl._features.widths import median_gamma
from rkdl._utils.warnings import warn

if TYPE_CHECKING:
    from rkdl._learning.learn import Learned
    from rkdl._learning.specification import Specification

# The kernel is flat if nine tenths of all pairs have a similarity within this of one.
FLAT = 1e-3
# If a few signals of a sample leave less than this share of the others' energy, float32 has too few digits.
FINE = 1e-2
# The kernel is nearly the identity if half of the signals have no other one of at least this similarity.
ALONE = 1e-2
# Standard deviations between the quantiles .1 and .9 of a normal distribution.
INNER = 2.563
# Warn if more than this share of signals has no code, or of kernel vectors depends on the others.
EMPTY_SHARE = DEPENDENT_SHARE = 0.5
# Warn if fewer kernel vectors than this share are independent, however few atoms there are.
RARE_SHARE = 0.1


def needs_float64(matrix: np.ndarray, count: int) -> bool:
    """Whether float32 has too few digits for signals, by the matrix of inner products of a sample.

    What `count` of them leave of the others is a small difference of large numbers, or squares leave its range.
    """
    energy = float(matrix.diagonal().sum(dtype=np.float64))
    if len(matrix) < 3 or not np.isfinite(matrix).all() or energy <= 0.0:
        return False
    if not is_safe(energy / len(matrix), np.float32):
        return True
    count = min(count, len(matrix))
    factor, _, rank, _ = dpstrf(matrix.astype(np.float64), lower=1)
    return rank < count or energy - float((np.tril(factor)[:, :count] ** 2).sum()) < FINE * energy


def check_kernel(kernel: Kernel, sample: np.ndarray) -> None:
    """Warn of a kernel that is nearly constant, or nearly the identity, on a sample of signals; zeros do not count."""
    if isinstance(kernel, Linear):
        return
    # Without repetitions; zero has one sign.
    rows = np.array(list({row.tobytes(): row for row in sample[np.any(sample, axis=1)] + 0.0}.values()), np.float64)
    if len(rows) < 3:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = kernel(rows, rows)
    if not np.isfinite(matrix).all():
        return
    lengths = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    # k(x, y) / sqrt(k(x, x) k(y, y)); 0 where a signal has norm zero.
    lengths[lengths == 0.0] = np.inf
    pairs = matrix / lengths / lengths[:, None]
    others = np.abs(pairs)
    np.fill_diagonal(others, 0.0)
    if np.quantile(1.0 - pairs[np.triu_indices(len(rows), k=1)], 0.9) < FLAT:
        warn(
            f"The kernel is nearly constant on a sample of the signals (nine tenths of all pairs have a similarity "
            f"within {FLAT} of one): every signal looks the same to it, and any error is small. "
            f"{_remedy(kernel, rows, 'small')}"
        )
    elif not isinstance(kernel, InnerProduct) and np.median(others.max(axis=1)) < ALONE:
        warn(
            f"The kernel is nearly the identity on a sample of the signals (half of them have no other one with a "
            f"value above {ALONE}): atoms represent little but themselves. {_remedy(kernel, rows, 'large')}"
        )


def check_scales(kernel: Kernel, sample: np.ndarray) -> None:
    """Warn of columns whose spreads differ so much, tenfold or more, that few of them decide all distances.

    Columns that hardly vary, such as pixels at the border of images, do not count. Along curves and images the spread
    changes too, but slowly: in a table, some step from a column to the next is half of the whole range at least.
    """
    if not isinstance(kernel, Radial) or np.ndim(kernel._gamma):
        return
    rows = np.sort(sample.astype(np.float64), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # Of all values and of the inner ones, so that neither a gross outlier nor the tails of scaled columns count.
        spreads = np.stack([rows.std(axis=0), (rows[-1 - len(rows) // 10] - rows[len(rows) // 10]) / INNER])
    varies = (rows == rows[len(rows) // 2]).mean(axis=0) < 0.5
    columns = np.flatnonzero(varies & (spreads > 0.0).all(axis=0) & np.isfinite(spreads).all(axis=0))
    if len(columns) < 2:
        return
    levels = np.log10(spreads[:, columns])
    high = levels.min(axis=0).argmax()
    ratio = levels[:, high].min() - levels.max(axis=0).min()
    if ratio < 1.0 or np.abs(np.diff(levels, axis=1)).min(axis=0).max() < 0.5 * ratio:
        return
    # The same text in the folds of a cross-validation, so that it is shown once.
    warn(
        f"The columns of X have different scales: column {columns[high]} (counted from 0) varies more than ten times "
        f"as much as others, so few columns decide all distances. Scale the columns first, for example with "
        f"scikit-learn's StandardScaler (--standardize on the command line)."
    )


def _remedy(kernel: Kernel, sample: np.ndarray, fault: str) -> str:
    if isinstance(kernel, InnerProduct):
        return "Raise gamma, lower coef0, or scale the signals."
    if not isinstance(kernel, Radial):
        return "Change the kernel's width, or scale the signals."
    name, ratio = kernel._width_name, median_gamma(sample) / kernel._gamma
    if name != "gamma":
        fault, ratio = "large" if fault == "small" else "small", ratio**-0.5
    return f"{name} is too {fault} for them: {name}='median' would be {ratio:.1g} times it."


def check_learned(specification: Specification, signals: Signals, n_empty: int, learned: Learned, name: str) -> None:
    """Warn of a model that represents next to nothing, or of kernel vectors that depend on one another.

    `n_empty` of the signals are not zero and have a code of zeros.
    """
    features, pursuit, dtype = specification.features, specification.pursuit, signals.dtype
    n_signals, n_features = signals.shape
    if n_empty > EMPTY_SHARE * n_signals:
        cause = features.why_empty()
        if pursuit.has_penalty:
            cause = f"alpha={pursuit.alpha} is not below their products with the atoms: lower it."
        elif pursuit.rtol >= 1.0:
            cause = "rtol is 1 or more: lower it."
        elif pursuit.residual_tol >= 0.0:
            cause = f"residual_tol={pursuit.residual_tol} is not below their squared norm in feature space: lower it."
        warn(f"{name}: {n_empty / n_signals:.0%} of the signals have a code of zeros: {cause}")
    if learned.rank is None:
        return
    rank, count = learned.rank, learned.dictionary.feature_map.size
    # A linear kernel has no more dimensions than the signals.
    wanted = min(count, n_features) if learned.dictionary.feature_map.is_linear else count
    share, is_enough = rank / wanted, rank > DEPENDENT_SHARE * specification.n_atoms
    if share >= DEPENDENT_SHARE or (is_enough and share >= RARE_SHARE):
        return
    remedy = " or give the signals in float64" if dtype == np.float32 else ""
    warn(
        f"{name}: of {count} kernel vectors only {rank} {'is' if rank == 1 else 'are'} independent in {dtype.name} "
        f"(rank_), and the others add nothing. Use fewer kernel vectors{remedy}."
    )
