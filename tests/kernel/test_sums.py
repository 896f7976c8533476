"""Secure sums: against enumeration of all data sets, tight instances for every term of the bound, forgeries."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from mezzotint import Mechanism, families, kernel, privacy
from mezzotint.kernel.sums import binomial_below
from mezzotint.kernel.units import WHOLE
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.proposals import propose_sum
from reference.kernel import accepts, claim, decimal_text, forgeries, hockey_stick, resealed, sealed
from strategies import random_weights

TOTAL = 2**32
RQM = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)


def _mechanism(weights: Any) -> Mechanism:
    rows = np.array(weights, dtype=np.int64)
    knots, levels = np.arange(float(rows.shape[0])), np.arange(float(rows.shape[1]))
    return Mechanism(knots=knots, levels=levels, weights=rows, name="hand")


def _release(
    mechanism: Mechanism, clients: int, coordinates: int = 1, **more: Any
) -> kernel.ExactRelease:
    _, lattice = lattice_rows(mechanism)
    return kernel.ExactRelease(
        observer="secure_sum", tables=((mechanism.sha256, coordinates),), clients=clients,
        lattice=tuple(lattice.integers.tolist()), **more,
    )  # fmt: skip


def _worst(mechanism: Mechanism, clients: int, epsilon: str) -> Fraction:
    """The exact delta of one sum, over all inputs of all clients."""
    rows = [[Fraction(int(w), TOTAL) for w in row] for row in lattice_rows(mechanism)[0].tolist()]

    def convolved(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
        found = [Fraction(0)] * (len(a) + len(b) - 1)
        for i, p in enumerate(a):
            for j, q in enumerate(b):
                found[i + j] += p * q
        return found

    worst = Fraction(0)
    for others in combinations_with_replacement(range(len(rows)), clients - 1):
        noise = [Fraction(1)]
        for k in others:
            noise = convolved(noise, rows[k])
        for i, j in permutations(range(len(rows)), 2):
            worst = max(
                worst, hockey_stick(convolved(rows[i], noise), convolved(rows[j], noise), epsilon)
            )
    return worst


def _plain(
    mechanism: Mechanism, others: int, corners: list[list[int]], **change: Any
) -> dict[str, Any]:
    """The plain blanket of a table (mass that all rows have in the same place) in one case."""
    rows = lattice_rows(mechanism)[0]
    shape = rows.min(axis=0)
    first = int(np.flatnonzero(shape)[0])
    places = [[0] * first + [int(shape.sum())] for _ in rows]
    blanket = {
        "rows": list(range(len(rows))),
        "block": 1,
        "components": [{"shape": shape[first:].tolist(), "places": places}],
    }
    return {
        "tail": 160,
        "blankets": [blanket],
        "others": others,
        "cases": {"corners": corners},
        **change,
    }


def _accepts(
    mechanism: Mechanism,
    clients: int,
    epsilon: object,
    delta: object,
    content: dict[str, Any],
    **more: Any,
) -> bool:
    said = claim(_release(mechanism, clients, **more), epsilon, delta)
    return accepts(said, sealed(said, "sum", tables=[mechanism.canonical()], **content))


def _least_delta(
    mechanism: Mechanism, clients: int, epsilon: str, content: dict[str, Any]
) -> Fraction:
    """The least delta that the kernel accepts with this proof, to a relative 1e-4."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(20):
        middle = (low + high) / 2 if low else high / 4
        ok = _accepts(mechanism, clients, epsilon, decimal_text(middle), content)
        low, high = (low, middle) if ok else (middle, high)
    return high


def test_never_below_enumeration_of_all_data_sets() -> None:
    """200 small tables: never below the truth over all data sets; at the bound of the page itself, to nine digits."""
    generator, tables = np.random.default_rng(14), 0
    while tables < 200:
        rows, levels, clients = (int(v) for v in generator.integers(2, 4, 3))
        mechanism = _mechanism(random_weights(generator, rows, levels, 1.0))
        true = _worst(mechanism, clients, "0.1")
        if not true:
            continue
        tables += 1
        content = _plain(mechanism, clients - 1, [[k] for k in range(clients - 1, -1, -1)])
        assert not _accepts(
            mechanism, clients, "0.1", decimal_text(true * Fraction(999999, 10**6)), content
        )
        stated = _stated(mechanism, clients, "0.1")
        assert stated >= true
        assert _accepts(
            mechanism, clients, "0.1", decimal_text(stated * (1 + Fraction(1, 10**9))), content
        )
        assert not _accepts(
            mechanism, clients, "0.1", decimal_text(stated * (1 - Fraction(1, 10**6))), content
        )


def _stated(mechanism: Mechanism, clients: int, epsilon: str) -> Fraction:
    """The ladder's sum for the plain blanket, in fractions."""
    rows = [[Fraction(int(w), TOTAL) for w in row] for row in lattice_rows(mechanism)[0].tolist()]
    floor = [min(column) for column in zip(*rows, strict=True)]
    chance, others = sum(floor), clients - 1
    shape = [mass / chance for mass in floor]
    terms = [comb(others, k) * chance**k * (1 - chance) ** (others - k) for k in range(others + 1)]
    missed = {k: sum(terms[:k], Fraction(0)) for k in range(others + 1)}
    worst = Fraction(0)
    for i, j in permutations(range(len(rows)), 2):
        first, second, total = rows[i], rows[j], missed[0]
        for k in range(others + 1):
            least = min(missed[k + 1], Fraction(1)) if k < others else Fraction(1)
            total += (least - missed[k]) * hockey_stick(first, second, epsilon)
            first, second = (
                np.convolve(np.array(row), np.array(shape)).tolist() for row in (first, second)
            )
        worst = max(worst, total)
    return worst


# Instances in which a term of the bound matters ----------------------------------------------------------------

ADDITIVE = _mechanism([[2**31, 2**31, 0], [0, 2**31, 2**31]])


def _additive(others: int, corners: list[list[int]], **change: Any) -> dict[str, Any]:
    half = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    return {
        "tail": 160, "blankets": [{"rows": [0, 1], "block": 1, "components": [half]}], "others": others,
        "cases": {"corners": corners}, **change,
    }  # fmt: skip


def test_noise_that_does_not_depend_on_the_input_is_exact() -> None:
    """The sum of n fair coins, shifted or not: total variation binom(n, n/2) / 2^n at epsilon = 0."""
    assert _accepts(ADDITIVE, 4, "0", "6/16", _additive(3, [[3]]))
    assert not _accepts(ADDITIVE, 4, "0", "3749/10000", _additive(3, [[3]]))
    # Fewer helpers than there are is a weaker statement, more is a false one.
    assert _accepts(ADDITIVE, 4, "0", "1/2", _additive(1, [[1]]))
    assert not _accepts(ADDITIVE, 4, "0", "6/16", _additive(1, [[1]]))
    assert not _accepts(ADDITIVE, 4, "0", "6/16", _additive(3, [[4]]))
    assert not _accepts(ADDITIVE, 4, "0", "6/16", _additive(4, [[4]]))
    assert not _accepts(ADDITIVE, 4, "0", "6/16", _additive(3, [[3]]), corrupted=1)


def test_a_single_sum_that_one_may_be_seen_to_miss_costs_its_share() -> None:
    """Whoever takes part with 1/2 and is seen to do so or not: half of the total variation, and nothing less."""
    seen = {"sampling": "public", "rate": Fraction(1, 2)}
    assert _accepts(ADDITIVE, 4, "0", "3/16", _additive(3, [[3]]), **seen)
    assert not _accepts(ADDITIVE, 4, "0", "1874/10000", _additive(3, [[3]]), **seen)
    secret = {"sampling": "poisson", "rate": Fraction(1, 2)}
    assert not _accepts(ADDITIVE, 4, "0", "1", _additive(3, [[3]]), **secret)


def test_what_the_noise_misses_is_charged() -> None:
    """A proof that drops almost everything: the dropped mass must stand in delta."""
    for tail, most in ((1, Fraction(99, 100)), (2, Fraction(3, 10))):
        assert not _accepts(ADDITIVE, 8, "0", most * Fraction(1, 2), _additive(7, [[7]], tail=tail))


def test_what_the_last_corner_misses_is_charged() -> None:
    """A ladder of one step at the mean: half of the time its corner is missed."""
    weights = [[3 * 2**30, 2**30], [2**30, 3 * 2**30]]
    mechanism = _mechanism(weights)  # the plain blanket has mass 1/2
    content = _plain(mechanism, 8, [[4]])
    missed = sum(Fraction(n, 256) for n in (1, 8, 28, 56))
    assert not _accepts(mechanism, 9, "0.4", missed * Fraction(99, 100), content)
    assert _least_delta(mechanism, 9, "0.4", content) >= missed


def test_misses_of_several_components_add_up() -> None:
    """Two coins of which each must be drawn: the corner (1, 1) of two draws is missed unless both come up."""
    mechanism = _mechanism([[2**30] * 4, [2**30 + 8, 2**30, 2**30, 2**30 - 8]])
    # Each component has chance 1/2 - ulp; P(N1 >= 1 and N2 >= 1) = 1/2 over two draws, each edge missed with 1/4.
    mass = 2**31 - 16
    places = [mass]
    one = {"shape": [1, 1, 0, 0], "places": [places, places]}
    two = {"shape": [0, 0, 1, 1], "places": [places, places]}
    blanket = {"rows": [0, 1], "block": 1, "components": [one, two]}
    content = {"tail": 160, "blankets": [blanket], "others": 2, "cases": {"corners": [[1, 1]]}}
    assert not _accepts(mechanism, 3, "1", "0.45", content)
    assert _accepts(mechanism, 3, "1", "0.51", content)


def test_rows_with_impossible_levels_are_not_cut_short() -> None:
    """Row 0 reaches further up than row 1: what row 1 lacks is disclosure, also at the end of the list."""
    mechanism = _mechanism([[2**30, 2**30, 2**31], [2**31, 2**31, 0]])
    assert not _accepts(
        mechanism,
        1,
        "5",
        "0.499",
        _additive(0, [[0]]) | {"blankets": [_silent(2)], "cases": {"corners": [[]]}},
    )
    assert _accepts(
        mechanism,
        1,
        "5",
        "1/2",
        _additive(0, [[0]]) | {"blankets": [_silent(2)], "cases": {"corners": [[]]}},
    )


def _silent(rows: int) -> dict[str, Any]:
    return {"rows": list(range(rows)), "block": 1, "components": []}


def test_divisions_hold_every_data_set() -> None:
    """Two rows, one of them without noise: the case in which all others have that row must not be left out."""
    mechanism = _mechanism([[TOTAL, 0, 0], [2**30, 2**31, 2**30]])
    whole = {"rows": [0, 1], "block": 1, "components": []}
    first = {"rows": [0], "block": 1, "components": [{"shape": [1], "places": [[TOTAL]]}]}
    second = {"rows": [1], "block": 1, "components": [{"shape": [1, 2, 1], "places": [[TOTAL]]}]}
    leaves = [{"corners": [[*([3 - j] if j < 3 else []), *([j] if j else [])]]} for j in range(4)]
    tree = {"group": 0, "first": 2, "second": 1, "cuts": [0, 1, 2, 3, 4], "children": leaves}
    content = {"tail": 160, "blankets": [whole, first, second], "others": 3, "cases": tree}
    true = _worst(mechanism, 4, "0.1")
    assert _accepts(mechanism, 4, "0.1", decimal_text(true + Fraction(1, 10**9)), content)
    assert not _accepts(mechanism, 4, "0.1", decimal_text(true - Fraction(1, 10**9)), content)
    for cuts, children in (
        ([1, 2, 3, 4], leaves[1:]), ([0, 1, 2, 3], leaves[:3]), ([0, 2, 3, 4], leaves[1:]), ([0, 1, 2, 4], leaves[:3]),
        ([0, 1, 2, 3, 4], leaves[1:] + leaves[-1:]), ([0, 1, 2, 3, 5], leaves),
    ):  # fmt: skip
        changed = {**content, "cases": {**tree, "cuts": cuts, "children": children}}
        assert not _accepts(mechanism, 4, "0.1", decimal_text(true - Fraction(1, 10**9)), changed)
    for key, value in (("first", 1), ("second", 2), ("group", 1), ("group", 2)):
        changed = {**content, "cases": {**tree, key: value}}
        assert not _accepts(
            mechanism, 4, "0.1", decimal_text(true - Fraction(1, 10**9)), changed
        ), key


def test_blankets_that_do_not_fit_are_refused() -> None:
    content = _additive(3, [[3]])
    for place, value in (
        (0, [[TOTAL + 1], [0, TOTAL + 1]]),
        (0, [[TOTAL], [TOTAL]]),
        (0, [[TOTAL], [0, TOTAL - 1]]),
    ):
        forged = copy.deepcopy(content)
        forged["blankets"][0]["components"][place]["places"] = value
        assert not _accepts(ADDITIVE, 4, "0", "6/16", forged)
    forged = copy.deepcopy(content)
    forged["blankets"][0]["components"][0]["shape"] = [1, 1, 1]
    assert not _accepts(ADDITIVE, 4, "0", "6/16", forged)
    # A group that leaves out a row is not a blanket of all.
    forged = copy.deepcopy(content)
    forged["blankets"][0] = {
        "rows": [0],
        "block": 1,
        "components": [{"shape": [1, 1], "places": [[TOTAL]]}],
    }
    assert not _accepts(ADDITIVE, 4, "0", "6/16", forged)


def test_blocks_of_clients() -> None:
    half = {"shape": [1, 2, 1], "places": [[TOTAL], [0, TOTAL], [0, 0, TOTAL]]}
    blanket = {"rows": [0, 1], "block": 2, "components": [half]}
    content: dict[str, Any] = {
        "tail": 160,
        "blankets": [blanket],
        "others": 3,
        "cases": {"corners": [[1]]},
    }
    # One pair of three others: the report and two coins.
    assert _accepts(ADDITIVE, 4, "0", "3/8", content)
    assert not _accepts(ADDITIVE, 4, "0", "374/1000", content)
    content["cases"] = {"corners": [[2]]}
    assert not _accepts(ADDITIVE, 4, "0", "3/8", content)
    wrong = copy.deepcopy(content)
    wrong["blankets"][0]["components"][0]["shape"] = [1, 1, 1]
    assert not _accepts(ADDITIVE, 4, "0", "1/2", wrong)


def test_a_sum_has_an_honest_client() -> None:
    """As many corrupted as there are clients would leave no noise at all, nor anybody to protect."""
    document = replace(_release(ADDITIVE, 3), corrupted=2).document()
    assert kernel.ExactRelease.read(document).corrupted == 2
    with pytest.raises(kernel.Unreadable, match="corrupted"):
        kernel.ExactRelease.read(replace(_release(ADDITIVE, 3), corrupted=3).document())
    # Once a table could be noise that clients add to integers, by fields that nobody made.
    with pytest.raises(kernel.Unreadable, match="unknown keys"):
        kernel.ExactRelease.read({**document, "shift": 1, "distance": "1"})


def test_a_sum_is_not_a_set() -> None:
    """The lattice is part of what is released: permuting levels moves the integers, and the blanket no longer fits."""
    other = _mechanism([[2**31, 0, 2**31], [0, 2**31, 2**31]])
    assert not _accepts(other, 4, "0", "6/16", _additive(3, [[3]]))
    said = claim(_release(ADDITIVE, 4), "0", "6/16")
    proof = sealed(said, "sum", tables=[ADDITIVE.canonical()], **_additive(3, [[3]]))
    assert accepts(said, proof)
    for lattice in ((0, 1, 3), (0, 2, 1), (1, 2, 3), (0, 1), (0, 1, 2, 3)):
        moved = kernel.ExactClaim(
            release=kernel.ExactRelease(**{**vars(said.release), "lattice": lattice}),
            statement=said.statement,
        )
        assert not accepts(moved, resealed(moved, proof))


@given(trials=st.integers(1, 60), numerator=st.integers(1, 31), edge=st.integers(-1, 62))
@example(trials=4, numerator=16, edge=3)
@settings(max_examples=150)
def test_binomial_tails_are_bounded_from_above_and_closely(
    trials: int, numerator: int, edge: int
) -> None:
    from math import comb

    import flint

    chance = Fraction(numerator, 32)
    exact = sum(
        comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(max(0, min(edge, trials + 1)))
    )
    with flint.ctx.workprec(256):
        got = Fraction(binomial_below(trials, chance, edge), WHOLE)
    assert got >= exact
    assert got <= exact * (1 + Fraction(1, 10**9)) + Fraction(4, WHOLE)


# Proposals -----------------------------------------------------------------------------------------------------


def _proposed(clients: int, delta: float = 1e-6, **more: Any) -> tuple[float, Any]:
    release = privacy.Release(
        mechanism=RQM, trust="secure_sum", clients=clients, delta=delta, **more
    )
    found = privacy.account(release)
    return found.epsilon, propose_sum(release, found.epsilon)


@pytest.mark.slow
def test_a_thousand_clients_are_certified_by_cases_within_half_a_percent() -> None:
    float_epsilon, outcome = _proposed(1000)
    assert outcome.proof is not None, outcome.reason
    assert float(outcome.claim.epsilon) <= float_epsilon * 1.005


def test_a_small_crowd_forged_field_by_field() -> None:
    """One blanket of three coins: no change of one field proves a claim below what some data set forces."""
    mechanism = _mechanism([[2**31, 2**30, 2**30], [2**30, 2**30, 2**31]])
    true = _worst(mechanism, 4, "0.2")
    content = _plain(mechanism, 3, [[3], [2], [1], [0]])
    assert _accepts(mechanism, 4, "0.2", 1, content)
    false = claim(_release(mechanism, 4), "0.2", decimal_text(true * Fraction(999, 1000)))
    proof = sealed(false, "sum", tables=[mechanism.canonical()], **content)
    assert not accepts(false, proof)
    for path, forged in forgeries(proof, skip=["claim_sha256", "tables"]):
        assert not accepts(false, forged), path


def test_composed_sums_never_cost_less_than_one_and_agree_with_the_float() -> None:
    mechanism = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    release = privacy.Release(
        mechanism=mechanism, trust="secure_sum", clients=60, rounds=20, delta=1e-5
    )
    found = privacy.account(release)
    outcome = propose_sum(release, found.epsilon)
    assert outcome.proof is not None, outcome.reason
    assert outcome.proof["kind"] == "sum"
    assert float(outcome.claim.epsilon) <= 1.15 * found.epsilon
    stated = outcome.claim.statement
    for change in ({"rounds": 30}, {"corrupted": 30}, {"clients": 40}):
        stronger = kernel.ExactClaim(
            release=kernel.ExactRelease(**{**vars(outcome.claim.release), **change}),
            statement=stated,
        )
        assert not accepts(stronger, resealed(stronger, outcome.proof)), change
    one = replace(release, rounds=1)
    single = propose_sum(one, privacy.account(one).epsilon)
    assert outcome.claim.epsilon >= single.claim.epsilon
