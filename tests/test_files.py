"""Writing files: whole or not at all, whoever else writes there; nobody's file is touched but the one that is meant."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import rkdl
from helpers import PATIENCE
from rkdl import DL, RKDL
from rkdl._persistence import files
from rkdl._persistence.files import read_file, replacing, write_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, modes and pipes of POSIX")


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((300, 8))


def small(**changes):
    return DL(**{"n_components": 5, "n_nonzero_coefs": 2, "max_iter": 3, "tol": 0.0, "random_state": 0, **changes})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_numbers(path, value, count=2000):
    write_file(path, "checkpoint", {"value": value}, {"numbers": np.full(count, value)})


def keep_writing(path, first, count):
    for value in range(first, first + count):
        write_numbers(path, float(value))


class TestReplacing:
    @pytest.mark.slow
    def test_readers_never_see_a_half_written_file(self, tmp_path):
        """Two processes write, this one reads: every file that it sees is whole."""
        path = tmp_path / "numbers.rkdl"
        write_numbers(path, -1.0)
        context = multiprocessing.get_context("spawn")
        writers = [context.Process(target=keep_writing, args=(path, first, 150)) for first in (0, 10_000)]
        for writer in writers:
            writer.start()
        n_read, seen = 0, set()
        while any(writer.is_alive() for writer in writers):
            header, arrays = read_file(path, "checkpoint", "")
            assert (arrays["numbers"] == header["value"]).all()
            seen.add(header["value"])
            n_read += 1
        assert [writer.exitcode for writer in writers] == [0, 0]
        assert n_read > 50
        assert len(seen) > 5
        assert names(tmp_path) == ["numbers.rkdl"]

    def test_files_of_the_user_stay(self, X, tmp_path):
        """Neither what is at the end of a link nor what has a name like ours is written to."""
        mine, link, part = tmp_path / "mine", tmp_path / "model.rkdl", tmp_path / "model.rkdl.part"
        mine.write_text("mine")
        for place in (link, part, tmp_path / "fit.rkdl.part"):
            place.symlink_to(mine)
        small().fit(X, checkpoint=tmp_path / "fit.rkdl").save(link)
        assert mine.read_text() == "mine"
        assert part.is_symlink()
        assert not link.is_symlink()

    @pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o444])
    def test_mode_is_kept_and_a_new_file_heeds_the_umask(self, mode, tmp_path):
        path, before = tmp_path / "model.rkdl", os.umask(0o027)
        try:
            if mode is not None:
                path.touch()
                path.chmod(mode)
            write_numbers(path, 1.0)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == (0o640 if mode is None else mode)

    def test_names_of_any_length(self, tmp_path):
        path = tmp_path / ("x" * 255)
        write_numbers(path, 1.0)
        assert names(tmp_path) == [path.name]

    def test_a_part_is_never_more_open_than_its_file(self, tmp_path):
        path, modes = tmp_path / "numbers.rkdl", set()
        write_numbers(path, 1.0)
        path.chmod(0o640)
        before = os.umask(0)
        try:
            at_every_line(
                lambda: write_numbers(path, 2.0),
                lambda number: modes.update(stat.S_IMODE(part.stat().st_mode) for part in tmp_path.glob(".rkdl-*")),
            )
        finally:
            os.umask(before)
        assert modes == {0o600, 0o640}
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_leftovers_of_killed_writers_are_removed_and_only_those(self, tmp_path):
        path = tmp_path / "numbers.rkdl"
        code = (
            "import os, sys; from pathlib import Path; from rkdl._persistence.files import replacing\n"
            "with replacing(Path(sys.argv[1])) as stream:\n    stream.write(b'half'); stream.flush()\n"
            "    os.kill(os.getpid(), 9)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=PATIENCE)
        assert done.returncode == -signal.SIGKILL
        (leftover,) = names(tmp_path)
        with replacing(tmp_path / "other.rkdl") as other, replacing(path) as stream:
            other.write(b"other")
            held = names(tmp_path)
            write_numbers(path, 1.0)
            # It may be in use.
            assert names(tmp_path) == sorted([*held, "numbers.rkdl"])
            os.utime(tmp_path / leftover, (0, 0))
            write_numbers(path, 1.0)
            assert names(tmp_path) == sorted([*(name for name in held if name != leftover), "numbers.rkdl"])
            stream.write(b"whole")
        assert names(tmp_path) == ["numbers.rkdl", "other.rkdl"]
        assert path.read_bytes() == b"whole"


def fill_disk(monkeypatch, is_full=lambda: True):
    """Let the writing of bytes fail as on a full disk, after a part of them."""
    whole = np.savez

    def savez(stream, **arrays):
        if not is_full():
            return whole(stream, **arrays)
        stream.write(b"half of it")
        stream.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", savez)


class TestFullDisk:
    def test_nothing_is_left_behind(self, X, tmp_path, monkeypatch):
        model = small().fit(X)
        model.save(tmp_path / "model.rkdl")
        before = (tmp_path / "model.rkdl").read_bytes()
        fill_disk(monkeypatch)
        with pytest.raises(OSError, match="No space left"):
            model.save(tmp_path / "model.rkdl")
        assert names(tmp_path) == ["model.rkdl"]
        assert (tmp_path / "model.rkdl").read_bytes() == before

    def test_a_fit_continues_and_writes_again_when_there_is_room(self, X, tmp_path, monkeypatch):
        path, expected = tmp_path / "fit.rkdl", small(max_iter=5).fit(X).components_
        fullness = iter([True, False, True, False, True])
        fill_disk(monkeypatch, lambda: next(fullness))
        with pytest.warns(UserWarning, match=r"fit\.rkdl could not be written after .*No space left") as told:
            model = small(max_iter=5).fit(X, checkpoint=path)
        assert np.array_equal(model.components_, expected)
        assert [text.split("iteration ")[1][0] for text in (str(entry.message) for entry in told)] == ["1", "3", "5"]
        assert names(tmp_path) == ["fit.rkdl"]
        assert len(read_file(path, "checkpoint", "")[1]["history.errors"]) == 4

    @pytest.mark.slow
    def test_a_limit_of_the_system(self, X, tmp_path):
        """The system itself refuses to write more than a few hundred bytes."""
        code = (
            "import resource, signal, sys, warnings, numpy as np\n"
            "from rkdl import DL\n"
            "X = np.random.default_rng(0).standard_normal((300, 8))\n"
            "DL(5, max_iter=1, random_state=0).fit(X)\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))\n"
            "with warnings.catch_warnings(record=True) as told:\n"
            "    warnings.simplefilter('always')\n"
            "    model = DL(5, max_iter=3, tol=0.0, random_state=0).fit(X, checkpoint=sys.argv[1])\n"
            "assert model.n_iter_ == 3 and 'could not be written' in str(told[0].message), told\n"
        )
        path = tmp_path / "fit.rkdl"
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=PATIENCE)
        assert names(tmp_path) == []


def at_every_line(action, on_line):
    """Call ``on_line(number)`` before every line that `action` executes in the code that writes files."""
    places = {files.__file__, contextlib.__file__, zipfile.__file__}
    number = itertools.count()

    def trace(frame, event, argument):
        if event == "line":
            on_line(next(number))
        return trace

    sys.settrace(lambda frame, event, argument: trace if frame.f_code.co_filename in places else None)
    try:
        action()
    finally:
        sys.settrace(None)


@pytest.mark.slow
class TestInterrupts:
    """Ctrl-C at any line leaves the old file or the new one, and nothing else: no name, no descriptor, no lock."""

    @pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("action", ["save", "fit", "load"])
    def test_nothing_is_left(self, action, X, tmp_path):
        path, model = tmp_path / "file.rkdl", small(max_iter=1).fit(X)
        actions = {
            "save": lambda: model.save(path),
            "fit": lambda: small(max_iter=1).fit(X, checkpoint=path),
            "load": lambda: rkdl.load(path),
        }
        actions["save" if action == "load" else action]()
        whole, lines = path.read_bytes(), []
        at_every_line(actions[action], lines.append)
        descriptors = len(os.listdir("/dev/fd"))

        def interrupt(last, number):
            if number == last:
                raise KeyboardInterrupt

        for last in lines:
            with contextlib.suppress(KeyboardInterrupt):
                at_every_line(actions[action], functools.partial(interrupt, last))
            assert names(tmp_path) == ["file.rkdl"]
            assert path.read_bytes() == whole
        # Earlier tests' descriptors may be closed meanwhile.
        assert len(os.listdir("/dev/fd")) <= descriptors
        actions[action]()


class TestIrregularFiles:
    """Pipes, devices and folders are refused at once, and none of them is replaced."""

    @pytest.fixture(params=["pipe", "folder", "device", "link to a pipe"])
    def path(self, request, tmp_path):
        path = tmp_path / "file.rkdl"
        if request.param == "folder":
            path.mkdir()
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        else:
            os.mkfifo(path if request.param == "pipe" else tmp_path / "pipe")
            if request.param != "pipe":
                path.symlink_to(tmp_path / "pipe")
        return path

    @pytest.mark.parametrize("action", ["load", "fit", "save"])
    def test_refused(self, action, path, X):
        model = small().fit(X)
        before = path.lstat()
        actions = {
            "load": lambda: rkdl.load(path),
            "fit": lambda: RKDL(5).fit(X, checkpoint=path),
            "save": lambda: model.save(path),
        }
        with pytest.raises(OSError, match=r"file\.rkdl.* is (not a regular file|a folder)"):
            actions[action]()
        assert os.path.samestat(path.lstat(), before)
