"""The paper's table and figures as data, and that they can be drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.papers import smoothed_tables as report
from mezzotint.papers.reproduction import Reproduction


def test_all_names_are_there() -> None:
    assert set(report.REPRODUCTIONS) == {
        "smoothed-table1",
        "smoothed-figure1",
        "smoothed-figure2-left",
        "smoothed-figure2-right",
        "smoothed-figure3",
        "smoothed-figure4",
        "smoothed-figure5",
    }


def test_figure_1_runs_from_1e_8_to_1e_32_and_below_one_in_n() -> None:
    rows = {row["year"]: row for row in report.figure1().rows}
    assert round(rows[1920]["log10_delta"], 2) == -7.79
    assert round(rows[2020]["log10_utility"], 2) == -31.95
    assert all(
        row["log10_utility"] <= row["log10_delta"] < row["log10_one_over_n"]
        for row in rows.values()
    )


def test_figure_3_has_every_setting_and_d_is_private() -> None:
    result = report.figure3()
    panels = {row["panel"] for row in result.rows}
    assert len(panels) == 6
    lines = [row for row in result.rows if row["panel"] == "t = 0.6, 0.01 % lost"]
    assert all(row["log10_delta"] < row["log10_one_over_n"] for row in lines)


@pytest.mark.slow
def test_figure_2_left_is_certified_and_falls_with_n_and_epsilon() -> None:
    rows = report.figure2_left().rows
    assert {row["status"] for row in rows} == {"closed"}
    value = {(row["epsilon"], row["n"]): row["log10_delta"] for row in rows}
    assert round(value[2.0, 10**6], 3) == -31.797
    assert round(value[7.0, 10**8], 2) == -4917.48
    for n in (10**5, 10**6, 10**7, 10**8):
        assert value[0.5, n] > value[1.0, n] > value[2.0, n] > value[7.0, n]


@pytest.mark.slow
def test_figure_4_is_rigorous_everywhere() -> None:
    rows = report.figure4().rows
    assert len({row["panel"] for row in rows}) == 4
    assert all(row["log10_upper"] >= row["log10_delta"] for row in rows)
    # History: where nothing is certified the bracket is within a digit.
    assert all(row["log10_upper"] - row["log10_delta"] < 1.0 for row in rows)


def test_table_1_has_the_papers_three_entries() -> None:
    rows = report.table1().rows
    assert [row["paper"].split(" =")[0] for row in rows] == [
        "(epsilon, exp(-Theta(n)))",
        "(0, eta)",
        "(eta epsilon, 0)",
    ]
    assert "closed" in rows[0]["ours"]
    assert "0.998" in rows[1]["ours"]


@pytest.mark.slow
def test_gradient_figures_fall_with_n() -> None:
    for make, panels in ((report.figure2_right, 1), (report.figure5, 4)):
        result = make(sizes=(16, 36), draws=2)
        assert len(result.rows) == panels * 6
        for first, second in zip(result.rows[::2], result.rows[1::2], strict=True):
            assert (first["n"], second["n"]) == (16, 36)
            assert second["log10_dp"] < first["log10_dp"]
            assert first["low"] <= first["log10_delta"] <= first["high"]


@pytest.mark.parametrize(
    "make", [report.table1, report.figure1, lambda: report.figure2_right(sizes=(16, 25), draws=2)]
)
def test_drawings(make: Callable[[], Reproduction], tmp_path: Path) -> None:
    result = make()
    facts = json.loads(json.dumps(result.as_dict()))
    assert set(facts) == {"title", "note", "rows"}
    result.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    result.html(tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text()
    assert "<table" in page
    assert 'src="http' not in page
    assert all(math.isfinite(value) for series in result.series for value in series.y)
