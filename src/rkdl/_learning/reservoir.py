"""A bounded random sample of the signals that a stream has seen, and what its start was chosen from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rkdl._backends.arrays import squared_norms
from rkdl._data.signals import Signals
from rkdl._features.widths import median_gamma

# A stream remembers this many signals, fewer if they take more than so many bytes.
RESERVOIR_SIGNALS, RESERVOIR_BYTES = 500, 16 << 20
# Different signals are looked for among this many of a batch.
SEARCHED_SIGNALS = 20_000
# Signals this many times as far from the centre as half of them, in squares, are of another scale than most.
FAR = 100.0
# Signals whose keys are in memory together.
KEYS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Reservoir:
    """A random sample of a stream's signals; with a half-life an old signal is in it less probably."""

    # The sample (k, n_features) as it was given, in order of arrival: of all signals seen, those of the largest keys.
    rows: np.ndarray
    keys: np.ndarray
    n_seen: int = 0
    age: float = 0.0  # logarithm of what the latest signal weighs relative to the first
    # Different signals, zeros not counted, that the stream's start was chosen from; counted up to a limit.
    n_distinct: int = 0
    gamma: float = 1.0  # one over the median squared distance of those signals, whatever the kernel and its gamma
    n_checked: int = 0  # signals seen when `gamma` was last compared with that of the sample

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype, n_distinct: int, gamma: float) -> Reservoir:
        """No signal seen yet; the start is chosen."""
        return cls(np.empty((0, n_features), dtype=dtype), np.empty(0), n_distinct=n_distinct, gamma=gamma)

    def add(self, signals: Signals, size: int, half_life: float | None) -> Reservoir:
        """The sample of `size` signals after a batch; however the signals were cut into batches, it is the same."""
        n_signals, n_before = signals.shape[0], len(self.keys)
        rate = 0.0 if half_life is None else np.log(2.0) / half_life
        places, keys = np.arange(n_before), self.keys
        for start in range(0, n_signals, KEYS_AT_ONCE):
            fresh = np.arange(start, min(start + KEYS_AT_ONCE, n_signals))
            # Gumbel numbers plus log-weights: the largest are a weighted sample without replacement.
            weighted = _gumbel_numbers(self.n_seen + fresh) + self.age + rate * (fresh + 1)
            places, keys = np.concatenate([places, n_before + fresh]), np.concatenate([keys, weighted])
            if len(keys) > size:
                best = np.sort(np.argpartition(keys, -size)[-size:])
                places, keys = places[best], keys[best]
        rows = self.rows
        n_staying = int(np.count_nonzero(places < n_before))
        if n_staying < len(places):
            entering = signals.take(places[n_staying:] - n_before)
            rows = np.empty((len(places), rows.shape[1]), dtype=np.result_type(rows, entering))
            rows[:n_staying], rows[n_staying:] = self.rows[places[:n_staying]], entering
        return replace(self, rows=rows, keys=keys, n_seen=self.n_seen + n_signals, age=self.age + rate * n_signals)


def some_distinct(signals: Signals, size: int) -> np.ndarray:
    """Up to `size` different signals of a batch as they were given, spread over it.

    A batch of which most signals are copies is searched further, up to a limit.
    """
    n_signals = signals.shape[0]
    searched = np.unique(np.linspace(0, n_signals - 1, min(n_signals, SEARCHED_SIGNALS)).astype(np.intp))
    n_parts = -(-len(searched) // size)
    found = distinct_rows(signals.take(searched[::n_parts]))
    for part in range(1, n_parts):
        # A few copies among many signals are no reason to read on.
        if 2 * len(found) >= size:
            break
        found = distinct_rows(np.concatenate([found, signals.take(searched[part::n_parts])]))
    return found[:size]


def distinct_rows(rows: np.ndarray) -> np.ndarray:
    """The rows without copies of earlier ones."""
    # The sum makes one zero of the two that there are.
    rows = np.ascontiguousarray(rows) + rows.dtype.type(0)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    first = np.unique(as_bytes, return_index=True)[1]
    return rows[np.sort(first)]


def count_nonzero_rows(rows: np.ndarray) -> int:
    """Rows with a number that is not zero."""
    return int(np.count_nonzero(np.any(rows, axis=1)))


def typical_rows(rows: np.ndarray) -> np.ndarray:
    """The rows without those of a far larger scale than most; at least half of them."""
    wide = rows.astype(np.float64)
    largest = float(np.abs(wide).max(initial=0.0))
    if largest == 0.0:
        return rows
    wide /= largest
    # The median of every feature: a mean is where the largest signals are.
    squares = squared_norms(wide - np.median(wide, axis=0))
    return rows[squares <= FAR * np.median(squares)]


def typical_gamma(rows: np.ndarray) -> float:
    """One over the median squared distance of the typical rows."""
    with np.errstate(all="ignore"):
        return median_gamma(typical_rows(rows))


def _gumbel_numbers(places: np.ndarray) -> np.ndarray:
    """Standard Gumbel numbers, each a function of a signal's place in the stream alone (splitmix64).

    So no generator of the user is advanced, and none has to be saved.
    """
    mixed = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))
