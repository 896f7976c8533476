"""`mezzotint design`."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, final

import mezzotint as mz
from mezzotint.cli import common, console, messages, parameters, progress
from mezzotint.cli.common import Lower, PriorOption, Upper
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, counted, number

EXAMPLE = (
    "mezzotint design --epsilon 1 --levels=-3,-0.5,0.5,3 --lower -1 --upper 1 --loss mae --out "
    "m.json --json"
)

CLOSED_FORMS = ("rqm", "erm", "pbm", "randomized_response", "k_randomized_response")
FAMILIES = ("optimal", "optm", "mvu", "imvu", *CLOSED_FORMS)
BINS = 10
"""Bins of the histogram for which another table is suggested."""

PROOF_SECONDS = 60.0
"""Time limit for --prove where none is given."""

Family = Literal[
    "optimal", "optm", "mvu", "imvu", "rqm", "erm", "pbm", "randomized_response",
    "k_randomized_response",
]  # fmt: skip
Loss = Literal["mse", "mae", "minimax", "cdf"]
Metric = Literal["absolute", "squared"]
Coding = Literal["best", "krr", "subset", "hadamard", "projective", "affine"]

GUARANTEE, TABLE = "Guarantee and loss", "Table"
CATEGORIES, PROVEN = "Categories instead of numbers", "Lower bounds"


@final
@dataclass(frozen=True, kw_only=True)
class DesignOptions:
    """Options of the verb."""

    epsilon: Annotated[
        float | None,
        option("Epsilon of a report, never exceeded.", panel=GUARANTEE),
    ] = None
    delta: Annotated[float, option("optimal: an (epsilon, delta) guarantee.", panel=GUARANTEE)] = (
        0.0
    )
    alpha: Annotated[
        float | None,
        option("optimal: epsilon bounds Renyi divergence of this order.", panel=GUARANTEE),
    ] = None
    metric: Annotated[
        Metric | None,
        option("optimal: epsilon per |x - x'| or its square:", panel=GUARANTEE),
    ] = None
    lower: Lower = -1.0
    upper: Upper = 1.0
    loss: Annotated[Loss, option("Error to make small:", panel=GUARANTEE)] = "mse"
    prior: PriorOption = None
    max_bias: Annotated[
        float, option("optimal: largest bias, data units; inf: any.", panel=GUARANTEE)
    ] = 0.0
    levels: Annotated[
        str | None,
        option("Number of levels, by default 4, or --levels=-3,0,3.", panel=TABLE),
    ] = None
    max_level: Annotated[
        float | None, option("Largest distance of a level from the midpoint.", panel=TABLE)
    ] = None
    knots: Annotated[
        int | None, option("Evenly spaced knots; by default optimised.", panel=TABLE)
    ] = None
    family: Annotated[Family, option("Kind of table:", panel=TABLE)] = "optimal"
    extension: Annotated[
        float | None, option("rqm: reach of its levels beyond the range.", panel=TABLE)
    ] = None
    q: Annotated[float | None, option("rqm: chance that an inner level is kept.", panel=TABLE)] = (
        None
    )
    gamma: Annotated[float | None, option("erm: exponent of its probabilities.", panel=TABLE)] = (
        None
    )
    theta: Annotated[
        float | None, option("pbm: slope of the coin's bias, to 1/2.", panel=TABLE)
    ] = None
    trials: Annotated[int | None, option("pbm: number of tosses; one level more.", panel=TABLE)] = (
        None
    )
    categories: Annotated[
        str | None, option("Names a,b,c, or a number K: 0 to K - 1.", panel=CATEGORIES)
    ] = None
    method: Annotated[Coding, option("Coding of categories:", panel=CATEGORIES)] = "best"
    other: Annotated[
        bool, option("Add a category for values not listed.", "--other", panel=CATEGORIES)
    ] = False
    missing: Annotated[
        bool, option("Add a category for missing values.", "--missing", panel=CATEGORIES)
    ] = False
    prove: Annotated[
        bool, option("Prove a bound for any levels, as many as these.", "--prove", panel=PROVEN)
    ] = False
    seconds: Annotated[
        float | None, option("Time limit of --prove, by default 60.", panel=PROVEN)
    ] = None
    out: Annotated[Path | None, option("Mechanism file to write (.json).", panel=OUTPUT)] = None
    proof: Annotated[
        Path | None,
        option("Write a proof of the claim, with --prove of the bound (.json).", panel=OUTPUT),
    ] = None
    overwrite: Overwrite = False
    as_json: AsJson = False

    @property
    def parameters(self) -> dict[str, float]:
        """The family's own parameters that were given."""
        values = common.picked(self, *parameters.NAMES)
        return {name: value for name, value in values.items() if value is not None}

    @property
    def out_name(self) -> str | None:
        """The mechanism file, as --json prints it."""
        if self.out is None:
            return None
        return str(self.out)

    @property
    def constraint(self) -> dict[str, Any]:
        """What replaces pure epsilon and unbiasedness, where that was asked for."""
        constraint = {
            "delta": self.delta,
            "alpha": self.alpha,
            "metric": self.metric,
            "max_bias": self.max_bias,
        }
        return {name: value for name, value in constraint.items() if value}


def command(options: DesignOptions) -> None:
    """Design a mechanism for a privacy level: the optimal table, or a published family calibrated
    to epsilon.
    """
    common.refuse_outputs(
        ".json", overwrite=options.overwrite, out=options.out, proof=options.proof
    )
    if options.seconds is not None and not options.prove:
        raise ParameterError("seconds", options.seconds, "this option needs --prove")
    if options.categories is not None:
        _design_categories(options, options.categories)
    else:
        _design_table(options)


def _design_categories(options: DesignOptions, categories: str) -> None:
    """A table for categories."""
    remedy = "a table for categories does not take this option"
    common.refuse_given(options.parameters, remedy)
    parameters.check_parameters("categories", options.parameters, options.epsilon)
    numeric = {"levels": options.levels, "prior": options.prior, "knots": options.knots}
    numeric |= options.constraint
    numeric["prove"] = options.prove
    common.refuse_given(numeric, remedy)
    assert options.epsilon is not None, "checked with the parameters"
    names = categories.split(",")
    if categories.isdecimal():
        names = [str(index) for index in range(int(categories))]
    if len(names) < 2:
        raise ParameterError(
            "categories", categories, "need at least 2 categories, as in a,b,c or 3"
        )
    mechanism = mz.families.categorical(
        categories=names,
        epsilon=options.epsilon,
        method=options.method,
        other=options.other,
        missing=options.missing,
    )
    _save(mechanism, options)
    _show_categories(mechanism, options.epsilon, options)


def _design_table(options: DesignOptions) -> None:
    """A table for numbers: searched for, or of a family's own parameters."""
    _refuse_mixtures(options)
    sample = common.read_prior(options.prior, options.lower, options.upper)
    levels = None
    if options.levels is not None:
        levels = common.parse_levels(options.levels)
    problem: JsonObject = {
        "epsilon": options.epsilon,
        "lower": options.lower,
        "upper": options.upper,
        "loss": options.loss,
        "prior": sample,
        **options.constraint,
    }
    if options.max_level is not None:
        problem["max_level"] = options.max_level
    started = time.perf_counter()
    if options.parameters:
        result = parameters.parametrised(
            options.family,
            options.parameters,
            levels,
            loss=options.loss,
            prior=sample,
            lower=options.lower,
            upper=options.upper,
        )
        problem["epsilon"] = result.mechanism.epsilon
    else:
        search: JsonObject = {}
        if options.knots is not None:
            search["knots"] = options.knots
        if options.prove:
            search |= {"prove": True, "seconds": PROOF_SECONDS}
            if options.seconds is not None:
                search["seconds"] = options.seconds
        with _watched(options.family, levels, prove=options.prove) as watch:
            result = make(options.family, levels=levels, **problem, **search, **watch)
    seconds = time.perf_counter() - started
    bound = None
    if options.prove:
        bound = result.proof
    _save(result.mechanism, options, bound=bound)
    json_fields = describe(options.family, result, loss=options.loss, prior=sample, seconds=seconds)
    json_fields |= _guaranteed(result, problem, options)
    console.show(json_fields, options.as_json, lambda: _summary(json_fields))


def _refuse_mixtures(options: DesignOptions) -> None:
    """Refuse options that go with categories, with a search, or with pure epsilon alone."""
    parameters.check_parameters(options.family, options.parameters, options.epsilon)
    of_categories = {
        "method": options.method != "best" and options.method,
        "other": options.other,
        "missing": options.missing,
    }
    common.refuse_given(of_categories, "this option needs --categories")
    if options.parameters:
        of_a_search = {**options.constraint, "max_level": options.max_level, "knots": options.knots}
        of_a_search |= {"prove": options.prove}
        common.refuse_given(of_a_search, "the family's own parameters decide")


def _guaranteed(
    result: mz.design.DesignResult, problem: JsonObject, options: DesignOptions
) -> JsonObject:
    """What the integers of the table guarantee, its limit where asked for, and a table
    for shares.
    """
    epsilon = problem["epsilon"]
    json_fields: JsonObject = {"epsilon_asked": epsilon, "out": options.out_name}
    json_fields |= guarantee(
        result.mechanism,
        epsilon=epsilon,
        delta=options.delta,
        alpha=options.alpha,
        metric=options.metric,
    )
    if options.loss != "cdf" and not options.constraint:
        json_fields["for_shares"] = common.table_for_shares(
            epsilon, options.lower, options.upper, bins=BINS
        )
    return json_fields


def _save(mechanism: Mechanism, options: DesignOptions, *, bound: JsonObject | None = None) -> None:
    """Writes the table, and what checks its bound over all levels; without one the claim about a
    report of it.
    """
    overwrite, proof = options.overwrite, options.proof
    if options.out is not None:
        mechanism.save(options.out, overwrite=overwrite)
    if proof is None:
        return
    if bound is not None:
        with replacing(proof, overwrite=overwrite, parameter="proof") as temporary:
            Path(temporary).write_text(json.dumps(bound))
    else:
        release = mz.privacy.Release(mechanism=mechanism, delta=options.delta)
        common.write_proof(release, proof, overwrite=overwrite)


def _show_categories(mechanism: Mechanism, epsilon: float, options: DesignOptions) -> None:
    """Prints a table for categories."""
    json_fields = {
        **common.picked(mechanism, "name", "epsilon", "categories", "bits", "sha256"),
        "epsilon_asked": epsilon,
        "reports": mechanism.levels.size,
        "frequency_variance": mz.families.frequency_variance(mechanism),
        "out": options.out_name,
        **guarantee(mechanism, epsilon=epsilon, delta=0.0, alpha=None, metric=None),
    }
    sentences = [
        f"{json_fields['name']}: {counted(json_fields['bits'], 'bit')}, {json_fields['guarantee']}",
        f"{json_fields['reports']} possible reports; sum of the variances of all frequencies: "
        f"{number(json_fields['frequency_variance'])} / n for n reports",
    ]
    if options.out is not None:
        sentences.append(f"written to {options.out}")
    console.show(json_fields, options.as_json, lambda: "\n".join(sentences))


Levels: TypeAlias = "int | list[float] | None"
"""A number of levels, the levels themselves, or None for the family's usual number."""


@contextmanager
def _watched(family: str, levels: Levels, *, prove: bool = False) -> Iterator[JsonObject]:
    """Shows a spinner or a progress bar during a design; yields the progress callback where the
    design takes one.
    """
    countable_work = ""
    if prove:
        countable_work = "proving: boxes of levels ruled out"
    elif family == "optm" and not isinstance(levels, list):
        countable_work = "searching bins"
    if countable_work:
        with progress.bar(countable_work) as report_progress:
            yield {"progress": report_progress}
        return
    with progress.busy(f"designing {family}"):
        yield {}


def make(family: str, *, levels: Levels, **problem: Any) -> mz.design.DesignResult:
    """The design of one of FAMILIES for a problem: epsilon, lower, upper, loss, prior, max_level as
    in `mz.design`.
    """
    if family not in FAMILIES:
        raise ParameterError("family", family, f"use one of {', '.join(FAMILIES)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = _make(family, levels, problem)
    for warning in caught:
        console.warn(messages.in_words_of(str(warning.message), None))
    return result


IMPURE = dict.fromkeys(("delta", "alpha", "metric", "max_bias", "prove", "seconds"))
FIXED: dict[str, dict[str, str | None]] = {
    "optm": {"loss": "mae", "max_level": None, "knots": None},
    "mvu": {"loss": "mse", "max_level": None, "prior": None, "knots": None},
    "imvu": {"loss": "mse", "max_level": None, "prior": None},
}
"""Options that every family but the optimal one fixes, those that one of them does, and to what."""


def _make(family: str, levels: Levels, problem: JsonObject) -> mz.design.DesignResult:
    number_or_levels = 4 if levels is None else levels
    if family == "optimal":
        return mz.design.optimal(levels=number_or_levels, **problem)
    problem = _without(problem, family, IMPURE | FIXED.get(family, {}))
    if family in CLOSED_FORMS:
        return mz.design.calibrate(family, levels=levels, **problem)
    if family == "imvu":
        return mz.design.imvu(levels=number_or_levels, **problem)
    if family == "mvu":
        return mz.design.mvu(levels=number_or_levels, **problem)
    if isinstance(number_or_levels, list):
        return mz.design.optm(bins=number_or_levels, **problem)
    return mz.design.optm(levels=number_or_levels, **problem)


def _without(problem: JsonObject, family: str, fixed: Mapping[str, str | None]) -> JsonObject:
    """The problem without the options that the family fixes; refuses other values for these."""
    for name, value in fixed.items():
        requested = problem.get(name, value)
        if requested is not value and not (isinstance(requested, str) and requested == value):
            instead = ""
            if value:
                instead = f"; it minimises the {value}: --loss {value}"
            raise ParameterError(name, requested, f"{family} does not take this option{instead}")
    return {name: value for name, value in problem.items() if name not in fixed}


def guarantee(
    mechanism: Mechanism, *, epsilon: float, delta: float, alpha: float | None, metric: str | None
) -> JsonObject:
    """The guarantee of a table's integers in the requested form of privacy: a sentence, its numbers
    rounded up.
    """
    claim = mz.privacy.report_claim(mechanism)
    measures: dict[str, float] = {}
    certified = claim.certified
    if delta:
        measures = {"delta": mechanism.delta(epsilon)}
        certified = mz.privacy.check_report(mechanism, "delta", epsilon=epsilon, **measures)
        sentence = f"delta {measures['delta']!r} at epsilon {epsilon!r}"
    elif alpha is not None:
        divergence = mechanism.renyi(alpha)
        measures = {"renyi": divergence}
        certified = mz.privacy.check_report(mechanism, "renyi", order=alpha, epsilon=divergence)
        sentence = f"Renyi divergence of order {alpha!r}: {divergence!r}"
    elif metric is not None:
        metric_epsilon = mz.design.metric_epsilon(mechanism, metric)
        measures = {"metric_epsilon": metric_epsilon}
        certified = False
        unit = "|x - x'|**2, on the grid of the knots"
        if metric == "absolute":
            unit = "|x - x'|"
        sentence = f"epsilon {metric_epsilon!r} per unit of {unit}"
    else:
        sentence = f"epsilon {above(mechanism.epsilon, 12)}"
    stated = mz.privacy.basis(claim.observer, certified=certified)
    return {
        **claim.standing,
        "certified": certified,
        "guarantee": f"{sentence} ({stated})",
        **measures,
    }


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
    """A loss or a bound on it, with its name and unit; for cdf, the standard error instead of the
    variance.
    """
    if loss == "cdf":
        error = number(math.sqrt(value))
        return f"a standard error of {error} / sqrt(n) of the distribution function"
    if loss == "minimax":
        return f"a largest mse of {number(value)}"
    return f"{loss} {number(value)}"


_REACHED = {
    "optimal": "solved to optimality",
    "feasible": "solved, gap not closed",
    "heuristic": "found by a search",
}
"""How a design was found, avoiding words that are names of mechanisms."""


SHOWN_LEVELS = 16
"""Levels that are printed; of more, the first so many."""


def _summary(json_fields: JsonObject) -> str:
    errors = (
        f"mse {number(json_fields['mse'])} (squared data units), mae {number(json_fields['mae'])}"
    )
    if json_fields["loss"] not in ("mse", "mae"):
        errors += f", {_loss(json_fields['loss'], json_fields['value'])}"
    errors += (
        f", greatest bias {number(json_fields['max_bias'], 3)} (data units){_bounds(json_fields)}"
    )
    levels = ", ".join(f"{level:.6g}" for level in json_fields["levels"][:SHOWN_LEVELS])
    if len(json_fields["levels"]) > SHOWN_LEVELS:
        levels += " ..."
    reached = (
        f"{_REACHED.get(json_fields['status'], json_fields['status'])} in "
        f"{json_fields['seconds']:.3g} s"
    )
    if json_fields["out"]:
        reached += f", written to {json_fields['out']}"
    sentences = [
        f"{json_fields['name']}: {counted(json_fields['bits'], 'bit')}, {json_fields['guarantee']}",
        errors,
        f"levels {levels}",
        reached,
    ]
    if "for_shares" in json_fields:
        sentences.append(
            "This table is designed for means. For shares and quantiles: "
            f"{json_fields['for_shares']}"
        )
    return "\n".join(sentences)


def _bounds(json_fields: JsonObject) -> str:
    """Lower bounds on the loss, as far as they are known."""
    sentence = ""
    if json_fields["lower_bound"] is not None:
        bound = _loss(json_fields["loss"], json_fields["lower_bound"])
        sentence += f"; lower bound for {json_fields['scope']} within the bias limit: {bound}"
    return sentence
