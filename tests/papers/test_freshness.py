"""Stored results are what this code gives: parts of every one are recomputed, and a change of any kind is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.papers import catalogue
from mezzotint.papers.reproduction import RUNS, Part
from modules import load

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
freshness = load(DOCS / "provenance.py")
NAMES = sorted(path.stem for path in RESULTS.glob("*.json"))
LOCATIONS = {"mnist": "mnist", "femnist": "femnist_leaf_184writers.npz"}
"""Where the shared folder has what an option `data` names."""
SECONDS = 1.2
"""For each result beyond its cheapest part, so that all take under a minute together."""


def stored(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_every_reproduction_but_those_of_data_that_no_package_has_is_stored() -> None:
    assert set(NAMES) <= set(catalogue.figures())
    missing = set(catalogue.figures()) - set(NAMES)
    assert missing <= {"rqm-figure11"}


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_result_says_what_it_was_computed_from(name: str) -> None:
    made = stored(name)["made"]
    assert made["sources"]
    assert all(len(digest) == 16 for digest in (*made["sources"].values(), *made["data"].values()))
    assert made["libraries"]["numpy"]
    assert {"settings", "platform", "seconds", "computed", "version"} <= set(made)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_result_holds_today(name: str, request: pytest.FixtureRequest) -> None:
    data = None
    data_set = catalogue.figures()[name].data
    if data_set in LOCATIONS:
        folder: Path = request.getfixturevalue("shared_data")
        data = str(folder / LOCATIONS[data_set])
    parts = catalogue.parts(name, data)
    if not parts:
        pytest.skip("its data are not here")
    result = stored(name)
    is_stale = bool(freshness.changed_sources(result["made"]))
    # Where a source changed since, more is recomputed.
    verdict = freshness.check(name, result, parts, seconds=3 * SECONDS if is_stale else SECONDS)
    assert verdict.checked
    assert verdict.problems == ()


def _part(value: float, absolute: float = 0.0) -> Part:
    return Part(
        key="one", seconds=0.0, rows=lambda: [{"method": "a", "error": value}], absolute=absolute
    )


ROWS = [{"method": "a", "error": 0.25, "note": "x"}, {"method": "b", "error": 0.5, "note": ""}]


@pytest.mark.parametrize(
    ("part", "agrees"),
    [
        (_part(0.25), True),
        (_part(0.25 * (1 + 1e-12)), True),
        (_part(0.2501), False),
        (_part(0.2501, absolute=1e-3), True),
        (_part(float("inf")), False),
        (Part(key="c", seconds=0.0, rows=lambda: [{"method": "c"}]), False),
    ],
)
def test_a_changed_number_is_seen(part: Part, agrees: bool) -> None:
    assert (part.differences(ROWS) == ()) is agrees


def test_first_runs_are_compared_with_the_first_stored_ones() -> None:
    rows = [{"method": "a", RUNS: [90.0, 91.0, 92.0]}]

    def of(*runs: float) -> Part:
        return Part(key="a", seconds=0.0, rows=lambda: [{"method": "a", RUNS: list(runs)}])

    assert of(90.0).differences(rows) == ()
    assert of(90.0, 91.0).differences(rows) == ()
    assert of(91.0).differences(rows)
    assert of(90.0, 91.0, 92.0, 93.0).differences(rows)
    # Numbers that say which row it is are no results: they are not within a test record of each other.
    near = [{"z": 0.1, RUNS: [90.0]}, {"z": 0.5, RUNS: [90.4]}]
    part = Part(key="z", seconds=0.0, rows=lambda: [{"z": 0.1, RUNS: [90.2]}], absolute=0.9)
    assert part.differences(near) == ()


def test_a_changed_stored_number_a_changed_seed_and_a_changed_source_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Done to a copy of a stored training result and to the running code."""
    pytest.importorskip("sklearn")
    from mezzotint.papers import descent

    result = stored("rqp-table1")
    parts = [part for part in catalogue.parts("rqp-table1") if "svm printed q=0.5" in part.key]
    part = parts[0]
    assert part.differences(result["rows"]) == ()
    changed = [dict(row) for row in result["rows"]]
    for row in changed:
        row[RUNS] = [row[RUNS][0] + 2.0, *row[RUNS][1:]]
    assert part.differences(changed)
    streams: Callable[[int], Any] = descent.Coins.of
    with monkeypatch.context() as patch:
        patch.setattr(descent.Coins, "of", staticmethod(lambda seed: streams(seed + 1)))
        assert part.differences(result["rows"])
    with monkeypatch.context() as patch:
        patch.setattr(descent, "packed", lambda weights, **_: weights)
        errors = descent.LinearData.errors
        patch.setattr(descent.LinearData, "errors", lambda *a: -errors(*a))
        assert part.differences(result["rows"])


def test_sources_are_known_by_what_they_do(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text('"""Says."""\ndef f():\n    """One."""\n    return 1\n', encoding="utf-8")
    first = freshness.source_hash(code)
    code.write_text('"""Other."""\n# more\ndef f():\n    return 1\n', encoding="utf-8")
    assert freshness.source_hash(code) == first
    code.write_text("def f():\n    return 2\n", encoding="utf-8")
    assert freshness.source_hash(code) != first


def test_what_runs_and_what_is_compiled_is_traced() -> None:
    from mezzotint import smoothed

    with freshness.traced() as trace:
        smoothed.profile((30, 20), sampled=40, epsilon=1.0)
    names = {path.name for path in trace.sources}
    assert {"profiles.py", "model.py", "logarithms.py"} <= names
    assert "rqp.py" not in names
    made = freshness.record(trace, {}, 0.0)
    assert freshness.changed_sources(made) == ()
    made["sources"]["smoothed/profiles.py"] = "0" * 16
    assert freshness.changed_sources(made) == ("smoothed/profiles.py",)
