"""Public data sets, and loaders for your own files.

Loaders look in the folder given as ``data_home``, else in the one named by the environment variable ``RKDL_DATA``,
else in ``~/rkdl_data``, and download missing files with checksums where possible and allowed.
"""

from rkdl.datasets._errors import DatasetError
from rkdl.datasets._published import CIFAR10_CLASSES, fetch_cifar10, fetch_mnist, get_data_home
from rkdl.datasets._signals import load_signals

__all__ = [
    "CIFAR10_CLASSES",
    "DatasetError",
    "fetch_cifar10",
    "fetch_mnist",
    "get_data_home",
    "load_signals",
]
