"""What fitted attributes must be, of a file or set by the user, so that compiled code never reads out of bounds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from rkdl._persistence.named_arrays import DOUBLE, FLAGS, INTEGERS, POSITIVE, ArrayError, Expected, check_arrays
from rkdl._utils.types import FLOATS

# Axes: m features, n atoms, p kernel vectors, q frequencies, f Fourier features, c classes, k members
# of a detector, g anomalies of each.
_COUNT = Expected("", INTEGERS, least=0)
_NUMBER = Expected("", DOUBLE + INTEGERS)
_EVERY = {
    "n_features_in_": _COUNT,
    "feature_names_in_": Expected("m", (np.dtype(object),), "names"),
    "n_nonzero_coefs_": Expected("", INTEGERS, "n_nonzero_coefs", least=0, most="n"),
    **{name: _COUNT._replace(group=name) for name in ("n_components_", "n_iter_", "n_revived_", "rank_")},
}
_LEARNER = {
    **_EVERY,
    "errors_": Expected("e"),
    "update_errors_": Expected("u"),
    "decoder_": Expected("nm", FLOATS, "decoder"),
    "decoder_intercept_": Expected("m", FLOATS, "decoder"),
}
_PRECOMPUTED = {**_LEARNER, "dual_components_": Expected("np", FLOATS), "gram_": Expected("nn", FLOATS)}
_KERNEL = {**_PRECOMPUTED, "gamma_": _NUMBER, "kernel_vectors_": Expected("pm", FLOATS)}
_TASK = {
    "gamma_": _NUMBER,
    "gammas_": Expected("m", least=POSITIVE),
    "kernel_vectors_": Expected("pm", FLOATS),
    "dual_coef_": Expected("pc", FLOATS),
    "intercept_": Expected("c", FLOATS),
    "feature_means_": Expected("m"),
    "feature_variances_": Expected("m", least=0.0),
    "feature_relevance_": Expected("m"),
    "losses_": Expected("l"),
    **{name: wanted for name, wanted in _EVERY.items() if name not in ("n_nonzero_coefs_", "n_components_")},
    "n_iter_": _COUNT,
}
_KERNEL_METHODS = ("KDL", "RKDL", "ORKDL", "MORKDL")
#: What the attributes of an estimator must be, by its name.
TABLES: dict[str, dict[str, Expected]] = {
    "DL": {**_LEARNER, "components_": Expected("nm", FLOATS)},
    "FourierDL": {
        **_LEARNER,
        "gamma_": _NUMBER,
        "components_": Expected("nf", FLOATS),
        "frequencies_": Expected("qm", FLOATS),
    },
    **dict.fromkeys(_KERNEL_METHODS, _KERNEL),
    "KDL of kernel values": _PRECOMPUTED,
    "SparseCoder": {"components_": Expected("nm", FLOATS), **_EVERY},
    "KDLOutlierDetector": {
        "gamma_": _NUMBER._replace(least=POSITIVE),
        "kernel_vectors_": Expected("kpm", FLOATS),
        "dual_components_": Expected("knp", FLOATS),
        "centre_": Expected("m", FLOATS),
        "scale_": Expected("m", FLOATS, least=POSITIVE),
        "locations_": Expected("kg3", least=0.0),
        "offset_": _NUMBER,
        "recent_signals_": Expected("bm", group="stream"),
        "recent_keys_": Expected("b", group="stream"),
        "recent_learned_": Expected("b", FLAGS, "stream"),
        "n_signals_seen_": Expected("", INTEGERS, "stream", least=0),
        **_EVERY,
        "n_iter_": _COUNT,
    },
    "KDLClassifier": {
        **_TASK,
        "components_": Expected("cnp", FLOATS),
        "grams_": Expected("cnn", FLOATS),
        "n_nonzero_coefs_": Expected("", INTEGERS, least=0, most="n"),
        "readout_weights_": Expected("2"),
        "sharpness_": _NUMBER,
    },
    "KDLRegressor": {
        **_TASK,
        "target_means_": Expected("c"),
        "target_scales_": Expected("c", least=POSITIVE),
        "has_one_target_": Expected("", FLAGS),
    },
}


def check_fitted(model: Any, attributes: dict[str, Any], names: Collection[str] | None = None) -> None:
    """Raise an ArrayError unless the fitted attributes fit each other and the parameters of the model.

    With `names`, only these, whatever the number of atoms that the parameters say.
    """
    name = next(own.__name__ for own in type(model).__mro__ if own.__name__ in TABLES)
    if "n_features_in_" not in attributes:
        raise ArrayError("n_features_in_ is missing")
    sizes = {"m": attributes["n_features_in_"], "2": 2, "3": 3}
    if names is None and name not in ("KDLClassifier", "KDLRegressor", "KDLOutlierDetector"):
        sizes["n"] = getattr(model, "n_components", attributes.get("n_components_"))
    if getattr(model, "kernel", None) == "precomputed":
        # A signal is given by its kernel values with the training signals, which are not stored.
        name, sizes["p"] = "KDL of kernel values", sizes["m"]
    expected = {key: wanted for key, wanted in TABLES[name].items() if names is None or key in names}
    if names is None and name == "KDLClassifier":
        # Labels may be text.
        expected = {**expected, "classes_": Expected("c", (attributes["classes_"].dtype,))}
    found = check_arrays({key: attributes[key] for key in expected if attributes.get(key) is not None}, expected, sizes)
    if found.get("f", 0) != 2 * found.get("q", 0):
        raise ArrayError(f"there are {found.get('f')} Fourier features and {found.get('q')} frequencies")
