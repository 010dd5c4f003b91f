"""The paper's methods, settings and printed figures."""

from __future__ import annotations

from typing import NamedTuple

#: The methods that the paper compares, in its order.
PAPER_METHODS = ("KDL", "RKDL-D", "ORKDL-D", "MORKDL-D")

#: All methods in the order of tables: linear, the paper's, and the alternatives that it names.
METHODS = ("DL", *PAPER_METHODS, "Nystrom", "Fourier")

#: Methods whose errors are in the kernel's feature space, and so comparable as they are.
COMPARABLE = (*PAPER_METHODS, "Nystrom")

#: The columns of the tables.
PRESETS = {
    "paper": "the algorithms as the text defines them: D by plain AK-SVD, random A, at most 4 non-zeros per signal",
    "published": "what the authors' published code computes, including its errors and its dense codes",
    "restricted": "the published code with one line changed: an update of the codes keeps their support",
    "rkdl": "this library's defaults, with the paper's kernel and sizes",
}

#: What runs besides, with the preset that it belongs to and the largest number of its rounds.
STUDIES = {
    "literal": ("published", 1),
    "starts": ("paper", None),
    "work": ("rkdl", 3),
}

#: What is run for its errors alone: once, without care for its time.
UNTIMED = ("restricted", "starts", "work")

#: What runs on a user's own data unless presets are named.
OWN = "own"
OWN_SIZES = (20, 50, 100, 200, 400)
FLOOR = "KDL, 70 iterations"

GAMMA = 0.1
N_COMPONENTS, N_NONZERO_COEFS = 20, 4
N_KERNEL_VECTORS, LINEAR_NONZERO_COEFS = 50, 5
N_ITERATIONS, N_INNER_ITERATIONS = 10, 3
LEARNING_RATE, LEARNING_RATE_CIFAR10 = 5e-4, 6e-4
LINEAR_WEIGHT = 1.0

PRINTED_ERRORS = {
    "Digits": {"KDL": 1.041e-2, "RKDL-D": 1.026e-2, "ORKDL-D": 1.022e-2, "MORKDL-D": 1.021e-2},
    "MNIST": {"KDL": 8.081e-3, "RKDL-D": 7.970e-3, "ORKDL-D": 7.859e-3, "MORKDL-D": 7.846e-3},
    "CIFAR-10": {"KDL": 3.373e-3, "RKDL-D": 3.285e-3, "ORKDL-D": 3.250e-3, "MORKDL-D": 3.238e-3},
}
PRINTED_SECONDS = {
    "Digits": {"KDL": 61.7, "RKDL-D": 9.2, "ORKDL-D": 39.2, "MORKDL-D": 38.9},
    "MNIST": {"KDL": 92.5, "RKDL-D": 10.9, "ORKDL-D": 48.4, "MORKDL-D": 49.0},
    "CIFAR-10": {"KDL": 65.1, "RKDL-D": 9.6, "ORKDL-D": 51.6, "MORKDL-D": 51.4},
}


class Printed(NamedTuple):
    """The column of the paper's tables for a data set.

    Parameters
    ----------
    column : str
        Its name in the paper.
    same_data : bool
        Whether the paper's column was measured on the same signals.
    remark : str
        Caveat of the comparison; may be empty.
    """

    column: str
    same_data: bool
    remark: str


def printed_column(name: str, label: int | None, shape: tuple[int, int]) -> Printed | None:
    """The paper's column for a data set, or None.

    Parameters
    ----------
    name : str
        The data set as named on the command line.
    label : int or None
        The requested class; None for the data set's default.
    shape : (n_signals, n_features)
        Its size.
    """
    if name == "mnist" and label in (None, 4):
        return Printed("MNIST", True, "")
    if name == "cifar10" and label in (None, 0):
        return Printed("CIFAR-10", True, "")
    if name == "mnist-5000":
        remark = "The printed figures are for MATLAB's Digits, another data set of the same size."
        return Printed("Digits", False, remark)
    if name.lower().endswith(".mat") and shape == (5000, 784):
        remark = "The file has the size of MATLAB's Digits and is assumed to be them."
        return Printed("Digits", True, remark)
    return None
