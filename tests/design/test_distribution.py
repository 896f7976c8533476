"""Tables for distributions: the notes' values, bounds against random tables, the meaning of the loss by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from laws.registry import judges
from mezzotint import InfeasibleError, ParameterError, design, families
from mezzotint.core.mechanism import cdf_variance
from mezzotint.design.cdf import ColumnProgram, intervals
from mezzotint.privacy import verify
from tolerances import GRAIN, KEPT, MANY, SOLVED


def deviations(rows: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Standard deviations at the inner edges by the delta method, edge by edge."""
    pmf = shares @ rows
    inverse = np.linalg.inv(
        sum(np.outer(column, column) / p for column, p in zip(rows.T, pmf, strict=True))
    )
    result = []
    for edge in range(1, shares.size):
        inner = np.arange(shares.size) < edge
        result.append(math.sqrt(inner @ inverse @ inner - shares[:edge].sum() ** 2))
    return np.array(result)


@pytest.mark.parametrize(
    ("cells", "epsilon", "mean", "largest"),
    [
        (8, 1.0, 1.977, 2.063),
        (8, 4.0, 0.492, 0.575),
        (16, 1.0, 2.599, 2.693),
        (16, 4.0, 0.525, 0.621),
    ],
)
def test_intervals_alone_have_the_values_of_the_notes(
    cells: int, epsilon: float, mean: float, largest: float
) -> None:
    shares = np.full(cells, 1 / cells)
    found = deviations(ColumnProgram(intervals(cells), shares, epsilon).rows(), shares)
    assert found.mean() == pytest.approx(mean, abs=1e-3)  # three printed decimals
    assert found.max() == pytest.approx(largest, abs=1e-3)  # three printed decimals
    # What is designed is never worse, and its loss is the mean of these variances.
    result = design.optimal(epsilon, levels=512, knots=cells + 1, loss="cdf")
    rows = result.mechanism.probabilities[::2]
    assert result.loss == pytest.approx((deviations(rows, shares) ** 2).mean(), rel=MANY)
    assert result.loss <= (found**2).mean() * (1 + 1e-7)  # the program's own tolerance, 1e-8
    assert verify(result.mechanism).valid
    assert epsilon * (1 - KEPT) <= result.mechanism.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0, 20.0])
@pytest.mark.parametrize("prior", [None, stats.beta(2, 5, loc=-1, scale=2), [-0.9, 0.2, 0.3]])
def test_no_private_table_on_the_cells_beats_the_bound(epsilon: float, prior: Any) -> None:
    result = design.optimal(epsilon, levels=200, knots=6, loss="cdf", prior=prior)
    assert result.lower_bound is not None
    assert result.gap is not None
    assert result.scope == "all mechanisms on these cells"
    # KEPT of epsilon may be unused; at its ends the solver's last digits go, and the gap says so.
    assert -MANY * result.loss <= result.gap <= (KEPT if 0.1 < epsilon < 5 else 1e-3) * result.loss
    edges = np.linspace(-1, 1, 6)
    known: Any = np.full(5, 0.2)
    if prior is not None:
        known = (
            np.histogram(prior, edges)[0] / 3
            if isinstance(prior, list)
            else np.diff(prior.cdf(edges))
        )
    known = np.maximum(known, 1e-6) / np.maximum(known, 1e-6).sum()
    rng = np.random.default_rng(3)
    for _ in range(60):
        # A random table within the ratio: columns 1 or e**epsilon, and a last one that makes the rows sum to 1.
        columns = np.exp(
            epsilon * (rng.random((int(rng.integers(5, 30)), 5)) < rng.uniform(0.1, 0.9))
        )
        rows = (rng.dirichlet(np.ones(len(columns)))[:, None] * columns).T
        rows /= rows.sum(axis=1, keepdims=True)
        true = np.log(rows.max(axis=0) / rows.min(axis=0)).max()
        if true <= 1e-9:
            continue
        mixed = min(1.0, math.expm1(epsilon) / math.expm1(true)) * 0.999
        # Mixing with constant columns brings the ratio within epsilon.
        rows = mixed * rows + (1 - mixed) * rows.max(axis=0) / rows.max(axis=0).sum()
        rows /= rows.sum(axis=1, keepdims=True)
        if np.log(rows.max(axis=0) / rows.min(axis=0)).max() <= epsilon:
            assert cdf_variance(rows, known) >= result.lower_bound * (1 - MANY)


@judges("design.cdf.ColumnProgram.bound", "design.cdf.ColumnProgram.solve")
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 6.0])
def test_any_prices_at_any_tangent_bound_every_use_of_the_columns(epsilon: float) -> None:
    rng, shares = np.random.default_rng(11), np.array([0.1, 0.3, 0.25, 0.15, 0.2])
    program = ColumnProgram(intervals(5), shares, epsilon)
    use, least = program.solve(), cdf_variance(program.rows(), shares)
    assert use.bound <= least * (1 + MANY)
    assert least == pytest.approx(
        use.bound, rel=1e-7
    )  # the program's own tolerance, 1e-9 of the second moment
    above, tight = 0, 0
    for scale in np.geomspace(1e-9, 10, 60):
        # Near the optimum, where the bound is sharp, and far from it.
        often = use.often * np.exp(scale * rng.normal(size=use.often.size))
        information = (program.scaled * often[:, None]).T @ program.scaled
        slopes = program.slopes(information)
        value = -float(slopes @ often)  # homogeneous of degree -1
        prices = use.prices * np.exp(scale * rng.normal(size=5))
        found = program.bound(2 * value, slopes, prices)
        assert found <= least * (1 + MANY)
        tight += found >= least * (1 - 1e-3)
        # Without the excess, which makes any prices feasible, it would be no bound.
        above += 2 * value + float(prices.sum()) - program.offset > least * (1 + MANY)
    assert tight >= 5
    assert above >= 5


def test_the_loss_is_what_efficient_estimates_of_many_reports_err_by() -> None:
    table = design.optimal(2.0, levels=8, knots=5, loss="cdf").mechanism
    shares, reports = np.full(4, 0.25), 20_000
    rows = table.probabilities[::2]
    pmf = shares @ rows
    decoder = np.linalg.solve((rows / pmf) @ rows.T, rows / pmf)
    rng = np.random.default_rng(5)
    counts = rng.multinomial(reports, pmf, size=4000)
    found = np.cumsum(counts / reports @ decoder.T, axis=1)[:, :-1]
    variance = reports * found.var(axis=0).mean()
    # 3 variances of 4000 draws each: their mean errs by 1.3 %, four of these are allowed.
    assert variance == pytest.approx(
        design.optimal(2.0, levels=8, knots=5, loss="cdf").loss, rel=0.052
    )


def test_fewer_reports_cost_little_and_never_more_than_k_ary_response() -> None:
    losses = [
        design.optimal(1.0, levels=count, knots=17, loss="cdf").loss for count in (512, 64, 32, 16)
    ]
    assert losses == sorted(losses)
    assert losses[2] <= 1.09 * losses[0]
    response = families.k_randomized_response(levels=16, epsilon=1.0)
    shares = np.full(16, 1 / 16)
    assert losses[3] <= cdf_variance(response.probabilities, shares) * (1 + SOLVED)
    # A linear table of 4 levels tells no 8 cells apart.
    assert design.optimal(1.0, levels=[-3, -0.5, 0.5, 3]).mechanism.cdf_error(8) == math.inf


def test_tables_for_distributions_scale_with_the_data_and_know_their_edges() -> None:
    edges = [0.0, 1.0, 10.0, 100.0]
    result = design.optimal(1.0, lower=0.0, upper=100.0, levels=6, knots=edges, loss="cdf")
    assert np.unique(result.mechanism.knots).tolist() == edges
    assert result.mechanism.levels.size <= 6
    # Decoded values are unbiased for the middle of each cell.
    means = [result.mechanism.mean(x) for x in (0.5, 5.5, 55.0)]
    # Up to some units of 2^-32 of levels that span some 1e3.
    assert means == pytest.approx([0.5, 5.5, 55.0], abs=1e-5)
    plain = design.optimal(1.0, levels=16, loss="cdf")
    assert np.unique(plain.mechanism.knots).size == 9
    moved = design.optimal(1.0, levels=16, loss="cdf", lower=1e6, upper=3e6)
    assert moved.loss == pytest.approx(plain.loss, rel=MANY)
    assert np.unique(design.optimal(5.0, levels=16, loss="cdf").mechanism.knots).size == 17


def test_an_interpolated_table_has_the_same_rows_at_the_middles_of_the_cells() -> None:
    stepped = design.optimal(
        1.0, lower=0.0, upper=100.0, levels=6, knots=[0.0, 1.0, 10.0, 100.0], loss="cdf"
    ).mechanism
    table = design.interpolated(stepped)
    assert table.epsilon == stepped.epsilon
    middles = np.array([0.5, 5.5, 55.0])
    assert table.pmf(middles) == pytest.approx(stepped.pmf(middles), abs=0)
    assert table.pmf(np.array([0.0, 100.0])) == pytest.approx(
        stepped.pmf(np.array([0.0, 100.0])), abs=0
    )
    assert table.pmf(np.array([3.0])) == pytest.approx(
        stepped.pmf(middles[:2]).mean(axis=0, keepdims=True), abs=GRAIN
    )
    assert np.diff(table.knots).min() > 0
    with pytest.raises(ParameterError, match="no constant rows between jumps"):
        design.interpolated(table)


def test_compare_shows_both_kinds_of_error() -> None:
    rows = {
        row.family: row
        for row in design.compare(epsilon=1.0, bits=3, families=("optimal", "cdf", "laplace"))
    }
    errors = [getattr(rows[name], "cdf") for name in ("cdf", "optimal")]  # noqa: B009
    assert 1.3 * errors[0] < errors[1] < math.inf
    # Its reports know the cell and not where in it: unbiased for the middle of each.
    assert (rows["cdf"].note, rows["optimal"].note) == ("biased", "")
    assert rows["laplace"].cdf is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"levels": [1, 2, 3]}, "levels"),
        ({"levels": 1}, "levels"),
        ({"delta": 1e-3}, "loss"),
        ({"max_bias": 0.1}, "loss"),
        ({"knots": 2}, "knots"),
        ({"knots": 30}, "knots"),
        ({"prove": True}, "prove"),
    ],
)
def test_what_cannot_be_asked_of_a_table_for_a_distribution_is_named(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        design.optimal(1.0, **{"levels": 8, "loss": "cdf", **options})
    assert caught.value.parameter == named
    with pytest.raises(InfeasibleError, match="allow more"):
        ColumnProgram(intervals(4)[4:6], np.full(4, 0.25), 1.0).solve()


def test_what_is_known_already_counts_in_the_program() -> None:
    """Against a general optimiser, with the information of a prior that is not even."""
    shares, sets = np.array([0.4, 0.3, 0.2, 0.1]), intervals(4)
    root = np.random.default_rng(5).normal(size=(4, 4))
    root -= root @ np.outer(shares, shares) / (shares @ shares)  # nothing about the shares' sum
    known = 0.3 * root.T @ root
    program = ColumnProgram(sets, shares, 1.0, known)
    columns, chances, below = (
        np.where(sets, math.e, 1.0),
        np.where(sets, math.e, 1.0) @ shares,
        np.tri(4)[:-1],
    )

    def variance(often: np.ndarray) -> float:
        information = known + sum(
            use * np.outer(c, c) / p for use, c, p in zip(often, columns, chances, strict=True)
        )
        inverse = np.linalg.inv(information)
        return float(np.mean([row @ inverse @ row - (row @ shares) ** 2 for row in below]))

    sums = {"type": "eq", "fun": lambda often: columns.T @ often - 1}
    start = np.full(len(sets), 4 / columns.sum())
    found = optimize.minimize(
        variance, start, bounds=[(0, None)] * len(sets), constraints=[sums], method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    use = program.solve()
    often = use.often * np.exp(-0.5)  # columns were scaled by it
    assert np.abs(columns.T @ often - 1).max() < 1e-8
    # SLSQP ends at changes of 1e-12, of which a minimum's place is a root: 1e-6. Our bound is a solver's dual, to 1e-8.
    assert variance(often) == pytest.approx(found.fun, rel=1e-6)
    assert use.bound <= variance(often) <= use.bound + 1e-7  # as above
    assert variance(often) < variance(ColumnProgram(sets, shares, 1.0).solve().often * np.exp(-0.5))


def test_epsilons_too_small_for_the_weights_to_tell_cells_apart_are_named() -> None:
    with pytest.raises(InfeasibleError, match="do not tell the cells apart"):
        design.optimal(1e-6, levels=8, loss="cdf")
