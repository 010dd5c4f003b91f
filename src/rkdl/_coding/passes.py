"""Passes over signals whose results have one row per signal: codes, residuals, decoded signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rkdl._backends.arrays import dot, joined
from rkdl._backends.base import Codes, backend_of, is_tensor
from rkdl._backends.devices import to_device, to_host
from rkdl._coding.encoder import Encoder
from rkdl._data.signals import NotFiniteError, Signals, is_safe
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.executor import Result, open_executor, side_by_side
from rkdl._features.maps import KernelMap
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn

# Atoms per block of a Gram matrix, and the number of atoms from which on threads gain something.
_BLOCK, _MANY = 256, 1024


def for_each_chunk(
    signals: Signals, width: int, n_jobs: int | None, task: Callable[[int, int], Result]
) -> list[Result]:
    """Results of ``task(start, stop)`` for every chunk of signals that take `width` numbers each.

    Tasks run in this process, those of chunks on a device one after another.
    """
    with open_executor(signals, width, n_jobs, is_part=True) as executor:
        return executor.map_chunks(task)


def encode_signals(
    signals: Signals,
    encoder: Encoder,
    *,
    sparse_output: bool,
    n_jobs: int | None,
    factors: np.ndarray | None = None,
    squared_norms: np.ndarray | None = None,
) -> Array:
    """Codes of all signals, as an array, a CSR array or a tensor, times one factor per atom.

    `squared_norms` are those of the signals, where the encoder cannot compute them.
    """
    if signals.device is not None:
        from rkdl._execution.device import to_input_device

        # A CPU tensor is coded faster as the array that shares its memory; but a user's kernel may need tensors.
        is_array = signals.device.type == "cpu" and encoder.is_linear
        found = None if is_array else _encode_on_device(signals, encoder, sparse_output, factors, squared_norms)
        if found is None:
            encoder, factors = to_host((encoder, factors))
            options: dict[str, Any] = {"factors": factors, "squared_norms": squared_norms}
            on_host = signals.on_host()
            found = encode_signals(on_host, encoder, sparse_output=sparse_output, n_jobs=n_jobs, **options)
        return to_input_device(found, signals)
    n_signals, n_atoms = signals.shape[0], encoder.n_atoms
    # A few signals choose few atoms: only their rows of the Gram matrix are computed.
    if encoder.gram is None and n_signals * encoder.pursuit.n_nonzero >= n_atoms // 2:
        encoder = replace(encoder, gram=gram_matrix(encoder.atoms, n_jobs))
    factors = encoder.ones if factors is None else factors.astype(signals.dtype, copy=False)
    dense = None if sparse_output else np.zeros((n_signals, n_atoms), dtype=signals.dtype)

    n_coefficients: list[int] = []

    def task(start: int, stop: int) -> Codes | None:
        norms = None if squared_norms is None else squared_norms[start:stop]
        codes = encoder.codes(signals.read(start, stop), norms)
        n_coefficients.append(len(codes.values))
        return codes.scaled(factors) if dense is None else codes.scatter(factors, dense[start:stop])

    with open_executor(signals, encoder.row_width, n_jobs, is_part=True) as executor:
        parts: Any = executor.map_chunks(task)
    if not any(n_coefficients) and not encoder.pursuit.has_tolerance:
        _warn_of_zeros(encoder)
    return _joined_codes(parts).to_csr(n_atoms) if dense is None else dense


def _warn_of_zeros(encoder: Encoder | None) -> None:
    """Warn that a kernel vanishes."""
    if encoder is not None and isinstance(encoder.feature_map, KernelMap):
        warn(
            "All codes are zeros: the kernel between these signals and the kernel vectors vanishes. Scale them like "
            "the signals that the dictionary was learned from."
        )


def _joined_codes(parts: list[Codes]) -> Codes:
    """Codes of consecutive chunks as one; `parts` is emptied, so that memory holds at most two copies of the values."""
    counts, indices, values = map(list, zip(*parts, strict=True))
    parts.clear()
    every = np.concatenate(values)
    values.clear()
    kind = np.int32 if len(every) < 2**31 else np.int64
    return Codes(np.concatenate(counts), np.concatenate(indices, dtype=kind), every)


def _encode_on_device(
    signals: Signals,
    encoder: Encoder,
    sparse_output: bool,
    factors: np.ndarray | None,
    squared_norms: np.ndarray | None,
) -> Array | None:
    """As `encode_signals`; None for signals whose squares leave the range of their dtype, which the CPU codes."""
    from rkdl._execution.device import join_states

    n_atoms = encoder.n_atoms
    # Codes are transferred to NumPy as CSR; those of a tensor become dense on its device.
    is_dense = signals.result_device is not None and not sparse_output

    def work(placed: Encoder, scale: Array | None, rows: Array, norms: Array | None) -> tuple[Array, Any]:
        features, correlations = placed.correlate(rows)
        codes = placed.codes(rows, norms, correlations)
        if scale is not None:
            codes = codes._replace(values=codes.values * scale[codes.indices])
        return features if placed.is_linear else correlations, codes.dense(n_atoms) if is_dense else codes

    factors = None if factors is None else backend_of(factors).cast(factors, signals.dtype)
    parts = _work_on_device(signals, encoder, factors, encoder.row_width, work, squared_norms)
    if parts is None:
        return None
    if is_dense:
        return joined(parts)
    if signals.result_device is not None:
        return join_states(parts).to_csr(n_atoms)
    codes = _joined_codes([part.packed() for part in parts]).to_csr(n_atoms)
    return codes if sparse_output else codes.toarray()


def _work_on_device(
    signals: Signals, encoder: Encoder | None, other: Any, row_width: int, work: Callable, states: Array | None = None
) -> list | None:
    """Results of ``work(encoder, other, rows, states)``, a list of the chunks', all placed on the signals' device.

    It returns numbers to check too; `states` have one row per signal. Nothing waits for the device until the end. None
    for signals whose squares leave the range of their dtype.
    """
    with open_executor(signals, row_width, None, is_part=True) as executor:
        placed, other, states = executor.to_signals((encoder, other, states))
        placed = None if placed is None else placed.with_gram()

        def apply(rows: Array, state: Array) -> tuple[tuple, Any]:
            checked, results = work(placed, other, rows, state)
            return (dot(checked, checked),), results

        attempt, device = executor.worker(apply), signals.result_device

        def task(start: int, stop: int) -> tuple[Array, Any]:
            (check,), results = attempt(signals.read(start, stop), None if states is None else states[start:stop])
            return check.double(), to_host(results) if device is None else to_device(results, device)

        checks, parts = zip(*executor.map_chunks(task), strict=True)
        totals = backend_of(checks[0]).xp.stack(checks).tolist()
        sizes = [(stop - start) * signals.shape[1] for start, stop in executor.bounds]
        means = [total / max(1, size) for total, size in zip(totals, sizes, strict=True)]
        return list(parts) if encoder is None or _are_in_range(means, signals, encoder) else None


def _are_in_range(means: list[float], signals: Signals, encoder: Encoder) -> bool:
    """Whether codes of chunks on a device can be trusted, from mean squares; features not finite are refused.

    The mean square is zero for zeros, and for squares that underflow.
    """
    if not encoder.is_linear:
        if not np.isfinite(means).all():
            signals.check_finite()
            raise NotFiniteError
        if not any(means):
            _warn_of_zeros(encoder)
        return True
    if not all(is_safe(mean, signals.dtype) for mean in means if mean != 0.0):
        return False
    return 0.0 not in means or signals.largest() == 0.0


def map_rows(
    signals: Any,
    encoder: Encoder | None,
    decoder: Any,
    width: int,
    n_jobs: int | None,
    work: Callable[..., tuple[Array, Array]],
    dtype: Any = None,
) -> Array:
    """Rows of results (n_signals, width), as a tensor where the signals came as one.

    ``work(encoder, decoder, rows)`` returns numbers whose squares tell whether the results can be trusted, and the
    results, in `dtype` or else that of the signals; encoder and decoder are given to it in NumPy or on the
    signals' device. Without an encoder the signals are codes.
    """
    row_width = sum(part.row_width for part in (encoder, decoder) if part is not None)
    if signals.device is not None:
        from rkdl._execution.device import to_input_device

        def on_device(encoder: Encoder | None, decoder: Any, rows: Array, _: None) -> tuple[Array, Array]:
            return work(encoder, decoder, rows)

        parts = _work_on_device(signals, encoder, decoder, row_width, on_device)
        if parts is None:
            encoder, decoder = to_host((encoder, decoder))
            return to_input_device(map_rows(signals.on_host(), encoder, decoder, width, n_jobs, work), signals)
        found = joined(parts)
        # Numbers that are not finite, of features that are, come from a decoder.
        if encoder is not None and not encoder.is_linear:
            _are_in_range([float(backend_of(found).norm(found))], signals, encoder)
        return to_input_device(found, signals)
    results = np.empty((signals.shape[0], width), dtype=signals.dtype if dtype is None else dtype)

    def task(start: int, stop: int) -> bool:
        own, rows = encoder, signals.read(start, stop)
        if own is not None:
            own, rows = own.in_range(rows)
        checked, results[start:stop] = work(own, decoder, rows)
        flat = results[start:stop].reshape(-1)
        # A finite sum of squares shows that all are, faster.
        if not np.isfinite(flat.dot(flat)) and not np.isfinite(flat).all():
            raise NotFiniteError
        return bool(checked.any())

    if not any(for_each_chunk(signals, row_width, n_jobs, task)):
        _warn_of_zeros(encoder)
    return results


def gram_matrix(atoms: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """``A A'`` (n, n) of atoms (n, m); for many atoms in blocks on threads, the same for any number of threads."""
    n_atoms = len(atoms)
    if n_atoms < _MANY:
        return atoms @ atoms.T
    gram = np.empty((n_atoms, n_atoms), dtype=atoms.dtype)

    def fill(start: int) -> None:
        stop = min(start + _BLOCK, n_atoms)
        products = atoms[start:stop] @ atoms[:stop].T
        gram[start:stop, :stop] = products
        gram[:start, start:stop] = products[:, :start].T

    # The largest blocks first, so that threads end together.
    with one_blas_thread():
        side_by_side(fill, range(0, n_atoms, _BLOCK)[::-1], resolve_threads(n_jobs))
    return gram


def densify(codes: Any, n_atoms: int) -> Array:
    """Codes of a chunk as a decoder takes them: CSR, or a tensor with its zeros."""
    return codes.dense(n_atoms) if is_tensor(codes.values) else codes.to_csr(n_atoms)
