"""Learning from a stream, batch by batch."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from rkdl._learning import ReducedProblem
from rkdl._memory import Memory
from rkdl._preimage import DecoderSums
from rkdl._signals import Walker
from rkdl._statistics import NotFiniteError, Pursuit
from rkdl.estimators._base import DictionaryLearner


@dataclass
class Stream:
    """A learning problem between two batches, and what its signals are multiplied by."""

    problem: ReducedProblem
    scale: float
    gamma: float | None
    # Sums that the decoder is learned from, where one is.
    decoder_sums: DecoderSums | None = None

    def state(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Everything that a stream goes on from: numbers, and arrays."""
        memory = self.problem.memory
        assert memory is not None
        held = {name: value for name, value in vars(memory).items() if name != "linear"}
        numbers = {name: value for name, value in held.items() if isinstance(value, bool | int | float)}
        arrays = {f"memory.{name}": value for name, value in held.items() if isinstance(value, np.ndarray)}
        if memory.linear is not None:
            arrays |= {"linear.0": memory.linear[0], "linear.1": memory.linear[1]}
            numbers["linear_trace"] = memory.linear[2]
        if self.decoder_sums is not None:
            arrays |= {f"decoder.{name}": np.asarray(part) for name, part in self.decoder_sums._asdict().items()}
        return {"scale": self.scale, "gamma": self.gamma, "memory": numbers}, {**self.problem.state(), **arrays}

    @staticmethod
    def memory(numbers: dict, arrays: dict[str, np.ndarray]) -> Memory:
        """The memory of a state."""
        values = {key: value for key, value in numbers["memory"].items() if key != "linear_trace"}
        values |= {key.removeprefix("memory."): value for key, value in arrays.items() if key.startswith("memory.")}
        if "linear.0" in arrays:
            values["linear"] = (arrays["linear.0"], arrays["linear.1"], numbers["memory"]["linear_trace"])
        return Memory(**values)


def _learns_from_sums(model: Any) -> bool:
    if model.atom_update == "aksvd":
        raise AttributeError(
            f"{type(model).__name__} with atom_update='aksvd' has no partial_fit: it refits the codes of all signals, "
            f"which a stream does not keep. Use atom_update='gram'."
        )
    return True


class StreamLearner(DictionaryLearner):
    """A method whose learning needs sums over the signals alone, so that signals may come and go."""

    @available_if(_learns_from_sums)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, *, update=True):
        """Learn from one batch of a stream.

        The batch is coded with the current atoms, its statistics are added to those of the batches before it, which
        fade by `half_life`, and the atoms are updated from all of them; every signal weighs the same, whatever
        the size of its batch. The kernel vectors of ORKDL and MORKDL move too: by the batch's signals, and by the
        earlier ones as far as the kernel vectors represent them. The first batch chooses the kernel vectors, `gamma`
        and the first atoms; after a `fit` they are the fitted ones.

        One iteration of `fit` codes all signals with the same atoms before it updates them. So do the batches of an
        epoch of which all but the last are given with ``update=False``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row. Anything with ``shape``, ``dtype`` and row slices (a memory map, a Zarr array, an HDF5
            dataset) is read chunk by chunk.
        y : None
            Ignored.
        update : bool, default=True
            Whether atoms and kernel vectors are updated after this batch, or only its statistics are added.

        Returns
        -------
        self : object
            The estimator; `errors_` has the error of all statistics after every update, with the codes that the
            signals were given when they were seen.
        """
        is_first = not hasattr(self, "n_iter_")
        signals = self._read_signals(X, reset=is_first)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is not None:
            signals.scale, signals.median_gamma = stream.scale, stream.gamma
        n_signals, n_features = signals.shape
        with self._walker(signals) as walker:
            if stream is None:
                if is_first:
                    self._check_sizes(n_signals)
                    self._inspect(walker)
                stream = self._begin(walker, is_first)
            problem = stream.problem
            problem.attend(walker)
            memory, mover = problem.memory, problem.mover
            assert memory is not None
            if mover is not None:
                # Its curvature is that of other sums.
                mover.restore({})
            share = 1.0 if self.half_life is None else 0.5 ** (n_signals / self.half_life)
            is_learned = False
            try:
                problem.memory = memory.faded(share)
                if update:
                    problem.iterate()
                else:
                    problem.accumulate()
                self._store(problem, signals)
                earlier = stream.decoder_sums
                if earlier is not None:
                    earlier = DecoderSums(*(share * part for part in earlier))
                stream.decoder_sums = self._learn_inverse(walker, earlier)
                is_learned = True
            except NotFiniteError:
                signals.check_finite()
                raise
            finally:
                # A batch that fails changes nothing, and the stream outlives the batch, not its signals.
                if not is_learned:
                    problem.memory = memory
                problem.attend(None)
        unit = self._feature_scale(stream.scale)
        errors = [] if is_first else list(self.errors_)
        if update:
            errors.append(float(np.sqrt(max(problem.objective, 0.0) / (n_features * problem.memory.weight))) / unit)
        self.errors_ = np.array(errors)
        self.n_iter_ = len(errors)
        self.n_revived_ = problem.n_revived
        self._stream = stream
        self.__dict__.pop("_saved_stream", None)
        return self

    def _begin(self, walker: Walker, is_first: bool) -> Stream:
        signals = walker.signals
        rng = check_random_state(self.random_state)
        saved = self.__dict__.get("_saved_stream")
        if saved is not None:
            numbers, arrays = saved
            signals.scale, signals.median_gamma = numbers["scale"], numbers["gamma"]
            pursuit = self._pursuit(self._feature_scale(signals.scale))
            again = self._continued(walker, pursuit, rng)
            again.restore(arrays)
            again.memory = Stream.memory(numbers, arrays)
            named = {key.removeprefix("decoder."): part for key, part in arrays.items() if key.startswith("decoder.")}
            return Stream(again, signals.scale, signals.median_gamma, DecoderSums(**named) if named else None)
        if not is_first:
            signals.scale = self._fitted_scale(signals.dtype)
            gamma = getattr(self, "gamma_", None)
            signals.median_gamma = None if gamma is None else gamma / signals.scale / signals.scale
        pursuit = self._pursuit(self._feature_scale(signals.scale))
        problem = self._problem(walker, pursuit, rng) if is_first else self._continued(walker, pursuit, rng)
        assert isinstance(problem, ReducedProblem)
        problem.memory = Memory.empty(len(problem.white), problem.feature_map.size)
        return Stream(problem, signals.scale, signals.median_gamma)

    @abstractmethod
    def _continued(self, walker: Walker, pursuit: Pursuit, rng: np.random.RandomState) -> ReducedProblem:
        """The learning problem at the fitted attributes."""

    def _fit_signals(self, signals: Any, path: Any = None) -> None:
        super()._fit_signals(signals, path)
        for name in ("_stream", "_saved_stream"):
            self.__dict__.pop(name, None)
