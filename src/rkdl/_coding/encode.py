"""Sparse coding as functions: against a dictionary, or from a Gram matrix and correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array

from rkdl._backends.arrays import cast, host
from rkdl._backends.arrays import squared_norms as row_squares
from rkdl._backends.base import PURSUITS, backend_of, is_tensor
from rkdl._coding.encoder import Encoder, Pursuit
from rkdl._coding.passes import encode_signals
from rkdl._data.open import gather, is_dask, is_plain, open_signals
from rkdl._data.signals import Signals, is_safe, needs_float64
from rkdl._execution.blas import one_blas_thread
from rkdl._features.maps import LinearMap
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import FLOATS, Array
from rkdl._utils.warnings import warn


@one_blas_thread()
def sparse_encode(
    X: Any,
    dictionary: Any,
    *,
    n_nonzero_coefs: int | None = None,
    residual_tol: ArrayLike | None = None,
    rtol: float | None = None,
    pursuit: str = "ols",
    alpha: float = 0.1,
    l2: float = 0.0,
    positive_code: bool = False,
    missing: str = "error",
    sparse_output: bool = False,
    device: Any = None,
    n_jobs: int | None = None,
) -> np.ndarray | sparse.csr_array:
    """Sparse codes of signals against a dictionary.

    The atoms need not have unit norm: an atom's norm does not change how soon it is chosen. The pursuit works on inner
    products, so an atom that is within about 1e-4 of its norm (in float32, 2e-2) of the span of those chosen is taken
    to lie in it, and left out.

    Parameters
    ----------
    X : array-like or CSR matrix of shape (n_signals, n_features)
        Signals, one per row. Anything with ``shape``, ``dtype`` and row slices (a memory map, a Zarr array, an HDF5
        dataset) is read chunk by chunk.
    dictionary : array-like of shape (n_components, n_features)
        Atoms, one per row. Atoms of norm zero are never used.
    n_nonzero_coefs : int, default=None
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit with a tolerance.
    residual_tol : float or array-like of shape (n_signals,), default=None
        Stop coding a signal when its squared residual is at most this, or its own of these; None disables.
    rtol : float, default=None
        Stop coding a signal when the norm of its residual is at most `rtol` times its own; None disables.
    pursuit : {"ols", "omp", "lasso"}, default="ols"
        Orthogonal least squares, orthogonal matching pursuit, or the minimum of
        ``|x - z D|^2 / 2 + alpha |z|_1 + l2 |z|^2 / 2`` over codes z, found exactly up to rounding.
    alpha : float, default=0.1
        Penalty of "lasso", in the units of ``X D'``: above its largest magnitude, all codes are zero. Only "lasso" has
        penalties; it uses neither `n_nonzero_coefs` nor tolerances.
    l2 : float, default=0.0
        Second penalty of "lasso", which makes it the elastic net.
    positive_code : bool, default=False
        Whether codes are non-negative. Greedy pursuits then choose among atoms of positive correlation, and codes are
        non-negative least squares on their support; with "lasso" and alpha=0, on all atoms.
    missing : {"error", "ignore"}, default="error"
        Whether NaN raises an error, or stands for a number that is not known: codes minimise the error of the others.
    sparse_output : bool, default=False
        Whether to return a CSR array instead of a dense one.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.

    Returns
    -------
    codes : ndarray or csr_array of shape (n_signals, n_components)
        Sparse codes, float32 if the signals are float32, otherwise float64; a tensor if the signals are one.

    See Also
    --------
    sparse_encode_gram : The same from inner products.
    DL : Learns a dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import sparse_encode
    >>> dictionary = np.eye(3)
    >>> sparse_encode([[3.0, 0.1, -2.0]], dictionary, n_nonzero_coefs=2)
    array([[ 3.,  0., -2.]])
    """
    # Sums of a chunk show numbers that are not finite, without an extra pass over the signals.
    signals = open_signals(gather(X) if is_dask(X) else X, caller="sparse_encode", device=device)
    signals = signals.with_missing(missing)
    if _stays_on_device(dictionary, signals):
        dictionary = dictionary.detach()
    elif not is_plain(dictionary):
        dictionary = check_array(well_formed(host(dictionary), "dictionary"), dtype=FLOATS, input_name="dictionary")
    n_features = signals.shape[1]
    if n_features != dictionary.shape[1]:
        raise ValueError(
            f"X has {n_features} features and the atoms of dictionary have {dictionary.shape[1]}: they must agree."
        )
    squares, limit, share = _limits(residual_tol, rtol, signals.squared_norms)
    options = check_pursuit(len(dictionary), n_nonzero_coefs, limit, share, pursuit, alpha, l2, positive_code)
    unit, norms = unit_rows(dictionary, signals.dtype)
    encoder = Encoder(LinearMap(n_features, signals.allows_nan), unit, None, options.for_atoms_of(norms))
    return encode_signals(
        signals, encoder, sparse_output=sparse_output, n_jobs=n_jobs, factors=1.0 / norms, squared_norms=squares
    )


@one_blas_thread()
def sparse_encode_gram(
    gram: Any,
    correlations: Any,
    *,
    squared_norms: Any = None,
    n_nonzero_coefs: int | None = None,
    residual_tol: ArrayLike | None = None,
    rtol: float | None = None,
    pursuit: str = "ols",
    alpha: float = 0.1,
    l2: float = 0.0,
    positive_code: bool = False,
    sparse_output: bool = False,
    device: Any = None,
    n_jobs: int | None = None,
) -> np.ndarray | sparse.csr_array:
    """Sparse codes from inner products alone: kernel pursuit, for any kernel.

    Parameters
    ----------
    gram : array-like of shape (n_components, n_components)
        Inner products of the atoms; its diagonal need not be one.
    correlations : array-like of shape (n_signals, n_components)
        Inner products of signals and atoms.
    squared_norms : array-like of shape (n_signals,), default=None
        Squared norms of the signals; needed with `residual_tol` and `rtol`.
    n_nonzero_coefs : int, default=None
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit with a tolerance.
    residual_tol : float or array-like of shape (n_signals,), default=None
        Stop coding a signal when its squared residual is at most this, or its own of these; None disables.
    rtol : float, default=None
        Stop coding a signal when the norm of its residual is at most `rtol` times its own; None disables.
    pursuit : {"ols", "omp", "lasso"}, default="ols"
        Orthogonal least squares, orthogonal matching pursuit, or the minimum of
        ``|x - z D|^2 / 2 + alpha |z|_1 + l2 |z|^2 / 2`` over codes z, found exactly up to rounding.
    alpha : float, default=0.1
        Penalty of "lasso", in the units of ``X D'``: above its largest magnitude, all codes are zero. Only "lasso" has
        penalties; it uses neither `n_nonzero_coefs` nor tolerances.
    l2 : float, default=0.0
        Second penalty of "lasso", which makes it the elastic net.
    positive_code : bool, default=False
        Whether codes are non-negative. Greedy pursuits then choose among atoms of positive correlation, and codes are
        non-negative least squares on their support; with "lasso" and alpha=0, on all atoms.
    sparse_output : bool, default=False
        Whether to return a CSR array instead of a dense one.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.

    Returns
    -------
    codes : ndarray or csr_array of shape (n_signals, n_components)
        Sparse codes, float32 if the correlations are float32, otherwise float64; a tensor if the correlations are one.

    See Also
    --------
    sparse_encode : The same from signals and a dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import sparse_encode_gram
    >>> gram = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> sparse_encode_gram(gram, [[2.0, 1.0]], n_nonzero_coefs=1)
    array([[2., 0.]])
    """
    if sparse.issparse(correlations):
        raise TypeError("correlations is a sparse matrix, and dense data is required: use correlations.toarray().")
    given = gather(correlations) if is_dask(correlations) else correlations
    signals = open_signals(given, caller="sparse_encode_gram", device=device, name="correlations")
    signals.check_finite("correlations")
    gram = _check_gram(gram, signals.shape[1])
    if squared_norms is None and not (residual_tol is None and rtol is None):
        raise ValueError(
            "residual_tol and rtol need squared_norms, the squared norm of every signal: it cannot be computed from "
            "inner products with the atoms."
        )
    squares = _check_squared_norms(squared_norms, signals)
    lowered, limit, share = _limits(residual_tol, rtol, lambda: squares)
    options = check_pursuit(len(gram), n_nonzero_coefs, limit, share, pursuit, alpha, l2, positive_code)
    norms = np.sqrt(gram.diagonal())
    norms[norms == 0.0] = np.inf
    unit_gram = gram / norms / norms[:, None]
    if np.abs(unit_gram).max() > 1.0 + 1e-5:
        raise ValueError(
            "gram is not positive semidefinite: an inner product of two atoms exceeds the product of their norms."
        )
    encoder = GramEncoder(
        LinearMap(len(gram)), 1.0 / norms, unit_gram.astype(signals.dtype), options.for_atoms_of(norms)
    )
    squares = squares if lowered is None else lowered
    return encode_signals(
        signals, encoder, sparse_output=sparse_output, n_jobs=n_jobs, factors=1.0 / norms, squared_norms=squares
    )


def _check_gram(gram: Any, n_columns: int) -> np.ndarray:
    """The inner products of the atoms (n, n) in float64, for `n_columns` correlations per signal."""
    gram = check_array(well_formed(host(gram), "gram"), dtype=np.float64, input_name="gram")
    if gram.shape != (len(gram), len(gram)):
        raise ValueError(f"gram has shape {gram.shape}: it must be square, one row and one column per atom.")
    if n_columns != len(gram):
        raise ValueError(f"correlations has {n_columns} columns and gram {len(gram)} atoms.")
    if not np.allclose(gram, gram.T, rtol=0.0, atol=1e-5 * float(np.abs(gram).max())):
        raise ValueError("gram is not symmetric: give inner products of the atoms, for instance A @ A.T.")
    if (gram.diagonal() < 0.0).any():
        raise ValueError(f"gram has a negative diagonal entry, {gram.diagonal().min()}: no atom has such a norm.")
    return gram


def _check_squared_norms(squared_norms: Any, signals: Signals) -> np.ndarray:
    """The squared norms (n_signals,) in the dtype of the signals; infinite where they are not given."""
    n_signals, dtype = signals.shape[0], signals.dtype
    if squared_norms is None:
        return np.full(n_signals, np.inf, dtype=dtype)
    given = well_formed(host(squared_norms), "squared_norms")
    squares: np.ndarray = check_array(given, dtype=dtype, ensure_2d=False, input_name="squared_norms")
    if squares.shape != (n_signals,):
        raise ValueError(f"squared_norms has shape {squares.shape}, expected ({n_signals},).")
    if squares.min() < 0.0:
        raise ValueError(f"squared_norms has a negative entry, {squares.min()}: no signal has such a norm.")
    return squares


def _limits(
    residual_tol: Any, rtol: float | None, squared_norms: Callable[[], np.ndarray]
) -> tuple[np.ndarray | None, float | None, float | None]:
    """The tolerances; with one per signal, squared norms (n_signals,) less these, so that nothing more may be left."""
    if residual_tol is None or np.ndim(residual_tol) == 0:
        return None, residual_tol, rtol
    own = check_array(host(residual_tol), dtype=np.float64, ensure_2d=False, input_name="residual_tol")
    squares = squared_norms()
    if own.shape != squares.shape:
        raise ValueError(f"residual_tol has shape {own.shape}, expected one number or the shape {squares.shape}.")
    check_pursuit(1, 1, float(own.min()), rtol)
    return squares - np.maximum(own, min(rtol or 0.0, 1.0) ** 2 * squares), 0.0, None


class GramEncoder(Encoder):
    """Codes rows that are correlations already; `atoms` (n,) are factors that make them those of unit-norm atoms."""

    def correlate(self, signals: Array, features: Array | None = None) -> tuple[Array, Array]:
        return signals, signals * backend_of(signals).as_like(self.atoms, signals)

    @cached_property
    def as_float64(self) -> Encoder:
        assert self.gram is not None
        return replace(self, gram=self.gram.astype(np.float64))


def check_pursuit(
    n_atoms: int,
    n_nonzero_coefs: int | None,
    residual_tol: float | None = None,
    rtol: float | None = None,
    pursuit: str = "ols",
    alpha: float = 0.0,
    l2: float = 0.0,
    positive_code: bool = False,
) -> Pursuit:
    """The options of a pursuit, checked; more non-zeros than atoms are clipped with a warning."""
    if not isinstance(pursuit, str) or pursuit not in PURSUITS:
        raise ValueError(f"pursuit={pursuit!r} is unknown; choose one of {', '.join(map(repr, PURSUITS))}.")
    if not isinstance(positive_code, bool | np.bool_):
        raise ValueError(f"positive_code={positive_code!r} must be True or False.")
    for name, value, what in (("residual_tol", residual_tol, "squared residual"), ("rtol", rtol, "share of a norm")):
        if value is None:
            continue
        if not (isinstance(value, Real) and value >= 0.0):
            raise ValueError(f"{name}={value} must be a {what}, at least 0, or None.")
        if pursuit == "lasso":
            raise ValueError(
                f"{name}={value} has no effect with pursuit='lasso', whose codes minimise a sum of the residual and "
                f"alpha: choose alpha, or 'ols' or 'omp' for a residual."
            )
    for name, value in (("alpha", alpha), ("l2", l2)):
        # An abstract class takes ten times longer to ask, which small calls notice.
        if not ((type(value) is float or isinstance(value, Real)) and 0.0 <= float(value) < np.inf):
            raise ValueError(f"{name}={value} must be a penalty, a number of at least 0.")
    if pursuit == "lasso":
        return Pursuit(n_atoms, -1.0, pursuit, bool(positive_code), float(alpha), float(l2))
    has_tolerance = not (residual_tol is None and rtol is None)
    if n_nonzero_coefs is None:
        limit = n_atoms if has_tolerance else max(1, n_atoms // 10)
    elif not (type(n_nonzero_coefs) is int or isinstance(n_nonzero_coefs, Integral)) or n_nonzero_coefs < 1:
        raise ValueError(f"n_nonzero_coefs={n_nonzero_coefs} must be a whole number, at least 1, or None.")
    else:
        limit = int(n_nonzero_coefs)
        if limit > n_atoms:
            warn(f"n_nonzero_coefs={limit} exceeds the number of atoms, {n_atoms}: {n_atoms} is used.")
            limit = n_atoms
    tolerance = -1.0 if residual_tol is None else float(residual_tol)
    # Above one, no signal has a code either.
    return Pursuit(limit, tolerance, pursuit, bool(positive_code), rtol=min(float(rtol or 0.0), 1.0))


def unit_rows(atoms: Array, dtype: np.dtype) -> tuple[Array, Array]:
    """Atoms of unit norm in `dtype`, C-contiguous, and the norms they had (infinite for an atom of norm zero)."""
    atoms = cast(atoms, dtype) if is_tensor(atoms) else np.ascontiguousarray(atoms, dtype=dtype)
    unit, norms, smallest, largest = backend_of(atoms).unit_rows(atoms)
    if is_safe(smallest**2, dtype) and is_safe(largest**2, dtype):
        return unit, norms
    atoms = host(atoms)
    assert_all_finite(atoms, input_name="dictionary")
    needs_float64(atoms)
    wide = atoms.astype(np.float64)
    norms = np.sqrt(row_squares(wide))
    norms[norms == 0.0] = np.inf
    return (wide / norms[:, None]).astype(dtype), norms


def _stays_on_device(dictionary: Any, signals: Signals) -> bool:
    """Whether atoms are a dense tensor on the device of the signals."""
    if not is_tensor(dictionary) or dictionary.device != signals.device or dictionary.device.type == "cpu":
        return False
    is_dense = dictionary.is_floating_point() and not (dictionary.is_sparse or dictionary.is_sparse_csr)
    return is_dense and dictionary.ndim == 2 and dictionary.numel() > 0
