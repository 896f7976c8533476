"""From an epsilon to a member: the parameters of a closed-form family with certified epsilon as asked, least loss.

`design.calibrate` is the door; what is asked stands there.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast, final

import numpy as np
from scipy.optimize import brentq

from mezzotint.core.arguments import (
    Values,
    check_count,
    check_covering,
    check_epsilon,
    check_finite,
    check_range,
)
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import MAX_LEVELS, FloatArray, Mechanism
from mezzotint.core.priors import Prior, SamplePrior, UniformPrior, as_prior, cell_means
from mezzotint.core.rounding import MARGIN, table
from mezzotint.core.search import bracket
from mezzotint.families.pbm import PoissonBinomial, pbm_exact, pbm_rows
from mezzotint.families.response import k_randomized_response
from mezzotint.families.search import Family, Search, erm_family, float_epsilon, rqm_family

_MARGINS = tuple(MARGIN * 4.0**k for k in range(9))
"""How far below epsilon a search aims: the first for which the rounded table is certified is taken."""

_WIDEST = 16.0
"""Bins are searched this many times as far out as unbiased reports need, or levels - 1 times where that is more: so
far out the two innermost bins of an even grid alone are randomized response."""

_MOST_POINTS = 1024

_THETA = 0.5 - 1e-10
"""The largest slope tried for PBM: at 1/2 an end of the range would be told for certain."""


@final
@dataclass(frozen=True, kw_only=True)
class _Request:
    """What is asked, checked; `count` levels, or the bins themselves in data units."""

    epsilon: float
    lower: float
    upper: float
    count: int
    bins: FloatArray | None
    loss: Literal["mse", "mae"]
    prior: Prior
    max_level: float
    knots: int

    @property
    def half(self) -> float:
        return (self.upper - self.lower) / 2

    @property
    def centre(self) -> float:
        return self.lower + self.half

    @property
    def unit_bins(self) -> FloatArray | None:
        """The bins in half ranges."""
        return None if self.bins is None else (self.bins - self.centre) / self.half

    def unit_prior(self) -> Prior:
        """The prior on [-1, 1], as point masses unless uniform: one pass over the data, then each loss is cheap."""
        if isinstance(self.prior, UniformPrior):
            return self.prior
        cells = cell_means(self.prior, self.lower, self.upper)
        return SamplePrior(points=(cells.points - self.centre) / self.half, masses=cells.masses)


def member(
    family: str,
    *,
    epsilon: float,
    lower: float,
    upper: float,
    levels: int | Values | None,
    loss: Literal["mse", "mae"],
    prior: Any,
    max_level: float | None,
    knots: int,
) -> tuple[Mechanism, int]:
    """The member of a family by name, and how many evaluations found it; arguments as of `design.calibrate`."""
    if family not in _FAMILIES:
        raise ParameterError("family", family, f"known families: {', '.join(_FAMILIES)}")
    default = 2 if family == "randomized_response" else 4
    request = _check(epsilon, lower, upper, default if levels is None else levels, loss, prior, max_level, knots)
    mechanism, evaluations = _FAMILIES[family](request)
    reach = float(np.abs(mechanism.levels - request.centre).max())
    if reach > request.max_level * (1 + 1e-9):
        raise InfeasibleError(
            f"max_level={request.max_level:g}: {family} at epsilon={request.epsilon:g} has levels up to {reach:.6g} "
            "from the middle of the range; raise max_level or epsilon, or choose another family"
        )
    return mechanism, evaluations


def member_of(build: Callable[[float], Mechanism], epsilon: float) -> Mechanism:
    """The table of a function of one number > 0 with the largest certified epsilon up to `epsilon`.

    Arguments:
        build: its tables' epsilon must not decrease (or not increase) with the number; from 2**-40 to 2**40.

    Raises:
        InfeasibleError: no number tried gives a table with so small an epsilon.
    """
    found: list[tuple[float, Mechanism]] = []

    def spent(exponent: float) -> float:
        try:
            table = build(2.0**exponent)
        except (InfeasibleError, ParameterError):
            return math.nan
        if not isinstance(table, Mechanism):
            raise ParameterError("family", type(table).__name__, "the function must return a Mechanism")
        if table.epsilon <= epsilon:
            found.append((table.epsilon, table))
        return table.epsilon

    grid = np.arange(-40.0, 41.0, 4.0)
    losses = [spent(exponent) for exponent in grid.tolist()]
    for (a, one), (b, other) in itertools.pairwise(zip(grid.tolist(), losses, strict=True)):
        if (one <= epsilon) == (other <= epsilon):
            continue
        inside, outside = (a, b) if one <= epsilon else (b, a)
        bracket(lambda exponent: spent(exponent) <= epsilon, inside, outside, steps=40)
    if not found:
        raise InfeasibleError(f"epsilon={epsilon:g}: no number from 2**-40 to 2**40 gives a table within it")
    return max(found, key=lambda pair: pair[0])[1]


def _check(
    epsilon: Any, lower: Any, upper: Any, levels: Any, loss: Any, prior: Any, max_level: Any, knots: Any
) -> _Request:
    low, high = check_range(lower, upper)
    if loss not in ("mse", "mae"):
        raise ParameterError("loss", loss, 'use "mse" or "mae"')
    bins = None if np.ndim(levels) == 0 else check_covering("levels", levels, lower=low, upper=high)
    asked = check_epsilon(epsilon)
    if asked < 1e-8:
        raise ParameterError("epsilon", asked, "2**32 units cannot tell inputs so little apart; ask for 1e-8 or more")
    farthest = math.inf if max_level is None else check_finite("max_level", max_level)
    # E[B | upper] - E[B | lower] = 2 c is at most 2 R tanh(epsilon / 2), the most that two distributions with
    # likelihood ratio e**epsilon can differ in mean on [-R, R].
    needed = (high - low) / 2 / math.tanh(asked / 2)
    if farthest < needed:
        raise InfeasibleError(
            f"max_level={farthest:g}: an unbiased report at epsilon={asked:g} needs levels {needed:.6g} from the "
            "middle of the range; raise max_level or epsilon"
        )
    return _Request(
        epsilon=asked,
        lower=low,
        upper=high,
        count=check_count("levels", levels, least=2, most=MAX_LEVELS) if bins is None else bins.size,
        bins=bins,
        loss=loss,
        prior=as_prior(prior, lower=low, upper=high),
        max_level=farthest,
        knots=check_count("knots", knots, least=2, most=MAX_LEVELS),
    )


def _aims(epsilon: float) -> list[float]:
    """Epsilons to aim at, just below the one asked for and then further; a table shows no more than log(2**32)."""
    return [min(epsilon, 32 * math.log(2)) * (1 - margin) for margin in _MARGINS]


def _searched(request: _Request, build: Callable[..., Family]) -> tuple[Mechanism, int]:
    """Searches at epsilon; then lowers the dial a little at a time until the rounded table is certified.

    Arguments:
        build: `rqm_family` or `erm_family`.
    """
    aims = _aims(request.epsilon)
    least = (1 + 1e-9) / math.tanh(aims[0] / 2)
    most = min(least * max(_WIDEST, request.count - 1), request.max_level / request.half)
    family = build(request.count, least, max(least, most), request.unit_bins)
    search = Search(family, epsilon=aims[0], loss=request.loss, prior=request.unit_prior())
    best = search.run()
    for aim in aims:
        search.epsilon = aim
        setting = best if aim == aims[0] else search.dial(best.shape)
        if setting.loss == math.inf:
            best = search.run()  # this shape is out of reach at the lower aim
            setting = best
        levels, knots, rows = family.batch(setting.shape, np.array([setting.dial]))
        # In data units, with given bins and the ends of the range as they are.
        knots = np.concatenate([[request.lower], request.centre + request.half * knots[1:-1], [request.upper]])
        try:
            mechanism = table(
                knots=knots,
                levels=request.centre + request.half * levels if request.bins is None else request.bins,
                probabilities=rows[0],
                name=family.name(setting.shape, setting.dial, request.half),
                epsilon=request.epsilon,
            )
        except InfeasibleError:
            continue
        return mechanism, search.evaluations
    raise InfeasibleError(
        f"epsilon={request.epsilon:g}: no member of this family survives rounding to 2**32 units; use fewer levels"
    )


def _rqm(request: _Request) -> tuple[Mechanism, int]:
    unit = request.unit_bins
    if unit is not None and np.abs(unit - np.linspace(-unit[-1], unit[-1], unit.size)).max() > 1e-9 * unit[-1]:
        raise ParameterError("levels", unit.tolist(), "RQM needs evenly spaced bins around the middle of the range")
    return _searched(request, rqm_family)


def _counted(request: _Request, family: str) -> int:
    if request.bins is not None:
        raise ParameterError(
            "levels", request.bins.tolist(), f"the levels of {family} follow from epsilon: give an int"
        )
    return request.count


def _pbm(request: _Request) -> tuple[Mechanism, int]:
    trials = _counted(request, "pbm") - 1

    def at(theta: float) -> PoissonBinomial:
        return pbm_exact(lower=request.lower, upper=request.upper, trials=trials, theta=theta)

    def excess(theta: float, aim: float) -> float:
        return float(float_epsilon(at(theta).pmf(np.array([[request.lower, request.upper]])))[0]) - aim

    for tries, aim in enumerate(_aims(request.epsilon), start=1):
        # epsilon = n log((1/2 + theta) / (1/2 - theta)) = 2 n atanh(2 theta), while no report is rarer than one unit.
        theta = math.tanh(aim / (2 * trials)) / 2
        if excess(theta, aim) < -MARGIN * aim and excess(_THETA, aim) > 0:
            theta = cast(float, brentq(excess, theta, _THETA, args=(aim,), xtol=1e-12))
        raw = at(min(theta, _THETA))
        grid, rows = pbm_rows(raw, request.knots)
        name = f"PBM(trials={trials}, theta={raw.theta:.6g})"
        with contextlib.suppress(InfeasibleError):
            return table(knots=grid, levels=raw.levels, probabilities=rows, name=name, epsilon=request.epsilon), tries
    raise InfeasibleError(
        f"epsilon={request.epsilon:g}: PBM does not survive rounding to 2**32 units; use fewer levels"
    )


def _randomized_response(request: _Request) -> tuple[Mechanism, int]:
    if _counted(request, "randomized_response") != 2:
        raise ParameterError("levels", request.count, "one-bit response has 2 levels; try k_randomized_response")
    return _k_randomized_response(request)


def _k_randomized_response(request: _Request) -> tuple[Mechanism, int]:
    levels = _counted(request, "k_randomized_response")
    if levels > _MOST_POINTS:
        raise ParameterError("levels", levels, f"rounding levels**2 cells takes too long beyond {_MOST_POINTS}")
    return k_randomized_response(lower=request.lower, upper=request.upper, levels=levels, epsilon=request.epsilon), 1


_FAMILIES: dict[str, Callable[[_Request], tuple[Mechanism, int]]] = {
    "rqm": _rqm,
    "erm": lambda request: _searched(request, erm_family),
    "pbm": _pbm,
    "randomized_response": _randomized_response,
    "k_randomized_response": _k_randomized_response,
}
