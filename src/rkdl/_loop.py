"""The alternating loop: iterations, their errors, the bar, Ctrl-C and checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rkdl._checkpoint import Checkpoint
from rkdl._signals import Walker
from rkdl._statistics import NotFiniteError


class Problem(Protocol):
    """What the loop asks of a learning problem."""

    walker: Walker
    objective: float
    n_revived: int

    def iterate(self) -> None:
        """One iteration: codes, atoms, kernel vectors; all or nothing."""

    def state(self) -> dict[str, np.ndarray]:
        """What the next iteration starts from."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over."""


def alternate(
    problem: Problem,
    *,
    max_iter: int,
    tol: float,
    n_numbers: int,
    unit: float,
    verbose: int,
    name: str,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Iterate until the relative gain falls below `tol`; Ctrl-C ends it with what was learned so far.

    Parameters
    ----------
    problem : Problem
        Is left in the state of its last complete iteration.
    max_iter, tol : int, float
        Most iterations; least relative gain of the error.
    n_numbers : int
        ``m N``: the error is ``sqrt(f / (m N))``.
    unit : float
        What the features were multiplied by; the error is divided by it.
    verbose : int
        A progress bar if positive.
    name : str
        What the bar is called.
    checkpoint : Checkpoint or None
        Where the state after every iteration is written; the problem is in the state that was found there.

    Returns
    -------
    list of float
        The error after every iteration.
    """
    errors: list[float] = []
    is_settled = False
    if checkpoint is not None and checkpoint.state is not None:
        errors, is_settled = list(checkpoint.errors), checkpoint.is_settled
    with progress(max_iter, verbose, name) as bar:
        if bar is not None and errors:
            bar.update(len(errors))
        try:
            while len(errors) < max_iter and not is_settled:
                if problem.walker.is_interrupted:
                    raise KeyboardInterrupt
                problem.iterate()
                if not np.isfinite(problem.objective):
                    raise NotFiniteError
                errors.append(float(np.sqrt(max(problem.objective, 0.0) / n_numbers)) / unit)
                if bar is not None:
                    bar.set_postfix_str(f"error {errors[-1]:.4e}", refresh=False)
                    bar.update()
                is_settled = _has_settled(errors, tol)
                if checkpoint is not None:
                    checkpoint.write(problem.state(), errors, is_settled)
        except KeyboardInterrupt:
            problem.walker.is_interrupted = True
            warnings.warn(
                f"{name}: interrupted after {len(errors)} of {max_iter} iterations; the estimator holds what was "
                f"learned until then.",
                ConvergenceWarning,
                stacklevel=3,
            )
    return errors


def _has_settled(errors: list[float], tol: float) -> bool:
    """Whether two iterations together gained less than `tol`: one alone may be a greedy pursuit's whim."""
    return len(errors) > 2 and tol > 0.0 and min(errors[-2:]) >= (1.0 - tol) * min(errors[:-2])


@contextmanager
def progress(total: int, verbose: int, name: str) -> Iterator[Any]:
    """A progress bar of iterations, or None unless `verbose`."""
    if not verbose:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=name, unit="iteration") as bar:
        yield bar
