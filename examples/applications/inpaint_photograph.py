"""
Fill in a photograph
====================

Most pixels of a photograph are missing. The dictionary is learned from what is left: with ``missing="ignore"``, NaN
stands for a number that is not known, codes and atoms fit the others, and the codes predict what is missing. This
example needs Pillow, which scikit-learn uses to read its sample image.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import reconstruct_from_patches_2d

from rkdl import DL

plt.style.use("rkdl.figures")
SIDE = 8
photograph = load_sample_image("flower.jpg") @ np.array([0.299, 0.587, 0.114]) / 255.0
photograph = photograph[110:238, 210:338]
rng = np.random.RandomState(0)


def decibels(image):
    """Peak signal-to-noise ratio of an image with values from 0 to 1."""
    return -10.0 * np.log10(np.mean((image - photograph) ** 2))


# %%
# Each patch of 8 x 8 pixels is a row, less the mean of its known pixels. A patch is represented down to a tenth of its
# energy, by few atoms: its few numbers could be fitted exactly, but that would not predict the others.
def fill_in(image):
    """The image with its missing pixels predicted: the mean of what all patches say."""
    patches = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE)).reshape(-1, SIDE * SIDE).astype(np.float32)
    means = np.nanmean(patches, axis=1, keepdims=True)
    patches -= means
    model = DL(n_components=64, n_nonzero_coefs=3, rtol=0.3, missing="ignore", max_iter=15, random_state=0)
    model.fit(patches[rng.choice(len(patches), 8000, replace=False)])
    filled = (model.denoise(patches) + means).astype(np.float64).reshape(-1, SIDE, SIDE)
    predicted = reconstruct_from_patches_2d(filled, image.shape)
    return np.where(np.isnan(image), predicted, image)


figure, panels = plt.subplots(2, 3, figsize=(7.5, 5.2))
for row, share in zip(panels, (0.5, 0.8), strict=True):
    known = np.where(rng.random_sample(photograph.shape) < share, np.nan, photograph)
    images = {"original": photograph, f"{share:.0%} missing": known, "filled in": fill_in(known)}
    for panel, (name, image) in zip(row, images.items(), strict=True):
        panel.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
        title = f"{name}, {decibels(image):.2f} dB" if name == "filled in" else name
        panel.set(xticks=[], yticks=[], title=title)
    print(f"{share:.0%} missing: {decibels(images['filled in']):.2f} dB")
plt.show()

# %%
# Where many patches miss the same pixels, as with sensors that fail, their codes share work and take less time.
