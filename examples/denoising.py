"""Clean a noisy photograph with a kernel dictionary that is learned from the photograph itself.

    python examples/denoising.py [denoising.png]

A photograph is cut into overlapping patches of 8 x 8 pixels. Patches of an image resemble one another; noise resembles
nothing. So a dictionary that is learned from the noisy patches represents what they share, and what its codes leave
behind is mostly noise. Needs Pillow (for scikit-learn's sample image) and matplotlib.
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


# A grey image with values from 0 to 1, and noise of a known size.
photograph = load_sample_image("flower.jpg") @ np.array([0.299, 0.587, 0.114]) / 255.0
photograph = photograph[90:282, 200:392]
rng = np.random.RandomState(0)
noisy = photograph + rng.normal(scale=NOISE, size=photograph.shape)

# One patch a row, without its mean, which noise hardly changes.
patches = extract_patches_2d(noisy, (SIDE, SIDE)).reshape(-1, SIDE * SIDE).astype(np.float32)
means = patches.mean(axis=1, keepdims=True)
patches -= means

# The kernel must be broad beside the noise: gamma times the squared norm of a patch's noise is 0.03 here.
# (Eight by eight pixels with a variance of 0.01 each make 0.64.)
# fit_inverse_transform learns, with the atoms, how to turn codes back into patches.
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

# Told the size of the noise, denoise takes as few atoms for a patch as leave no more than that behind.
cleaned = model.denoise(patches, noise=NOISE) + means

# Every pixel lies in up to 64 patches: the mean of what they say is better than any of them.
restored = reconstruct_from_patches_2d(cleaned.astype(np.float64).reshape(-1, SIDE, SIDE), photograph.shape)

# Without a decoder the same model finds pre-images by a fixed-point iteration.
model.forget_decoder()
iterated = model.denoise(patches, noise=NOISE) + means
iterated = reconstruct_from_patches_2d(iterated.astype(np.float64).reshape(-1, SIDE, SIDE), photograph.shape)

# inverse_transform does one half of it: codes in, signals out. Signals of float32 come back as float32.
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
