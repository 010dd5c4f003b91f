"""The published programs product by product, in order to time them: `published` has the same numbers by a faster route.

They keep an N x N residual (KDL) or an N x p one, multiply matrices from left to right, solve with K_DD for every atom
and differentiate the kernel vector by vector, as the authors' MATLAB code does. Kernel matrices alone are computed by a
faster formula than theirs. As there, the time of ORKDL-D includes a pursuit of Y on D whose result is not used, and
excludes the recomputation of the kernel after an update of D. Atoms and codes are columns here, as in their program.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.random import Generator

from paper.published import Array, Settings, error_of, first_dual, pursuit, random_stream, rbf


def run_literal(
    method: str, signals: Array, kernel_vectors: Array | None, settings: Settings, seed: int
) -> tuple[list[float], float, Array]:
    """Errors per iteration, seconds and final codes of KDL, RKDL-D or ORKDL-D; parameters as in `run_published`."""
    gamma = settings.gamma
    rng = random_stream(seed, method)
    vectors = signals if kernel_vectors is None else np.array(kernel_vectors)
    atoms = first_dual(seed, settings.n_components, len(vectors)).T
    errors, codes = [], np.zeros((settings.n_components, len(signals)))
    begin = perf_counter()
    features = rbf(signals, vectors, gamma)
    metric = features if method == "KDL" else rbf(vectors, vectors, gamma)
    seconds = perf_counter() - begin
    for _ in range(settings.n_iter):
        begin = perf_counter()
        codes = pursuit(features @ atoms, atoms.T @ metric @ atoms, settings.n_nonzero_coefs).T
        if method == "KDL":
            _full_sweep(metric, atoms, codes, rng)
        else:
            _reduced_sweep(features, metric, atoms, codes, rng)
        if method == "ORKDL-D":
            pursuit(signals @ vectors.T, vectors @ vectors.T, settings.linear_n_nonzero_coefs)
            _descend(signals, vectors, atoms @ codes, settings)
        seconds += perf_counter() - begin
        if method == "ORKDL-D":
            features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
        errors.append(error_of(codes.T, features @ atoms, atoms.T @ metric @ atoms, signals.size))
    return errors, seconds, codes.T


def _full_sweep(kernel: Array, atoms: Array, codes: Array, rng: Generator) -> None:
    """One sweep over the atoms of KDL, in place."""
    residual = np.asfortranarray(np.eye(len(kernel)) - atoms @ codes)
    for j in range(atoms.shape[1]):
        users = np.flatnonzero(codes[j])
        if users.size == 0:
            atom = rng.standard_normal(len(kernel))
            atoms[:, j] = atom / np.sqrt(atom @ kernel @ atom)
            continue
        own = residual[:, users] + np.outer(atoms[:, j], codes[j, users])
        atom = own @ codes[j, users]
        atoms[:, j] = atom / np.sqrt(atom @ kernel @ atom)
        codes[j, users] = (own.T @ kernel) @ atoms[:, j]
        residual[:, users] = own - np.outer(atoms[:, j], codes[j, users])


def _reduced_sweep(features: Array, metric: Array, atoms: Array, codes: Array, rng: Generator) -> None:
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


def _descend(signals: Array, vectors: Array, mixed: Array, settings: Settings) -> None:
    """Gradient sweeps over the kernel vectors, one after another, in place."""
    gamma, second = settings.gamma, mixed @ mixed.T
    for _ in range(settings.n_inner_iter):
        for i in range(len(vectors)):
            among = second[i][:, None] * _slopes(vectors[i], vectors, gamma)
            data = mixed[i][:, None] * _slopes(vectors[i], signals, gamma)
            # The derivative of k(d_i, d_i) is zero, so that the two equal halves are the whole of the first term.
            vectors[i] -= settings.learning_rate * (2 * among.sum(axis=0) - 2 * data.sum(axis=0))


def _slopes(vector: Array, others: Array, gamma: float) -> Array:
    """Derivatives of the kernel between a vector and others with respect to the former, one row per other."""
    differences = vector - others
    values = np.exp(-gamma * np.sum(differences**2, axis=1))
    return -2 * gamma * values[:, None] * differences
