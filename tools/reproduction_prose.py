"""The words of docs/reproduction.md that do not depend on results."""

from __future__ import annotations

OPENING = """# Reproduction of the paper

The paper is D. C. Ilie-Ablachim and B. Dumitrescu, *Reduced Kernel Dictionary Learning* (EUSIPCO 2022,
arXiv:2307.08798).
Its experiments compare full kernel dictionary learning (KDL), whose kernel matrix has a row for every signal,
with three methods that learn on a few kernel vectors D: RKDL-D keeps a D that was trained as a linear
dictionary, ORKDL-D moves it by gradient steps, and MORKDL-D moves it with a linear term in the objective.
This page repeats them and says what became of the paper's claims.

All measured figures, and the statements that compare them, were computed by `python -m tools.reproduction_page`
from the `results.json` of a run. The explanations around them are prose, each shown only where the results meet its
condition.
"""

PRESETS_TEXT = """Three presets answer three questions.

- **paper**: do the claims hold for the algorithms as the text defines them? OMP, the AK-SVD sweep, a random A
  and a plain AK-SVD dictionary D (50 atoms of unit norm, sparsity 5, ten iterations from Gaussian noise, signs
  as they come) that all reduced methods of a round share, a gradient of fixed rate, and codes with at most four
  non-zeros.
- **published**: do the printed figures come out of what the authors' published code computes? Its arithmetic
  is repeated step by step, slips included. It is kept apart from the library: no estimator uses it.
- **rkdl**: what does this library give by default, with the paper's kernel and sizes? Another pursuit (OLS),
  atoms from the codes' statistics, first atoms that are signals drawn by randomly pivoted Cholesky, kernel
  vectors that are the centres of k-means and that ORKDL-D and MORKDL-D optimise by L-BFGS after ten iterations
  with fixed ones, more iterations, and codes with at most four non-zeros.

The error is the paper's, `sqrt(f / (m N))` with f the squared error in the kernel's feature space. DL and
Fourier are shown for completeness: DL's error is one of the signals themselves and Fourier's one in the space
of its own random features, so neither compares with the rest. Times include everything from signals in memory
to the learned model, the training of D too, which is also given by itself; compilation is not in them.
"""

#: Each is shown where the results bear it out.
REASONS = {
    "dense": """**The reduced methods of the published code have dense codes.** It updates the
coefficients of an atom for all signals, not for those that use it. After one sweep over the atoms nearly every
signal uses every atom: {nonzeros} non-zeros a signal here, in place of the 4 of the constraint. KDL's update
keeps to the support, so that code compares sparse codes with dense ones.""",
    "order": """**With the sparsity held and the paper's start, the reduced methods do not all end below KDL:**
{cells}, against KDL of the same preset. There, the gradient of fixed rate changes the error by {gains} from
RKDL-D to ORKDL-D. `paper` differs from `published` in more than the dense codes, so this alone does not say what
the printed order owes to them. `run_published(..., dense=False)` in `rkdl._reproduction.published` restricts that
one line of the code to the support, and is how to check it.""",
    "default": """**How the `rkdl` preset compares with its own KDL, sparsity held in all.** {cells}. {shared}What
the learned kernel vectors add is the step from RKDL-D to ORKDL-D: {steps}.""",
    "shared": """KDL of this preset has no reduced kernel at all and differs from the printed KDL by {cells}:
what the other methods share of that is not owed to kernel vectors but to what KDL has too, OLS, the start from
data and more iterations (not measured one by one here). """,
    "missed": """**Claims of the paper that are missed under `rkdl`, and why:** {cells}. {why}""",
    "missed_time": """On time: KDL here needs no N x N residual and is itself fast at these sizes, so there is less
to save. """,
    "missed_error": """On error: KDL's atoms may be any combination of all N signals in the kernel's feature space,
those of the reduced methods lie in the span of p = 50 kernel vectors, which is less; RKDL-D's are fixed besides. """,
    "missed_best": """MORKDL-D minimises the sum of this error and a linear one, ORKDL-D this error alone. """,
    "time": """**The printed speed-up is one over a slow KDL.** The published KDL keeps a dense N x N residual and
multiplies by the kernel matrix from the expensive side. Both can be avoided without changing a number: an
updated atom is a combination of codes and old atoms, so one product of the kernel matrix with the codes is all
that an iteration needs. All presets here use that form, so that ratios to KDL are ratios to a fast KDL. What
the reduced methods save beyond it grows with the number of signals.""",
    "gap": """**What is left between `published` and the printed figures is stated, not explained:** {cells}. The
authors' random numbers, their MATLAB version and the revision of the code that made the tables are not known.
In that code an atom that no signal uses becomes noise, and the first pursuit leaves nearly all of them unused,
so every method starts from noise of its own.""",
}

SLIPS_OPENING = """## Slips of the paper and of its code

Where text and published code disagree, the printed tables come from the code. The library follows the
mathematics; the preset `published` follows the code.
"""

SLIPS_OF_TEXT = [
    (
        "kernel",
        "two forms of the Gaussian, one with 2 sigma² and one with sigma², and sigma = 10",
        "the tables belong to neither: they are exp(-|x - y|² / 10), gamma = 0.1, on signals of unit norm",
    ),
    ('MNIST, "label 5"', "the fifth category as MATLAB counts", "the digit 4, 5,842 signals"),
    ("atom update", "K_YD + K_DD R", "K_YD' - K_DD R'"),
    (
        "gradient of the Gaussian kernel",
        "written for 2 sigma²; a factor 2 is missing for sigma²",
        "-2 gamma k(x, y) (x - y)",
    ),
    ("gradient of the linear term", "lacks 2 lambda", "2 lambda (X'X D - X'Y), with signals as rows"),
    (
        "sizes",
        "n and p change roles between sections, and A is given as N x n",
        "n atoms, p kernel vectors; with atoms as rows A is n x p",
    ),
    ("choice of sigma", "by grid search", "the error falls to 0 with gamma, so it cannot choose gamma: a task must"),
]

SLIPS_OF_CODE = [
    (
        "codes of the reduced methods",
        "an atom's coefficients are overwritten for all signals",
        "restrict the update to the signals that use the atom",
    ),
    (
        "MORKDL-D",
        "runs with its linear term switched off; were it on, its sign would make the linear fit worse",
        "switch it on, with the other sign",
    ),
    (
        "norm of the kernel vectors",
        "never restored, though the text asks for unit norm",
        "hold it, in MORKDL-D",
    ),
    (
        "pursuit",
        "takes atoms for unit vectors without looking, though the first A is normalised in the wrong metric and D "
        "moves after A was normalised",
        "normalise in the kernel's metric before every pursuit",
    ),
    ("unused atoms", "become noise", "a badly represented signal is a better atom"),
    (
        "gradient step",
        "a fixed rate times a sum over all signals",
        "a rate that knows the number of signals and backtracks, or L-BFGS",
    ),
    (
        "polynomial kernel",
        "gradient with the wrong sign, and its diagonal term subtracted p times",
        "no subtraction is needed",
    ),
    (
        "time of KDL",
        "products in the expensive order, and a dense N x N residual",
        "one product of the kernel matrix with the codes an iteration",
    ),
    (
        "time of ORKDL-D",
        "counts a pursuit whose result is not used, and leaves out the refresh of the kernel",
        "time what is used, and all of it",
    ),
]

DIGITS_NOTE = """The paper's third data set, Digits, is part of MATLAB's Deep Learning Toolbox and cannot be had
without it. Who has it can export it (see `rkdl.datasets.load_matlab_digits`) and run `rkdl reproduce
digits.mat`. `mnist-5000`, 500 MNIST images of each digit, has the same size and nothing else in common with
it: where it is shown beside the figures printed for Digits, that is for orientation, and no agreement is
claimed."""

CLOSING = """## How to run it

```
pip install "rkdl[data,plots]"
rkdl reproduce                            # scikit-learn's digits, three rounds, less than a minute
rkdl reproduce mnist-5000 mnist cifar10   # the paper's experiments: ten rounds, three presets
python -m tools.reproduction_page reproduction/results.json > docs/reproduction.md
```

MNIST and CIFAR-10 are downloaded, or read from the folder that `RKDL_DATA` or `--data-dir` names. Ctrl-C keeps
what is done, and the same command goes on from there. `reproduction/index.html` shows tables, curves and
kernel vectors on one page. Round i, counted from 0, has the seed `--seed` + i, and the result does not depend
on the number of threads.

## How to cite

For the method:

> D. C. Ilie-Ablachim, B. Dumitrescu. Reduced Kernel Dictionary Learning. EUSIPCO 2022; arXiv:2307.08798.

For figures of this page, cite the library in the version that made them (`CITATION.cff`) and this page:

> The rkdl developers. rkdl: reduced kernel dictionary learning in Python, version {version}. Reproduction of
> the paper, docs/reproduction.md.
"""
