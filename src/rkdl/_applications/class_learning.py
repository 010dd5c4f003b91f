"""Learning of class dictionaries, step by step: Ctrl-C leaves the result of the last step.

In whitened coordinates (`rkdl._features.maps.WhitenedMap`) the dictionary of a class is a linear one, so that classes
are learned by the same problem as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from rkdl._applications.class_dictionaries import ClassCoder, Picked, SharedFeatures, relative_residuals
from rkdl._applications.refinement import FEATURE_BYTES, Refinement, fit_sharpness
from rkdl._backends.arrays import host
from rkdl._execution.blas import resolve_threads
from rkdl._execution.config import cache_limit
from rkdl._execution.executor import Executor, open_executor, side_by_side
from rkdl._features.metric import IdentityMetric
from rkdl._learning.initial_atoms import initial_atoms
from rkdl._learning.learn import Report, loop_options
from rkdl._learning.loop import LearningProblem, alternate, progress
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._learning.specification import Specification

# Multiplications of a pass from which on threads are worth starting.
MANY_MULTIPLICATIONS = 1 << 22


class ClassModel(NamedTuple):
    """The models of all classes, and the sums of their errors; see `rkdl._learning.loop.LearningProblem`."""

    models: tuple[Model, ...]
    objective: float
    update_objective: float
    penalty: float = 0.0


class ClassProblem(LearningProblem):
    """The dictionaries of all classes as one learning problem for `rkdl._learning.loop.alternate`.

    `members` are the rows of each class, which has no more atoms than signals.
    """

    def __init__(
        self,
        executor: Executor,
        features: SharedFeatures,
        members: Sequence[np.ndarray],
        specification: Specification,
        rng: np.random.RandomState,
    ) -> None:
        signals, feature_map, n_atoms = executor.signals, features.feature_map, specification.n_atoms
        n_signals, metric = sum(len(rows) for rows in members), IdentityMetric(feature_map.size)
        # Classes are learned in parallel; if they are few, their chunks too; if all of it is little work, neither.
        is_little = n_signals * n_atoms * feature_map.size < MANY_MULTIPLICATIONS
        self._threads = 1 if is_little else resolve_threads(executor.n_jobs)
        self.problems: list[ReducedProblem] = []
        for rows in members:
            count = min(n_atoms, len(rows))
            own = Picked(signals, rows)
            atoms = initial_atoms(specification.init, count, feature_map, metric, own, rng)
            width = signals.shape[1] + 2 * feature_map.size + 3 * count
            # Asked here: classes learn in threads that do not know the user's settings.
            cache_bytes = cache_limit(executor.cache_room(FEATURE_BYTES) * len(rows) // n_signals)
            problem = ReducedProblem(
                open_executor(own, width, -(-self._threads // len(members)), is_part=True, cache_bytes=cache_bytes),
                Model.start(feature_map, metric, atoms),
                features.pursuit._replace(n_nonzero=min(features.pursuit.n_nonzero, count)),
                atom_update=specification.atom_update,
            )
            self.problems.append(problem)
        super().__init__(executor, self._sum())

    def encode(self) -> None:
        """Code the signals of each class with its own atoms."""
        self._each(ReducedProblem.encode)

    def update(self, *, is_rise: bool = False, replaces: bool = False) -> None:
        """Update the atoms of each class."""
        self._each(partial(ReducedProblem.update, is_rise=is_rise, replaces=replaces))

    def _each(self, function: Callable[[ReducedProblem], None]) -> None:
        # The largest first, for a balanced load.
        queue = sorted(self.problems, key=lambda problem: -problem.executor.signals.shape[0])
        side_by_side(function, queue, self._threads)
        self.model = self._sum()

    def _sum(self) -> ClassModel:
        models = tuple(problem.model for problem in self.problems)
        objectives = [(float(model.objective), float(model.update_objective)) for model in models]
        return ClassModel(models, *(sum(parts) for parts in zip(*objectives, strict=True)))

    def roll_back(self, model: ClassModel) -> None:
        """Make earlier dictionaries the current ones again."""
        super().roll_back(model)
        for problem, own in zip(self.problems, model.models, strict=True):
            problem.roll_back(own)


class LearnedClasses(NamedTuple):
    """What a step of the learning ends with."""

    whitened_atoms: list[np.ndarray]  # of each class
    errors: np.ndarray
    losses: tuple[float, ...] = ()
    residuals: np.ndarray | None = None  # of the held-out signals
    sharpness: float = 1.0  # calibrated on them
    first_sharpness: float = 1.0  # before the refinement


@dataclass(frozen=True)
class ClassLearning:
    """Learns the dictionaries of classes; `labels` are indices of classes, and `held_out` signals calibrate."""

    specification: Specification
    executor: Executor
    features: SharedFeatures
    labels: np.ndarray
    held_out: np.ndarray
    n_refinements: int
    learning_rate: float
    report: Report

    def run(self, seeds: Sequence[int], *, learns_again: bool) -> tuple[LearnedClasses, bool]:
        """What was learned, and whether Ctrl-C ended it; without a result yet the exception passes through.

        With `learns_again`, the dictionaries are learned once more, from the held-out signals too.
        """
        learned: LearnedClasses | None = None
        try:
            for step in self._steps(np.where(self.held_out, -1, self.labels), seeds[0]):
                learned = step
            assert learned is not None
            learned = self._calibrated(learned)
            if learns_again:
                # Complete dictionaries of fewer signals are better than incomplete ones of all.
                *_, learned = self._steps(self.labels, seeds[1], learned)
        except KeyboardInterrupt:
            if learned is None:
                raise
            with suppress(KeyboardInterrupt):
                learned = self._calibrated(learned)
            return learned, True
        return learned, False

    def _steps(self, labels: np.ndarray, seed: int, before: LearnedClasses | None = None) -> Iterator[LearnedClasses]:
        """Dictionaries learned from the signals with nonnegative labels, with the calibration of those `before`."""
        rng = np.random.RandomState(seed)
        learned, is_interrupted = self._alternate(labels, rng)
        if before is not None:
            learned = before._replace(whitened_atoms=learned.whitened_atoms, errors=learned.errors, losses=())
        yield learned
        if is_interrupted:
            raise KeyboardInterrupt
        if self.n_refinements:
            yield from self._refine(learned, labels, rng)

    def _alternate(self, labels: np.ndarray, rng: np.random.RandomState) -> tuple[LearnedClasses, bool]:
        """The best dictionaries of all iterations, and whether Ctrl-C ended these."""
        specification, executor = self.specification, self.executor
        members = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
        problem = ClassProblem(executor, self.features, members, specification, rng)
        with ExitStack() as stack:
            for own in problem.problems:
                stack.enter_context(own.executor)
            options = loop_options(specification, problem, self.report)
            options["n_numbers"] = int((labels >= 0).sum()) * executor.signals.shape[1]
            history, is_interrupted = alternate(problem, max_iter=specification.max_iter, **options)
        atoms = [host(own.model.whitened_atoms) for own in problem.problems]
        return LearnedClasses(atoms, history.returned_errors), is_interrupted

    def _refine(
        self, learned: LearnedClasses, labels: np.ndarray, rng: np.random.RandomState
    ) -> Iterator[LearnedClasses]:
        """Discriminative passes over the data."""
        if learned.residuals is None:
            learned = self._calibrated(learned)
            learned = learned._replace(first_sharpness=learned.sharpness)
        count = self.n_refinements
        with progress(count, self.report.verbose, f"{self.report.name}: refinement") as bar:
            options = learned.whitened_atoms, learned.first_sharpness, self.learning_rate, rng
            refinement = Refinement(self.executor, labels, self.features, *options)
            for number in range(count):
                losses = *learned.losses, refinement.run_pass(1.0 - number / count, 1.0 / count)
                learned = learned._replace(whitened_atoms=refinement.whitened_atoms, losses=losses)
                if bar is not None:
                    bar.set_postfix_str(f"cross-entropy {losses[-1]:.4f}", refresh=False)
                    bar.update()
                yield learned

    def _calibrated(self, learned: LearnedClasses) -> LearnedClasses:
        """With the residuals of the held-out signals, and the sharpness that fits them."""
        rows, signals = np.flatnonzero(self.held_out), self.executor.signals
        residuals = np.empty((0, len(learned.whitened_atoms)))
        if rows.size:
            atoms = [own.astype(signals.dtype) for own in learned.whitened_atoms]
            grams = [own @ own.T for own in atoms]
            coder = ClassCoder.of(self.features.feature_map, atoms, grams, self.features.pursuit)
            residuals = host(relative_residuals(Picked(signals, rows), coder, self.executor.n_jobs))
        return learned._replace(residuals=residuals, sharpness=fit_sharpness(residuals, self.labels[rows]))
