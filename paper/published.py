"""The computations of the paper's published code, including its errors. For comparison only.

It repeats in NumPy the arithmetic of the MATLAB scripts that the paper refers to (GitHub ``denisilie94/rkdl``, later
renamed ``reduced-kernel-dictionary-learning``; their pursuit is Rubinstein's OMP-Box), so that the printed tables can
be compared like with like. Cheaper routes to the same numbers are taken and documented. Deviations from the text,
or from the mathematics, reproduced on purpose:

1. The kernel is ``exp(-gamma |x - y|^2)`` with gamma = 1/10, which is none of the forms that the text gives for sigma.
2. RKDL-D, ORKDL-D and MORKDL-D overwrite an atom's coefficients for all signals: their errors are those of dense codes,
   with one non-zero per atom, not ``n_nonzero_coefs``. KDL restricts the update to the support.
3. The initial A is random, with atoms of unit Euclidean norm instead of unit norm in the kernel's metric.
4. The pursuit assumes a unit diagonal of the Gram matrix. This is wrong for the initial A, and in ORKDL-D and MORKDL-D
   for any A after an update of D.
5. An unused atom is replaced by noise. By 3 and 4 the first pursuit leaves nearly all atoms unused, so each method
   actually starts from its own noise, not from the shared A.
6. D is updated by a fixed rate times a sum over all signals, one kernel vector after another, and never normalised.
7. After an update of D, the error is computed with the new D but with atoms normalised for the old one.
8. The linear term of MORKDL-D is disabled in all three revisions of the script, so MORKDL-D is ORKDL-D with different
   noise. If it were enabled, the code would *increase* ``|Y - D X|^2``.

One revision also halves the gradient of D; the others, including the only one whose script runs the paper's ten rounds,
do not, and neither does this module. Signals, codes, kernel vectors and atoms are rows, as in the library.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

Array = np.ndarray

METHODS = ("KDL", "RKDL-D", "ORKDL-D", "MORKDL-D")

_NEGLIGIBLE = 1e-14  # OMP-Box's thresholds for a squared correlation and a squared pivot


class Settings(NamedTuple):
    """Sizes and rates, by default the paper's."""

    n_components: int = 20
    n_nonzero_coefs: int = 4
    n_iter: int = 10
    gamma: float = 0.1
    n_kernel_vectors: int = 50
    linear_n_nonzero_coefs: int = 5
    n_inner_iter: int = 3
    learning_rate: float = 5e-4


def train_dictionary(signals: Array, settings: Settings, seed: int = 0) -> Array:
    """Train the kernel vectors D, rows of unit norm, by AK-SVD from Gaussian noise, as the published code does."""
    signals = np.ascontiguousarray(signals, dtype=np.float64)
    rng = random_stream(seed, "dictionary")
    atoms = unit_rows(rng.standard_normal((settings.n_kernel_vectors, signals.shape[1])))
    for _ in range(10):
        codes = pursuit(signals @ atoms.T, atoms @ atoms.T, settings.linear_n_nonzero_coefs)
        # Row j of the sums is valid until atom j is updated: column j of the codes does not change before.
        sums = codes.T @ signals
        for j in range(len(atoms)):
            users = np.flatnonzero(codes[:, j])
            if users.size == 0:
                atoms[j] = unit_rows(rng.standard_normal((1, signals.shape[1])))
                continue
            block = codes[users]
            old = block[:, j].copy()
            block[:, j] = 0.0
            atom = sums[j] - (old @ block) @ atoms
            atoms[j] = atom / np.linalg.norm(atom)
            codes[users, j] = signals[users] @ atoms[j] - block @ (atoms @ atoms[j])
    return atoms


def run_published(
    method: str,
    signals: Array,
    kernel_vectors: Array | None,
    settings: Settings,
    seed: int = 0,
    dense: bool = True,
    initial_dual: Array | None = None,
) -> tuple[list[float], Array]:
    """Run one method of the paper as its published code does, errors included (see the module's docstring).

    `kernel_vectors` is D, shared by the reduced methods of a round (see `train_dictionary`); None for KDL. With `dense`
    False the one line that overwrites an atom's coefficients for all signals is restricted to those that use the atom.
    The initial A is random, and the same for all reduced methods of a seed, unless it is given. Returns the errors
    ``sqrt(f / (m N))`` after every iteration, NaN after a divergence, and the final codes.
    """
    signals = np.ascontiguousarray(signals, dtype=np.float64)
    rng = random_stream(seed, method)
    vectors = signals if kernel_vectors is None else np.array(kernel_vectors, dtype=np.float64)
    dual = first_dual(seed, settings.n_components, len(vectors)) if initial_dual is None else initial_dual.copy()
    with np.errstate(all="ignore"):  # a diverging D gives NaN errors
        if method == "KDL":
            return _full(signals, dual, settings, rng)
        return _reduced(signals, vectors, dual, settings, rng, dense, method != "RKDL-D")


def _full(signals: Array, dual: Array, settings: Settings, rng: Generator) -> tuple[list[float], Array]:
    """Run KDL. The atoms `dual` are updated in place.

    The published code stores the N x N residual E = I - A X and multiplies by K for every atom. E always
    equals I - A X, so an atom is a column of the codes minus a combination of other atoms, and K times it is
    the same combination of K Z and K A: the same numbers from one product with K per iteration.
    """
    kernel = rbf(signals, signals, settings.gamma)
    images = kernel @ dual.T  # K A, one column per atom
    codes, errors = np.zeros((len(signals), len(dual))), []
    for _ in range(settings.n_iter):
        codes = pursuit(images, dual @ images, settings.n_nonzero_coefs)
        code_images = kernel @ codes
        for j in range(len(dual)):
            users = np.flatnonzero(codes[:, j])
            if users.size == 0:
                atom = rng.standard_normal(len(signals))
                image = kernel @ atom
            else:
                block = codes[users]
                mix = block[:, j] @ block
                mix[j] = 0.0
                atom = codes[:, j] - mix @ dual
                image = code_images[:, j] - images @ mix
            norm = np.sqrt(atom @ image)
            dual[j], images[:, j] = atom / norm, image / norm
            if users.size:
                cross = dual @ images[:, j]
                cross[j] = 0.0
                codes[users, j] = images[users, j] - block @ cross
        errors.append(error_of(codes, images, dual @ images, signals.size))
    return errors, codes


def _reduced(
    signals: Array, vectors: Array, dual: Array, settings: Settings, rng: Generator, dense: bool, descends: bool
) -> tuple[list[float], Array]:
    """Run RKDL-D or, if D descends, ORKDL-D and MORKDL-D. `vectors` and `dual` are updated in place."""
    gamma = settings.gamma
    features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
    codes, errors = np.zeros((len(signals), len(dual))), []
    for _ in range(settings.n_iter):
        codes = pursuit(features @ dual.T, dual @ metric @ dual.T, settings.n_nonzero_coefs)
        projected = np.linalg.solve(metric, features.T)
        for j in range(len(dual)):
            old = codes[:, j]
            energy = old @ old
            if energy == 0.0:
                atom = rng.standard_normal(len(vectors))
                dual[j] = atom / np.sqrt(atom @ metric @ atom)
                continue
            mix = old @ codes
            mix[j] = 0.0
            atom = (projected @ old - mix @ dual) / energy
            dual[j] = atom / np.sqrt(atom @ metric @ atom)
            cross = dual @ (metric @ dual[j])
            cross[j] = 0.0
            new = features @ dual[j] - codes @ cross
            codes[:, j] = new if dense else np.where(old != 0.0, new, 0.0)  # published code: all signals
        if descends:
            _descend(signals, vectors, codes @ dual, settings)
            features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
        errors.append(error_of(codes, features @ dual.T, dual @ metric @ dual.T, signals.size))
    return errors, codes


def _descend(signals: Array, vectors: Array, weights: Array, settings: Settings) -> None:
    """Gradient sweeps over the kernel vectors, one after another, in place.

    `weights` is (A Z)', N x p. The data part of the gradient of a kernel vector does not depend on the other
    vectors, so it is computed for all of them in one product at the start of a sweep. The part between kernel
    vectors uses the vectors updated so far.
    """
    gamma, second = settings.gamma, weights.T @ weights
    for _ in range(settings.n_inner_iter):
        weighted = weights * rbf(signals, vectors, gamma)
        # sum_t C_ti dk(d_i, y_t), where dk(d, y) = -2 gamma k(d, y) (d - y)
        data = -2 * gamma * (weighted.sum(axis=0)[:, None] * vectors - weighted.T @ signals)
        for i in range(len(vectors)):
            row = second[i] * rbf(vectors[i : i + 1], vectors, gamma)[0]
            among = -4 * gamma * (row.sum() * vectors[i] - row @ vectors)
            vectors[i] -= settings.learning_rate * (among - 2 * data[i])


def pursuit(correlations: Array, gram: Array, n_nonzero_coefs: int) -> Array:
    """Batch OMP of all signals at once, assuming a unit diagonal of the Gram matrix in the factor.

    A signal stops early if its best atom is already selected, if the best correlation is negligible, or if the
    pivot would not be positive. The first and the last are common if the diagonal is not one.
    """
    n_signals, n_atoms = correlations.shape
    depth = min(n_nonzero_coefs, n_atoms)
    codes = np.zeros((n_signals, n_atoms))
    alive = np.arange(n_signals)
    residual = correlations
    chosen = np.empty((n_signals, 0), dtype=np.intp)
    factor = np.zeros((n_signals, depth, depth))
    for k in range(depth):
        best = np.abs(residual).argmax(axis=1)
        rows = np.arange(len(alive))
        keep = (residual[rows, best] ** 2 >= _NEGLIGIBLE) & ~(chosen == best[:, None]).any(axis=1)
        for q in range(k):
            inner = np.einsum("ij,ij->i", factor[:, q, :q], factor[:, k, :q])
            factor[:, k, q] = (gram[chosen[:, q], best] - inner) / factor[:, q, q]
        pivot = 1.0 - np.einsum("ij,ij->i", factor[:, k, :k], factor[:, k, :k])
        keep &= pivot > _NEGLIGIBLE
        alive, factor = alive[keep], factor[keep]
        if alive.size == 0:
            break
        factor[:, k, k] = np.sqrt(pivot[keep])
        chosen = np.column_stack([chosen[keep], best[keep]])
        target = np.take_along_axis(correlations[alive], chosen, axis=1)
        for q in range(k + 1):  # forward, then back substitution
            target[:, q] -= np.einsum("ij,ij->i", factor[:, q, :q], target[:, :q])
            target[:, q] /= factor[:, q, q]
        for q in range(k, -1, -1):
            target[:, q] -= np.einsum("ij,ij->i", factor[:, q + 1 : k + 1, q], target[:, q + 1 :])
            target[:, q] /= factor[:, q, q]
        codes[alive[:, None], chosen] = target
        if k + 1 < depth:
            residual = correlations[alive] - codes[alive] @ gram
    return codes


def error_of(codes: Array, correlations: Array, gram: Array, size: int) -> float:
    """``sqrt(f / (m N))`` of signals of unit norm, from their correlations with the atoms and the Gram matrix."""
    objective = len(codes) - 2 * np.sum(codes * correlations) + np.sum((codes.T @ codes) * gram)
    return float(np.sqrt(max(objective, 0.0) / size))


def rbf(x: Array, y: Array, gamma: float) -> Array:
    """exp(-gamma |x_i - y_j|^2)."""
    out = x @ y.T
    out *= 2.0
    out -= np.einsum("ij,ij->i", x, x)[:, None]
    out -= np.einsum("ij,ij->i", y, y)
    np.minimum(out, 0.0, out=out)
    out *= gamma
    return np.exp(out, out=out)


def unit_rows(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def first_dual(seed: int, n_components: int, width: int) -> Array:
    """The initial A of a round."""
    return unit_rows(random_stream(seed, "dual").standard_normal((n_components, width)))


def random_stream(seed: int, purpose: str) -> Generator:
    """Random generator per purpose, so that the draws of one method never affect another."""
    return np.random.default_rng([seed, ("dictionary", "dual", *METHODS).index(purpose)])
