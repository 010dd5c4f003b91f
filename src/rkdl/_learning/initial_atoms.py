"""The first atoms: given, at random, or signals that represent the others (randomly pivoted Cholesky)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from rkdl._backends.arrays import host
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._features.maps import FeatureMap, KernelMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array

INITS = ("auto", "gradient", "rpcholesky", "data", "random")

# Pivots are drawn from a sample of PIVOT_SAMPLE signals, or SAMPLES_PER_PIVOT each; their number is bounded, because a
# pivot costs as much as all before it together.
PIVOT_SAMPLE, SAMPLES_PER_PIVOT, MOST_PIVOTS = 1000, 4, 256

# The squared norms (s,) of a sample in feature space, and a function of i: its products (s,) with signal i.
Products = tuple[np.ndarray, Callable[[int], np.ndarray]]


def draw_pivots(
    diagonal: np.ndarray, column: Callable[[int], np.ndarray], count: int, rng: np.random.RandomState
) -> list[int]:
    """Up to `count` pivots of the positive semidefinite matrix with this diagonal, whose column i is ``column(i)``.

    Each is drawn with a probability proportional to its residual; fewer if no residual is left. The dtype of
    the diagonal decides what counts as zero.
    """
    pivots: list[int] = []
    residuals = diagonal.astype(np.float64)
    # The residual of a signal in the span of the pivots is rounding, and must not affect the draw.
    negligible = float(np.finfo(diagonal.dtype).eps) ** 0.75 * residuals
    factor = np.zeros((count, len(residuals)))
    for step in range(count):
        residuals[residuals < negligible] = 0.0
        total = float(residuals.sum())
        if not np.isfinite(total):
            raise NotFiniteError
        if total == 0.0:
            break
        # As `rng.choice` draws, which checks its probabilities at length.
        shares = (residuals / total).cumsum()
        pivot = int(shares.searchsorted(rng.random_sample() * shares[-1], side="right"))
        own = column(pivot).astype(np.float64)
        own -= factor[:step, pivot] @ factor[:step]
        own /= np.sqrt(own[pivot]) if own[pivot] > 0.0 else 1.0
        factor[step] = own
        residuals -= own * own
        residuals[pivot] = 0.0
        pivots.append(pivot)
    return pivots


def draw_others(size: int, chosen: list[int], count: int, rng: np.random.RandomState) -> list[int]:
    """Random indices below `size` that complete the chosen ones to `count`."""
    rest = np.setdiff1d(np.arange(size), chosen)
    return [int(t) for t in rng.choice(rest, count - len(chosen), replace=False)]


def first_signals(
    init: str, signals: Signals, count: int, rng: np.random.RandomState, products: Callable[[np.ndarray], Products]
) -> np.ndarray:
    """Indices of the `count` signals that become the first atoms; of all if there are fewer.

    By randomly pivoted Cholesky in feature space ("rpcholesky"), where `products` are those of a sample's indices, or
    uniformly at random ("data"), as all beyond the pivots are.
    """
    n_signals = signals.shape[0]
    count = min(count, n_signals)
    if init == "data":
        return rng.choice(n_signals, count, replace=False)
    n_pivots = min(count, MOST_PIVOTS)
    few = min(n_signals, max(PIVOT_SAMPLE, SAMPLES_PER_PIVOT * n_pivots))
    sample = rng.choice(n_signals, max(few, count), replace=False)
    # Of all that become atoms, a product with every pivot would take longer than learning them.
    sample[:few] = np.sort(sample[:few])
    chosen = draw_pivots(*products(sample[:few]), n_pivots, rng)
    chosen += draw_others(len(sample), chosen, count, rng)
    return sample[chosen]


def initial_atoms(
    init: str | ArrayLike,
    n_atoms: int,
    feature_map: FeatureMap,
    metric: Metric | IdentityMetric,
    signals: Signals,
    rng: np.random.RandomState,
) -> Array:
    """First atoms (n_atoms, r), whitened: by a rule, Gaussian where there are fewer signals, or those of an array."""
    shape = (n_atoms, feature_map.size)
    if not isinstance(init, str):
        attribute = "dual_components_" if isinstance(feature_map, KernelMap) else "components_"
        return metric.whiten_combinations(given_atoms(init, shape, attribute))
    atoms = metric.whiten_combinations(rng.standard_normal(shape))
    if init != "random":

        def coordinates(indices: np.ndarray) -> np.ndarray:
            return metric.whiten(feature_map.features(signals.take(indices)).astype(np.float64))

        def products(sample: np.ndarray) -> Products:
            rows = coordinates(sample)
            return np.einsum("ij,ij->i", rows, rows), lambda i: rows @ rows[i]

        chosen = first_signals(init, signals, n_atoms, rng, products)
        found, observed = coordinates(chosen), feature_map.observed(signals.take(chosen))
        if observed is not None:
            # Where an atom is zero, signals that are known elsewhere could be predicted without bound.
            sizes = (found**2).sum(axis=1, keepdims=True) / observed.sum(axis=1, keepdims=True).clip(min=1)
            found = np.where(observed, found, np.sqrt(sizes) * atoms[: len(found)])
        atoms[: len(found)] = found
    return atoms


def given_atoms(init: ArrayLike, shape: tuple[int, int], attribute: str) -> np.ndarray:
    """First atoms from an array, which has the shape of a fitted attribute."""
    array: np.ndarray = check_array(well_formed(host(init), "init"), dtype=np.float64, input_name="init", copy=True)
    if array.shape != shape:
        raise ValueError(f"init has shape {array.shape}, expected that of {attribute}, {shape}: one atom per row.")
    return array
