"""The report of a mechanism: its numbers against the mechanism's own and closed forms; the page as one file."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mezzotint import design, families, privacy
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, number, percent
from mezzotint.core.types import TOTAL
from mezzotint.report import mechanism_pages as reports
from mezzotint.report.drawings import write_png
from mezzotint.report.mechanism_pages import compare
from mezzotint.report.page_html import embedded, html_page
from tolerances import FEW, SOLVED, printed

MOST_BYTES = 150_000
"""Of a page."""


@pytest.fixture(scope="module")
def mechanism() -> Mechanism:
    return families.randomized_response(lower=-1, upper=1, epsilon=1.0)


@pytest.fixture(scope="module")
def page(mechanism: Mechanism) -> reports.Page:
    return reports.mechanism_page(mechanism)


def _figure(page: reports.Page, key: str) -> reports.Figure:
    return next(figure for figure in page.figures if figure.key == key)


def test_every_question_has_its_section(page: reports.Page) -> None:
    titles = [section.title for section in page.sections]
    assert titles == [
        "What it does",
        "What it guarantees",
        "How good it is",
        "What n reports buy",
        "How to verify it",
    ]
    assert len({figure.key for figure in page.figures}) == len(page.figures) == 6


def test_a_chart_of_the_bias_is_drawn_where_there_is_one(page: reports.Page) -> None:
    assert "bias" not in {figure.key for figure in page.figures}
    biased = design.optimal(1.0, levels=[-3, 0, 3], knots=5, max_bias=0.2).mechanism
    assert biased.max_bias > 1e-3
    assert "bias" in {figure.key for figure in reports.mechanism_page(biased).figures}


def test_slider_frames_are_distributions_with_the_input_as_mean(page: reports.Page) -> None:
    (slider,) = page.sliders
    frames = np.array(slider.frames)
    np.testing.assert_allclose(frames.sum(axis=1), 1.0, atol=1e-6)  # pages round to seven digits
    np.testing.assert_allclose(
        frames @ np.array(slider.levels), slider.inputs, atol=1e-6
    )  # as above
    assert slider.inputs[0] == -1.0
    assert slider.inputs[-1] == 1.0


def test_profile_of_one_bit_response_is_the_closed_form(page: reports.Page) -> None:
    # delta(e) = (e^1 - e^e) / (1 + e^1) for p = e / (1 + e), 1 - p.
    (curve,) = _figure(page, "profile").curves
    expected = [(math.e - math.exp(float(e))) / (1 + math.e) for e in curve.x]
    np.testing.assert_allclose(curve.y, expected, atol=1e-8)  # rounding to weights, 2^-32


def test_renyi_curve_of_one_bit_response_is_the_closed_form(page: reports.Page) -> None:
    curve = _figure(page, "renyi").curves[0]
    p = math.e / (1 + math.e)
    expected = [
        math.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
        for a in map(float, curve.x)
    ]
    # Weights are rounded by 2^-32 of probabilities of a quarter, which orders near 1 enlarge.
    np.testing.assert_allclose(curve.y, expected, rtol=1e-6)


def test_tradeoff_has_the_corner_of_one_bit_response(page: reports.Page) -> None:
    curve = _figure(page, "tradeoff").curves[0]
    p = math.e / (1 + math.e)
    np.testing.assert_allclose(curve.x, [0.0, 1 - p, 1.0], atol=1e-8)  # rounding to weights, 2^-32
    np.testing.assert_allclose(curve.y, [0.0, p, 1.0], atol=1e-8)
    words = " ".join(page.sections[1].words)
    assert percent(0.05 * math.e) in words  # the best detection at 5 % false alarms
    assert percent(p) in words  # the best guess


def test_the_claim_and_its_integers_are_quoted_whole_and_in_one_standing(
    page: reports.Page, mechanism: Mechanism
) -> None:
    claim, integers = page.sections[1].words[:2]
    assert claim == str(privacy.report_claim(mechanism))
    found = mechanism.certificate()
    assert f"log({found.numerator}/{found.denominator}) <= {found.epsilon!r}" in integers
    assert claim.startswith("Certified: ")
    assert "(certified, " in page.summary
    (shown,) = [section.table for section in page.sections if section.title == "How good it is"]
    assert shown is not None
    assert shown.headings[1] == "epsilon (certified, to an observer of every single report)"
    table = page.sections[-1].table
    assert table is not None
    cells = dict(table.rows)
    assert cells["sha256"] == mechanism.sha256
    assert math.log(int(cells["numerator"]) / int(cells["denominator"])) == pytest.approx(
        mechanism.epsilon, rel=FEW
    )


def exact_half_width(reports: float) -> float:
    """Half of Clopper and Pearson's interval for the mean where half of the reports of one bit are 1, by scipy.

    Whatever the inputs of mean 0 are, that is what one bit reports.
    """
    ones = reports / 2
    greatest = stats.beta.ppf(0.975, ones + 1, reports - ones)
    level = 1 / math.tanh(0.5)  # the code's; the inputs end at 1
    return min(level * (2 * greatest - 1), 1.0)


def test_interval_width_is_the_exact_one_of_a_bit(page: reports.Page) -> None:
    worst, uniform, _ = _figure(page, "interval").curves
    expected = [exact_half_width(float(n)) for n in worst.x]
    assert expected == sorted(expected, reverse=True)
    np.testing.assert_allclose(worst.y, expected, rtol=printed(6))
    np.testing.assert_allclose(uniform.y, expected, rtol=printed(6))


def test_reports_needed_reach_the_width(page: reports.Page) -> None:
    table = page.sections[3].table
    assert table is not None
    needed = int(table.rows[2][1].replace(",", ""))  # 1 % of the range: 0.02
    # The normal quantile to six decimals.
    assert exact_half_width(needed) <= 0.02 * (1 + printed(6))
    assert exact_half_width(needed - 1) > 0.02 * (1 - printed(6))


def test_what_has_a_unit_names_it(page: reports.Page) -> None:
    """Errors, biases, widths and ranges: squared data units where they are squared."""
    labels = [label for figure in page.figures for label in (figure.x_label, figure.y_label)]
    for table in (section.table for section in page.sections if section.table is not None):
        labels += [*table.headings, *(row[0] for row in table.rows)]
    assert sum("data units)" in label for label in labels) > 8
    for label in labels:
        squared = "squared error" in label or "MSE" in label
        if squared or re.search(
            r"MAE|absolute error|greatest bias|half width|range of|mean of|^input", label
        ):
            assert label.endswith("(squared data units)" if squared else "(data units)"), label


def test_rivals_stand_in_one_format_with_this_mechanism_marked(
    page: reports.Page, mechanism: Mechanism
) -> None:
    table = next(section.table for section in page.sections if section.title == "How good it is")
    assert table is not None
    assert table.own is not None
    assert table.rows[table.own][0] == "this mechanism"
    for column in (1, 3, 4):
        decimals = {len(row[column].partition(".")[2]) for row in table.rows}
        assert len(decimals) == 1
    assert float(table.rows[table.own][1]) >= mechanism.epsilon
    assert all(re.fullmatch(r"\d\.\de[-+]\d\d", row[5]) for row in table.rows)
    text = html_page(page)
    assert text.count('<tr class="own" aria-current="true"><td>this mechanism</td>') == 1


def test_rivals_are_held_to_the_same_epsilon_and_above_the_limit(mechanism: Mechanism) -> None:
    comparison = compare(mechanism)
    assert comparison.limit is not None
    assert len(comparison.rivals) > 5
    for rival in comparison.rivals:
        assert rival.epsilon <= mechanism.epsilon
        # I-MVU is allowed a bias and may go below the limit of unbiased mechanisms.
        assert rival.mse() >= comparison.limit or rival.max_bias > 1e-6
    # One bit: nothing beats randomized response, whose MSE is coth(1/2)^2 - 1/3.
    best = min(rival.mse() for rival in comparison.rivals if rival.max_bias < 1e-6)
    assert best == pytest.approx(1 / math.tanh(0.5) ** 2 - 1 / 3, rel=SOLVED)


@pytest.mark.parametrize("epsilon", [16.0, 0.0])
def test_no_comparison_where_epsilon_is_out_of_reach(epsilon: float) -> None:
    weights = [[TOTAL - 1, 1], [1, TOTAL - 1]] if epsilon else [[TOTAL // 2, TOTAL // 2]] * 2
    comparison = compare(Mechanism(knots=[0.0, 1.0], levels=[0.0, 1.0], weights=weights))
    assert comparison.limit is None
    assert "no comparison" in comparison.remarks[0]


def test_unbounded_epsilon_is_called_so() -> None:
    page = reports.mechanism_page(families.stochastic_rounding(lower=0, upper=1, levels=4))
    assert "no pure epsilon" in page.summary
    assert "Infinity" not in html_page(page).split('id="sliders">')[1].split("</script>")[0]


def test_large_tables_are_summed_into_bars_and_stay_small() -> None:
    table = families.pbm(lower=0, upper=1, trials=255, theta=0.05, knots=5)
    page = reports.mechanism_page(table)
    (slider,) = page.sliders
    assert len(slider.levels) == reports.MOST_BARS
    # 255 numbers that the page rounds to seven digits.
    np.testing.assert_allclose(np.array(slider.frames).sum(axis=1), 1.0, atol=1e-4)
    assert len(html_page(page).encode()) < MOST_BYTES


def test_the_page_is_one_small_file_without_addresses(page: reports.Page) -> None:
    text = html_page(page)
    assert len(text.encode()) < MOST_BYTES
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text


def test_names_cannot_inject_markup() -> None:
    evil = "</script><script>alert(1)</script>"
    table = Mechanism(
        knots=[0.0, 1.0], levels=[0.0, 1.0], weights=[[TOTAL // 2, TOTAL // 2]] * 2, name=evil
    )
    text = html_page(reports.mechanism_page(table, file='"><img src=x>.json'))
    assert evil not in text
    assert "<img" not in text
    assert json.loads(embedded([evil])) == [evil]


def test_text_of_others_is_escaped() -> None:
    """A name can hold what no encoding has, and what moves a cursor."""
    table = families.randomized_response(epsilon=1.0)
    hostile = Mechanism(
        knots=table.knots, levels=table.levels, weights=table.weights, name="a\x1b[2Jb\ud800"
    )
    text = html_page(reports.mechanism_page(hostile))
    assert "\x1b" not in text
    assert r"a\x1b[2Jb\ud800" in text
    text.encode()


def test_png_of_every_figure(page: reports.Page, tmp_path: Path) -> None:
    paths = write_png(page, tmp_path)
    assert {path.stem for path in paths} == {"pmf", *(figure.key for figure in page.figures)}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    with pytest.raises(ParameterError, match="exists already"):
        write_png(page, tmp_path)
    with pytest.raises(ParameterError, match="no such folder"):
        write_png(page, tmp_path / "none")


def test_words_round_privacy_numbers_up() -> None:
    assert above(0.99999991) == "1"
    assert above(1.0000001, 3) == "1.01"
    assert percent(1.0) == "100 %"
    assert above(math.inf) == "unbounded"
    assert number(None) == "-"
    assert number(467339.4) == "467339"
