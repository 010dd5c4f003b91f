"""``rkdl fit``, ``encode`` and ``denoise``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError

from rkdl import _estimators as estimators
from rkdl._cli.inputs import Inputs, Rows, read_inputs
from rkdl._cli.messages import say, say_aside, verbosity
from rkdl._cli.models import CLASS_OF, KINDS, load_model, read_for, remember_names, set_parameters, warn_of_scales
from rkdl._cli.outputs import MATRICES, check_outputs, write_images, write_matrix
from rkdl.datasets._home import as_path

# Signals that are coded between two updates of the progress bar.
_BLOCK = 1 << 16
# Options that set parameters of the estimator.
_PARAMETERS = {
    "atoms": "n_components",
    "nonzeros": "n_nonzero_coefs",
    "kernel_vectors": "n_kernel_vectors",
    "kernel": "kernel",
    "gamma": "gamma",
    "iterations": "max_iter",
    "decoder": "fit_inverse_transform",
    "n_jobs": "n_jobs",
    "device": "device",
}


def fit(options: Namespace) -> int:
    """Learn a dictionary and save it."""
    out = check_outputs(options)
    name = CLASS_OF[options.method]
    model = getattr(estimators, name)(random_state=options.seed, verbose=verbosity(options))
    known = model.get_params()
    for option, parameter in _PARAMETERS.items():
        value = getattr(options, option)
        if value is None:
            continue
        if parameter not in known:
            raise ValueError(f"--{option.replace('_', '-')} does not apply to {name}")
        model.set_params(**{parameter: value})
    set_parameters(model, options.set)
    inputs = read_inputs(options.data, options)
    warn_of_scales(inputs, "standardize the columns of the file, or the kernel will hardly see the others")
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
    n_rows, n_features = inputs.X.shape
    vectors = getattr(model, "kernel_vectors_", None)
    on = "" if vectors is None else f" on {len(vectors)} kernel vectors"
    say(
        options,
        f"{name}: {model.n_components} atoms{on} represent {share:.1%} of the energy of {n_rows:,} {inputs.unit} "
        f"with {n_features} features, saved to {out}",
    )
    return 0


def encode(options: Namespace) -> int:
    """Write the codes of signals."""
    out = check_outputs(options, MATRICES)
    assert out is not None
    model, inputs = _model_and_inputs(options, "encode")
    model.set_params(sparse_output=True)
    names = list(model.get_feature_names_out())
    inputs.check_results(names)
    parts = list(_in_blocks(inputs.X, model.transform, options, "encode"))
    codes = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts))
    write_matrix(out, codes, names, inputs.ids)
    mean = codes.nnz / codes.shape[0]
    say(
        options,
        f"{codes.shape[0]:,} {inputs.unit} encoded on {codes.shape[1]} atoms, with {mean:.1f} nonzeros on average, "
        f"saved to {out}",
    )
    return 0


def denoise(options: Namespace) -> int:
    """Write denoised signals."""
    is_folder = as_path(options.data).is_dir() and not Path(options.out).suffix
    out = check_outputs(options, () if is_folder else MATRICES, is_folder=is_folder)
    assert out is not None
    model, inputs = _model_and_inputs(options, "denoise")
    names = inputs.names or [f"feature{number}" for number in range(inputs.X.shape[1])]
    inputs.check_results(names)
    if is_folder and inputs.image_shape is None:
        raise ValueError(f"{out}: a folder is for images, and {inputs.path} holds none; give a file")
    try:
        parts = list(_in_blocks(inputs.X, lambda rows: model.denoise(rows, noise=options.noise), options, "denoise"))
    except NotFittedError as error:
        raise ValueError(f"{options.model} cannot turn codes back into signals: fit it with --decoder") from error
    signals = np.concatenate(parts)
    if is_folder:
        assert inputs.image_shape is not None
        write_images(out, signals, inputs.ids["file"], inputs.image_shape)
    else:
        # Row numbers are not added, so that the result can be read like the input.
        write_matrix(out, signals, names, {} if list(inputs.ids) == ["row"] else inputs.ids)
    say(options, f"{len(signals):,} {inputs.unit} denoised, saved to {out}")
    return 0


def _model_and_inputs(options: Namespace, command: str) -> tuple[Any, Inputs]:
    """The dictionary of --model, and the data that it is to be applied to."""
    model = load_model(options.model, KINDS, command)
    model.set_params(n_jobs=options.n_jobs)
    return model, read_for(model, options.data, options)


def _in_blocks(X: Rows, work: Callable[..., np.ndarray], options: Namespace, name: str) -> Iterator[Any]:
    """Results of blocks of rows, with a progress bar if there are several."""
    from tqdm import tqdm

    starts = range(0, X.shape[0], _BLOCK)
    for start in tqdm(starts, desc=name, unit="block", disable=not verbosity(options) or len(starts) == 1):
        yield work(X[start : start + _BLOCK])
