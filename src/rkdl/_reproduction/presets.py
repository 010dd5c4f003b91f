"""Settings of each preset, and runs of a method with them."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL
from rkdl._execution.blas import resolve_threads
from rkdl._reproduction import literal, published
from rkdl._reproduction import paper as _paper
from rkdl._reproduction.measure import peak_bytes, timed
from rkdl._reproduction.one_scale import OneScale

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
# Settings of ours, not of an estimator: where the training of D starts.
_START = "start of D"
_GAUSSIAN, _SIGNALS = "Gaussian", "signals"

Table = dict[str, tuple[type, dict[str, Any]]]


def _starts() -> Table:
    """The text's KDL and RKDL-D from every start; A from signals is the estimators' ``init="data"``."""
    inits = {_GAUSSIAN: "random", _SIGNALS: "data"}
    table: Table = {f"KDL, A {a}": (KDL, {**_TEXT, **_KERNEL, "init": init}) for a, init in inits.items()}
    for d in (_GAUSSIAN, _SIGNALS):
        for a, init in inits.items():
            settings = {**_TEXT, **_REDUCED, "kernel_vectors": "dictionary", "init": init, _START: d}
            table[f"RKDL-D, D {d}, A {a}"] = RKDL, settings
    return table


def _work() -> Table:
    """KDL and ORKDL-D after the same number of codings: k + 1 in k iterations of KDL, 2 k + 11 of ORKDL-D."""
    table: Table = {}
    for k in (30, 60):
        table[f"KDL, {2 * k + 10} iterations"] = KDL, {**_KERNEL, "max_iter": 2 * k + 10, "tol": 0.0}
        table[f"ORKDL-D, {k} iterations"] = ORKDL, {**_REDUCED, "max_iter": k, "tol": 0.0}
    return table


def _own() -> Table:
    """Every method, and those on kernel vectors for each number p of them."""
    table: Table = {"DL": (DL, _SIZES), "KDL": (KDL, _KERNEL)}
    # As many codings as ORKDL has in its 30 iterations, so that KDL is the floor that it should be.
    table[_paper.FLOOR] = KDL, {**_KERNEL, "max_iter": 70, "tol": 0.0}
    for base, estimator, chosen in (("RKDL-D", RKDL, {}), ("ORKDL-D", ORKDL, {}), ("Nystrom", RKDL, _RANDOM)):
        for p in _paper.OWN_SIZES:
            table[f"{base}, p = {p}"] = estimator, {**_KERNEL, **chosen, "n_kernel_vectors": p}
    table["MORKDL-D, p = 50"] = MORKDL, _REDUCED
    table["Fourier"] = FourierDL, _KERNEL
    return table


_RANDOM = {"kernel_vectors": "random"}

#: Estimator and settings of each method, for the presets that are runs of the library.
TABLE: dict[str, Table] = {
    "paper": {
        "DL": (DL, {**_TEXT, **_SIZES}),
        "KDL": (KDL, {**_TEXT, **_KERNEL}),
        "RKDL-D": (RKDL, {**_TEXT, **_REDUCED, "kernel_vectors": "dictionary"}),
        "ORKDL-D": (ORKDL, {**_TEXT, **_REDUCED, **_DESCENT}),
        "MORKDL-D": (MORKDL, {**_TEXT, **_REDUCED, **_DESCENT, **_LINEAR_TERM}),
        "Nystrom": (RKDL, {**_TEXT, **_REDUCED, **_RANDOM}),
        "Fourier": (FourierDL, {**_TEXT, **_KERNEL, "n_fourier_features": _paper.N_KERNEL_VECTORS}),
    },
    "rkdl": {
        "DL": (DL, _SIZES),
        "KDL": (KDL, _KERNEL),
        "RKDL-D": (RKDL, _REDUCED),
        "ORKDL-D": (ORKDL, _REDUCED),
        "MORKDL-D": (MORKDL, _REDUCED),
        "Nystrom": (RKDL, {**_REDUCED, **_RANDOM}),
        "Fourier": (FourierDL, _KERNEL),
    },
    "starts": _starts(),
    "work": _work(),
    _paper.OWN: _own(),
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
#: The methods of the presets that repeat the published code.
PUBLISHED = {"published": published.METHODS, "restricted": published.METHODS, "literal": literal.METHODS}

# Parameters that do not affect results are not recorded.
_UNRECORDED = ("n_jobs", "random_state", "sparse_output", "verbose")
# Iterations that show the peak of the memory.
_MEMORY_ITERATIONS = 2


class Outcome(NamedTuple):
    """Results of one run; `seconds` does not include the training of D."""

    errors: list[float]
    seconds: float
    dictionary_seconds: float
    best_error: float | None
    mean_nonzeros: float | None
    peak_bytes: int | None
    model: Any
    warnings: list[str]


def base_of(method: str) -> str:
    """The method of a variant: ``"KDL"`` of ``"KDL, 70 iterations"``."""
    return method.partition(",")[0]


def methods_of(preset: str, n_signals: int | None = None) -> tuple[str, ...]:
    """Methods available in a preset; numbers of kernel vectors for which there are too few signals are left out."""
    if preset in PUBLISHED:
        return PUBLISHED[preset]
    methods = tuple(TABLE[preset])
    if preset != _paper.OWN or n_signals is None:
        return methods
    return tuple(method for method in methods if _size_of(method) <= max(_paper.OWN_SIZES[0], n_signals // 2))


def _size_of(method: str) -> int:
    """p of a variant; 0 if it has none."""
    return int(method.partition("p = ")[2] or 0)


def settings_of(
    preset: str, method: str, dataset: str, iterations: int | None = None, gamma: float = _paper.GAMMA
) -> dict[str, Any]:
    """All settings of a method in a preset, defaults included, as recorded.

    Parameters
    ----------
    preset, method : str
        Their names.
    dataset : str
        Its name; the paper uses a different learning rate for CIFAR-10.
    iterations : int or None
        Number of iterations; None for the preset's.
    gamma : float
        The kernel's parameter.
    """
    rate = _paper.LEARNING_RATE_CIFAR10 if dataset == "cifar10" else _paper.LEARNING_RATE
    if preset in PUBLISHED:
        settings = {**_PUBLISHED, "gamma": gamma, "learning_rate": rate}
        if iterations is not None:
            settings["n_iter"] = iterations
        return settings
    estimator, chosen = TABLE[preset][method]
    start = chosen.get(_START, _GAUSSIAN)
    chosen = {name: value for name, value in chosen.items() if name != _START}
    if "gamma" in chosen:
        chosen["gamma"] = gamma
    if chosen.get("solver") == "gd":
        chosen["learning_rate"] = rate
    if iterations is not None:
        chosen["max_iter"] = iterations
    parameters = estimator(**chosen).get_params()
    recorded = {name: value for name, value in parameters.items() if name not in _UNRECORDED}
    if recorded.get("kernel_vectors") == "dictionary":
        recorded[_START] = start
    return recorded


class Round:
    """One round of a preset, whose methods share the signals, the seed, D and A.

    Parameters
    ----------
    preset : str
        The preset.
    signals : ndarray of shape (n_signals, n_features)
        The signals.
    seed : int
        The round's seed.
    n_jobs : int or None
        Threads.
    scale : OneScale or None
        Error of given codes with the best atoms, on which all methods can be compared; None leaves it out.
    """

    def __init__(
        self, preset: str, signals: np.ndarray, seed: int, n_jobs: int | None, scale: OneScale | None = None
    ) -> None:
        self.preset = preset
        self.signals = signals
        self.seed = seed
        self.n_jobs = n_jobs
        self.scale = scale
        self._timed = partial(timed, repeats=preset not in _paper.UNTIMED)
        self._trained: dict[str, tuple[np.ndarray, float]] = {}

    def run(self, method: str, settings: dict[str, Any], measures_memory: bool = False) -> Outcome:
        """Run one method with settings as `settings_of` gives them."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if self.preset in PUBLISHED:
                blas_threads = None if self.n_jobs is None else resolve_threads(self.n_jobs)
                with threadpool_limits(blas_threads, user_api="blas"):
                    outcome = self._run_published(method, settings, measures_memory)
            else:
                outcome = self._fit(method, settings, measures_memory)
        seen = dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
        return outcome._replace(warnings=list(seen))

    def _fit(self, method: str, settings: dict[str, Any], measures_memory: bool) -> Outcome:
        given = {name: value for name, value in settings.items() if name != _START}
        dictionary_seconds = 0.0
        if given.get("kernel_vectors") == "dictionary":
            given["kernel_vectors"], dictionary_seconds = self._dictionary(settings[_START], given)
        if self.preset in ("paper", "starts") and "n_kernel_vectors" in given and given["init"] == "random":
            given["init"] = self._dual(given)
        estimator = partial(TABLE[self.preset][method][0], random_state=self.seed, n_jobs=self.n_jobs)
        model, seconds = self._timed(lambda: estimator(**given).fit(self.signals))
        peak = None
        if measures_memory:
            short = {**given, "max_iter": min(given["max_iter"], _MEMORY_ITERATIONS)}
            peak = peak_bytes(lambda: estimator(**short).fit(self.signals))
        try:
            codes = model.transform(self.signals)
        except ValueError:
            codes = None
        return Outcome(
            # As the paper reports them: after an update, with the codes it was computed from.
            errors=[float(error) for error in model.update_errors_],
            seconds=seconds,
            dictionary_seconds=dictionary_seconds,
            **self._of_codes(codes),
            peak_bytes=peak,
            model=model if "n_kernel_vectors" in given else None,
            warnings=[],
        )

    def _of_codes(self, codes: np.ndarray | None) -> dict[str, float | None]:
        """Error of codes with the best atoms, and their number of non-zeros per signal."""
        if codes is None or not np.isfinite(codes).all():
            return {"best_error": None, "mean_nonzeros": None}
        return {
            "best_error": None if self.scale is None else self.scale.error(codes),
            "mean_nonzeros": float(np.count_nonzero(codes)) / len(codes),
        }

    def _dual(self, settings: dict[str, Any]) -> np.ndarray:
        """The initial A of all reduced methods of the round."""
        shape = settings["n_components"], settings["n_kernel_vectors"]
        return np.random.RandomState(self.seed).standard_normal(shape)

    def _dictionary(self, start: str, settings: dict[str, Any]) -> tuple[np.ndarray, float]:
        """D, the linear dictionary that AK-SVD learns as the text says, and the seconds that it takes."""
        if start not in self._trained:
            model, seconds = self._timed(
                lambda: DL(
                    n_components=settings["n_kernel_vectors"],
                    n_nonzero_coefs=_paper.LINEAR_NONZERO_COEFS,
                    max_iter=_paper.N_ITERATIONS,
                    tol=0.0,
                    pursuit="omp",
                    atom_update="aksvd",
                    init="random" if start == _GAUSSIAN else "data",
                    random_state=self.seed,
                    n_jobs=self.n_jobs,
                ).fit(self.signals)
            )
            self._trained[start] = model.components_, seconds
        return self._trained[start]

    def _run_published(self, method: str, settings: dict[str, Any], measures_memory: bool) -> Outcome:
        vectors, dictionary_seconds = None, 0.0
        if method != "KDL":
            vectors, dictionary_seconds = self._published_dictionary(settings)
        peak = None
        if self.preset == "literal":
            signals = self.signals.astype(np.float64)
            errors, seconds, codes = literal.run_literal(method, signals, vectors, random_state=self.seed, **settings)
        else:
            run = partial(
                published.run_published,
                method,
                self.signals,
                kernel_vectors=vectors,
                random_state=self.seed,
                dense=self.preset == "published",
            )
            found, seconds = self._timed(lambda: run(**settings))
            errors, codes = found["errors"], found["codes"]
            if measures_memory:
                short = {**settings, "n_iter": min(settings["n_iter"], _MEMORY_ITERATIONS)}
                peak = peak_bytes(lambda: run(**short))
        return Outcome(
            errors=[float(error) for error in errors],
            seconds=seconds,
            dictionary_seconds=dictionary_seconds,
            **self._of_codes(codes),
            peak_bytes=peak,
            model=None,
            warnings=[],
        )

    def _published_dictionary(self, settings: dict[str, Any]) -> tuple[np.ndarray, float]:
        if _GAUSSIAN not in self._trained:
            self._trained[_GAUSSIAN] = self._timed(
                lambda: published.train_dictionary(
                    self.signals,
                    settings["n_kernel_vectors"],
                    n_nonzero_coefs=settings["linear_n_nonzero_coefs"],
                    random_state=self.seed,
                )
            )
        return self._trained[_GAUSSIAN]
