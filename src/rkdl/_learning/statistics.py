"""Sufficient statistics of coded signals: all that learning needs of the data."""

from __future__ import annotations

from typing import NamedTuple

from rkdl._utils.types import Array


class SufficientStatistics(NamedTuple):
    """Sums over coded signals, with codes Z and features F; the objective is ``tr K - 2 <P, A> + <S, A M A'>``."""

    code_gram: Array  # S = Z'Z (n, n)
    cross_products: Array  # P = Z'F (n, p)
    energy: Array  # tr K(Y, Y)
    residual_energy: Array = 0.0  # sum of the squared residuals that the pursuit left

    def scaled_codes(self, scales: Array) -> SufficientStatistics:
        """The statistics of the same codes, those of atom j multiplied by ``scales[j]``."""
        code_gram = self.code_gram * (scales[:, None] * scales)
        return self._replace(code_gram=code_gram, cross_products=self.cross_products * scales[:, None])
