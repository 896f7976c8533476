"""Claims and releases of training runs as `dp_accounting` events, and back, for whoever composes them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import dp_accounting

from mezzotint.core.errors import ParameterError
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.release import Release
from mezzotint.training.rqp.accounting import Steps, training_release
from mezzotint.training.rqp.sampling import Neighboring, Phase, Poisson


def to_event(released: Claim | Release) -> dp_accounting.DpEvent:
    """The event that an accountant of `dp_accounting` composes; the neighbouring relation is the accountant's.

    Arguments:
        released: a claim of a training run, or its release.

    Raises:
        ParameterError: what no event describes, and why: reports of tables and vectors, noise that is contracted by
            random replacement, batches that are not drawn by Poisson sampling, users of several records, seeded runs.

    Guarantees: `from_event` gives back an equal release, but for phases without steps.

    >>> phase = Phase(noise_multiplier=1.0, kappa=1.0, sampling=Poisson(rate=0.01), steps=100)
    >>> to_event(training_release([phase], delta=1e-5)).count
    100
    """
    release = released.release if isinstance(released, Claim) else released
    if release is None or not isinstance(release.mechanism, Steps):
        kind = "no release" if release is None else type(release.mechanism).__name__
        raise ParameterError("released", kind, "events are about the Gaussian steps of training runs")
    if release.mechanism.seeded:
        raise ParameterError("released", "seeded", "a seeded run is not private: no event says what it costs")
    events = [_event(phase) for phase in release.mechanism.phases if phase.steps > 0]
    if not events:
        return dp_accounting.NoOpDpEvent()
    return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)


def _event(phase: Phase) -> dp_accounting.DpEvent:
    if not isinstance(phase.sampling, Poisson):
        raise ParameterError("sampling", phase.sampling.words(), "only Poisson sampling is converted")
    if phase.records_per_user != 1:
        remedy = "an event is about one record; accountants have no word for users with several"
        raise ParameterError("records_per_user", phase.records_per_user, remedy)
    if phase.bands != 1:
        remedy = "correlated noise has no event; phases of as many steps as a record takes part in have one"
        raise ParameterError("bands", phase.bands, remedy)
    if phase.kappa != 1:
        remedy = "random replacement of codes has no event; that of the noise alone costs more: use kappa=1"
        raise ParameterError("kappa", phase.kappa, remedy)
    gaussian = dp_accounting.GaussianDpEvent(phase.noise_multiplier)
    rate = phase.sampling.rate
    step = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    return dp_accounting.SelfComposedDpEvent(step, phase.steps)


def from_event(
    event: dp_accounting.DpEvent, *, delta: float, neighboring: Neighboring = "add_or_remove_one"
) -> Release:
    """The release that an event describes, for `mezzotint.privacy.account`.

    Arguments:
        event: Gaussian, Poisson-sampled Gaussian, and whatever is composed or self-composed of them.
        delta, neighboring: of the claim; an event has neither.

    Raises:
        ParameterError: another event, by its name.
    """
    return training_release(list(_phases(event, 1)), delta=delta, neighboring=neighboring)


def _phases(event: dp_accounting.DpEvent, count: int) -> Iterator[Phase]:
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _phases(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for _ in range(count):  # in turn: a repeated sequence is not the sequence of its repeated parts
            for part in event.events:
                yield from _phases(part, 1)
    else:
        sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
        rate, inner = (event.sampling_probability, event.event) if sampled else (1.0, event)
        if not isinstance(inner, dp_accounting.GaussianDpEvent):
            remedy = "only Gaussian and Poisson-sampled Gaussian events, and compositions of them, are converted"
            raise ParameterError("event", type(inner).__name__, remedy)
        yield Phase(noise_multiplier=inner.noise_multiplier, kappa=1.0, sampling=Poisson(rate=rate), steps=count)
