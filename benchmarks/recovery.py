"""Does learning find the dictionary that made the signals? As Markdown tables.

Run with ``python -m benchmarks.recovery [--seeds 5] [--large] [--write]``. A planted dictionary has random atoms of
unit norm, a signal combines `n_nonzero` of them with standard normal coefficients, and noise is added. Every library
learns from the same signals, with its own start. ``--large`` compares DL with a sparse autoencoder instead, on a GPU
where there is one; it needs torch. ``--write`` puts the table, and a picture, into docs/recovery-results.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from benchmarks import peers
from benchmarks.environment import THREADS
from benchmarks.pages import put
from benchmarks.rows import Figure
from benchmarks.settings import Settings
from benchmarks.tasks import dictionary_error
from rkdl import DL, KDL, RKDL
from rkdl.metrics import match_atoms, recovery_rate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recovery-results.md"
PICTURE = PAGE.parent / "images" / "recovery.png"


@dataclass(frozen=True)
class Problem:
    """A planted dictionary and signals of it.

    With `uneven`, atom k is used with a probability that falls as 1/k; with `positive`, atoms and coefficients are the
    absolute values of normal variables.
    """

    n_features: int
    n_atoms: int
    n_nonzero: int
    n_signals: int
    decibels: float
    uneven: bool = False
    positive: bool = False
    threshold: float = 0.99
    target: float | None = None

    @property
    def name(self) -> str:
        """Sizes and noise in words."""
        sizes = f"{self.n_features} x {self.n_atoms:,}, s = {self.n_nonzero}, {self.n_signals:,} signals"
        kind = ", used unevenly" if self.uneven else ", non-negative" if self.positive else ""
        return f"{sizes}, {self.decibels:g} dB{kind}"

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Signals (n_signals, n_features) and the dictionary (n_atoms, n_features)."""
        rng = np.random.default_rng(seed)
        atoms = rng.standard_normal((self.n_atoms, self.n_features))
        atoms = np.abs(atoms) if self.positive else atoms
        atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
        weights = 1.0 / np.arange(1, self.n_atoms + 1) if self.uneven else np.ones(self.n_atoms)
        signals = np.empty((self.n_signals, self.n_features))
        for start in range(0, self.n_signals, 8192):
            rows = signals[start : start + 8192]
            # The largest of Gumbel variables plus logarithms of weights are draws without replacement.
            keys = rng.gumbel(size=(len(rows), self.n_atoms)) + np.log(weights)
            support = np.argpartition(keys, -self.n_nonzero, axis=1)[:, -self.n_nonzero :]
            coefficients = rng.standard_normal(support.shape)
            coefficients = np.abs(coefficients) if self.positive else coefficients
            rows[:] = np.einsum("ts,tsm->tm", coefficients, atoms[support], optimize=True)
        noise = np.sqrt(np.mean(signals**2) / 10.0 ** (self.decibels / 10.0))
        return signals + noise * rng.standard_normal(signals.shape), atoms


KSVD = Problem(20, 50, 3, 1_500, 20, target=0.99)  # of the paper on K-SVD
PROBLEMS = (
    KSVD,
    replace(KSVD, decibels=30),
    replace(KSVD, decibels=10, target=0.95),
    replace(KSVD, uneven=True, target=0.95),
    Problem(64, 128, 5, 5_000, 20, target=1.0),
    replace(KSVD, positive=True, target=0.97),
)
TINY = (Problem(8, 12, 2, 300, 20),)
LARGE = (
    Problem(256, 1_024, 12, 300_000, 10, uneven=True, threshold=0.9),
    Problem(512, 4_096, 24, 300_000, 10, uneven=True, threshold=0.9),
)
# What a CPU learns from in minutes.
LARGE_ON_CPU = (replace(LARGE[0], n_signals=60_000),)
TINY_LARGE = (Problem(16, 32, 3, 2_000, 10, uneven=True, threshold=0.9),)


def learn_with_rkdl(X: np.ndarray, problem: Problem, seed: int) -> np.ndarray:
    """DL with its defaults; non-negative from a start with an L1 penalty, 50 iterations each."""
    model = DL(problem.n_atoms, n_nonzero_coefs=problem.n_nonzero, random_state=seed)
    if problem.positive:
        model.set_params(positive_code=True, positive_dict=True, max_iter=50, tol=0.0)
        start = clone(model).set_params(pursuit="lasso", alpha=0.1).fit(X)
        model.set_params(init=start.components_)
    return model.fit(X).components_


def learn_with_dictlearn(X: np.ndarray, problem: Problem, seed: int) -> np.ndarray:
    """AK-SVD with its default of 100 iterations; unused atoms are replaced by the worst signals."""
    from dictlearn import DictionaryLearning

    model = DictionaryLearning(
        problem.n_atoms, n_nonzero_coefs=problem.n_nonzero, replace_unused_atoms="worst", random_state=seed
    )
    return model.fit(X).components_


def learn_with_spams(X: np.ndarray, problem: Problem, seed: int, n_iter: int) -> np.ndarray:
    """Online learning with an L1 penalty; one thread, because two were slower."""
    import spams
    import spams_wrap

    np.random.seed(seed)
    learned = spams.trainDL(
        np.asfortranarray(X.T),
        K=problem.n_atoms,
        mode=spams_wrap.PENALTY,
        lambda1=0.2,
        batchsize=512,
        iter=n_iter,
        numThreads=1,
        verbose=False,
    )
    return learned.T


def learn_with_sklearn(X: np.ndarray, problem: Problem, seed: int) -> np.ndarray:
    """MiniBatchDictionaryLearning from random signals: its own start has atoms of zeros beyond the features' number."""
    from sklearn.decomposition import MiniBatchDictionaryLearning

    start = X[np.random.default_rng(seed).choice(len(X), problem.n_atoms, replace=False)]
    model = MiniBatchDictionaryLearning(
        problem.n_atoms,
        alpha=0.2,
        fit_algorithm="cd",
        batch_size=256,
        max_iter=50,
        tol=0.0,
        max_no_improvement=None,
        dict_init=start / np.linalg.norm(start, axis=1, keepdims=True),
        random_state=seed,
        positive_code=problem.positive,
        positive_dict=problem.positive,
    )
    return model.fit(X).components_


def learn_with_rkdl_kernel(X: np.ndarray, problem: Problem, seed: int) -> np.ndarray:
    """RKDL in whitened coordinates that are the signals, rotated: a linear kernel, and kernel vectors at random."""
    vectors = np.random.default_rng(seed + 1_000).standard_normal((problem.n_features, problem.n_features))
    options = {"n_nonzero_coefs": problem.n_nonzero, "n_kernel_vectors": len(vectors), "random_state": seed}
    model = RKDL(problem.n_atoms, kernel="linear", kernel_vectors=vectors, **options).fit(X)
    return model.dual_components_ @ model.kernel_vectors_


def learn_with_full_kdl(X: np.ndarray, problem: Problem, seed: int) -> np.ndarray:
    """KDL from the matrix of the signals' inner products."""
    options = {"n_nonzero_coefs": problem.n_nonzero, "random_state": seed}
    return KDL(problem.n_atoms, kernel="precomputed", **options).fit(X @ X.T).dual_components_ @ X


Learner = Callable[[np.ndarray, Problem, int], np.ndarray]
OURS = "rkdl, DL"
# Learners by name, with the library that each needs.
LEARNERS: dict[str, tuple[str | None, Learner]] = {
    OURS: (None, learn_with_rkdl),
    "dictlearn, AK-SVD": ("dictlearn", learn_with_dictlearn),
    "SPAMS, 100 iterations": ("spams", lambda *given: learn_with_spams(*given, n_iter=100)),
    "SPAMS, 1,000 iterations": ("spams", lambda *given: learn_with_spams(*given, n_iter=1_000)),
    "scikit-learn, mini-batches": ("sklearn", learn_with_sklearn),
}
# Kernel methods, for the first problem: the features are planted in the coordinates that they learn in.
KERNEL_METHODS: dict[str, tuple[str | None, Learner]] = {
    "rkdl, RKDL": (None, learn_with_rkdl_kernel),
    "rkdl, KDL": (None, learn_with_full_kdl),
}


@dataclass(frozen=True)
class Result:
    """Means over seeds: share of atoms found, seconds, and the error relative to that of the true dictionary."""

    found: float
    seconds: float
    error: float


def measure(learner: Learner, problem: Problem, n_seeds: int) -> Result:
    """Learn from the signals of every seed; errors are of OLS codes with the true number of non-zeros."""
    results = []
    with warnings.catch_warnings():
        # Codes of scikit-learn that have not converged.
        warnings.simplefilter("ignore")
        # Loads and compiles.
        learner(TINY[0].draw(0)[0], TINY[0], 0)
        for seed in range(n_seeds):
            X, atoms = problem.draw(seed)
            start = time.perf_counter()
            learned = learner(X, problem, seed)
            seconds = time.perf_counter() - start
            # Atoms that a library gave up are zero.
            learned = learned[learned.any(axis=1)]
            ours, best = (dictionary_error({"X": X}, D, problem.n_nonzero) for D in (learned, atoms))
            results.append((recovery_rate(atoms, learned, threshold=problem.threshold), seconds, ours / best))
    return Result(*(float(mean) for mean in np.mean(results, axis=0)))


def compare(problems: Sequence[Problem], n_seeds: int) -> Iterator[tuple[Problem, str, Result]]:
    """Results of the learners whose libraries are here."""
    for problem in problems:
        learners = {**LEARNERS, **KERNEL_METHODS} if problem is problems[0] else LEARNERS
        for name, (library, learner) in learners.items():
            if problem.positive and name != OURS and library != "sklearn":
                continue
            if library is None or peers.find(library).available:
                yield problem, name, measure(learner, problem, n_seeds)


def run(settings: Settings) -> Iterator[Figure]:
    """The share of atoms found, for `python -m benchmarks`."""
    for problem, name, result in compare(TINY if settings.tiny else PROBLEMS, settings.repeat):
        bound = settings.goal(problem.target) if name == OURS else None
        note = f"{result.seconds:.3g} s, {result.error:.3f} times the error of the true dictionary"
        yield Figure("recovery", f"{problem.name}: {name}", result.found, "found", bound, "at least", note=note)


def table(problems: Sequence[Problem], n_seeds: int) -> Iterator[str]:
    """Lines of the table."""
    yield "| planted dictionary | learner | found | seconds | error relative to the true dictionary's |"
    yield "|---|---|---|---|---|"
    for problem, name, result in compare(problems, n_seeds):
        yield f"| {problem.name} | {name} | {result.found:.3f} | {result.seconds:.2g} | {result.error:.3f} |"


def large_table(problems: Sequence[Problem], device: str) -> Iterator[str]:
    """DL and a sparse autoencoder from one seed; the variance left is that of new signals, coded by OLS."""
    import torch

    from benchmarks.autoencoder import learn_with_autoencoder

    def learn_with_dl(X: torch.Tensor, n_atoms: int, n_nonzero: int) -> np.ndarray:
        return DL(n_atoms, n_nonzero_coefs=n_nonzero, random_state=0).fit(X if X.is_cuda else X.numpy()).components_

    yield "| planted dictionary | learner | found | found of the rarer half | seconds | variance left |"
    yield "|---|---|---|---|---|---|"
    for problem in problems:
        n_new = problem.n_signals // 20
        signals, atoms = replace(problem, n_signals=problem.n_signals + n_new).draw(0)
        new = {"X": signals[-n_new:]}
        X = torch.from_numpy(signals[:-n_new].astype(np.float32)).to(device)

        def left(dictionary: np.ndarray, problem=problem, new=new) -> str:
            error = dictionary_error(new, dictionary, problem.n_nonzero)
            return f"{error**2 / np.mean(new['X'] ** 2):.4f}"

        yield f"| {problem.name} | none, the true dictionary | | | | {left(atoms)} |"
        # Load and compile.
        learn_with_dl(X[:1_000], 32, 2)
        learn_with_autoencoder(X[:1_000], 32, 2, n_steps=5)
        for name, learner in ((OURS, learn_with_dl), ("BatchTopK autoencoder", learn_with_autoencoder)):
            start = time.perf_counter()
            learned = np.asarray(learner(X, problem.n_atoms, problem.n_nonzero))
            seconds = time.perf_counter() - start
            found = match_atoms(atoms, learned)[1] > problem.threshold
            shares = f"{found.mean():.3f} | {found[len(found) // 2 :].mean():.3f}"
            yield f"| {problem.name} | {name} | {shares} | {seconds:.3g} | {left(learned)} |"


def plot(problems: Sequence[Problem], path: Path) -> None:
    """Draw how well DL finds the atoms of each problem, from the first seed."""
    import matplotlib.pyplot as plt

    from rkdl.plotting import RecoveryDisplay

    with plt.style.context("rkdl.figures"):
        ax = plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1]
        for problem in problems:
            X, atoms = problem.draw(0)
            learned, name = learn_with_rkdl(X, problem, 0), "used unevenly" if problem.uneven else "used evenly"
            RecoveryDisplay.from_dictionaries(atoms, learned, threshold=problem.threshold, name=name, ax=ax)
        ax.figure.savefig(path)
    plt.close(ax.figure)


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--large", action="store_true", help="DL beside a sparse autoencoder; needs torch")
    parser.add_argument("--small", action="store_true", help="tiny dictionaries, to check the benchmark itself")
    parser.add_argument("--write", action="store_true", help="put the table into docs/recovery-results.md")
    arguments = parser.parse_args(argv)
    if arguments.large:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        problems = TINY_LARGE if arguments.small else LARGE if device == "cuda" else LARGE_ON_CPU
        part, rows = "large", large_table(problems, device)
    else:
        for peer in peers.find_all().values():
            if not peer.available:
                print(f"{peer.name} is left out: {peer.reason}.")
        part, rows = "recovery", table(TINY if arguments.small else PROBLEMS, arguments.seeds)
    lines = []
    with threadpool_limits(THREADS):
        for line in rows:
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        put(PAGE, part, ["", *lines, ""])
        if not arguments.large:
            plot((KSVD, replace(KSVD, uneven=True)), PICTURE)


if __name__ == "__main__":
    main()
