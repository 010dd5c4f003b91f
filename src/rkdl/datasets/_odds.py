"""Nine data sets of the ODDS collection for outlier detection."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl.datasets._errors import DatasetError, check_choice
from rkdl.datasets._home import HOME_REMEDY, get_data_home
from rkdl.datasets._matlab import read_mat

__all__ = ["ODDS_NAMES", "fetch_odds"]

ODDS_NAMES = ("arrhythmia", "cardio", "glass", "letter", "mnist", "musk", "pendigits", "satellite", "vowels")


def fetch_odds(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    return_X_y: bool = False,
) -> Bunch | tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Fetch an outlier-detection data set of the ODDS collection.

    It is read from ``odds/NAME.mat`` in the data folder and never downloaded, because the collection has no source
    with checksums.

    Parameters
    ----------
    name : str
        One of ``rkdl.datasets.ODDS_NAMES``.
    data_home : path-like, default=None
        The data folder; see :func:`get_data_home`.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    odds : :class:`~sklearn.utils.Bunch`
        With the attributes ``data`` (n_samples, n_features) of float64, ``target`` (n_samples,) of int64,
        which is 1 for outliers and 0 for the others, ``target_names``, ``filenames`` and ``DESCR``.
    (data, target) : tuple of ndarrays, if `return_X_y`
        The first two of these.

    Raises
    ------
    DatasetError
        If the file is missing or damaged.

    Examples
    --------
    >>> from rkdl.datasets import ODDS_NAMES, fetch_odds
    >>> len(ODDS_NAMES)
    9
    >>> fetch_odds("cardio").data.shape  # doctest: +SKIP
    (1831, 21)
    """
    check_choice("name", name, ODDS_NAMES)
    home = get_data_home(data_home)
    path = home / "odds" / f"{name}.mat"
    if not path.exists():
        what = "this ODDS data set was not found and cannot be downloaded"
        raise DatasetError(path, what, f"put it there, or {HOME_REMEDY}")
    variables = read_mat(path)
    if "X" not in variables or "y" not in variables:
        raise DatasetError(path, "it lacks the numeric variables X and y", "fetch it again")
    data, labels = variables["X"], variables["y"].ravel()
    if data.ndim != 2 or len(data) != len(labels) or data.dtype.kind == "c":
        raise DatasetError(path, f"X of shape {data.shape} does not match {len(labels)} labels in y", "fetch it again")
    if not np.isin(labels, (0, 1)).all():
        raise DatasetError(path, "y holds values other than 0 and 1 (outlier)", "fetch it again")
    data, target = np.ascontiguousarray(data, dtype=np.float64), labels.astype(np.int64)
    if return_X_y:
        return data, target
    description = f"{name}, of the ODDS collection: {len(data)} samples, {target.sum()} of them outliers (target 1)"
    return Bunch(data=data, target=target, target_names=["inlier", "outlier"], filenames=[str(path)], DESCR=description)
