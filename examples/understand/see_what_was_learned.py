"""
Plot what was learned
=====================

This example shows the displays of ``rkdl.plotting`` for handwritten digits and for two half moons. Each display takes a
fitted estimator and plots it on the given axes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rkdl import DL, ORKDL, RKDL, KDLClassifier, KDLOutlierDetector
from rkdl.plotting import (
    AtomsDisplay,
    CodesDisplay,
    ErrorCurveDisplay,
    KernelVectorsDisplay,
    ReconstructionDisplay,
    ResidualsDisplay,
)

plt.style.use("rkdl.figures")
X, y = load_digits(return_X_y=True)
linear = DL(n_components=25, random_state=0).fit(X)
model = ORKDL(n_components=25, n_kernel_vectors=49, random_state=0).fit(X)

# %%
# The atoms of a linear dictionary are signals. Those of a kernel dictionary are points in feature space, shown by their
# pre-images. They are linear combinations of the images of the kernel vectors in the right panel.
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.8))
for name, estimator, ax in (("atoms of DL", linear, axes[0]), ("pre-images of ORKDL's atoms", model, axes[1])):
    AtomsDisplay.from_estimator(estimator, image_shape=(8, 8), ax=ax).ax_.set_title(name)
KernelVectorsDisplay.from_estimator(model, image_shape=(8, 8), ax=axes[2]).ax_.set_title("kernel vectors of ORKDL")
plt.show()

# %%
# The left panel shows the error of two methods, immediately after each update and after coding the signals again. The
# right panel shows the codes of 300 digits, grouped by label. Most atoms are used mainly by a few classes.
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2))
ErrorCurveDisplay.from_estimator(RKDL(n_components=25, n_kernel_vectors=49, random_state=0).fit(X), ax=axes[0])
ErrorCurveDisplay.from_estimator(model, ax=axes[0])
CodesDisplay.from_estimator(model, X[:300], y[:300], ax=axes[1])
plt.show()

# %%
# Ten digits are compared with their reconstructions from four atoms each.
figure, ax = plt.subplots(figsize=(9.0, 2.6))
ReconstructionDisplay.from_estimator(model, X[:10], image_shape=(8, 8), ax=ax)
plt.show()

# %%
# A dictionary learned from zeros represents zeros well and other digits badly, which is the idea behind outlier
# detection and classification. The right panel is scikit-learn's display of the predictions of a classifier.
zeros = RKDL(n_components=20, random_state=0).fit(X[y == 0])
classifier = KDLClassifier(random_state=0).fit(X[::2], y[::2])
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6))
ResidualsDisplay.from_estimator(zeros, X, ["zero" if digit == 0 else "another digit" for digit in y], ax=axes[0])
ConfusionMatrixDisplay.from_estimator(classifier, X[1::2], y[1::2], ax=axes[1], cmap="Blues", colorbar=False)
plt.show()

# %%
# ``AtomsDisplay`` numbers the atoms of a classifier class by class. Each row shows the pre-images of the atoms of a
# class.
figure, ax = plt.subplots(figsize=(9.0, 5.8))
AtomsDisplay.from_estimator(classifier, image_shape=(8, 8), n_columns=classifier.n_components, ax=ax)
plt.show()

# %%
# For data in the plane, contours show the residuals of a dictionary, with its kernel vectors. scikit-learn's display
# shows the scores of an outlier detector, yellow where they are low, and the regions of a classifier in a pipeline.
moons, side = make_moons(400, noise=0.12, random_state=0)
figure, axes = plt.subplots(1, 3, figsize=(13.0, 3.8))
dictionary = ORKDL(n_components=10, n_kernel_vectors=20, n_nonzero_coefs=2, random_state=0).fit(moons)
x, y = np.meshgrid(np.linspace(-1.8, 2.8, 150), np.linspace(-1.2, 1.7, 150))
residuals = dictionary.reconstruction_error(np.c_[x.ravel(), y.ravel()]).reshape(x.shape)
figure.colorbar(axes[0].contourf(x, y, residuals, 12, cmap="cividis"), ax=axes[0], label="residual")
KernelVectorsDisplay.from_estimator(dictionary, ax=axes[0], s=30)
detector = KDLOutlierDetector(random_state=0).fit(moons)
pipeline = make_pipeline(StandardScaler(), KDLClassifier(random_state=0)).fit(moons, side)
for estimator, response, ax, colors in (
    (detector, "decision_function", axes[1], "cividis_r"),
    (pipeline, "predict", axes[2], "coolwarm"),
):
    DecisionBoundaryDisplay.from_estimator(estimator, moons, response_method=response, ax=ax, alpha=0.6, cmap=colors)
    ax.scatter(*moons.T, c=side, cmap="coolwarm", s=12, edgecolors="black", linewidths=0.4)
plt.show()
