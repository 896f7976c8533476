"""Numbers as people read them, plain values, and records that print themselves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import collect, design, families, privacy, smoothed, vectors
from mezzotint.core.records import (
    Record,
    Records,
    above,
    below,
    confidence_percent,
    number,
    percent,
    plain,
)


@given(st.floats(1e-300, 1e300), st.integers(1, 12))
def test_privacy_is_never_shown_as_less_than_it_is(value: float, digits: int) -> None:
    shown = float(above(value, digits))
    # Ten to the digits, less one, is the least mantissa: a step of its last digit is the most that is added.
    assert Fraction(value) <= Fraction(repr(shown)) + Fraction(math.ulp(value)) / 2
    assert shown <= value * (1 + 1.0000001 * 10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(0.95, "95 %"), (0.999, "99.9 %"), (0.99999, "99.999 %"), (1 - 1e-9, "99.9999999 %")],
)
def test_no_confidence_is_shown_as_certainty(confidence: float, words: str) -> None:
    assert confidence_percent(confidence) == words
    assert confidence_percent(float(np.nextafter(1, 0))) != "100 %"


@pytest.mark.parametrize("value", ["0.1", "1e-05", "1e-300", "2.5", "0.000123456", "123456.0"])
def test_what_was_given_with_few_digits_stands_as_it_was(value: str) -> None:
    assert float(above(float(value))) == float(value)


def test_words_for_what_is_no_number_and_exponents_whole() -> None:
    assert [number(None), number(math.inf), above(math.inf)] == ["-", "unbounded", "unbounded"]
    assert {number(-math.inf), above(-math.inf), below(-math.inf)} == {"-unbounded"}
    assert [below(math.inf), number(-0.0), above(-0.0)] == ["unbounded", "0", "0"]
    assert [number(1.23456e-123, 4), above(1.23456e-123, 4)] == ["1.235e-123", "1.235e-123"]
    assert [number(1234567.0, 4), percent(0.12341)] == ["1.235e+06", "12.4 %"]


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    name: str
    values: Any
    limit: float
    extra: float | None = None
    hidden: object = field(default=None, repr=False)
    beside = ("size",)

    @property
    def size(self) -> int:
        return len(self.values)


def test_a_record_prints_itself_and_keeps_what_is_hidden() -> None:
    sample = Sample(name="<a>", values=np.arange(9) / 8, limit=math.inf, hidden=object())
    facts = {"name": "<a>", "values": (np.arange(9) / 8).tolist(), "limit": "inf", "size": 9}
    assert sample.as_dict() == facts
    assert json.loads(sample.to_json()) == facts
    assert str(sample).splitlines() == [
        "name    <a>",
        "values  0, 0.125, 0.25, ..., 0.875, 1",
        "limit   inf",
        "size    9",
    ]
    assert "<th>name</th><td>&lt;a&gt;</td>" in sample._repr_html_()
    assert Sample(name="b", values=(), limit=1.0, extra=2.0).as_dict()["extra"] == 2.0


def test_plain_values_are_json_whatever_they_are() -> None:
    interval = collect.Interval(value=1.0, low=0.0, high=math.inf)
    mixed = {"a": (Fraction(1, 3), np.float64(2.0)), 3: [math.nan, None, True], "i": interval}
    shown = {
        "a": ["1/3", 2.0],
        "3": ["nan", None, True],
        "i": {"value": 1.0, "low": 0.0, "high": "inf"},
    }
    assert plain(mixed) == shown
    assert json.loads(json.dumps(plain(mixed), allow_nan=False)) == shown


def test_claims_are_records_and_keep_their_sentence() -> None:
    claim = privacy.report_claim(families.randomized_response(lower=-1, upper=1, epsilon=1.0))
    assert json.loads(claim.to_json()) == plain(claim.as_dict())
    assert str(claim).startswith("Certified: (1, 0)-differential privacy")
    assert "<th>certified</th><td>True</td>" in claim._repr_html_()


@given(st.floats(-1e300, 1e300))
def test_what_is_left_is_never_shown_as_more_than_it_is(value: float) -> None:
    # Both are decimals near the float: a unit of its last place between them.
    assert Fraction(repr(float(below(value)))) <= Fraction(value) + Fraction(math.ulp(value)) / 2


def test_bounds_are_printed_rounded_against_us() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Bounds(Record):
        epsilon: float = 0.12345678
        log10_upper: float = -0.12345678
        log10_lower: float = -0.12345678
        lower_bound: float = 0.12345678
        mse: float = 0.12345678

    lines = dict(line.rsplit(maxsplit=1) for line in str(Bounds()).splitlines())
    assert [*lines.values()] == ["0.123457", "-0.123456", "-0.123457", "0.123456", "0.123457"]
    assert "<td>-0.123456</td>" in Bounds()._repr_html_()


SETTING = vectors.Setting(
    clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0
)
TABLE = families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
COUNTS = collect.CodeCounts.from_codes(TABLE.privatize([4.0] * 1000, rng=0), mechanism=TABLE)


def test_a_list_of_results_is_one_table_and_says_once_what_they_share() -> None:
    rows = design.compare(epsilon=1.0, bits=1, families=("optimal", "laplace"))
    assert isinstance(rows, list)
    head, *lines, shared = str(rows).splitlines()
    assert head.split()[:2] == ["family", "bits"]
    assert [line.split()[0] for line in lines] == ["optimal", "laplace"]
    assert shared == "epsilon 1, observer reports, trust local"
    assert rows._repr_html_().startswith("<table><tr><th>family</th>")
    assert rows._repr_html_().endswith(f"<p>{shared}</p>")
    (row,) = design.compare(epsilon=1.0, bits=1, families=("optimal",))
    assert str(Records([row])).splitlines()[0].split()[:2] == ["family", "epsilon"]
    assert str(Records([])) == ""
    pytest.importorskip("pandas")
    assert list(rows.to_frame()["family"]) == ["optimal", "laplace"]


def test_a_mechanism_is_a_table_in_a_notebook() -> None:
    assert "<th>inputs</th><td>0, 10</td>" in TABLE._repr_html_()
    assert (
        "<th>categories</th><td>a, b</td>"
        in families.categorical(categories=["a", "b"], epsilon=1)._repr_html_()
    )


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (lambda: design.calibrate("rqm", epsilon=1.0, levels=4), 1),
        (lambda: design.compare(epsilon=1.0, bits=1, families=("optimal",))[0], 1),
        (lambda: smoothed.profile([205, 190], loss_rate="0.01", epsilon=1.0), 1),
        (lambda: smoothed.utility([205, 190], threshold="0.9", loss_rate="0.01"), 1),
        (lambda: smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0), 1),
        (lambda: privacy.report_claim(TABLE), 1),
        (lambda: vectors.advise(SETTING), 3),
        (lambda: collect.estimate(COUNTS), 2),  # mean and variance
        (lambda: collect.estimate(COUNTS, histogram=[0, 5, 10]).histogram, 2),
        (lambda: collect.estimate(COUNTS, quantiles=[0.2, 0.5, 0.8]), 5),
    ],
)
def test_results_are_small_tables_in_a_terminal_a_notebook_and_a_frame(
    result: Any, rows: int
) -> None:
    pytest.importorskip("pandas")
    made = result()
    assert made._repr_html_().startswith("<table>")
    assert len(made.to_frame()) == rows
    assert json.loads(made.to_json())
    if isinstance(made, design.DesignResult):  # in the words of `mezzotint design`
        assert "certified, to an observer of every single report" in " ".join(str(made).split())
    if not isinstance(made, privacy.Claim):  # a sentence
        assert all(len(line) <= 80 for line in str(made).splitlines() if " " in line.strip())


def test_an_estimate_prints_a_line_for_each_interval_and_says_what_a_report_cost() -> None:
    shown = str(collect.estimate(COUNTS, histogram=[0, 5, 10], quantiles=[0.5]))
    names = [line.partition("  ")[0] for line in shown.splitlines()]
    assert names == [
        "reports", "mean", "variance", "quantile 0.5", "share in 0 to 5", "share in 5 to 10",
        "standard error of the mean", "confidence", "epsilon", "certified", "observer",
    ]  # fmt: skip
    found = collect.estimate(COUNTS)
    assert (
        f"{number(found.mean.value)} ({number(found.mean.low)} to {number(found.mean.high)})"
        in str(found)
    )
    seeded = collect.estimate(replace(COUNTS, seeded=True), allow_seeded=True)
    assert "not private" in str(seeded)
    assert "certified" not in str(seeded)
