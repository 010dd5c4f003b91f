"""Learning from a stream, batch by batch."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if

from rkdl._coding.encoder import NotFiniteError
from rkdl._coding.preimages import DecoderSums
from rkdl._estimators.base import DictionaryLearner
from rkdl._estimators.prepared import replaced_at_once
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._learning.reduced import ReducedProblem
from rkdl._learning.stream import StreamLearning
from rkdl._learning.stream_problem import StreamProblem
from rkdl._learning.stream_state import SavedStream, Stream
from rkdl._persistence.shapes import ArrayError
from rkdl._utils.types import MatrixLike, plain_scalar
from rkdl._utils.warnings import quiet

# Distinct signals that gamma and atoms are chosen from at least.
FEWEST_SIGNALS = 20


def _learns_from_sums(model: Any) -> bool:
    if model.atom_update == "aksvd":
        raise AttributeError(
            f"{type(model).__name__} with atom_update='aksvd' has no partial_fit: it refits the codes of all signals, "
            f"which a stream does not keep. Use atom_update='gram'."
        )
    return True


class StreamLearner(DictionaryLearner):
    """A method whose learning needs sums over the signals alone, so that signals may come and go."""

    _parameter_constraints: dict = {
        **DictionaryLearner._parameter_constraints,
        "half_life": [Interval(Real, 0, None, closed="neither"), None],
    }

    half_life: float | None
    _stream: Stream | SavedStream

    @available_if(_learns_from_sums)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: None = None, *, update: bool = True) -> Self:
        """Learn from one batch of a stream.

        The batch is coded with the current atoms, its statistics are added to those of earlier batches, which decay
        with `half_life`, and the atoms are updated from all of them. ORKDL and MORKDL also update the kernel vectors,
        from the batch and from what they represent of earlier ones; RKDL with a `half_life` replaces some by signals.
        A batch that fails or is interrupted leaves the estimator unchanged.

        An epoch whose batches but the last are given with ``update=False`` is one iteration of `fit`: bitwise identical
        for the same chunks, initial atoms, kernel vectors and gamma. ORKDL and MORKDL buffer such batches, up to 256
        MiB.

        The first batch (for ORKDL and MORKDL, all up to the first update) determines kernel vectors, `gamma` and
        initial atoms, unless they are given. They are chosen again, from a bounded sample of the signals seen, while
        they come from fewer distinct signals than there are kernel vectors and atoms, and when the scale of the signals
        changes by a factor of two. From then on, `n_components`, `n_kernel_vectors`, `n_fourier_features` and the
        parameters of the kernel must not change. After `fit`, the stream starts from the fitted model, but the signals
        of `fit` are not part of its statistics.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : None
            Ignored.
        update : bool, default=True
            Whether to update atoms and kernel vectors after this batch, or to wait for the next update.

        Returns
        -------
        self : object
            The estimator. An update appends to `errors_` and `update_errors_` the error of all signals seen, with the
            codes that they were given when they were seen; errors near zero are rounding errors.
        """
        with replaced_at_once(self, self.random_state) as work, one_blas_thread():
            work._learn_batch(X, update)
        return self

    def _learn_batch(self, X: MatrixLike, update: bool) -> None:
        """Learn from one batch and set the fitted attributes."""
        is_first = not hasattr(self, "n_iter_")
        if not is_first:
            self._check_settings()
        signals = self._read_signals(X, reset=is_first)
        learning = StreamLearning(
            self._executor,
            self._start,
            self._bind,
            self._publish,
            self.half_life,
            self._signals_needed(),
            self._depends_on_scale(),
            self._moves(),
            self._plain_settings(),
        )
        try:
            with self._executor(signals) as executor:
                executor = self._with_dtype(executor) if is_first else executor
                stream = None if is_first else self._resume(learning, executor)
                self._stream = learning.learn(stream, executor, update)
        except NotFiniteError:
            signals.check_finite()
            raise

    def _start(self, executor: Executor) -> tuple[ReducedProblem, float | None]:
        """A problem that starts from these signals, and gamma."""
        self._check_sizes(executor.signals.shape[0])
        rng = check_random_state(self.random_state)
        problem, gamma, is_interrupted = self._start_problem(self._inspect(executor), rng)
        if is_interrupted:
            raise KeyboardInterrupt
        assert isinstance(problem, ReducedProblem)
        return problem, gamma

    def _resume(self, learning: StreamLearning, executor: Executor) -> Stream:
        """The stream so far: that of the batch before, of a file, or one that starts from the fitted model."""
        stream: Stream | SavedStream | None = vars(self).get("_stream")
        if isinstance(stream, Stream):
            return stream
        gamma = getattr(self, "gamma_", None) if stream is None else stream.numbers["gamma"]
        if stream is None:
            return learning.opened(self._continued(executor, gamma), gamma)
        try:
            # A stream that was never saved is not judged by a batch either.
            with quiet():
                return stream.restored(self._continued(executor, gamma))
        except ArrayError as error:
            raise ValueError(f"The file that this {type(self).__name__} is of was changed: {error}.") from error

    @abstractmethod
    def _continued(self, executor: Executor, gamma: float | None) -> ReducedProblem:
        """The learning problem at the fitted attributes."""

    def _bind(self, stream: Stream, executor: Executor) -> StreamProblem:
        """The stream's problem on a batch, with the parameters as they are now."""
        return StreamProblem(ReducedProblem(executor, stream.model, self._pursuit()), stream.running)

    def _publish(
        self, problem: ReducedProblem, gamma: float | None, earlier: DecoderSums | None, error: float | None
    ) -> DecoderSums | None:
        """Set the fitted attributes; `error` is that of an update. Returns the decoder's sums."""
        signals = problem.executor.signals
        self._store(problem, signals, gamma)
        found = [] if error is None else [error]
        for name in ("errors_", "update_errors_"):
            setattr(self, name, np.append(getattr(self, name, np.empty(0)), found))
        self.n_iter_ = len(self.errors_)
        self.n_revived_ = problem.model.n_revived
        sums = self._learn_inverse(problem.executor, earlier)
        if error is not None and len(self.update_errors_) == 1:
            self._check_learned(problem, signals.shape[0])
        return sums

    def _signals_needed(self) -> int:
        """Distinct signals that are enough to choose a start from; 0 where nothing of it comes from signals."""
        draws = isinstance(self.init, str) and self.init != "random"
        gamma = getattr(self, "_gamma_parameter", getattr(self, "gamma", None))
        return max(FEWEST_SIGNALS if draws or isinstance(gamma, str) else 0, self.n_components if draws else 0)

    def _is_unsettled(self) -> bool:
        """Whether the start was chosen from too few signals."""
        n_distinct = self._stream.n_distinct if "_stream" in vars(self) else None
        return n_distinct is not None and n_distinct < self._signals_needed()

    def _depends_on_scale(self) -> bool:
        """Whether a start chosen from signals of one scale is useless for those of another."""
        return False

    def _moves(self) -> bool:
        """Whether kernel vectors move."""
        return False

    def _settings(self) -> dict:
        """Parameters that statistics depend on."""
        return {"n_components": self.n_components}

    def _plain_settings(self) -> dict:
        settings = self._settings()
        return {name: plain_scalar(value) for name, value in settings.items()}

    def _check_settings(self) -> None:
        """Refuse parameters that what was learned cannot follow."""
        known = {"n_components": len(self.components_ if hasattr(self, "components_") else self.dual_components_)}
        known |= self._stream.settings if "_stream" in vars(self) else vars(self).get("_fit_settings", {})
        now = self._plain_settings()
        for name, value in known.items():
            if now.get(name) != value:
                raise ValueError(
                    f"{name}={now.get(name)!r} was {value!r} when this {type(self).__name__} began to learn, and what "
                    f"it learned holds for that alone: set it back, or begin anew with fit or a clone."
                )

    def _fit_signals(self, signals: Any, path: Any = None) -> bool:
        is_interrupted = super()._fit_signals(signals, path)
        self.__dict__.pop("_stream", None)
        self._fit_settings = self._plain_settings()
        return is_interrupted
