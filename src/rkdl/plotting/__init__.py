"""Pictures of what was learned, with scikit-learn's Display convention.

``SomethingDisplay.from_estimator(estimator, ...)`` computes what is to be drawn, draws it and returns the display,
whose `ax_` and `figure_` can be changed further; `plot` draws it once more, on the axes given as `ax`. A pipeline may
take the place of an estimator: what its last step learned is shown in the units of the pipeline's input.

Drawing needs matplotlib: ``pip install 'rkdl[plots]'``.
"""

from rkdl.plotting._classes import ClassResidualsDisplay
from rkdl.plotting._codes import CodesDisplay, ResidualsDisplay
from rkdl.plotting._contours import DecisionContourDisplay
from rkdl.plotting._errors import ErrorCurveDisplay
from rkdl.plotting._reconstruction import ReconstructionDisplay
from rkdl.plotting._signals import AtomsDisplay, KernelVectorsDisplay

__all__ = [
    "AtomsDisplay",
    "ClassResidualsDisplay",
    "CodesDisplay",
    "DecisionContourDisplay",
    "ErrorCurveDisplay",
    "KernelVectorsDisplay",
    "ReconstructionDisplay",
    "ResidualsDisplay",
]
