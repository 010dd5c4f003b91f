"""The outlier detector with the conventions of PyOD: higher scores are more abnormal, and outliers have label 1.

Requires PyOD: ``pip install 'rkdl[pyod]'``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

try:
    from pyod.models.base import BaseDetector
except ImportError as error:
    raise ImportError("rkdl.pyod needs PyOD: install it with pip install 'rkdl[pyod]'.") from error

from rkdl._backends.arrays import host
from rkdl._estimators.outliers import KDLOutlierDetector

__all__ = ["KDLOD"]


class KDLOD(BaseDetector):
    """PyOD detector: signals that an ensemble of kernel dictionaries represents badly.

    The same as `rkdl.KDLOutlierDetector`, whose parameters it has; only `contamination` follows PyOD.

    Parameters
    ----------
    contamination : float, default=0.1
        Fraction of outliers among the training signals, in (0, 0.5], or a PyThresh object.
    **parameters
        The other parameters of `rkdl.KDLOutlierDetector`, by name and with the same defaults.

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

    def __init__(self, contamination: Any = 0.1, **parameters: Any) -> None:
        if isinstance(contamination, str):
            raise ValueError(
                f"contamination={contamination!r}: PyOD's detectors take the share of outliers, above 0 and at most "
                f"0.5, or one of PyOD's thresholds; KDLOutlierDetector knows 'auto'."
            )
        super().__init__(contamination=contamination)
        for name, value in (KDLOutlierDetector(**parameters).get_params() | {"contamination": contamination}).items():
            setattr(self, name, value)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(KDLOutlierDetector._get_param_names())

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
        scores = -host(detector.fit(X).score_samples(X)).astype(np.float64)
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
