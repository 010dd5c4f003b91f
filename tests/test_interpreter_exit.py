"""A fit that outlives the main thread, or begins in `atexit`, when pools of threads take nothing more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers import PATIENCE

pytestmark = pytest.mark.slow

CODE = """
import atexit, sys, threading
import numpy as np
from rkdl import DL, KDLClassifier, KDLOutlierDetector, RKDL

rng = np.random.default_rng(0)
X, y = rng.standard_normal((3000, 16)), np.arange(3000) % 3
stored = np.memmap(sys.argv[2], mode="w+", shape=X.shape)
stored[:] = X
model = RKDL(20, n_kernel_vectors=30, max_iter=20, tol=0.0, n_jobs=2, random_state=0)
expected = model.fit(X).dual_components_.copy()

def work():
    if sys.argv[1] == "after":
        threading.main_thread().join()
    assert np.array_equal(model.fit(X).dual_components_, expected)
    model.transform(X)
    DL(5, max_iter=2, n_jobs=2, random_state=0).fit(stored)
    KDLClassifier(4, n_kernel_vectors=20, n_jobs=2, random_state=0).fit(X, y)
    KDLOutlierDetector(n_members=2, max_iter=2, n_jobs=2, random_state=0).fit(X[:200])
    print("done", flush=True)

if sys.argv[1] == "atexit":
    atexit.register(work)
else:
    threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("moment", ["atexit", "while", "after"])
def test_a_fit_finishes(moment, tmp_path):
    """In `atexit`, while the main thread ends, and after its end."""
    command = [sys.executable, "-W", "ignore", "-c", CODE, moment, str(tmp_path / "X.dat")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
