"""The paper's sweep, which refits the codes of all signals, on a device."""

from __future__ import annotations

from typing import Any

import torch

from rkdl._backends.torch.atoms import aksvd_sweep, read_codes
from rkdl._backends.torch.backend import TORCH
from rkdl._backends.torch.place import to_device
from rkdl._learning.chunk_tasks import Features


def refit(
    executor: Any, feature_map: Any, metric: Any, kept: list, targets: Any, white: Any, trace: float
) -> tuple[list, torch.Tensor, float]:
    """Codes of the chunks after the sweep, ``Z'Z``, and the objective; `white` changes in place."""
    metric, targets, rows = to_device((metric, targets, white), executor.device)
    refitted, products, objective = _refit(executor, feature_map, metric, kept, targets, rows, float(trace))
    if rows is not white:
        white[:] = rows.cpu().numpy()
    return refitted, executor.to_backend(products), objective


def _refit(
    executor: Any, feature_map: Any, metric: Any, kept: list, targets: Any, white: Any, trace: float
) -> tuple[list, torch.Tensor, float]:
    n_atoms = len(white)
    parts = executor.map_reduce(Features(feature_map), kept)[1]
    dense = torch.cat([item.codes.dense(n_atoms, torch.float64) for item in kept])

    def correlate(j: int, couplings: torch.Tensor, norm: float) -> torch.Tensor:
        atom = metric.unwhiten(white[j : j + 1])[0].to(parts[0].dtype)
        return torch.cat([part @ atom for part in parts]).double()

    aksvd_sweep(dense, targets, white, correlate)
    products = dense.T @ dense
    projections, start = torch.zeros((n_atoms, parts[0].shape[1]), dtype=torch.float64, device=white.device), 0
    refitted = []
    for item, part in zip(kept, parts, strict=True):
        own = dense[start : start + len(part)]
        projections += TORCH.weighted_sum(own.to(part.dtype), part)
        refitted.append(item._replace(codes=read_codes(own, item.codes)))
        start += len(part)
    fit = (metric.whiten(projections) * white).sum()
    objective = trace - 2.0 * fit + (products * (white @ white.T)).sum()
    return refitted, products, float(objective)
