"""
Classify digits and reject uncertain predictions
================================================

:class:`~rkdl.KDLClassifier` learns kernel features and one dictionary per class for the labels. Its probabilities show
how close the other classes are. This example classifies scikit-learn's
digits, shows the least confident predictions, and measures the accuracy of a kernel method and a linear one under
increasing noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from rkdl import KDLClassifier

plt.style.use("rkdl.figures")
images, labels = load_digits(return_X_y=True)
images = images / 16.0
images, new_images, y, y_new = train_test_split(images, labels, test_size=0.5, random_state=0, stratify=labels)
X, X_new = normalize(images), normalize(new_images)

# %%
# Kernel vectors and dictionaries of all classes are learned together, for the labels. A linear model is the comparison.

models = {
    "KDLClassifier": KDLClassifier(n_components=16, random_state=0),
    "LogisticRegression": LogisticRegression(C=100.0, max_iter=1000),
}
for name, model in models.items():
    model.fit(X, y)
    print(f"{name}: {model.score(X_new, y_new):.1%} of {len(y_new)} test images are classified correctly")

# %%
# These are the twelve test images with the least confident predictions. The title of each shows its true class and the
# two most probable classes; wrong predictions are orange.
probabilities = models["KDLClassifier"].predict_proba(X_new)
confidence = probabilities.max(axis=1)
figure, panels = plt.subplots(2, 6, figsize=(9.5, 3.9))
for panel, t in zip(panels.ravel(), np.argsort(confidence), strict=False):
    best, second = np.argsort(-probabilities[t])[:2]
    panel.imshow(new_images[t].reshape(8, 8), cmap="gray_r")
    answers = f"{best}: {probabilities[t, best]:.0%}, {second}: {probabilities[t, second]:.0%}"
    panel.set_title(f"a {y_new[t]}\n{answers}", fontsize=9, color="#222222" if best == y_new[t] else "C1")
    panel.axis("off")
plt.show()

# %%
# If the least confident predictions are rejected, nearly all of the others are correct. With increasing noise (pixels
# are in [0, 1]), the accuracy of the kernel method decreases more slowly than that of the linear one.
right = (probabilities.argmax(axis=1) == y_new)[np.argsort(-confidence, kind="stable")]
answered = np.arange(1, len(y_new) + 1)
rng = np.random.default_rng(0)
deviations = np.linspace(0.0, 0.5, 6)
noisy = [normalize(new_images + rng.normal(0.0, deviation, new_images.shape)) for deviation in deviations]

figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.3))
panels[0].plot(answered / len(y_new), np.cumsum(right) / answered)
panels[0].set(xlabel="fraction of images classified, most confident first", ylabel="accuracy", xlim=(0.5, 1.0))
for (name, model), marker in zip(models.items(), "os", strict=True):
    panels[1].plot(deviations, [model.score(signals, y_new) for signals in noisy], marker=marker, label=name)
panels[1].set(xlabel="standard deviation of the noise", ylabel="accuracy")
panels[1].legend()
plt.show()
