"""Claims that an earlier kernel certified although they were false, and the laws that find the next of their kind.

Expected values are by hand or in decimals of several hundred digits; nothing here computes with the kernel's balls.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import flint
import pytest

from mezzotint import families, kernel, privacy
from mezzotint.kernel import losses
from mezzotint.kernel.checker import verdict_on
from mezzotint.kernel.real import exp_ceil, exp_floor
from mezzotint.kernel.table import Table
from mezzotint.kernel.units import FINE, ONE, WHOLE, canonical, set_deadline, sha256
from reference.kernel import accepts, claim, sealed

TOTAL = 2**32
LOW = 100_000


@pytest.fixture(autouse=True)
def _time() -> None:
    set_deadline(600)


def _text(*rows: list[int]) -> str:
    """A table's file."""
    knots, levels = list(range(len(rows))), list(range(len(rows[0])))
    return canonical({"knots": knots, "levels": levels, "weights": list(rows)})


LEAKY = _text([TOTAL - LOW, LOW], [LOW, TOTAL - LOW])
SILENT = _text([TOTAL // 2] * 2, [TOTAL // 2] * 2)
ALONE = _text([TOTAL], [TOTAL])
WIDE, LEFT, EVEN = {"low": -120, "high": 120}, {"low": -200, "high": 0}, {"low": -20, "high": 20}


def _certified(
    texts: list[str], grids: list[Any], delta: str, *, epsilon: str = "0", step: str = "1/10", **more: Any
) -> bool:  # fmt: skip
    """Whether the kernel certifies (epsilon, delta) of one report from each table."""
    sampled = {"sampled": WIDE} if more.get("sampling", "none") != "none" else {}
    tables = tuple((sha256(text), 1) for text in texts)
    stated = claim(kernel.ExactRelease(observer="reports", tables=tables, **more), epsilon, delta)
    proof = sealed(
        stated, "losses", tables=dict.fromkeys(texts), step=step, tail=160, grids=grids, **sampled
    )
    return accepts(stated, proof)


HALF: dict[str, Any] = {"rate": Fraction(1, 2)}
EXACT = [
    # (tables, grids, epsilon, delta, release), delta by enumeration of the response table alone.
    ([LEAKY], [WIDE], "0", ".999953433871", {}),
    ([LEAKY, SILENT], [WIDE, LEFT], "0", ".999953433871", {}),
    ([SILENT, LEAKY], [LEFT, WIDE], "0", ".999953433871", {}),
    ([LEAKY, ALONE], [WIDE, LEFT], "0", ".999953433871", {}),
    ([LEAKY, SILENT, SILENT], [WIDE, LEFT, LEFT], "0", ".999953433871", {}),
    ([LEAKY, SILENT, ALONE], [WIDE, LEFT, EVEN], "0", ".999953433871", {}),
    ([LEAKY, SILENT], [WIDE, LEFT], "5", ".996521203800", {}),
    ([LEAKY, SILENT], [WIDE, LEFT], "0", ".999953433871", {"rounds": 2}),
    ([LEAKY, SILENT], [WIDE, LEFT], "0", ".499976716936", {"sampling": "public", **HALF}),
    ([LEAKY, SILENT], [WIDE, LEFT], "0", ".499976716935", {"sampling": "poisson", **HALF}),
    (
        [LEAKY, SILENT], [WIDE, LEFT], "0", ".499976716935",
        {"sampling": "poisson", "neighboring": "add_or_remove_one", **HALF},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "grids", "epsilon", "delta", "more"), EXACT)
def test_a_table_of_equal_rows_takes_nothing_from_the_others(
    texts: list[str], grids: list[Any], epsilon: str, delta: str, more: dict[str, Any]
) -> None:
    """Its losses are 0, whatever grid the proof chooses for them: also one that ends at 0, or below it."""
    assert not _certified(texts, grids, "1/1000000000", epsilon=epsilon, **more)
    below = str(Fraction(delta) - Fraction(1, 10**8))
    assert not _certified(texts, grids, below, epsilon=epsilon, **more)


def test_honest_claims_beside_constant_tables_are_accepted() -> None:
    """(1/1000, 1) would be easy: a delta that is nearly the truth, .534338713, needs the pair of equal rows."""
    low = 10**9
    leaky = _text([TOTAL - low, low], [low, TOTAL - low])
    grids = [{"low": -100, "high": 100}, *[{"low": -5, "high": 5}] * 3]
    texts = [leaky, SILENT, SILENT, SILENT]
    assert _certified(texts, grids, "0.58", step="1/50")
    assert not _certified(texts, grids, "0.50", step="1/50")
    assert _certified([LEAKY, SILENT], [WIDE, EVEN], "0.99996")


def test_values_below_the_curve_of_equal_rows_are_no_curve() -> None:
    """(1 - c)+ is the least curve there is; 0 below c = 1 would be a pair whose losses are certainly negative."""
    grid = losses.Grid.read(kernel.units.Fields({"low": -20, "high": 5}, "grid"), Fraction(1, 10))
    with pytest.raises(kernel.Refused, match="equal rows"):
        losses.measure_of(grid, [0] * len(grid.points), 0)
    measure = losses.measure_of(grid, grid.identity, 0)
    assert (measure.start, len(measure.poly)) == (0, 1)
    assert 0 <= measure.deficit <= 2
    with pytest.raises(kernel.Refused, match="equal rows"):
        losses.measure_of(grid, [value - 2 * (value > 1) for value in grid.identity], 0)


def test_a_maximum_over_no_pair_is_the_pair_of_equal_rows() -> None:
    grid = losses.Grid.read(kernel.units.Fields({"low": -20, "high": 5}, "grid"), Fraction(1, 10))
    assert losses.divergences(Table([(TOTAL,)]), losses.SILENT, 2**64, grid) == grid.identity
    for point, value in zip(grid.points, grid.identity, strict=True):
        assert (
            0
            <= Fraction(value, WHOLE) - max(1 - Fraction(point, ONE), Fraction(0))
            < Fraction(1, WHOLE)
        )


# An upper bound is computed as one ------------------------------------------------------------------------------


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _readings(step: Fraction) -> Iterator[tuple[losses.Measure, int]]:
    """Measures of three atoms, and the grid's points next to them."""
    for start in (-7, 0, 3, 40):
        masses = []
        for index, share in enumerate((3, 5, 7)):
            # Second masses of a pair sum to 1 at most.
            second = min(math.exp((start + index) * step), 1.0)
            masses.append(int(WHOLE * second / share))
        measure = losses.Measure(flint.fmpz_poly(masses), start, 0, step)
        for index, offset in product(range(3), (-1, 0, 1)):
            with localcontext() as context:
                context.prec = 400
                at = int(_decimal((start + index) * step).exp() * ONE) + offset
            yield measure, at


@pytest.mark.parametrize("precision", [64, 67, 80, 128, 200, 256])
@pytest.mark.parametrize("step", [Fraction(1, 10), Fraction(1, 64), Fraction(7, 3)])
def test_a_curve_is_never_below_its_losses_at_any_precision(precision: int, step: Fraction) -> None:
    with flint.ctx.workprec(precision):
        for measure, at in _readings(step):
            read = losses.curve_of(measure)(at, ONE)
            with localcontext() as context:
                context.prec = 400
                c, exact = Decimal(at) / ONE, Decimal(measure.deficit)
                for index, mass in enumerate(measure.poly.coeffs()):
                    loss = _decimal((measure.start + index) * step)
                    exact += max(int(mass) * (1 - c * (-loss).exp()), Decimal(0))
                assert Decimal(read) >= exact


@pytest.mark.parametrize("precision", [64, 128, 256, 512])
def test_floors_and_ceilings_of_the_exponential_lie_on_their_sides(precision: int) -> None:
    with flint.ctx.workprec(precision), localcontext() as context:
        context.prec = 400
        for exponent in (Fraction(n, 7) for n in range(-400, 400, 13)):
            exact = _decimal(exponent).exp() * 2**FINE
            assert exp_floor(exponent, FINE) <= exact <= exp_ceil(exponent, FINE)
    assert exp_floor(Fraction(0), FINE) == exp_ceil(Fraction(0), FINE) == ONE


@pytest.mark.parametrize("start", [0, -1])
def test_losses_that_the_precision_does_not_order_are_refused(start: int) -> None:
    """At 8 bits the floor of e**0.0001 is below that of 1, and the ceiling of e**-0.0001 above that of 1."""
    step, masses = Fraction(1, 10**4), flint.fmpz_poly([WHOLE // 2, WHOLE // 2])
    measure = losses.Measure(masses, start, 0, step)
    with flint.ctx.workprec(8), pytest.raises(kernel.Refused, match="precision"):
        losses.curve_of(measure)


# A sentence is part of the claim --------------------------------------------------------------------------------


def _noise(clients: int, **more: Any) -> kernel.ExactRelease:
    table = _text([TOTAL // 4, TOTAL // 2, TOTAL // 4], [TOTAL // 4, TOTAL // 2, TOTAL // 4])
    return kernel.ExactRelease(
        observer="secure_sum", tables=((sha256(table), 1),), clients=clients, lattice=(0, 1, 2),
        sampling="public", rate=Fraction(1, 10), **more,
    )  # fmt: skip


def test_the_noise_that_counts_is_that_of_the_reports_in_every_sum() -> None:
    """A sum hides a report among those of its own round, not of all who might have come."""
    stated = claim(_noise(20), "0", "0.013")
    assert "reports_in_every_sum>=20" in stated.assumptions
    sentence = kernel.words(stated)
    assert "the secure sums of 20 reports each (0 corrupted)" in sentence
    assert "reports in every sum at least 20" in sentence
    everybody = replace(_noise(20), sampling="none", rate=Fraction(1))
    assert "reports_in_every_sum>=20" not in everybody.assumptions
    document = {**_noise(20).document(), "assumptions": everybody.assumptions}
    with pytest.raises(kernel.Unreadable):
        kernel.ExactRelease.read(document)


def test_two_releases_never_share_a_sentence() -> None:
    """Every field that a proof relies on changes the words, by itself or by the digits of the claim's hash."""
    model = kernel.ExactRelease(observer="model", noise_multiplier=Fraction(1), kept=Fraction(3, 4))
    sentence = kernel.words(claim(model, "0", "0.2"))
    assert "codes of 2 levels kept with probability 3/4" in sentence
    changes: list[dict[str, Any]] = [
        {"kept": Fraction(1)}, {"levels": 4}, {"rounds": 2}, {"noise_multiplier": Fraction(2)},
        {"neighboring": "add_or_remove_one"}, {"sampling": "poisson", "rate": Fraction(1, 2)},
    ]  # fmt: skip
    reports = kernel.ExactRelease(observer="reports", tables=((sha256("a"), 1),))
    summed = _noise(9)
    pairs = [(model, replace(model, **change)) for change in changes]
    pairs += [(reports, replace(reports, tables=((sha256("b"), 1),)))]
    pairs += [(reports, replace(reports, tables=((sha256("a"), 2),)))]
    for change in (
        {"clients": 8}, {"corrupted": 1}, {"lattice": (0, 1, 3)},
    ):  # fmt: skip
        pairs.append((summed, replace(summed, **change)))
    for first, second in pairs:
        ours, theirs = (kernel.words(claim(entry, "0", "0.2")) for entry in (first, second))
        assert ours != theirs
        assert ours.split(" (claim ")[0] != theirs.split(" (claim ")[0] or first.lattice


STAMP = "\r\x1b[2Kcertified: (0, 0)-differential privacy, checked by version 1 of mezzotint.kernel"
SIGNS = [
    STAMP,
    "\ud800",
    "certified: everything",
    "\u202edeifitrec",
    "\n\ncertified: x\n",
    "\x00",
    "é" * 300,
]


def _hostile(text: str) -> Iterator[dict[str, Any]]:
    """Claim files that hold the text in one place each, of the claim or of its proof."""
    release = kernel.ExactRelease(observer="reports", tables=((sha256(LEAKY), 1),))
    stated = claim(release, "11")
    file = {**stated.document(), "proof": sealed(stated, "ratio", tables=[LEAKY])}
    places: list[tuple[Any, ...]] = [
        ("format",), ("version",), ("release", "observer"), ("release", "tables", 0, "sha256"), ("release", "rounds"),
        ("release", "tables", 0, "coordinates"), ("release", "sampling", "rate"), ("release", "assumptions", 0),
        ("release", "randomness"), ("statement", "kind"), ("statement", "epsilon"), ("statement", "delta"),
        ("proof", "kind"), ("proof", "claim_sha256"), ("proof", "precision"), ("proof", "tables", 0), ("proof", "tables"),
        ("proof", text), ("statement", text), ("release", text), (text,), ("proof",), ("release",), ("statement",),
    ]  # fmt: skip
    for place in places:
        forged = json.loads(json.dumps(file))
        target = forged
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = text
        yield forged


@pytest.mark.parametrize("text", SIGNS)
def test_no_text_of_a_file_looks_like_a_verdict(text: str) -> None:
    """What is refused says so first; what came from outside stands in quotes, in printable ASCII."""
    for forged in _hostile(text):
        status, sentence, _ = verdict_on(json.dumps(forged))
        assert status in (1, 2)
        assert sentence.startswith(("UNREADABLE: ", "REFUSED at ", "NOT CHECKED: "))
        assert sentence.isascii()
        assert sentence.isprintable()
        before, _, after = sentence.partition("certified:")
        assert not after or before.count("'") % 2 == 1 or before.count('"') % 2 == 1


def test_the_command_prints_one_line_for_every_file(tmp_path: Path) -> None:
    """A name, too, comes from outside; a file with a lone surrogate does not stop the later ones."""
    names = ["a\r\x1b[2Kcertified: all", "plain.json", "last.json"]
    texts = [json.dumps(next(iter(_hostile(STAMP)))), '{"format": "\\ud800"}', "{"]
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mezzotint.kernel", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    lines = done.stdout.split("\n")
    assert (done.returncode, len(lines)) == (2, 4)
    assert done.stdout.replace("\n", "").isprintable()
    assert all(line.startswith("'") and "': UNREADABLE: " in line for line in lines[:3])


def test_words_of_an_unchecked_claim_hold_no_text_of_its_author() -> None:
    release = kernel.ExactRelease(observer="reports", tables=((sha256(LEAKY), 1),))
    for stated in (claim(release, STAMP), claim(release, "1", STAMP), claim(None, STAMP)):
        with pytest.raises(kernel.Unreadable):
            kernel.words(stated)
    assert "\\x1b" in kernel.words(claim(release, "1"), STAMP)


# The accounting claim -------------------------------------------------------------------------------------------


def test_a_claim_is_certified_for_the_release_that_was_checked_alone() -> None:
    table = families.randomized_response(epsilon=1.0)
    release = privacy.Release(mechanism=table, rounds=3, dimension=2, delta=0.01)
    proved, _ = privacy.prove(release)
    assert proved.certified
    assert str(proved).startswith("Certified: ")
    changes: list[dict[str, Any]] = [
        {"rounds": 10**6}, {"dimension": 3}, {"observer": "secure_sum", "honest_clients": 9},
        {"sampling": "poisson", "sampling_rate": 0.5, "unit": "record"}, {"neighboring": "add_or_remove_one"},
        {"unit": "user"}, {"seeded": True}, {"epsilon": proved.epsilon / 2}, {"delta": 1e-3},
    ]  # fmt: skip
    for change in changes:
        other = replace(proved, **change)
        assert not other.certified, change
        assert "checked by mezzotint.kernel" not in str(other), change
    seen = privacy.Release(mechanism=table, rounds=3, delta=1e-6, sampling_rate=0.5)
    proved, _ = privacy.prove(seen)
    assert proved.certified
    assert not replace(proved, sampling_rate=0.6).certified


@pytest.mark.parametrize(
    ("observer", "fields"),
    [
        ("reports", {"records_per_user": 2}),
        ("secure_sum", {"records_per_user": 2}),
        ("secure_sum", {"distinct": 1}),
        ("model", {"distinct": 1}),
    ],
)
def test_a_release_is_of_what_its_observer_sees(observer: str, fields: dict[str, Any]) -> None:
    """What is assumed follows from the observer, what is proved from the variant: they must agree.

    An observer of every report of noise spread over 1,000 clients had been certified their sum's delta.
    """
    model = {"noise_multiplier": Fraction(1), "kept": Fraction(1), "levels": 2}
    seen = model if "records_per_user" in fields else {}
    release = kernel.ExactRelease(
        observer=observer, tables=(("0" * 64, 1),), clients=1000, rounds=2, **seen, **fields
    )
    with pytest.raises(kernel.Unreadable, match="observer does not see such a release"):
        kernel.ExactRelease.read(release.document())
