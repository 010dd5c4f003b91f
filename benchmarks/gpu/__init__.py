"""Benchmark of a GPU; prints the tables of docs/gpu.md.

    RKDL_DATA=/path/to/data python -m benchmarks.gpu --out results/gpu

runs the tensor tests on the GPU, then measures, in this order: the GPU's limits; encoding of 64-dimensional signals;
encoding with many non-zeros, beside orthogonal-matching-pursuit-gpu if `--peer` says where its sources are; ORKDL on
1,000,000 signals, from device and from host memory; a pass of DL over 2.6 million signals in host memory; KDL on all of
MNIST; the paper's problem; the classifier and the outlier detector on MNIST; the pursuit at neighbouring sizes. Each
fit runs once to compile and load what it needs, then is timed, best of several; its errors are compared with those of
the same fit on the CPU.

Every row is printed to stderr and saved as soon as it is measured: the tables as gpu.md in the output folder, all
figures as gpu.json. A later run on the same machine with the same folder replaces the rows that it measures and keeps
the others. `--only encode` (or long, million, pass, kdl, paper, applications, steps) measures one case; `--small` uses
small inputs and `--device cpu` runs without a GPU, to try the code; `--write` puts the tables, except the last, into
docs/gpu.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.gpu import applications, dl_pass, encode, kdl, long_codes, million, paper, steps
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row

CASES: dict[str, Callable[[Machine, Path], Iterable[Row]]] = {
    "encode": encode.run,
    "long": long_codes.run,
    "million": million.run,
    "pass": dl_pass.run,
    "kdl": kdl.run,
    "paper": paper.run,
    "applications": applications.run,
    "steps": steps.run,
}
