"""Laws of rounded Gaussians: sums against exact convolutions around random centres, and the whole way of a vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint.core.errors import ParameterError
from mezzotint.federated.encoding import GaussianEncoding, gaussian_encoding
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Release
from mezzotint.privacy.tradeoffs import gaussian_epsilon, hockey_stick
from mezzotint.vectors import GaussianScheme
from mezzotint.vectors.gaussian import merging_loss, rounding_factor
from reference.vectors import hockey_stick as divergence
from strategies import examples
from tolerances import FEW, MANY

DIGITS = 60


def one_report(centre: Any, deviation: Any, reach: int) -> list[Any]:
    """Chances of the integers -reach..reach as floor(centre + X + 1/2)."""
    found: list[Any] = []
    for k in range(-reach, reach + 1):
        # On the left, where the normal distribution function loses no digits.
        far, near = (-(abs(k - centre) + side * mpmath.mpf(1) / 2) / deviation for side in (1, -1))
        found.append(mpmath.ncdf(near) - mpmath.ncdf(far))
    return found


def summed(centres: Sequence[Any], deviation: Any, reach: int) -> list[Any]:
    """Chances of the sum, by one convolution after the other."""
    total = [mpmath.mpf(1)]
    for centre in centres:
        row = one_report(centre, deviation, reach)
        total = [
            sum(
                (
                    total[j] * row[k - j]
                    for j in range(max(0, k - len(row) + 1), min(k + 1, len(total)))
                ),
                mpmath.mpf(0),
            )
            for k in range(len(total) + len(row) - 1)
        ]
    return total


def rounded_sum(centre: Any, deviation: Any, clients: int, place: int) -> Any:
    """Density at `place` of a Gaussian of all clients' variance plus that many uniforms on [-1/2, 1/2].

    By the finite differences of the (n - 1)-fold integral of the normal distribution function, not by quadrature.
    """
    spread, away = deviation * mpmath.sqrt(clients), abs(place - centre)

    def integral(order: int, x: Any) -> Any:
        # I_0 = Phi, I_k(x) = (x I_(k-1)(x) + I_(k-2)(x)) / k, I_(-1) the density.
        if order == -1:
            return mpmath.npdf(x)
        if order == 0:
            return mpmath.ncdf(x)
        return (x * integral(order - 1, x) + integral(order - 2, x)) / order

    corners = (
        (-1) ** j
        * mpmath.binomial(clients, j)
        * integral(clients - 1, (mpmath.mpf(clients) / 2 - j - away) / spread)
        for j in range(clients + 1)
    )
    return sum(corners, mpmath.mpf(0)) * spread ** (clients - 1)


@pytest.mark.parametrize("clients", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("deviation", [0.6, 0.8, 1.0, 1.5])
def test_a_sum_of_rounded_gaussians_is_nearly_a_rounding_of_their_sum(
    clients: int, deviation: float
) -> None:
    """Pointwise, around random centres, tails included; at grids so coarse that the bound is far from nothing."""
    claimed, worst = merging_loss(deviation, clients), 0.0
    rng, reach = np.random.default_rng(clients), 14
    with mpmath.workdps(DIGITS):
        for _ in range(4):
            centres = [mpmath.mpf(c) for c in rng.uniform(-1, 1, clients).tolist()]
            pmf, total = summed(centres, mpmath.mpf(deviation), reach), sum(centres, mpmath.mpf(0))
            for place in range(-reach + 4, reach - 3):
                smooth = rounded_sum(total, mpmath.mpf(deviation), clients, place)
                worst = max(worst, abs(float(mpmath.log(pmf[place + clients * reach] / smooth))))
    # Reports cut off beyond 14 steps are worth e^-25 of what is looked at and less; 60 digits lose far less than that.
    assert worst <= claimed + 1e-8
    if clients == 2 and deviation < 0.9:
        assert worst > claimed / 50  # the law sees what the bound is about
    assert merging_loss(deviation, clients) <= merging_loss(deviation, clients + 1)


def pair(
    scheme: GaussianScheme, others: Sequence[float], ends: Sequence[float]
) -> list[np.ndarray]:
    """(w,) chances of the sum of one coordinate for both inputs of one client among others, steps."""
    reach = math.ceil(10 * scheme.deviation + max(map(abs, (*others, *ends)))) + 1
    with mpmath.workdps(DIGITS):
        laws = [
            summed([mpmath.mpf(end), *map(mpmath.mpf, others)], mpmath.mpf(scheme.deviation), reach)
            for end in ends
        ]
    return [np.array(law, dtype=np.float64) for law in laws]


@judges(
    "vectors.gaussian.GaussianScheme.account", "federated.encoding.SchemeEncoding.claims",
    "privacy.tradeoffs.gaussian_epsilon",
)  # fmt: skip
@settings(max_examples=examples(6))
@given(
    seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 4), corrupted=st.integers(0, 2),
    deviation=st.sampled_from([1.0, 1.3, 2.0]), multiplier=st.floats(0.7, 4.0),
)  # fmt: skip
def test_no_pair_of_numbers_is_told_apart_better_than_claimed(
    seed: int, clients: int, corrupted: int, deviation: float, multiplier: float
) -> None:
    """One client's number moves between the ends of its range; the others' are anything; the corrupted add no noise."""
    granularity = multiplier / math.sqrt(clients) / deviation
    scheme = GaussianScheme(
        deviation=deviation, size=1, clip_norm=1.0, granularity=granularity, modulus_bits=20
    )
    others = np.random.default_rng(seed).uniform(-1, 1, clients - 1) / granularity
    one, two = pair(scheme, others.tolist(), (1 / granularity, -1 / granularity))
    for delta in (1e-2, 1e-6):
        claim = scheme.claim(clients=clients + corrupted, corrupted=corrupted, delta=delta)
        for first, second in ((one, two), (two, one)):
            # Sums of some hundred floats with relative errors of a few units.
            assert divergence(first, second, claim.epsilon) <= delta * (
                1 + MANY
            ) + 1e-13 * math.exp(claim.epsilon)


@judges("vectors.gaussian.GaussianScheme.account", "vectors.tables.VectorScheme.claim")
def test_claims_are_tight_and_composed_over_coordinates_and_rounds() -> None:
    """Two coordinates, two rounds, enumerated: moved along one axis or both, no more is lost, and nearly as much."""
    for clients, rounds in ((1, 1), (3, 1), (2, 2)):
        scheme = GaussianScheme(
            deviation=2.0, size=2, clip_norm=1.0, granularity=0.25, modulus_bits=20
        )
        delta, found = 1e-3, []
        epsilon = scheme.claim(clients=clients, rounds=rounds, delta=delta).epsilon
        for angle in (0.0, 0.4, math.pi / 4):
            first, second = np.ones(1), np.ones(1)
            for _, part in itertools.product(range(rounds), (math.cos(angle), math.sin(angle))):
                law, other = pair(scheme, [0.3] * (clients - 1), (part / 0.25, -part / 0.25))
                kept = np.flatnonzero(
                    law + other > 1e-12
                )  # what is left out is less than 100 of these
                law, other = law[kept[0] : kept[-1] + 1], other[kept[0] : kept[-1] + 1]
                first, second = np.outer(first, law).ravel(), np.outer(second, other).ravel()
                if rounds > 1:  # equal ratios together, in bins of 1e-3
                    bins = np.unique(np.round(np.log(first / second), 3), return_inverse=True)[1]
                    first, second = (np.bincount(bins, weights=law) for law in (first, second))
            # What was left out of four laws, less than 1e-10 each.
            assert divergence(first, second, epsilon) <= delta * (1 + MANY) + 1e-9
            # Merging loses, but no more than half a bin of each of the four ratios.
            found.append(divergence(first, second, epsilon - 4e-3 * (rounds > 1)))
        assert max(found) > 0.75 * delta  # rounding, which nothing is claimed of, hides as well


@judges("privacy.tradeoffs.gaussian_epsilon")
@pytest.mark.parametrize("mu", [1e-3, 0.3, 2.0, pytest.param(15.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.2])
def test_gaussian_curves_are_never_below_a_sum_over_cells(mu: float, delta: float) -> None:
    """Against two laws on a fine grid: merging outcomes loses, so that their divergence is a lower bound."""
    epsilon = gaussian_epsilon(mu, delta)
    edges = np.linspace(-9, 9 + mu, 600).tolist()
    with mpmath.workdps(150):  # e^217 of a tail's mass is looked at
        below = [[mpmath.ncdf(x - m) for x in edges] for m in (mpmath.mpf(mu), mpmath.mpf(0))]
        moved, zero = (
            [b - a for a, b in itertools.pairwise([mpmath.mpf(0), *row, mpmath.mpf(1)])]
            for row in below
        )
        ratio = mpmath.exp(epsilon)
        for one, two in ((moved, zero), (zero, moved)):
            assert (
                sum(max(p - ratio * q, mpmath.mpf(0)) for p, q in zip(one, two, strict=True))
                <= delta
            )
    assert hockey_stick(mu, np.array([epsilon]))[0] <= delta
    assert epsilon == 0 or hockey_stick(mu, np.array([epsilon * (1 - 1e-6)]))[0] > delta * (
        1 - MANY
    )


@pytest.mark.parametrize("size", [1, 2, 7, 50, 1500])
def test_no_centre_leaves_the_norm_that_claims_rest_on(size: int) -> None:
    rng = np.random.default_rng(size)
    for clip_norm, length in itertools.product((1.0, 1e-9, 1e9), (0.3, 1.0, 5.0, 1e300)):
        scheme = GaussianScheme(
            deviation=2.0,
            size=size,
            clip_norm=clip_norm,
            granularity=0.1 * clip_norm,
            modulus_bits=20,
        )
        for _ in range(10):
            vector = rng.normal(size=size)
            centres = scheme.centres(vector / np.linalg.norm(vector) * length * min(clip_norm, 1.0))
            with mpmath.workdps(60):
                norm = mpmath.sqrt(
                    sum((mpmath.mpf(c) ** 2 for c in centres.tolist()), mpmath.mpf(0))
                )
                # Floats of the clip norm and its quotient by the grid: 256 units of their roundings.
                assert norm <= mpmath.mpf(clip_norm) / mpmath.mpf(0.1 * clip_norm) * (
                    1 + mpmath.mpf(2) ** -45
                )


def test_reports_are_the_law_that_is_accounted() -> None:
    """Chi-square of one coordinate's residues against the exact chances; false alarm one in a million."""
    from scipy.stats import chisquare

    scheme = GaussianScheme(deviation=1.5, size=3, clip_norm=1.0, granularity=0.4, modulus_bits=4)
    vector = np.array([0.5, -0.2, 0.7])
    draws = np.stack([scheme.encode(vector, rng) for rng in range(20_000)])
    for j, centre in enumerate(scheme.centres(vector).tolist()):
        chances = np.zeros(16)
        with mpmath.workdps(DIGITS):
            for k, chance in zip(
                range(-30, 31), one_report(mpmath.mpf(centre), mpmath.mpf(1.5), 30), strict=True
            ):
                chances[k % 16] += float(chance)
        counts, many = (
            np.bincount(draws[:, j], minlength=16),
            chances * len(draws) >= 20,
        )  # of fewer, no chi-square
        pooled = [np.append(row[many], row[~many].sum()) for row in (counts, chances * len(draws))]
        assert chisquare(*pooled).pvalue > 1e-6


def test_noise_without_a_seed_is_drawn_anew() -> None:
    """Two reports of 100 coordinates agree in less than one run in 10^49: a coordinate's in fewer than one in three."""
    scheme = GaussianScheme(deviation=1.5, size=100, clip_norm=1.0, granularity=0.4, modulus_bits=4)
    vector = np.full(100, 0.1)
    assert not np.array_equal(scheme.encode(vector), scheme.encode(vector))


def test_wraps_are_as_rare_as_stated() -> None:
    encoding = gaussian_encoding(noise_multiplier=3.0, clip_norm=1.0, clients=20, size=40)
    tight = GaussianScheme(
        deviation=encoding.deviation, size=40, clip_norm=1.0, granularity=encoding.granularity,
        modulus_bits=encoding.modulus_bits - 1,
    )  # fmt: skip
    bound, wrapped, runs = tight.wrap_probability(20), 0, 400
    vector = np.full(40, 40**-0.5)
    for run in range(runs):
        scheme = GaussianScheme(
            deviation=tight.deviation,
            size=40,
            clip_norm=1.0,
            granularity=tight.granularity,
            modulus_bits=40,
            seed=run,
        )
        total = (
            sum(scheme.encode(vector, 100 * run + client) for client in range(20)) % scheme.modulus
        )
        centred = (total + scheme.modulus // 2) % scheme.modulus - scheme.modulus // 2
        wrapped += bool((np.abs(centred) >= tight.modulus // 2).any())
    assert 0 < bound < 1
    assert wrapped / runs <= bound + 3 * math.sqrt(bound / runs)
    assert encoding.scheme(40).wrap_probability(20) < bound / 1000


def test_what_cannot_be_claimed() -> None:
    scheme = GaussianScheme(deviation=2.0, size=4, clip_norm=1.0, granularity=0.5, modulus_bits=10)
    assert math.isinf(scheme.claim(clients=9, delta=0.0).epsilon)
    with pytest.raises(ParameterError, match="sampling"):
        account(Release(mechanism=scheme, trust="secure_sum", clients=9, delta=1e-5, sampling="poisson",
                        sampling_rate=0.5))  # fmt: skip
    with pytest.raises(ParameterError, match="neighboring"):
        scheme.claim(clients=9, neighboring="add_or_remove_one")
    for changes in ({"deviation": 0.99}, {"deviation": math.nan}, {"clip_norm": 0.0}, {"granularity": -1.0},
                    {"modulus_bits": 49}, {"modulus_bits": 1}, {"size": 0}):  # fmt: skip
        with pytest.raises(
            ParameterError, match="dimension" if "size" in changes else next(iter(changes))
        ):
            GaussianScheme(
                **{
                    "deviation": 2.0,
                    "size": 4,
                    "clip_norm": 1.0,
                    "granularity": 0.5,
                    "modulus_bits": 10,
                }
                | changes
            )
    assert merging_loss(0.1, 5) == math.inf
    assert merging_loss(0.1, 1) == 0
    # Many coordinates on a grid as coarse as may be: the merging is paid for.
    coarse = GaussianScheme(
        deviation=1.0, size=10_000, clip_norm=1.0, granularity=0.5, modulus_bits=10
    )
    alone = gaussian_epsilon(2 / 0.5 / 3, 1e-5)
    assert coarse.claim(clients=9, delta=1e-5).epsilon > alone + 1
    assert scheme.claim(clients=9, delta=1e-5).epsilon == pytest.approx(
        gaussian_epsilon(2 / 0.5 / 6, 1e-5), rel=FEW
    )


@pytest.mark.parametrize("deviation", [1.0, 1.7])
@pytest.mark.parametrize("tilt", [-3.0, -0.4, 1e-10, 1.0, 5.0])
def test_rounded_noise_is_sub_gaussian_up_to_its_factor(deviation: float, tilt: float) -> None:
    """E exp(t (Y - c)) in 40 digits, for centres of all kinds; and the factor is needed."""
    needed = False
    with mpmath.workdps(40):
        sigma, t = mpmath.mpf(deviation), mpmath.mpf(tilt)
        bound = mpmath.exp(t**2 * (sigma**2 + mpmath.mpf(1) / 12) / 2)
        for centre in map(mpmath.mpf, (0, "0.25", "0.5", "0.9")):
            mean, middle = mpmath.mpf(0), int(centre + t * sigma**2)
            for place in range(middle - 25, middle + 26):
                ends = [(place + half - centre) / sigma for half in (-0.5, 0.5)]
                mass = mpmath.ncdf(-ends[0]) - mpmath.ncdf(-ends[1])  # right tails: t > 0
                if tilt < 0:
                    mass = mpmath.ncdf(ends[1]) - mpmath.ncdf(ends[0])
                mean += mass * mpmath.exp(t * (place - centre))
            assert mean <= bound * mpmath.exp(mpmath.mpf(rounding_factor(deviation)))
            needed = needed or mean > bound * (1 + mpmath.mpf(10) ** -30)
    assert needed == (tilt == 1e-10 and deviation == 1.0)


def test_the_largest_honest_norm_counts_the_factor_of_a_single_client() -> None:
    encoding = GaussianEncoding(clip_norm=1.0, granularity=1.0, modulus_bits=8, deviation=1.0)
    size, tail = 10**8, 41 * math.log(2)
    variance = 1 + 1 / 12
    without = 1 + 2 * math.sqrt(2 * tail * variance)
    without += variance * (size + 2 * math.sqrt(size * tail) + 2 * tail)
    # 2 sigma^2 (sqrt(D) + sqrt(L)) of one sqrt(L) more, L by D theta = 0.8: 1.5e-5 of the whole.
    assert encoding.largest_honest_norm(count=1, size=size) ** 2 > without * (1 + 1e-6)
