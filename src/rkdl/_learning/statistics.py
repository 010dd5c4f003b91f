"""Sufficient statistics of coded signals: all that learning needs of the data."""

from __future__ import annotations

from typing import Any, NamedTuple


class SufficientStatistics(NamedTuple):
    """Sums over coded signals, with codes Z and features F; the objective is ``tr K - 2 <P, A> + <S, A M A'>``.

    Attributes
    ----------
    code_gram : array of shape (n, n)
        ``S = Z'Z``.
    cross_products : array of shape (n, p)
        ``P = Z'F``.
    energy : float
        ``tr K(Y, Y)``.
    residual_energy : float
        Sum of the squared residuals that the pursuit left.
    """

    code_gram: Any
    cross_products: Any
    energy: Any
    residual_energy: Any = 0.0

    def scaled_codes(self, scales: Any) -> SufficientStatistics:
        """The statistics of the same codes, those of atom j multiplied by ``scales[j]``."""
        code_gram = self.code_gram * (scales[:, None] * scales)
        return self._replace(code_gram=code_gram, cross_products=self.cross_products * scales[:, None])
