"""Every premise of the kernel, violated: one by one, where it is checked.

`PREMISES` is the table of docs/proofs/kernel.md: what is required and the function that requires it; and the words
of its refusal, and a call that violates it and nothing else before. Needs the kernel alone:

    python premises.py NAME         exit status 0 if the violation is refused in these words, else 1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint

from mezzotint import kernel
from mezzotint.kernel import (
    dual,
    gaussian,
    losses,
    measures,
    one,
    real,
    smoothed,
    sums,
    table,
    units,
)
from mezzotint.kernel.claim import Target
from mezzotint.kernel.units import ONE, TOTAL, WHOLE, Fields, canonical, set_deadline, sha256

Table = table.Table
HALF = Fraction(1, 2)


def claim(release: Any, epsilon: object, delta: object = "0", order: str | None = None) -> Any:
    """An (epsilon, delta) statement; a Renyi one when `order` is given."""
    statement = {"kind": "dp", "epsilon": str(epsilon), "delta": str(delta)}
    if order is not None:
        statement = {"kind": "renyi", "epsilon": str(epsilon), "order": order}
    return kernel.ExactClaim(release=release, statement=statement)


def sealed(stated: Any, kind: str, *, tables: Any = (), **content: Any) -> dict[str, Any]:
    """A proof that names its claim."""
    head = {"kind": kind, "version": 1, "claim_sha256": stated.sha256, "precision": 256}
    return {**head, "tables": list(tables), **content}


def _text(*rows: list[int]) -> str:
    knots, levels = list(range(len(rows))), list(range(len(rows[0])))
    return canonical({"knots": knots, "levels": levels, "weights": list(rows)})


QUARTER = TOTAL // 4
RESPONSE = _text([3 * QUARTER, QUARTER], [QUARTER, 3 * QUARTER])
COIN = _text([2 * QUARTER, 2 * QUARTER], [2 * QUARTER, 2 * QUARTER])
CERTAIN = _text([TOTAL, 0], [2 * QUARTER, 2 * QUARTER])
ADDITIVE = _text([2 * QUARTER, 2 * QUARTER, 0], [0, 2 * QUARTER, 2 * QUARTER])
FLOOR = {"rows": [0, 1], "block": 1, "components": []}
GRID = {"low": -30, "high": 30}
LOSSES: dict[str, Any] = {"step": "1/10", "tail": 160, "grids": [GRID]}


def _release(*texts: str, **more: Any) -> Any:
    tables = tuple((sha256(text), 1) for text in texts)
    return kernel.ExactRelease(**{"observer": "reports", "tables": tables, **more})


def _sum(text: str = ADDITIVE, **more: Any) -> Any:
    return _release(text, **{"observer": "secure_sum", "clients": 3, "lattice": (0, 1, 2), **more})


def _model(**more: Any) -> Any:
    return kernel.ExactRelease(observer="model", noise_multiplier=Fraction(1), **more)


def _run(
    kind: str, release: Any, texts: Any = (RESPONSE,), epsilon: str = "0", delta: str = "0",
    order: str | None = None, **proof: Any,
) -> Any:  # fmt: skip
    """Check a claim about the release with a proof of this kind."""
    stated = claim(release, epsilon, delta)
    if order is not None and delta == "renyi":
        stated = claim(release, epsilon, order=order)
    if order is not None:
        proof = {"order": order, **proof}
    return kernel.check(stated, sealed(stated, kind, tables=list(texts), **proof))


def _proof_of_sum(**change: Any) -> dict[str, Any]:
    base = {"tail": 160, "blankets": [FLOOR], "others": 2, "cases": {"corners": [[]]}}
    return base | change


def _cases(node: dict[str, Any], count: int = 2, blankets: Any = None, depth: int = 0) -> list[Any]:
    both, first, second = (sums._Blanket(frozenset(rows), 1, []) for rows in ([0, 1], [0], [1]))
    return list(
        sums._cases(Fields(node, "cases"), {0: count}, blankets or [both, first, second], depth)
    )


def _division(**change: Any) -> dict[str, Any]:
    leaf = {"corners": [[]]}
    base = {"group": 0, "first": 1, "second": 2, "cuts": [0, 1, 3], "children": [leaf, dict(leaf)]}
    return base | change


def _steps(node: dict[str, Any], chance: Fraction = HALF, parts: int = 1) -> list[Any]:
    part = sums._Part(0, 2, chance, measures.SILENCE)
    return list(sums._steps(Fields(node, "box"), [part] * parts, WHOLE, measures.SILENCE))


def _blanket(**change: Any) -> Any:
    base = {"rows": [0, 1], "block": 1, "components": []} | change
    return sums._read_blanket(Fields(base, "blanket"), Table([[TOTAL, 0], [0, TOTAL]]), 0)


def _component(**change: Any) -> Any:
    base = {"shape": [1], "places": [[0, 0], [0, 0]]} | change
    return sums._read_component(Fields(base, "component"), 2)


def _cut(**change: Any) -> Any:
    base = {"edges": [-4, 0, 4], "roots": [[-2, 2], [-2, 2]], "ends": [[0, 0], [0, 0]]} | change
    return dual._read_cut(Fields(base, "cut"), flint.fmpq(1, 4), flint.fmpq(3))


def _dual(release: Any = None, axis: Any = (-8, 8), **change: Any) -> Any:
    statement = {"kind": "lower_bound", "loss": "mse", "prior": "uniform", "levels": 2}
    statement |= {"epsilon": "1", "value": "1/4"} | change
    stated = kernel.ExactClaim(release=release, statement=statement)
    cut = {"edges": [-4, 4], "roots": [[-8, 8]], "ends": [[0, 0], [0, 0]]}
    return kernel.check(stated, sealed(stated, "dual", scale=2, axis=list(axis), cuts=[cut]))


def _profile(release: Any = None, **change: Any) -> Any:
    statement = {"kind": "profile", "first": 3, "second": 4, "sampled": 4, "epsilon": "1/10"}
    statement |= {"log10_delta": "-9"} | change
    stated = kernel.ExactClaim(release=release, statement=statement)
    return kernel.check(stated, sealed(stated, "profile"))


def _ranks(**change: Any) -> Any:
    return one.ranks_ratio({"M": 4, "k": 1, "T": 100, "w_hi": 25, "w_lo": 25, "r": 0} | change)


def _grid(low: int = 0, high: int = 1, step: Fraction = HALF) -> Any:
    return measures.Grid.read(Fields({"low": low, "high": high}, "grid"), step)


def _measure(*masses: int, start: int = 0, step: Fraction = Fraction(1)) -> measures.Measure:
    return measures.Measure(flint.fmpz_poly(list(masses)), start, 0, step)


def _curve(release: Any) -> list[losses.Curve]:
    return losses.sampled_curves(release, losses.Curve(lambda n, d: WHOLE))


def _target(release: Any = None, epsilon: Fraction = HALF, delta: Fraction = HALF) -> Target:
    return Target(release or _release(RESPONSE), epsilon, delta, None)


def _contraction(
    low: Fraction, high: Fraction, kappa: str = "1", reach: int = 8, depth: int = 30
) -> Any:
    return gaussian.check_contraction(low, high, Fraction(kappa), Fraction(reach), depth)


GAUSSIAN: dict[str, Any] = {
    "kappa": "1", "step": "1/8", "tail": 160, "sampled": {"low": -40, "high": 80},
}  # fmt: skip


def _gaussian(release: Any, **change: Any) -> Any:
    return _run("gaussian", release, (), "1", "1", **GAUSSIAN | change)


@dataclass(frozen=True)
class Premise:
    """A row of the table."""

    words: str
    function: str
    why: str
    violate: Callable[[], Any]

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.function} {self.why}".lower()).strip("-")


def _p(function: str, why: str, words: str, violate: Callable[[], Any]) -> Premise:
    return Premise(words, function, why, violate)


SURE = Table([[TOTAL]])
CURVE = losses.Curve(lambda n, d: WHOLE)
LINE = flint.fmpq_poly([0, 1])
EMPTY = measures.Grid(0, [ONE], Fraction(1))

PREMISES: list[Premise] = [
    _p(
        "checker._certified",
        "it was written for another claim",
        "the proof names the hash of the claim",
        lambda: kernel.check(
            claim(_release(COIN), "0"), sealed(claim(_release(COIN), "1"), "ratio", tables=[COIN])
        ),
    ),
    _p(
        "claim.Target.__post_init__",
        "epsilon is out of range",
        r"$0 \le \varepsilon \le 10^6$",
        lambda: _target(epsilon=Fraction(-1)),
    ),
    _p(
        "claim.Target.__post_init__",
        "delta is negative",
        r"$\delta \ge 0$",
        lambda: _target(delta=Fraction(-1)),
    ),
    _p(
        "claim.Target.read",
        "this proof is about ...",
        "the kind of proof is about the kind of release",
        lambda: _run("ratio", _model(), ()),
    ),
    _p(
        "claim.ExactRelease.only_table",
        "this proof is about one table",
        "one table",
        lambda: _release(COIN, RESPONSE).only_table,
    ),
    # One report, Renyi divergences, ranks.
    _p(
        "one.ranks_ratio",
        "null is not a pair of weights, the lesser one first",
        r"the null output's weights are a pair $n \le N$",
        lambda: _ranks(T=120, null=[20, 19]),
    ),
    _p(
        "one.ranks_ratio",
        "the weights do not sum",
        "the weights of ranked codewords, and n, sum to T",
        lambda: _ranks(T=101),
    ),
    _p(
        "one.ranks_ratio",
        "w_hi is below a weight of the other ranks",
        "$w_{hi}$ is the largest weight",
        lambda: _ranks(T=101, r=1),
    ),
    _p(
        "one.ranks_ratio",
        "the weights of the null row do not sum",
        "$M w_{lo} + N = T$",
        lambda: _ranks(T=120, null=[20, 21]),
    ),
    _p(
        "one.check_ratio",
        "nothing is proved here about secret participation in sums",
        "sampling in secret is of reports",
        lambda: _run(
            "ratio", _sum(COIN, lattice=(0, 1), sampling="poisson", rate=HALF), (COIN,), "9"
        ),
    ),
    _p(
        "one.check_ratio",
        "epsilon is too small",
        r"the sum of log ratios is at most $\varepsilon$",
        lambda: _run("ratio", _release(RESPONSE), epsilon="1"),
    ),
    _p(
        "one._log_above",
        "a divergence could not be enclosed",
        "the ball of a power sum is positive",
        lambda: one._log_above(flint.arb("0 +/- 1")),
    ),
    _p(
        "one._table_cost",
        "the order must be above 1",
        "a > 1",
        lambda: one._table_cost(Table([[TOTAL]]), Fraction(1)),
    ),
    _p(
        "one._table_cost",
        "_IMPOSSIBLE",
        "Q > 0 where P > 0",
        lambda: _run("renyi", _release(CERTAIN), (CERTAIN,), "9", "1/2", order="2"),
    ),
    _p(
        "one.check_renyi",
        "the proof is about another order",
        "the order is the statement's",
        lambda: kernel.check(
            said := claim(_release(RESPONSE), "9", order="3"),
            sealed(said, "renyi", tables=[RESPONSE], order="2"),
        ),
    ),
    _p(
        "one.check_renyi",
        "this proof is not about secret participation",
        "no sampling in secret",
        lambda: _run(
            "renyi",
            _release(RESPONSE, sampling="poisson", rate=HALF),
            epsilon="9",
            delta="1/2",
            order="2",
        ),
    ),
    _p(
        "one.check_renyi",
        "epsilon is too small",
        r"the sum of divergences is at most $\varepsilon$",
        lambda: kernel.check(
            said := claim(_release(RESPONSE), "0.1", order="2"),
            sealed(said, "renyi", tables=[RESPONSE], order="2"),
        ),
    ),
    _p(
        "one.check_renyi",
        "a Renyi divergence says nothing at delta = 0",
        r"$\delta > 0$",
        lambda: _run("renyi", _release(RESPONSE), epsilon="9", order="2"),
    ),
    _p(
        "one.check_renyi",
        "delta is too small at this epsilon",
        r"the bound of Canonne et al. is at most $\log \delta$",
        lambda: _run("renyi", _release(RESPONSE), delta="1/1000", order="2"),
    ),
    # Losses and curves.
    _p(
        "measures.Measure.__post_init__",
        "a mass is negative",
        "masses are at least 0",
        lambda: _measure(-1, 2),
    ),
    _p(
        "measures.Measure.__post_init__",
        "masses sum to more than 1",
        "masses sum to 1 at most",
        lambda: _measure(WHOLE, 1),
    ),
    _p(
        "measures.Measure.__mul__",
        "losses on two grids",
        "factors of a product have one step",
        lambda: _measure(WHOLE) * _measure(WHOLE, step=HALF),
    ),
    _p(
        "measures.product_of_powers",
        "a number of copies is negative",
        "numbers of copies are at least 0",
        lambda: measures.product_of_powers([_measure(WHOLE)], [-1]),
    ),
    _p(
        "measures.Grid.__post_init__",
        "the points do not increase",
        "points are positive and increase",
        lambda: measures.Grid(0, [ONE, ONE], HALF),
    ),
    _p(
        "measures.Grid.read",
        "the step is too small",
        "the step is at least $2^{-30}$",
        lambda: _grid(step=Fraction(1, 2**31)),
    ),
    _p(
        "measures.Grid.read",
        "losses outside [..., ...]",
        "losses in [-100, 100000]",
        lambda: _grid(-101, -100, Fraction(1)),
    ),
    _p(
        "measures.divergences",
        "epsilon is negative",
        r"$c \ge 1$, where no identity pair counts",
        lambda: measures.divergences(SURE, measures.SILENT, 2**64 - 1, None),
    ),
    _p(
        "measures.divergences",
        "a weight is negative",
        "weights are at least 0",
        lambda: measures.divergences(
            SURE, [(-1, measures.SILENCE), (WHOLE + 1, measures.SILENCE)], 2**64, None
        ),
    ),
    _p(
        "measures.divergences",
        "the weights do not sum to 1",
        "weights of noise sum to 1 at least",
        lambda: measures.divergences(SURE, [(WHOLE - 1, measures.SILENCE)], 2**64, None),
    ),
    _p(
        "measures.measure_of",
        "a divergence is negative",
        "values are at least 0",
        lambda: measures.measure_of(EMPTY, [-1], 0),
    ),
    _p(
        "measures.measure_of",
        "values lie below the curve of equal rows",
        "values lie above (1 - c)+",
        lambda: measures.measure_of(measures.Grid(0, [ONE // 2], HALF), [WHOLE // 3], 0),
    ),
    _p("measures.Curve.__call__", "c is not positive", "c > 0", lambda: CURVE(0, 1)),
    _p(
        "measures.Curve.__call__",
        "a value lies below the curve of equal rows",
        "values lie above (1 - c)+",
        lambda: losses.Curve(lambda n, d: 0)(1, 2),
    ),
    _p(
        "measures.curve_of",
        "it does not tell the losses apart",
        "floors and ceilings of $e^s$ do not fall",
        lambda: _at(
            8, lambda: measures.curve_of(_measure(WHOLE // 2, WHOLE // 2, step=Fraction(1, 10**4)))
        ),
    ),
    _p(
        "losses.sampled_curves",
        "the rate is not a probability above 0",
        r"$0 < r \le 1$",
        lambda: _curve(_release(RESPONSE, sampling="poisson", rate=Fraction(2))),
    ),
    _p(
        "losses.sampled_curves",
        "nothing is proved about this sampling",
        "sampling is none, public or poisson",
        lambda: _curve(_release(RESPONSE, sampling="fixed", rate=HALF)),
    ),
    _p(
        "losses.sampled_curves",
        "unknown relation",
        "a neighbour has one replaced, or added or removed",
        lambda: _curve(_release(RESPONSE, sampling="poisson", rate=HALF, neighboring="other")),
    ),
    _p(
        "losses.check_delta_of",
        "the step is not positive",
        "step > 0",
        lambda: losses.check_delta_of(_measure(1, step=Fraction(-1)), _target()),
    ),
    _p(
        "losses.check_delta_of",
        "delta is too small at this epsilon",
        r"the curve at $e^{\varepsilon}$ is at most $\delta$",
        lambda: _run("losses", _release(RESPONSE, rounds=2), delta="1/10", **LOSSES),
    ),
    _p(
        "losses.check_curves",
        "there is none",
        "a round has a curve",
        lambda: losses.check_curves(_target(), Fields({"sampled": GRID}, "proof"), [], HALF, 0),
    ),
    _p(
        "losses.check_cases",
        "there is none",
        "at least one case",
        lambda: losses.check_cases(_target(), Fields({}, "proof"), 0, []),
    ),
    _p(
        "losses.check_cases",
        "delta is too small at this epsilon",
        r"the divergence is at most $\delta$",
        lambda: _run("delta", _release(RESPONSE), delta="1/4"),
    ),
    _p(
        "losses.check_losses",
        "not one grid per table",
        "one grid per table",
        lambda: _run("losses", _release(RESPONSE), delta="1", **LOSSES | {"grids": []}),
    ),
    # Secure sums.
    _p(
        "sums._Component.__post_init__",
        "a chance is no probability",
        r"$0 \le g \le 1$",
        lambda: sums._Component(Fraction(3, 2), measures.SILENCE),
    ),
    _p(
        "sums._read_component",
        "a shape has no mass",
        "a shape has mass",
        lambda: _component(shape=[0]),
    ),
    _p(
        "sums._read_component",
        "a group's rows are not all served",
        "places for every combination of rows",
        lambda: _component(places=[[0]]),
    ),
    _p(
        "sums._read_component",
        "rows give a component unequal masses",
        "every combination draws a component equally often",
        lambda: _component(places=[[0, 1], [0, 2]]),
    ),
    _p(
        "sums._read_blanket",
        "a group has no such rows",
        "rows of the group are there",
        lambda: _blanket(rows=[2]),
    ),
    _p(
        "sums._read_blanket",
        "a block has too many combinations of rows",
        "at most $10^4$ combinations",
        lambda: _blanket(rows=[0] * 5000, block=2),
    ),
    _p(
        "sums._require_fit",
        "a row holds less than its blanket takes",
        r"$\sum w \psi \le P$, entry by entry",
        lambda: sums._require_fit([[TOTAL, 0]], [([1, 1], [2])]),
    ),
    _p(
        "sums._cases",
        "cases are nested too deeply",
        "at most 200 divisions",
        lambda: _cases({"corners": [[]]}, depth=201),
    ),
    _p(
        "sums._cases",
        "a row of the divided group is in neither part",
        "the parts' rows include the group's",
        lambda: _cases(_division(second=1)),
    ),
    _p(
        "sums._cases",
        "the parts do not begin at 0",
        "cuts begin at 0",
        lambda: _cases(_division(cuts=[1, 2, 3])),
    ),
    _p(
        "sums._cases",
        "the parts do not hold all counts",
        "cuts end at the count + 1",
        lambda: _cases(_division(cuts=[0, 1, 2])),
    ),
    _p(
        "sums._cases", "a part is empty", "cuts increase", lambda: _cases(_division(cuts=[0, 3, 3]))
    ),
    _p(
        "sums.binomial_below",
        "a number of trials is negative",
        r"$n \ge 0$",
        lambda: sums.binomial_below(-1, HALF, 0),
    ),
    _p(
        "sums.binomial_below",
        "a chance is no probability",
        r"$0 \le g \le 1$",
        lambda: sums.binomial_below(1, Fraction(2), 0),
    ),
    _p(
        "sums._steps",
        "nothing to divide, or too much",
        "1 to 200 components to divide",
        lambda: _steps({"edges": [0], "children": [{"corners": [[]]}]}, parts=0),
    ),
    _p(
        "sums._steps",
        "the counts are not from 0 on",
        "boxes begin at 0",
        lambda: _steps({"edges": [1], "children": [{"corners": [[]]}]}),
    ),
    _p(
        "sums._steps",
        "not one part per edge",
        "a part for every box",
        lambda: _steps({"edges": [0, 1], "children": [{"corners": [[]]}]}),
    ),
    _p(
        "sums._steps",
        "a component that is drawn for sure is not divided",
        "$g_1 < 1$",
        lambda: _steps({"edges": [0], "children": [{"corners": [[]]}]}, chance=Fraction(1)),
    ),
    _p(
        "sums._steps",
        "a part is empty",
        "edges increase",
        lambda: _steps({"edges": [0, 0], "children": [{"corners": [[]]}] * 2}),
    ),
    _p(
        "sums._ladder",
        "a corner has too few counts",
        "a corner has a count for every component",
        lambda: _steps({"corners": [[]]}),
    ),
    _p(
        "sums._ladder",
        "corners do not fall",
        "corners fall in every component",
        lambda: _steps({"corners": [[1], [2]]}),
    ),
    _p(
        "sums._noises",
        "the first group is not all rows",
        "the root holds all data",
        lambda: _run(
            "sum", _sum(), (ADDITIVE,), delta="1", **_proof_of_sum(blankets=[FLOOR | {"rows": [0]}])
        ),
    ),
    _p(
        "sums.check_sum",
        "nothing is proved here about secret participation",
        "no sampling in secret",
        lambda: _run(
            "sum",
            _sum(sampling="poisson", rate=HALF),
            (ADDITIVE,),
            delta="1",
            **_proof_of_sum(step="1/10", grid=GRID, sampled=GRID),
        ),
    ),
    # Training runs.
    _p(
        "gaussian.gaussian_curve",
        "the shift is not positive",
        "shift > 0",
        lambda: gaussian.gaussian_curve(flint.arb(0)),
    ),
    _p(
        "gaussian.replaced_curve",
        "the shift is not positive",
        "shift > 0",
        lambda: gaussian.replaced_curve(flint.arb(0), HALF),
    ),
    _p(
        "gaussian.replaced_curve",
        "the rate is not a probability above 0",
        r"$0 < p \le 1$",
        lambda: gaussian.replaced_curve(flint.arb(1), Fraction(2)),
    ),
    _p(
        "gaussian.replaced_curve.bound",
        "c is below 1",
        r"$c \ge 1$",
        lambda: gaussian.replaced_curve(flint.arb(1), HALF)(1, 2),
    ),
    _p(
        "gaussian.binomial_weights",
        "a user has no record",
        r"$k \ge 1$",
        lambda: gaussian.binomial_weights(0, HALF),
    ),
    _p(
        "gaussian.binomial_weights",
        "the rate is not a probability above 0",
        r"$0 < p \le 1$",
        lambda: gaussian.binomial_weights(2, Fraction(3, 2)),
    ),
    _p(
        "gaussian.mixture_curve",
        "the shift is not positive",
        "shift > 0",
        lambda: gaussian.mixture_curve([flint.arb(1)], [flint.arb(1)], flint.arb(-1)),
    ),
    _p(
        "gaussian.check_contraction",
        "a code is not likelier to be kept than to become a given other",
        "0 < q < p < 1",
        lambda: _contraction(HALF, HALF),
    ),
    _p(
        "gaussian.check_contraction",
        "the range must be positive",
        "range > 0",
        lambda: _contraction(Fraction(1, 4), HALF, reach=-1),
    ),
    _p(
        "gaussian.check_contraction",
        "kappa is too small, or the range is",
        "the inequality beyond the range",
        lambda: _contraction(Fraction(1, 100), Fraction(99, 100), "97/100", reach=1),
    ),
    _p(
        "gaussian.check_contraction",
        "kappa is too small, or the depth is",
        "the inequality in every box",
        lambda: _contraction(Fraction(1, 4), Fraction(3, 4), "1/2", reach=8),
    ),
    _p(
        "gaussian.check_gaussian",
        "nothing is proved about batches that are seen",
        "batches are secret or whole",
        lambda: _gaussian(_model(sampling="public", rate=HALF)),
    ),
    _p(
        "gaussian.check_gaussian",
        "below 1 it needs a proof",
        r"$\kappa \ge 1$, or it is checked",
        lambda: _gaussian(_model(), kappa="1/2"),
    ),
    _p(
        "gaussian.check_gaussian",
        "there is no noise",
        "z > 0",
        lambda: gaussian.check_gaussian(
            claim(replace(_model(), noise_multiplier=None), "1", "1"),
            Fields(dict(GAUSSIAN), "proof"),
            {},
        ),
    ),
    _p(
        "gaussian.check_gaussian",
        "kappa is not about several records of a user",
        "no contraction for users",
        lambda: _gaussian(
            _model(records_per_user=2, kept=Fraction(9, 10), levels=2),
            kappa="9/10",
            range="8",
            depth=40,
        ),
    ),
    # Profiles of one database.
    _p(
        "smoothed.log_divergence",
        "a type has no record",
        r"$A, B \ge 1$",
        lambda: smoothed.log_divergence(0, 3, 1, 2**64),
    ),
    _p(
        "smoothed.log_divergence",
        "more is lost than there is",
        r"$0 \le s \le N$",
        lambda: smoothed.log_divergence(2, 2, 4, 2**64),
    ),
    _p(
        "smoothed.log_divergence",
        "epsilon is negative",
        r"$E \ge 1$",
        lambda: smoothed.log_divergence(2, 2, 1, 2**64 - 1),
    ),
    _p(
        "smoothed.check_profile",
        "a profile is about one database, not about a release",
        "no release",
        lambda: _profile(_release(COIN)),
    ),
    _p(
        "smoothed.check_profile",
        "epsilon is above 100",
        r"$\varepsilon \le 100$",
        lambda: _profile(epsilon="101", log10_delta="1"),
    ),
    _p(
        "smoothed.check_profile",
        "log10_delta is too small",
        r"$\log D \le \log \delta$ for all four pairs",
        _profile,
    ),
    # Lower bounds of designs.
    _p(
        "dual._scaled",
        "roots or ends are not pairs",
        "roots and ends are pairs",
        lambda: dual._scaled([[1]], flint.fmpq(1)),
    ),
    _p(
        "dual._read_cut",
        "the edges do not run from -1 to 1",
        "edges from -1 to 1",
        lambda: _cut(edges=[-3, 0, 4]),
    ),
    _p(
        "dual._read_cut",
        "the edges do not increase",
        "edges increase",
        lambda: _cut(edges=[-4, 0, 0, 4], roots=[[-2, 2]] * 3),
    ),
    _p(
        "dual._read_cut",
        "not one pair of roots per cell, and two ends",
        "roots for every cell, and two ends",
        lambda: _cut(ends=[[0, 0]]),
    ),
    _p(
        "dual._least",
        "a quadratic is not convex",
        "curvature > 0",
        lambda: dual._least(dual._Cut(flint.fmpq(0), LINE, []), []),
    ),
    _p(
        "dual._require_unmet",
        "a choice of cells meets every cut",
        "no m cells meet every cut",
        lambda: dual._require_unmet([1, 2], 3, 2),
    ),
    _p(
        "dual.check_dual",
        "a lower bound is about no release",
        "no release",
        lambda: _dual(_release(COIN)),
    ),
    _p(
        "dual.check_dual",
        "this proof is about ... ...",
        "mean squared error, uniform inputs",
        lambda: _dual(prior="normal"),
    ),
    _p(
        "dual.check_dual",
        "epsilon is outside (0, 100]",
        r"$0 < \varepsilon \le 100$",
        lambda: _dual(epsilon="101"),
    ),
    _p(
        "dual.check_dual",
        "the axis has too many points",
        "at most 2,000 points",
        lambda: _dual(axis=[*range(-1010, -7), *range(8, 1011)]),
    ),
    _p(
        "dual.check_dual",
        "the points do not increase",
        "the axis increases",
        lambda: _dual(axis=[-8, -8, 8, 8]),
    ),
    _p(
        "dual.check_dual",
        "it is not its own mirror image",
        "the axis is its own mirror image",
        lambda: _dual(axis=[-8, 9]),
    ),
    # Numbers.
    _p(
        "units.require_memory",
        "numbers are too many or too large",
        r"the numbers of a list or polynomial take at most $2^{30}$ bits, 512 more for each",
        lambda: units.require_memory(2**20, 513),
    ),
    _p(
        "real.floor_scaled",
        "a number could not be enclosed",
        "the ball is finite",
        lambda: real.floor_scaled(flint.arb.nan(), 1),
    ),
    _p(
        "real.floor_scaled",
        "a number is too large",
        "shifts of at most $2^{24}$ bits",
        lambda: real.exp_floor(Fraction(10**9), 1),
    ),
    _p(
        "real.log_fraction",
        "a number is not positive",
        "x > 0",
        lambda: real.log_fraction(Fraction(0)),
    ),
    _p(
        "real.log_binomial",
        "more are chosen than there are",
        r"$0 \le k \le n$",
        lambda: real.log_binomial(1, 2),
    ),
    # Tables.
    _p("table.Table.__post_init__", "there is no row", "there is a row", lambda: Table([])),
    _p(
        "table.Table.__post_init__",
        "row ... has not one weight per level",
        "rows have one length",
        lambda: Table([[TOTAL], [TOTAL, 0]]),
    ),
    _p(
        "table.Table.__post_init__",
        "row ... is negative",
        "weights are at least 0",
        lambda: Table([[TOTAL + 1, -1]]),
    ),
    _p(
        "table.Table.__post_init__",
        "row ... does not sum to 2**32",
        "rows sum to $2^{32}$",
        lambda: Table([[TOTAL - 1]]),
    ),
    _p(
        "table.read_table",
        "not one row per knot",
        "one row per knot, two at least",
        lambda: table.read_table('{"knots":[0],"levels":[0],"weights":[[4294967296]]}'),
    ),
    _p(
        "table.read_table",
        "row 0 has not one weight per level",
        "one weight per level",
        lambda: table.read_table(
            '{"knots":[0,1],"levels":[0,1],"weights":[[4294967296],[4294967296]]}'
        ),
    ),
    _p(
        "table.find_table",
        "the proof holds no table with this hash",
        "the table has the hash of the release",
        lambda: _run("ratio", _release(COIN), (RESPONSE,)),
    ),
    _p(
        "table.require_lattice",
        "not one integer per level, from 0 on",
        "an integer for every level, from 0 on",
        lambda: _run("sum", _sum(lattice=(1, 2, 3)), (ADDITIVE,), delta="1", **_proof_of_sum()),
    ),
    _p(
        "table.require_lattice",
        "the integers do not increase up to 2**14",
        "integers increase, below $2^{14}$",
        lambda: _run("sum", _sum(lattice=(0, 2, 2)), (ADDITIVE,), delta="1", **_proof_of_sum()),
    ),
]


def _at(precision: int, call: Callable[[], Any]) -> Any:
    with flint.ctx.workprec(precision):
        return call()


def refused(premise: Premise) -> str:
    """The words of the kernel when the premise is violated; "" if it accepts."""
    set_deadline(10)
    with flint.ctx.workprec(128):
        try:
            premise.violate()
        except kernel.Refused as error:
            return str(error)
    return ""


def expected(premise: Premise) -> str:
    """A pattern of the words."""
    if premise.why == "_IMPOSSIBLE":
        return re.escape(one._IMPOSSIBLE)
    return re.escape(premise.why).replace(re.escape("..."), ".*")


def table_of_premises() -> str:
    """The table of docs/proofs/kernel.md."""
    lines = ["| premise | checked in | test that fails without the check |", "|---|---|---|"]
    for premise in PREMISES:
        test = f"`tests/kernel/test_premises.py::test_refuses[{premise.name}]`"
        cells = [premise.words, f"`{premise.function}`", test]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    (premise,) = (premise for premise in PREMISES if premise.name == arguments[0])
    return int(re.search(expected(premise), refused(premise)) is None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
