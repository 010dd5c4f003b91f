"""
Other kernels, sums of kernels and custom kernels
=================================================

``kernel`` can be a name, a kernel from :mod:`rkdl.kernels <rkdl.kernels.Kernel>`, a sum or product of kernels, or a
class of your own. The figure shows the residuals of dictionaries learned from points on two arcs with different
kernels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from rkdl import ORKDL
from rkdl.kernels import RBF, Kernel, Linear, Matern, RationalQuadratic

plt.style.use("rkdl.figures")
X, _ = make_moons(400, noise=0.06, random_state=0)

# %%
# A custom kernel must compute its values in ``__call__``. If it also has a ``gradient``, ORKDL and MORKDL can learn
# kernel vectors for it. This one is a Gaussian whose width differs between the two features.


class Stretched(Kernel):
    """``exp(-sum_i gammas_i (x_i - y_i)^2)``."""

    def __init__(self, gammas):
        self.gammas = np.asarray(gammas)

    def __call__(self, X, Y):
        differences = X[:, None, :] - Y[None, :, :]
        return np.exp(-(differences**2) @ self.gammas)

    def gradient(self, X, Y, weights):
        """Row i is the sum over t of ``weights[t, i]`` times the derivative of ``k(x_t, y_i)`` by ``y_i``."""
        differences = X[:, None, :] - Y[None, :, :]
        values = weights * np.exp(-(differences**2) @ self.gammas)
        return 2.0 * self.gammas * np.einsum("ti,tif->if", values, differences)


kernels = {
    "RBF(gamma=6)": RBF(6.0),
    "Matern(0.4, nu=1.5)": Matern(length_scale=0.4, nu=1.5),
    "RationalQuadratic(0.3)": RationalQuadratic(length_scale=0.3),
    "RBF(6) + 0.1 * Linear()": RBF(6.0) + 0.1 * Linear(),
    "RBF(20) * RBF(0.5)": RBF(20.0) * RBF(0.5),
    "Stretched((2, 20))": Stretched((2.0, 20.0)),
}
columns, rows = np.meshgrid(np.linspace(-1.6, 2.6, 110), np.linspace(-1.1, 1.6, 80))
grid = np.c_[columns.ravel(), rows.ravel()]
figure, panels = plt.subplots(2, 3, figsize=(10.0, 5.0), sharex=True, sharey=True)
for panel, (name, kernel) in zip(panels.ravel(), kernels.items(), strict=True):
    model = ORKDL(kernel=kernel, n_components=12, n_kernel_vectors=24, n_nonzero_coefs=3, max_iter=10, random_state=0)
    model.fit(X)
    # Residuals relative to the norm sqrt(k(x, x)), so that kernels can be compared.
    norms = np.sqrt([model.kernel_(x[None], x[None])[0, 0] for x in grid])
    residuals = model.reconstruction_error(grid) / norms
    drawn = panel.contourf(columns, rows, residuals.reshape(columns.shape), np.linspace(0, 1, 11), cmap="cividis")
    panel.scatter(*X.T, s=2, color="white")
    panel.set(title=name, xticks=[], yticks=[])
figure.colorbar(drawn, ax=panels, label="relative residual")
plt.show()
