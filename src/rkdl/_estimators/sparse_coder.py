"""Sparse coding with a given dictionary, which is prepared once."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils.validation import check_array

from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encode import unit_rows
from rkdl._data.open import gather, is_dask
from rkdl._estimators.base import DictionaryEstimator
from rkdl._estimators.fitting import constant, freeze, read_signals, replaced_at_once
from rkdl._execution.blas import one_blas_thread
from rkdl._features.maps import LinearMap
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import FLOATS, MatrixLike


@dataclass(eq=False, repr=False)
class SparseCoder(DictionaryEstimator):
    """Sparse coding with a given dictionary.

    `fit` normalises the atoms and computes their inner products once, so that `transform` of a few signals takes little
    more time than the pursuit itself. Without `fit`, the methods prepare the dictionary anew at every call.

    Parameters
    ----------
    dictionary : array-like of shape (n_components, n_features), default=None
        Atoms, one per row. They need not have unit norm; atoms of norm zero are never used. None means that the signals
        given to `fit` are the atoms.
    n_nonzero_coefs : int, default=None
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit with a tolerance.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual is at most this; None disables.
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
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Atoms, a copy of `dictionary`.
    n_components_ : int
        Number of atoms.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `fit` was given an `X` with column names that are strings.

    See Also
    --------
    sparse_encode : The same as a function, for a dictionary that is used once.
    DL : Learns a dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import SparseCoder
    >>> coder = SparseCoder(np.eye(3), n_nonzero_coefs=2).fit()
    >>> coder.transform([[3.0, 0.1, -2.0]])
    array([[ 3.,  0., -2.]])
    >>> coder.reconstruction_error([[3.0, 0.1, -2.0]])
    array([0.1])
    """

    dictionary: ArrayLike | None = None
    _: KW_ONLY
    n_nonzero_coefs: int | None = None
    missing: str = "error"

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DictionaryEstimator._parameter_constraints,
        "dictionary": ["array-like", None],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    @one_blas_thread()
    def fit(self, X: MatrixLike | None = None, y: None = None) -> Self:
        """Prepare the dictionary.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features), default=None
            Signals, one per row. Without a `dictionary`, they are the atoms; otherwise they are only checked, and may
            be left out.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with replaced_at_once(self) as work:
            work.components_ = work._read_atoms(X)
            work.n_components_, work.n_features_in_ = work.components_.shape
            freeze(work, ("components_",))
            work._make_pursuit(work.n_components_)
        self._dictionary().encoder(self.components_.dtype)
        return self

    def _read_atoms(self, X: Any) -> np.ndarray:
        """The atoms (n, m), as an array of their own; sets the attributes about features from `X`."""
        atoms = None
        if self.dictionary is not None:
            given = well_formed(gather(self.dictionary), "dictionary")
            atoms = check_array(given, dtype=FLOATS, order="C", copy=True, input_name="dictionary")
        if X is None:
            self.__dict__.pop("feature_names_in_", None)
            if atoms is None:
                raise ValueError(
                    "SparseCoder has no dictionary: set the parameter, or give fit signals to be its atoms."
                )
            return atoms
        given, missing = (gather(X) if is_dask(X) else X, "error") if atoms is None else (X, self.missing)
        signals = read_signals(self, given, reset=True, device=self.device, allows_nan=missing == "ignore")
        signals = signals.with_missing(missing)
        if atoms is not None and atoms.shape[1] != signals.shape[1]:
            raise ValueError(
                f"X has {signals.shape[1]} features and the atoms of dictionary have {atoms.shape[1]}: they must agree."
            )
        if signals.is_in_memory and not signals.is_remote:
            signals.check_finite()
        if atoms is None:
            rows = signals.on_host()
            atoms = np.array(rows.read(0, rows.shape[0]))
        return atoms

    def _assemble(self) -> FittedDictionary:
        atoms, norms = unit_rows(constant(self.components_), self.components_.dtype)
        return FittedDictionary(
            LinearMap(atoms.shape[1], self.missing == "ignore"),
            atoms,
            self._make_pursuit(len(atoms)).for_atoms_of(norms),
            norms=norms,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self.dictionary is None
        return tags
