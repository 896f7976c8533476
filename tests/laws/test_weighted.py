"""What sums of weighted updates cost: the claim of vectors of one coordinate more, by another library."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from laws.registry import judges
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.federated.wrapped_encodings import WeightedEncoding
from tolerances import MANY


@judges("federated.wrapped_encodings.WrappedEncoding.claims")
@pytest.mark.parametrize(
    ("clients", "corrupted", "multiplier", "rounds", "delta"),
    [(1000, 0, 8.0, 4, 1e-5), (500, 100, 5.0, 1, 1e-6), (30, 6, 2.0, 3, 1e-5)],
)
def test_the_claim_is_that_of_a_gaussian_composed_by_another_library(
    clients: int, corrupted: int, multiplier: float, rounds: int, delta: float
) -> None:
    """Updates and weights in one vector of norm C: two of them are 2 C apart, and the honest clients' noise hides it."""
    inner = gaussian_encoding(noise_multiplier=multiplier, clip_norm=0.3, clients=clients, size=51)
    encoding = WeightedEncoding(inner=inner, most_examples=100)
    noise = math.sqrt(clients - corrupted) * inner.deviation * inner.granularity
    found = {}
    for pessimistic in (False, True):
        options = {"pessimistic_estimate": pessimistic, "value_discretization_interval": 1e-4}
        one = pld.from_gaussian_mechanism(noise / (2 * 0.3), **options)
        found[pessimistic] = one.self_compose(rounds).get_epsilon_for_delta(delta)
    sums = Sums(size=50, clients=clients, rounds=rounds, corrupted=corrupted, delta=delta)
    claim = encoding.central(sums)
    assert claim is not None
    assert found[False] <= claim.epsilon <= found[True] * (1 + MANY)
    assert found[True] < 1.02 * found[False]  # the two bounds are worth something
    assert encoding.claims(sums)["central"].epsilon == claim.epsilon
