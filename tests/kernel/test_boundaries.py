"""Each comparison of the kernel at equality, where the mutants that move it by one step differ."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from mezzotint import Mechanism, kernel
from mezzotint.kernel.dual import _least, _read_cut
from mezzotint.kernel.gaussian import check_contraction
from mezzotint.kernel.units import Fields, canonical, set_deadline, sha256
from reference.kernel import accepts, claim, release, sealed

TOTAL = 2**32


def _mechanism(rows: list[list[int]]) -> Mechanism:
    knots, levels = np.arange(float(len(rows))), np.arange(float(len(rows[0])))
    return Mechanism(knots=knots, levels=levels, weights=np.array(rows, dtype=np.int64), name="hand")


TWO = _mechanism([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
EQUAL = _mechanism([[2**31, 2**31], [2**31, 2**31]])
ADDITIVE = _mechanism([[2**31, 2**31, 0], [0, 2**31, 2**31]])


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
        ({"M": 4, "k": 1, "T": 120, "w_hi": 25, "w_lo": 25, "r": 0, "null": [20, 19]}, False),
    ],
)
def test_ranks_at_equality(entry: dict[str, Any], fits: bool) -> None:
    said = claim(kernel.Release(observer="reports", tables=((sha256(canonical(entry)), 1),)), "1")
    assert accepts(said, sealed(said, "ratio", ranks=[entry])) == fits


def _summed(others: int, corners: list[list[int]], clients: int, delta: str, **change: Any) -> bool:
    described = kernel.Release(
        observer="secure_sum", tables=((ADDITIVE.sha256, 1),), clients=clients, lattice=change.pop("lattice", (0, 1, 2))
    )
    half = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    blanket = {"rows": [0, 1], "block": 1, "components": [half]}
    content = {"tail": 160, "blankets": [blanket], "others": others, "cases": {"corners": corners}, **change}
    said = claim(described, "0", delta)
    return accepts(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))


def test_sums_at_equality() -> None:
    half = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    pair = {"shape": [1, 2, 1], "places": [[TOTAL], [0, TOTAL], [0, 0, TOTAL]]}
    assert _summed(3, [[3]], 4, "3/8")
    assert not _summed(3, [[4]], 4, "3/8")
    # Two others are one block of two.
    assert _summed(2, [[1]], 3, "3/8", blankets=[{"rows": [0, 1], "block": 2, "components": [pair]}])
    for blanket in (
        {"rows": [0, 1, 2], "block": 1, "components": [{**half, "places": [[TOTAL], [0, TOTAL], [TOTAL]]}]},
        {"rows": [0, 2], "block": 1, "components": [half]},
        {"rows": [0, 1], "block": 1, "components": [{"shape": [0], "places": [[TOTAL], [TOTAL]]}]},
        {"rows": [], "block": 1, "components": []},
    ):
        assert not _summed(3, [[3]], 4, "1/2", blankets=[blanket])
    silent = {"rows": [0, 1], "block": 1, "components": []}
    assert _summed(3, [[]], 4, "1", blankets=[silent])
    assert not _summed(3, [[]], 4, "1", blankets=[silent], lattice=(0, 1, 1))
    for lattice in ((0, 1, 1), (0, 0, 1), (0, 1, 2**14)):
        assert not _summed(3, [[3]], 4, "1", lattice=lattice)


def test_a_division_has_no_empty_part() -> None:
    described = kernel.Release(observer="secure_sum", tables=((ADDITIVE.sha256, 1),), clients=3, lattice=(0, 1, 2))
    whole = {"rows": [0, 1], "block": 1, "components": []}
    sides = [
        {"rows": [row], "block": 1, "components": [{"shape": [1, 1], "places": [[0] * row + [TOTAL]]}]}
        for row in (0, 1)
    ]
    leaves = [{"corners": [[*([k] if k else []), *([2 - k] if k < 2 else [])]]} for k in (0, 1, 2)]
    tree = {"group": 0, "first": 1, "second": 2, "cuts": [0, 1, 2, 3], "children": leaves}
    content: dict[str, Any] = {"tail": 160, "blankets": [whole, *sides], "others": 2, "cases": tree}
    said = claim(described, "0", "1")
    assert accepts(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))
    content["cases"] = {**tree, "cuts": [0, 0, 1, 2, 3], "children": [{"corners": [[1]]}, *leaves]}
    assert not accepts(said, sealed(said, "sum", tables=[ADDITIVE.canonical()], **content))


def test_contractions_at_the_edge() -> None:
    set_deadline(600)

    def check(low: Fraction, high: Fraction, kappa: int, reach: int, depth: int = 30) -> None:
        with flint.ctx.workprec(128):
            check_contraction(low, high, Fraction(kappa), Fraction(reach), depth)

    check(Fraction(1, 4), Fraction(3, 4), 2, 8)
    half = Fraction(1, 2)
    for low, high, kappa, reach in (
        (half, half, 2, 8), (Fraction(0), half, 2, 8), (half, Fraction(1), 2, 8), (Fraction(1, 4), half, 100, 0),
        (Fraction(1, 4), half, 100, -1),
    ):  # fmt: skip
        with pytest.raises(kernel.Refused):
            check(low, high, kappa, reach)


def _cut(**change: Any) -> dict[str, Any]:
    return {"edges": [-4, 0, 4], "roots": [[-2, 2], [-2, 2]], "ends": [[0, 0], [0, 0]], **change}


def _read(cut: dict[str, Any]) -> Any:
    return _read_cut(Fields(copy.deepcopy(cut), "cut"), flint.fmpq(1, 4), flint.fmpq(3))


def test_cuts_at_the_edge() -> None:
    axis = [flint.fmpq(-10), flint.fmpq(0), flint.fmpq(10)]
    plain = _least(*_read(_cut())[1:], axis)
    # A line that is constant and positive counts once, a negative one E = 4 times, wherever the level is.
    for base, added in ((8, flint.fmpq(2)), (-8, flint.fmpq(-8)), (0, flint.fmpq(0))):
        raised = _least(*_read(_cut(ends=[[base, 0], [0, 0]]))[1:], axis)
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
    said = kernel.Claim(release=None, statement=statement)
    cut = {"edges": [-4, 4], "roots": [[-1, 1]], "ends": [[0, 0], [0, 0]]}
    for axis in ([-1000, 0, 1000], [0, 0], [-4, 4, 8], [4, -4]):
        assert not accepts(said, sealed(said, "dual", scale=2, axis=axis, cuts=[cut])), axis


def test_models_keep_codes_with_a_probability_above_zero() -> None:
    said = claim(kernel.Release(observer="model", noise_multiplier=Fraction(1)), "1", "0.1")
    document = said.release.document()
    assert kernel.Release.read(document) == said.release
    for change in ({"kept": "0"}, {"noise_multiplier": "0"}, {"kept": "3/2"}, {"noise_multiplier": "2/2"}):
        with pytest.raises(kernel.Unreadable):
            kernel.Release.read({**document, **change})
