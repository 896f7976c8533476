"""The table and figures of "Smoothed Differential Privacy", and its Theorem 5, recomputed
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from mezzotint import datasets, smoothed
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray
from mezzotint.papers.reproduction import (
    FIT,
    LIMIT,
    ORDER_FIT,
    WORST_CASE,
    Figure,
    Part,
    Reproduction,
    Run,
    Series,
    curves,
    row_part,
)

LOSS = Fraction(1, 500)
ODDS = Fraction(51, 49)
ETA = 1 - LOSS
LABEL = "log10 of delta"

VOTES_2020 = 155_507_476
THIRD_PARTY_2020 = (81_283_501, 74_223_975, 1_870_000)


def table1() -> Reproduction:
    """Table 1: ordinary and smoothed differential privacy of the election of 2020, with and without
    noise.
    """
    vote_setting = {"vertices": _district_shares(), "loss_rate": LOSS, "epsilon": 1.0}
    smoothed_delta = smoothed.expected(n=VOTES_2020, **vote_setting)
    limit_rate = smoothed.asymptotic_rate(**vote_setting)
    published_epsilon = smoothed.published_table1_noise_epsilon(1.0, sampling_rate=ETA)
    proved_epsilon = smoothed.noisy_epsilon(1.0, sampling_rate=ETA)
    # One of ten records is drawn: what the paper states there, and what its noise does at that
    # epsilon.
    small_epsilon = smoothed.published_table1_noise_epsilon(8.0, sampling_rate=Fraction(1, 10))
    noise_ratio = smoothed.published_noise_ratio(8.0)
    noisy_profile = smoothed.profile(
        (1, 9), sampled=1, epsilon=small_epsilon, noise_ratio=noise_ratio
    )
    notion_rows = (
        {
            "notion": "smoothed DP",
            "noise": "none",
            "paper": "(epsilon, exp(-Theta(n)))",
            "ours": f"(1, 10^{smoothed_delta.log10_delta:.2f}), status {smoothed_delta.status}",
            "note": f"n = {VOTES_2020:,}, 0.2 % lost, states and districts of 2020; limit 10^(-{limit_rate:.4g} n)",
        },
        {
            "notion": "DP",
            "noise": "none",
            "paper": "(0, eta)",
            "ours": f"(any, {10**smoothed_delta.log10_worst_case:.6f})",
            "note": "delta is eta at every epsilon, not at 0 only",
        },
        {
            "notion": "DP",
            "noise": "level 1/epsilon",
            "paper": f"(eta epsilon, 0) = ({published_epsilon:.4f}, 0)",
            "ours": f"({proved_epsilon:.4f}, 0), proved",
            "note": "eta epsilon fails at small eta: T = 1 of 10, epsilon = 8: delta = "
            f"10^{noisy_profile.log10_delta:.2f}",
        },
    )
    return Reproduction(
        title="Smoothed DP, Table 1: DP and smoothed DP of the sampling histogram, eta = 0.998",
        note="The smoothed row is a computed value with a certificate; the paper gives its order "
        "only.",
        rows=notion_rows,
    )


# Figures 1 and 3: elections -----------------------------------------------------------------------

ELECTION_CURVES = {
    WORST_CASE: "log10_dp",
    "delta(x)": "log10_delta",
    "utility": "log10_utility",
    "1/n": "log10_one_over_n",
}
"""Legend -> column; ordinary DP is the dashed line, as in the paper."""

THRESHOLDS = (Fraction(1, 2), Fraction(51, 100), Fraction(3, 5))


def election_rows(loss_rate: Fraction, odds: Fraction) -> list[JsonObject]:
    """delta and the adversary's utility of each presidential election, its two strongest candidates
    alone.
    """
    year_rows: list[JsonObject] = []
    for election in datasets.national_elections():
        vote_counts = election.top(2).counts
        profile = smoothed.profile(vote_counts, loss_rate=loss_rate, ratio=odds)
        threshold = odds / (1 + odds)
        utility = smoothed.utility(vote_counts, loss_rate=loss_rate, threshold=threshold)
        year_row = {
            "year": int(election.name),
            "records": profile.records,
            "log10_delta": profile.log10_delta,
            "log10_utility": utility.log10,
            "log10_one_over_n": -math.log10(profile.records),
            "log10_dp": profile.log10_worst_case,
        }
        year_rows.append(year_row)
    return year_rows


def _elections(
    title: str,
    note: str,
    rows: Sequence[JsonObject],
    panel: str,
) -> Reproduction:
    drawn_curves: list[Series] = []
    for curve_name, column_name in ELECTION_CURVES.items():
        drawn_curves += curves(rows, "year", column_name, name=curve_name, panel=panel)
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        series=tuple(drawn_curves),
        x_label="year",
        y_label=LABEL,
    )


def figure1() -> Reproduction:
    """Figure 1: delta(x) and the adversary's utility of the presidential elections, 0.2 % lost, t =
    51 %.
    """
    third_profile = smoothed.profile(THIRD_PARTY_2020, loss_rate=LOSS, ratio=ODDS)
    figure_note = (
        "The paper's curves run from about 1e-8 (1920) to 1e-32 (2020) and stay below 1/n up to "
        "2020; exact here. Top two "
        "candidates only: publishing 1.87 million third-party votes of 2020, too, makes delta "
        f"10^{third_profile.log10_delta:.1f}."
    )
    figure_title = "Smoothed DP, Figure 1: privacy of US presidential elections, 0.2 % of votes lost, threshold 51 %"
    return _elections(figure_title, figure_note, election_rows(LOSS, ODDS), "")


def figure3() -> Reproduction:
    """Figure 3: as Figure 1, for thresholds 0.5, 0.51, 0.6 and 0.01 % or 0.2 % lost."""
    setting_rows: list[JsonObject] = []
    for loss_rate in (Fraction(1, 10_000), LOSS):
        for threshold in THRESHOLDS:
            panel_name = f"t = {float(threshold):g}, {float(100 * loss_rate):g} % lost"
            elections = election_rows(loss_rate, threshold / (1 - threshold))
            setting_rows += [{"panel": panel_name, **year_row} for year_row in elections]
    figure_title = (
        "Smoothed DP, Figure 3: privacy of US presidential elections under other settings"
    )
    figure_note = "At t = 0.5 the ratio e^epsilon is 1: delta is the total variation distance, which falls like n^(-1/2)."
    return _elections(figure_title, figure_note, setting_rows, "{panel}")


# Fits ---------------------------------------------------------------------------------------------


def line_fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Least squares of y in x: slope, height at 0, largest residual."""
    slope, intercept = (float(coefficient) for coefficient in np.polyfit(x, y, 1))
    residual = max(
        abs(coefficient - intercept - slope * position)
        for position, coefficient in zip(x, y, strict=True)
    )
    return slope, intercept, residual


def growth(n: float) -> float:
    """sqrt(n) log10 n: log10 of C(n, sqrt n) is half of it and more."""
    return math.sqrt(n) * math.log10(n)


def fit_lines(series: Sequence[Series], name: str) -> tuple[Series, ...]:
    """The fits of all curves of a panel as one broken line, by least squares in n or in sqrt(n) log
    n.
    """
    lines_by_panel: dict[str, Series] = {}
    for drawn_curve in series:
        positions = drawn_curve.x
        if name == ORDER_FIT:
            positions = tuple(map(growth, drawn_curve.x))
        slope, intercept, _ = line_fit(positions, drawn_curve.y)
        heights = tuple(intercept + slope * position for position in positions)
        earlier_line = lines_by_panel.get(drawn_curve.panel)
        if earlier_line is None:
            lines_by_panel[drawn_curve.panel] = Series(
                panel=drawn_curve.panel,
                name=name,
                x=drawn_curve.x,
                y=heights,
            )
        else:
            line_break = (math.nan,)
            joined_x, joined_y = (
                earlier_line.x + line_break + drawn_curve.x,
                earlier_line.y + line_break + heights,
            )
            lines_by_panel[drawn_curve.panel] = replace(earlier_line, x=joined_x, y=joined_y)
    return tuple(lines_by_panel.values())


def worst_lines(rows: Sequence[JsonObject]) -> tuple[Series, ...]:
    """Ordinary DP, which is the same at every epsilon, in each panel; first, so that it is dashed
    as in the paper.
    """
    first_epsilon_rows = [
        delta_row for delta_row in rows if delta_row["epsilon"] == rows[0]["epsilon"]
    ]
    return curves(first_epsilon_rows, "n", "log10_dp", name=WORST_CASE, panel="{panel}")


# Figures 2 (left) and 4: many votes ---------------------------------------------------------------

EPSILONS = (0.5, 1.0, 2.0, 7.0)
SIZES = (500_000, 1_000_000, 2_000_000, 5_000_000)
"""Multiples of 500, so that 0.2 % of them is a whole number."""
SMALL_SIZES = (100_000, 200_000, 400_000)

DISTRICTS, HISTORY = "districts of 2020", "history since 1920"
SETTINGS = {
    "districts of 2020, 0.2 % lost": (DISTRICTS, LOSS, SIZES[:3]),
    "districts of 2020, 1 % lost": (DISTRICTS, 5 * LOSS, SMALL_SIZES),
    "history since 1920, 0.2 % lost": (HISTORY, LOSS, SIZES[:3]),
    "history since 1920, 1 % lost": (HISTORY, 5 * LOSS, SMALL_SIZES),
}
"""Panel of Figure 4 -> whose shares, rate of loss, numbers of votes."""

PRINTED_DC = Fraction(9446, 10_000)
"""The paper prints 94.46 %; the official count gives 94.467 %. Its figure is compared with its own
number.
"""


def _district_shares() -> tuple[Fraction, ...]:
    shares_by_name = {
        election.name: election.share("Biden")
        for election in (*datasets.state_elections(), *datasets.district_elections())
    }
    return tuple((shares_by_name | {"DC": PRINTED_DC}).values())


def _shares(name: str) -> tuple[Fraction, ...]:
    if name == DISTRICTS:
        return _district_shares()
    return tuple(datasets.party_shares().values())


def vote_row(
    panel: str, shares: Sequence[Fraction], loss_rate: Fraction, epsilon: float, n: int
) -> JsonObject:
    """Smoothed and ordinary delta of n votes."""
    smoothed_delta = smoothed.expected(
        n=n,
        vertices=shares,
        loss_rate=loss_rate,
        epsilon=epsilon,
    )
    return {
        "panel": panel,
        "epsilon": epsilon,
        "n": smoothed_delta.records,
        "log10_delta": smoothed_delta.log10_delta,
        "log10_upper": smoothed_delta.log10_upper,
        "status": smoothed_delta.status,
        "log10_dp": smoothed_delta.log10_worst_case,
    }


def _votes(title: str, note: str, rows: Sequence[JsonObject]) -> Reproduction:
    delta_curves = curves(rows, "n", "log10_delta", name="epsilon = {epsilon:g}", panel="{panel}")
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        series=(*worst_lines(rows), *delta_curves, *fit_lines(delta_curves, FIT)),
        x_label="number of votes n",
        y_label=LABEL,
    )


def figure2_left() -> Reproduction:
    """Figure 2, left: smoothed delta of the 2020 election against the number of votes, 0.2 %
    lost. Its note speaks of four `EPSILONS`, and gives slopes of log10 delta for a million votes.
    """
    vote_shares = _district_shares()
    vote_rows: list[JsonObject] = []
    fitted_slopes: list[str] = []
    limit_slopes: list[str] = []
    for epsilon in EPSILONS:
        epsilon_rows = [
            vote_row("", vote_shares, LOSS, epsilon, vote_count) for vote_count in SIZES
        ]
        fitted_slope, _, _ = line_fit(SIZES, [member["log10_delta"] for member in epsilon_rows])
        limit_rate = smoothed.asymptotic_rate(
            vertices=vote_shares,
            loss_rate=LOSS,
            epsilon=epsilon,
        )
        fitted_slopes.append(f"{1e6 * fitted_slope:.3f}")
        limit_slopes.append(f"{-1e6 * limit_rate:.3f}")
        vote_rows += epsilon_rows
    figure_note = (
        "Certified values; the optimum is all votes from DC. Dashed: DP, whatever epsilon. Dotted: "
        "least squares in n. Both "
        f"as in the paper. Slopes are {', '.join(fitted_slopes)} powers of ten for a million votes at the "
        f"four epsilons; their "
        f"limits are {', '.join(limit_slopes)}. The paper names NE-2 as the other corner of the hull; it "
        f"is NE-3."
    )
    figure_title = (
        "Smoothed DP, Figure 2 (left): smoothed delta, districts of 2020, 0.2 % of votes lost"
    )
    return _votes(figure_title, figure_note, vote_rows)


def figure4() -> Reproduction:
    """Figure 4: smoothed delta for the districts of 2020 and for the history of elections, 0.2 % or
    1 % lost.
    """
    vote_rows = [
        vote_row(panel_name, _shares(shares_name), loss_rate, epsilon, vote_count)
        for panel_name, (shares_name, loss_rate, vote_counts) in SETTINGS.items()
        for epsilon in EPSILONS
        for vote_count in vote_counts
    ]
    figure_note = (
        "The paper does not print its loss ratios; 0.2 % and 1 % are used here. Dashed: DP, "
        "whatever epsilon. Dotted: least "
        "squares in n. Both as in the paper."
    )
    figure_title = "Smoothed DP, Figure 4: smoothed delta for other sets of distributions"
    return _votes(figure_title, figure_note, vote_rows)


def _left_parts(data: str | None) -> tuple[Part, ...]:
    vote_shares = _district_shares()
    return tuple(
        row_part(
            f"epsilon {epsilon:g}", 0.3, partial(vote_row, "", vote_shares, LOSS, epsilon, SIZES[0])
        )
        for epsilon in EPSILONS
    )


def _figure4_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(
            panel_name,
            0.5,
            partial(vote_row, panel_name, _shares(shares_name), loss_rate, 1.0, vote_counts[0]),
        )
        for panel_name, (shares_name, loss_rate, vote_counts) in SETTINGS.items()
    )


# Figures 2 (right) and 5: gradients ---------------------------------------------------------------

GRADIENT_EPSILONS = (0.5, 1.0, 2.0)
RIGHT_SIZES, RIGHT_DRAWS = (64, 100, 196, 400), 8
OTHER_SIZES, OTHER_DRAWS = (64, 100, 144), 4
QUICK_DRAWS = 2
GRADIENT_SEED = 7


def _distributions() -> dict[str, tuple[FloatArray, FloatArray]]:
    gaussian, laplace = smoothed.quantized_gaussian, smoothed.quantized_laplace
    return {
        "": (gaussian(0.0, 0.12), gaussian(0.2, 0.12)),
        "N(0, .15^2), N(.2, .15^2)": (gaussian(0.0, 0.15), gaussian(0.2, 0.15)),
        "N(0, .1^2), N(.2, .1^2)": (gaussian(0.0, 0.1), gaussian(0.2, 0.1)),
        "N(0, .12^2), L(0, .12^2)": (gaussian(0.0, 0.12), laplace(0.0, 0.12)),
        "L(0, .12^2), L(.2, .12^2)": (laplace(0.0, 0.12), laplace(0.2, 0.12)),
    }


_GRADIENT_NOTE = (
    "Means of exact delta(x) over {draws} databases, the worst of three compositions (all of one "
    "distribution, all of the "
    "other, halves); too few for intervals. Dashed: DP, whatever epsilon. Dotted: least squares in n, as "
    "in the paper{second}. In "
    "sqrt(n) log10 n the values are straight: delta is of the order of a power of 1/C(n, sqrt(n)), "
    "so not exp(-Theta(n)). "
    "{fits}It is one coordinate's average; a histogram of 256 levels would have delta = eta, and "
    "so has a batch's whole "
    "gradient as soon as in some coordinate all records but one agree."
)


def gradient_row(
    panel: str,
    epsilon: float,
    n: int,
    draws: int,
) -> JsonObject:
    """Smoothed and ordinary delta of one coordinate's average over a batch of sqrt(n) of n
    records.
    """
    smoothed_delta = smoothed.expected_gradients(
        n=n,
        distributions=_distributions()[panel],
        epsilon=epsilon,
        draws=draws,
        seed=GRADIENT_SEED,
    )
    return {
        "panel": panel,
        "epsilon": epsilon,
        "n": smoothed_delta.records,
        "sampled": smoothed_delta.sampled,
        "log10_delta": smoothed_delta.log10_delta,
        "log10_dp": smoothed_delta.log10_worst_case,
    }


def _gradients(
    panels: Sequence[str],
    sizes: Sequence[int],
    draws: int,
) -> list[JsonObject]:
    return [
        gradient_row(panel_name, epsilon, record_count, draws)
        for panel_name in panels
        for epsilon in GRADIENT_EPSILONS
        for record_count in sizes
    ]


def _gradient_curves(rows: Sequence[JsonObject]) -> tuple[Series, ...]:
    name_pattern = "epsilon = {epsilon:g}"
    return curves(
        rows,
        "n",
        "log10_delta",
        name=name_pattern,
        panel="{panel}",
    )


def _residuals(series: Sequence[Series]) -> str:
    """Largest residuals of the two fits, for each epsilon."""
    residual_words: list[str] = []
    for drawn_curve in series:
        *_, linear = line_fit(drawn_curve.x, drawn_curve.y)
        *_, ordered = line_fit(
            [growth(record_count) for record_count in drawn_curve.x], drawn_curve.y
        )
        residual_words.append(f"{linear:.2f} and {ordered:.2f}")
    return f"Largest residuals at epsilon 0.5, 1, 2: {'; '.join(residual_words)}. "


def figure2_right(run: Run) -> Reproduction:
    """Figure 2, right: smoothed delta of one step of 8-bit gradient descent, batch sqrt(n).

    Arguments:
        run: with `quick` the smallest two sizes, twice.
    """
    batch_sizes, database_draws = RIGHT_SIZES, RIGHT_DRAWS
    if run.quick:
        batch_sizes, database_draws = batch_sizes[:2], QUICK_DRAWS
    gradient_rows = _gradients([""], batch_sizes, database_draws)
    delta_curves = _gradient_curves(gradient_rows)
    figure_note = _GRADIENT_NOTE.format(
        draws=database_draws,
        fits=_residuals(delta_curves),
        second="; dashes and dots: in sqrt(n) log10 n",
    )
    fitted_lines = (*fit_lines(delta_curves, FIT), *fit_lines(delta_curves, ORDER_FIT))
    return Reproduction(
        title="Smoothed DP, Figure 2 (right): SGD with 8-bit gradients, N(0, 0.12^2) and N(0.2, "
        "0.12^2)",
        note=figure_note,
        rows=tuple(gradient_rows),
        series=(*worst_lines(gradient_rows), *delta_curves, *fitted_lines),
        x_label="number of records n",
        y_label=LABEL,
    )


def figure5(run: Run) -> Reproduction:
    """Figure 5: as Figure 2 (right), for four other pairs of distributions.

    Arguments: as of `figure2_right`.
    """
    batch_sizes, database_draws = OTHER_SIZES, OTHER_DRAWS
    if run.quick:
        batch_sizes, database_draws = batch_sizes[:2], QUICK_DRAWS
    gradient_rows = _gradients(list(_distributions())[1:], batch_sizes, database_draws)
    delta_curves = _gradient_curves(gradient_rows)
    figure_note = _GRADIENT_NOTE.format(draws=database_draws, fits="", second="")
    return Reproduction(
        title="Smoothed DP, Figure 5: smoothed delta of SGD with 8-bit gradients, other "
        "distributions",
        note=f"{figure_note} L(mu, sigma^2) is read as the Laplace distribution of variance sigma^2.",
        rows=tuple(gradient_rows),
        # At three sizes the two fits lie on each other.
        series=(*worst_lines(gradient_rows), *delta_curves, *fit_lines(delta_curves, FIT)),
        x_label="number of records n",
        y_label=LABEL,
    )


def _right_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(
            f"epsilon {epsilon:g}",
            1.0,
            partial(gradient_row, "", epsilon, RIGHT_SIZES[0], RIGHT_DRAWS),
        )
        for epsilon in GRADIENT_EPSILONS
    )


def _figure5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(
            panel_name, 1.0, partial(gradient_row, panel_name, 1.0, OTHER_SIZES[0], OTHER_DRAWS)
        )
        for panel_name in list(_distributions())[1:]
    )


# Theorem 5, smoothed ------------------------------------------------------------------------------

THEOREM5_SIZES = (16, 64, 100, 196, 400, 900, 1600)
THEOREM5_VERTICES = (("3/10", "7/10"), ("3/5", "2/5"))
THEOREM5_RATE = math.log10(0.7)


def theorem5_row(n: int) -> JsonObject:
    """T = sqrt n draws with replacement at epsilon 1 + 2 T / n."""
    sample_size = math.isqrt(n)
    smoothed_delta = smoothed.expected(
        n=n,
        vertices=THEOREM5_VERTICES,
        sampled=sample_size,
        epsilon=1 + 2 * sample_size / n,
        sampling="with_replacement",
    )
    return {
        "n": n,
        "sampled": sample_size,
        "epsilon": smoothed_delta.epsilon,
        "log10_delta": smoothed_delta.log10_delta,
        "log10_upper": smoothed_delta.log10_upper,
        "status": smoothed_delta.status,
        "log10_dp": smoothed_delta.log10_worst_case,
    }


def theorem5() -> Reproduction:
    """Theorem 5's smoothed statement: sampling with replacement, delta against n with T = sqrt n
    draws.
    """
    size_rows = [theorem5_row(record_count) for record_count in THEOREM5_SIZES]
    record_counts = tuple(map(float, THEOREM5_SIZES))
    falling = tuple(THEOREM5_RATE * record_count for record_count in record_counts)
    return Reproduction(
        title="Smoothed DP, Theorem 5: sampling with replacement, T = sqrt(n), epsilon = 1 + 2 T / "
        "n",
        note="Distributions (.3, .7) and (.6, .4). The paper proves that delta is exponentially "
        "small in n and draws "
        "nothing. Exact up to 400 records, certified beyond. Only histograms with at most M1 "
        "records of a type have any "
        f"delta, M1 the largest M with (M/(M-1))^T > e^epsilon: so it falls like .7^n, "
        f"{THEOREM5_RATE:.4f} n (dotted).",
        rows=tuple(size_rows),
        series=(
            *curves(size_rows, "n", "log10_dp", name=WORST_CASE),
            *curves(size_rows, "n", "log10_delta", name="smoothed delta"),
            Series(panel="", name=LIMIT, x=record_counts, y=falling),
        ),
        x_label="number of records n",
        y_label=LABEL,
    )


def _theorem5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(f"n = {record_count}", 0.2, partial(theorem5_row, record_count))
        for record_count in THEOREM5_SIZES[:3]
    )


FIGURES = (
    Figure(name="smoothed-table1", compute=table1),
    Figure(name="smoothed-figure1", compute=figure1),
    Figure(name="smoothed-figure2-left", compute=figure2_left, parts=_left_parts),
    Figure(
        name="smoothed-figure2-right",
        compute=figure2_right,
        options=("quick",),
        parts=_right_parts,
    ),
    Figure(name="smoothed-figure3", compute=figure3),
    Figure(name="smoothed-figure4", compute=figure4, parts=_figure4_parts),
    Figure(
        name="smoothed-figure5",
        compute=figure5,
        options=("quick",),
        parts=_figure5_parts,
    ),
    Figure(name="smoothed-theorem5", compute=theorem5, parts=_theorem5_parts),
)
