"""The commands on one's own data: ``rkdl fit``, ``encode``, ``denoise``, ``outliers`` and ``classify``."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, RobustScaler, StandardScaler

import rkdl
from rkdl import DL, ORKDL, KDLClassifier, KDLOutlierDetector
from rkdl._cli import main
from rkdl.datasets import DatasetError
from rkdl.datasets._files import read_arrays

QUICK = ["--quiet", "--set", "max_iter=2", "--set", "n_kernel_vectors=12", "--atoms", "8"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(line, *more):
    """A command that succeeds."""
    assert main([*shlex.split(line), *more]) == 0


@pytest.fixture(scope="module")
def iris():
    data = load_iris()
    order = np.random.default_rng(0).permutation(150)
    return data.data[order], data.target_names[data.target[order]]


def write_csv(path, header, rows, delimiter=","):
    with open(path, "w", newline="") as stream:
        csv.writer(stream, delimiter=delimiter).writerows([header, *rows] if header else rows)


def read_csv(path, delimiter=","):
    with open(path, newline="") as stream:
        rows = list(csv.reader(stream, delimiter=delimiter))
    return rows[0], rows[1:]


@pytest.fixture
def tables(iris):
    """``train.csv`` and ``test.csv`` with a class and an identifier; columns of the second in another order."""
    X, y = iris
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    rows = [[f"flower {row}", *X[row], y[row]] for row in range(150)]
    write_csv("train.csv", ["name", *names, "species"], rows[:100])
    write_csv("test.csv", ["species", *names[::-1], "name"], [row[::-1] for row in rows[100:]])
    return X[:100], y[:100], X[100:], y[100:]


def png(kind, channels):
    """A PNG file of 16 bits, which Pillow does not write."""
    pixels = np.arange(16 * channels).reshape(4, 4, channels).astype(">u2")
    data = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = [
        (b"IHDR", bytes([0, 0, 0, 4, 0, 0, 0, 4, 16, kind, 0, 0, 0])),
        (b"IDAT", zlib.compress(data)),
        (b"IEND", b""),
    ]
    chunks = (
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big") for name, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


PPM = b"P6\n2 2\n1023\n" + np.arange(12).astype(">u2").tobytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory, iris):
    """A folder of files that are wrong, and of some that are right."""
    folder = tmp_path_factory.mktemp("files")
    X, y = iris
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_csv("iris.csv", ["name", "a", "b", "c", "d", "kind"], [[f"f{n}", *X[n], y[n]] for n in range(150)])
        write_csv("numbers.csv", ["a", "b", "c", "d"], X)
        write_csv("two.csv", ["a", "b"], X[:, :2])
        write_csv("commas.csv", ["a", "b"], [["1,5", 2], ["2,5", 3]], ";")
        write_csv("gaps.csv", ["a", "b", "c"], [[1, 2, 3], [4, "", 6], [7, "NA", "inf"], [1, 0, 1]])
        write_csv("truths.csv", ["a", "is"], [[0.5, "TRUE"], [1.5, ""], [2.5, "false"]])
        write_csv("label.csv", ["a", "b", "c"], [[1, 2, "x"], [3, 4, ""], [5, 6, "y"]])
        texts = {"empty": "", "header": "a,b\n", "long": "a,b\n1,2\n1,2,3\n", "twice": "a,a\n1,2\n", "bytes": "\udcff"}
        for name, text in texts.items():
            with open(f"{name}.csv", "wb") as stream:
                stream.write(text.encode(errors="surrogateescape"))
        np.save("X.npy", X)
        np.save("y.npy", y)
        np.save("pairs.npy", y.reshape(75, 2))
        np.save("more.npy", np.arange(151) % 2)
        np.save("wide.npy", np.ones((3, 7)))
        np.save("line.npy", np.ones(5))
        np.save("nan.npy", np.where(np.arange(150)[:, np.newaxis] == 3, np.nan, X))
        np.save("objects.npy", np.array([{}], dtype=object))
        np.savez("several.npz", one=X, two=X)
        with open("huge.npy", "wb") as stream:
            header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10**12)}
            np.lib.format.write_array_header_1_0(stream, header)
        for name in ("old.zarr", "none", "broken", "images/sub"):
            os.makedirs(name)
        os.symlink("none", "link.zarr")
        for name in ("data.xlsx", "broken/bad.png"):
            with open(name, "w") as stream:
                stream.write("nothing")
        if hasattr(os, "mkfifo"):
            os.mkfifo("fifo.csv")
        image = pytest.importorskip("PIL.Image")
        for kind in (np.uint16, np.int32, np.float32):
            os.makedirs(f"deep {kind.__name__}")
            image.fromarray(np.arange(64, dtype=kind).reshape(8, 8)).save(f"deep {kind.__name__}/deep.tiff")
        for name, content in (("RGB.png", png(2, 3)), ("LA.png", png(4, 2)), ("RGBA.png", png(6, 4)), ("a.ppm", PPM)):
            os.makedirs(f"deep {name}")
            with open(f"deep {name}/{name}", "wb") as stream:
                stream.write(content)
        os.makedirs("frames")
        frames = [image.fromarray(np.full((6, 6), number, np.uint8)) for number in range(3)]
        frames[0].save("frames/a.gif", save_all=True, append_images=frames[1:])
        os.makedirs("clear")
        image.fromarray(np.arange(100, dtype=np.uint8).reshape(5, 5, 4)).save("clear/a.png")
        image.new("RGB", (10, 6), (255, 0, 0)).save("images/red.png")
        image.new("L", (8, 8)).save("images/sub/grey.png")
        run("fit numbers.csv --out model", *QUICK)
        run("fit X.npy --kernel poly --out poly", *QUICK)
        KDLOutlierDetector(n_members=2, max_iter=1, random_state=0).fit(X).save("detector")
    return folder


REFUSALS = """
fit numbers.csv --out r --method dl --kernel rbf -> --kernel does not apply to DL
fit numbers.csv --out r --set speed=3 -> Invalid parameter 'speed'
fit numbers.csv --out r --set speed -> give NAME=VALUE
fit numbers.csv --out r --set n_components=many -> must be an int
fit numbers.csv --out r --nonzeros 1 --set n_components=True -> integer
fit numbers.csv --out r --set gamma={[]:1} -> gamma
fit numbers.csv --out r --method svd -> invalid choice
fit numbers.csv --out r --atoms 0 -> 'n_components' parameter of ORKDL must be an int in the range [1, inf). Got 0
fit numbers.csv --out r --gamma=-1 -> 'gamma' parameter of ORKDL must be
fit numbers.csv --out no/such/folder/r -> does not exist: make it first
fit --drop a numbers.csv --out r -> required: DATA; give it before --drop
fit iris.csv --out r -> iris.csv: 2 columns are not numeric: name ('f0'), kind (
fit iris.csv --out r -> ; leave them out (--drop), copy them to the results (--keep), name the classes (--label), or
fit iris.csv --out r --drop name -> ; leave it out (--drop)
fit iris.csv --out r --label color -> there is no column 'color'; its columns are name, a, b
fit iris.csv --out r --drop color -> there is no column 'color'
fit link.zarr --out none/zarr.json -> is also an input
fit commas.csv --out r -> write decimal points instead of commas
fit gaps.csv --out r -> missing or infinite values in b (2), c (1), the first in column 'b', row 2 (from 1)
fit truths.csv --out r -> missing or infinite values in is (1)
fit empty.csv --out r -> the file is empty
fit header.csv --out r -> the table has no rows
fit long.csv --out r -> Expected 2 fields in line 3, saw 3
fit twice.csv --out r -> several columns are called a
fit bytes.csv --out r -> cannot be read as a CSV file in UTF-8
fit fifo.csv --out r -> fifo.csv
fit several.npz --out r -> choose one by its name
fit objects.npy --out r -> cannot be read as an array
fit line.npy --out r -> its array is 1-D
fit nan.npy --out r -> contains NaN
fit huge.npy --out r -> huge.npy
fit X.npy --drop a --out r -> --drop is for tables, which X.npy is not
fit numbers.csv --key a --out r -> --key is for files of arrays, which numbers.csv is not
fit numbers.csv --size 3 3 --out r -> --size is for folders of images, which numbers.csv is not
fit numbers.csv --color --out r -> --color is for folders of images
fit X.npy --key a --out r -> one array without a name
fit data.xlsx --out r -> the ending '.xlsx' is not known
fit old.zarr --out r -> old.zarr: cannot be read as an array
fit none --out r -> there are no images in this folder
fit broken --out r -> cannot be read as an image
fit "deep uint16" --out r -> more than 8 bits
fit "deep int32" --out r -> more than 8 bits
fit "deep float32" --out r -> more than 8 bits
fit "deep RGB.png" --out r -> more than 8 bits
fit "deep LA.png" --out r -> more than 8 bits
fit "deep RGBA.png" --out r -> more than 8 bits
fit "deep a.ppm" --out r -> more than 8 bits
fit frames --out r -> a.gif: holds several images; save each as a file of its own
fit clear --out r -> a.png: is transparent in places; save it with a background
fit images --out r -> grey.png: is 8 x 8 pixels, and red.png 10 x 6; resize all images with --size WIDTH HEIGHT
encode model iris.csv --out iris.csv -> iris.csv is also an input
encode model iris.csv --out ./iris.csv -> is also an input
encode model iris.csv --out r.xls -> the ending '.xls' is not known
encode model iris.csv --out old.zarr -> exists already
encode model iris.csv --keep name --out r.npz -> no columns for --keep: give a file that has, .csv, .tsv, .parquet
denoise model iris.csv --keep name --out r.zarr -> no columns for --keep
encode model absent.csv --out r.npz -> no such file
encode model iris.csv --drop name b a --out r.csv -> the model was fitted on a, b; leave it out of --drop
encode iris.csv iris.csv --out r.npz -> not a file of rkdl
encode model two.csv --out r.npz -> there are no columns c, d, which the model was fitted on; its columns
encode model wide.npy --out r.npz -> wide.npy has 7 features, and
encode model images --size 5 4 --out r.npz -> images has 20 features, and the model was fitted on 4; give --size
encode detector X.npy --out r.npz -> detector holds a KDLOutlierDetector, and rkdl encode needs DL or
denoise poly X.npy --out r.npy -> fit it with --decoder
denoise model images --out images -> is also an input
denoise model images --out images/new -> is also an input
fit images --out images/red.png -> images/red.png is also an input
fit images --out r --checkpoint images/sub/new.PNG -> is also an input
fit X.npy --checkpoint X.npy --out r -> X.npy is also an input
fit X.npy --checkpoint r --out ./r -> also the file of --out
outliers numbers.csv --standardize -> unrecognized arguments: --standardize
outliers numbers.csv --contamination 0 -> 'contamination' parameter of KDLOutlierDetector must be
outliers numbers.csv --model model -> and rkdl outliers needs KDLOutlierDetector; give a file
outliers numbers.csv --model detector --contamination 0 -> --contamination is for training
outliers numbers.csv --out r.npy -> use .csv, .tsv, .parquet, .npz
classify iris.csv --drop name --label kind -> nothing to do
classify iris.csv --drop name --label kind --out r.csv -> nothing to predict
classify iris.csv --drop name --save r -> kind
classify iris.csv --drop name --label kind --cv 1 -> n_splits=2 or more
classify iris.csv --drop name --label kind --cv 90 -> n_splits=90 cannot be greater than the number of members
classify label.csv --label c --save r -> the label of row 2 (from 1) is missing
classify X.npy --label more.npy --save r -> there are 150 signals and 151 labels
classify X.npy --label pairs.npy --save r -> there are 150 signals and 75 labels
classify X.npy --save r -> the labels are missing: name them with --label
classify X.npy --label y.npy --save y.npy -> y.npy is also an input
classify X.npy --label y.npy --test X.npy --out r.npz --save r.npz -> also the file of --out
classify images --label kind --save r -> classes of images are the subfolders
classify "deep uint16/" --save r -> more than 8 bits
""".strip().splitlines()


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, files, capsys, monkeypatch):
    """One line on stderr that says what is wrong, exit code 2, and nothing written."""
    command, message = case.split(" -> ")
    monkeypatch.chdir(files)
    before = sorted(os.listdir())
    capsys.readouterr()
    assert main(shlex.split(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(("rkdl: error: ", "rkdl "))
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert sorted(os.listdir()) == before


class TestFit:
    def test_saves_what_the_library_would(self, tables, capsys):
        options = ["--atoms", "6", "--nonzeros", "2", "--kernel-vectors", "10", "--iterations", "3", "--gamma", "0.3"]
        run("fit train.csv --drop species name --no-standardize --out model.rkdl", *options)
        model = rkdl.load("model.rkdl")
        same = ORKDL(6, n_nonzero_coefs=2, n_kernel_vectors=10, max_iter=3, gamma=0.3, random_state=0).fit(tables[0])
        np.testing.assert_array_equal(model.dual_components_, same.dual_components_)
        np.testing.assert_array_equal(model.kernel_vectors_, same.kernel_vectors_)
        assert list(model.feature_names_in_) == ["sepal length", "sepal width", "petal length", "petal width"]
        said = capsys.readouterr().out
        assert f"ORKDL: 6 atoms on 10 kernel vectors represent {same.score(tables[0]):.1%}" in said

    @pytest.mark.parametrize("method", ["dl", "FOURIERDL", "kdl", "rkdl", "morkdl"])
    def test_methods(self, tables, method):
        assert main(["fit", "train.csv", "--drop", "species", "name", "--method", method, "--quiet",
                     "--iterations", "2", "--out", "model.rkdl"]) == 0  # fmt: skip
        assert type(rkdl.load("model.rkdl")[-1]).__name__.lower() == method.lower()

    def test_any_parameter(self, tables):
        argv = ["fit", "train.csv", "--drop", "species", "name", "--quiet", "--out", "m", "--method", "rkdl"]
        assert main([*argv, "--set", "pursuit=omp", "--set", "tol=0.5", "--set", "init='data'"]) == 0
        model = rkdl.load("m")[-1]
        assert (model.pursuit, model.tol, model.init) == ("omp", 0.5, "data")

    def test_checkpoint(self, tables):
        argv = ["fit", "train.csv", "--drop", "species", "name", "--quiet", "--checkpoint", "state", "--out", "m"]
        assert main([*argv, "--iterations", "2", "--set", "tol=0"]) == 0
        # A model of another name is not there yet.
        assert main([*argv[:-1], "m3", "--iterations", "3", "--set", "tol=0"]) == 0
        assert len(rkdl.load("m3")[-1].update_errors_) == 3

    def test_interrupted_fit_is_saved(self, tables, monkeypatch, capsys):
        def interrupted(self, X, checkpoint=None):
            original(self, X)
            raise KeyboardInterrupt

        original = ORKDL.fit
        monkeypatch.setattr(ORKDL, "fit", interrupted)
        argv = ["fit", "train.csv", "--drop", "species", "name", "--iterations", "2", "--out", "m"]
        assert main(argv) == 130
        assert "interrupted after 2 iterations; m holds the best model so far" in capsys.readouterr().err
        assert len(rkdl.load("m")[-1].update_errors_) == 2


class TestTables:
    def test_truth_values_are_numbers(self, capsys):
        """As in Parquet files, whatever their case, and next to missing values, which are still refused."""
        rng = np.random.default_rng(0)
        numbers, truths = rng.normal(size=(5000, 2)), rng.random(5000) > 0.5
        write_csv("words.csv", ["a", "b", "is"], [[*row, t] for row, t in zip(numbers, truths, strict=True)])
        write_csv("numbers.csv", ["a", "b", "is"], [[*row, int(t)] for row, t in zip(numbers, truths, strict=True)])
        for name in ("words", "numbers"):
            assert main(["fit", f"{name}.csv", *QUICK, "--out", name]) == 0
        np.testing.assert_array_equal(*(rkdl.load(name)[-1].kernel_vectors_ for name in ("words", "numbers")))

    def test_without_a_header_columns_have_numbers(self, iris):
        X, y = iris
        write_csv("plain.csv", None, [[label, *row] for label, row in zip(y, X, strict=True)])
        run("fit plain.csv --drop 1 --out m", *QUICK)
        model = rkdl.load("m")
        assert (model.n_features_in_, hasattr(model, "feature_names_in_")) == (4, False)
        run("outliers plain.csv --drop 1 --out s.csv", *QUICK[:3])
        assert read_csv("s.csv")[0][:5] == ["row", "2", "3", "4", "5"]

    def test_header_of_numbers(self, iris, capsys):
        """The names that pandas gives to columns are a header, others are if one says so; none is lost silently."""
        X, y = iris
        for header, option, said in (
            ([0, 1, 2, 3, "kind"], [], "the first line, 0, 1, 2 ..., is read as the header"),
            ([10, 20, 30, 40, "kind"], ["--header"], ""),
        ):
            write_csv("named.csv", header, [[*row, label] for row, label in zip(X, y, strict=True)])
            run("fit named.csv --drop kind --out m", *option, *QUICK)
            assert list(rkdl.load("m").feature_names_in_) == [str(name) for name in header[:4]]
            assert said in capsys.readouterr().err
        assert main(["fit", "named.csv", "--no-header", "--drop", "kind", "--out", "m"]) == 2
        assert "no column 'kind'" in capsys.readouterr().err

    def test_no_row_or_column_is_lost(self, iris, rng, capsys):
        """Rows that begin with a hash sign are rows; kept cells stay as they are written, and are never overwritten."""
        X, _ = iris
        ids = ["#1", "007", "NA", "1.0", *map(str, range(146))]
        write_csv("data.csv", ["id", "a", "b"], [[name, *row[:2]] for name, row in zip(ids, X, strict=True)])
        assert main(["outliers", "data.csv", "--keep", "id", "--out", "s.csv", *QUICK[:3]]) == 0
        assert [row[0] for row in read_csv("s.csv")[1]] == ids
        assert main(["outliers", "data.csv", "--keep", "id", "--keep", "a", "--out", "s.csv", *QUICK[:3]]) == 0
        assert read_csv("s.csv")[0][:4] == ["id", "a", "row", "b"]
        run("fit data.csv --drop id --out m", *QUICK)
        names = ["outlier", "predicted", "p(0)", "orkdl0", "a", "b", "outlier (given)"]
        write_csv("clash.csv", names, (rng.random((50, 7)) > 0.5) * 1)
        run("outliers clash.csv --out s.csv", *QUICK[:3])
        assert read_csv("s.csv")[0][1:8] == ["outlier (given) (given)", *names[1:]]
        classify = ["classify", "clash.csv", "--label", "b", "--test", "clash.csv"]
        for column, argv in (
            ("outlier", ["outliers", "clash.csv"]),
            ("predicted", classify),
            ("p(0)", classify),
            ("orkdl0", ["encode", "m", "clash.csv"]),
            ("a", ["denoise", "m", "clash.csv"]),
        ):
            assert main([*argv, "--keep", column, "--out", "r.csv"]) == 2
            assert f"the results have a column '{column}' of their own" in capsys.readouterr().err

    def test_kept_columns_must_be_in_new_data(self, rng, capsys):
        write_csv("data.csv", ["id", "a", "b"], [[number, *rng.standard_normal(2)] for number in range(50)])
        run("fit data.csv --drop id --out m", *QUICK)
        for command in ("encode", "denoise"):
            assert main([command, "m", "data.csv", "--keep", "ID", "--out", "r.csv"]) == 2
            assert "there is no column 'ID'; its columns are id, a, b" in capsys.readouterr().err

    def test_blank_lines_in_one_column(self, capsys):
        """Cells may be missing there, and the rows after them would move up."""
        values = "\n".join(map(str, range(20)))
        for text, status in (
            (f"v\n{values}\n\n{values}\n", 2),
            (f'v\n{values}\n""\n{values}\n', 2),
            (f"\n\nv\n{values}\n\n\n", 0),
        ):
            Path("data.csv").write_text(text)
            assert main(["outliers", "data.csv", "--quiet"]) == status
            assert ("data.csv: line 22 is blank" in capsys.readouterr().err) == (status == 2)

    def test_images_are_not_written_over_others_of_the_folder(self, rng, capsys):
        """As those of im/im would be, in the folder above, over those of im."""
        Image = pytest.importorskip("PIL.Image")
        Path("im", "im").mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 255, (4, 4)).astype(np.uint8)
            Image.fromarray(pixels).save(Path("im", *["im"] * (number % 2), f"{number // 2}.png"))
        run("fit im --method dl --atoms 4 --out m --quiet")
        before = {path: path.read_bytes() for path in Path("im").rglob("*.png")}
        assert main(["denoise", "m", "im", "--out", "."]) == 2
        assert "is also an input and would be overwritten" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in Path().rglob("*.png")} == before
        run("denoise m im/im --out . --quiet")

    def test_columns_of_different_scales_raise_a_warning(self, rng, capsys):
        X = rng.standard_normal((60, 2)) * [1.0, 5000.0]
        write_csv("data.csv", ["age", "income"], X)
        run("fit data.csv --no-standardize --out m", *QUICK)
        assert "column 1 (counted from 0) varies more than ten times" in capsys.readouterr().err
        # The detector standardises by itself, and says which rows and why.
        X[[7, 20]] = [[9.0, 0.0], [0.0, 80_000.0]]
        write_csv("data.csv", ["age", "income"], X)
        run("outliers data.csv --top 2 --explain")
        captured = capsys.readouterr()
        assert captured.err == ""
        for row, name in ((8, "age"), (21, "income")):
            assert re.search(rf"counted from 1\n(.*\n)*  row {row}: anomaly [\d.]+, because of {name}", captured.out)
        run("outliers data.csv --sort --explain --save d.rkdl --out s.csv")
        header, rows = read_csv("s.csv")
        assert header == ["row", "age", "income", "anomaly", "outlier", "because"]
        assert {row[0] for row in rows[:2]} == {"8", "21"}
        # The scaling travels with the saved detector.
        run("outliers data.csv --model d.rkdl --sort --out t.csv")
        assert [row[:4] for row in read_csv("t.csv")[1]] == [row[:4] for row in rows]


class TestEncode:
    @pytest.fixture
    def model(self, tables):
        run("fit train.csv --drop species name --out model.rkdl", *QUICK)
        return rkdl.load("model.rkdl")

    def expected(self, model, X):
        with pytest.warns(UserWarning, match="valid feature names"):
            return model.transform(X)

    def test_columns_are_found_by_name(self, model, tables):
        """Columns in another order, and others beside them, do not change the codes."""
        run("encode model.rkdl test.csv --keep name --out codes.csv --quiet")
        header, rows = read_csv("codes.csv")
        assert header == ["name", *model.get_feature_names_out()]
        assert rows[0][0] == "flower 100"
        codes = np.array([row[1:] for row in rows], dtype=float)
        np.testing.assert_array_equal(codes, self.expected(model, tables[2]))

    @pytest.mark.parametrize("ending", ["npz", "npy", "zarr", "parquet"])
    @pytest.mark.parametrize("more", [[], ["--float32"]])
    def test_formats(self, model, tables, ending, more):
        path = f"codes.{ending}"
        pytest.importorskip({"zarr": "zarr", "parquet": "pyarrow"}.get(ending, "numpy"), exc_type=ImportError)
        read = {
            "npz": lambda: sparse.load_npz(path).toarray(),
            "npy": lambda: np.load(path),
            "zarr": lambda: pytest.importorskip("zarr").open(path, mode="r")[:],
            "parquet": lambda: pd.read_parquet(path).set_index("row")[model.get_feature_names_out()].to_numpy(),
        }
        run(f"encode model.rkdl test.csv --out {path} --quiet", *more)
        expected = self.expected(model, tables[2].astype(np.float32) if more else tables[2])
        codes = read[ending]()
        assert codes.dtype == expected.dtype
        np.testing.assert_array_equal(codes, expected)

    def test_dense_codes(self, model, tables):
        for name in ("codes.npy", "codes.csv"):
            assert main(["encode", "model.rkdl", "test.csv", "--out", name, "--quiet"]) == 0
        expected = self.expected(model, tables[2])
        np.testing.assert_allclose(np.load("codes.npy"), expected, atol=1e-12)
        header, rows = read_csv("codes.csv")
        assert header[0] == "row"
        assert [row[0] for row in rows] == [str(row) for row in range(1, 51)]
        np.testing.assert_allclose(np.array([row[1:] for row in rows], float), expected, atol=1e-12)


class TestArrays:
    """npy, npz, sparse npz, Zarr and MATLAB files."""

    @pytest.fixture
    def images(self):
        return load_digits().images[:120]

    def fitted(self, name, *options):
        assert main(["fit", name, *QUICK, *options, "--out", "m"]) == 0
        return rkdl.load("m").dual_components_

    def test_standardising_takes_one_copy(self):
        np.save("a.npy", np.random.default_rng(0).standard_normal((200_000, 20)))
        tracemalloc.start()
        run("fit a.npy --method dl --atoms 4 --iterations 1 --standardize --quiet --out m")
        assert tracemalloc.get_traced_memory()[1] < 2.0 * 200_000 * 20 * 8
        tracemalloc.stop()

    def test_all_give_the_same(self, images):
        X = images.reshape(120, -1)
        np.save("a.npy", images)
        np.savez("b.npz", X=X, y=np.arange(120))
        np.savez("c.npz", one=X, two=-X)
        sparse.save_npz("d.npz", sparse.csr_array(X))
        first = self.fitted("a.npy")
        np.testing.assert_array_equal(self.fitted("b.npz"), first)
        np.testing.assert_array_equal(self.fitted("c.npz", "--key", "one"), first)
        np.testing.assert_allclose(np.abs(self.fitted("d.npz")), np.abs(first), atol=1e-8)

    def test_zarr(self, images, capsys):
        zarr = pytest.importorskip("zarr")
        X = images.reshape(120, -1)
        np.save("a.npy", X)
        zarr.create_array(store="a.zarr", data=X, chunks=(50, 64))
        group = zarr.open_group("b.zarr", mode="w")
        group.create_array("images", data=images)
        group.create_array("labels", data=load_digits().target[:120])
        first = self.fitted("a.npy")
        np.testing.assert_array_equal(self.fitted("a.zarr"), first)
        np.testing.assert_array_equal(self.fitted("b.zarr", "--key", "images"), first)
        run("classify b.zarr --label labels --save c --quiet")
        assert len(rkdl.load("c").classes_) == 10
        for out in ("b.zarr/codes.zarr", "b.zarr/images/codes.npy"):
            assert main(["encode", "c", "b.zarr", "--out", out]) == 2
            assert "is also an input" in capsys.readouterr().err

    @pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo"])
    @pytest.mark.parametrize("bad", [10**8, -1])
    def test_damaged_sparse_files(self, form, bad, images, capsys):
        sparse.save_npz("whole.npz", sparse.csr_array(images.reshape(120, -1)).asformat(form))
        with np.load("whole.npz") as arrays:
            parts = dict(arrays)
        parts["coords" if "coords" in parts else "col" if form == "coo" else "indices"][..., 3] = bad
        np.savez("damaged.npz", **parts)
        assert main(["fit", "damaged.npz", "--out", "m"]) == 2
        message = capsys.readouterr().err
        assert "damaged.npz: cannot be read as a sparse matrix" in message
        assert "save it again with scipy.sparse.save_npz" in message

    @pytest.mark.parametrize("bad", [10**8, -5])
    def test_damaged_sparse_matrices_of_matlab(self, bad, images, capsys):
        matrix = sparse.csc_array(images.reshape(120, -1))
        scipy.io.savemat("whole.mat", {"X": matrix})
        whole, indices = Path("whole.mat").read_bytes(), matrix.indices.astype(np.int32)
        damaged = indices.copy()
        damaged[2] = bad
        assert indices.tobytes() in whole
        Path("damaged.mat").write_bytes(whole.replace(indices.tobytes(), damaged.tobytes()))
        # It would end the process.
        with pytest.raises(DatasetError, match=f"it has the row index {bad}"):
            read_arrays(Path("damaged.mat"))
        assert main(["outliers", "damaged.mat"]) == 2
        assert "damaged.mat: cannot be read as a MAT file" in capsys.readouterr().err

    def test_labels_in_a_file_of_their_own(self, images):
        np.save("X.npy", images)
        y = load_digits().target[:120]
        np.save("y.npy", y)
        np.save("names.npy", [f"digit {label}" for label in y])
        for labels, first in (("y.npy", 0), ("names.npy", "digit 0")):
            assert main(["classify", "X.npy", "--label", labels, "--save", "c", "--quiet"]) == 0
            assert rkdl.load("c").classes_[0] == first

    @pytest.mark.parametrize(
        ("name", "library"), [("a.zarr", "zarr"), ("a.parquet", "pyarrow"), ("a.csv", "pandas"), ("images", "PIL")]
    )
    def test_missing_libraries_are_named(self, name, library, images, monkeypatch, capsys):
        if library == "PIL":
            os.mkdir(name)
        with open(os.path.join(name, "a.png") if library == "PIL" else name, "w") as stream:
            stream.write("anything")
        np.save("X.npy", images)
        run("fit X.npy --out model", *QUICK)
        for module in [module for module in sys.modules if module.split(".")[0] == library]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)
        commands = [["fit", name, "--out", "m"]]
        if library != "PIL":
            commands.append(["encode", "model", "X.npy", "--out", f"codes{os.path.splitext(name)[1]}"])
        for command in commands:
            assert main(command) == 2
            assert 'pip install "rkdl[files]"' in capsys.readouterr().err


def test_parquet_in_and_out(iris, capsys):
    pyarrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = iris
    table = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "species": list(y)})
    days = pyarrow.array(np.arange(150), pyarrow.timestamp("s"))
    parquet.write_table(table.append_column("day", days), "dated.parquet")
    assert main(["fit", "dated.parquet", "--drop", "species", "--out", "m"]) == 2
    assert "not numeric: day ('1970-01-01" in capsys.readouterr().err
    parquet.write_table(table, "data.parquet")
    run("classify data.parquet --label species --test data.parquet --out p.parquet --quiet")
    found = parquet.read_table("p.parquet")
    assert found.column_names == ["row", "predicted", "p(setosa)", "p(versicolor)", "p(virginica)"]
    assert np.mean(np.array(found["predicted"].to_pylist()) == y) > 0.8


class TestDenoise:
    def test_tables_keep_their_columns(self, tables):
        run("fit train.csv --drop species name --out m", *QUICK)
        run("denoise m test.csv --out clean.csv --quiet")
        header, rows = read_csv("clean.csv")
        model = rkdl.load("m")
        assert header == list(model.feature_names_in_)
        with pytest.warns(UserWarning, match="valid feature names"):
            scaled = model[0].transform(tables[2])
        found = model[0].inverse_transform(model[1].denoise(scaled))
        np.testing.assert_allclose(np.array(rows, float), found, atol=1e-10)
        assert main(["denoise", "m", "test.csv", "--noise", "0.1", "--out", "c.csv"]) == 2

    def test_a_column_may_be_called_row(self, iris, capsys):
        write_csv("row.csv", ["row", "b", "c", "d"], iris[0])
        run("fit row.csv --out m", *QUICK)
        run("denoise m row.csv --out clean.csv --quiet")
        assert read_csv("clean.csv")[0] == ["row", "b", "c", "d"]
        assert main(["denoise", "m", "row.csv", "--keep", "row", "--out", "clean.csv"]) == 2
        assert "a column 'row' of their own" in capsys.readouterr().err

    def test_noise(self, digits):
        np.save("X.npy", digits[:100])
        run("fit X.npy --out m", *QUICK)
        run("denoise m X.npy --noise 2.0 --out clean.npz --quiet")
        with np.load("clean.npz") as arrays:
            np.testing.assert_allclose(arrays["X"], rkdl.load("m").denoise(digits[:100], noise=2.0), atol=1e-10)


@pytest.mark.slow
class TestOutliers:
    @pytest.fixture
    def signals(self, rng):
        X = rng.standard_normal((200, 4))
        X[:3] += 8.0
        write_csv("data.csv", ["id", "a", "b", "c", "d"], [[f"s{row}", *X[row]] for row in range(200)])
        return X

    def test_scores_and_labels_are_those_of_the_detector(self, signals):
        run("outliers data.csv --keep id --contamination 0.02 --out s.csv --quiet")
        header, rows = read_csv("s.csv")
        assert header == ["id", "row", "a", "b", "c", "d", "anomaly", "outlier"]
        detector = KDLOutlierDetector(contamination=0.02, random_state=0)
        labels = detector.fit_predict(signals)
        np.testing.assert_array_equal([int(row[7]) for row in rows], (labels == -1).astype(int))
        np.testing.assert_array_equal([float(row[6]) for row in rows], -detector.score_samples(signals))
        np.testing.assert_array_equal([[float(cell) for cell in row[2:6]] for row in rows], signals)
        assert [row[:2] for row in rows if row[7] == "1"][:3] == [["s0", "1"], ["s1", "2"], ["s2", "3"]]

    def test_prints_the_worst(self, signals, capsys):
        run("outliers data.csv --keep id --top 3")
        lines = capsys.readouterr().out.splitlines()
        assert "rows are outliers" in lines[0]
        assert {line.split(":")[0].strip() for line in lines[1:]} == {f"id s{row}, row {row + 1}" for row in range(3)}

    def test_train_save_and_use_again(self, signals, capsys):
        write_csv("normal.csv", ["d", "c", "b", "a"], signals[3:, ::-1])
        run("outliers data.csv --train normal.csv --save m --out s.npz")
        with np.load("s.npz") as arrays:
            scores = arrays["anomaly"]
            assert arrays["outlier"][:3].all()
        detector = rkdl.load("m")
        assert list(detector.feature_names_in_) == ["d", "c", "b", "a"]
        run("outliers data.csv --model m --out again.npz")
        with np.load("again.npz") as arrays:
            np.testing.assert_array_equal(arrays["anomaly"], scores)


class TestClassify:
    def test_predictions_and_probabilities(self, tables, capsys):
        argv = ["classify", "train.csv", "--label", "species", "--keep", "name"]
        assert main([*argv, "--test", "test.csv", "--out", "p.csv"]) == 0
        X, y, unseen, truth = tables
        model = make_pipeline(RobustScaler(unit_variance=True), KDLClassifier(random_state=0)).fit(X, y)
        header, rows = read_csv("p.csv")
        assert header == ["name", "predicted", "p(setosa)", "p(versicolor)", "p(virginica)"]
        assert [row[1] for row in rows] == list(model.predict(unseen))
        np.testing.assert_array_equal(np.array([row[2:] for row in rows], float), model.predict_proba(unseen))
        n_right = int((model.predict(unseen) == truth).sum())
        assert f"{n_right} correctly ({n_right / 50:.1%})" in capsys.readouterr().out

    def test_numbers_are_one_label_however_they_are_stored(self, iris, capsys):
        X, y = iris
        np.save("X.npy", X)
        for name, labels in (("int", y == "setosa"), ("float", (y == "setosa") * 1.0), ("bool", y == "setosa")):
            np.save(f"{name}.npy", labels.astype(name))
        run("classify X.npy --label int.npy --save m --quiet")
        for name in ("int", "float", "bool"):
            run(f"classify X.npy --label {name}.npy --model m")
            assert "150 correctly (100.0%)" in capsys.readouterr().out

    def test_labels_with_leading_zeros_are_classes_of_their_own(self, rng):
        write_csv("t.csv", ["y", "a", "b"], [[label, *rng.random(2)] for label in 10 * ["1", "01", "2"]])
        run("classify t.csv --label y --save m --quiet")
        assert list(rkdl.load("m").classes_) == ["01", "1", "2"]

    def test_save_and_use_again(self, tables, capsys):
        argv = ["classify", "train.csv", "--label", "species", "--drop", "name", "--atoms", "4"]
        assert main([*argv, "--set", "n_kernel_vectors=30", "--save", "m"]) == 0
        model = rkdl.load("m")
        assert model[-1].components_.shape == (3, 4, 30)
        run("classify test.csv --model m --out p.tsv")
        _, rows = read_csv("p.tsv", "\t")
        with pytest.warns(UserWarning, match="valid feature names"):
            assert [row[1] for row in rows] == list(model.predict(tables[2]))

    def test_python_and_commands_read_each_others_pipelines(self, tables, rng):
        X, y = tables[0] * [1.0, 1e4, 1.0, 1e-4] + 1e3, tables[1]
        X = np.c_[X, np.where(rng.random(len(X)) < 0.1, 1e9, 0.0), np.ones(len(X))]
        write_csv(
            "far.csv", ["a", "b", "c", "d", "e", "f", "y"], [[*row, name] for row, name in zip(X, y, strict=True)]
        )
        run("classify far.csv --label y --save m --quiet")
        assert rkdl.load("m").score(pd.read_csv("far.csv").drop(columns="y"), y) > 0.9
        rkdl.save(make_pipeline(StandardScaler(), KDLClassifier(random_state=0)).fit(X, y), "own")
        run("classify far.csv --model own --label y --out p.csv --quiet")
        assert [row[1] for row in read_csv("p.csv")[1]] == list(rkdl.load("own").predict(X))
        with pytest.raises(ValueError, match=r"The step 'normalizer' .* skops"):
            rkdl.save(make_pipeline(Normalizer(), DL(3)).fit(X), "own")

    def test_cross_validation(self, tables, capsys):
        argv = ["classify", "train.csv", "--label", "species", "--drop", "name"]
        assert main([*argv, "--cv", "3"]) == 0
        assert capsys.readouterr().out.startswith("3 folds: accuracy 9")


class TestImages:
    @pytest.fixture
    def folder(self):
        """Digits of two classes as PNG files in subfolders."""
        image = pytest.importorskip("PIL.Image")
        images, target = load_digits().images, load_digits().target
        for label in (0, 1):
            os.makedirs(f"images/{label}")
            for number, pixels in enumerate(images[target == label][:30]):
                picture = image.fromarray((pixels * 15).astype(np.uint8))
                picture.save(f"images/{label}/{number:02d}.png")
        return image

    def test_fit_and_encode(self, folder):
        run("fit images --out m", *QUICK)
        assert rkdl.load("m").n_features_in_ == 64
        run("encode m images --out codes.csv --quiet")
        header, rows = read_csv("codes.csv")
        assert header[0] == "file"
        assert [row[0] for row in rows][:2] == ["0/00.png", "0/01.png"]
        with folder.open("images/0/01.png") as picture:
            signal = np.asarray(picture, dtype=np.float32).reshape(1, -1) / np.float32(255.0)
        codes = rkdl.load("m").transform(signal)
        np.testing.assert_allclose(np.array(rows[1][1:], np.float32), codes[0], atol=1e-5)

    def test_subfolders_are_classes(self, folder, capsys):
        run("classify images --cv 3")
        assert "accuracy" in capsys.readouterr().out
        run("classify images --test images --out p.csv --quiet")
        _, rows = read_csv("p.csv")
        assert np.mean([row[0].split("/")[0] == row[1] for row in rows]) > 0.95

    def test_denoise_writes_images(self, folder):
        run("fit images --out m", *QUICK)
        run("denoise m images --out clean --quiet")
        with folder.open("images/1/07.png") as before, folder.open("clean/1/07.png") as after:
            given, clean = (np.asarray(picture, dtype=float) for picture in (before, after))
        expected = rkdl.load("m").denoise(given.reshape(1, -1) / 255.0) * 255.0
        np.testing.assert_allclose(clean.ravel(), np.clip(expected[0], 0, 255), atol=1.0)

    def test_opaque_pixels_and_palettes_are_read(self, folder):
        picture = folder.fromarray(np.arange(48, dtype=np.uint8).reshape(2, 8, 3))
        os.mkdir("all")
        for number, mode in enumerate(["RGB", "RGBA", "P", "L", "1"]):
            picture.convert(mode).save(f"all/{number}.png")
        # Stored turned by a quarter, as cameras do.
        turned = picture.transpose(folder.Transpose.ROTATE_90)
        turned.getexif()[0x0112] = 6
        turned.save("all/turned.png", exif=turned.getexif())
        picture.save("all/5.ppm")
        picture.save("all/6.tiff")
        run("fit all --color --out m", *QUICK)

    def test_size_and_colour(self, folder):
        run("fit images --size 5 4 --color --out m", *QUICK)
        assert rkdl.load("m").n_features_in_ == 5 * 4 * 3


class TestTerminal:
    def test_help_of_every_command(self, capsys):
        for command in ("fit", "encode", "denoise", "outliers", "classify"):
            assert main([command, "--help"]) == 0
            said = capsys.readouterr().out
            assert f"rkdl {command}" in said
            assert all(len(line) <= 120 for line in said.splitlines())

    def test_help_is_quick(self):
        code = "import sys; from rkdl._cli import main; main(['fit', '--help']); print(*(n in sys.modules for n in N))"
        names = ["numpy", "numba", "sklearn"]
        done = subprocess.run(
            [sys.executable, "-c", f"N = {names}; {code}"], check=True, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "False False False"

    def test_progress(self, tables, capsys, monkeypatch):
        """A bar, on a terminal alone."""
        argv = ["fit", "train.csv", "--drop", "species", "name", "--iterations", "2", "--out", "m"]
        assert main(argv) == 0
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert main(argv) == 0
        captured = capsys.readouterr()
        assert "\r" in captured.err
        assert "2/2" in captured.err
        assert "2/2" not in captured.out

    def test_warnings_are_one_line(self, capsys):
        write_csv("data.csv", ["a", "b"], [[row, row % 3] for row in range(30)])
        run("fit data.csv --atoms 40 --kernel-vectors 10 --out m")
        lines = capsys.readouterr().err.splitlines()
        assert any(line.startswith("rkdl: warning: n_components=40 exceeds") for line in lines)
        assert all(line.startswith("rkdl: warning: ") for line in lines)


@pytest.mark.slow
def test_text_that_the_terminal_cannot_show(tables):
    write_csv("data.csv", ["→", "a"], [[f"é{row}", value] for row, value in enumerate(tables[0][:, 0])])
    command = [sys.executable, "-m", "rkdl", *shlex.split("outliers data.csv --keep → --top 1")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert r"\u2192 \xe9" in done.stdout


@pytest.mark.parametrize("is_link", [False, True])
def test_files_beside_a_zarr_array_stay(is_link, tables):
    pytest.importorskip("zarr")
    os.mkdir("other")
    os.mkdir(".codes.zarr.part") if not is_link else os.symlink("other", ".codes.zarr.part")
    with open(".codes.zarr.part/mine", "w") as stream:
        stream.write("mine")
    np.save("X.npy", tables[0])
    run("fit X.npy --out m", *QUICK)
    run("encode m X.npy --out codes.zarr --quiet")
    assert os.listdir(".codes.zarr.part") == ["mine"]
    assert not [name for name in os.listdir() if name.startswith(".rkdl")]


def test_any_name_of_a_column_in_npz(iris):
    X, _ = iris
    write_csv("data.csv", ["file", "allow_pickle", "a"], [["f", row, *X[row, :1]] for row in range(60)])
    run("outliers data.csv --keep file allow_pickle --out s.npz --quiet")
    with np.load("s.npz") as arrays:
        assert set(arrays.files) == {"file", "allow_pickle", "row", "a", "anomaly", "outlier"}
