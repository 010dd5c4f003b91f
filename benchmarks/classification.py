"""KDLClassifier on MNIST: choice of settings, results, and comparison with other classifiers on smaller samples.

Run with ``python -m benchmarks.classification [--only PART ...] [--write] [--data-dir DIR]``. Tables are printed and
saved under results/; ``--write`` also puts them into docs/classification.md. The settings were chosen by validation on
the training images alone; the part "choice" is the last step, and the test images were used only after it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.svm import SVC

from benchmarks.pages import put
from rkdl import DL, RKDL, FourierDL, KDLClassifier
from rkdl.datasets import normalize_signals

PAGE = Path(__file__).parent.parent / "docs" / "classification.md"
SEED = 0
VALIDATION_SEED = 1
NOISE_SEED = 2

# Settings selected by the part "choice".
GAMMA = 0.7
ATOMS = {"n_components": 640, "n_nonzero_coefs": 10, "max_iter": 5, "tol": 0.0}
KERNEL = {"n_kernel_vectors": 1000, "kernel_vectors": "random", "gamma": GAMMA}
PASSES = 4

# Standard deviations of the noise and shares of missing pixels; pixels are in [0, 1].
NOISES = (0.1, 0.2, 0.3)
MISSING = (0.25, 0.5, 0.75)

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load_images(data_dir: str | None, small: bool) -> Split:
    """Training and test images in float32 with pixels in [0, 1], and their labels."""
    if small:
        images, labels = load_digits(return_X_y=True)
        images = (images / 16.0).astype(np.float32)
        return images[:400], labels[:400], images[400:600], labels[400:600]
    from rkdl.datasets import fetch_mnist

    parts: list[np.ndarray] = []
    for subset in ("train", "test"):
        images, labels = fetch_mnist(subset=subset, data_home=data_dir, return_X_y=True)
        parts += [(images / 255.0).astype(np.float32), labels]
    return parts[0], parts[1], parts[2], parts[3]


def shrink(settings: dict, small: bool) -> dict:
    """Reduce the settings for a run that only checks the code."""
    if not small:
        return settings
    sizes = {"n_components": 8, "n_nonzero_coefs": 3, "n_kernel_vectors": 40, "n_fourier_features": 40, "max_iter": 2}
    return {key: sizes.get(key, value) for key, value in settings.items()}


def classifier(small: bool = False, passes: int = PASSES, **changes: Any) -> KDLClassifier:
    """The classifier with the chosen settings."""
    method = RKDL(**shrink({**ATOMS, **KERNEL, **changes}, small))
    return KDLClassifier(method, n_refinements=passes, random_state=SEED)


def warm_up(model: Any, images: np.ndarray, labels: np.ndarray) -> None:
    """Load compiled code before anything is timed."""
    few = clone(model)
    few.set_params(estimator__n_components=16, estimator__max_iter=1, n_refinements=1)
    if "estimator__n_kernel_vectors" in few.get_params():
        few.set_params(estimator__n_kernel_vectors=32)
    few.fit(normalize_signals(images[:400]), labels[:400]).predict(normalize_signals(images[:400]))


def measure(model: Any, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> tuple[float, ...]:
    """Accuracy, and seconds for training and prediction."""
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    predicted = model.predict(X_new)
    ended = time.perf_counter()
    return float(np.mean(predicted == y_new)), fitted - start, ended - fitted


def cross_entropy(model: KDLClassifier, X: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log-probability of the true class."""
    probabilities = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(-np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)).mean())


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def choice(split: Split, small: bool) -> Iterator[str]:
    """Candidates, on 10,000 held-out training images."""
    X, y = normalize_signals(split[0]), split[1]
    order = np.random.RandomState(VALIDATION_SEED).permutation(len(X))
    size = len(X) // 6
    inner, held_out = order[size:], order[:size]
    candidates: list[tuple[str, dict]] = [
        ("640 atoms, 10 non-zeros, 1,000 kernel vectors, gamma 0.7, 2 passes", {}),
        ("no refinement", {"passes": 0}),
        ("4 passes (chosen)", {"passes": 4}),
        ("400 atoms", {"n_components": 400}),
        ("5 non-zeros", {"n_nonzero_coefs": 5}),
        ("500 kernel vectors", {"n_kernel_vectors": 500}),
        ("gamma 0.35", {"gamma": 0.35}),
        ("gamma 1.4", {"gamma": 1.4}),
    ]
    warm_up(classifier(small), split[0], y)
    yield f"{len(inner):,} training images, {size:,} held-out images:"
    yield ""
    yield "| settings | accuracy | cross-entropy |"
    yield "|---|---|---|"
    for name, changes in candidates:
        model = classifier(small, **{"passes": 2, **changes})
        accuracy, _, _ = measure(model, X[inner], y[inner], X[held_out], y[held_out])
        loss = cross_entropy(model, X[held_out], y[held_out])
        yield f"| {name} | {percent(accuracy)} | {loss:.4f} |"


def full(split: Split, small: bool) -> Iterator[str]:
    """All training and test images."""
    images, y, test_images, y_new = split
    X, X_new = normalize_signals(images), normalize_signals(test_images)
    models: list[tuple[str, KDLClassifier]] = [
        ("`KDLClassifier` on `RKDL`", classifier(small)),
        ("the same without refinement", classifier(small, passes=0)),
    ]
    warm_up(models[0][1], images, y)
    yield f"{len(X):,} training and {len(X_new):,} test images:"
    yield ""
    yield "| classifier | test accuracy | cross-entropy | training | testing | total |"
    yield "|---|---|---|---|---|---|"
    for name, model in models:
        accuracy, learning, testing = measure(model, X, y, X_new, y_new)
        loss = cross_entropy(model, X_new, y_new)
        times = f"{learning:.1f} s | {testing:.1f} s | {learning + testing:.1f} s"
        yield f"| {name} | {percent(accuracy)} | {loss:.4f} | {times} |"


def digits(split: Split, small: bool) -> Iterator[str]:
    """Effect of refinement on a small data set, scikit-learn's digits, with the defaults of every method."""
    X, y = load_digits(return_X_y=True)
    X = normalize_signals(X[:300] if small else X)
    y = y[: len(X)]
    passes = (0, 2, 4)
    n_splits, n_repeats = (2, 1) if small else (5, 4)
    folds = RepeatedStratifiedKFold(n_splits=n_splits, n_repeats=n_repeats, random_state=VALIDATION_SEED)
    yield f"{len(X):,} digits of 8 x 8 pixels, five-fold cross-validation, mean ± standard error:"
    yield ""
    yield "| method | " + " | ".join(f"{count} passes" for count in passes) + " |"
    yield "|---" * (1 + len(passes)) + "|"
    for name in ("DL", "FourierDL", "RKDL", "ORKDL", "MORKDL"):
        cells = []
        for count in passes:
            model = KDLClassifier(name, n_refinements=count, random_state=SEED)
            means = cross_val_score(model, X, y, cv=folds).reshape(-1, n_splits).mean(axis=1)
            spread = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
            cells.append(f"{percent(means.mean())} ± {100 * spread:.2f}")
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def corrupted(images: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Test images as they are, with Gaussian noise, and with missing pixels, scaled to unit norm."""
    rng = np.random.default_rng(NOISE_SEED)
    yield "clean", normalize_signals(images)
    for deviation in NOISES:
        noisy = images + rng.normal(0.0, deviation, images.shape).astype(np.float32)
        yield f"noise {deviation}", normalize_signals(noisy)
    for share in MISSING:
        yield f"{100 * share:.0f} % missing", normalize_signals(images * (rng.random(images.shape) >= share))


def corrupted_rows(
    models: list[tuple[str, Any]], X: np.ndarray, y: np.ndarray, images: np.ndarray, labels: np.ndarray
) -> Iterator[str]:
    """One row per model: accuracy on every kind of test images, and seconds for training and testing."""
    kinds = list(corrupted(images))
    yield "| classifier | " + " | ".join(name for name, _ in kinds) + " | training | testing |"
    yield "|---" * (len(kinds) + 3) + "|"
    for name, model in models:
        cells = []
        for number, (_, X_new) in enumerate(kinds):
            if number == 0:
                accuracy, learning, testing = measure(model, X, y, X_new, labels)
            else:
                accuracy = float(np.mean(model.predict(X_new) == labels))
            cells.append(percent(accuracy))
        yield f"| {name} | " + " | ".join(cells) + f" | {learning:.1f} s | {testing:.1f} s |"


def noise(split: Split, small: bool) -> Iterator[str]:
    """Corrupted test images, all training images: kernel methods against the linear one."""
    images, y, test_images, y_new = split
    linear = DL(**shrink({**ATOMS, "n_components": 200}, small))
    fourier = FourierDL(**shrink({**ATOMS, "n_fourier_features": 2000, "gamma": GAMMA}, small))
    models = [
        ("`RKDL`", classifier(small)),
        ("the same without refinement", classifier(small, passes=0)),
        ("`FourierDL`", KDLClassifier(fourier, n_refinements=2, random_state=SEED)),
        ("`DL`", KDLClassifier(linear, n_refinements=PASSES, random_state=SEED)),
        ("`DL` without refinement", KDLClassifier(linear, n_refinements=0, random_state=SEED)),
    ]
    warm_up(models[0][1], images, y)
    yield f"{len(y):,} training and {len(y_new):,} test images:"
    yield ""
    yield from corrupted_rows(models, normalize_signals(images), y, test_images, y_new)


def peers_of_dictlearn(small: bool) -> dict[str, Callable[[float], Any]]:
    """dictlearn's kernel classifiers; empty if it is not installed."""
    try:
        from dictlearn.classification import (
            KernelDDLClassifier,
            KernelDPLClassifier,
            KernelLCDLClassifier,
            KernelSRCClassifier,
        )
    except ImportError:
        return {}
    n_atoms = 20 if small else 200
    common = {"n_nonzero_coefs": 10, "random_state": SEED}
    return {
        "dictlearn `KernelDPLClassifier`": lambda gamma: KernelDPLClassifier(
            max(2, n_atoms // 10), gamma_kernel=gamma, random_state=SEED
        ),
        "dictlearn `KernelSRCClassifier`": lambda gamma: KernelSRCClassifier(gamma=gamma, **common),
        "dictlearn `KernelDDLClassifier`": lambda gamma: KernelDDLClassifier(n_atoms, gamma=gamma, **common),
        "dictlearn `KernelLCDLClassifier`": lambda gamma: KernelLCDLClassifier(n_atoms, gamma=gamma, **common),
    }


def best_gamma(make: Callable[[float], Any], X: np.ndarray, y: np.ndarray) -> tuple[float, Any]:
    """The better of two gammas on a fifth of the training images, and the classifier with it."""
    size = len(X) // 5
    scores = {}
    for gamma in (GAMMA, 2.0):
        scores[gamma] = float(np.mean(make(gamma).fit(X[size:], y[size:]).predict(X[:size]) == y[:size]))
    found = max(scores, key=lambda gamma: scores[gamma])
    return found, make(found)


def compare(split: Split, small: bool, size: int, others: dict[str, Callable[[float], Any]]) -> Iterator[str]:
    """KDLClassifier and others on a sample small enough for them; their gamma is chosen on it."""
    images, y, test_images, y_new = split
    rng = np.random.RandomState(SEED)
    order, tested = rng.permutation(len(y)), rng.permutation(len(y_new))[: 100 if small else 2000]
    X, labels = normalize_signals(images[order[:size]]), y[order[:size]]
    n_vectors = min(KERNEL["n_kernel_vectors"], size // 2)
    own = classifier(small, n_components=min(ATOMS["n_components"], size // 20), n_kernel_vectors=n_vectors)
    warm_up(own, images, y)
    models: list[tuple[str, Any]] = [("`KDLClassifier`", own)]
    for name, make in others.items():
        gamma, model = best_gamma(make, X, labels)
        models.append((f"{name}, gamma {gamma}", model))
    yield f"{size:,} training and {len(tested):,} test images:"
    yield ""
    yield from corrupted_rows(models, X, labels, test_images[tested], y_new[tested])


def support(split: Split, small: bool) -> Iterator[str]:
    """Comparison with a support vector machine."""
    machine = {"scikit-learn `SVC`": lambda gamma: SVC(C=10.0, gamma=gamma)}
    yield from compare(split, small, 200 if small else 10_000, machine)


def dictlearn(split: Split, small: bool) -> Iterator[str]:
    """Comparison with dictlearn's kernel classifiers, which need the full kernel matrix."""
    yield from compare(split, small, 200 if small else 2000, peers_of_dictlearn(small))


PARTS = {"choice": choice, "digits": digits, "full": full, "noise": noise, "support": support, "dictlearn": dictlearn}


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classification", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="a few of scikit-learn's digits, to check the code")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/classification.md")
    parser.add_argument("--out", type=Path, default=Path("results/classification"))
    parser.add_argument("--data-dir", default=os.environ.get("RKDL_DATA"))
    options = parser.parse_args(argv)
    split = load_images(options.data_dir, options.small)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(f"\n{name}", flush=True)
        lines = []
        for line in PARTS[name](split, options.small):
            print(line, flush=True)
            lines.append(line)
        (options.out / f"{name}.md").write_text("\n".join(lines) + "\n")
        if options.write:
            put(PAGE, name, lines)


if __name__ == "__main__":
    main()
