"""delta of published averages: of quantized records, of gradients of one and of many coordinates,
of continuous records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError, as_array, as_reals
from mezzotint.core.records import counted
from mezzotint.smoothed import count_tables, many_types
from mezzotint.smoothed.compositions import simple_compositions
from mezzotint.smoothed.expectations import check_draws, expected_record
from mezzotint.smoothed.model import (
    LOG_TEN,
    Expected,
    Loss,
    Profile,
    Rational,
    Sample,
    Status,
    log10_worst_case,
    log_of,
    profile_of,
    read_count,
    read_each,
    read_loss,
    read_sample,
    rounded_up,
    to_log10,
)
from mezzotint.smoothed.monte_carlo import SampledMean, summary

MAX_LOG10_SUBSETS = 300.0
"""Subsets are counted in floats, which end at 1e308."""
MAX_CELLS = 30_000_000
"""Cells of the subset table, T + 1 rows of all sums; beyond this one table takes a gigabyte."""


def continuous_average(
    n: int,
    *,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> Profile:
    """delta(x) of the sampling average of records in [0, 1] that may take any value: the sampling
    rate.

    Arguments:
        n: number of records.
        loss_rate, sampled, epsilon, ratio: as in `profile`.
    Returns:
        A certified `Profile` with delta = T/n for every database and every epsilon.
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees:
        Smoothed delta equals it, too: it is the same for every database, so for every expectation.
    Source: "Smoothed Differential Privacy", Theorem 4.
    Example:
        >>> round(mz.smoothed.continuous_average(100, sampled=10, epsilon=1.0).delta, 3)
        0.1
    """
    records = read_count("n", n, least=1)
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    worst = log10_worst_case(sample)
    reason = (
        "A neighbour can replace one record by a value that no other subset sum can imitate, so the published "
        "average shows whether it was sampled; averaging continuous records hides nothing."
    )
    return profile_of(
        sample=sample, loss=loss, value=worst, upper=rounded_up(worst), worst=worst, reason=reason
    )


def average_profile(
    records: np.ndarray | Sequence[int],
    *,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    levels: int = 256,
) -> Profile:
    """delta(x) of publishing the sum (or average) of T quantized records drawn without replacement.

    Arguments:
        records: level of each record, integers from 0 to levels - 1.
        loss_rate, sampled, epsilon, ratio: as in `profile`.
        levels: size of the grid that a replaced record may take any value of.
    Returns:
        A `Profile`, certified: subset sums are counted exactly up to rounding, for every record,
        every replacement and both directions. `worst_levels` is (old level, new level) of the worst
        replacement.
    Raises:
        ParameterError: if a parameter is out of range, or C(n, T) exceeds 1e300.
    Guarantees:
        `log10_upper` is never below the truth. Only positive terms are added before the final
        difference.
    Edge cases:
        All records sampled: delta = 1, the sum is exact.
    Source: "Smoothed Differential Privacy", Algorithm 3 and Section 6, on a grid. The histogram of
        the same sample would be no use: with 256 levels some level occurs once or never, and delta
        is the sampling rate.
    Example:
        >>> records = np.random.default_rng(0).integers(0, 4, 100)
        >>> mz.smoothed.average_profile(records, sampled=10, epsilon=1.0, levels=4).log10_delta <= 0
        True
    """
    codes = _read_levels("records", records, levels, 1)
    sample = read_sample(codes.size, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    subset_digits = _log_subsets(sample) / LOG_TEN
    if subset_digits > MAX_LOG10_SUBSETS:
        remedy = f"has 1e{subset_digits:.0f} subsets; a float takes 1e300 at most"
        raise ParameterError("sampled", sample.sampled, remedy)
    largest, divergence_bound, worst_levels = _worst_pair(
        codes.astype(np.int64), sample, loss, levels
    )
    subsets = math.comb(sample.records, sample.sampled)
    log_subsets = math.log(subsets)
    worst = log10_worst_case(sample)
    log_bound = log_of(divergence_bound) - log_subsets
    log10_bound = to_log10(log_bound, 1e-15 * (1.0 + log_subsets))
    reason = "Sums of all subsets counted for every record, replacement and direction."
    return profile_of(
        sample=sample,
        loss=loss,
        value=to_log10(log_of(largest) - log_subsets),
        upper=min(log10_bound, rounded_up(worst)),
        worst=worst,
        pair=worst_levels,
        reason=reason,
    )


def _read_levels(name: str, values: npt.ArrayLike, levels: int, dimensions: int) -> np.ndarray:
    """(n,) or (n, d) levels; ParameterError for anything else."""
    read_count("levels", levels, least=2)
    remedy = f"must be a non-empty array of integer levels in {counted(dimensions, 'dimension')}"
    codes = as_array(name, values, remedy)
    if codes.ndim != dimensions or codes.size == 0 or not np.issubdtype(codes.dtype, np.integer):
        raise ParameterError(name, codes.shape, remedy)
    if codes.min() < 0 or codes.max() >= levels:
        raise ParameterError(name, codes, f"must lie between 0 and levels - 1 = {levels - 1}")
    return codes


def _log_subsets(sample: Sample) -> float:
    """About the logarithm of how many samples there are."""
    log_draw_orders = math.lgamma(sample.sampled + 1)
    log_orders = log_draw_orders + math.lgamma(sample.lost + 1)
    return math.lgamma(sample.records + 1) - log_orders


def _worst_pair(
    codes: np.ndarray,
    sample: Sample,
    loss: Loss,
    levels: int,
) -> tuple[float, float, tuple[int, int] | None]:
    """The largest divergence in subset counts, an upper bound, and the level with its replacement."""
    values, copies = np.unique(codes, return_counts=True)
    smallest_level = int(values[0])
    draws = sample.sampled
    sum_count = draws * int(values[-1] - smallest_level) + 1
    if (draws + 1) * sum_count > MAX_CELLS:
        remedy = f"needs a table of {draws + 1} x {sum_count} cells; sample fewer records"
        raise ParameterError("sampled", draws, remedy)
    ratio, ratio_error = loss.parts
    if ratio_error < 0.0:
        ratio = math.nextafter(ratio, -math.inf)
    # A count is a sum of at most n rounded additions; the factor 8 covers both sides and the
    # difference.
    count_slack = 8.0 * (sample.records + 8) * 2.0**-53
    level_shifts = np.arange(levels, dtype=np.int64) - smallest_level
    upward_shift = max(0, -int(level_shifts.min()))
    empty_table = np.zeros((draws + 1, sum_count))
    empty_table[0, 0] = 1.0
    value_groups = [
        (int(divergence) - smallest_level, int(count))
        for divergence, count in zip(values, copies, strict=True)
    ]
    largest = 0.0
    largest_bound = 0.0
    worst_levels = None
    for level_shift, subset_counts in _leave_one_out(empty_table, 0, value_groups):
        # The others are moved up, so that replacements below the smallest level keep a shift >= 0.
        shift_padding = np.zeros(upward_shift)
        other_sums = np.concatenate((shift_padding, subset_counts[draws]))
        divergence, divergence_bound, worst_shift, _ = count_tables.worst_replacement(
            other_sums,
            subset_counts[draws - 1],
            level_shift + upward_shift,
            level_shifts + upward_shift,
            ratio,
            count_slack,
        )
        largest_bound = max(largest_bound, divergence_bound)
        if divergence > largest:
            largest = divergence
            worst_levels = (
                level_shift + smallest_level,
                int(worst_shift) - upward_shift + smallest_level,
            )
    return largest, largest_bound, worst_levels


def gradient_profile(
    codes: npt.ArrayLike,
    *,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    levels: int = 256,
) -> Profile:
    """delta(x) of publishing the average quantized gradient of a batch, all coordinates of it.

    One batch serves all coordinates, so their deltas do not compose. If in some coordinate all
    records agree, or all but one do, then a neighbour in which one record differs there shows
    whether that record was drawn: delta is the sampling rate at every epsilon.

    Arguments:
        codes: (n, d) levels of each record's gradient, integers from 0 to levels - 1, at least two
            levels.
        loss_rate, sampled, epsilon, ratio: as in `profile`; the batch is drawn without replacement.
        levels: size of the grid that a replaced record may take any value of, in every coordinate.
    Returns:
        A `Profile`: "closed" where the rule above applies; else "bracketed" between the largest
        coordinate's delta (any coordinate alone is post-processing) and the sampling rate.
    Raises:
        ParameterError: if a parameter is out of range.
    Source: docs/proofs/smoothed-expected.md, "Gradients of many coordinates".
    Example:
        >>> codes = np.array([[0, 3], [1, 3], [0, 3], [1, 2]])
        >>> mz.smoothed.gradient_profile(codes, sampled=2, epsilon=1.0, levels=4).delta
        0.50...
    """
    rows = _read_levels("codes", codes, levels, 2)
    sample = read_sample(len(rows), loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    sampling_rate = log10_worst_case(sample)
    largest_delta = sampling_rate
    status: Status = "closed"
    reason = "In some coordinate all records but one agree: it shows whether that one was drawn."
    if not _shows_a_record(rows):
        largest_delta = -math.inf
        for column in rows.T:
            profile = average_profile(
                column,
                sampled=sample.sampled,
                ratio=loss.ratio,
                levels=levels,
            )
            largest_delta = max(largest_delta, profile.log10_delta)
        status = "bracketed"
        reason = "Between the largest coordinate's own delta and the sampling rate."
    return profile_of(
        sample=sample,
        loss=loss,
        value=largest_delta,
        upper=rounded_up(sampling_rate),
        worst=sampling_rate,
        reason=reason,
        status=status,
    )


def _shows_a_record(rows: np.ndarray) -> bool:
    """Whether all records but one agree in some coordinate."""
    if len(rows) == 1:
        return True
    columns = np.sort(rows, axis=0)
    # Sorted, all but one agree if the first n - 1 or the last n - 1 do.
    first_agree = columns[0] == columns[-2]
    last_agree = columns[1] == columns[-1]
    return bool((first_agree | last_agree).any())


def _leave_one_out(
    table: np.ndarray,
    filled: int,
    groups: list[tuple[int, int]],
) -> Iterator[tuple[int, np.ndarray]]:
    """Subset counts without one record of each group, in turn."""
    # Halving adds every record once per level of the recursion; removing a record from the full
    # table instead would subtract, and lose the small counts that matter.
    if len(groups) == 1:
        level, count = groups[0]
        count_tables.add_records(table, filled, level, count - 1)
        yield level, table
        return
    group_count = len(groups) // 2
    halves = (groups[:group_count], groups[group_count:])
    for kept_groups, added_groups in (halves, halves[::-1]):
        branch = table.copy()
        filled_count = filled
        for level, count in added_groups:
            count_tables.add_records(branch, filled_count, level, count)
            filled_count += count
        yield from _leave_one_out(branch, filled_count, kept_groups)


def quantized_gaussian(
    mean: float,
    deviation: float,
    *,
    levels: int = 256,
) -> np.ndarray:
    """Chances of the levels of the quantized Gaussian: level i stands for (i - levels/2)/levels in
    [-1/2, 1/2).

    Arguments:
        mean, deviation: of the Gaussian before quantization; deviation > 0.
        levels: size of the grid.
    Returns:
        Array (levels,), the Gaussian's mass on each interval ((i - 128)/256, (i - 127)/256],
        normalized.
    Raises:
        ParameterError: if the deviation is not positive and finite, or no mass falls on the grid.
    Source: "Smoothed Differential Privacy", Definition 5.
    Example:
        >>> chances = mz.smoothed.quantized_gaussian(0.0, 0.1, levels=8)
        >>> chances.shape, round(float(chances.sum()), 12)
        ((8,), 1.0)
    """
    return _masses(_edges(mean, deviation, levels), special.ndtr, mean)


def quantized_laplace(
    mean: float,
    deviation: float,
    *,
    levels: int = 256,
) -> np.ndarray:
    """As `quantized_gaussian`, for a Laplace distribution of that standard deviation: scale
    deviation / sqrt(2).

    Arguments:
        mean, deviation, levels: as of `quantized_gaussian`.

    Returns: (levels,) chances that sum to 1.

    Source: "Smoothed Differential Privacy", Appendix G.1, which writes L(mu, sigma^2) and leaves
        the scale open; here sigma^2 is the variance, as for the Gaussian.

    Example:
        >>> chances = mz.smoothed.quantized_laplace(0.0, 0.1, levels=8)
        >>> chances.shape, round(float(chances.sum()), 12)
        ((8,), 1.0)
    """
    scaled_edges = _edges(mean, deviation, levels) * math.sqrt(2.0)
    return _masses(scaled_edges, _laplace, mean)


def _laplace(values: np.ndarray) -> np.ndarray:
    """The distribution function of scale 1."""
    lower_half = 0.5 * np.exp(np.minimum(values, 0.0))
    decay = np.exp(-np.maximum(values, 0.0))
    upper_half = 1.0 - 0.5 * decay
    return np.where(values < 0.0, lower_half, upper_half)


def _edges(mean: float, deviation: float, levels: int) -> np.ndarray:
    if not (math.isfinite(deviation) and deviation > 0.0):
        raise ParameterError("deviation", deviation, "must be a finite number above 0")
    if not math.isfinite(mean):
        raise ParameterError("mean", mean, "must be a finite number")
    read_count("levels", levels, least=2)
    grid_edges = (np.arange(levels + 1) - levels // 2) / levels
    return (grid_edges - mean) / deviation


def _masses(
    edges: np.ndarray, below: Callable[[np.ndarray], np.ndarray], mean: float
) -> np.ndarray:
    """Normalized masses between the edges of a symmetric law with the distribution function
    `below`."""
    # Differences of the smaller tails, so that both sides keep their relative accuracy.
    left_masses = np.diff(below(edges))
    right_masses = -np.diff(below(-edges))
    masses = np.where(edges[1:] <= 0.0, left_masses, right_masses)
    grid_mass = float(masses.sum())
    if not grid_mass > 0.0:
        raise ParameterError("mean", mean, "puts no mass on the grid [-1/2, 1/2]; move it closer")
    return masses / grid_mass


def expected_gradients(
    *,
    n: int,
    distributions: Sequence[np.ndarray],
    sampled: int | None = None,
    loss_rate: Rational | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    split: Sequence[int] | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Expected:
    """Expectation of delta(x) for the sampling average of quantized gradients: Monte Carlo over
    exact inner values.

    Arguments:
        n: number of records; sampled: batch size T, by default ceil(sqrt(n)).
        distributions: arrays of chances over the same levels, as `quantized_gaussian(0, 0.12)`.
        loss_rate, epsilon, ratio: as in `profile`.
        split: how many records follow each distribution; None tries every pure composition and the
            even one, and takes the largest estimate.
        draws, seed: databases per composition, and the seed. An interval takes 30 draws.
    Returns: an `Expected` with status "sampled": a mean of exact delta(x) with an interval of the
        level `monte_carlo.CONFIDENCE` (central limit theorem) for the composition `split`; its
        bounds are 0 and the sampling rate.
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees: log10_upper is the sampling rate, which no composition exceeds.
    Source: "Smoothed Differential Privacy", Section 6 and Appendix G (Figures 2 right and 5).
    Example:
        >>> chances = mz.smoothed.quantized_gaussian(0.0, 0.1, levels=8)
        >>> result = mz.smoothed.expected_gradients(
        ...     n=100, distributions=[chances], sampled=50, epsilon=1.0, draws=5
        ... )
        >>> result.certified, result.log10_delta < 0
        (False, True)
    """
    started = time.perf_counter()
    records = read_count("n", n, least=1)
    chances = _read_distributions(distributions)
    if sampled is None and loss_rate is None:
        sampled = math.isqrt(records - 1) + 1
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    check_draws(draws, "databases", 100)
    estimates: list[tuple[SampledMean, tuple[int, ...]]] = []
    for composition in _compositions(records, len(chances), split):
        estimate = _estimate(chances, composition, sample, loss, draws, seed)
        estimates.append((estimate, composition))
    estimate, composition = max(estimates, key=lambda entry: entry[0].log_value)
    bounds = many_types.Range(
        log_value=estimate.log_value,
        log_lower=-math.inf,
        log_upper=rounded_up(log10_worst_case(sample)) * LOG_TEN,
        split=composition,
        method="Monte Carlo",
        reason=f"Mean of exact delta(x) over {draws} databases; the worst of {len(estimates)} "
        "composition(s) tried.",
    )
    return expected_record(sample, loss, chances, bounds, started, estimate)


_SUM_ERROR = 1e-9
"""How far chances given as floats may miss 1 together."""


def _read_distributions(distributions: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Chances over the same levels, each made to sum to 1."""
    distribution_rows = [
        as_reals("distributions", row, "need lists of probabilities") for row in distributions
    ]
    level_counts = {row.size for row in distribution_rows}
    if (
        len(level_counts) != 1
        or min(level_counts) < 2
        or any(row.ndim != 1 for row in distribution_rows)
    ):
        remedy = "needs arrays of chances over the same levels"
        raise ParameterError("distributions", distributions, remedy)
    for row in distribution_rows:
        are_chances = np.isfinite(row).all() and (row >= 0.0).all()
        excess = abs(float(row.sum()) - 1.0)
        if not are_chances or excess >= _SUM_ERROR:
            raise ParameterError("distributions", row, "must be non-negative and sum to 1")
    return [row / row.sum() for row in distribution_rows]


def _estimate(
    chances: list[np.ndarray],
    composition: tuple[int, ...],
    sample: Sample,
    loss: Loss,
    draws: int,
    seed: int,
) -> SampledMean:
    """The mean of delta over databases that are drawn with a seed, `composition` records from each
    distribution.
    """
    checked_seed = check_count("seed", seed, least=0)
    generator = np.random.default_rng(checked_seed)
    levels = chances[0].size
    log_deltas = np.empty(draws)
    for draw in range(draws):
        codes: list[np.ndarray] = []
        for row, count in zip(chances, composition, strict=True):
            draws_of_row = generator.choice(levels, size=count, p=row)
            codes.append(draws_of_row)
        profile = average_profile(
            np.concatenate(codes),
            sampled=sample.sampled,
            ratio=loss.ratio,
            levels=levels,
        )
        log_deltas[draw] = profile.log10_delta * LOG_TEN
    return summary(log_deltas)


def _compositions(
    records: int,
    vertices: int,
    split: Sequence[int] | None,
) -> list[tuple[int, ...]]:
    if split is None:
        return simple_compositions(records, vertices)
    counts = read_each("split", split)
    if len(counts) != vertices or sum(counts) != records:
        raise ParameterError("split", counts, f"needs {vertices} counts that sum to n={records}")
    return [counts]
