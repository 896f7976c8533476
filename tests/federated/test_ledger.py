"""Rounds on record: numbers given once, nothing lost between processes, interrupted rounds charged at their worst."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from laws.registry import judges
from mezzotint.core.errors import BudgetError, ParameterError, StorageError
from mezzotint.core.files import RepairWarning
from mezzotint.families import rqm
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import TableEncoding
from mezzotint.federated.run_ledger import RunLedger

FACTS = {"session": "x"}
ENCODING = TableEncoding(mechanism=rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42))


def reread(path: Path) -> RunLedger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        return RunLedger(path, FACTS)


def test_two_processes_lose_no_charge_and_share_no_number(tmp_path):
    path = tmp_path / "ledger.jsonl"
    one, other = RunLedger(path, FACTS), RunLedger(path, FACTS)
    numbers = one.start(), other.start()
    assert numbers == (1, 2)
    one.ask(1, ["a", "b"], minimum=2)
    other.ask(2, ["c", "d"], minimum=2)
    one.close(1, ["a", "b"])
    other.close(2, ["c", "d"])
    for ledger in (one, other, RunLedger(path, FACTS)):
        assert ledger.charges == {"a": 1, "b": 1, "c": 1, "d": 1}
        assert ledger.rounds == {1: "released", 2: "released"}


SERVER = """
import os, sys
from mezzotint.core.errors import BudgetError
from mezzotint.federated.run_ledger import RunLedger
ledger = RunLedger(sys.argv[1], {"session": "x"})
for place in range(40):
    number = ledger.start()
    clients = [f"{place % 4}", f"{(place + 1) % 4}"]
    try:
        ledger.ask(number, clients, minimum=2, most_rounds=15)
    except BudgetError:
        ledger.fail(number, "budget")
        continue
    os.write(1, f"{number} {' '.join(clients)}\\n".encode())
    ledger.close(number, clients)
"""


def test_servers_at_the_same_time_keep_every_clients_budget(tmp_path):
    path = tmp_path / "ledger.jsonl"
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    done = [line.split() for server in servers for line in server.communicate()[0].splitlines()]
    assert [server.returncode for server in servers] == [0, 0, 0]
    numbers = [line[0] for line in done]
    assert len(numbers) == len(set(numbers))
    counted = {name: sum(name in line[1:] for line in done) for name in "0123"}
    ledger = RunLedger(path, FACTS)
    assert ledger.charges == counted
    assert max(counted.values()) == 15
    assert list(ledger.rounds) == list(range(1, 121))


@judges("federated.run_ledger.RunLedger.claims")
def test_a_round_that_nobody_was_asked_in_is_charged_to_nobody() -> None:
    """As those that clients dealt in ahead, before their server died."""
    ledger = RunLedger(None, {})
    first, second = ledger.start(), ledger.start()
    ledger.ask(first, ["1", "2"], minimum=2)
    assert ledger.rounds == {first: "interrupted", second: "not announced"}
    assert ledger.charges == {"1": 1, "2": 1}
    ledger.fail(second, "a test")
    assert ledger.rounds[second] == "failed: a test"


def test_an_interrupted_round_is_charged_as_the_smallest_sum_that_it_may_have_been(tmp_path):
    # Forty were asked; a server that died while it unmasked may have summed any 21 of them.
    path = tmp_path / "ledger.jsonl"
    everyone = [str(place) for place in range(40)]
    ledger = RunLedger(path, FACTS)
    ledger.ask(ledger.start(), everyone, minimum=21)
    again = RunLedger(path, FACTS)
    assert again.rounds == {1: "interrupted"}
    assert again.charges == dict.fromkeys(sorted(everyone), 1)
    assert again.smallest_sum == 21
    claim = again.claims(ENCODING, Sums(size=1, clients=1, delta=1e-6))["central"]
    true = ENCODING.claims(Sums(rounds=1, clients=21, size=1, delta=1e-6))["central"]
    asked = ENCODING.claims(Sums(rounds=1, clients=40, size=1, delta=1e-6))["central"]
    assert claim.epsilon == true.epsilon > asked.epsilon


@given(
    st.lists(
        st.tuples(
            st.integers(2, 9), st.integers(1, 9), st.sampled_from(["close", "fail", "die", "start"])
        )
    )
)
def test_claims_count_at_least_what_was_released(rounds):
    ledger = RunLedger(None, FACTS)
    true: dict[str, int] = {}
    smallest = 10
    for size, fewest, end in rounds:
        number = ledger.start()
        if end == "start":
            continue
        names = [str(place) for place in range(size)]
        minimum = min(size, fewest)
        ledger.ask(number, names, minimum=minimum)
        summed = names[size - minimum :]  # as few as the protocol allows
        if end == "fail":
            ledger.fail(number, "test")
            continue
        if end == "close":
            ledger.close(number, summed)
        smallest = min(smallest, len(summed))
        true = {name: true.get(name, 0) + (name in summed) for name in {*true, *summed}}
    charges = ledger.charges
    assert all(charges[name] >= count for name, count in true.items() if count)
    assert ledger.smallest_sum == (smallest if true else 0)


def test_cut_at_every_byte_every_round_that_may_have_been_is_charged(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = RunLedger(path, FACTS)
    sizes = []
    for place in range(2):
        number = ledger.start()
        ledger.ask(number, ["a", f"b{place}"], minimum=2)
        sizes.append(path.stat().st_size)  # from here on masked inputs may be on their way
        if place == 0:
            ledger.close(number, ["a", "b0"])
    raw = path.read_bytes()
    for point in range(len(raw) + 1):
        path.write_bytes(raw[:point])
        cut = reread(path)
        due = sum(size <= point for size in sizes)
        assert cut.charges.get("a", 0) >= due
        before = max(cut.rounds, default=0)
        assert before >= due
        assert cut.start() == before + 1
        again = RunLedger(path, FACTS)
        assert again.repairs == ()
        assert again.charges == cut.charges


def test_only_whoever_started_a_round_may_speak_of_it(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mine, theirs = RunLedger(path, FACTS), RunLedger(path, FACTS)
    number = mine.start()
    mine.ask(number, ["a", "b"], minimum=2)
    for call in (
        lambda: mine.ask(number, ["a"], minimum=1),
        lambda: theirs.ask(number, [], minimum=2),
        lambda: theirs.fail(number, "says the other"),
        lambda: theirs.close(number, ["a"]),
        lambda: mine.ask(7, ["a", "b"], minimum=2),
        lambda: mine.ask(number, ["a", "b"], minimum=0),
        lambda: mine.close(number, ["a", "c"]),
    ):
        with pytest.raises(ParameterError):
            call()
    mine.close(number, ["a", "b"])
    for call in (
        lambda: mine.close(number, ["a"]),
        lambda: mine.fail(number, "no"),
        lambda: mine.ask(1, [], minimum=1),
    ):
        with pytest.raises(ParameterError, match="over"):
            call()
    assert RunLedger(path, FACTS).charges == {"a": 1, "b": 1}


def test_a_budget_of_rounds_is_checked_where_it_is_charged():
    ledger = RunLedger(None, FACTS)
    for _ in range(2):
        number = ledger.start()
        ledger.ask(number, ["a", "b"], minimum=2, most_rounds=2)
        ledger.close(number, ["a", "b"])
    number = ledger.start()
    with pytest.raises(BudgetError, match="nothing was announced"):
        ledger.ask(number, ["b", "c"], minimum=2, most_rounds=2)
    ledger.ask(number, ["c", "d"], minimum=2, most_rounds=2)
    ledger.fail(number, "too few")
    assert ledger.charges == {"a": 2, "b": 2}


@pytest.mark.parametrize("count", [math.nan, math.inf, 1.5, -1, "2", True])
def test_limits_of_rounds_are_counts(count: Any) -> None:
    """No comparison with NaN holds, so that it would limit nothing: nobody is announced."""
    ledger = RunLedger(None, FACTS)
    number = ledger.start()
    for limits in ({"minimum": count}, {"minimum": 2, "most_rounds": count}):
        with pytest.raises(ParameterError, match=f"{[*limits][-1]}="):
            ledger.ask(number, ["a", "b"], **limits)
    assert ledger.charges == {}
    ledger.ask(number, ["a", "b"], minimum=2, most_rounds=np.int64(1))


def test_a_ledger_that_cannot_be_written_stops_the_round(tmp_path, monkeypatch):
    ledger = RunLedger(tmp_path / "ledger.jsonl", FACTS)
    number = ledger.start()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mezzotint.core.files.os.fsync", full)
    with pytest.raises(StorageError, match="nothing may be released"):
        ledger.ask(number, ["a", "b"], minimum=2)
    monkeypatch.undo()
    assert ledger.charges == {}


def _beyond(variance: float, epsilon: Any) -> Any:
    """Hockey-stick divergence at epsilon of a Gaussian whose loss has this variance."""
    deviation = math.sqrt(variance)
    upper = norm.sf((epsilon - variance / 2) / deviation)
    return upper - np.exp(epsilon) * norm.sf((epsilon + variance / 2) / deviation)


def test_a_server_that_chooses_kinds_by_what_it_saw_reaches_more_than_delta() -> None:
    """Why sums of a table are alone on a ledger: sums of Gaussian noise first, then more of them where
    the loss is near the budget, and else a table that shows everything with probability delta / 2
    and nothing otherwise. Each plan alone is within.
    """
    budget, delta = 1.0, 1e-6

    def most(share: float) -> float:
        return brentq(lambda variance: _beyond(variance, budget) - share, 1e-4, 1.0)

    alone, first = most(delta), most(delta / 2)
    spread = math.sqrt(first)
    losses = np.linspace(first / 2 - 9 * spread, first / 2 + 12 * spread, 200_001)
    weights = norm.pdf(losses, first / 2, spread) * (losses[1] - losses[0])
    more_noise = _beyond(alone - first, budget - losses)
    shown = np.maximum(0.0, 1 - np.exp(budget - losses)) * (1 - delta / 2) + delta / 2
    # A sum over 2e5 steps errs by their square: 1e-8 of these totals, and ten times as much below.
    assert weights @ more_noise == pytest.approx(delta, rel=1e-6)
    # As above; and delta^2 of both at once.
    assert weights @ shown == pytest.approx(delta, rel=1e-6)
    chosen = float(weights @ np.maximum(more_noise, shown))
    assert 1.49 * delta < chosen < 1.5 * delta
    # With Gaussian noise alone, the plan of the larger variance is beyond the other everywhere.
    less_noise = _beyond(0.9 * (alone - first), budget - losses)
    # Differences of probabilities round by a few units of 2^-52.
    assert (less_noise <= more_noise + 2.0**-48).all()
