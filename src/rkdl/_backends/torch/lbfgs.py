"""The direction of L-BFGS from inner products alone, so that the device is asked once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


def find_direction(
    gradient: torch.Tensor, pairs: Sequence[tuple[torch.Tensor, torch.Tensor, float]]
) -> tuple[torch.Tensor, float]:
    """The two-loop recursion on the coefficients of a combination of shifts, changes and the gradient.

    Parameters
    ----------
    gradient : Tensor of shape (p, m)
        The gradient.
    pairs : sequence of (shift, change, curvature)
        Steps made, the gradient's change over each, and their inner product; oldest first.

    Returns
    -------
    direction : Tensor of shape (p, m)
        Where to go.
    slope : float
        Its inner product with the gradient.
    """
    count = len(pairs)
    vectors = torch.stack([shift for shift, _, _ in pairs] + [change for _, change, _ in pairs] + [gradient])
    flat = vectors.reshape(len(vectors), -1)
    products = (flat @ flat.T).cpu().numpy()
    curvatures = [curvature for _, _, curvature in pairs]
    combination = np.zeros(2 * count + 1)
    combination[-1] = -1.0
    weights = np.zeros(count)
    for i in reversed(range(count)):
        weights[i] = products[i] @ combination / curvatures[i]
        combination[count + i] -= weights[i]
    combination *= curvatures[-1] / products[2 * count - 1, 2 * count - 1]
    for i in range(count):
        combination[i] += weights[i] - products[count + i] @ combination / curvatures[i]
    direction = (torch.from_numpy(combination).to(flat.device) @ flat).reshape(gradient.shape)
    return direction, float(products[-1] @ combination)
