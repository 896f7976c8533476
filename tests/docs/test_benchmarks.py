"""The table of what certificates cost has every row of the benchmark, and keeps to the bounds that are promised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mezzotint import families
from modules import load

ROOT = Path(__file__).resolve().parents[2]
SECTION = "Certified beside computed"
TABLES = json.loads((ROOT / "benchmarks" / "results" / "tables.json").read_text(encoding="utf-8"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, naming its rows without computing them."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    found = load(ROOT / "benchmarks" / "kernel.py")
    monkeypatch.setattr(found, "_line", lambda name, *_: name)
    table = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    monkeypatch.setattr(found, "TABLES", dict.fromkeys(found.TABLES, lambda: table))
    monkeypatch.setattr(found.design, "optimal", lambda **_: SimpleNamespace(mechanism=table))
    return found


def stored(name: str) -> dict[str, list[str]]:
    """The cells of each row of a stored table, by its first cell."""
    rows = TABLES[name]["rows"]
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))
    return {row[0]: row[1:] for row in rows}


def certified() -> dict[str, list[str]]:
    """The cells of each row of the tables of certificates, by its name."""
    rows: dict[str, list[str]] = {}
    for name in TABLES:
        if name.partition(",")[0] == SECTION:
            assert not rows.keys() & stored(name).keys()
            rows |= stored(name)
    return rows


def test_every_row_of_the_benchmark_stands_on_its_page_and_no_other(script: ModuleType) -> None:
    parts: list[Any] = [script.local, script.sums, script.examples, script.training]
    parts += [script.users, script.memoised, script.profiles]
    assert {name for part in parts for name in part()} == set(certified())


ONE_BLANKET = ("RQM m=16", "optimal even 4, epsilon 0.5", "optimal even 4, epsilon 1")
"""Tables whose sums of 100,000 clients and more the float accountant bounds by one blanket too."""


def _allowed(name: str) -> float:
    crowd = re.search(r"sum, ([\d,]+) clients$", name)
    if crowd is None:
        return 1.002 if "sum" not in name and "noise" not in name else 1.03
    clients = int(crowd[1].replace(",", ""))
    if clients >= 10**5:
        return 1.002 if name.startswith(ONE_BLANKET) else 1.03
    return 1.005 if clients == 1000 else 1.03


def test_certified_epsilons_are_as_close_as_promised_or_called_computed_with_the_reason() -> None:
    reasons = (
        (ROOT / "docs" / "recheck.md")
        .read_text(encoding="utf-8")
        .split("## What stays computed")[1]
    )
    rows = certified()
    for name, (_, ratio, kind, seconds) in rows.items():
        if ratio == "computed":
            assert (kind, seconds) == ("", ""), name
            assert f"`{name}`" in reasons, name
        else:
            # A proof may begin at a finer grid than the accountant's, or stand on a Renyi order.
            least = 0.99 if kind in {"losses", "renyi"} else 1
            assert least <= float(ratio.removesuffix(" (delta)")) <= _allowed(name), name
            assert 0 < float(seconds) <= 60, name
            assert kind in {"ratio", "delta", "renyi", "losses", "sum", "gaussian", "profile"}, name
    assert sum(ratio != "computed" for _, ratio, *_ in rows.values()) > 50


def test_rows_of_a_secure_round_on_the_engine_are_those_of_the_benchmark() -> None:
    names = list(stored("A secure round on Flower's engine"))
    source = (ROOT / "benchmarks" / "federated.py").read_text(encoding="utf-8")
    stages = {
        name: "its stage {name!r}, median seconds" for name in names if name.startswith("its stage")
    }
    assert len(names) == 10
    assert [name for name in names if stages.get(name, name) not in source] == []


LARGE_SUMS = "Sums of many clients, and of long vectors"


def test_large_sums_on_the_page_are_those_of_the_benchmark_with_its_parameters() -> None:
    script = load(ROOT / "benchmarks" / "federated_scale.py")
    assert TABLES[LARGE_SUMS]["headings"][1:] == [row.name for row in script.ROWS]
    by_name = stored(LARGE_SUMS)
    assert set(by_name) == {"members, quorum, picks, least", *script.MEASURES}
    for row, said in zip(script.ROWS, by_name["members, quorum, picks, least"], strict=True):
        found = row.parameters
        assert said == f"{found.members}, {found.quorum}, {found.picks}, {found.least}"
    for row, said in zip(script.ROWS, by_name["server memory allowed, MB"], strict=True):
        assert float(said.replace(",", "")) == pytest.approx(
            row.memory_allowed / 1e6, rel=5e-3
        )  # three digits


@pytest.mark.slow
def test_mechanisms_of_the_network_have_the_error_and_the_epsilon_that_the_page_says() -> None:
    script = load(ROOT / "benchmarks" / "rqm_networks.py")
    rows = stored("RQM with its network")
    numbers = {
        name: [float(one) for one in re.findall(r"=([\d.]*\d)", rows[name][0])]
        for name in ("RQM", "PBM")
    }
    (levels, extension, q), (trials, theta, _) = numbers["RQM"], numbers["PBM"]
    assert (levels, trials) == (script.LEVELS, script.TRIALS)
    randomized = script.families.rqm(
        lower=-1, upper=1, levels=script.LEVELS, extension=extension, q=q
    )
    binomial = script.families.pbm(lower=-1, upper=1, trials=script.TRIALS, theta=theta)
    for name, table in (("RQM", randomized), ("PBM", binomial)):
        _, _, epsilon, error, *_ = rows[name]
        # The setting is printed in six digits, epsilon in four and the error in three behind the point.
        assert script.sum_epsilon(table) == pytest.approx(float(epsilon), abs=1e-4)
        # So its printed probability moves it by less.
        assert table.mse() == pytest.approx(float(error), rel=1e-4)


def test_every_stored_table_is_on_the_page_once() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    hooks = load(ROOT / "docs" / "hooks.py")
    shown = [hooks.measured_parts(name, TABLES) for name in hooks.MEASURED.findall(page)]
    assert [name for names in shown for name in names] == list(TABLES)
    for names in shown:
        drawn = hooks.measured(names[0])
        for name in names:
            lines = ["| " + " | ".join(row) + " |" for row in TABLES[name]["rows"]]
            assert "\n".join(lines) in drawn
            assert TABLES[name].get("measured", "") in drawn
    for table in TABLES.values():
        columns = len(table["headings"])
        assert {len(row) for row in table["rows"]} == {columns}
