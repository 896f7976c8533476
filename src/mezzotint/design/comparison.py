"""Mechanisms side by side at one epsilon, and along epsilons and bits."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import itemgetter
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
            can reach, percent. Negative only for biased mechanisms; None where that limit is not
            known to exceed 0.
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


def user_family(family: Family, problem: Problem) -> tuple[str, Callable[[], Mechanism]]:
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
    """Every mechanism calibrated to the same certified pure epsilon and number of levels, sorted by
    MSE.

    Arguments:
        epsilon: pure epsilon per report.
        bits, levels: 2**bits levels, their number, or the levels themselves (families whose levels
            follow from epsilon then say so in their note); 4 if neither is given.
            "randomized_response" has one bit always.
        lower, upper, prior: as in `optimal`.
        loss: what free parameters are tuned for; both losses are reported.
        families: which to include: names of `FAMILIES` and `BASELINES`, a `Mechanism` as it is
            (with its own epsilon), or a function of one number, whose table with the largest
            epsilon up to `epsilon` is taken.
        progress: called as progress(done, total) after each row; families that take longest come
            last.

    Returns: a list of rows sorted by MSE, which prints itself as a table; families without a member
        at this epsilon come last, with the reason in `note`.

    Raises:
        ParameterError: bad values, unknown families.

    Guarantees: every certified epsilon is at most `epsilon`. "optimal" is first among unbiased
        mechanisms with the same levels; against the others its levels are the best found.

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
            row = _row(*user_family(name, problem), problem.prior, floor, cells)
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
    """MSE against epsilon of the optimal table for several bits, and the limit: the data of a
    trade-off plot.

    Arguments:
        epsilons, bits: the grid, pure epsilon and bits of one report.
        lower, upper, prior: as in `compare`.
        families: your own functions and tables, beside the optimal ones; their rows name the
            family.
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
        name, build = user_family(family, problem)
        table = build()
        if table.epsilon <= problem.epsilon:
            rows.append({"family": name, **_point(problem, table, table.bits)})
    return rows


def _point(problem: Problem, table: Mechanism, bits: int) -> JsonObject:
    losses = {"mse": table.mse(problem.prior), "mae": table.mae(problem.prior)}
    return {"epsilon": problem.epsilon, "bits": float(bits), **losses}
