"""`mezzotint design`."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

import mezzotint as mz
from mezzotint.cli.common import (
    AsJson,
    Lower,
    Options,
    Overwrite,
    PriorOption,
    Upper,
    bits,
    busy,
    number,
    parse_levels,
    progress,
    read_prior,
    refuse_given,
    refuse_outputs,
    show,
    table_for_shares,
    warn,
    write_proof,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above

EXAMPLE = "mezzotint design --epsilon 1 --levels=-3,-0.5,0.5,3 --lower -1 --upper 1 --loss mae --out m.json --json"

CLOSED_FORMS = ("rqm", "erm", "pbm", "randomized_response", "k_randomized_response")
FAMILIES = ("optimal", "optm", "mvu", "imvu", *CLOSED_FORMS)
BINS = 10
"""Of the histogram for which another table is named."""


def command(
    epsilon: Annotated[
        float,
        typer.Option(help="Pure epsilon of one report (what is meant changes with --delta, --alpha, --metric); kept."),
    ],
    levels: Annotated[
        str | None, typer.Option(help="Number of levels (4 if not given), or the levels: --levels=-3,-0.5,0.5,3.")
    ] = None,
    lower: Lower = -1.0,
    upper: Upper = 1.0,
    loss: Annotated[
        str, typer.Option(help="mse, mae, minimax (the largest mse) or cdf (of the distribution): what to make small.")
    ] = "mse",
    family: Annotated[str, typer.Option(help=f"One of {', '.join(FAMILIES)}.")] = "optimal",
    prior: PriorOption = None,
    delta: Annotated[float, typer.Option(help="optimal only: the design is (epsilon, delta), not pure.")] = 0.0,
    alpha: Annotated[
        float | None, typer.Option(help="optimal only: epsilon is the Renyi divergence of this order, > 1.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="optimal only: epsilon is per unit of |x - x'| (absolute) or of its square (squared)."),
    ] = None,
    max_bias: Annotated[
        float, typer.Option(help="optimal only: bias allowed, data units; inf for no constraint.")
    ] = 0.0,
    max_level: Annotated[
        float | None, typer.Option(help="Farthest level from the middle of the range, where levels are searched.")
    ] = None,
    knots: Annotated[
        int | None, typer.Option(help="Evenly spaced inputs that have a row of the table; the best ones if not given.")
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(help="A table for categories instead of numbers: their names (a,b,c), or how many (0 to K - 1)."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="--categories only: best, krr, subset, hadamard, projective, affine, hashing or unary.")
    ] = "best",
    other: Annotated[
        bool, typer.Option("--other", help="--categories only: one more category, for values not listed.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="--categories only: one more category, for missing values.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Mechanism file to write (.json).")] = None,
    overwrite: Overwrite = False,
    limit: Annotated[
        bool, typer.Option("--limit", help="Also say how far the loss is above the limit of any number of bits.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Also bound every mechanism with so many levels, wherever they are.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Seconds that --prove may take.")] = 60.0,
    proof: Annotated[
        Path | None,
        typer.Option(help="Write what checks the claim about a report here (.json), or with --prove its bound."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Design a mechanism for a privacy level: the best table there is, or a published family calibrated to epsilon."""
    refuse_outputs(overwrite=overwrite, out=out, proof=proof)
    given = {"levels": levels, "prior": prior, "delta": delta, "alpha": alpha, "metric": metric, "knots": knots}
    if categories is not None:
        refuse_given({**given, "limit": limit, "prove": prove}, "a table for categories has no such choice")
        mechanism = mz.families.categorical(
            categories=_names(categories), epsilon=epsilon, method=cast("Any", method), other=other, missing=missing
        )
        _save(mechanism, out, proof, delta=0.0, overwrite=overwrite)
        _categories(mechanism, epsilon, out, as_json)
        return
    refuse_given(
        {"method": method != "best" and method, "other": other, "missing": missing}, "it is for tables of --categories"
    )
    if limit and (delta or alpha or metric or loss not in ("mse", "mae")):
        raise ParameterError("limit", True, "limits are known for pure epsilon and --loss mse or mae only")
    sample = read_prior(prior, lower, upper)
    values = None if levels is None else parse_levels(levels)
    started = time.perf_counter()
    problem: Options = {"epsilon": epsilon, "lower": lower, "upper": upper, "loss": loss, "prior": sample}
    constraint = {"delta": delta, "alpha": alpha, "metric": metric, "max_bias": max_bias}
    problem |= {name: value for name, value in constraint.items() if value}
    problem |= {} if max_level is None else {"max_level": max_level}
    ways: Options = {"prove": True, "seconds": seconds} if prove else {}
    ways |= {} if knots is None else {"knots": knots}
    with _watched(family, values, prove=prove) as watch:
        result = make(family, levels=values, **problem, **ways, **watch)
    seconds = time.perf_counter() - started
    _save(result.mechanism, out, None if prove else proof, delta=delta, overwrite=overwrite)
    if proof is not None and prove:
        with replacing(proof, overwrite=overwrite, parameter="proof") as temporary:
            Path(temporary).write_text(json.dumps(result.proof))
    facts = describe(family, result, loss=loss, prior=sample, seconds=seconds)
    facts |= {"epsilon_asked": epsilon, "out": None if out is None else str(out)}
    facts |= guarantee(result.mechanism, epsilon=epsilon, delta=delta, alpha=alpha, metric=metric)
    if limit:
        facts |= _limit(result, problem)
    if loss != "cdf" and not any(constraint.values()):
        facts["for_shares"] = table_for_shares(epsilon, lower, upper, bins=BINS)
    show(facts, as_json, lambda: _summary(facts))


def _save(mechanism: Mechanism, out: Path | None, proof: Path | None, *, delta: float, overwrite: bool) -> None:
    """Writes the table, and the claim about a report of it with its proof."""
    if out is not None:
        mechanism.save(out, overwrite=overwrite)
    if proof is not None:
        write_proof(mz.privacy.Release(mechanism=mechanism, delta=delta), proof, overwrite=overwrite)


def _names(categories: str) -> list[str]:
    return [str(k) for k in range(int(categories))] if categories.isdecimal() else categories.split(",")


def _categories(mechanism: Mechanism, asked: float, out: Path | None, as_json: bool) -> None:
    """Describes a table for categories."""
    facts = {
        "name": mechanism.name,
        "epsilon": mechanism.epsilon,
        "epsilon_asked": asked,
        "categories": mechanism.categories,
        "reports": mechanism.levels.size,
        "bits": mechanism.bits,
        "frequency_variance": mz.families.frequency_variance(mechanism),
        "sha256": mechanism.sha256,
        "out": None if out is None else str(out),
        **guarantee(mechanism, epsilon=asked, delta=0.0, alpha=None, metric=None),
    }
    lines = [
        f"{facts['name']}: {bits(facts['bits'])}, {facts['guarantee']}",
        f"{facts['reports']} reports; n x the variances of all frequencies: {number(facts['frequency_variance'])}",
        *([f"written to {out}"] if out else []),
    ]
    show(facts, as_json, lambda: "\n".join(lines))


Levels: TypeAlias = "int | list[float] | None"
"""A number of levels, the levels themselves, or what the family has usually."""


@contextmanager
def _watched(family: str, levels: Levels, *, prove: bool = False) -> Iterator[JsonObject]:
    """Shows that a design is under way; yields what it needs to tell how far it is, where it can."""
    searching = "searching bins" if family == "optm" and not isinstance(levels, list) else ""
    telling = "proving: boxes of levels emptied" if prove else searching
    if telling:
        with progress(telling) as tell:
            yield {"progress": tell}
        return
    with busy(f"designing {family}"):
        yield {}


def _limit(result: mz.design.DesignResult, problem: Options) -> Options:
    if problem["loss"] == "mae":
        # The mean absolute error falls as levels move out: its limit is over levels no farther than these.
        table = result.mechanism
        reach = float(abs(table.levels - (table.lower + table.upper) / 2).max())
        problem = problem | {"max_level": max(reach, problem.get("max_level", reach))}
    with busy("bounding the loss at any number of bits"), warnings.catch_warnings():
        warnings.simplefilter("ignore", mz.design.UnboundedLevelsWarning)
        bound = mz.design.limit(**problem)
    return {"limit": bound.lower_bound, "above_limit": result.percent_above(bound)}


def make(family: str, *, levels: Levels, **problem: Any) -> mz.design.DesignResult:
    """The design of one family.

    Arguments:
        family: one of FAMILIES.
        levels: a number, the levels themselves, or None for the family's usual number.
        problem: epsilon, lower, upper, loss, prior, max_level as in `mezzotint.design`.

    Raises:
        ParameterError: a family that is none, and whatever the design refuses.
    """
    if family not in FAMILIES:
        raise ParameterError("family", family, f"use one of {', '.join(FAMILIES)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = _make(family, levels, problem)
    for warning in caught:
        warn(str(warning.message))
    return result


def _make(family: str, levels: Levels, problem: Options) -> mz.design.DesignResult:
    if family == "optimal":
        return mz.design.optimal(levels=4 if levels is None else levels, **problem)
    problem = _without(problem, family, delta=None, alpha=None, metric=None, max_bias=None, prove=None, seconds=None)
    if family in CLOSED_FORMS:
        return mz.design.calibrate(family, levels=levels, **problem)
    levels = 4 if levels is None else levels
    if family == "optm":
        size: Options = {"bins": levels} if isinstance(levels, list) else {"levels": levels}
        return mz.design.optm(**size, **_without(problem, "optm", loss="mae", max_level=None, knots=None))
    fixed: dict[str, str | None] = {"loss": "mse", "max_level": None, "prior": None} | (
        {"knots": None} if family == "mvu" else {}
    )
    known = _without(problem, family, **fixed)
    return (mz.design.mvu if family == "mvu" else mz.design.imvu)(levels=levels, **known)


def _without(problem: Options, family: str, **fixed: str | None) -> Options:
    """The problem less what the family does not let one choose; a choice of it all the same is refused."""
    for name, value in fixed.items():
        asked = problem.get(name, value)
        if asked is not value and not (isinstance(asked, str) and asked == value):
            remedy = f"{family} has no such choice" + (f", it minimises the {value}: --loss {value}" if value else "")
            raise ParameterError(name, asked, remedy)
    return {name: value for name, value in problem.items() if name not in fixed}


def guarantee(
    mechanism: Mechanism, *, epsilon: float, delta: float, alpha: float | None, metric: str | None
) -> JsonObject:
    """What the integers of a table guarantee of the kind that was asked for: a sentence, its numbers rounded up."""
    claim, found = mz.privacy.report_claim(mechanism), None
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
    return {**claim.standing, "certified": certified, "guarantee": f"{words} ({stated})", **(found or {})}


def describe(family: str, result: mz.design.DesignResult, *, loss: str, prior: object, seconds: float) -> JsonObject:
    """What a design is, for JSON."""
    mechanism = result.mechanism
    return {
        "family": family,
        "name": mechanism.name,
        "epsilon": mechanism.epsilon,
        "mse": mechanism.mse(prior),
        "mae": mechanism.mae(prior),
        "max_bias": mechanism.max_bias,
        "levels": mechanism.levels,
        "bits": mechanism.bits,
        "rows": mechanism.knots.size,
        "loss": loss,
        "value": result.loss,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "scope": result.scope,
        "status": result.status,
        "seconds": seconds,
        "sha256": mechanism.sha256,
    }


def _loss(loss: str, value: float) -> str:
    """A value of a loss, or a bound of it, under its name and in its unit; of a cdf the error, not the variance."""
    if loss == "cdf":
        return f"a standard error of {number(math.sqrt(value))} / sqrt(n) of the distribution function"
    return f"{'a largest mse of' if loss == 'minimax' else loss} {number(value)}"


_REACHED = {"optimal": "solved to optimality", "feasible": "solved, gap not closed", "heuristic": "found by a search"}
"""How a design was reached, in other words than the names of mechanisms."""


def _summary(facts: JsonObject) -> str:
    bound = ""
    if facts["lower_bound"] is not None:
        bound = f"; no mechanism of its class goes below {_loss(facts['loss'], facts['lower_bound'])}"
    if facts.get("limit") is not None:
        above = "" if facts["above_limit"] is None else f" ({facts['above_limit']:.3g} % above it)"
        bound += f"; at any number of bits, below {_loss(facts['loss'], facts['limit'])}{above}"
    more = "" if facts["loss"] in ("mse", "mae") else f", {_loss(facts['loss'], facts['value'])}"
    lines = [
        f"{facts['name']}: {bits(facts['bits'])}, {facts['guarantee']}",
        f"mse {number(facts['mse'])} (squared data units), mae {number(facts['mae'])}{more}, "
        f"greatest bias {number(facts['max_bias'], 3)} (data units){bound}",
        "levels "
        + ", ".join(f"{level:.6g}" for level in facts["levels"][:16])
        + (" ..." if len(facts["levels"]) > 16 else ""),
        f"{_REACHED.get(facts['status'], facts['status'])} in {facts['seconds']:.3g} s"
        + (f", written to {facts['out']}" if facts["out"] else ""),
    ]
    if "for_shares" in facts:
        lines.append(f"made for means; shares and quantiles: {facts['for_shares']}")
    return "\n".join(lines)
