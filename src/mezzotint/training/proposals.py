"""Certified claims near the float epsilon of a training run."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, get_args

from scipy.stats import binom

from mezzotint import kernel
from mezzotint.core.records import JsonObject
from mezzotint.privacy.propose import TAIL, Outcome, accepted, exact_rate, exact_text, sealed
from mezzotint.training.contraction import contraction

LARGEST_RAISE = 1.28e-2
"""By how much of itself the float epsilon (dp-accounting's, pessimistic by its buckets) is raised
at most.
"""

Way = Literal["direct", "removal", "noise"]
_WAYS: tuple[Way, ...] = get_args(Way)


def _grid(
    shift: float, steps: int, rate: float, delta: float, fineness: int | None
) -> tuple[int, int]:
    """Where a grid of one step's losses ends, in points, and how many points a nat has: `fineness`,
    if it is given.
    """
    largest = shift**2 / 2 + (math.sqrt(2 * math.log(1e4 * steps / delta)) + 1) * shift
    reach = largest + math.log(rate + (1 - rate) * math.exp(-largest))
    points_per_nat = fineness or _points_per_nat(shift, rate)
    return math.ceil(reach * points_per_nat) + 1, points_per_nat


def _points_per_nat(shift: float, rate: float) -> int:
    """A power of two, fine against the deviation of a step's losses: about rate * (e^(shift^2) -
    1)^1/2.
    """
    deviation = max(rate * math.sqrt(math.expm1(min(shift**2, 20.0))), 1e-5)
    points = min(2**13, max(16.0, 20 / deviation))
    return 2 ** math.ceil(math.log2(points))


def model_release(
    *,
    noise_multiplier: float,
    steps: int,
    sampling_rate: float,
    neighboring: str,
    records_per_user: int,
    seeded: bool,
    q: float = 1.0,
    bits: int = 1,
) -> kernel.ExactRelease:
    """A run with Poisson batches as the kernel describes it."""
    rate = exact_rate(sampling_rate)
    return kernel.ExactRelease(
        observer="model",
        rounds=steps,
        sampling="none" if rate == 1 else "poisson",
        rate=rate,
        neighboring=neighboring,
        noise_multiplier=exact_rate(noise_multiplier),
        kept=exact_rate(q),
        levels=2**bits,
        seeded=seeded,
        records_per_user=records_per_user,
    )


def propose_training(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    sampling_rate: float = 1.0,
    q: float = 1.0,
    bits: int = 1,
    neighboring: str = "add_or_remove_one",
    records_per_user: int = 1,
    seeded: bool = False,
    way: Way = "direct",
    fineness: int | None = None,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near the float epsilon of a run with Poisson batches.

    Arguments:
        epsilon, delta: what `rqp.epsilon` found.
        noise_multiplier, steps, sampling_rate, q, bits, neighboring: as there.
        records_per_user: of a claim about users, the most records of one, at most 100; else 1.
        seeded: the run followed from a seed.
        way: how replacing a record is proved: by its own curve, as removing a record and adding
            another, or by the noise alone, as if no code were replaced. Where codes are, the latter
            two are tried in turn.
        fineness: grid points per nat; None: a power of two that costs about 1e-3 of epsilon.
        seconds: processor time for each check.
    """
    release = model_release(
        noise_multiplier=noise_multiplier,
        steps=steps,
        sampling_rate=sampling_rate,
        neighboring=neighboring,
        q=q,
        bits=bits,
        records_per_user=records_per_user,
        seeded=seeded,
    )
    if records_per_user > 1:
        return _propose_users(release, epsilon, delta, fineness=fineness, seconds=seconds)
    replaces = exact_rate(q) < 1
    attempted_ways: tuple[Way, ...] = (way,)
    if neighboring == "replace_one" and replaces:
        attempted_ways = _WAYS[_WAYS.index(way) :]
    for attempted in attempted_ways:
        content: JsonObject = {"kappa": "1"}
        if replaces and attempted != "noise":
            content = _contracted_content(q, bits)
        shift = float(Fraction(content["kappa"])) / noise_multiplier
        if attempted == "removal":
            content["by"] = "removal"
        elif neighboring == "replace_one":
            shift *= 2
        proof = _gaussian_proof(_grid(shift, steps, sampling_rate, delta, fineness), content)
        outcome = accepted(release, epsilon, delta, proof, largest=LARGEST_RAISE, seconds=seconds)
        if outcome.proof is not None:
            break
    return outcome


def _gaussian_proof(grid: tuple[int, int], content: JsonObject) -> Callable[..., Any]:
    """Seals a proof over losses from -high to high, in points, of which a nat has so many."""
    high, points = grid
    sampled = {"low": -high, "high": high}
    return functools.partial(
        sealed, kind="gaussian", step=f"1/{points}", tail=TAIL, sampled=sampled, **content
    )


def _contracted_content(q: float, bits: int) -> JsonObject:
    """What a proof says of a contraction slightly above the least, which is checked faster; at
    most 1.
    """
    kappa = exact_text(contraction(q, bits) * 1.0002)
    if Fraction(kappa) >= 1:
        return {"kappa": "1"}
    return {"kappa": kappa, "range": "8", "depth": 40}


def _propose_users(
    release: kernel.ExactRelease,
    epsilon: float,
    delta: float,
    *,
    fineness: int | None,
    seconds: int,
) -> Outcome:
    """A certified claim about all records of one user: only the noise protects them."""
    rate = float(release.rate)
    records = release.records_per_user
    steps = release.rounds
    # More records of a user than this enter a batch so rarely that the grid need not reach their
    # losses. Where it ends too early no proof is accepted: nothing false is.
    copies = int(binom.isf(delta / (1e3 * steps), records, rate)) + 1
    chance = 1 - (1 - rate) ** records
    shift = 1 / float(release.noise_multiplier or 1)
    if release.neighboring == "replace_one":
        shift *= 2
    # As fine as the losses of one record ask for, as far as those of several reach.
    _, points = _grid(shift, steps, chance, delta, fineness)
    high, points = _grid(min(copies, records) * shift, steps, chance, delta, points)
    proof = _gaussian_proof((high, points), {"kappa": "1"})
    return accepted(release, epsilon, delta, proof, largest=LARGEST_RAISE, seconds=seconds)
