"""Folders of images as signals, and signals as images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rkdl._persistence.files import replacing
from rkdl._utils.text import shown
from rkdl.datasets import DatasetError
from rkdl.datasets._errors import reading, require

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")


def read_images(
    folder: Path, size: tuple[int, int] | None, has_color: bool
) -> tuple[np.ndarray, list[str], np.ndarray | None, tuple[int, ...]]:
    """Read images of one size, grey unless colours are to be kept.

    Returns signals from 0 to 1, file names, labels (the subfolders, None if there are none) and the shape of an image.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not files:
        raise DatasetError(folder, "there are no images in this folder", f"their endings are {', '.join(_SUFFIXES)}")
    image_module = require(folder, "PIL.Image", "reading images")
    rows: list[np.ndarray] = []
    for file in files:
        with reading(file, "an image", "remove or repair it"), image_module.open(file) as image:
            _check_nothing_is_lost(file, image)
            pixels = image.convert("RGB" if has_color else "L")
        if size is not None:
            pixels = pixels.resize(size)
        rows.append(np.asarray(pixels, dtype=np.float32) / np.float32(255.0))
        if rows[-1].shape != rows[0].shape:
            (height, width), (first_height, first_width) = rows[-1].shape[:2], rows[0].shape[:2]
            what = f"is {width} x {height} pixels, and {files[0].name} {first_width} x {first_height}"
            raise DatasetError(file, what, "resize all images with --size WIDTH HEIGHT")
    names = [file.relative_to(folder) for file in files]
    has_classes = any(name.parent != Path() for name in names)
    labels = np.array([shown(name.parent.as_posix()) for name in names]) if has_classes else None
    return np.stack(rows).reshape(len(rows), -1), [name.as_posix() for name in names], labels, rows[0].shape


def write_images(folder: Path, signals: np.ndarray, files: Sequence[object], image_shape: tuple[int, ...]) -> None:
    """Write images from 0 to 1 as PNG files of the same names in another folder."""
    from PIL import Image

    for path, signal in zip(_places(folder, files), signals, strict=True):
        pixels = np.clip(np.rint(signal.reshape(image_shape) * 255.0), 0, 255).astype(np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            Image.fromarray(pixels).save(stream, format="png")


def check_images(folder: Path, files: Sequence[object], source: Path) -> None:
    """Refuse a folder in which images would be written over those of the folder that they are from."""
    originals = {(source / str(name)).resolve() for name in files}
    taken = next((path for path in _places(folder, files) if path.resolve() in originals), None)
    if taken is not None:
        raise ValueError(f"{taken} is also an input and would be overwritten: give another --out")


def _places(folder: Path, files: Sequence[object]) -> list[Path]:
    """Where the images of these names are written."""
    paths = [(folder / str(name)).with_suffix(".png") for name in files]
    if len(set(paths)) < len(paths):
        # Such as a.jpg and a.png.
        paths = [folder / f"{name}.png" for name in files]
    return paths


def _check_nothing_is_lost(file: Path, image: ImageFile) -> None:
    """Refuse images of which 8 bits of grey or of three colours are only a part."""
    # Pillow opens 16 bits of several channels as 8; how they are stored is in the arguments of its decoders.
    stored = " ".join(str(tile[3]) for tile in image.tile)
    levels = re.search(r"\d+", stored) if image.format == "PPM" else None
    is_deep = image.mode.startswith(("I", "F")) or re.search(r"(L|LA|RGB|RGB[AXa]|CMYK);(16|32)", stored)
    if is_deep or (levels and int(levels[0]) > 255):
        what = f"has more than 8 bits per value (mode {image.mode})"
        raise DatasetError(file, what, "convert it to 8 bits, or give the pixels as an .npy file")
    if getattr(image, "n_frames", 1) > 1:
        raise DatasetError(file, "holds several images", "save each as a file of its own")
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise DatasetError(file, "is transparent in places", "save it with a background")
