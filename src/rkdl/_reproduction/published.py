"""The computations of the paper's published code, including its errors. For comparison only.

This module is separate from the library: no estimator uses it, and no model should be learned with it.
It repeats in NumPy the arithmetic of the MATLAB scripts that the paper refers to (GitHub
``denisilie94/rkdl``, later renamed ``reduced-kernel-dictionary-learning``; their pursuit is Rubinstein's
OMP-Box), so that the printed tables can be compared like with like. Where the same numbers can be computed
by a cheaper route, it is used and documented; results differ from the literal form by rounding alone.

Deviations from the paper's text, or from the mathematics, reproduced on purpose:

1. The kernel is ``exp(-gamma |x - y|^2)`` with gamma = 1/10, which matches none of the forms that the text
   gives for sigma = 10.
2. RKDL-D, ORKDL-D and MORKDL-D overwrite an atom's coefficients for all signals: their errors are those of
   dense codes, with one non-zero per atom, not ``n_nonzero_coefs``. KDL restricts the update to the support.
3. The initial A is random, with atoms of unit Euclidean norm instead of unit norm in the kernel's metric.
4. The pursuit assumes a unit diagonal of the Gram matrix. This is wrong for the initial A; in ORKDL-D and
   MORKDL-D for any A after an update of D; and for the D on which MORKDL-D would code Y.
5. An unused atom is replaced by noise. By 3 and 4 the first pursuit leaves nearly all atoms unused (18 or 19
   of 20 on MNIST and CIFAR-10), so each method actually starts from its own noise, not from the shared A.
6. D is updated by a fixed rate times a sum over all signals, one kernel vector after another, and its unit
   norm, required by the text, is never restored.
7. After an update of D, the error is computed with the new D but with atoms normalised for the old one.
8. The linear term of MORKDL-D is disabled in all three revisions of the script, so MORKDL-D is ORKDL-D with
   different noise. If it were enabled, the code would *increase* ``|Y - D X|^2``. See `LINEAR_TERMS`.

One revision, judging by its contents the last, also halves the gradient of D: the RBF derivative lacks its
factor 2. The others, including the only one whose script runs the paper's ten rounds, have it, and so does
this module.

The printed times include the training of D, a pursuit on Y whose result is not used and the N x N residual
of KDL, and exclude the recomputation of the kernel after an update of D; ``seconds`` here is the time of
what is used.

Signals, codes, kernel vectors and atoms are rows, as in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.random import Generator

Array = np.ndarray
Linear = tuple[np.ndarray, np.ndarray] | None
Report = Callable[[float], None]

METHODS = ("KDL", "RKDL-D", "ORKDL-D", "MORKDL-D")

#: Variants of MORKDL-D's linear term, as its weight (lambda = 1) on ``(Y - D X)' X`` in the gradient.
#: "off" is what the script runs; "coded", with the sign of the update function, diverges in nearly all
#: rounds on MNIST and CIFAR-10; "text", with the printed sign, in some rounds on CIFAR-10. Errors are NaN
#: after a divergence.
LINEAR_TERMS = {"off": 0.0, "coded": 1.0, "text": -1.0}

_NEGLIGIBLE = 1e-14  # OMP-Box's thresholds for a squared correlation and a squared pivot


def train_dictionary(
    signals: Array,
    n_kernel_vectors: int = 50,
    *,
    n_nonzero_coefs: int = 5,
    n_iter: int = 10,
    random_state: int = 0,
) -> Array:
    """Train the kernel vectors D by AK-SVD from Gaussian noise, as the published code does.

    Parameters
    ----------
    signals : array of shape (n_signals, n_features)
        Rows of unit norm.
    n_kernel_vectors, n_nonzero_coefs, n_iter : int
        Size of D, sparsity of its codes, number of iterations.
    random_state : int
        Seed of the round.

    Returns
    -------
    array of shape (n_kernel_vectors, n_features)
        Rows of unit norm.
    """
    signals = _check_signals(signals)
    rng = random_stream(random_state, "dictionary")
    atoms = unit_rows(rng.standard_normal((n_kernel_vectors, signals.shape[1])))
    for _ in range(n_iter):
        codes = pursuit(signals @ atoms.T, atoms @ atoms.T, n_nonzero_coefs)
        # Row j of the sums is valid until atom j is updated: column j of the codes does not change before.
        sums = codes.T @ signals
        for j in range(n_kernel_vectors):
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
    *,
    kernel_vectors: Array | None = None,
    initial_dual: Array | None = None,
    n_components: int = 20,
    n_nonzero_coefs: int = 4,
    n_iter: int = 10,
    gamma: float = 0.1,
    n_kernel_vectors: int = 50,
    linear_n_nonzero_coefs: int = 5,
    n_inner_iter: int = 3,
    learning_rate: float = 5e-4,
    random_state: int = 0,
    callback: Callable[[int, float], Any] | None = None,
    linear_term: str = "off",
    dense: bool = True,
) -> dict[str, Any]:
    """Run one method of the paper as its published code does, errors included (see the module's docstring).

    Parameters
    ----------
    method : {"KDL", "RKDL-D", "ORKDL-D", "MORKDL-D"}
    signals : array of shape (n_signals, n_features)
        Rows of unit norm.
    kernel_vectors : array of shape (n_kernel_vectors, n_features), optional
        D, shared by the reduced methods of a round. By default `train_dictionary` is called. KDL ignores it.
    initial_dual : array of shape (n_components, n_kernel_vectors), optional
        The initial A, used as is; n_signals columns for KDL. By default random, of unit Euclidean norm, and the
        same for all reduced methods of a seed.
    n_components, n_nonzero_coefs, n_iter, gamma
        Number of atoms, sparsity of the pursuit, iterations, kernel parameter.
    n_kernel_vectors, linear_n_nonzero_coefs
        Size of D and sparsity of the codes of Y on D, both in D's training and in MORKDL-D.
    n_inner_iter, learning_rate
        Gradient sweeps over D per iteration, and their rate (6e-4 for CIFAR-10 in the paper).
    random_state : int
        Seed of the round.
    callback : callable, optional
        Called as ``callback(iteration, error)`` after each iteration, which counts from 1.
    linear_term : {"off", "coded", "text"}
        Variant of MORKDL-D's linear term, see `LINEAR_TERMS`.
    dense : bool, default=True
        Whether the reduced methods overwrite an atom's coefficients for all signals, as the published code does.
        False restricts that one line to the signals that use the atom, to isolate the effect of dense codes on
        the published errors. KDL ignores it.

    Returns
    -------
    dict
        ``errors`` (``sqrt(f / (m N))`` per iteration), ``seconds`` (kernel and training loop),
        ``dictionary_seconds``, ``kernel_vectors`` (None for KDL), ``dual_components`` and ``mean_nonzeros``
        (final non-zeros per signal, on average), and the final ``codes`` themselves.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    if linear_term not in LINEAR_TERMS:
        raise ValueError(f"unknown linear_term {linear_term!r}: choose one of {', '.join(LINEAR_TERMS)}")
    signals = _check_signals(signals)
    dictionary_seconds = 0.0
    if method == "KDL":
        kernel_vectors = None
    elif kernel_vectors is None:
        start = perf_counter()
        kernel_vectors = train_dictionary(
            signals, n_kernel_vectors, n_nonzero_coefs=linear_n_nonzero_coefs, random_state=random_state
        )
        dictionary_seconds = perf_counter() - start
    else:
        kernel_vectors = np.array(kernel_vectors, dtype=np.float64)
        if kernel_vectors.ndim != 2 or kernel_vectors.shape[1] != signals.shape[1]:
            raise ValueError(f"kernel_vectors must have {signals.shape[1]} columns, as the signals have")
    width = len(signals) if kernel_vectors is None else len(kernel_vectors)
    if initial_dual is None:
        rng = random_stream(random_state, "dual")
        dual = unit_rows(rng.standard_normal((n_components, width)))
    else:
        dual = np.array(initial_dual, dtype=np.float64)
        if dual.ndim != 2 or dual.shape[1] != width:
            raise ValueError(f"initial_dual must have {width} columns for {method}")

    errors: list[float] = []
    scale = signals.size

    def report(objective: float) -> None:
        errors.append(float(np.sqrt(max(objective, 0.0) / scale)))
        if callback is not None:
            callback(len(errors), errors[-1])

    weight = LINEAR_TERMS[linear_term] if method == "MORKDL-D" else 0.0

    def descend(vectors: Array, weights: Array) -> None:
        linear = None
        if weight:
            codes = pursuit(signals @ vectors.T, vectors @ vectors.T, linear_n_nonzero_coefs)
            linear = weight * (codes.T @ signals), weight * (codes.T @ codes)
        _descend(signals, vectors, weights, gamma, n_inner_iter, learning_rate, linear)

    rng = random_stream(random_state, method)
    start = perf_counter()
    with np.errstate(all="ignore"):  # a diverging D gives NaN errors
        if kernel_vectors is None:
            codes = _full(signals, dual, n_nonzero_coefs, n_iter, gamma, rng, report)
        else:
            update = None if method == "RKDL-D" else descend
            codes = _reduced(signals, kernel_vectors, dual, n_nonzero_coefs, n_iter, gamma, rng, report, update, dense)
    seconds = perf_counter() - start
    return {
        "errors": errors,
        "seconds": seconds,
        "dictionary_seconds": dictionary_seconds,
        "kernel_vectors": kernel_vectors,
        "dual_components": dual,
        "mean_nonzeros": np.count_nonzero(codes) / len(signals),
        "codes": codes,
    }


def _full(
    signals: Array, dual: Array, sparsity: int, n_iter: int, gamma: float, rng: Generator, report: Report
) -> Array:
    """Run KDL. The atoms `dual` are updated in place; the codes are returned.

    The published code stores the N x N residual E = I - A X and multiplies by K for every atom. E always
    equals I - A X, so an atom is a column of the codes minus a combination of other atoms, and K times it is
    the same combination of K Z and K A: the same numbers from one product with K per iteration.
    """
    kernel = rbf(signals, signals, gamma)
    images = kernel @ dual.T  # K A, one column per atom
    codes = np.zeros((len(signals), len(dual)))
    for _ in range(n_iter):
        codes = pursuit(images, dual @ images, sparsity)
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
        report(len(signals) - 2 * np.sum(codes * images) + np.sum((codes.T @ codes) * (dual @ images)))
    return codes


def _reduced(
    signals: Array,
    vectors: Array,
    dual: Array,
    sparsity: int,
    n_iter: int,
    gamma: float,
    rng: Generator,
    report: Report,
    descend: Callable[[Array, Array], None] | None,
    dense: bool,
) -> Array:
    """Run RKDL-D or, if `descend` updates `vectors`, ORKDL-D and MORKDL-D. `dual` is updated in place."""
    features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
    codes = np.zeros((len(signals), len(dual)))
    for _ in range(n_iter):
        codes = pursuit(features @ dual.T, dual @ metric @ dual.T, sparsity)
        projected = _solve(metric, features.T)
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
        if descend is not None:
            descend(vectors, codes @ dual)
            features, metric = rbf(signals, vectors, gamma), rbf(vectors, vectors, gamma)
        gram = dual @ metric @ dual.T
        report(len(signals) - 2 * np.sum((codes.T @ features) * dual) + np.sum((codes.T @ codes) * gram))
    return codes


def _descend(
    signals: Array, vectors: Array, weights: Array, gamma: float, n_sweeps: int, rate: float, linear: Linear
) -> None:
    """Gradient sweeps over the kernel vectors, one after another, in place.

    `weights` is (A Z)', N x p; `linear` the products X Y' and X X' of the linear term, times its weight.

    The data part of the gradient of a kernel vector does not depend on the other vectors, so it is computed
    for all of them in one product at the start of a sweep. The part between kernel vectors and the linear
    term use the vectors updated so far.
    """
    second = weights.T @ weights
    for _ in range(n_sweeps):
        weighted = weights * rbf(signals, vectors, gamma)
        # sum_t C_ti dk(d_i, y_t), where dk(d, y) = -2 gamma k(d, y) (d - y)
        data = -2 * gamma * (weighted.sum(axis=0)[:, None] * vectors - weighted.T @ signals)
        for i in range(len(vectors)):
            row = second[i] * rbf(vectors[i : i + 1], vectors, gamma)[0]
            among = -4 * gamma * (row.sum() * vectors[i] - row @ vectors)
            step = among - 2 * data[i]
            if linear is not None:
                step += linear[0][i] - linear[1][i] @ vectors
            vectors[i] -= rate * step


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


def _solve(metric: Array, right: Array) -> Array:
    """K_DD^-1 K_YD'. Like MATLAB, continues with NaN if the matrix is singular."""
    try:
        return np.linalg.solve(metric, right)
    except np.linalg.LinAlgError:
        return np.full_like(right, np.nan)


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


def random_stream(random_state: int, purpose: str) -> Generator:
    """Random generator per purpose, so that the draws of one method never affect another."""
    purposes = ("dictionary", "dual", *METHODS)
    return np.random.default_rng([int(random_state), purposes.index(purpose)])


def _check_signals(signals: Array) -> Array:
    signals = np.ascontiguousarray(signals, dtype=np.float64)
    if signals.ndim != 2 or signals.size == 0:
        raise ValueError("signals must be a non-empty 2-D array, one signal per row")
    if not np.isfinite(signals).all():
        raise ValueError("signals must be finite")
    return signals
