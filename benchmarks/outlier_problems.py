"""Outlier problems for choosing a detector's defaults, unrelated to the data sets it is evaluated on.

Each problem is a pair of signals and labels (1 for an outlier). They come from scikit-learn's data, from MNIST and
CIFAR-10 if the data folder has them, and from generators: the kinds of outliers of the literature (global, local,
clustered, and those that break the dependence between features), planted among real and synthetic inliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from sklearn import datasets
from sklearn.mixture import GaussianMixture

from rkdl.datasets import DatasetError, fetch_cifar10, fetch_mnist

Problem = tuple[np.ndarray, np.ndarray]

KINDS = ("global", "local", "cluster", "dependency")


def mixed(inliers: np.ndarray, outliers: np.ndarray, share: float, rng: np.random.Generator) -> Problem:
    """Inliers mixed with outliers at the given share, in random order."""
    count = max(3, round(share / (1.0 - share) * len(inliers)))
    if count > len(outliers):
        inliers = inliers[rng.permutation(len(inliers))[: max(20, round(len(outliers) * (1.0 - share) / share))]]
        count = len(outliers)
    picked = outliers[rng.choice(len(outliers), count, replace=False)]
    X = np.concatenate([inliers, picked]).astype(np.float64)
    y = np.r_[np.zeros(len(inliers), dtype=int), np.ones(count, dtype=int)]
    order = rng.permutation(len(X))
    return X[order], y[order]


def planted(inliers: np.ndarray, kind: str, share: float, rng: np.random.Generator) -> Problem:
    """Inliers mixed with generated outliers of one kind."""
    count = 2 * max(3, round(share / (1.0 - share) * len(inliers)))
    low, high = inliers.min(axis=0), inliers.max(axis=0)
    if kind == "global":
        centre, half = (low + high) / 2.0, 0.55 * (high - low)
        outliers = rng.uniform(centre - half, centre + half, (count, len(low)))
    elif kind == "dependency":
        outliers = np.stack([rng.permutation(np.resize(column, count)) for column in inliers.T], axis=1)
        outliers += 0.1 * inliers.std(axis=0) * rng.standard_normal(outliers.shape)
    else:
        n_modes = 1 if len(inliers) < 300 else 4
        seed = int(rng.integers(1 << 30))
        model = GaussianMixture(n_modes, covariance_type="diag", reg_covar=1e-3, random_state=seed).fit(inliers)
        modes = rng.choice(n_modes, count, p=model.weights_)
        noise = np.sqrt(model.covariances_[modes]) * rng.standard_normal((count, len(low)))
        if kind == "local":
            outliers = model.means_[modes] + 2.0 * noise
        else:
            # One distant cluster, tighter than the inliers.
            away = rng.choice([-1.0, 1.0], len(low)) * inliers.std(axis=0)
            outliers = inliers.mean(axis=0) + 2.0 * away + 0.5 * noise
    return mixed(inliers, outliers, share, rng)


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    return datasets.load_digits(return_X_y=True)


@cache
def _mnist() -> tuple[np.ndarray, np.ndarray]:
    return fetch_mnist(return_X_y=True)


@cache
def _airplanes() -> np.ndarray:
    return np.asarray(fetch_cifar10(label=0).data, dtype=np.float64).reshape(-1, 32, 32)


def _patches(image: str, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    pixels = datasets.load_sample_image(image).astype(np.float64)
    rows = rng.integers(0, pixels.shape[0] - size, count)
    columns = rng.integers(0, pixels.shape[1] - size, count)
    return np.stack([pixels[r : r + size, c : c + size].ravel() for r, c in zip(rows, columns, strict=True)])


def _cancer(share: float, rng: np.random.Generator) -> Problem:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return mixed(X[y == 1], X[y == 0], share, rng)


def _class_outlier(load: Callable, label: int, share: float, rng: np.random.Generator) -> Problem:
    X, y = load(return_X_y=True)
    return mixed(X[y != label], X[y == label], share, rng)


def _class_inlier(load: Callable, label: int, share: float, rng: np.random.Generator) -> Problem:
    X, y = load(return_X_y=True)
    return mixed(X[y == label], X[y != label], share, rng)


def _diabetes(share: float, rng: np.random.Generator) -> Problem:
    X, y = datasets.load_diabetes(return_X_y=True)
    limit = np.quantile(y, 1.0 - share)
    return X, (y > limit).astype(int)


def _mnist_classes(
    inner: tuple, outer: tuple, size: int, width: int, share: float, rng: np.random.Generator
) -> Problem:
    """Some digits among others, restricted to `width` random non-constant pixels."""
    X, y = _mnist()
    inliers, outliers = X[np.isin(y, inner)][:size], X[np.isin(y, outer)][:size]
    pixels = rng.choice(np.flatnonzero(inliers.std(axis=0) > 0.02 * X.max()), width, replace=False)
    return mixed(inliers[:, pixels], outliers[:, pixels], share, rng)


def _altered_airplanes(kind: str, share: float, rng: np.random.Generator) -> Problem:
    """Airplanes as 8 x 8 images; the outliers are flipped, noisy or blurred."""
    images = _airplanes()[:2500]
    altered = _airplanes()[2500:3500].copy()
    if kind == "turned":
        altered = altered[:, ::-1, :]
    elif kind == "noisy":
        altered = altered + 0.6 * altered.std() * rng.standard_normal(altered.shape)
    else:
        altered = (
            altered + np.roll(altered, 4, axis=1) + np.roll(altered, 4, axis=2) + np.roll(altered, 8, axis=2)
        ) / 4.0
    small = [
        part.reshape(-1, 8, 4, 8, 4)[:, :, :2, :, :2].mean(axis=(2, 4)).reshape(-1, 64) for part in (images, altered)
    ]
    return mixed(*small, share, rng)


def _image_patches(inner: str, outer: str, size: int, share: float, rng: np.random.Generator) -> Problem:
    return mixed(_patches(inner, size, 2000, rng), _patches(outer, size, 1000, rng), share, rng)


def _blobs(n: int, width: int, n_blobs: int, rng: np.random.Generator) -> np.ndarray:
    """Clusters of different sizes, densities and shapes."""
    centres = rng.uniform(-6.0, 6.0, (n_blobs, width))
    weights = rng.dirichlet(np.full(n_blobs, 2.0))
    parts = []
    for centre, weight in zip(centres, weights, strict=True):
        spread = rng.uniform(0.3, 2.0)
        shape = rng.standard_normal((width, width)) / np.sqrt(width)
        parts.append(
            centre + spread * rng.standard_normal((max(4, round(weight * n)), width)) @ (0.5 * np.eye(width) + shape)
        )
    return np.concatenate(parts)


def _factors(n: int, width: int, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Features explained by a few common factors, some of them skewed, some rounded."""
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, width)) + 0.5 * rng.standard_normal((n, width))
    skewed, rounded = rng.random(width) < 0.3, rng.random(width) < 0.2
    X[:, skewed] = np.exp(0.5 * X[:, skewed])
    X[:, rounded] = np.round(X[:, rounded])
    return X


def _curved(n: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A curved sheet in many dimensions."""
    u = rng.uniform(-1.0, 1.0, (n, 2))
    waves = np.concatenate([np.sin(3.0 * u), np.cos(3.0 * u), u, (u[:, :1] * u[:, 1:])], axis=1)
    return waves @ rng.standard_normal((waves.shape[1], width)) + 0.1 * rng.standard_normal((n, width))


def _shifted(n: int, width: int, touched: int, shift: float, share: float, rng: np.random.Generator) -> Problem:
    """Correlated features with heavy tails; outliers are shifted in a few features, in random directions."""
    mix = np.eye(width) + 0.3 * rng.standard_normal((width, width)) / np.sqrt(width)
    inliers = rng.standard_t(4, (n, width)) @ mix
    outliers = rng.standard_t(4, (n, width)) @ mix
    for row in outliers:
        row[rng.choice(width, touched, replace=False)] += shift * rng.choice([-1.0, 1.0], touched)
    return mixed(inliers, outliers, share, rng)


def _minority(n: int, width: int, informative: int, apart: float, share: float, rng: np.random.Generator) -> Problem:
    """A minority class with clusters at corners of a cube, and uninformative features."""
    X, y = datasets.make_classification(
        2 * n,
        width,
        n_informative=informative,
        n_redundant=max(0, min(informative, width - informative) // 2),
        n_clusters_per_class=2,
        class_sep=apart,
        flip_y=0.0,
        shuffle=False,
        random_state=int(rng.integers(1 << 30)),
    )
    return mixed(X[y == 0], X[y == 1], share, rng)


def _wider(n: int, width: int, factor: float, share: float, rng: np.random.Generator) -> Problem:
    """Several clusters; the outliers spread wider around the same centres."""
    inliers = _blobs(n, width, 5, rng)
    noise = rng.standard_normal((n, width)) * inliers.std(axis=0)
    return mixed(inliers, inliers[rng.choice(len(inliers), n)] + factor * noise, share, rng)


def _real_inliers() -> dict[str, np.ndarray]:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    wine, kinds = datasets.load_wine(return_X_y=True)
    digits, labels = _digits()
    return {
        "cancer": X[y == 1],
        "wine": wine[kinds != 2],
        "diabetes": datasets.load_diabetes(return_X_y=True)[0],
        "digits": digits[np.isin(labels, (1, 4, 7))] + 0.0,
    }


def _table() -> dict[str, Callable[[np.random.Generator], Problem]]:
    """Names of the problems and the functions that create them."""
    table: dict[str, Callable] = {}
    for share in (0.03, 0.1, 0.35):
        table[f"cancer {share:.0%}"] = lambda rng, share=share: _cancer(share, rng)
    for label in range(3):
        table[f"wine class {label}"] = lambda rng, k=label: _class_outlier(datasets.load_wine, k, 0.08, rng)
        table[f"iris class {label}"] = lambda rng, k=label: _class_outlier(datasets.load_iris, k, 0.1, rng)
    for label, share in ((0, 0.05), (3, 0.03), (5, 0.05), (9, 0.1)):
        table[f"digits class {label}"] = lambda rng, k=label, s=share: _class_outlier(datasets.load_digits, k, s, rng)
    for label, share in ((1, 0.1), (2, 0.05), (8, 0.2)):
        table[f"digits all but {label}"] = lambda rng, k=label, s=share: _class_inlier(datasets.load_digits, k, s, rng)
    for share in (0.1, 0.3):
        table[f"diabetes high {share:.0%}"] = lambda rng, share=share: _diabetes(share, rng)
    for inner, outer, size, width, share in (
        ((1,), (7,), 3000, 60, 0.05),
        ((3, 5, 8), (2,), 3000, 100, 0.1),
        ((4, 9), (0, 1, 2, 3), 2000, 200, 0.05),
        ((7,), (2, 3, 4, 5, 8), 6000, 80, 0.02),
    ):
        table[f"mnist {inner} among {outer}"] = lambda rng, a=(inner, outer, size, width, share): _mnist_classes(
            *a, rng
        )
    for kind, share in (("turned", 0.05), ("noisy", 0.1), ("blurred", 0.05)):
        table[f"airplanes {kind}"] = lambda rng, k=kind, s=share: _altered_airplanes(k, s, rng)
    for inner, outer, size, share in (("china.jpg", "flower.jpg", 5, 0.05), ("flower.jpg", "china.jpg", 4, 0.2)):
        table[f"patches {inner} {size}"] = lambda rng, a=(inner, outer, size, share): _image_patches(*a, rng)
    for name in ("cancer", "wine", "diabetes", "digits"):
        for kind, share in zip(KINDS, (0.05, 0.08, 0.05, 0.1), strict=True):
            table[f"{name} {kind}"] = lambda rng, n=name, k=kind, s=share: planted(_real_inliers()[n], k, s, rng)
    for n, width, n_blobs, kind, share in (
        (400, 5, 3, "global", 0.05),
        (1500, 6, 8, "local", 0.1),
        (1000, 10, 5, "cluster", 0.03),
        (2500, 20, 6, "local", 0.05),
        (800, 30, 4, "dependency", 0.1),
        (3000, 12, 10, "dependency", 0.02),
        (1500, 100, 5, "local", 0.05),
        (9000, 8, 12, "cluster", 0.01),
        (1200, 16, 3, "cluster", 0.3),
    ):
        table[f"blobs {n} {width} {kind}"] = lambda rng, a=(n, width, n_blobs), k=kind, s=share: planted(
            _blobs(*a, rng), k, s, rng
        )
    for n, width, rank, kind, share in (
        (300, 8, 3, "dependency", 0.1),
        (1500, 25, 5, "local", 0.05),
        (600, 60, 6, "dependency", 0.05),
        (400, 250, 10, "local", 0.15),
        (2000, 40, 8, "cluster", 0.05),
        (5000, 15, 4, "dependency", 0.03),
    ):
        table[f"factors {n} {width} {kind}"] = lambda rng, a=(n, width, rank), k=kind, s=share: planted(
            _factors(*a, rng), k, s, rng
        )
    for n, width, kind, share in ((800, 10, "dependency", 0.05), (2000, 30, "local", 0.1), (1500, 6, "global", 0.3)):
        table[f"curved {n} {width} {kind}"] = lambda rng, a=(n, width), k=kind, s=share: planted(
            _curved(*a, rng), k, s, rng
        )
    for arguments in (
        (1000, 10, 3, 4.0, 0.05),
        (450, 200, 20, 3.0, 0.15),
        (2000, 30, 4, 4.0, 0.03),
        (600, 20, 5, 2.5, 0.3),
    ):
        table[f"shifted {arguments[:4]}"] = lambda rng, a=arguments: _shifted(*a, rng)
    for arguments in (
        (1500, 20, 6, 1.5, 0.05),
        (800, 9, 5, 1.5, 0.1),
        (3000, 40, 10, 2.0, 0.03),
        (1000, 150, 30, 1.5, 0.05),
        (700, 8, 4, 1.0, 0.34),
    ):
        table[f"minority {arguments[:4]}"] = lambda rng, a=arguments: _minority(*a, rng)
    for arguments in ((1500, 10, 0.5, 0.05), (700, 25, 0.4, 0.1), (2500, 6, 0.7, 0.02)):
        table[f"wider {arguments[:3]}"] = lambda rng, a=arguments: _wider(*a, rng)
    return table


NAMES = tuple(_table())


def is_real(name: str) -> bool:
    """Whether inliers and outliers of a problem are both real data."""
    first, *_, last = name.split()
    return last not in KINDS and first not in ("shifted", "minority", "wider")


def development_problems(names: tuple[str, ...] | None = None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, signals and labels of every problem whose data are available; the same at every call."""
    table = _table()
    for number, (name, make) in enumerate(table.items()):
        if names is not None and name not in names:
            continue
        try:
            X, y = make(np.random.default_rng([2024, number]))
        except DatasetError as error:
            print(f"{name} skipped: {error}")
            continue
        yield name, X, y
