"""What the methods share: parameters and the course of a fit."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array

from rkdl._applications.class_dictionaries import SharedFeatures
from rkdl._backends.arrays import host
from rkdl._coding.encode import PURSUITS
from rkdl._data.signals import Signals
from rkdl._estimators.coder import Coder
from rkdl._estimators.gamma import KERNEL_SAMPLE, spread_sample
from rkdl._estimators.prepared import replaced_at_once
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._execution.open import open_executor
from rkdl._features.kernels import has_user_code
from rkdl._features.space import FeatureSpace
from rkdl._features.widths import offset_of
from rkdl._learning.diagnostics import check_codes, needs_float64
from rkdl._learning.initial_atoms import INITS
from rkdl._learning.loop import LearningProblem, alternate
from rkdl._persistence.checkpoint import Checkpoint, History, describe
from rkdl._persistence.shapes import ArrayError
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import MatrixLike


class DictionaryLearner(Coder):
    """Base of the methods that learn atoms. Subclasses define features, initial atoms, fitted attributes."""

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), None],
        "residual_tol": [Interval(Real, 0, None, closed="left"), None],
        "pursuit": [StrOptions(set(PURSUITS))],
        "atom_update": [StrOptions({"gram", "aksvd"})],
        "init": [StrOptions(set(INITS)), "array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "sparse_output": ["boolean"],
        "device": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    n_components: int
    atom_update: str
    init: str | ArrayLike
    max_iter: int
    tol: float
    random_state: RandomState | int | None
    verbose: int

    @abstractmethod
    def _problem(
        self, executor: Executor, rng: RandomState, gamma: float | None, saved: dict | None = None
    ) -> LearningProblem:
        """The learning problem, ready to iterate; what a saved state will replace need not be chosen."""

    @abstractmethod
    def _store(self, problem: Any, signals: Signals, gamma: float | None) -> None:
        """Set the fitted attributes from the problem's state."""

    @abstractmethod
    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        """The feature space on these kernel vectors or frequencies, all in the units of the user's signals."""

    @abstractmethod
    def _learned_vectors(
        self, problem: Any, signals: Signals, gamma: float | None
    ) -> tuple[np.ndarray | None, float | None]:
        """Kernel vectors or frequencies of a learned problem and the kernel's gamma, in the user's units."""

    @property
    def _n_atoms(self) -> int:
        return self.n_components

    @property
    def _space(self) -> FeatureSpace:
        vectors = getattr(self, "kernel_vectors_", getattr(self, "frequencies_", None))
        return self._space_on(self.n_features_in_, vectors, getattr(self, "gamma_", None))

    @abstractmethod
    def _working_width(self, n_signals: int, n_features: int) -> int:
        """Size of the working memory per signal during learning, in numbers."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: None = None, *, checkpoint: str | os.PathLike | None = None) -> Self:
        """Learn a dictionary from signals.

        After Ctrl-C, which raises KeyboardInterrupt as usual, the estimator holds the best model of the completed
        iterations. A fit that fails, or is interrupted before its first iteration is complete, leaves the estimator
        unchanged.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row. Memory maps, Zarr arrays, HDF5 datasets and anything else with ``shape``, ``dtype``
            and row slices are read chunk by chunk; Dask arrays and torch tensors are processed where they are.
        y : None
            Ignored.
        checkpoint : str or path, default=None
            File to which the state is written, atomically, after every iteration. If it exists, the fit resumes from it
            and its result is bitwise identical to that of an uninterrupted fit. Signals and parameters must be the
            same, but `max_iter` may be larger; any other file is refused. None means no checkpoint.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with replaced_at_once(self) as work, one_blas_thread():
            is_interrupted = work._fit_signals(work._read_signals(X, reset=True), checkpoint)
        if is_interrupted:
            raise KeyboardInterrupt(
                f"{type(self).__name__} was interrupted after {len(self.update_errors_)} of {self.max_iter} iterations "
                f"and holds the best model so far."
            )
        return self

    def _read_signals(self, X: Any, *, reset: bool) -> Signals:
        signals = super()._read_signals(X, reset=reset)
        # On a cluster when the blocks are there, or they would be computed once more.
        return signals if signals.is_remote and reset else self._choose_dtype(signals, reset)

    def _choose_dtype(self, signals: Signals, reset: bool) -> Signals:
        """Signals of float32 that float32 has too few digits for, in float64; others as they are."""
        if reset:
            self.computes_in_float64_ = self._check_needs_float64(signals)
        return signals.with_dtype(np.dtype(np.float64)) if getattr(self, "computes_in_float64_", False) else signals

    def _check_needs_float64(self, signals: Signals) -> bool:
        """Whether float32 cannot resolve the residuals of these signals."""
        sample = spread_sample(signals, KERNEL_SAMPLE).astype(np.float64)
        if not np.isfinite(sample).all():
            # Refused in the first pass over the data.
            return False
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            products = self._sample_products(sample)
            # Kernel vectors and phases of signals far from zero are rounded by more than the signals' differences bear.
            is_far_off = bool((sample != sample[0]).any()) and offset_of(sample) is not None
        limit = self.n_nonzero_coefs or self.n_components
        return products is not None and (is_far_off or needs_float64(products, min(limit, self.n_components)))

    def _sample_products(self, sample: np.ndarray) -> np.ndarray | None:
        """Inner products of some signals in feature space; None if the user's own kernel decides on the dtype."""
        return sample @ sample.T

    def _executor(self, signals: Signals) -> Executor:
        """What runs the chunk tasks of the learning."""
        width = self._working_width(*signals.shape)
        # A kernel of the user's may differentiate.
        return open_executor(signals, width, self.n_jobs, is_alone=not has_user_code(getattr(self, "kernel", None)))

    def _fit_signals(self, signals: Signals, path: str | os.PathLike | None = None) -> bool:
        """Learn and set the fitted attributes; returns whether Ctrl-C ended the iterations early."""
        rng = check_random_state(self.random_state)
        n_signals = signals.shape[0]
        self._check_sizes(n_signals)
        with self._executor(signals) as opened:
            checkpoint, saved = None, None
            if path is not None:
                # Before the first pass over the data, which may be long.
                description = describe(type(self).__name__, self.get_params(deep=False), opened)
                checkpoint = Checkpoint(path, description, self.max_iter)
                saved = checkpoint.state
            executor = self._inspect(self._with_dtype(opened), checkpoint)
            signals = executor.signals
            try:
                problem, gamma, was_interrupted = self._start_problem(executor, rng, saved)
                # What an interrupted preparation ended with is stored.
                max_iter = 0 if was_interrupted else self.max_iter
                history, is_interrupted = self._alternate(problem, type(self).__name__, checkpoint, max_iter)
            except ArrayError as error:
                assert checkpoint is not None
                raise checkpoint.refused(error) from error
            self._store(problem, signals, gamma)
            self._check_learned(problem, n_signals)
            try:
                self._learn_inverse(executor)
            except KeyboardInterrupt:
                # The atoms are complete; a decoder of an earlier fit belongs to others.
                is_interrupted = True
                for name in ("decoder_", "decoder_intercept_"):
                    self.__dict__.pop(name, None)
        self.errors_ = history.returned_errors
        self.update_errors_ = np.array(history.update_errors)
        self.n_iter_ = len(self.errors_)
        self.n_revived_ = problem.model.n_revived
        return is_interrupted or was_interrupted

    def _start_problem(
        self, executor: Executor, rng: RandomState, saved: dict | None = None
    ) -> tuple[LearningProblem, float | None, bool]:
        """The learning problem, gamma for the signals as they are read, and whether Ctrl-C ended the preparation."""
        gamma = self._find_gamma(executor.signals)
        problem = self._problem(executor, rng, gamma, saved)
        return problem, gamma, saved is None and self._prepare(problem)

    def _prepare(self, problem: Any) -> bool:
        """Iterations before those of the fit, if any; whether Ctrl-C ended them."""
        return False

    def _alternate(
        self, problem: LearningProblem, name: str, checkpoint: Checkpoint | None = None, max_iter: int | None = None
    ) -> tuple[History, bool]:
        """Iterate as the parameters say; `max_iter` if it is given. Whether Ctrl-C ended it comes with the errors."""
        signals = problem.executor.signals
        return alternate(
            problem,
            max_iter=self.max_iter if max_iter is None else max_iter,
            tol=self.tol,
            n_numbers=signals.shape[0] * signals.shape[1],
            verbose=self.verbose,
            name=name,
            checkpoint=checkpoint,
        )

    def _check_learned(self, problem: LearningProblem, n_signals: int) -> None:
        """Warn if the model represents next to nothing; subclasses add their own checks."""
        check_codes(type(self).__name__, problem.model.n_empty, n_signals, self.residual_tol, *self._places())

    def _places(self) -> tuple[str | None, str]:
        """What the kernel compares signals with, None without a kernel, and what to do if its values vanish."""
        return None, ""

    def _learn_inverse(self, executor: Executor, earlier: Any = None) -> Any:
        """Learn the decoder, if there is to be one, and return the sums that it was learned from."""
        return None

    def _with_dtype(self, executor: Executor) -> Executor:
        """The executor for signals in the dtype that they are learned from in; a cluster's blocks are there by now."""
        if not executor.signals.is_remote:
            return executor
        return executor.with_signals(self._choose_dtype(executor.signals, True))

    def _inspect(self, executor: Executor, checkpoint: Checkpoint | None = None) -> Executor:
        """The first pass: the executor for signals whose squares stay in the dtype's range.

        What cannot be learned from is refused, and so is the checkpoint of other signals.
        """
        if checkpoint is None:
            found = executor.inspected()
        else:
            found, digest = executor.inspected_with_digest()
            checkpoint.check_signals(digest)
        if found.signals.dtype != executor.signals.dtype:
            self.computes_in_float64_ = True
        return found

    def _find_gamma(self, signals: Signals) -> float | None:
        """The kernel's gamma for the signals as they are read; None without a kernel."""
        return None

    def _check_sizes(self, n_signals: int) -> None:
        """Warn of sizes that do not go together; subclasses add their own checks."""

    def _initial_array(self, shape: tuple[int, int], attribute: str) -> np.ndarray:
        """`init` as an array of the expected shape."""
        array = check_array(well_formed(host(self.init), "init"), dtype=np.float64, input_name="init", copy=True)
        if array.shape != shape:
            raise ValueError(f"init has shape {array.shape}, expected that of {attribute}, {shape}: one atom per row.")
        return array


@contextmanager
def shared_features(method: Any, signals: Signals, rng: RandomState) -> Iterator[tuple[Executor, SharedFeatures]]:
    """What the dictionaries of several classes share: kernel vectors are chosen, and moved if the method moves them."""
    method._check_sizes(signals.shape[0])
    with method._executor(signals) as opened:
        executor = method._inspect(opened)
        problem, gamma, is_interrupted = method._start_problem(executor, rng)
        if problem.vector_update is not None and not is_interrupted:
            _, is_interrupted = method._alternate(problem, f"{type(method).__name__} of all classes")
        if is_interrupted:
            raise KeyboardInterrupt
        space = feature_space(method, signals.shape[1], *method._learned_vectors(problem, executor.signals, gamma))
        yield executor, SharedFeatures.of(space, problem)


def feature_space(method: Any, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
    """The feature space of a method on these kernel vectors or frequencies, all in the units of the user's signals."""
    return method._space_on(n_features, vectors, gamma)
