"""Fixtures of all test files; small estimators and helpers are in `helpers.py`, the oracle in `reference.py`."""

from __future__ import annotations

import os
from pathlib import Path

# Before NumPy and torch are loaded: workers of pytest-xdist share the cores, and OpenMP's idle threads spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import hypothesis
import numpy as np
import pytest
from sklearn.datasets import load_digits
from threadpoolctl import ThreadpoolController

# An example may wait for the compiler; on CI (where the variable CI is set) the same examples are drawn in every run.
hypothesis.settings.register_profile("rkdl", deadline=None, max_examples=120, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("rkdl")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def digits():
    """1,797 images of 64 pixels, 0 to 16, one per row."""
    return load_digits().data


@pytest.fixture(scope="session")
def unit_digits(digits):
    """The digits, each of norm 1."""
    return digits / np.linalg.norm(digits, axis=1, keepdims=True)


@pytest.fixture(scope="session")
def _blas():
    return ThreadpoolController().select(user_api="blas")


@pytest.fixture
def one_thread(_blas):
    """One thread, of BLAS and of estimators without ``n_jobs``: in small fits two only wait for each other."""
    with _blas.limit(limits=1):
        yield


@pytest.fixture(scope="session")
def data_folder():
    """The folder with MNIST and CIFAR-10; without it the tests on real data are skipped."""
    folder = os.environ.get("RKDL_DATA")
    if not folder:
        pytest.skip("RKDL_DATA does not name a folder with MNIST and CIFAR-10")
    return Path(folder)
