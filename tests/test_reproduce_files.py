"""What ``rkdl reproduce`` does to a folder: its own files and nobody else's; what comes from outside is only shown."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rkdl._cli import main
from rkdl._reproduction.render import as_html
from rkdl._reproduction.report import build_report
from rkdl._utils.text import shown

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "tools").is_dir():
    pytest.skip("the maintainers' tools are not part of an installed package", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools import reproduction_page  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="links and names of POSIX")]
OPTIONS = ["--preset", "rkdl", "--methods", "nystrom", "--iterations", "2", "--rounds", "1", "--quiet"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "images.npy"
    np.save(path, load_digits().images[:60])
    return str(path)


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    assert run(images, folder) == 0
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of a finished run."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def run(images, folder, *more):
    return main(["reproduce", images, *OPTIONS, "--out", str(folder), *more])


def everything(folder):
    """Content and kind of all that lies in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
    return found


def refuses(images, folder, capsys, named, *more):
    """The command ends with a line that names the place, and nothing in the folder changes."""
    before = everything(folder)
    capsys.readouterr()
    assert run(images, folder, *more) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert named in err
    assert "--out" in err
    assert everything(folder) == before


def test_the_results_name_their_files(finished):
    content = json.loads((finished / "results.json").read_text())
    files = [name for name, value in everything(finished).items() if value != "folder"]
    assert sorted([*content["files"], "results.json"]) == files
    assert "index.html" in files
    assert "models/images-npy-rkdl-Nystrom.npz" in files


class TestFresh:
    def test_files_of_the_user_stay(self, images, folder):
        own = {"figures/holiday.png": b"sea", "models/mine.npz": b"mine", "notes.html": b"notes", "figures/a.svg": b"a"}
        for name, content in own.items():
            (folder / name).write_bytes(content)
        assert run(images, folder, "--fresh") == 0
        assert {name: (folder / name).read_bytes() for name in own} == own

    def test_own_files_go(self, images, folder, finished):
        assert run(images, folder, "--fresh", "--methods", "dl") == 0
        assert "models/images-npy-rkdl-Nystrom.npz" not in everything(folder)
        assert "figures/images-npy-kernel-vectors.png" not in everything(folder)

    @pytest.mark.parametrize("name", ["figures", "models"])
    def test_a_linked_folder(self, name, images, folder, tmp_path, capsys):
        """With the very names that the results have in it."""
        shutil.move(folder / name, tmp_path / "mine")
        (folder / name).symlink_to(tmp_path / "mine")
        before = everything(tmp_path / "mine")
        refuses(images, folder, capsys, f"{folder / name} is not a folder of these results", "--fresh")
        refuses(images, folder, capsys, f"{folder / name} is not a folder of these results")
        assert everything(tmp_path / "mine") == before

    def test_a_linked_page(self, images, folder, tmp_path, capsys):
        (tmp_path / "mine.html").write_text("mine")
        (folder / "index.html").unlink()
        (folder / "index.html").symlink_to(tmp_path / "mine.html")
        for more in ([], ["--fresh"]):
            refuses(images, folder, capsys, "index.html was not written by rkdl reproduce", *more)
        assert (tmp_path / "mine.html").read_text() == "mine"

    def test_linked_results(self, images, folder, tmp_path, capsys):
        shutil.move(folder / "results.json", tmp_path / "mine.json")
        (folder / "results.json").symlink_to(tmp_path / "mine.json")
        for more in ([], ["--fresh"]):
            refuses(images, folder, capsys, "results.json is a link", *more)


def test_numbers_beyond_all_floats(images, folder, capsys):
    content = json.loads((folder / "results.json").read_text())
    for key, value in (("seconds", 10**400), ("mean_nonzeros", -(10**400)), ("errors", [10**400])):
        spoilt = json.loads(json.dumps(content))
        spoilt["datasets"][images]["presets"]["rkdl"]["Nystrom"]["rounds"][0][key] = value
        (folder / "results.json").write_text(json.dumps(spoilt))
        refuses(images, folder, capsys, key)


@pytest.mark.parametrize("more", [[], ["--fresh"]], ids=["plain", "fresh"])
class TestForeignFolders:
    @pytest.mark.parametrize("name", ["index.html", "figures/holiday.png", "models/mine.npz", "notes.txt"])
    def test_without_results(self, more, name, images, tmp_path, capsys):
        folder = tmp_path / "mine"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        refuses(images, folder, capsys, "is not a folder of rkdl reproduce", *more)

    @pytest.mark.parametrize("text", ["{}", "[]", "not JSON", '{"results": [1, 2]}', '{"format": 1}'])
    def test_with_results_of_something_else(self, more, text, images, tmp_path, capsys):
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / "results.json").write_text(text)
        (folder / "index.html").write_text("mine")
        refuses(images, folder, capsys, "results.json", *more)

    def test_a_page_that_the_results_do_not_name(self, more, images, folder, capsys):
        content = json.loads((folder / "results.json").read_text())
        content["files"].remove("index.html")
        (folder / "results.json").write_text(json.dumps(content))
        refuses(images, folder, capsys, "index.html was not written by rkdl reproduce", *more)

    @pytest.mark.parametrize("name", ["../mine.txt", "/etc/passwd", "figures/../../mine.png", "mine.txt", "a\nb", 3])
    def test_forged_names(self, more, name, images, folder, tmp_path, capsys):
        (tmp_path / "mine.txt").write_text("mine")
        content = json.loads((folder / "results.json").read_text())
        content["files"].append(name)
        (folder / "results.json").write_text(json.dumps(content))
        refuses(images, folder, capsys, "(files)", *more)
        assert (tmp_path / "mine.txt").read_text() == "mine"

    def test_a_pipe_for_results(self, more, images, tmp_path, capsys):
        folder = tmp_path / "mine"
        folder.mkdir()
        os.mkfifo(folder / "results.json")
        assert run(images, folder, *more) == 2
        assert "not a regular file" in capsys.readouterr().err


def test_an_empty_folder_and_leftovers_of_a_killed_run_are_no_hindrance(images, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".rkdl-0123456789abcdef-0123456789abcdef.part").write_text("half")
    assert run(images, tmp_path / "out") == 0


EVIL = "red\x1b[31m\x9b2J\u202egnp$\\frac$<b>\n.npy"


class TestText:
    def test_shown(self):
        assert shown("plain, ± ü 漢 \\") == "plain, ± ü 漢 \\"
        assert shown("\x1b[31m\n\x9b\u202e\udcff") == "\\x1b[31m\\x0a\\x9b\\u202e\\udcff"
        assert shown("a\nb\x00", keep="\n") == "a\nb\\x00"

    def test_names_of_data(self, images, tmp_path, capsys):
        path = tmp_path / EVIL
        shutil.copy(images, path)
        options = [option for option in OPTIONS if option != "--quiet"]
        folder = tmp_path / f"out{EVIL}"
        assert main(["reproduce", str(path), *options, "--out", str(folder)]) == 0
        captured = capsys.readouterr()
        for text in (captured.out, captured.err.replace("\r", "").replace("\x1b[A", "")):
            assert not set(text) & set("\x1b\x9b\u202e")
        assert "red\\x1b[31m" in captured.out
        page = (folder / "index.html").read_text()
        assert "<b>" not in page
        assert reproduction_page.main([str(folder / "results.json")]) == 0
        text = capsys.readouterr().out
        assert "<b>" not in text
        assert "\x1b" not in text

    @pytest.mark.parametrize("arguments", [["reproduce", EVIL], ["reproduce", "--preset", EVIL], [EVIL]])
    def test_complaints(self, arguments, capsys):
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert not set(err) & set("\x1b\x9b\u202e")

    def test_everything_from_results_is_escaped(self, finished, tmp_path, capsys):
        """Every text that the file holds, one after another, with a tag in it: none gets through."""
        text = (finished / "results.json").read_text()
        tag = "<script>alert(1)</script>\x1b[31m"

        def spoilt(value, path=()):
            if isinstance(value, dict):
                for key in value:
                    yield from spoilt(value[key], (*path, key))
            elif isinstance(value, list):
                for number, item in enumerate(value):
                    yield from spoilt(item, (*path, number))
            elif isinstance(value, str):
                yield path

        for path in spoilt(json.loads(text)):
            content = json.loads(text)
            place = content
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = tag
            page = as_html(build_report(content), {})
            assert "<script" not in page, path
            (tmp_path / "results.json").write_text(json.dumps(content))
            reproduction_page.main([str(tmp_path / "results.json")])
            captured = capsys.readouterr()
            assert "<script" not in captured.out, path
            assert "\x1b" not in captured.out + captured.err, path

    def test_a_forged_checksum(self, images, folder, capsys):
        content = json.loads((folder / "results.json").read_text())
        content["datasets"][images]["sha256"] = "<img src=x>"
        assert "<img" not in as_html(build_report(content), {})
        (folder / "results.json").write_text(json.dumps(content))
        refuses(images, folder, capsys, "sha256")
