"""Denoise a photograph with a kernel dictionary learned from the photograph itself.

    python examples/denoising.py [denoising.png]

The photograph is divided into overlapping patches of 8 x 8 pixels. Patches of an image resemble one another, but noise
does not, so a dictionary learned from the noisy patches represents what they share, and the residuals of its codes are
mostly noise. Needs Pillow (for scikit-learn's sample image) and matplotlib.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

from rkdl import ORKDL

NOISE = 0.1
SIDE = 8


def decibels(image: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio of an image with values from 0 to 1."""
    return -10.0 * float(np.log10(np.mean((image - truth) ** 2)))


# A grey image with values from 0 to 1, with noise of known standard deviation.
photograph = load_sample_image("flower.jpg") @ np.array([0.299, 0.587, 0.114]) / 255.0
photograph = photograph[90:282, 200:392]
rng = np.random.RandomState(0)
noisy = photograph + rng.normal(scale=NOISE, size=photograph.shape)

# One patch per row, with its mean removed, because noise hardly changes the mean.
patches = extract_patches_2d(noisy, (SIDE, SIDE)).reshape(-1, SIDE * SIDE).astype(np.float32)
means = patches.mean(axis=1, keepdims=True)
patches -= means

# The kernel must be wide compared with the noise: gamma times the squared norm of the noise in a patch is 0.03 here
# (64 pixels with variance 0.01 have a squared norm of 0.64).
# fit_inverse_transform also learns a decoder from codes to patches.
model = ORKDL(
    n_components=256,
    n_kernel_vectors=256,
    n_nonzero_coefs=4,
    gamma=0.05,
    max_iter=10,
    fit_inverse_transform=True,
    random_state=0,
)
model.fit(patches[rng.choice(len(patches), 15_000, replace=False)])

# Given the noise level, denoise uses the fewest atoms per patch that leave a residual of that size.
cleaned = model.denoise(patches, noise=NOISE) + means

# Every pixel is in up to 64 patches: their mean is better than any single one.
restored = reconstruct_from_patches_2d(cleaned.astype(np.float64).reshape(-1, SIDE, SIDE), photograph.shape)

# Without a decoder, the same model computes pre-images by a fixed-point iteration.
model.forget_decoder()
iterated = model.denoise(patches, noise=NOISE) + means
iterated = reconstruct_from_patches_2d(iterated.astype(np.float64).reshape(-1, SIDE, SIDE), photograph.shape)

# inverse_transform maps codes to signals; float32 is preserved.
codes = model.transform(patches[:5])
assert model.inverse_transform(codes).shape == (5, SIDE * SIDE)

panels = {"original": photograph, "noisy": noisy, "decoder": restored, "fixed point": iterated}
figure = Figure(figsize=(11, 3.2), layout="constrained")
for axis, (name, image) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
    axis.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    axis.set(xticks=[], yticks=[])
    axis.set_title(name if name == "original" else f"{name}, {decibels(image, photograph):.2f} dB")
    print(f"{name:12s} {decibels(image, photograph):6.2f} dB" if name != "original" else "PSNR")
path = sys.argv[1] if len(sys.argv) > 1 else "denoising.png"
figure.savefig(path, dpi=100)
print(f"written: {path}")
