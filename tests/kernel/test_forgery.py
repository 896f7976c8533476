"""Random claims of every kind: no change of a field, of claim or of proof, makes the kernel certify what is false.

Each builder draws a release whose exact worst loss is known by enumeration or in closed form, a proof, and a claim just
below that loss. The proof's own numbers may be changed as a forger likes; the claim is false whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from scipy.stats import norm

from mezzotint import Mechanism, kernel, privacy
from mezzotint.design.level_proofs import cut_at
from mezzotint.design.problem import make_problem
from mezzotint.kernel.units import canonical, sha256
from mezzotint.privacy.propose import losses_shape, sealed
from mezzotint.privacy.sums import lattice_rows
from reference.kernel import (
    accepts,
    claim,
    composed,
    decimal_text,
    exponential,
    forgeries,
    hockey_stick,
    probabilities,
    release,
    resealed,
)
from reference.sums import exact_delta_fraction
from strategies import examples, random_weights


@dataclass(frozen=True)
class Case:
    """A false claim, a proof for it, and how to say the claim about a stronger release (None: nothing to enumerate)."""

    false: kernel.ExactClaim
    proof: dict[str, Any]
    true: kernel.ExactClaim


def _mechanism(generator: np.random.Generator, rows: int, levels: int) -> Mechanism:
    weights = random_weights(generator, rows, levels, 2.0)
    knots, places = np.arange(float(rows)), np.arange(float(levels))
    return Mechanism(knots=knots, levels=places, weights=weights, name="forged")


def _ratio(generator: np.random.Generator) -> Case:
    mechanism = _mechanism(generator, 3, 3)
    described = release(
        mechanism, int(generator.integers(1, 4)), rounds=int(generator.integers(1, 4))
    )
    pure = described.rounds * described.tables[0][1] * Fraction(mechanism.epsilon)
    false = claim(described, pure * (1 - Fraction(1, 10**9)))
    true = claim(described, pure * (1 + Fraction(1, 10**12)))
    return Case(false, sealed(false, "ratio", tables=[mechanism.canonical()]), true)


def _ranks(generator: np.random.Generator) -> Case:
    size, top = 16, int(generator.integers(1, 15))
    low = int(generator.integers(10**7, 2 * 10**8))
    high, rest = divmod(2**32 - (size - top) * low, top)
    while rest > size - top:
        low, top = low + 1, 1
        high, rest = divmod(2**32 - (size - top) * low, top)
    entry = {"M": size, "k": top, "T": 2**32, "w_hi": high, "w_lo": low, "r": rest}
    exact = Fraction(math.log(Fraction(high, low)))
    described = kernel.ExactRelease(observer="reports", tables=((sha256(canonical(entry)), 2),))
    false, true = (claim(described, 2 * exact * (1 + Fraction(sign, 10**9))) for sign in (-1, 1))
    return Case(false, sealed(false, "ratio", ranks=[entry]), true)


def _exact_delta(mechanism: Mechanism, epsilon: str, count: int = 1) -> Fraction:
    pairs = permutations(probabilities(mechanism), 2)
    exact = max(hockey_stick(*composed(pair, count), epsilon) for pair in pairs)
    assume(exact > Fraction(1, 10**6))
    return exact


def _delta(generator: np.random.Generator) -> Case:
    mechanism, epsilon = _mechanism(generator, 3, 4), str(int(generator.integers(1, 5))) + "/10"
    exact = _exact_delta(mechanism, epsilon)
    false, true = (
        claim(release(mechanism), epsilon, decimal_text(exact * (1 + Fraction(sign, 10**6))))
        for sign in (-1, 1)
    )
    return Case(false, sealed(false, "delta", tables=[mechanism.canonical()]), true)


def _renyi(generator: np.random.Generator) -> Case:
    mechanism, order = _mechanism(generator, 3, 3), str(int(generator.integers(11, 60))) + "/10"
    value = Fraction(mechanism.renyi(alpha=float(Fraction(order)))) * 3
    false, true = (
        claim(release(mechanism, 3), value * (1 + Fraction(sign, 10**6)), order=order)
        for sign in (-1, 1)
    )
    return Case(false, sealed(false, "renyi", tables=[mechanism.canonical()], order=order), true)


def _losses(generator: np.random.Generator) -> Case:
    mechanism, count = _mechanism(generator, 2, 3), int(generator.integers(2, 4))
    epsilon = str(int(generator.integers(1, 8))) + "/10"
    exact = _exact_delta(mechanism, epsilon, count)
    shape = losses_shape(privacy.Release(mechanism=mechanism, rounds=count, delta=0.0), 0.5)
    described = release(mechanism, rounds=count)
    # The dominating pair of lopsided rows is worse than any sequence of theirs: the true claim keeps clear of it.
    false, true = (
        claim(described, epsilon, value)
        for value in (decimal_text(exact * Fraction(9999, 10**4)), "1")
    )
    return Case(false, sealed(false, "losses", tables=[mechanism.canonical()], **shape), true)


def _sum(generator: np.random.Generator) -> Case:
    mechanism, clients = _mechanism(generator, 2, 3), int(generator.integers(2, 5))
    rows, lattice = lattice_rows(mechanism)
    described = kernel.ExactRelease(
        observer="secure_sum",
        tables=((mechanism.sha256, 1),),
        clients=clients,
        lattice=tuple(lattice.integers.tolist()),
    )
    shape = rows.min(axis=0)
    first = int(np.flatnonzero(shape)[0])
    places = [[0] * first + [int(shape.sum())] for _ in rows]
    blanket = {
        "rows": [0, 1],
        "block": 1,
        "components": [{"shape": shape[first:].tolist(), "places": places}],
    }
    corners = [[count] for count in range(clients - 1, -1, -1)]
    content = {
        "tail": 160,
        "blankets": [blanket],
        "others": clients - 1,
        "cases": {"corners": corners},
    }
    exact = exact_delta_fraction(rows, clients, exponential("1/5"))
    assume(exact > Fraction(1, 10**6))
    false, true = (
        claim(described, "1/5", value)
        for value in (decimal_text(exact * Fraction(9999, 10**4)), "1")
    )
    return Case(false, sealed(false, "sum", tables=[mechanism.canonical()], **content), true)


def _boxes(generator: np.random.Generator) -> Case:
    """Two components whose counts are divided one after the other, every count by itself."""
    case = _sum(generator)
    shape = case.proof["blankets"][0]["components"][0]["shape"]
    places = case.proof["blankets"][0]["components"][0]["places"]
    assume(sum(shape) > 8)
    halves = [[[*place[:-1], place[-1] // 2] for place in places] for _ in range(2)]
    blanket = {
        "rows": [0, 1],
        "block": 1,
        "components": [{"shape": shape, "places": half} for half in halves],
    }
    others = case.proof["others"]

    def boxes(draws: int, components: int) -> dict[str, Any]:
        if not components:
            return {"corners": [[]]}
        children = [boxes(draws - count, components - 1) for count in range(draws + 1)]
        return {"edges": list(range(draws + 1)), "children": children}

    return Case(
        case.false, {**case.proof, "blankets": [blanket], "cases": boxes(others, 2)}, case.true
    )


def _gaussian(generator: np.random.Generator) -> Case:
    noise, epsilon = (
        Fraction(int(generator.integers(8, 30)), 10),
        Fraction(int(generator.integers(1, 20)), 10),
    )
    described = kernel.ExactRelease(
        observer="model", noise_multiplier=noise, neighboring="add_or_remove_one"
    )
    shift, c = 1 / float(noise), float(exponential(epsilon))
    exact = norm.cdf(shift / 2 - float(epsilon) / shift) - c * norm.cdf(
        -shift / 2 - float(epsilon) / shift
    )
    content = {"kappa": "1", "step": "1/32", "tail": 110, "sampled": {"low": -160, "high": 160}}
    false, true = (
        claim(described, epsilon, repr(float(exact) * factor)) for factor in (0.999, 1.05)
    )
    return Case(false, sealed(false, "gaussian", **content), true)


def _dual(generator: np.random.Generator) -> Case:
    epsilon = Fraction(int(generator.integers(5, 13)), 10)
    ratio = float(exponential(epsilon)) * (1 + 2.0**-50)
    reach = 1 + 2 / (ratio - 1)
    problem = make_problem(epsilon=float(epsilon), lower=-1, upper=1)
    cut, _ = cut_at(np.linspace(-1.6 * reach - 0.4, 1.6 * reach + 0.4, 41), ratio, problem)

    def whole(values: Any) -> Any:
        return [
            whole(one) if np.ndim(one) else round(Fraction(float(one)) * 2**60) for one in values
        ]

    content = {"scale": 60, "axis": whole(np.linspace(-8, 8, 17) * reach)}
    content["cuts"] = [
        {"edges": whole(cut.edges), "roots": whole(cut.roots), "ends": whole(cut.ends)}
    ]
    # Two levels at the reach have the mean squared error reach**2 - 1/3, and no two levels have less.
    statement = {
        "kind": "lower_bound",
        "loss": "mse",
        "prior": "uniform",
        "levels": 2,
        "epsilon": str(epsilon),
    }
    false, true = (
        kernel.ExactClaim(release=None, statement={**statement, "value": repr(value)})
        for value in ((reach**2 - 1 / 3) * (1 + 1e-6), 0.5)
    )
    return Case(false, sealed(false, "dual", **content), true)


BUILDERS: dict[str, Callable[[np.random.Generator], Case]] = {
    "ratio": _ratio, "ranks": _ranks, "delta": _delta, "renyi": _renyi, "losses": _losses, "sum": _sum,
    "boxes": _boxes, "gaussian": _gaussian, "dual": _dual,
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [*list(BUILDERS)[:-1], pytest.param("dual", marks=pytest.mark.slow)]
)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(2), deadline=None)
def test_no_change_of_a_proof_certifies_a_false_claim(kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    case = BUILDERS[kind](generator)
    assert accepts(case.true, resealed(case.true, case.proof)), (
        "the proof must be one before it is forged"
    )
    assert not accepts(case.false, case.proof)
    changed = list(forgeries(case.proof, skip=["claim_sha256"]))
    for index in generator.permutation(len(changed))[:15]:
        path, forged = changed[index]
        assert not accepts(case.false, forged), path


def _stronger(said: kernel.ExactClaim) -> list[tuple[str, kernel.ExactClaim]]:
    """Each number of a claim changed so that the claim says more, one at a time."""
    found: list[tuple[str, kernel.ExactClaim]] = []
    for key, factor in (
        ("epsilon", Fraction(1, 100)),
        ("delta", Fraction(0)),
        ("value", Fraction(10**6)),
    ):
        known = key in said.statement and (said.release is not None or key == "value")
        if known and Fraction(said.statement[key]):
            better = str(Fraction(said.statement[key]) * factor)
            found.append((key, replace(said, statement={**said.statement, key: better})))
    if said.release is None:
        return [*found, ("epsilon", replace(said, statement={**said.statement, "epsilon": "30"}))]
    digest, coordinates = (said.release.tables or (("", 0),))[0]
    changes: dict[str, Any] = {"rounds": said.rounds + 9, "tables": ((digest, coordinates + 9),)}
    if digest:
        changes["hash"] = ((digest[::-1], coordinates),)
    if said.release.observer == "secure_sum":
        changes |= {"corrupted": said.release.clients - 1} if said.release.clients > 1 else {}
    if said.release.observer == "model":
        changes |= {"noise_multiplier": Fraction(1, 50), "neighboring": "replace_one"}
        del changes["tables"]
    for key, value in changes.items():
        stronger = replace(said.release, **{"tables" if key == "hash" else key: value})
        found.append((key, replace(said, release=stronger)))
    return found


@pytest.mark.parametrize("kind", BUILDERS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(2), deadline=None)
def test_no_field_of_a_claim_can_be_improved(kind: str, seed: int) -> None:
    """The tightest claim that is known to be true, each field changed for the better, the proof resealed."""
    case = BUILDERS[kind](np.random.default_rng(seed))
    tight = case.true
    if "delta" in tight.statement and kind in ("losses", "sum", "boxes"):
        tight = replace(
            tight, statement={**tight.statement, "delta": case.false.statement["delta"]}
        )
    for key, stronger in _stronger(tight):
        assert not accepts(stronger, resealed(stronger, case.proof)), key
        assert not accepts(stronger, case.proof), key
