"""Laws of claims about runs: training steps in any grouping, ledgers in any order, channels of any labels."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from federated.grids import charge_sum
from laws.changes import law_tables, mirrored, relabelled
from laws.registry import judges
from mezzotint import families, privacy
from mezzotint.core.mechanism import Mechanism
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import GaussianEncoding, TableEncoding
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.privacy.charges import GLOBAL, Charge, compose_releases
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.ledger import Ledger
from mezzotint.privacy.shuffled import clones_epsilon
from mezzotint.training import rqp
from mezzotint.training.contraction import contraction
from mezzotint.training.projection import projection, projection_from
from mezzotint.training.sampling import Phase, Poisson, WithReplacement
from strategies import examples
from tolerances import UNIT

GRID = 1e-2  # dp-accounting's grid of losses, and its tails: 1e-4 a step of losses over ten steps at most, doubled


@judges("training.rqp.Steps.account")
@pytest.mark.parametrize(
    "sampling", [Poisson(rate=0.2), WithReplacement(batch_size=3, dataset_size=20)]
)
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_steps_may_be_grouped_and_ordered_at_will(sampling: object, neighboring: str) -> None:
    if isinstance(sampling, WithReplacement) and neighboring == "add_or_remove_one":
        pytest.skip("batches of fixed size have no add-or-remove neighbours")

    def phase(steps: int, noise: float = 2.0, kappa: float = 1.0) -> Phase:
        return Phase(noise_multiplier=noise, kappa=kappa, sampling=sampling, steps=steps)  # pyright: ignore

    def say(*phases: Phase) -> float:
        return privacy.account(
            rqp.training_release(phases, delta=1e-4, neighboring=neighboring)
        ).epsilon  # pyright: ignore

    whole = say(phase(6))
    assert math.isclose(say(phase(2), phase(4)), whole, rel_tol=GRID)
    assert math.isclose(say(phase(3), phase(0), phase(3)), whole, rel_tol=GRID)
    one, other = phase(2), phase(3, noise=3.0)
    assert math.isclose(say(one, other), say(other, one), rel_tol=GRID)
    # kappa is a factor of the distance: half of it with half the noise is the same, where only the distance is used.
    half = say(phase(6, noise=1.0, kappa=0.5))
    if isinstance(sampling, Poisson) and neighboring == "replace_one":
        assert whole < half < say(phase(6, noise=1.0))
    else:
        assert math.isclose(half, whole, rel_tol=GRID)
    assert say(phase(5)) < whole < say(phase(7))
    assert say(phase(6, noise=2.1)) < whole
    assert say(phase(0)) == 0.0


@judges("training.rqp.epsilon")
def test_more_steps_and_less_replacement_cost_more() -> None:
    def say(**changes: object) -> float:
        options = {"q": 0.7, "bits": 2, "steps": 4, "delta": 1e-4, "sampling_rate": 0.2} | changes
        return rqp.epsilon(1.5, **options).epsilon  # pyright: ignore[reportArgumentType]

    assert say(steps=5) > say() > say(steps=3)
    assert say(q=0.9) > say() > say(q=0.5)
    assert say(sampling_rate=0.3) > say()
    assert say(delta=1e-5) > say()


@judges(
    "training.contraction.contraction",
    "training.contraction.table_contraction",
    "training.projection.projection",
    "training.projection.projection_from",
)
@settings(max_examples=examples(7))
@given(mechanism=law_tables(max_rows=3, max_levels=3, jumps=False))
def test_a_channel_has_no_direction_and_no_labels(mechanism: Mechanism) -> None:
    def say(table: Mechanism) -> float:
        return rqp.table_contraction(table.weights)

    for image in (mirrored(mechanism), relabelled(mechanism)):
        assert math.isclose(
            say(image), say(mechanism), rel_tol=1e-6
        )  # twice the search's tolerance
    for q, bits in ((0.5, 1), (0.7, 2)):
        same = projection(bits=bits, rounding="stochastic", q=q)
        assert projection_from(same.table).kappa >= same.kappa * (
            1 - 1e-6
        )  # twice the search's tolerance, as above
        assert same.kappa >= contraction(q, bits) * (
            1 - 1e-6
        )  # twice the search's tolerance, as above


PRICES = st.tuples(st.floats(0, 3), st.floats(0, 1e-3))


@judges(
    "privacy.charges.compose_releases",
    "privacy.ledger.Ledger.by_client",
    "privacy.ledger.Ledger.spent",
    "privacy.ledger.Ledger.worst",
    "privacy.ledger_state.LedgerState.total",
)
@settings(max_examples=examples(10))
@given(prices=st.lists(PRICES, min_size=1, max_size=4), split=st.integers(0, 4))
def test_what_was_spent_has_no_order_and_may_be_kept_in_two_ledgers(
    prices: list[tuple[float, float]], split: int
) -> None:
    releases = [
        Charge(identity=f"r{i}", client=f"c{i % 2}", epsilon=epsilon, delta=delta)
        for i, (epsilon, delta) in enumerate(prices)
    ]
    totals = {
        (compose_releases(order).epsilon, compose_releases(order).delta)
        for order in permutations(releases)
    }
    assert len(totals) == 1  # exact sums, rounded once
    ledgers = [Ledger(), Ledger(), Ledger()]
    for release in releases:
        ledgers[0].charge(release)
    for i, release in enumerate(releases):
        ledgers[1 if i < split else 2].charge(release)
    ledgers[1].merge(ledgers[2])
    everybody = ledgers[0].by_client()
    assert set(everybody) == {GLOBAL, *(release.client for release in releases)}
    assert everybody == {client: ledgers[0].spent(client) for client in everybody}
    for client in ("c0", "c1"):
        whole, merged = ledgers[0].spent(client), ledgers[1].spent(client)
        assert (whole.epsilon, whole.delta) == (merged.epsilon, merged.delta)
        own = [release for release in releases if release.client == client]
        assert whole.epsilon >= math.fsum(release.epsilon for release in own) * (1 - 2 * UNIT)
        assert ledgers[0].worst().epsilon >= whole.epsilon
    ledgers[0].charge(releases[0])  # a second attempt is a second release
    assert ledgers[0].spent("c0").epsilon >= ledgers[1].spent("c0").epsilon + releases[
        0
    ].epsilon * (1 - 2.0**-50)


@judges(
    "privacy.divergences.rdp_to_epsilon",
    "privacy.divergences.rdp_public_sampling",
    "privacy.shuffled.clones_epsilon",
)
def test_bounds_of_numbers_alone_are_monotone_and_exact_at_their_ends() -> None:
    assert rdp_public_sampling(0.7, 3.0, 1.0) == 0.7
    assert rdp_public_sampling(0.7, 3.0, 1e-9) < rdp_public_sampling(0.7, 3.0, 0.5) < 0.7
    # Gaussian of sigma 3: divergence alpha / 18 at every order; the exact delta at the converted epsilon is below it.
    for alpha in (1.5, 4.0, 20.0):
        delta = 1e-3
        epsilon, sigma = rdp_to_epsilon(alpha / 18, alpha, delta), 3.0
        tail = lambda x: 0.5 * math.erfc(x / math.sqrt(2))  # noqa: E731
        exact = tail(epsilon * sigma - 0.5 / sigma) - math.exp(epsilon) * tail(
            epsilon * sigma + 0.5 / sigma
        )
        assert exact <= delta
    crowd = [clones_epsilon(1.0, clients=n, delta=1e-4) for n in (1, 10, 1000)]
    assert crowd[0] == 1.0
    assert crowd == sorted(crowd, reverse=True)
    assert np.isfinite(crowd).all()


@judges("federated.run_ledger.RunLedger.claims")
@settings(max_examples=examples(2))
@given(
    rounds=st.lists(st.sets(st.integers(0, 4), min_size=2), min_size=1, max_size=3), data=st.data()
)
def test_runs_have_no_first_client_and_no_first_round(
    rounds: list[set[int]], data: st.DataObject
) -> None:
    encoding = TableEncoding(mechanism=families.randomized_response(lower=-1, upper=1, epsilon=1.0))

    def claims(sets: list[set[int]], name: str = "c") -> dict[str, float]:
        ledger = RunLedger(None, {})
        for clients in sets:
            number, names = ledger.start(), [f"{name}{-one}" for one in clients]
            ledger.ask(number, names, minimum=2)
            ledger.close(number, names)
        return {
            view: claim.epsilon
            for view, claim in ledger.claims(encoding, Sums(size=2, clients=1, delta=1e-4)).items()
        }

    said = claims(rounds)
    assert claims(data.draw(st.permutations(rounds)), name="d") == said
    most = max(sum(one in clients for clients in rounds) for one in range(5))
    least = min(map(len, rounds))
    worst = encoding.claims(Sums(rounds=most, clients=least, size=2, delta=1e-4))
    assert {view: claim.epsilon for view, claim in worst.items()} == said
    more = claims([*rounds, rounds[0]])
    assert all(more[view] >= said[view] for view in said)


@judges("federated.lifetime_ledger.LifetimeLedger.spent")
def test_a_life_of_secure_sums_has_no_order_and_no_session(tmp_path: Path) -> None:
    near, far = (
        GaussianEncoding(deviation=deviation, clip_norm=1.0, granularity=1.0, modulus_bits=16)
        for deviation in (3.0, 5.0)
    )
    kinds = [(near, 4), (far, 4), (near, 6)]

    def said(order: list[int], name: str) -> float:
        for number, at in enumerate(order):  # a process each
            ledger = LifetimeLedger(tmp_path / name, identity="me")
            encoding, clients = kinds[at]
            single_sum = Sums(size=2, clients=clients, corrupted=1, delta=1e-4)
            total = charge_sum(ledger, encoding, single_sum, 1 + number, budget=1e9)
        assert LifetimeLedger(tmp_path / name, identity="me").spent(1e-4) == total
        return total

    def claimed(at: int, rounds: int, delta: float) -> float:
        encoding, clients = kinds[at]
        return encoding.claims(
            Sums(rounds=rounds, clients=clients, size=2, delta=delta, corrupted=1)
        )["central"].epsilon

    assert LifetimeLedger(tmp_path / "new", identity="me").spent(1e-4) == 0
    assert said([0, 0, 0], "one kind") == claimed(0, 3, 1e-4)
    totals = [
        said(list(order), f"all {order}") for order in sorted(set(permutations([0, 1, 2, 0])))
    ]
    assert len(set(totals)) == 1
    assert totals[0] >= math.fsum(
        [claimed(0, 2, 1e-4 / 3), claimed(1, 1, 1e-4 / 3), claimed(2, 1, 1e-4 / 3)]
    )
    assert totals[0] > said([0, 1, 2], "less")


@judges(
    "training.accountant.Accountant.claim_of",
)  # fmt: skip
def test_a_planned_run_costs_what_its_steps_cost() -> None:
    torch = pytest.importorskip("torch")
    from mezzotint.training.accountant import Accountant
    from mezzotint.training.noise import Banded
    from mezzotint.training.optimizers import NoisyOptimizer

    def accountant(**more: Any) -> Accountant:
        return Accountant(sampling=Poisson(rate=0.2), delta=1e-4, **more)

    def optimizer(clip_norm: float) -> NoisyOptimizer:
        inner = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
        return NoisyOptimizer(
            inner, noise_multiplier=2.0, clip_norm=clip_norm, expected_batch_size=4
        )

    noisy = optimizer(0.5)
    for steps in (1, 6):
        phase = Phase(noise_multiplier=2.0, kappa=1.0, sampling=Poisson(rate=0.2), steps=steps)
        expected = privacy.account(rqp.training_release([phase], delta=1e-4)).epsilon
        assert accountant().claim_of(steps, noisy).epsilon == expected
        # The unit of clipping says nothing.
        assert accountant().claim_of(steps, optimizer(50.0)).epsilon == expected
        # Planned or counted, by this process or another: the same.
        counted, earlier = accountant(), accountant()
        for _ in range(steps):
            counted.record(noisy)
        earlier.count_earlier(steps, noisy)
        earlier.count_earlier(steps, noisy)
        assert counted.claim().epsilon == earlier.claim().epsilon == expected
    # Six steps of three bands are two of each part.
    banded = accountant(noise=Banded(3))
    assert banded.claim_of(6, noisy).epsilon == accountant().claim_of(2, noisy).epsilon
