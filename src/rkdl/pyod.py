"""The outlier detector with the conventions of PyOD: higher scores are more abnormal, and outliers have label 1.

Requires PyOD: ``pip install 'rkdl[pyod]'``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

try:
    from pyod.models.base import BaseDetector
except ImportError as error:
    raise ImportError("rkdl.pyod needs PyOD: install it with pip install 'rkdl[pyod]'.") from error

from rkdl._backends.arrays import host
from rkdl._estimators.outliers import KDLOutlierDetector
from rkdl._utils.types import Device

__all__ = ["KDLOD"]


class KDLOD(BaseDetector):
    """PyOD detector: signals that an ensemble of kernel dictionaries represents badly.

    The same as `rkdl.KDLOutlierDetector`, with the same parameters except `contamination`, which follows PyOD.

    Parameters
    ----------
    contamination : float, default=0.1
        Fraction of outliers among the training signals, in (0, 0.5], or a PyThresh object.
    n_components : int or array-like of int, default=(32, 8)
        Number of atoms per dictionary: one number for each of `gamma_factors`, or one for all.
    n_nonzero_coefs : int or array-like of int, default=(16, 8)
        Maximum number of nonzero coefficients per signal, likewise.
    gamma : float, "median" or "scale", default="median"
        Parameter of the kernel. "median" is the inverse of the median squared distance in a sample of the signals,
        "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    gamma_factors : float or array-like of float, default=(0.1, 6.0)
        Factors of `gamma`, one per kernel width.
    n_kernel_vectors : int, default=200
        Number of kernel vectors per dictionary, drawn at random from the signals.
    discard : float, default=0.25
        Fraction of the signals, the worst represented, left out when a dictionary is learned again; 0: learn it once.
    n_members : int, default=10
        Number of dictionaries.
    max_samples : int, default=2048
        Maximum number of signals per dictionary, drawn at random.
    max_iter : int, default=4
        Number of iterations per dictionary.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of the kernel vectors, initial atoms and samples.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    decision_scores_ : ndarray of shape (n_signals,)
        Anomaly scores of the training signals; higher is more abnormal.
    threshold_ : float
        Score above which `predict` labels a signal an outlier: that of `rkdl.KDLOutlierDetector`, which sets it on
        signals left out of the learning where there are few.
    labels_ : ndarray of shape (n_signals,)
        1 for outliers among the training signals, a fraction `contamination` of them, 0 for the others.
    detector_ : KDLOutlierDetector
        Fitted detector.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.pyod import KDLOD
    >>> X = np.random.default_rng(0).standard_normal((300, 4))
    >>> X[:3] += 8.0
    >>> detector = KDLOD(contamination=0.01, random_state=0).fit(X)
    >>> np.flatnonzero(detector.labels_)
    array([0, 1, 2])
    """

    def __init__(
        self,
        contamination: Any = 0.1,
        n_components: int | ArrayLike = (32, 8),
        n_nonzero_coefs: int | ArrayLike = (16, 8),
        gamma: float | str = "median",
        gamma_factors: float | ArrayLike = (0.1, 6.0),
        n_kernel_vectors: int = 200,
        discard: float = 0.25,
        n_members: int = 10,
        max_samples: int = 2048,
        max_iter: int = 4,
        device: Device = None,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        if isinstance(contamination, str):
            raise ValueError(
                f"contamination={contamination!r}: PyOD's detectors take the share of outliers, above 0 and at most "
                f"0.5, or one of PyOD's thresholds; KDLOutlierDetector knows 'auto'."
            )
        super().__init__(contamination=contamination)
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.gamma = gamma
        self.gamma_factors = gamma_factors
        self.n_kernel_vectors = n_kernel_vectors
        self.discard = discard
        self.n_members = n_members
        self.max_samples = max_samples
        self.max_iter = max_iter
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Learn the dictionaries and the threshold.

        Parameters
        ----------
        X : array-like or tensor of shape (n_signals, n_features)
            Signals, one per row.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted detector.
        """
        is_thresholder = not isinstance(self.contamination, float | int)  # of PyThresh, which works on the scores
        options = self.get_params(deep=False)
        detector = KDLOutlierDetector(**(options | {"contamination": "auto"} if is_thresholder else options))
        # PyOD compares with thresholds in float64.
        scores = -detector._fit_scores(X).astype(np.float64)
        # A fit that fails keeps what an earlier one learned.
        self._set_n_classes(y)
        self.detector_, self.decision_scores_ = detector, scores
        self._process_decision_scores()
        if not is_thresholder:
            # With few training signals, new signals have a threshold of their own; labels_ do not follow it.
            self.threshold_: float = max(self.threshold_, -detector.offset_)
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Compute anomaly scores; higher is more abnormal.

        Parameters
        ----------
        X : array-like or tensor of shape (n_signals, n_features)
            Signals, one per row.

        Returns
        -------
        scores : ndarray of shape (n_signals,)
            Anomaly scores; those of a tensor are brought to the host, where PyOD compares them.
        """
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return -host(self.detector_.score_samples(X)).astype(np.float64)
