"""
What is kernel dictionary learning?
===================================

This tutorial assumes that you know principal component analysis (PCA), but nothing about dictionaries or kernels. All
data are points in the plane, so that everything can be plotted.
"""

# %%
# From components to atoms
# ------------------------
#
# PCA represents every signal :math:`y` as a linear combination of the same few directions. A *dictionary* has more
# directions, called **atoms**, and each signal uses only a few of them: its **code** :math:`z` is sparse, with at most
# :math:`s` non-zero coefficients,
#
# .. math:: y \approx \sum_j z_j a_j, \qquad \|z\|_0 \le s .
#
# Dictionary learning finds atoms for which such codes have a small error. The figure below shows 600 points on a
# spiral, and how they are represented by PCA with one component and by a dictionary of eight atoms with one non-zero
# per code.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from rkdl import DL, KDL, ORKDL, RKDL

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)


def spiral(angles, noise):
    """Points on a spiral, one per row."""
    radii = 0.25 + angles / 8.0
    points = np.c_[radii * np.cos(angles), radii * np.sin(angles)]
    return points + noise * rng.standard_normal(points.shape)


angles = np.sort(rng.uniform(0.5, 10.0, 600))
X = spiral(angles, noise=0.03)

pca = PCA(n_components=1).fit(X)
linear = DL(n_components=8, n_nonzero_coefs=1, random_state=0).fit(X)

figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.4), sharex=True, sharey=True)
shown = {
    "signals": None,
    "PCA, one component": pca.inverse_transform(pca.transform(X)),
    "eight atoms, one non-zero": linear.inverse_transform(linear.transform(X)),
}
for panel, (name, points) in zip(panels, shown.items(), strict=True):
    panel.scatter(*X.T, s=4, color="0.75")
    if points is not None:
        panel.scatter(*points.T, s=4, color="C1")
        error = np.sqrt(np.mean(np.sum((X - points) ** 2, axis=1)))
        name = f"{name}\nroot mean squared error {error:.2f}"
    panel.set(title=name, aspect="equal", xticks=[], yticks=[])
plt.show()

# %%
# The dictionary has a smaller error than PCA, because it has eight lines to project onto instead of one. But these are
# still straight lines through the origin, and the data lie on a curve. Two atoms per signal do not help: in the plane,
# two atoms represent *every* point without error, on the spiral or not, and a representation that fits everything
# contains no information about the data.
#
# Atoms in a feature space
# ------------------------
#
# A kernel :math:`k(x, y)` is the inner product :math:`\langle \varphi(x), \varphi(y) \rangle` of the images of two
# signals in the *feature space*, a space with many more dimensions, in which pieces of a curve can be nearly flat. The
# most common kernel is the Gaussian or RBF kernel, :math:`k(x, y) = \exp(-\gamma \|x - y\|^2)`. *Kernel dictionary
# learning* is dictionary learning in feature space:
#
# .. math:: \varphi(y) \approx \sum_j z_j a_j, \qquad a_j = \sum_i c_{ji}\, \varphi(d_i) .
#
# There is no need to compute :math:`\varphi` itself. Atoms are linear combinations of the images of a few points
# :math:`d_i`, the **kernel vectors**, so kernel values are sufficient.
#
# To compare the two kinds of dictionaries, we compute the residual at every point of the plane, that is, how badly a
# signal at this point would be represented.

kernel = ORKDL(n_components=24, n_kernel_vectors=40, n_nonzero_coefs=3, gamma=8.0, random_state=0).fit(X)

side = np.linspace(-1.8, 1.8, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def show_residuals(panel, model, title):
    """Plot the norm of the residual at every point of the plane, relative to the norm of the signal."""
    norms = np.linalg.norm(grid, axis=1) if isinstance(model, DL) else 1.0
    residuals = (model.reconstruction_error(grid) / norms).reshape(len(side), -1)
    drawn = panel.contourf(side, side, residuals, np.linspace(0.0, 1.0, 11), cmap="cividis")
    panel.scatter(*X.T, s=1.5, color="white")
    panel.set(title=title, aspect="equal", xticks=[], yticks=[])
    return drawn


figure, panels = plt.subplots(1, 2, figsize=(8.2, 3.7))
show_residuals(panels[0], linear, "linear atoms")
drawn = show_residuals(panels[1], kernel, "kernel atoms")
figure.colorbar(drawn, ax=panels, label="relative residual", shrink=0.85)
plt.show()

# %%
# Linear atoms represent all points on their lines, no matter how far away. Kernel atoms represent only the spiral and
# its neighbourhood. This is why residuals in feature space can be used to classify signals and to detect outliers.
#
# What an atom looks like
# -----------------------
#
# An atom of a kernel dictionary defines a function of the signal, :math:`\langle a_j, \varphi(x) \rangle = \sum_i
# c_{ji}\, k(d_i, x)`, which is large for signals that resemble the atom. With an RBF kernel, these functions are smooth
# bumps along pieces of the curve.

values = kernel.kernel_(grid, kernel.kernel_vectors_) @ kernel.dual_components_.T
codes = kernel.transform(X)
most_used = np.argsort(-(codes != 0).sum(axis=0))[:4]
figure, panels = plt.subplots(1, 4, figsize=(10.5, 2.9))
for panel, atom in zip(panels, most_used, strict=True):
    drawn = panel.contourf(side, side, values[:, atom].reshape(len(side), -1), np.linspace(-1, 1, 11), cmap="RdBu_r")
    panel.scatter(*X.T, s=1, color="0.3")
    panel.set(title=f"atom {atom}", aspect="equal", xticks=[], yticks=[])
figure.colorbar(drawn, ax=panels, label="inner product with the atom", shrink=0.85)
plt.show()

# %%
# Codes and sparsity
# ------------------
#
# In the left panel below, each column is the code of one signal, in the order of the signals along the spiral.
# Neighbouring signals share atoms, and no signal uses more than three. The right panel shows the fraction of the
# signals' energy that is kept when codes with other numbers of non-zeros are turned back into signals. Beyond three
# non-zeros there is little to gain.

order = np.argsort([np.average(angles, weights=np.abs(codes[:, j]) + 1e-9) for j in range(codes.shape[1])])
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.2), width_ratios=(1.7, 1.0))
limit = np.abs(codes).max()
image = panels[0].imshow(codes.T[order], aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
panels[0].set(xlabel="signal, along the spiral", ylabel="atom", title="codes")
figure.colorbar(image, ax=panels[0])
sparsities = [1, 2, 3, 4, 6, 8]
scores = [kernel.set_params(n_nonzero_coefs=s).score(X) for s in sparsities]
kernel.set_params(n_nonzero_coefs=3)
panels[1].plot(sparsities, scores, marker="o")
panels[1].set(xlabel="non-zeros per code", ylabel="score", ylim=(None, 1.005))
plt.show()

# %%
# The width of the kernel
# -----------------------
#
# ``gamma`` determines the width of the kernel. If it is too small, all signals look alike and the atoms are too coarse
# to follow the curve. If it is too large, each kernel vector covers only its own neighbourhood, and the gaps between
# kernel vectors are not represented.

figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.5))
for panel, gamma in zip(panels, (0.3, 8.0, 200.0), strict=True):
    model = ORKDL(n_components=24, n_kernel_vectors=40, n_nonzero_coefs=3, gamma=gamma, random_state=0).fit(X)
    drawn = show_residuals(panel, model, f"gamma = {gamma:g}\nerror {model.errors_[-1]:.4f}")
figure.colorbar(drawn, ax=panels, label="relative residual", shrink=0.85)
plt.show()

# %%
# Note that the smallest gamma has the lowest error, although its dictionary represents the shape of the spiral worst.
# As gamma tends to zero, all signals are mapped to the same point in feature space, and any atom represents them.
# **Errors with different gammas cannot be compared.** Choose gamma by the performance on your task (classification,
# detection, denoising), by ``score``, which turns codes back into signals, or keep the default ``"median"``, the
# inverse of the median squared distance between signals.
# The default is suitable if the structure of interest is about as large as the data. The spiral is finer than that, so
# this tutorial sets gamma explicitly.
#
# Why learn the kernel vectors?
# -----------------------------
#
# Full kernel dictionary learning (:class:`~rkdl.KDL`) builds its atoms from all N signals. It needs an N x N kernel
# matrix, and coding a new signal takes N kernel evaluations. *Reduced* methods use p kernel vectors instead.
# :class:`~rkdl.RKDL` chooses them in advance, for example as a subset of the signals. :class:`~rkdl.ORKDL` then moves
# them along the gradient of the same error.

sizes = {"n_components": 20, "n_nonzero_coefs": 3, "gamma": 8.0}
fixed = RKDL(n_kernel_vectors=20, kernel_vectors="random", random_state=0, **sizes).fit(X)
learned = ORKDL(n_kernel_vectors=20, kernel_vectors="random", random_state=0, **sizes).fit(X)


def error(model):
    """Mean error of three fits with different seeds."""
    return np.mean([model.set_params(random_state=seed).fit(X).errors_[-1] for seed in range(3)])


counts = [20, 25, 30, 40, 60]
full = error(KDL(**sizes))
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.7))
panels[0].scatter(*X.T, s=4, color="0.8")
starts, ends = fixed.kernel_vectors_, learned.kernel_vectors_
for start, end in zip(starts, ends, strict=True):
    panels[0].annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.4", "lw": 0.8})
panels[0].scatter(*starts.T, s=28, color="C0", label="random signals")
panels[0].scatter(*ends.T, s=40, marker="*", color="C1", label="learned")
panels[0].set(title="20 kernel vectors", aspect="equal", xticks=[], yticks=[])
panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=2)
for label, model in {
    "RKDL, random signals": RKDL(kernel_vectors="random", **sizes),
    "RKDL, k-means": RKDL(kernel_vectors="kmeans", **sizes),
    "ORKDL, learned from k-means": ORKDL(kernel_vectors="kmeans", **sizes),
}.items():
    panels[1].plot(counts, [error(model.set_params(n_kernel_vectors=p)) for p in counts], marker="o", label=label)
panels[1].axhline(full, color="0.3", linestyle=":", label="KDL, all 600 signals")
panels[1].set(xlabel="kernel vectors", ylabel="error in feature space", xscale="log")
panels[1].set_xticks(counts, [str(count) for count in counts])
panels[1].minorticks_off()
panels[1].legend()
plt.show()

# %%
# Thirty learned kernel vectors do as well as all 600 signals; sixty random ones do not. The model stays small: coding a
# new signal takes p kernel evaluations, no matter how many signals the model was trained on.
#
# Back to signals
# ---------------
#
# A code represents a point in feature space, and in general no signal has exactly that image. The **pre-image** is the
# signal whose image is nearest. ``inverse_transform`` computes pre-images from codes, and ``denoise`` computes codes
# and their pre-images in one call. What the atoms cannot represent, such as noise, is removed.

noisy = spiral(np.sort(rng.uniform(0.5, 10.0, 250)), noise=0.09)
cleaned = kernel.denoise(noisy)
figure, panel = plt.subplots(figsize=(4.8, 4.8))
for start, end in zip(noisy, cleaned, strict=True):
    panel.plot(*np.c_[start, end], color="0.75", linewidth=0.8)
panel.scatter(*noisy.T, s=12, color="C0", label="noisy")
panel.scatter(*cleaned.T, s=12, color="C1", label="denoised")
panel.set(aspect="equal", xticks=[], yticks=[], title="pre-images of noisy signals")
panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2)
plt.show()

# %%
# Where to go next
# ----------------
#
# - Use it on your own data: :doc:`/start` and :doc:`/represent`.
# - Choose an estimator and its parameters: :doc:`/estimators` and :doc:`/choosing`.
# - Applications: :doc:`/classification`, :doc:`/outliers` and :doc:`/denoising`.
