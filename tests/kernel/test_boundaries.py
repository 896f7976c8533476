"""Each comparison of the kernel at equality, where the mutants that move it by one step differ."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import flint
import numpy as np
import pytest

from mezzotint import Mechanism, kernel
from mezzotint.kernel import losses, real, sums, units
from mezzotint.kernel.__main__ import main
from mezzotint.kernel.dual import _least, _read_cut
from mezzotint.kernel.gaussian import check_contraction, gaussian_curve
from mezzotint.kernel.measures import Curve
from mezzotint.kernel.one import Target
from mezzotint.kernel.table import Table, read_table
from mezzotint.kernel.units import BITS, WHOLE, Fields, canonical, set_deadline, sha256
from reference.kernel import accepts, claim, release, sealed

TOTAL = 2**32


def _mechanism(rows: list[list[int]]) -> Mechanism:
    knots, levels = np.arange(float(len(rows))), np.arange(float(len(rows[0])))
    return Mechanism(
        knots=knots, levels=levels, weights=np.array(rows, dtype=np.int64), name="hand"
    )


TWO = _mechanism([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
EQUAL = _mechanism([[2**31, 2**31], [2**31, 2**31]])
ADDITIVE = _mechanism([[2**31, 2**31, 0], [0, 2**31, 2**31]])


@pytest.fixture(autouse=True)
def _time() -> None:
    """Enough of it, also for what is called without `check`."""
    set_deadline(600)


def _local(kind: str, mechanism: Mechanism, epsilon: str, delta: str = "0", **more: Any) -> bool:
    order = {"order": more["order"]} if kind == "renyi" and delta == "0" else {}
    said = claim(release(mechanism), epsilon, delta, **order)
    return accepts(said, sealed(said, kind, tables=[mechanism.canonical()], **more))


def test_claims_that_hold_with_equality_are_accepted() -> None:
    assert _local("ratio", EQUAL, "0")
    assert _local("renyi", EQUAL, "0", order="2")
    assert _local("delta", TWO, "0", "1/2")
    assert not _local("delta", TWO, "0", "4999999999/10000000000")


def test_orders_and_outputs_at_the_edge() -> None:
    assert not _local("renyi", TWO, "5", order="1")
    assert not _local("renyi", TWO, "5", "0.1", order="1")
    impossible = _mechanism([[TOTAL, 0], [2**31, 2**31]])
    assert not _local("renyi", impossible, "1000", order="2")
    said = claim(release(TWO), "5", "0")
    assert not accepts(said, sealed(said, "renyi", tables=[TWO.canonical()], order="2"))


@pytest.mark.parametrize(
    ("entry", "fits"),
    [
        ({"M": 4, "k": 1, "T": 100, "w_hi": 25, "w_lo": 25, "r": 0}, True),
        ({"M": 4, "k": 1, "T": 102, "w_hi": 26, "w_lo": 25, "r": 1}, True),
        ({"M": 4, "k": 1, "T": 120, "w_hi": 25, "w_lo": 25, "r": 0, "null": [20, 20]}, True),
        ({"M": 4, "k": 1, "T": 120, "w_hi": 25, "w_lo": 25, "r": 0, "null": [20]}, False),
        ({"M": 4, "k": 4, "T": 100, "w_hi": 25, "w_lo": 25, "r": 0}, False),
        ({"M": 4, "k": 1, "T": 120, "w_hi": 25, "w_lo": 25, "r": 0, "null": [20, 19]}, False),
    ],
)
def test_ranks_at_equality(entry: dict[str, Any], fits: bool) -> None:
    said = claim(
        kernel.ExactRelease(observer="reports", tables=((sha256(canonical(entry)), 1),)), "1"
    )
    assert accepts(said, sealed(said, "ratio", ranks=[entry])) == fits


def _summed(others: int, corners: list[list[int]], clients: int, delta: str, **change: Any) -> bool:
    described = kernel.ExactRelease(
        observer="secure_sum",
        tables=((ADDITIVE.sha256, 1),),
        clients=clients,
        lattice=change.pop("lattice", (0, 1, 2)),
    )
    half = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    blanket = {"rows": [0, 1], "block": 1, "components": [half]}
    content = {
        "tail": 160,
        "blankets": [blanket],
        "others": others,
        "cases": {"corners": corners},
        **change,
    }
    said = claim(described, "0", delta)
    return accepts(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))


def test_one_client_at_least_is_honest() -> None:
    document = kernel.ExactRelease(
        observer="secure_sum", tables=(("0" * 64, 1),), clients=3, corrupted=2
    ).document()
    assert kernel.ExactRelease.read(document).corrupted == 2
    with pytest.raises(kernel.Unreadable, match="not an integer from 0 to 2"):
        kernel.ExactRelease.read({**document, "corrupted": 3, "assumptions": ["honest_clients>=0"]})


def test_losses_up_to_epsilon_take_nothing_off() -> None:
    # Losses 0 and 2, half each: at epsilon 1/2 the divergence is (1 - e**-1.5) / 2 = 0.38843...
    measure = losses.Measure(flint.fmpz_poly([WHOLE // 2, 0, WHOLE // 2]), 0)
    with flint.ctx.workprec(128):
        losses.check_delta_of(
            measure, Target(release(TWO), Fraction(1, 2), Fraction("0.38844"), None)
        )
        with pytest.raises(kernel.Refused):
            losses.check_delta_of(
                measure,
                Target(release(TWO), Fraction(1, 2), Fraction("0.38843"), None),
            )


@pytest.mark.parametrize("epsilon", ["0", "1/3", "1/2", "3/4", "1", "5/4"])
def test_every_loss_above_epsilon_counts(epsilon: str) -> None:
    """Quarters at the losses 0, 1/2 and 1, and a quarter that is lost: each from just above itself on."""
    masses = flint.fmpz_poly([WHOLE // 4] * 3)
    measure = losses.Measure(masses, 0, 0, Fraction(1, 2))
    level = float(Fraction(epsilon))
    exact = 1 / 4 + sum(max(0.0, 1 - math.exp(level - loss)) for loss in (0.0, 0.5, 1.0)) / 4
    doubt = Fraction(1, 10**12)
    with flint.ctx.workprec(128):
        stated = Target(release(TWO), Fraction(epsilon), Fraction(exact) + doubt, None)
        losses.check_delta_of(measure, stated)
        with pytest.raises(kernel.Refused, match="too small"):
            losses.check_delta_of(measure, replace(stated, delta=Fraction(exact) - doubt))


def test_the_curves_of_all_directions_are_checked() -> None:
    """At epsilon 1 Gaussians a deviation apart have the divergence .127, and those of two .51."""

    def check(*curves: Curve) -> None:
        proof = Fields({"sampled": {"low": -96, "high": 96}}, "proof")
        losses.check_curves(stated, proof, list(curves), Fraction(1, 16), 0)

    with flint.ctx.workprec(256):
        near, far = gaussian_curve(flint.arb(1)), gaussian_curve(flint.arb(2))
        stated = Target(release(TWO), Fraction(1), Fraction(1, 5), None)
        check(near, near)
        for curves in ((near, far), (far, near)):
            with pytest.raises(kernel.Refused, match="too small"):
                check(*curves)


def test_sums_at_equality() -> None:
    half = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    pair = {"shape": [1, 2, 1], "places": [[TOTAL], [0, TOTAL], [0, 0, TOTAL]]}
    assert _summed(3, [[3]], 4, "3/8")
    assert not _summed(3, [[4]], 4, "3/8")
    # Two others are one block of two.
    assert _summed(
        2, [[1]], 3, "3/8", blankets=[{"rows": [0, 1], "block": 2, "components": [pair]}]
    )
    for blanket in (
        {
            "rows": [0, 1, 2],
            "block": 1,
            "components": [{**half, "places": [[TOTAL], [0, TOTAL], [TOTAL]]}],
        },
        {"rows": [0, 2], "block": 1, "components": [half]},
        {"rows": [0, 1], "block": 1, "components": [{"shape": [0], "places": [[TOTAL], [TOTAL]]}]},
        {"rows": [], "block": 1, "components": []},
    ):
        assert not _summed(3, [[3]], 4, "1/2", blankets=[blanket])
    silent = {"rows": [0, 1], "block": 1, "components": []}
    assert _summed(3, [[]], 4, "1", blankets=[silent])
    assert not _summed(3, [[]], 4, "1", blankets=[silent], lattice=(0, 1, 1))
    assert _summed(3, [[]], 4, "1", blankets=[silent], lattice=(0, 1, 2**14 - 1))
    assert not _summed(3, [[]], 4, "1", blankets=[silent], lattice=(0, 1, 2**14))
    for lattice in ((0, 1, 1), (0, 0, 1)):
        assert not _summed(3, [[3]], 4, "1", lattice=lattice)


def test_a_division_has_no_empty_part() -> None:
    described = kernel.ExactRelease(
        observer="secure_sum", tables=((ADDITIVE.sha256, 1),), clients=3, lattice=(0, 1, 2)
    )
    whole = {"rows": [0, 1], "block": 1, "components": []}
    sides = [
        {
            "rows": [row],
            "block": 1,
            "components": [{"shape": [1, 1], "places": [[0] * row + [TOTAL]]}],
        }
        for row in (0, 1)
    ]
    leaves = [{"corners": [[*([k] if k else []), *([2 - k] if k < 2 else [])]]} for k in (0, 1, 2)]
    tree = {"group": 0, "first": 1, "second": 2, "cuts": [0, 1, 2, 3], "children": leaves}
    content: dict[str, Any] = {"tail": 160, "blankets": [whole, *sides], "others": 2, "cases": tree}
    said = claim(described, "0", "1")
    assert accepts(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))
    for change, why in (
        ({"cuts": [0, 0, 1, 2, 3], "children": [{"corners": [[1]]}, *leaves]}, "a part is empty"),
        ({"cuts": [0, 1, 2], "children": leaves[:2]}, r"do not hold all counts \(have 2, want 3\)"),
        ({"cuts": [1, 2, 3], "children": leaves[1:]}, "do not begin at 0"),
        ({"group": 3}, "not an integer from 0 to 2"),
    ):
        content["cases"] = {**tree, **change}
        with pytest.raises((kernel.Refused, kernel.Unreadable), match=why):
            kernel.check(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))


def test_contractions_at_the_edge() -> None:
    def check(low: Fraction, high: Fraction, kappa: int, reach: int, depth: int = 30) -> None:
        with flint.ctx.workprec(128):
            check_contraction(low, high, Fraction(kappa), Fraction(reach), depth)

    check(Fraction(1, 4), Fraction(3, 4), 2, 8)
    half = Fraction(1, 2)
    for low, high, reach, why in (
        (half, half, 8, "likelier"), (Fraction(0), half, 8, "likelier"), (half, Fraction(1), 8, "likelier"),
        (Fraction(1, 4), half, 0, "range must be positive"), (Fraction(1, 4), half, -1, "range must be positive"),
    ):  # fmt: skip
        with pytest.raises(kernel.Refused, match=why):
            check(low, high, 100, reach)


def test_boxes_are_halved_as_often_as_the_depth_says() -> None:
    low, high, kappa, reach = Fraction(1, 4), Fraction(3, 4), Fraction(11, 20), Fraction(4)
    normal = NormalDist()

    def height(x: float) -> float:
        return math.exp(-(normal.inv_cdf(float(low) + float(high - low) * normal.cdf(x)) ** 2) / 2)

    def depth(a: float, b: float) -> int:
        nearest = 0.0 if a < 0 < b else min(abs(a), abs(b))
        if float(high - low) * math.exp(-(nearest**2) / 2) <= float(kappa) * min(
            height(a), height(b)
        ):
            return 0
        return 1 + max(depth(a, (a + b) / 2), depth((a + b) / 2, b))

    needed = depth(-4.0, 4.0)
    assert needed > 2
    with flint.ctx.workprec(128):
        check_contraction(low, high, kappa, reach, needed)
        with pytest.raises(kernel.Refused, match="or the depth is"):
            check_contraction(low, high, kappa, reach, needed - 1)


def _cut(**change: Any) -> dict[str, Any]:
    return {"edges": [-4, 0, 4], "roots": [[-2, 2], [-2, 2]], "ends": [[0, 0], [0, 0]], **change}


def _read(cut: dict[str, Any]) -> Any:
    return _read_cut(Fields(copy.deepcopy(cut), "cut"), flint.fmpq(1, 4), flint.fmpq(3))


def test_cuts_at_the_edge() -> None:
    axis = [flint.fmpq(-10), flint.fmpq(0), flint.fmpq(10)]
    plain = _least(_read(_cut()), axis)
    # A line that is constant and positive counts once, a negative one E = 4 times, wherever the level is.
    for base, added in ((8, flint.fmpq(2)), (-8, flint.fmpq(-8)), (0, flint.fmpq(0))):
        raised = _least(_read(_cut(ends=[[base, 0], [0, 0]])), axis)
        assert [high - low for high, low in zip(raised, plain, strict=True)] == [added] * 4
    for change in (
        {"edges": [-4, 0, 0, 4], "roots": [[-2, 2]] * 3}, {"edges": [-4, 4]}, {"edges": [-3, 0, 4]},
        {"edges": [-4, 0, 3]},
        {"edges": [-4, 1, 0, 4], "roots": [[-2, 2]] * 3}, {"roots": [[-2, 2]]}, {"ends": [[0, 0]]},
        {"roots": [[-2, 2], [1]]}, {"ends": [[0, 0], [0]]}, {"edges": [], "roots": []},
    ):  # fmt: skip
        with pytest.raises(kernel.Refused):
            _read(_cut(**change))


def test_cuts_that_say_nothing_prove_nothing_and_axes_must_rise() -> None:
    statement = {
        "kind": "lower_bound",
        "loss": "mse",
        "prior": "uniform",
        "levels": 2,
        "epsilon": "1/100",
        "value": "0",
    }
    said = kernel.ExactClaim(release=None, statement=statement)
    cut = {"edges": [-4, 4], "roots": [[-1, 1]], "ends": [[0, 0], [0, 0]]}
    for axis in ([-1000, 0, 1000], [0, 0], [-4, 4, 8], [4, -4]):
        assert not accepts(said, sealed(said, "dual", scale=2, axis=axis, cuts=[cut])), axis


def test_models_keep_codes_with_a_probability_above_zero() -> None:
    said = claim(kernel.ExactRelease(observer="model", noise_multiplier=Fraction(1)), "1", "0.1")
    document = said.release.document()
    assert kernel.ExactRelease.read(document) == said.release
    for change in (
        {"kept": "0"},
        {"noise_multiplier": "0"},
        {"kept": "3/2"},
        {"noise_multiplier": "2/2"},
    ):
        with pytest.raises(kernel.Unreadable):
            kernel.ExactRelease.read({**document, **change})


def test_a_ball_is_at_most_another_when_all_of_it_is() -> None:
    """What `require` and the boxes of kappa count on: an undecided comparison is not True."""
    one, third = flint.arb(1), flint.arb(1) / 3
    assert (one <= one) is True
    assert (third <= one) is True
    assert (one <= third) is not True
    assert (third <= third) is not True  # undecided: it stands for any number it holds
    assert (flint.arb("nan") <= one) is not True


@pytest.mark.parametrize("rate", ["0", "3/2"])
@pytest.mark.parametrize("kind", ["none", "poisson", "public"])
def test_rates_are_probabilities_above_zero(kind: str, rate: str) -> None:
    document = release(TWO).document()
    assert kernel.ExactRelease.read(document) == release(TWO)
    with pytest.raises(kernel.Unreadable, match="does not match the rate"):
        kernel.ExactRelease.read({**document, "sampling": {"kind": kind, "rate": rate}})


def test_the_largest_epsilon_that_is_worth_claiming() -> None:
    assert _local("ratio", TWO, str(10**6))
    assert not _local("ratio", TWO, str(10**6 + 1))


def test_a_renyi_divergence_says_nothing_at_delta_zero() -> None:
    said = claim(release(TWO), "5", "0")
    for order, why in (("2", "says nothing at delta = 0"), ("1", "the order must be above 1")):
        with pytest.raises(kernel.Refused, match=why):
            kernel.check(said, sealed(said, "renyi", tables=[TWO.canonical()], order=order))


def test_visible_participation_lowers_a_renyi_divergence() -> None:
    # sum P^2/Q = 7/3, and 1 - 1/3 + 7/9 = 13/9, whose logarithm is 0.36772...
    described = release(TWO, sampling="public", rate=Fraction(1, 3))
    for epsilon, fits in (("0.36773", True), ("0.36772", False)):
        said = claim(described, epsilon, order="2")
        assert accepts(said, sealed(said, "renyi", tables=[TWO.canonical()], order="2")) == fits


def test_nothing_to_check_is_no_success() -> None:
    with pytest.raises(SystemExit, match="name the claim files"):
        main([])


def test_files_of_just_the_largest_size_are_read(
    tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    said = claim(release(EQUAL), "0")
    path = tmp_path / "claim.json"
    text = kernel.write_claim(said, sealed(said, "ratio", tables=[EQUAL.canonical()]))
    path.write_text(text)
    monkeypatch.setattr(units, "MAX_TEXT", len(text))
    assert main([str(path)]) == 0
    assert "certified" in capsys.readouterr().out
    path.write_text(text + " ")
    assert main([str(path)]) == 2
    assert "longer than" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["key", "table"])
def test_surrogates_are_refused_and_told_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    said = claim(release(EQUAL), "0", "0")
    table = EQUAL.canonical()
    if place == "table":
        table = table[:-1] + ',"categories":["\ud800"]}'
    text = kernel.write_claim(said, sealed(said, "ratio", tables=[table]))
    path = tmp_path / "claim.json"
    path.write_text(text if place == "table" else text[:-1] + ',"\\ud800":1}', encoding="ascii")
    assert main([str(path)]) == 2
    assert "\\ud800" in capsys.readouterr().out


def test_a_row_that_does_not_sum_is_told_with_what_it_must_sum_to() -> None:
    assert TOTAL == units.TOTAL
    text = EQUAL.canonical().replace(str(2**31), str(2**31 - 1), 1)
    with pytest.raises(kernel.Refused, match=rf"have {TOTAL - 1}, want {TOTAL}\)"):
        read_table(text)


def test_lists_of_just_the_largest_size_are_read() -> None:
    assert Fields({"a": [1, 2]}, "it").items("a", 2) == [1, 2]
    with pytest.raises(kernel.Unreadable):
        Fields({"a": [1, 2, 3]}, "it").items("a", 2)


def test_the_limit_of_time_itself_is_beyond_it(monkeypatch: Any) -> None:
    """The processor's time is read anew once a pause of another clock, which is read faster, is over."""
    spent, clock = 10**9, 10**9
    monkeypatch.setattr(units.time, "process_time_ns", lambda: spent)
    monkeypatch.setattr(units.time, "monotonic_ns", lambda: clock)
    set_deadline(3)
    spent += 3 * 10**9 - 1
    units.tick()
    spent += 1
    clock += units._PAUSE - 1
    units.tick()
    clock += 1
    with pytest.raises(kernel.Unfinished):
        units.tick()
    # Once the limit is passed every call refuses, and another check begins with a reading.
    with pytest.raises(kernel.Unfinished):
        units.tick()
    set_deadline(1)
    spent += 10**9
    with pytest.raises(kernel.Unfinished):
        units.tick()


def _grid(low: int, high: int, step: Fraction) -> losses.Grid:
    return losses.Grid.read(Fields({"low": low, "high": high}, "grid"), step)


def test_grids_at_the_edge(monkeypatch: Any) -> None:
    one = Fraction(1)
    assert _grid(10**5, 10**5, one).low == 10**5
    assert _grid(-100, -100, one).low == -100
    for low, high, step in (
        (10**5, 10**5 + 1, one), (-101, -100, one),
    ):  # fmt: skip
        with pytest.raises(kernel.Refused):
            _grid(low, high, step)
    least = Fraction(1, 2**30)
    # Two points that 16 bits, fewer than a proof may have, do not tell apart.
    with flint.ctx.workprec(16), pytest.raises(kernel.Refused, match="the points do not increase"):
        _grid(10**6, 10**6 + 1, least)
    assert len(_grid(0, 1, least).points) == 2
    with pytest.raises(kernel.Refused):
        _grid(0, 1, least * Fraction(99, 100))
    # Points of e^3 have at most 256 + 4 + 2 bits, and 512 of their own.
    monkeypatch.setattr(units, "MAX_MEMORY", 6 * (256 + 6 + 512))
    assert len(_grid(-2, 3, one).points) == 6
    with pytest.raises(kernel.Refused, match="too many or too large"):
        _grid(-3, 3, one)
    with pytest.raises(kernel.Refused, match="too many or too large"):
        _grid(-1, 4, one)
    # Entries of a product have at most 320 bits before they are divided.
    monkeypatch.setattr(units, "MAX_MEMORY", 4 * (320 + 512))
    pair = losses.Measure(flint.fmpz_poly([WHOLE // 2, WHOLE // 2]), 0)
    assert (pair * pair).deficit == 0
    with pytest.raises(kernel.Refused):
        pair * losses.Measure(flint.fmpz_poly([WHOLE // 2, 0, WHOLE // 2]), 0)


def test_a_loss_that_rounds_down_to_the_factor_asked_for_counts_as_above_it() -> None:
    step = Fraction(1, 8)
    with flint.ctx.workprec(512):
        curve = losses.curve_of(losses.Measure(flint.fmpz_poly([WHOLE]), 1, 0, step))
        below = real.exp_floor(step, units.FINE)
    # The one loss is 1/8, and e**(1/8) is irrational: above its lower end, the divergence is above 0.
    assert curve(below, units.ONE) >= 1
    assert curve(below + 1, units.ONE) == 0


def test_curves_of_rounds_are_asked_at_positive_factors_alone() -> None:
    asked: list[int] = []

    def curve(numerator: int, denominator: int) -> int:
        assert numerator > 0
        assert denominator > 0
        asked.append(numerator)
        return -(-max(0, denominator - numerator) * WHOLE // denominator)

    sampled = release(TWO, sampling="poisson", rate=Fraction(1, 2), neighboring="add_or_remove_one")
    add, remove = losses.sampled_curves(sampled, curve)
    # Every divergence at c = 1 - rate or below is 1 - c, and none is left above 1/(1 - rate).
    assert add(1, 2) == WHOLE // 2
    assert remove(2, 1) == 0
    assert not asked
    assert abs(3 * add(2, 3) - WHOLE) <= 6
    (replace,) = losses.sampled_curves(release(TWO, sampling="poisson", rate=Fraction(1, 2)), curve)
    assert replace(1, 1) == 0
    assert replace(1, 2) == WHOLE // 2


def test_chances_of_few_hits_at_the_edge() -> None:
    half = Fraction(1, 2)
    assert sums.binomial_below(2, half, 0) == 0
    assert sums.binomial_below(2, Fraction(1), 2) == 0
    assert sums.binomial_below(2, Fraction(1), 3) == WHOLE
    assert sums.binomial_below(2, Fraction(0), 1) == WHOLE
    assert sums.binomial_below(2, half, 3) == WHOLE
    # Above the mean terms rise before they fall: P(N < 2) = 3/4, P(N < 19) of 20 that hit with 1/20.
    with flint.ctx.workprec(256):
        assert 0 <= sums.binomial_below(2, half, 2) - 3 * WHOLE // 4 <= 4
        rare = 1 - Fraction(20 * 19 + 1, 20**20)
        assert 0 <= sums.binomial_below(20, Fraction(1, 20), 19) - rare * WHOLE <= WHOLE // 10**40
    assert WHOLE // 4 <= sums.binomial_below(2, half, 1) <= WHOLE // 2


def test_blankets_and_divisions_of_just_the_largest_size() -> None:
    def read(rows: int) -> Any:
        return sums._read_blanket(
            Fields({"rows": [0] * rows, "block": 1, "components": []}, "blanket"),
            Table([[TOTAL]]),
            WHOLE >> BITS,
        )

    assert read(10**4).components == []
    with pytest.raises(kernel.Refused, match="too many combinations"):
        read(10**4 + 1)

    def depth(levels: int) -> list[Any]:
        node: dict[str, Any] = {"corners": [[]]}
        for _ in range(levels):
            node = {"group": 0, "first": 0, "second": 0, "cuts": [0, 4], "children": [node]}
        return [
            (counts, leaf.values)
            for counts, leaf in sums._cases(Fields(node, "cases"), {0: 3}, [read(1)], 0)
        ]

    assert depth(200) == [({0: 3}, {"corners": [[]]})]
    with pytest.raises(kernel.Refused, match="too deeply"):
        depth(201)


def test_boxes_of_just_the_largest_depth() -> None:
    """Two hundred components one after the other, of which none is ever drawn; one more is refused."""

    def steps(components: int) -> list[Any]:
        node: dict[str, Any] = {"corners": [[]]}
        for _ in range(components):
            node = {"edges": [0], "children": [node]}
        part = sums._Part(0, 1, Fraction(0), losses.SILENCE)
        with flint.ctx.workprec(64):
            return list(
                sums._steps(Fields(node, "cases"), [part] * components, WHOLE, losses.SILENCE)
            )

    assert [weight for weight, _ in steps(200)] == [0, WHOLE]
    with pytest.raises(kernel.Refused, match="nothing to divide"):
        steps(201)


TWOFOLD = "6931471805599453094/10000000000000000000"
"""An epsilon whose E is 2, rounded up: levels then reach to 3."""


def _bound(
    axis: list[int], epsilon: str = TWOFOLD, levels: int = 2, root: int = 8, more: int = 0
) -> bool:
    """Roots -y, y on one cell: q = y^2 - 1/3, and g is not negative beyond them."""
    value = Fraction(root**2, 16) - Fraction(1, 3) + Fraction(more, 10**6)
    statement = {"kind": "lower_bound", "loss": "mse", "prior": "uniform"}
    statement |= {"levels": levels, "epsilon": epsilon, "value": str(value)}
    said = kernel.ExactClaim(release=None, statement=statement)
    cut = {"edges": [-4, 4], "roots": [[-root, root]], "ends": [[0, 0], [0, 0]]}
    return accepts(said, sealed(said, "dual", scale=2, axis=axis, cuts=[cut]))


def test_lower_bounds_at_the_edge() -> None:
    assert _bound([-8, 8])
    assert not _bound([-8, 8], more=1)
    assert not _bound([-8, 8], levels=3)
    assert _bound([-11, 11])
    assert not _bound([-12, 12])  # a level at 3 is in the middle cell and reaches far enough
    assert not _bound([-8, -8, 8, 8])
    assert _bound([-3, 3], root=3, epsilon="100")
    assert not _bound([-3, 3], root=3, epsilon="1001/10")
    assert not _bound([-8, 8], epsilon="0")
    wide = [*range(-8 - 999, -7), *range(8, 8 + 1000)]
    assert len(wide) == 2000
    assert _bound(wide, epsilon="1/10000")
    assert not _bound([-(10**4), *wide, 10**4], epsilon="1/10000")


def test_sentences_count_rounds_and_coordinates() -> None:
    def said(described: kernel.ExactRelease) -> str:
        return kernel.words(claim(described, "1", "0.1"))

    assert f"in 1 round of 1 coordinate (1 from table {TWO.sha256[:12]});" in said(release(TWO))
    assert "in 3 rounds of 2 coordinates (2 from" in said(release(TWO, coordinates=2, rounds=3))
    model = kernel.ExactRelease(observer="model", noise_multiplier=Fraction(1), rounds=3)
    assert "kept with probability 1, in 3 rounds; assumed:" in said(model)
    assert "gaussian noise is ideal" in said(model)


def test_an_absence_that_is_seen_costs_what_one_output_is_likelier() -> None:
    """Nothing that is seen differs: 1 - c counts below c = 1, present or absent, and nothing above."""
    described = release(TWO, sampling="public", rate=Fraction(1, 4))
    (curve,) = losses.sampled_curves(
        described, losses.Curve(lambda n, d: -(-max(0, d - n) * WHOLE // d))
    )
    assert curve(1, 3) == -(-2 * WHOLE // 3)
    assert curve(1, 1) == curve(3, 1) == 0


def test_a_pure_claim_about_sums_names_an_integer_for_each_level_or_none() -> None:
    """The sentence names them, so that they are checked where the proof itself does not use them."""
    for lattice, certified in (((), True), ((0, 1), True), ((7, 0), False), ((0, 1, 2), False)):
        said = claim(release(TWO, observer="secure_sum", clients=3, lattice=lattice), "1.1")
        proof = sealed(said, "ratio", tables=[TWO.canonical()])
        assert accepts(said, proof) == certified, lattice


def test_many_levels_beside_a_huge_epsilon_are_refused_before_they_are_multiplied() -> None:
    """Each of 2 x 8192 masses would become a number of 1.4 million bits: 3 GB."""
    levels = 8192
    even = [2**32 // levels] * levels
    tilted = [even[0] + 1, even[1] - 1, *even[2:]]
    said = claim(release(_mechanism([even, tilted])), "1000000", "1/100")
    proof = sealed(said, "delta", tables=[_mechanism([even, tilted]).canonical()])
    with pytest.raises(units.Refused, match="too many or too large"):
        kernel.check(said, proof)
