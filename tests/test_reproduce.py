"""The command ``rkdl reproduce``, from its options to the page it writes."""

import dataclasses
import html
import html.parser
import io
import itertools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rkdl import DL, KDL, ORKDL, RKDL, load
from rkdl._cli import main
from rkdl._reproduction import claims as _claims
from rkdl._reproduction import presets as _presets
from rkdl._reproduction import prose
from rkdl._reproduction import store as _store
from rkdl._reproduction.paper import METHODS, PAPER_METHODS, PRESETS, PRINTED_ERRORS, STUDIES, printed_column
from rkdl._reproduction.render import as_html, as_markdown, as_text
from rkdl._reproduction.report import build_report
from rkdl._reproduction.summary import Margin, Spread, percent, summarize
from rkdl._reproduction.terminal import say
from rkdl.datasets import _download, normalize_signals

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "tools").is_dir():
    pytest.skip("the maintainers' tools are not part of an installed package", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools import reproduction_page  # noqa: E402

# One worker for all, so that what they share is made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reproduce")]

QUICK = ["--rounds", "1", "--iterations", "2"]
ALL = ["--preset", *PRESETS]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A file of 150 images."""
    path = tmp_path_factory.mktemp("data") / "images.npy"
    np.save(path, load_digits().images[:150])
    return str(path)


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    """The folder of a complete run: all presets and methods, one round."""
    folder = tmp_path_factory.mktemp("run") / "out"
    assert main(["reproduce", images, *QUICK, *ALL, "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def of_own(images, tmp_path_factory):
    """The folder of a run on a user's file, without a preset."""
    folder = tmp_path_factory.mktemp("own") / "out"
    assert main(["reproduce", images, *QUICK, "--out", str(folder), "--quiet"]) == 0
    return folder


def report_text(content):
    return as_text(build_report(content))


def content_of(folder):
    return json.loads((folder / "results.json").read_text())


def count_runs(monkeypatch):
    made = []
    original = _presets.Round.run

    def run(self, method, settings, *rest):
        if self.scale is not None:  # not the warm-up's
            made.append((self.preset, method, self.seed))
        return original(self, method, settings, *rest)

    monkeypatch.setattr(_presets.Round, "run", run)
    return made


def one_line(err):
    assert "Traceback" not in err
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err


class TestOutput:
    def test_results(self, finished, images):
        content = content_of(finished)
        assert set(content["versions"]) >= {"rkdl", "numpy", "scipy", "scikit-learn", "numba"}
        assert content["machine"]["cores"] >= 1
        assert content["settings"] == {"dtype": "float32", "iterations": 2, "n_jobs": None, "seed": 0}
        entry = content["datasets"][images]
        assert (entry["n_signals"], entry["n_features"], entry["image_shape"]) == (150, 64, [8, 8])
        assert set(entry["presets"]) == {*PRESETS, *STUDIES}
        for preset, methods in entry["presets"].items():
            assert {_presets.base_of(method) for method in methods} <= set(METHODS)
            if preset in PRESETS:
                assert set(methods) == set(METHODS if preset in ("paper", "rkdl") else PAPER_METHODS)
            for place in methods.values():
                (record,) = place["rounds"]
                assert len(record["errors"]) == 2
                assert record["seconds"] > 0
                assert record["best_error"] > 0
                assert (record["round"], record["seed"]) == (0, 0)
                assert place["settings"]["n_components"] == 20

    def test_sparsity_is_held_but_in_the_published_code(self, finished, images):
        for preset, methods in content_of(finished)["datasets"][images]["presets"].items():
            for method, place in methods.items():
                is_dense = preset in ("published", "literal") and method != "KDL"
                assert (place["rounds"][0]["mean_nonzeros"] > 4) == is_dense

    def test_models_open_with_load(self, finished, images):
        names = list((finished / "models").iterdir())
        assert {path.name for path in names} == {
            f"images-npy-{preset}-{method}.npz"
            for preset in ("paper", "rkdl")
            for method in ("RKDL-D", "ORKDL-D", "MORKDL-D", "Nystrom")
        }
        for path in names:
            model = load(path)
            assert model.transform(normalize_signals(np.load(images).reshape(150, -1))).shape == (150, 20)

    def test_keys_are_sorted_and_curves_are_lines(self, finished):
        text = (finished / "results.json").read_text()
        assert list(json.loads(text)) == sorted(json.loads(text))
        assert re.search(r'"errors": \[[^\n]*\]', text)

    def test_figures(self, finished):
        names = {path.name for path in (finished / "figures").iterdir()}
        stems = {"against-kdl", "images-npy-errors", "images-npy-kernel-vectors"}
        assert names == {f"{stem}.{ending}" for stem in stems for ending in ("png", "svg")}
        for path in (finished / "figures").glob("*.png"):
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        for path in (finished / "figures").glob("*.svg"):
            xml.etree.ElementTree.parse(path)

    def test_page_is_self_contained(self, finished):
        page = (finished / "index.html").read_text()

        class Checker(html.parser.HTMLParser):
            open_tags: list = []
            sources: list = []
            levels: list = []

            def handle_starttag(self, tag, attrs):
                assert tag not in ("script", "link", "iframe", "object")
                for name, value in attrs:
                    assert not name.startswith("on")
                    if name in ("src", "srcset"):
                        self.sources.append(value)
                        assert value.startswith("data:image/png;base64,")
                    if name == "href":
                        assert value.startswith("#")
                    if name == "alt":
                        assert value
                if tag in ("h1", "h2", "h3"):
                    self.levels.append(int(tag[1]))
                if tag not in ("meta", "img", "br", "source"):
                    self.open_tags.append(tag)

            def handle_endtag(self, tag):
                assert self.open_tags.pop() == tag

        checker = Checker()
        checker.feed(page)
        assert checker.open_tags == []
        assert len(checker.sources) == 3 * 4  # light and dark, wide and narrow
        assert checker.levels[:2] == [1, 2]
        assert all(after <= before + 1 for before, after in itertools.pairwise(checker.levels))
        assert "http" not in re.sub(r"base64,[^\"]*", "", page)
        assert "@import" not in page
        assert "url(" not in page
        assert "prefers-color-scheme: dark" in page
        for claim in _claims.CLAIMS.values():
            assert claim[1:] in html.unescape(page)

    def test_no_partial_files(self, finished):
        assert not list(finished.rglob("*.part"))

    def test_tables_on_the_terminal(self, images, finished, capsys):
        assert main(["reproduce", images, *QUICK, *ALL, "--out", str(finished)]) == 0
        out = capsys.readouterr().out
        assert "Error sqrt(f / (m N))" in out
        assert "Time in seconds" in out
        assert str(finished / "index.html") in out
        assert max(len(line) for line in report_text(content_of(finished)).splitlines()) <= 100

    def test_the_same_sentences_everywhere(self, finished):
        """Terminal, page and Markdown are three templates of one document."""
        content = content_of(finished)
        report = build_report(content)
        texts = [report_text(content), html.unescape(as_html(report, {})), html.unescape(as_markdown(report, {}))]
        flat = [" ".join(text.split()) for text in texts]
        for sentence in (*report.leads[0], prose.BOUND, prose.ABLATION, prose.STARTS, prose.ERROR, prose.ONE_SCALE):
            assert all(sentence in text for text in flat)
        assert len(report.leads[0]) == 3


class TestOwnSignals:
    def test_answers(self, of_own):
        report = build_report(content_of(of_own))
        ((run, which, how_many),) = report.leads
        assert "scaled to unit norm (--no-scaling leaves them as they are)" in run
        assert which.startswith("Which method")
        assert how_many.startswith("How many kernel vectors: KDL")
        text = report_text(content_of(of_own))
        assert "paper's claims" not in text
        assert "p = 50" in text
        assert "p = 100" not in text  # 150 signals
        assert "Nyström" in text
        assert (of_own / "figures" / "images-npy-sizes.png").exists()

    def test_without_scaling(self, images, tmp_path):
        folder = tmp_path / "out"
        options = ["--no-scaling", "--methods", "KDL", "DL", *QUICK, "--quiet", "--out", str(folder)]
        assert main(["reproduce", images, *options]) == 0
        (entry,) = content_of(folder)["datasets"].values()
        assert not entry["is_scaled"]
        assert "as they are, not scaled" in (folder / "index.html").read_text()
        rows = np.load(images).reshape(150, -1).astype(np.float32)
        plain = KDL(20, n_nonzero_coefs=4, max_iter=2, random_state=0).fit(rows)
        place = entry["presets"]["own"]["KDL"]
        assert place["settings"]["gamma"] == pytest.approx(plain.gamma_)
        np.testing.assert_allclose(place["rounds"][0]["errors"], plain.update_errors_, rtol=1e-4)

    def test_a_table_with_one_large_column(self, tmp_path, capsys):
        np.save(tmp_path / "table.npy", np.random.default_rng(0).uniform(1.0, 2.0, (80, 3)) * [1.0, 1e4, 1.0])
        options = ["--methods", "DL", *QUICK, "--quiet", "--out", str(tmp_path / "out")]
        for more, is_warned in (([], True), (["--no-scaling", "--fresh"], False)):
            assert main(["reproduce", str(tmp_path / "table.npy"), *options, *more]) == 0
            message = capsys.readouterr().err
            assert ("of which column 2 makes up nearly all; standardise the columns" in message) is is_warned


@pytest.fixture(scope="module")
def signals():
    return normalize_signals(load_digits().data[:200])


class TestPresets:
    @pytest.mark.parametrize(("method", "estimator"), [("RKDL-D", RKDL), ("ORKDL-D", ORKDL)])
    def test_defaults_are_those_of_a_plain_fit(self, signals, method, estimator):
        settings = _presets.settings_of("rkdl", method, "digits", 3)
        found = _presets.Round("rkdl", signals, 5, None).run(method, settings)
        plain = estimator(20, n_nonzero_coefs=4, gamma=0.1, n_kernel_vectors=50, max_iter=3, random_state=5).fit(
            signals
        )
        np.testing.assert_array_equal(found.errors, plain.update_errors_)

    def test_reduced_methods_of_the_paper_share_their_start(self, signals):
        shared = _presets.Round("paper", signals, 5, None)
        settings = {m: _presets.settings_of("paper", m, "digits", 2) for m in ("RKDL-D", "ORKDL-D")}
        fixed = shared.run("RKDL-D", settings["RKDL-D"])
        moved = shared.run("ORKDL-D", {**settings["ORKDL-D"], "n_inner_iter": 0})
        assert moved.errors == fixed.errors
        assert moved.dictionary_seconds == fixed.dictionary_seconds

    def test_dictionary_of_the_paper_is_plain_aksvd(self, signals):
        settings = _presets.settings_of("paper", "RKDL-D", "digits", 1)
        assert settings["start of D"] == "Gaussian"
        found = _presets.Round("paper", signals, 5, None).run("RKDL-D", settings).model.kernel_vectors_
        plain = DL(
            50,
            n_nonzero_coefs=5,
            max_iter=10,
            tol=0,
            pursuit="omp",
            atom_update="aksvd",
            init="random",
            random_state=5,
        ).fit(signals)
        np.testing.assert_allclose(found, plain.components_, rtol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)

    def test_settings_of_the_paper(self):
        settings = _presets.settings_of("paper", "MORKDL-D", "cifar10")
        wanted = {"pursuit": "omp", "atom_update": "aksvd", "init": "random", "max_iter": 10, "tol": 0.0, "gamma": 0.1}
        wanted |= {"n_components": 20, "n_nonzero_coefs": 4, "n_kernel_vectors": 50, "linear_n_nonzero_coefs": 5}
        wanted |= {"solver": "gd", "n_inner_iter": 3, "learning_rate": 6e-4, "linear_weight": 1.0}
        assert {name: settings[name] for name in wanted} == wanted
        assert _presets.settings_of("published", "ORKDL-D", "mnist")["learning_rate"] == 5e-4

    def test_printed_columns(self):
        assert printed_column("mnist", None, (5842, 784)).column == "MNIST"
        assert printed_column("mnist", 7, (6265, 784)) is None
        assert printed_column("cifar10", 0, (5000, 1024)).same_data
        other = printed_column("mnist-5000", None, (5000, 784))
        assert (other.column, other.same_data) == ("Digits", False)
        assert "another data set" in other.remark
        assert printed_column("a/digits.mat", None, (5000, 784)).column == "Digits"
        assert printed_column("digits", None, (1797, 64)) is None


class TestResume:
    COMMON = ["--preset", "rkdl", "--methods", "dl", "nystrom", "--iterations", "2", "--quiet"]

    @pytest.fixture
    def started(self, images, tmp_path):
        folder = tmp_path / "out"
        assert main(["reproduce", images, *self.COMMON, "--rounds", "1", "--out", str(folder)]) == 0
        return folder

    def test_nothing_is_run_twice(self, images, started, monkeypatch):
        made = count_runs(monkeypatch)
        before = (started / "results.json").read_bytes()
        assert main(["reproduce", images, *self.COMMON, "--rounds", "1", "--out", str(started)]) == 0
        assert made == []
        assert (started / "results.json").read_bytes() == before

    def test_rounds_and_methods_are_added(self, images, started, monkeypatch):
        made = count_runs(monkeypatch)
        assert main(["reproduce", images, *self.COMMON, "--rounds", "2", "--out", str(started)]) == 0
        assert made == [("rkdl", "DL", 1), ("rkdl", "Nystrom", 1)]
        made.clear()
        more = ["--preset", "rkdl", "--methods", "DL", "Fourier", "--iterations", "2", "--quiet"]
        assert main(["reproduce", images, *more, "--rounds", "1", "--out", str(started)]) == 0
        assert made == [("rkdl", "Fourier", 0)]
        methods = content_of(started)["datasets"][images]["presets"]["rkdl"]
        assert {name: len(place["rounds"]) for name, place in methods.items()} == {"DL": 2, "Nystrom": 2, "Fourier": 1}

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            (["--seed", "3"], "seed 0, now 3"),
            (["--float64"], "dtype float32, now float64"),
            (["--iterations", "3"], "iterations 2, now 3"),
        ],
    )
    def test_other_settings_are_refused(self, images, started, capsys, change, named):
        before = (started / "results.json").read_bytes()
        assert main(["reproduce", images, *self.COMMON, "--rounds", "1", *change, "--out", str(started)]) == 2
        err = one_line(capsys.readouterr().err)
        for part in (named, str(started), "--out", "--fresh"):
            assert part in err
        assert (started / "results.json").read_bytes() == before

    def test_other_code_is_refused(self, images, started, capsys, monkeypatch):
        monkeypatch.setattr(_store, "source_digest", lambda: "0123456789ab")
        assert main(["reproduce", images, *self.COMMON, "--rounds", "1", "--out", str(started)]) == 2
        assert "rkdl source" in one_line(capsys.readouterr().err)

    def test_other_threads_cores_and_patches_are_noted(self, images, started, monkeypatch):
        content = content_of(started)
        content["machine"]["cores"] = 77
        content["versions"]["numpy"] = ".".join(content["versions"]["numpy"].split(".")[:2]) + ".999"
        (started / "results.json").write_text(json.dumps(content))
        command = ["reproduce", images, *self.COMMON, "--rounds", "2", "--n-jobs", "1", "--out", str(started)]
        assert main(command) == 0
        (_, second) = content_of(started)["datasets"][images]["presets"]["rkdl"]["DL"]["rounds"]
        assert second["made_with"]["n_jobs"] == 1
        assert second["made_with"]["cores"] != 77
        assert second["made_with"]["numpy"] == np.__version__

    def test_results_of_the_wrong_shape(self, images, started, capsys):
        def record(content):
            return content["datasets"][images]["presets"]["rkdl"]["DL"]["rounds"][0]

        spoils = [
            lambda c: c["datasets"][images].pop("presets"),
            lambda c: c["datasets"][images].update(printed={"column": "none"}),
            lambda c: c["datasets"].update({images: []}),
            lambda c: c["datasets"][images]["presets"].update(rkdl=3),
            lambda c: c["datasets"][images]["presets"]["rkdl"].update(DL=None),
            lambda c: record(c).update(errors=[]),
            lambda c: record(c).update(seconds="1"),
            lambda c: record(c).pop("warnings"),
            lambda c: c["machine"].pop("cores"),
            lambda c: c["versions"].pop("rkdl"),
        ]
        text = (started / "results.json").read_text()
        for spoil in spoils:
            content = json.loads(text)
            spoil(content)
            (started / "results.json").write_text(json.dumps(content))
            assert main(["reproduce", images, *self.COMMON, "--rounds", "1", "--out", str(started)]) == 2
            assert "results.json" in one_line(capsys.readouterr().err)
            assert reproduction_page.main([str(started / "results.json")]) == 2
            assert "results.json" in one_line(capsys.readouterr().err)

    def test_other_data_are_refused(self, images, started, tmp_path, capsys):
        rows = np.load(images)
        copy = tmp_path / "others.npy"
        np.save(copy, rows)
        assert main(["reproduce", str(copy), *self.COMMON, "--rounds", "1", "--out", str(started)]) == 0
        np.save(copy, rows[::-1])
        capsys.readouterr()
        assert main(["reproduce", str(copy), *self.COMMON, "--rounds", "1", "--out", str(started)]) == 2
        assert "other data" in one_line(capsys.readouterr().err)
        np.save(tmp_path / "images.npy", rows)
        command = ["reproduce", str(tmp_path / "images.npy"), *self.COMMON, "--rounds", "1", "--out", str(started)]
        assert main(command) == 2
        assert "whose file name is that of" in one_line(capsys.readouterr().err)

    def test_fresh_starts_over(self, images, started, monkeypatch):
        made = count_runs(monkeypatch)
        (started / "mine.txt").write_text("kept")
        command = ["reproduce", images, *self.COMMON, "--rounds", "1", "--seed", "4", "--out", str(started), "--fresh"]
        assert main(command) == 0
        assert made == [("rkdl", "DL", 4), ("rkdl", "Nystrom", 4)]
        assert (started / "mine.txt").exists()

    def test_broken_results(self, images, started, capsys):
        text = (started / "results.json").read_text()
        for broken in (text[:100], "[]", text.replace(f'"format": {_store.FORMAT}', '"format": 9')):
            (started / "results.json").write_text(broken)
            capsys.readouterr()
            assert main(["reproduce", images, *self.COMMON, "--rounds", "1", "--out", str(started)]) == 2
            assert "results.json" in one_line(capsys.readouterr().err)


class TestInterrupt:
    def test_ctrl_c_keeps_what_is_done(self, tmp_path):
        folder = tmp_path / "out"
        command = [sys.executable, "-m", "rkdl", "reproduce", "digits", "--rounds", "500", "--preset", "rkdl"]
        command += ["--methods", "RKDL-D", "ORKDL-D", "--out", str(folder)]
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            for _ in range(600):
                time.sleep(0.1)
                if process.poll() is not None or self._n_records(folder) >= 3:
                    break
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 130, err
        assert "Traceback" not in err
        n_records = self._n_records(folder)
        assert 3 <= n_records < 1000
        assert f"interrupted after {n_records} of 1000 runs" in err
        assert "RKDL-D" in out
        # A fit that was cut short must not pass for a whole one.
        lengths = {len(r["errors"]) for p in self._places(folder) for r in p["rounds"]}
        assert min(lengths) > 5

    def _places(self, folder):
        if not (folder / "results.json").exists():
            return []
        datasets = content_of(folder)["datasets"].values()
        return [place for entry in datasets for methods in entry["presets"].values() for place in methods.values()]

    def _n_records(self, folder):
        return sum(len(place["rounds"]) for place in self._places(folder))


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ([], "COMMAND"),
            (["nonsense"], "nonsense"),
            (["reproduce", "nonsense"], "nonsense"),
            (["reproduce", "no/such/file.npy"], "no/such/file.npy"),
            (["reproduce", "signals.txt"], "signals.txt"),
            (["reproduce", "--nonsense"], "--nonsense"),
            (["reproduce", "--rounds", "0"], "'0' is not"),
            (["reproduce", "--rounds", "many"], "'many' is not"),
            (["reproduce", "--iterations", "-1"], "-1"),
            (["reproduce", "--seed", "-1"], "-1"),
            (["reproduce", "--n-jobs", "0"], "'0' is not"),
            (["reproduce", "--label", "x"], "--label"),
            (["reproduce", "digits", "--label", "12"], "12"),
            (["reproduce", "mnist", "--label", "10", "--no-download"], "10"),
            (["reproduce", "--preset", "paper", "digits"], "'digits' is not a preset"),
            (["reproduce", "--methods", "KSVD"], "'KSVD' is not a method"),
            (["reproduce", "--preset", "published", "--methods", "DL"], "published has none of"),
            (["reproduce", "mnist", "--data-dir", "/no/such/folder", "--no-download"], "/no/such/folder"),
            (["reproduce", "cifar10", "--data-dir", "/no/such/folder", "--no-download"], "/no/such/folder"),
        ],
    )
    def test_options(self, options, named, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(options) == 2
        assert named in one_line(capsys.readouterr().err)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("array", "named"),
        [
            (np.eye(30), "30 signals are too few"),
            (np.ones((60, 5)), "all signals are identical"),
            (np.full((60, 5), np.nan), "array.npy"),
            (np.array(["a"] * 60), "array.npy"),
        ],
    )
    def test_arrays(self, array, named, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, array)
        assert main(["reproduce", str(path), "--out", str(tmp_path / "out")]) == 2
        assert named in one_line(capsys.readouterr().err)

    def test_broken_file(self, images, capsys, tmp_path):
        path = tmp_path / "half.npy"
        with open(images, "rb") as stream:
            path.write_bytes(stream.read(5000))
        assert main(["reproduce", str(path), "--out", str(tmp_path / "out")]) == 2
        assert "half.npy" in one_line(capsys.readouterr().err)

    def test_output_is_no_folder(self, images, capsys, tmp_path):
        (tmp_path / "file").write_text("")
        for out in ("file", "file/below"):
            assert main(["reproduce", images, "--out", str(tmp_path / out)]) == 2
            assert "file" in one_line(capsys.readouterr().err)

    @pytest.mark.parametrize("out", ["", " "])
    def test_output_is_empty(self, images, capsys, out):
        assert main(["reproduce", images, "--out", out]) == 2
        assert "--out" in one_line(capsys.readouterr().err)

    @pytest.mark.parametrize("more", [[], ALL], ids=["own", "presets"])
    @pytest.mark.parametrize("kind", ["two signals", "one feature"])
    def test_data_that_are_learned_exactly(self, images, capsys, tmp_path, kind, more):
        rows = np.load(images).reshape(150, -1)
        array = np.repeat(rows[:2], 40, 0) if kind == "two signals" else np.resize([1.0, -2.0, 3.0], (60, 1))
        path = tmp_path / "exact.npy"
        np.save(path, array)
        code = main(["reproduce", str(path), *QUICK, *more, "--out", str(tmp_path / "out")])
        found = capsys.readouterr()
        assert code == 0 or one_line(found.err)
        assert "Traceback" not in found.err
        if code == 0:
            assert reproduction_page.main([str(tmp_path / "out" / "results.json")]) == 0

    def test_broken_models_are_left_out(self, finished, images, capsys, tmp_path):
        folder = tmp_path / "out"
        shutil.copytree(finished, folder)
        models = sorted((folder / "models").glob("*RKDL-D.npz"))
        models[0].write_bytes(models[0].read_bytes()[:300])
        models[1].write_bytes(b"")
        np.save(models[2].with_suffix(".npy"), np.ones(3))
        models[2].with_suffix(".npy").rename(models[2])
        assert main(["reproduce", images, *QUICK, *ALL, "--out", str(folder), "--quiet"]) == 0
        err = one_line(capsys.readouterr().err)
        page = (folder / "index.html").read_text()
        for path in models[:3]:
            assert path.name in err
            assert path.name in page

    def test_without_stderr(self, images, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(sys, "stderr", None)
        options = ["--preset", "rkdl", "--methods", "DL", *QUICK, "--out", str(tmp_path / "out")]
        assert main(["reproduce", images, *options]) == 0
        capsys.readouterr()
        assert main(["reproduce", "no-such-data"]) == 2
        assert main(["reproduce", "--nonsense"]) == 2
        assert capsys.readouterr().out == ""

    def test_no_log_beside_a_failed_download(self, capsys, tmp_path, monkeypatch):
        pooch = pytest.importorskip("pooch")
        source = _download.SOURCES["mnist"]
        monkeypatch.setitem(_download.SOURCES, "mnist", dataclasses.replace(source, base_url="http://127.0.0.1:9/"))
        logger = pooch.get_logger()
        handler = logging.StreamHandler(logged := io.StringIO())
        level = logger.level
        logger.addHandler(handler)
        try:
            assert main(["reproduce", "mnist", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
        finally:
            logger.removeHandler(handler)
        assert "127.0.0.1" in one_line(capsys.readouterr().err)
        assert logged.getvalue() == ""
        assert logger.level == level

    def test_two_files_of_one_name(self, images, capsys, tmp_path):
        path = tmp_path / "images.npy"
        np.save(path, np.load(images))
        assert main(["reproduce", images, str(path), "--out", str(tmp_path / "out")]) == 2
        assert "same file name" in one_line(capsys.readouterr().err)

    def test_a_method_that_fails_is_named(self, images, capsys, tmp_path, monkeypatch):
        original = _presets.Round.run

        def fail(self, method, settings, *rest):
            if self.scale is not None:
                raise ValueError("no\nway")
            return original(self, method, settings, *rest)

        monkeypatch.setattr(_presets.Round, "run", fail)
        options = ["--preset", "rkdl", "--methods", "DL", "--quiet", *QUICK, "--out", str(tmp_path / "out")]
        assert main(["reproduce", images, *options]) == 2
        assert "rkdl DL: no way" in one_line(capsys.readouterr().err)

    def test_help_and_version(self, capsys):
        assert main(["--help"]) == 0
        assert "reproduce" in capsys.readouterr().out
        assert main(["reproduce", "--help"]) == 0
        assert "--fresh" in capsys.readouterr().out
        assert main(["--version"]) == 0
        assert capsys.readouterr().out.startswith("rkdl 0.")


def test_without_matplotlib(images, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = ["--preset", "rkdl", "--methods", "RKDL-D", *QUICK, "--quiet", "--out", str(tmp_path / "out")]
    assert main(["reproduce", images, *options]) == 0
    assert "rkdl[plots]" in capsys.readouterr().err
    assert "rkdl[plots]" in (tmp_path / "out" / "index.html").read_text()


def test_diverged_runs_are_shown_as_such(images, tmp_path, monkeypatch, capsys):
    original = _presets.Round.run

    def diverge(self, method, settings, *rest):
        outcome = original(self, method, settings, *rest)
        return outcome._replace(errors=[outcome.errors[0], float("nan")], warnings=["the rate 5 is too high"])

    monkeypatch.setattr(_presets.Round, "run", diverge)
    options = ["--preset", "published", *QUICK, "--out", str(tmp_path / "out")]
    assert main(["reproduce", images, *options]) == 0
    out = capsys.readouterr().out
    assert "diverged" in out
    assert "in 1 of 1 rounds: the rate 5 is too high" in out
    assert "not held, one round (KDL, RKDL-D, ORKDL-D, MORKDL-D diverged)" in out
    assert "NaN" not in (tmp_path / "out" / "results.json").read_text()


def test_say_falls_back_to_ascii():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    say("1 ± 2 …", stream)
    stream.seek(0)
    assert stream.read() == "1 +- 2 ?\n"


def synthetic(errors, seconds, *, name="mnist", preset="paper", n_rounds=3, scatter=1e-7, nonzeros=4.0):
    """results.json's content with one preset on one data set; errors and seconds by method."""
    methods = {}
    for position, (method, error) in enumerate(errors.items()):
        rounds = [
            {
                "best_error": error,
                "dictionary_seconds": 0.0 if method == "KDL" else 0.25 * seconds[method],
                "errors": [2 * error, error + scatter * (number - (n_rounds - 1) / 2) * (-1) ** position],
                "mean_nonzeros": nonzeros,
                "peak_bytes": 10**9 if method == "KDL" else 10**8,
                "round": number,
                "seconds": seconds[method] * (1.0 if method == "KDL" else 0.75),
                "seed": number,
                "warnings": [],
            }
            for number in range(n_rounds)
        ]
        methods[method] = {"rounds": rounds, "settings": {"n_nonzero_coefs": 4, "gamma": 0.1}}
    printed = {"mnist": ("MNIST", True), "cifar10": ("CIFAR-10", True), "mnist-5000": ("Digits", False)}.get(name)
    entry = {
        "description": "synthetic, 100 x 10",
        "gamma": 0.1,
        "image_shape": None,
        "is_file": False,
        "is_scaled": True,
        "n_features": 10,
        "n_signals": 100,
        "presets": {preset: methods},
        "printed": None if printed is None else {"column": printed[0], "same_data": printed[1]},
        "remarks": [],
        "sha256": "0" * 64,
    }
    return {
        "datasets": {name: entry},
        "files": [],
        "format": _store.FORMAT,
        "machine": {"cores": 2, "processor": "abacus", "system": "Linux"},
        "settings": {"dtype": "float32", "iterations": None, "n_jobs": None, "seed": 0},
        "versions": {"numpy": "2", "rkdl": "0.1.0"},
    }


def by_method(*values):
    return dict(zip(PAPER_METHODS, values, strict=True))


def claims_of(content):
    (entry,) = content["datasets"].values()
    summaries = summarize(entry)
    (claims,) = _claims.verdicts(summaries).values()
    return {claim.key: claim for claim in claims}


def with_seconds(content, method, seconds):
    """The content with a method's times, round by round."""
    (entry,) = content["datasets"].values()
    (methods,) = entry["presets"].values()
    for record, value in zip(methods[method]["rounds"], seconds, strict=True):
        record.update(seconds=value, dictionary_seconds=0.0)
    return content


class TestClaims:
    def test_all_held(self):
        found = claims_of(synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 47)))
        assert {claim.shown for claim in found.values()} == {"held"}
        assert found["order"].evidence == "8.000e-3 > 7.900e-3 > 7.800e-3 > 7.700e-3"
        assert "6.7 times" in found["six"].evidence
        assert found["saving"].evidence == "ORKDL-D 33 % less, MORKDL-D 22 % less"
        assert "KDL 1.00 GB, RKDL-D 100 MB" in found["memory"].evidence

    def test_none_held(self):
        content = synthetic(by_method(8e-3, 8.4e-3, 8.45e-3, 8.35e-3), by_method(1.0, 0.2, 0.81, 3.0))
        for place in content["datasets"]["mnist"]["presets"]["paper"].values():
            place["rounds"][0]["peak_bytes"] = place["rounds"][1]["peak_bytes"] = 10**9
        found = claims_of(content)
        assert {claim.shown for claim in found.values()} == {"not held"}
        assert found["order"].evidence == "8.000e-3 < 8.400e-3 < 8.450e-3 > 8.350e-3"
        assert found["reduced"].evidence.startswith("against KDL: RKDL-D +5.0 ± 0.0 %, ORKDL-D +5.6")
        assert "RKDL-D +5.0 % in iteration 2, below in 0 of 1" in found["second"].evidence
        assert "lowest KDL" in found["best"].evidence
        assert found["saving"].evidence == "ORKDL-D 19 % less, MORKDL-D 3.0 times as long"

    def test_each_by_itself(self):
        found = claims_of(synthetic(by_method(8e-3, 7.7e-3, 7.8e-3, 7.6e-3), by_method(60, 10, 47, 49)))
        assert {key: claim.verdict for key, claim in found.items()} == {
            "optimised": "not held",
            "similar": "held",
            "reduced": "held",
            "order": "not held",
            "best": "held",
            "second": "held",
            "memory": "held",
            "six": "held",
            "saving": "not held",
        }

    def test_near_kdl_is_similar(self):
        found = claims_of(synthetic(by_method(8e-3, 8.07e-3, 8.05e-3, 8.02e-3), by_method(60, 9, 40, 47)))
        assert (found["similar"].shown, found["reduced"].shown) == ("held", "not held")
        found = claims_of(synthetic(by_method(8e-3, 8.09e-3, 8.05e-3, 8.02e-3), by_method(60, 9, 40, 47)))
        assert found["similar"].shown == "not held"

    def test_time_counts_the_training_of_the_dictionary(self):
        """RKDL-D alone would be eight times faster; with D it is six less a bit."""
        found = claims_of(synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 10.1, 30, 30)))
        assert found["six"].verdict == "not held"

    def test_chance_is_admitted(self):
        errors = by_method(8e-3, 7.9e-3, 7.8e-3, 7.7999e-3)
        noisy = claims_of(synthetic(errors, by_method(60, 9, 40, 40), scatter=1e-6))
        assert noisy["order"].shown == noisy["best"].shown == "held, within scatter"
        assert noisy["reduced"].shown == "held"
        assert claims_of(synthetic(errors, by_method(60, 9, 40, 40), scatter=1e-9))["order"].shown == "held"

    def test_rounds_are_compared_with_themselves(self):
        """Rounds that differ by ten times the gain, which is the same in each."""
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40))
        (methods,) = content["datasets"]["mnist"]["presets"].values()
        for place in methods.values():
            for number, record in enumerate(place["rounds"]):
                record["errors"][-1] += 1e-3 * number
        assert claims_of(content)["order"].shown == "held"

    def test_quantiles_are_students(self):
        """Two rounds: 12.7 standard errors, three: 4.3; a false alarm in one of twenty comparisons."""
        rng = np.random.default_rng(0)
        for count in (2, 3, 10):
            alarms = sum(Margin.of(list(rng.standard_normal(count))).is_clear for _ in range(4000))
            assert 0.035 < alarms / 4000 < 0.065
        assert Margin.of([1.0, 1.1]).half_width == pytest.approx(12.706 * 0.05, rel=1e-3)
        assert Margin.of([1.0]).half_width is None

    def test_times_by_their_median_and_guarded_by_their_scatter(self):
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40))
        assert claims_of(with_seconds(content, "RKDL-D", [9.0, 9.1, 9.2]))["six"].shown == "held"
        assert claims_of(with_seconds(content, "RKDL-D", [9.0, 9.1, 60.0]))["six"].shown == "held, within scatter"
        # One slow round of KDL, as after a compilation, does not make RKDL-D faster.
        content = with_seconds(content, "RKDL-D", [15.0, 15.0, 15.0])
        found = claims_of(with_seconds(content, "KDL", [6000.0, 60.0, 60.0]))
        assert found["six"].shown == "not held, within scatter"
        assert "4.0 times, 15.0 s against 60.0 s" in found["six"].evidence

    def test_times_are_shown_as_they_are_judged(self):
        """By the median of the ratios, which is not the ratio of the medians."""
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40))
        content = with_seconds(with_seconds(content, "KDL", [6.1, 40.0, 70.0]), "RKDL-D", [1.0, 5.0, 20.0])
        assert "6.1 times" in claims_of(content)["six"].evidence
        assert claims_of(content)["six"].verdict == "held"
        content = with_seconds(content, "ORKDL-D", [7.0, 44.0, 77.0])
        assert claims_of(content)["saving"].evidence.startswith("ORKDL-D 10 % more")

    def test_a_missing_method_leaves_them_open(self):
        content = synthetic({"KDL": 8e-3, "RKDL-D": 7.9e-3}, {"KDL": 60, "RKDL-D": 9})
        assert {claim.shown for claim in claims_of(content).values()} == {"not tested"}

    def test_one_round_says_so(self):
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 47), n_rounds=1)
        shown = {key: claim.shown for key, claim in claims_of(content).items()}
        assert shown.pop("memory") == "held"
        assert set(shown.values()) == {"held, one round"}

    def test_times_of_the_published_code_are_those_of_its_program(self):
        errors, seconds = by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(6, 5, 7, 8)
        content = synthetic(errors, seconds, preset="published")
        assert claims_of(content)["six"].shown == "not tested"
        literal = synthetic(errors, by_method(90, 9, 45, 45), preset="literal", n_rounds=1)
        presets = content["datasets"]["mnist"]["presets"]
        presets |= literal["datasets"]["mnist"]["presets"]
        found = claims_of(content)
        assert found["six"].shown == found["saving"].shown == "held, one round"
        assert "10.0 times" in found["six"].evidence
        presets["restricted"] = presets["published"]
        judged = _claims.verdicts(summarize(content["datasets"]["mnist"]))["restricted"]
        assert [claim.shown for claim in judged[-2:]] == ["not tested"] * 2

    def test_nothing_is_divided_by_zero(self):
        for errors in (by_method(0.0, 0.0, 0.0, 0.0), by_method(0.0, 1e-3, 0.0, 1e-3)):
            content = synthetic(errors, by_method(0.0, 0.0, 0.0, 0.0), scatter=0.0)
            assert claims_of(content)["order"].verdict == "not held"
            assert "inf" not in claims_of(content)["reduced"].evidence
            assert report_text(content)

    def test_percent(self):
        assert percent(-0.00001) == percent(0.0) == "0.0 %"
        assert percent(-0.0003) == "-0.03 %"
        assert percent(0.05) == "+5.0 %"
        assert percent(float("nan")) == "diverged"

    @pytest.mark.parametrize(("name", "is_said"), [("digits", True), ("mnist-5000", True), ("mnist", False)])
    def test_other_data_are_said_to_be_other(self, name, is_said):
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 47), name=name)
        report = build_report(content)
        for text in (report_text(content), html.unescape(as_html(report, {})), as_markdown(report, {})):
            assert ("not one of the paper's data sets" in " ".join(text.split())) == is_said

    def test_against_printed(self):
        content = synthetic(by_method(8.081e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 0.5, 2.4, 3))
        text = "\n".join(_claims.against_printed("MNIST", summarize(content["datasets"]["mnist"])["paper"]))
        assert "within 1 % of the printed error: KDL, RKDL-D, ORKDL-D" in text
        assert "below every printed error (7.846e-3): ORKDL-D, MORKDL-D" in text
        assert "divided by the time here: KDL 2, RKDL-D 22, ORKDL-D 20, MORKDL-D 16" in text
        untimed = _claims.against_printed("MNIST", summarize(content["datasets"]["mnist"])["paper"], is_timed=False)
        assert untimed == text.splitlines()[:-1]

    def test_spread(self):
        assert Spread.of_errors([1.0, 3.0]) == Spread(2.0, 2**0.5, 2)
        assert Spread.of_errors([5.0]).scatter is None
        assert np.isnan(Spread.of_errors([1.0, np.nan]).middle)
        assert Spread.of_times([1.0, 2.0, 9.0]) == Spread(2.0, 4.0, 3)

    def test_widest_report_fits_the_terminal(self):
        content = synthetic(dict.fromkeys(METHODS, 1.234e-2), dict.fromkeys(METHODS, 1234.5), name="mnist-5000")
        entry = content["datasets"]["mnist-5000"]
        entry["presets"] = dict.fromkeys([*PRESETS, "literal"], entry["presets"]["paper"])
        text = report_text(content)
        assert max(map(len, text.splitlines())) <= 100
        assert "printed for Digits, which are of another data set" in " ".join(text.split())
        assert "(Digits)" in text
        assert "training of D" in text


class TestLead:
    """The three sentences follow from the verdicts."""

    def report(self, dense, sparse):
        seconds = by_method(60, 9, 40, 40)
        content = synthetic(dense, seconds, preset="published", nonzeros=20.0)
        presets = content["datasets"]["mnist"]["presets"]
        presets |= synthetic(sparse, seconds, preset="restricted")["datasets"]["mnist"]["presets"]
        return build_report(content).leads[0]

    def test_what_holds_and_what_does_not(self):
        run, holds, fails = self.report(
            by_method(8e-3, 7.88e-3, 7.8e-3, 7.7e-3), by_method(8e-3, 8.4e-3, 8.3e-3, 8.2e-3)
        )
        assert "on mnist (100 x 10), in 3 rounds" in run
        assert holds == (
            "What holds: optimising D lowers the error in 2 of the 2 columns, clearly in 2; and clearly: the error "
            "falls in the printed order of the methods and the reduced methods are below KDL from the second iteration "
            "on (published); the reduced methods need less memory than KDL (every column)."
        )
        assert fails.startswith(
            "What clearly fails: the reduced methods end within 1 % of KDL or below it, the error falls in the printed "
            "order of the methods and MORKDL-D has the lowest error (restricted). Why: one line of the published code"
        )
        assert "(20 non-zeros per signal instead of 4)" in fails
        assert "RKDL-D ends 1.5 % below KDL instead of 5.0 % above it" in fails
        assert "As for time" not in fails

    def test_no_cause_without_an_effect(self):
        same = by_method(8e-3, 8.4e-3, 8.3e-3, 8.2e-3)
        fails = self.report(same, same)[2]
        assert "What clearly fails" in fails
        assert "one line" not in fails

    def test_no_cause_without_a_failure(self):
        _, holds, fails = self.report(by_method(8e-3, 7.6e-3, 7.5e-3, 7.4e-3), by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3))
        assert holds.startswith(
            "What holds: optimising D lowers the error in 2 of the 2 columns, clearly in 2; and clearly: "
        )
        assert fails == "No claim clearly fails."

    def test_nothing_that_differs_between_data_sets(self):
        """A claim that holds on one of two data sets is in neither sentence."""
        seconds = by_method(60, 9, 40, 40)
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), seconds)
        content["datasets"] |= synthetic(by_method(8e-3, 7.9e-3, 7.7e-3, 7.8e-3), seconds, name="cifar10")["datasets"]
        _, holds, fails = build_report(content).leads[0]
        assert holds.startswith(
            "What holds: optimising D lowers the error in 2 of the 2 columns of all data sets, clearly in 2"
        )
        assert "and clearly on both data sets: the reduced methods" in holds
        assert "order" not in holds + fails
        assert fails == "No claim clearly fails on both data sets."

    def test_the_main_claim_is_counted(self):
        """Where it holds in most columns, and not where it fails."""
        low, high = by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(8e-3, 7.6e-3, 7.8e-3, 7.7e-3)
        seconds = by_method(60, 9, 40, 40)
        content = synthetic(low, seconds)
        presets = content["datasets"]["mnist"]["presets"]
        for preset, errors in (("published", low), ("rkdl", high)):
            presets |= synthetic(errors, seconds, preset=preset)["datasets"]["mnist"]["presets"]
        _, holds, fails = build_report(content).leads[0]
        assert "optimising D lowers the error in 2 of the 3 columns, clearly in 2;" in holds
        assert "optimising D lowers the error" in fails
        for preset in ("paper", "published"):
            presets |= synthetic(high, seconds, preset=preset)["datasets"]["mnist"]["presets"]
        _, holds, fails = build_report(content).leads[0]
        assert "optimising D" not in holds
        assert "What clearly fails: optimising D lowers the error" in fails

    def test_single_rounds_are_marked(self):
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(6, 5, 7, 8), preset="published")
        literal = synthetic(
            by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(90, 9, 45, 45), preset="literal", n_rounds=1
        )
        content["datasets"]["mnist"]["presets"] |= literal["datasets"]["mnist"]["presets"]
        holds = build_report(content).leads[0][1]
        assert (
            "RKDL-D is at least six times faster than KDL (published in one round); ORKDL-D and MORKDL-D save" in holds
        )
        assert "of KDL's time (published in one round)." in holds

    def test_one_round_makes_nothing_clear(self):
        errors, seconds = by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40)
        content = synthetic(errors, seconds, n_rounds=1)
        more = synthetic(errors, seconds, n_rounds=1, preset="rkdl")
        content["datasets"]["mnist"]["presets"] |= more["datasets"]["mnist"]["presets"]
        _, holds, fails = build_report(content).leads[0]
        assert "clear" not in holds + fails
        assert holds.startswith("What holds: optimising D lowers the error, the error falls in the printed order")
        assert "(every column in one round)" in holds
        assert fails == "No claim fails."

    def test_reason_for_times(self):
        errors = by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3)
        content = synthetic(errors, by_method(1.0, 0.5, 1.1, 1.2))
        presets = content["datasets"]["mnist"]["presets"]
        for preset, times in (("published", (1.5, 0.5, 1.1, 1.2)), ("literal", (100.0, 2.0, 40.0, 40.0))):
            presets |= synthetic(errors, by_method(*times), preset=preset)["datasets"]["mnist"]["presets"]
        fails = build_report(content).leads[0][2]
        assert "a faster route takes 1.5 s for what takes the authors' KDL 100 s" in fails


class TestOwnLead:
    """The answers follow from the errors and times."""

    def answers(self, errors, seconds):
        report = build_report(synthetic(errors, seconds, name="mine.csv", preset="own", scatter=0.0))
        return report.leads[0][1:]

    def test_few_kernel_vectors_are_enough(self):
        errors = {"KDL, 70 iterations": 8e-3, "ORKDL-D, p = 20": 8.2e-3, "ORKDL-D, p = 50": 8.05e-3}
        errors |= {"RKDL-D, p = 20": 9e-3, "RKDL-D, p = 50": 8.07e-3, "Nystrom, p = 50": 8.4e-3}
        which, how_many = self.answers(errors, {**dict.fromkeys(errors, 1.0), "RKDL-D, p = 50": 0.25})
        assert "KDL with 70 iterations has the lowest error, 8.000e-3 in 1.00 s" in which
        assert "the fastest method within 1 % of it is RKDL with p = 50, with +0.9 % in 0.250 s (4.0 times" in which
        assert how_many == (
            "How many kernel vectors: KDL, which uses all 100 signals, ends at 8.000e-3; ORKDL with p = 50 and RKDL "
            "with p = 50 come within 1 % of it, but Nyström sampling (+5.0 % with p = 50) does not."
        )

    def test_none_are_enough(self):
        errors = {"KDL": 8e-3, "ORKDL-D, p = 20": 8.4e-3, "RKDL-D, p = 20": 8.8e-3}
        which, how_many = self.answers(errors, dict.fromkeys(errors, 1.0))
        assert which.endswith("and no method within 1 % of it is faster.")
        assert how_many.endswith(
            "ORKDL (+5.0 % with p = 20) and RKDL (+10.0 % with p = 20) do not come within 1 % of it."
        )

    def test_nothing_to_compare(self):
        assert "no run of KDL" in self.answers({"RKDL-D, p = 20": 8e-3}, {"RKDL-D, p = 20": 1.0})[1]
        assert "no method with kernel vectors" in self.answers({"KDL": 8e-3}, {"KDL": 1.0})[1]


class TestStudies:
    def test_starts_are_compared_with_the_same_start(self):
        errors = {"KDL, A Gaussian": 8e-3, "KDL, A signals": 7.5e-3, "RKDL-D, D signals, A signals": 7.65e-3}
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40))
        starts = synthetic(errors, dict.fromkeys(errors, 1.0), preset="starts")
        content["datasets"]["mnist"]["presets"] |= starts["datasets"]["mnist"]["presets"]
        assert "RKDL-D, D from signals, A from signals  +2.0 ± 0.0 %" in report_text(content)

    def test_equal_work_needs_all_of_its_runs(self):
        errors = {"KDL, 70 iterations": 8e-3, "ORKDL-D, 30 iterations": 8e-3}
        content = synthetic(by_method(8e-3, 7.9e-3, 7.8e-3, 7.7e-3), by_method(60, 9, 40, 40))
        presets = content["datasets"]["mnist"]["presets"]
        presets |= synthetic(errors, dict.fromkeys(errors, 1.0), preset="work")["datasets"]["mnist"]["presets"]
        assert "at equal work" not in report_text(content)
        errors |= {"KDL, 130 iterations": 7.9e-3, "ORKDL-D, 60 iterations": 7.9e-3}
        presets |= synthetic(errors, dict.fromkeys(errors, 1.0), preset="work")["datasets"]["mnist"]["presets"]
        assert "at equal work" in report_text(content)


class TestDocument:
    def write(self, tmp_path, content, capfdbinary):
        path = tmp_path / "results.json"
        path.write_text(json.dumps(content))
        assert reproduction_page.main([str(path)]) == 0
        return capfdbinary.readouterr().out.decode()

    def test_tables(self, tmp_path, capfdbinary):
        content = synthetic(PRINTED_ERRORS["MNIST"], by_method(60, 9, 40, 40))
        page = self.write(tmp_path, content, capfdbinary)
        assert page.startswith("# Reduced kernel dictionary learning")
        assert "| KDL | 8.081e-3 ± 1e-7 | 8.081e-3 |" in page
        assert "arXiv:2307.08798" in page
        assert "K_YD' - K_DD R'" in page

    def test_from_a_real_run(self, finished, tmp_path, capfdbinary):
        images = tmp_path / "images"
        images.mkdir()
        assert reproduction_page.main([str(finished / "results.json"), "--images", str(images)]) == 0
        page = capfdbinary.readouterr().out.decode()
        for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
            assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
        linked = re.findall(r"\]\(images/(.*?)\)", page)
        assert sorted(linked) == sorted(path.name for path in images.iterdir())
        assert len(linked) == 3
        assert re.search(r"ORKDL-D moves them by \d+ % in paper and \d+ % in rkdl", page)

    def test_errors(self, tmp_path, capsys):
        assert reproduction_page.main([str(tmp_path / "none.json")]) == 2
        assert "none.json" in one_line(capsys.readouterr().err)
        content = synthetic({}, {})
        (tmp_path / "empty.json").write_text(json.dumps(content))
        assert reproduction_page.main([str(tmp_path / "empty.json")]) == 2
        assert "no finished run" in one_line(capsys.readouterr().err)


def test_without_a_template_engine(images, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["reproduce", images, *QUICK, "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "rkdl[plots]"' in one_line(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_module_runs(tmp_path):
    found = subprocess.run(
        [sys.executable, "-m", "rkdl", "reproduce", "no-such-data"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert found.returncode == 2
    assert "no-such-data" in one_line(found.stderr)
    assert found.stdout == ""
