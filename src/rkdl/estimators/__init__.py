"""The estimators."""

from rkdl.estimators._classifier import KDLClassifier
from rkdl.estimators._full import KDL
from rkdl.estimators._linear import DL, FourierDL
from rkdl.estimators._optimized import MORKDL, ORKDL
from rkdl.estimators._outliers import KDLOutlierDetector
from rkdl.estimators._reduced import RKDL

__all__ = ["DL", "KDL", "MORKDL", "ORKDL", "RKDL", "FourierDL", "KDLClassifier", "KDLOutlierDetector"]
