"""Small estimators, one per code path, and what is read off fitted models; imported by the test files."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from sklearn.base import clone

from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL

# Seconds after which a child process or a thread is taken to hang.
PATIENCE = 120

COMMON = {"n_components": 8, "n_nonzero_coefs": 3, "max_iter": 2, "tol": 0.0, "random_state": 0}
KERNEL, REDUCED, OPTIMIZED = [KDL, RKDL, ORKDL, MORKDL], [RKDL, ORKDL, MORKDL], [ORKDL, MORKDL]
CLASSES = [DL, FourierDL, *KERNEL]

# Class and settings by name: what differs between two of them is another path through the code.
VARIANTS: dict = {
    "DL": (DL, {}),
    "DL-aksvd": (DL, {"atom_update": "aksvd"}),
    "DL-aksvd-omp": (DL, {"atom_update": "aksvd", "pursuit": "omp"}),
    "DL-tolerance": (DL, {"residual_tol": 0.3}),
    "DL-relative": (DL, {"rtol": 0.5, "n_nonzero_coefs": None}),
    "DL-lasso": (DL, {"pursuit": "lasso", "alpha": 0.2, "l2": 0.01}),
    "DL-positive": (DL, {"positive_code": True, "positive_dict": True}),
    "FourierDL": (FourierDL, {}),
    "KDL": (KDL, {}),
    "KDL-aksvd": (KDL, {"atom_update": "aksvd", "init": "random"}),
    "KDL-poly": (KDL, {"kernel": "poly"}),
    "RKDL": (RKDL, {}),
    "RKDL-poly": (RKDL, {"kernel": "poly"}),
    "RKDL-poly-kmeans": (RKDL, {"kernel": "poly", "kernel_vectors": "kmeans"}),
    "RKDL-linear": (RKDL, {"kernel": "linear", "kernel_vectors": "random"}),
    "RKDL-callable": (RKDL, {"kernel": lambda X, Y: (1.0 + X @ Y.T) ** 2}),
    "RKDL-kmeans": (RKDL, {"kernel_vectors": "kmeans"}),
    "RKDL-kmeans-aksvd": (RKDL, {"kernel_vectors": "kmeans", "atom_update": "aksvd"}),
    "RKDL-random": (RKDL, {"kernel_vectors": "random"}),
    "RKDL-rpcholesky": (RKDL, {"kernel_vectors": "rpcholesky", "init": "random"}),
    "ORKDL": (ORKDL, {}),
    "ORKDL-gd": (ORKDL, {"solver": "gd"}),
    "MORKDL": (MORKDL, {}),
    "MORKDL-gd": (MORKDL, {"solver": "gd"}),
    "MORKDL-poly": (MORKDL, {"kernel": "poly", "degree": 2}),
    "MORKDL-gd-tolerance": (MORKDL, {"solver": "gd", "residual_tol": 0.05}),
}


# What rkdl says of models of little use, such as those of tiny or degenerate data; tests of these words expect them.
poor_models = pytest.mark.filterwarnings(
    r"ignore:.*kernel vectors only \d+ (is|are) independent",
    r"ignore:.*% of the signals have a code of zeros",
    r"ignore:The kernel is nearly (constant|the identity)",
    r"ignore:n_components=\d+ exceeds the number of kernel vectors",
    r"ignore:n_kernel_vectors=\d+ exceeds",
    r"ignore:n_nonzero_coefs=\d+ exceeds",
    r"ignore:KDLClassifier. for \S+ or more of",
    r"ignore:The signals have one coordinate in feature space",
    r"ignore:.* its score is in feature space",
)


def by_class(classes):
    """Run a test once per class of estimator."""
    return pytest.mark.parametrize("kind", classes, ids=lambda kind: kind.__name__)


def cover(names, classes, values, base):
    """Run a test on every class with the first of `values`, and on the classes in `base` with all of them.

    For checks that most classes share: a full grid would run the same lines again. `names` names the parts of a value.
    """
    values = [value if isinstance(value, tuple) else (value,) for value in values]
    cases = [(kind, *value) for kind in classes for value in (values if kind in base else values[:1])]
    return pytest.mark.parametrize(
        ("kind", *names.split()), cases, ids=lambda value: getattr(value, "__name__", str(value))
    )


def make(kind, n_kernel_vectors=12, n_fourier_features=32, **options):
    """Make a small estimator of a class; sizes that it does not have are left out."""
    if kind in REDUCED:
        options["n_kernel_vectors"] = n_kernel_vectors
    if kind is FourierDL:
        options["n_fourier_features"] = n_fourier_features
    return kind(**{**COMMON, **options})


# Those that every kind of signals is tried with.
CHUNKED = ["DL-lasso", "DL-positive", "DL", "DL-aksvd", "FourierDL", "RKDL", "RKDL-kmeans", "RKDL-rpcholesky"]


class Estimators(dict):
    """The named estimators of `VARIANTS`, all with the same sizes."""

    def __init__(self, *names, **options):
        super().__init__({name: make(VARIANTS[name][0], **{**options, **VARIANTS[name][1]}) for name in names})

    def copy_of(self, name, **changes):
        """Clone an estimator with some settings changed."""
        return clone(self[name]).set_params(**changes)

    def each(self):
        """Run a test once per estimator."""
        return pytest.mark.parametrize("name", list(self))


def share(model, X):
    """Share of the signals' energy in feature space that their codes hold, for kernels with k(x, x) = 1."""
    return 1.0 - np.mean(model.reconstruction_error(X) ** 2)


def fitted_bytes(model, left_out=()):
    """Return every fitted attribute as bytes, for comparisons to the last bit."""
    names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_") and name not in left_out]
    assert "n_iter_" in names
    return {name: np.asarray(getattr(model, name)).tobytes() for name in names}


def atoms_of(model):
    """Return the fitted atoms in the form that `init` takes."""
    return model.components_ if hasattr(model, "components_") else model.dual_components_


def rms_error(model, X):
    """Return the error of signals coded anew, per signal."""
    return float(np.sqrt(np.mean(model.reconstruction_error(X) ** 2)))


def correlated_signals(n_signals, n_features=20, dtype=np.float64):
    """Draw Gaussian signals with correlated features; enough of them make several chunks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_signals, n_features)) @ rng.standard_normal((n_features, n_features)) / 5.0
    return X.astype(dtype)


class RowSlices:
    """The least that signals on disk may be: shape, dtype and slices of rows."""

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self.data[rows]


def _interrupt(action, at=None):
    """Ctrl-C at the call of that number of a function of the package; returns the number of calls."""
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        if event == "call" and frame.f_globals.get("__name__", "").startswith("rkdl."):
            count += 1
            if count == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def is_interrupted(action, at):
    """Whether KeyboardInterrupt came out; where Python runs a destructor it drops one, and the action goes on."""
    try:
        _interrupt(action, at)
    except KeyboardInterrupt:
        return True
    return False


def moments(action, spread=12):
    """Numbers of calls from the first to the last, closer together at the end."""
    # The first time modules are imported, which are calls too.
    action()
    count = _interrupt(action)
    return sorted({*np.linspace(1, count, spread).astype(int).tolist(), *range(max(1, count - 20), count + 1, 4)})


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def assert_prints(found, expected):
    """The same text; numbers agree to a tenth, because what is learned depends on the processor's rounding."""
    assert NUMBER.sub("x", found) == NUMBER.sub("x", expected)
    values, printed = (np.array(NUMBER.findall(text), float) for text in (found, expected))
    np.testing.assert_allclose(values, printed, rtol=0.1)
