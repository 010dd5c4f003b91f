"""
Atoms of image patches
======================

This example learns dictionaries from patches of 8 x 8 pixels of a photograph and shows their atoms. The atoms of a
kernel dictionary are points in feature space. They can be visualised by their pre-images, the patches whose images are
nearest, which ``atom_preimages`` computes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d

from rkdl import DL, ORKDL

plt.style.use("rkdl.figures")
photograph = load_sample_image("china.jpg").mean(axis=2) / 255.0
patches = extract_patches_2d(photograph, (8, 8), max_patches=8000, random_state=0).reshape(-1, 64)
patches -= patches.mean(axis=1, keepdims=True)
# Flat patches, mostly sky, contain no structure.
patches = patches[patches.std(axis=1) > 0.03]
patches /= np.linalg.norm(patches, axis=1, keepdims=True)
print(f"{len(patches)} patches")

# %%
# Both dictionaries have 100 atoms, of which each patch uses at most five.
linear = DL(n_components=100, n_nonzero_coefs=5, random_state=0).fit(patches)
kernel = ORKDL(
    n_components=100, n_kernel_vectors=150, n_nonzero_coefs=5, max_iter=10, fit_inverse_transform=True, random_state=0
).fit(patches)
print(f"scores: DL {linear.score(patches):.1%}, ORKDL {kernel.score(patches):.1%}")

# %%
# The signs of linear atoms are arbitrary. The pre-images of kernel atoms look like actual patches: edges, bars and
# corners.
atoms = {"atoms of DL": linear.components_, "pre-images of the atoms of ORKDL": kernel.atom_preimages()}
figure = plt.figure(figsize=(9.5, 5.0))
for part, (name, images) in zip(figure.subfigures(1, 2), atoms.items(), strict=True):
    part.suptitle(name, fontsize=11)
    for panel, atom in zip(part.subplots(10, 10).ravel(), images, strict=True):
        limit = np.abs(atom).max()
        panel.imshow(atom.reshape(8, 8), cmap="gray", vmin=-limit, vmax=limit)
        panel.axis("off")
plt.show()
