"""Projections are tables: rounding is what it says, replacement is at least as private as its formula."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint import ParameterError, families
from mezzotint.training.projection import projection, projection_from
from mezzotint.training.rqp import contraction, table_contraction
from tolerances import FEW, GRAIN, MANY


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_stochastic_is_unbiased_and_between_neighbours(bits: int) -> None:
    table = projection(bits=bits).table
    assert table.max_bias == 0
    x = np.linspace(-1, 1, 37)
    step = 2 / (2**bits - 1)
    assert np.all(np.abs(table.levels - x[:, None])[table.pmf(x) > 0] <= step + FEW)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_nearest_is_the_nearest_level(bits: int) -> None:
    table = projection(bits=bits, rounding="nearest").table
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.5, 1.5, 500)
    drawn = table.decode(table.privatize(x, 3))
    nearest = table.levels[np.abs(np.clip(x, -1, 1)[:, None] - table.levels).argmin(axis=1)]
    np.testing.assert_array_equal(drawn, nearest)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize(("bits", "q"), [(1, 0.75), (2, 0.5), (4, 0.9), (8, 0.99), (4, 1 / 16)])
def test_replacement(rounding: str, bits: int, q: float) -> None:
    found = projection(bits=bits, rounding=rounding, q=q)
    levels = 2**bits
    assert q - levels * GRAIN <= found.q <= q
    at_level = found.table.pmf(found.table.levels)
    np.testing.assert_allclose(
        np.diag(at_level), q, atol=1e-7
    )  # up to 256 units of 2^-32 are given to the kept code
    np.testing.assert_allclose(at_level[0, 1:], (1 - q) / (levels - 1), atol=MANY)
    assert found.kappa == contraction(q, bits)
    if bits <= 4:
        # The table that is drawn from contracts no less than the formula says.
        assert table_contraction(found.table) <= found.kappa * (1 + 1e-6)
    assert found.replacement == pytest.approx(
        levels * (1 - q) / (levels - 1), abs=2 * levels * GRAIN
    )


def test_rounding_costs_and_buys_nothing() -> None:
    for rounding in ("nearest", "stochastic"):
        assert projection(bits=4, rounding=rounding).kappa == 1.0
        assert projection(bits=4, rounding=rounding).replacement == 0.0
        assert projection(bits=4, rounding=rounding).half_cell == pytest.approx(1 / 15, rel=FEW)


def test_any_table() -> None:
    response = families.k_randomized_response(lower=-1.0, upper=1.0, levels=4, epsilon=2.0)
    found = projection_from(response)
    assert 0 < found.kappa < 1
    assert found.kappa == table_contraction(response)
    assert found.bits == 2


def test_bad_input() -> None:
    with pytest.raises(ParameterError, match="bits=9"):
        projection(bits=9)
    with pytest.raises(ParameterError, match="rounding=up"):
        projection(rounding="up")
    with pytest.raises(ParameterError, match=r"q=0\.01"):
        projection(bits=4, q=0.01)
    with pytest.raises(ParameterError, match="table=512"):
        projection_from(families.stochastic_rounding(lower=-1.0, upper=1.0, levels=512))
