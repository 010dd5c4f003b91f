"""How much two dictionaries agree: recovery of a known dictionary, stability over seeds, mutual coherence.

A dictionary is an array with one atom per row, as in `components_`, or a fitted estimator. `DL` and `SparseCoder` count
as their `components_`. The atoms of kernel methods are compared in feature space, through the kernel, which both models
must share: give both the same number as `gamma`. Neither the norms nor the signs of atoms matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array

from rkdl._utils.inputs import well_formed
from rkdl._utils.types import MatrixLike

__all__ = ["match_atoms", "mutual_coherence", "recovery_rate", "stability"]


def match_atoms(A: MatrixLike, B: MatrixLike) -> tuple[np.ndarray, np.ndarray]:
    """Match the atoms of two dictionaries one to one, such that the sum of their absolute cosines is largest.

    Parameters
    ----------
    A : array-like of shape (n_atoms, n_features) or fitted estimator
        Dictionary whose atoms are to be found.
    B : array-like of shape (n_others, n_features) or fitted estimator
        Dictionary to search for their matches.

    Returns
    -------
    indices : ndarray of shape (n_atoms,), dtype=int
        Atom of `B` for each atom of `A`; -1 for those without one, if `B` has fewer atoms.
    cosines : ndarray of shape (n_atoms,)
        Absolute cosine of the angle between the two; 0 for atoms without a match.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.metrics import match_atoms
    >>> indices, cosines = match_atoms(np.eye(3), [[0, 0, -2], [1, 0, 0], [0, 3, 4]])
    >>> indices, cosines
    (array([1, 2, 0]), array([1. , 0.6, 1. ]))
    """
    return _match(_absolute_cosines(A, B, "A", "B"))


def recovery_rate(true: MatrixLike, learned: MatrixLike, *, threshold: float = 0.99) -> float:
    """Share of the true atoms that were found: whose absolute cosine with their match is above the threshold.

    A learned atom is the match of one true atom at most, so a true atom that was learned twice counts once.

    Parameters
    ----------
    true : array-like of shape (n_atoms, n_features) or fitted estimator
        True dictionary.
    learned : array-like of shape (n_learned, n_features) or fitted estimator
        Learned dictionary; it may have more or fewer atoms.
    threshold : float, default=0.99
        At least 0 and below 1. The default is that of the experiment in the paper on K-SVD.

    Returns
    -------
    rate : float
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.metrics import recovery_rate
    >>> recovery_rate(np.eye(4), [[0, 0, 0, -1], [0, 1, 0.1, 0], [1, 1, 0, 0]])
    0.5
    """
    if not 0.0 <= threshold < 1.0:
        raise ValueError(f"threshold={threshold!r} must be at least 0 and below 1, for example 0.99.")
    return float(np.mean(_match(_absolute_cosines(true, learned, "true", "learned"))[1] > threshold))


def stability(dictionaries: Sequence[MatrixLike]) -> float:
    """Mean absolute cosine between matched atoms, over all pairs of dictionaries.

    Atoms on which fits with different seeds agree are in the data; the others depend on the start.

    Parameters
    ----------
    dictionaries : sequence of array-like of shape (n_atoms, n_features) or of fitted estimators
        At least two dictionaries of the same number of atoms, such as those of several seeds.

    Returns
    -------
    stability : float
        Between 0 and 1, where 1 means that all dictionaries have the same atoms.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.metrics import stability
    >>> stability([np.eye(3), -np.eye(3)[[2, 0, 1]]])
    1.0
    """
    dictionaries = list(dictionaries)
    if len(dictionaries) < 2:
        raise ValueError(f"The number of dictionaries is {len(dictionaries)}: give two or more, of different seeds.")
    means = []
    for (i, A), (j, B) in combinations(enumerate(dictionaries), 2):
        cosines = _absolute_cosines(A, B, f"dictionaries[{i}]", f"dictionaries[{j}]")
        if cosines.shape[0] != cosines.shape[1]:
            raise ValueError(
                f"dictionaries[{i}] has {cosines.shape[0]} atoms and dictionaries[{j}] {cosines.shape[1]}: give "
                f"dictionaries of the same number of atoms, or compare them with match_atoms."
            )
        means.append(_match(cosines)[1].mean())
    return float(np.mean(means))


def mutual_coherence(D: MatrixLike) -> float:
    """Largest absolute cosine between two different atoms of a dictionary.

    Parameters
    ----------
    D : array-like of shape (n_atoms, n_features) or fitted estimator
        Dictionary of at least two atoms.

    Returns
    -------
    coherence : float
        0 for orthogonal atoms, 1 if two atoms are equal up to their length and sign.

    Examples
    --------
    >>> from rkdl.metrics import mutual_coherence
    >>> mutual_coherence([[1, 0], [0, 2], [3, 4]])
    0.8
    """
    cosines = _absolute_cosines(D, D, "D", "D")
    if len(cosines) < 2:
        raise ValueError("D has one atom: coherence needs at least two.")
    return float(cosines[~np.eye(len(cosines), dtype=bool)].max())


def _match(cosines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the best matching of rows to columns, -1 for none, and the values there."""
    rows, columns = linear_sum_assignment(cosines, maximize=True)
    indices, matched = np.full(len(cosines), -1), np.zeros(len(cosines))
    indices[rows], matched[rows] = columns, cosines[rows, columns]
    return indices, matched


def _absolute_cosines(A: Any, B: Any, *names: str) -> np.ndarray:
    """Absolute cosines (n_atoms, n_others) between the atoms of two dictionaries; `names` are for errors."""
    has_kernel = hasattr(A, "dual_components_") or hasattr(B, "dual_components_")
    products = _kernel_products(A, B, names) if has_kernel else _linear_products(A, B, names)
    # Rounding may leave the cosine of equal atoms a little above 1.
    return np.minimum(np.abs(products), 1.0)


def _linear_products(A: Any, B: Any, names: Sequence[str]) -> np.ndarray:
    """Inner products of unit-norm atoms that are signals or Fourier features."""
    frequencies: list[Any] = [getattr(D, "frequencies_", None) for D in (A, B)]
    if not np.array_equal(*frequencies):
        raise ValueError(
            f"{names[0]} and {names[1]} have different Fourier features, so their atoms lie in different spaces: fit "
            f"FourierDL with the same random_state and gamma, and different init."
        )
    first, second = (_unit_atoms(D, name) for D, name in zip((A, B), names, strict=True))
    _check_widths(first, second, names)
    return first @ second.T


def _unit_atoms(D: Any, name: str) -> np.ndarray:
    """Atoms in float64, scaled to unit norm."""
    if hasattr(D, "fit") and not hasattr(D, "components_"):
        raise ValueError(f"{name} is a {type(D).__name__} without components_: give an array or fit it first.")
    atoms = check_array(well_formed(getattr(D, "components_", D), name), dtype=np.float64, input_name=name)
    zeros = np.flatnonzero(~atoms.any(axis=1))
    if zeros.size:
        raise ValueError(f"Atom {zeros[0]} of {name} is zero: leave it out, for instance np.delete(D, {zeros[0]}, 0).")
    # First divided by the largest value, whose square may overflow.
    atoms = atoms / np.abs(atoms).max(axis=1, keepdims=True)
    return atoms / np.linalg.norm(atoms, axis=1, keepdims=True)


def _kernel_products(A: Any, B: Any, names: Sequence[str]) -> np.ndarray:
    """Inner products in feature space between the atoms of two kernel methods, which have unit norm there."""
    for D, name in zip((A, B), names, strict=True):
        if not (hasattr(D, "dual_components_") and hasattr(D, "kernel_")):
            raise ValueError(
                f"{name} is a {type(D).__name__} without a kernel_: compare fitted KDL, RKDL, ORKDL or MORKDL of one "
                f"kernel, or signals such as atom_preimages()."
            )
    kernel, vectors, others = A.kernel_, A.kernel_vectors_.astype(np.float64), B.kernel_vectors_.astype(np.float64)
    _check_widths(vectors, others, names)
    # Kernels of users' own cannot be compared, but their values can.
    if not np.allclose(B.dual_components_ @ kernel(others, others) @ B.dual_components_.T, B.gram_, atol=1e-3):
        raise ValueError(
            f"{names[0]} and {names[1]} have different kernels, {kernel!r} and {B.kernel_!r}: fit both with the same "
            f"kernel and the same number as gamma, such as gamma={A.gamma_!r}."
        )
    return A.dual_components_ @ kernel(vectors, others) @ B.dual_components_.T


def _check_widths(first: np.ndarray, second: np.ndarray, names: Sequence[str]) -> None:
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"{names[0]} has {first.shape[1]} features and {names[1]} {second.shape[1]}: give dictionaries of the same "
            f"features; atoms are the rows, not the columns."
        )
