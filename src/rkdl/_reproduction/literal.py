"""The published programs product by product, in order to time them: `published` has the same numbers by a faster route.

They keep an N x N residual (KDL) or an N x p one, multiply matrices from left to right, solve with K_DD for every atom
and differentiate the kernel vector by vector, as the authors' MATLAB code does. Kernel matrices alone are computed by a
faster formula than theirs. As there, the time of ORKDL-D includes a pursuit of Y on D whose result is not used, and
excludes the recomputation of the kernel after an update of D.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.random import Generator

from rkdl._reproduction.published import Array, pursuit, random_stream, rbf, unit_rows

METHODS = ("KDL", "RKDL-D", "ORKDL-D")


def run_literal(
    method: str,
    signals: Array,
    kernel_vectors: Array | None,
    *,
    n_components: int,
    n_nonzero_coefs: int,
    n_iter: int,
    gamma: float,
    linear_n_nonzero_coefs: int,
    n_inner_iter: int,
    learning_rate: float,
    random_state: int,
    **unused: Any,
) -> tuple[list[float], float, Array]:
    """Errors per iteration, seconds and final codes of a published program.

    Parameters
    ----------
    method : {"KDL", "RKDL-D", "ORKDL-D"}
        MORKDL-D was published as the same program as ORKDL-D.
    signals : array of shape (n_signals, n_features)
        Rows of unit norm, float64.
    kernel_vectors : array of shape (n_kernel_vectors, n_features) or None
        D; None for KDL.
    n_components, n_nonzero_coefs, n_iter, gamma, linear_n_nonzero_coefs, n_inner_iter, learning_rate, random_state
        As in `published.run_published`.
    unused
        Further settings of `published.run_published`.
    """
    clock = _Clock()
    rng = random_stream(random_state, method)
    width = len(signals) if kernel_vectors is None else len(kernel_vectors)
    atoms = unit_rows(random_stream(random_state, "dual").standard_normal((n_components, width))).T
    if kernel_vectors is None:
        errors, codes = _full(signals, atoms, n_nonzero_coefs, n_iter, gamma, rng, clock)
    else:
        vectors = np.array(kernel_vectors, dtype=np.float64)
        errors, codes = [], np.zeros((n_components, len(signals)))
        clock.start()
        features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
        for _ in range(n_iter):
            codes = pursuit(features @ atoms, atoms.T @ metric @ atoms, n_nonzero_coefs).T
            _sweep(features, metric, atoms, codes, rng)
            if method == "ORKDL-D":
                pursuit(signals @ vectors.T, vectors @ vectors.T, linear_n_nonzero_coefs)
                _descend(signals, vectors, atoms @ codes, gamma, n_inner_iter, learning_rate)
            clock.stop()
            if method == "ORKDL-D":
                features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
            mixed = atoms @ codes
            objective = len(signals) - 2 * np.sum(features.T * mixed) + np.sum(mixed * (metric @ mixed))
            errors.append(float(np.sqrt(max(objective, 0.0) / signals.size)))
            clock.start()
        clock.stop()
    return errors, clock.seconds, codes.T


class _Clock:
    """A clock that can be stopped; it stands when it is made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin: float | None = None

    def start(self) -> None:
        self._begin = perf_counter()

    def stop(self) -> None:
        assert self._begin is not None
        self.seconds += perf_counter() - self._begin


def _full(
    signals: Array, atoms: Array, sparsity: int, n_iter: int, gamma: float, rng: Generator, clock: _Clock
) -> tuple[list[float], Array]:
    """KDL; atoms are columns here, as in the authors' program."""
    clock.start()
    kernel = rbf(signals, signals, gamma)
    errors = []
    codes = np.zeros((atoms.shape[1], len(signals)))
    for _ in range(n_iter):
        codes = pursuit((atoms.T @ kernel).T, atoms.T @ kernel @ atoms, sparsity).T
        residual = np.asfortranarray(np.eye(len(signals)) - atoms @ codes)
        for j in range(atoms.shape[1]):
            users = np.flatnonzero(codes[j])
            if users.size == 0:
                atom = rng.standard_normal(len(signals))
                atoms[:, j] = atom / np.sqrt(atom @ kernel @ atom)
                continue
            own = residual[:, users] + np.outer(atoms[:, j], codes[j, users])
            atom = own @ codes[j, users]
            atoms[:, j] = atom / np.sqrt(atom @ kernel @ atom)
            codes[j, users] = (own.T @ kernel) @ atoms[:, j]
            residual[:, users] = own - np.outer(atoms[:, j], codes[j, users])
        clock.stop()
        images = kernel @ atoms
        objective = len(signals) - 2 * np.sum(images.T * codes) + np.sum((codes @ codes.T) * (atoms.T @ images))
        errors.append(float(np.sqrt(max(objective, 0.0) / signals.size)))
        clock.start()
    clock.stop()
    return errors, codes


def _sweep(features: Array, metric: Array, atoms: Array, codes: Array, rng: Generator) -> None:
    """One sweep over the atoms of RKDL-D, in place."""
    mixed = atoms @ codes
    for j in range(atoms.shape[1]):
        if not codes[j].any():
            atom = rng.standard_normal(len(metric))
            atoms[:, j] = atom / np.sqrt(atom @ metric @ atom)
            continue
        rest = mixed - np.outer(atoms[:, j], codes[j])
        atom = (np.linalg.solve(metric, features.T) - rest) @ codes[j] / (codes[j] @ codes[j])
        atoms[:, j] = atom / np.sqrt(atom @ metric @ atom)
        codes[j] = (features - rest.T @ metric) @ atoms[:, j]
        mixed = rest + np.outer(atoms[:, j], codes[j])


def _descend(signals: Array, vectors: Array, mixed: Array, gamma: float, n_sweeps: int, rate: float) -> None:
    """Gradient sweeps over the kernel vectors, one after another, in place."""
    second = mixed @ mixed.T
    for _ in range(n_sweeps):
        for i in range(len(vectors)):
            among = second[i][:, None] * _slopes(vectors[i], vectors, gamma)
            data = mixed[i][:, None] * _slopes(vectors[i], signals, gamma)
            # The derivative of k(d_i, d_i) is zero, so that the two equal halves are the whole of the first term.
            vectors[i] -= rate * (2 * among.sum(axis=0) - 2 * data.sum(axis=0))


def _slopes(vector: Array, others: Array, gamma: float) -> Array:
    """Derivatives of the kernel between a vector and others with respect to the former, one row per other."""
    differences = vector - others
    values = np.exp(-gamma * np.sum(differences**2, axis=1))
    return -2 * gamma * values[:, None] * differences
