"""Checksums of published files, for files not downloaded by the loaders."""

from __future__ import annotations

import hashlib
import warnings

from rkdl._utils.text import shown

__all__ = ["CONTENT_MD5", "warn_if_changed"]

# Of the decompressed content.
CONTENT_MD5 = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def warn_if_changed(where: object, name: str, *content: bytes) -> None:
    """Warn if the content of a file differs from the published one.

    Parameters
    ----------
    where : path or str
        The file, for the warning.
    name : str
        A key of `CONTENT_MD5`; other names are ignored.
    *content : bytes
        The decompressed content, in one or more pieces.
    """
    expected = CONTENT_MD5.get(name)
    if expected is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    for part in content:
        digest.update(part)
    if digest.hexdigest() != expected:
        warnings.warn(
            f"{shown(where)} is not the published {name}: its MD5 checksum is {digest.hexdigest()}, expected "
            f"{expected}. Results will differ from published ones; if this is not intended, download it again.",
            UserWarning,
            stacklevel=2,
        )
