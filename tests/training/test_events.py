"""Claims as events of dp_accounting and back: the same release, and its accountant finds the same epsilon."""

from __future__ import annotations

from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from laws.registry import judges
from mezzotint import ParameterError, families, privacy
from mezzotint.training import rqp

DELTA = 1e-5


def phase(noise: float = 1.0, rate: float = 1.0, steps: int = 1, **other: Any) -> rqp.Phase:
    return rqp.Phase(
        **{
            "noise_multiplier": noise,
            "kappa": 1.0,
            "sampling": rqp.Poisson(rate=rate),
            "steps": steps,
            **other,
        }
    )


RUNS: dict[str, tuple[list[rqp.Phase], type[Any]]] = {
    "Gaussian, self-composed": ([phase(2.0, steps=7)], dp_accounting.SelfComposedDpEvent),
    "Poisson-sampled": ([phase(1.1, 0.05, 40)], dp_accounting.SelfComposedDpEvent),
    "composed": ([phase(1.1, 0.05, 40), phase(3.0, steps=2)], dp_accounting.ComposedDpEvent),
}


@judges("training.rqp.from_event")
@pytest.mark.parametrize("name", RUNS)
def test_events_say_the_same_and_cost_the_same(name: str) -> None:
    phases, kind = RUNS[name]
    release = rqp.training_release(phases, delta=DELTA)
    claim = privacy.account(release)
    event = rqp.to_event(claim)
    assert isinstance(event, kind)
    assert event == rqp.to_event(release)
    assert rqp.from_event(event, delta=DELTA) == release
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    # Both discretize losses upwards, on grids of 1e-4 and finer; a step's error adds up over the run at worst.
    steps = sum(one.steps for one in phases)
    assert accountant.compose(event).get_epsilon(DELTA) == pytest.approx(
        claim.epsilon, abs=2e-4 * steps
    )  # two of them


def test_single_gaussians_and_repeated_sequences_are_read() -> None:
    one = rqp.from_event(dp_accounting.GaussianDpEvent(2.0), delta=DELTA)
    assert one == rqp.training_release([phase(2.0)], delta=DELTA)
    pair = dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(2.0), dp_accounting.GaussianDpEvent(3.0)]
    )
    twice = rqp.from_event(dp_accounting.SelfComposedDpEvent(pair, 2), delta=DELTA)
    assert twice == rqp.training_release(
        [phase(2.0), phase(3.0), phase(2.0), phase(3.0)], delta=DELTA
    )
    assert rqp.from_event(dp_accounting.NoOpDpEvent(), delta=DELTA) == rqp.training_release(
        [], delta=DELTA
    )
    assert rqp.to_event(rqp.training_release([], delta=DELTA)) == dp_accounting.NoOpDpEvent()


def test_what_has_no_event_is_refused_with_the_reason() -> None:
    table = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    odd = {
        "Gaussian steps": privacy.account(table),
        "random replacement": rqp.training_release([phase(kappa=0.5)], delta=DELTA),
        "only Poisson": rqp.training_release(
            [phase(sampling=rqp.WithReplacement(batch_size=2, dataset_size=9))], delta=DELTA
        ),
        "seeded": rqp.training_release([phase()], delta=DELTA, seeded=True),
    }
    for words, released in odd.items():
        with pytest.raises(ParameterError, match=words):
            rqp.to_event(released)
    for event in (dp_accounting.LaplaceDpEvent(1.0), dp_accounting.NonPrivateDpEvent()):
        with pytest.raises(ParameterError, match=type(event).__name__):
            rqp.from_event(event, delta=DELTA)
