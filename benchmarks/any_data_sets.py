"""Data sets of many kinds, to compare the methods on more than images of unit norm.

Each data set is an array or CSR matrix with at most 1,000 signals and is the same at every call. Some come with
scikit-learn, some are generated, and some are read from the data folder (RKDL_DATA), without which they are skipped.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter
from scipy.sparse import csr_matrix
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler

from benchmarks.data import MissingDataError
from benchmarks.data import odds as odds_data
from rkdl.datasets import DatasetError, fetch_cifar10, fetch_mnist

MAX_SIGNALS = 1000
# The row multiplied by a thousand in data sets with one gross outlier.
OUTLIER_ROW = 7

Maker = Callable[[np.random.Generator], np.ndarray]


def standardized(X: np.ndarray) -> np.ndarray:
    """Scale columns to mean 0 and variance 1."""
    return StandardScaler().fit_transform(X)


def subset(X: np.ndarray, rng: np.random.Generator, count: int = MAX_SIGNALS) -> np.ndarray:
    """At most `count` rows, drawn without replacement, in float64."""
    rows = rng.permutation(len(X))[:count]
    return np.ascontiguousarray(X[rows], dtype=np.float64)


def unit_norm(X: np.ndarray) -> np.ndarray:
    """Scale signals to unit norm."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def with_outlier(X: np.ndarray) -> np.ndarray:
    """Multiply one signal by a thousand."""
    X = X.copy()
    X[OUTLIER_ROW] *= 1000.0
    return X


def seed_of(rng: np.random.Generator) -> int:
    """Draw a seed for scikit-learn's generators."""
    return int(rng.integers(1 << 31))


def moons(rng: np.random.Generator) -> np.ndarray:
    """Two interleaved half circles."""
    return datasets.make_moons(500, noise=0.05, random_state=seed_of(rng))[0]


def circles(rng: np.random.Generator) -> np.ndarray:
    """Two concentric circles."""
    return datasets.make_circles(500, noise=0.05, factor=0.5, random_state=seed_of(rng))[0]


def spiral(rng: np.random.Generator) -> np.ndarray:
    """A spiral of three turns with a little noise."""
    angle = 6.0 * np.pi * np.sqrt(rng.random(600))
    points = angle[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + 0.2 * rng.standard_normal(points.shape)


def blobs(rng: np.random.Generator) -> np.ndarray:
    """Five clusters in the plane whose scales differ by up to a hundred times."""
    scales = [0.02, 0.1, 0.3, 1.0, 2.0]
    return datasets.make_blobs([120] * 5, centers=None, cluster_std=scales, random_state=seed_of(rng))[0]


def swiss_roll(rng: np.random.Generator) -> np.ndarray:
    """A rolled plane in three dimensions."""
    return datasets.make_swiss_roll(800, noise=0.1, random_state=seed_of(rng))[0]


def s_curve(rng: np.random.Generator) -> np.ndarray:
    """A plane bent into an S in three dimensions."""
    return datasets.make_s_curve(800, noise=0.05, random_state=seed_of(rng))[0]


def poisson(rate: float) -> Maker:
    """Poisson counts of one rate in 40 columns."""
    return lambda rng: rng.poisson(rate, (600, 40)).astype(np.float64)


def poisson_factors(rng: np.random.Generator) -> np.ndarray:
    """Counts whose rates are non-negative combinations of six profiles, from rare to frequent."""
    loadings, profiles = rng.gamma(0.5, 1.0, (800, 6)), rng.gamma(0.5, 4.0, (6, 50))
    return rng.poisson(loadings @ profiles).astype(np.float64)


def negative_binomial(rng: np.random.Generator) -> np.ndarray:
    """Overdispersed counts with unequal depth per signal, as in sequencing."""
    depth, profiles = rng.lognormal(0.0, 0.7, (600, 1)), rng.gamma(0.6, 5.0, (4, 100))
    mean = depth * profiles[rng.integers(4, size=600)]
    return rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape)).astype(np.float64)


def student_t(rng: np.random.Generator) -> np.ndarray:
    """Twenty independent columns of Student's t with two degrees of freedom."""
    return rng.standard_t(2.0, (800, 20))


def log_normal(rng: np.random.Generator) -> np.ndarray:
    """Exponentials of correlated normal variables."""
    return np.exp(1.2 * rng.standard_normal((800, 5)) @ rng.standard_normal((5, 20)) / np.sqrt(5.0))


def cauchy(rng: np.random.Generator) -> np.ndarray:
    """Ten independent Cauchy columns, clipped at a million."""
    return np.clip(rng.standard_cauchy((800, 10)), -1e6, 1e6)


def spectra(rng: np.random.Generator) -> np.ndarray:
    """Sums of Gaussian peaks at 12 positions with random heights, on curved baselines, with noise."""
    axis = np.linspace(0.0, 1.0, 200)
    peaks = np.exp(-0.5 * ((axis - rng.random((12, 1))) / rng.uniform(0.005, 0.03, (12, 1))) ** 2)
    heights = rng.gamma(0.7, 1.0, (500, 12))
    baselines = rng.uniform(0.5, 2.0, (500, 1)) + rng.normal(0.0, 0.5, (500, 1)) * (axis - 0.5) ** 2
    return heights @ peaks + baselines + 0.02 * rng.standard_normal((500, 200))


def sinusoids(rng: np.random.Generator) -> np.ndarray:
    """One of four frequencies with random phase and amplitude, with noise."""
    time = np.linspace(0.0, 1.0, 128, endpoint=False)
    frequency = rng.choice([2.0, 3.0, 5.0, 8.0], (600, 1))
    phase, amplitude = rng.uniform(0.0, 2.0 * np.pi, (600, 1)), rng.uniform(0.5, 1.5, (600, 1))
    return amplitude * np.sin(2.0 * np.pi * frequency * time + phase) + 0.05 * rng.standard_normal((600, 128))


def autoregressive(rng: np.random.Generator) -> np.ndarray:
    """Windows of 64 samples of an autoregressive process of order two."""
    series = lfilter([1.0], [1.0, -1.6, 0.8], rng.standard_normal(20_000))
    return np.ascontiguousarray(sliding_window_view(series, 64)[100::32][:600])


def pulses(rng: np.random.Generator) -> np.ndarray:
    """Heart beats as three waves with small shifts and a drifting baseline, one beat in ten of another shape."""
    time = np.linspace(0.0, 1.0, 160)
    centres, widths = np.array([0.3, 0.5, 0.7]), np.array([0.03, 0.012, 0.05])
    heights = np.array([0.15, 1.0, 0.3]) * rng.uniform(0.8, 1.2, (600, 3))
    is_other = rng.random(600) < 0.1
    heights[is_other] *= np.array([0.0, -0.7, 2.0])
    shifted = time - (centres + 0.01 * rng.standard_normal((600, 3)))[:, :, None]
    beats = np.einsum("np,npt->nt", heights, np.exp(-0.5 * (shifted / widths[:, None]) ** 2))
    wander = 0.1 * np.sin(2.0 * np.pi * (0.5 * time + rng.random((600, 1))))
    return beats + wander + 0.01 * rng.standard_normal(beats.shape)


def documents(n_words: float) -> Maker:
    """TF-IDF of documents from eight topics over 2,000 terms with Zipf frequencies, as CSR of unit norm."""

    def make(rng: np.random.Generator) -> csr_matrix:
        frequency = 1.0 / np.arange(1, 2001)
        topics = frequency * rng.gamma(0.1, 10.0, (8, 2000)) + 0.05 * frequency
        topics /= topics.sum(axis=1, keepdims=True)
        mixtures = rng.dirichlet(np.full(8, 0.1), 300)
        lengths = 5 + rng.poisson(n_words, 300)
        counts = np.stack([rng.multinomial(n, p) for n, p in zip(lengths, mixtures @ topics, strict=True)])
        return csr_matrix(TfidfTransformer().fit_transform(csr_matrix(counts.astype(np.float64))))

    return make


def wide(rng: np.random.Generator) -> np.ndarray:
    """Three hundred signals of ten thousand features: ten factors and noise."""
    factors = rng.standard_normal((300, 10)) @ rng.standard_normal((10, 10_000))
    return factors + rng.standard_normal((300, 10_000))


def few(count: int) -> Maker:
    """A few signals from two clusters in 12 dimensions."""
    return lambda rng: rng.standard_normal((count, 12)) + 3.0 * (np.arange(count) % 2)[:, None]


def load(loader: Callable, **options) -> Maker:
    """The features of a scikit-learn data set, at most a thousand signals."""
    return lambda rng: subset(loader(return_X_y=True, **options)[0], rng)


def scaled(make: Maker) -> Maker:
    """Standardise a data set."""
    return lambda rng: standardized(make(rng))


def spoiled(make: Maker) -> Maker:
    """Add one gross outlier to a data set."""
    return lambda rng: with_outlier(make(rng))


def duplicated(rng: np.random.Generator) -> np.ndarray:
    """Forty distinct digits, twenty copies each, in random order."""
    rows = subset(datasets.load_digits().data, rng, 40)
    return rows[rng.permutation(np.repeat(np.arange(40), 20))]


def constant_columns(rng: np.random.Generator) -> np.ndarray:
    """The standardised wine data with ten constant columns, one of them large."""
    X = standardized(datasets.load_wine().data)
    return np.hstack([X, np.zeros((len(X), 5)), np.ones((len(X), 4)), np.full((len(X), 1), 50.0)])


def data_folder() -> Path:
    """The folder named by RKDL_DATA."""
    folder = os.environ.get("RKDL_DATA")
    if not folder:
        raise MissingDataError("RKDL_DATA is not set")
    return Path(folder)


def adbench(name: str) -> Maker:
    """An ADBench data set, at most a thousand signals."""

    def make(rng: np.random.Generator) -> np.ndarray:
        path = data_folder() / "adbench" / f"{name}.npz"
        if not path.exists():
            raise MissingDataError(f"the data folder has no adbench/{name}.npz")
        with np.load(path) as file:
            return subset(file["X"], rng)

    return make


def odds(name: str) -> Maker:
    """An ODDS data set, at most a thousand signals."""

    def make(rng: np.random.Generator) -> np.ndarray:
        return subset(odds_data(name)[0], rng)

    return make


def mnist_four(rng: np.random.Generator) -> np.ndarray:
    """Six hundred images of digit 4, scaled to unit norm."""
    X, y = fetch_mnist(data_home=data_folder(), download_if_missing=False, return_X_y=True)
    return unit_norm(subset(X[y == 4], rng, 600))


def airplanes(rng: np.random.Generator) -> np.ndarray:
    """Grey images of airplanes, in float64."""
    return subset(fetch_cifar10(data_home=data_folder(), label=0, gray=True, download_if_missing=False).data, rng)


def airplane_images(rng: np.random.Generator) -> np.ndarray:
    """Five hundred grey images of airplanes, scaled to unit norm."""
    return unit_norm(airplanes(rng)[:500])


def airplane_patches(rng: np.random.Generator) -> np.ndarray:
    """Patches of 8 x 8 pixels of airplanes, means removed."""
    images = airplanes(rng).reshape(-1, 32, 32)
    rows, columns = rng.integers(0, 25, (2, len(images)))
    patches = [image[r : r + 8, c : c + 8].ravel() for image, r, c in zip(images, rows, columns, strict=True)]
    patches = np.stack(patches)
    return patches - patches.mean(axis=1, keepdims=True)


DIGITS, WINE = load(datasets.load_digits), load(datasets.load_wine)
CANCER, IRIS = load(datasets.load_breast_cancer), load(datasets.load_iris)
DIABETES = load(datasets.load_diabetes, scaled=False)

FAMILIES: dict[str, dict[str, Maker]] = {
    "shapes": {
        "moons": moons,
        "circles": circles,
        "spiral": spiral,
        "blobs": blobs,
        "swiss-roll": swiss_roll,
        "s-curve": s_curve,
        "line": lambda rng: np.linspace(-3.0, 3.0, 600)[:, None],
    },
    "tables": {
        "wine": WINE,
        "wine-standardised": scaled(WINE),
        "cancer": CANCER,
        "cancer-standardised": scaled(CANCER),
        "iris": IRIS,
        "diabetes": DIABETES,
        "diabetes-standardised": scaled(DIABETES),
        "cardiotocography-standardised": scaled(adbench("Cardiotocography")),
        "annthyroid": adbench("annthyroid"),
        "wilt": adbench("Wilt"),
        "wilt-standardised": scaled(adbench("Wilt")),
        "magic-gamma": adbench("magic.gamma"),
        "glass-standardised": scaled(odds("glass")),
    },
    "counts": {
        "poisson-0.2": poisson(0.2),
        "poisson-3": poisson(3.0),
        "poisson-30": poisson(30.0),
        "poisson-factors": poisson_factors,
        "negative-binomial": negative_binomial,
    },
    "heavy tails": {"student-t": student_t, "log-normal": log_normal, "cauchy": cauchy},
    "series": {"spectra": spectra, "sinusoids": sinusoids, "autoregressive": autoregressive, "pulses": pulses},
    "text": {"documents": documents(120.0), "short-documents": documents(15.0)},
    "images": {
        "digits": DIGITS,
        "digits-standardised": scaled(DIGITS),
        "digits-unit-norm": lambda rng: unit_norm(DIGITS(rng)),
        "mnist-four": mnist_four,
        "airplanes": airplane_images,
        "airplane-patches": airplane_patches,
    },
    "sizes": {"wide": wide, "60-signals": few(60), "30-signals": few(30)},
    "one outlier": {
        "digits-outlier": spoiled(DIGITS),
        "wine-outlier": spoiled(WINE),
        "moons-outlier": spoiled(moons),
        "cancer-standardised-outlier": spoiled(scaled(CANCER)),
        "spectra-outlier": spoiled(spectra),
    },
    "odd": {
        "duplicated-rows": duplicated,
        "constant-columns": constant_columns,
        "tiny-scale": lambda rng: 1e-6 * scaled(WINE)(rng),
        "huge-offset": lambda rng: 1000.0 + scaled(CANCER)(rng),
    },
}
FAMILY_OF = {name: family for family, members in FAMILIES.items() for name in members}
NAMES = tuple(FAMILY_OF)
# One data set per family, for a quick run.
QUICK_NAMES = tuple(next(iter(members)) for members in FAMILIES.values())


@cache
def load_set(name: str) -> np.ndarray | csr_matrix:
    """The signals of a data set, the same at every call; raises MissingDataError if they are not available."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    try:
        return FAMILIES[FAMILY_OF[name]][name](rng)
    except DatasetError as error:
        raise MissingDataError(str(error)) from error
