"""Central privacy of one secure sum: from a blanket to a bound on delta(epsilon), worst over pairs of rows.

delta(eps) <= sup over rows x, x' of E_N[ HS_eps(p(x) * R_N || p(x') * R_N) ]    (docs/proofs/sums.md, Theorem S')
with R_N the noise of the components that the other honest clients drew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.privacy.sums.blanket import Blanket
from mezzotint.privacy.sums.cells import multinomial_cells
from mezzotint.privacy.sums.convolution import UNIT, sum_bounds
from mezzotint.privacy.sums.curve import HockeyStick

BINS = 4096
"""Grid points of a curve; chords between them cost a relative 1e-4 of delta or less."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """A mixture of noise pmfs, known from both sides; the adversary sees which one was drawn.

    Arguments:
        probability: (cells,) upper bounds on the mixture's weights.
        low, high: (cells, width) bounds on each cell's pmf, on a window of its own.
        outside: mass (of any kind) not covered: it counts as certain disclosure.
    """

    probability: FloatArray
    low: FloatArray
    high: FloatArray
    outside: float


def silence() -> Noise:
    """No noise at all: what is seen is the one report itself."""
    one = np.ones((1, 1))
    return Noise(probability=np.ones(1), low=one, high=one, outside=0.0)


def blanket_noise(blanket: Blanket, clients: int, *, budget: int = 64, tail: float = 1e-17) -> Noise:
    """The noise of `clients` honest other clients under a blanket.

    Arguments:
        blanket: a blanket that fits the table.
        clients: how many others contribute honest randomness, >= 0; a blanket of blocks uses whole blocks of them.
        budget: about how many cells the count vector is bundled into; more are tighter and slower.
        tail: mass that may be cut off; all of it is added to delta.
    """
    cells = multinomial_cells(clients // blanket.block, blanket.masses, blanket.variances, budget=budget, tail=tail)
    bounds = sum_bounds(blanket.shapes, cells.counts, tail=min(1e-3 * tail, 1e-19))
    outside = cells.lost + float(cells.probability @ bounds.outside)
    return Noise(probability=cells.probability, low=bounds.low, high=bounds.high, outside=outside * (1 + 1e-9))


def spread(pmfs: FloatArray, row: FloatArray) -> FloatArray:
    """Each pmf convolved with a row: (cells, width + span)."""
    result = np.zeros((pmfs.shape[0], pmfs.shape[1] + row.size - 1))
    for i in np.flatnonzero(row).tolist():
        result[:, i : i + pmfs.shape[1]] += row[i] * pmfs
    return result


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PairLoss:
    """Privacy losses of one ordered pair of rows under a noise: atoms with loss > 0 only.

    Arguments:
        losses: (atoms,) log of first over second, from above.
        first, second: (atoms,) masses, first from above and second from below.
        outside: certain disclosure.
    """

    losses: FloatArray
    first: FloatArray
    second: FloatArray
    outside: float

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Upper bounds on the hockey-stick divergence at an increasing grid of epsilon >= 0."""
        cells = np.searchsorted(epsilons, self.losses, side="right")
        count = epsilons.size + 1
        first = np.bincount(cells, weights=self.first, minlength=count)[::-1].cumsum()[::-1][1:]
        second = np.bincount(cells, weights=self.second, minlength=count)[::-1].cumsum()[::-1][1:]
        # Both sums err by (atoms) UNIT of themselves at most; the exponential and the difference by 8 UNIT.
        slack = (self.losses.size + count + 16) * UNIT
        with np.errstate(over="ignore", invalid="ignore"):
            lowered = np.where(second > 0, np.exp(epsilons) * second * (1 - slack), 0.0)
        return np.minimum(np.maximum(first * (1 + slack) - lowered, 0.0) + self.outside, 1.0)

    def curve(self, limit: float) -> HockeyStick:
        """The pair's curve on a grid that ends where delta is negligible; from `limit` on delta is 0 if finite."""
        top = min(limit, 64.0)
        grid = np.linspace(0.0, top, BINS + 1)
        deltas = self.deltas(grid)
        for _ in range(2):
            # Each pass ends the grid where the last one saw nothing but the floor.
            above = np.flatnonzero(deltas > deltas[-1] + 1e-18 + 1e-3 * self.outside)
            last = int(above[-1]) if above.size else 0
            if last >= BINS // 2:
                break
            top = float(grid[min(last + 2, BINS)])
            grid = np.linspace(0.0, top, BINS + 1)
            deltas = self.deltas(grid)
        if math.isfinite(limit):
            grid, deltas = (np.append(grid, limit), np.append(deltas, 0.0)) if top < limit else (grid, deltas)
            deltas[grid >= limit] = 0.0
        return HockeyStick(epsilons=grid, deltas=deltas)

    def epsilon(self, delta: float, limit: float) -> float:
        """The least epsilon with bound at most delta, refined once more around the curve's answer."""
        rough = self.curve(limit).epsilon(delta)
        if rough == 0 or math.isinf(rough) or rough >= limit:
            return min(rough, limit)
        grid = np.concatenate([[0.0], np.linspace(rough * 0.97, rough, 257)])
        return min(rough, HockeyStick(epsilons=grid, deltas=self.deltas(grid)).epsilon(delta))


def likelier(noise: Noise, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Masses of what may be likelier under row `first` than under row `second`: (atoms,) from above, from below."""
    # Sums of up to span positive products: (span + 2) UNIT, moved against us on both sides.
    slack = (first.size + 4) * UNIT
    upper = (spread(noise.high, first) * (noise.probability * (1 + slack))[:, None]).ravel()
    lower = (spread(noise.low, second) * (noise.probability * (1 - slack))[:, None]).ravel()
    atoms = upper > lower
    return upper[atoms], lower[atoms]


def pair_loss(noise: Noise, first: FloatArray, second: FloatArray) -> PairLoss:
    """Losses of row `first` against row `second` (probabilities on 0..span) under `noise`."""
    upper, lower = likelier(noise, first, second)
    with np.errstate(divide="ignore", over="ignore"):
        # A loss a few ulp too high only moves an atom by that much: the difference it adds is below 4 UNIT of it.
        losses = np.log(upper / lower) * (1 + 4 * UNIT)
    return PairLoss(losses=losses, first=upper, second=lower, outside=noise.outside)


def row_means(rows: FloatArray) -> FloatArray:
    """Mean of every row of probabilities on 0..span, lattice steps."""
    return rows @ np.arange(rows.shape[1], dtype=np.float64)


def pairs_by_gap(rows: FloatArray) -> list[tuple[int, int]]:
    """Ordered pairs of different rows, the largest difference of means first."""
    means = row_means(rows)
    count = rows.shape[0]
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    return sorted(pairs, key=lambda pair: -abs(float(means[pair[0]] - means[pair[1]])))


def screen(noise: Noise, rows: FloatArray, epsilon: float) -> FloatArray:
    """(rows, rows) upper bounds on the hockey-stick divergence of every ordered pair at one epsilon."""
    count, slack = rows.shape[0], (rows.shape[1] + 8) * UNIT
    factor = math.exp(epsilon) * (1 - slack)
    result = np.zeros((count, count))
    upper = [spread(noise.high, row) * (1 + slack) for row in rows]
    for j in range(count):
        lower = spread(noise.low, rows[j]) * factor
        for i in range(count):
            if i != j:
                gain = upper[i] - lower
                np.maximum(gain, 0.0, out=gain)
                result[i, j] = noise.probability @ gain.sum(axis=1) * (1 + gain.size * UNIT) + noise.outside
    return result


def as_probabilities(rows: IntArray) -> FloatArray:
    """Integer rows over 2**32: exact."""
    return rows / 2.0**32
