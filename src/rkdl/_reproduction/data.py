"""Data sets of a reproduction, loaded and checked before anything runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkdl._data.signals import Signals
from rkdl._estimators.gamma import find_gamma, raw_gamma
from rkdl._reproduction import paper as _paper
from rkdl.datasets import EXPERIMENT_NAMES, get_data_home, load_experiment
from rkdl.datasets._cifar10 import _locate as locate_cifar10

_ONE_CLASS_REMARK = (
    "The images were read from cifar10_airplane.npz, made from a JPEG re-encoding of CIFAR-10: its pixels are close to "
    "the originals but not identical."
)


# Rows scaled to unit norm hardly differ if one column holds this share of their energy.
_DOMINANT = 0.99


@dataclass(frozen=True)
class Dataset:
    """Signals and their metadata.

    Parameters
    ----------
    name : str
        As named on the command line.
    signals : ndarray of shape (n_signals, n_features)
        The signals, one per row.
    image_shape : tuple of int or None
        Shape of a signal as an image.
    facts : dict
        Recorded metadata: description, size, checksum, the kernel's gamma, the paper's column, remarks.
    """

    name: str
    signals: np.ndarray
    image_shape: tuple[int, ...] | None
    facts: dict[str, Any]

    @property
    def gamma(self) -> float:
        """The kernel's parameter."""
        return self.facts["gamma"]

    @property
    def is_own(self) -> bool:
        """Whether it is a user's file."""
        return self.facts["is_file"]

    def scaling_problem(self) -> str | None:
        """Why rows of a user's table should not have been scaled to unit norm; None if there is no reason."""
        if not self.is_own or not self.facts["is_scaled"] or self.signals.shape[1] < 2:
            return None
        energies = np.mean(np.square(self.signals, dtype=np.float64), axis=0)
        if energies.max() <= _DOMINANT * energies.sum():
            return None
        return (
            f"{self.name}: rows are scaled to unit norm, of which column {energies.argmax() + 1} makes up nearly all; "
            f"standardise the columns in the file, and use --no-scaling"
        )


def load_datasets(
    names: Sequence[str],
    label: int | None,
    data_home: str | None,
    dtype: type,
    download: bool,
    scales_own: bool = True,
) -> list[Dataset]:
    """Load all data sets, each once; raises a ValueError with a one-line message for the first bad one.

    Parameters
    ----------
    names : sequence of str
        As named on the command line.
    label, data_home, dtype, download
        As in `rkdl.datasets.load_experiment`.
    scales_own : bool
        Whether signals of files are scaled to unit norm; those of the experiments always are.
    """
    names = list(dict.fromkeys(names))
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(slug(name), name)
        if other != name:
            raise ValueError(f"{other} and {name} have the same file name; give them to two runs with different --out")
    return [_load(name, label, data_home, dtype, download, scales_own) for name in names]


def slug(name: str) -> str:
    """Convert a data set's name for use in file names."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(name)).strip("-") or "data"


def _load(
    name: str, label: int | None, data_home: str | None, dtype: type, download: bool, scales_own: bool
) -> Dataset:
    is_file = name not in EXPERIMENT_NAMES
    is_scaled = scales_own or not is_file
    data = load_experiment(
        name, label=label, data_home=data_home, dtype=dtype, download_if_missing=download, normalize=is_scaled
    )
    n_signals, n_features = data.signals.shape
    if n_signals < _paper.N_KERNEL_VECTORS:
        raise ValueError(
            f"{name}: {n_signals} signals are too few; the experiment needs at least {_paper.N_KERNEL_VECTORS}, "
            f"one per kernel vector"
        )
    if np.ptp(data.signals, axis=0).max() == 0.0:
        raise ValueError(f"{name}: all signals are identical, so there is nothing to learn")
    printed = _paper.printed_column(name, label, (n_signals, n_features))
    remarks = [printed.remark] if printed is not None and printed.remark else []
    if name == "cifar10" and locate_cifar10(get_data_home(data_home), False).suffix == ".npz":
        remarks.append(_ONE_CLASS_REMARK)
    facts = {
        "description": data.description,
        "gamma": _gamma(data.signals, name) if is_file and printed is None else _paper.GAMMA,
        "image_shape": None if data.image_shape is None else list(data.image_shape),
        "is_file": is_file,
        "is_scaled": is_scaled,
        "n_features": n_features,
        "n_signals": n_signals,
        "printed": None if printed is None else {"column": printed.column, "same_data": printed.same_data},
        "remarks": remarks,
        "sha256": hashlib.sha256(np.ascontiguousarray(data.signals).tobytes()).hexdigest(),
    }
    return Dataset(name, data.signals, data.image_shape, facts)


def _gamma(signals: np.ndarray, name: str) -> float:
    """The library's default for a user's signals: one over their median squared distance."""
    opened = Signals(signals, signals.dtype)
    try:
        return raw_gamma("median", find_gamma("median", opened), opened.scale)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
