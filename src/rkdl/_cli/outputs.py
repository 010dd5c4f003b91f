"""Results as files, in the format that the ending names."""

from __future__ import annotations

import os
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from rkdl._cli.inputs import IMAGES, Inputs
from rkdl._persistence.files import check_writable, replacing
from rkdl.datasets._errors import as_path, require

_FRAMES = (".csv", ".tsv", ".parquet")
TABLES = (*_FRAMES, ".npz")
MATRICES = (*TABLES, ".npy", ".zarr")
_LIBRARIES = {".csv": ("pandas",), ".tsv": ("pandas",), ".parquet": ("pandas", "pyarrow"), ".zarr": ("zarr",)}


def check_outputs(options: Namespace, endings: Collection[str] = (), *, is_folder: bool = False) -> Path | None:
    """Return the path of --out. Outputs that could not be written, or would replace an input, are refused early.

    `endings` are those of --out, any if it is empty.
    """
    out = None if options.out is None else as_path(options.out)
    suffix = "" if out is None or not endings else out.suffix.lower()
    if out is not None and endings and suffix not in endings:
        raise ValueError(f"{out}: the ending {out.suffix!r} is not known for this result; use {', '.join(endings)}")
    if endings == MATRICES and options.keep and suffix not in _FRAMES:
        raise ValueError(f"{out} has no columns for --keep: give a file that has, {', '.join(_FRAMES)}")
    inputs = [getattr(options, name, None) for name in ("data", "train", "test", "model", "label")]
    taken = {os.path.realpath(as_path(name)): "an input" for name in inputs if name and os.path.exists(as_path(name))}
    arrays = {os.path.realpath(as_path(name)) for name in inputs if name and as_path(name).suffix.lower() == ".zarr"}
    for option in ("out", "save", "checkpoint"):
        if getattr(options, option, None) is None:
            continue
        path = as_path(getattr(options, option))
        place = os.path.realpath(path)
        for other, what in taken.items():
            is_same = place == other or (all(map(os.path.exists, (place, other))) and os.path.samefile(place, other))
            # Images among images, whatever is written as one, or anything within a Zarr array.
            is_image = (is_folder and option == "out") or path.suffix.lower() in IMAGES
            if is_same or ((is_image or other in arrays) and Path(other) in Path(place).parents):
                raise ValueError(f"{path} is also {what} and would be overwritten: give another --{option}")
        taken[place] = f"the file of --{option}"
        if option == "out" and is_folder:
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is a file, and images are written to a folder: give another --out")
        elif option != "out" or suffix != ".zarr":
            check_writable(path)
        elif path.exists():
            raise ValueError(f"{path} exists already: remove it, or give another --out")
    # A missing library is reported before anything is computed.
    for library in _LIBRARIES.get(suffix, ()):
        require(options.out, library, f"writing {options.out}")
    return out


def write_table(path: Path, columns: Mapping[str, Sequence[object] | np.ndarray]) -> None:
    """Write columns of equal lengths, or any arrays to an .npz file."""
    suffix = path.suffix.lower()
    with replacing(path) as stream:
        if suffix == ".npz":
            # numpy.savez cannot take arrays that are called like its own parameters.
            with zipfile.ZipFile(stream, "w") as archive:
                for name, values in columns.items():
                    array = np.asarray(values)
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array.astype(str) if array.dtype == object else array)
            return
        import pandas

        frame = pandas.DataFrame(dict(columns))
        if suffix == ".parquet":
            frame.to_parquet(stream, index=False)
        else:
            frame.to_csv(stream, index=False, sep="\t" if suffix == ".tsv" else ",", lineterminator="\n")


def write_matrix(
    path: Path, matrix: np.ndarray | sparse.csr_array, names: Sequence[str], ids: Mapping[str, Sequence[object]]
) -> None:
    """Write a matrix; in a table, `names` call its columns, and `ids` stand in front of them."""
    suffix = path.suffix.lower()
    dense = matrix.toarray() if suffix != ".npz" and isinstance(matrix, sparse.sparray) else matrix
    if suffix in _FRAMES:
        write_table(path, {**ids, **dict(zip(names, dense.T, strict=True))})
    elif suffix == ".zarr":
        _write_zarr(path, dense)
    elif suffix == ".npz" and not sparse.issparse(dense):
        write_table(path, {"X": dense})
    else:
        with replacing(path) as stream:
            np.save(stream, dense) if suffix == ".npy" else sparse.save_npz(stream, dense)


def _write_zarr(path: Path, matrix: np.ndarray) -> None:
    """Write a Zarr array in a new folder beside its place, and put it there when it is complete."""
    import zarr

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".rkdl-") as folder:
        part = Path(folder, "part")
        zarr.create_array(store=str(part), data=matrix)
        os.replace(part, path)


def write_images(folder: Path, signals: np.ndarray, inputs: Inputs) -> None:
    """Write signals as PNG images, from 0 to 1 and of the names of the inputs; none is written over an input."""
    from PIL import Image

    assert inputs.image_shape is not None
    files = [str(name) for name in inputs.ids["file"]]
    paths = [(folder / name).with_suffix(".png") for name in files]
    if len(set(paths)) < len(paths):
        # Such as a.jpg and a.png.
        paths = [folder / f"{name}.png" for name in files]
    originals = {(inputs.path / name).resolve() for name in files}
    taken = next((path for path in paths if path.resolve() in originals), None)
    if taken is not None:
        raise ValueError(f"{taken} is also an input and would be overwritten: give another --out")
    for path, signal in zip(paths, signals.reshape(-1, *inputs.image_shape), strict=True):
        pixels = np.clip(np.rint(signal * 255.0), 0, 255).astype(np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            Image.fromarray(pixels).save(stream, format="png")
