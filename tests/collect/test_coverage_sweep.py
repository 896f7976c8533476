"""The sweeps of benchmarks/coverage*.py: they are silent about intervals as they are, and sound the alarm when these
are narrowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from mezzotint import collect
from mezzotint.collect import Interval
from mezzotint.collect.evidence import Evidence
from modules import load
from tolerances import FEW, MANY

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LEVELS = (0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
SHARE = "share 0..0.1"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / name)


def moved(point: float, end: float, factor: float) -> float:
    """An end at a factor of its distance."""
    return point + factor * (end - point)


def narrow_shares(sweep: ModuleType, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the product's intervals of shares narrower by a factor."""
    share, share_end = Evidence.share, Evidence.share_end

    def narrowed(fit: Evidence, low: float, high: float) -> Interval:
        whole = share(fit, low, high)
        ends = [moved(whole.value, end, factor) for end in (whole.low, whole.high)]
        return Interval(value=whole.value, low=ends[0], high=ends[1])

    def narrowed_end(fit: Evidence, low: float, high: float, *, upper: bool) -> float:
        point = sweep.point_of(fit, f"share {low}..{high}")
        return moved(point, share_end(fit, low, high, upper=upper), factor)

    monkeypatch.setattr(Evidence, "share", narrowed)
    monkeypatch.setattr(Evidence, "share_end", narrowed_end)


def alarms_about_shares(sweep: ModuleType, table: str, n: int) -> list[float]:
    """The levels of a share that alarm: by sums over all outcomes where they are few, else by tilted draws."""
    mechanism, column = sweep.TABLES[table](), sweep.COLUMNS["90/10"]
    cells = sweep.summed_cells(table, mechanism, n, ["90/10"], LEVELS)
    if cells is None:
        place = {"table": table, "column": "90/10"}
        cells = list(sweep.drawn_cells(place, mechanism, column, n, LEVELS, "asymptotic"))
    assert {cell.what for cell in cells} == {SHARE}
    return [cell.confidence for cell in cells if cell.alarming]


@pytest.mark.parametrize(("table", "n"), [("rr1", 12), ("stepped10e4", 20)])
@pytest.mark.parametrize(("factor", "least"), [(1.0, 0), (0.7, 2), (0.5, 6)])
def test_narrowed_shares_alarm(
    table: str, n: int, factor: float, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = script("coverage_shapes.py", monkeypatch)
    truths = sweep.truths
    monkeypatch.setattr(sweep, "truths", lambda column: {SHARE: truths(column)[SHARE]})
    monkeypatch.setattr(sweep, "STAGES", ((40, 0.4), (160, 0.8), (300, math.inf)))
    narrow_shares(sweep, factor, monkeypatch)
    alarms = alarms_about_shares(sweep, table, n)
    assert len(alarms) >= least
    assert least or not alarms


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_narrowed_means_alarm(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two levels, whose interval is Clopper and Pearson's, and of four, where a score decides."""
    sweep = script("coverage.py", monkeypatch)
    exact, accepts = sweep.clopper_pearson, sweep.score_accepts

    def narrowed(hits: np.ndarray, n: int, tail: float) -> Sequence[np.ndarray]:
        return [moved(hits / n, end, factor) for end in exact(hits, n, tail)]

    def accepts_at(
        mechanism: object, counts: np.ndarray, truth: float, confidence: float
    ) -> Sequence[np.ndarray]:
        # The interval at the level whose normal quantile is smaller by the factor.
        quantile = stats.norm.ppf((1 + confidence) / 2)
        return accepts(mechanism, counts, truth, 2 * stats.norm.cdf(factor * quantile) - 1)

    monkeypatch.setattr(sweep, "clopper_pearson", narrowed)
    monkeypatch.setattr(sweep, "score_accepts", accepts_at)
    for table, n in (("rr1", 100), ("opt4e1", 100)):
        cells = list(sweep.mean_cells(table, sweep.TABLES[table](), "smooth", n, 20_000, LEVELS))
        alarms = [cell.confidence for cell in cells if cell.alarming]
        assert (len(alarms) >= 4) if factor < 1 else not alarms


def narrow_differences(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes intervals of differences, which users get, narrower by a factor."""
    difference = collect.difference

    def narrowed(one: collect.Part, other: collect.Part, **options: bool) -> Interval:
        whole = difference(one, other, **options)
        ends = [moved(whole.value, end, factor) for end in (whole.low, whole.high)]
        return Interval(value=whole.value, low=ends[0], high=ends[1])

    monkeypatch.setattr(collect, "difference", narrowed)


@pytest.mark.parametrize(("factor", "least"), [(1.0, 0), (0.5, 3)])
def test_narrowed_differences_alarm(
    factor: float, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the function that users call."""
    sweep = script("coverage.py", monkeypatch)
    narrow_differences(factor, monkeypatch)
    columns = sweep.COLUMNS["smooth"], sweep.COLUMNS["90/10"]
    place = {"table": "rr4", "column": "smooth, 90/10", "n": 40}
    experiment = sweep.of_groups("rr4", columns, (40, 40), ["mean"])
    cells = list(sweep.cells_of(place, experiment, LEVELS[:4]))
    alarms = [cell for cell in cells if cell.alarming and cell.what == "difference-mean"]
    assert len(alarms) >= least
    assert least or not alarms


@pytest.mark.parametrize(("factor", "least"), [(1.0, 0), (0.75, 2)])
def test_tilted_draws_see_what_high_levels_miss(
    factor: float, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70 draws show intervals of .999 and .9999 that are a quarter too narrow."""
    sweep = script("coverage_tilted.py", monkeypatch)
    narrow_differences(factor, monkeypatch)
    experiment = sweep.of_two_groups("rr4", ("smooth", "90/10"), (40, 40), "difference-mean")
    cells = list(sweep.cells_of(experiment, 70, LEVELS))
    alarms = [cell.confidence for cell in cells if cell.alarming]
    assert len(alarms) >= least
    assert not least or {0.999, 0.9999} <= set(alarms)
    assert least or not alarms


@pytest.mark.parametrize("quantity", ["difference-mean", "stratified", "total"])
def test_weights_of_tilted_draws_are_1_on_average(
    quantity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = script("coverage_tilted.py", monkeypatch)
    if quantity == "total":
        experiment = sweep.of_survey("rr4", 10)
    else:
        experiment = sweep.of_two_groups("rr4", ("smooth", "90/10"), (40, 80), quantity)
    rng = np.random.default_rng(3)
    draws = 140 * len(sweep.TILTS)
    weights = [experiment.draw(i % len(sweep.TILTS), rng).weight for i in range(draws)]
    assert max(weights) <= len(sweep.TILTS)
    # Their standard error, 5 times; a seeded draw.
    assert np.mean(weights) == pytest.approx(1, abs=5 * np.std(weights) / math.sqrt(draws))


@pytest.mark.parametrize("confidence", LEVELS)
def test_a_level_that_is_kept_multiplies_no_capital(
    confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected factor of a draw that misses as often as allowed is 1, whatever its weight."""
    bet_of = script("coverage_shapes.py", monkeypatch).Bet
    for weight in (1.0, 0.25):
        missed, held = bet_of(confidence), bet_of(confidence)
        missed.add(weight)
        held.add(0.0)
        chance = (1 - confidence) / weight
        if chance > 1:
            continue
        capital = chance * math.exp(missed.evidence) + (1 - chance) * math.exp(held.evidence)
        assert capital == pytest.approx(1.0, abs=FEW)
    many, one_by_one = bet_of(confidence), bet_of(confidence)
    many.add_many(30, 4)
    for draw in range(30):
        one_by_one.add(float(draw < 4))
    assert many.evidence == pytest.approx(one_by_one.evidence, abs=MANY)
    assert many.missed == pytest.approx(one_by_one.missed, rel=FEW)
