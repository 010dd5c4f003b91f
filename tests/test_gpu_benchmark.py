"""The GPU benchmark on the CPU: it must run on small inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmark is not part of an installed package", allow_module_level=True)
torch = pytest.importorskip("torch")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.gpu import CASES, cli  # noqa: E402

SMALL = ["--small", "--device", "cpu", "--no-tests"]


@pytest.mark.slow
def test_runs_on_small_inputs(tmp_path):
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 0
    cases = json.loads((tmp_path / "gpu.json").read_text())["cases"]
    assert list(cases) == list(CASES)
    values = {row["what"]: row["figures"]["value"] for case in set(cases) - {"long"} for row in cases[case]}
    expected = {"encode, n = 256", "KDL, exact", "ORKDL, the paper's problem", "the same from host memory"}
    assert expected <= set(values)
    assert np.isfinite(list(values.values())).all()
    text = (tmp_path / "gpu.md").read_text()
    assert all(heading in text for heading in ("| case | measured | |", "| m, n, s, signals |", "| sizes |"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu(tmp_path, capsys):
    assert cli.main(["--out", str(tmp_path)]) == 2
    assert "--device cpu" in capsys.readouterr().err
