"""Closed-form families, and functions of your own, at one epsilon: calibrated one by one, or compared side by side."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, TypedDict, TypeVar, cast, final

from mezzotint.core.arguments import Values, check_count, check_increasing, check_range
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import as_prior
from mezzotint.core.records import JsonObject, Progress, Record, ticks
from mezzotint.design.levels import UnboundedLevelsWarning, symmetric_levels
from mezzotint.design.limit import limit_of
from mezzotint.design.optimal import imvu, mvu, optimal
from mezzotint.design.optm import optm
from mezzotint.design.problem import DesignResult, make_problem, without_bound
from mezzotint.families import continuous
from mezzotint.families.fitting import member, member_of
from mezzotint.privacy.account import report_claim


def calibrate(
    family: str | Callable[[float], Mechanism],
    *,
    epsilon: float,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int | Values | None = None,
    loss: Literal["mse", "mae"] = "mse",
    prior: object = None,
    max_level: float | None = None,
    knots: int = 65,
) -> DesignResult:
    """The member of a closed-form family with certified epsilon <= `epsilon`, near it, and the least loss found.

    Arguments:
        family: "rqm" (searches extension and q), "erm" (symmetric bins and gamma), "pbm" (theta), or
            "randomized_response" (one bit), "k_randomized_response": nothing left to search. Or a function of one
            number > 0 that returns a Mechanism, whose epsilon must not decrease (or not increase) with it: numbers
            from 2**-40 to 2**40 are tried, and the table with the largest certified epsilon up to `epsilon` is taken.
        epsilon: pure epsilon asked for, > 0 and finite.
        lower, upper: input range, data units.
        levels: number of levels (None: 4, or 2 for randomized response). "erm" also takes the bins themselves, "rqm"
            evenly spaced symmetric ones; then only gamma or q is searched.
        loss: "mse" or "mae", to be minimised. An MAE may keep falling as bins move out: see max_level.
        prior: of the inputs: None for uniform, a frozen scipy.stats distribution, or a 1-D sample. A sample of
            private data makes the parameters themselves a release about it.
        max_level: largest distance of a bin from the middle of the range, data units; None: 16 (or
            levels - 1, if more) times the least that an unbiased report at this epsilon needs. It limits "rqm" and
            "erm"; the other families have no choice and raise.
        knots: for "pbm": evenly spaced inputs at which the table has the exact pmf.

    Returns:
        DesignResult with status "calibrated", no lower bound and no gap: the search is local.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: the family cannot reach epsilon (with these bins, or within max_level); says what it can.

    Guarantees:
        result.mechanism.epsilon <= epsilon, in its integers.
        result.loss is the mechanism's own loss under the prior, not the search's estimate.
    Edge cases: epsilon above log(2**32) = 22.2 gives a table below that; two levels are randomized response.
    """
    started = time.perf_counter()
    low, high = check_range(lower, upper)
    known = as_prior(prior, lower=low, upper=high)
    if callable(family):
        mechanism, evaluations = member_of(family, epsilon), 1
    else:
        mechanism, evaluations = member(
            family,
            epsilon=epsilon,
            lower=low,
            upper=high,
            levels=levels,
            loss=loss,
            prior=known,
            max_level=max_level,
            knots=knots,
        )
    value = mechanism.mse(known) if loss == "mse" else mechanism.mae(known)
    return without_bound(mechanism, loss=value, status="calibrated", started=started, iterations=evaluations)


Family = str | Mechanism | Callable[[float], Mechanism]
"""A name, a table as it is, or a function of one number whose tables have a larger epsilon the larger it is."""

BASELINES = ("cdf", "three_outputs", "n_outputs", *continuous.NAMES)
"""What can be asked for beside `FAMILIES`: the table for distributions, and rivals of the literature."""

FAMILIES = ("optimal", "optm", "mvu", "imvu", "rqm", "erm", "pbm", "k_randomized_response", "randomized_response")

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
        epsilon: certified pure epsilon, at most the one asked for.
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
        """Whether the kernel accepts the epsilon; what is no table stays computed."""
        return self.mechanism is not None and report_claim(self.mechanism).certified


class Span(TypedDict):
    """The range of inputs."""

    lower: float
    upper: float


Item = TypeVar("Item")


def _design(
    family: str, epsilon: float, levels: int | list[float], prior: object, loss: Literal["mse", "mae"], span: Span
) -> DesignResult:
    count = levels if isinstance(levels, int) else len(levels)
    if family == "optimal":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedLevelsWarning)
            return optimal(epsilon, levels=levels, prior=prior, loss=loss, **span)
    if family == "cdf":
        return optimal(epsilon, levels=count, prior=prior, loss="cdf", knots=max(2, count // 2) + 1, **span)
    if family in ("three_outputs", "n_outputs"):
        size = 3 if family == "three_outputs" else symmetric_levels(epsilon, count, **span)
        return optimal(epsilon, levels=size, loss="minimax", **span)
    if family == "optm":
        sized = partial(optm, levels=levels) if isinstance(levels, int) else partial(optm, bins=levels)
        return sized(epsilon, prior=prior, **span)
    if family in ("mvu", "imvu"):
        return (mvu if family == "mvu" else imvu)(epsilon, levels=levels, **span)
    size = None if family == "randomized_response" else levels
    return calibrate(family, epsilon=epsilon, levels=size, prior=prior, loss=loss, **span)


def _above(mse: float, floor: float) -> float | None:
    return 100 * (mse / floor - 1) if floor > 0 else None


def _continuous(family: str, epsilon: float, prior: object, floor: float, span: Span) -> Row:
    known = continuous.variance(family, epsilon)
    mse = known.mse(prior=prior, **span)
    return Row(
        family=family,
        epsilon=epsilon,
        bits=1 if family == "duchi" else None,
        mse=mse,
        worst=known.worst(**span),
        max_bias=0.0,
        above_limit=_above(mse, floor),
        note=known.note,
    )


def own(family: Family, epsilon: float, *, lower: float, upper: float) -> tuple[str, Callable[[], Mechanism]]:
    """The name of a user's mechanism, and how to get it at this epsilon and range."""
    if not callable(family) and not isinstance(family, Mechanism):
        raise ParameterError("families", family, f"use {', '.join((*FAMILIES, *BASELINES))}, a Mechanism or a function")
    name = family.name if isinstance(family, Mechanism) else getattr(family, "__name__", type(family).__name__)

    def build() -> Mechanism:
        table = family if isinstance(family, Mechanism) else member_of(family, epsilon)
        if (table.lower, table.upper) != (lower, upper):
            raise ParameterError(
                "families", name, f"its inputs are in [{table.lower:g}, {table.upper:g}]: ask for these"
            )
        return table

    return name, build


def _listed(name: str, values: Iterable[Item], *, least: int = 1) -> list[Item]:
    """The values as a list; a text is no list of its letters."""
    if isinstance(values, str) or not isinstance(values, Iterable) or len(listed := list(values)) < least:
        raise ParameterError(name, values, f"give a list of at least {least}")
    return listed


def _row(family: str, design: Callable[[], DesignResult | Mechanism], prior: object, floor: float, cells: int) -> Row:
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
) -> list[Row]:
    """Every mechanism calibrated to the same certified pure epsilon and number of levels, sorted by MSE.

    Arguments:
        epsilon: pure epsilon per report.
        bits, levels: 2**bits levels, their number, or the levels themselves (families whose levels follow from
            epsilon then say so in their note); 4 if neither is given. "randomized_response" has one bit always.
        lower, upper: range of the inputs, data units.
        prior: None (uniform), a frozen scipy.stats distribution or a 1-D sample.
        loss: what free parameters are tuned for; both losses are reported.
        families: which to include: names of `FAMILIES` and `BASELINES`, a `Mechanism` as it is (its own epsilon is
            told), or a function of one number, whose table with the largest epsilon up to `epsilon` is taken.
        progress: called as progress(done, total) after each row; families that take longest come last.

    Returns: rows sorted by MSE; families without a member at this epsilon come last, with the reason in `note`.

    Raises:
        ParameterError: bad values, unknown families.

    Guarantees: every certified epsilon is at most `epsilon`. "optimal" is first among unbiased mechanisms with the
        same levels; against the others its levels are the best found.
    """
    count = _levels(bits, levels)
    families = _listed("families", families)
    unknown = [name for name in families if isinstance(name, str) and name not in (*FAMILIES, *BASELINES)]
    if unknown:
        raise ParameterError("families", unknown, f"use some of {', '.join((*FAMILIES, *BASELINES))}")
    span: Span = {"lower": lower, "upper": upper}
    problem = make_problem(epsilon=epsilon, loss="mse", prior=prior, **span)
    # Read once: a sample of many rows takes long to sort. Tables of one's own may have another range.
    prior = problem.prior
    floor = limit_of(problem, None)[0]
    cells = max(2, (count if isinstance(count, int) else len(count)) // 2)
    rows: dict[int, Row] = {}
    done = ticks(progress, len(families))
    for place, name in sorted(enumerate(families), key=lambda item: _LAST.index(item[1]) if item[1] in _LAST else -1):
        if not isinstance(name, str):
            rows[place] = _row(*own(name, epsilon, **span), prior, floor, cells)
        elif name in continuous.NAMES:
            rows[place] = _continuous(name, epsilon, prior, floor, span)
        else:
            design = partial(_design, name, epsilon, count, prior, loss, span)
            rows[place] = _row(name, design, prior, floor, cells)
        done()
    ordered = [rows[place] for place in range(len(rows))]
    return sorted(ordered, key=lambda row: float("inf") if row.mse is None else row.mse)


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
        families: functions and tables of one's own, beside the optimal ones; their rows name the family.
        progress: called as progress(done, total) after each design.

    Raises:
        ParameterError: an empty or impossible grid, a table of another range.

    Returns: one dict per epsilon and number of bits: epsilon, bits, mse, mae, limit.
    """
    epsilons, bits = _listed("epsilons", epsilons), _listed("bits", bits)
    counts, rows = [_levels(count, None) for count in bits], []
    prior = as_prior(prior, lower=lower, upper=upper)
    for epsilon in epsilons:
        problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss="mse", prior=prior)
        floor = limit_of(problem, None)[0]
        for count, levels in zip(bits, counts, strict=True):
            table = optimal(epsilon, lower=lower, upper=upper, levels=levels, prior=prior).mechanism
            rows.append(_point(table, epsilon, count, prior) | {"limit": floor})
            if progress is not None:
                progress(len(rows), len(epsilons) * len(bits))
    for epsilon, family in itertools.product(epsilons, _listed("families", families, least=0)):
        name, build = own(family, epsilon, lower=lower, upper=upper)
        table = build()
        if table.epsilon <= epsilon:
            rows.append({"family": name, **_point(table, epsilon, table.bits, prior)})
    return rows


def _point(table: Mechanism, epsilon: float, bits: int, prior: object) -> JsonObject:
    losses = {"mse": table.mse(prior), "mae": table.mae(prior)}
    return {"epsilon": float(epsilon), "bits": float(bits), **losses}
