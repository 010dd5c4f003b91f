"""``rkdl outliers`` and ``classify``."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
from scipy import sparse

from rkdl import _estimators as estimators
from rkdl._cli.inputs import Inputs, read_inputs
from rkdl._cli.models import (
    class_of,
    load_model,
    plain_warnings,
    read_for,
    read_like,
    reading_of,
    remember_names,
    say,
    set_parameters,
    verbosity,
    warn_of_scales,
)
from rkdl._cli.outputs import TABLES, check_output, check_table_writer, write_table

_SCALES = "standardise them with --standardize"


def outliers(options: Namespace) -> int:
    """Score signals and mark the outliers among them."""
    given = [options.data, options.train, options.model]
    out = check_output(options.out, TABLES, given)
    save = check_output(options.save, (), given)
    check_table_writer(out)
    _check_trained(options, ["train", "contamination"])
    with plain_warnings():
        if options.model is not None:
            detector = load_model(options.model, ("KDLOutlierDetector",), "outliers")
            inputs = read_for(detector, options.data, options)
            X = inputs.X
            labels = detector.predict(X)
        else:
            detector, inputs, X, labels = _learn_outliers(options)
        scores = -detector.score_samples(X)
    is_outlier = (labels == -1).astype(int)
    if out is not None:
        write_table(out, {**inputs.ids, "anomaly": scores, "outlier": is_outlier})
    if save is not None:
        detector.save(save)
    count, total = int(is_outlier.sum()), len(is_outlier)
    say(options, f"{count:,} of {total:,} signals are outliers ({count / total:.1%}){_saved(out)}{_saved(save)}")
    if out is None:
        for row in np.argsort(-scores, kind="stable")[: options.top]:
            names = ", ".join(f"{name} {values[row]}" for name, values in inputs.ids.items())
            say(options, f"  {names}: anomaly {scores[row]:.3f}{'' if is_outlier[row] else ' (not an outlier)'}")
    return 0


def _learn_outliers(options: Namespace) -> tuple[Any, Inputs, Any, np.ndarray]:
    """A detector, the signals to score, as they are and as the detector takes them, and their labels."""
    learned = inputs = read_inputs(options.train or options.data, reading_of(options))
    if options.train is not None:
        inputs = read_like(options.data, options, learned.names)
        _check_widths(learned, inputs)
    detector = estimators.KDLOutlierDetector(
        contamination=options.contamination or "auto",
        random_state=options.seed,
        n_jobs=options.n_jobs,
        verbose=verbosity(options),
    )
    set_parameters(detector, options.set)
    if not options.standardize:
        warn_of_scales(learned, _SCALES)
    scaler = _Scaler(options.standardize)
    rows = scaler.fit(learned.X)
    if options.train is None:
        # Training signals have a threshold of their own.
        X, labels = rows, detector.fit_predict(rows)
    else:
        X = scaler(inputs.X)
        labels = detector.fit(rows).predict(X)
    remember_names(detector, learned)
    return detector, inputs, X, labels


def classify(options: Namespace) -> int:
    """Learn to tell classes, and predict those of further signals."""
    given = [options.data, options.test, options.model]
    out = check_output(options.out, TABLES, given)
    save = check_output(options.save, (), given)
    check_table_writer(out)
    _check_trained(options, ["test", "cv", "method", "atoms", "nonzeros", "gamma"])
    if options.model is not None:
        model = load_model(options.model, ("KDLClassifier",), "classify")
        inputs = read_for(model, options.data, options)
        with plain_warnings():
            return _predict(options, model, inputs, inputs.X, out)
    if out is not None and options.test is None:
        raise ValueError("--out is for predictions, and there is nothing to predict: give signals with --test")
    if options.test is None and save is None and options.cv is None:
        raise ValueError("nothing to do with what is learned: give --test, --save or --cv")
    inputs = read_inputs(options.data, reading_of(options))
    if inputs.y is None:
        where = "put the images of each class into a subfolder" if inputs.image_shape else "name them with --label"
        raise ValueError(f"{inputs.path}: the classes are not known: {where}")
    test = None if options.test is None else read_like(options.test, options, inputs.names)
    if test is not None:
        _check_widths(inputs, test)
    if not options.standardize:
        warn_of_scales(inputs, _SCALES)
    model = _make_classifier(options)
    scaler = _Scaler(options.standardize)
    with plain_warnings():
        if options.cv is not None:
            _cross_validate(options, model, inputs)
        if test is None and save is None:
            return 0
        model.fit(scaler.fit(inputs.X), inputs.y)
        remember_names(model, inputs)
        if save is not None:
            model.save(save)
        classes = f"{len(model.classes_)} classes learned from {inputs.X.shape[0]:,} signals"
        say(options, f"{classes}{_saved(save)}")
        if test is None:
            return 0
        return _predict(options, model, test, scaler(test.X), out)


def _make_classifier(options: Namespace) -> Any:
    method = class_of(options.method or "rkdl")
    model = estimators.KDLClassifier(
        method,
        random_state=options.seed,
        n_jobs=options.n_jobs,
        verbose=verbosity(options),
    )
    if method == "DL" and options.gamma is not None:
        raise ValueError("--gamma does not apply to DL, which has no kernel")
    values = {"n_components": options.atoms, "n_nonzero_coefs": options.nonzeros, "gamma": options.gamma}
    model.set_params(**{f"estimator__{name}": value for name, value in values.items() if value is not None})
    set_parameters(model, options.set)
    return model


def _predict(options: Namespace, model: Any, inputs: Inputs, X: Any, out: Any) -> int:
    """Write predictions with their probabilities; print the accuracy if the labels are known."""
    probabilities = model.predict_proba(X)
    predictions = model.predict(X)
    if out is not None:
        columns = {f"p({label})": probabilities[:, index] for index, label in enumerate(model.classes_)}
        write_table(out, {**inputs.ids, "predicted": predictions, **columns})
    text = f"{len(predictions):,} signals classified{_saved(out)}"
    if inputs.y is not None:
        right = int((predictions.astype(str) == inputs.y.astype(str)).sum())
        text += f", {right:,} correctly ({right / len(predictions):.1%})"
    say(options, text)
    return 0


def _cross_validate(options: Namespace, model: Any, inputs: Inputs) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold
    from sklearn.utils import check_random_state
    from tqdm import tqdm

    assert inputs.y is not None
    counts = np.unique(inputs.y, return_counts=True)[1]
    if counts.min() < options.cv:
        raise ValueError(f"--cv {options.cv} needs as many signals of every class, and one has {counts.min()}")
    folds = StratifiedKFold(options.cv, shuffle=True, random_state=check_random_state(options.seed))
    quiet = clone(model).set_params(verbose=0)
    shares = []
    X = inputs.X if sparse.issparse(inputs.X) else np.asarray(inputs.X)
    bar = tqdm(folds.split(inputs.y, inputs.y), "folds", options.cv, disable=not verbosity(options))
    for train, test in bar:
        scaler = _Scaler(options.standardize)
        fitted = clone(quiet).fit(scaler.fit(X[train]), inputs.y[train])
        shares.append(float(fitted.score(scaler(X[test]), inputs.y[test])))
    say(options, f"{options.cv} folds: accuracy {np.mean(shares):.1%}, from {min(shares):.1%} to {max(shares):.1%}")


class _Scaler:
    """Columns of mean zero and variance one, if they are to be."""

    def __init__(self, is_wanted: bool) -> None:
        self._scaler = None
        if is_wanted:
            from sklearn.preprocessing import StandardScaler

            self._scaler = StandardScaler()

    def fit(self, X: Any) -> Any:
        if self._scaler is None:
            return X
        # Centring would fill a sparse matrix.
        self._scaler.set_params(with_mean=not sparse.issparse(X))
        return self._scaler.fit_transform(X)

    def __call__(self, X: Any) -> Any:
        return X if self._scaler is None else self._scaler.transform(X)


def _check_trained(options: Namespace, learning: list[str]) -> None:
    """Refuse options that contradict each other; those of `learning` say how to learn."""
    if options.model is not None:
        given = [name for name in (*learning, "save", "standardize", "set") if getattr(options, name)]
        if given:
            raise ValueError(f"--{given[0]} is for learning, and --model gives a model that has learned already")
    if options.save is not None and options.standardize:
        raise ValueError(
            "--save cannot be combined with --standardize, because a model file holds no scaling: standardise the "
            "columns in the file beforehand"
        )


def _check_widths(learned: Inputs, other: Inputs) -> None:
    if learned.X.shape[1] != other.X.shape[1]:
        raise ValueError(
            f"{other.path} has {other.X.shape[1]} features and {learned.path} {learned.X.shape[1]}: both must agree"
        )
    if learned.names is not None and other.names is not None and learned.names != other.names:
        raise ValueError(f"{other.path} and {learned.path} have different columns: give both the same, in one order")


def _saved(path: Any) -> str:
    return "" if path is None else f", saved to {path}"
