"""Settings of each preset, and runs of a method with them."""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL
from rkdl._coding.encode import check_pursuit
from rkdl._data.signals import Signals
from rkdl._execution.blas import resolve_threads
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.threads import ThreadExecutor
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.kernel_vector_choice import train_dictionary
from rkdl._reproduction import paper as _paper
from rkdl._reproduction import published

_SIZES = {"n_components": _paper.N_COMPONENTS, "n_nonzero_coefs": _paper.N_NONZERO_COEFS}
_KERNEL = {**_SIZES, "gamma": _paper.GAMMA}
_REDUCED = {**_KERNEL, "n_kernel_vectors": _paper.N_KERNEL_VECTORS}

_TEXT = {
    "pursuit": "omp",
    "atom_update": "aksvd",
    "init": "random",
    "max_iter": _paper.N_ITERATIONS,
    "tol": 0.0,
}
_DESCENT = {"kernel_vectors": "dictionary", "solver": "gd", "n_inner_iter": _paper.N_INNER_ITERATIONS}
_LINEAR_TERM = {
    "linear_weight": _paper.LINEAR_WEIGHT,
    "linear_n_nonzero_coefs": _paper.LINEAR_NONZERO_COEFS,
    "kernel_vector_norm": "shared",
}

#: Estimator and settings of each method, for the presets that are runs of the library.
TABLE: dict[str, dict[str, tuple[type, dict[str, Any]]]] = {
    "paper": {
        "DL": (DL, {**_TEXT, **_SIZES}),
        "KDL": (KDL, {**_TEXT, **_KERNEL}),
        "RKDL-D": (RKDL, {**_TEXT, **_REDUCED, "kernel_vectors": "dictionary"}),
        "ORKDL-D": (ORKDL, {**_TEXT, **_REDUCED, **_DESCENT}),
        "MORKDL-D": (MORKDL, {**_TEXT, **_REDUCED, **_DESCENT, **_LINEAR_TERM}),
        "Nystrom": (RKDL, {**_TEXT, **_REDUCED, "kernel_vectors": "random"}),
        "Fourier": (FourierDL, {**_TEXT, **_KERNEL, "n_fourier_features": _paper.N_KERNEL_VECTORS}),
    },
    "rkdl": {
        "DL": (DL, _SIZES),
        "KDL": (KDL, _KERNEL),
        "RKDL-D": (RKDL, _REDUCED),
        "ORKDL-D": (ORKDL, _REDUCED),
        "MORKDL-D": (MORKDL, _REDUCED),
        "Nystrom": (RKDL, {**_REDUCED, "kernel_vectors": "random"}),
        "Fourier": (FourierDL, _KERNEL),
    },
}
_PUBLISHED = {
    "n_components": _paper.N_COMPONENTS,
    "n_nonzero_coefs": _paper.N_NONZERO_COEFS,
    "n_iter": _paper.N_ITERATIONS,
    "gamma": _paper.GAMMA,
    "n_kernel_vectors": _paper.N_KERNEL_VECTORS,
    "linear_n_nonzero_coefs": _paper.LINEAR_NONZERO_COEFS,
    "n_inner_iter": _paper.N_INNER_ITERATIONS,
}

#: Training of D, described in the recorded settings because it is not an estimator parameter.
TRAINING = {
    "paper": "AK-SVD from a Gaussian start, signs as they come",
    "rkdl": "started from signals, signs aligned with their mean",
}
_TRAINING_KEY = "training of D"

# Parameters that do not affect results are not recorded.
_UNRECORDED = ("n_jobs", "random_state", "sparse_output", "verbose")


class Outcome(NamedTuple):
    """Results of one run; `seconds` does not include the training of D."""

    errors: list[float]
    seconds: float
    dictionary_seconds: float
    mean_nonzeros: float | None
    kernel_vectors: np.ndarray | None
    dual_components: np.ndarray | None
    warnings: list[str]


def methods_of(preset: str) -> tuple[str, ...]:
    """Methods available in a preset."""
    return published.METHODS if preset == "published" else tuple(TABLE[preset])


def settings_of(preset: str, method: str, dataset: str, iterations: int | None = None) -> dict[str, Any]:
    """All settings of a method in a preset, defaults included, as recorded.

    Parameters
    ----------
    preset, method : str
        Their names.
    dataset : str
        Its name; the paper uses a different learning rate for CIFAR-10.
    iterations : int or None
        Number of iterations; None for the preset's.
    """
    rate = _paper.LEARNING_RATE_CIFAR10 if dataset == "cifar10" else _paper.LEARNING_RATE
    if preset == "published":
        settings = {**_PUBLISHED, "learning_rate": rate}
        if iterations is not None:
            settings["n_iter"] = iterations
        return settings
    estimator, chosen = TABLE[preset][method]
    chosen = dict(chosen)
    if chosen.get("solver") == "gd":
        chosen["learning_rate"] = rate
    if iterations is not None:
        chosen["max_iter"] = iterations
    parameters = estimator(**chosen).get_params()
    recorded = {name: value for name, value in parameters.items() if name not in _UNRECORDED}
    if recorded.get("kernel_vectors") == "dictionary":
        recorded[_TRAINING_KEY] = TRAINING[preset]
    return recorded


class Round:
    """One round of a preset, whose methods share the signals, the seed, D and A.

    Parameters
    ----------
    preset : str
        The preset.
    signals : ndarray of shape (n_signals, n_features)
        Rows of unit norm.
    seed : int
        The round's seed.
    n_jobs : int or None
        Threads.
    """

    def __init__(self, preset: str, signals: np.ndarray, seed: int, n_jobs: int | None) -> None:
        self.preset = preset
        self.signals = signals
        self.seed = seed
        self.n_jobs = n_jobs
        self._trained: tuple[np.ndarray, float, Any] | None = None

    def run(self, method: str, settings: dict[str, Any]) -> Outcome:
        """Run one method with settings as `settings_of` gives them."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = (
                self._run_published(method, settings) if self.preset == "published" else self._fit(method, settings)
            )
        seen = dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
        return outcome._replace(warnings=list(seen))

    def _fit(self, method: str, settings: dict[str, Any]) -> Outcome:
        given = {name: value for name, value in settings.items() if name != _TRAINING_KEY}
        random_state: Any = self.seed
        dictionary_seconds = 0.0
        if given.get("kernel_vectors") == "dictionary":
            given["kernel_vectors"], dictionary_seconds, state = self._dictionary(given)
            # Continue the random stream after D's training, so that the result equals that of a single fit.
            random_state = np.random.RandomState()
            random_state.set_state(state)
        if self.preset == "paper" and "n_kernel_vectors" in given:
            given["init"] = self._dual(given)
        estimator = TABLE[self.preset][method][0]
        model = estimator(**given, random_state=random_state, n_jobs=self.n_jobs)
        begin = perf_counter()
        model.fit(self.signals)
        seconds = perf_counter() - begin
        is_reduced = "n_kernel_vectors" in given
        return Outcome(
            # As the paper reports them: after an update, with the codes it was computed from.
            errors=[float(error) for error in model.update_errors_],
            seconds=seconds,
            dictionary_seconds=dictionary_seconds,
            mean_nonzeros=_mean_nonzeros(model, self.signals),
            kernel_vectors=model.kernel_vectors_ if is_reduced else None,
            dual_components=model.dual_components_ if is_reduced else None,
            warnings=[],
        )

    def _dual(self, settings: dict[str, Any]) -> np.ndarray:
        """The initial A of all reduced methods of the round."""
        shape = settings["n_components"], settings["n_kernel_vectors"]
        return np.random.RandomState(self.seed).standard_normal(shape)

    def _dictionary(self, settings: dict[str, Any]) -> tuple[np.ndarray, float, Any]:
        """D, its training time in seconds, and the state of the random stream afterwards.

        The text's D is the linear dictionary that AK-SVD learns from a Gaussian start. The library's own starts from
        signals, and the sign of every vector is aligned with the mean of the signals.
        """
        if self._trained is None and self.preset == "paper":
            begin = perf_counter()
            model = DL(
                n_components=settings["n_kernel_vectors"],
                n_nonzero_coefs=_paper.LINEAR_NONZERO_COEFS,
                max_iter=_paper.N_ITERATIONS,
                tol=0.0,
                pursuit="omp",
                atom_update="aksvd",
                init="random",
                random_state=self.seed,
                n_jobs=self.n_jobs,
            ).fit(self.signals)
            state = np.random.RandomState(self.seed).get_state()
            self._trained = model.components_, perf_counter() - begin, state
        if self._trained is None:
            rng = np.random.RandomState(self.seed)
            count = settings["n_kernel_vectors"]
            pursuit = check_pursuit(_paper.LINEAR_NONZERO_COEFS, None, settings["pursuit"], count)
            signals = Signals(self.signals, self.signals.dtype)
            # Use the estimators' chunks: sums depend on them in the last digits.
            width = signals.shape[1] + 2 * count + 3 * settings["n_components"]
            bounds = chunk_bounds(len(self.signals), width, signals.dtype.itemsize)
            begin = perf_counter()
            with ThreadExecutor(signals, bounds, self.n_jobs) as executor:
                vectors = train_dictionary(
                    executor, count, rng, pursuit=pursuit, atom_update=ATOM_UPDATES[settings["atom_update"]]
                )
            self._trained = vectors, perf_counter() - begin, rng.get_state()
        return self._trained

    def _run_published(self, method: str, settings: dict[str, Any]) -> Outcome:
        vectors, dictionary_seconds = None, 0.0
        with threadpool_limits(None if self.n_jobs is None else resolve_threads(self.n_jobs), user_api="blas"):
            if method != "KDL":
                vectors, dictionary_seconds = self._published_dictionary(settings)
            found = published.run_published(
                method, self.signals, kernel_vectors=vectors, random_state=self.seed, **settings
            )
        return Outcome(
            errors=[float(error) for error in found["errors"]],
            seconds=float(found["seconds"]),
            dictionary_seconds=dictionary_seconds,
            mean_nonzeros=float(found["mean_nonzeros"]),
            kernel_vectors=found["kernel_vectors"],
            dual_components=None if method == "KDL" else found["dual_components"],
            warnings=[],
        )

    def _published_dictionary(self, settings: dict[str, Any]) -> tuple[np.ndarray, float]:
        if self._trained is None:
            begin = perf_counter()
            vectors = published.train_dictionary(
                self.signals,
                settings["n_kernel_vectors"],
                n_nonzero_coefs=settings["linear_n_nonzero_coefs"],
                random_state=self.seed,
            )
            self._trained = vectors, perf_counter() - begin, None
        return self._trained[:2]


def _mean_nonzeros(model: Any, signals: np.ndarray) -> float | None:
    """Mean number of non-zeros per signal, coded by the fitted model; not timed."""
    try:
        codes = model.transform(signals)
    except ValueError:
        return None
    return float(np.count_nonzero(codes)) / len(signals)
