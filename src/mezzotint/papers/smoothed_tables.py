"""The table and figures of "Smoothed Differential Privacy", recomputed exactly: data only; drawing is beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from mezzotint import datasets, smoothed
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray
from mezzotint.papers.reproduction import Part, Reproduction, Series

LOSS = Fraction(1, 500)
ODDS = Fraction(51, 49)
LABEL = "log10 of delta"


def table1() -> Reproduction:
    """Table 1: ordinary and smoothed differential privacy of the election of 2020, with and without noise."""
    n, epsilon = 155_507_476, 1.0
    eta = 1 - LOSS
    shares = _district_shares()
    result = smoothed.expected(n=n, vertices=shares, loss_rate=LOSS, epsilon=epsilon)
    rate = smoothed.asymptotic_rate(vertices=shares, loss_rate=LOSS, epsilon=epsilon)
    published = smoothed.published_table1_noise_epsilon(epsilon, sampling_rate=eta)
    proved = smoothed.noisy_epsilon(epsilon, sampling_rate=eta)
    small = smoothed.published_table1_noise_epsilon(8.0, sampling_rate=Fraction(1, 10))
    broken = smoothed.profile(
        (1, 9), sampled=1, epsilon=small, noise_ratio=smoothed.published_noise_ratio(8.0)
    )
    rows = (
        {
            "notion": "smoothed DP",
            "noise": "none",
            "paper": "(epsilon, exp(-Theta(n)))",
            "ours": f"(1, 10^{result.log10_delta:.2f}), status {result.status}",
            "note": f"n = {n:,}, 0.2 % lost, states and districts of 2020; limit 10^(-{rate:.4g} n)",
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
            "note": f"eta epsilon fails at small eta: T = 1 of 10, epsilon = 8: delta = 10^{broken.log10_delta:.2f}",
        },
    )
    return Reproduction(
        title="Smoothed DP, Table 1: DP and smoothed DP of the sampling histogram, eta = 0.998",
        note="The smoothed row is a computed value with a certificate; the paper gives its order only.",
        rows=rows,
    )


def figure1() -> Reproduction:
    """Figure 1: delta(x) and the adversary's utility of the presidential elections, 0.2 % lost, t = 51 %."""
    rows = [_election_row(one.top(2), LOSS, ODDS) for one in datasets.national_elections()]
    third = smoothed.profile((81_283_501, 74_223_975, 1_870_000), loss_rate=LOSS, ratio=ODDS)
    return Reproduction(
        title="Smoothed DP, Figure 1: privacy of US presidential elections, 0.2 % of votes lost, threshold 51 %",
        note="The paper's curves run from about 1e-8 (1920) to 1e-32 (2020) and stay below 1/n up to 2020; exact here. "
        "Top two candidates only: publishing 1.87 million third-party votes of 2020, too, makes delta "
        f"10^{third.log10_delta:.1f}.",
        rows=tuple(rows),
        series=_election_series("", rows),
        x_label="year",
        y_label=LABEL,
    )


def _election_row(election: datasets.Election, loss_rate: Fraction, odds: Fraction) -> JsonObject:
    profile = smoothed.profile(election.counts, loss_rate=loss_rate, ratio=odds)
    utility = smoothed.utility(election.counts, loss_rate=loss_rate, threshold=odds / (1 + odds))
    return {
        "year": int(election.name),
        "records": profile.records,
        "log10_delta": profile.log10_delta,
        "log10_utility": utility.log10,
        "log10_one_over_n": -math.log10(profile.records),
        "log10_dp": profile.log10_worst_case,
    }


def _election_series(panel: str, rows: Sequence[JsonObject]) -> tuple[Series, ...]:
    names = {
        "log10_delta": "delta(x)",
        "log10_utility": "utility",
        "log10_one_over_n": "1/n",
        "log10_dp": "DP",
    }
    years = tuple(float(row["year"]) for row in rows)
    return tuple(
        Series(panel=panel, name=name, x=years, y=tuple(row[key] for row in rows))
        for key, name in names.items()
    )


def figure3() -> Reproduction:
    """Figure 3: as Figure 1, for thresholds 0.5, 0.51, 0.6 and 0.01 % or 0.2 % lost."""
    rows: list[JsonObject] = []
    series: list[Series] = []
    for loss_rate in (Fraction(1, 10_000), LOSS):
        for threshold in (Fraction(1, 2), Fraction(51, 100), Fraction(3, 5)):
            panel = f"t = {float(threshold):g}, {float(100 * loss_rate):g} % lost"
            odds = threshold / (1 - threshold)
            lines = [
                _election_row(one.top(2), loss_rate, odds) for one in datasets.national_elections()
            ]
            rows += [{"panel": panel, **line} for line in lines]
            series += _election_series(panel, lines)
    return Reproduction(
        title="Smoothed DP, Figure 3: privacy of US presidential elections under other settings",
        note="At t = 0.5 the ratio e^epsilon is 1: delta is the total variation distance, which falls like n^(-1/2).",
        rows=tuple(rows),
        series=tuple(series),
        x_label="year",
        y_label=LABEL,
    )


EPSILONS = (0.5, 1.0, 2.0, 7.0)
SIZES = (500_000, 1_000_000, 2_000_000, 5_000_000)
"""Multiples of 500, so that 0.2 % of them is a whole number."""
SMALL_SIZES = (100_000, 200_000, 400_000)
FIT, ORDER_FIT = "fit in n", "fit in sqrt(n) log n"


def joined_fits(series: Sequence[Series]) -> tuple[Series, ...]:
    """The fits of each panel as one broken line for each kind, after the curves and before other notions."""
    curves = [one for one in series if one.name not in (FIT, ORDER_FIT, "DP")]
    for panel in dict.fromkeys(one.panel for one in series):
        for name in (FIT, ORDER_FIT):
            fits = [one for one in series if (one.panel, one.name) == (panel, name)]
            if fits:
                x = tuple(value for one in fits for value in (*one.x, math.nan))
                y = tuple(value for one in fits for value in (*one.y, math.nan))
                curves.append(Series(panel=panel, name=name, x=x[:-1], y=y[:-1]))
    return (*curves, *(one for one in series if one.name == "DP"))


def _fitted(panel: str, x: Sequence[float], y: Sequence[float]) -> tuple[JsonObject, Series]:
    """Least squares of y in x: slope, largest residual, and its line."""
    slope, start = np.polyfit(x, y, 1)
    line = [float(start + slope * value) for value in x]
    residual = max(abs(value - fit) for value, fit in zip(y, line, strict=True))
    row: JsonObject = {"slope": float(slope), "largest residual": residual}
    return row, Series(panel=panel, name=FIT, x=tuple(x), y=tuple(line))


def figure2_left() -> Reproduction:
    """Figure 2, left: smoothed delta of the 2020 election against the number of votes, 0.2 % lost."""
    rows, series, slopes = _smoothed_panel("", _district_shares(), LOSS, SIZES)
    rates = [
        smoothed.asymptotic_rate(vertices=_district_shares(), loss_rate=LOSS, epsilon=epsilon)
        for epsilon in EPSILONS
    ]
    words = ", ".join(f"{1e6 * slope:.3f}" for slope in slopes)
    limits = ", ".join(f"{-1e6 * rate:.3f}" for rate in rates)
    return Reproduction(
        title="Smoothed DP, Figure 2 (left): smoothed delta, districts of 2020, 0.2 % of votes lost",
        note="Certified values; the optimum is all votes from DC. Dashed: least squares in n, as in the paper, with slopes "
        f"{words} powers of ten for a million votes at the four epsilons; their limits are {limits}. The paper names NE-2 "
        "as the other corner of the hull; it is NE-3.",
        rows=rows,
        series=series,
        x_label="number of votes n",
        y_label=LABEL,
    )


FIGURE4 = {
    ("districts of 2020", 0.002): SIZES[:3],
    ("districts of 2020", 0.01): SMALL_SIZES,
    ("history since 1920", 0.002): SIZES[:3],
    ("history since 1920", 0.01): SMALL_SIZES,
}


def _shares(name: str) -> tuple[Fraction, ...]:
    if name == "districts of 2020":
        return _district_shares()
    return tuple(datasets.party_shares().values())


def figure4() -> Reproduction:
    """Figure 4: smoothed delta for the districts of 2020 and for the history of elections, 0.2 % or 1 % lost."""
    rows: list[JsonObject] = []
    series: list[Series] = []
    for (name, loss_rate), sizes in FIGURE4.items():
        panel = f"{name}, {100 * loss_rate:g} % lost"
        exact = Fraction(str(loss_rate))
        lines, curves, _ = _smoothed_panel(panel, _shares(name), exact, sizes)
        rows += lines
        series += curves
    return Reproduction(
        title="Smoothed DP, Figure 4: smoothed delta for other sets of distributions",
        note="The paper does not print its loss ratios; 0.2 % and 1 % are used here. Dashed: least squares in n.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="number of votes n",
        y_label=LABEL,
    )


def _district_shares() -> tuple[Fraction, ...]:
    # The paper prints 94.46 % for DC; the official count gives 94.467 %. Its figure is compared with its own number.
    elections = (*datasets.state_elections(), *datasets.district_elections())
    shares: list[Fraction] = []
    for election in elections:
        is_printed = election.name == "DC"
        shares.append(Fraction(9446, 10_000) if is_printed else election.share("Biden"))
    return tuple(shares)


def _smoothed_row(
    panel: str, shares: Sequence[Fraction], loss_rate: Fraction, epsilon: float, n: int
) -> JsonObject:
    result = smoothed.expected(n=n, vertices=shares, loss_rate=loss_rate, epsilon=epsilon)
    return {
        "panel": panel,
        "epsilon": epsilon,
        "n": result.records,
        "log10_delta": result.log10_delta,
        "log10_upper": result.log10_upper,
        "status": result.status,
        "log10_dp": result.log10_worst_case,
    }


def _smoothed_panel(
    panel: str, shares: Sequence[Fraction], loss_rate: Fraction, sizes: Sequence[int]
) -> tuple[tuple[JsonObject, ...], tuple[Series, ...], tuple[float, ...]]:
    """Rows, curves and slopes of the fits."""
    rows: list[JsonObject] = []
    series: list[Series] = []
    slopes: list[float] = []
    x = tuple(map(float, sizes))
    for epsilon in EPSILONS:
        lines = [_smoothed_row(panel, shares, loss_rate, epsilon, n) for n in sizes]
        rows += lines
        values = tuple(line["log10_delta"] for line in lines)
        name = f"epsilon = {epsilon:g}"
        fit, curve = _fitted(panel, x, values)
        slopes.append(fit["slope"])
        series += [Series(panel=panel, name=name, x=x, y=values), curve]
    worst = tuple(row["log10_dp"] for row in rows[: len(sizes)])
    series.append(Series(panel=panel, name="DP", x=x, y=worst))
    return tuple(rows), joined_fits(series), tuple(slopes)


# Gradients ------------------------------------------------------------------------------------------------------------

GRADIENT_EPSILONS = (0.5, 1.0, 2.0)
RIGHT_SIZES, RIGHT_DRAWS = (64, 100, 196, 400), 8
OTHER_SIZES, OTHER_DRAWS = (64, 100, 144), 4
GRADIENT_SEED = 7


def _pairs() -> dict[str, tuple[FloatArray, FloatArray]]:
    gaussian, laplace = smoothed.quantized_gaussian, smoothed.quantized_laplace
    return {
        "": (gaussian(0.0, 0.12), gaussian(0.2, 0.12)),
        "N(0, .15^2), N(.2, .15^2)": (gaussian(0.0, 0.15), gaussian(0.2, 0.15)),
        "N(0, .1^2), N(.2, .1^2)": (gaussian(0.0, 0.1), gaussian(0.2, 0.1)),
        "N(0, .12^2), L(0, .12^2)": (gaussian(0.0, 0.12), laplace(0.0, 0.12)),
        "L(0, .12^2), L(.2, .12^2)": (laplace(0.0, 0.12), laplace(0.2, 0.12)),
    }


_GRADIENT_NOTE = (
    "Means of exact delta(x) over {draws} databases, the worst of three compositions (all of one distribution, all of the "
    "other, halves); 99 % intervals. Dashed: least squares in n, as in the paper{second}. In sqrt(n) log10 n the values "
    "are straight: delta is of the order of a power of 1/C(n, sqrt(n)), so not exp(-Theta(n)). {fits}It is one "
    "coordinate's average; a histogram of 256 levels would have delta = eta, and so has a batch's whole gradient as soon "
    "as in some coordinate all records but one agree."
)


def figure2_right(
    *, sizes: Sequence[int] = RIGHT_SIZES, draws: int = RIGHT_DRAWS, quick: bool = False
) -> Reproduction:
    """Figure 2, right: smoothed delta of one step of 8-bit gradient descent, batch sqrt(n).

    Arguments:
        sizes, draws: databases of which sizes, and how many of each per composition; quick: the smallest two, twice.
    """
    if quick:
        sizes, draws = sizes[:2], 2
    rows, series = _gradient_panel("", sizes, draws)
    return Reproduction(
        title="Smoothed DP, Figure 2 (right): SGD with 8-bit gradients, N(0, 0.12^2) and N(0.2, 0.12^2)",
        note=_GRADIENT_NOTE.format(
            draws=draws, fits=_fits(rows), second=", and in sqrt(n) log10 n"
        ),
        rows=rows,
        series=series,
        x_label="number of records n",
        y_label=LABEL,
    )


def figure5(
    *, sizes: Sequence[int] = OTHER_SIZES, draws: int = OTHER_DRAWS, quick: bool = False
) -> Reproduction:
    """Figure 5: as Figure 2 (right), for four other pairs of distributions.

    Arguments: as of `figure2_right`.
    """
    if quick:
        sizes, draws = sizes[:2], 2
    rows: list[JsonObject] = []
    series: list[Series] = []
    for panel in _pairs():
        if panel:
            lines, curves = _gradient_panel(panel, sizes, draws)
            rows += lines
            # At three sizes the two fits lie on each other.
            series += [curve for curve in curves if curve.name != ORDER_FIT]
    return Reproduction(
        title="Smoothed DP, Figure 5: smoothed delta of SGD with 8-bit gradients, other distributions",
        note=_GRADIENT_NOTE.format(draws=draws, fits="", second="")
        + " L(mu, sigma^2) is read as the Laplace distribution of variance sigma^2.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="number of records n",
        y_label=LABEL,
    )


def _order(n: float) -> float:
    """sqrt(n) log10 n: log10 of C(n, sqrt n) is half of it and more."""
    return math.sqrt(n) * math.log10(n)


def _fits(rows: Sequence[JsonObject]) -> str:
    """Largest residuals of the two fits, for each epsilon."""
    words: list[str] = []
    for epsilon in GRADIENT_EPSILONS:
        chosen = [row for row in rows if row["epsilon"] == epsilon]
        x, y = [float(row["n"]) for row in chosen], [row["log10_delta"] for row in chosen]
        linear, _ = _fitted("", x, y)
        order, _ = _fitted("", [_order(n) for n in x], y)
        words.append(f"{linear['largest residual']:.2f} and {order['largest residual']:.2f}")
    return f"Largest residuals at epsilon 0.5, 1, 2: {'; '.join(words)}. "


def _gradient_row(panel: str, epsilon: float, n: int, draws: int) -> JsonObject:
    result = smoothed.expected_gradients(
        n=n, distributions=_pairs()[panel], epsilon=epsilon, draws=draws, seed=GRADIENT_SEED
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


def _gradient_panel(
    panel: str, sizes: Sequence[int], draws: int
) -> tuple[tuple[JsonObject, ...], tuple[Series, ...]]:
    rows: list[JsonObject] = []
    series: list[Series] = []
    x = tuple(map(float, sizes))
    for epsilon in GRADIENT_EPSILONS:
        lines = [_gradient_row(panel, epsilon, n, draws) for n in sizes]
        rows += lines
        values = tuple(line["log10_delta"] for line in lines)
        name = f"epsilon = {epsilon:g}"
        curve = Series(
            panel=panel,
            name=name,
            x=x,
            y=values,
            low=tuple(line["low"] for line in lines),
            high=tuple(line["high"] for line in lines),
        )
        series += [curve, _fitted(panel, x, values)[1]]
        # The second fit is straight in another coordinate: drawn where the sizes are.
        order, _ = _fitted(panel, [_order(n) for n in x], values)
        start = values[0] - order["slope"] * _order(x[0])
        fitted = tuple(start + order["slope"] * _order(n) for n in x)
        series.append(Series(panel=panel, name=ORDER_FIT, x=x, y=fitted))
    worst = tuple(row["log10_dp"] for row in rows[: len(sizes)])
    series.append(Series(panel=panel, name="DP", x=x, y=worst))
    return tuple(rows), joined_fits(series)


# Theorem 5, smoothed --------------------------------------------------------------------------------------------------

THEOREM5_SIZES = (16, 64, 100, 196, 400, 900, 1600)
THEOREM5_VERTICES = (("3/10", "7/10"), ("3/5", "2/5"))


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
    """Theorem 5's smoothed statement: sampling with replacement, delta against n with T = sqrt n draws."""
    rows = [theorem5_row(n) for n in THEOREM5_SIZES]
    x = tuple(float(row["n"]) for row in rows)
    y = tuple(row["log10_delta"] for row in rows)
    rate = math.log10(0.7)
    return Reproduction(
        title="Smoothed DP, Theorem 5: sampling with replacement, T = sqrt(n), epsilon = 1 + 2 T / n",
        note="Distributions (.3, .7) and (.6, .4). The paper proves that delta is exponentially small in n and draws "
        "nothing. Exact up to 400 records, certified beyond. Only histograms with at most M1 records of a type have any "
        f"delta, M1 the largest M with (M/(M-1))^T > e^epsilon: so it falls like .7^n, {rate:.4f} n (dashed).",
        rows=tuple(rows),
        series=(
            Series(panel="", name="smoothed delta", x=x, y=y),
            Series(panel="", name="limit", x=x, y=tuple(rate * value for value in x)),
            Series(panel="", name="DP", x=x, y=tuple(row["log10_dp"] for row in rows)),
        ),
        x_label="number of records n",
        y_label=LABEL,
    )


REPRODUCTIONS: dict[str, Callable[..., Reproduction]] = {
    "smoothed-table1": table1,
    "smoothed-figure1": figure1,
    "smoothed-figure2-left": figure2_left,
    "smoothed-figure2-right": figure2_right,
    "smoothed-figure3": figure3,
    "smoothed-figure4": figure4,
    "smoothed-figure5": figure5,
    "smoothed-theorem5": theorem5,
}


def _part(key: str, seconds: float, row: Callable[[], JsonObject]) -> Part:
    return Part(key=key, seconds=seconds, rows=lambda: [row()])


def _left_parts(data: str | None) -> tuple[Part, ...]:
    shares = _district_shares()
    return tuple(
        _part(f"epsilon {e:g}", 0.3, partial(_smoothed_row, "", shares, LOSS, e, SIZES[0]))
        for e in EPSILONS
    )


def _figure4_parts(data: str | None) -> tuple[Part, ...]:
    parts: list[Part] = []
    for (name, loss_rate), sizes in FIGURE4.items():
        panel = f"{name}, {100 * loss_rate:g} % lost"
        row = partial(_smoothed_row, panel, _shares(name), Fraction(str(loss_rate)), 1.0, sizes[0])
        parts.append(_part(panel, 0.5, row))
    return tuple(parts)


def _right_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        _part(f"epsilon {e:g}", 1.0, partial(_gradient_row, "", e, RIGHT_SIZES[0], RIGHT_DRAWS))
        for e in GRADIENT_EPSILONS
    )


def _figure5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(
        _part(panel, 1.0, partial(_gradient_row, panel, 1.0, OTHER_SIZES[0], OTHER_DRAWS))
        for panel in _pairs()
        if panel
    )


def _theorem5_parts(data: str | None) -> tuple[Part, ...]:
    return tuple(_part(f"n = {n}", 0.2, partial(theorem5_row, n)) for n in THEOREM5_SIZES[:3])


PARTS: dict[str, Callable[[str | None], tuple[Part, ...]]] = {
    "smoothed-figure2-left": _left_parts,
    "smoothed-figure2-right": _right_parts,
    "smoothed-figure4": _figure4_parts,
    "smoothed-figure5": _figure5_parts,
    "smoothed-theorem5": _theorem5_parts,
}
