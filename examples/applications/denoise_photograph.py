"""
Denoise a photograph
====================

The photograph is cut into overlapping patches of 8 x 8 pixels. Patches of an image resemble one another, whereas noise
does not, so a dictionary learned from the noisy patches themselves represents the image and leaves the noise in the
residuals. This example needs Pillow, which scikit-learn uses to read its sample image.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

from rkdl import DL, ORKDL

plt.style.use("rkdl.figures")
NOISE = 0.1
SIDE = 8
photograph = load_sample_image("flower.jpg") @ np.array([0.299, 0.587, 0.114]) / 255.0
photograph = photograph[110:238, 210:338]
rng = np.random.RandomState(0)
noisy = photograph + rng.normal(scale=NOISE, size=photograph.shape)

# %%
# Each patch is a row. Noise hardly changes the mean of a patch, so means are subtracted and added back at the end.
patches = extract_patches_2d(noisy, (SIDE, SIDE)).reshape(-1, SIDE * SIDE).astype(np.float32)
means = patches.mean(axis=1, keepdims=True)
patches -= means
sample = patches[rng.choice(len(patches), 8000, replace=False)]

# %%
# The kernel must be wide compared with the noise: gamma times the squared norm of the noise in a patch (64 x 0.01) is
# 0.03 here. ``fit_inverse_transform`` also learns a decoder from codes to patches. Given the noise level, ``denoise``
# uses more atoms for patches with more detail, and keeps what of their residuals exceeds the noise.
kernel = ORKDL(
    n_components=128,
    n_kernel_vectors=128,
    n_nonzero_coefs=4,
    gamma=0.05,
    max_iter=5,
    fit_inverse_transform=True,
    random_state=0,
).fit(sample)
linear = DL(n_components=128, n_nonzero_coefs=4, random_state=0).fit(sample)
pca = {k: PCA(k).fit(sample) for k in range(4, 33, 2)}


def restore(cleaned):
    """Average the cleaned patches where they overlap."""
    cleaned = (cleaned + means).astype(np.float64).reshape(-1, SIDE, SIDE)
    return reconstruct_from_patches_2d(cleaned, photograph.shape)


def decibels(image):
    """Peak signal-to-noise ratio of an image with values from 0 to 1."""
    return -10.0 * np.log10(np.mean((image - photograph) ** 2))


# PCA gets the number of components that is best for this photograph, which is unknown in practice.
components = [restore(model.inverse_transform(model.transform(patches))) for model in pca.values()]
images = {
    "original": photograph,
    "noisy": noisy,
    "PCA, best of 15": max(components, key=decibels),
    "DL": restore(linear.denoise(patches, noise=NOISE)),
    "ORKDL": restore(kernel.denoise(patches, noise=NOISE)),
}
figure, panels = plt.subplots(1, 5, figsize=(11.5, 2.8))
for panel, (name, image) in zip(panels, images.items(), strict=True):
    panel.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    panel.set(xticks=[], yticks=[])
    title = name if name == "original" else f"{name}\n{decibels(image):.2f} dB"
    panel.set_title(title)
    print(title.replace("\n", ": "))
plt.show()

# %%
# After subtracting their means, patches of photographs are close to linear combinations of one another, so the linear
# dictionary does about as well as the kernel and is faster. Both adapt the number of atoms to each patch and the noise
# level, whereas PCA uses the same number of components for all patches.
