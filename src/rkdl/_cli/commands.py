"""``rkdl fit``, ``encode``, ``denoise``, ``outliers`` and ``classify``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score

from rkdl import _estimators as estimators
from rkdl._cli.inputs import (
    CLASS_OF,
    KINDS,
    Inputs,
    configure,
    counted_rows,
    load_model,
    read_inputs,
    read_new,
    remember_names,
)
from rkdl._cli.messages import say, say_aside
from rkdl._cli.outputs import MATRICES, TABLES, check_outputs, write_images, write_matrix, write_table
from rkdl._cli.scaling import as_saved, first_of, in_memory, last_of, with_scaler
from rkdl._estimators.classifier import KDLClassifier
from rkdl._estimators.learner import Learner
from rkdl._estimators.outliers import KDLOutlierDetector
from rkdl._estimators.saving import save_model
from rkdl._utils.warnings import quiet
from rkdl.datasets._errors import as_path


def fit(options: Namespace) -> int:
    """Learn a dictionary and save it."""
    check_outputs(options)
    out, model = as_path(options.out), getattr(estimators, CLASS_OF[options.method])()
    configure(model, options)
    inputs = read_inputs(options.data, options)
    whole, X = with_scaler(model, inputs, options), inputs.X
    if whole is not model:
        X = first_of(whole).fit_transform(in_memory(X))
    try:
        model.fit(X, checkpoint=options.checkpoint)
    except KeyboardInterrupt:
        if not hasattr(model, "n_iter_"):
            raise
        remember_names(first_of(whole), inputs)
        save_model(as_saved(whole), out)
        say_aside(f"interrupted after {len(model.update_errors_)} iterations; {out} holds the best model so far")
        return 130
    remember_names(first_of(whole), inputs)
    save_model(as_saved(whole), out)
    n_rows, n_features = inputs.X.shape
    with quiet():
        share = model.score(X[:: max(1, n_rows // 10_000)])
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
    model = load_model(options.model, KINDS, "encode")
    last_of(model).set_params(n_jobs=options.n_jobs, sparse_output=True)
    inputs = read_new(options.data, options, model)
    names = list(last_of(model).get_feature_names_out())
    inputs.check_results(names)
    with counted_rows(options, "encode", inputs):
        codes = model.transform(inputs.X)
    write_matrix(as_path(options.out), codes, names, inputs.ids)
    mean = codes.nnz / codes.shape[0]
    say(
        options,
        f"{codes.shape[0]:,} {inputs.unit} encoded with {codes.shape[1]} atoms, {mean:.1f} nonzeros on average, "
        f"saved to {options.out}",
    )
    return 0


def denoise(options: Namespace) -> int:
    """Write denoised signals."""
    is_folder = as_path(options.data).is_dir() and not Path(options.out).suffix
    check_outputs(options, () if is_folder else MATRICES, is_folder=is_folder)
    model = load_model(options.model, KINDS, "denoise")
    last: Learner = last_of(model).set_params(n_jobs=options.n_jobs)
    if last is not model and options.noise is not None:
        raise ValueError(
            f"--noise is one number for all columns, and {options.model} divides each by its own scale: fit the model "
            f"with --no-standardize, or leave --noise out"
        )
    inputs = read_new(options.data, options, model)
    names = inputs.names or [f"feature{number}" for number in range(inputs.X.shape[1])]
    if not options.keep and inputs.image_shape is None:
        # Row numbers are not added, so that the result can be read like the input.
        inputs = replace(inputs, ids={})
    inputs.check_results(names)
    if is_folder and inputs.image_shape is None:
        raise ValueError(f"{options.out}: images are written to a folder, and {inputs.path} holds none; give a file")
    try:
        with counted_rows(options, "denoise", inputs):
            if last is model:
                signals = last.denoise(inputs.X, noise=options.noise)
            else:
                signals = model[:-1].inverse_transform(last.denoise(model[:-1].transform(in_memory(inputs.X))))
    except NotFittedError as error:
        raise ValueError(f"{options.model} cannot turn codes back into signals: fit it with --decoder") from error
    if is_folder:
        write_images(as_path(options.out), signals, inputs)
    else:
        write_matrix(as_path(options.out), signals, names, inputs.ids)
    say(options, f"{len(signals):,} {inputs.unit} denoised, saved to {options.out}")
    return 0


def outliers(options: Namespace) -> int:
    """Score signals and mark the outliers among them."""
    out, results = check_outputs(options, TABLES), ("anomaly", "outlier", "because")
    _check_training(options, ["train", "contamination"])
    if options.model is not None:
        detector: KDLOutlierDetector = load_model(options.model, ("KDLOutlierDetector",), "outliers")
        inputs = read_new(options.data, options, detector)
        inputs.check_results(results)
        labels = detector.predict(inputs.X)
    else:
        learned = inputs = read_inputs(options.train or options.data, options)
        if options.train is not None:
            inputs = read_new(options.data, options, learned)
        inputs.check_results(results)
        detector = KDLOutlierDetector()
        configure(detector, options)
        # The training rows have a threshold of their own.
        labels = detector.fit_predict(inputs.X) if options.train is None else detector.fit(learned.X).predict(inputs.X)
        remember_names(detector, learned)
    scores = -detector.score_samples(inputs.X)
    is_outlier = (labels == -1).astype(int)
    order = np.argsort(-scores, kind="stable") if options.sort or out is None else np.arange(len(scores))
    order = order if out is not None else order[: max(options.top, 0)]
    rows: dict[str, Any] = {**inputs.ids, "row": np.arange(1, len(scores) + 1), **inputs.ids}
    explained = order if out is None else np.flatnonzero(is_outlier)
    because = _reasons(detector, inputs, explained) if options.explain else {}
    if out is not None:
        columns = {**rows, **_features(inputs, {*rows, *results}), "anomaly": scores, "outlier": is_outlier}
        columns |= {"because": [because.get(row, "") for row in range(len(scores))]} if options.explain else {}
        write_table(out, {name: np.asarray(values)[order] for name, values in columns.items()})
    if options.save is not None:
        detector.save(options.save)
    count, total = int(is_outlier.sum()), len(is_outlier)
    saved = _saved(out) + _saved(options.save)
    counted = "; rows are counted from 1" if out is None and "row" not in options.keep else ""
    say(options, f"{count:,} of {total:,} {inputs.unit} are outliers ({count / total:.1%}){saved}{counted}")
    for row in order if out is None else ():
        names = ", ".join(f"{name} {values[row]}" for name, values in rows.items())
        reason = f", because of {because[row]}" if because.get(row) else ""
        say(options, f"  {names}: anomaly {scores[row]:.3f}{'' if is_outlier[row] else ' (not an outlier)'}{reason}")
    return 0


def _features(inputs: Inputs, taken: Collection[str]) -> dict[str, np.ndarray]:
    """The columns of a table that were learned from, by name."""
    names, mark = inputs.columns or [], " (given)"
    while {f"{name}{mark}" for name in taken}.intersection([*names, *taken]):
        mark += " (given)"
    return {f"{name}{mark}" if name in taken else name: inputs.X[:, k] for k, name in enumerate(names)}


def _reasons(detector: KDLOutlierDetector, inputs: Inputs, rows: np.ndarray) -> dict[int, str]:
    """The features, at most two, that make each of these rows abnormal."""
    names = inputs.columns or [str(number) for number in range(1, inputs.X.shape[1] + 1)]
    found: dict[int, str] = {}
    if len(rows):
        for row, gains in zip(rows.tolist(), detector.explain(inputs.X[rows]), strict=True):
            first = np.argsort(-gains, kind="stable")[:2]
            found[row] = " and ".join(str(names[k]) for k in first if gains[k] > 0.1 * max(gains.max(), 0.0))
    return found


def classify(options: Namespace) -> int:
    """Train a classifier, and predict the labels of further signals."""
    out = check_outputs(options, TABLES)
    _check_training(options, ["test", "cv", "atoms", "nonzeros", "kernel_vectors", "gamma"])
    if options.model is not None:
        saved = load_model(options.model, ("KDLClassifier",), "classify")
        inputs = read_new(options.data, options, saved)
        inputs.check_results(_columns(saved.classes_))
        return _predict(options, saved, inputs, out)
    if out is not None and options.test is None:
        raise ValueError("--out is for predictions, and there is nothing to predict: give --test")
    if options.test is None and options.save is None and options.cv is None:
        raise ValueError("nothing to do: give --test, --save or --cv")
    inputs = read_inputs(options.data, options)
    if inputs.y is None:
        where = "put the images of each class into a subfolder" if inputs.image_shape else "name them with --label"
        raise ValueError(f"{inputs.path}: the labels are missing: {where}")
    test = None if options.test is None else read_new(options.test, options, inputs)
    if test is not None:
        test.check_results(_columns(np.unique(inputs.y)))
    classifier = KDLClassifier()
    configure(classifier, options)
    model = with_scaler(classifier, inputs, options)
    if options.cv is not None:
        folds = StratifiedKFold(options.cv, shuffle=True, random_state=options.seed)
        rates = cross_val_score(model, in_memory(inputs.X), inputs.y, cv=folds, error_score="raise")
        say(options, f"{options.cv} folds: accuracy {rates.mean():.1%}, from {rates.min():.1%} to {rates.max():.1%}")
    if test is None and options.save is None:
        return 0
    model.fit(inputs.X, inputs.y)
    remember_names(first_of(model), inputs)
    if options.save is not None:
        save_model(as_saved(model), options.save)
    learned = f"trained on {inputs.X.shape[0]:,} {inputs.unit} of {len(model.classes_)} classes"
    say(options, f"{learned}{_saved(options.save)}")
    return 0 if test is None else _predict(options, model, test, out)


def _columns(classes: np.ndarray) -> list[str]:
    """Names of the columns of predictions."""
    return ["predicted", *(f"p({label})" for label in classes)]


def _predict(options: Namespace, model: Any, inputs: Inputs, out: Path | None) -> int:
    """Write predictions with their probabilities; print the accuracy if the labels are known."""
    probabilities, predictions = model.predict_proba(inputs.X), model.predict(inputs.X)
    if out is not None:
        columns = dict(zip(_columns(model.classes_), [predictions, *probabilities.T], strict=True))
        write_table(out, {**inputs.ids, **columns})
    text = f"{len(predictions):,} {inputs.unit} classified{_saved(out)}"
    if inputs.y is not None:
        are_numbers = predictions.dtype.kind in "biuf" and inputs.y.dtype.kind in "biuf"
        given, found = (inputs.y, predictions) if are_numbers else (inputs.y.astype(str), predictions.astype(str))
        right = int((given == found).sum())
        text += f", {right:,} correctly ({right / len(predictions):.1%})"
    say(options, text)
    return 0


def _check_training(options: Namespace, training: list[str]) -> None:
    """Refuse options that contradict each other; those of `training` have no effect on a saved model."""
    if options.model is not None:
        known = [name for name in (*training, "save", "standardize", "set") if hasattr(options, name)]
        given = [name for name in known if getattr(options, name) not in (None, [])]
        if given:
            raise ValueError(f"--{given[0]} is for training, and --model gives a model that is already trained")


def _saved(path: str | Path | None) -> str:
    return "" if path is None else f", saved to {path}"
