"""A small sparse autoencoder as the field trains them, to compare dictionary learning with (`benchmarks.recovery`)."""

from __future__ import annotations

import torch
from torch import Tensor

RATE = 3e-3
# A dead atom was in no code of the last batches; dead atoms learn from a share of what the others leave.
PATIENCE, DEAD_SHARE = 50, 1 / 32


def learn_with_autoencoder(X: Tensor, n_atoms: int, n_nonzero: int, n_steps: int | None = None) -> Tensor:
    """Learn unit-norm atoms (n_atoms, n_features) in 5,000 steps of 2,048 signals on a GPU, 2,000 of 512 on a CPU.

    BatchTopK: of all codes of a batch, the largest `n_nonzero` per signal on average stay. They are those of largest
    absolute value, because planted coefficients have both signs. Adam with a warm-up and a linear decay.
    """
    batch, default = (2_048, 5_000) if X.is_cuda else (512, 2_000)
    n_steps = default if n_steps is None else n_steps
    generator = torch.Generator(X.device).manual_seed(0)
    atoms = torch.randn(n_atoms, X.shape[1], generator=generator, device=X.device)
    atoms = torch.nn.functional.normalize(atoms).requires_grad_()
    encoder = atoms.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([encoder, atoms], lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.05 * n_steps), (n_steps - step) / (0.8 * n_steps), 1.0)
    )
    scale = X.square().mean().sqrt() * X.shape[1] ** 0.5 / n_nonzero**0.5
    last_use = torch.zeros(n_atoms, dtype=torch.long, device=X.device)
    for step in range(1, n_steps + 1):
        rows = X[torch.randint(len(X), (batch,), generator=generator, device=X.device)] / scale
        unit_atoms = torch.nn.functional.normalize(atoms)
        codes = rows @ encoder.T
        kept = _largest(codes, batch * n_nonzero)
        residual = rows - kept @ unit_atoms
        loss = residual.square().sum() / batch
        last_use[kept.detach().any(dim=0)] = step
        is_dead = step - last_use > PATIENCE
        if is_dead.any():
            tries = _largest(codes * is_dead, batch * n_nonzero)
            loss = loss + DEAD_SHARE * (residual.detach() - tries @ unit_atoms).square().sum() / batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return torch.nn.functional.normalize(atoms.detach()).cpu()


def _largest(codes: Tensor, count: int) -> Tensor:
    """The `count` entries of largest absolute value; the others are zero."""
    sizes = codes.detach().abs()
    least = sizes.flatten().topk(min(count, sizes.numel())).values[-1]
    return codes * (sizes >= least)
