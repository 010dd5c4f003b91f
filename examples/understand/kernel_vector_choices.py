"""
Compare choices of kernel vectors
=================================

A reduced kernel dictionary builds its atoms from p kernel vectors. ``kernel_vectors`` determines how they are chosen:
``"kmeans"`` uses cluster centres, ``"random"`` a random sample of the signals, ``"rpcholesky"`` signals that the
previous ones represent badly, and ``"dictionary"`` the atoms of a linear dictionary, as in the paper.
:class:`~rkdl.RKDL` keeps these kernel vectors fixed, whereas :class:`~rkdl.ORKDL` continues to optimise them. This
example compares the four choices and the learned kernel vectors on handwritten digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rkdl import KDL, ORKDL, RKDL

plt.style.use("rkdl.figures")
X = load_digits().data[:1000] / 16.0
X_new = load_digits().data[1000:] / 16.0

settings = {"n_components": 20, "n_nonzero_coefs": 4, "random_state": 0}
models = {
    "random": lambda p: RKDL(n_kernel_vectors=p, kernel_vectors="random", **settings),
    "rpcholesky": lambda p: RKDL(n_kernel_vectors=p, kernel_vectors="rpcholesky", **settings),
    "dictionary": lambda p: RKDL(n_kernel_vectors=p, kernel_vectors="dictionary", **settings),
    "kmeans": lambda p: RKDL(n_kernel_vectors=p, kernel_vectors="kmeans", **settings),
    "learned (ORKDL)": lambda p: ORKDL(n_kernel_vectors=p, **settings),
}

# %%
# The figure shows the error on new signals for increasing numbers of kernel vectors. The dotted line is full kernel
# dictionary learning, which uses all thousand signals. The number of atoms is the same in all cases.


def error(model):
    """Root mean squared residual of the new signals in feature space."""
    return np.sqrt(np.mean(model.reconstruction_error(X_new) ** 2))


counts = [20, 30, 50, 100, 200]
markers = dict(zip(models, "osD^*", strict=True))
figure, panel = plt.subplots(figsize=(6.5, 3.8))
for name, make in models.items():
    panel.plot(counts, [error(make(p).fit(X)) for p in counts], marker=markers[name], label=name)
panel.axhline(error(KDL(**settings).fit(X)), color="0.3", linestyle=":", label="all 1,000 signals (KDL)")
panel.set(xlabel="kernel vectors", ylabel="error on new signals", xscale="log")
panel.set_xticks(counts, [str(count) for count in counts])
panel.minorticks_off()
panel.legend()
plt.show()

# %%
# The next figure shows ten kernel vectors of each kind. Cluster centres are smoother than signals. ORKDL starts from
# them and moves them along the gradient of the error; for these data it moves them only slightly, and improves most if
# there are few kernel vectors.
figure, panels = plt.subplots(len(models), 10, figsize=(8.0, 4.4))
for row, (name, make) in zip(panels, models.items(), strict=True):
    for panel, vector in zip(row, make(30).fit(X).kernel_vectors_, strict=False):
        panel.imshow(vector.reshape(8, 8), cmap="gray_r", vmin=-0.2, vmax=1.0)
        panel.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
plt.show()
