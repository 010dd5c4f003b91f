"""Fixed text of docs/reproduction.md."""

from __future__ import annotations

OPENING = """# Reproduction of the paper

The paper is D. C. Ilie-Ablachim and B. Dumitrescu, *Reduced Kernel Dictionary Learning* (EUSIPCO 2022,
arXiv:2307.08798).
Its experiments compare full kernel dictionary learning (KDL), whose kernel matrix has one row per signal, with
three methods that learn on a few kernel vectors D: RKDL-D uses a fixed D trained as a linear dictionary, ORKDL-D
updates D by gradient steps, and MORKDL-D adds a linear term to the objective. This page repeats the experiments
and checks the paper's claims.

All measured figures, and all statements that compare them, are computed by `python -m tools.reproduction_page`
from the `results.json` of a run. Explanations appear only if the results meet their conditions.
"""

PRESETS_TEXT = """Three presets answer three questions.

- **paper**: do the claims hold for the algorithms as defined in the text? OMP, AK-SVD, a random A and a plain
  AK-SVD dictionary D (50 atoms of unit norm, sparsity 5, ten iterations from Gaussian noise, signs as they come)
  shared by all reduced methods of a round, gradient descent with a fixed rate, and codes with at most four
  non-zeros.
- **published**: does the authors' published code give the printed figures? Its arithmetic is repeated step by
  step, including its errors. It is separate from the library: no estimator uses it.
- **rkdl**: what do this library's defaults give, with the paper's kernel and sizes? A different pursuit (OLS),
  atoms updated from sufficient statistics, initial atoms that are signals drawn by randomly pivoted Cholesky,
  kernel vectors that are k-means centres and that ORKDL-D and MORKDL-D optimise by L-BFGS after ten iterations
  with fixed ones, more iterations, and codes with at most four non-zeros.

The error is the paper's, `sqrt(f / (m N))`, where f is the squared error in the kernel's feature space. DL and
Fourier are shown for completeness: the error of DL is in signal space and that of Fourier in the space of its
random features, so neither is comparable with the rest. Times cover everything from signals in memory to the
learned model, including the training of D, which is also listed separately, but excluding compilation.
"""

#: Each is shown only if the results meet its condition.
REASONS = {
    "dense": """**The reduced methods of the published code have dense codes.** The code updates the
coefficients of an atom for all signals, not only for those that use it. After one sweep over the atoms nearly every
signal uses every atom: {nonzeros} non-zeros per signal here, instead of the 4 that the constraint allows. The update of
KDL is restricted to the support, so the published code compares sparse codes with dense ones.""",
    "order": """**With the sparsity enforced and the paper's initialisation, not all reduced methods end below KDL:**
{cells}, against KDL of the same preset. Gradient descent with a fixed rate changes the error by {gains} from
RKDL-D to ORKDL-D. `paper` differs from `published` in more than the dense codes, so this alone does not tell how
much of the printed order is due to them.""",
    "default": """**The `rkdl` preset compared with its own KDL, sparsity enforced.** {cells}. {shared}Learned
kernel vectors add the difference between RKDL-D and ORKDL-D: {steps}.""",
    "shared": """KDL of this preset uses the full kernel and differs from the printed KDL by {cells}:
the part of that difference shared by the other methods is not due to kernel vectors but to OLS, initialisation from
data and more iterations (not measured separately here). """,
    "missed": """**Claims of the paper that do not hold for `rkdl`, and why:** {cells}. {why}""",
    "missed_time": """On time: KDL here needs no N x N residual and is itself fast at these sizes, so there is less
to save. """,
    "missed_error": """On error: the atoms of KDL can be any combination of all N signals in the kernel's feature space,
those of the reduced methods lie in the span of p = 50 kernel vectors, which in RKDL-D are also fixed. """,
    "missed_best": """MORKDL-D minimises the sum of this error and a linear term, ORKDL-D this error alone. """,
    "time": """**The printed speed-up is relative to a slow KDL.** The published KDL stores a dense N x N residual and
multiplies by the kernel matrix in the more expensive order. Both can be avoided without changing any result: an
updated atom is a combination of codes and old atoms, so an iteration needs only one product of the kernel matrix
with the codes. All presets here use that form, so times are compared with a fast KDL. The additional savings of
the reduced methods grow with the number of signals.""",
    "gap": """**The remaining differences between `published` and the printed figures are unexplained:** {cells}. The
authors' random numbers, their MATLAB version and the revision of the code that produced the tables are unknown.
In that code an unused atom is replaced by noise, and the first pursuit leaves nearly all atoms unused, so every
method starts from its own noise.""",
}

ERRORS_OPENING = """## Errors in the paper and its code

Where the text and the published code disagree, the printed tables come from the code. The library follows the
mathematics; the preset `published` follows the code.
"""

ERRORS_IN_TEXT = [
    (
        "kernel",
        "two forms of the Gaussian, one with 2 sigma² and one with sigma², and sigma = 10",
        "the tables match neither, but exp(-|x - y|² / 10), gamma = 0.1, on signals of unit norm",
    ),
    ('MNIST, "label 5"', "the fifth category, counting from 1 as in MATLAB", "the digit 4, 5,842 signals"),
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
    ("choice of sigma", "by grid search", "the error tends to 0 with gamma, so it cannot select gamma: a task must"),
]

ERRORS_IN_CODE = [
    (
        "codes of the reduced methods",
        "an atom's coefficients are overwritten for all signals",
        "restrict the update to the signals that use the atom",
    ),
    (
        "MORKDL-D",
        "runs with its linear term disabled; if enabled, its sign would make the linear fit worse",
        "enable it, with the other sign",
    ),
    (
        "norm of the kernel vectors",
        "never restored, although the text requires unit norm",
        "enforce it, in MORKDL-D",
    ),
    (
        "pursuit",
        "assumes atoms of unit norm, although the initial A is normalised in the wrong metric and D is updated after "
        "A is normalised",
        "normalise in the kernel's metric before every pursuit",
    ),
    ("unused atoms", "become noise", "a badly represented signal is a better atom"),
    (
        "gradient step",
        "a fixed rate times a sum over all signals",
        "a rate relative to the number of signals with backtracking, or L-BFGS",
    ),
    (
        "polynomial kernel",
        "gradient with the wrong sign, and its diagonal term subtracted p times",
        "no subtraction is needed",
    ),
    (
        "time of KDL",
        "products in the expensive order, and a dense N x N residual",
        "one product of the kernel matrix with the codes per iteration",
    ),
    (
        "time of ORKDL-D",
        "includes a pursuit whose result is not used, and excludes the recomputation of the kernel",
        "time everything that is used",
    ),
]

DIGITS_NOTE = """The paper's third data set, Digits, is part of MATLAB's Deep Learning Toolbox and is not available
without it. Users of the toolbox can export it (see `rkdl.datasets.load_matlab_digits`) and run `rkdl reproduce
digits.mat`. `mnist-5000`, 500 MNIST images of each digit, has the same size but nothing else in common with it:
the figures printed for Digits are shown next to it for orientation only, and no agreement is
claimed."""

CLOSING = """## Running the reproduction

```
pip install "rkdl[data,plots]"
rkdl reproduce                            # scikit-learn's digits, three rounds, less than a minute
rkdl reproduce mnist-5000 mnist cifar10   # the paper's experiments: ten rounds, three presets
python -m tools.reproduction_page reproduction/results.json > docs/reproduction.md
```

MNIST and CIFAR-10 are downloaded, or read from the folder given by `RKDL_DATA` or `--data-dir`. Ctrl-C keeps the
completed runs, and the same command resumes from there. `reproduction/index.html` shows tables, curves and
kernel vectors on one page. Round i, counted from 0, has the seed `--seed` + i, and the result does not depend
on the number of threads.

## How to cite

For the method:

> D. C. Ilie-Ablachim, B. Dumitrescu. Reduced Kernel Dictionary Learning. EUSIPCO 2022; arXiv:2307.08798.

For figures from this page, cite the version of the library that produced them (`CITATION.cff`) and this page:

> The rkdl developers. rkdl: reduced kernel dictionary learning in Python, version {version}. Reproduction of
> the paper, docs/reproduction.md.
"""
