"""
Adapt to drift in a stream
==========================

``partial_fit`` learns from batches as they arrive. Without forgetting, all signals have the same weight, so after a
change the model adapts slowly. With a ``half_life``, the weight of a signal halves after that many further signals, and
atoms and kernel vectors adapt. The stream in this example contains the digits 0 to 4 first and 5 to 9 later.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rkdl import ORKDL

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
images /= 16.0
is_test = np.arange(len(labels)) % 4 == 0
BATCH, BATCHES, CHANGE, STARTED = 60, 60, 30, 2


def batch(number):
    """The signals of a batch, and test signals of the same classes."""
    late = (labels >= 5) == (number >= CHANGE)
    drawn = rng.choice(np.flatnonzero(late & ~is_test), BATCH)
    return images[drawn], images[late & is_test]


# %%
# Two models learn from the same batches. Errors are measured on test signals of the current classes before the model
# learns from the batch, once the models have started: the first batch has fewer distinct signals than kernel vectors.
# gamma is fixed, so that errors can be compared.
settings = {"n_components": 30, "n_kernel_vectors": 60, "n_nonzero_coefs": 4, "gamma": 0.15, "random_state": 0}
models = {"no forgetting": ORKDL(**settings), "half_life=400": ORKDL(half_life=400.0, **settings)}
errors = {name: [] for name in models}
for number in range(BATCHES):
    arrived, test = batch(number)
    for name, model in models.items():
        if number >= STARTED:
            errors[name].append(np.sqrt(np.mean(model.reconstruction_error(test) ** 2)))
        model.partial_fit(arrived)
late_images = images[(labels >= 5) & ~is_test]
reference = ORKDL(**settings).fit(late_images)
goal = np.sqrt(np.mean(reference.reconstruction_error(images[(labels >= 5) & is_test]) ** 2))

figure, panel = plt.subplots(figsize=(8.0, 3.8))
for (name, values), style in zip(errors.items(), ("-", "--"), strict=True):
    panel.plot(np.arange(STARTED, BATCHES), values, style, label=name)
panel.axhline(goal, color="0.3", linestyle=":", label="fit on all late signals")
panel.axvline(CHANGE, color="0.5", linewidth=1)
panel.text(0.25, 0.5, "digits 0 to 4", ha="center", transform=panel.transAxes)
panel.text(0.75, 0.13, "digits 5 to 9", ha="center", transform=panel.transAxes)
panel.set(xlabel="batches seen", ylabel="error on held-out signals")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# At the end, the kernel vectors of the model with forgetting have moved away from digits that no longer occur.
figure = plt.figure(figsize=(9.0, 2.6))
for part, (name, model) in zip(figure.subfigures(1, 2), models.items(), strict=True):
    part.suptitle(f"kernel vectors, {name}", fontsize=10)
    for panel, vector in zip(part.subplots(4, 12).ravel(), model.kernel_vectors_, strict=False):
        panel.imshow(vector.reshape(8, 8), cmap="gray_r")
        panel.axis("off")
plt.show()
