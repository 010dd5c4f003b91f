"""Outliers: what kernel dictionaries of the common signals cannot represent.

Run with ``python examples/outliers.py [FIGURE]``; it needs matplotlib, the extra ``rkdl[plots]``.
"""

# %%
# A plane first, to see what is learned. Most points lie on two arcs of different density; a few lie anywhere, and a
# tight group of them sits where no arc is. That group is the difficult part: each of its points has near neighbours.
from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rkdl import KDLOutlierDetector

rng = np.random.default_rng(0)


def arc(count, centre, start, spread):
    angles = rng.uniform(start, start + np.pi, count)
    return centre + np.c_[np.cos(angles), np.sin(angles)] + spread * rng.standard_normal((count, 2))


common = np.r_[arc(500, (0.0, 0.0), 0.0, 0.04), arc(200, (1.0, 0.4), np.pi, 0.12)]
group = (2.6, 1.1) + 0.06 * rng.standard_normal((15, 2))
scattered = rng.uniform((-2.0, -1.6), (3.2, 2.0), (25, 2))
points = np.r_[common, group, scattered]
strange = np.r_[np.zeros(len(common)), np.ones(len(group) + len(scattered))]

# %%
# The detector needs no setting but the share of outliers that it should mark, and not even that: ``"auto"`` marks what
# lies beyond Tukey's fence. It never sees which points are strange.
detector = KDLOutlierDetector(contamination=0.05, random_state=0).fit(points)
area = roc_auc_score(strange, -detector.score_samples(points))
print(f"plane: ROC {area:.3f}, {(detector.predict(points[700:715]) == -1).sum()} of the group of 15 are marked")

columns, rows = np.meshgrid(np.linspace(-2.2, 3.4, 240), np.linspace(-1.8, 2.2, 180))
field = detector.score_samples(np.c_[columns.ravel(), rows.ravel()])
# Scores end nowhere on the abnormal side, so the picture shows the share of the points that are stranger.
share = np.searchsorted(np.sort(detector.score_samples(points)), field).reshape(columns.shape) / len(points)

# %%
# Then images. All sevens of the digits data, and a few other digits that were filed among them by mistake. Features of
# different scale are standardised first: the detector is one step of a pipeline like any other.
images, labels = load_digits(return_X_y=True)
misfiled = rng.permutation(np.flatnonzero(labels != 7))[:12]
folder = np.r_[np.flatnonzero(labels == 7), misfiled]
model = make_pipeline(StandardScaler(), KDLOutlierDetector(random_state=0)).fit(images[folder])
scores = model.score_samples(images[folder])
order = np.argsort(scores)
is_misfiled = labels[folder] != 7
found = int(is_misfiled[order[:12]].sum())
print(f"digits: ROC {roc_auc_score(is_misfiled, -scores):.3f}, {found} of the 12 most abnormal are misfiled")

# %%
# The figure: where the line between common and strange runs in the plane, and the folder's strangest images.
figure = plt.figure(figsize=(11.0, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1.0))
axes = left.subplots()
filled = axes.contourf(columns, rows, share, [0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0], cmap="Blues_r")
axes.contour(columns, rows, share, [0.05], colors="tab:red", linewidths=1.5)
axes.scatter(*common.T, s=6, color="black", label="common")
axes.scatter(*points[len(common) :].T, s=22, facecolor="white", edgecolor="tab:red", label="strange")
axes.set_title("share of the points that are stranger;\noutside the red line, outliers (contamination=0.05)")
axes.set_xticks([])
axes.set_yticks([])
axes.legend(loc="lower left", framealpha=1.0)
left.colorbar(filled, ax=axes, shrink=0.8)

panels = right.subplots(4, 6)
right.suptitle("most abnormal (two rows) and most common sevens\nmisfiled digits have a red frame")
for panel, number in zip(panels.ravel(), [*order[:12], *order[::-1][:12]], strict=True):
    panel.imshow(images[folder[number]].reshape(8, 8), cmap="gray_r")
    panel.set_xticks([])
    panel.set_yticks([])
    if is_misfiled[number]:
        panel.spines[:].set(color="tab:red", linewidth=2.5)

path = sys.argv[1] if len(sys.argv) > 1 else "outliers.png"
figure.savefig(path, dpi=110)
print(f"figure: {path}")
