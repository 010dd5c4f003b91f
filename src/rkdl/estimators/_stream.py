"""Learning from a stream, batch by batch."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from rkdl._config import config_context
from rkdl._held import HELD_BYTES, HeldBatch, JoinedSignals, chunk_rows, held_size, hold, on_host
from rkdl._learning import ReducedProblem
from rkdl._memory import Memory, fading
from rkdl._preimage import DecoderSums
from rkdl._shapes import ArrayError
from rkdl._signals import Signals, Walker
from rkdl._statistics import NotFiniteError, Pursuit
from rkdl.estimators._base import DictionaryLearner


@dataclass(frozen=True)
class Stream:
    """A learning problem between two batches.

    Attributes
    ----------
    problem : ReducedProblem
        Atoms, kernel vectors and statistics.
    scale, gamma : float, float or None
        What its signals are multiplied by, and the kernel's parameter for them.
    settings : dict
        Parameters that its statistics depend on.
    decoder_sums : DecoderSums or None
        Sums that the decoder is learned from, where one is.
    held : tuple of HeldBatch
        Batches that wait for an update, and are in neither of the sums.
    held_sums : DecoderSums or None
        The decoder's sums with those of the held batches, coded with the current atoms.
    is_provisional : bool
        Whether the kernel vectors and the first atoms are to be chosen again, from all signals of the first update.
    has_warned : bool
        Whether the user was told that not all batches could be held.
    """

    problem: ReducedProblem
    scale: float
    gamma: float | None
    settings: dict
    decoder_sums: DecoderSums | None = None
    held: tuple[HeldBatch, ...] = ()
    held_sums: DecoderSums | None = None
    is_provisional: bool = False
    has_warned: bool = False

    def state(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Everything that a stream goes on from: numbers, and arrays."""
        memory = self.problem.memory
        assert memory is not None
        parts = {name: value for name, value in vars(memory).items() if name != "linear"}
        numbers = {name: value for name, value in parts.items() if isinstance(value, bool | int | float)}
        arrays = {f"memory.{name}": value for name, value in parts.items() if isinstance(value, np.ndarray)}
        if memory.linear is not None:
            arrays |= {"linear.0": memory.linear[0], "linear.1": memory.linear[1]}
            numbers["linear_trace"] = memory.linear[2]
        for kind, sums in (("decoder", self.decoder_sums), ("held_decoder", self.held_sums)):
            if sums is not None:
                arrays |= {f"{kind}.{name}": np.asarray(part) for name, part in sums._asdict().items()}
        arrays |= {f"held.{number}": batch.rows for number, batch in enumerate(self.held)}
        header = {
            "scale": self.scale,
            "gamma": self.gamma,
            "memory": numbers,
            "settings": self.settings,
            "held_chunks": [list(batch.chunks) for batch in self.held],
            "is_provisional": self.is_provisional,
            "has_warned": self.has_warned,
        }
        return header, {**self.problem.state(), **arrays}

    @classmethod
    def restored(cls, problem: ReducedProblem, numbers: dict, arrays: dict[str, np.ndarray]) -> Stream:
        """The stream of a state; `problem` takes over what is its own."""
        problem.restore({name: array for name, array in arrays.items() if "." not in name})
        values = {key: value for key, value in numbers["memory"].items() if key != "linear_trace"}
        values |= _named(arrays, "memory.")
        if "linear.0" in arrays:
            values["linear"] = (arrays["linear.0"], arrays["linear.1"], numbers["memory"]["linear_trace"])
        problem.memory = Memory(**values)
        sums, held_sums = (_named(arrays, f"{kind}.") for kind in ("decoder", "held_decoder"))
        chunks = numbers.get("held_chunks", [])
        return cls(
            problem,
            numbers["scale"],
            numbers["gamma"],
            numbers.get("settings", {}),
            DecoderSums(**sums) if sums else None,
            tuple(HeldBatch(arrays[f"held.{number}"], tuple(rows)) for number, rows in enumerate(chunks)),
            DecoderSums(**held_sums) if held_sums else None,
            numbers.get("is_provisional", False),
            numbers.get("has_warned", False),
        )


def _named(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


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
        fade by `half_life`, and the atoms are updated from all of them. What was seen weighs the same however it was
        cut into batches. The kernel vectors of ORKDL and MORKDL move too: by the batch's signals, and by the
        earlier ones as far as the kernel vectors represent them. Those of RKDL stay without a `half_life`; with one,
        signals of the batch replace kernel vectors that the atoms can do without.

        One iteration of `fit` codes all signals with the same atoms before it updates them. So do the batches of an
        epoch of which all but the last are given with ``update=False``, and they end at the same bits on the same
        chunks where the first atoms, kernel vectors and gamma are the same. ORKDL and MORKDL keep the signals of
        such batches, up to 256 MiB, until the update, which needs them all.

        The first batch chooses the kernel vectors, `gamma` and the first atoms (of ORKDL and MORKDL, all batches of
        the first update do); after a `fit` they are the fitted ones. Later changes of `init`, `kernel_vectors` and
        `random_state` mean nothing to them. Other parameters are taken as they are at every call; those that what was
        learned depends on, `n_components`, `n_kernel_vectors`, `n_fourier_features` and the kernel's, cannot change.

        A batch that fails, or is interrupted, changes nothing.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row. Anything with ``shape``, ``dtype`` and row slices (a memory map, a Zarr array, an HDF5
            dataset) is read chunk by chunk; torch tensors are worked on where they are.
        y : None
            Ignored.
        update : bool, default=True
            Whether atoms and kernel vectors are updated after this batch, or it waits for the next update.

        Returns
        -------
        self : object
            The estimator; `errors_` has the error of all statistics after every update, with the codes that the
            signals were given when they were seen. An error near zero, which `fit` of DL takes from the residuals
            themselves, is rounding here.
        """
        before = dict(vars(self))
        generator = self.random_state if isinstance(self.random_state, np.random.RandomState) else None
        position = None if generator is None else generator.get_state()
        try:
            is_first = not hasattr(self, "n_iter_")
            if not is_first:
                self._check_settings()
            signals = self._read_signals(X, reset=is_first)
            try:
                stream = self._learn_batch(signals, update, is_first)
            except NotFiniteError:
                signals.check_finite()
                raise
            self.__dict__.pop("_saved_stream", None)
            self._stream = stream
        except BaseException:
            # A batch that fails changes nothing: the stream before it is still whole.
            vars(self).clear()
            vars(self).update(before)
            if generator is not None:
                generator.set_state(position)
            raise
        return self

    def _learn_batch(self, signals: Signals, update: bool, is_first: bool) -> Stream:
        """The stream after a batch; the one before it stays as it is, the fitted attributes change."""
        with self._walker(signals) as walker:
            stream = self._enter(walker, is_first)
            can_hold = self._moves() and self.half_life is None and not signals.is_remote
            if can_hold and not update:
                return self._hold(stream, walker)
            if not can_hold:
                stream = self._release(stream, len(stream.held), signals)
            if not stream.held:
                return self._advance(stream, walker, update)
            with self._walk(stream.held, signals, walker.bounds) as joint:
                if stream.is_provisional:
                    stream = self._begin(joint)
                return self._advance(stream, joint, update)

    def _enter(self, walker: Walker, is_first: bool) -> Stream:
        """The stream that a batch is given to."""
        if is_first:
            return self._begin(walker)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is not None:
            return stream
        signals = walker.signals
        saved = self.__dict__.get("_saved_stream")
        if saved is not None:
            signals.scale, signals.median_gamma = saved[0]["scale"], saved[0]["gamma"]
        else:
            signals.scale = self._fitted_scale(signals.dtype)
            gamma = getattr(self, "gamma_", None)
            signals.median_gamma = None if gamma is None else gamma / signals.scale / signals.scale
        rng = check_random_state(self.random_state)
        problem = self._continued(walker, self._pursuit(self._feature_scale(signals.scale)), rng)
        if saved is not None:
            try:
                return Stream.restored(problem, *saved)
            except ArrayError as error:
                raise ValueError(f"The file that this {type(self).__name__} is of was changed: {error}.") from error
        return self._opened(problem, signals)

    def _begin(self, walker: Walker) -> Stream:
        """A stream whose kernel vectors and first atoms are chosen from these signals."""
        signals = walker.signals
        self._check_sizes(signals.shape[0])
        self._inspect(walker)
        pursuit = self._pursuit(self._feature_scale(signals.scale))
        problem = self._problem(walker, pursuit, check_random_state(self.random_state))
        if walker.is_interrupted:
            raise KeyboardInterrupt
        assert isinstance(problem, ReducedProblem)
        return replace(self._opened(problem, signals), is_provisional=True)

    def _opened(self, problem: ReducedProblem, signals: Signals) -> Stream:
        problem.memory = Memory.empty(len(problem.white), problem.feature_map.size)
        return Stream(problem, signals.scale, signals.median_gamma, self._plain_settings())

    def _attend(self, stream: Stream, walker: Walker) -> ReducedProblem:
        """A copy of the stream's problem that looks at other signals, with the parameters as they are now."""
        walker.signals.scale, walker.signals.median_gamma = stream.scale, stream.gamma
        problem = copy(stream.problem)
        self._renew(problem, walker)
        problem.attend(walker)
        return problem

    def _advance(self, stream: Stream, walker: Walker, update: bool) -> Stream:
        """The stream after the statistics of a walk, and after an update if that is asked for."""
        signals = walker.signals
        problem = self._attend(stream, walker)
        # The mean weight of these signals is given to them afterwards, so that their walk is that of a fit.
        share, weight = fading(signals.shape[0], self.half_life)
        assert problem.memory is not None
        problem.memory = problem.memory.faded(share / weight)
        errors = list(getattr(self, "errors_", ()))
        if update:
            problem.iterate()
            if not np.isfinite(problem.objective):
                raise NotFiniteError
            mean = max(problem.objective, 0.0) / (signals.shape[1] * problem.memory.weight)
            errors.append(float(np.sqrt(mean)) / self._feature_scale(stream.scale))
        else:
            problem.accumulate()
        sums = self._tell(problem, walker, errors, _faded(stream.decoder_sums, share / weight))
        problem.memory = problem.memory.faded(weight)
        problem.attend(None)
        return replace(
            stream,
            problem=problem,
            decoder_sums=_faded(sums, weight),
            held=(),
            held_sums=None,
            is_provisional=False,
        )

    def _tell(
        self, problem: ReducedProblem, walker: Walker, errors: list[float], earlier: DecoderSums | None
    ) -> DecoderSums | None:
        """Set the fitted attributes; returns the decoder's sums."""
        self._store(problem, walker.signals)
        self.errors_ = np.array(errors)
        self.n_iter_ = len(errors)
        self.n_revived_ = problem.n_revived
        return self._learn_inverse(walker, earlier)

    def _hold(self, stream: Stream, walker: Walker) -> Stream:
        """The stream with a batch that waits for an update; the oldest make room."""
        signals = walker.signals
        room = HELD_BYTES - held_size(signals)
        sizes = [batch.rows.nbytes for batch in stream.held]
        count = 0
        while count < len(sizes) and sum(sizes[count:]) > room:
            count += 1
        if (count or room < 0) and not stream.has_warned:
            warnings.warn(
                f"The batches that wait for an update take more than {HELD_BYTES / 2**20:.0f} MiB: of the oldest only "
                f"sums are kept, and kernel vectors move by what they represent of those signals. Update more often.",
                UserWarning,
                stacklevel=5,
            )
            stream = replace(stream, has_warned=True)
        stream = self._release(stream, count, signals)
        if room < 0:
            return self._advance(stream, walker, update=False)
        problem = self._attend(stream, walker)
        # What cannot be learned from is refused now: the update will be that of other batches too.
        problem.check()
        earlier = stream.held_sums if stream.held else stream.decoder_sums
        sums = self._tell(problem, walker, list(getattr(self, "errors_", ())), earlier)
        problem.attend(None)
        held = (*stream.held, hold(signals, walker.bounds))
        return replace(stream, problem=problem, held=held, held_sums=sums)

    def _release(self, stream: Stream, count: int, like: Signals) -> Stream:
        """The stream with the statistics of its `count` oldest held batches in place of their signals."""
        if count == 0:
            return stream
        rest, sums = stream.held[count:], stream.held_sums
        with self._walk(stream.held[:count], like) as walker:
            stream = self._advance(stream, walker, update=False)
        return replace(stream, held=rest, held_sums=sums if rest else None)

    def _walk(self, held: Sequence[HeldBatch], like: Signals, bounds: Sequence[tuple[int, int]] = ()) -> Walker:
        """A walker over held batches, and after them over `like` by its bounds; on the device of `like`."""
        parts = [batch.signals() for batch in held]
        chunks = [rows for batch in held for rows in batch.chunks]
        if bounds:
            parts.append(on_host(like))
            chunks += chunk_rows(bounds)
        joined: Any = JoinedSignals(parts)
        if hasattr(like, "device"):
            from rkdl._torch.signals import StreamedSignals

            joined = StreamedSignals(joined, like.device)
        with config_context(chunk_rows=chunks):
            return self._walker(joined)

    @abstractmethod
    def _continued(self, walker: Walker, pursuit: Pursuit, rng: np.random.RandomState) -> ReducedProblem:
        """The learning problem at the fitted attributes."""

    def _moves(self) -> bool:
        """Whether kernel vectors move."""
        return False

    def _renew(self, problem: ReducedProblem, walker: Walker) -> None:
        """Give a problem that goes on the parameters as they are now."""
        problem.pursuit = self._pursuit(self._feature_scale(walker.signals.scale))

    def _settings(self) -> dict:
        """Parameters that statistics depend on."""
        return {"n_components": self.n_components}

    def _plain_settings(self) -> dict:
        settings = self._settings()
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}

    def _check_settings(self) -> None:
        """Refuse parameters that what was learned cannot follow."""
        known = {"n_components": len(self.components_ if hasattr(self, "components_") else self.dual_components_)}
        if "_stream" in vars(self):
            known |= self._stream.settings
        elif "_saved_stream" in vars(self):
            known |= self._saved_stream[0].get("settings", {})
        else:
            known |= vars(self).get("_fit_settings", {})
        now = self._plain_settings()
        for name, value in known.items():
            if now.get(name) != value:
                raise ValueError(
                    f"{name}={now.get(name)!r} was {value!r} when this {type(self).__name__} began to learn, and what "
                    f"it learned holds for that alone: set it back, or begin anew with fit or a clone."
                )

    def _fit_signals(self, signals: Any, path: Any = None) -> None:
        super()._fit_signals(signals, path)
        for name in ("_stream", "_saved_stream"):
            self.__dict__.pop(name, None)
        self._fit_settings = self._plain_settings()


def _faded(sums: DecoderSums | None, share: float) -> DecoderSums | None:
    if sums is None or share == 1.0:
        return sums
    parts: list[Any] = [share * part for part in sums]
    return DecoderSums(*parts)
