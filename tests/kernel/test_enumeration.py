"""Every kind against enumeration: 200 small instances each, never below the truth, and within the stated slack.

Sums have theirs in test_sums, where the bound of the page is restated in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from mezzotint import Mechanism, kernel, privacy
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.propose import losses_shape
from reference.kernel import (
    accepts,
    claim,
    decimal_text,
    exponential,
    hockey_stick,
    probabilities,
    release,
    sealed,
)
from strategies import random_weights

TABLES = 200


def _tables(
    seed: int, rows: int = 3, levels: int = 4
) -> Iterator[tuple[np.random.Generator, Mechanism]]:
    """Random tables of at least two distinct rows."""
    generator, made = np.random.default_rng(seed), 0
    while made < TABLES:
        shape = int(generator.integers(2, rows + 1)), int(generator.integers(2, levels + 1))
        weights = random_weights(generator, *shape, 1.5)
        if (weights == weights[0]).all():
            continue
        made += 1
        knots, places = np.arange(float(shape[0])), np.arange(float(shape[1]))
        yield generator, Mechanism(knots=knots, levels=places, weights=weights, name="small")


def _takes(
    mechanism: Mechanism, kind: str, epsilon: object, delta: object = "0", **content: Any
) -> bool:
    described = release(mechanism, rounds=content.pop("rounds", 1))
    order = {"order": content["order"]} if kind == "renyi" else {}
    said = claim(described, epsilon, delta, **order)
    return accepts(said, sealed(said, kind, tables=[mechanism.canonical()], **content))


def test_pure_epsilons_of_two_reports() -> None:
    """The largest ratio over pairs of rows and outputs of two reports, one after the other."""
    for _, mechanism in _tables(1):
        rows = probabilities(mechanism)
        single = max(
            p / q for first in rows for second in rows for p, q in zip(first, second, strict=True)
        )
        low = high = Fraction(2 * math.log(single))
        low, high = low * (1 - Fraction(1, 10**12)), high * (1 + Fraction(1, 10**12))
        assert exponential(low) < single**2 < exponential(high)
        assert _takes(mechanism, "ratio", high, rounds=2)
        assert not _takes(mechanism, "ratio", low, rounds=2)


def test_deltas_of_one_report() -> None:
    """The largest hockey-stick divergence over ordered pairs of rows, to 30 digits."""
    seen = 0
    for generator, mechanism in _tables(2):
        epsilon = str(int(generator.integers(0, 12))) + "/10"
        exact = max(
            hockey_stick(*pair, epsilon) for pair in permutations(probabilities(mechanism), 2)
        )
        above, below = (
            decimal_text(exact * (1 + Fraction(sign, 10**15)) + Fraction(sign + 1, 10**39))
            for sign in (1, -1)
        )
        assert _takes(mechanism, "delta", epsilon, above)
        assert _takes(mechanism, "delta", epsilon, below) == (exact == 0)
        seen += exact > 0
    assert seen > TABLES / 2


def test_renyi_divergences_of_two_reports() -> None:
    for generator, mechanism in _tables(3):
        order = Fraction(int(generator.integers(11, 80)), 10)
        powers = [
            sum(
                float(p) ** float(order) * float(q) ** float(1 - order)
                for p, q in zip(*pair, strict=True)
            )
            for pair in permutations(probabilities(mechanism), 2)
        ]
        exact = 2 * math.log(max(powers)) / float(order - 1)
        for factor, holds in ((1 + 1e-9, True), (1 - 1e-9, False)):
            stated = decimal_text(Fraction(exact * factor))
            assert _takes(mechanism, "renyi", stated, order=str(order), rounds=2) == holds


def _adaptive(rows: list[list[Fraction]], epsilon: Fraction) -> Fraction:
    """The delta of two reports where the inputs of the second are chosen after the first was seen."""
    factor, worst = exponential(epsilon), Fraction(0)
    for first, second in permutations(rows, 2):
        total = Fraction(0)
        for p, q in zip(first, second, strict=True):
            total += max(
                sum(
                    (max(p * a - factor * q * b, Fraction(0)) for a, b in zip(*pair, strict=True)),
                    Fraction(0),
                )
                for pair in permutations(rows, 2)
            )
        worst = max(worst, total)
    return worst


def test_losses_of_two_reports_with_adaptive_inputs() -> None:
    """Between what an adaptive adversary gets and the dominating pair's delta (T7), 2 % and 1e-9 above it at most."""
    seen = 0
    for generator, mechanism in _tables(4):
        epsilon = Fraction(int(generator.integers(1, 15)), 10)
        exact = _adaptive(probabilities(mechanism), epsilon)
        atoms = Profile.of_rows(mechanism.weights)
        sums = atoms.losses[:, None] + atoms.losses[None, :]
        kept = np.maximum(-np.expm1(np.minimum(float(epsilon) - sums, 0)), 0) * np.outer(
            atoms.masses, atoms.masses
        )
        dominating = Fraction(float(kept.sum() + 1 - (1 - atoms.infinite) ** 2))
        assert exact <= dominating * (1 + Fraction(1, 10**9)) + Fraction(1, 10**12)
        content = {
            "rounds": 2,
            **losses_shape(privacy.Release(mechanism=mechanism, rounds=2, delta=0.0), 0.5),
        }
        above = decimal_text(dominating * Fraction(102, 100) + Fraction(1, 10**9))
        assert _takes(mechanism, "losses", str(epsilon), above, **content)
        if exact > Fraction(1, 10**12):
            seen += 1
            assert not _takes(
                mechanism,
                "losses",
                str(epsilon),
                decimal_text(exact * (1 - Fraction(1, 10**6))),
                **content,
            )
    assert seen > TABLES / 2


@pytest.mark.slow
def test_gaussian_noise_of_one_step() -> None:
    """The closed form of one step that everybody takes part in, either way of adding and removing one record."""
    generator = np.random.default_rng(5)
    for _ in range(TABLES):
        noise, epsilon = (
            Fraction(int(generator.integers(6, 40)), 10),
            Fraction(int(generator.integers(1, 25)), 10),
        )
        shift, at = 1 / float(noise), float(epsilon)
        exact = norm.cdf(shift / 2 - at / shift) - math.exp(at) * norm.cdf(-shift / 2 - at / shift)
        if exact < 1e-9:
            continue
        described = kernel.ExactRelease(
            observer="model", noise_multiplier=noise, neighboring="add_or_remove_one"
        )
        grid = {"kappa": "1", "step": "1/128", "tail": 110, "sampled": {"low": -1000, "high": 1000}}
        for delta, holds in ((exact * (1 - 1e-6), False), (exact * 1.02 + 1e-9, True)):
            said = claim(described, str(epsilon), decimal_text(Fraction(delta)))
            assert accepts(said, sealed(said, "gaussian", **grid)) == holds
