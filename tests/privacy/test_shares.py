"""Shares of delta, chances of clones, columns and participation: what is added up adds up exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from mezzotint import families
from mezzotint.core.types import TOTAL
from mezzotint.privacy import Release, account, shuffled
from mezzotint.privacy.local import PLD
from strategies import random_table


@pytest.mark.parametrize("rounds", [3, 5, 7, 11, 49, 93])
def test_rounds_of_a_shuffle_share_delta_and_add_up_exactly(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def each(epsilon: float, *, delta: float, **_: object) -> float:
        asked.append(delta)
        return epsilon / 7

    monkeypatch.setattr(shuffled, "clones_epsilon", each)
    table = families.randomized_response(epsilon=1.0)
    for delta in (1e-6, 3e-7, 1e-9, 0.01):
        claim = account(table, trust="shuffler", clients=100, rounds=rounds, delta=delta)
        assert rounds * Fraction(asked[-1]) <= Fraction(delta)
        assert Fraction(dict(claim.alternatives)["clones"]) >= rounds * Fraction(table.epsilon / 7)


def test_coins_are_never_likelier_than_the_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drawn(Exception):
        pass

    def seen(blanket: object, *_: object, **__: object) -> None:
        raise Drawn(blanket)

    monkeypatch.setattr(shuffled, "blanket_noise", seen)
    for k in range(2**31, 2**31 + 60):
        # The next float above log(TOTAL / k), whose exponential is less than k / TOTAL.
        epsilon = float(mpmath.log(mpmath.mpf(TOTAL) / k))
        if mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL >= k:
            epsilon = math.nextafter(epsilon, 1)
        with pytest.raises(Drawn) as caught:
            shuffled.clones_epsilon(epsilon, clients=10, delta=1e-6)
        mass = int(caught.value.args[0].components[0].shifts.sum())
        assert (
            mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL - 2
            <= mass
            <= mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL
        )


def test_columns_add_up_exactly() -> None:
    for seed in range(12):
        tables = {
            str(spread): random_table(seed, rows=2, levels=3, spread=spread)
            for spread in (0.01, 1.0, 9.0)
        }
        exact = sum((Fraction(table.epsilon) for table in tables.values()), Fraction(0))
        ours = Fraction(account(tables, delta=0.0).epsilon)
        assert exact <= ours < exact * (1 + Fraction(1, 2**51))


def test_sampled_grids_are_those_of_what_is_said_about_participation() -> None:
    table = families.rqm(levels=4, extension=1.0, q=0.42)
    common = {"mechanism": table, "rounds": 20, "delta": 1e-4, "sampling_rate": 0.5}
    replaced = dict(account(Release(**common, sampling="poisson")).alternatives)[PLD]
    added = dict(
        account(Release(**common, sampling="poisson", neighboring="add_or_remove_one")).alternatives
    )[PLD]
    seen = dict(account(Release(**common)).alternatives)[PLD]
    # By more than anything rounds.
    assert added + 1e-2 < replaced < seen - 1
