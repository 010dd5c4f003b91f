"""Standardisation of columns, as a part of the models that commands save."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import RobustScaler

from rkdl._cli.inputs import Inputs
from rkdl.datasets._files import Rows


class ColumnScaler(RobustScaler):
    """Median 0, and quartiles as far apart as those of a normal variable of variance 1.

    The scale of columns in which more than half of the values are equal is their standard deviation.
    """

    def fit(self, X: Rows, y: None = None) -> ColumnScaler:
        """Find centres and scales."""
        self.set_params(unit_variance=True, with_centering=not sparse.issparse(X))
        super().fit(X)
        # Column by column: there may be no room for another copy of the rows.
        for number, column in enumerate([] if sparse.issparse(X) else X.T):
            low, high = np.quantile(column, [0.25, 0.75])
            self.scale_[number] = (low == high and np.std(column, dtype=np.float64)) or self.scale_[number]
        return self


def in_memory(X: Rows) -> Any:
    """The rows as a matrix that scikit-learn takes."""
    return X if sparse.issparse(X) else np.asarray(X)


def with_scaler(model: BaseEstimator, inputs: Inputs, options: Namespace) -> Any:
    """The model after a scaler of columns, by default for tables; or the model alone."""
    is_scaled = inputs.unit == "rows" if options.standardize is None else options.standardize
    return make_pipeline(ColumnScaler(), model) if is_scaled else model


def first_of(model: Any) -> Any:
    """The step of a pipeline that sees the columns."""
    return model[0] if isinstance(model, Pipeline) else model


def last_of(model: Any) -> Any:
    """The estimator of rkdl at the end of a pipeline."""
    return model[-1] if isinstance(model, Pipeline) else model


def as_saved(model: Any) -> Any:
    """The model as it is used in Python: silent, and with a scaler of scikit-learn."""
    last_of(model).set_params(verbose=0)
    if not isinstance(model, Pipeline):
        return model
    scaler = RobustScaler()
    vars(scaler).update(vars(model[0]))
    return Pipeline([("robustscaler", scaler), model.steps[-1]])
