"""Draw the README's picture: residuals of PCA, a linear and a kernel dictionary in the plane around a spiral.

Run as ``python -m tools.readme_picture``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from rkdl import DL, ORKDL

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write docs/images/readme.png."""
    plt.style.use("rkdl.figures")
    rng = np.random.default_rng(0)
    angles = rng.uniform(0.5, 10.0, 600)
    signals = (0.25 + angles[:, None] / 8.0) * np.c_[np.cos(angles), np.sin(angles)]
    signals += 0.03 * rng.standard_normal(signals.shape)

    side = np.linspace(-1.8, 1.8, 200)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    norms = np.linalg.norm(grid, axis=1)
    pca = PCA(n_components=1).fit(signals)
    linear = DL(n_components=8, n_nonzero_coefs=1, random_state=0).fit(signals)
    kernel = ORKDL(n_components=24, n_kernel_vectors=40, n_nonzero_coefs=3, gamma=8.0, random_state=0).fit(signals)
    residuals = {
        "PCA, one component": np.linalg.norm(grid - pca.inverse_transform(pca.transform(grid)), axis=1) / norms,
        "linear dictionary (DL)": linear.reconstruction_error(grid) / norms,
        "kernel dictionary (ORKDL)": kernel.reconstruction_error(grid),
    }
    figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
    for panel, (name, values) in zip(panels, residuals.items(), strict=True):
        image = values.reshape(len(side), -1).clip(0.0, 1.0)
        drawn = panel.contourf(side, side, image, np.linspace(0.0, 1.0, 11), cmap="cividis")
        panel.scatter(*signals.T, s=7, color="white", edgecolor="0.2", linewidth=0.3)
        panel.set(title=name, aspect="equal", xticks=[], yticks=[])
    panels[2].scatter(*kernel.kernel_vectors_.T, s=16, marker="x", linewidth=1.0, color="C1", label="kernel vectors")
    panels[2].legend(loc="lower left")
    figure.colorbar(drawn, ax=panels, label="relative residual", shrink=0.9)
    figure.savefig(ROOT / "docs" / "images" / "readme.png", dpi=130)


if __name__ == "__main__":
    main()
