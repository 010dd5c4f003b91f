"""Results as files, in the format that the ending names."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from rkdl._persistence.files import check_writable, replacing
from rkdl.datasets._home import as_path

TABLES = (".csv", ".tsv", ".parquet", ".npz")
MATRICES = (*TABLES, ".npy", ".zarr")
# Rows that are made dense or written at a time.
_BLOCK = 8192


def check_output(name: str | None, suffixes: Sequence[str] | None, inputs: Sequence[str | None]) -> Path | None:
    """The path of an output, refused before anything is computed if it could not be written in the end.

    Endings are those of `suffixes`, any if it is empty; None for a folder.
    """
    if name is None:
        return None
    path = as_path(name)
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: the ending {path.suffix!r} is not known for this result; use {', '.join(suffixes)}")
    for given in inputs:
        if given is not None and os.path.exists(given) and os.path.exists(path) and os.path.samefile(given, path):
            raise ValueError(f"{path} is also an input and would be overwritten: give another --out")
    if suffixes is None:
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file, and images are written to a folder: give another --out")
    elif path.suffix.lower() != ".zarr":
        check_writable(path)
    elif path.exists():
        raise ValueError(f"{path} exists already: remove it, or give another --out")
    return path


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Write columns of equal lengths."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in columns.items()}
        with replacing(path) as stream:
            np.savez(stream, **arrays)
    elif suffix == ".parquet":
        _write_parquet(path, columns)
    else:
        _write_csv(path, list(columns), [zip(*map(_cells, columns.values()), strict=True)])


def write_matrix(path: Path, matrix: Any, names: Sequence[str], ids: dict[str, Any]) -> None:
    """Write a matrix (n_signals, n_columns), dense or CSR; tables have what identifies the rows before its columns.

    A ``.npz`` file of a CSR matrix is one that scipy.sparse.load_npz reads; of a dense one it holds the array X.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with replacing(path) as stream:
            if sparse.issparse(matrix):
                sparse.save_npz(stream, matrix)
            else:
                np.savez(stream, X=matrix)
    elif suffix == ".npy":
        with replacing(path) as stream:
            header = {"descr": matrix.dtype.str, "fortran_order": False, "shape": matrix.shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for block in _blocks(matrix):
                stream.write(np.ascontiguousarray(block).tobytes())
    elif suffix == ".zarr":
        _write_zarr(path, matrix)
    elif suffix == ".parquet":
        dense = np.concatenate(list(_blocks(matrix)))
        _write_parquet(path, {**ids, **{name: dense[:, column] for column, name in enumerate(names)}})
    else:
        keys = [_cells(values) for values in ids.values()]

        def rows() -> Any:
            start = 0
            for block in _blocks(matrix):
                yield [(*(key[start + row] for key in keys), *_cells(block[row])) for row in range(len(block))]
                start += len(block)

        _write_csv(path, [*ids, *names], rows())


def write_images(folder: Path, signals: np.ndarray, files: Sequence[str], image_shape: tuple[int, ...]) -> None:
    """Write images from 0 to 1 as PNG files of the same names in another folder."""
    from PIL import Image

    paths = [(folder / name).with_suffix(".png") for name in files]
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


def check_table_writer(path: Path | None) -> None:
    """Refuse a format whose library is missing before anything is computed."""
    suffix = "" if path is None else path.suffix.lower()
    if suffix == ".parquet":
        _pyarrow(path)
    elif suffix == ".zarr":
        _zarr(path)


def _write_csv(path: Path, header: list[str], blocks: Any) -> None:
    with replacing(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n")
        writer.writerow(header)
        for block in blocks:
            writer.writerows(block)
        text.flush()
        text.detach()


def _cells(values: Any) -> list[Any]:
    """Values as they are written to text: the fewest digits that give the same number of their dtype."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        return [str(value) for value in values]
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _blocks(matrix: Any) -> Any:
    for start in range(0, matrix.shape[0], _BLOCK):
        block = matrix[start : start + _BLOCK]
        yield block.toarray() if sparse.issparse(block) else np.asarray(block)


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pyarrow, parquet = _pyarrow(path)
    table = pyarrow.table(
        {
            name: pyarrow.array(list(values) if not hasattr(values, "dtype") else values)
            for name, values in columns.items()
        }
    )
    with replacing(path) as stream:
        parquet.write_table(table, stream)


def _pyarrow(path: Path | None) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"{path}: writing Parquet needs pyarrow; pip install 'rkdl[files]', or use .csv") from error
    return pyarrow, pyarrow.parquet


def _zarr(path: Path | None) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ValueError(f"{path}: writing Zarr needs zarr; pip install 'rkdl[files]', or use .npy") from error
    return zarr


def _write_zarr(path: Path, matrix: Any) -> None:
    """Write a Zarr array beside the old one, and put it in its place when it is complete."""
    zarr = _zarr(path)
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    rows = max(1, min(_BLOCK, matrix.shape[0]))
    array = zarr.create_array(store=str(part), shape=matrix.shape, dtype=matrix.dtype, chunks=(rows, matrix.shape[1]))
    for number, block in enumerate(_blocks(matrix)):
        array[number * _BLOCK : number * _BLOCK + len(block)] = block
    os.replace(part, path)
