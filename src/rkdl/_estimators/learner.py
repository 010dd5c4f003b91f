"""Bases of the methods that learn a dictionary, and of those with a kernel."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints
from sklearn.utils.metaestimators import available_if

from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Pursuit
from rkdl._coding.preimages import LinearDecoder
from rkdl._data.signals import Signals
from rkdl._estimators.base import DictionaryEstimator, check_has_signals
from rkdl._estimators.fitting import as_fitted, check_settings, check_weights, constant, freeze, replaced_at_once
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import open_executor
from rkdl._features.kernels import Kernel, as_kernel
from rkdl._features.maps import GivenKernelMap
from rkdl._features.widths import RULES
from rkdl._learning.atom_updates import ATOM_UPDATES, choose_atom_update
from rkdl._learning.feature_choice import FeatureChoice, KernelFeatures
from rkdl._learning.initial_atoms import INITS
from rkdl._learning.kernel_vector_choice import DICTIONARY_NONZEROS, METHODS
from rkdl._learning.learn import CheckpointRequest, Learned, Report, decoder_sums, learn, solved_decoder
from rkdl._learning.specification import Specification
from rkdl._learning.stream import Learning, Stream
from rkdl._utils.types import MatrixLike, plain_scalar

# Number of kernel vectors where it is not given, unless there are more atoms.
KERNEL_VECTORS = 50


@dataclass(eq=False, repr=False)
class Learner(DictionaryEstimator):
    """Base of the methods that learn atoms."""

    n_components: int = 20
    _: KW_ONLY
    atom_update: str = "momentum"
    init: str | ArrayLike = "auto"
    max_iter: int = 30
    tol: float = 1e-4
    random_state: RandomState | int | None = None
    verbose: int = 0

    # Of the parameters of all methods, each of which has some of them.
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DictionaryEstimator._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "atom_update": [StrOptions(set(ATOM_UPDATES))],
        "init": [StrOptions(set(INITS)), "array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "positive_dict": ["boolean"],
        "coherence_max": [Interval(Real, 0, 1, closed="right")],
        "half_life": [Interval(Real, 0, None, closed="neither"), None],
        "fit_inverse_transform": ["boolean"],
        "decoder_alpha": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions(set(RULES))],
        "n_fourier_features": [Interval(Integral, 1, None, closed="left")],
        "kernel": [StrOptions({"rbf", "poly", "linear"}), callable],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "n_kernel_vectors": [Interval(Integral, 1, None, closed="left"), None],
        "kernel_vectors": [StrOptions(set(METHODS)), "array-like"],
        "solver": [StrOptions({"lbfgs", "gd"})],
        "n_inner_iter": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "linear_weight": [Interval(Real, 0, None, closed="left")],
        "linear_n_nonzero_coefs": [Interval(Integral, 1, None, closed="left")],
        "kernel_vector_norm": [StrOptions({"auto", "shared", "free"})],
    }

    @abstractmethod
    def _features(self) -> FeatureChoice:
        """The features of the method."""

    def _specification(self) -> Specification:
        """The specification that the parameters stand for."""
        pursuit = self._make_pursuit(self.n_components)
        return Specification(
            self.n_components,
            self._features(),
            pursuit,
            choose_atom_update(
                self.atom_update,
                pursuit,
                is_positive=getattr(self, "positive_dict", False),
                coherence_max=getattr(self, "coherence_max", 1.0),
            ),
            self.init,  # type: ignore[arg-type]
            max_iter=self.max_iter,
            tol=self.tol,
            half_life=getattr(self, "half_life", None),
            decoder_alpha=self.decoder_alpha if getattr(self, "fit_inverse_transform", False) else None,  # type: ignore[attr-defined]
        )

    def _assemble(self) -> FittedDictionary:
        state = vars(self)
        vectors = state.get("kernel_vectors_", state.get("frequencies_"))
        feature_map = self._features().fitted_map(
            self.n_features_in_, None if vectors is None else constant(vectors), state.get("gamma_")
        )
        if "gram_" in state:
            atoms, gram = constant(state["dual_components_"]), constant(state["gram_"])
        else:
            atoms = constant(state["components_"])
            wide = atoms.astype(np.float64)
            gram = wide @ wide.T
            norms = np.sqrt(gram.diagonal())
            is_unit = (np.abs(norms - 1.0) < 1e-3) | (norms == 0.0)
            if not is_unit.all():
                raise ValueError(
                    f"An atom of components_ has norm {norms[~is_unit][0]:.3g}, and {type(self).__name__} has atoms of "
                    f"unit norm: divide by the norms, or code with SparseCoder, which takes atoms of any norm."
                )
        decoder = None
        if "decoder_" in state:
            decoder = LinearDecoder(constant(state["decoder_"]), constant(state["decoder_intercept_"]))
        return FittedDictionary(feature_map, atoms, self._make_pursuit(len(atoms)), gram, decoder)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: MatrixLike,
        y: None = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike | None = None,
    ) -> Self:
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
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals: 2 counts as the same signal twice, 0 as its absence. None means equal weights.
        checkpoint : str or path, default=None
            File to which the state is written, atomically, after every iteration. If it exists, the fit resumes from it
            and its result is bitwise identical to that of an uninterrupted fit. Signals and parameters must be the
            same, but `max_iter` may be larger; any other file is refused. None means no checkpoint.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        name = type(self).__name__
        with replaced_at_once(self) as work, one_blas_thread():
            signals = _weighted(work, work._read_signals(X, reset=True), sample_weight)
            if checkpoint is not None and sample_weight is not None:
                raise ValueError("checkpoint does not hold weights: leave it at None with sample_weight.")
            request = None if checkpoint is None else CheckpointRequest(checkpoint, self.get_params(deep=False))
            rng, report = check_random_state(self.random_state), Report(name, self.verbose)
            learned = learn(work._specification(), signals, rng, report, self.n_jobs, request)
            work._set(learned)
            history = learned.history
            work.errors_, work.update_errors_ = history.returned_errors, np.array(history.update_errors)
            if learned.error is not None:
                work.errors_[-1] = learned.error
            work.n_iter_ = len(work.errors_)
            work.__dict__.pop("_stream", None)
        if learned.is_interrupted:
            raise KeyboardInterrupt(
                f"{name} was interrupted after {len(self.update_errors_)} of {self.max_iter} iterations and holds the "
                f"best model so far."
            )
        return self

    def _set(self, learned: Learned) -> None:
        """Set the fitted attributes of a dictionary that was learned."""
        dictionary, decoder = learned.dictionary, learned.dictionary.decoder
        found = {f"{name}_": array for name, array in dictionary.feature_map.state().items()}
        found |= dict.fromkeys(("components_", "dual_components_"), dictionary.atoms)
        found |= {"gram_": dictionary.gram, "gamma_": learned.gamma}
        if decoder is not None:
            found |= {"decoder_": decoder.matrix, "decoder_intercept_": decoder.intercept}
        for name in self._parts:
            # Parts of an earlier fit belong to other atoms.
            self.__dict__.pop(name, None)
        self.__dict__ |= {name: found[name] for name in self._parts if name in found}
        if learned.rank is not None:
            self.rank_ = learned.rank
        freeze(self, self._parts)
        self.n_revived_ = learned.n_revived
        self.computes_in_float64_ = learned.computes_in_float64

    def __sklearn_is_fitted__(self) -> bool:
        # While the first batches of a stream wait, scikit-learn has noted their number of features already.
        return "n_iter_" in vars(self)

    def _settings(self) -> dict[str, Any]:
        """Parameters that the statistics of a stream depend on, as plain values."""
        names = ("n_components", "n_fourier_features", "gamma", "degree", "coef0")
        values = {name: plain_scalar(getattr(self, name)) for name in names if hasattr(self, name)}
        features = self._features()
        if hasattr(self, "kernel"):
            values["kernel"] = "a function" if features.runs_user_code else str(self.kernel)
            values["n_kernel_vectors"] = features.size
        return values


def _weighted(method: Learner, signals: Signals, sample_weight: ArrayLike | None) -> Signals:
    """The signals with their weights; without any, as they are."""
    if sample_weight is None:
        return signals
    is_precomputed = getattr(method, "kernel", None) == "precomputed"
    return signals.weighted(check_weights(signals, sample_weight), keeps_all=is_precomputed)


def _learns_from_sums(method: Learner) -> bool:
    update = ATOM_UPDATES.get(method.atom_update)
    if update is not None and update.refits_codes:
        raise AttributeError(
            f"{type(method).__name__} with atom_update={method.atom_update!r} has no partial_fit: it refits the codes "
            f"of all signals, which a stream does not keep. Use atom_update='gram'."
        )
    return True


@available_if(_learns_from_sums)
@_fit_context(prefer_skip_nested_validation=True)
def partial_fit(
    self: Any, X: MatrixLike, y: None = None, sample_weight: ArrayLike | None = None, *, update: bool = True
) -> Any:
    """Learn from one batch of a stream.

    The batch is coded with the current atoms, its statistics are added to those of earlier batches, which decay with
    `half_life`, and the atoms are updated from all of them, as are the kernel vectors of ORKDL and MORKDL. A batch that
    fails or is interrupted leaves the estimator unchanged.

    Kernel vectors, `gamma` and initial atoms, unless they are given, are chosen from the first batches: these wait, up
    to 256 MiB, until there are 20 distinct signals and as many as atoms and kernel vectors, and before that the
    estimator is not fitted. From then on, sizes and the parameters of the kernel must not change. After `fit`, the
    stream starts from the fitted model, but the signals of `fit` are not part of its statistics.

    An epoch whose batches but the last are given with ``update=False`` is one iteration of `fit`: bitwise identical for
    the same chunks, initial atoms, kernel vectors and gamma. For ORKDL and MORKDL, such batches wait for the update.

    Parameters
    ----------
    X : array-like or CSR matrix of shape (n_signals, n_features)
        Signals, one per row, as for `fit`.
    y : None
        Ignored.
    sample_weight : array-like of shape (n_signals,), default=None
        Weights of the signals, as for `fit`. Batches with weights do not wait for others. None means equal weights.
    update : bool, default=True
        Whether to update atoms and kernel vectors after this batch, or to wait for the next update.

    Returns
    -------
    self : object
        The estimator. An update appends to `errors_` and `update_errors_` the error of all signals seen, with the codes
        that they were given when they were seen; errors near zero are rounding errors.
    """
    with replaced_at_once(self, self.random_state) as work, one_blas_thread():
        is_first = "n_iter_" not in vars(work) and "_stream" not in vars(work)
        if not is_first:
            check_settings(work)
        signals = _weighted(work, work._read_signals(X, reset=is_first), sample_weight)
        specification = work._specification()
        how = Learning(specification, work.random_state, Report(type(work).__name__, work.verbose), work.n_jobs)
        stream = _stream_of(work, specification).update(signals, how, ends_epoch=update)
        if stream.learned is not None:
            work._set(stream.learned)
            found = [] if stream.error is None else [stream.error]
            for name in ("errors_", "update_errors_"):
                setattr(work, name, np.append(getattr(work, name, np.empty(0)), found))
            work.n_iter_ = len(work.errors_)
        work._stream = stream.forgotten()
    return self


def _stream_of(work: Any, specification: Specification) -> Stream:
    """The stream so far: that of the batch before, of a file, or one that starts from the fitted model."""
    stream = vars(work).get("_stream")
    if stream is None and hasattr(work, "n_iter_"):
        dictionary = as_fitted(work)._dictionary()
        stream = Stream.continuing(specification, dictionary, getattr(work, "gamma_", None))
    return Stream() if stream is None else stream


def fit_decoder(self: Any, X: MatrixLike) -> Any:
    """Learn a linear decoder from codes to signals, for any kernel; the dictionary does not change.

    Parameters
    ----------
    X : array-like or CSR matrix of shape (n_signals, n_features)
        Signals like those of `fit`, one per row.

    Returns
    -------
    self : object
        The estimator, with `decoder_` and `decoder_intercept_`.
    """
    rule = {"decoder_alpha": self._parameter_constraints["decoder_alpha"]}
    validate_parameter_constraints(rule, {"decoder_alpha": self.decoder_alpha}, type(self).__name__)
    with one_blas_thread():
        dictionary, signals = as_fitted(self)._open(X)
        check_has_signals(is_precomputed=isinstance(dictionary.feature_map, GivenKernelMap))
        width = dictionary.encoder(signals.dtype).row_width
        with open_executor(signals, width, self.n_jobs, is_alone=not dictionary.runs_user_code) as executor:
            sums = decoder_sums(dictionary, executor)
        decoder = solved_decoder(dictionary, sums, self.decoder_alpha)
        vars(self).update(decoder_=decoder.matrix, decoder_intercept_=decoder.intercept)
        freeze(self, self._parts)
    return self


@dataclass(eq=False, repr=False, kw_only=True)
class KernelLearner(Learner):
    """Base of the kernel methods, whose atoms are linear combinations of kernel vectors in feature space."""

    kernel: str | Callable = "rbf"
    gamma: float | str = "median"
    degree: int = 3
    coef0: float = 1.0
    fit_inverse_transform: bool = False
    decoder_alpha: float = 1e-3

    _parts = ("dual_components_", "gram_", "kernel_vectors_", "gamma_", "decoder_", "decoder_intercept_")

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the numbers that were found for its parameters."""
        gamma = vars(self).get("gamma_")
        if gamma is None:
            raise AttributeError(
                f"{type(self).__name__} has no kernel_: it is not fitted, or the kernel is precomputed."
            )
        model = as_fitted(self)
        return as_kernel(model.kernel, gamma, model.degree, model.coef0)._resolved(gamma)

    def _features(self) -> FeatureChoice:
        parameters: Any = self
        vectors = parameters.kernel_vectors
        count = parameters.n_kernel_vectors if isinstance(vectors, str) else (np.shape(vectors) or (1,))[0]
        count = max(KERNEL_VECTORS, self.n_components) if count is None else count
        n_nonzero = getattr(self, "linear_n_nonzero_coefs", DICTIONARY_NONZEROS)
        pursuit = Pursuit(n_nonzero, name="ols" if self.pursuit == "lasso" else self.pursuit)
        return KernelFeatures(self.kernel, self.gamma, self.degree, self.coef0, vectors, pursuit, count)

    fit_decoder = fit_decoder
