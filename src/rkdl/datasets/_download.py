"""Downloads with checksums, using pooch."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rkdl.datasets._errors import DatasetError, cause

__all__ = ["SOURCES", "Source", "download"]

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Source:
    """A base URL and its files with their MD5 checksums."""

    base_url: str
    checksums: dict[str, str]


# Tests replace entries of this table by a local server.
SOURCES: dict[str, Source] = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
}


def download(source_name: str, filename: str, folder: Path, base_url: str | None = None) -> Path:
    """Download one file of a source into a folder and return its path.

    Parameters
    ----------
    source_name : str
        A key of `SOURCES`.
    filename : str
        A file of that source.
    folder : pathlib.Path
        Where to store it; created if needed.
    base_url : str, default=None
        A base URL to use instead of the source's own.

    Returns
    -------
    path : pathlib.Path
        The file, whose checksum has been verified.
    """
    source = SOURCES[source_name]
    url = (base_url or source.base_url).rstrip("/") + "/" + filename
    by_hand = f"or put {filename} into {folder} yourself"
    try:
        import pooch
        import requests
    except ImportError:
        raise DatasetError(
            folder,
            f"{filename} was not found, and downloading needs pooch",
            f'pip install "rkdl[data]", {by_hand}',
        ) from None

    new_folders = [path for path in (folder, folder.parent) if not path.exists()]
    show_progress = sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    downloader = pooch.HTTPDownloader(progressbar=show_progress, chunk_size=2**17, timeout=_TIMEOUT_SECONDS)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # suppress "Downloading data from", so that an error is a single line
    try:
        stored = pooch.retrieve(
            url, "md5:" + source.checksums[filename], fname=filename, path=folder, downloader=downloader
        )
    except requests.HTTPError as error:
        status = error.response.status_code if error.response is not None else "an error"
        failure = DatasetError(url, f"the server answered {status}", f"try again later, {by_hand}")
    except requests.RequestException as error:
        # requests' own messages are about sockets and pools.
        reached = not isinstance(error, (requests.ConnectionError, requests.Timeout))
        what = f"the download failed ({cause(error)})" if reached else "the server cannot be reached"
        failure = DatasetError(url, what, f"check the network, {by_hand}")
    except OSError as error:
        failure = DatasetError(
            folder, f"cannot store {filename} ({cause(error)})", "choose a data_home you may write to"
        )
    except ValueError:
        # pooch has already deleted the file.
        failure = DatasetError(
            url,
            "the downloaded file has the wrong MD5 checksum and was discarded",
            f"try again later, {by_hand}",
        )
    else:
        return Path(stored)
    finally:
        logger.setLevel(level)
    for created in new_folders:
        with contextlib.suppress(OSError):
            os.rmdir(created)
    raise failure
