"""The alternating loop, and the learning problem of every method whose features fit a chunk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rkdl._atoms import aksvd_sweep, gram_sweep
from rkdl._descent import LinearTerm, Mover, Objective
from rkdl._kernels import Custom
from rkdl._maps import FeatureMap, KernelMap, LinearMap
from rkdl._metric import IdentityMetric, Metric
from rkdl._pursuit import Codes
from rkdl._signals import Walker
from rkdl._statistics import Compare, Kept, Learn, NotFiniteError, Pursuit, Residual, accumulate_gram


class Problem(Protocol):
    """What the loop asks of a learning problem."""

    walker: Walker
    objective: float
    n_revived: int

    def iterate(self) -> None:
        """One iteration: codes, atoms, kernel vectors; all or nothing."""


def alternate(
    problem: Problem, *, max_iter: int, tol: float, n_numbers: int, unit: float, verbose: int, name: str
) -> list[float]:
    """Iterate until the relative gain falls below `tol`; Ctrl-C ends it with what was learned so far.

    Parameters
    ----------
    problem : Problem
        Is left in the state of its last complete iteration.
    max_iter, tol : int, float
        Most iterations; least relative gain of the error.
    n_numbers : int
        ``m N``: the error is ``sqrt(f / (m N))``.
    unit : float
        What the features were multiplied by; the error is divided by it.
    verbose : int
        A progress bar if positive.
    name : str
        What the bar is called.

    Returns
    -------
    list of float
        The error after every iteration.
    """
    errors: list[float] = []
    with _progress(max_iter, verbose, name) as bar:
        try:
            for _ in range(max_iter):
                if problem.walker.is_interrupted:
                    raise KeyboardInterrupt
                revived_before = problem.n_revived
                problem.iterate()
                if not np.isfinite(problem.objective):
                    raise NotFiniteError
                errors.append(float(np.sqrt(max(problem.objective, 0.0) / n_numbers)) / unit)
                if bar is not None:
                    bar.set_postfix_str(f"error {errors[-1]:.4e}", refresh=False)
                    bar.update()
                if problem.n_revived == revived_before and _has_settled(errors, tol):
                    break
        except KeyboardInterrupt:
            warnings.warn(
                f"{name}: interrupted after {len(errors)} of {max_iter} iterations; the estimator holds what was "
                f"learned until then.",
                ConvergenceWarning,
                stacklevel=3,
            )
    return errors


def _has_settled(errors: list[float], tol: float) -> bool:
    """Whether two iterations together gained less than `tol`: one alone may be a greedy pursuit's whim."""
    return len(errors) > 2 and tol > 0.0 and min(errors[-2:]) >= (1.0 - tol) * min(errors[:-2])


@contextmanager
def _progress(total: int, verbose: int, name: str) -> Iterator[Any]:
    if not verbose:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=name, unit="iteration") as bar:
        yield bar


class ReducedProblem:
    """Dictionary learning on features: DL, FourierDL, RKDL, and with a mover ORKDL and MORKDL.

    Parameters
    ----------
    walker : Walker
        Walks the signals.
    feature_map, metric : FeatureMap, Metric
        The first feature map and its metric.
    white : ndarray of shape (n, rank)
        The first atoms in whitened coordinates; those of norm zero are revived after the first pursuit.
    pursuit : Pursuit
        How signals are coded.
    refit : bool
        The paper's sweep instead of the statistics' one.
    mover : Mover or None
        What moves the kernel vectors.
    linear : tuple of (float, Pursuit) or None
        Weight and pursuit of the linear term.

    Attributes
    ----------
    feature_map, metric : FeatureMap, Metric
        The current map and its metric.
    white : ndarray of shape (n, rank)
        Atoms in whitened coordinates, unit norm (or zero).
    objective : float
        ``f`` after the last iteration.
    n_revived : int
        Unused atoms replaced so far.
    """

    def __init__(
        self,
        walker: Walker,
        feature_map: FeatureMap,
        metric: Metric | IdentityMetric,
        white: np.ndarray,
        pursuit: Pursuit,
        *,
        refit: bool = False,
        mover: Mover | None = None,
        linear: tuple[float, Pursuit] | None = None,
    ) -> None:
        self.walker = walker
        self.feature_map = feature_map
        self.metric = metric
        self.white = normalize_rows(white)
        self.pursuit = pursuit
        self.refit = refit
        self.mover = mover
        self.linear = linear
        self.objective = np.inf
        self.n_revived = 0

    @property
    def atoms(self) -> np.ndarray:
        """Atoms (n, p) as combinations of the features' coordinates, unit norm in the metric."""
        return self.metric.unwhiten(self.white)

    def iterate(self) -> None:
        """Codes, atoms, kernel vectors, revival; the state changes only at the end."""
        dtype = self.walker.signals.dtype
        atoms = self.atoms.astype(dtype)
        gram = unit_gram(self.white).astype(dtype)
        step = Learn(self.feature_map, atoms, gram, self.pursuit)
        (products, projections, trace, _), kept = self.walker.run(step)

        feature_map, metric, white = self.feature_map, self.metric, self.white.copy()
        used = products.diagonal() > 0.0
        mover = self.mover if self.mover is not None and self.mover.n_steps > 0 else None
        targets = metric.whiten(projections)
        if self.refit:
            kept, products, objective = self._refit(kept, targets, white, trace)
        elif mover is None or not mover.projects_atoms:
            factors, objective = _sweep(products, targets, white, trace)
            products *= factors[:, None] * factors
            projections *= factors[:, None]
            kept = [item._replace(codes=_rescale(item.codes, factors)) for item in kept]

        if mover is not None:
            assert isinstance(feature_map, KernelMap)
            assert not isinstance(feature_map.kernel, Custom)
            atoms_before = metric.unwhiten(white)
            linear = self._linear_term(float(trace))
            surface = Objective(self.walker, kept, feature_map.kernel, products, float(trace), linear)
            if not mover.projects_atoms:
                surface.held_atoms = atoms_before
            point = mover.move(surface, surface.at(feature_map.kernel_vectors, None if self.refit else projections))
            feature_map, metric = replace(feature_map, kernel_vectors=point.vectors), point.metric
            if mover.projects_atoms:
                white = normalize_rows(metric.to_white(atoms_before))
                objective = _sweep(products, metric.whiten(point.projections), white, trace)[1]
            else:
                white = normalize_rows(metric.to_white(point.atoms), otherwise=metric.to_white(atoms_before))
                objective = point.value - (surface.linear.value(point.vectors) if surface.linear else 0.0)

        if isinstance(feature_map, LinearMap) and objective < 1e3 * float(np.finfo(dtype).eps) * trace:
            # The difference of squares has no digits left: take the residual itself.
            (objective,), _ = self.walker.run(Residual(white.astype(dtype)), kept)
        revived = self._revive(kept, used, feature_map, metric, white)
        self.feature_map, self.metric, self.white = feature_map, metric, white
        self.objective = float(objective)
        self.n_revived += revived

    def _refit(
        self, kept: list[Kept], targets: np.ndarray, white: np.ndarray, trace: float
    ) -> tuple[list[Kept], np.ndarray, float]:
        """The paper's sweep over all signals at once; `white` changes in place."""
        dtype = self.walker.signals.dtype
        step = Compare(self.feature_map, self.atoms.astype(dtype), self.metric.unwhiten(targets).astype(dtype))
        _, pairs = self.walker.run(step, kept)
        correlations = np.concatenate([pair[0] for pair in pairs]).astype(np.float64)
        aims = np.concatenate([pair[1] for pair in pairs]).astype(np.float64)
        codes = join_codes([item.codes for item in kept])
        aksvd_sweep(codes, targets, white, correlations, aims)
        products = np.zeros((len(white), len(white)))
        accumulate_gram(codes.indptr, codes.indices, codes.values, products)
        rows = np.repeat(np.arange(codes.n_signals), np.diff(codes.indptr))
        fit = float(np.vdot(codes.values, correlations[rows, codes.indices]))
        objective = float(trace) - 2.0 * fit + float(np.vdot(products, white @ white.T))
        parts = split_codes(codes, [item.codes for item in kept])
        return (
            [item._replace(codes=part) for item, part in zip(kept, parts, strict=True)],
            products,
            objective,
        )

    def _linear_term(self, kernel_trace: float) -> LinearTerm | None:
        """Codes X of the signals against the current kernel vectors, as sums."""
        if self.linear is None:
            return None
        weight, pursuit = self.linear
        assert isinstance(self.feature_map, KernelMap)
        vectors = self.feature_map.kernel_vectors
        norms = np.linalg.norm(vectors, axis=1)
        norms[norms == 0.0] = 1.0
        unit = vectors / norms[:, None]
        dtype = self.walker.signals.dtype
        step = Learn(LinearMap(vectors.shape[1]), unit.astype(dtype), unit_gram(unit).astype(dtype), pursuit)
        (products, projections, trace, _), _ = self.walker.run(step)
        if trace > 0.0:
            # Beyond this the rounding of the linear term covers the other one.
            weight = min(weight, 1e15 * kernel_trace / float(trace))
        return LinearTerm(weight, products / norms / norms[:, None], projections / norms[:, None], float(trace))

    def _revive(
        self, kept: list[Kept], used: np.ndarray, feature_map: FeatureMap, metric: Any, white: np.ndarray
    ) -> int:
        """Replace unused atoms by the worst-represented signals; returns how many."""
        unused = np.flatnonzero(~used)
        if unused.size == 0 or metric.rank == 0:
            return 0
        residuals = np.concatenate([item.residuals for item in kept])
        worst = worst_signals(residuals, unused.size)
        if worst.size == 0:
            return 0
        signals = self.walker.signals.take(worst)
        features = feature_map.features(signals).astype(np.float64)
        fresh = metric.whiten(features)
        norms = np.linalg.norm(fresh, axis=1)
        usable = norms > 1e-12 * max(float(norms.max()), np.finfo(np.float64).tiny)
        fresh, unused = (fresh[usable] / norms[usable, None]), unused[: int(usable.sum())]
        white[unused] = fresh[: unused.size]
        return int(unused.size)


def _sweep(products: np.ndarray, targets: np.ndarray, white: np.ndarray, trace: float) -> tuple[np.ndarray, float]:
    """One sweep of the atoms, in place; the codes' factors, and the objective after both."""
    factors = gram_sweep(products, targets, white)
    scaled = products * factors[:, None] * factors
    objective = float(trace) - 2.0 * float(np.vdot(targets * factors[:, None], white))
    return factors, objective + float(np.vdot(scaled, white @ white.T))


def worst_signals(residuals: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest residuals, ties to the first, those at rounding level left out."""
    order = np.argsort(-residuals, kind="stable")[:count]
    level = 1e3 * float(np.finfo(residuals.dtype).eps) * float(residuals.mean())
    return order[residuals[order] > level]


def normalize_rows(rows: np.ndarray, otherwise: np.ndarray | None = None) -> np.ndarray:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    norms = np.linalg.norm(rows, axis=1)
    tiny = norms <= 1e-14 * max(float(norms.max(initial=0.0)), np.finfo(np.float64).tiny)
    unit = np.where(tiny[:, None], 0.0, rows / np.where(tiny, 1.0, norms)[:, None])
    if otherwise is not None and tiny.any():
        unit[tiny] = normalize_rows(otherwise)[tiny]
    return unit


def unit_gram(rows: np.ndarray) -> np.ndarray:
    """Inner products of unit rows."""
    return rows @ rows.T


def join_codes(parts: list[Codes]) -> Codes:
    """Codes of consecutive chunks as one, in float64."""
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    indices = np.concatenate([part.indices for part in parts])
    values = np.concatenate([part.values for part in parts]).astype(np.float64)
    return Codes(indptr, indices, values)


def split_codes(codes: Codes, like: list[Codes]) -> list[Codes]:
    """The values of joined codes, back in the chunks' shapes and dtypes."""
    parts, start = [], 0
    for part in like:
        stop = start + len(part.values)
        parts.append(part._replace(values=codes.values[start:stop].astype(part.values.dtype)))
        start = stop
    return parts


def _rescale(codes: Codes, factors: np.ndarray) -> Codes:
    return codes._replace(values=codes.values * factors.astype(codes.values.dtype)[codes.indices])
