"""What a clipping norm that adapts costs: the mean and the quantile, released together in every round."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from laws.registry import judges
from mezzotint.federated.joined import SHARE, adaptive_encoding, cost_of_bits
from tolerances import MANY


@judges("federated.joined.WrappedEncoding.claims", "federated.joined.WrappedEncoding.central")
@pytest.mark.parametrize(
    ("clients", "multiplier", "rounds", "delta"),
    [(1000, 8.0, 4, 1e-5), (500, 5.0, 1, 1e-6), (300, 2.0, 3, 1e-5), (600, 11.0, 20, 1e-5)],
)
def test_the_claim_is_that_of_two_gaussians_composed_by_another_library(
    clients: int, multiplier: float, rounds: int, delta: float
) -> None:
    """Clipped updates of two norms apart, and a count of clients that moves by one, each with its own deviation."""
    encoding = adaptive_encoding(noise_multiplier=multiplier, clip=0.3, clients=clients, size=50)
    inner = encoding.inner
    noise = math.sqrt(clients) * inner.deviation * inner.granularity
    unit = 2 * math.sqrt(inner.l2_norm**2 - 1)
    # R^2 - 1 loses the digits that R has in common with 1: at most four of sixteen here.
    assert noise / unit == pytest.approx(SHARE * clients, rel=1e-9)
    assert noise == pytest.approx(multiplier * cost_of_bits(multiplier, clients), rel=MANY)
    found = {}
    for pessimistic in (False, True):
        told = {"pessimistic_estimate": pessimistic, "value_discretization_interval": 1e-4}
        mean, count = (pld.from_gaussian_mechanism(noise / apart, **told) for apart in (2.0, unit))
        found[pessimistic] = mean.compose(count).self_compose(rounds).get_epsilon_for_delta(delta)
    told = {"rounds": rounds, "clients": clients, "size": 50, "delta": delta}
    claim = encoding.central(**told)
    assert claim is not None
    assert found[False] <= claim.epsilon <= found[True] * (1 + MANY)
    assert found[True] < 1.02 * found[False]  # the two bounds are worth something
    assert encoding.claims(**told)["central"].epsilon == claim.epsilon
    # The quantile is not free: the updates' noise alone would cost less.
    alone = pld.from_gaussian_mechanism(noise / 2, value_discretization_interval=1e-4)
    assert alone.self_compose(rounds).get_epsilon_for_delta(delta) < claim.epsilon
