"""Which dictionary knows this digit?

Every class gets a dictionary of its own, and a new image belongs to the class whose atoms represent it best. The
residuals say more than the label: how sure the answer is, and which other class came close. This example learns
scikit-learn's digits, asks the classifier how sure it is, and then makes the images worse
and worse, for a kernel method and for a linear one.

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
    """A kernel classifier and a linear one.

    The kernel vectors are shared: the features of an image, its kernel values with 300 of the training images, are
    computed once, and all ten dictionaries of 40 atoms are combinations of the same vectors. `n_refinements` is left at
    its default: after every class has learned to represent its own images, two passes teach the dictionaries not to
    represent those of the others.
    """
    common = {"n_components": 40, "n_nonzero_coefs": 5, "max_iter": 10}
    kernel = KDLClassifier(RKDL(n_kernel_vectors=300, kernel_vectors="random", **common), random_state=0)
    linear = KDLClassifier(DL(**common), random_state=0)
    return kernel.fit(X, y), linear.fit(X, y)


def show_unsure(axes, model, images, X, y):
    """The images that the classifier is least sure of, with what it says and with how much confidence."""
    chances = model.predict_proba(X)
    for axis, t in zip(axes, np.argsort(chances.max(axis=1)), strict=False):
        best, next_best = np.argsort(-chances[t])[:2]
        said = f"{best}: {chances[t, best]:.0%}, {next_best}: {chances[t, next_best]:.0%}"
        axis.imshow(images[t].reshape(8, 8), cmap="gray_r")
        axis.set_title(said, fontsize=8, color="tab:blue" if best == y[t] else "tab:red")
        axis.axis("off")


def show_refusals(axis, model, X, y):
    """Accuracy if only the surest answers are given: nearly all mistakes are among the images it is least sure of."""
    chances = model.predict_proba(X)
    right = (chances.argmax(axis=1) == y)[np.argsort(-chances.max(axis=1), kind="stable")]
    answered = np.arange(1, len(y) + 1)
    axis.plot(answered / len(y), np.cumsum(right) / answered)
    axis.set(
        xlabel="share of images answered, surest first", ylabel="accuracy", title="Refusing to answer", xlim=(0.5, 1)
    )


def show_noise(axis, models, images, y):
    """Accuracy as Gaussian noise grows; pixels lie between 0 and 1."""
    deviations = np.linspace(0.0, 0.5, 6)
    rng = np.random.default_rng(0)
    spoiled = [normalize_signals(images + rng.normal(0.0, deviation, images.shape)) for deviation in deviations]
    for name, model in models.items():
        axis.plot(deviations, [model.score(X, y) for X in spoiled], marker="o", label=name)
    axis.set(xlabel="standard deviation of the noise", ylabel="accuracy", title="Noise")
    axis.legend()


def main(path=FIGURE):
    """Learn, print what came of it, and draw."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    images, test_images, y, y_new = train_test_split(images, labels, test_size=0.5, random_state=0, stratify=labels)
    X, X_new = normalize_signals(images), normalize_signals(test_images)
    kernel, linear = learn(X, y)
    for name, model in (("RKDL", kernel), ("DL", linear)):
        print(f"{name} underneath: {model.score(X_new, y_new):.1%} of {len(y_new)} test images are classified rightly")

    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.2, 1, 1))
    left.suptitle("Least sure of (red: wrong)", fontsize=12)
    show_unsure(left.subplots(3, 3).ravel(), kernel, test_images, X_new, y_new)
    show_refusals(middle.subplots(), kernel, X_new, y_new)
    show_noise(right.subplots(), {"RKDL underneath": kernel, "DL underneath": linear}, test_images, y_new)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
