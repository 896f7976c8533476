"""Clipping, rotation, and the schemes: right sums, right claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from mezzotint import ParameterError
from mezzotint.families import discrete_gaussian, rqm, skellam
from mezzotint.vectors import NoiseScheme, Rotation, TableScheme, clip, summed_noise

ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


@given(
    vector=st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=30),
    bound=st.floats(1e-3, 1e6),
    norm=st.sampled_from(["linf", "l2", "l1"]),
)
def test_clipped_vectors_lie_in_the_ball_and_stay_when_inside(vector, bound, norm):
    clipped = clip(vector, norm=norm, bound=bound)
    size = np.abs(clipped).max() if norm == "linf" else np.linalg.norm(clipped, ORDERS[norm])
    assert size <= bound * (1 + 1e-14)
    inside = np.array(vector) * (0.5 * bound / max(np.abs(vector).sum(), 1e-300))
    assert clip(inside, norm=norm, bound=bound) == pytest.approx(inside)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_clipping_is_the_projection_so_a_contraction(norm):
    rng = np.random.default_rng(1)
    for _ in range(200):
        x, y = rng.normal(size=(2, 6)) * 3
        a, b = clip(x, norm=norm, bound=1.0), clip(y, norm=norm, bound=1.0)
        assert np.linalg.norm(a - b) <= np.linalg.norm(x - y) * (1 + 1e-12)
        assert (x - a) @ (b - a) <= 1e-9  # obtuse angle: `a` is the nearest point of the ball


def test_clipping_edges():
    assert clip([], norm="l2", bound=1.0).size == 0
    assert clip([0.0, 0.0], norm="l1", bound=1.0).tolist() == [0.0, 0.0]
    assert np.linalg.norm(clip([1e300, 1e300], norm="l2", bound=1.0)) <= 1.0 + 1e-15
    assert clip(np.ones((2, 3, 4)), norm="l2", bound=1.0).shape == (2, 3, 4)
    for arguments, match in (
        (([np.nan, 1.0], "l2", 1.0), "entry 0"),
        (([1.0, np.inf], "l1", 1.0), "entry 1"),
        (([1.0], "l2", 0.0), "bound"),
        (([1.0], "l3", 1.0), "norm"),
    ):
        with pytest.raises(ParameterError, match=match):
            clip(arguments[0], norm=arguments[1], bound=arguments[2])


@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 100, 1000])
def test_rotations_are_orthonormal_and_undone(dimension):
    rotation = Rotation(dimension=dimension, seed=7)
    x = np.random.default_rng(0).normal(size=(3, dimension))
    y = rotation.apply(x)
    assert y.shape == (3, rotation.padded)
    assert np.linalg.norm(y, axis=1) == pytest.approx(np.linalg.norm(x, axis=1))
    assert rotation.undo(y) == pytest.approx(x)
    if rotation.padded <= 128:
        matrix = linalg.hadamard(rotation.padded) / math.sqrt(rotation.padded)
        padded = np.zeros((3, rotation.padded))
        padded[:, :dimension] = x
        signs = rotation.apply(np.eye(dimension))[:, 0] * math.sqrt(rotation.padded)
        full = np.concatenate([signs, np.ones(rotation.padded - dimension)])
        assert y == pytest.approx((padded * full) @ matrix.T)


def test_a_spike_is_spread_evenly_and_seeds_differ():
    spike = np.zeros(1024)
    spike[3] = 1.0
    assert np.abs(Rotation(dimension=1024, seed=1).apply(spike)) == pytest.approx(np.full(1024, 1 / 32))
    dense = np.random.default_rng(0).normal(size=1024)
    assert not np.allclose(Rotation(dimension=1024, seed=1).apply(dense), Rotation(dimension=1024, seed=2).apply(dense))
    with pytest.raises(ParameterError, match="dimension"):
        Rotation(dimension=0, seed=1)
    with pytest.raises(ParameterError, match="coordinates"):
        Rotation(dimension=4, seed=1).apply(np.ones(5))


def run_round(scheme, vectors: np.ndarray, seed: int) -> np.ndarray:
    total = np.zeros(scheme.length, dtype=np.int64)
    for number, vector in enumerate(vectors):
        code = scheme.encode(vector, seed * 1000 + number)
        assert code.min() >= 0
        assert code.max() < scheme.modulus
        total = (total + code) % scheme.modulus
    return scheme.decode_sum(total, len(vectors))


TABLE = rqm(lower=-1, upper=1, levels=8, extension=0.5, q=0.5)


@pytest.mark.parametrize(("l2_norm", "kept"), [(None, None), (1.0, None), (None, 3), (1.0, 4)])
def test_table_scheme_estimates_the_sum_without_bias(l2_norm, kept):
    rng = np.random.default_rng(2)
    vectors = rng.uniform(-0.4, 0.4, size=(20, 6))
    estimates = []
    for repeat in range(150):
        scheme = TableScheme(mechanism=TABLE, size=6, clients=20, l2_norm=l2_norm, kept=kept, seed=repeat)
        estimates.append(run_round(scheme, vectors, repeat))
    estimates = np.array(estimates)
    truth = (vectors if l2_norm is None else clip(vectors, norm="l2", bound=l2_norm)).sum(axis=0)
    # Six coordinates, 150 repeats: five standard errors are passed with probability above 1 - 1e-5.
    error = estimates.std(axis=0) / math.sqrt(150)
    assert (np.abs(estimates.mean(axis=0) - truth) <= 5 * error).all()


def test_table_scheme_claims_are_those_of_its_coordinates():
    plain = TableScheme(mechanism=TABLE, size=4, clients=50)
    assert plain.claim(clients=50).coordinates == 4
    assert (
        TableScheme(mechanism=TABLE, size=4, clients=50, kept=2).claim(clients=50).epsilon
        < plain.claim(clients=50).epsilon
    )
    assert plain.modulus == 50 * 7 + 1
    with pytest.raises(ParameterError, match="planned"):
        plain.decode_sum(np.zeros(4, dtype=np.int64), 51)
    with pytest.raises(ParameterError, match="kept"):
        TableScheme(mechanism=TABLE, size=4, clients=50, kept=5)


@pytest.mark.parametrize("make", [discrete_gaussian, skellam])
def test_noise_scheme_estimates_the_sum_and_wraps_only_when_it_must(make):
    noise = make(sigma=2.0) if make is discrete_gaussian else make(variance=4.0)
    scheme = NoiseScheme(noise=noise, size=6, l2_norm=1.0, granularity=0.05, modulus_bits=12, seed=3)
    vectors = clip(np.random.default_rng(4).normal(size=(20, 6)), norm="l2", bound=1.0)
    estimates = np.array([run_round(scheme, vectors, repeat) for repeat in range(60)])
    error = estimates.std(axis=0) / math.sqrt(60)
    assert (np.abs(estimates.mean(axis=0) - vectors.sum(axis=0)) <= 5 * error).all()
    # Noise of 20 clients has standard deviation sqrt(20) 2 steps, rounding adds at most 1/4 step^2 per client.
    assert estimates.std(axis=0).mean() == pytest.approx(0.05 * math.sqrt(20 * 4.0), rel=0.15)


def ddg_epsilon_kls(sigma: float, reach: float, clients: int, dimension: int, delta: float) -> float:
    """Kairouz, Liu and Steinke 2021, Theorem 1 / Corollary 12: concentrated DP of distributed discrete Gaussians."""
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, clients))
    rho = min(
        reach**2 / (clients * sigma**2) + tau * dimension / 2,
        (reach / (math.sqrt(clients) * sigma) + tau * math.sqrt(dimension)) ** 2,
    )
    alphas = 1 + np.geomspace(1e-2, 1e3, 4000)
    return float(min(rho / 2 * a + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in alphas))


def test_distributed_discrete_gaussian_is_no_worse_than_its_papers_bound():
    for sigma, clients in ((1.0, 40), (0.7, 100), (3.0, 20)):
        scheme = NoiseScheme(
            noise=discrete_gaussian(sigma=sigma), size=4, l2_norm=1.0, granularity=0.5, modulus_bits=16
        )
        ours = scheme.claim(clients=clients, delta=1e-6).epsilon
        theirs = ddg_epsilon_kls(sigma, 2 * scheme.rounded_norm, clients, scheme.length, 1e-6)
        gaussian = ddg_epsilon_kls(100.0, 2 * scheme.rounded_norm * 100 / sigma, clients, scheme.length, 1e-6)
        assert gaussian * 0.99 <= ours <= theirs * 1.01


def test_skellam_is_no_worse_than_its_papers_bound():
    # Agarwal, Kairouz and Liu 2021, Theorem 3.5, integer shift s of noise with variance mu.
    mu, clients = 8.0, 10
    summed = summed_noise(skellam(variance=mu / clients), clients)
    for alpha in (1.5, 2.0, 5.0):
        kappa, cut = summed.quadratic_renyi(alpha, shift=1, lost=1e-8)
        theirs = alpha / (2 * mu) + min(((2 * alpha - 1) + 6) / (4 * mu**2), 3 / (2 * mu))
        assert cut <= 1e-8
        assert kappa <= theirs
        assert kappa >= alpha / (2 * mu) * 0.9


def test_summed_noise_renyi_matches_direct_convolution():
    noise = discrete_gaussian(sigma=1.2)
    pmf = np.ones(1)
    for _ in range(5):
        pmf = np.convolve(pmf, noise.weights / 2.0**32)
    for shift in (1, 3):
        for alpha in (1.5, 4.0):
            first, second = pmf[shift:], pmf[:-shift]
            used = (first > 1e-13) & (second > 1e-13)
            direct = math.log((first[used] ** alpha * second[used] ** (1 - alpha)).sum()) / (alpha - 1) / shift**2
            kappa, cut = summed_noise(noise, 5).quadratic_renyi(alpha, shift=shift, lost=1e-9)
            assert kappa >= direct * (1 - 1e-9)
            assert kappa <= direct * 1.2 + 1e-6
            assert cut <= 1e-9


def test_noise_claims_react_as_they_should():
    def epsilon(**changes):
        arguments = {"size": 8, "l2_norm": 1.0, "granularity": 0.5, "modulus_bits": 16}
        return NoiseScheme(noise=discrete_gaussian(sigma=2.0), **arguments).claim(**{"clients": 50, **changes}).epsilon

    assert epsilon(rounds=4) > epsilon() > epsilon(clients=200)
    assert epsilon(corrupted=25) == epsilon(clients=25)
    assert math.isinf(epsilon(delta=0.0))
    for changes, match in (
        ({"clients": 0}, "corrupted|clients"),
        ({"rounds": 0}, "rounds"),
        ({"corrupted": 50}, "corrupted"),
        ({"delta": 1.0}, "delta"),
    ):
        with pytest.raises(ParameterError, match=match):
            epsilon(**changes)
    with pytest.raises(ParameterError, match="granularity"):
        NoiseScheme(noise=discrete_gaussian(sigma=2.0), size=8, l2_norm=1.0, granularity=0.0, modulus_bits=16)
