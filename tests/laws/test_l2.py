"""What every claim under an L2 bound obeys: on lopsided tables, with zeros, interior worst rows and jumps.

The tables have no symmetry that a proof could lean on by mistake; claims are held against enumeration of all inputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint import Mechanism, ParameterError
from mezzotint.core.types import TOTAL
from mezzotint.families import randomized_response, rqm
from mezzotint.privacy import account
from mezzotint.privacy.sums.cost import others_noise
from mezzotint.privacy.sums.geometry import (
    loss_profile,
    pure_epsilon_l2,
    quadratic_renyi,
    squared_distance,
)
from mezzotint.privacy.sums.noise import no_noise, widest_epsilon
from mezzotint.vectors import TableScheme
from mezzotint.vectors.tables import round_renyi
from reference.sums import exact_renyi, sum_pmf
from reference.vectors import hockey_stick
from strategies import examples
from tolerances import FEW, GRAIN, MANY


def weights_of(shares: np.ndarray) -> np.ndarray:
    rows = np.floor(shares / shares.sum(axis=1, keepdims=True) * (TOTAL - shares.shape[1])).astype(
        np.int64
    )
    rows[np.arange(len(rows)), rows.argmax(axis=1)] += TOTAL - rows.sum(axis=1)
    return rows


@st.composite
def lopsided(draw: st.DrawFn, *, jumps: bool, zeros: bool = True, wide: bool = False) -> Mechanism:
    """Tables on a lattice: 2 to 4 levels, 2 to 5 knots off the middle, very unequal rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, levels = draw(st.integers(2, 5)), draw(st.integers(2, 4))
    knots = float(rng.choice([0.0, -3.7, 20.0])) + np.cumsum(
        rng.exponential(size=count) ** 2 + 0.05
    )
    if jumps and count > 2:
        knots = np.sort(np.append(knots, knots[rng.integers(1, count - 1)]))
    shape = (knots.size, levels)
    kind = draw(st.sampled_from(["steep", "flat", "spread", *(["holes"] if zeros else [])]))
    floor = 1e-6 if wide else 1e-3
    shares = {
        "steep": lambda: floor ** rng.random(shape),
        "flat": lambda: 1 + 1e-3 * rng.random(shape),
        "spread": lambda: rng.dirichlet(np.full(levels, 0.5), knots.size) + floor,
        "holes": lambda: rng.dirichlet(np.ones(levels), knots.size) * (rng.random(shape) < 0.6),
    }[kind]()
    shares[np.arange(knots.size), rng.integers(0, levels, knots.size)] += 0.1
    shares[rng.integers(0, knots.size, levels), np.arange(levels)] += 0.05  # no level without mass
    step, offset = float(rng.choice([1.0, 0.25, 3.0])), float(rng.choice([0.0, -1.5, 7.0]))
    return Mechanism(
        knots=knots, levels=offset + step * np.arange(levels), weights=weights_of(shares)
    )


def mirrored(mechanism: Mechanism) -> Mechanism:
    """x -> -x on both sides. (At a jump the row that holds there changes, which no supremum notices.)"""
    return Mechanism(
        knots=-mechanism.knots[::-1],
        levels=-mechanism.levels[::-1],
        weights=mechanism.weights[::-1, ::-1],
    )


def rescaled(mechanism: Mechanism, factor: float, offset: float) -> Mechanism:
    return Mechanism(
        knots=mechanism.knots * factor + offset, levels=mechanism.levels, weights=mechanism.weights
    )


def finer(mechanism: Mechanism) -> Mechanism:
    """Every knot of a table twice, with the same row: jumps over nothing. Ends and jumps stay as they are."""
    knots = mechanism.knots
    single = np.array(
        [knots[0] < knot < knots[-1] and (knots == knot).sum() == 1 for knot in knots]
    )
    twice = np.repeat(np.arange(knots.size), 1 + single)
    return Mechanism(
        knots=mechanism.knots[twice], levels=mechanism.levels, weights=mechanism.weights[twice]
    )


def pairs_within(
    mechanism: Mechanism, distance: float
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """(|x - x'|, pmf, pmf) of inputs at most `distance` apart: a grid, all knots, and both sides of every jump."""
    knots = mechanism.knots
    moved = distance - 4 * float(
        np.spacing(np.abs(knots).max())
    )  # or rounding would put the pair too far apart
    steps = np.concatenate(
        [knots, knots - moved, knots + moved, np.linspace(knots[0], knots[-1], 7)]
    )
    points = np.unique(
        np.clip(np.concatenate([steps, np.nextafter(knots, -math.inf)]), knots[0], knots[-1])
    )
    pmfs = mechanism.pmf(points)
    for i, j in itertools.permutations(range(points.size), 2):
        if abs(points[i] - points[j]) <= distance:
            yield abs(float(points[i] - points[j])), pmfs[i], pmfs[j]


def worst_ratio(mechanism: Mechanism, distance: float) -> float:
    """Largest log-ratio of a level between inputs at most `distance` apart."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(
            (float(np.log(p / q)[p > 0].max()) for _, p, q in pairs_within(mechanism, distance)),
            default=0.0,
        )


def data_sets(mechanism: Mechanism, others: int) -> list[list[np.ndarray]]:
    rows = mechanism.probabilities
    return [list(chosen) for chosen in itertools.combinations_with_replacement(rows, others)]


SHARES = st.sampled_from([0.02, 0.3, 0.7, 1.5])


# The constant of the quadratic bound ----------------------------------------------------------------------------------


@judges("privacy.sums.noise.no_noise")
@settings(max_examples=examples(14), deadline=None)
@given(lopsided(jumps=False), st.sampled_from([1.1, 1.5, 2.0, 6.0]))
def test_quadratic_losses_bound_every_pair_on_both_sides(
    mechanism: Mechanism, alpha: float
) -> None:
    kappa = quadratic_renyi(mechanism, no_noise(), alpha)
    assert kappa == pytest.approx(quadratic_renyi(mirrored(mechanism), no_noise(), alpha), rel=MANY)
    assert kappa == pytest.approx(
        9 * quadratic_renyi(rescaled(mechanism, 3.0, 0.0), no_noise(), alpha), rel=MANY
    )
    assert kappa == quadratic_renyi(finer(mechanism), no_noise(), alpha)
    if math.isinf(kappa):
        return
    for distance in (0.05, 1.0):
        for apart, p, q in pairs_within(mechanism, distance * (mechanism.upper - mechanism.lower)):
            # Twins in floats: their logarithms err by 1e-15 before the division.
            assert exact_renyi(p, q, [], alpha) <= kappa * apart**2 + 1e-13 / (alpha - 1)


@settings(max_examples=examples(5), deadline=None)
@given(lopsided(jumps=False, zeros=False), st.sampled_from([1, 2, 3]), st.sampled_from([1.5, 4.0]))
def test_quadratic_losses_of_sums_bound_every_data_set(
    mechanism: Mechanism, others: int, alpha: float
) -> None:
    kappa = quadratic_renyi(mechanism, others_noise(mechanism, others), alpha)
    for apart, p, q in pairs_within(mechanism, 0.3 * (mechanism.upper - mechanism.lower)):
        for chosen in data_sets(mechanism, others):
            # The twin's own sums of floats: up to 900 roundings of numbers of size 1.
            assert exact_renyi(p, q, chosen, alpha) <= kappa * apart**2 + 1e-13 / (alpha - 1)


def test_jumps_have_no_quadratic_loss() -> None:
    half = TOTAL // 2
    weights = [[half, half], [1, TOTAL - 1], [half, half]]
    smooth = Mechanism(knots=[-1, 0, 1], levels=[0, 1], weights=weights)
    assert quadratic_renyi(smooth, no_noise(), 2.0) == quadratic_renyi(
        finer(smooth), no_noise(), 2.0
    )
    weights.insert(2, [half + 1, half - 1])
    jumping = Mechanism(knots=[-1, 0, 0, 1], levels=[0, 1], weights=weights)
    assert math.isinf(quadratic_renyi(jumping, no_noise(), 2.0))
    plain = account(jumping, trust="secure_sum", clients=3, delta=1e-3)
    assert (
        account(jumping, trust="secure_sum", clients=3, clip_norm=0.1, delta=1e-3).epsilon
        == plain.epsilon
    )


# Profiles and pure claims ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(20), deadline=None)
@given(lopsided(jumps=True, wide=True))
def test_loss_profiles_bound_every_pair_across_jumps(mechanism: Mechanism) -> None:
    distances, losses = loss_profile(mechanism)
    assert all(a <= b for a, b in itertools.pairwise(losses.tolist()))
    assert losses[-1] == pytest.approx(mechanism.epsilon, rel=MANY)
    np.testing.assert_allclose(loss_profile(mirrored(mechanism))[1], losses, rtol=MANY, atol=FEW)
    np.testing.assert_allclose(loss_profile(finer(mechanism))[1], losses, rtol=FEW)
    for distance, loss in zip(distances[::9], losses[::9], strict=True):
        worst = worst_ratio(mechanism, float(distance))
        assert worst <= loss
        assert loss <= worst + 1e-6  # the twin's moved knots are an ulp nearer


@settings(max_examples=examples(14), deadline=None)
@given(lopsided(jumps=True, wide=True), SHARES, st.sampled_from([1, 2]))
def test_pure_claims_of_vectors_bound_every_pair(
    mechanism: Mechanism, share: float, coordinates: int
) -> None:
    norm = share * (mechanism.upper - mechanism.lower) / 2
    claimed = pure_epsilon_l2(mechanism, coordinates=coordinates, clip_norm=norm)
    assert claimed <= coordinates * mechanism.epsilon * (1 + MANY) + FEW
    turned = pure_epsilon_l2(mirrored(mechanism), coordinates=coordinates, clip_norm=norm)
    assert turned == pytest.approx(claimed, rel=MANY, abs=FEW)
    if math.isinf(claimed):
        return
    # A difference of 2 norm, shared out between the coordinates.
    for part in (0.0, 0.5, 1.0) if coordinates == 2 else (0.0,):
        squares = (1 - part, part)[:coordinates]
        assert (
            sum(worst_ratio(mechanism, 2 * norm * math.sqrt(square)) for square in squares)
            <= claimed + MANY
        )


@settings(max_examples=examples(10), deadline=None)
@given(lopsided(jumps=True, zeros=False), st.sampled_from([100, 10**4, 10**6, 10**8]))
def test_pure_claims_of_long_vectors_are_attained_but_for_a_factor(
    mechanism: Mechanism, coordinates: int
) -> None:
    norm = (mechanism.upper - mechanism.lower) / 4
    claimed = pure_epsilon_l2(mechanism, coordinates=coordinates, clip_norm=norm)
    # A difference of 2 norm, shared out evenly.
    attained = coordinates * worst_ratio(mechanism, 2 * norm / math.sqrt(coordinates))
    # A step of the profile is at most double the one before, beside a jump; without one the
    # steepest place is counted everywhere, or the first step's loss, a logarithm of its length.
    assert attained <= claimed * (1 + MANY) + MANY
    assert claimed <= 2.1 * attained


def test_pure_claims_of_smooth_tables_are_attained_within_a_tenth() -> None:
    for mechanism in (
        rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42),
        randomized_response(lower=-1, upper=1, epsilon=1.0),
    ):
        for coordinates, share in ((1, 1e-9), (16, 0.06), (1000, 0.06), (10**5, 0.01)):
            claimed = pure_epsilon_l2(mechanism, coordinates=coordinates, clip_norm=1.0)
            attained = coordinates * worst_ratio(mechanism, 2 / math.sqrt(coordinates))
            assert attained <= claimed <= (1 + share) * attained


@judges("privacy.sums.noise.widest_epsilon")
@settings(max_examples=examples(14), deadline=None)
@given(lopsided(jumps=False), st.sampled_from([1e-6, 0.01, 0.2]))
def test_the_epsilon_of_the_widest_pair_is_the_least_in_both_orders(
    mechanism: Mechanism, delta: float
) -> None:
    rows = mechanism.probabilities
    means = rows @ np.arange(rows.shape[1])
    low, high = rows[means.argmin()], rows[means.argmax()]
    epsilon = widest_epsilon(no_noise(), rows, delta)

    def worst(at: float) -> float:
        return max(hockey_stick(low, high, at), hockey_stick(high, low, at))

    # Beyond e^700 nothing but what one row alone shows is left.
    assert worst(min(epsilon, 700.0)) <= delta + FEW or math.isinf(epsilon)
    if epsilon > 1e-6:
        # A millionth below epsilon is more than floats round, and already too little.
        assert worst(min(epsilon * (1 - 1e-6), 700.0)) > delta * (1 - 1e-6) - FEW


# Whole claims ---------------------------------------------------------------------------------------------------------


def worst_delta(mechanism: Mechanism, distance: float, others: int, epsilon: float) -> float:
    worst = 0.0
    for chosen in data_sets(mechanism, others):
        shared = sum_pmf([np.ones(1), *chosen])
        for _, p, q in pairs_within(mechanism, distance):
            worst = max(
                worst, hockey_stick(np.convolve(shared, p), np.convolve(shared, q), epsilon)
            )
    return worst


@settings(max_examples=examples(9), deadline=None)
@given(lopsided(jumps=True), SHARES, st.integers(1, 3), st.sampled_from([0.0, 1e-6, 0.02]))
def test_claims_of_schemes_are_never_below_enumeration(
    mechanism: Mechanism, share: float, clients: int, delta: float
) -> None:
    norm = share * (mechanism.upper - mechanism.lower) / 2
    scheme = TableScheme(mechanism=mechanism, size=1, clients=clients, clip_norm=norm)
    claim = scheme.claim(clients=clients, delta=delta)
    turned = TableScheme(mechanism=mirrored(mechanism), size=1, clients=clients, clip_norm=norm)
    # Renyi orders are searched on a grid, from either side.
    assert turned.claim(clients=clients, delta=delta).epsilon == pytest.approx(
        claim.epsilon, rel=1e-3
    )
    assert claim.epsilon <= mechanism.epsilon * (1 + MANY)
    if math.isfinite(claim.epsilon):
        assert worst_delta(mechanism, 2 * norm, clients - 1, claim.epsilon) <= delta + FEW


@settings(max_examples=examples(5), deadline=None)
@given(lopsided(jumps=False), SHARES, st.integers(1, 3))
def test_claims_of_secure_sums_are_never_below_enumeration(
    mechanism: Mechanism, share: float, clients: int
) -> None:
    norm = share * (mechanism.upper - mechanism.lower) / 2
    claim = account(mechanism, trust="secure_sum", clients=clients, clip_norm=norm, delta=1e-4)
    for epsilon in {
        value for _, value in claim.alternatives if value < 700
    }:  # each is valid by itself
        assert worst_delta(mechanism, 2 * norm, clients - 1, epsilon) <= 1e-4 + 1e-12


def test_a_claim_that_one_direction_alone_would_understate() -> None:
    # The rare level is rarest at the edge of the ball: moving away from it costs more than moving towards it.
    norm, rare = 0.01, int(0.0003 * TOTAL)
    weights = [[TOTAL // 2, TOTAL // 2], [TOTAL - rare, rare]]
    mechanism = Mechanism(knots=[norm - 2, norm], levels=[0.0, 1.0], weights=weights)
    claim = account(mechanism, trust="secure_sum", clients=5, clip_norm=norm, delta=1e-6)
    low, high = mechanism.pmf(-norm), mechanism.pmf(norm)
    shared = sum_pmf([np.ones(1), *[high] * 4])
    assert hockey_stick(np.convolve(shared, low), np.convolve(shared, high), 1.879) > 1e-6
    assert (
        hockey_stick(np.convolve(shared, low), np.convolve(shared, high), claim.epsilon)
        <= claim.delta
    )


def test_a_jump_costs_its_whole_loss_at_every_distance() -> None:
    half = TOTAL // 2
    weights = [[half, half], [1, TOTAL - 1], [TOTAL - TOTAL // 100, TOTAL // 100], [half, half]]
    mechanism = Mechanism(knots=[-1, 0, 0, 1], levels=[0, 1], weights=weights)
    claim = TableScheme(mechanism=mechanism, size=1, clients=5, clip_norm=1.0).claim(
        clients=1, delta=0.0
    )
    assert claim.epsilon >= math.log(TOTAL - TOTAL // 100)
    near = pure_epsilon_l2(mechanism, coordinates=1, clip_norm=1e-9)
    assert near == pytest.approx(math.log(TOTAL - TOTAL // 100), rel=MANY)


# Norms beside the range -----------------------------------------------------------------------------------------------


def test_norms_far_below_and_above_the_range() -> None:
    weights = weights_of(np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4]]))
    mechanism = Mechanism(knots=[4.0, 5.0, 9.0], levels=[0, 1, 2], weights=weights)
    # Positions are drawn in 2**32 steps a segment: however near two inputs are, one step may lie between them.
    tiny = math.sqrt(squared_distance(mechanism, coordinates=1, clip_norm=1e-300))
    assert 2 * 4.0 * GRAIN <= tiny <= 2.26 * 4.0 * GRAIN
    assert squared_distance(mechanism, coordinates=3, clip_norm=1e300) == pytest.approx(
        3 * 5.0**2, rel=MANY
    )
    for norm in (1e-300, 1e-9, 1.0, 1e9, 1e300):
        claim = TableScheme(mechanism=mechanism, size=2, clients=3, clip_norm=norm).claim(
            clients=3, delta=1e-9
        )
        assert 0 < claim.epsilon <= 2 * mechanism.epsilon * (1 + MANY)
        assert round_renyi(mechanism, no_noise(), 2.0, coordinates=2, clip_norm=norm) > 0
    with pytest.raises(ParameterError, match="rescale"):
        squared_distance(rescaled(mechanism, 1e200, 0.0), coordinates=1, clip_norm=1.0)
