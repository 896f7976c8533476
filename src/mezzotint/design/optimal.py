"""`design.optimal`: the provably best table; and what is built on it: `mvu`, `imvu`, `vector`; `cache` remembers."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import rounding
from mezzotint.core.arguments import check_count, check_finite, check_increasing, check_positive
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import MAX_LEVELS, FloatArray, Mechanism
from mezzotint.core.records import Progress
from mezzotint.core.search import bracket
from mezzotint.design.cdf import design_cells
from mezzotint.design.fixed import design_fixed, design_general, refine_even
from mezzotint.design.levels import check_reach, search_levels
from mezzotint.design.limit import check_provable
from mezzotint.design.limit import prove as prove_levels
from mezzotint.design.problem import (
    DesignResult,
    Draft,
    Problem,
    achieved_loss,
    check_knots,
    make_problem,
    record,
    weighed,
    without_bound,
)
from mezzotint.privacy.metric import UNEVEN, vector_epsilon


def _design(problem: Problem, levels: FloatArray, knots: FloatArray | None, *, free: bool) -> tuple[Draft, Mechanism]:
    if problem.is_pure and problem.max_bias == 0:
        return design_fixed(problem, levels, knots, free=free)
    if knots is not None:
        return design_general(problem, levels, knots)
    if problem.metric == "squared":
        raise ParameterError(
            "knots", None, "the squared metric speaks about a grid of inputs: give the number of knots"
        )
    return refine_even(problem, levels)


def _chosen_levels(
    problem: Problem, levels: npt.ArrayLike, max_level: float | None, knots: FloatArray | None
) -> FloatArray:
    if isinstance(levels, bool) or not isinstance(levels, int | np.integer):
        if max_level is not None:
            raise ParameterError("max_level", max_level, "leave it out: these levels are fixed, not searched")
        return check_increasing("levels", levels)
    count = check_count("levels", levels, least=2, most=MAX_LEVELS)
    return search_levels(problem, count, max_level=max_level, knots=knots)


def optimal(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    loss: Literal["mse", "mae", "minimax", "cdf"] = "mse",
    prior: object = None,
    knots: npt.ArrayLike | None = None,
    delta: float = 0.0,
    max_bias: float = 0.0,
    alpha: float | None = None,
    metric: Literal["absolute", "squared"] | None = None,
    max_level: float | None = None,
    prove: bool = False,
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> DesignResult:
    """The best table there is: a convex program solved to a proven gap, then turned into certified integers.

    Arguments:
        epsilon: the budget of one report, replace-one neighbours: pure; with `delta` that of (epsilon, delta); with
            `alpha` the Renyi divergence (nats); with `metric` the rate per (squared) unit of distance of inputs.
        lower, upper: range of the inputs, data units; inputs outside are clipped.
        levels: a sequence of output values (data units), or how many: then they are searched for (from
            many starts; the bound of the result speaks about the levels found, with `prove` about all).
        loss: "mse" (squared data units), "mae" (data units), "minimax" (largest MSE over the inputs), or "cdf": n times
            the variance of the distribution function's values at the inner knots, averaged, estimated from n reports.
            Then `levels` is the largest number of different reports, and `knots` are the edges of the cells between
            which the table tells apart (None: even cells, half as many as levels, or as many where epsilon is large).
        prior: None (uniform), a frozen scipy.stats distribution, or a 1-D sample; the loss is averaged over it.
            A prior computed from private data is itself a release of those data and must be paid for.
        knots: None places and refines them until nothing is left to gain; an integer gives that many even ones; a
            sequence is used as it is, a knot that stands twice allows a jump.
        delta, alpha: delta in [0, 1), 0 for pure; a Renyi order > 1 or None.
        max_bias: 0 for unbiased reports; a bound on |E[report] - x| in data units; math.inf for no constraint.
        metric: None, "absolute" (epsilon |x - x'|, for all real inputs) or "squared" (epsilon |x - x'|**2 on the grid
            of even knots; between them |x - x'| counts as rounded up to the grid).
        prove: also bound the loss of every mechanism with so many levels, wherever they are: pure epsilon, unbiased,
            uniform inputs, "mse". It takes up to `seconds` of wall-clock time and ends earlier where it can do no more.
        progress: called as progress(share, 1) while one bound after another is tried.
        max_level: when levels are searched, their largest distance from the middle of the range, data units.
            (Levels that leave no bias stand up to a part in 2^28 farther out.)

    Returns:
        The mechanism with its loss, a lower bound that no mechanism of `scope` can beat, and the gap. `scope` is "all
        mechanisms with these levels" when knots are refined (pure, unbiased), else "tables ... on these knots"; with
        `prove` "all mechanisms with ... levels", and `proof` holds what checks it.

    Raises:
        ParameterError: a value that cannot be used, or a mixture of delta, alpha and metric.
        InfeasibleError: no mechanism on these levels meets the constraints; the message says how far they must reach.

    Warns:
        UnboundedLevelsWarning: loss "mae", levels searched and no `max_level`: see `limit`.

    Guarantees:
        The certified value (`mechanism.epsilon`, `.delta(epsilon)`, `.renyi(alpha)` or `metric_epsilon`) is at most
        what was asked.
        Pure epsilon that binds is met within a relative 1e-5 from below, up to the grain of 32-bit weights.
        loss - lower_bound = gap >= -slack (what the integers' bias may gain), and gap <= 1e-6 * loss for fixed knots
        unless the loss is minimax, where the gap is what it says.
        Bias at most one unit of span / 2**32 at the ends of the range and at given knots, one
        rounding of the knot elsewhere; with searched levels float error only (pure, unbiased).
        Never worse than any table on the same levels and knots with the same epsilon.

    Edge cases: 2 fixed levels leave no freedom when unbiased: epsilon may be far below what was asked. Beyond
        epsilon = 12 a 32-bit weight is too coarse to come within 1e-5 of it.
    Source: docs/proofs/design.md; the program generalises Cai et al. 2024, Theorem 5.
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior,
        delta=delta, alpha=alpha, metric=metric, max_bias=max_bias,
    )  # fmt: skip
    if problem.loss == "cdf":
        if prove:
            raise ParameterError("prove", True, 'with loss="cdf" every bound is proven, see scope: leave prove out')
        return design_cells(problem, levels, knots, started=started)
    if prove:
        check_provable(problem)
    found = _designed(problem, levels, knots, max_level, started)
    if not prove:
        return found
    count, half = found.mechanism.levels.size, problem.width / 2
    seconds = check_positive("seconds", seconds)
    proven = prove_levels(problem, count, found.loss / half**2, seconds=seconds, progress=progress)
    bound = proven.bound * half**2
    return replace(
        found,
        **weighed(found.loss, bound, found.slack),
        scope=f"all mechanisms with {count} levels, wherever they are",
        proof=proven.proof,
        seconds=time.perf_counter() - started,
    )


def _designed(
    problem: Problem, levels: npt.ArrayLike, knots: npt.ArrayLike | None, max_level: float | None, started: float
) -> DesignResult:
    inputs = None if knots is None else check_knots(knots, problem)
    values = _chosen_levels(problem, levels, max_level, inputs)
    check_reach(problem, values, np.array([problem.lower, problem.upper]) if inputs is None else inputs)
    draft, mechanism = _design(problem, values, inputs, free=isinstance(levels, int | np.integer))
    return record(problem, draft, mechanism, started=started)


# Designs on demand ----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What `optimal` is asked for: equal where the key is."""

    key: Hashable
    options: dict[str, Any] = field(compare=False)


@lru_cache(maxsize=4096)
def _remembered(asked: _Asked) -> DesignResult:
    return optimal(**asked.options)


def _token(value: Any) -> Hashable:
    """Something hashable that is equal for equal problems: arrays by content, distributions by their parameters."""
    if value is None or isinstance(value, str | int | float):
        return (type(value).__name__, value)
    if isinstance(value, np.generic):
        return _token(value.item())
    frozen = getattr(value, "dist", None)
    if frozen is not None and hasattr(value, "args"):
        return (type(frozen).__name__, frozen.name, value.args, tuple(sorted(value.kwds.items())))
    array = np.ascontiguousarray(value, dtype=np.float64)
    return (array.shape, hashlib.sha256(array.tobytes()).digest())


def cache(
    epsilon: float = 1.0, *, bits: int | None = None, lower: float = -1.0, upper: float = 1.0, **options: Any
) -> DesignResult:
    """`optimal`, remembered: a run can ask for (bits, range, epsilon) as it goes.

    Arguments:
        epsilon, lower, upper: as in `optimal`.
        bits: levels = 2**bits; or give `levels` among the options.
        options: everything else that `optimal` takes.

    Returns: the same `DesignResult` object for the same problem; it is frozen, so sharing it is safe.

    Raises: as `optimal`; ParameterError when bits and levels are both given.

    Guarantees: equal problems are solved once per process (up to 4096 of them; then the least recently used is
        forgotten). Arrays count by content, frozen distributions by family and parameters. Threads may share it.
    Edge cases: a failure is not remembered.
    """
    if bits is not None:
        if "levels" in options:
            raise ParameterError("bits", bits, "give bits or levels, not both")
        options["levels"] = 2 ** check_count("bits", bits, least=1, most=16)
    span = {"epsilon": epsilon, "lower": lower, "upper": upper}
    options |= {name: check_finite(name, value) for name, value in span.items()}
    key = tuple((name, _token(options[name])) for name in sorted(options))
    return _remembered(_Asked(key=key, options=options))


def clear_cache() -> None:
    """Forgets every design."""
    _remembered.cache_clear()


def mvu(
    epsilon: float = 1.0, *, lower: float = -1.0, upper: float = 1.0, levels: npt.ArrayLike = 4, input_bits: int = 2
) -> DesignResult:
    """The minimum variance unbiased mechanism: inputs dithered onto an even grid, matrix and alphabet optimised.

    Its objective, the variances at the grid points added up, is the MSE of a uniform prior on the grid: so it is
    `optimal` with this prior and these knots, and its alphabet is searched by windows.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        lower, upper: range of the inputs, data units.
        levels: size of the alphabet, or the alphabet itself (data units; then only the matrix is optimised).
        input_bits: the grid has 2**input_bits points; 1 to 8.

    Returns:
        The table on the grid: dithering is what a table does between knots. `loss` is the mean variance over the
        grid points (MVU's objective); `mechanism.mse()` is the loss over the range. The bound is over matrices for
        the alphabet found.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: certified epsilon <= epsilon; unbiased at every real input up to integer rounding.
    Source: Chaudhuri, Guo, Rabbat 2022, "Privacy-aware compression for federated data analysis".
    """
    started = time.perf_counter()
    input_bits = check_count("input_bits", input_bits, most=8)
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    grid = np.linspace(problem.lower, problem.upper, 2**input_bits)
    found = optimal(epsilon, lower=lower, upper=upper, levels=levels, prior=grid, knots=grid)
    table = found.mechanism
    named = Mechanism(knots=table.knots, levels=table.levels, weights=table.weights, name="MVU")
    return replace(found, mechanism=named, seconds=time.perf_counter() - started)


def _between(rows: FloatArray, t: FloatArray) -> FloatArray:
    """Rows whose natural parameters are (1 - t) times the first's plus t times the second's."""
    used = (rows > 0).all(axis=0)
    logits = np.full((t.size, used.size), -np.inf)
    logits[:, used] = np.outer(1 - t, np.log(rows[0, used])) + np.outer(t, np.log(rows[1, used]))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def imvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    knots: int = 65,
) -> DesignResult:
    """Interpolated MVU: between the two ends of the range the natural parameters of the pmf are interpolated.

    Arguments:
        epsilon, lower, upper: as `mvu`.
        levels: size of the alphabet or the alphabet itself, for the table at the two ends.
        knots: even inputs at which the table has the interpolated pmf exactly; linear in between.

    Returns:
        A table that is unbiased at the ends of the range and BIASED in between: `mechanism.max_bias` says by how
        much (about 0.031 half-ranges at epsilon 1). No bound is known; `loss` is its MSE under a uniform prior.

    Raises:
        ParameterError, InfeasibleError: as `mvu`.

    Guarantees: certified epsilon <= epsilon.
    Source: Guo, Chaudhuri, Stock, Rabbat 2023, "Privacy-aware compression for federated learning through numerical
        mechanism design".
    """
    started = time.perf_counter()
    knots = check_count("knots", knots, least=2)
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    inputs = np.linspace(lower, upper, knots)
    t = (inputs - lower) / (upper - lower)
    for shortfall in (0.0, *(1e-7 * 2.0 ** np.arange(30))):
        ends = mvu(problem.epsilon * (1 - shortfall), lower=lower, upper=upper, levels=levels, input_bits=1).mechanism
        try:
            mechanism = rounding.table(
                knots=inputs,
                levels=ends.levels,
                probabilities=_between(ends.probabilities, t),
                name="I-MVU",
                epsilon=problem.epsilon,
                unbiased=False,
            )
        except InfeasibleError:
            continue  # rows between two others lose no more than they do; their integers may
        return without_bound(
            mechanism, loss=achieved_loss(problem, mechanism), status="heuristic", started=started, iterations=1
        )
    raise InfeasibleError(f"epsilon={epsilon:g}: no interpolated table within it was found; use design.optimal")


Inputs = Literal["grid", "real"]

_STEPS = 13


def vector(
    epsilon: float = 1.0,
    *,
    dimension: int,
    l2_norm: float,
    levels: npt.ArrayLike = 4,
    knots: int = 9,
    inputs: Inputs = "grid",
    prior: object = None,
) -> DesignResult:
    """The best table for each coordinate of a vector of bounded L2 norm, under pure epsilon of the whole vector.

    Arguments:
        epsilon: pure epsilon of the whole report (all coordinates), replace-one neighbours.
        dimension: number of coordinates.
        l2_norm: bound C on the norm; each coordinate is in [-C, C], two vectors are at most 2 C apart.
        levels: number of levels or the levels, as in `optimal`.
        knots: even inputs per coordinate (the grid of MVU's Lemma 6).
        inputs: "grid": the guarantee is for vectors with every coordinate on a knot and norm at most C (round them
            there first, keeping the norm). "real": for all vectors; dithering is paid for, which costs much.
        prior: of one coordinate, as in `optimal`.

    Returns: the table of one coordinate; its `mechanism.epsilon` is that of one coordinate, `vector_epsilon` that of
        the vector. Where an even share of epsilon per coordinate serves better than the metric, it is that design.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: vector_epsilon(mechanism, dimension, 2 C, inputs) <= epsilon.
    Source: Chaudhuri, Guo, Rabbat 2022, Lemma 6; docs/proofs/design.md, "Vectors".
    """
    started = time.perf_counter()
    epsilon, l2_norm = check_positive("epsilon", epsilon), check_positive("l2_norm", l2_norm)
    dimension = check_count("dimension", dimension, least=1)

    def design(rate: float, metric: Literal["squared"] | None = "squared") -> DesignResult:
        return optimal(rate, lower=-l2_norm, upper=l2_norm, levels=levels, prior=prior, knots=knots, metric=metric)

    def fits(result: DesignResult) -> bool:
        spent = vector_epsilon(result.mechanism, dimension=dimension, l2_distance=2 * l2_norm, inputs=inputs)
        return spent <= epsilon

    # On the grid the metric's rate times the squared distance is the vector's epsilon; dithering needs a smaller one.
    rate, found = epsilon / (2 * l2_norm) ** 2 * (1 - 2 * UNEVEN), list[DesignResult]()

    def goes(rate: float) -> bool:
        try:
            result = design(rate)
        except InfeasibleError:
            return True  # where a smaller rate fits no table, a larger one may
        if not fits(result):
            return False
        found.append(result)
        return True

    failure = InfeasibleError(f"epsilon={epsilon:g}: no table meets it; use fewer knots")
    try:
        best = design(rate)
        if fits(best):
            found.append(best)
        else:
            bracket(goes, 0.0, rate, steps=_STEPS)
    except InfeasibleError as error:
        failure = error
    with contextlib.suppress(InfeasibleError):
        # Few coordinates may do better with an even share of epsilon each: then the distance does not matter.
        even = design(epsilon / dimension * (1 - 2 * UNEVEN), None)
        found += [even] if fits(even) else []
    if not found:
        raise failure
    return replace(min(found, key=lambda result: result.loss), seconds=time.perf_counter() - started)
