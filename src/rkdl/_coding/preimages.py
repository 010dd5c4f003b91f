"""Signals from codes: the fixed-point pre-image of the RBF kernel, and a decoder learned from sums.

A code z stands for the point ``Psi = sum_i c_i phi(d_i)`` of feature space, with ``c = z A``. A pre-image is a signal x
whose image is close to that point. For the RBF kernel ``|phi(x) - Psi|^2`` is smallest where
``g(x) = sum_i c_i k(x, d_i)`` is largest. For any kernel a linear map from feature space to signals, learned by ridge
regression, gives one at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from rkdl._backends.arrays import cast, largest, squared_norms, where
from rkdl._backends.base import backend_of, is_tensor
from rkdl._coding.encoder import Encoder
from rkdl._coding.passes import densify
from rkdl._features.kernels import RBF

# Kernel vectors whose mean the fixed-point iteration starts from.
NEAREST = 5
MAX_STEPS = 200
# Steps longer than the fixed point's own save iterations if the kernel is broad; a step that lowers g is undone.
LONGEST_STEP, SHORTEST_STEP = 8.0, 1e-3


def to_unit_length(codes: Any, gram: Any) -> Any:
    """Codes (c, n), dense, a tensor or CSR, that stand for points of unit norm in feature space; zeros stay.

    Under an RBF kernel every signal has an image of unit norm, and noise shortens its projection on the atoms.
    """
    if sparse.issparse(codes):
        lengths = abs(codes).max(axis=1).toarray().ravel().astype(codes.dtype)
        codes = _row_scaled(codes, 1.0 / np.where(lengths > 0.0, lengths, 1.0))
        return _row_scaled(codes, _inverse_roots(codes.multiply(codes @ gram).sum(axis=1).astype(codes.dtype)))
    lengths, _ = largest(abs(codes), 1)
    # Scaled to about one, so that squares stay in range.
    codes = codes / where(lengths > 0.0, lengths, 1.0)
    return codes * _inverse_roots((codes * (codes @ gram)).sum(axis=1))[:, None]


def _row_scaled(codes: Any, factors: np.ndarray) -> Any:
    """CSR codes with every row multiplied by its factor."""
    values = codes.data * np.repeat(factors, np.diff(codes.indptr)).astype(codes.dtype)
    return sparse.csr_array((values, codes.indices, codes.indptr), shape=codes.shape)


def _inverse_roots(squares: Any) -> Any:
    """``1 / sqrt(x)``, and 0 of what is not positive."""
    is_known = squares > 0.0
    return is_known / where(is_known, squares, 1.0) ** 0.5


class DecoderSums(NamedTuple):
    """Sums over codes Z (N, n) and signals Y (N, m) that a decoder is learned from."""

    code_gram: np.ndarray  # Z'Z (n, n)
    cross_products: np.ndarray  # Z'Y (n, m)
    codes: np.ndarray  # sum of the codes (n,)
    signals: np.ndarray  # sum of the signals (m,)
    n_signals: float


@dataclass(frozen=True)
class Decode(Encoder):
    """The `DecoderSums` of a chunk, of codes of unit length if `unit_length`."""

    makes_state: ClassVar[bool] = False

    unit_length: bool = False

    def __call__(self, signals: np.ndarray, state: Any) -> tuple[DecoderSums, None]:
        codes = self.codes(signals)
        if is_tensor(signals):
            return self._sum_dense(signals, densify(codes, self.n_atoms)), None
        if self.unit_length:
            assert self.gram is not None
            codes = codes._replace(values=to_unit_length(codes.to_csr(self.n_atoms), self.gram).data)
        total = np.bincount(codes.indices, weights=codes.values, minlength=self.n_atoms)
        # Relative to the chunk's mean, or an offset would cost digits.
        mean = signals.mean(axis=0, dtype=np.float64).astype(signals.dtype)
        whole = codes.cross_products(signals - mean, self.n_atoms).astype(np.float64) + np.outer(total, mean)
        code_gram = codes.gram(self.n_atoms)
        return DecoderSums(code_gram, whole, total, signals.sum(axis=0, dtype=np.float64), float(len(signals))), None

    def _sum_dense(self, signals: Any, codes: Any) -> DecoderSums:
        """The sums of codes (c, n) with their zeros."""
        backend = backend_of(signals)
        if self.unit_length:
            codes = to_unit_length(codes, self.gram)
        wide = cast(codes, np.float64)
        total, mean = wide.sum(0), signals.mean(0)
        cross_products = backend.weighted_sum(codes, signals - mean) + total[:, None] * cast(mean, np.float64)
        count = backend.full((), len(signals), total)
        return DecoderSums(wide.T @ wide, cross_products, total, cast(signals, np.float64).sum(0), count)


def learn_decoder(
    sums: DecoderSums, gram: np.ndarray, alpha: float, unit_length: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix (n, m) of a linear decoder and its intercept (m,), from ridge regression.

    The linear map B from feature space to signals that minimises ``sum_t |y_t - B Psi_t|^2 + lambda |B|^2`` needs of
    the signals ``S = Z'Z`` and ``Q = Z'Y`` alone: with ``G = L L'`` the atoms' inner products, it takes a code z to
    ``z L (L'S L + lambda)^-1 L'Q``. `alpha` is lambda as a share of the mean eigenvalue of ``L'S L``.

    With `unit_length`, a code of zeros carries no information and becomes the signals' mean; otherwise the
    intercept is that of the regression.
    """
    mean = sums.signals / sums.n_signals
    middle = np.zeros_like(sums.codes) if unit_length else sums.codes / sums.n_signals
    code_gram = sums.code_gram - np.outer(sums.codes, middle)
    cross_products = sums.cross_products - np.outer(sums.codes, mean)
    values, vectors = np.linalg.eigh(np.asarray(gram, dtype=np.float64))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    values, vectors = np.linalg.eigh(root.T @ code_gram @ root)
    values = np.maximum(values, 0.0)
    # Directions that no code has hold nothing but rounding.
    known = values > len(values) * np.finfo(np.float64).eps * values[-1]
    penalty = alpha * float(values.mean())
    weights = np.zeros_like(values)
    weights[known] = 1.0 / (values[known] + penalty)
    directions = root @ vectors
    matrix = (directions * weights) @ (directions.T @ cross_products)
    return matrix, mean - middle @ matrix


@dataclass(frozen=True)
class LinearDecoder:
    """Codes times a matrix: a learned decoder, or atoms that are signals; with `gram`, codes of unit length."""

    matrix: np.ndarray  # (n, m)
    intercept: np.ndarray | None = None  # (m,)
    gram: np.ndarray | None = None  # (n, n)

    def as_dtype(self, dtype: np.dtype, gram: np.ndarray | None = None) -> LinearDecoder:
        """The decoder of codes of `dtype`."""
        parts = (self.matrix, self.intercept, gram)
        return LinearDecoder(*(part if part is None else part.astype(dtype, copy=False) for part in parts))  # type: ignore[arg-type]

    @property
    def row_width(self) -> int:
        """Numbers that a code occupies while it is decoded."""
        return sum(self.matrix.shape) + len(self.matrix)

    def __call__(self, codes: Any) -> np.ndarray:
        """Signals (c, m) of codes (c, n), dense or CSR."""
        if self.gram is not None:
            codes = to_unit_length(codes, self.gram)
        signals = codes @ self.matrix
        if self.intercept is not None:
            signals += self.intercept
        return signals


@dataclass(frozen=True)
class FixedPoint:
    """Pre-images for the RBF kernel by the fixed-point iteration of Mika et al., made safe.

    ``x <- sum_i c_i k(x, d_i) d_i / g(x)`` is a step along the gradient of g, so g can be made to rise at every step: a
    step that lowers it is undone and shortened. The start has a positive g, so the denominator stays positive.
    Where no kernel vector has one, the nearest kernel vector is the answer, and the centre of all for a code of zeros.

    All arrays are NumPy's or all are tensors.
    """

    kernel: RBF
    atoms: Any  # (n, p), combinations of the kernel vectors
    vectors: Any  # (p, m), kernel vectors minus their centre
    centre: Any  # (m,)
    products: Any  # (n, p), of atoms and kernel vectors in feature space

    @classmethod
    def prepare(cls, kernel: RBF, atoms: np.ndarray, kernel_vectors: np.ndarray, dtype: np.dtype) -> FixedPoint:
        """The iteration for codes of `dtype`."""
        centre = kernel_vectors.mean(axis=0, dtype=np.float64)
        vectors = (kernel_vectors - centre).astype(dtype)
        atoms = atoms.astype(dtype)
        products = np.empty_like(atoms)
        # Block by block: the kernel vectors of KDL are all signals.
        for start in range(0, len(vectors), 1024):
            products[:, start : start + 1024] = atoms @ kernel(vectors, vectors[start : start + 1024])
        return cls(kernel, atoms, vectors, centre.astype(dtype), products)

    @property
    def row_width(self) -> int:
        """Numbers that a code occupies while it is decoded."""
        return len(self.atoms) + 3 * sum(self.vectors.shape)

    def __call__(self, codes: Any) -> Any:
        """Signals (c, m) of codes (c, n), dense, a tensor or CSR."""
        codes = codes.toarray() if sparse.issparse(codes) else codes
        lengths, _ = largest(abs(codes), 1)
        known = lengths[:, 0] > 0.0
        # The result does not depend on the length of a code, and squares stay in range.
        unit = codes[known] / lengths[known]
        signals = backend_of(codes).full((len(codes), self.vectors.shape[1]), 0.0, self.vectors)
        signals[known] = self._climb(unit @ self.atoms, unit @ self.products)
        return signals + self.centre

    def _climb(self, weights: Any, heights: Any) -> Any:
        """Maxima of g, given the weights c (c, p) and g at the kernel vectors (c, p)."""
        signals, reached = self._starts(weights, heights)
        backend = backend_of(weights)
        active = backend.xp.argwhere(reached > backend.xp.finfo(weights.dtype).tiny)[:, 0]
        points, weights = signals[active], weights[active]
        values, targets = self._evaluate(points, weights)
        steps = backend.full(values.shape, 1.0, values)
        # Squared length of a step that is not worth another: relative to the kernel vectors' spread.
        tolerance = float(squared_norms(self.vectors).mean()) * backend.xp.finfo(self.vectors.dtype).eps
        for _ in range(MAX_STEPS):
            moves = steps[:, None] * (targets - points)
            moving = (squared_norms(moves) > tolerance) & (steps > SHORTEST_STEP)
            if not moving.all():
                signals[active] = points
                active, points, weights, moves, values, targets, steps = (
                    part[moving] for part in (active, points, weights, moves, values, targets, steps)
                )
            if not len(active):
                break
            trials = points + moves
            new_values, new_targets = self._evaluate(trials, weights)
            risen = new_values > values
            points[risen], targets[risen], values[risen] = trials[risen], new_targets[risen], new_values[risen]
            steps = where(risen, (steps * 2.0).clip(max=LONGEST_STEP), steps * 0.25)
        signals[active] = points
        return signals

    def _starts(self, weights: Any, heights: Any) -> tuple[Any, Any]:
        """The mean of the nearest kernel vectors, or the nearest one where g is larger there, and g."""
        shares, nearest = largest(heights, min(NEAREST, heights.shape[1]))
        shares = shares.clip(min=0.0)
        total = shares.sum(axis=1)
        shares = shares / where(total > 0.0, total, 1.0)[:, None]
        means = (shares[:, None] @ self.vectors[nearest])[:, 0]
        at_means, _ = self._evaluate(means, weights)
        highest, best = largest(heights, 1)
        single = (highest[:, 0] >= at_means) | (total <= 0.0)
        means[single] = self.vectors[best[single, 0]]
        return means, where(single, highest[:, 0], at_means)

    def _evaluate(self, points: Any, weights: Any) -> tuple[Any, Any]:
        """g at the points, and where the fixed-point iteration would go from there."""
        terms = weights * self.kernel(points, self.vectors)
        values = terms.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            targets = terms @ self.vectors / values[:, None]
            # Too small a g to divide by: stay, which ends the iteration there.
            squares = squared_norms(targets)
            lost = ~(squares < backend_of(squares).xp.finfo(squares.dtype).max)
        targets[lost] = points[lost]
        return values, targets


Decoder = LinearDecoder | FixedPoint
