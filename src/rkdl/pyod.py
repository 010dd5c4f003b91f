"""The outlier detector with PyOD's conventions: higher is more abnormal, and outliers have the label 1.

Needs PyOD, the extra ``rkdl[pyod]``.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

try:
    from pyod.models.base import BaseDetector
except ImportError as error:
    raise ImportError("rkdl.pyod needs PyOD: install it with pip install 'rkdl[pyod]'.") from error

from rkdl._estimators.outliers import KDLOutlierDetector

__all__ = ["KDLOD"]


class KDLOD(BaseDetector):
    """Residuals of kernel dictionaries as a PyOD detector.

    The same detector as `rkdl.KDLOutlierDetector`, with the same parameters but for `contamination`, which is PyOD's.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of outliers among the training signals, in (0, 0.5], or an object of PyThresh.
    n_components : int or array-like of int, default=(32, 8)
        Number of atoms of a dictionary, one number for each of `gamma_factors` or one for all.
    n_nonzero_coefs : int or array-like of int, default=(16, 8)
        Most non-zeros of a code, likewise.
    gamma : float, "median" or "scale", default="median"
        The kernel's parameter; "median" is one over the median squared distance of a sample, "scale" is
        ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    gamma_factors : float or array-like of float, default=(0.1, 6.0)
        What `gamma` is multiplied by, one number for each width of the kernel.
    n_kernel_vectors : int, default=200
        Signals, drawn at random for each dictionary, that its atoms are combinations of.
    discard : float, default=0.25
        Share of the signals, the worst represented, that each dictionary leaves out when it is learned again.
    n_members : int, default=10
        Number of dictionaries.
    max_samples : int, default=2048
        Most signals that one dictionary is learned from.
    max_iter : int, default=4
        Iterations of each learning.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.
    random_state : int, RandomState instance or None, default=None
        Randomness of kernel vectors, first atoms and samples.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    decision_scores_ : ndarray of shape (n_signals,)
        Abnormality of the training signals, the higher the more abnormal.
    threshold_ : float
        Abnormality above which `predict` calls a signal an outlier: that of `rkdl.KDLOutlierDetector`, which sets it on
        signals left out of a learning where there are few.
    labels_ : ndarray of shape (n_signals,)
        1 for outliers among the training signals, the share `contamination` of them, 0 for the others.
    detector_ : KDLOutlierDetector
        The fitted detector underneath.

    See Also
    --------
    rkdl.KDLOutlierDetector : The detector with scikit-learn's conventions.

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
        contamination=0.1,
        n_components=(32, 8),
        n_nonzero_coefs=(16, 8),
        gamma="median",
        gamma_factors=(0.1, 6.0),
        n_kernel_vectors=200,
        discard=0.25,
        n_members=10,
        max_samples=2048,
        max_iter=4,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
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
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None):
        """Learn what the common signals look like.

        Parameters
        ----------
        X : array-like of shape (n_signals, n_features)
            One signal a row.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted detector.
        """
        options = self.get_params(deep=False)
        if not isinstance(self.contamination, float | int):
            # One of PyThresh's objects, which looks at the scores.
            options.pop("contamination")
        detector = KDLOutlierDetector(**options)
        scores = _abnormality(detector._fit_scores(X))
        # A fit that fails leaves what an earlier one learned.
        self._set_n_classes(y)
        self.detector_, self.decision_scores_ = detector, scores
        self._process_decision_scores()
        if "contamination" in options:
            # New signals have a threshold of their own where few were learned from; labels_ are of these.
            self.threshold_ = max(self.threshold_, -detector.offset_)
        return self

    def decision_function(self, X):
        """Abnormality of signals, the higher the more abnormal.

        Parameters
        ----------
        X : array-like of shape (n_signals, n_features)
            One signal a row.

        Returns
        -------
        scores : ndarray of shape (n_signals,)
            The abnormality.
        """
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return _abnormality(self.detector_.score_samples(X))


def _abnormality(scores: np.ndarray) -> np.ndarray:
    # In float64, whatever the signals were: PyOD compares with thresholds in it.
    return -scores.astype(np.float64)
