"""Each allowance for rounding by itself: inputs at which plain floats end below what is exact, in rationals.

`test_rounded_up.py` compares whole results; here stand sums that lose every small term, cancellation, and corners.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from mezzotint import families
from mezzotint.core.types import TOTAL
from mezzotint.privacy import Release, account, accounting
from mezzotint.privacy.distribution import (
    Atoms,
    LossDistribution,
    _power_above,
    on_grid,
    poisson_add,
    poisson_replace_one,
    rdp_public_sampling,
    revealed,
)
from mezzotint.privacy.local import PLD
from reference.privacy import rows_of
from strategies import random_table
from tolerances import FEW, UNIT

LOST = np.full(127, 0.99 * UNIT)
"""Each is less than half a unit in the last place of 1: added to 1 one by one, they vanish."""


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def _total(values: np.ndarray) -> Fraction:
    return sum(map(Fraction, values.tolist()), Fraction(0))


def _real(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def _atoms(seed: int, count: int = 4, *, low: float = -2.0, high: float = 2.0) -> Atoms:
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.ones(count + 1))
    return Atoms(
        losses=generator.uniform(low, high, count), masses=shares[:-1], infinite=float(shares[-1])
    )


# Sampling -----------------------------------------------------------------------------------------------------------


def test_an_absence_that_is_seen_keeps_every_mass() -> None:
    for seed in range(20):
        atoms, rate = _atoms(seed), float(10 ** np.random.default_rng(seed).uniform(-9, 0))
        ours = revealed(atoms, rate)
        exact = [
            *(Fraction(mass) * Fraction(rate) for mass in atoms.masses.tolist()),
            1 - Fraction(rate),
        ]
        exact.append(Fraction(atoms.infinite) * Fraction(rate))
        for true, value in zip(exact, [*ours.masses.tolist(), ours.infinite], strict=True):
            assert true <= Fraction(value) <= true * (1 + Fraction(FEW))


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.3, 0.9, 0.999999])
def test_secret_participation_loses_no_mass(rate: float) -> None:
    r = Fraction(rate)
    for seed in range(20):
        atoms = _atoms(seed, 1 + seed % 5, low=0.01)
        masses = atoms.masses.tolist()
        back = [
            mass * mpmath.exp(-mpmath.mpf(loss))
            for mass, loss in zip(masses, atoms.losses.tolist(), strict=True)
        ]
        away = [(1 - _real(r)) * second for second in back]
        forth = [_real(r) * mass + gone for mass, gone in zip(masses, away, strict=True)]
        sure = Fraction(atoms.infinite) * r
        added = poisson_add(atoms, rate)
        replaced = poisson_replace_one(atoms, rate)
        for exact, values in (
            (forth, added.masses[:-1]),
            (forth, replaced.masses[: len(forth)]),
            (back, replaced.masses[len(forth) : -1]),
        ):
            for true, value in zip(exact, values.tolist(), strict=True):
                assert true <= value <= true * (1 + FEW)
        for ours in (added, replaced):
            assert sure <= Fraction(ours.infinite) <= sure * (1 + Fraction(FEW))


def test_what_no_loss_is_left_for_fills_up_to_one() -> None:
    """Mass that is missing would stand at a lower loss than it should."""
    generator = np.random.default_rng(0)
    for seed in range(400):
        atoms, rate = (
            _atoms(seed, 1 + seed % 3, low=0.01, high=60.0),
            float(10 ** generator.uniform(-9, 0)),
        )
        scale = float(10 ** generator.uniform(-4, 0))
        atoms = Atoms(
            losses=atoms.losses, masses=atoms.masses * scale, infinite=atoms.infinite * scale
        )
        replaced, added = poisson_replace_one(atoms, rate), poisson_add(atoms, rate)
        assert 1 <= _total(replaced.masses) + Fraction(replaced.infinite) <= 1 + Fraction(FEW)
        of_rest = (
            Fraction(rate) * (_total(atoms.masses) + Fraction(atoms.infinite)) + 1 - Fraction(rate)
        )
        assert of_rest <= _total(added.masses) + Fraction(added.infinite) <= of_rest + Fraction(FEW)


# Renyi --------------------------------------------------------------------------------------------------------------


def test_a_divergence_whose_roundings_all_fall() -> None:
    for alpha, divergence, rate in (
        (1.0076032806095365, 19.943355463004853, 3.657602220194844e-07),
    ):
        power = (mpmath.mpf(alpha) - 1) * divergence
        exact = mpmath.log1p(rate * mpmath.expm1(power)) / (mpmath.mpf(alpha) - 1)
        assert exact <= rdp_public_sampling(divergence, alpha, rate) <= exact * (1 + FEW)


# Grids --------------------------------------------------------------------------------------------------------------


def _gain(mass: Fraction | float, loss: object, epsilon: object) -> mpmath.mpf:
    """mass max(0, 1 - e**(epsilon - loss))."""
    size = _real(mass) if isinstance(mass, Fraction) else mpmath.mpf(mass)
    return size * max(mpmath.mpf(0), -mpmath.expm1(mpmath.mpf(epsilon) - mpmath.mpf(loss)))


def test_one_atom_on_fine_grids() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        loss, step = float(generator.uniform(0.5, 12)), float(10 ** generator.uniform(-9, 0))
        grid = on_grid(Atoms(losses=np.array([loss]), masses=np.array([0.7]), infinite=0.0), step)
        lower, upper = (mpmath.mpf(step) * (grid.start + i) for i in range(2))
        up = mpmath.mpf(float(grid.masses[1])) * -mpmath.expm1(lower - upper)
        exact = _gain(0.7, loss, lower)
        assert exact <= up <= exact * (1 + FEW) + 0.7 * 64 * UNIT * loss
        assert _total(grid.masses) >= Fraction(0.7)


def test_many_atoms_in_one_cell_keep_their_mass() -> None:
    for losses in (np.zeros(128), np.full(128, 0.25), np.full(128, math.nextafter(0.5, 0))):
        # One more atom stands alone in another cell.
        near = np.append(1.0, LOST)
        grid = on_grid(
            Atoms(losses=np.append(losses, 3.25), masses=np.append(near, 0.5), infinite=0.0), 0.5
        )
        assert _total(grid.masses[:2]) >= _total(near)
        assert _total(grid.masses[2:]) >= Fraction(0.5)
        lower, upper = (mpmath.mpf(grid.step) * (grid.start + i) for i in range(2))
        assert _gain(float(grid.masses[1]), upper, lower) >= _gain(
            _total(near), float(losses[0]), lower
        )


def _exact_curve(grid: LossDistribution, epsilon: float) -> mpmath.mpf:
    losses = (mpmath.mpf(grid.step) * (grid.start + i) for i in range(grid.masses.size))
    terms = (
        _gain(mass, loss, epsilon) for mass, loss in zip(grid.masses.tolist(), losses, strict=True)
    )
    return grid.infinite + mpmath.fsum(terms)


def _assert_above(grid: LossDistribution, epsilon: float, *, above: float) -> None:
    exact = _exact_curve(grid, epsilon)
    ours = float(grid.deltas(epsilon))
    assert exact <= ours <= exact * (1 + above) + 10 * FEW


def test_curves_whose_sums_lose_terms() -> None:
    heavy_last = LossDistribution(step=40.0, start=5, masses=np.append(LOST, 1.0), infinite=0.0)
    heavy_first = LossDistribution(step=40.0, start=5, masses=np.append(1.0, LOST), infinite=0.0)
    for grid in (heavy_last, heavy_first):
        for epsilon in (-1e5, 5 * 40.0 - 1.0, 5 * 40.0, 6 * 40.0, 60 * 40.0):
            _assert_above(grid, epsilon, above=FEW)
            if epsilon >= 0:
                assert _exact_curve(grid, epsilon) <= grid._one(epsilon)
    assert _exact_curve(heavy_first, heavy_first.epsilon(0.5)) <= 0.5


def test_curves_between_grid_points_far_out_and_next_to_them() -> None:
    generator = np.random.default_rng(2)
    for _ in range(60):
        # A grid of 1e-9 at losses near 1: the place in its cell is known to 2**-22 of it alone.
        start, step = (
            int(generator.integers(2**29, 2**31)),
            float(generator.uniform(0.9e-9, 1.1e-9)),
        )
        grid = LossDistribution(step=step, start=start, masses=np.array([0.5, 0.5]), infinite=0.0)
        _assert_above(grid, (start + float(generator.random())) * step, above=1.0)
        # Next to the end of a cell the chord is a small difference.
        near = LossDistribution(
            step=step * 1e8, start=-1, masses=np.array([0.6, 0.4]), infinite=0.0
        )
        _assert_above(near, -float(10 ** generator.uniform(-9, -3)) * near.step, above=1.0)


def test_a_delta_that_only_the_last_loss_meets_has_that_loss() -> None:
    generator = np.random.default_rng(7)
    for _ in range(60):
        step, start = float(generator.uniform(0.01, 1)), int(generator.integers(0, 100))
        grid = LossDistribution(
            step=step, start=start, masses=np.array([0.5, 0.375]), infinite=0.125
        )
        last = Fraction(step) * (start + 1)
        assert last <= Fraction(grid.epsilon(0.125)) <= last * (1 + Fraction(FEW))


def test_single_gains_are_not_rounded_down() -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        grid = LossDistribution(
            step=1.0, start=40, masses=generator.dirichlet(np.ones(3)) * 0.9, infinite=0.0
        )
        exact = _exact_curve(grid, 0.0)
        assert exact <= grid._one(0.0) <= exact * (1 + FEW)
        assert exact <= grid.delta(0.0) <= exact * (1 + FEW)


def test_powers_are_rounded_up() -> None:
    generator = np.random.default_rng(4)
    for _ in range(500):
        base, count = float(10 ** generator.uniform(-2, 2)), int(generator.integers(2, 100))
        exact = mpmath.mpf(base) ** count
        assert exact <= _power_above(base, count) <= exact * (1 + FEW)


def _exact_composition(grid: LossDistribution, count: int) -> tuple[list[Fraction], Fraction]:
    masses, infinite = [Fraction(mass) for mass in grid.masses.tolist()], Fraction(grid.infinite)
    found, total = [Fraction(1)], sum(masses)
    for _ in range(count):
        longer = [Fraction(0)] * (len(found) + len(masses) - 1)
        for i, a in enumerate(found):
            for j, b in enumerate(masses):
                longer[i + j] += a * b
        found = longer
    return found, (total + infinite) ** count - total**count


def test_compositions_of_grids_in_rationals() -> None:
    generator = np.random.default_rng(5)
    for size, infinite in ((1, 0.0), (1, 1e-3), (2, 1e-9), (3, 0.05), (3, 0.9), (5, 1e-15)):
        for _ in range(8):
            masses = generator.dirichlet(np.ones(size)) * float(generator.uniform(0.2, 1.3))
            count = int(generator.integers(2, 12))
            grid = LossDistribution(step=0.1, start=-1, masses=masses, infinite=infinite)
            both = grid.compose(count)
            exact, beyond = _exact_composition(grid, count)
            first = both.start + count
            kept = exact[first : first + both.masses.size]
            beyond += sum(exact) - sum(kept)
            for true, value in zip(kept, both.masses.tolist(), strict=True):
                assert (
                    true <= Fraction(value) <= true * (1 + Fraction(1, 10**6)) + Fraction(1, 10**12)
                )
            assert (
                beyond
                <= Fraction(both.infinite)
                <= beyond * (1 + Fraction(1, 10**9)) + Fraction(1, 10**13)
            )


@pytest.mark.parametrize(
    ("count", "infinite"), [(10, 1e-3), (100, 1e-4), (10, 0.5), (60, 1.0), (1000, 1e-3)]
)
def test_infinite_losses_of_compositions_whose_sums_lose_terms(count: int, infinite: float) -> None:
    grid = LossDistribution(step=0.1, start=0, masses=np.append(1.0, LOST), infinite=infinite)
    total = _total(grid.masses)
    beyond = (total + Fraction(infinite)) ** count - total**count
    ours = Fraction(grid.compose(count).infinite)
    assert beyond <= ours <= beyond * (1 + Fraction(1, 10**6))


# Sequences ----------------------------------------------------------------------------------------------------------


def _exact_delta(weights: np.ndarray, epsilon: float) -> mpmath.mpf:
    ratio = mpmath.exp(mpmath.mpf(epsilon))
    rows = [[_real(p) for p in row] for row in rows_of(weights)]
    return max(
        mpmath.fsum(max(mpmath.mpf(0), p - ratio * q) for p, q in zip(a, b, strict=True))
        for a in rows
        for b in rows
    )


# Shuffles and sampled releases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [3, 5, 7, 11, 49, 93])
def test_rounds_of_a_shuffle_share_delta_and_add_up_exactly(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def each(epsilon: float, *, delta: float, **_: object) -> float:
        asked.append(delta)
        return epsilon / 7

    monkeypatch.setattr(accounting, "clones_epsilon", each)
    table = families.randomized_response(epsilon=1.0)
    for delta in (1e-6, 3e-7, 1e-9, 0.01):
        claim = account(table, trust="shuffler", clients=100, rounds=rounds, delta=delta)
        assert rounds * Fraction(asked[-1]) <= Fraction(delta)
        assert Fraction(dict(claim.alternatives)["clones"]) >= rounds * Fraction(table.epsilon / 7)


def test_coins_are_never_likelier_than_the_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drawn(Exception):
        pass

    def seen(blanket: object, *_: object, **__: object) -> None:
        raise Drawn(blanket)

    monkeypatch.setattr(accounting, "blanket_noise", seen)
    for k in range(2**31, 2**31 + 60):
        # The next float above log(TOTAL / k), whose exponential is less than k / TOTAL.
        epsilon = float(mpmath.log(mpmath.mpf(TOTAL) / k))
        if mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL >= k:
            epsilon = math.nextafter(epsilon, 1)
        with pytest.raises(Drawn) as caught:
            accounting.clones_epsilon(epsilon, clients=10, delta=1e-6)
        mass = int(caught.value.args[0].components[0].shifts.sum())
        assert (
            mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL - 2
            <= mass
            <= mpmath.exp(-mpmath.mpf(epsilon)) * TOTAL
        )


def test_columns_add_up_exactly() -> None:
    for seed in range(12):
        tables = {
            str(spread): random_table(seed, rows=2, levels=3, spread=spread)
            for spread in (0.01, 1.0, 9.0)
        }
        exact = sum((Fraction(table.epsilon) for table in tables.values()), Fraction(0))
        ours = Fraction(account(tables, delta=0.0).epsilon)
        assert exact <= ours < exact * (1 + Fraction(1, 2**51))


def test_sampled_grids_are_those_of_what_is_said_about_participation() -> None:
    table = families.randomized_response(epsilon=3.0)
    common = {"mechanism": table, "rounds": 6, "delta": 1e-4, "sampling_rate": 0.5}
    replaced = dict(account(Release(**common, sampling="poisson")).alternatives)[PLD]
    added = dict(
        account(Release(**common, sampling="poisson", neighboring="add_or_remove_one")).alternatives
    )[PLD]
    seen = dict(account(Release(**common)).alternatives)[PLD]
    # By more than anything rounds.
    assert replaced + 1e-3 < added < seen - 1
