"""Benchmark inputs: MNIST, patches of scikit-learn's sample images, and dictionaries drawn from either."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

SEED = 0
PATCH = 8
ADBENCH_NAMES = ("Cardiotocography", "SpamBase", "Stamps", "Waveform", "Wilt", "annthyroid", "campaign", "celeba")
ADBENCH_NAMES += ("donors", "http", "magic.gamma", "skin")
ODDS_NAMES = ("arrhythmia", "cardio", "glass", "letter", "mnist", "musk", "pendigits", "satellite", "vowels")


class MissingDataError(Exception):
    """The inputs are not on this machine; the message says how to get them."""


@lru_cache(maxsize=2)
def mnist(data_dir: str | None, tiny: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's training images as float32 signals of unit norm, and their labels.

    Tiny runs use scikit-learn's bundled digits instead.
    """
    from sklearn.preprocessing import normalize

    if tiny:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        return normalize(images).astype(np.float32), labels
    from rkdl.datasets import DatasetError, fetch_mnist

    try:
        images, labels = fetch_mnist(data_home=data_dir, download_if_missing=False, return_X_y=True)
    except DatasetError as error:
        raise MissingDataError(
            f"MNIST was not found ({error}); give its folder with --data-dir or RKDL_DATA"
        ) from error
    return normalize(images).astype(np.float32), labels


def adbench(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Signals and labels (1 for outliers) of an ADBench data set, ``adbench/NAME.npz`` in the data folder."""
    from rkdl.datasets import get_data_home

    path = get_data_home() / "adbench" / f"{name}.npz"
    if not path.exists():
        raise MissingDataError(f"there is no {path}; give the data folder as RKDL_DATA")
    with np.load(path) as found:
        return found["X"].astype(np.float64), found["y"].ravel().astype(int)


def odds(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Signals and labels (1 for outliers) of an ODDS data set, ``odds/NAME.mat`` in the data folder."""
    from scipy.io import loadmat

    from rkdl.datasets import get_data_home

    path = get_data_home() / "odds" / f"{name}.mat"
    if not path.exists():
        raise MissingDataError(f"there is no {path}; give the data folder as RKDL_DATA")
    found = loadmat(path)
    return np.ascontiguousarray(found["X"], dtype=np.float64), found["y"].ravel().astype(int)


def digit_four(data_dir: str | None, tiny: bool = False) -> np.ndarray:
    """The signals of digit 4: 5,842 of them."""
    signals, labels = mnist(data_dir, tiny)
    return np.ascontiguousarray(signals[labels == 4])


def enlarged_mnist(count: int, data_dir: str | None, tiny: bool = False) -> np.ndarray:
    """`count` signals of unit norm: MNIST shuffled, repeated with a little noise once exhausted."""
    signals, _ = mnist(data_dir, tiny)
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(signals))
    rows = [signals[order[:count]]]
    missing = count - len(signals)
    while missing > 0:
        again = signals[rng.permutation(len(signals))[:missing]]
        again += rng.normal(0.0, 0.01, again.shape).astype(np.float32)
        again /= np.linalg.norm(again, axis=1, keepdims=True)
        rows.append(again)
        missing -= len(again)
    return np.ascontiguousarray(np.concatenate(rows))


@lru_cache(maxsize=1)
def patches(count: int) -> np.ndarray:
    """Random distinct grey 8 x 8 patches of the sample images, means removed, float32."""
    try:
        from sklearn.datasets import load_sample_images

        images = load_sample_images().images
    except ImportError as error:
        raise MissingDataError(f"scikit-learn's sample images cannot be read: {error}; pip install pillow") from error
    weights = np.array([0.299, 0.587, 0.114]) / 255.0
    windows = np.stack([sliding_window_view(image @ weights, (PATCH, PATCH)) for image in images])
    rng = np.random.default_rng(SEED)
    n_places = int(np.prod(windows.shape[:3]))
    # Draw a tenth more to make up for flat patches.
    places = rng.choice(n_places, min(n_places, count + count // 10 + 64), replace=False)
    rows = windows[np.unravel_index(places, windows.shape[:3])].reshape(len(places), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows = rows[np.abs(rows).max(axis=1) > 1e-6][:count]
    if len(rows) < count:
        raise MissingDataError(f"the sample images hold {len(rows)} patches that are not flat, not {count}")
    return rows.astype(np.float32)


def pick_dictionary(signals: np.ndarray, n_atoms: int) -> np.ndarray:
    """`n_atoms` random non-zero signals scaled to unit norm, no two nearly parallel; float32."""
    rng = np.random.default_rng(SEED + 1)
    norms = np.linalg.norm(signals, axis=1)
    usable = np.flatnonzero(norms > 1e-2 * norms.max())
    candidates = rng.permutation(usable)[: 8 * n_atoms]
    rows = signals[candidates] / norms[candidates, None]
    chosen: list[int] = []
    for number, row in enumerate(rows):
        if not chosen or np.abs(rows[chosen] @ row).max() < 0.99:
            chosen.append(number)
        if len(chosen) == n_atoms:
            return np.ascontiguousarray(rows[chosen], dtype=np.float32)
    raise MissingDataError(f"only {len(chosen)} different atoms among the signals, {n_atoms} are needed")


def encode_inputs(
    source: str, n_signals: int, n_atoms: int, data_dir: str | None, tiny: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Signals, and a dictionary of other signals from the same source; "noisy" adds noise to every pixel of MNIST."""
    if source in ("mnist", "noisy"):
        signals, _ = mnist(data_dir, tiny)
        rng = np.random.default_rng(SEED)
        signals = signals[rng.permutation(len(signals))]
        if source == "noisy":
            signals = signals + rng.normal(0.0, 1e-3, signals.shape).astype(signals.dtype)
    else:
        # One draw, so that encode-c, encode-d and dl share their signals.
        signals = patches(2_000 if tiny else 220_000)
    rest = signals[n_signals:]
    return np.ascontiguousarray(signals[:n_signals]), pick_dictionary(rest, n_atoms)


def random_inputs(n_signals: int, n_features: int, n_atoms: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of `s` random atoms with noise, and the atoms, of unit norm; float32."""
    rng = np.random.default_rng(SEED)
    atoms = rng.standard_normal((n_atoms, n_features), dtype=np.float32)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    weights = np.zeros((n_signals, n_atoms), dtype=np.float32)
    chosen = rng.random(weights.shape, dtype=np.float32).argpartition(s, axis=1)[:, :s]
    np.put_along_axis(weights, chosen, rng.standard_normal(chosen.shape, dtype=np.float32), axis=1)
    noise = rng.standard_normal((n_signals, n_features), dtype=np.float32)
    return weights @ atoms + np.float32(0.05) * noise, atoms
