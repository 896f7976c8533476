"""Slow, obvious twins of the design room: loops for the programs, HiGHS for the solver, numbers by brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq
from scipy import integrate, optimize


def loss_integrals(knots: Any, levels: Any, density: Any, loss: str) -> np.ndarray:
    """Cost of each table entry by adaptive quadrature: integral of density * hat function * loss."""
    knots, levels = list(map(float, knots)), list(map(float, levels))
    costs = np.zeros((len(knots), len(levels)))
    for k, i in itertools.product(range(len(knots)), range(len(levels))):
        for a, b, rises in ((k - 1, k, True), (k, k + 1, False)):
            if a < 0 or b >= len(knots) or knots[a] == knots[b]:
                continue
            left, right = knots[a], knots[b]

            def integrand(
                x: float, left: float = left, right: float = right, rises: bool = rises, i: int = i
            ) -> float:
                t = (x - left) / (right - left)
                error = abs(levels[i] - x)
                return density(x) * (t if rises else 1 - t) * (error**2 if loss == "mse" else error)

            kinks = [level for level in levels if left < level < right]
            ends = [left, *kinks, right]
            costs[k, i] += sum(
                integrate.quad(integrand, *pair)[0] for pair in itertools.pairwise(ends)
            )
    return costs


def linear_program(
    costs: np.ndarray,
    knots: Any,
    levels: Any,
    epsilon: float,
    *,
    max_bias: float = 0.0,
    delta: float = 0.0,
    method: str = "highs",
    pairs: Any = None,
) -> tuple[float, np.ndarray]:
    """The table program written out constraint by constraint, all ordered pairs of rows, solved by HiGHS.

    `pairs`: None, or a mapping (a, b) -> largest ratio P[a, i] / P[b, i] instead of e**epsilon on all pairs.
    """
    rows, columns = costs.shape
    entries, size = rows * columns, rows * columns
    ordered = list(itertools.permutations(range(rows), 2))
    if delta > 0:
        size += len(ordered) * columns
    a_ub, b_ub, a_eq, b_eq = [], [], [], []
    for k in range(rows):
        mass, mean = np.zeros(size), np.zeros(size)
        mass[k * columns : (k + 1) * columns] = 1
        mean[k * columns : (k + 1) * columns] = levels
        a_eq.append(mass)
        b_eq.append(1.0)
        if max_bias == 0:
            a_eq.append(mean)
            b_eq.append(knots[k])
        elif math.isfinite(max_bias):
            a_ub += [mean, -mean]
            b_ub += [knots[k] + max_bias, max_bias - knots[k]]
    for number, (a, b) in enumerate(ordered):
        total = np.zeros(size)
        for i in range(columns):
            row = np.zeros(size)
            row[a * columns + i] = 1
            if pairs is not None:
                if (a, b) not in pairs:
                    continue
                row[b * columns + i] = -pairs[a, b]
            else:
                row[b * columns + i] = -math.exp(epsilon)
            if delta > 0:
                slack = entries + number * columns + i
                row[slack], total[slack] = -1, 1
            a_ub.append(row)
            b_ub.append(0.0)
        if delta > 0:
            a_ub.append(total)
            b_ub.append(delta)
    target = np.zeros(size)
    target[:entries] = costs.ravel()
    answer = optimize.linprog(
        target,
        A_ub=np.array(a_ub),
        b_ub=b_ub,
        A_eq=np.array(a_eq),
        b_eq=b_eq,
        bounds=(0, None),
        method=method,
    )
    if answer.status == 2:
        return math.inf, np.zeros((rows, columns))
    assert answer.status == 0, answer.message
    return float(answer.fun), answer.x[:entries].reshape(rows, columns)


def floor_program(
    costs: np.ndarray, knots: Any, levels: Any, epsilon: float, method: str = "highs"
) -> float:
    """The same optimum with one floor variable per level instead of all pairs: small enough for larger tables."""
    rows, columns = costs.shape
    size = rows * columns + columns
    ratio = math.exp(epsilon)
    a_eq = np.zeros((2 * rows, size))
    for k in range(rows):
        a_eq[2 * k, k * columns : (k + 1) * columns] = 1
        a_eq[2 * k + 1, k * columns : (k + 1) * columns] = levels
    floor = np.tile(np.eye(columns), (rows, 1))
    a_ub = np.block([[-np.eye(rows * columns), floor], [np.eye(rows * columns), -ratio * floor]])
    answer = optimize.linprog(
        np.concatenate([costs.ravel(), np.zeros(columns)]),
        A_ub=a_ub,
        b_ub=np.zeros(2 * rows * columns),
        A_eq=a_eq,
        b_eq=np.ravel(np.column_stack([np.ones(rows), knots])),
        method=method,
    )
    return float(answer.fun) if answer.status == 0 else math.inf


def two_level_epsilon(bottom: float, top: float, lower: float, upper: float) -> float:
    """Pure epsilon of the unbiased mechanism on two levels: the larger of the two outcomes' log-ratios."""
    low, high = (lower - bottom) / (top - bottom), (upper - bottom) / (top - bottom)
    return max(math.log(high / low), math.log((1 - low) / (1 - high)))


def continuous_dual(r: Any, ratio: float, points: Any) -> float:
    """min over `points` of sum_k [r_k(B)^+ - ratio r_k(B)^-], for a function r: B -> array."""
    values = [np.where(r(b) >= 0, r(b), ratio * r(b)).sum() for b in points]
    return float(min(values))


def metric_losses(mechanism: Any, inputs: Any) -> np.ndarray:
    """(n, n) largest log-ratio over levels of the pmfs at all pairs of inputs."""
    pmf = mechanism.pmf(np.asarray(inputs))
    used = pmf.max(axis=0) > 0
    logs = np.log(pmf[:, used])
    return (logs[:, None, :] - logs[None, :, :]).max(axis=2)


def grid_of_bins(bins: Any, q2: float, epsilon: float, resolution: int) -> float:
    """Best MAE over the pair-selection family at four symmetric bins by a grid over q_3 at one q_2(1); inf if none."""
    best = math.inf
    inner, outer = abs(float(bins[1])), abs(float(bins[0]))
    for a, b in itertools.product(range(resolution + 1), repeat=2):
        if a + b > resolution:
            continue
        q3 = (a / resolution, b / resolution, 1 - (a + b) / resolution)
        p = pair_pmf([-outer, -inner, inner, outer], (1.0,), (q2, 1 - q2), q3)
        ends = [(-1.0, 0), (-inner, 0), (-inner, 1), (inner, 1), (inner, 2), (1.0, 2)]
        rows = np.array([p(x, cell) for x, cell in ends])
        if (rows < 1e-12).any() or math.log((rows.max(axis=0) / rows.min(axis=0)).max()) > epsilon:
            continue
        levels = np.array([-outer, -inner, inner, outer])
        total = 0.0
        for left, right, cell in ((-1.0, -inner, 0), (-inner, inner, 1), (inner, 1.0, 2)):
            for node, weight in zip(*np.polynomial.legendre.leggauss(4), strict=True):
                x = (left + right) / 2 + (right - left) / 2 * node
                total += weight * (right - left) / 2 * float(p(x, cell) @ np.abs(levels - x)) / 2
        best = min(best, total)
    return best


def pair_pmf(bins: Any, *selection: Any) -> Any:
    """p(x, cell) of symmetric pair selection straight from Algorithm 1, q_1, q_2, ... given outermost first."""

    def pmf(x: float, cell: int) -> np.ndarray:
        m, j = len(bins), cell + 1
        result = np.zeros(m)
        for left, right in itertools.product(range(j), range(j, m)):
            chance = selection[j - 1][left] * selection[m - j - 1][m - 1 - right]
            up = (x - bins[left]) / (bins[right] - bins[left])
            result[left] += chance * (1 - up)
            result[right] += chance * up
        return result

    return pmf


def _rational(value: Any) -> Any:
    """The same number as flint computes with, ten times as fast."""
    return fmpq(*Fraction(value).as_integer_ratio())


def check_levels_proof(proof: dict[str, Any]) -> Any:
    """The bound of a proof over all level sets, checked in exact rationals alone; raises if it does not follow.

    A twin written from docs/proofs/design.md, "A proof on paper": cells of the axis, the least value of every cut in
    each of them, then a search for `levels` cells that meet every cut.
    """
    stated, proof = proof["statement"], proof["proof"]
    count, bound = stated["levels"], _rational(stated["value"])
    ratio = _rational(math.exp(float(Fraction(stated["epsilon"])))) * (1 + fmpq(1, 2**50))
    unit = fmpq(1, 2 ** proof["scale"])
    axis = [value * unit for value in proof["axis"]]
    reach = 1 + 2 / (ratio - 1)
    far = 10**9
    cells = list(itertools.pairwise([-far, *axis, far]))
    masks = [0] * len(cells)
    cuts = 0
    for cut in proof["cuts"]:
        edges = [value * unit for value in cut["edges"]]
        roots = [(min(pair) * unit, max(pair) * unit) for pair in cut["roots"]]
        ends = [(c * unit, s * unit) for c, s in cut["ends"]]
        assert (edges[0], edges[-1]) == (-1, 1)
        assert all(a < b for a, b in itertools.pairwise(edges))
        weights = [(b - a) / 2 for a, b in itertools.pairwise(edges)]
        centres = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
        constant = sum(
            w * (c * (p + q) - p * q) for w, c, (p, q) in zip(weights, centres, roots, strict=True)
        )
        constant -= fmpq(1, 3) + (ends[0][0] - ends[0][1]) + (ends[1][0] + ends[1][1])
        turns = sorted({*itertools.chain(*roots), *(-c / s for c, s in ends if s)})

        def least(
            low: Any,
            high: Any,
            turns: Any = turns,
            roots: Any = roots,
            weights: Any = weights,
            ends: Any = ends,
        ) -> Any:
            points = [low, *(t for t in turns if low < t < high), high]
            best = None
            for a, b in itertools.pairwise(points):
                middle = (a + b) / 2
                factors = [
                    w * (ratio if p < middle < q else 1)
                    for w, (p, q) in zip(weights, roots, strict=True)
                ]
                rows = [ratio if c + s * middle < 0 else 1 for c, s in ends]
                two = sum(factors)
                one = -sum(f * (p + q) for f, (p, q) in zip(factors, roots, strict=True))
                one += sum(r * s for r, (_, s) in zip(rows, ends, strict=True))
                zero = sum(f * p * q for f, (p, q) in zip(factors, roots, strict=True))
                zero += sum(r * c for r, (c, _) in zip(rows, ends, strict=True))
                for x in (a, b, min(max(-one / (2 * two), a), b)):
                    value = (two * x + one) * x + zero
                    best = value if best is None else min(best, value)
            return best

        values = [least(low, high) for low, high in cells]
        # Beyond the last cell g only grows: there its slope has the sign of its leading terms.
        for side in (values, values[::-1]):  # the mirror image of a cut is a cut
            for index, value in enumerate(side):
                if constant + bound / (bound + fmpq(1, 3)) * min(fmpq(0), value) < bound:
                    masks[index] |= 1 << cuts
            cuts += 1
    for low in (True, False):
        for index, (a, b) in enumerate(cells):
            if (a <= -reach) if low else (b >= reach):
                masks[index] |= 1 << cuts
        cuts += 1
    useful = sorted(set(masks), key=int.bit_count, reverse=True)
    useful = [
        m for k, m in enumerate(useful) if not any(m | other == other for other in useful[:k])
    ]

    def can_meet(missing: int, left: int) -> bool:
        if missing == 0:
            return True
        if left == 0:
            return False
        bit = missing & -missing
        return any(can_meet(missing & ~mask, left - 1) for mask in useful if mask & bit)

    assert not can_meet((1 << cuts) - 1, count), "some set of levels meets every cut"
    return Fraction(stated["value"])
