"""The alternating loop: iterations, errors, the progress bar, Ctrl-C and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from rkdl._data.signals import NotFiniteError
from rkdl._execution.executor import Executor
from rkdl._persistence.checkpoint import Checkpoint, History
from rkdl._persistence.named_arrays import INTEGERS, Expected

# Numbers of every saved model. Those of the objective are infinite before they are known.
NUMBERS = {
    **dict.fromkeys(["objective", "update_objective"], Expected(is_finite=False)),
    "penalty": Expected(),
    **dict.fromkeys(["n_revived", "n_empty"], Expected("", INTEGERS, least=0)),
}


class LearningProblem:
    """A learning problem for `alternate`: its signals, and its current model.

    A model is a value. It has the `objective`, the squared error of the signals coded with it; a `penalty` that is
    minimised besides; the `update_objective`, the squared error right after the last update with the codes that it was
    made for; the counts `n_revived` of unused atoms replaced so far and `n_empty` of signals that are not zero and have
    a code of zeros (where they may be many; else 0); and `state()`, all of it as arrays for a file.
    """

    energy: float = 0.0  # of the signals, once they are coded

    def __init__(self, executor: Executor, model: Any) -> None:
        self.executor = executor
        self.model = model
        # The result of `encode`, for the `update` that follows.
        self._coded: Any = None

    def encode(self) -> None:
        """Code the signals with the current model, which gives its error."""
        raise NotImplementedError

    def update(self, *, is_rise: bool = False, seed: int | None = None) -> None:
        """Update atoms and kernel vectors for the codes; all or nothing.

        With `is_rise`, after an increase of the error, there is no momentum; with a `seed`, atoms of little use are
        replaced.
        """
        raise NotImplementedError

    def roll_back(self, model: Any) -> None:
        """Make an earlier model the current one again."""
        self.model, self._coded = model, None

    def state(self) -> dict[str, np.ndarray]:
        """The state that the next iteration starts from, as arrays for a file."""
        return self.model.state()

    def model_of(self, state: dict[str, np.ndarray]) -> Any:
        """The model of a state; one that is not of this problem is refused."""
        raise NotImplementedError

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Resume from a state."""
        self.model = self.model_of(state)


def alternate(
    problem: LearningProblem,
    *,
    max_iter: int,
    tol: float,
    n_numbers: float,
    verbose: int,
    name: str,
    checkpoint: Checkpoint | None = None,
) -> tuple[History, bool]:
    """Alternate updates and codings until the error settles; returns the errors, and whether Ctrl-C ended the loop.

    The error is ``sqrt(f / n_numbers)``, where `n_numbers` is ``m N``; it has settled when its relative change is below
    `tol`. The problem is left with the best model found. Ctrl-C after an iteration, or with a model that was learned
    before, ends the loop: the caller stores the model and raises KeyboardInterrupt. If there is no model yet, the
    exception propagates. The state after every iteration is written to the checkpoint, from which a fit resumes.
    """
    error_of = partial(_error_of, n_numbers=n_numbers)
    history = History()
    best = problem.model
    was_learned = bool(np.isfinite(problem.model.objective))
    if was_learned:
        history = History(start_error=error_of(problem.model.objective))
    if checkpoint is not None and checkpoint.state is not None:
        history = checkpoint.history
        problem.restore(checkpoint.state)
        best = problem.model if checkpoint.best_state is None else problem.model_of(checkpoint.best_state)
    with progress(max_iter, verbose, name) as bar:
        if bar is not None and history.errors:
            bar.update(len(history))
        is_interrupted = False
        try:
            if len(history) < max_iter and not history.is_settled:
                problem.encode()
                if not history.errors:
                    best = problem.model
                    total = error_of(best.objective + best.penalty)
                    history = History(start_error=error_of(best.objective), start_total=total)
            while len(history) < max_iter and not history.is_settled:
                number = len(history) + 1
                problem.update(is_rise=history.has_risen, seed=number if number in REPLACING_ITERATIONS else None)
                update_error = error_of(problem.model.update_objective)
                problem.encode()
                model = problem.model
                error, total = error_of(model.objective), error_of(model.objective + model.penalty)
                is_settled = _has_settled([*history.totals, total], tol)
                longer = history.extended(error, total, update_error, is_settled)
                # In one assignment, so that Ctrl-C leaves errors and model consistent.
                history, best = longer, model if longer.has_improved else best
                if bar is not None:
                    bar.set_postfix_str(f"error {history.errors[-1]:.4e}", refresh=False)
                    bar.update()
                if checkpoint is not None:
                    checkpoint.write(problem.state(), history, None if history.has_improved else best.state())
        except KeyboardInterrupt:
            if not history.errors and not was_learned:
                raise
            is_interrupted = True
    problem.roll_back(best)
    return history, is_interrupted


def _error_of(objective: float, n_numbers: float) -> float:
    if not np.isfinite(objective):
        raise NotFiniteError
    return float(np.sqrt(max(objective, 0.0) / n_numbers))


# Atoms of little use are replaced in these iterations, whatever max_iter is, so that it may be raised.
REPLACING_ITERATIONS = (2, 8)


# Iterations without a smaller error after which a fit ends: its greedy pursuit is cycling.
PATIENCE = 10


def _has_settled(errors: list[float], tol: float) -> bool:
    """Whether the last two errors lie within `tol` of the smallest before them, or none was smaller for long.

    One alone may be chance in a greedy pursuit, and a rise is not convergence.
    """
    if len(errors) < 3 or tol == 0.0:
        return False
    if len(errors) > PATIENCE and min(errors[-PATIENCE:]) >= (1.0 - tol) * min(errors[:-PATIENCE]):
        return True
    smallest = min(errors[:-2])
    return all((1.0 - tol) * smallest <= error <= (1.0 + tol) * smallest for error in errors[-2:])


@contextmanager
def progress(total: int, verbose: int, name: str, unit: str = "iteration") -> Iterator[Any]:
    """A progress bar of iterations, or None unless `verbose`; above 1, a line of its own every ten seconds."""
    if not verbose:
        yield None
        return
    from tqdm.auto import tqdm

    form = f"{{desc}}: {{n_fmt}} of {{total_fmt}} {unit}s after {{elapsed}}\n"
    options: dict[str, Any] = {"mininterval": 10.0, "delay": 10.0, "bar_format": form} if verbose > 1 else {}
    with tqdm(total=total, desc=name, unit=unit, **options) as bar:
        yield bar
