"""Plots of fitted estimators, in scikit-learn's Display convention.

``SomethingDisplay.from_estimator(estimator, ...)`` computes the data, draws them and returns the display,
whose `ax_` and `figure_` can be changed further; `plot` draws it once more, on the axes given as `ax`. A pipeline may
take the place of an estimator: what its last step learned is shown in the units of the pipeline's input.
`RecoveryDisplay.from_dictionaries` compares two dictionaries.

Drawing needs matplotlib: ``pip install 'rkdl[plots]'``.
"""

from rkdl.plotting._codes import CodesDisplay, ResidualsDisplay
from rkdl.plotting._curves import ErrorCurveDisplay, ExplanationDisplay, FeatureRelevanceDisplay, RecoveryDisplay
from rkdl.plotting._signals import AtomsDisplay, KernelVectorsDisplay, ReconstructionDisplay

__all__ = [
    "AtomsDisplay",
    "CodesDisplay",
    "ErrorCurveDisplay",
    "ExplanationDisplay",
    "FeatureRelevanceDisplay",
    "KernelVectorsDisplay",
    "ReconstructionDisplay",
    "RecoveryDisplay",
    "ResidualsDisplay",
]
