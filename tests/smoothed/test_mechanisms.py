"""Any anonymous mechanism: reference values in rationals, a twin over all databases, laws, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import mezzotint as mz
from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.cli.smoothed import app
from mezzotint.smoothed import compositions, sampled_laws
from mezzotint.smoothed.grids import Arithmetic
from mezzotint.smoothed.mechanisms import Histogram, Threshold, Winner
from mezzotint.smoothed.model import read_loss, read_sample
from strategies import examples
from tolerances import FEW, MANY, printed

TWO = (("0.3", "0.7"), ("0.6", "0.4"))
THREE = (("0.5", "0.3", "0.2"), ("0.2", "0.5", "0.3"), ("0.3", "0.2", "0.5"))
BORDA = Winner(rule="borda", ballots=("abc", "bca", "cab"))
STV = Winner(rule="stv", ballots=("abc", "bac", "cba"))


def told(counts: tuple[int, ...]) -> dict[bool, Fraction]:
    """The majority of all data, told truly with 3/4."""
    return {counts[0] > counts[1]: Fraction(3, 4), counts[0] <= counts[1]: Fraction(1, 4)}


REFERENCE: tuple[tuple[str, Any, int, dict[str, Any], str], ...] = (
    # name, distributions, n, what is asked, smoothed delta: rationals of separate programs.
    (
        "histogram",
        TWO,
        5,
        {"sampled": 3, "ratio": 4, "sampling": "with_replacement"},
        "35863/125000",
    ),
    (
        "histogram",
        TWO,
        10,
        {"sampled": 3, "ratio": 5, "sampling": "with_replacement"},
        "51507830051/1250000000000",
    ),
    (
        "histogram",
        TWO,
        12,
        {"sampled": 4, "ratio": "11/2", "sampling": "with_replacement"},
        "66648494501629/2592000000000000",
    ),
    (
        "histogram",
        THREE,
        6,
        {"sampled": 4, "ratio": 2, "sampling": "without_replacement"},
        "2419/3750",
    ),
    ("histogram", THREE, 6, {"loss_rate": "1/3", "ratio": 2, "sampling": "poisson"}, "973/1500"),
    (
        "majority",
        TWO,
        12,
        {"sampled": 9, "ratio": 2, "mechanism": "winner"},
        "1052627967/6875000000",
    ),
    ("plurality", THREE, 5, {"sampled": 3, "ratio": 2, "mechanism": "winner"}, "328793/1000000"),
    (
        "plurality",
        THREE,
        8,
        {"sampled": 5, "ratio": 2, "mechanism": "winner"},
        "678027341/2800000000",
    ),
    ("borda", THREE, 8, {"sampled": 5, "ratio": 2, "mechanism": BORDA}, "83214249/280000000"),
    ("stv", THREE, 8, {"sampled": 5, "ratio": 2, "mechanism": STV}, "339989001/1400000000"),
    ("told", TWO, 11, {"ratio": 2, "mechanism": told}, "7350021/62500000"),
)
SPLITS = {
    ("majority", 12): (4, 8),
    ("plurality", 5): (0, 3, 2),
    ("plurality", 8): (0, 5, 3),
    ("stv", 8): (2, 0, 6),
    ("told", 11): (4, 7),
}
"""Where the worst composition is a mixture, and alone."""


@pytest.mark.parametrize(("name", "vertices", "n", "asked", "value"), REFERENCE)
def test_reference_values_in_rationals(
    name: str, vertices: Any, n: int, asked: dict[str, Any], value: str
) -> None:
    result = mz.smoothed.expected(n=n, vertices=vertices, **asked)
    assert result.exact == Fraction(value)
    assert result.status == "closed"
    assert 10**result.log10_upper >= Fraction(value)
    if (name, n) in SPLITS:
        assert result.split == SPLITS[name, n]


def test_reference_values_to_ten_digits() -> None:
    count = mz.smoothed.expected(
        n=12,
        vertices=TWO,
        loss_rate="1/4",
        ratio=2,
        sampling="poisson",
        mechanism=Threshold(least=3),
    )
    assert float(count.exact or 0) == pytest.approx(0.1958442630, abs=printed(10))
    assert count.split == (12, 0)
    twenty = mz.smoothed.expected(
        n=20, vertices=TWO, sampled=4, ratio=4, sampling="with_replacement"
    )
    assert float(twenty.exact or 0) == pytest.approx(0.001473698695, abs=printed(12))
    noisy = mz.smoothed.expected(
        n=8, vertices=TWO, sampled=6, ratio="3/2", mechanism=Histogram(noise_ratio="1/2")
    )
    # Printed with ten decimals; in floats, whose bound counts as 1e-9.
    assert noisy.delta == pytest.approx(0.1440941204, rel=1e-8)


# A twin: databases and samples of records, one by one ------------------------------------------------------------------


def chances_of_samples(n: int, asked: Mapping[str, Any]) -> list[tuple[Fraction, tuple[int, ...]]]:
    """Every sample of record numbers, with its chance."""
    kind = asked.get("sampling")
    if kind == "with_replacement":
        draws = list(itertools.product(range(n), repeat=asked["sampled"]))
    elif kind == "poisson":
        rate = 1 - Fraction(asked["loss_rate"])
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(n), size) for size in range(n + 1)
        )
        return [(rate ** len(s) * (1 - rate) ** (n - len(s)), s) for s in subsets]
    elif "sampled" in asked:
        draws = list(itertools.combinations(range(n), asked["sampled"]))
    else:
        draws = [tuple(range(n))]
    return [(Fraction(1, len(draws)), draw) for draw in draws]


def twin(
    law: Callable[[tuple[int, ...]], Mapping[Any, Any]],
    n: int,
    vertices: Sequence[Sequence[str]],
    asked: Mapping[str, Any],
) -> Fraction:
    """Definition 3 over databases: every record, every type it may take instead, every composition, record by record."""
    types, ratio = len(vertices[0]), Fraction(asked["ratio"])
    samples = chances_of_samples(n, asked)

    def output(database: tuple[int, ...]) -> dict[Any, Fraction]:
        chances: dict[Any, Fraction] = {}
        for chance, sample in samples:
            counts = tuple(sum(database[r] == t for r in sample) for t in range(types))
            for name, part in law(counts).items():
                chances[name] = chances.get(name, Fraction(0)) + chance * Fraction(part)
        return chances

    laws = {database: output(database) for database in itertools.product(range(types), repeat=n)}

    def excess(one: dict[Any, Fraction], two: dict[Any, Fraction]) -> Fraction:
        return sum(
            (max(Fraction(0), p - ratio * two.get(o, 0)) for o, p in one.items()), Fraction(0)
        )

    deltas: dict[tuple[int, ...], Fraction] = {}
    for database, own in laws.items():
        others = (
            laws[(*database[:r], t, *database[r + 1 :])] for r in range(n) for t in range(types)
        )
        deltas[database] = max(max(excess(own, other), excess(other, own)) for other in others)
    best = Fraction(0)
    for choice in itertools.combinations_with_replacement(range(len(vertices)), n):
        value = Fraction(0)
        for database, delta in deltas.items():
            chance = math.prod(
                (Fraction(vertices[v][t]) for v, t in zip(choice, database, strict=True)),
                start=Fraction(1),
            )
            value += chance * delta
        best = max(best, value)
    return best


ASKED = (
    {"ratio": "3/2", "sampled": 2, "sampling": "with_replacement"},
    {"ratio": "3/2", "sampled": 3, "sampling": "without_replacement"},
    {"ratio": "5/4", "loss_rate": "2/5", "sampling": "poisson"},
    {"ratio": "5/4"},
)


@judges("smoothed.expectations.expected")
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("types", [2, 3])
@settings(max_examples=examples(3))
@given(data=st.data())
def test_a_random_law_against_all_databases_and_samples(
    types: int, asked: dict[str, Any], data: st.DataObject
) -> None:
    n = 5 if types == 2 else 4
    weights = st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any)
    rows: dict[tuple[int, ...], dict[str, Fraction]] = {}

    def law(counts: tuple[int, ...]) -> dict[str, Fraction]:
        if counts not in rows:
            row = data.draw(weights)
            rows[counts] = {o: Fraction(w, sum(row)) for o, w in zip("xyz", row, strict=True) if w}
        return rows[counts]

    vertices = TWO if types == 2 else THREE[:2]
    result = mz.smoothed.expected(n=n, vertices=vertices, mechanism=law, **asked)
    assert result.exact == twin(law, n, vertices, asked)
    floats = mz.smoothed.expected(
        n=n,
        vertices=vertices,
        mechanism=lambda counts: {o: float(p) for o, p in law(counts).items()},
        **asked,
    )
    assert floats.exact is None
    if result.exact:
        assert floats.log10_lower <= math.log10(result.exact) <= floats.log10_upper
    else:
        # The stated error of floats, and no more: delta itself is 0.
        assert floats.delta < 1e-9


@judges("smoothed.expectations.expected", "smoothed.compositions.adversary_bound")
@pytest.mark.parametrize(("name", "vertices", "n", "asked", "value"), REFERENCE[5:])
def test_floats_bracket_the_rationals_and_an_adversary_bounds_them(
    name: str,
    vertices: Any,
    n: int,
    asked: dict[str, Any],
    value: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compositions, "EXACT_OPERATIONS", 0)
    result = mz.smoothed.expected(n=n, vertices=vertices, **asked)
    assert result.exact is None
    assert 10**result.log10_lower <= Fraction(value) <= 10**result.log10_upper
    # The stated relative error of the pair formulas is 1e-9.
    assert result.log10_delta == pytest.approx(math.log10(Fraction(value)), abs=1e-8)
    monkeypatch.setattr(compositions, "FLOAT_OPERATIONS", 10_000)
    monkeypatch.setattr(compositions, "search_two_types", lambda setting, vertices: None)
    monkeypatch.setattr(compositions, "operations", lambda *arguments: (0, 10**9))
    bracket = mz.smoothed.expected(n=n, vertices=vertices, **asked)
    assert bracket.status == "bracketed"
    assert 10**bracket.log10_lower <= Fraction(value) <= 10**bracket.log10_upper


THEOREM5 = {16: -2.209, 64: -9.267, 100: -14.614, 400: -59.231, 1600: -239.406}
"""n -> log10 delta with T = sqrt n draws with replacement at epsilon 1 + 2 T / n: rationals of a separate program."""


@pytest.mark.parametrize(
    "n",
    [
        16,
        64,
        100,
        pytest.param(400, marks=pytest.mark.slow),
        pytest.param(1600, marks=pytest.mark.slow),
    ],
)
def test_theorem_5_smoothed(n: int) -> None:
    draws = math.isqrt(n)
    result = mz.smoothed.expected(
        n=n, vertices=TWO, sampled=draws, epsilon=1 + 2 * draws / n, sampling="with_replacement"
    )
    assert result.log10_delta == pytest.approx(THEOREM5[n], abs=printed(3))
    # The derived bound: only histograms with few records of a type have any delta at all.
    loss = read_loss(epsilon=1 + 2 * draws / n, ratio=None)
    most = max(m for m in range(2, n) if Fraction(m, m - 1) ** draws > loss.ratio)
    tails = [
        sum(
            math.comb(n, k) * Fraction(p) ** k * (1 - Fraction(p)) ** (n - k)
            for k in range(n + 1)
            if min(k, n - k) <= most
        )
        for p, _ in TWO
    ]
    assert 10**result.log10_lower <= max(tails) * 10**result.log10_worst_case * (1 + FEW)


@pytest.mark.slow
def test_majorities_of_ten_thousand_are_private_outright() -> None:
    """0.2 % lost, epsilon 1: -2.335 over all databases, -3.657 where a tie is in the hull."""
    tie = (("0.52", "0.48"), ("0.48", "0.52"))
    result = mz.smoothed.expected(
        n=10_000, vertices=tie, sampled=9980, epsilon=1.0, mechanism="winner"
    )
    assert result.log10_worst_case == pytest.approx(-2.335, abs=printed(3))
    assert result.log10_delta == pytest.approx(-3.657, abs=printed(3))
    assert result.log10_lower <= result.log10_delta <= result.log10_upper
    assert result.status == "closed"


@judges("smoothed.compositions.threshold_deltas", "smoothed.compositions.delta_grid")
@pytest.mark.parametrize("ratio", ["1", "11/10", "2"])
def test_thresholds_in_logarithms_are_those_in_rationals(ratio: str) -> None:
    for n, draws, least in ((9, 7, 4), (12, 9, 5), (10, 4, 1), (8, 8, 3)):
        loss = read_loss(epsilon=None, ratio=ratio)
        sample = read_sample(n, loss_rate=None, sampled=draws)
        setting = sampled_laws.Setting(
            mechanism=Threshold(least=least), records=n, types=2, loss=loss, sample=sample
        )
        laws = sampled_laws.laws_of(setting)
        arithmetic = Arithmetic(is_exact=True)
        rows = sampled_laws.sampled_rows(setting, laws, arithmetic)
        exact = [
            float(arithmetic.fraction(delta))
            for delta in compositions.delta_grid(rows, n, loss, arithmetic)
        ]
        lower, upper = compositions.threshold_deltas(least, sample, loss)
        assert (np.exp(lower) <= np.array(exact) * (1 + FEW)).all()
        assert (np.exp(upper) >= np.array(exact) * (1 - FEW)).all()
        # Where one of the two terms is not nearly the other, both are near.
        np.testing.assert_allclose(np.exp(upper), exact, rtol=1e-6, atol=1e-9)


def test_more_types_than_two_and_a_bracket_at_many_records() -> None:
    landslide = (("0.5", "0.3", "0.2"),)
    result = mz.smoothed.expected(
        n=100, vertices=landslide, sampled=98, epsilon=1.0, mechanism="winner"
    )
    # Pushed forward and enumerated by a separate program: between .00602 and .00630 for its three corners.
    assert result.status == "closed"
    # Wider than between the corners, for the other compositions.
    assert 0.004 < result.delta < 0.0075


def test_plurality_at_a_three_way_tie_lies_between_the_noted_bounds() -> None:
    """An adversary's bound and exchanges of single records, by a separate program: .0477 to .0923."""
    for tie in ((("1/3", "1/3", "1/3"),), THREE):
        result = mz.smoothed.expected(
            n=200, vertices=tie, sampled=196, epsilon=1.0, mechanism="winner"
        )
        assert result.status == "closed"
        assert 10**result.log10_lower > 0.0477
        assert 10**result.log10_upper < 0.0923


def test_a_table_of_integer_rows_is_the_law_it_states() -> None:
    rows = [[1, 3] if first > 2 else [3, 1] for first in range(6)]
    table = mz.smoothed.expected(n=5, vertices=TWO, ratio=2, mechanism=rows)
    own = mz.smoothed.expected(
        n=5,
        vertices=TWO,
        ratio=2,
        mechanism=lambda c: (
            {0: Fraction(1, 4), 1: Fraction(3, 4)}
            if c[0] > 2
            else {0: Fraction(3, 4), 1: Fraction(1, 4)}
        ),
    )
    assert table.exact == own.exact


@pytest.mark.parametrize(
    ("match", "asked"),
    [
        ("chances", {"mechanism": lambda counts: {"a": Fraction(1, 2)}}),
        ("chances", {"mechanism": lambda counts: {"a": 1.5, "b": -0.5}}),
        ("rows", {"mechanism": [[1, 0]] * 3}),
        ("one sum", {"mechanism": [[1, 1], [1, 2], [1, 1], [2, 0], [1, 1], [0, 2], [1, 1]]}),
        ("callable", {"mechanism": 7}),
        ("sampling", {"mechanism": "winner", "sampling": "twice", "sampled": 3}),
        (
            "noise",
            {"mechanism": Histogram(noise_ratio="1/2"), "sampling": "poisson", "loss_rate": "1/2"},
        ),
        ("sampler", {"mechanism": Histogram(noise_ratio="1/2")}),
        ("ballots", {"mechanism": BORDA}),
    ],
)
def test_what_is_no_law_is_refused(match: str, asked: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=match):
        mz.smoothed.expected(n=6, vertices=TWO, ratio=2, **asked)


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_bounds_hold_for_every_law_that_chances_in_floats_may_mean(completed: int) -> None:
    """Chances that miss 1 by 5e-10: the output that lacks them may be any, or one of its own."""
    miss = 5e-10

    def stated(counts: tuple[int, ...]) -> dict[int, float]:
        share = 0.25 + 0.5 * counts[0] / sum(counts)
        return {0: share, 1: 1 - share - miss}

    def meant(counts: tuple[int, ...]) -> dict[int, Fraction]:
        law = {output: Fraction(chance) for output, chance in stated(counts).items()}
        law[2] = Fraction(0)
        law[completed if counts[0] % 2 else 2] += 1 - sum(law.values())
        return law

    asked = {"n": 6, "vertices": TWO, "ratio": "1.2"}
    bounds = mz.smoothed.expected(mechanism=stated, **asked)
    truth = mz.smoothed.expected(mechanism=meant, **asked)
    assert truth.exact is not None
    assert bounds.log10_lower <= truth.log10_delta <= bounds.log10_upper
    assert 10**bounds.log10_upper >= float(truth.exact)


def test_rules_by_hand() -> None:
    assert Winner().law((2, 3, 3)) == {1: 1}
    # abc bca cab with 3, 2, 2 ballots: Borda 2*3+0+1*2 = 8 for a, 3+4+0 = 7 for b, 0+2+4 = 6 for c.
    assert BORDA.law((3, 2, 2)) == {"a": 1}
    # abc bac cba: a and b have 2, c has 3; b, the higher index of the fewest, drops out, then a has 4 against 3.
    assert STV.law((2, 2, 3)) == {"a": 1}
    with pytest.raises(ParameterError, match="ballots"):
        Winner(rule="stv", ballots=("abc", "abd"))


# Gradients of many coordinates -----------------------------------------------------------------------------------------


@judges("smoothed.averages.gradient_profile")
def test_gradients_of_two_coordinates_show_a_record_that_differs_alone() -> None:
    """Levels -1, 0, 1, T = 3, E = 2: one coordinate has 1/5, with the second it is the sampling rate."""
    first, second = np.array([-1, 0, 0, 1, 1, -1]) + 1, np.array([0, 1, 0, -1, 1, 0]) + 1
    one = mz.smoothed.average_profile(first, sampled=3, ratio=2, levels=3)
    assert 10**one.log10_delta == pytest.approx(0.2, rel=MANY)
    both = mz.smoothed.gradient_profile(
        np.stack([first, second], axis=1), sampled=3, ratio=2, levels=3
    )
    assert both.status == "bracketed"
    truth = brute_gradients(np.stack([first, second], axis=1), 3, Fraction(2), 3)
    assert truth == Fraction(1, 2)
    assert 10**both.log10_delta <= truth <= both.delta * (1 + FEW)
    alone = np.array([[0, 2], [1, 2], [0, 2], [1, 1], [0, 2], [1, 2]])
    rule = mz.smoothed.gradient_profile(alone, sampled=3, ratio=100, levels=3)
    assert rule.status == "closed"
    assert rule.delta == pytest.approx(0.5, rel=FEW)
    assert brute_gradients(alone, 3, Fraction(100), 3) == Fraction(1, 2)


def brute_gradients(codes: np.ndarray, draws: int, ratio: Fraction, levels: int) -> Fraction:
    """delta of the published sum over all batches, all records and all their replacements."""
    n, d = codes.shape
    batches = list(itertools.combinations(range(n), draws))

    def law(records: np.ndarray) -> dict[tuple[int, ...], Fraction]:
        chances: dict[tuple[int, ...], Fraction] = {}
        for batch in batches:
            total = tuple(records[list(batch)].sum(axis=0).tolist())
            chances[total] = chances.get(total, Fraction(0)) + Fraction(1, len(batches))
        return chances

    def excess(one: dict[Any, Fraction], two: dict[Any, Fraction]) -> Fraction:
        return sum(
            (max(Fraction(0), p - ratio * two.get(o, 0)) for o, p in one.items()), Fraction(0)
        )

    own, worst = law(codes), Fraction(0)
    for record, value in itertools.product(range(n), itertools.product(range(levels), repeat=d)):
        other = codes.copy()
        other[record] = value
        neighbour = law(other)
        worst = max(worst, excess(own, neighbour), excess(neighbour, own))
    return worst


# The command line -----------------------------------------------------------------------------------------------------


def test_a_function_in_a_file_and_a_table_in_another(tmp_path: Path) -> None:
    runner = CliRunner()
    code = tmp_path / "rules.py"
    code.write_text("def majority(counts):\n    return {counts[0] > counts[1]: 1}\n")
    asked = ("--n", "12", "--vertices", "0.3,0.6", "--ratio", "2")
    words = ("own", "--mechanism", f"{code}:majority", *asked, "--sampled", "9")
    own = runner.invoke(app, [*words, "--json"])
    assert own.exit_code == 0, own.output
    assert json.loads(own.stdout)["exact"] == "1052627967/6875000000"
    assert runner.invoke(app, [*words, "--at-most", "-9"]).exit_code == 1
    table = tmp_path / "rows.json"
    table.write_text(json.dumps([[3, 1]] * 7 + [[1, 3]] * 6))
    rows = runner.invoke(app, ["own", "--mechanism", str(table), *asked, "--json"])
    assert json.loads(rows.stdout)["log10_worst_case"] == pytest.approx(math.log10(0.25), rel=FEW)
    threshold = runner.invoke(app, ["own", "--mechanism", "threshold:3", *asked, "--sampled", "9"])
    assert "closed" in threshold.output
    for bad in (f"{code}:none", "nothing.py:f", "threshold:x"):
        with pytest.raises(ParameterError, match="mechanism"):
            runner.invoke(app, ["own", "--mechanism", bad, *asked], catch_exceptions=False)
