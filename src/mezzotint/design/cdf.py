"""Tables for distributions: which reports are most informative about the shares of cells of inputs.

A column of an epsilon-private table on cells is a mixture of columns with two values 1 :
e**epsilon. For given such columns the Fisher information is linear in how often they are used, so
that the variances of the shares are convex in
it: one program, no local optima. docs/proofs/design.md, "Distributions".

Tables for the entire shape of a distribution: how they are compared, and which is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import by_name, check_count, check_epsilon
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism, cdf_variance
from mezzotint.core.rounding import round_rows
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray
from mezzotint.design.problem import (
    DesignResult,
    FloatDesign,
    Problem,
    check_knots,
    first_certified,
    record,
)
from mezzotint.families.categories import square_wave

Sets = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]

MOST_CELLS = 64
_ALL, _PAIRS = 12, 24
"""Up to these numbers of cells all columns are tried, or all that favour one or two intervals."""
_STEPS = 200
_TARGET = 1e-9
RARE = 1e-6
"""Reports less frequent than this are left out."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Use:
    """How often (n,) each column is used, prices (K,) of the rows' sums, Fisher information (K, K),
    a bound.
    """

    often: FloatArray
    prices: FloatArray
    information: FloatArray
    bound: float
    steps: int


@final
class ColumnProgram:
    """How often each column is used: minimises the mean variance, by a primal-dual interior-point
    method.

    Arguments:
        sets: (n, K) which cells are likelier under each column.
        shares: (K,) of the inputs.
        known: (K, K) information about the shares from elsewhere, per report, such as a prior's;
            None for none.
    """

    def __init__(
        self, sets: Sets, shares: FloatArray, epsilon: float, known: FloatArray | None = None
    ) -> None:
        # Symmetric around 1: the same columns, scaled.
        self.columns = np.exp(np.where(sets, epsilon / 2, -epsilon / 2))
        self.chances, self.below = self.columns @ shares, np.tri(shares.size)[:-1]
        self.scaled = self.columns / np.sqrt(self.chances)[:, None]
        self.offset = float(((self.below @ shares) ** 2).sum()) / len(self.below)
        self.sets = sets
        self.known = np.zeros((shares.size, shares.size)) if known is None else known

    def slopes(self, information: FloatArray) -> FloatArray:
        """(n,) derivatives of the mean second moment by the use of each column."""
        decoded = self.scaled @ np.linalg.solve(information, self.below.T)
        return -(decoded**2).sum(axis=1) / len(self.below)

    def bound(self, rest: float, slopes: FloatArray, prices: FloatArray) -> float:
        """A lower bound that no use of these columns can beat, from any multipliers of the rows'
        sums.

        The second moment is convex: at least its tangent rest + slopes @ often, whose least value
            over all tables is
        a linear program with `prices` for its dual.
        """
        excess = float(((self.columns @ prices - slopes) / self.columns.sum(axis=1)).max())
        return rest + float(prices.sum()) - prices.size * max(0.0, excess) - self.offset

    def solve(self) -> Use:
        """The best use of these columns; InfeasibleError if no mixture has rows that sum to 1 and
        tell cells apart.
        """
        columns, count = self.columns, len(self.columns)
        often: FloatArray = np.full(count, columns.shape[1] / columns.sum())
        prices: FloatArray = np.zeros(columns.shape[1])
        slack: FloatArray = np.ones(count)
        best = -math.inf
        for step in range(_STEPS):
            information = self.known + (self.scaled * often[:, None]).T @ self.scaled
            try:
                half, slopes = np.linalg.solve(information, self.scaled.T), self.slopes(information)
                decoded = (self.below @ half).T
                linear = -float(slopes @ often)
                value = float(
                    (self.below.T * np.linalg.solve(information, self.below.T)).sum()
                ) / len(self.below)
                curve = 2 * (self.scaled @ half) * (decoded @ decoded.T) / len(self.below)
                slack = np.full(count, value / often.sum()) if step == 0 else slack
                missing = 1 - columns.T @ often
                feasible = float(np.abs(missing).max()) < 1e-10
                best = max(best, self.bound(value + linear, slopes, prices))
                if feasible and value - self.offset - best <= _TARGET * value:
                    return Use(
                        often=often, prices=prices, information=information, bound=best, steps=step
                    )
                target = (0.1 if feasible else 0.3) * float(slack @ often) / count
                right = columns @ prices - slopes + target / often
                move, change = _newton(curve + np.diag(slack / often), columns, right, missing)
            except np.linalg.LinAlgError:
                break
            slide = target / often - slack - slack / often * move
            if not np.isfinite(move).all():
                break
            length = min(
                1.0, 0.95 / max(1e-300, float((-move / often).max()), float((-slide / slack).max()))
            )
            often, slack, prices = (
                often + length * move,
                slack + length * slide,
                prices + length * change,
            )
        raise InfeasibleError(
            f"levels={count}: these columns make no table that tells the cells apart; allow more"
        )

    def rows(self, rare: float = -1.0) -> FloatArray:
        """(K, n) the pmf of a report from each cell, without the reports that are no more frequent
        than `rare`.
        """
        often = self.solve().often
        rows = (self.columns * often[:, None])[often * self.chances > rare].T
        return rows / rows.sum(axis=1, keepdims=True)


def _newton(
    curve: Floats, columns: Floats, right: Floats, missing: Floats
) -> tuple[Floats, Floats]:
    """(move, change) with curve @ move = right + columns @ change and columns.T @ move =
    missing.
    """
    both = np.linalg.solve(curve, np.column_stack([right, columns]))
    change = np.linalg.solve(columns.T @ both[:, 1:], missing - columns.T @ both[:, 0])
    return both[:, 0] + both[:, 1:] @ change, change


def intervals(cells: int) -> Sets:
    """(n, cells) which cells are likelier under a report: every interval but the full range; single
    cells first.
    """
    index = np.arange(cells)
    parts = [
        (index >= a) & (index < a + length)
        for length in range(1, cells)
        for a in range(cells - length + 1)
    ]
    return np.array(parts)


def candidates(cells: int) -> tuple[Sets, str]:
    """The columns to choose among, and the class of tables that they make."""
    if cells <= _ALL:
        every = np.arange(1, 2**cells - 1)
        return (every[:, None] >> np.arange(cells)) & 1 > 0, "all mechanisms on these cells"
    single = intervals(cells)
    if cells > _PAIRS:
        return single, "tables on these cells whose reports each favour an interval of cells"
    pairs = [single | other for other in single]
    scope = "tables on these cells whose reports each favour one or two intervals of cells"
    return np.unique(np.concatenate(pairs), axis=0), scope


def _informed(
    shares: FloatArray,
    edges: FloatArray,
    epsilon: float,
    levels: int,
    known: FloatArray | None = None,
) -> tuple[Mechanism, FloatDesign]:
    """The most informative table of at most `levels` reports, >= K, about the cells' shares, and a
    bound over others.

    `known` information (K, K) is as in `ColumnProgram`.
    """
    sets, often, bound, scope, steps = _best(shares, epsilon, known)
    sets, more = _fewer(sets, often, shares, epsilon, levels, known)
    mechanism = stepped(
        lambda less: ColumnProgram(sets, shares, less, known).rows(), shares, edges, epsilon
    )
    return mechanism, FloatDesign(lower_bound=bound, scope=scope, iterations=steps + more)


def _best(
    shares: FloatArray, epsilon: float, known: FloatArray | None
) -> tuple[Sets, FloatArray, float, str, int]:
    """The best columns and how often each is used, a bound over all candidates, its scope, and
    steps.
    """
    pool, scope = candidates(shares.size)
    everything, sets, best, steps = (
        ColumnProgram(pool, shares, epsilon, known),
        intervals(shares.size),
        -math.inf,
        0,
    )
    while True:
        program = ColumnProgram(sets, shares, epsilon, known)
        use = program.solve()
        steps += use.steps
        slopes = everything.slopes(use.information)
        value = -float(program.slopes(use.information) @ use.often)
        best = max(best, everything.bound(2 * value, slopes, use.prices))
        excess = everything.columns @ use.prices - slopes
        worst = np.argsort(-excess)[: 3 * shares.size]
        worst = worst[excess[worst] > 1e-12 * value]
        if value - everything.offset - best <= _TARGET * 10 * value or not worst.size:
            return sets, use.often, best, scope, steps
        kept = use.often * program.chances > 1e-3 * RARE
        kept[: shares.size] = True
        sets = np.concatenate([sets[kept], pool[worst]])


def _fewer(
    sets: Sets,
    often: FloatArray,
    shares: FloatArray,
    epsilon: float,
    most: int,
    known: FloatArray | None,
) -> tuple[Sets, int]:
    """At most `most` of the columns: the least used are left out, a few at a time; and steps."""
    single, steps = intervals(shares.size)[: shares.size], 0
    # A report too rare for its units of 2**-32 to show the ratio is left out.
    least = max(RARE, 64 * math.exp(epsilon) / TOTAL)
    try:
        while True:
            use = often * ColumnProgram(sets, shares, epsilon, known).chances
            kept = use > least
            if kept.sum() > most:
                kept &= (
                    use
                    > np.sort(use[kept])[min(int(0.08 * kept.sum()), int(kept.sum()) - most - 1)]
                )
            if kept.all():
                break
            if kept.sum() < shares.size:
                return single, steps
            sets = sets[kept]
            found = ColumnProgram(sets, shares, epsilon, known).solve()
            often, steps = found.often, steps + found.steps
    except InfeasibleError:
        return single, steps
    few, response = (
        ColumnProgram(chosen, shares, epsilon, known).solve().bound for chosen in (sets, single)
    )
    return sets if few < response else single, steps


def _levels(rows: FloatArray, shares: FloatArray, centres: FloatArray) -> FloatArray:
    """Decoded values, unbiased for the middle of the input's cell, with the least variance."""
    # Of all that decode the middles, by the singular values of rows scaled to unit variances.
    scale = np.sqrt(shares @ rows)
    return np.linalg.lstsq(rows / scale, centres)[0] / scale


def stepped(
    rows_at: Callable[[float], FloatArray],
    shares: FloatArray,
    edges: FloatArray,
    epsilon: float,
    *,
    name: str = "optimal for distributions",
) -> Mechanism:
    """The certified table with rows constant in the cells between edges, decoded without bias for
    the cells' middles.

    `rows_at` gives (K, n) rows for an epsilon, which is lowered until the rounded rows keep the one
    requested.
    """
    centres = (edges[1:] + edges[:-1]) / 2

    def build(less: float) -> Mechanism:
        rows = rows_at(less)
        values = _levels(rows, shares, centres)
        order = np.argsort(values, kind="stable")
        # Reports whose values are the same stay different reports.
        apart = 1e-9 * float(np.ptp(values)) * np.arange(order.size, dtype=np.float64)
        # Means are nothing to keep: any values with distances of 1 do.
        weights = round_rows(rows[:, order], levels=np.arange(order.size), epsilon=epsilon)
        outputs = np.maximum.accumulate(values[order] - apart) + 2 * apart
        return Mechanism(
            knots=np.concatenate([edges[:1], np.repeat(edges[1:-1], 2), edges[-1:]]),
            levels=np.asarray(outputs, dtype=np.float64),
            weights=np.repeat(weights, 2, axis=0),
            name=name,
        )

    return first_certified(build, epsilon=epsilon)


def design_cells(
    problem: Problem, levels: npt.ArrayLike, knots: npt.ArrayLike | None, *, started: float
) -> DesignResult:
    """The table for the distribution of its inputs: see `optimal`, loss "cdf"."""
    if not problem.is_pure or problem.max_bias:
        raise ParameterError(
            "loss", "cdf", "tables for distributions are for pure epsilon, without max_bias"
        )
    if (
        isinstance(levels, bool)
        or not isinstance(levels, int | np.integer)
        or not 2 <= levels <= MAX_LEVELS
    ):
        raise ParameterError(
            "levels", levels, 'with loss="cdf" give the largest number of different reports'
        )
    if knots is None:
        many = math.exp(problem.epsilon) >= 3 * levels
        knots = min(MOST_CELLS, max(2, int(levels) if many else int(levels) // 2)) + 1
    edges = np.unique(check_knots(knots, problem))
    cells = edges.size - 1
    if not 2 <= cells <= min(levels, MOST_CELLS):
        remedy = f"need the edges of 2 to {min(int(levels), MOST_CELLS)} cells: fewer reports do not tell them apart"
        raise ParameterError("knots", cells + 1, remedy)
    # A cell without inputs must still be distinguished.
    shares = np.maximum(problem.prior.moments(edges)[:, 0], RARE)
    shares /= shares.sum()
    mechanism, draft = _informed(shares, edges, problem.epsilon, int(levels))
    loss = cdf_variance(mechanism.probabilities[::2], shares)
    if not math.isfinite(loss):
        raise InfeasibleError(
            f"epsilon={problem.epsilon:g}: weights of 2**-32 do not tell the cells apart; raise it"
        )
    return record(problem, draft, mechanism, started=started, loss=loss)


def interpolated(mechanism: Mechanism) -> Mechanism:
    """Makes a table for cells continuous: its rows move to the middles of the cells and are mixed
    in between.

    For columns whose distribution is spread inside the cells: reports then say something about
    where. Shares of the cells are no longer distinguished exactly (their intervals grow), and the
    mean is nearly unbiased.

    Arguments:
        mechanism: a stepped table, as `optimal` makes with loss="cdf": rows in equal pairs around
            each inner edge.

    Returns: a table on the middles of the cells, with the same epsilon.

    Raises:
        ParameterError: another table.

    Guarantees: the same rows, hence the same epsilon.

    Example:
        >>> cells = mz.families.square_wave(outputs=8, epsilon=1.0)
        >>> smooth = mz.design.interpolated(mz.design.optimal(1.0, loss="cdf", levels=8).mechanism)
        >>> smooth.epsilon <= 1.0
        True
    """
    knots, weights = mechanism.knots, mechanism.weights
    stepped = (
        knots.size % 2 == 0
        and (knots[1:-1:2] == knots[2::2]).all()
        and (weights[::2] == weights[1::2]).all()
    )
    if not stepped:
        remedy = 'has no constant rows between jumps; design it with loss="cdf"'
        raise ParameterError("mechanism", mechanism.name, remedy)
    return Mechanism(
        knots=np.concatenate([knots[:1], (knots[::2] + knots[1::2]) / 2, knots[-1:]]),
        levels=mechanism.levels,
        weights=np.concatenate([weights[:1], weights[::2], weights[-1:]]),
        name=f"{mechanism.name}, interpolated",
    )


_FINE = 128
_ROUGHNESS = 100
"""Cells of the expected shapes, and how even these are: the total concentration of their Dirichlet
prior.
"""
_EVENER = 3
"""By how much evener shapes are expected where rows of cells are mixed afterwards, which blurs
narrow windows most.
"""


def shape_error(mechanism: Mechanism, *, reports: int = 50_000) -> float:
    """Expected error of the best linear estimate of the distribution function, as a share of the
    range.

    The mean absolute error over the inputs, about a Wasserstein-1 distance, where the shares of 128
    cells have a Dirichlet prior around even ones, of 100 observations. Unlike `loss` "cdf" it also
    compares tables that do
    not identify the cells exactly: what they leave open is weighted by the prior.

    Arguments:
        mechanism: any table of numbers.
        reports: how many reports the estimate uses, >= 1.

    Returns: the error, in [0, 1]; infinite where the table does not tell the cells apart.

    Example:
        >>> round(mz.design.shape_error(mz.design.for_shape(1.0, levels=16), reports=10_000), 4)
        0.0155
    """
    inputs = mechanism.lower + (np.arange(_FINE) + 0.5) / _FINE * (
        mechanism.upper - mechanism.lower
    )
    rows, shares = mechanism.pmf(inputs), np.full(_FINE, 1 / _FINE)
    prior = (np.diag(shares) - np.outer(shares, shares)) / (_ROUGHNESS + 1)
    pmf, seen = shares @ rows, prior @ rows
    noise = (np.diag(pmf) - np.outer(pmf, pmf)) / reports
    left = (
        prior - seen @ np.linalg.pinv(noise + rows.T @ seen, rcond=1e-12, hermitian=True) @ seen.T
    )
    below = np.tri(_FINE)[:-1]
    variance = np.einsum("ij,jk,ik->i", below, left, below)
    return float(np.sqrt(np.maximum(0, variance)).mean() * math.sqrt(2 / math.pi))


@by_name
def for_shape(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int = 32,
    reports: int = 50_000,
) -> Mechanism:
    """The best table for the entire shape of a distribution that this release knows, by
    `shape_error`.

    Arguments:
        epsilon: pure, of one report.
        lower, upper: range of the inputs, data units.
        levels: largest number of different reports, 3 to 1024.
        reports: roughly how many reports an estimate will use.

    Returns: the square wave; a table for cells made continuous (`interpolated`); or one of waves of
        several widths, made continuous: whichever is expected to err least. For shares between
            given edges a table with those cells is
        better: `optimal` with loss="cdf".

    Example:
        >>> mechanism = mz.design.for_shape(1.0, levels=16)
        >>> mechanism.epsilon <= 1.0
        True
    """
    epsilon, levels = check_epsilon(epsilon), check_count("levels", levels, least=3, most=1024)
    found = [square_wave(outputs=levels, epsilon=epsilon, lower=lower, upper=upper)]

    def favouring(cells: int) -> Mechanism:
        shares, edges = np.full(cells, 1 / cells), np.linspace(lower, upper, cells + 1)
        return _informed(
            shares, edges, epsilon, levels, _expected(shares, _EVENER * _ROUGHNESS, reports)
        )[0]

    designs = [
        partial(favouring, cells)
        for cells in sorted({min(_MOST_TRIED, levels * part // 16) for part in (11, 16)} - {0, 1})
    ]
    designs += [
        partial(_waves, cells, epsilon, np.linspace(lower, upper, cells + 1), levels, reports)
        for cells in {min(MOST_CELLS, levels // 4), min(MOST_CELLS, levels // 2)}
        if cells >= _FEWEST
    ]
    for design in designs:
        try:
            found.append(interpolated(design()))
        except InfeasibleError:
            continue
    return min(found, key=lambda table: shape_error(table, reports=reports))


_MOST_TRIED = 16
"""Cells of which every interval may be favoured; waves take over where reports allow more."""
_FEWEST = 8
"""Cells of waves."""
_PER_HALVING = 3
"""Widths tried between a width and its half."""


def _expected(shares: FloatArray, observations: int, reports: int) -> FloatArray:
    """(K, K) information per report about the shares of cells in a Dirichlet prior worth this many
    observations.
    """
    return (observations + 1) / reports * (np.diag(1 / shares) - 1)


def _waves(cells: int, epsilon: float, edges: FloatArray, levels: int, reports: int) -> Mechanism:
    """A table whose reports favour windows of few widths that slide over the cells: square waves of
    several widths.

    Under the prior of `shape_error` how often each window is used is a convex program
    (`ColumnProgram`, the prior being information that is known). The least used width is left out
    until few enough reports remain; InfeasibleError if one width makes too many already.
    """
    shares = np.full(cells, 1 / cells)
    known = _expected(shares, _ROUGHNESS, reports)
    widths = sorted(
        {max(2, round(cells * 2 ** (-i / _PER_HALVING))) for i in range(1, 4 * _PER_HALVING)}
    )
    while widths:
        windows = [_windows(cells, width) for width in widths]
        program = ColumnProgram(np.concatenate(windows), shares, epsilon, known)
        use = program.solve().often * program.chances
        if (use > RARE).sum() <= levels:
            # What the rare reports leave missing costs a margin of epsilon.
            return stepped(
                lambda less, sets=program.sets: ColumnProgram(sets, shares, less, known).rows(RARE),
                shares, edges, epsilon, name=f"waves of {len(widths)} widths",
            )  # fmt: skip
        ends = np.cumsum([len(part) for part in windows])
        widths.pop(int(np.argmin(np.add.reduceat(use, np.concatenate([[0], ends[:-1]])))))
    raise InfeasibleError(f"levels={levels}: too few for windows that slide over {cells} cells")


def _windows(cells: int, width: int) -> Sets:
    """(cells + width - 1, cells) every place of a window, also those where it hangs over an end."""
    starts = np.arange(1 - width, cells)[:, None]
    return (np.arange(cells) >= starts) & (np.arange(cells) < starts + width)
