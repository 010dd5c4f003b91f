"""Which kernel vectors stay when signals are candidates for their places: backward elimination.

For codes Z of fixed signals, with ``S = Z'Z``, ``P = Z'K(Y, D)`` and ``M = K(D, D)``, the best atoms on the kernel
vectors D fit ``tr S^-1 P M^-1 P'`` of the signals' energy. Without kernel vector i they fit less by
``B_ii / (M^-1)_ii``, where ``B = M^-1 P'S^-1 P M^-1``; what is left of both matrices is a change of rank one away.
"""

from __future__ import annotations

import numpy as np

from rkdl._features.metric import make_metric


def keep_kernel_vectors(
    matrix: np.ndarray, cross_products: np.ndarray, code_gram: np.ndarray, count: int, dtype: np.dtype
) -> np.ndarray:
    """Indices, ascending, of the `count` kernel vectors without which the atoms would lose most.

    Of ``M`` (q, q), ``P`` (n, q) and ``S`` (n, n); the dtype of the signals decides what is rounding.
    """
    size = len(matrix)
    # Vectors that the others span weigh nothing, and rounding shall not say otherwise.
    ridge = size * max(float(np.finfo(dtype).eps), 1e-12) * float(matrix.diagonal().max())
    inverse = np.linalg.inv(matrix + ridge * np.eye(size))
    halves = inverse @ make_metric(code_gram, np.float64).whiten(cross_products.T)
    benefits = halves @ halves.T
    remaining = np.arange(size)
    while len(remaining) > count:
        i = int(np.argmin(benefits.diagonal() / inverse.diagonal()))
        column, row, scale = inverse[:, i] / inverse[i, i], benefits[i], benefits[i, i]
        benefits = benefits - np.outer(column, row) - np.outer(row, column) + scale * np.outer(column, column)
        inverse = inverse - np.outer(column, inverse[i])
        rest = np.arange(len(remaining)) != i
        remaining, inverse, benefits = remaining[rest], inverse[np.ix_(rest, rest)], benefits[np.ix_(rest, rest)]
    return remaining
