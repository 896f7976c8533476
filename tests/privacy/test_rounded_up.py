"""What is rounded up, against 50-digit twins at thousands of points: never below, and off in the last digits alone."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from mezzotint.privacy.distribution import (
    Atoms,
    LossDistribution,
    on_grid,
    poisson_add,
    poisson_remove,
    poisson_replace_one,
    rdp_public_sampling,
    rdp_to_epsilon,
)
from mezzotint.privacy.local import dominating_atoms
from mezzotint.privacy.tradeoffs import tradeoff
from strategies import random_table
from tolerances import FEW, MANY, UNIT

RATES = [1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(50):
        yield


def _generator() -> np.random.Generator:
    return np.random.default_rng(20261122)


def test_epsilon_of_a_renyi_divergence() -> None:
    generator = _generator()
    for alpha in (1.001, 1.01, 1.5, 2.0, 3.7, 64.0, 1e5):
        for delta in (0.999, 0.99, 0.5, 1e-6, 1e-12):
            for divergence in generator.uniform(0.5, 8, 10).tolist():
                a = mpmath.mpf(alpha)
                exact = divergence + mpmath.log1p(-1 / a) - mpmath.log(delta * a) / (a - 1)
                ours = rdp_to_epsilon(divergence, alpha, delta)
                assert exact <= ours <= max(exact, 0) * (1 + mpmath.mpf(FEW)) + FEW


def test_a_divergence_that_is_seen_to_happen_or_not() -> None:
    generator = _generator()
    for alpha in (1.001, 1.7, 2.0, 33.3, 1e5):
        for rate in (*RATES, 1e-40):
            for divergence in (generator.uniform(0, 1, 15) * 200 / (alpha - 1)).tolist():
                power = (mpmath.mpf(alpha) - 1) * divergence
                exact = mpmath.log1p(rate * mpmath.expm1(power)) / (mpmath.mpf(alpha) - 1)
                assert exact <= rdp_public_sampling(divergence, alpha, rate) <= exact * (1 + FEW)


def test_losses_of_the_dominating_pair() -> None:
    below = 0
    for seed in range(60):
        mechanism = random_table(seed, rows=4, levels=5, spread=[0.01, 1.0, 5.0][seed % 3])
        curve, atoms = tradeoff(mechanism), dominating_atoms(mechanism)
        steps = zip(
            (-np.diff(curve.misses)).tolist(), np.diff(curve.false_alarms).tolist(), strict=True
        )
        exact = [mpmath.log(mpmath.mpf(p) / q) for p, q in steps if p]
        for true, loss in zip(exact, atoms.losses.tolist(), strict=True):
            below += true < 0
            assert true <= loss <= true + abs(true) * 64 * UNIT
    assert below > 60


def _tilted(loss: float, rate: float) -> mpmath.mpf:
    return mpmath.log1p(rate * mpmath.expm1(mpmath.mpf(loss)))


@pytest.mark.parametrize("rate", RATES)
def test_losses_under_secret_participation(rate: float) -> None:
    losses = np.concatenate(
        [_generator().uniform(-30, 30, 80), _generator().uniform(-1.5, 1.5, 80), [-600, 600]]
    )
    atoms = Atoms(losses=losses, masses=np.full(losses.size, 1 / losses.size), infinite=0.0)
    with mpmath.workdps(300):
        added = [_tilted(loss, rate) for loss in losses.tolist()]
        removed = [-_tilted(-loss, rate) for loss in losses.tolist()]
        forth = [_tilted(loss, rate) for loss in losses[losses > 0].tolist()]
    for exact, ours in (
        ([*added, mpmath.log1p(-rate)], poisson_add(atoms, rate)),
        ([*removed, -mpmath.log1p(-rate)], poisson_remove(atoms, rate)),
        ([*forth, *(-loss for loss in forth), mpmath.mpf(0)], poisson_replace_one(atoms, rate)),
    ):
        for true, loss in zip(exact, ours.losses.tolist(), strict=True):
            # Mixing with the rate adds absolute roundings of numbers around 1: 512 UNIT are given away.
            assert true <= loss <= true + abs(true) * 64 * UNIT + 512 * UNIT


def test_atoms_and_grids_keep_all_mass_at_its_loss_or_above() -> None:
    generator = _generator()
    for _ in range(25):
        masses = generator.dirichlet(np.ones(6))
        atoms = Atoms(
            losses=generator.uniform(-12, 12, 6),
            masses=masses,
            infinite=float(generator.random() / 8),
        )
        cut = atoms.trimmed(float(np.sort(masses)[2]))
        moved = sorted(zip(atoms.losses.tolist(), masses.tolist(), strict=True))[cut.masses.size :]
        assert Fraction(cut.infinite) >= Fraction(atoms.infinite) + sum(
            Fraction(mass) for _, mass in moved
        )
        step = float(10 ** generator.uniform(-4, 0))
        grid = on_grid(atoms, step)
        assert sum(map(Fraction, grid.masses.tolist())) >= sum(map(Fraction, masses.tolist()))
        points = [(grid.start + int(i)) * mpmath.mpf(step) for i in np.flatnonzero(grid.masses)]
        placed = [mpmath.mpf(mass) for mass in grid.masses[grid.masses > 0].tolist()]
        free = grid.atoms()
        for point, loss in zip(points, free.losses.tolist(), strict=True):
            assert point <= loss <= point + abs(point) * 4 * UNIT
        for end in points:
            ours = mpmath.fsum(
                mass * -mpmath.expm1(end - s)
                for mass, s in zip(placed, points, strict=True)
                if s > end
            )
            each = zip(masses.tolist(), atoms.losses.tolist(), strict=True)
            exact = mpmath.fsum(
                mass * -mpmath.expm1(end - mpmath.mpf(s)) for mass, s in each if s > end
            )
            assert exact <= ours <= exact + MANY


def test_curves_of_grids() -> None:
    generator = _generator()
    for _ in range(15):
        step, start = float(10 ** generator.uniform(-3, 0)), int(generator.integers(-2000, 2000))
        masses = generator.dirichlet(np.ones(5))
        grid = LossDistribution(step=step, start=start, masses=masses, infinite=0.0)
        places = np.concatenate([generator.uniform(-2, 5, 30), np.arange(5)])
        epsilons = (start + places) * step
        losses = [(start + i) * mpmath.mpf(step) for i in range(5)]
        for epsilon, ours in zip(epsilons.tolist(), grid.deltas(epsilons).tolist(), strict=True):
            terms = zip(masses.tolist(), losses, strict=True)
            exact = mpmath.fsum(
                mass * -mpmath.expm1(epsilon - s) for mass, s in terms if s > epsilon
            )
            assert exact <= ours <= exact + 10 * FEW
            single = grid._one(epsilon)
            assert exact <= single <= exact + FEW


def test_composition_of_one_loss() -> None:
    generator = _generator()
    for _ in range(200):
        mass, count = float(generator.uniform(0.3, 1.2)), int(generator.integers(2, 60))
        infinite = float(10 ** generator.uniform(-9, -0.3))
        both = LossDistribution(
            step=0.1, start=3, masses=np.array([mass]), infinite=infinite
        ).compose(count)
        exact = mpmath.mpf(mass) ** count
        beyond = (mpmath.mpf(mass) + mpmath.mpf(infinite)) ** count - exact
        assert both.start == 3 * count
        assert exact <= float(both.masses[0]) <= exact * (1 + FEW)
        assert beyond <= both.infinite <= beyond * (1 + FEW) + exact * FEW
