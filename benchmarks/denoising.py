"""Denoising benchmark; prints the tables of docs/denoising-results.md.

    RKDL_DATA=/path/to/data python -m benchmarks.denoising --write

runs scikit-learn's kernel-PCA denoising example with MNIST in place of USPS, on whole images as in the example (`--only
digits`) and on patches of them (`--only patches`); 8 x 8 patches of scikit-learn's sample images (`--only images`); and
generated and bundled signals at three levels of noise, with and without telling the methods the level (`--only noise`).
`--write` puts the tables into the page and the pictures into docs/images; `--small` uses scikit-learn's digits and
small sizes. The method was developed with seed 0, that of the example; `--only confirm` repeats the digits with the
unused seeds 1 and 2.

PCA, KernelPCA and total variation get the settings that are best on the test images. The settings of rkdl are chosen on
the training images, or are fixed.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA, KernelPCA
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from benchmarks.data import MissingDataError
from benchmarks.pages import put
from rkdl import DL, ORKDL

PAGE = Path(__file__).parent.parent / "docs" / "denoising-results.md"
DIGITS_PLOT = PAGE.parent / "images" / "denoised_digits.png"
PATCHES_PLOT = PAGE.parent / "images" / "denoised_digits_patches.png"
PULSES_PLOT = PAGE.parent / "images" / "denoised_pulses.png"
IMAGES_PLOT = PAGE.parent / "images" / "denoised_images.png"
SEED = 0
NOISE = 0.25
PATCH = 8
GREY = np.array([0.299, 0.587, 0.114]) / 255.0
# For patches of both photographs at both noise levels; best of 0.008 to 0.3 on china.jpg at noise 0.1.
GAMMA = 0.05


class Digits:
    """Images of the example, clean and noisy: 1,000 for training and 100 for testing."""

    def __init__(self, small: bool, seed: int = SEED) -> None:
        if small:
            from sklearn.datasets import load_digits

            images, labels = load_digits(return_X_y=True)
        else:
            from rkdl.datasets import DatasetError, fetch_mnist

            try:
                images, labels = fetch_mnist(subset="all", download_if_missing=False, return_X_y=True)
            except DatasetError as error:
                raise MissingDataError(f"MNIST was not found ({error}); give its folder with RKDL_DATA") from error
        self.side = round(images.shape[1] ** 0.5)
        self.patch = min(PATCH, self.side // 2)
        images = MinMaxScaler().fit_transform(images.astype(np.float64))
        sizes = {"train_size": 200, "test_size": 20} if small else {"train_size": 1000, "test_size": 100}
        train, test, _, _ = train_test_split(images, labels, stratify=labels, random_state=seed, **sizes)
        rng = np.random.RandomState(seed)
        self.train, self.test = train, test
        self.noisy_test = test + rng.normal(scale=NOISE, size=test.shape)
        self.noisy_train = train + rng.normal(scale=NOISE, size=train.shape)

    def error(self, cleaned: np.ndarray) -> float:
        return mean_square(cleaned - self.test)

    def patches(self, rows: np.ndarray) -> np.ndarray:
        """All overlapping patches of the images, one per row, float32."""
        images = rows.reshape(-1, self.side, self.side)
        found = [extract_patches_2d(image, (self.patch, self.patch)) for image in images]
        return np.concatenate(found).reshape(-1, self.patch**2).astype(np.float32)

    def joined(self, patches: np.ndarray) -> np.ndarray:
        """Images with overlapping patches averaged."""
        count = (self.side - self.patch + 1) ** 2
        blocks = patches.astype(np.float64).reshape(-1, count, self.patch, self.patch)
        images = [reconstruct_from_patches_2d(block, (self.side, self.side)) for block in blocks]
        return np.array(images).reshape(len(blocks), -1)


def mean_square(values: np.ndarray) -> float:
    return float(np.mean(np.square(values)))


def best_pca(train: np.ndarray, test: np.ndarray, sizes: Sequence[int], judge: Callable) -> tuple:
    """Lowest error over numbers of components, that number, and the cleaned images."""
    found = []
    whole = PCA(random_state=SEED).fit(train)
    for size in sizes:
        if size <= len(whole.components_):
            axes = whole.components_[:size]
            cleaned = whole.mean_ + (test - whole.mean_) @ axes.T @ axes
            found.append((judge(cleaned), size, cleaned))
    return min(found, key=lambda item: item[0])


def in_blocks(function: Callable, rows: np.ndarray) -> np.ndarray:
    """Apply `function` to a few rows at a time."""
    return np.concatenate([function(rows[start : start + 4096]) for start in range(0, len(rows), 4096)])


def best_kernel_pca(
    train: np.ndarray,
    test: np.ndarray,
    gammas: Sequence[float],
    sizes: Sequence[int],
    alphas: Sequence[float],
    judge: Callable,
) -> tuple:
    """Lowest error over gamma, number of components and alpha, those three, and the cleaned images.

    Equivalent to KernelPCA's inverse_transform, with one eigendecomposition for all alphas.
    """
    best: tuple = (np.inf, None, None)
    for gamma in gammas:
        most = min(max(sizes), len(train))
        model = KernelPCA(most, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(train)
        train_codes, test_codes = model.transform(train), in_blocks(model.transform, test)
        for size in sorted({min(size, train_codes.shape[1]) for size in sizes}):
            own = train_codes[:, :size]
            values, vectors = np.linalg.eigh(rbf_kernel(own, gamma=gamma))
            right = vectors.T @ train
            duals = np.hstack([(vectors / (values + alpha)) @ right for alpha in alphas])

            def decode(codes: np.ndarray, own=own, duals=duals, gamma=gamma) -> np.ndarray:
                return rbf_kernel(codes, own, gamma=gamma) @ duals

            cleaned = in_blocks(decode, test_codes[:, :size]).reshape(len(test), len(alphas), -1)
            for number, alpha in enumerate(alphas):
                error = judge(cleaned[:, number])
                if error < best[0]:
                    best = (error, (gamma, size, alpha), cleaned[:, number])
    return best


def learner(kind: str, n_atoms: int, gamma: float | None, small: bool) -> DL | ORKDL:
    """The estimator for patches."""
    common = {"n_nonzero_coefs": 4, "max_iter": 3 if small else 10, "random_state": SEED}
    if kind == "DL":
        return DL(n_atoms, **common)
    vectors = 30 if small else 200
    return ORKDL(n_atoms, n_kernel_vectors=vectors, gamma=gamma, fit_inverse_transform=True, **common)


def choose_on_training_images(digits: Digits, kind: str, grid: Sequence[tuple], small: bool) -> tuple:
    """The setting with the lowest error on a tenth of the training images, trained on the others."""
    held = len(digits.train) // 10
    patches = drawn(digits.patches(digits.noisy_train[held:]), 2_000 if small else 10_000)
    given = digits.patches(digits.noisy_train[:held])
    errors = {}
    for n_atoms, gamma in grid:
        model = learner(kind, n_atoms, gamma, small).fit(patches)
        cleaned = digits.joined(model.denoise(given, noise=NOISE))
        errors[n_atoms, gamma] = mean_square(cleaned - digits.train[:held])
    return min(errors, key=errors.__getitem__)


def drawn(rows: np.ndarray, count: int) -> np.ndarray:
    """At most `count` random rows."""
    rng = np.random.RandomState(SEED)
    return rows[rng.choice(len(rows), min(count, len(rows)), replace=False)]


Found = tuple[list[tuple[str, float, str]], dict[str, np.ndarray]]


def clean_whole(digits: Digits, small: bool) -> Found:
    """Errors and pictures for whole images, as in the example."""
    train, test = digits.noisy_train, digits.noisy_test
    rows: list[tuple[str, float, str]] = [("noisy images", digits.error(test), "")]
    pictures = {"original": digits.test, "noisy": test}

    sizes = (4, 8, 16, 24, 32, 40, 50, 64, 80, 100, 128, 200)
    error, size, pictures["PCA"] = best_pca(train, test, sizes, digits.error)
    rows.append(("PCA, best on the test images", error, f"{size} components"))
    model = KernelPCA(
        n_components=100 if small else 400,
        kernel="rbf",
        gamma=1e-3,
        fit_inverse_transform=True,
        alpha=5e-3,
        random_state=SEED,
    ).fit(train)
    rows.append(
        ("KernelPCA, settings of the example", digits.error(model.inverse_transform(model.transform(test))), "")
    )
    wide = (32, 100, 1000) if small else (32, 100, 200, 400, 1000)
    error, chosen, _ = best_kernel_pca(train, test, (1e-3,), wide, (5e-3,), digits.error)
    rows.append(("KernelPCA of the example, best components", error, f"{chosen[1]} components"))
    gammas = (1e-3, 4e-3) if small else (3e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    alphas = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 0.1, 1.0)
    error, chosen, pictures["KernelPCA"] = best_kernel_pca(train, test, gammas, wide, alphas, digits.error)
    note = f"gamma {chosen[0]:g}, {chosen[1]} components, alpha {chosen[2]:g}"
    rows.append(("KernelPCA, all three best on the test images", error, note))

    n_atoms, n_vectors = (30, 60) if small else (200, 400)
    whole = ORKDL(n_atoms, n_kernel_vectors=n_vectors, gamma=4e-3, max_iter=10, random_state=SEED).fit(train)
    whole.set_params(n_nonzero_coefs=n_atoms // 3)
    rows.append(("ORKDL on whole images, fixed point", digits.error(whole.denoise(test)), "fixed"))
    whole.set_params(decoder_alpha=0.1).fit_decoder(train)
    pictures["ORKDL"] = whole.denoise(test)
    rows.append(("ORKDL on whole images, decoder", digits.error(pictures["ORKDL"]), "fixed"))

    return rows, pictures


def clean_by_patches(digits: Digits, small: bool) -> Found:
    """Errors and pictures for the same images, by overlapping patches."""
    rows: list[tuple[str, float, str]] = []
    pictures = {"original": digits.test, "noisy": digits.noisy_test}
    patches, given = digits.patches(digits.noisy_train), digits.patches(digits.noisy_test)

    def judge(cleaned: np.ndarray) -> float:
        return digits.error(digits.joined(cleaned))

    sizes = (1, 2, 3, 4, 6, 8, 12, 16, 24)
    error, size, _ = best_pca(drawn(patches, 20_000), given, sizes, judge)
    rows.append(("PCA on patches, best on the test images", error, f"{size} components"))
    few = drawn(patches, 300 if small else 1_000).astype(np.float64)
    gammas = (0.02,) if small else (5e-4, 2e-3, 5e-3, 0.02)
    error, chosen, _ = best_kernel_pca(few, given, gammas, (8, 16, 24, 40), (1e-4, 1e-3, 0.01, 0.1), judge)
    note = f"gamma {chosen[0]:g}, {chosen[1]} components, alpha {chosen[2]:g}; {len(few):,} patches"
    rows.append(("KernelPCA on patches, best on the test images", error, note))

    atoms = (40,) if small else (128, 256)
    learned = drawn(patches, 3_000 if small else 30_000)
    n_atoms, _ = choose_on_training_images(digits, "DL", [(n, None) for n in atoms], small)
    model = learner("DL", n_atoms, None, small).fit(learned)
    pictures["DL"] = digits.joined(model.denoise(given, noise=NOISE))
    rows.append(("DL on patches", digits.error(pictures["DL"]), f"{n_atoms} atoms, chosen on training images"))
    grid = list(itertools.product(atoms, (0.02,) if small else (0.01, 0.02, 0.05)))
    n_atoms, gamma = choose_on_training_images(digits, "ORKDL", grid, small)
    model = learner("ORKDL", n_atoms, gamma, small).fit(learned)
    pictures["ORKDL"] = digits.joined(model.denoise(given, noise=NOISE))
    note = f"{n_atoms} atoms, gamma {gamma:g}, chosen on training images"
    rows.append(("ORKDL on patches, decoder", digits.error(pictures["ORKDL"]), note))
    del model.decoder_, model.decoder_intercept_
    rows.append(("ORKDL on patches, fixed point", judge(model.denoise(given, noise=NOISE)), "the same model"))

    return rows, pictures


def measure_digits(small: bool, plots: bool) -> Iterator[str]:
    """The example on whole images."""
    digits = Digits(small)
    rows, pictures = clean_whole(digits, small)
    if plots:
        plot_digits(pictures, digits.side, DIGITS_PLOT)
    yield from error_table(rows)


def measure_patches(small: bool, plots: bool) -> Iterator[str]:
    """The same images by overlapping patches."""
    digits = Digits(small)
    rows, pictures = clean_by_patches(digits, small)
    if plots:
        plot_digits(pictures, digits.side, PATCHES_PLOT)
    yield from error_table(rows)


def measure_confirm(small: bool, plots: bool) -> Iterator[str]:
    """Both with other images and other noise."""
    found: dict[str, list[str]] = {}
    for seed in (1, 2):
        digits = Digits(small, seed)
        for name, error, _ in clean_whole(digits, small)[0] + clean_by_patches(digits, small)[0]:
            found.setdefault(name, []).append(f"{error:.5f}")
    yield from table(("method", "seed 1", "seed 2"), [(name, *errors) for name, errors in found.items()])


def error_table(rows: Sequence[tuple[str, float, str]]) -> Iterator[str]:
    cells = [(name, f"{error:.5f}", note) for name, error, note in rows]
    return table(("method", "mean squared error", "settings"), cells)


def total_variation(noisy: np.ndarray, weight: float, n_steps: int = 200) -> np.ndarray:
    """Minimiser of ``|u - noisy|^2 / 2 + weight * TV(u)``, by Chambolle's projections."""
    dual = np.zeros((2, *noisy.shape))
    step = 0.25
    for _ in range(n_steps):
        divergence = -dual.sum(axis=0)
        divergence[1:] += dual[0, :-1]
        divergence[:, 1:] += dual[1, :, :-1]
        image = noisy + divergence
        gradient = np.zeros_like(dual)
        gradient[0, :-1] = np.diff(image, axis=0)
        gradient[1, :, :-1] = np.diff(image, axis=1)
        lengths = np.sqrt(np.square(gradient).sum(axis=0))
        dual = (dual - step * gradient) / (1.0 + step * lengths / weight)
    return image


def grey_image(name: str, small: bool) -> np.ndarray:
    """The centre of one of scikit-learn's sample images, in grey, from 0 to 1."""
    from sklearn.datasets import load_sample_image

    image = load_sample_image(name) @ GREY
    side = 64 if small else 256
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    return image[top : top + side, left : left + side]


def decibels(cleaned: np.ndarray, image: np.ndarray) -> float:
    return -10.0 * float(np.log10(mean_square(cleaned - image)))


def clean_patches(noisy: np.ndarray, model: DL | ORKDL, noise: float, count: int) -> np.ndarray:
    """Learn from the image's own noisy patches, means removed; denoise them and average where they overlap."""
    patches = extract_patches_2d(noisy, (PATCH, PATCH)).reshape(-1, PATCH**2).astype(np.float32)
    means = patches.mean(axis=1, keepdims=True)
    patches -= means
    model.fit(drawn(patches, count))
    cleaned = model.denoise(patches, noise=noise) + means
    return reconstruct_from_patches_2d(cleaned.astype(np.float64).reshape(-1, PATCH, PATCH), noisy.shape)


def measure_images(small: bool, plots: bool) -> Iterator[str]:
    """PSNR of two images at two noise levels."""
    n_atoms, count = (40, 1_500) if small else (256, 20_000)
    rows, pictures = [], {}
    for name, noise in itertools.product(("china.jpg", "flower.jpg"), (0.05, 0.1)):
        image = grey_image(name, small)
        noisy = image + np.random.RandomState(SEED).normal(scale=noise, size=image.shape)
        weights = noise * np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5])
        smoothed = max((total_variation(noisy, weight) for weight in weights), key=lambda u: decibels(u, image))
        found = {"noisy": noisy, "total variation": smoothed}
        found["DL"] = clean_patches(noisy, learner("DL", n_atoms, None, small), noise, count)
        model = learner("ORKDL", n_atoms, GAMMA, small)
        found["ORKDL, decoder"] = clean_patches(noisy, model, noise, count)
        found["ORKDL, fixed point"] = clean_patches(noisy, model.set_params(fit_inverse_transform=False), noise, count)
        rows.append((name, f"{noise:g}", *(f"{decibels(value, image):.2f}" for value in found.values())))
        if noise == 0.1:
            pictures[name] = {"original": image, **found}
    names = ("noisy", "total variation, best weight", "DL", "ORKDL, decoder", "ORKDL, fixed point")
    yield from table(("image", "noise", *names), rows)
    if plots:
        plot_images(pictures, IMAGES_PLOT)


def pulses(rng: np.random.Generator) -> np.ndarray:
    """Beats of a sharp peak, a slow wave and, in some, an early extra peak, at random positions and widths."""
    time, count = np.linspace(0.0, 1.0, 96), 3000

    def bump(centre: np.ndarray, width: np.ndarray | float, height: np.ndarray) -> np.ndarray:
        return height * np.exp(-0.5 * ((time - centre) / width) ** 2)

    def uniform(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (count, 1))

    centre = uniform(0.25, 0.6)
    wave = bump(centre + uniform(0.2, 0.3), uniform(0.04, 0.06), uniform(0.25, 0.45))
    extra = bump(centre - 0.2, 0.015, 0.5 * (uniform(0.0, 1.0) < 0.2))
    return bump(centre, uniform(0.012, 0.02), uniform(0.8, 1.2)) + wave + extra


def digits_of_scikit_learn(rng: np.random.Generator) -> np.ndarray:
    """Images of 8 x 8 pixels from 0 to 1."""
    from sklearn.datasets import load_digits

    return load_digits().data / 16.0


def patches_of_a_photograph(rng: np.random.Generator) -> np.ndarray:
    """Patches of 8 x 8 pixels without their means."""
    from sklearn.datasets import load_sample_image

    image = load_sample_image("china.jpg") @ GREY
    patches = extract_patches_2d(image, (PATCH, PATCH), max_patches=3000, random_state=SEED).reshape(3000, -1)
    return patches - patches.mean(axis=1, keepdims=True)


def spectra(rng: np.random.Generator) -> np.ndarray:
    """Twelve Gaussian peaks of random heights on curved baselines."""
    axis = np.linspace(0.0, 1.0, 200)
    peaks = np.exp(-0.5 * ((axis - rng.random((12, 1))) / rng.uniform(0.005, 0.03, (12, 1))) ** 2)
    baselines = rng.uniform(0.5, 2.0, (3000, 1)) + rng.normal(0.0, 0.5, (3000, 1)) * (axis - 0.5) ** 2
    return rng.gamma(0.7, 1.0, (3000, 12)) @ peaks + baselines


def curves(rng: np.random.Generator) -> np.ndarray:
    """Sinusoids of four frequencies with random phases and amplitudes."""
    time, frequency = np.linspace(0.0, 1.0, 128, endpoint=False), rng.choice([2.0, 3.0, 5.0, 8.0], (3000, 1))
    phase, amplitude = rng.uniform(0.0, 2.0 * np.pi, (3000, 1)), rng.uniform(0.5, 1.5, (3000, 1))
    return amplitude * np.sin(2.0 * np.pi * frequency * time + phase)


# Makers of signals, and standard deviations of the noise.
SIGNALS: dict[Callable[[np.random.Generator], np.ndarray], tuple[float, float, float]] = {
    pulses: (0.05, 0.15, 0.3),
    digits_of_scikit_learn: (0.1, 0.25, 0.5),
    patches_of_a_photograph: (0.05, 0.1, 0.2),
    spectra: (0.05, 0.2, 0.5),
    curves: (0.05, 0.2, 0.5),
}


def measure_noise(small: bool, plots: bool) -> Iterator[str]:
    """Errors with and without the level of the noise: methods learn from the noisy signals that they denoise."""
    rows, gains = [], {"DL": 0, "ORKDL": 0, "ORKDL, fixed point": 0}
    for make, levels in SIGNALS.items():
        for noise in levels:
            rng = np.random.default_rng(SEED)
            clean = make(rng)[: 300 if small else None]
            noisy = clean + noise * rng.standard_normal(clean.shape)
            sizes = range(1, min(clean.shape) + 1)
            linear = best_pca(noisy, noisy, sizes, lambda rows, clean=clean: mean_square(rows - clean))
            errors, cleaned = [noise**2, linear[0]], {"PCA, best size": linear[2]}
            models = {
                "DL": DL(40, random_state=SEED),
                "ORKDL": ORKDL(40, n_kernel_vectors=100, fit_inverse_transform=True, random_state=SEED),
                "ORKDL, fixed point": ORKDL(40, n_kernel_vectors=100, random_state=SEED),
            }
            for name, model in models.items():
                model.fit(noisy)
                found = [model.denoise(noisy, noise=known) for known in (None, noise)]
                cleaned[name] = found[1]
                pair = [mean_square(signals - clean) for signals in found]
                errors += pair
                gains[name] += pair[1] < pair[0]
            if plots and (make, noise) == (pulses, 0.15):
                plot_pulses(clean, noisy, cleaned, PULSES_PLOT)
            rows.append((make.__name__.replace("_", " "), f"{noise:g}", *(f"{error:.5f}" for error in errors)))
    names = (f"{name}{text}" for name in gains for text in ("", ", noise level given"))
    yield from table(("signals", "noise", "noisy", "PCA, best size", *names), rows)
    yield ""
    yield " ".join(f"{name} is better with the level in {count} of {len(rows)}." for name, count in gains.items())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def plot_digits(pictures: dict[str, np.ndarray], side: int, path: Path) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use("rkdl.figures")
    figure = Figure(figsize=(10, 1.05 * len(pictures)), layout="constrained")
    axes = figure.subplots(len(pictures), 10)
    for row, (name, images) in zip(axes, pictures.items(), strict=True):
        for axis, image in zip(row, images, strict=False):
            axis.imshow(image.reshape(side, side), cmap="gray", vmin=0.0, vmax=1.0)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=90)


def plot_pulses(clean: np.ndarray, noisy: np.ndarray, cleaned: dict[str, np.ndarray], path: Path) -> None:
    """The first pulses that have an early extra peak."""
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use("rkdl.figures")
    figure = Figure(figsize=(9.5, 2.9), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    time = np.linspace(0.0, 1.0, clean.shape[1])
    for panel, number in zip(panels, np.flatnonzero(clean[:, time < 0.2].max(axis=1) > 0.3), strict=False):
        panel.plot(time, noisy[number], color="0.75", linewidth=1, label="noisy")
        panel.plot(time, clean[number], color="black", linewidth=1, linestyle=":", label="truth")
        for name, color in {"PCA, best size": "C1", "ORKDL": "C0"}.items():
            error = mean_square(cleaned[name] - clean)
            panel.plot(time, cleaned[name][number], color=color, label=f"{name}: error {error:.4f}")
        panel.set(xticks=[], xlabel="time")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=100)


def plot_images(pictures: dict[str, dict[str, np.ndarray]], path: Path) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use("rkdl.figures")
    names = list(next(iter(pictures.values())))
    figure = Figure(figsize=(2.4 * len(names), 2.6 * len(pictures)), layout="constrained")
    axes = figure.subplots(len(pictures), len(names), squeeze=False)
    for row, found in zip(axes, pictures.values(), strict=True):
        for axis, (name, image) in zip(row, found.items(), strict=True):
            axis.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
            quality = "" if name == "original" else f", {decibels(image, found['original']):.2f} dB"
            axis.set_title(name + quality, fontsize=9)
            axis.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=90)


PARTS: dict[str, Callable[[bool, bool], Iterator[str]]] = {
    "digits": measure_digits,
    "patches": measure_patches,
    "confirm": measure_confirm,
    "images": measure_images,
    "noise": measure_noise,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=list(PARTS), action="append")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/denoising-results.md")
    parser.add_argument("--small", action="store_true", help="small sizes, to check the code")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", UserWarning)
    for part in options.only or PARTS:
        start = time.perf_counter()
        lines = list(PARTS[part](options.small, options.write))
        print(f"\n{part} ({time.perf_counter() - start:.0f} s)\n", *lines, sep="\n", flush=True)
        if options.write:
            put(PAGE, part, ["", *lines, ""])


if __name__ == "__main__":
    main()
