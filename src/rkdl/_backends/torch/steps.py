"""The steps of `rkdl._backends.cpu.statistics` on a chunk that is a tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from types import FunctionType
from typing import Any

import torch

from rkdl._backends.torch.backend import TORCH, has_triton
from rkdl._backends.torch.pursuit import TensorCodes, pursue
from rkdl._coding.encoder import Encoder
from rkdl._coding.preimages import Decode, DecoderSums, to_unit_length
from rkdl._execution.executor import _squares
from rkdl._learning.chunk_tasks import ChunkState, EncodeTask, Features, GradientTask, ResidualTask
from rkdl._learning.kernel_vector_choice import _Assign, _moments

# Codes with their zeros are kept for the steps to come while they are no more numbers than this.
KNOWN_CODES = 1 << 20

squared_norms, summed_product = TORCH.squared_norms, TORCH.weighted_sum

ChunkTask = Callable[[torch.Tensor, Any], tuple[tuple, Any]]


def tensor_step(step: Any) -> ChunkTask:
    """The step for tensors that does what `step` does for arrays."""
    return _FUNCTIONS[step] if isinstance(step, FunctionType) else _twin(step)


@singledispatch
def _twin(step: Any) -> ChunkTask:
    raise NotImplementedError(f"{type(step).__name__} has no form for tensors.")


def encode(
    encoder: Encoder, signals: torch.Tensor, features: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, TensorCodes, torch.Tensor]:
    """Features, squared norms, codes and squared residuals of a chunk; `features` where they are known."""
    if features is None:
        features = encoder.feature_map.features(signals)
    assert features is not None
    norms: Any = encoder.feature_map.squared_norms(signals)
    correlations = features @ encoder.atoms.T
    codes, residuals = pursue(correlations, encoder.gram, norms, *encoder._limited())
    return features, norms, codes, residuals


@_twin.register
def _(step: EncodeTask) -> ChunkTask:
    return partial(_learn, step)


def _learn(step: EncodeTask, signals: torch.Tensor, kept: Any) -> tuple[tuple, ChunkState]:
    features, norms, codes, residuals = encode(step, signals, None if kept is None else kept.features)
    dense = codes.dense(len(step.atoms))
    wide = dense.double()
    sums = (
        wide.T @ wide,
        summed_product(dense, features),
        norms.sum(dtype=torch.float64),
        residuals.sum(dtype=torch.float64),
    )
    if dense.numel() <= KNOWN_CODES:
        codes = codes._replace(known=(codes.values, dense))
    kept = ChunkState(codes, residuals, features if step.keeps_features else None)
    return sums, kept


@_twin.register
def _(step: GradientTask) -> ChunkTask:
    return partial(_evaluate, step)


def _evaluate(step: GradientTask, signals: torch.Tensor, kept: Any) -> tuple[tuple, ChunkState]:
    known = kept.features if step.at_features else None
    features, gradient = step.kernel.value_and_gradient(signals, step.kernel_vectors, known)
    projections = summed_product(kept.codes.dense(step.n_atoms), features)
    if step.atoms is None:
        return (projections,), kept._replace(features=features) if step.keeps_features else kept
    return (projections, gradient(partial(weigh, kept.codes, step.atoms))), kept._replace(features=None)


def weigh(codes: TensorCodes, atoms: Any, slope: torch.Tensor) -> Any:
    """``(Z A) * slope``."""
    if slope.device.type == "cuda" and has_triton() and codes.known is None:
        from rkdl._backends.torch import triton_kernels

        return triton_kernels.weigh(codes.indices, codes.values, atoms, slope)
    return (codes.dense(len(atoms)) @ atoms).mul_(slope)


@_twin.register
def _(step: Decode) -> ChunkTask:
    return partial(_decode, step)


def _decode(step: Decode, signals: torch.Tensor, kept: Any) -> tuple[DecoderSums, None]:
    codes = encode(step, signals)[2].dense(len(step.atoms))
    if step.unit_length:
        codes = to_unit_length(codes, step.gram)
    wide = codes.double()
    total = wide.sum(0)
    # From the chunk's own mean, or an offset would take the digits.
    mean = signals.mean(0)
    projections: Any = summed_product(codes, signals - mean) + torch.outer(total, mean.double())
    sums: Any = wide.T @ wide, projections, total, signals.sum(0, dtype=torch.float64), total.new_tensor(len(signals))
    return DecoderSums(*sums), None


@_twin.register
def _(step: ResidualTask) -> ChunkTask:
    return partial(_residual, step)


def _residual(step: ResidualTask, signals: torch.Tensor, kept: Any) -> tuple[tuple, ChunkState]:
    residual = signals - kept.codes.dense(len(step.atoms)) @ step.atoms
    return (residual.square().sum(dtype=torch.float64),), kept


@_twin.register
def _(step: Features) -> ChunkTask:
    return partial(_features, step)


def _features(step: Features, signals: torch.Tensor, kept: Any) -> tuple[tuple, torch.Tensor]:
    return (), step.feature_map.features(signals)


@_twin.register
def _(step: _Assign) -> ChunkTask:
    return partial(_assign, step)


def _assign(step: _Assign, signals: torch.Tensor, kept: Any) -> tuple[tuple, torch.Tensor]:
    centres: Any = step.centres
    if step.shift is not None:
        signals = signals - step.shift
    scores = (signals @ centres.T).mul_(-2.0).add_(squared_norms(centres))
    lowest, nearest = scores.min(dim=1)
    distances = (lowest + squared_norms(signals)).clamp(min=0.0)
    weights = torch.ones_like(distances)
    if step.gamma is not None:
        weights = torch.exp(distances.double() * -step.gamma).to(distances.dtype)
        distances = 1.0 - weights
    members = torch.zeros((len(signals), len(centres)), dtype=signals.dtype, device=signals.device)
    members.scatter_(1, nearest[:, None], weights[:, None])
    counts = torch.bincount(nearest, minlength=len(centres))
    total = distances.sum(dtype=torch.float64)
    return (summed_product(members, signals), members.sum(0, dtype=torch.float64), counts, total), distances


def _sum_of_squares(signals: torch.Tensor, kept: Any) -> tuple[tuple, None]:
    flat = signals.reshape(-1)
    return (torch.dot(flat, flat).double(),), None


def _sums(signals: torch.Tensor, kept: Any) -> tuple[tuple, None]:
    squares = squared_norms(signals).double()
    return (signals.sum(0, dtype=torch.float64), squares.sum(), squares.sqrt().sum()), None


_FUNCTIONS: dict[Any, ChunkTask] = {_squares: _sum_of_squares, _moments: _sums}
