"""``rkdl fit``, ``encode`` and ``denoise``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError

from rkdl import _estimators as estimators
from rkdl._cli.inputs import read_inputs
from rkdl._cli.models import (
    KINDS,
    class_of,
    load_model,
    plain_warnings,
    read_for,
    reading_of,
    remember_names,
    say,
    say_aside,
    set_parameters,
    verbosity,
    warn_of_scales,
)
from rkdl._cli.outputs import MATRICES, check_output, check_table_writer, write_images, write_matrix
from rkdl.datasets._home import as_path

# Signals that are coded between two looks at the progress bar.
_BLOCK = 1 << 16


def fit(options: Namespace) -> int:
    """Learn a dictionary and save it."""
    out = check_output(options.out, (), [options.data])
    assert out is not None
    model = _make(options)
    inputs = read_inputs(options.data, reading_of(options))
    warn_of_scales(inputs, "standardise the columns in the file, or the kernel hardly sees the others")
    with plain_warnings():
        try:
            model.fit(inputs.X, checkpoint=options.checkpoint)
        except KeyboardInterrupt:
            if not hasattr(model, "n_iter_"):
                raise
            remember_names(model, inputs)
            model.save(out)
            say_aside(f"interrupted after {len(model.update_errors_)} iterations; {out} holds the best model so far")
            return 130
        remember_names(model, inputs)
        share = model.score(inputs.X)
    model.save(out)
    n_signals, n_features = inputs.X.shape
    vectors = getattr(model, "kernel_vectors_", None)
    on = "" if vectors is None else f" on {len(vectors)} kernel vectors"
    say(
        options,
        f"{type(model).__name__}: {model.n_components} atoms{on} represent {share:.1%} of the energy of {n_signals:,} "
        f"signals of {n_features} features, saved to {out}",
    )
    return 0


def _make(options: Namespace) -> Any:
    """The estimator of the options; those that it does not have are refused."""
    name = class_of(options.method)
    model = getattr(estimators, name)(random_state=options.seed, verbose=verbosity(options))
    values = {
        "n_components": ("--atoms", options.atoms),
        "n_nonzero_coefs": ("--nonzeros", options.nonzeros),
        "n_kernel_vectors": ("--kernel-vectors", options.kernel_vectors),
        "kernel": ("--kernel", options.kernel),
        "gamma": ("--gamma", options.gamma),
        "max_iter": ("--iterations", options.iterations),
        "fit_inverse_transform": ("--decoder", options.decoder or None),
        "n_jobs": ("--n-jobs", options.n_jobs),
        "device": ("--device", options.device),
    }
    known = model.get_params()
    for parameter, (option, value) in values.items():
        if value is None:
            continue
        if parameter not in known:
            raise ValueError(f"{option} does not apply to {name}")
        model.set_params(**{parameter: value})
    set_parameters(model, options.set)
    return model


def encode(options: Namespace) -> int:
    """Write the codes of signals."""
    out = check_output(options.out, MATRICES, [options.data, options.model])
    assert out is not None
    check_table_writer(out)
    model = load_model(options.model, KINDS, "encode")
    model.set_params(sparse_output=True, n_jobs=options.n_jobs)
    inputs = read_for(model, options.data, options)
    with plain_warnings():
        parts = list(_in_blocks(inputs.X, model.transform, options, "coding"))
    codes = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts))
    write_matrix(out, codes, list(model.get_feature_names_out()), inputs.ids)
    mean = codes.nnz / codes.shape[0]
    say(
        options,
        f"codes of {codes.shape[0]:,} signals on {codes.shape[1]} atoms, {mean:.1f} nonzeros per signal, saved to "
        f"{out}",
    )
    return 0


def denoise(options: Namespace) -> int:
    """Write what the codes of signals represent."""
    is_folder = as_path(options.data).is_dir() and not Path(options.out).suffix
    out = check_output(options.out, None if is_folder else MATRICES, [options.data, options.model])
    assert out is not None
    check_table_writer(out)
    model = load_model(options.model, KINDS, "denoise")
    model.set_params(n_jobs=options.n_jobs)
    inputs = read_for(model, options.data, options)
    with plain_warnings():
        try:
            parts = list(
                _in_blocks(inputs.X, lambda rows: model.denoise(rows, noise=options.noise), options, "denoising")
            )
        except NotFittedError as error:
            raise ValueError(
                f"{options.model} has not learned to turn codes back into signals: fit it with --decoder"
            ) from error
    signals = np.concatenate(parts)
    if is_folder:
        if inputs.image_shape is None:
            raise ValueError(f"{out}: a folder is for images, and {inputs.path} holds none; give a file")
        write_images(out, signals, inputs.ids["file"], inputs.image_shape)
    else:
        names = inputs.names or [f"feature{number}" for number in range(signals.shape[1])]
        # A plain table stays one.
        write_matrix(out, signals, names, {} if list(inputs.ids) == ["row"] else inputs.ids)
    say(options, f"{len(signals):,} signals denoised, saved to {out}")
    return 0


def _in_blocks(X: Any, work: Any, options: Namespace, name: str) -> Any:
    """Results of blocks of rows, with a progress bar if there are several."""
    from tqdm import tqdm

    starts = range(0, X.shape[0], _BLOCK)
    for start in tqdm(starts, desc=name, unit="block", disable=not verbosity(options) or len(starts) == 1):
        yield work(X[start : start + _BLOCK])
