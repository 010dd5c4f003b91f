"""A stream as arrays for a file, and back."""

from __future__ import annotations

import numpy as np

from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.preimages import DecoderSums
from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.chunk_tasks import SufficientStatistics
from rkdl._learning.reduced import Model, check_state
from rkdl._learning.running_statistics import RunningStatistics
from rkdl._learning.stream import Stream
from rkdl._persistence.named_arrays import (
    FLAGS,
    INTEGERS,
    POSITIVE,
    Expected,
    check_arrays,
    flattened,
    nested,
    part_of,
)
from rkdl._utils.types import FLOATS

# Axes: m features of a signal, s of its feature map, n atoms, w worst signals, i signals that wait.
_STREAM = {
    **dict.fromkeys(["has_warned", "has_warned_of_scale", "computes_in_float64"], Expected("", FLAGS)),
    **{name: Expected("", group=name, least=POSITIVE) for name in ("gamma", "start_gamma")},
    "norm": Expected("", group="norm"),
    "running.weight": Expected("", least=0.0),
    "running.is_discounted": Expected("", FLAGS),
    "running.statistics.code_gram": Expected("nn"),
    "running.statistics.cross_products": Expected("ns"),
    "running.statistics.energy": Expected(),
    "running.statistics.residual_energy": Expected(),
    # Of codes against the kernel vectors.
    "running.linear.code_gram": Expected("ss", group="linear"),
    "running.linear.cross_products": Expected("sm", group="linear"),
    "running.linear.energy": Expected("", group="linear"),
    "running.linear.residual_energy": Expected("", group="linear"),
    "running.worst.n_signals": Expected("", INTEGERS, "worst", least=1),
    "running.worst.residuals": Expected("w", FLOATS, "worst"),
    "running.worst.signals": Expected("wm", FLOATS, "worst"),
    "decoder_sums.code_gram": Expected("nn", group="decoder"),
    "decoder_sums.cross_products": Expected("nm", group="decoder"),
    "decoder_sums.codes": Expected("n", group="decoder"),
    "decoder_sums.signals": Expected("m", group="decoder"),
    "decoder_sums.n_signals": Expected("", group="decoder"),
}
_WAITING = Expected("im", FLOATS)
_PARTS = {"statistics": SufficientStatistics, "linear": SufficientStatistics, "worst": WorstSignals}


def stream_state(stream: Stream) -> dict[str, np.ndarray]:
    """Everything that a stream with a model continues from, after it has forgotten what its last batch made of it."""
    assert stream.model is not None
    waiting = {str(number): rows for number, rows in enumerate(stream.waiting)}
    return flattened({**vars(stream), "model": stream.model.state(), "waiting": waiting})


def restored_stream(state: dict[str, np.ndarray], dictionary: FittedDictionary) -> Stream:
    """The stream of a state, whose last dictionary is given; an ArrayError if they do not fit each other."""
    own = {name: array for name, array in state.items() if not name.startswith(("model.", "waiting."))}
    n_atoms, like = len(dictionary.atoms), dictionary.feature_map.as_dtype(np.dtype(np.float64))
    check_arrays(own, _STREAM, {"n": n_atoms, "m": like.signal_size, "s": like.size})
    of_model = part_of(state, "model")
    check_state(of_model, like, n_atoms, {})
    feature_map = like.restored(of_model)
    parts = nested(own)
    running = parts["running"]
    running |= {name: kind(**running[name]) for name, kind in _PARTS.items() if name in running}
    if "decoder_sums" in parts:
        parts["decoder_sums"] = DecoderSums(**parts["decoder_sums"])
    waiting = part_of(state, "waiting")
    for number, (name, rows) in enumerate(waiting.items()):
        check_arrays({name: rows}, {str(number): _WAITING}, {"m": like.signal_size})
    return Stream(
        **{
            **parts,
            "model": Model.restored(of_model, feature_map, feature_map.metric(dictionary.atoms.dtype)),
            "running": RunningStatistics(**running),
            "waiting": tuple(waiting.values()),
        }
    )
