"""Classify digits by class dictionaries.

Each class has its own dictionary, and a new image is assigned to the class whose atoms represent it best. The residuals
also tell how confident the answer is and which other class came close. This example classifies scikit-learn's digits,
shows how confident the classifier is, and then adds more and more noise, for a kernel method and a linear one.

Run with ``python examples/classify_digits.py [figure.png]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from rkdl import DL, RKDL, KDLClassifier
from rkdl.datasets import normalize_signals

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "classification.png"


def learn(X, y):
    """Fit a kernel classifier and a linear one.

    All classes share the kernel vectors: the features of an image, its kernel values with 300 training images, are
    computed once, and all ten dictionaries of 40 atoms are combinations of the same vectors. `n_refinements` has its
    default: after each class has learned to represent its own images, two passes over the data make the dictionaries
    worse at representing those of other classes.
    """
    common = {"n_components": 40, "n_nonzero_coefs": 5, "max_iter": 10}
    kernel = KDLClassifier(RKDL(n_kernel_vectors=300, kernel_vectors="random", **common), random_state=0)
    linear = KDLClassifier(DL(**common), random_state=0)
    return kernel.fit(X, y), linear.fit(X, y)


def show_unsure(axes, model, images, X, y):
    """Show the images with the least confident predictions, and the two most probable classes."""
    probabilities = model.predict_proba(X)
    for axis, t in zip(axes, np.argsort(probabilities.max(axis=1)), strict=False):
        best, next_best = np.argsort(-probabilities[t])[:2]
        answer = f"{best}: {probabilities[t, best]:.0%}, {next_best}: {probabilities[t, next_best]:.0%}"
        axis.imshow(images[t].reshape(8, 8), cmap="gray_r")
        axis.set_title(answer, fontsize=8, color="tab:blue" if best == y[t] else "tab:red")
        axis.axis("off")


def show_refusals(axis, model, X, y):
    """Plot the accuracy of the most confident answers: nearly all errors have low confidence."""
    probabilities = model.predict_proba(X)
    right = (probabilities.argmax(axis=1) == y)[np.argsort(-probabilities.max(axis=1), kind="stable")]
    answered = np.arange(1, len(y) + 1)
    axis.plot(answered / len(y), np.cumsum(right) / answered)
    axis.set(
        xlabel="share of images, most confident first",
        ylabel="accuracy",
        title="Rejecting uncertain answers",
        xlim=(0.5, 1),
    )


def show_noise(axis, models, images, y):
    """Plot the accuracy under Gaussian noise; pixels are in [0, 1]."""
    deviations = np.linspace(0.0, 0.5, 6)
    rng = np.random.default_rng(0)
    noisy = [normalize_signals(images + rng.normal(0.0, deviation, images.shape)) for deviation in deviations]
    for name, model in models.items():
        axis.plot(deviations, [model.score(X, y) for X in noisy], marker="o", label=name)
    axis.set(xlabel="standard deviation of the noise", ylabel="accuracy", title="Noise")
    axis.legend()


def main(path=FIGURE):
    """Fit, print the accuracies, and draw the figure."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    images, test_images, y, y_new = train_test_split(images, labels, test_size=0.5, random_state=0, stratify=labels)
    X, X_new = normalize_signals(images), normalize_signals(test_images)
    kernel, linear = learn(X, y)
    for name, model in (("RKDL", kernel), ("DL", linear)):
        print(f"{name}: {model.score(X_new, y_new):.1%} of {len(y_new)} test images are classified correctly")

    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.2, 1, 1))
    left.suptitle("Least confident (red: wrong)", fontsize=12)
    show_unsure(left.subplots(3, 3).ravel(), kernel, test_images, X_new, y_new)
    show_refusals(middle.subplots(), kernel, X_new, y_new)
    show_noise(right.subplots(), {"RKDL": kernel, "DL": linear}, test_images, y_new)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
