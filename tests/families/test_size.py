"""What a family cannot compute in seconds is refused before it takes the machine's memory."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from mezzotint import design, families
from mezzotint.core import loss as losses
from mezzotint.core.errors import ParameterError
from mezzotint.core.priors import LARGEST_INTEGER, MOST_INTEGERS
from mezzotint.core.types import MAX_LEVELS, IntArray
from mezzotint.families.noise import EXACT_SHIFTS, IntegerNoise
from tolerances import MANY

FAR_BINS = np.concatenate(
    [np.linspace(-3, -2, MAX_LEVELS // 2), np.linspace(2, 3, MAX_LEVELS // 2)]
)
POISSON = stats.poisson(5)

LARGE_REQUESTS: dict[str, Callable[[], object]] = {
    "stochastic rounding": lambda: families.stochastic_rounding(levels=MAX_LEVELS),
    "response": lambda: families.k_randomized_response(levels=MAX_LEVELS, epsilon=5.0),
    "rqm": lambda: families.rqm(levels=MAX_LEVELS),
    "rqm, many pairs": lambda: families.rqm(levels=4096),
    "erm": lambda: families.erm(bins=FAR_BINS),
    "pbm": lambda: families.pbm(trials=MAX_LEVELS - 1, knots=MAX_LEVELS),
    "noise, far inputs": lambda: families.discrete_laplace(scale=900.0).renyi(
        0.5, sensitivity=MAX_LEVELS
    ),
    "noise": lambda: families.discrete_laplace(scale=2.0).mechanism(lower=0, upper=2**31),
    "searched levels": lambda: design.optimal(1.0, levels=MAX_LEVELS),
    "given levels": lambda: design.optimal(1.0, levels=np.linspace(-3, 3, 4096)),
    "calibrated": lambda: design.calibrate("rqm", epsilon=1.0, levels=MAX_LEVELS),
    "discrete prior": lambda: design.optimal(1.0, lower=0, upper=1e9, prior=POISSON),
    "far integers": lambda: design.optimal(1.0, lower=1e17, upper=1.1e17, prior=POISSON),
}


@pytest.mark.parametrize("request_name", LARGE_REQUESTS)
def test_what_takes_too_long_is_refused(request_name: str) -> None:
    with pytest.raises(ParameterError, match=r"more than|at most"):
        LARGE_REQUESTS[request_name]()


def test_a_discrete_prior_reads_only_the_integers_that_it_can_take() -> None:
    wide = families.randomized_response(lower=0.0, upper=1e9, epsilon=1.0)
    values = np.array([0.0, 1.0, 2.0])
    expected = wide.mse(values)
    assert wide.mse(stats.randint(0, 3)) == pytest.approx(expected, rel=MANY)


def test_priors_of_too_many_integers_name_their_limits() -> None:
    with pytest.raises(
        ParameterError, match=re.escape(f"at most {MOST_INTEGERS:,} up to {LARGEST_INTEGER:.3g}")
    ):
        design.optimal(1.0, lower=0, upper=1e9, prior=POISSON)


def test_tosses_whose_table_would_be_biased_are_refused_by_their_number() -> None:
    with pytest.raises(ParameterError, match=r"^trials=4095: too many improbable levels"):
        families.pbm(trials=4095, knots=2)


def test_farther_inputs_than_the_support_is_wide_are_as_far_as_can_be() -> None:
    noise = families.discrete_laplace(scale=0.5, bound=3)
    every_shift = [noise.pair(shift) for shift in range(1, 21)]
    for epsilon in (0.0, 0.7, 5.0):
        expected = max(pair.delta(epsilon) for pair in every_shift)
        assert noise.delta(epsilon, sensitivity=20) == expected
        assert noise.delta(epsilon, sensitivity=MAX_LEVELS) == expected
    assert noise.delta(0.7, sensitivity=2**40) == 1.0
    assert noise.renyi(0.5, sensitivity=20) == max(pair.renyi(0.5) for pair in every_shift)


def test_deltas_of_far_inputs_are_those_of_the_farthest_pair() -> None:
    noise = families.discrete_laplace(scale=200.0)
    assert noise.delta(1.0, sensitivity=3000) == noise.pair(3000).delta(1.0)


def test_a_prior_of_several_numbers_is_refused() -> None:
    with pytest.raises(ParameterError, match="one number"):
        design.optimal(1.0, prior=stats.multivariate_normal([0, 0]))


def test_ties_of_many_distances_are_bounded_and_too_many_values_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each exact delta takes a while: 17 s for the 4,096 distances that tie in noise of two values."""
    size = 1000
    weights = np.zeros(size, dtype=np.int64)
    weights[[0, -1]] = 2**31
    ends = IntegerNoise(offsets=np.arange(size), weights=weights)
    uneven = np.full(size, 2**20)
    uneven[0] += 2**32 - size * 2**20
    slope = IntegerNoise(offsets=np.arange(size), weights=uneven)
    worst = max(slope.pair(shift).delta(0.1) for shift in range(1, 6))
    assert worst == slope.delta(0.1, sensitivity=5)
    exact, calls = losses.delta, []

    def counted(table: IntArray, epsilon: float) -> float:
        calls.append(epsilon)
        return exact(table, epsilon)

    monkeypatch.setattr("mezzotint.core.loss.delta", counted)
    assert ends.delta(0.5, sensitivity=size) == 1.0
    assert len(calls) == EXACT_SHIFTS
    monkeypatch.setattr("mezzotint.families.noise.EXACT_SHIFTS", 0)
    # The margin of a screened delta, a sum of `size` floats: (size + 8) units of 2^-52 at most, above and below.
    assert worst < slope.delta(0.1, sensitivity=5) <= worst + 2 * (size + 8) * 2**-52
    wide = IntegerNoise(offsets=np.arange(2**17), weights=np.full(2**17, 2**15))
    assert wide.delta(0.0) > 0
    with pytest.raises(ParameterError, match="sensitivity=100000: takes too long for noise of"):
        wide.delta(0.0, sensitivity=100_000)
