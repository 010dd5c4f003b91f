"""Codes of tensors, and of arrays that go through a device."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import sparse

from rkdl._backends.torch.backend import torch_dtype, upload
from rkdl._backends.torch.place import to_device, to_host
from rkdl._backends.torch.pursuit import TensorCodes, pursue
from rkdl._backends.torch.signals import StreamedSignals, TensorSignals
from rkdl._coding import encode as _encode
from rkdl._coding.encoder import Encoder, NotFiniteError
from rkdl._coding.pursuit import Codes, scatter
from rkdl._data.signals import Signals, is_safe
from rkdl._execution.device import DeviceExecutor
from rkdl._features.maps import LinearMap


def encode_signals(
    signals: TensorSignals | StreamedSignals,
    encoder: Any,
    sparse_output: bool,
    n_jobs: int | None,
    *,
    factors: np.ndarray | float = 1.0,
    squared_norms: Any = None,
) -> Any:
    """Codes of all signals; as `rkdl._coding.encode.encode_signals`, and where that gives arrays for tensors, tensors.

    Signals whose squares leave the range of their dtype are left to that.
    """
    n_atoms = encoder.n_atoms
    wide = torch.as_tensor(factors, dtype=torch.float64).expand(n_atoms)
    dtype, device = torch_dtype(signals.dtype), signals.device
    scale = None if bool((wide == 1.0).all()) else wide.to(device, dtype)
    # To NumPy what is sparse travels; a tensor's zeros are written where it is.
    is_dense = signals.home is not None and not sparse_output
    with DeviceExecutor(signals, encoder.row_width) as executor:
        placed = _placed(executor, encoder)
        norms = None if squared_norms is None else executor.to_backend(squared_norms)
        checks: list[torch.Tensor] = []
        parts: list[Any] = []

        def work(rows: torch.Tensor, own: Any) -> tuple[tuple, Any]:
            codes, check = _codes(placed, rows, own)
            if scale is not None:
                codes = codes._replace(values=codes.values * scale[codes.indices])
            return (check,), codes.dense(n_atoms) if is_dense else codes

        def task(number: int, start: int, stop: int) -> None:
            own = None if norms is None else norms[start:stop]
            (check,), found = executor.attempt(work, signals.read(start, stop), own)
            checks.append(check)
            parts.append(to_host(found) if signals.home is None else found)

        for _ in executor.iter_chunks(task):
            pass
        total = torch.stack(checks)
        bounded = isinstance(encoder, _encode.GramEncoder) or isinstance(encoder.feature_map, LinearMap)
        sizes = torch.tensor([max(1, (b - a) * signals.shape[1]) for a, b in executor.bounds], device=total.device)
        is_fine = _are_in_range((total / sizes).tolist(), signals) if bounded else bool(total.isfinite().all())
        if not is_fine:
            if not bounded:
                signals.check_finite()
                raise NotFiniteError
            return _encode_on_host(signals, encoder, sparse_output, n_jobs, factors, to_host(squared_norms))
        if is_dense:
            return torch.cat(parts).to(signals.home)
        if signals.home is None:
            return _gather(parts, n_atoms, sparse_output)
        return to_sparse(parts, n_atoms).to(signals.home)


def _codes(encoder: Any, rows: torch.Tensor, norms: torch.Tensor | None) -> tuple[TensorCodes, torch.Tensor]:
    """Codes of a chunk, and a number that is not finite, or too large or small, where they cannot be trusted."""
    if isinstance(encoder, _encode.GramEncoder):
        assert norms is not None
        correlations = rows * encoder.factors.to(rows.dtype)
        check = _square_sum(rows)
        return pursue(correlations, encoder.gram, norms, *encoder.pursuit)[0], check
    features = encoder.feature_map.features(rows)
    correlations = features @ encoder.atoms.T
    if norms is None:
        if encoder.pursuit.residual_tol < 0.0:
            norms = torch.full((len(rows),), torch.inf, dtype=rows.dtype, device=rows.device)
        else:
            norms = encoder.feature_map.squared_norms(rows)
    check = _square_sum(rows if isinstance(encoder.feature_map, LinearMap) else correlations)
    return pursue(correlations, encoder.gram, norms, *encoder._limited())[0], check


def _placed(executor: DeviceExecutor, encoder: Any) -> Any:
    if isinstance(encoder, _encode.GramEncoder):
        return _encode.GramEncoder(
            executor.to_backend(encoder.gram), executor.to_backend(encoder.factors), encoder.pursuit
        )
    placed = executor.to_backend(encoder)
    return placed if placed.gram is not None else replace(placed, gram=placed.atoms @ placed.atoms.T)


def _are_in_range(means: list[float], signals: Any) -> bool:
    """Whether chunks of these mean squares are in range; zero is of zeros, or of squares that vanished."""
    if not all(is_safe(mean, signals.dtype) for mean in means if mean != 0.0):
        return False
    return 0.0 not in means or signals.largest() == 0.0


def _square_sum(rows: torch.Tensor) -> torch.Tensor:
    flat = rows.reshape(-1)
    return torch.dot(flat, flat).double()


def _encode_on_host(
    signals: Any, encoder: Any, sparse_output: bool, n_jobs: int | None, factors: Any, squared_norms: Any
) -> Any:
    """What the CPU makes of signals that are not finite, huge or tiny."""
    given = Signals(to_host(signals.data), signals.dtype, signals.scale) if signals.home is not None else signals.source
    codes = _encode.encode_signals(
        given, encoder, sparse_output, n_jobs, factors=to_host(factors), squared_norms=squared_norms
    )
    if signals.home is None:
        return codes
    if not sparse_output:
        return upload(codes, signals.home)
    starts, indices, values = (torch.from_numpy(part) for part in (codes.indptr, codes.indices, codes.data))
    return _csr(starts, indices, values, codes.shape).to(signals.home)


def to_sparse(parts: list[TensorCodes], n_atoms: int) -> torch.Tensor:
    """Codes of consecutive chunks as a CSR tensor."""
    counts = torch.cat([part.counts for part in parts])
    indices = torch.cat([part.indices for part in parts])
    values = torch.cat([part.values for part in parts])
    n_signals, width = indices.shape
    kind = torch.int32 if n_signals * width < 2**31 else torch.int64
    starts = torch.zeros(n_signals + 1, dtype=kind, device=counts.device)
    torch.cumsum(counts, 0, dtype=kind, out=starts[1:])
    if int(starts[-1]) == n_signals * width:
        indices, values = indices.reshape(-1), values.reshape(-1)
    else:
        is_used = torch.arange(width, device=counts.device) < counts[:, None]
        indices, values = indices[is_used], values[is_used]
    return _csr(starts, indices.to(kind), values, (n_signals, n_atoms))


def _csr(starts: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch tells every process once that its CSR tensors are in beta.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, indices, values, size=shape, check_invariants=False)


def _gather(parts: list[Any], n_atoms: int, sparse_output: bool) -> np.ndarray | sparse.csr_array:
    """Codes that came back to the host, in NumPy's or SciPy's form."""
    rows = [_compact(part) for part in parts]
    n_signals = sum(part.n_signals for part in rows)
    if sparse_output:
        return _encode._join(rows, n_signals).to_csr(n_atoms)
    dense = np.zeros((n_signals, n_atoms), dtype=rows[0].values.dtype)
    ones, start = np.ones(n_atoms, dtype=dense.dtype), 0
    for part in rows:
        scatter(part, ones, dense[start : start + part.n_signals])
        start += part.n_signals
    return dense


def _compact(part: Any) -> Codes:
    indices, values, counts = part[:3]
    indptr = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=indptr[1:])
    is_used = np.arange(indices.shape[1], dtype=np.int32) < counts[:, None]
    return Codes(indptr, indices[is_used], values[is_used])


def clone_to_host(model: Any) -> Any:
    """The same model for NumPy arrays."""
    model = copy.copy(model)
    model.device = None
    return model


def residuals_of(model: Any, signals: Any, encoder: Encoder, unit: float, factor: float) -> tuple[Any, Any]:
    """Norms of the residuals and of the signals in feature space, as tensors, or arrays where arrays were given."""

    def work(placed: Any, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features, norms, codes, squares = placed.encode(rows)
        if isinstance(placed.feature_map, LinearMap):
            # From the residual itself: the difference of squares has no digits left where the fit is close.
            residual = rows - codes.dense(len(placed.atoms)) @ placed.atoms
            squares = torch.linalg.vecdot(residual, residual)
        return _square_sum(features), torch.stack([squares, norms], dim=1).sqrt() / unit

    def on_host(given: Any) -> np.ndarray:
        return np.stack(clone_to_host(model)._residuals(given, factor), axis=1)

    both = _of_rows(signals, encoder, encoder.row_width, work, on_host)
    return both[:, 0], both[:, 1]


def denoised(model: Any, signals: Any, encoder: Encoder, decoder: Any, unit: float, noise: float | None) -> Any:
    """Cleaned signals, as a tensor, or as an array where an array was given."""
    back = to_device(decoder, signals.device)

    def work(placed: Any, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes, check = _codes(placed, rows, None)
        return check, back(codes.dense(encoder.n_atoms) / unit)

    def on_host(given: Any) -> np.ndarray:
        return clone_to_host(model).denoise(given, noise=noise)

    return _of_rows(signals, encoder, encoder.row_width + decoder.row_width, work, on_host)


def _of_rows(signals: Any, encoder: Encoder, row_width: int, work: Callable, on_host: Callable) -> Any:
    """``work(encoder, rows)`` of all signals, which is a number that tells whether to trust it, and rows of results.

    Where squares leave the range, `on_host` of the signals as they were given.
    """
    found: list[torch.Tensor] = []
    checks: list[float] = []
    with DeviceExecutor(signals, row_width) as executor:
        placed = _placed(executor, encoder)

        def attempted(rows: torch.Tensor, kept: Any) -> tuple[tuple, torch.Tensor]:
            check, results = work(placed, rows)
            return (check,), results

        def task(number: int, start: int, stop: int) -> None:
            (check,), results = executor.attempt(attempted, signals.read(start, stop))
            checks.append(float(check) / ((stop - start) * signals.shape[1]))
            found.append(results)

        for _ in executor.iter_chunks(task):
            pass
        results = torch.cat(found)
        if isinstance(encoder.feature_map, LinearMap):
            if not _are_in_range(checks, signals):
                # What the CPU makes of signals that are not finite, huge or tiny.
                given = to_host(signals.data) if signals.home is not None else signals.source.data
                results = torch.from_numpy(on_host(given))
        elif not np.isfinite(checks).all() or not bool(results.isfinite().all()):
            signals.check_finite()
            raise NotFiniteError
    return results.cpu().numpy() if signals.home is None else results.to(signals.home)


def decoded(decoder: Any, codes: TensorSignals | StreamedSignals) -> Any:
    """Signals of codes, as a tensor, or as an array where an array was given."""
    back = to_device(decoder, codes.device)
    parts: list[torch.Tensor] = []
    codes.check_finite()
    with DeviceExecutor(codes, decoder.row_width) as executor:

        def task(number: int, start: int, stop: int) -> None:
            signals = executor.attempt(lambda rows, kept: ((), back(rows)), codes.read(start, stop))[1]
            parts.append(signals.cpu() if codes.home is None else signals.to(codes.home))

        for _ in executor.iter_chunks(task):
            pass
    signals = torch.cat(parts)
    return signals.numpy() if codes.home is None else signals
