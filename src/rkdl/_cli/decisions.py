"""``rkdl outliers`` and ``classify``."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from rkdl._cli.inputs import Inputs, read_inputs
from rkdl._cli.messages import say
from rkdl._cli.models import CLASS_OF, configure, load_model, read_new, remember_names, warn_of_scales
from rkdl._cli.outputs import TABLES, check_outputs, write_table
from rkdl._data.signals import PIECE_SIZE
from rkdl._estimators.classifier import KDLClassifier
from rkdl._estimators.outliers import KDLOutlierDetector


def outliers(options: Namespace) -> int:
    """Score signals and mark the outliers among them."""
    out = check_outputs(options, TABLES)
    _check_training(options, ["train", "contamination"])
    if options.model is not None:
        detector: KDLOutlierDetector = load_model(options.model, ("KDLOutlierDetector",), "outliers")
        inputs, model = read_new(options.data, options, detector), make_pipeline(detector)
        inputs.check_results(("anomaly", "outlier"))
        labels = model.predict(inputs.X)
    else:
        learned = inputs = read_inputs(options.train or options.data, options)
        if options.train is not None:
            inputs = read_new(options.data, options, learned)
        inputs.check_results(("anomaly", "outlier"))
        detector = KDLOutlierDetector()
        configure(detector, options)
        model = make_pipeline(detector)
        if options.standardize:
            learned, inputs = _standardized(learned, inputs)
        else:
            warn_of_scales(learned, "scale the columns with --standardize")
        # The training rows have a threshold of their own.
        labels = model.fit_predict(inputs.X) if options.train is None else model.fit(learned.X).predict(inputs.X)
        remember_names(detector, learned)
    scores = -model.score_samples(inputs.X)
    is_outlier = (labels == -1).astype(int)
    if out is not None:
        write_table(out, {**inputs.ids, "anomaly": scores, "outlier": is_outlier})
    if options.save is not None:
        detector.save(options.save)
    count, total = int(is_outlier.sum()), len(is_outlier)
    saved = _saved(out) + _saved(options.save)
    say(options, f"{count:,} of {total:,} {inputs.unit} are outliers ({count / total:.1%}){saved}")
    if out is None:
        counted = " (from 1)" if "row" in inputs.ids and not options.keep else ""
        for row in np.argsort(-scores, kind="stable")[: max(options.top, 0)]:
            names = ", ".join(f"{name} {values[row]}{counted}" for name, values in inputs.ids.items())
            say(options, f"  {names}: anomaly {scores[row]:.3f}{'' if is_outlier[row] else ' (not an outlier)'}")
    return 0


def classify(options: Namespace) -> int:
    """Train a classifier, and predict the labels of further signals."""
    out = check_outputs(options, TABLES)
    _check_training(options, ["test", "cv", "method", "atoms", "nonzeros", "gamma"])
    if options.model is not None:
        classifier: KDLClassifier = load_model(options.model, ("KDLClassifier",), "classify")
        inputs = read_new(options.data, options, classifier)
        inputs.check_results(_columns(classifier.classes_))
        return _predict(options, make_pipeline(classifier), inputs, out)
    if out is not None and options.test is None:
        raise ValueError("--out is for predictions, and there is nothing to predict: give --test")
    if options.test is None and options.save is None and options.cv is None:
        raise ValueError("nothing to do with the classifier: give --test, --save or --cv")
    inputs = read_inputs(options.data, options)
    if inputs.y is None:
        where = "put the images of each class into a subfolder" if inputs.image_shape else "name them with --label"
        raise ValueError(f"{inputs.path}: the classes are not known: {where}")
    test = None if options.test is None else read_new(options.test, options, inputs)
    if test is not None:
        test.check_results(_columns(np.unique(inputs.y)))
    classifier = KDLClassifier(CLASS_OF[options.method or "rkdl"])
    configure(classifier, options)
    model = _with_scaling(options, inputs, classifier)
    if options.cv is not None:
        _cross_validate(options, model, inputs, inputs.y)
    if test is None and options.save is None:
        return 0
    model.fit(inputs.X, inputs.y)
    remember_names(classifier, inputs)
    if options.save is not None:
        classifier.save(options.save)
    learned = f"{len(model.classes_)} classes learned from {inputs.X.shape[0]:,} {inputs.unit}"
    say(options, f"{learned}{_saved(options.save)}")
    return 0 if test is None else _predict(options, model, test, out)


def _columns(classes: np.ndarray) -> list[str]:
    """Names of the columns of predictions."""
    return ["predicted", *(f"p({label})" for label in classes)]


def _predict(options: Namespace, model: Pipeline, inputs: Inputs, out: Path | None) -> int:
    """Write predictions with their probabilities; print the accuracy if the labels are known."""
    probabilities, predictions = model.predict_proba(inputs.X), model.predict(inputs.X)
    if out is not None:
        columns = dict(zip(_columns(model.classes_), [predictions, *probabilities.T], strict=True))
        write_table(out, {**inputs.ids, **columns})
    text = f"{len(predictions):,} {inputs.unit} classified{_saved(out)}"
    if inputs.y is not None:
        right = int((predictions.astype(str) == inputs.y.astype(str)).sum())
        text += f", {right:,} correctly ({right / len(predictions):.1%})"
    say(options, text)
    return 0


def _cross_validate(options: Namespace, model: Pipeline, inputs: Inputs, y: np.ndarray) -> None:
    folds = StratifiedKFold(options.cv, shuffle=True, random_state=options.seed)
    X = inputs.X if sparse.issparse(inputs.X) else np.asarray(inputs.X)
    scores = cross_val_score(model, X, y, cv=folds, error_score="raise")
    say(options, f"{options.cv} folds: accuracy {scores.mean():.1%}, from {scores.min():.1%} to {scores.max():.1%}")


def _standardized(learned: Inputs, inputs: Inputs) -> tuple[Inputs, Inputs]:
    """Scale columns by those that are learned from, in place: another copy of a large table may not fit in memory."""
    # Centring would fill a sparse matrix.
    scaler = StandardScaler(copy=False, with_mean=not sparse.issparse(learned.X))
    n_rows, n_columns = learned.X.shape
    for block in gen_batches(n_rows, max(1, PIECE_SIZE // n_columns)):
        scaler.partial_fit(np.array(learned.X[block]) if scaler.with_mean else learned.X[block])
    scaled = replace(learned, X=scaler.transform(learned.X))
    return scaled, scaled if inputs is learned else replace(inputs, X=scaler.transform(inputs.X))


def _with_scaling(options: Namespace, inputs: Inputs, model: KDLClassifier | KDLOutlierDetector) -> Pipeline:
    """A model of standardized features, or without --standardize of features as they are, which may need a warning."""
    if not options.standardize:
        warn_of_scales(inputs, "scale the columns with --standardize")
        return make_pipeline(model)
    # Centring would fill a sparse matrix.
    return make_pipeline(StandardScaler(with_mean=not sparse.issparse(inputs.X)), model)


def _check_training(options: Namespace, training: list[str]) -> None:
    """Refuse options that contradict each other; those of `training` have no effect on a saved model."""
    if options.model is not None:
        given = [name for name in (*training, "save", "standardize", "set") if getattr(options, name) not in (None, [])]
        if given:
            raise ValueError(f"--{given[0]} is for training, and --model gives a model that is already trained")
    if options.save is not None and options.standardize:
        raise ValueError(
            "--save cannot be combined with --standardize, because a model file holds no scaling: standardize the "
            "columns of the file first"
        )


def _saved(path: str | Path | None) -> str:
    return "" if path is None else f", saved to {path}"
