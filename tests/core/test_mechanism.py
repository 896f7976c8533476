from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import Mechanism, ParameterError
from strategies import mechanisms
from tolerances import FEW, MANY

TOTAL = 2**32
GOOD = {
    "knots": [-1.0, 1.0],
    "levels": [-2.0, 2.0],
    "weights": [[3 * 2**30, 2**30], [2**30, 3 * 2**30]],
}


def built(**changes: object) -> Mechanism:
    return Mechanism(**{**GOOD, **changes})  # pyright: ignore


ROWS3 = [[TOTAL, 0]] * 3


@pytest.mark.parametrize(
    ("changes", "parameter", "remedy"),
    [
        ({"knots": [1.0, -1.0]}, "knots", "sorted"),
        ({"knots": [1.0, 1.0]}, "knots", "jump"),
        ({"knots": [1.0], "weights": [[TOTAL, 0]]}, "knots", "at least 2"),
        ({"knots": []}, "knots", "at least 2"),
        ({"knots": [[-1.0, 1.0]]}, "knots", "1-D"),
        ({"knots": 3.0}, "knots", "1-D"),
        ({"knots": [-1.0, math.nan]}, "knots", "finite"),
        ({"knots": [-math.inf, 1.0]}, "knots", "finite"),
        ({"knots": [-1e308, 1e308]}, "knots", "overflows"),
        ({"knots": [0.0, 5e-324]}, "knots", "closer than"),
        ({"knots": [0.0, 0.0, 1.0], "weights": ROWS3}, "knots", "no jump can be at lower"),
        ({"knots": [0.0, 1.0, 1.0], "weights": ROWS3}, "knots", "no jump can be at lower or upper"),
        ({"knots": [0.0, 1, 1, 1, 2], "weights": [[TOTAL, 0]] * 5}, "knots", "at most twice"),
        ({"knots": ["a", "b"]}, "knots", "numbers"),
        ({"knots": [None, 1.0]}, "knots[0]", "real numbers"),
        ({"knots": ["-1.0", "1.0"]}, "knots", "real numbers"),
        ({"knots": [-1j, 1j]}, "knots", "real numbers"),
        ({"levels": [2.0, -2.0]}, "levels", "increase"),
        ({"levels": [2.0, 2.0]}, "levels", "increase"),
        ({"levels": [2.0], "weights": [[TOTAL]] * 2}, "levels", "at least 2"),
        ({"levels": []}, "levels", "at least 2"),
        ({"levels": [0.0, math.inf]}, "levels", "finite"),
        ({"levels": [[0.0, 1.0]]}, "levels", "1-D"),
        ({"levels": np.arange(65537.0)}, "levels", "65536"),
        ({"levels": ["a", "b"]}, "levels", "numbers"),
        ({"weights": [[TOTAL, 0]]}, "weights", "one row per knot"),
        ({"weights": [[TOTAL, 0, 0]] * 2}, "weights", "one column per level"),
        ({"weights": [TOTAL, 0]}, "weights", "one row per knot"),
        ({"weights": [[TOTAL, 0], [TOTAL, 1]]}, "weights", "row 1 must sum"),
        ({"weights": [[TOTAL - 1, 0], [TOTAL, 0]]}, "weights", "row 0 must sum"),
        ({"weights": [[TOTAL + 1, -1], [TOTAL, 0]]}, "weights", "row 0, level 1 is negative"),
        ({"weights": [[0.5, 0.5], [0.5, 0.5]]}, "weights", "integers"),
        ({"weights": [[float(TOTAL), 0.0]] * 2}, "weights", "integers"),
        ({"weights": [[TOTAL, 0], [TOTAL]]}, "weights", "differ in length"),
        ({"weights": [["a", "b"]] * 2}, "weights", "integers"),
        (
            {"weights": np.array([[2**64 - 1, TOTAL + 1], [TOTAL, 0]], dtype=np.uint64)},
            "weights",
            "exceed",
        ),
        ({"name": 3}, "name", "text"),
    ],
)
def test_bad_tables_are_refused(changes: dict[str, object], parameter: str, remedy: str) -> None:
    with pytest.raises(ParameterError, match=remedy) as caught:
        built(**changes)
    assert caught.value.parameter == parameter
    assert str(caught.value).startswith(f"{parameter}=")


def test_frozen_and_owning() -> None:
    knots, weights = np.array([-1.0, 1.0]), np.array(GOOD["weights"])
    mechanism = built(knots=knots, weights=weights)
    knots[0], weights[0] = 7.0, [TOTAL, 0]
    assert mechanism.lower == -1.0
    assert mechanism.weights[0].tolist() == GOOD["weights"][0]
    for array in (mechanism.knots, mechanism.levels, mechanism.weights, mechanism.probabilities):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.name = "other"  # pyright: ignore


def test_equality_and_hash_are_the_tables() -> None:
    assert built() == built(name="other")
    assert hash(built()) == hash(built(name="other"))
    assert built(knots=[-0.0, 1.0]) == built(knots=[0.0, 1.0])
    assert built() != built(knots=[-1.0, 1.5])
    assert built() != "table"
    assert built(weights=np.array(GOOD["weights"], dtype=np.uint64)) == built()


def test_arrays_of_other_layouts_are_laid_out_row_by_row() -> None:
    weights = built().weights
    transposed = built(weights=np.asfortranarray(weights))
    assert transposed == built()
    assert transposed.weights.flags.c_contiguous


@given(mechanism=mechanisms(max_levels=20))
def test_pickle_and_replace_keep_the_table(mechanism: Mechanism) -> None:
    _ = mechanism.worst_ratio
    again = pickle.loads(pickle.dumps(mechanism))
    assert not again.weights.flags.writeable
    assert not copy.deepcopy(mechanism).knots.flags.writeable
    assert again == mechanism
    np.testing.assert_array_equal(again.weights, mechanism.weights)
    assert dataclasses.replace(mechanism, name="new") == mechanism


@pytest.mark.parametrize(
    ("levels", "bits"), [(2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9), (65536, 16)]
)
def test_bits(levels: int, bits: int) -> None:
    weights = np.zeros((2, levels), dtype=np.int64)
    weights[:, 0] = TOTAL
    assert built(levels=np.arange(levels), weights=weights).bits == bits


# Numbers against rationals --------------------------------------------------------------------------------------------


def exact_pmf(mechanism: Mechanism, x: float) -> list[Fraction]:
    clipped = Fraction(min(max(x, mechanism.lower), mechanism.upper))
    knots = [Fraction(knot) for knot in mechanism.knots.tolist()]
    k = max(k for k in range(len(knots) - 1) if knots[k] <= clipped and knots[k] < knots[k + 1])
    t = (clipped - knots[k]) / (knots[k + 1] - knots[k])
    rows = mechanism.weights.tolist()
    return [((1 - t) * a + t * b) / TOTAL for a, b in zip(rows[k], rows[k + 1], strict=True)]


@given(mechanism=mechanisms(max_levels=12, max_segments=8), seed=st.integers(0, 2**32 - 1))
def test_pmf_mean_and_variance_are_exact(mechanism: Mechanism, seed: int) -> None:
    generator = np.random.default_rng(seed)
    width = mechanism.upper - mechanism.lower
    x = np.concatenate(
        [
            mechanism.knots,
            mechanism.lower + width * generator.uniform(-0.2, 1.2, 5),
            [np.inf, -np.inf],
        ]
    )
    levels = [Fraction(level) for level in mechanism.levels.tolist()]
    spread = float(levels[-1] - levels[0])
    scale = max(abs(float(levels[0])), abs(float(levels[-1])))
    for value, pmf, mean, variance in zip(
        x.tolist(), mechanism.pmf(x), mechanism.mean(x), mechanism.variance(x), strict=True
    ):
        expected = exact_pmf(mechanism, value)
        # Rounding of x - knot: t errs by 2^-52 of |x| / width, where knots are far from 0 and close together.
        tolerance = 1e-15 + 1e-9 * (
            np.diff(mechanism.knots)[np.diff(mechanism.knots) > 0].min() < 1e-6 * width
        )
        np.testing.assert_allclose(pmf, [float(p) for p in expected], rtol=0, atol=tolerance)
        exact_mean = sum(p * level for p, level in zip(expected, levels, strict=True))
        exact_variance = sum(
            p * (level - exact_mean) ** 2 for p, level in zip(expected, levels, strict=True)
        )
        # Up to 12 levels; 90 roundings of numbers of size `scale`.
        assert abs(mean - float(exact_mean)) <= 1e-14 * scale + tolerance * spread * 12
        assert (
            abs(variance - float(exact_variance))
            <= FEW * spread**2 + FEW * scale * spread + tolerance * spread**2
        )


@given(mechanism=mechanisms(max_levels=12, max_segments=8))
def test_max_bias_is_the_worst_knot_in_rationals(mechanism: Mechanism) -> None:
    worst = max(
        abs(
            sum(
                Fraction(w, TOTAL) * Fraction(b)
                for w, b in zip(row, mechanism.levels.tolist(), strict=True)
            )
            - Fraction(x)
        )
        for row, x in zip(mechanism.weights.tolist(), mechanism.knots.tolist(), strict=True)
    )
    assert mechanism.exact_max_bias == worst
    assert Fraction(mechanism.max_bias) >= worst
    assert Fraction(math.nextafter(mechanism.max_bias, -1)) < worst or worst == 0


@given(mechanism=mechanisms(max_levels=12, max_segments=8), seed=st.integers(0, 2**32 - 1))
def test_no_input_is_more_biased_than_max_bias(mechanism: Mechanism, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(mechanism.lower, mechanism.upper, 200)
    scale = np.abs(mechanism.levels).max() + np.abs(mechanism.knots).max()
    assert np.abs(mechanism.mean(x) - x).max() <= mechanism.max_bias + MANY * scale


def test_jump_holds_from_its_knot_on() -> None:
    mechanism = Mechanism(
        knots=[0, 1, 1, 2], levels=[0, 1], weights=[[TOTAL, 0], [TOTAL, 0], [0, TOTAL], [0, TOTAL]]
    )
    assert mechanism.pmf([0.0, np.nextafter(1, 0), 1.0, 2.0])[:, 1].tolist() == [0, 0, 1, 1]


def test_shapes_and_nan() -> None:
    mechanism = built()
    assert mechanism.pmf(0.0).shape == (2,)
    assert mechanism.pmf(np.zeros((3, 4))).shape == (3, 4, 2)
    assert mechanism.mean(np.zeros((3, 0))).shape == (3, 0)
    assert mechanism.variance(0.0) == 4.0
    for function in (mechanism.pmf, mechanism.mean, mechanism.variance):
        with pytest.raises(ParameterError, match="input 1 is NaN"):
            function([0.0, np.nan])


def test_decode() -> None:
    mechanism = built()
    assert mechanism.decode([[0, 1], [1, 0]]).tolist() == [[-2, 2], [2, -2]]
    assert mechanism.decode([]).shape == (0,)
    for codes in ([2], [-1], [0.0], ["a"], [True, 2]):
        with pytest.raises(ParameterError, match="codes="):
            mechanism.decode(codes)
    with pytest.raises(ParameterError, match=r"^codes=-1 to 9: codes are integers from 0 to 1$"):
        mechanism.decode([[-1, 9]])
    with pytest.raises(ParameterError, match=r"^codes=float64 of shape \(1,\): "):
        mechanism.decode([0.0])
