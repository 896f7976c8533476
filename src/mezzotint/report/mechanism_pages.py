"""The report of one mechanism: what it does and guarantees, how good it is beside its rivals, how
to check it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from statistics import NormalDist
from typing import final

import numpy as np
import numpy.typing as npt

import mezzotint as mz
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, confidence_percent, counted, number, percent
from mezzotint.core.types import FloatArray
from mezzotint.design.comparison import BIASED
from mezzotint.privacy.accounting import report_claim
from mezzotint.report.contents import Curve, Figure, Page, Section, Slider, Table

MOST_LEVELS = 32
"""Beyond, designing the rivals would take minutes."""

LEAST_EPSILON = 0.001
GREATEST_EPSILON = 15.0
"""Beyond, 32-bit tables are too coarse for a comparison at equal epsilon."""

NAMES = {
    "optimal": "optimal table",
    "optm": "OPTM",
    "mvu": "MVU",
    "imvu": "I-MVU",
    "rqm": "RQM",
    "erm": "ERM",
    "pbm": "PBM",
    "k_randomized_response": "k-ary randomized response",
    "randomized_response": "one-bit randomized response",
}

SLOW = {"optm": 4}
"""Families whose search takes long beyond these numbers of levels."""


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A mechanism, first among its rivals.

    Arguments:
        rivals: the mechanism and its rivals, named as the page names them.
        limit: no exactly unbiased mechanism with this epsilon has a smaller MSE, at any number of
            levels; None where there is no comparison.
        remarks: what could not be compared, and why.
    """

    rivals: tuple[Mechanism, ...]
    limit: float | None
    remarks: tuple[str, ...]


def compare(mechanism: Mechanism) -> Comparison:
    """Designs every rival at the mechanism's own epsilon, range and number of levels.

    Inputs are uniform.

    Guarantees: no rival's certified epsilon is above the mechanism's.
    Edge cases: no comparison where epsilon is below 0.001, above 15 or unbounded, or beyond 32
        levels; the remarks say so.
    """
    subject = Mechanism.of(mechanism, name="this mechanism")
    obstacle = _obstacle_to_comparison(mechanism)
    if obstacle:
        return Comparison(rivals=(subject,), limit=None, remarks=(obstacle,))
    level_count = mechanism.levels.size
    families = [
        family_name for family_name in NAMES if level_count <= SLOW.get(family_name, MOST_LEVELS)
    ]
    compared_rows = mz.design.compare(
        epsilon=mechanism.epsilon,
        levels=level_count,
        lower=mechanism.lower,
        upper=mechanism.upper,
        families=families,
    )
    compared_rivals = [subject]
    error_limits = []
    remarks = []
    for compared_row in compared_rows:
        if compared_row.mechanism is None:
            remarks.append(f"{NAMES[compared_row.family]} is missing: {compared_row.note}.")
            continue
        rival_name = NAMES[compared_row.family]
        if compared_row.note == BIASED:
            rival_name = f"{rival_name} (biased)"
        compared_rivals.append(Mechanism.of(compared_row.mechanism, name=rival_name))
        if compared_row.mse is not None and compared_row.above_limit is not None:
            error_limits.append(compared_row.mse / (1 + compared_row.above_limit / 100))
    slow_families = [NAMES[family_name] for family_name in NAMES if family_name not in families]
    if slow_families:
        remarks.append(
            f"Not designed for {level_count} levels, as their search is long: "
            f"{', '.join(slow_families)}."
        )
    error_limit = max(error_limits, default=None)
    return Comparison(rivals=tuple(compared_rivals), limit=error_limit, remarks=tuple(remarks))


def _obstacle_to_comparison(mechanism: Mechanism) -> str:
    """Why no rivals can be designed; empty where they can."""
    level_count = mechanism.levels.size
    epsilon = mechanism.epsilon
    if not LEAST_EPSILON <= epsilon <= GREATEST_EPSILON:
        return (
            f"There is no comparison at equal epsilon: {epsilon:g} lies outside "
            f"[{LEAST_EPSILON:g}, {GREATEST_EPSILON:g}]."
        )
    if level_count > MOST_LEVELS:
        return (
            f"There is no comparison: rivals are designed for up to {MOST_LEVELS} levels, this "
            f"table has {level_count}."
        )
    return ""


def tradeoff_figure(points: Sequence[JsonObject]) -> Figure:
    """MSE against epsilon: of the optimal table for each number of bits, of families, and the
    limit of any bits.

    Arguments:
        points: what `design.tradeoff` returns.

    Returns: the figure, for a page or `sheet`.

    Example:
        >>> points = mz.design.tradeoff(epsilons=[1.0, 2.0], bits=[1, 2])
        >>> figure = mz.report.tradeoff_figure(points)
        >>> [curve.name for curve in figure.curves]
        ['1 bit', '2 bits', 'limit']
    """
    best_points = [point for point in points if "family" not in point]
    points_of_bits: dict[int, list[JsonObject]] = {}
    for point in best_points:
        points_of_bits.setdefault(point["bits"], []).append(point)
    points_of_family: dict[str, list[JsonObject]] = {}
    for point in points:
        if "family" in point:
            points_of_family.setdefault(point["family"], []).append(point)
    curves = []
    for bit_count, members in sorted(points_of_bits.items()):
        curves.append(_error_curve(counted(int(bit_count), "bit"), members))
    for family_name, members in points_of_family.items():
        curves.append(_error_curve(family_name, members))
    limit_of_epsilon = {
        point["epsilon"]: point["limit"] for point in best_points if point["limit"] > 0
    }
    curves.append(Curve.of("limit", limit_of_epsilon, limit_of_epsilon.values(), "dashed"))
    return Figure.of("tradeoff", "trade-off", ("epsilon", "mean squared error"), *curves, log="y")


def _error_curve(name: str, points: Sequence[JsonObject]) -> Curve:
    epsilons = [point["epsilon"] for point in points]
    return Curve.of(name, epsilons, [point["mse"] for point in points])


POSITIONS = 101
"""Inputs that the slider can stop at."""

MOST_BARS = 128
"""A slider shows at most this many levels; of larger tables, sums over neighbouring levels."""

MOST_ATTACHED = 40_000
"""Characters; larger mechanism files are not put into the page."""

MOST_CELLS = 2e8
"""Of the table that are compared for a curve; large tables get fewer points."""

ROUNDING = 1e-14
"""What floating point makes of 0, as a share of the levels' reach: far below any table's bias."""

SHOWN_BIAS = 1e-6
"""A curve of smaller bias, as a share of the range, would be one of rounding."""

MOST_ALIGNED = 1e6
"""The ratio of two numbers beyond which one number of decimals for both is of no use."""

NEEDED_SHARES = (0.1, 0.03, 0.01, 0.001)
"""Half widths for which reports are counted, as shares of the range."""


def mechanism_page(mechanism: Mechanism, *, file: str = "m.json") -> Page:
    """The report of a mechanism.

    Arguments:
        mechanism: any table.
        file: its file name, for the commands that are shown.
    Returns: the page, for `html_page` or `write_png`.
    Guarantees: every privacy number shown is rounded up.
    Example:
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> len(page.sections) > 2
        True
    """
    promise = "no pure epsilon"
    if math.isfinite(mechanism.epsilon):
        claim_basis = mz.privacy.report_claim(mechanism).basis
        promise = f"epsilon {above(mechanism.epsilon)} ({claim_basis})"
    bits_text = counted(mechanism.bits, "bit")
    input_range = f"[{mechanism.lower:g}, {mechanism.upper:g}]"
    deviation = number(math.sqrt(mechanism.mse()), 3)
    mechanism_text = mechanism.to_json()
    attachment = (file, mechanism_text) if len(mechanism_text) <= MOST_ATTACHED else None
    return Page(
        title=f"{mechanism.name}: {bits_text} for inputs in {input_range}",
        summary=f"{bits_text} per report of a number in {input_range}, {promise} per report, "
        f"standard deviation about {deviation}.",
        sections=(
            what_it_does(mechanism),
            what_it_guarantees(mechanism),
            how_good_it_is(mechanism, compare(mechanism)),
            what_reports_buy(mechanism),
            how_to_verify(mechanism, file),
        ),
        attachment=attachment,
    )


def _numbers(values: npt.ArrayLike) -> tuple[float, ...]:
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def _settled(mechanism: Mechanism, values: npt.ArrayLike) -> FloatArray:
    """Values, those that are 0 but for rounding as 0."""
    rounding = ROUNDING * float(np.abs(mechanism.levels).max())
    return np.where(np.abs(values) < rounding, 0.0, values)


# What it does
# ------------------------------------------------------------------------------------------------


def what_it_does(mechanism: Mechanism) -> Section:
    """The distribution of the report at every input; bias and error over the inputs."""
    paragraphs = (
        "An input is clipped to the range and answered by one level, drawn at random with the "
        "probabilities below. "
        "Move the slider: the distribution changes little from one end to the other (that is the "
        "privacy), and its "
        "mean stays at the input (that is the use).",
    )
    table_rows = (
        (
            "range of inputs (data units)",
            f"{mechanism.lower:g} to {mechanism.upper:g}; others are clipped",
        ),
        ("levels", f"{mechanism.levels.size} ({mechanism.bits} bits per report)"),
        ("rows of the table", str(mechanism.knots.size)),
        ("mean squared error, uniform inputs (squared data units)", number(mechanism.mse())),
        ("mean absolute error, uniform inputs (data units)", number(mechanism.mae())),
        ("greatest bias (data units)", above(mechanism.max_bias, 3)),
    )
    return Section(
        title="What it does",
        words=paragraphs,
        slider=_slider(mechanism),
        figures=_over_inputs(mechanism),
        table=Table(headings=("of one report", "value"), rows=table_rows),
    )


def _over_inputs(mechanism: Mechanism) -> tuple[Figure, ...]:
    """Mean squared error over the inputs, and bias where there is any."""
    even_inputs = np.linspace(mechanism.lower, mechanism.upper, 201)
    input_grid = np.unique(np.concatenate([even_inputs, mechanism.knots[:800]]))
    bias_values = mechanism.mean(input_grid) - input_grid
    range_ends = (mechanism.lower, mechanism.upper)
    error_figure = Figure.of(
        "mse",
        "Mean squared error over the inputs",
        ("input (data units)", "MSE (squared data units)"),
        Curve.of("at this input", input_grid, mechanism.variance(input_grid) + bias_values**2),
        Curve.of("average, uniform inputs", range_ends, (mechanism.mse(),) * 2, "dashed"),
    )
    if mechanism.max_bias <= SHOWN_BIAS * (mechanism.upper - mechanism.lower):
        return (error_figure,)
    bias_figure = Figure.of(
        "bias",
        "Bias over the inputs",
        ("input (data units)", "mean of the report - input (data units)"),
        Curve.of("bias", input_grid, _settled(mechanism, bias_values)),
    )
    return (bias_figure, error_figure)


def _slider(mechanism: Mechanism) -> Slider:
    inputs = np.linspace(mechanism.lower, mechanism.upper, POSITIONS)
    bar_levels, probabilities = mechanism.levels, mechanism.pmf(inputs)
    slider_title = "Distribution of the report"
    if bar_levels.size > MOST_BARS:
        bin_starts = np.linspace(0, bar_levels.size, MOST_BARS, endpoint=False).astype(int)
        probabilities = np.add.reduceat(probabilities, bin_starts, axis=1)
        bar_levels = np.add.reduceat(bar_levels, bin_starts) / np.diff(
            np.append(bin_starts, bar_levels.size)
        )
        slider_title += f" (neighbouring levels summed into {MOST_BARS} bars)"
    return Slider(
        key="pmf",
        title=slider_title,
        inputs=_numbers(inputs),
        levels=_numbers(bar_levels),
        frames=tuple(_numbers(np.round(probability_row, 7)) for probability_row in probabilities),
        means=_numbers(_settled(mechanism, mechanism.mean(inputs))),
        deviations=_numbers(np.sqrt(mechanism.variance(inputs))),
    )


# What it guarantees
# ------------------------------------------------------------------------------------------


def _points(mechanism: Mechanism, most_points: int) -> int:
    distinct_rows = len(np.unique(mechanism.weights, axis=0))
    return int(np.clip(MOST_CELLS / (distinct_rows**2 * mechanism.levels.size), 5, most_points))


def what_it_guarantees(mechanism: Mechanism) -> Section:
    """The certificate in words, the privacy profile, the Renyi curve and what an attacker can
    reach.
    """
    profile = mz.privacy.tradeoff(mechanism)
    alarm_rates, detection_rates = profile.corners
    detection_at_five = profile.power(0.05)
    guess_rate = (1 + mechanism.delta(0.0)) / 2
    paragraphs = (
        *mz.privacy.report_words(mechanism).split("\n"),
        "The trade-off curve says the same as an attack: somebody who sees one report, knows two "
        "possible inputs, and "
        "wrongly names the second at most at the false-alarm rate, rightly names it at most at "
        "the rate drawn. "
        "Accusing falsely in 5 % of the cases, the best attack detects at most "
        f"{percent(detection_at_five)}; when both "
        f"inputs are equally likely it guesses right in at most {percent(guess_rate)} of the cases "
        "(blind guessing: 50 %).",
        "The privacy profile is the probability delta by which epsilon-differential privacy may "
        "fail at a smaller "
        "epsilon; the Renyi curve bounds the moments of the privacy loss. All are worst cases "
        "over pairs of inputs.",
    )
    tradeoff = Figure.of(
        "tradeoff",
        "Trade-off curve: the best attack on one report",
        ("false-alarm rate", "greatest detection rate"),
        Curve.of("best attack", alarm_rates, detection_rates),
        Curve.of("blind guessing", (0.0, 1.0), (0.0, 1.0), "dashed"),
    )
    return Section(
        title="What it guarantees",
        words=paragraphs,
        figures=(tradeoff, _profile(mechanism), _renyi(mechanism)),
    )


def _profile(mechanism: Mechanism) -> Figure:
    greatest_epsilon = mechanism.epsilon if math.isfinite(mechanism.epsilon) else 10.0
    epsilon_grid = np.linspace(0.0, greatest_epsilon, _points(mechanism, 61)).tolist()
    delta_curve = Curve.of("delta", epsilon_grid, map(mechanism.delta, epsilon_grid))
    return Figure.of("profile", "Privacy profile of one report", ("epsilon", "delta"), delta_curve)


def _renyi(mechanism: Mechanism) -> Figure:
    orders = np.geomspace(1.05, 256.0, _points(mechanism, 41)).tolist()
    divergences = Curve.of("Renyi divergence", orders, map(mechanism.renyi, orders))
    figure_title = "Renyi curve of one report"
    curves = []
    if divergences.x:
        curves.append(divergences)
    else:
        figure_title = f"{figure_title}: unbounded at every order"
    if math.isfinite(mechanism.epsilon):
        order_range = (orders[0], orders[-1])
        curves.append(Curve.of("epsilon", order_range, (mechanism.epsilon,) * 2, "dashed"))
    return Figure.of("renyi", figure_title, ("order alpha", "divergence"), *curves, log="x")


# How good it is
# ----------------------------------------------------------------------------------------------


def how_good_it_is(mechanism: Mechanism, comparison: Comparison) -> Section:
    """Its distance from the limit and from every rival at the same epsilon."""
    ranked_rivals = sorted(comparison.rivals, key=lambda rival: rival.mse())
    subject = comparison.rivals[0]
    rival_names = [rival.name for rival in ranked_rivals]
    squared_errors = [rival.mse() for rival in ranked_rivals]
    paragraphs = list(comparison.remarks)
    curves = [Curve.of("mean squared error", rival_names, squared_errors, "bars")]
    if comparison.limit is not None:
        relative_excess = max(0.0, subject.mse() / comparison.limit - 1)
        bound_sentence = (
            "No exactly unbiased mechanism with this epsilon has a mean squared error below "
            f"{number(comparison.limit)} on uniform inputs, however many bits it sends (a proven "
            f"bound). This one is {100 * relative_excess:.3g} % above it."
        )
        paragraphs.insert(0, bound_sentence)
        limit_heights = [comparison.limit] * len(rival_names)
        curves.append(Curve.of("limit, any number of bits", rival_names, limit_heights, "dashed"))
    figures: tuple[Figure, ...] = ()
    if len(ranked_rivals) > 1:
        axis_labels = ("", "MSE (squared data units)")
        figure_title = "Error at the same epsilon, uniform inputs"
        figures = (Figure.of("rivals", figure_title, axis_labels, *curves),)
    rivals_table = _table_of_rivals(ranked_rivals, subject)
    return Section(
        title="How good it is", words=tuple(paragraphs), figures=figures, table=rivals_table
    )


def _table_of_rivals(ranked: Sequence[Mechanism], subject: Mechanism) -> Table:
    squared_cells = _aligned([rival.mse() for rival in ranked])
    absolute_cells = _aligned([rival.mae() for rival in ranked])
    table_rows = []
    for rival, squared_cell, absolute_cell in zip(
        ranked, squared_cells, absolute_cells, strict=True
    ):
        bias_cell = f"{float(above(rival.max_bias, 2)):.1e}"
        table_rows.append(
            (
                rival.name,
                _up(rival.epsilon),
                str(rival.bits),
                squared_cell,
                absolute_cell,
                bias_cell,
            )
        )
    certified = all(report_claim(rival).certified for rival in ranked)
    headings = (
        "mechanism",
        f"epsilon ({mz.privacy.basis(certified=certified)})",
        "bits",
        "MSE (squared data units)",
        "MAE (data units)",
        "greatest bias (data units)",
    )
    return Table(headings=headings, rows=tuple(table_rows), own=list(ranked).index(subject))


def _up(epsilon: float) -> str:
    """Four decimals, never less than the value."""
    if math.isinf(epsilon):
        return above(epsilon)
    return str(Decimal(repr(epsilon)).quantize(Decimal("0.0001"), rounding=ROUND_CEILING))


def _aligned(values: list[float]) -> list[str]:
    """One number of decimals for all, four digits of the smallest; six digits each where they span
    too much.
    """
    least_value, greatest_value = min(values), max(values)
    if not 0 < least_value <= greatest_value < MOST_ALIGNED * least_value:
        return [number(aligned_value) for aligned_value in values]
    decimals = max(0, 3 - math.floor(math.log10(least_value)))
    return [f"{aligned_value:,.{decimals}f}" for aligned_value in values]


# What n reports buy
# ------------------------------------------------------------------------------------------


def what_reports_buy(mechanism: Mechanism) -> Section:
    """Half width of the interval for the mean against the number of reports, as `collect.plan`
    predicts it.
    """
    from mezzotint.collect.plans import half_widths
    from mezzotint.collect.questions import Question

    lower_end, upper_end = mechanism.lower, mechanism.upper
    range_width = upper_end - lower_end
    epsilon = mechanism.epsilon
    report_counts = np.unique(np.geomspace(10, 1e7, 31).round())
    uniform_inputs = lower_end + range_width * (np.arange(512) + 0.5) / 512
    worst_question = Question(estimand="mean", tables=mechanism, lower=lower_end, upper=upper_end)
    uniform_question = replace(worst_question, inputs=uniform_inputs)
    percentage = confidence_percent(worst_question.confidence)
    normal_quantile = NormalDist().inv_cdf((1 + worst_question.confidence) / 2)
    without_privacy = normal_quantile * range_width / np.sqrt(12 * report_counts)
    interval_figure = Figure.of(
        "interval",
        f"Half width of the {percentage} interval for the mean",
        ("number of reports n", "half width (data units)"),
        Curve.of(
            "worst inputs", report_counts, half_widths(worst_question, epsilon, report_counts)
        ),
        Curve.of(
            "uniform inputs", report_counts, half_widths(uniform_question, epsilon, report_counts)
        ),
        Curve.of("without privacy, uniform inputs", report_counts, without_privacy, "dashed"),
        log="xy",
    )
    paragraphs = (
        "The half width that the estimator gives on expected counts: half of the realised ones are "
        "wider. More columns, waves, groups and shares: mezzotint plan.",
    )
    needed_table = _reports_needed(mechanism)
    return Section(
        title="What n reports buy", words=paragraphs, figures=(interval_figure,), table=needed_table
    )


def _reports_needed(mechanism: Mechanism) -> Table:
    """People for half widths of the mean, whatever the inputs are."""
    from mezzotint.collect.plans import people_for
    from mezzotint.collect.questions import USUAL_CONFIDENCE

    range_width = mechanism.upper - mechanism.lower
    table_rows = []
    for range_share in NEEDED_SHARES:
        try:
            people_needed = f"{people_for(mechanism, range_share * range_width):,}"
        except InfeasibleError:
            people_needed = "none: its bias is larger"
        table_rows.append(
            (
                f"{100 * range_share:g} % of the range ({number(range_share * range_width, 4)})",
                people_needed,
            )
        )
    percentage = confidence_percent(USUAL_CONFIDENCE)
    headings = (
        f"half width of the {percentage} interval (data units)",
        "reports needed (worst inputs)",
    )
    return Table(headings=headings, rows=tuple(table_rows))


# How to verify
# -----------------------------------------------------------------------------------------------


def how_to_verify(mechanism: Mechanism, file: str) -> Section:
    """The commands that check the claim, and what they check."""
    paragraphs = (
        "Trust none of the above: the table is integers, and its epsilon is the logarithm of a "
        "ratio of two of them. "
        "The check reads the file itself, in rational arithmetic, and shares no code with what "
        "made it.",
        "The claim is about one report. Ten reports about the same person, or a vector of a "
        "thousand coordinates, "
        "cost more: ask mezzotint account.",
    )
    table_rows = tuple(
        (name, str(value)) for name, value in mechanism.certificate().as_dict().items()
    )
    code = (
        f"$ mezzotint verify {file}\n"
        f"$ mezzotint account {file} --dimension 10 --rounds 5 --delta 1e-6\n\n"
        f'>>> import mezzotint as mz\n>>> mz.privacy.verify("{file}")'
    )
    table = Table(headings=("certificate", "value"), rows=table_rows)
    return Section(title="How to verify it", words=paragraphs, table=table, code=code)
