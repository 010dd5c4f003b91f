"""KDLClassifier on MNIST beside a support vector machine and a neural network: accuracy, times, sizes of the models.

Run with ``python -m benchmarks.classification [--seeds N] [--fits N] [--device cuda] [--write] [--data-dir DIR]``.
Images are scaled to unit norm, nothing else. The table is printed and saved under results/, with every fit; ``--write``
also puts it into docs/classification-results.md. With ``--fits N``, fits that were saved earlier are not repeated, at
most N others follow. Rows of classifiers that were not measured stay as they are on the page. With a device,
KDLClassifier alone learns from tensors there. Its sizes were chosen on training images alone.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from benchmarks.pages import put
from rkdl import KDLClassifier

PAGE = Path(__file__).parent.parent / "docs" / "classification-results.md"
LARGE = {"n_components": 60, "n_kernel_vectors": 400, "n_nonzero_coefs": 24}
SMALL = {"n_components": 30, "n_kernel_vectors": 200, "n_nonzero_coefs": 16}


class Images(NamedTuple):
    """Training and test images of unit norm in float32, and their labels."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


def load_images(data_dir: str | None, small: bool) -> Images:
    """MNIST, or some of scikit-learn's digits."""
    if small:
        images, labels = load_digits(return_X_y=True)
        images = normalize((images / 16.0).astype(np.float32))
        return Images(images[:400], labels[:400], images[400:600], labels[400:600])
    from rkdl.datasets import fetch_mnist

    parts: list[np.ndarray] = []
    for subset in ("train", "test"):
        images, labels = fetch_mnist(subset=subset, data_home=data_dir, return_X_y=True)
        parts += [normalize((images / 255.0).astype(np.float32)), labels]
    return Images(*parts)


def measure(model: Any, images: Images) -> list[float]:
    """Accuracy, log loss, seconds of training and of testing, megabytes of the model."""
    start = time.perf_counter()
    model.fit(images.X, images.y)
    fitted = time.perf_counter()
    accuracy = np.mean(np.asarray(to_host(model.predict(images.X_new))) == images.y_new)
    ended = time.perf_counter()
    loss = np.nan
    if hasattr(model, "predict_proba"):
        chances = np.asarray(to_host(model.predict_proba(images.X_new)), dtype=np.float64)
        loss = log_loss(images.y_new, chances / chances.sum(1, keepdims=True))
    return [float(accuracy), float(loss), fitted - start, ended - fitted, len(pickle.dumps(model)) / 1e6]


def row_of(found: list[list[float]]) -> str:
    """The rest of a row of the table: means of the fits, the standard deviation of the accuracy, the shortest times."""
    accuracy, loss, _, _, size = np.mean(found, axis=0)
    fit, predict = np.min(found, axis=0)[2:4]
    spread = f" ± {100 * np.std(np.array(found)[:, 0]):.2f}" if len(found) > 1 else ""
    shown = "" if np.isnan(loss) else f"{loss:.4f}"
    return f"{100 * accuracy:.2f} %{spread} | {len(found)} | {shown} | {fit:.1f} s | {predict:.2f} s | {size:.1f} MB |"


def to_host(found: Any) -> Any:
    """An array of NumPy, also of what lies on a device."""
    return found.cpu() if hasattr(found, "cpu") else found


def makers(small: bool, alone: bool) -> dict[str, tuple[Callable[[int], Any], bool]]:
    """Classifiers from a seed by what the table calls them, and whether all seeds are measured.

    KDLClassifier in two sizes and, unless it is to be alone, the others; those have no seed, or take long.
    """
    sizes = {"40 kernel vectors, 4 atoms": {"n_components": 4, "n_kernel_vectors": 40}} if small else {}
    for size in () if small else (LARGE, SMALL):
        sizes[f"{size['n_kernel_vectors']} kernel vectors, {size['n_components']} atoms"] = size
    found: dict[str, tuple[Callable[[int], Any], bool]] = {
        f"`KDLClassifier`, {words} per class": (partial(make_own, size), True) for words, size in sizes.items()
    }
    if not alone:
        found["scikit-learn `MLPClassifier`"] = lambda seed: MLPClassifier(random_state=seed), False
        found["scikit-learn `SVC`, C = 10, gamma = 2"] = lambda seed: SVC(C=10.0, gamma=2.0), False
    return found


def make_own(size: dict[str, int], seed: int) -> Any:
    """KDLClassifier of a size."""
    return KDLClassifier(**size, random_state=seed)


def mnist(images: Images, found: dict[str, list[list[float]]], names: Iterable[str]) -> Iterator[str]:
    """The table of these fits; rows of none are those of the page."""
    yield f"{len(images.X):,} training and {len(images.X_new):,} test images:"
    yield ""
    yield "| classifier | test accuracy | seeds | log loss | training | testing | size |"
    yield "|---|---|---|---|---|---|---|"
    known = PAGE.read_text().splitlines()
    for name in names:
        yield from (
            [f"| {name} | {row_of(found[name])}"]
            if found.get(name)
            else [line for line in known if line.startswith(f"| {name} |")]
        )


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classification", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fits", type=int, help="measure at most N fits that were not saved earlier")
    parser.add_argument("--alone", action="store_true", help="KDLClassifier alone")
    parser.add_argument("--small", action="store_true", help="a few of scikit-learn's digits, to check the code")
    parser.add_argument("--device", help="where the images are tensors, for example cuda; needs torch")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/classification-results.md")
    parser.add_argument("--out", type=Path, default=Path("results/classification"))
    parser.add_argument("--data-dir", default=os.environ.get("RKDL_DATA"))
    options = parser.parse_args(argv)
    images = load_images(options.data_dir, options.small)
    part = "mnist"
    if options.device is not None:
        import torch

        part = f"mnist-{options.device}"
        X, X_new = (torch.from_numpy(part).to(options.device) for part in (images.X, images.X_new))
        images = images._replace(X=X, X_new=X_new)
        # Loads and compiles.
        KDLClassifier(**SMALL).fit(X[:1_000], images.y[:1_000])
    options.out.mkdir(parents=True, exist_ok=True)
    saved = options.out / f"{part}.json"
    found: dict[str, list[list[float]]] = {}
    if options.fits is not None and saved.exists():
        found = json.loads(saved.read_text())
    classifiers = makers(options.small, options.alone or options.device is not None)
    left = [
        (make, found.setdefault(name, []), seed)
        for seed in range(options.seeds)
        for name, (make, has_seeds) in classifiers.items()
        if (has_seeds or seed == 0) and seed >= len(found.get(name, []))
    ]
    for make, fits, seed in left[: options.fits]:
        fits.append(measure(make(seed), images))
        print(seed, fits[-1], flush=True)
        saved.write_text(json.dumps(found))
    lines = list(mnist(images, found, makers(options.small, options.device is not None)))
    print(*lines, sep="\n")
    (options.out / f"{part}.md").write_text("\n".join(lines) + "\n")
    if options.write:
        put(PAGE, part, lines)


if __name__ == "__main__":
    main()
