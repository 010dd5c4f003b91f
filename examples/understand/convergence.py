"""
Convergence and error curves
============================

``errors_`` contains the error after each iteration. It may increase occasionally, because greedy pursuit does not find
optimal codes; the fit continues and returns the best model. ``update_errors_`` contains the error immediately after
each update, with the codes that the update was computed from, which is what papers usually plot.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rkdl import KDL, MORKDL, ORKDL, RKDL

plt.style.use("rkdl.figures")
X = load_digits().data / 16.0
settings = {"n_components": 20, "n_nonzero_coefs": 4, "tol": 0, "random_state": 0}
models = {
    "KDL": KDL(max_iter=30, **settings),
    "RKDL": RKDL(max_iter=30, **settings),
    "ORKDL": ORKDL(max_iter=20, **settings),
    "MORKDL": MORKDL(max_iter=20, **settings),
}
figure, panel = plt.subplots(figsize=(6.0, 3.6))
for (name, model), style in zip(models.items(), ("-", "--", "-", "-."), strict=True):
    model.fit(X)
    panel.plot(np.arange(1, len(model.errors_) + 1), model.errors_, linestyle=style, label=name)
    print(f"{name}: {model.n_iter_} iterations, error {model.errors_[-1]:.5f}, {model.n_revived_} atoms replaced")
panel.set(xlabel="iteration", ylabel="errors_")
panel.legend()
plt.show()

# %%
# ORKDL and MORKDL begin with up to ten iterations on fixed kernel vectors, which are not shown. The next figure
# compares the two kinds of errors of ORKDL.
model = models["ORKDL"]
figure, panel = plt.subplots(figsize=(6.0, 3.6))
panel.plot(np.arange(1, len(model.errors_) + 1), model.errors_, label="errors_ (after coding again)", color="C2")
panel.plot(
    np.arange(1, len(model.update_errors_) + 1),
    model.update_errors_,
    label="update_errors_ (before coding again)",
    color="C2",
    linestyle=":",
)
panel.set(xlabel="iteration", ylabel="error of ORKDL", ylim=(None, model.errors_[1]))
panel.legend()
plt.show()

# %%
# The residuals show which signals are represented badly, and the number of signals that use each atom shows whether any
# atoms are unused.
residuals = model.reconstruction_error(X)
uses = (model.transform(X) != 0).sum(axis=0)
worst = np.argsort(-residuals)[:10]
figure, axes = plt.subplot_mosaic([["hist", "uses"]], figsize=(9.5, 2.8))
axes["hist"].hist(residuals, bins=40)
axes["hist"].set(xlabel="norm of the residual (the signal has norm 1)", ylabel="signals")
axes["uses"].bar(np.arange(len(uses)), np.sort(uses)[::-1])
axes["uses"].set(xlabel="atom, most used first", ylabel="signals that use it")

figure, panels = plt.subplots(1, 10, figsize=(9.5, 1.4))
figure.suptitle("signals with the largest residuals", fontsize=10)
for panel, number in zip(panels, worst, strict=True):
    panel.imshow(X[number].reshape(8, 8), cmap="gray_r")
    panel.axis("off")
plt.show()
