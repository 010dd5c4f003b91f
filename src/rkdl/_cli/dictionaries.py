"""``rkdl fit``, ``encode`` and ``denoise``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from sklearn.exceptions import NotFittedError

from rkdl import _estimators as estimators
from rkdl._cli.images import check_images, write_images
from rkdl._cli.inputs import read_inputs
from rkdl._cli.messages import say, say_aside
from rkdl._cli.models import CLASS_OF, KINDS, configure, load_model, read_new, remember_names, warn_of_scales
from rkdl._cli.outputs import MATRICES, check_outputs, write_matrix
from rkdl._estimators.learner import Learner
from rkdl.datasets._errors import as_path


def fit(options: Namespace) -> int:
    """Learn a dictionary and save it."""
    check_outputs(options)
    out, model = as_path(options.out), getattr(estimators, CLASS_OF[options.method])()
    configure(model, options)
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
        f"{type(model).__name__}: {model.n_components} atoms{on} represent {share:.1%} of the energy of {n_rows:,} "
        f"{inputs.unit} with {n_features} features, saved to {out}",
    )
    return 0


def encode(options: Namespace) -> int:
    """Write the codes of signals."""
    check_outputs(options, MATRICES)
    model: Learner = load_model(options.model, KINDS, "encode")
    model.set_params(n_jobs=options.n_jobs, sparse_output=True)
    inputs = read_new(options.data, options, model)
    names = list(model.get_feature_names_out())
    inputs.check_results(names)
    codes = model.transform(inputs.X)
    write_matrix(as_path(options.out), codes, names, inputs.ids)
    mean = codes.nnz / codes.shape[0]
    say(
        options,
        f"{codes.shape[0]:,} {inputs.unit} encoded on {codes.shape[1]} atoms, with {mean:.1f} nonzeros on average, "
        f"saved to {options.out}",
    )
    return 0


def denoise(options: Namespace) -> int:
    """Write denoised signals."""
    is_folder = as_path(options.data).is_dir() and not Path(options.out).suffix
    check_outputs(options, () if is_folder else MATRICES, is_folder=is_folder)
    model: Learner = load_model(options.model, KINDS, "denoise")
    model.set_params(n_jobs=options.n_jobs)
    inputs = read_new(options.data, options, model)
    names = inputs.names or [f"feature{number}" for number in range(inputs.X.shape[1])]
    inputs.check_results(names)
    if is_folder and inputs.image_shape is None:
        raise ValueError(f"{options.out}: a folder is for images, and {inputs.path} holds none; give a file")
    if is_folder:
        check_images(as_path(options.out), inputs.ids["file"], inputs.path)
    try:
        signals = model.denoise(inputs.X, noise=options.noise)
    except NotFittedError as error:
        raise ValueError(f"{options.model} cannot turn codes back into signals: fit it with --decoder") from error
    if inputs.image_shape is not None and is_folder:
        write_images(as_path(options.out), signals, inputs.ids["file"], inputs.image_shape)
    else:
        # Row numbers are not added, so that the result can be read like the input.
        has_ids = options.keep or inputs.image_shape is not None
        write_matrix(as_path(options.out), signals, names, inputs.ids if has_ids else {})
    say(options, f"{len(signals):,} {inputs.unit} denoised, saved to {options.out}")
    return 0
