"""Greedy pursuit on a chunk: OMP and OLS, both from the Gram matrix and the correlations alone.

At step k, with b the chosen atom, a the correlations with the residual and u the squared norms that the chosen
atoms leave of the others, one new row of the factor does everything:

    w = (G_b - sum_{q<k} w_q[b] w_q) / sqrt(u_b),   y_k = a_b / sqrt(u_b),   a -= y_k w,   u -= w * w

OMP picks the largest a^2, OLS the largest a^2 / u. One back substitution at the end gives the coefficients, and
the residual's squared norm is that of the signal less the sum of y_k^2.

A signal is done when it has `n_nonzero` atoms, when its squared residual is at most `residual_tol`, when the best
correlation left is rounding, or when the best atom lies in the span of those chosen. The rule is in `pursue_rows` of
`rkdl._backends.cpu.pursuit`; tensors on a GPU follow it in `rkdl._backends.torch`.
"""

from __future__ import annotations

from typing import Any

from rkdl._backends.base import Codes, backend_of

__all__ = ["Codes", "pursue"]


def pursue(
    correlations: Any,
    gram: Any,
    squared_norms: Any,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: Any = None,
) -> tuple[Any, Any]:
    """Sparse codes of c signals against n atoms of unit norm, and squared norms (c,) of the residuals, never negative.

    `correlations` (c, n) and `gram` (n, n) have the same dtype; the diagonal of `gram` is one, or zero for an atom that
    must not be used. Without it, the rows that are needed are computed from the `dictionary` (n, m). A negative
    `residual_tol` is never reached.
    """
    backend = backend_of(correlations)
    return backend.pursue(correlations, gram, squared_norms, n_nonzero, residual_tol, ols, dictionary)
