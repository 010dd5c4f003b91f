"""The data sets, with signals of unit norm as in the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from rkdl.datasets import fetch_cifar10, fetch_mnist, load_signals

NAMES = ("digits", "mnist-5000", "mnist", "cifar10")


class Data(NamedTuple):
    """Signals as float32 rows of unit norm, the shape of one as an image, and a description."""

    signals: np.ndarray
    image_shape: tuple[int, int]
    description: str


def load(name: str, data_home: str | None = None) -> Data:
    """Load a data set by its name, or MATLAB's Digits from the path of an export (`XTrain` in a `.mat` file)."""
    X: Any
    if name == "digits":
        X, shape, text = load_digits().data, (8, 8), "scikit-learn's digits"
    elif name == "mnist":
        # The paper's "label 5" is MATLAB's fifth category.
        X = fetch_mnist(label=4, data_home=data_home, return_X_y=True)[0]
        shape, text = (28, 28), "MNIST, digit 4 of the training set"
    elif name == "mnist-5000":
        images, digits = fetch_mnist(data_home=data_home, return_X_y=True)
        first = np.concatenate([np.flatnonzero(digits == digit)[:500] for digit in range(10)])
        X, shape, text = images[np.sort(first)], (28, 28), "MNIST, the first 500 of each digit of the training set"
    elif name == "cifar10":
        X = fetch_cifar10(label=0, gray=True, data_home=data_home, return_X_y=True)[0]
        shape, text = (32, 32), "CIFAR-10, airplanes of the training set in grey"
    elif name.endswith(".mat"):
        X, shape, text = load_signals(name), (28, 28), "MATLAB's Digits"
    else:
        raise ValueError(f"not a data set; choose from {', '.join(NAMES)}, or the .mat file of MATLAB's Digits")
    return Data(normalize(X).astype(np.float32), shape, text)
