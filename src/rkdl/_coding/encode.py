"""Sparse coding as functions: against a dictionary, or from a Gram matrix and correlations."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array

from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.arrays import squared_norms as row_squares
from rkdl._coding.encoder import Encoder, Pursuit, conditioning_scale, for_each_chunk, group_by_magnitude
from rkdl._coding.pursuit import Codes, pursue, scatter
from rkdl._data.signals import Signals, is_safe
from rkdl._data.sources import RowSource, check_source, gather, is_dask, is_source
from rkdl._execution.blas import one_blas_thread
from rkdl._features.maps import LinearMap
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import FLOATS
from rkdl._utils.warnings import warn

PURSUITS = ("ols", "omp")


def sparse_encode(
    X: Any,
    dictionary: Any,
    *,
    n_nonzero_coefs: int | None = None,
    residual_tol: float | None = None,
    pursuit: str = "ols",
    sparse_output: bool = False,
    device: Any = None,
    n_jobs: int | None = None,
) -> np.ndarray | sparse.csr_array:
    """Sparse codes of signals against a dictionary.

    The atoms need not have unit norm: codes are those of the atoms as given, and an atom's length does not
    change how soon it is chosen.
    The pursuit works on inner products, so an atom that is within about 1e-4 of its length (in float32, 2e-2) of the
    span of those chosen is taken to lie in it, and left out.

    Parameters
    ----------
    X : array-like or CSR matrix of shape (n_signals, n_features)
        One signal a row. Anything with ``shape``, ``dtype`` and row slices (a memory map, a Zarr array, an HDF5
        dataset) is read chunk by chunk.
    dictionary : array-like of shape (n_components, n_features)
        One atom a row. Atoms of zero norm are never used.
    n_nonzero_coefs : int, default=None
        Most non-zeros of a code. None sets no limit if `residual_tol` is given, and a tenth of the atoms (at
        least one) if it is not.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares or orthogonal matching pursuit.
    sparse_output : bool, default=False
        Return a CSR array instead of a dense one.
    device : str or torch.device, default=None
        Where to compute: "cuda" streams arrays through a GPU. None computes where the signals are: a tensor's device,
        or in NumPy.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.

    Returns
    -------
    codes : ndarray or csr_array of shape (n_signals, n_components)
        The codes, float32 if the signals are float32, else float64; a dense or CSR tensor where the signals are one.

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
    if device is not None or is_tensor(X) or is_tensor(dictionary):
        return _encode_on_device(X, dictionary, device, sparse_output, n_jobs, n_nonzero_coefs, residual_tol, pursuit)
    # A chunk's own sums show what is not finite, at no extra walk over the signals.
    if not _is_plain(X):
        X = gather(X) if is_dask(X) else well_formed(X)
    if not _is_plain(X) and is_source(X):
        check_source(X, "sparse_encode")
        signals: Signals = RowSource(X)
    else:
        if not _is_plain(X):
            X = check_array(X, dtype=FLOATS, accept_sparse="csr", ensure_all_finite=False, input_name="X")
        signals = Signals(X, X.dtype)
    if not _is_plain(dictionary):
        dictionary = check_array(well_formed(dictionary, "dictionary"), dtype=FLOATS, input_name="dictionary")
    if X.shape[1] != dictionary.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features and the atoms of dictionary have {dictionary.shape[1]}: they must agree."
        )
    options = check_pursuit(n_nonzero_coefs, residual_tol, pursuit, len(dictionary))
    # A few signals meet few atoms: their rows of the Gram matrix alone are computed.
    few = X.shape[0] * options.n_nonzero < len(dictionary) // 2
    unit, norms = _unit_rows(np.ascontiguousarray(dictionary, dtype=signals.dtype))
    # BLAS threads would go on spinning, for a while, beside those that walk the chunks.
    with one_blas_thread():
        gram = None if few else unit @ unit.T
    encoder = Encoder(LinearMap(X.shape[1]), unit, gram, options)
    return encode_signals(signals, encoder, sparse_output, n_jobs, factors=1.0 / norms)


def sparse_encode_gram(
    gram: Any,
    correlations: Any,
    *,
    squared_norms: Any = None,
    n_nonzero_coefs: int | None = None,
    residual_tol: float | None = None,
    pursuit: str = "ols",
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
        Squared norms of the signals; needed with `residual_tol`.
    n_nonzero_coefs : int, default=None
        Most non-zeros of a code. None sets no limit if `residual_tol` is given, and a tenth of the atoms (at
        least one) if it is not.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares or orthogonal matching pursuit.
    sparse_output : bool, default=False
        Return a CSR array instead of a dense one.
    device : str or torch.device, default=None
        Where to compute: "cuda" streams arrays through a GPU. None computes where the signals are: a tensor's device,
        or in NumPy.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.

    Returns
    -------
    codes : ndarray or csr_array of shape (n_signals, n_components)
        The codes, float32 if the correlations are float32, else float64; a dense or CSR tensor where the correlations
        are one.

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
    if device is not None or is_tensor(correlations):
        signals = _device_signals(correlations, device, "correlations")
        signals.check_finite()
    else:
        correlations = check_array(well_formed(correlations, "correlations"), dtype=FLOATS, input_name="correlations")
        signals = Signals(correlations, correlations.dtype)
    n_signals, dtype = signals.shape[0], signals.dtype
    gram = check_array(well_formed(host(gram), "gram"), dtype=np.float64, input_name="gram")
    n_atoms = len(gram)
    if gram.shape != (n_atoms, n_atoms):
        raise ValueError(f"gram has shape {gram.shape}: it must be square, one row and one column an atom.")
    if signals.shape[1] != n_atoms:
        raise ValueError(f"correlations has {signals.shape[1]} columns and gram {n_atoms} atoms.")
    scale = float(np.abs(gram).max())
    if not np.allclose(gram, gram.T, rtol=0.0, atol=1e-5 * scale):
        raise ValueError("gram is not symmetric: give inner products of the atoms, for instance A @ A.T.")
    if (gram.diagonal() < 0.0).any():
        raise ValueError(f"gram has a negative diagonal entry, {gram.diagonal().min()}: no atom has such a norm.")
    options = check_pursuit(n_nonzero_coefs, residual_tol, pursuit, n_atoms)
    if squared_norms is None:
        if residual_tol is not None:
            raise ValueError(
                "residual_tol needs squared_norms, the squared norm of every signal: inner products with the atoms do "
                "not tell it."
            )
        squares = np.full(n_signals, np.inf, dtype=dtype)
    else:
        given = well_formed(host(squared_norms), "squared_norms")
        squares = check_array(given, dtype=dtype, ensure_2d=False, input_name="squared_norms")
        if squares.shape != (n_signals,):
            raise ValueError(f"squared_norms has shape {squares.shape}, expected ({n_signals},).")
        if squares.min() < 0.0:
            raise ValueError(f"squared_norms has a negative entry, {squares.min()}: no signal has such a norm.")
    norms = np.sqrt(gram.diagonal())
    norms[norms == 0.0] = np.inf
    unit_gram = gram / norms / norms[:, None]
    if np.abs(unit_gram).max() > 1.0 + 1e-5:
        raise ValueError(
            "gram is not positive semidefinite: an inner product of two atoms exceeds the product of their norms."
        )
    encoder = GramEncoder(unit_gram.astype(dtype), 1.0 / norms, options)
    return encode_signals(signals, encoder, sparse_output, n_jobs, factors=1.0 / norms, squared_norms=squares)


def _device_signals(X: Any, device: Any, name: str) -> Signals:
    """Signals on a device: a tensor where it is or is wanted, an array chunk by chunk."""
    from rkdl._backends.torch.device import resolve_device
    from rkdl._backends.torch.read import read_tensor
    from rkdl._backends.torch.signals import StreamedSignals

    if is_tensor(X):
        return read_tensor(X, device, "sparse_encode")
    place = resolve_device(device)
    X = well_formed(X, name)
    X = check_array(X, dtype=FLOATS, accept_sparse="csr", ensure_all_finite=False, input_name=name)
    return StreamedSignals(Signals(X, X.dtype), place)


def _encode_on_device(
    X: Any,
    dictionary: Any,
    device: Any,
    sparse_output: bool,
    n_jobs: int | None,
    n_nonzero_coefs: int | None,
    residual_tol: float | None,
    pursuit: str,
) -> Any:
    """`sparse_encode` of a tensor, or through a device."""
    if device is None and not is_tensor(X):
        # Atoms alone that are a tensor decide nothing.
        return sparse_encode(
            X,
            host(dictionary),
            n_nonzero_coefs=n_nonzero_coefs,
            residual_tol=residual_tol,
            pursuit=pursuit,
            sparse_output=sparse_output,
            n_jobs=n_jobs,
        )
    signals = _device_signals(X, device, "X")
    dictionary = check_array(well_formed(host(dictionary), "dictionary"), dtype=FLOATS, input_name="dictionary")
    if signals.shape[1] != dictionary.shape[1]:
        raise ValueError(
            f"X has {signals.shape[1]} features and the atoms of dictionary have {dictionary.shape[1]}: they must "
            f"agree."
        )
    options = check_pursuit(n_nonzero_coefs, residual_tol, pursuit, len(dictionary))
    unit, norms = _unit_rows(np.ascontiguousarray(dictionary, dtype=signals.dtype))
    # The inner products of the atoms are computed on the device.
    encoder = Encoder(LinearMap(signals.shape[1]), unit, None, options)
    return encode_signals(signals, encoder, sparse_output, n_jobs, factors=1.0 / norms)


def _is_plain(array: Any) -> bool:
    """Whether scikit-learn's checks would return the array as it is; they take longer than coding a signal."""
    return type(array) is np.ndarray and array.ndim == 2 and array.size > 0 and array.dtype in FLOATS


class GramEncoder:
    """Codes rows that are correlations already."""

    def __init__(self, gram: np.ndarray, factors: np.ndarray, pursuit: Pursuit) -> None:
        self.gram = gram
        self.factors = factors
        self.pursuit = pursuit

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.gram)

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is coded."""
        return 3 * self.n_atoms

    def condition(self, rows: np.ndarray) -> tuple[GramEncoder, np.ndarray, float]:
        """As `Encoder.condition`."""
        scale = conditioning_scale(rows)
        if scale == 1.0:
            return self, rows, scale
        pursuit = self.pursuit._replace(residual_tol=self.pursuit.residual_tol * scale * scale)
        return GramEncoder(self.gram, self.factors, pursuit), rows * rows.dtype.type(scale), scale

    def codes(self, rows: np.ndarray, squared_norms: np.ndarray | None) -> Codes:
        """As `Encoder.codes`."""
        assert squared_norms is not None
        correlations = rows * self.factors.astype(rows.dtype)
        return pursue(correlations, self.gram, squared_norms, *self.pursuit)[0]


def encode_signals(
    signals: Signals,
    encoder: Any,
    sparse_output: bool,
    n_jobs: int | None,
    *,
    factors: np.ndarray | float = 1.0,
    squared_norms: np.ndarray | None = None,
) -> np.ndarray | sparse.csr_array:
    """Codes of all signals, chunk by chunk, straight into what is returned.

    Parameters
    ----------
    signals : Signals
        What is coded.
    encoder : Encoder or GramEncoder
        What codes a chunk.
    sparse_output : bool
        A CSR array instead of a dense one.
    n_jobs : int or None
        Threads.
    factors : ndarray of shape (n_atoms,) or float, default=1.0
        What the codes are multiplied by.
    squared_norms : ndarray of shape (n_signals,), default=None
        Squared norms of the signals, where the encoder cannot tell them.
    """
    if hasattr(signals, "device"):
        from rkdl._backends.torch.encode import encode_signals as encode

        options: Any = {"factors": factors, "squared_norms": squared_norms}
        return encode(signals, encoder, sparse_output, n_jobs, **options)  # type: ignore[arg-type]
    n_signals, n_atoms = signals.shape[0], encoder.n_atoms
    dtype = signals.dtype
    wide_factors = np.broadcast_to(np.asarray(factors, dtype=np.float64), (n_atoms,))
    factors = wide_factors.astype(dtype)
    scaled = bool((factors != 1.0).any())
    dense = None if sparse_output else np.zeros((n_signals, n_atoms), dtype=dtype)

    def code(given: np.ndarray, norms: np.ndarray | None) -> tuple[Codes, np.ndarray]:
        coder, rows, scale = encoder.condition(given)
        if norms is not None:
            norms = norms * dtype.type(scale) * dtype.type(scale)
        return coder.codes(rows, norms), factors if scale == 1.0 else (wide_factors / scale).astype(dtype)

    def finish(codes: Codes, own_factors: np.ndarray, start: int, stop: int) -> Codes | None:
        if dense is not None:
            scatter(codes, own_factors, dense[start:stop])
            return None
        if scaled or own_factors is not factors:
            codes.values[:] *= own_factors[codes.indices]
        return codes

    def task(number: int, start: int, stop: int) -> Codes | None:
        rows = signals.read(start, stop)
        codes = encoder.plain_codes(rows) if squared_norms is None else None
        if codes is not None:
            return finish(codes, factors, start, stop)
        norms = None if squared_norms is None else squared_norms[start:stop]
        groups = group_by_magnitude(rows)
        if len(groups) > 1:
            block = np.zeros((stop - start, n_atoms), dtype=dtype)
            for group in groups:
                part = np.zeros((len(group), n_atoms), dtype=dtype)
                scatter(*code(rows[group], None if norms is None else norms[group]), part)
                block[group] = part
            if dense is not None:
                dense[start:stop] = block
                return None
            found = sparse.csr_array(block)
            return Codes(found.indptr, found.indices, found.data)
        return finish(*code(rows, norms), start, stop)

    parts = for_each_chunk(signals, encoder.row_width, n_jobs, task)
    if dense is not None:
        return dense
    return _join(parts, n_signals).to_csr(n_atoms)


def _join(parts: list[Codes], n_signals: int) -> Codes:
    """Codes of consecutive chunks as one; `parts` is emptied on the way."""
    total = sum(len(part.values) for part in parts)
    index_dtype = np.int32 if total < 2**31 else np.int64
    indptr = np.zeros(n_signals + 1, dtype=index_dtype)
    indices = np.empty(total, dtype=index_dtype)
    values = np.empty(total, dtype=parts[0].values.dtype)
    row = position = 0
    for number, part in enumerate(parts):
        rows, size = part.n_signals, len(part.values)
        np.add(part.indptr[1:], position, out=indptr[row + 1 : row + rows + 1], casting="unsafe")
        indices[position : position + size] = part.indices
        values[position : position + size] = part.values
        parts[number] = None  # type: ignore[call-overload]
        row, position = row + rows, position + size
    return Codes(indptr, indices, values)


def check_pursuit(n_nonzero_coefs: int | None, residual_tol: float | None, pursuit: str, n_atoms: int) -> Pursuit:
    """The options of a pursuit, checked; more non-zeros than atoms are clipped with a warning."""
    if pursuit not in PURSUITS:
        raise ValueError(f"pursuit={pursuit!r} is unknown; choose one of {', '.join(map(repr, PURSUITS))}.")
    if residual_tol is not None and not (isinstance(residual_tol, Real) and residual_tol >= 0.0):
        raise ValueError(f"residual_tol={residual_tol} must be a squared residual, at least 0, or None.")
    if n_nonzero_coefs is None:
        limit = max(1, n_atoms // 10) if residual_tol is None else n_atoms
    elif not isinstance(n_nonzero_coefs, Integral) or n_nonzero_coefs < 1:
        raise ValueError(f"n_nonzero_coefs={n_nonzero_coefs} must be a whole number, at least 1, or None.")
    else:
        limit = int(n_nonzero_coefs)
        if limit > n_atoms:
            warn(f"n_nonzero_coefs={limit} exceeds the number of atoms, {n_atoms}: {n_atoms} is used.")
            limit = n_atoms
    return Pursuit(limit, -1.0 if residual_tol is None else float(residual_tol), pursuit == "ols")


def _unit_rows(atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Atoms of unit norm, and the norms they had (infinite for an atom of norm zero)."""
    with np.errstate(over="ignore"):
        norms = np.sqrt(row_squares(atoms))
    if not (is_safe(float(norms.min()) ** 2, atoms.dtype) and is_safe(float(norms.max()) ** 2, atoms.dtype)):
        assert_all_finite(atoms, input_name="dictionary")
        largest = np.abs(atoms).max(axis=1)
        largest[largest == 0.0] = 1.0
        norms = np.sqrt(row_squares(atoms / largest[:, None])) * largest
        norms[norms == 0.0] = np.inf
    return atoms / norms[:, None], norms
