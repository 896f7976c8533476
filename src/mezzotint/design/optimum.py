"""The provably best table, and what is built on it: `mvu`, `imvu`, `vector`; `cache` remembers.

Closed-form families, and functions of your own, at one epsilon: calibrated one by one, or compared side by side.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from typing import Any, Literal, TypeVar, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import rounding
from mezzotint.core.arguments import (
    by_name,
    check_count,
    check_finite,
    check_increasing,
    check_positive,
)
from mezzotint.core.errors import InfeasibleError, ParameterError, as_reals
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import as_prior
from mezzotint.core.records import JsonObject, Progress, Record, Records, ticks
from mezzotint.core.search import bracket
from mezzotint.core.types import MAX_LEVELS, FloatArray
from mezzotint.design.calibration import CONTINUOUS, calibrate, member_of, variance
from mezzotint.design.cdf import design_cells
from mezzotint.design.floors import design_fixed
from mezzotint.design.levels import (
    UnboundedLevelsWarning,
    check_reach,
    search_levels,
    symmetric_levels,
)
from mezzotint.design.limits import check_provable, limit_of
from mezzotint.design.limits import prove as prove_levels
from mezzotint.design.pair_selection import optm
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    achieved_loss,
    check_knots,
    make_problem,
    record,
    weighed,
    without_bound,
)
from mezzotint.design.program import design_general, refine_even
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.tradeoffs import UNEVEN, vector_epsilon


@by_name
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
    """The best possible table: a convex program solved to a proven gap, then rounded to certified integers.

    Arguments:
        epsilon: the budget of one report, replace-one neighbours: pure; with `delta` that of (epsilon, delta); with
            `alpha` the Renyi divergence (nats); with `metric` the rate per (squared) unit of distance of inputs.
        lower, upper: range of the inputs, data units; inputs outside are clipped.
        levels: a sequence of output values (data units), or their number: then they are searched from many starts, and
            the bound holds for the levels found (with `prove`, for all levels).
        loss: "mse" (squared data units), "mae" (data units), "minimax" (largest MSE over the inputs), or "cdf": n times
            the variance of the distribution function's values at the inner knots, averaged, estimated from n reports.
            Then `levels` is the largest number of different reports, and `knots` are the edges of the cells between
            which the table tells apart (None: even cells, half as many as levels, or as many where epsilon is large).
        prior: None (uniform), a frozen scipy.stats distribution, or a 1-D sample; the loss is averaged over it.
            A prior computed from private data is itself a release of those data and must be paid for.
        knots: None places and refines them until nothing more is gained; an integer gives that many evenly spaced ones;
            a sequence is used as it is, and a repeated knot allows a jump.
        delta, alpha: delta in [0, 1), 0 for pure; a Renyi order > 1 or None.
        max_bias: 0 for unbiased reports; a bound on |E[report] - x| in data units; math.inf for no constraint.
        metric: None, "absolute" (epsilon |x - x'|, for all real inputs) or "squared" (epsilon |x - x'|**2 on the grid
            of even knots; between them |x - x'| counts as rounded up to the grid).
        prove: also bound the loss of every mechanism with this many levels, wherever they are: pure epsilon, unbiased,
            uniform inputs, "mse". It takes up to `seconds` of wall-clock time, less if nothing more can be proven.
        progress: called as progress(share, 1) while bounds are tried one after another.
        max_level: when levels are searched, their largest distance from the middle of the range, data units.
            (Levels that are moved to leave no bias may lie up to one part in 2^28 farther out.)

    Returns:
        The mechanism with its loss, a lower bound that no mechanism of `scope` can beat, and the gap. `scope` is "all
        mechanisms with these levels" when knots are refined (pure, unbiased), else "tables ... on these knots"; with
        `prove` "all mechanisms with ... levels", and `proof` holds what checks it.

    Raises:
        ParameterError: a value that cannot be used, or more than one of delta, alpha and metric.
        InfeasibleError: no mechanism on these levels meets the constraints; the message says how far they must reach.
        MezzotintError: the solver ended without a table, as it may at Renyi orders in the hundreds and small epsilon.

    Warns:
        UnboundedLevelsWarning: loss "mae", levels searched and no `max_level`: see `limit`.

    Guarantees:
        The certified value (`mechanism.epsilon`, `.delta(epsilon)`, `.renyi(alpha)` or `metric_epsilon`) is at most
        what was requested.
        A pure epsilon that binds is met from below to a relative 1e-5, up to the resolution of 32-bit weights.
        loss - lower_bound = gap >= -slack (what the integers' bias may gain). For fixed knots, averaged losses and pure
        epsilon up to 10, gap <= 1e-6 * loss; else the gap is what it says: percents at Renyi orders near 1.
        Bias at most one unit of span / 2**32 at the ends of the range and at given knots, one
        rounding of the knot elsewhere; with searched levels float error only (pure, unbiased).
        Worse by at most `gap` than any table on the same levels and knots with the same guarantee.

    Edge cases: 2 fixed levels leave no freedom when unbiased: epsilon may be far below what was requested. Beyond
        epsilon = 12 a 32-bit weight is too coarse to come within 1e-5 of it.
    Source: docs/proofs/design.md; the program generalises Cai et al. 2024, Theorem 5.

    Example:
        >>> result = mz.design.optimal(epsilon=1.0, lower=0, upper=100, levels=4)
        >>> result.mechanism.epsilon <= 1.0, result.mechanism.bits
        (True, 2)
        >>> round(result.loss, 1), result.gap < 1e-3 * result.loss
        (9969.9, True)
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior,
        delta=delta, alpha=alpha, metric=metric, max_bias=max_bias,
    )  # fmt: skip
    if problem.loss == "cdf":
        if prove:
            raise ParameterError(
                "prove", True, 'with loss="cdf" every bound is proven, see scope: leave prove out'
            )
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
    problem: Problem,
    levels: npt.ArrayLike,
    knots: npt.ArrayLike | None,
    max_level: float | None,
    started: float,
) -> DesignResult:
    inputs = None if knots is None else check_knots(knots, problem)
    searched = isinstance(levels, int | np.integer) and not isinstance(levels, bool)
    if searched:
        count = check_count("levels", levels, least=2, most=MAX_LEVELS)
        values = search_levels(problem, count, max_level=max_level, knots=inputs)
    elif max_level is not None:
        raise ParameterError(
            "max_level", max_level, "leave it out: these levels are fixed, not searched"
        )
    else:
        values = check_increasing("levels", levels)
    check_reach(
        problem, values, np.array([problem.lower, problem.upper]) if inputs is None else inputs
    )
    if problem.is_pure and problem.max_bias == 0:
        made = design_fixed(problem, values, inputs, free=searched)
    elif inputs is not None:
        made = design_general(problem, values, inputs)
    elif problem.metric == "squared":
        remedy = "the squared metric speaks about a grid of inputs: give the number of knots"
        raise ParameterError("knots", None, remedy)
    else:
        made = refine_even(problem, values)
    return record(problem, *made, started=started)


# Designs on demand ----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class _Request:
    """The request that `optimal` answers: equal where the key is."""

    key: Hashable
    options: dict[str, Any] = field(compare=False)


@lru_cache(maxsize=4096)
def _remembered(request: _Request) -> DesignResult:
    return optimal(**request.options)


def _token(name: str, value: Any) -> Hashable:
    """A hashable key, equal for equal problems: arrays by content, distributions by their parameters."""
    if value is None or isinstance(value, str | int | float):
        return (type(value).__name__, value)
    if isinstance(value, np.generic):
        return _token(name, value.item())
    frozen = getattr(value, "dist", None)
    if frozen is not None and hasattr(value, "args"):
        return (type(frozen).__name__, frozen.name, value.args, tuple(sorted(value.kwds.items())))
    array = np.ascontiguousarray(as_reals(name, value, "need numbers, or what `optimal` takes"))
    return (array.shape, hashlib.sha256(array.tobytes()).digest())


@by_name
def cache(
    epsilon: float = 1.0,
    *,
    bits: int | None = None,
    lower: float = -1.0,
    upper: float = 1.0,
    **options: Any,
) -> DesignResult:
    """`optimal` with a memory: a run can request (bits, range, epsilon) as it goes.

    Arguments:
        epsilon, lower, upper: as in `optimal`.
        bits: levels = 2**bits; or give `levels` among the options.
        options: everything else that `optimal` takes.

    Returns: the same `DesignResult` object for the same problem; it is frozen, so sharing it is safe.

    Raises: as `optimal`; ParameterError when bits and levels are both given.

    Guarantees: equal problems are solved once per process (up to 4096 of them; then the least recently used is
        forgotten). Arrays count by content, frozen distributions by family and parameters. Threads may share it.
    Edge cases: a failure is not remembered.

    Example:
        >>> first = mz.design.cache(1.0, bits=2)
        >>> first is mz.design.cache(1.0, bits=2)
        True
    """
    if bits is not None:
        if "levels" in options:
            raise ParameterError("bits", bits, "give bits or levels, not both")
        options["levels"] = 2 ** check_count("bits", bits, least=1, most=16)
    span = {"epsilon": epsilon, "lower": lower, "upper": upper}
    options |= {name: check_finite(name, value) for name, value in span.items()}
    key = tuple((name, _token(name, options[name])) for name in sorted(options))
    return _remembered(_Request(key=key, options=options))


def clear_cache() -> None:
    """Empties the memory of `cache`.

    Example:
        >>> first = mz.design.cache(1.0, bits=1)
        >>> mz.design.clear_cache()
        >>> first is mz.design.cache(1.0, bits=1)
        False
    """
    _remembered.cache_clear()


@by_name
def mvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    input_bits: int = 2,
) -> DesignResult:
    """The minimum variance unbiased mechanism: inputs dithered onto an even grid, matrix and alphabet optimised.

    Its objective, the variances at the grid points added up, is the MSE of a uniform prior on the grid: so it is
    `optimal` with this prior and these knots, and its alphabet is searched by windows.

    Arguments:
        epsilon, lower, upper: as in `optimal`, pure.
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

    Example:
        >>> result = mz.design.mvu(1.0, levels=4)
        >>> result.loss >= mz.design.optimal(1.0, levels=4).loss
        True
    """
    started = time.perf_counter()
    input_bits = check_count("input_bits", input_bits, most=8)
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    grid = np.linspace(problem.lower, problem.upper, 2**input_bits)
    found = optimal(epsilon, lower=lower, upper=upper, levels=levels, prior=grid, knots=grid)
    return replace(
        found, mechanism=replace(found.mechanism, name="MVU"), seconds=time.perf_counter() - started
    )


def _between(rows: FloatArray, t: FloatArray) -> FloatArray:
    """Rows whose natural parameters are (1 - t) times the first's plus t times the second's."""
    used = (rows > 0).all(axis=0)
    logits = np.full((t.size, used.size), -np.inf)
    logits[:, used] = np.outer(1 - t, np.log(rows[0, used])) + np.outer(t, np.log(rows[1, used]))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@by_name
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

    Example:
        >>> result = mz.design.imvu(1.0, levels=4)
        >>> result.mechanism.epsilon <= 1.0
        True
    """
    started = time.perf_counter()
    knots = check_count("knots", knots, least=2)
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    inputs = np.linspace(lower, upper, knots)
    t = (inputs - lower) / (upper - lower)
    for shortfall in (0.0, *(1e-7 * 2.0 ** np.arange(30))):
        ends = mvu(
            problem.epsilon * (1 - shortfall), lower=lower, upper=upper, levels=levels, input_bits=1
        ).mechanism
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
            mechanism,
            loss=achieved_loss(problem, mechanism),
            status="heuristic",
            started=started,
            iterations=1,
        )
    raise InfeasibleError(
        f"epsilon={epsilon:g}: no interpolated table within it was found; use design.optimal"
    )


Inputs = Literal["grid", "real"]

_STEPS = 13


@by_name
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
    """The best table for each coordinate of a vector of bounded L2 norm, under pure epsilon of the entire vector.

    Arguments:
        epsilon: pure epsilon of the entire report (all coordinates), replace-one neighbours.
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

    Example:
        >>> result = mz.design.vector(2.0, dimension=16, l2_norm=1.0, levels=4)
        >>> mz.design.vector_epsilon(result.mechanism, dimension=16, l2_distance=2.0, inputs="grid") <= 2.0
        True
    """
    started = time.perf_counter()
    epsilon, l2_norm = check_positive("epsilon", epsilon), check_positive("l2_norm", l2_norm)
    dimension = check_count("dimension", dimension, least=1)

    def design(rate: float, metric: Literal["squared"] | None = "squared") -> DesignResult:
        return optimal(
            rate,
            lower=-l2_norm,
            upper=l2_norm,
            levels=levels,
            prior=prior,
            knots=knots,
            metric=metric,
        )

    def fits(result: DesignResult) -> bool:
        spent = vector_epsilon(
            result.mechanism, dimension=dimension, l2_distance=2 * l2_norm, inputs=inputs
        )
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
    return replace(
        min(found, key=lambda result: result.loss), seconds=time.perf_counter() - started
    )


Family = str | Mechanism | Callable[[float], Mechanism]
"""A name, a table as it is, or a function of one number whose tables have a larger epsilon the larger it is."""

BASELINES = ("cdf", "three_outputs", "n_outputs", *CONTINUOUS)
"""What `compare` takes beside `FAMILIES`: the table for distributions, and rivals of the literature."""

FAMILIES = (
    "optimal",
    "optm",
    "mvu",
    "imvu",
    "rqm",
    "erm",
    "pbm",
    "k_randomized_response",
    "randomized_response",
)

_LAST: tuple[Family, ...] = ("imvu", "mvu", "cdf", "three_outputs", "n_outputs", "optimal", "optm")
"""Families that solve programs, by how long that takes; the others are closed forms."""


def _unknown() -> None:
    """None, which is said: without a factory a record leaves out what has its default."""
    return cast(None, field(default_factory=lambda: None))


@final
@dataclass(frozen=True, kw_only=True)
class Row(Record):
    """One mechanism in a comparison.

    Arguments:
        family: its name.
        mechanism: the table; None where the family has no member at this epsilon.
        epsilon: certified pure epsilon, at most the requested one.
        bits: bits of one report.
        worst: largest MSE over the inputs, squared data units.
        cdf: error of the estimated distribution function: root of n times its variance, n reports, averaged over the
            inner edges of even cells, half as many as levels; inf where reports do not tell these cells apart.
        mse, mae: exact losses under the prior, squared data units and data units.
        max_bias: largest bias over the inputs, data units.
        above_limit: how far the MSE is above what any unbiased mechanism with any number of bits can reach, percent.
            Negative only for biased mechanisms; None where that limit is not known to exceed 0.
        seconds: time of the design.
        note: why there is no mechanism, or what to know about it.

    Example:
        >>> rows = mz.design.compare(epsilon=1.0, bits=1, families=("optimal", "randomized_response"))
        >>> [(row.family, round(row.mse, 3)) for row in rows]
        [('optimal', 4.349), ('randomized_response', 4.349)]
    """

    family: str
    mechanism: Mechanism | None = field(default=None, repr=False)
    epsilon: float | None = _unknown()
    bits: int | None = _unknown()
    mse: float | None = _unknown()
    mae: float | None = _unknown()
    worst: float | None = _unknown()
    cdf: float | None = _unknown()
    max_bias: float | None = _unknown()
    above_limit: float | None = _unknown()
    seconds: float = 0.0
    note: str = ""

    beside = ("observer", "trust", "certified")
    observer: Literal["reports"] = field(default="reports", init=False, repr=False)
    trust: Literal["local"] = field(default="local", init=False, repr=False)

    @cached_property
    def certified(self) -> bool:
        """Whether the kernel accepts the epsilon; what is not a table stays computed."""
        return self.mechanism is not None and report_claim(self.mechanism).certified


Item = TypeVar("Item")


def _of_family(
    family: str, problem: Problem, levels: int | list[float], loss: Literal["mse", "mae"]
) -> DesignResult:
    epsilon, prior, span = problem.epsilon, problem.prior, problem.span
    count = levels if isinstance(levels, int) else len(levels)
    if family == "optimal":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedLevelsWarning)
            return optimal(epsilon, levels=levels, prior=prior, loss=loss, **span)
    if family == "cdf":
        return optimal(
            epsilon, levels=count, prior=prior, loss="cdf", knots=max(2, count // 2) + 1, **span
        )
    if family in ("three_outputs", "n_outputs"):
        size = 3 if family == "three_outputs" else symmetric_levels(epsilon, count, **span)
        return optimal(epsilon, levels=size, loss="minimax", **span)
    if family == "optm":
        sized = (
            partial(optm, levels=levels) if isinstance(levels, int) else partial(optm, bins=levels)
        )
        return sized(epsilon, prior=prior, **span)
    if family in ("mvu", "imvu"):
        return (mvu if family == "mvu" else imvu)(epsilon, levels=levels, **span)
    size = None if family == "randomized_response" else levels
    return calibrate(family, epsilon=epsilon, levels=size, prior=prior, loss=loss, **span)


def _above(mse: float, floor: float) -> float | None:
    return 100 * (mse / floor - 1) if floor > 0 else None


def _continuous(family: str, problem: Problem, floor: float) -> Row:
    known, bits = variance(family, problem.epsilon), 1 if family == "duchi" else None
    mse, worst = known.mse(prior=problem.prior, **problem.span), known.worst(**problem.span)
    return Row(
        family=family, epsilon=problem.epsilon, bits=bits, mse=mse, worst=worst,
        max_bias=0.0, above_limit=_above(mse, floor), note=known.note,
    )  # fmt: skip


def own(family: Family, problem: Problem) -> tuple[str, Callable[[], Mechanism]]:
    """The name of a user's mechanism, and how to get it at the problem's epsilon and range."""
    if not callable(family) and not isinstance(family, Mechanism):
        raise ParameterError(
            "families",
            family,
            f"use {', '.join((*FAMILIES, *BASELINES))}, a Mechanism or a function",
        )
    name = (
        family.name
        if isinstance(family, Mechanism)
        else getattr(family, "__name__", type(family).__name__)
    )

    def build() -> Mechanism:
        table = family if isinstance(family, Mechanism) else member_of(family, problem.epsilon)
        if (table.lower, table.upper) != (problem.lower, problem.upper):
            remedy = f"its inputs are in [{table.lower:g}, {table.upper:g}]: ask for these"
            raise ParameterError("families", name, remedy)
        return table

    return name, build


def _listed(name: str, values: Iterable[Item], *, least: int = 1) -> list[Item]:
    """The values as a list; a string is refused."""
    if (
        isinstance(values, str)
        or not isinstance(values, Iterable)
        or len(listed := list(values)) < least
    ):
        raise ParameterError(name, values, f"give a list of at least {least}")
    return listed


def _row(
    family: str,
    design: Callable[[], DesignResult | Mechanism],
    prior: object,
    floor: float,
    cells: int,
) -> Row:
    started = time.perf_counter()
    try:
        result = design()
    except (InfeasibleError, ParameterError) as error:
        return Row(family=family, seconds=time.perf_counter() - started, note=str(error))
    table = result if isinstance(result, Mechanism) else result.mechanism
    mse, bias = table.mse(prior), table.max_bias
    biased = bias > 1e-6 * (table.upper - table.lower)
    return Row(
        family=family,
        mechanism=table,
        epsilon=table.epsilon,
        bits=table.bits,
        mse=mse,
        mae=table.mae(prior),
        worst=table.worst_mse(),
        cdf=table.cdf_error(cells, prior),
        max_bias=bias,
        above_limit=_above(mse, floor),
        seconds=time.perf_counter() - started,
        note="biased" if biased else "",
    )


def _levels(bits: int | None, levels: int | Sequence[float] | None) -> int | list[float]:
    if bits is not None and levels is not None:
        raise ParameterError("bits", bits, "give bits or levels, not both")
    if levels is None:
        return 2 ** check_count("bits", 2 if bits is None else bits, most=8)
    if not isinstance(levels, int):
        return check_increasing("levels", levels).tolist()
    return check_count("levels", levels, least=2, most=256)


def compare(
    *,
    epsilon: float = 1.0,
    bits: int | None = None,
    levels: int | Sequence[float] | None = None,
    lower: float = -1.0,
    upper: float = 1.0,
    prior: object = None,
    loss: Literal["mse", "mae"] = "mse",
    families: Sequence[Family] = FAMILIES,
    progress: Progress | None = None,
) -> Records[Row]:
    """Every mechanism calibrated to the same certified pure epsilon and number of levels, sorted by MSE.

    Arguments:
        epsilon: pure epsilon per report.
        bits, levels: 2**bits levels, their number, or the levels themselves (families whose levels follow from
            epsilon then say so in their note); 4 if neither is given. "randomized_response" has one bit always.
        lower, upper, prior: as in `optimal`.
        loss: what free parameters are tuned for; both losses are reported.
        families: which to include: names of `FAMILIES` and `BASELINES`, a `Mechanism` as it is (with its own
            epsilon), or a function of one number, whose table with the largest epsilon up to `epsilon` is taken.
        progress: called as progress(done, total) after each row; families that take longest come last.

    Returns: a list of rows sorted by MSE, which prints itself as a table; families without a member at this epsilon
        come last, with the reason in `note`.

    Raises:
        ParameterError: bad values, unknown families.

    Guarantees: every certified epsilon is at most `epsilon`. "optimal" is first among unbiased mechanisms with the
        same levels; against the others its levels are the best found.

    Example:
        >>> rows = mz.design.compare(epsilon=1.0, bits=1, families=("optimal", "rqm"))
        >>> [row.family for row in rows]
        ['optimal', 'rqm']
    """
    count = _levels(bits, levels)
    families = _listed("families", families)
    unknown = [
        name for name in families if isinstance(name, str) and name not in (*FAMILIES, *BASELINES)
    ]
    if unknown:
        raise ParameterError(
            "families", unknown, f"use some of {', '.join((*FAMILIES, *BASELINES))}"
        )
    # The prior is read once: a sample of many rows takes long to sort.
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, prior=prior)
    floor = limit_of(problem, None)[0]
    cells = max(2, (count if isinstance(count, int) else len(count)) // 2)
    rows: list[tuple[float, int, Row]] = []
    done = ticks(progress, len(families))
    for place, name in sorted(
        enumerate(families), key=lambda item: _LAST.index(item[1]) if item[1] in _LAST else -1
    ):
        if not isinstance(name, str):
            row = _row(*own(name, problem), problem.prior, floor, cells)
        elif name in CONTINUOUS:
            row = _continuous(name, problem, floor)
        else:
            row = _row(
                name, partial(_of_family, name, problem, count, loss), problem.prior, floor, cells
            )
        rows.append((math.inf if row.mse is None else row.mse, place, row))
        done()
    return Records(row for *_, row in sorted(rows, key=itemgetter(0, 1)))


def tradeoff(
    *,
    epsilons: Sequence[float],
    bits: Sequence[int] = (1, 2, 3, 4),
    lower: float = -1.0,
    upper: float = 1.0,
    prior: object = None,
    families: Sequence[Family] = (),
    progress: Progress | None = None,
) -> list[JsonObject]:
    """MSE against epsilon of the optimal table for several bits, and the limit: the data of a trade-off plot.

    Arguments:
        epsilons, bits: the grid, pure epsilon and bits of one report.
        lower, upper, prior: as in `compare`.
        families: your own functions and tables, beside the optimal ones; their rows name the family.
        progress: called as progress(done, total) after each design.

    Raises:
        ParameterError: an empty or impossible grid, a table of another range.

    Returns: one dict per epsilon and number of bits: epsilon, bits, mse, mae, limit.

    Example:
        >>> points = mz.design.tradeoff(epsilons=[1.0, 2.0], bits=[1, 2])
        >>> sorted(points[0])
        ['bits', 'epsilon', 'limit', 'mae', 'mse']
    """
    epsilons, bits = _listed("epsilons", epsilons), _listed("bits", bits)
    counts, rows = [_levels(count, None) for count in bits], []
    prior, done = (
        as_prior(prior, lower=lower, upper=upper),
        ticks(progress, len(epsilons) * len(bits)),
    )
    problems = [
        make_problem(epsilon=epsilon, lower=lower, upper=upper, prior=prior) for epsilon in epsilons
    ]
    for problem in problems:
        floor = limit_of(problem, None)[0]
        for count, levels in zip(bits, counts, strict=True):
            table = optimal(problem.epsilon, levels=levels, prior=prior, **problem.span).mechanism
            rows.append(_point(problem, table, count) | {"limit": floor})
            done()
    for problem, family in itertools.product(problems, _listed("families", families, least=0)):
        name, build = own(family, problem)
        table = build()
        if table.epsilon <= problem.epsilon:
            rows.append({"family": name, **_point(problem, table, table.bits)})
    return rows


def _point(problem: Problem, table: Mechanism, bits: int) -> JsonObject:
    losses = {"mse": table.mse(problem.prior), "mae": table.mae(problem.prior)}
    return {"epsilon": problem.epsilon, "bits": float(bits), **losses}
