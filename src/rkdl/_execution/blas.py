"""One BLAS thread inside a chunk, however many threads work on chunks."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from numbers import Integral
from typing import Self

from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import LibController, ThreadpoolController

_lock = threading.Lock()
_users = 0
_saved: list[int | None] = []


# Names of OpenBLAS's functions in the builds of its distributors.
_OPENBLAS = [
    [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
    for prefix in ("", "scipy_")
    for suffix in ("", "64_", "_64")
]


@cache
def _controls() -> list[tuple[Callable[[], int | None], Callable[[int], object]]]:
    """Getter and setter of the number of threads of each library."""
    return [_control(library) for library in ThreadpoolController().select(user_api="blas").lib_controllers]


def _control(library: LibController) -> tuple[Callable[[], int | None], Callable[[int], object]]:
    if library.internal_api == "openblas" and getattr(library, "threading_layer", "") == "pthreads":
        # Not through threadpoolctl, whose calls release the GIL: an eighth of the time of coding one signal.
        functions = ctypes.PyDLL(library.filepath)
        for names in _OPENBLAS:
            if all(hasattr(functions, name) for name in names):
                return getattr(functions, names[0]), getattr(functions, names[1])
    # threadpoolctl's limit belongs to the thread that sets it, for life; `_users` serves fits in any thread.
    return library.get_num_threads, getattr(library, "_real_set_num_threads", library.set_num_threads)


def _allowed_threads() -> list[int | None]:
    """Threads that each library may use, None where it does not say."""
    return [get_threads() for get_threads, _ in _controls()]


def _restore_threads() -> None:
    for (_, set_threads), count in zip(_controls(), _saved, strict=True):
        if count and count != 1:
            set_threads(count)


def resolve_threads(n_jobs: int | None) -> int:
    """Turn scikit-learn's ``n_jobs`` into a number of threads.

    ``None`` follows an active joblib context, and without one takes as many threads as BLAS is allowed to,
    so that the library is neither idle on a free machine nor oversubscribes the workers of a grid search.
    """
    if n_jobs is None:
        context_jobs = get_active_backend()[1]
        if context_jobs in (None, 1):
            with _lock:
                # The threads that OMP_NUM_THREADS, loky or threadpoolctl allow this process.
                allowed = _saved if _users else _allowed_threads()
            return max([1, *filter(None, allowed)])
    check_n_jobs(n_jobs)
    return max(1, effective_n_jobs(n_jobs))


def check_n_jobs(n_jobs: int | None) -> None:
    """Refuse what is not a number of threads."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} must be a number of threads, -1 for all cores, or None.")


def _after_fork() -> None:
    """A child forked while another thread was fitting starts with BLAS restored and the lock free."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        _restore_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class one_blas_thread(ContextDecorator):  # noqa: N801
    """Hold BLAS to one thread, as a context manager or as the decorator of a public method that computes.

    The last of several concurrent users restores what was there. `fit` and `partial_fit` enter it inside
    `replaced_at_once`. Threads of BLAS would compete with those that run the chunk tasks, and a fork during a product
    of several threads leaves OpenBLAS locked in the child and in the parent.
    """

    # Whether this object counts among the users. If Ctrl-C comes before the block begins, it does until it is deleted.
    _counts = False

    def __enter__(self) -> None:
        global _users
        with _lock:
            if _users == 0:
                _saved[:] = _allowed_threads()
                for (_, set_threads), count in zip(_controls(), _saved, strict=True):
                    if count != 1:
                        set_threads(1)
            _users += 1
            self._counts = True

    def __exit__(self, *error: object) -> None:
        global _users
        with _lock:
            if self._counts:
                # A fork may have set it to zero.
                _users = max(0, _users - 1)
                self._counts = False
                if _users == 0:
                    _restore_threads()

    def __del__(self) -> None:
        if self._counts:
            self.__exit__()

    def _recreate_cm(self) -> Self:
        return type(self)()
