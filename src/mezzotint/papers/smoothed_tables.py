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
    setting = {"vertices": _district_shares(), "loss_rate": LOSS, "epsilon": 1.0}
    result = smoothed.expected(n=VOTES_2020, **setting)
    rate = smoothed.asymptotic_rate(**setting)
    published = smoothed.published_table1_noise_epsilon(1.0, sampling_rate=ETA)
    proved = smoothed.noisy_epsilon(1.0, sampling_rate=ETA)
    # One of ten records is drawn: what the paper states there, and what its noise does at that
    # epsilon.
    small = smoothed.published_table1_noise_epsilon(8.0, sampling_rate=Fraction(1, 10))
    noise_ratio = smoothed.published_noise_ratio(8.0)
    broken = smoothed.profile((1, 9), sampled=1, epsilon=small, noise_ratio=noise_ratio)
    rows = (
        {
            "notion": "smoothed DP",
            "noise": "none",
            "paper": "(epsilon, exp(-Theta(n)))",
            "ours": f"(1, 10^{result.log10_delta:.2f}), status {result.status}",
            "note": f"n = {VOTES_2020:,}, 0.2 % lost, states and districts of 2020; limit 10^(-{rate:.4g} n)",
        },
        {
            "notion": "DP",
            "noise": "none",
            "paper": "(0, eta)",
            "ours": f"(any, {10**result.log10_worst_case:.6f})",
            "note": "delta is eta at every epsilon, not at 0 only",
        },
        {
            "notion": "DP",
            "noise": "level 1/epsilon",
            "paper": f"(eta epsilon, 0) = ({published:.4f}, 0)",
            "ours": f"({proved:.4f}, 0), proved",
            "note": "eta epsilon fails at small eta: T = 1 of 10, epsilon = 8: delta = "
            f"10^{broken.log10_delta:.2f}",
        },
    )
    return Reproduction(
        title="Smoothed DP, Table 1: DP and smoothed DP of the sampling histogram, eta = 0.998",
        note="The smoothed row is a computed value with a certificate; the paper gives its order "
        "only.",
        rows=rows,
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
    rows: list[JsonObject] = []
    for election in datasets.national_elections():
        counts = election.top(2).counts
        profile = smoothed.profile(counts, loss_rate=loss_rate, ratio=odds)
        threshold = odds / (1 + odds)
        utility = smoothed.utility(counts, loss_rate=loss_rate, threshold=threshold)
        row = {
            "year": int(election.name),
            "records": profile.records,
            "log10_delta": profile.log10_delta,
            "log10_utility": utility.log10,
            "log10_one_over_n": -math.log10(profile.records),
            "log10_dp": profile.log10_worst_case,
        }
        rows.append(row)
    return rows


def _elections(
    title: str,
    note: str,
    rows: Sequence[JsonObject],
    panel: str,
) -> Reproduction:
    series: list[Series] = []
    for name, column in ELECTION_CURVES.items():
        series += curves(rows, "year", column, name=name, panel=panel)
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        series=tuple(series),
        x_label="year",
        y_label=LABEL,
    )


def figure1() -> Reproduction:
    """Figure 1: delta(x) and the adversary's utility of the presidential elections, 0.2 % lost, t =
    51 %.
    """
    third = smoothed.profile(THIRD_PARTY_2020, loss_rate=LOSS, ratio=ODDS)
    note = (
        "The paper's curves run from about 1e-8 (1920) to 1e-32 (2020) and stay below 1/n up to "
        "2020; exact here. Top two "
        "candidates only: publishing 1.87 million third-party votes of 2020, too, makes delta "
        f"10^{third.log10_delta:.1f}."
    )
    title = "Smoothed DP, Figure 1: privacy of US presidential elections, 0.2 % of votes lost, threshold 51 %"
    return _elections(title, note, election_rows(LOSS, ODDS), "")


def figure3() -> Reproduction:
    """Figure 3: as Figure 1, for thresholds 0.5, 0.51, 0.6 and 0.01 % or 0.2 % lost."""
    rows: list[JsonObject] = []
    for loss_rate in (Fraction(1, 10_000), LOSS):
        for threshold in THRESHOLDS:
            panel = f"t = {float(threshold):g}, {float(100 * loss_rate):g} % lost"
            elections = election_rows(loss_rate, threshold / (1 - threshold))
            rows += [{"panel": panel, **row} for row in elections]
    title = "Smoothed DP, Figure 3: privacy of US presidential elections under other settings"
    note = "At t = 0.5 the ratio e^epsilon is 1: delta is the total variation distance, which falls like n^(-1/2)."
    return _elections(title, note, rows, "{panel}")


# Fits ---------------------------------------------------------------------------------------------


def line_fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Least squares of y in x: slope, height at 0, largest residual."""
    slope, intercept = (float(value) for value in np.polyfit(x, y, 1))
    residual = max(
        abs(value - intercept - slope * place) for place, value in zip(x, y, strict=True)
    )
    return slope, intercept, residual


def growth(n: float) -> float:
    """sqrt(n) log10 n: log10 of C(n, sqrt n) is half of it and more."""
    return math.sqrt(n) * math.log10(n)


def fit_lines(series: Sequence[Series], name: str) -> tuple[Series, ...]:
    """The fits of all curves of a panel as one broken line, by least squares in n or in sqrt(n) log
    n.
    """
    panels: dict[str, Series] = {}
    for curve in series:
        positions = curve.x
        if name == ORDER_FIT:
            positions = tuple(map(growth, curve.x))
        slope, intercept, _ = line_fit(positions, curve.y)
        heights = tuple(intercept + slope * position for position in positions)
        before = panels.get(curve.panel)
        if before is None:
            panels[curve.panel] = Series(
                panel=curve.panel,
                name=name,
                x=curve.x,
                y=heights,
            )
        else:
            gap = (math.nan,)
            x, y = before.x + gap + curve.x, before.y + gap + heights
            panels[curve.panel] = replace(before, x=x, y=y)
    return tuple(panels.values())


def worst_lines(rows: Sequence[JsonObject]) -> tuple[Series, ...]:
    """Ordinary DP, which is the same at every epsilon, in each panel; first, so that it is dashed
    as in the paper.
    """
    first = [row for row in rows if row["epsilon"] == rows[0]["epsilon"]]
    return curves(first, "n", "log10_dp", name=WORST_CASE, panel="{panel}")


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
    shares = {
        election.name: election.share("Biden")
        for election in (*datasets.state_elections(), *datasets.district_elections())
    }
    return tuple((shares | {"DC": PRINTED_DC}).values())


def _shares(name: str) -> tuple[Fraction, ...]:
    if name == DISTRICTS:
        return _district_shares()
    return tuple(datasets.party_shares().values())


def vote_row(
    panel: str, shares: Sequence[Fraction], loss_rate: Fraction, epsilon: float, n: int
) -> JsonObject:
    """Smoothed and ordinary delta of n votes."""
    result = smoothed.expected(
        n=n,
        vertices=shares,
        loss_rate=loss_rate,
        epsilon=epsilon,
    )
    return {
        "panel": panel,
        "epsilon": epsilon,
        "n": result.records,
        "log10_delta": result.log10_delta,
        "log10_upper": result.log10_upper,
        "status": result.status,
        "log10_dp": result.log10_worst_case,
    }


def _votes(title: str, note: str, rows: Sequence[JsonObject]) -> Reproduction:
    lines = curves(rows, "n", "log10_delta", name="epsilon = {epsilon:g}", panel="{panel}")
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        series=(*worst_lines(rows), *lines, *fit_lines(lines, FIT)),
        x_label="number of votes n",
        y_label=LABEL,
    )


def figure2_left() -> Reproduction:
    """Figure 2, left: smoothed delta of the 2020 election against the number of votes, 0.2 %
    lost.
    """
    shares = _district_shares()
    rows: list[JsonObject] = []
    slopes: list[str] = []
    limits: list[str] = []
    for epsilon in EPSILONS:
        members = [vote_row("", shares, LOSS, epsilon, n) for n in SIZES]
        slope, _, _ = line_fit(SIZES, [row["log10_delta"] for row in members])
        rate = smoothed.asymptotic_rate(
            vertices=shares,
            loss_rate=LOSS,
            epsilon=epsilon,
        )
        slopes.append(f"{1e6 * slope:.3f}")
        limits.append(f"{-1e6 * rate:.3f}")
        rows += members
    note = (
        "Certified values; the optimum is all votes from DC. Dashed: DP, whatever epsilon. Dotted: "
        "least squares in n. Both "
        f"as in the paper. Slopes are {', '.join(slopes)} powers of ten for a million votes at the "
        f"four epsilons; their "
        f"limits are {', '.join(limits)}. The paper names NE-2 as the other corner of the hull; it "
        f"is NE-3."
    )
    title = "Smoothed DP, Figure 2 (left): smoothed delta, districts of 2020, 0.2 % of votes lost"
    return _votes(title, note, rows)


def figure4() -> Reproduction:
    """Figure 4: smoothed delta for the districts of 2020 and for the history of elections, 0.2 % or
    1 % lost.
    """
    rows = [
        vote_row(panel, _shares(name), loss_rate, epsilon, n)
        for panel, (name, loss_rate, sizes) in SETTINGS.items()
        for epsilon in EPSILONS
        for n in sizes
    ]
    note = (
        "The paper does not print its loss ratios; 0.2 % and 1 % are used here. Dashed: DP, "
        "whatever epsilon. Dotted: least "
        "squares in n. Both as in the paper."
    )
    title = "Smoothed DP, Figure 4: smoothed delta for other sets of distributions"
    return _votes(title, note, rows)


def _left_parts(data: str | None) -> tuple[Part, ...]:
    shares = _district_shares()
    return tuple(
        row_part(f"epsilon {e:g}", 0.3, partial(vote_row, "", shares, LOSS, e, SIZES[0]))
        for e in EPSILONS
    )


def _figure4_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(panel, 0.5, partial(vote_row, panel, _shares(name), loss_rate, 1.0, sizes[0]))
        for panel, (name, loss_rate, sizes) in SETTINGS.items()
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
    "other, halves); 99 % intervals. Dashed: DP, whatever epsilon. Dotted: least squares in n, as "
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
    result = smoothed.expected_gradients(
        n=n,
        distributions=_distributions()[panel],
        epsilon=epsilon,
        draws=draws,
        seed=GRADIENT_SEED,
    )
    _, low, high = result.confidence or (0.0, -math.inf, 0.0)
    return {
        "panel": panel,
        "epsilon": epsilon,
        "n": result.records,
        "sampled": result.sampled,
        "log10_delta": result.log10_delta,
        "low": low,
        "high": high,
        "log10_dp": result.log10_worst_case,
    }


def _gradients(
    panels: Sequence[str],
    sizes: Sequence[int],
    draws: int,
) -> list[JsonObject]:
    return [
        gradient_row(panel, epsilon, n, draws)
        for panel in panels
        for epsilon in GRADIENT_EPSILONS
        for n in sizes
    ]


def _gradient_curves(rows: Sequence[JsonObject]) -> tuple[Series, ...]:
    name = "epsilon = {epsilon:g}"
    return curves(
        rows,
        "n",
        "log10_delta",
        name=name,
        panel="{panel}",
        ends=("low", "high"),
    )


def _residuals(series: Sequence[Series]) -> str:
    """Largest residuals of the two fits, for each epsilon."""
    words: list[str] = []
    for curve in series:
        *_, linear = line_fit(curve.x, curve.y)
        *_, ordered = line_fit([growth(n) for n in curve.x], curve.y)
        words.append(f"{linear:.2f} and {ordered:.2f}")
    return f"Largest residuals at epsilon 0.5, 1, 2: {'; '.join(words)}. "


def figure2_right(run: Run) -> Reproduction:
    """Figure 2, right: smoothed delta of one step of 8-bit gradient descent, batch sqrt(n).

    Arguments:
        run: with `quick` the smallest two sizes, twice.
    """
    sizes, draws = RIGHT_SIZES, RIGHT_DRAWS
    if run.quick:
        sizes, draws = sizes[:2], QUICK_DRAWS
    rows = _gradients([""], sizes, draws)
    lines = _gradient_curves(rows)
    note = _GRADIENT_NOTE.format(
        draws=draws,
        fits=_residuals(lines),
        second="; dashes and dots: in sqrt(n) log10 n",
    )
    fits = (*fit_lines(lines, FIT), *fit_lines(lines, ORDER_FIT))
    return Reproduction(
        title="Smoothed DP, Figure 2 (right): SGD with 8-bit gradients, N(0, 0.12^2) and N(0.2, "
        "0.12^2)",
        note=note,
        rows=tuple(rows),
        series=(*worst_lines(rows), *lines, *fits),
        x_label="number of records n",
        y_label=LABEL,
    )


def figure5(run: Run) -> Reproduction:
    """Figure 5: as Figure 2 (right), for four other pairs of distributions.

    Arguments: as of `figure2_right`.
    """
    sizes, draws = OTHER_SIZES, OTHER_DRAWS
    if run.quick:
        sizes, draws = sizes[:2], QUICK_DRAWS
    rows = _gradients(list(_distributions())[1:], sizes, draws)
    lines = _gradient_curves(rows)
    note = _GRADIENT_NOTE.format(draws=draws, fits="", second="")
    return Reproduction(
        title="Smoothed DP, Figure 5: smoothed delta of SGD with 8-bit gradients, other "
        "distributions",
        note=f"{note} L(mu, sigma^2) is read as the Laplace distribution of variance sigma^2.",
        rows=tuple(rows),
        # At three sizes the two fits lie on each other.
        series=(*worst_lines(rows), *lines, *fit_lines(lines, FIT)),
        x_label="number of records n",
        y_label=LABEL,
    )


def _right_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(f"epsilon {e:g}", 1.0, partial(gradient_row, "", e, RIGHT_SIZES[0], RIGHT_DRAWS))
        for e in GRADIENT_EPSILONS
    )


def _figure5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        row_part(panel, 1.0, partial(gradient_row, panel, 1.0, OTHER_SIZES[0], OTHER_DRAWS))
        for panel in list(_distributions())[1:]
    )


# Theorem 5, smoothed ------------------------------------------------------------------------------

THEOREM5_SIZES = (16, 64, 100, 196, 400, 900, 1600)
THEOREM5_VERTICES = (("3/10", "7/10"), ("3/5", "2/5"))
THEOREM5_RATE = math.log10(0.7)


def theorem5_row(n: int) -> JsonObject:
    """T = sqrt n draws with replacement at epsilon 1 + 2 T / n."""
    draws = math.isqrt(n)
    result = smoothed.expected(
        n=n,
        vertices=THEOREM5_VERTICES,
        sampled=draws,
        epsilon=1 + 2 * draws / n,
        sampling="with_replacement",
    )
    return {
        "n": n,
        "sampled": draws,
        "epsilon": result.epsilon,
        "log10_delta": result.log10_delta,
        "log10_upper": result.log10_upper,
        "status": result.status,
        "log10_dp": result.log10_worst_case,
    }


def theorem5() -> Reproduction:
    """Theorem 5's smoothed statement: sampling with replacement, delta against n with T = sqrt n
    draws.
    """
    rows = [theorem5_row(n) for n in THEOREM5_SIZES]
    sizes = tuple(map(float, THEOREM5_SIZES))
    falling = tuple(THEOREM5_RATE * size for size in sizes)
    return Reproduction(
        title="Smoothed DP, Theorem 5: sampling with replacement, T = sqrt(n), epsilon = 1 + 2 T / "
        "n",
        note="Distributions (.3, .7) and (.6, .4). The paper proves that delta is exponentially "
        "small in n and draws "
        "nothing. Exact up to 400 records, certified beyond. Only histograms with at most M1 "
        "records of a type have any "
        f"delta, M1 the largest M with (M/(M-1))^T > e^epsilon: so it falls like .7^n, "
        f"{THEOREM5_RATE:.4f} n (dotted).",
        rows=tuple(rows),
        series=(
            *curves(rows, "n", "log10_dp", name=WORST_CASE),
            *curves(rows, "n", "log10_delta", name="smoothed delta"),
            Series(panel="", name=LIMIT, x=sizes, y=falling),
        ),
        x_label="number of records n",
        y_label=LABEL,
    )


def _theorem5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(row_part(f"n = {n}", 0.2, partial(theorem5_row, n)) for n in THEOREM5_SIZES[:3])


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
