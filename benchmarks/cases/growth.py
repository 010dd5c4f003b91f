"""How time and memory grow with the number of signals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate

from benchmarks import tasks
from benchmarks.cases.common import exponent, thousands
from benchmarks.data import enlarged_mnist
from benchmarks.memory import MemoryLab
from benchmarks.race import Contender, race
from benchmarks.rows import FAILED, Figure
from benchmarks.settings import Settings

LINEAR_BOUND = 1.2
KDL_EXPONENT = 2.0

# Codes are rescaled into new arrays before the old ones are freed, so two sets may coexist.
SETS_OF_CODES = 2


def run(settings: Settings) -> Iterator[Figure]:
    """RKDL and ORKDL up to 64,000 signals, KDL up to 8,000."""
    if settings.tiny:
        sizes, kdl_sizes, n_vectors, common = [200, 400, 800], [100, 200], 8, {"n": 5, "s": 2, "n_iter": 2}
    else:
        sizes, kdl_sizes = [1_000 << k for k in range(7)], [1_000, 2_000, 4_000, 8_000]
        n_vectors, common = 50, {"n": 20, "s": 4, "n_iter": 10}
    signals = enlarged_mnist(sizes[-1], settings.data_dir, settings.tiny)
    vectors = signals[:n_vectors].copy()
    for method in ("RKDL", "ORKDL", "KDL"):
        task, params = ("kdl", common) if method == "KDL" else ("reduced", {"method": method, **common})
        call = partial(tasks.TASKS[task], "rkdl", **params)
        inputs = {
            size: {"X": signals[:size], **({} if method == "KDL" else {"V": vectors})}
            for size in (kdl_sizes if method == "KDL" else sizes)
        }
        contenders = [
            Contender(str(size), partial(call, parts), warm=partial(call, tasks.cut(parts, 600)))
            for size, parts in inputs.items()
        ]
        laps = race(contenders, min(settings.repeat, 3), pause=settings.pause)
        errors = [lap.error for lap in laps.values() if lap.error]
        if errors:
            yield Figure("growth", method, status=FAILED, reason=errors[0])
            continue
        series = [
            {"n_signals": size, "seconds": laps[str(size)].best, "us_per_signal": laps[str(size)].best / size * 1e6}
            for size in inputs
        ]
        chosen = [point for point in series if point["n_signals"] in _memory_sizes(list(inputs))]
        measured = _measure_memory(method, task, params, inputs, chosen, settings)
        yield from _figures(method, series, measured, common["s"], signals, settings)
        if method != "KDL":
            frugal = {**params, "kept_bytes": 0}
            peaks = _measure_memory(method, task, frugal, inputs, [dict(point) for point in chosen], settings)
            again = Contender("again", partial(tasks.reduced, "rkdl", inputs[sizes[-1]], **frugal))
            lap = race([again], min(settings.repeat, 3), pause=settings.pause)["again"]
            times = "" if lap.best is None else f"; takes {lap.best / series[-1]['seconds']:.2f} times as long"
            for figure in _memory_figures(f"{method} with kept_bytes=0", peaks, common["s"], signals, settings):
                figure.note += times
                yield figure


def _measure_memory(method, task, params, inputs, series, settings) -> list[tuple[int, float]]:
    """Measure peak memory at the sizes of a series and record it there too."""
    found = []
    with MemoryLab(enabled=not settings.tiny or (method == "RKDL" and "kept_bytes" in params)) as lab:
        for point in series:
            # The concurrent working memory of the threads varies by a megabyte or two between runs.
            runs = 1 if settings.tiny else 3
            peak = lab.peak(task, "rkdl", inputs[point["n_signals"]], runs=runs, **params)
            if peak is not None:
                point["memory_mb"] = peak
                found.append((point["n_signals"], peak))
    return found


def _memory_sizes(sizes: list[int]) -> list[int]:
    """A quarter of the largest size, where chunks have reached their full size, and the largest."""
    return [sizes[max(0, len(sizes) - 3)], sizes[-1]]


def _figures(method, series, measured, s, signals, settings) -> Iterator[Figure]:
    sizes = [point["n_signals"] for point in series]
    span = f"{thousands(sizes[0])} to {thousands(sizes[-1])} signals"
    power = exponent(sizes, [point["seconds"] for point in series])
    if method == "KDL":
        yield Figure(
            "growth",
            f"{method}: exponent of N in its time, {span}",
            power,
            bound=settings.goal(KDL_EXPONENT),
            series=series,
        )
        return
    per_signal = [point["us_per_signal"] for point in series]
    increase = max(now / least for now, least in zip(per_signal, accumulate(per_signal, min), strict=True))
    yield Figure(
        "growth",
        f"{method}: largest increase of the time per signal, {span}",
        increase,
        "times the minimum at smaller N",
        bound=settings.goal(LINEAR_BOUND),
        note=(
            f"exponent of N {power:.2f}; time per signal at the end {per_signal[-1] / per_signal[0]:.2f} of that at "
            f"the start"
        ),
        series=series,
    )
    # What is kept between passes by default is worth its memory.
    yield from _memory_figures(method, measured, s, signals, None)


def _memory_figures(method, measured, s, signals, settings) -> Iterator[Figure]:
    """Memory per signal; without `settings` nothing bounds it."""
    if len(measured) == 2:
        (few, low), (many, high) = measured
        itemsize = signals.itemsize
        codes = SETS_OF_CODES * (s * (4 + itemsize) + 4 + itemsize)
        yield Figure(
            "growth",
            f"{method}: memory per additional signal, {thousands(few)} to {thousands(many)} signals",
            (high - low) * 1e6 / (many - few),
            "bytes",
            bound=None if settings is None else settings.goal(float(codes)),
            note=f"{SETS_OF_CODES} sets of codes take {codes} bytes per signal, the signal itself {signals[0].nbytes}",
        )
