"""Mechanisms side by side at one epsilon, and along epsilons and bits."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, TypeVar, cast, final

from mezzotint.core.arguments import (
    check_count,
    check_increasing,
)
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import as_prior
from mezzotint.core.records import JsonObject, Progress, Record, Records, ticks
from mezzotint.design.calibration import calibrate, member_of
from mezzotint.design.continuous import CONTINUOUS, variance
from mezzotint.design.levels import (
    UnboundedLevelsWarning,
    symmetric_levels,
)
from mezzotint.design.limits import limit_of
from mezzotint.design.minimum_variance import imvu, mvu
from mezzotint.design.optimum import optimal
from mezzotint.design.pair_selection import optm
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    make_problem,
)
from mezzotint.privacy.accounting import report_claim

Family = str | Mechanism | Callable[[float], Mechanism]
"""A name, a table as it is, or a function of one number whose tables have a larger epsilon the
larger it is.
"""

BASELINES = ("cdf", "three_outputs", "n_outputs", *CONTINUOUS)
"""What `compare` takes beside `FAMILIES`: the table for distributions, and rivals of the
literature.
"""

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
        cdf: error of the estimated distribution function: root of n times its variance, n reports,
            averaged over the inner edges of even cells, half as many as levels; inf where reports
            do not tell these cells apart.
        mse, mae: exact losses under the prior, squared data units and data units.
        max_bias: largest bias over the inputs, data units.
        above_limit: how far the MSE is above what any unbiased mechanism with any number of bits
            can reach at the epsilon asked for, percent; a `Mechanism` as it is: at its own
            epsilon. Negative only for biased mechanisms; None where that limit is not known to
            exceed 0.
        seconds: time of the design.
        note: why there is no mechanism, or what to know about it.

    Example:
        >>> rows = mz.design.compare(epsilon=1.0, bits=1, families=("optimal",
        ...     "randomized_response"))
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

_UNBIASED = 1e-6
"""Share of the range: a table with a smaller bias is not called biased."""

BIASED = "biased"
"""The note of a row whose mechanism is biased."""

_LEAST_OPTM_LEVELS = 3


def _of_family(
    family: str,
    problem: Problem,
    levels: int | list[float],
    loss: Literal["mse", "mae"],
) -> DesignResult:
    """A family's design at the problem's epsilon, range and prior, with the loss and levels where
    the family heeds them.
    """
    epsilon = problem.epsilon
    prior = problem.prior
    span = problem.span
    count = levels if isinstance(levels, int) else len(levels)
    if family == "optimal":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedLevelsWarning)
            return optimal(
                epsilon,
                levels=levels,
                prior=prior,
                loss=loss,
                **span,
            )
    if family == "cdf":
        knots = max(2, count // 2) + 1
        return optimal(
            epsilon,
            levels=count,
            prior=prior,
            loss="cdf",
            knots=knots,
            **span,
        )
    if family == "three_outputs":
        return optimal(epsilon, levels=3, loss="minimax", **span)
    if family == "n_outputs":
        outputs = symmetric_levels(epsilon, count, **span)
        return optimal(epsilon, levels=outputs, loss="minimax", **span)
    if family == "optm":
        if count < _LEAST_OPTM_LEVELS:
            raise InfeasibleError("has tables of 3 levels and more, which take 2 bits")
        if isinstance(levels, int):
            return optm(epsilon, levels=levels, prior=prior, **span)
        return optm(epsilon, bins=levels, prior=prior, **span)
    if family == "mvu":
        return mvu(epsilon, levels=levels, **span)
    if family == "imvu":
        return imvu(epsilon, levels=levels, **span)
    family_levels = None if family == "randomized_response" else levels
    return calibrate(
        family,
        epsilon=epsilon,
        levels=family_levels,
        prior=prior,
        loss=loss,
        **span,
    )


def _above(mse: float, limit: float) -> float | None:
    """How far an MSE is above the limit, percent; None where that is not above 0."""
    if limit <= 0:
        return None
    return 100 * (mse / limit - 1)


def _limit_at(epsilon: float, problem: Problem) -> float:
    """The limit on the problem's range at another epsilon; 0, which bounds every MSE, where there
    is no finite one.
    """
    if math.isinf(epsilon):
        return 0.0
    try:
        own_problem = make_problem(epsilon=epsilon, prior=problem.prior, **problem.span)
    except (InfeasibleError, ParameterError):
        return 0.0
    limit, _ = limit_of(own_problem, None)
    return limit


def _continuous(
    family: str,
    problem: Problem,
    limit: float,
) -> Row:
    """The row of a mechanism whose reports are no table's, by its variance in closed form."""
    report_variance = variance(family, problem.epsilon)
    mse = report_variance.mse(prior=problem.prior, **problem.span)
    return Row(
        family=family,
        epsilon=problem.epsilon,
        bits=1 if family == "duchi" else None,
        mse=mse,
        worst=report_variance.worst(**problem.span),
        max_bias=0.0,
        above_limit=_above(mse, limit),
        note=report_variance.note,
    )


def user_family(
    family: Family,
    problem: Problem,
) -> tuple[str, Callable[[], Mechanism]]:
    """The name of a user's mechanism, and how to get it at the problem's epsilon and range."""
    if isinstance(family, Mechanism):
        name = family.name
    elif callable(family):
        name = getattr(family, "__name__", type(family).__name__)
    else:
        remedy = f"use {', '.join((*FAMILIES, *BASELINES))}, a Mechanism or a function"
        raise ParameterError("families", family, remedy)

    def build() -> Mechanism:
        table = family if isinstance(family, Mechanism) else member_of(family, problem.epsilon)
        if (table.lower, table.upper) != (problem.lower, problem.upper):
            remedy = f"its inputs are in [{table.lower:g}, {table.upper:g}]: compare on that range"
            raise ParameterError("families", name, remedy)
        return table

    return name, build


def _listed(
    name: str,
    values: Iterable[Item],
    *,
    least: int = 1,
) -> list[Item]:
    """The values as a list; a string is refused."""
    if isinstance(values, Iterable) and not isinstance(values, str):
        items = list(values)
        if len(items) >= least:
            return items
    raise ParameterError(name, values, f"give a list of at least {least}")


def _row(
    family: str,
    design: Callable[[], DesignResult | Mechanism],
    prior: object,
    limit: float,
    cells: int,
) -> Row:
    """The row of a design and of the time that it took; where it is refused, the note says why."""
    started = time.perf_counter()
    try:
        result = design()
    except (InfeasibleError, ParameterError) as error:
        note = str(error)
        if isinstance(error, ParameterError) and error.parameter == "families":
            note = error.remedy  # the row names the family
        return Row(
            family=family,
            seconds=time.perf_counter() - started,
            note=note,
        )
    table = result if isinstance(result, Mechanism) else result.mechanism
    mse = table.mse(prior)
    is_biased = table.max_bias > _UNBIASED * (table.upper - table.lower)
    return Row(
        family=family,
        mechanism=table,
        epsilon=table.epsilon,
        bits=table.bits,
        mse=mse,
        mae=table.mae(prior),
        worst=table.worst_mse(),
        cdf=table.cdf_error(cells, prior),
        max_bias=table.max_bias,
        above_limit=_above(mse, limit),
        seconds=time.perf_counter() - started,
        note=BIASED if is_biased else "",
    )


def _levels(
    bits: int | None,
    levels: int | Sequence[float] | None,
) -> int | list[float]:
    """The number of levels, or the levels, that `bits` or `levels` ask for; 4 without either."""
    if bits is not None and levels is not None:
        raise ParameterError("bits", bits, "give bits or levels, not both")
    if levels is None:
        bit_count = 2 if bits is None else bits
        return 2 ** check_count("bits", bit_count, most=8)
    if not isinstance(levels, int):
        return check_increasing("levels", levels).tolist()
    return check_count("levels", levels, least=2, most=256)


def _slowness(family: Family) -> int:
    """Where a family stands among those of `_LAST`; -1 for the others."""
    return _LAST.index(family) if family in _LAST else -1


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
    """Every mechanism calibrated to the same certified pure epsilon and number of levels, the
    unbiased ones first, sorted by MSE.

    Arguments:
        epsilon: pure epsilon per report.
        bits, levels: 2**bits levels, their number, or the levels themselves (families whose levels
            follow from epsilon then say so in their note); 4 if neither is given.
            "randomized_response" has one bit always.
        lower, upper, prior: as in `optimal`.
        loss: what free parameters are tuned for; both losses are reported.
        families: names of `FAMILIES` and `BASELINES`, a `Mechanism` as it is (with its own
            epsilon), or a function as of `calibrate`.
        progress: called as progress(done, total) after each row, the slowest last.

    Returns: a list of rows, which prints itself as a table; biased mechanisms stand below unbiased
        ones, and last those families without a member at this epsilon, with the reason in `note`.
    Raises:
        ParameterError: bad values, unknown families.
    Guarantees: every certified epsilon is at most `epsilon`. "optimal" is first among unbiased
        mechanisms with the same levels; against the others its levels are the best found.
    Example:
        >>> rows = mz.design.compare(epsilon=1.0, bits=1, families=("optimal", "rqm"))
        >>> [row.family for row in rows]
        ['optimal', 'rqm']
    """
    level_choice = _levels(bits, levels)
    families = _listed("families", families)
    names = (*FAMILIES, *BASELINES)
    unknown = [family for family in families if isinstance(family, str) and family not in names]
    if unknown:
        raise ParameterError("families", unknown, f"use some of {', '.join(names)}")
    # The prior is read once: a sample of many rows takes long to sort.
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, prior=prior)
    limit, _ = limit_of(problem, None)
    count_step = ticks(progress, len(families))
    rows: dict[int, Row] = {}
    for index in sorted(range(len(families)), key=lambda index: _slowness(families[index])):
        rows[index] = _row_of(families[index], problem, level_choice, loss, limit)
        count_step()
    in_order = [rows[index] for index in range(len(families))]
    return Records(sorted(in_order, key=_rank))


def _row_of(
    family: Family,
    problem: Problem,
    levels: int | list[float],
    loss: Literal["mse", "mae"],
    limit: float,
) -> Row:
    """The row of one family; `limit` bounds every MSE at the problem's epsilon."""
    level_count = levels if isinstance(levels, int) else len(levels)
    cell_count = max(2, level_count // 2)
    if isinstance(family, str) and family in CONTINUOUS:
        return _continuous(family, problem, limit)
    if isinstance(family, str):
        build = partial(_of_family, family, problem, levels, loss)
        return _row(family=family, design=build, prior=problem.prior, limit=limit, cells=cell_count)
    name, build_table = user_family(family, problem)
    if isinstance(family, Mechanism):
        limit = _limit_at(family.epsilon, problem)
    return _row(family=name, design=build_table, prior=problem.prior, limit=limit, cells=cell_count)


def _rank(row: Row) -> tuple[bool, float]:
    """Unbiased mechanisms by their errors, then biased ones, then those that are none.

    Errors that differ by rounding alone are equal: such rows stay in the order of the families.
    """
    if row.mse is None:
        return True, math.inf
    return row.note == BIASED, float(f"{row.mse:.6g}")


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
    """MSE against epsilon of the optimal table for several bits, and the limit: the data of a
    trade-off plot.

    Arguments:
        epsilons, bits: the grid, pure epsilon and bits of one report.
        lower, upper, prior: as in `compare`.
        families: your own functions and tables, beside the optimal ones; their rows name the
            family.
        progress: called as progress(done, total) after each design.

    Returns: one dict per epsilon and number of bits: epsilon, bits, mse, mae, limit.
    Raises:
        ParameterError: an empty or impossible grid, a table of another range.
    Example:
        >>> points = mz.design.tradeoff(epsilons=[1.0, 2.0], bits=[1, 2])
        >>> sorted(points[0])
        ['bits', 'epsilon', 'limit', 'mae', 'mse']
    """
    epsilons = _listed("epsilons", epsilons)
    bits = _listed("bits", bits)
    level_counts = [_levels(bit_count, None) for bit_count in bits]
    prior = as_prior(prior, lower=lower, upper=upper)
    count_step = ticks(progress, len(epsilons) * len(bits))
    problems = [
        make_problem(
            epsilon=epsilon,
            lower=lower,
            upper=upper,
            prior=prior,
        )
        for epsilon in epsilons
    ]
    points: list[JsonObject] = []
    for problem in problems:
        limit, _ = limit_of(problem, None)
        for bit_count, levels in zip(bits, level_counts, strict=True):
            result = optimal(
                problem.epsilon,
                levels=levels,
                prior=prior,
                **problem.span,
            )
            points.append(_point(problem, result.mechanism, bit_count) | {"limit": limit})
            count_step()
    for problem, family in itertools.product(problems, _listed("families", families, least=0)):
        name, build = user_family(family, problem)
        table = build()
        if table.epsilon <= problem.epsilon:
            points.append({"family": name, **_point(problem, table, table.bits)})
    return points


def _point(
    problem: Problem,
    table: Mechanism,
    bits: int,
) -> JsonObject:
    return {
        "epsilon": problem.epsilon,
        "bits": float(bits),
        "mse": table.mse(problem.prior),
        "mae": table.mae(problem.prior),
    }
