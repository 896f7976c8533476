"""Proposals about sums: what is written down for the kernel, and that it accepts close to the float epsilon."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, kernel, privacy
from mezzotint.families import rqm
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import TAIL, exact_release, sealed
from mezzotint.privacy.sums import proposals
from mezzotint.privacy.sums.blanket import Blanket, additive_blanket
from mezzotint.privacy.sums.candidates import candidate_blankets
from mezzotint.privacy.sums.cost import central_epsilon
from mezzotint.privacy.sums.proposals import CheckTime, propose_sum
from reference.kernel import accepts
from tolerances import MANY, UNIT

BITS = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
TABLE = Mechanism(knots=np.arange(2.0), levels=np.arange(2.0), weights=BITS)
RAISED = 3e-2
"""The kernel may accept the float epsilon only when it is raised a little, by at most so much in tables this small."""


@pytest.mark.parametrize(
    "words",
    [
        {"clients": 4, "delta": 1e-2}, {"clients": 40, "delta": 1e-4}, {"clients": 5, "corrupted": 1, "delta": 1e-2},
        {"clients": 4, "rounds": 2, "delta": 1e-2}, {"clients": 4, "dimension": 2, "delta": 1e-2},
        {"clients": 4, "rounds": 2, "sampling_rate": 0.5, "delta": 1e-2}, {"clients": 4, "delta": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_small_crowds_are_certified_close_to_the_float(words: dict[str, Any]) -> None:
    release = privacy.Release(mechanism=TABLE, trust="secure_sum", **words)
    found = privacy.account(release).epsilon
    outcome = propose_sum(release, found)
    assert outcome.proof is not None, outcome.reason
    assert found <= float(outcome.claim.epsilon) * (1 + 8 * UNIT)
    assert float(outcome.claim.epsilon) <= found * (1 + RAISED)
    assert outcome.proof["kind"] == ("sum" if words["delta"] else "ratio")
    # Grids are for compositions, and one of their own for who is seen to take part.
    composed = bool(words.keys() & {"rounds", "dimension"})
    assert ("grid" in outcome.proof, "sampled" in outcome.proof) == (
        composed,
        "sampling_rate" in words,
    )


def test_participation_in_secret_has_no_proof_beyond_the_pure_one() -> None:
    for sampling in ("poisson", "without_replacement"):
        words: dict[str, Any] = {"sampling": sampling, "sampling_rate": 0.5}
        outcome = propose_sum(
            privacy.Release(mechanism=TABLE, trust="secure_sum", delta=1e-2, clients=4, **words),
            0.5,
        )
        assert outcome.proof is None


def test_what_is_asked_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float, float, int]] = []

    def drafts(rows: Any, others: int, delta: float, budget: float, points: int) -> list[Any]:
        asked.append((others, delta, budget, points))
        return []

    monkeypatch.setattr(proposals, "_drafts", drafts)
    several: list[dict[str, Any]] = [
        {"delta": 1e-7},
        {"delta": 1e-7, "rounds": 2},
        {"delta": 1e-3, "dimension": 3},
    ]
    for words in several:
        propose_sum(
            privacy.Release(mechanism=TABLE, trust="secure_sum", clients=10, corrupted=2, **words),
            0.5,
            seconds=90,
        )
    budget = 90 / proposals._TIME_MARGIN
    # Losses up to log 3 in 400 steps or a few more, on either side, and 0.
    assert asked[0] == (7, 1e-7, budget, 0)
    assert [entry[:3] for entry in asked[1:]] == [(7, 1e-5, budget), (7, 1e-3, budget)]
    assert all(801 <= points <= 811 for *_, points in asked[1:])


def _contents(
    monkeypatch: pytest.MonkeyPatch, others: int, best: Any, more: list[Blanket], **words: Any
) -> list[Any]:
    clients: list[int] = []

    def bound(rows: Any, **given: Any) -> Any:
        clients.append(given["clients"])
        return best

    monkeypatch.setattr(proposals, "central_epsilon", bound)
    monkeypatch.setattr(proposals, "shortlist", lambda *_: more)
    found = proposals._drafts(BITS, others, 1e-4, words.get("budget", 1e9), 0)
    assert clients == [others + 1]
    return [draft.content for draft in found]


def _named(content: dict[str, Any]) -> int:
    """How many components the only blanket has."""
    (blanket,) = content["blankets"]
    return len(blanket["components"])


def test_which_blankets_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = candidate_blankets(BITS)[0]
    three = Blanket(components=one.components * 3, name="three times")
    known, unknown = (
        SimpleNamespace(cover=None, blanket=three, epsilon=math.inf),
        SimpleNamespace(cover=None, blanket=None, epsilon=math.inf),
    )
    # Several components on a ladder and in boxes, one on a ladder; of the others' shortlist only the first.
    # A ladder that proves the accountant's epsilon comes first: boxes are then not checked. Else it comes last.
    for best, others, more, expected in (
        (known, 50, [one], [3, 3]), (unknown, 50, [one, three], [1]), (unknown, 50, [three, one], [3, 3]),
    ):  # fmt: skip
        contents = _contents(monkeypatch, others, best, more)
        assert [_named(content) for content in contents] == expected
        assert ["edges" in content["cases"] for content in contents] == [False, True][
            : len(expected)
        ]
    better = SimpleNamespace(cover=None, blanket=three, epsilon=0.0)
    contents = _contents(monkeypatch, 50, better, [])
    assert ["edges" in content["cases"] for content in contents] == [True, False]
    for others, more in ((0, [one]), (50, [])):
        (alone,) = _contents(monkeypatch, others, unknown, more)
        silent = {"rows": [0, 1], "block": 1, "components": []}
        assert alone == {"blankets": [silent], "others": 0, "cases": {"corners": [[]]}}
    # What takes exactly the budget is not tried; when nothing fits, the fastest is.
    contents = _contents(monkeypatch, 50, known, [])
    check_time = CheckTime.of(BITS, 50)
    single, boxed = (check_time.tree(content["cases"]) for content in contents)
    assert single < boxed
    monkeypatch.setattr(proposals, "_boxed", lambda *_: contents[1])
    for budget, count in ((boxed * 1.001, 2), (boxed, 1), (0.0, 1)):
        left = _contents(monkeypatch, 50, known, [], budget=budget)
        assert len(left) == count
        assert "edges" not in left[0]["cases"]


def test_boxes_are_divided_one_component_after_the_other() -> None:
    def boxes(draws: int, chances: list[float], tail: float) -> dict[str, Any]:
        ones = np.ones(len(chances))
        return proposals._boxes(
            draws, np.array(chances), ones, np.full(len(chances), 0.1), 12, tail
        )

    last = {"corners": [[]]}
    # What is left over after the first is the second's for certain.
    assert boxes(2, [0.5, 0.5], 1e-9) == {
        "edges": [0, 1, 2],
        "children": [{"corners": [[n]]} for n in (2, 1, 0)],
    }
    assert boxes(1, [0.5, 0.25], 1e-9) == {
        "edges": [0, 1], "children": [{"edges": [0, 1], "children": [last] * 2}, {"edges": [0], "children": [last]}],
    }  # fmt: skip
    # A count of 0 or 2 has a chance of 1/4: as much as may be left out, and just more.
    first, second, third = boxes(2, [0.5, 0.25], 0.25)["children"]
    assert first == third == {"corners": [[0]]}
    assert second.keys() == {"edges", "children"}
    assert boxes(2, [0.5, 0.25], 0.2499)["children"][0].keys() == {"edges", "children"}


def test_cases_are_proposed_with_the_epsilon_from_which_on_they_hold() -> None:
    release = Release(mechanism=TABLE, trust="secure_sum", clients=40, delta=1e-4)
    best = central_epsilon(BITS, clients=40, delta=1e-4)
    assert best.cover is not None
    cases, *_ = proposals._drafts(BITS, 39, 1e-4, 1e9, 0)
    assert len(cases.content["blankets"]) == len(best.cover.groups)
    assert cases.epsilon <= best.epsilon
    for factor, is_proved in ((1 + MANY, True), (1 - 1e-4, False)):
        claim = kernel.ExactClaim(
            release=exact_release(release),
            statement={"kind": "dp", "epsilon": repr(factor * cases.epsilon), "delta": "1/10000"},
        )
        proof = sealed(claim, "sum", tables=[TABLE.canonical()], tail=TAIL, **cases.content)
        assert accepts(claim, proof) == is_proved
    # Where no division fits, one blanket stands alone.
    least = proposals._drafts(BITS, 39, 1e-4, 0.0, 0)
    assert [len(draft.content["blankets"]) for draft in least] == [1]


def test_blocks_of_clients_take_the_place_of_cases_that_are_checked_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first(points: int = 0) -> proposals.Draft:
        return proposals._drafts(BITS, 399, 1e-4, 1e9, points)[0]

    cases = first()
    assert {blanket["block"] for blanket in cases.content["blankets"]} == {1}
    monkeypatch.setattr(proposals, "_LONG_CHECK", 0.0)
    # Of so few clients a block keeps much less than the cases show.
    assert first().content == cases.content
    monkeypatch.setattr(proposals, "_BLOCK_GAIN", 2.0)
    (blocks,) = proposals._drafts(BITS, 399, 1e-4, 1e9, 0)
    (blanket,) = blocks.content["blankets"]
    assert blanket["block"] == 4
    assert [len(component["places"]) for component in blanket["components"]] == [5] * len(
        blanket["components"]
    )
    assert cases.epsilon < blocks.epsilon <= 2 * cases.epsilon
    assert len(first(points=801).content["blankets"]) > 1
    # 399 others are 99 blocks, and three are left over.
    release = exact_release(Release(mechanism=TABLE, trust="secure_sum", clients=400, delta=1e-4))
    for factor, is_proved in ((1 + MANY, True), (1 - 1e-4, False)):
        statement = {"kind": "dp", "epsilon": repr(factor * blocks.epsilon), "delta": "1/10000"}
        claim = kernel.ExactClaim(release=release, statement=statement)
        content = {**blocks.content, "tables": [TABLE.canonical()], "tail": TAIL}
        assert accepts(claim, sealed(claim, "sum", **content)) == is_proved


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "before"), [(10**5, 0.0172281473), (10**6, 0.00480162994)])
def test_many_clients_are_certified_fast_and_as_before_by_blocks(
    clients: int, before: float
) -> None:
    # RQM with four levels; the figures are those of the proofs of before, plus what may be lost.
    mechanism = rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    release = Release(mechanism=mechanism, trust="secure_sum", clients=clients, delta=1e-6)
    computed = privacy.account(release).epsilon
    outcome = propose_sum(release, computed)
    assert outcome.proof is not None
    assert [blanket["block"] for blanket in outcome.proof["blankets"]] == [4]
    # The kernel's target: no more than a millionth above the proofs of before.
    assert computed < float(outcome.claim.epsilon) <= before + 1e-6


def test_the_time_of_a_check_adds_up_and_grows_with_all_that_it_visits() -> None:
    time = CheckTime.of(BITS, 50)
    leaf: dict[str, Any] = {"corners": [[1, 2], [0, 0], [0, 0]]}
    assert time.tree(leaf) == time.ladder(3, 2) == 3 * time.corner + 2 * time.component
    assert time.tree({"children": [leaf, leaf]}) == 2 * time.ladder(3, 2)
    assert CheckTime.of(BITS, 50, 801).corner > 2 * time.corner
    assert CheckTime.of(BITS, 5000).corner > 2 * time.corner
    three = np.array([[2**31, 2**31], [2**30, 3 * 2**30], [3 * 2**30, 2**30]])
    assert CheckTime.of(three, 50).corner > time.corner


def test_blankets_are_written_as_they_are() -> None:
    sure = additive_blanket(BITS[:1])
    assert sure is not None
    (written,) = proposals._blanket((0,), sure)["components"]
    assert written == {
        "shape": sure.components[0].shape.tolist(),
        "places": sure.components[0].shifts.tolist(),
    }
    assert proposals._blanket((0, 1), None) == {"rows": [0, 1], "block": 1, "components": []}


def test_grids_are_as_wide_as_losses_and_tails() -> None:
    def composed(**words: Any) -> Release:
        return Release(mechanism=TABLE, delta=1e-6, **words)

    assert proposals._grids(0.5, 1.0986, composed(rounds=4)) == {
        "step": "1/365",
        "grid": {"low": -401, "high": 401},
    }
    # 8 * 0.5 / 10 + 0.001 is 0.401, in steps of 1/998; 60 at most, in steps of 1/7.
    assert proposals._grids(0.5, 1.0986, composed(rounds=100)) == {
        "step": "1/998",
        "grid": {"low": -401, "high": 401},
    }
    assert proposals._grids(500.0, 700.0, composed()) == {
        "step": "1/7",
        "grid": {"low": -420, "high": 420},
    }
    for coordinates, most in ((3, 3 * 401), (10**4, 40 * 40_000)):
        found = proposals._grids(
            1.0, 1.0986, composed(dimension=coordinates, rounds=2, sampling_rate=0.5)
        )
        if coordinates == 3:
            assert found["sampled"] == {"low": -most, "high": most}
        else:
            assert found["sampled"]["high"] == 40 * int(found["step"].removeprefix("1/"))


def test_what_pure_losses_prove_is_no_more_than_they_are() -> None:
    for delta in (0.0, 1e-2):
        outcome = propose_sum(
            privacy.Release(mechanism=TABLE, trust="secure_sum", delta=delta, clients=4), 3.0
        )
        assert outcome.proof is not None
        assert outcome.proof["kind"] == "ratio"
        assert (
            math.log(3) <= float(outcome.claim.epsilon) * (1 + 8 * UNIT) <= math.log(3) * (1 + MANY)
        )
