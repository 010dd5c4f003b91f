"""Results as files, in the format that the ending names."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from rkdl._cli.inputs import Rows
from rkdl._persistence.files import check_writable, replacing
from rkdl.datasets._errors import require
from rkdl.datasets._home import as_path

if TYPE_CHECKING:
    from pandas import DataFrame

TABLES = (".csv", ".tsv", ".parquet", ".npz")
MATRICES = (*TABLES, ".npy", ".zarr")
_LIBRARIES = {".csv": ("pandas",), ".tsv": ("pandas",), ".parquet": ("pandas", "pyarrow"), ".zarr": ("zarr",)}
# Rows that are made dense or written at a time.
_BLOCK = 8192


def check_outputs(options: Namespace, endings: Collection[str] = (), *, is_folder: bool = False) -> Path | None:
    """Return the path of --out. Outputs that could not be written, or would replace an input, are refused early.

    `endings` are those of --out, any if it is empty.
    """
    out = None if options.out is None else as_path(options.out)
    if out is not None and endings and out.suffix.lower() not in endings:
        raise ValueError(f"{out}: the ending {out.suffix!r} is not known for this result; use {', '.join(endings)}")
    inputs = [getattr(options, name, None) for name in ("data", "train", "test", "model", "label")]
    taken = {os.path.realpath(as_path(name)): "an input" for name in inputs if name and os.path.exists(as_path(name))}
    for option in ("out", "save", "checkpoint"):
        name = getattr(options, option, None)
        if name is None:
            continue
        path = as_path(name)
        place = os.path.realpath(path)
        for other, what in taken.items():
            is_same = place == other or (
                os.path.exists(place) and os.path.exists(other) and os.path.samefile(place, other)
            )
            if is_same or (is_folder and option == "out" and Path(other) in Path(place).parents):
                raise ValueError(f"{path} is also {what} and would be overwritten: give another --{option}")
        taken[place] = f"the file of --{option}"
        if option == "out" and is_folder:
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is a file, and images are written to a folder: give another --out")
        elif option != "out" or path.suffix.lower() != ".zarr":
            check_writable(path)
        elif path.exists():
            raise ValueError(f"{path} exists already: remove it, or give another --out")
    # A missing library is reported before anything is computed.
    for library in _LIBRARIES.get("" if out is None else out.suffix.lower(), ()) if endings else ():
        require(options.out, library, f"writing {options.out}")
    return out


def write_table(path: Path, columns: Mapping[str, Sequence[object] | np.ndarray]) -> None:
    """Write columns of equal lengths."""
    if path.suffix.lower() == ".npz":
        _write_npz(path, columns)
    else:
        import pandas

        _write_frames(path, iter([pandas.DataFrame(dict(columns))]))


def write_matrix(path: Path, matrix: Rows, names: Sequence[str], ids: Mapping[str, Sequence[object]]) -> None:
    """Write a matrix (n_signals, n_columns), dense or CSR; tables have what identifies the rows before its columns.

    A ``.npz`` file of a CSR matrix is one that scipy.sparse.load_npz reads; of a dense one it holds the array X.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz" and sparse.issparse(matrix):
        with replacing(path) as stream:
            sparse.save_npz(stream, matrix)
    elif suffix == ".npz":
        _write_npz(path, {"X": matrix})
    elif suffix == ".npy":
        with replacing(path) as stream:
            header = {"descr": matrix.dtype.str, "fortran_order": False, "shape": matrix.shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for _, block in _blocks(matrix):
                stream.write(np.ascontiguousarray(block).tobytes())
    elif suffix == ".zarr":
        _write_zarr(path, matrix)
    else:
        import pandas

        def frames() -> Iterator[DataFrame]:
            for start, block in _blocks(matrix):
                kept = {name: list(values[start : start + len(block)]) for name, values in ids.items()}
                yield pandas.concat([pandas.DataFrame(kept), pandas.DataFrame(block, columns=list(names))], axis=1)

        _write_frames(path, frames())


def write_images(folder: Path, signals: np.ndarray, files: Sequence[object], image_shape: tuple[int, ...]) -> None:
    """Write images from 0 to 1 as PNG files of the same names in another folder."""
    from PIL import Image

    paths = [(folder / str(name)).with_suffix(".png") for name in files]
    if len(set(paths)) < len(paths):
        # Such as a.jpg and a.png.
        paths = [folder / f"{name}.png" for name in files]
    for path, signal in zip(paths, signals, strict=True):
        pixels = np.clip(np.rint(signal.reshape(image_shape) * 255.0), 0, 255).astype(np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, format="png")
        with replacing(path) as stream:
            stream.write(content.getvalue())


def _blocks(matrix: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Dense blocks of rows with the number of their first row."""
    for start in range(0, matrix.shape[0], _BLOCK):
        block = matrix[start : start + _BLOCK]
        yield start, np.asarray(block.todense() if isinstance(block, sparse.sparray) else block)


def _write_frames(path: Path, frames: Iterator[DataFrame]) -> None:
    """Write parts of a table as CSV or Parquet."""
    with replacing(path) as stream:
        if path.suffix.lower() == ".parquet":
            import pandas

            pandas.concat(list(frames)).to_parquet(stream, index=False)
        else:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            for number, frame in enumerate(frames):
                frame.to_csv(stream, index=False, header=number == 0, sep=separator, lineterminator="\n")


def _write_npz(path: Path, columns: Mapping[str, Sequence[object] | np.ndarray]) -> None:
    """Write arrays by any names; numpy.savez cannot take those of its own parameters."""
    with replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, values in columns.items():
            array = np.asarray(values)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array.astype(str) if array.dtype == object else array)


def _write_zarr(path: Path, matrix: Rows) -> None:
    """Write a Zarr array in a new folder beside its place, and put it there when it is complete."""
    import zarr

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".rkdl-") as folder:
        part = Path(folder, "part")
        chunks = (max(1, min(_BLOCK, matrix.shape[0])), matrix.shape[1])
        array = zarr.create_array(store=str(part), shape=matrix.shape, dtype=matrix.dtype, chunks=chunks)
        for start, block in _blocks(matrix):
            array[start : start + len(block)] = block
        os.replace(part, path)
