"""The ledger: nothing that was released is ever forgotten, and no budget is exceeded, by however many at a time."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from counting import calls
from mezzotint import FileFormatError, ParameterError, families, privacy
from mezzotint.core.errors import BudgetError, StorageError
from mezzotint.core.files import RepairWarning
from mezzotint.privacy.charges import (
    GLOBAL,
    Charge,
    admits,
    compose_releases,
    downwards,
    upwards,
)
from mezzotint.privacy.ledger import Ledger
from tolerances import FEW


def release(
    name: str, epsilon: float = 0.5, client: str = GLOBAL, delta: float = 1e-7, **others: str
) -> Charge:
    return Charge(
        identity=name,
        client=client,
        epsilon=epsilon,
        delta=delta,
        description='line\nbreak, "quotes"',
        **others,
    )


def reread(path: Path) -> Ledger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        return Ledger(path)


@given(spent=st.floats(0, 5), budget=st.floats(0, 5))
def test_what_is_left_is_never_overstated(spent: float, budget: float) -> None:
    left = privacy.Spent(epsilon=spent, delta=0.0, releases=1).left(budget)
    exact = max(Fraction(0), Fraction(budget) - Fraction(spent))
    assert 0 <= left <= exact
    assert exact <= Fraction(left) * (1 + Fraction(FEW)) + Fraction(math.ulp(0.0))


# Charges -----------------------------------------------------------------------------------------------------


def test_charges_are_there_after_reading_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.charge(release("a"))
    ledger.charge(release("b", math.inf, client="ann"))
    again = Ledger(path=path)
    assert again.charges == ledger.charges
    assert again.spent().epsilon == 0.5
    assert math.isinf(again.spent("ann").epsilon)
    assert math.isinf(again.worst().epsilon)
    assert again.repairs == ()


def test_every_attempt_is_charged(tmp_path):
    # Charge, release, crash, rerun: two releases.
    path = tmp_path / "ledger.jsonl"
    first = Ledger(path).charge(release("a", 0.25))
    ledger = Ledger(path)
    second = ledger.charge(release("a", 0.25))
    assert (first.attempt, second.attempt) == (1, 2)
    assert ledger.spent().epsilon == 0.5
    assert [one.identity for one in ledger.releases] == ["a", "a"]
    with pytest.raises(BudgetError):
        ledger.reserve(release("a", 0.25), budget=(0.5, 1e-3))


def test_the_same_bits_are_the_same_release(tmp_path):
    path = tmp_path / "ledger.jsonl"
    bits = [hashlib.sha256(text).hexdigest() for text in (b"drawn", b"drawn again")]
    first = Ledger(path).charge(release("a", fingerprint=bits[0]))
    ledger = Ledger(path)
    assert ledger.charge(release("a", fingerprint=bits[0])) == first  # made before, sent again
    assert ledger.reserve(release("a", fingerprint=bits[0]), budget=(0.5, 1e-6)) == first
    assert not ledger.would_exceed(0.5, 1e-6, release=release("a", fingerprint=bits[0]))
    assert ledger.charge(release("a", fingerprint=bits[1])).attempt == 2  # drawn anew
    assert ledger.charge(release("a")).attempt == 3  # nothing is proved
    assert ledger.spent().epsilon == 1.5
    ledger.withdraw(first, reason="the socket never opened")
    assert ledger.charge(release("a", fingerprint=bits[0])).attempt == 4
    with pytest.raises(ParameterError, match="another price"):
        ledger.charge(release("a", 0.1, fingerprint=bits[0]))


def test_what_never_left_is_withdrawn_by_whoever_knows(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    charge = ledger.charge(release("a", client="ann"))
    kept = ledger.charge(release("a", client="ann"))
    ledger.withdraw(charge, reason="refused before the first byte")
    assert Ledger(path).spent("ann").epsilon == ledger.spent("ann").epsilon == 0.5
    assert [one.withdrawn for one in Ledger(path).charges] == ["refused before the first byte", ""]
    for wrong, reason in ((charge, "again"), (replace(kept, token="none"), "what"), (kept, "")):
        with pytest.raises(ParameterError):
            ledger.withdraw(wrong, reason=reason)
    assert ledger.spent("ann").epsilon == 0.5


def test_a_claim_has_its_price(tmp_path):
    claim = privacy.account(
        families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42), rounds=3, delta=1e-6
    )
    priced = Charge.of(claim, identity="week", client="ann")
    assert (priced.epsilon, priced.delta, priced.description) == (
        claim.epsilon,
        claim.delta,
        str(claim),
    )

    class Seeded:
        epsilon, delta, seeded = 1.0, 0.0, True

    with pytest.raises(ParameterError, match="not private"):
        Charge.of(Seeded(), identity="week")


# Crashes -----------------------------------------------------------------------------------------------------


def test_cut_at_every_byte_it_charges_at_least_what_was_released_says_so_and_goes_on(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    synced = []
    for number in range(3):
        ledger.charge(release(f"r{number}", 0.1 * (number + 1), client=f"c{number % 2}"))
        synced.append((path.stat().st_size, ledger.charges))
    raw = path.read_bytes()
    cut = tmp_path / "cut.jsonl"
    header = raw.index(b"\n") + 1
    for point in range(len(raw) + 1):
        cut.write_bytes(raw[:point])
        loaded = reread(cut)
        released = max((kept for size, kept in synced if size <= point), key=len, default=())
        assert loaded.charges[: len(released)] == released
        assert len(loaded.charges) <= len(released) + 1
        assert math.isfinite(loaded.worst().epsilon)  # it stays usable
        for client in ("c0", "c1"):
            due = sum(
                Fraction(one.release.epsilon) for one in released if one.release.client == client
            )
            assert Fraction(loaded.spent(client).epsilon) >= due
        whole = point <= header or any(size == point for size, _ in synced)
        assert bool(loaded.repairs) == (not whole)
        # Loading twice changes nothing more, and the ledger goes on.
        again = Ledger(cut)
        assert (again.charges, again.repairs) == (loaded.charges, ())
        again.charge(release("later"))
        assert Ledger(cut).releases[-1].identity == "later"


def test_damage_elsewhere_is_an_error(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for name in "abc":
        ledger.charge(release(name))
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    for spoiled in (
        [lines[0], lines[1][:-2], *lines[2:]],
        [b'{"format":"other"}', *lines[1:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[1], lines[1], *lines[2:]],
        [lines[0], lines[1], lines[2].replace(b"0.5", b"0.1"), *lines[3:]],
        [*lines[:3], lines[3].replace(b"0.5", b"0.1"), b""],
        [*lines[:2], lines[1].replace(b"0.5", b"-99"), *lines[2:]],
    ):
        path.write_bytes(b"\n".join(spoiled))
        with pytest.raises(FileFormatError, match="ledger"):
            Ledger(path)
    path.write_bytes(b"not a ledger")
    with pytest.raises(FileFormatError, match="other file"):
        Ledger(path)


def test_a_ledger_of_another_version_is_not_started_over(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"format":"mezzotint-ledger","version":1}\n')
    with pytest.raises(FileFormatError, match="version"):
        Ledger(path)


WRITER = """
import os, sys, warnings
from mezzotint.core.errors import BudgetError
from mezzotint.privacy.ledger import Ledger, Charge
warnings.simplefilter("ignore")
ledger, name, budget = Ledger(sys.argv[1]), sys.argv[2], float(sys.argv[3])
for number in range(int(sys.argv[4])):
    release = Charge(identity=f"{name}-{number}", client=("ann", "*", "bob")[number % 3], epsilon=0.25, delta=0.0)
    try:
        ledger.reserve(release, budget=(budget, 0.0))
        os.write(1, f"{release.identity}\\n".encode())
    except BudgetError:
        pass
"""


def writer(path, name: str, budget: float, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(budget), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_reserve_together_keep_the_budget_and_lose_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    workers = [writer(path, name, 5.0, 60) for name in ("a", "b", "c")]
    released = [name for worker in workers for name in worker.communicate()[0].split()]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    ledger = Ledger(path)
    assert sorted(one.identity for one in ledger.releases) == sorted(released)
    # Budgets are used up, by ann or bob, and by nobody exceeded: all is in quarters, so sums are exact.
    assert ledger.worst().epsilon == 5.0
    everyone = {"ann", "bob", GLOBAL}
    assert {client: ledger.spent(client).epsilon <= 5.0 for client in everyone} == dict.fromkeys(
        everyone, True
    )


def test_killed_writers_forget_no_charge_and_keep_the_budget(tmp_path):
    path, told = tmp_path / "ledger.jsonl", set()
    for kill in range(5):
        pair = [writer(path, f"{kill}-{place}", 3000.0, 10**6) for place in range(2)]
        for place, process in enumerate(pair):
            with process:
                assert process.stdout is not None
                told |= {
                    process.stdout.readline().strip() for _ in range(1 + (3 * kill + place) % 7)
                }
                process.kill()
                told |= {name.strip() for name in process.stdout.readlines() if name.endswith("\n")}
    ledger = reread(path)
    names = [one.identity for one in ledger.releases]
    assert len(told) >= 10
    assert told <= set(names)
    assert len(names) == len(set(names))
    assert ledger.worst().epsilon <= 3000.0


def test_objects_on_one_file_count_each_others_charges(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = Ledger(path), Ledger(path)
    second.charge(release("theirs", 0.75))
    assert first.spent().epsilon == 0.75
    assert first.would_exceed(1.0, 1e-6, release=release("ours"))
    with pytest.raises(BudgetError, match="Nothing was charged"):
        first.reserve(release("ours"), budget=(1.0, 1e-6))
    assert [one.identity for one in Ledger(path).releases] == ["theirs"]


def test_a_ledger_that_cannot_be_written_lets_nothing_be_released(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mezzotint.core.files.os.fsync", full)
    with pytest.raises(StorageError, match="nothing may be released"):
        ledger.reserve(release("a"), budget=(1.0, 1e-6))
    monkeypatch.undo()
    assert ledger.releases == ()


# Budgets -----------------------------------------------------------------------------------------------------


def test_a_release_is_refused_for_the_person_who_pays_for_it():
    ledger = Ledger()
    ledger.charge(release("a", 0.9, client="ann", delta=0.0))
    assert ledger.would_exceed(1.0, 0.0, release=release("b", 0.5, client="ann", delta=0.0))
    assert not ledger.would_exceed(1.0, 0.0, release=release("b", 0.5, client="bob", delta=0.0))
    # A release about everyone is about ann too.
    assert ledger.would_exceed(1.0, 0.0, release=release("b", 0.5, delta=0.0))
    for client, fits in (("bob", True), ("ann", False), (GLOBAL, False)):
        wanted = release(f"c-{client}", 0.5, client=client, delta=0.0)
        if fits:
            ledger.reserve(wanted, budget=(1.0, 0.0))
        else:
            with pytest.raises(BudgetError, match=r"'ann' would have spent epsilon 1[.]4"):
                ledger.reserve(wanted, budget=(1.0, 0.0))
    assert ledger.worst().epsilon == 0.9


def test_budgets():
    ledger = Ledger()
    ledger.charge(release("a", 1.0, client="ann", delta=1e-6))
    ledger.charge(release("b", 0.5))
    assert not ledger.would_exceed(1.6, 1e-5, client="ann")
    assert ledger.would_exceed(1.4, 1e-5, client="ann")
    assert not ledger.would_exceed(1.4, 1e-5, client=GLOBAL)
    assert ledger.would_exceed(1.4, 1e-5)  # somebody does
    assert ledger.would_exceed(1.6, 1e-7, client="ann")
    assert ledger.would_exceed(1.6, 1e-5, client="ann", release=release("c", 0.2))
    assert ledger.would_exceed(0.0, 0.0)
    assert not Ledger().would_exceed(0.0, 0.0)
    assert ledger.worst().epsilon == 1.5
    for budget in (
        (-1.0, 0.0),
        (math.nan, 0.0),
        (1.0, math.nan),
        (1.0, 2.0),
        (1.0, -1e-9),
        ("1", 0.0),
        (True, 0.0),
        (1.0, False),
        (np.True_, 0.0),
        (1.0,),
        3.0,
    ):
        with pytest.raises(ParameterError, match="budget"):
            ledger.reserve(release("d"), budget=budget)
    with pytest.raises(ParameterError, match="budget"):
        ledger.would_exceed(-1.0, 0.0)


def test_several_releases_are_reserved_together_or_not_at_all():
    ledger = Ledger()
    three = [release("day", 0.4, client=name, delta=0.0) for name in ("ann", "ann", "bob")]
    ledger.reserve_all(three[1:2], budget=(1.0, 0.0))
    with pytest.raises(BudgetError):
        ledger.reserve_all([three[0], three[0]], budget=(1.0, 0.0))
    with pytest.raises(ParameterError, match="another price"):
        ledger.reserve_all(
            [release("new", 0.1, client="bob"), release("new", 0.2, client="bob")],
            budget=(1.0, 1.0),
        )
    assert len(ledger.charges) == 1
    bob = release("bob", 0.4, client="bob", delta=0.0)
    assert [one.attempt for one in ledger.reserve_all([three[0], bob], budget=(1.0, 0.0))] == [2, 1]
    assert ledger.reserve_all([], budget=(1.0, 0.0)) == ()


def test_budgets_are_compared_exactly():
    ledger = Ledger()
    for number in range(2**10):
        ledger.reserve(release(str(number), 2.0**-10, delta=0.0), budget=(1.0, 0.0))
    with pytest.raises(BudgetError):
        ledger.reserve(release("more", 5e-324, delta=0.0), budget=(1.0, 0.0))
    assert ledger.spent().epsilon == 1.0
    # Three times the float 0.1 is more than the float 0.3.
    ledger = Ledger()
    for number in range(2):
        ledger.reserve(release(str(number), 0.1, delta=0.0), budget=(0.3, 0.0))
    with pytest.raises(BudgetError):
        ledger.reserve(release("third", 0.1, delta=0.0), budget=(0.3, 0.0))


amounts = st.floats(0, 4) | st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 1.0, 1e300, math.inf])
people = st.sampled_from(["ann", "bob", "*", "Zoë", "Zoe\u0308", "\ud800", "名", "*\n"])


@given(st.lists(st.tuples(people, amounts, st.floats(0, 1), st.booleans()), max_size=12))
def test_sums_never_understate(charges):
    ledger = Ledger()
    for number, (client, epsilon, delta, withdrawn) in enumerate(charges):
        charge = ledger.charge(release(str(number), epsilon, client=client, delta=delta))
        if withdrawn:
            ledger.withdraw(charge, reason="test")
    worst = ledger.worst()
    for person in ("ann", "bob", "Zoë", "Zoe\u0308", "名", "nobody", "*\n", GLOBAL):
        # Two spellings of one name are one person.
        mine = [
            one
            for one in charges
            if not one[3]
            and one[0].replace("e\u0308", "ë") in (GLOBAL, person.replace("e\u0308", "ë"))
        ]
        spent = ledger.spent(person)
        infinite = any(math.isinf(one[1]) for one in mine)
        exact = math.inf if infinite else sum((Fraction(one[1]) for one in mine), Fraction())
        assert spent.epsilon >= exact
        assert spent.delta >= min(1, sum((Fraction(one[2]) for one in mine), Fraction()))
        assert spent.releases == len(mine)
        assert worst.epsilon >= spent.epsilon
        assert worst.delta >= spent.delta
        assert ledger.would_exceed(spent.epsilon, spent.delta, client=person) == (
            sum((Fraction(one[2]) for one in mine), Fraction()) > 1
        )


@given(
    st.lists(st.tuples(people, st.sampled_from([0.1, 0.3, 0.7, 1.0]), st.sampled_from([0.0, 1e-7])))
)
def test_reservations_never_exceed_the_budget(wishes):
    ledger = Ledger()
    for number, (client, epsilon, delta) in enumerate(wishes):
        wish = release(str(number), epsilon, client=client, delta=delta)
        delta = 2e-7
        expected = ledger.would_exceed(2.0, delta, release=wish)
        try:
            ledger.reserve(wish, budget=(2.0, delta))
            refused = False
        except BudgetError:
            refused = True
        assert refused == expected
        worst = ledger.worst()
        assert worst.epsilon <= 2.0
        assert worst.delta <= delta


# Shards ------------------------------------------------------------------------------------------------------


def test_shards_merge_once_and_attempts_add_up(tmp_path):
    first, second = Ledger(tmp_path / "m.jsonl"), Ledger(tmp_path / "s.jsonl")
    first.charge(release("a"))
    second.charge(release("a"))  # released by both shards
    gone = second.charge(release("b", client="ann"))
    for _ in range(2):
        first.merge(second)
    again = Ledger(tmp_path / "m.jsonl")
    assert [(one.release.identity, one.attempt) for one in again.charges] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ]
    second.withdraw(gone, reason="never sent")
    first.merge(second)
    first.merge(first)
    assert Ledger(tmp_path / "m.jsonl").spent("ann").epsilon == 1.0
    other = Ledger()
    other.charge(release("new"))
    other.charge(release("a", 9.0))
    with pytest.raises(ParameterError, match="another price"):
        first.merge(other)
    assert len(first.charges) == 3


# The filter and the odometer ---------------------------------------------------------------------------------


def test_the_odometer_reads_plain_sums_whatever_the_slack():
    ledger = Ledger(slack=1e-6)
    for number in range(200):
        ledger.reserve(release(str(number), 0.1, delta=0.0), budget=(10.0, 1e-6))
    assert ledger.spent().epsilon >= 200 * Fraction(0.1)
    assert ledger.spent().method == ledger.worst().method == "basic composition"
    assert "in 200 releases (basic composition)" in str(ledger.spent())
    assert compose_releases([]).epsilon == 0.0


def test_with_slack_the_budget_is_fixed_before_the_first_charge(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, slack=1e-7)
    ledger.reserve(release("a", delta=0.0), budget=(3.0, 1e-6))
    for slack, budget in (
        (1e-7, (4.0, 1e-6)),
        (1e-7, (3.0, 1e-5)),
        (1e-8, (3.0, 1e-6)),
        (0.0, (3.0, 1e-6)),
    ):
        with pytest.raises(ParameterError, match="were fixed at"):
            Ledger(path, slack=slack).reserve(release("b", delta=0.0), budget=budget)
    Ledger(path, slack=1e-7).reserve(release("b", delta=0.0), budget=(3.0, 1e-6))
    late = Ledger(tmp_path / "late.jsonl", slack=1e-7)
    late.charge(release("a"))
    with pytest.raises(ParameterError, match="before the first charge"):
        late.reserve(release("b"), budget=(3.0, 1e-6))
    # Plain sums need no such promise.
    plain = Ledger()
    plain.reserve(release("a", 0.5), budget=(0.5, 1e-6))
    plain.reserve(release("b", 0.5), budget=(1.0, 1e-6))


def response(epsilon: float) -> tuple[float, float]:
    """Randomized response: the chances of the truth and of a lie."""
    return math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))


@pytest.mark.parametrize("slack", [0.0, 0.01, 0.2])
def test_no_adversary_gets_more_out_of_the_filter_than_its_budget(slack):
    # Adversaries choose each price in the light of all answers, and may leak outright with a release's delta. Every
    # transcript is enumerated with its chances in both worlds; the hockey-stick divergence is a plain sum.
    rng = np.random.default_rng(5)
    epsilon, delta = 1.0, 0.25
    admitted, largest = 0, 0.0
    for _ in range(100):
        prices = zip(
            rng.uniform(0.05, 0.5, 6).tolist(),
            rng.choice([0.0, 0.0, 0.05], 6).tolist(),
            strict=True,
        )
        menu = list(prices)
        policy = rng.integers(0, 6, size=2**8)
        total, stack = 0.0, [(1.0, 1.0, (), 1)]
        while stack:
            one, other, paid, state = stack.pop()
            wish = menu[policy[state % 256]]
            now = (*paid, release(str(len(paid)), wish[0], delta=wish[1]))
            if len(paid) == 7 or not admits(now, epsilon=epsilon, delta=delta, slack=slack):
                total += max(0.0, one - math.exp(epsilon) * other)
                continue
            admitted += 1
            truth, lie = response(wish[0])
            stack.append((one * (1 - wish[1]) * truth, other * (1 - wish[1]) * lie, now, 2 * state))
            stack.append(
                (one * (1 - wish[1]) * lie, other * (1 - wish[1]) * truth, now, 2 * state + 1)
            )
            total += one * wish[1]  # a leak: this answer never comes in the other world
        largest = max(largest, total)
        assert total <= delta + FEW
    assert admitted > 500
    assert largest > 1e-3


def test_the_slack_counts_whichever_bound_holds():
    # Adversary: with high losses bet on the martingale, else use up delta. If plain sums within (epsilon, delta) were
    # enough by themselves, both would go wrong together with more than delta.
    pure = [release(str(number), 0.1, delta=0.0) for number in range(8)]
    leak = [release("leak", 0.0, delta=0.25)]
    assert admits([*pure, *leak], epsilon=1.0, delta=0.25)
    assert not admits([*pure, *leak], epsilon=1.0, delta=0.25, slack=0.1)
    assert admits([*pure, release("leak", 0.0, delta=0.1)], epsilon=1.0, delta=0.25, slack=0.1)


def test_advanced_composition_admits_more_and_never_more_than_is_private():
    # Exact: k-fold randomized response, sum over the number of worse answers (binomial).
    epsilon, slack = 0.1, 1e-6
    budget = 10.0
    count = 0
    while admits(
        [release("x", epsilon, delta=0.0)] * (count + 1), epsilon=budget, delta=slack, slack=slack
    ):
        count += 1
    assert count > 1.5 * budget / epsilon
    p, q = response(epsilon)
    exact = sum(
        math.comb(count, k)
        * max(0.0, p**k * q ** (count - k) - math.exp(budget) * q**k * p ** (count - k))
        for k in range(count + 1)
    )
    assert exact <= slack
    assert not admits([release("x", math.inf)], epsilon=budget, delta=1.0, slack=0.1)
    assert admits([release("x", math.inf)], epsilon=math.inf, delta=1.0)


# Bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": -5e-324}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": "1.0"}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"delta": 1 + 2**-52}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"identity": ""}, "identity"),
        ({"client": ""}, "identity"),
        ({"client": 7}, "client"),
        ({"fingerprint": "abc"}, "fingerprint"),
        ({"fingerprint": "Z" * 64}, "fingerprint"),
    ],
)
def test_bad_releases_are_named(arguments, match):
    with pytest.raises(ParameterError, match=match):
        Charge(**{"identity": "a", "client": "b", "epsilon": 1.0, "delta": 0.0, **arguments})


def test_numbers_of_other_kinds_are_rounded_up():
    third = Charge(identity="a", client="b", epsilon=Fraction(1, 3), delta=Decimal("0.1"))
    assert Fraction(third.epsilon) >= Fraction(1, 3)
    assert Fraction(third.delta) >= Fraction(1, 10)
    assert release("a", 2**53 + 1).epsilon == 2**53 + 2
    assert math.isinf(release("a", 10**400).epsilon)
    assert release("a", np.float32(0.1)).epsilon == float(np.float32(0.1))
    assert json.loads(json.dumps(release("a", np.float64(0.1)).epsilon)) == 0.1


def test_bad_paths_are_named(tmp_path):
    with pytest.raises(ParameterError, match="folder"):
        Ledger(tmp_path / "no" / "l.jsonl")
    with pytest.raises(ParameterError, match="slack"):
        Ledger(slack=1.0)
    assert repr(Ledger()) == "Ledger(None, 0 charges)"


def test_names_of_any_kind_come_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    names = ["ann", " ann", "Ann", "*\u200b", "名前", "\ud800", "a" * 10_000, '"},{"', "\x00", "\n"]
    ledger = Ledger(path)
    for name in names:
        ledger.charge(release(name, 1.0, client=name))
    again = Ledger(path)
    assert [one.client for one in again.releases] == names
    assert all(again.spent(name).epsilon == 1.0 for name in names)


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for moment in (1e9, 0.0, -1e9, 4e9):
        monkeypatch.setattr("time.time", lambda moment=moment: moment)
        ledger.charge(release(str(moment), 0.25))
    assert Ledger(path).spent().epsilon == 1.0


def test_many_people_are_charged_in_linear_time(tmp_path):
    def charged(people: int) -> None:
        path = tmp_path / f"{people}.jsonl"
        ledger = Ledger(path)
        many = [
            release(f"day-{number}", 0.25, client=f"client {number}", delta=0.0)
            for number in range(people)
        ]
        assert len(ledger.reserve_all(many, budget=(1.0, 0.0))) == people
        ledger.reserve(release("everyone", 0.75, delta=0.0), budget=(1.0, 0.0))
        with pytest.raises(BudgetError, match="client 0"):
            ledger.reserve(release("everyone again", 0.25, delta=0.0), budget=(1.0, 0.0))
        again = Ledger(path)
        assert again.worst() == ledger.worst()
        assert again.worst().epsilon == 1.0

    few, many = (calls(lambda people=people: charged(people)) for people in (100, 1600))
    assert many < 20 * few  # 16 times as many people; quadratic: 256 times the work


def test_the_working_directory_may_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    ledger.charge(release("a"))
    assert [one.identity for one in Ledger(tmp_path / "ledger.jsonl").releases] == ["a"]


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(3, 10)]
)
def test_prices_are_rounded_up_and_budgets_down(value: Fraction) -> None:
    assert Fraction(upwards(value)) >= value >= Fraction(downwards(value))


def test_amounts_whose_squares_no_float_can_hold_do_not_fit():
    ledger = Ledger(slack=1e-9)
    with pytest.raises(BudgetError, match="exceeds the budget"):
        ledger.reserve(release("a", 1e200, delta=0.0), budget=(1.0, 1e-6))
    assert ledger.reserve(release("b", 0.5, delta=0.0), budget=(1.0, 1e-6)).attempt == 1


def test_budgets_of_any_kind_of_number_are_rounded_down():
    ledger = Ledger()
    ledger.charge(release("a", 1e300, delta=0.0))
    assert not ledger.would_exceed(10**400, 0.0)
    assert ledger.would_exceed(Fraction(10**300) - 1, 0.0)
    assert not ledger.would_exceed(Fraction(1e300), 0.0)


def test_refusals_name_whoever_would_pay_too_much():
    ledger = Ledger()
    with pytest.raises(BudgetError, match="everyone"):
        ledger.reserve(release("a", 2.0), budget=(1.0, 1e-6))
    with pytest.raises(BudgetError, match="client 'ann'"):
        ledger.reserve(release("b", 2.0, client="ann"), budget=(1.0, 1e-6))
