"""Proofs of what training runs cost: the contraction, and a grid of losses. Nothing here is trusted."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from mezzotint import kernel
from mezzotint.core.records import JsonObject
from mezzotint.privacy.propose import TAIL, Outcome, Proof, accepted, exact_rate, exact_text, sealed
from mezzotint.training.rqp.contraction import contraction

_DEPTH = 40
RAISES = (1e-4, 1e-3, 3e-3, 1e-2)
"""By how much of itself the float epsilon (dp-accounting's, pessimistic by its buckets) is raised, in turn."""


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
    seeded: bool = False,
    way: Literal["direct", "removal", "noise"] = "direct",
    fineness: int | None = None,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near the float epsilon of a run with Poisson batches.

    Arguments:
        epsilon, delta: what `rqp.epsilon` found.
        noise_multiplier, steps, sampling_rate, q, bits, neighboring: as there.
        seeded: the run followed from a seed.
        way: how replacing a record is proved: by its own curve, as removing a record and adding another, or by the
            noise alone, as if no code were replaced. Where codes are, the latter two are tried in turn.
        fineness: grid points per nat; None: a power of two that costs about 1e-3 of epsilon.
        seconds: processor time for each check.
    """
    rate = exact_rate(sampling_rate)
    kept = exact_rate(q)
    release = kernel.ExactRelease(
        observer="model", rounds=steps, sampling="none" if rate == 1 else "poisson", rate=rate, neighboring=neighboring,
        noise_multiplier=exact_rate(noise_multiplier), kept=kept, levels=2**bits, seeded=seeded,
    )  # fmt: skip
    content: JsonObject = {"kappa": "1"}
    if kept < 1 and way != "noise":
        content = {"kappa": exact_text(contraction(q, bits) * 1.0002), "range": "8", "depth": _DEPTH}
        if Fraction(str(content["kappa"])) >= 1:
            content = {"kappa": "1"}
    shift = float(Fraction(str(content["kappa"]))) / noise_multiplier
    if way == "removal":
        content["by"] = "removal"
    elif neighboring == "replace_one":
        shift *= 2
    largest = shift**2 / 2 + (math.sqrt(2 * math.log(1e4 * steps / delta)) + 1) * shift
    reach = largest + math.log(sampling_rate + (1 - sampling_rate) * math.exp(-largest))
    fine = fineness
    if fine is None:
        # A step's losses deviate by about rate * (e^(shift^2) - 1)^1/2; the grid must be fine against that.
        deviation = max(sampling_rate * math.sqrt(math.expm1(min(shift**2, 20.0))), 1e-5)
        fine = 2 ** math.ceil(math.log2(min(2**13, max(16.0, 20 / deviation))))
    high = math.ceil(reach * fine) + 1

    def proof(claim: kernel.ExactClaim) -> Proof:
        grid = {"low": -high, "high": high}
        return sealed(claim, "gaussian", step=f"1/{fine}", tail=TAIL, sampled=grid, **content)

    outcome = accepted(release, epsilon, delta, proof, raises=RAISES, seconds=seconds)
    if outcome.proof is None and neighboring == "replace_one" and kept < 1 and way != "noise":
        return propose_training(
            epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate,
            q=q, bits=bits, neighboring=neighboring, seeded=seeded, way="removal" if way == "direct" else "noise",
            fineness=fineness, seconds=seconds,
        )  # fmt: skip
    return outcome
