"""The benchmark of what secure sums cost in accuracy: its quick simulation is the protocol's, its table its own."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from mezzotint.datasets import load_federation
from mezzotint.federated.budgets import Sums
from modules import load

ROOT = Path(__file__).resolve().parents[2]
SECTION = "Secure sums beside a trusted server"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on 40 clients with the digits."""
    found = load(ROOT / "benchmarks" / "federated_utility.py")
    monkeypatch.setattr(found, "CLIENTS", 40)
    monkeypatch.setattr(found, "ROUNDS", 4)
    monkeypatch.setattr(
        found,
        "federation_of",
        lambda folder, seed: load_federation("digits", clients=40, seed=seed),
    )
    return found


@pytest.mark.parametrize("sampling", ["cyclic", "fixed"])
@pytest.mark.parametrize("place", [0, 4, 9])
def test_the_simulation_sums_what_the_protocol_sums(
    script: ModuleType, sampling: str, place: int
) -> None:
    """With noise too small to change what a digit is taken for, but for at most two of the 360 that test."""
    setting = script.Setting(clip=0.2, server=script.SERVERS[place])
    row = script.Row(folder="", clients_per_round=15, adds=script.STAY, sampling=sampling)
    quick = row.simulated(setting, 0.0, 3)
    assert quick > 60
    for multiplier in (0.0, 1e-3):
        assert row.protocol(setting, multiplier, 3) == pytest.approx(quick, abs=100 * 2 / 360)


def test_both_sides_have_the_participation_and_the_budget_of_each_other(script: ModuleType) -> None:
    """As many rounds each; noise for a fifth less is larger by the root of 5/4, to the accuracy of the search."""
    found = {
        adds: script.Row(folder="", clients_per_round=15, adds=adds)
        for adds in (script.TRUSTED, script.STAY, script.VANISH)
    }
    assert {row.sums for row in found.values()} == {2}
    trusted, stay, vanish = (row.multiplier(650) for row in found.values())
    assert trusted <= stay <= 1.02 * trusted
    # As the search leaves it.
    assert vanish == pytest.approx(stay * (15 / 12) ** 0.5, rel=0.02)
    for adds, multiplier in ((script.STAY, stay), (script.VANISH, vanish)):
        row = found[adds]
        encoding = row.encoding(multiplier, 0.3, 650)
        claim = encoding.central(Sums(rounds=2, clients=row.least, size=650, delta=script.DELTA))
        assert 1.95 < claim.epsilon <= script.EPSILON


def test_what_is_chosen_is_the_best_of_each_list_in_turn(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By scores made up so that each list has one best, wherever the others stand."""
    monkeypatch.setattr(
        script.Row, "simulated",
        lambda self, setting, multiplier, seed: (
            -abs(script.SERVERS.index(setting.server) - 6) - abs(setting.clip - 0.2) - script.LOCAL.index(setting.local)
        ),
    )  # fmt: skip
    chosen = script.Row(folder="", clients_per_round=15, adds=script.TRUSTED).tuned(1.0, [7])
    assert chosen == script.Setting(clip=0.2, local=script.LOCAL[0], server=script.SERVERS[6])


def test_the_page_says_what_sums_cost_within_the_goal_of_three_points() -> None:
    """Of every row with a difference: it is that of the means beside it, and at most 3 where clients take turns."""
    tables = (ROOT / "benchmarks" / "results" / "tables.json").read_text(encoding="utf-8")
    stored = json.loads(tables)[SECTION]
    head, rows = stored["headings"], stored["rows"]
    place, accuracy, less = (
        head.index(name) for name in ("clients a round", "accuracy", "less than trusted")
    )
    trusted = {
        row[place]: float(row[accuracy].split()[0]) for row in rows if "trusted" in " ".join(row)
    }
    compared = [row for row in rows if row[less]]
    assert {row[place] for row in compared} == set(trusted) >= {"100", "200", "1,000"}
    for row in compared:
        difference = float(row[less].split()[0].replace("\u2212", "-"))
        # Means are rounded to .01, twice.
        assert difference == pytest.approx(
            trusted[row[place]] - float(row[accuracy].split()[0]), abs=0.0151
        )
        assert difference < 3 or "`--participation fixed`" in row[place]
