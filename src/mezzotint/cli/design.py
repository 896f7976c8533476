"""`mezzotint design`."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Lower, Options, Overwrite, PriorOption, Upper, option
from mezzotint.cli.parameters import Parameters
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, number

EXAMPLE = "mezzotint design --epsilon 1 --levels=-3,-0.5,0.5,3 --lower -1 --upper 1 --loss mae --out m.json --json"

CLOSED_FORMS = ("rqm", "erm", "pbm", "randomized_response", "k_randomized_response")
FAMILIES = ("optimal", "optm", "mvu", "imvu", *CLOSED_FORMS)
BINS = 10
"""Bins of the histogram for which another table is suggested."""


def command(
    epsilon: Annotated[
        float | None,
        option(
            "Privacy budget per report, never exceeded; see also --delta, --alpha and --metric. Left out with a "
            "family's own parameters, of which it is printed."
        ),
    ] = None,
    levels: Annotated[
        str | None, option("Number of levels (default: 4), or the levels: --levels=-3,0.5,3.")
    ] = None,
    lower: Lower = -1.0,
    upper: Upper = 1.0,
    loss: Annotated[
        str, option("Loss: mse, mae, minimax (largest mse) or cdf (distribution function).")
    ] = "mse",
    family: Annotated[str, option(f"One of {', '.join(FAMILIES)}.")] = "optimal",
    extension: Annotated[
        float | None, option("rqm: Delta, how far its levels go beyond the range, data units.")
    ] = None,
    q: Annotated[float | None, option("rqm: chance that an inner level is kept.")] = None,
    gamma: Annotated[float | None, option("erm: exponent of its selection probabilities.")] = None,
    theta: Annotated[float | None, option("pbm: slope of the coin's bias, to 1/2.")] = None,
    trials: Annotated[int | None, option("pbm: number of tosses; one level more.")] = None,
    prior: PriorOption = None,
    delta: Annotated[
        float, option("optimal only: design for (epsilon, delta) instead of pure epsilon.")
    ] = 0.0,
    alpha: Annotated[
        float | None,
        option("optimal only: epsilon bounds the Renyi divergence of this order, > 1."),
    ] = None,
    metric: Annotated[
        str | None, option("optimal only: epsilon per |x - x'| (absolute) or square (squared).")
    ] = None,
    max_bias: Annotated[
        float, option("optimal only: largest bias allowed, data units; inf: any.")
    ] = 0.0,
    max_level: Annotated[
        float | None, option("Largest distance of a searched level from the midpoint.")
    ] = None,
    knots: Annotated[
        int | None, option("Evenly spaced knots (inputs with a row); default: optimised.")
    ] = None,
    categories: Annotated[
        str | None,
        option("Design for categories: their names (a,b,c), or their number K: 0 to K - 1."),
    ] = None,
    method: Annotated[
        str,
        option("--categories: best, krr, subset, hadamard, projective, affine."),
    ] = "best",
    other: Annotated[
        bool, option("--categories only: add a category for values not listed.", "--other")
    ] = False,
    missing: Annotated[
        bool, option("--categories only: add a category for missing values.", "--missing")
    ] = False,
    out: Annotated[Path | None, option("Mechanism file to write (.json).")] = None,
    overwrite: Overwrite = False,
    limit: Annotated[
        bool,
        option(
            "Also print how far the loss is above a lower bound for any number of bits.", "--limit"
        ),
    ] = False,
    prove: Annotated[
        bool,
        option("Also prove a lower bound on the loss of any levels, as many as these.", "--prove"),
    ] = False,
    seconds: Annotated[
        float | None, option("Time limit for --prove, in seconds; default: 60.")
    ] = None,
    proof: Annotated[
        Path | None,
        option("Write a proof of the claim (with --prove: of the bound) to this file (.json)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Design a mechanism for a privacy level: the optimal table, or a published family calibrated to epsilon."""
    common.refuse_outputs(".json", overwrite=overwrite, out=out, proof=proof)
    if seconds is not None and not prove:
        raise ParameterError("seconds", seconds, "this option needs --prove")
    own = Parameters(extension=extension, q=q, gamma=gamma, theta=theta, trials=trials)
    if categories is not None:
        common.refuse_given(own.given, "a table for categories does not take this option")
        own.check("categories", epsilon)
    else:
        own.check(family, epsilon)
    given = {
        "levels": levels,
        "prior": prior,
        "delta": delta,
        "alpha": alpha,
        "metric": metric,
        "knots": knots,
    }
    if categories is not None:
        assert epsilon is not None, "checked"
        given |= {"limit": limit, "prove": prove}
        common.refuse_given(given, "a table for categories does not take this option")
        how: Options = {"method": method, "other": other, "missing": missing}
        names = (
            [str(k) for k in range(int(categories))]
            if categories.isdecimal()
            else categories.split(",")
        )
        if len(names) < 2:
            raise ParameterError(
                "categories", categories, "need at least 2 categories, as in a,b,c or 3"
            )
        mechanism = mz.families.categorical(categories=names, epsilon=epsilon, **how)
        _save(mechanism, out, proof, overwrite=overwrite)
        _categories(mechanism, epsilon, out, as_json)
        return
    alone = {"method": method != "best" and method, "other": other, "missing": missing}
    common.refuse_given(alone, "this option needs --categories")
    if limit and (delta or alpha or metric or loss not in ("mse", "mae")):
        raise ParameterError(
            "limit", True, "limits are known only for pure epsilon and --loss mse or mae"
        )
    sample = common.read_prior(prior, lower, upper)
    constraint = {"delta": delta, "alpha": alpha, "metric": metric, "max_bias": max_bias}
    problem: Options = {
        "epsilon": epsilon,
        "lower": lower,
        "upper": upper,
        "loss": loss,
        "prior": sample,
    }
    problem |= {name: value for name, value in constraint.items() if value}
    problem |= {} if max_level is None else {"max_level": max_level}
    ways: Options = (
        {"prove": True, "seconds": 60.0 if seconds is None else seconds} if prove else {}
    )
    ways |= {} if knots is None else {"knots": knots}
    started, chosen = time.perf_counter(), None if levels is None else common.parse_levels(levels)
    if own.given:
        refused = {**constraint, "max_level": max_level, "knots": knots, "prove": prove}
        common.refuse_given(
            {name: value for name, value in refused.items() if value},
            "the family's own parameters decide",
        )
        result = own.design(
            family, lower=lower, upper=upper, levels=chosen, loss=loss, prior=sample
        )
        epsilon = result.mechanism.epsilon
        problem["epsilon"] = epsilon
    else:
        assert epsilon is not None, "checked"
        with _watched(family, chosen, prove=prove) as watch:
            result = make(family, levels=chosen, **problem, **ways, **watch)
    took = time.perf_counter() - started
    _save(
        result.mechanism,
        out,
        proof,
        delta=delta,
        overwrite=overwrite,
        bound=result.proof if prove else None,
    )
    facts = describe(family, result, loss=loss, prior=sample, seconds=took)
    facts |= {"epsilon_asked": epsilon, "out": None if out is None else str(out)}
    facts |= guarantee(result.mechanism, epsilon=epsilon, delta=delta, alpha=alpha, metric=metric)
    if limit:
        facts |= _limit(result, problem)
    if loss != "cdf" and not any(constraint.values()):
        facts["for_shares"] = common.table_for_shares(epsilon, lower, upper, bins=BINS)
    common.show(facts, as_json, lambda: _summary(facts))


def _save(
    mechanism: Mechanism,
    out: Path | None,
    proof: Path | None,
    *,
    delta: float = 0.0,
    overwrite: bool,
    bound: JsonObject | None = None,
) -> None:
    """Writes the table, and what checks its bound over all levels; without one the claim about a report of it."""
    if out is not None:
        mechanism.save(out, overwrite=overwrite)
    if proof is not None and bound is not None:
        with replacing(proof, overwrite=overwrite, parameter="proof") as temporary:
            Path(temporary).write_text(json.dumps(bound))
    elif proof is not None:
        common.write_proof(
            mz.privacy.Release(mechanism=mechanism, delta=delta), proof, overwrite=overwrite
        )


def _categories(mechanism: Mechanism, asked: float, out: Path | None, as_json: bool) -> None:
    """Prints a table for categories."""
    facts = {
        **common.picked(mechanism, "name", "epsilon", "categories", "bits", "sha256"),
        "epsilon_asked": asked,
        "reports": mechanism.levels.size,
        "frequency_variance": mz.families.frequency_variance(mechanism),
        "out": None if out is None else str(out),
        **guarantee(mechanism, epsilon=asked, delta=0.0, alpha=None, metric=None),
    }
    lines = [
        f"{facts['name']}: {common.bits(facts['bits'])}, {facts['guarantee']}",
        f"{facts['reports']} possible reports; sum of the variances of all frequencies: "
        f"{number(facts['frequency_variance'])} / n for n reports",
        *([f"written to {out}"] if out else []),
    ]
    common.show(facts, as_json, lambda: "\n".join(lines))


Levels: TypeAlias = "int | list[float] | None"
"""A number of levels, the levels themselves, or None for the family's usual number."""


@contextmanager
def _watched(family: str, levels: Levels, *, prove: bool = False) -> Iterator[JsonObject]:
    """Shows a spinner or a progress bar during a design; yields the progress callback where the design takes one."""
    searching = "searching bins" if family == "optm" and not isinstance(levels, list) else ""
    telling = "proving: boxes of levels ruled out" if prove else searching
    if telling:
        with common.progress(telling) as tell:
            yield {"progress": tell}
        return
    with common.busy(f"designing {family}"):
        yield {}


def _limit(result: mz.design.DesignResult, problem: Options) -> Options:
    if problem["loss"] == "mae":
        # The mean absolute error falls as levels move out: its limit is over levels no farther than these.
        table = result.mechanism
        reach = float(abs(table.levels - (table.lower + table.upper) / 2).max())
        problem = problem | {"max_level": max(reach, problem.get("max_level", reach))}
    with common.busy("bounding the loss at any number of bits"), warnings.catch_warnings():
        warnings.simplefilter("ignore", mz.design.UnboundedLevelsWarning)
        bound = mz.design.limit(**problem)
    return {"limit": bound.lower_bound, "above_limit": result.percent_above(bound)}


def make(family: str, *, levels: Levels, **problem: Any) -> mz.design.DesignResult:
    """The design of one of FAMILIES for a problem: epsilon, lower, upper, loss, prior, max_level as in `mz.design`."""
    if family not in FAMILIES:
        raise ParameterError("family", family, f"use one of {', '.join(FAMILIES)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = _make(family, levels, problem)
    for warning in caught:
        common.warn(str(warning.message))
    return result


def _make(family: str, levels: Levels, problem: Options) -> mz.design.DesignResult:
    if family == "optimal":
        return mz.design.optimal(levels=4 if levels is None else levels, **problem)
    problem = _without(
        problem,
        family,
        delta=None,
        alpha=None,
        metric=None,
        max_bias=None,
        prove=None,
        seconds=None,
    )
    if family in CLOSED_FORMS:
        return mz.design.calibrate(family, levels=levels, **problem)
    levels = 4 if levels is None else levels
    if family == "optm":
        size: Options = {"bins": levels} if isinstance(levels, list) else {"levels": levels}
        return mz.design.optm(
            **size, **_without(problem, "optm", loss="mae", max_level=None, knots=None)
        )
    fixed: dict[str, str | None] = {"loss": "mse", "max_level": None, "prior": None}
    if family == "imvu":
        return mz.design.imvu(levels=levels, **_without(problem, family, **fixed))
    return mz.design.mvu(levels=levels, **_without(problem, family, **fixed, knots=None))


def _without(problem: Options, family: str, **fixed: str | None) -> Options:
    """The problem without the options that the family fixes; refuses other values for these."""
    for name, value in fixed.items():
        asked = problem.get(name, value)
        if asked is not value and not (isinstance(asked, str) and asked == value):
            instead = f"; it minimises the {value}: --loss {value}" if value else ""
            raise ParameterError(name, asked, f"{family} does not take this option{instead}")
    return {name: value for name, value in problem.items() if name not in fixed}


def guarantee(
    mechanism: Mechanism, *, epsilon: float, delta: float, alpha: float | None, metric: str | None
) -> JsonObject:
    """The guarantee of a table's integers in the requested form of privacy: a sentence, its numbers rounded up."""
    claim, found = mz.privacy.report_claim(mechanism), {}
    certified = claim.certified
    if delta:
        found = {"delta": mechanism.delta(epsilon)}
        certified = mz.privacy.check_report(mechanism, "delta", epsilon=epsilon, **found)
        words = f"delta {found['delta']!r} at epsilon {epsilon!r}"
    elif alpha is not None:
        found = {"renyi": mechanism.renyi(alpha)}
        certified = mz.privacy.check_report(mechanism, "renyi", order=alpha, epsilon=found["renyi"])
        words = f"Renyi divergence of order {alpha!r}: {found['renyi']!r}"
    elif metric is not None:
        found, certified = {"metric_epsilon": mz.design.metric_epsilon(mechanism, metric)}, False
        unit = "|x - x'|" if metric == "absolute" else "|x - x'|**2, on the grid of the knots"
        words = f"epsilon {found['metric_epsilon']!r} per unit of {unit}"
    else:
        words = f"epsilon {above(mechanism.epsilon, 12)}"
    stated = mz.privacy.basis(claim.observer, certified=certified)
    return {**claim.standing, "certified": certified, "guarantee": f"{words} ({stated})", **found}


def describe(
    family: str, result: mz.design.DesignResult, *, loss: str, prior: object, seconds: float
) -> JsonObject:
    """The facts about a design, for JSON."""
    mechanism = result.mechanism
    return {
        "family": family,
        **common.picked(mechanism, "name", "epsilon"),
        "mse": mechanism.mse(prior),
        "mae": mechanism.mae(prior),
        **common.picked(mechanism, "max_bias", "levels", "bits"),
        "rows": mechanism.knots.size,
        "loss": loss,
        "value": result.loss,
        **common.picked(result, "lower_bound", "gap", "scope", "status"),
        "seconds": seconds,
        "sha256": mechanism.sha256,
    }


def _loss(loss: str, value: float) -> str:
    """A loss or a bound on it, with its name and unit; for cdf, the standard error instead of the variance."""
    if loss == "cdf":
        return (
            f"a standard error of {number(math.sqrt(value))} / sqrt(n) of the distribution function"
        )
    return f"{'a largest mse of' if loss == 'minimax' else loss} {number(value)}"


_REACHED = {
    "optimal": "solved to optimality",
    "feasible": "solved, gap not closed",
    "heuristic": "found by a search",
}
"""How a design was found, avoiding words that are names of mechanisms."""


def _summary(facts: JsonObject) -> str:
    bound = ""
    if facts["lower_bound"] is not None:
        bound = f"; lower bound for {facts['scope']} within the bias limit: {_loss(facts['loss'], facts['lower_bound'])}"
    if facts.get("limit") is not None:
        above = "" if facts["above_limit"] is None else f" ({facts['above_limit']:.3g} % above it)"
        bound += f"; for any number of bits: {_loss(facts['loss'], facts['limit'])}{above}"
    more = "" if facts["loss"] in ("mse", "mae") else f", {_loss(facts['loss'], facts['value'])}"
    levels = ", ".join(f"{level:.6g}" for level in facts["levels"][:16])
    written = f", written to {facts['out']}" if facts["out"] else ""
    lines = [
        f"{facts['name']}: {common.bits(facts['bits'])}, {facts['guarantee']}",
        f"mse {number(facts['mse'])} (squared data units), mae {number(facts['mae'])}{more}, "
        f"greatest bias {number(facts['max_bias'], 3)} (data units){bound}",
        f"levels {levels}{' ...' if len(facts['levels']) > 16 else ''}",
        f"{_REACHED.get(facts['status'], facts['status'])} in {facts['seconds']:.3g} s{written}",
    ]
    if "for_shares" in facts:
        lines.append(
            f"This table is designed for means. For shares and quantiles: {facts['for_shares']}"
        )
    return "\n".join(lines)
