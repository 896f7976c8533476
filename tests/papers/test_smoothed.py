"""The paper's table and figures as data, and that they can be drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.papers import smoothed_tables as report
from mezzotint.papers.reproduction import Reproduction, Run
from tolerances import printed


def test_all_names_are_there() -> None:
    assert {figure.name for figure in report.FIGURES} == {
        "smoothed-table1",
        "smoothed-figure1",
        "smoothed-figure2-left",
        "smoothed-figure2-right",
        "smoothed-figure3",
        "smoothed-figure4",
        "smoothed-figure5",
        "smoothed-theorem5",
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


FIGURE_2_LEFT = {
    # epsilon -> log10 delta at 5e5, 1e6, 2e6 and 5e6 votes, and the slope of its fit for a million.
    0.5: (-4.289, -6.813, -11.469, -24.744, -4.519),
    1.0: (-8.729, -15.468, -28.541, -67.042, -12.931),
    2.0: (-16.925, -31.797, -61.147, -148.725, -29.265),
    7.0: (-24.752, -49.504, -99.008, -247.521, -49.504),
}


def test_figure_2_left_says_the_slopes_of_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EPSILONS", (0.5, 1.0))
    monkeypatch.setattr(report, "SIZES", (500_000, 1_000_000))
    result = report.figure2_left()
    shown = {(row["epsilon"], row["n"]): row["log10_delta"] for row in result.rows}
    assert len(shown) == 4
    for epsilon, limit in ((0.5, "-4.232"), (1.0, "-12.635")):
        first, second = shown[epsilon, 500_000], shown[epsilon, 1_000_000]
        assert (first, second) == pytest.approx(FIGURE_2_LEFT[epsilon][:2], abs=printed(3))
        fitted, limits = result.note.split("limits are")
        assert f"{2 * (second - first):.3f}" in fitted
        assert limit in limits


@pytest.mark.slow
def test_figure_2_left_is_certified_and_straight_in_n() -> None:
    result = report.figure2_left()
    assert {row["status"] for row in result.rows} == {"closed"}
    for epsilon, (*values, _) in FIGURE_2_LEFT.items():
        found = [row["log10_delta"] for row in result.rows if row["epsilon"] == epsilon]
        assert found == pytest.approx(values, abs=printed(3))
    # DP is dashed and fits are dotted, as in the paper: the first grey curve is the dashed one.
    assert [result.series[0].name, result.series[-1].name] == ["DP", "fit in n"]
    fits = result.series[-1]
    # One broken line: five values for each epsilon, the last of which is a gap.
    for place, (*_, slope) in enumerate(FIGURE_2_LEFT.values()):
        first, last = 5 * place, 5 * place + 3
        rise = (fits.y[last] - fits.y[first]) / (fits.x[last] - fits.x[first])
        assert 1e6 * rise == pytest.approx(slope, abs=printed(3))
    assert "-4.519, -12.931, -29.265, -49.504" in result.note
    assert "-4.232, -12.635, -28.978, -49.133" in result.note


FIGURE_4 = {
    # panel -> epsilon -> log10 delta at its three sizes.
    "districts of 2020, 1 % lost": {
        0.5: (-4.309, -6.845, -11.530),
        2.0: (-16.943, -31.855, -61.335),
    },
    "history since 1920, 0.2 % lost": {
        0.5: (-14.034, -25.337, -47.510),
        2.0: (-100.613, -198.085, -392.559),
    },
}


@pytest.mark.slow
def test_figure_4_is_rigorous_everywhere() -> None:
    rows = report.figure4().rows
    assert len({row["panel"] for row in rows}) == 4
    assert all(row["log10_upper"] >= row["log10_delta"] for row in rows)
    # History: where nothing is certified the bracket is within a digit.
    assert all(row["log10_upper"] - row["log10_delta"] < 1.0 for row in rows)
    for panel, values in FIGURE_4.items():
        for epsilon, noted in values.items():
            found = [
                row["log10_delta"]
                for row in rows
                if (row["panel"], row["epsilon"]) == (panel, epsilon)
            ]
            assert found == pytest.approx(noted, abs=printed(3))


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
def test_gradient_figures_fall_with_n(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RIGHT_SIZES", (16, 36))
    monkeypatch.setattr(report, "OTHER_SIZES", (16, 36))
    for make, panels in ((report.figure2_right, 1), (report.figure5, 4)):
        result = make(Run(quick=True))
        assert len(result.rows) == panels * 6
        for first, second in zip(result.rows[::2], result.rows[1::2], strict=True):
            assert (first["n"], second["n"]) == (16, 36)
            assert second["log10_dp"] < first["log10_dp"]


@pytest.mark.parametrize(
    "make", [report.table1, report.figure1, lambda: report.figure2_right(Run(quick=True))]
)
def test_drawings(
    make: Callable[[], Reproduction], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RIGHT_SIZES", (16, 25))
    result = make()
    facts = json.loads(json.dumps(result.as_dict()))
    assert set(facts) == {"title", "note", "rows"}
    result.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    result.html(tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text()
    assert "<table" in page
    assert 'src="http' not in page
    curves = [one for one in result.series if not one.name.startswith("fit")]
    assert all(math.isfinite(value) for one in curves for value in one.y)
