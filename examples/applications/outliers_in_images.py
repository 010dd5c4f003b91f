"""
Outliers in the plane and among images
======================================

:class:`~rkdl.KDLOutlierDetector` learns small kernel dictionaries of the signals and flags signals that they represent
badly. This example applies it to points in the plane, where its decision boundary can be plotted, and to a set of
images of sevens that contains a few other digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from rkdl import KDLOutlierDetector

plt.style.use("rkdl.figures")
rng = np.random.default_rng(0)

# %%
# Most points lie on two arcs of different density. Among the outliers, some are scattered, and some form a tight group
# away from the arcs. The group is more difficult to detect, because each of its points has close neighbours.


def arc(count, centre, start, spread):
    """Points on a half circle, blurred."""
    angles = rng.uniform(start, start + np.pi, count)
    return centre + np.c_[np.cos(angles), np.sin(angles)] + spread * rng.standard_normal((count, 2))


inliers = np.r_[arc(500, (0.0, 0.0), 0.0, 0.04), arc(200, (1.0, 0.4), np.pi, 0.12)]
group = (2.6, 1.1) + 0.06 * rng.standard_normal((15, 2))
scattered = rng.uniform((-2.0, -1.6), (3.2, 2.0), (25, 2))
points = np.r_[inliers, group, scattered]
is_outlier = np.r_[np.zeros(len(inliers)), np.ones(len(group) + len(scattered))]

# %%
# The detector is not given any labels. ``contamination`` is the fraction of the training signals to flag; with
# ``"auto"``, the default, it flags scores beyond the tail of those that do not stand apart.
detector = KDLOutlierDetector(contamination=0.05, random_state=0).fit(points)
area = roc_auc_score(is_outlier, -detector.score_samples(points))
print(f"area under the ROC curve {area:.3f}")
print(f"{(detector.predict(group) == -1).sum()} of the {len(group)} points of the group are flagged")

# %%
# Scores are unbounded, so the figure shows ranks, that is, the fraction of the training points that are more abnormal.
# The line is the threshold. Points on the sparser arc get more abnormal scores than points on the denser one.
columns, rows = np.meshgrid(np.linspace(-2.2, 3.4, 200), np.linspace(-1.8, 2.2, 150))
field = detector.score_samples(np.c_[columns.ravel(), rows.ravel()])
ranks = np.searchsorted(np.sort(detector.score_samples(points)), field).reshape(columns.shape) / len(points)
figure, panel = plt.subplots(figsize=(7.0, 4.6))
levels = [0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0]
filled = panel.contourf(columns, rows, ranks, levels, colors=plt.get_cmap("cividis_r")(np.linspace(0.1, 1.0, 6)))
panel.contour(columns, rows, ranks, [0.05], colors="C1", linewidths=2.0)
panel.scatter(*inliers.T, s=5, color="0.75", label="inliers")
panel.scatter(*points[len(inliers) :].T, s=26, facecolor="white", edgecolor="C1", linewidths=1.4, label="outliers")
panel.set(xticks=[], yticks=[], title="points outside the line are flagged as outliers")
panel.legend(loc="lower left")
figure.colorbar(filled, label="fraction of points that are more abnormal")
plt.show()

# %%
# The second data set contains all sevens of the digits data and twelve other digits.
images, labels = load_digits(return_X_y=True)
misfiled = rng.permutation(np.flatnonzero(labels != 7))[:12]
folder = np.r_[np.flatnonzero(labels == 7), misfiled]
model = KDLOutlierDetector(random_state=0).fit(images[folder])
scores = model.score_samples(images[folder])
order = np.argsort(scores)
is_misfiled = labels[folder] != 7
found = int(is_misfiled[order[:12]].sum())
print(f"area under the ROC curve {roc_auc_score(is_misfiled, -scores):.3f}")
print(f"{found} of the 12 most abnormal images are misfiled")

figure = plt.figure(figsize=(9.0, 3.6))
groups = {"most abnormal (orange frame: misfiled)": order[:12], "most normal": order[::-1][:12]}
for part, (name, numbers) in zip(figure.subfigures(1, 2), groups.items(), strict=True):
    part.suptitle(name, fontsize=11)
    for panel, number in zip(part.subplots(3, 4).ravel(), numbers, strict=True):
        panel.imshow(images[folder[number]].reshape(8, 8), cmap="gray_r")
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(True)
        panel.spines[:].set(color="C1" if is_misfiled[number] else "0.8", linewidth=3 if is_misfiled[number] else 1)
plt.show()
