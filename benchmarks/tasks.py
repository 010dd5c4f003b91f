"""The tasks of every library; timed runs and memory workers call the same functions.

Inputs are a dict of arrays: signals ``X`` (N, m), a dictionary ``D`` (n, m), kernel vectors ``V`` (p, m) and initial
atoms ``A`` (n, N) of a kernel method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.environment import THREADS

Inputs = dict[str, np.ndarray]

# SPAMS and scikit-learn work in float32; dictlearn converts everything to float64.
DTYPES = {"spams": np.float32, "sklearn": np.float32, "dictlearn": np.float64}

GAMMA = 0.1


def product(library: str, inputs: Inputs) -> np.ndarray:
    """The correlations ``X D'`` alone, which every coder must compute."""
    return inputs["X"] @ inputs["D"].T


def encode(
    library: str,
    inputs: Inputs,
    *,
    s: int,
    pursuit: str = "ols",
    sparse_output: bool = False,
    n_jobs: int | None = THREADS,
) -> Any:
    """Codes (N, n) with at most `s` non-zeros. SPAMS computes OLS, scikit-learn and dictlearn OMP."""
    X, D = inputs["X"], inputs["D"]
    if library == "rkdl":
        import rkdl

        return rkdl.sparse_encode(X, D, n_nonzero_coefs=s, pursuit=pursuit, sparse_output=sparse_output, n_jobs=n_jobs)
    if library == "spams":
        import spams

        # SPAMS stores signals and atoms as columns: a transposed C array is the Fortran array it needs, without a copy.
        # SPAMS 2.6.14 reads freed memory unless eps and lambda1 are given, and may return no codes.
        return spams.omp(X.T, D.T, L=s, eps=0.0, lambda1=0.0, numThreads=n_jobs or 1).T
    if library == "sklearn":
        from sklearn.decomposition import sparse_encode

        return sparse_encode(X, D, algorithm="omp", n_nonzero_coefs=s, n_jobs=n_jobs)
    from dictlearn import sparse_encode

    return sparse_encode(X, D, algorithm="omp", n_nonzero_coefs=s)


def penalised(library: str, inputs: Inputs, *, positive: bool = False, **params: Any) -> Any:
    """Codes (N, n) in sparse format: the lasso with `alpha`, or with rkdl OLS with `n_nonzero_coefs`."""
    X, D, alpha = inputs["X"], inputs["D"], params.get("alpha")
    if library == "rkdl":
        import rkdl

        pursuit = "ols" if alpha is None else "lasso"
        options = {"pursuit": pursuit, "positive_code": positive, "sparse_output": True, **params}
        return rkdl.sparse_encode(X, D, n_jobs=THREADS, **options)
    import spams

    return spams.lasso(X.T, D.T, lambda1=alpha, lambda2=0.0, mode=2, pos=positive, numThreads=THREADS).T


def mean_objective(inputs: Inputs, alpha: float, codes: Any) -> float:
    """Mean of ``|x - z D|^2 / 2 + alpha |z|_1``, in float64."""
    codes = codes.tocsr().astype(np.float64)
    left = inputs["X"].astype(np.float64) - codes @ inputs["D"].astype(np.float64)
    return float((0.5 * np.sum(left**2) + alpha * np.abs(codes.data).sum()) / codes.shape[0])


def dl(library: str, inputs: Inputs, *, s: int, n_iter: int, **settings: Any) -> np.ndarray:
    """A dictionary (n, m) learned from the initial one, `D`."""
    X, D = inputs["X"], inputs["D"]
    if library == "rkdl":
        import rkdl

        model = rkdl.DL(
            len(D), n_nonzero_coefs=s, init=D, max_iter=n_iter, tol=0, n_jobs=THREADS, random_state=0, **settings
        )
        return _complete(model.fit(X), n_iter).components_
    if library == "spams":
        import spams
        import spams_wrap

        learned = spams.trainDL(
            X.T,
            D=np.asfortranarray(D.T),
            lambda1=s,
            mode=spams_wrap.SPARSITY,
            iter=n_iter,
            batch=True,
            numThreads=THREADS,
            verbose=False,
        )
        return learned.T
    from dictlearn import DictionaryLearning

    peer = DictionaryLearning(
        len(D), fit_algorithm="aksvd", n_nonzero_coefs=s, max_iter=n_iter, dict_init=D, random_state=0
    )
    return peer.fit(X).components_


def kdl(library: str, inputs: Inputs, *, n: int, s: int, n_iter: int, **settings: Any) -> float:
    """The error ``sqrt(f / (m N))`` of full kernel dictionary learning."""
    X = inputs["X"]
    if library == "rkdl":
        import rkdl

        if settings.get("init") == "A":
            settings["init"] = inputs["A"]
        model = rkdl.KDL(
            n, gamma=GAMMA, n_nonzero_coefs=s, max_iter=n_iter, tol=0, n_jobs=THREADS, random_state=0, **settings
        )
        return float(_complete(model.fit(X), n_iter).errors_[-1])
    from dictlearn import KernelDictionaryLearning

    peer = KernelDictionaryLearning(
        n, kernel="rbf", gamma=GAMMA, fit_algorithm="aksvd", n_nonzero_coefs=s, max_iter=n_iter, random_state=0
    )
    # dictlearn divides the squared error by N alone.
    return float(peer.fit(X).error_[-1] / np.sqrt(X.shape[1]))


def reduced(library: str, inputs: Inputs, *, method: str, n: int, s: int, n_iter: int, **settings: Any) -> float:
    """The error of RKDL or ORKDL; `V`, if given, holds the (initial) kernel vectors."""
    import rkdl

    if "V" in inputs:
        settings["kernel_vectors"] = inputs["V"]
    kept_bytes = settings.pop("kept_bytes", None)
    model = getattr(rkdl, method)(
        n, gamma=GAMMA, n_nonzero_coefs=s, max_iter=n_iter, tol=0, n_jobs=THREADS, random_state=0, **settings
    )
    with rkdl.config_context(kept_bytes=kept_bytes):
        return float(_complete(model.fit(inputs["X"]), n_iter).errors_[-1])


def _complete(model: Any, n_iter: int) -> Any:
    """The model, provided it ran all iterations: fewer would be an unfair advantage."""
    made = len(model.update_errors_)
    if made != n_iter:
        raise RuntimeError(f"{type(model).__name__} ran {made} of {n_iter} iterations with tol=0")
    return model


TASKS: dict[str, Callable[..., Any]] = {"product": product, "encode": encode, "dl": dl, "kdl": kdl, "reduced": reduced}


def cut(inputs: Inputs, n_signals: int) -> Inputs:
    """The same inputs with the first signals only, for a small run that compiles what the large one needs."""
    small = dict(inputs, X=inputs["X"][:n_signals])
    if "A" in inputs:
        small["A"] = np.ascontiguousarray(inputs["A"][:, :n_signals])
    return small


def peer_start(n_signals: int, n_atoms: int) -> np.ndarray:
    """The initial atoms (n, N) that dictlearn's KernelDictionaryLearning draws with ``random_state=0``."""
    return np.random.RandomState(0).standard_normal((n_signals, n_atoms)).T.copy()


def mean_residual(inputs: Inputs, codes: Any, n_rows: int | None = None) -> float:
    """Mean norm of ``x - z D`` over the first rows, in float64 whatever the codes' dtype."""
    D = inputs["D"].astype(np.float64)
    n_rows = codes.shape[0] if n_rows is None else n_rows
    codes = codes.tocsr() if hasattr(codes, "tocsr") else codes
    total = 0.0
    for start in range(0, n_rows, 4096):
        stop = min(start + 4096, n_rows)
        residual = inputs["X"][start:stop].astype(np.float64) - codes[start:stop].astype(np.float64) @ D
        total += float(np.sqrt(np.einsum("ij,ij->i", residual, residual)).sum())
    return total / n_rows


def dictionary_error(inputs: Inputs, dictionary: np.ndarray, s: int) -> float:
    """``sqrt(|Y - Z D|^2 / (m N))`` with OLS codes of rkdl in float64, the same coder for every library."""
    import rkdl

    D = np.ascontiguousarray(dictionary, dtype=np.float64)
    total = 0.0
    for start in range(0, len(inputs["X"]), 16384):
        rows = inputs["X"][start : start + 16384].astype(np.float64)
        codes = rkdl.sparse_encode(rows, D, n_nonzero_coefs=s, pursuit="ols", sparse_output=True)
        total += float(np.sum((rows - codes @ D) ** 2))
    return float(np.sqrt(total / inputs["X"].size))
