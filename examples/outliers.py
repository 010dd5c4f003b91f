"""Detect outliers as signals that kernel dictionaries cannot represent.

Run with ``python examples/outliers.py [FIGURE]``; it needs matplotlib, the extra ``rkdl[plots]``.
"""

# %%
# First, points in the plane, to see what is learned. Most lie on two arcs of different density; a few are scattered,
# and a tight group lies away from the arcs. The group is the difficult part: each of its points has close neighbours.
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


inliers = np.r_[arc(500, (0.0, 0.0), 0.0, 0.04), arc(200, (1.0, 0.4), np.pi, 0.12)]
group = (2.6, 1.1) + 0.06 * rng.standard_normal((15, 2))
scattered = rng.uniform((-2.0, -1.6), (3.2, 2.0), (25, 2))
points = np.r_[inliers, group, scattered]
is_outlier = np.r_[np.zeros(len(inliers)), np.ones(len(group) + len(scattered))]

# %%
# The only setting is the share of outliers to mark, and it is optional: ``"auto"`` marks scores beyond Tukey's fence.
# The detector does not see the labels.
detector = KDLOutlierDetector(contamination=0.05, random_state=0).fit(points)
area = roc_auc_score(is_outlier, -detector.score_samples(points))
print(f"plane: ROC {area:.3f}, {(detector.predict(points[700:715]) == -1).sum()} of the group of 15 are marked")

columns, rows = np.meshgrid(np.linspace(-2.2, 3.4, 240), np.linspace(-1.8, 2.2, 180))
field = detector.score_samples(np.c_[columns.ravel(), rows.ravel()])
# Scores are unbounded for abnormal points, so the figure shows the share of points that are more abnormal.
share = np.searchsorted(np.sort(detector.score_samples(points)), field).reshape(columns.shape) / len(points)

# %%
# Second, images: all sevens of the digits data, and a few other digits filed among them by mistake. Features are
# standardised first; the detector is a step of a pipeline like any other.
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
# The figure: the boundary between inliers and outliers in the plane, and the most abnormal images.
figure = plt.figure(figsize=(11.0, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1.0))
axes = left.subplots()
filled = axes.contourf(columns, rows, share, [0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0], cmap="Blues_r")
axes.contour(columns, rows, share, [0.05], colors="tab:red", linewidths=1.5)
axes.scatter(*inliers.T, s=6, color="black", label="inliers")
axes.scatter(*points[len(inliers) :].T, s=22, facecolor="white", edgecolor="tab:red", label="outliers")
axes.set_title("share of points that are more abnormal;\noutliers outside the red line (contamination=0.05)")
axes.set_xticks([])
axes.set_yticks([])
axes.legend(loc="lower left", framealpha=1.0)
left.colorbar(filled, ax=axes, shrink=0.8)

panels = right.subplots(4, 6)
right.suptitle("most abnormal (top) and most normal images (bottom)\nmisfiled digits have a red frame")
for panel, number in zip(panels.ravel(), [*order[:12], *order[::-1][:12]], strict=True):
    panel.imshow(images[folder[number]].reshape(8, 8), cmap="gray_r")
    panel.set_xticks([])
    panel.set_yticks([])
    if is_misfiled[number]:
        panel.spines[:].set(color="tab:red", linewidth=2.5)

path = sys.argv[1] if len(sys.argv) > 1 else "outliers.png"
figure.savefig(path, dpi=110)
print(f"figure: {path}")
