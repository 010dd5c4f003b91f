"""From a specification and signals to a fitted dictionary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import UNRESOLVED
from rkdl._coding.preimages import Decode, DecoderSums, LinearDecoder, learn_decoder
from rkdl._data.signals import NotFiniteError, Signals, is_safe, without_nan
from rkdl._execution.executor import Executor, open_executor
from rkdl._features.maps import FeatureMap, GivenKernelMap, KernelMap, LinearMap
from rkdl._features.metric import IdentityMetric
from rkdl._features.widths import KERNEL_SAMPLE, offset_of, spread_sample
from rkdl._learning.chunk_tasks import Features, first_states, resolved_energy
from rkdl._learning.diagnostics import check_learned, needs_float64
from rkdl._learning.feature_choice import EverySignal, KernelFeatures
from rkdl._learning.full import FullProblem, KernelRows, check_kernel_matrix, first_combinations
from rkdl._learning.gradient_start import FEWEST_STEPS, STEPS, affordable_steps, gradient_atoms
from rkdl._learning.initial_atoms import initial_atoms
from rkdl._learning.kernel_vector_choice import sampled
from rkdl._learning.linear_term import on_sphere
from rkdl._learning.loop import REPLACING_ITERATIONS, LearningProblem, alternate
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._learning.specification import Specification
from rkdl._persistence.checkpoint import Checkpoint, History, describe
from rkdl._persistence.named_arrays import ArrayError, Expected, check_arrays
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn

# Most iterations before the kernel vectors are learned. They do not depend on max_iter, so that it may be raised.
FIXED_VECTOR_ITERATIONS = 20
# The start by stochastic gradients learns from GRADIENT_SAMPLE signals, or SAMPLES_PER_ATOM for each atom if those are
# more, of at most MOST_NUMBERS numbers together.
GRADIENT_SAMPLE, SAMPLES_PER_ATOM, MOST_NUMBERS = 20_000, 100, 1 << 27
# It is preferred if, after TRIAL_ITERATIONS, it leaves less than MUCH_BETTER of the energy that the other one leaves.
MUCH_BETTER, TRIAL_ITERATIONS, TRIAL_SAMPLE, TRIAL_SIGNALS_PER_ATOM = 0.8, 3, 250, 5


class Report(NamedTuple):
    """Name of the estimator in messages, and whether a progress bar is shown."""

    name: str
    verbose: int = 0


class Learned(NamedTuple):
    """The result of a fit."""

    dictionary: FittedDictionary
    gamma: float | None
    rank: int | None  # of the kernel matrix of the kernel vectors; None without any
    n_revived: int
    computes_in_float64: bool
    history: History = History()
    is_interrupted: bool = False
    error: float | None = None  # of the dictionary, where that in the history is rounding


class CheckpointRequest(NamedTuple):
    """Where a fit writes its state, and the parameters that must agree for it to be resumed."""

    path: str | os.PathLike
    parameters: dict[str, Any]


def learn(
    specification: Specification,
    signals: Signals,
    rng: np.random.RandomState,
    report: Report,
    n_jobs: int | None = None,
    request: CheckpointRequest | None = None,
) -> Learned:
    """Learn a dictionary from signals; after Ctrl-C the best one so far, if an iteration was complete."""
    with open_learning(specification, signals, n_jobs) as (opened, in_float64):
        checkpoint = None
        if request is not None:
            # Before the first pass over the data, which may be long.
            description = describe(report.name, request.parameters, opened)
            checkpoint = Checkpoint(request.path, description, specification.max_iter)
        executor = inspected(specification, opened, checkpoint)
        try:
            saved = None if checkpoint is None else checkpoint.state
            problem, gamma = start_problem(specification, executor, rng, report, saved)
            was_interrupted = saved is None and warm_up(specification, problem, report)
            # The result of an interrupted warm-up is kept.
            max_iter = 0 if was_interrupted else specification.max_iter
            options = loop_options(specification, problem, report)
            history, is_interrupted = alternate(problem, max_iter=max_iter, checkpoint=checkpoint, **options)
        except ArrayError as error:
            assert checkpoint is not None
            raise checkpoint.refused(error) from error
        learned = learned_of(specification, problem, gamma)
        check_learned(specification, executor.signals, problem.model.n_empty, learned, report.name)
        dictionary = learned.dictionary
        try:
            is_difference = not isinstance(dictionary.feature_map, LinearMap | GivenKernelMap)
            is_single = executor.signals.dtype == np.float32 and executor.signals.device is None
            if is_difference and is_single and problem.energy == 0.0:
                # Of a checkpoint that was complete.
                problem.encode()
            is_small = not specification.pursuit.has_penalty and problem.model.objective < UNRESOLVED * problem.energy
            if is_difference and is_single and is_small:
                encoder = dictionary.encoder(executor.signals.dtype).with_gram()
                (square,), _ = executor.map_reduce(partial(resolved_energy, encoder), first_states(executor))
                learned = learned._replace(error=float(np.sqrt(float(square) / options["n_numbers"])))
            if specification.decoder_alpha is not None:
                sums = decoder_sums(dictionary, executor)
                decoder = solved_decoder(dictionary, sums, specification.decoder_alpha)
                dictionary = replace(dictionary, decoder=decoder)
        except KeyboardInterrupt:
            # The atoms are complete.
            is_interrupted = True
    return learned._replace(
        dictionary=dictionary,
        computes_in_float64=in_float64 or learned.computes_in_float64,
        history=history,
        is_interrupted=is_interrupted or was_interrupted,
    )


@contextmanager
def open_learning(
    specification: Specification, signals: Signals, n_jobs: int | None, in_float64: bool | None = None
) -> Iterator[tuple[Executor, bool]]:
    """The executor of the chunk tasks of the learning, and whether the signals are read in float64.

    They are if float32 has too few digits for them; with None for `in_float64`, a sample decides.
    """
    signals = signals.with_missing("ignore" if specification.features.ignores_missing else "error")
    if not signals.is_remote:
        in_float64 = _lacks_digits(specification, signals) if in_float64 is None else in_float64
        signals = signals.with_dtype(np.dtype(np.float64)) if in_float64 else signals
    width = specification.row_width(*signals.shape)
    # A user-defined kernel may need torch to track derivatives.
    with open_executor(signals, width, n_jobs, is_alone=not specification.features.runs_user_code) as executor:
        if signals.is_remote:
            # On a cluster once the workers hold the blocks, which would otherwise be computed twice.
            in_float64 = _lacks_digits(specification, executor.signals) if in_float64 is None else in_float64
            if in_float64:
                executor = executor.with_signals(executor.signals.with_dtype(np.dtype(np.float64)))
        yield executor, bool(in_float64)


def _lacks_digits(specification: Specification, signals: Signals) -> bool:
    """Whether float32 cannot resolve the residuals of these signals, by a sample."""
    sample = spread_sample(signals, KERNEL_SAMPLE).astype(np.float64)
    sample = without_nan(sample) if signals.allows_nan else sample
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if not is_safe(float(np.mean(sample**2)), np.float64):
            # Refused in the first pass over the data, unless the sample alone is zero.
            return False
        products, is_narrow = specification.features.sample_products(sample)
        # Far from zero, kernel vectors and phases are rounded too much relative to the signals' differences.
        is_far_off = bool((sample != sample[0]).any()) and offset_of(sample) is not None
    # A penalty leaves a residual that is no small difference.
    count = 1 if specification.pursuit.has_penalty else min(specification.pursuit.n_nonzero, specification.n_atoms)
    return products is not None and (is_far_off or is_narrow or needs_float64(products, count))


def inspected(specification: Specification, executor: Executor, checkpoint: Checkpoint | None = None) -> Executor:
    """The first pass, and an executor in whose dtype squares of the signals stay in range.

    Raises for signals that cannot be learned from, and for the checkpoint of other signals.
    """
    features = specification.features
    if isinstance(features, EverySignal) and features.is_precomputed:
        check_kernel_matrix(host(executor.signals.data).astype(executor.signals.dtype, copy=False))
    if checkpoint is None:
        return executor.inspected()
    executor, digest = executor.inspected_with_digest()
    checkpoint.check_signals(digest)
    return executor


def start_problem(
    specification: Specification,
    executor: Executor,
    rng: np.random.RandomState,
    report: Report,
    saved: dict[str, np.ndarray] | None = None,
) -> tuple[LearningProblem, float | None]:
    """The learning problem at its start, and gamma; what a saved state holds is not chosen anew."""
    features, signals = specification.features, executor.signals
    check_sizes(specification)
    if signals.allows_nan and specification.atom_update.refits_codes:
        raise ValueError("atom_update='aksvd' refits codes of complete signals: use 'gram' with missing='ignore'.")
    if signals.weights is not None and specification.atom_update.refits_codes:
        raise ValueError("atom_update='aksvd' refits codes one by one, without weights: use 'gram' with sample_weight.")
    gamma = features.find_gamma(signals)
    if isinstance(features, EverySignal):
        rows = KernelRows.open(executor, None if features.is_precomputed else features.checked_kernel(signals, gamma))
        atoms = first_combinations(specification.init, specification.n_atoms, rows, rng)
        return FullProblem(rows, atoms, specification.pursuit, specification.atom_update), gamma
    update, linear = None, specification.linear
    if isinstance(features, KernelFeatures):
        kernel = features.checked_kernel(signals, gamma)
        known = None if saved is None else saved.get("kernel_vectors", np.empty((0, 0)))
        if known is not None:
            check_arrays({"kernel_vectors": known}, {"kernel_vectors": Expected("pm")}, {"m": signals.shape[1]})
        norm = None
        if linear is not None:
            norm = linear.find_norm(executor) if known is None else linear.find_norm_of(known)
        if specification.vector_update is not None:
            features.check_differentiable(kernel, report.name)
            update = specification.vector_update.make(norm)
        vectors = known
        if vectors is None:
            vectors = features.first_vectors(executor, kernel, rng, specification.atom_update)
            if norm is not None:
                vectors = on_sphere(vectors, norm, rng, are_given=not isinstance(features.vectors, str))
        feature_map: FeatureMap = KernelMap(kernel, vectors)
    else:
        feature_map = features.first_map(signals, gamma, rng)
    metric = feature_map.metric(signals.dtype)
    if saved is None:
        atoms = initial_atoms(specification.init, specification.n_atoms, feature_map, metric, signals, rng)
    else:
        atoms = np.zeros((specification.n_atoms, metric.rank))
    model = Model.start(feature_map, metric, atoms, specification.atom_update)
    if saved is None:
        model = choose_start(specification, executor, model, rng)
    return ReducedProblem(executor, model, specification.pursuit, specification.atom_update, update, linear), gamma


def choose_start(specification: Specification, executor: Executor, model: Model, rng: np.random.RandomState) -> Model:
    """The model with first atoms by stochastic gradients, if these are asked for, or better on a sample.

    With "auto", a few steps are tried where they take little of the time of the fit, and more follow if they pay.
    """
    init, n_signals, n_atoms = specification.init, executor.signals.shape[0], specification.n_atoms
    pursuit, steps = specification.pursuit, STEPS
    if not isinstance(init, str) or init not in ("auto", "gradient") or model.metric.rank == 0:
        return model
    if init == "auto":
        steps = affordable_steps(n_signals, model.metric.rank, n_atoms, pursuit.n_nonzero)
        # Where codes have as many numbers as signals, any atoms represent them.
        if steps < FEWEST_STEPS or model.metric.rank <= pursuit.n_nonzero:
            return model

    def started(atoms: Array) -> Model:
        return Model.start(model.feature_map, model.metric, cast(atoms, np.float64), specification.atom_update)

    rows = _whitened_sample(executor, model, n_atoms, rng)
    found = gradient_atoms(rows, model.whitened_atoms, pursuit, steps, rng)
    if init == "auto":
        with sampled(executor, max(TRIAL_SAMPLE, TRIAL_SIGNALS_PER_ATOM * n_atoms), rng) as few:
            starts = model, started(found)
            trials = [ReducedProblem(few, start, pursuit, specification.atom_update) for start in starts]
            for problem in trials:
                for number in range(1, 1 + TRIAL_ITERATIONS):
                    problem.encode()
                    problem.update(seed=number if number in REPLACING_ITERATIONS else None)
                problem.encode()
        first, second = (problem.model.objective for problem in trials)
        if not second < MUCH_BETTER * first:
            return model
        if steps < STEPS // 2:
            found = gradient_atoms(rows, found, pursuit, STEPS // 2, rng)
    return started(found)


def _whitened_sample(executor: Executor, model: Model, n_atoms: int, rng: np.random.RandomState) -> Array:
    """Whitened features (t, r) of a sample of the signals, drawn by their weights."""
    most = MOST_NUMBERS // max(executor.signals.shape[1], model.metric.rank)
    size = min(executor.signals.shape[0], most, max(GRADIENT_SAMPLE, SAMPLES_PER_ATOM * n_atoms))
    with sampled(executor, size, rng) as few:
        model, rows = few.to_backend(model), few.to_signals(few.signals.read(0, few.signals.shape[0]))
        features = few.worker(Features(model.feature_map))(rows, None)[1]
        if few.signals.weights is not None:
            features = features[few.to_backend(rng.choice(size, size, p=few.signals.weights / few.signals.total))]
        features = few.to_backend(features)
        return features if isinstance(model.metric, IdentityMetric) else model.metric.whiten(cast(features, np.float64))


def warm_up(specification: Specification, problem: LearningProblem, report: Report) -> bool:
    """Iterations with fixed kernel vectors, before these are learned; returns whether Ctrl-C ended them.

    They cost little, and the fit never returns a worse model than they do.
    """
    if not specification.warms_up:
        return False
    assert isinstance(problem, ReducedProblem)
    fixed = ReducedProblem(problem.executor, problem.model, problem.pursuit, problem.atom_update)
    options = loop_options(specification, fixed, report._replace(name=f"{report.name}, fixed kernel vectors"))
    _, is_interrupted = alternate(fixed, max_iter=FIXED_VECTOR_ITERATIONS, **options)
    problem.continue_from(fixed)
    return is_interrupted


def loop_options(specification: Specification, problem: LearningProblem, report: Report) -> dict[str, Any]:
    """Arguments of `alternate` besides the problem and the number of iterations."""
    signals = problem.executor.signals
    numbers = signals.total * signals.shape[1]
    return {"tol": specification.tol, "n_numbers": numbers, "verbose": report.verbose, "name": report.name}


def learned_of(specification: Specification, problem: LearningProblem, gamma: float | None) -> Learned:
    """The result of a problem so far, rounded to the signals' dtype."""
    signals, model, rank = problem.executor.signals, problem.model, None
    atoms = host(model.atoms).astype(signals.dtype)
    if isinstance(problem, FullProblem):
        vectors, gram = problem.kernel_rows.vectors(), host(model.gram)
    else:
        vectors = model.feature_map.vectors
        # If features are coordinates, from the stored atoms, so that it can be computed again from them.
        coordinates = atoms.astype(np.float64)
        if isinstance(model.feature_map, KernelMap):
            coordinates, rank = host(model.whitened_atoms), model.metric.rank
        gram = coordinates @ coordinates.T
    vectors = None if vectors is None else host(vectors).astype(signals.dtype)
    fitted_map = specification.features.fitted_map(signals.shape[1], vectors, gamma)
    dictionary = FittedDictionary(fitted_map, atoms, specification.pursuit, gram)
    is_widened = signals.dtype != signals.result_dtype
    return Learned(dictionary, gamma, rank, model.n_revived, is_widened)


def check_sizes(specification: Specification) -> None:
    """Warn of more atoms than kernel vectors."""
    features = specification.features
    if isinstance(features, KernelFeatures) and specification.n_atoms > features.size:
        warn(
            f"n_components={specification.n_atoms} exceeds the number of kernel vectors, {features.size}: the atoms "
            f"span no more dimensions than that. Use more kernel vectors or fewer atoms.",
        )


def decoder_sums(dictionary: FittedDictionary, executor: Executor, earlier: DecoderSums | None = None) -> DecoderSums:
    """The sums that a decoder is learned from, added to those of earlier signals."""
    encoder = dictionary.encoder(executor.signals.dtype).with_gram()
    parts = encoder.feature_map, encoder.atoms, encoder.gram, encoder.pursuit
    task = Decode(*parts, unit_length=dictionary.feature_map.has_unit_norms)
    sums = DecoderSums(*map(host, executor.map_reduce(task, start=earlier)[0]))
    if not np.isfinite(sums.cross_products).all():
        raise NotFiniteError
    return sums


def solved_decoder(dictionary: FittedDictionary, sums: DecoderSums, alpha: float) -> LinearDecoder:
    """The decoder of these sums, in the dtype of the atoms."""
    assert dictionary.gram is not None
    dtype = dictionary.atoms.dtype
    gram = dictionary.gram.astype(dtype)
    matrix, intercept = learn_decoder(sums, gram, alpha, dictionary.feature_map.has_unit_norms)
    return LinearDecoder(matrix.astype(dtype), intercept.astype(dtype))
