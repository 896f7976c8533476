"""delta(x) of publishing the average of a random sample: of quantized records exactly, of continuous ones at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.smoothed.inputs import Loss, Rational, Sample, read_count, read_loss, read_sample
from mezzotint.smoothed.results import Profile, to_log10
from mezzotint.smoothed.worst_case import log10_worst_case, rounded_up

kernels = LazyModule("mezzotint.smoothed.kernels.average")

#: Subsets are counted in floats, which end at 1e308.
MAX_LOG10_SUBSETS = 300.0
#: Cells of the subset table, T + 1 rows of all sums; beyond this one table takes a gigabyte.
MAX_CELLS = 30_000_000


def continuous_average(
    n: int,
    *,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> Profile:
    """delta(x) of the sampling average of records in [0, 1] that may take any value: the sampling rate.

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
    """
    records = read_count("n", n)
    if records < 1:
        raise ParameterError("n", n, "needs at least one record")
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    worst = log10_worst_case(sample)
    return Profile(
        log10_delta=worst,
        log10_upper=rounded_up(worst),
        status="closed",
        log10_worst_case=worst,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        pair=None,
        reason="A neighbour can replace one record by a value that no other subset sum can imitate, so the published "
        "average shows whether it was sampled; averaging continuous records hides nothing.",
    )


def average_profile(
    records: Sequence[int] | np.ndarray,
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
        A `Profile`, certified: subset sums are counted exactly up to rounding, for every record, every
        replacement and both directions. `pair` is (old level, new level) of the worst replacement.
    Raises:
        ParameterError: if a parameter is out of range, or C(n, T) exceeds 1e300.
    Guarantees:
        `log10_upper` is never below the truth. Only positive terms are added before the final difference.
    Edge cases:
        All records sampled: delta = 1, the sum is exact.
    Source: "Smoothed Differential Privacy", Algorithm 3 and Section 6, on a grid. The histogram of the same
        sample would be no use: with 256 levels some level occurs once or never, and delta is the sampling rate.
    """
    codes = _read_records(records, levels)
    sample = read_sample(codes.size, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    log_subsets = _log10_subsets(sample)
    if log_subsets > MAX_LOG10_SUBSETS:
        raise ParameterError("sampled", sample.sampled, f"has 1e{log_subsets:.0f} subsets, more than a float holds")
    value, upper, pair = _worst_pair(codes, sample, loss, levels)
    subsets = math.log(math.comb(sample.records, sample.sampled))
    worst = log10_worst_case(sample)
    bound = to_log10(math.log(upper) - subsets, 1e-15 * (1.0 + subsets)) if upper > 0.0 else -math.inf
    bound = min(bound, rounded_up(worst))
    return Profile(
        log10_delta=min(to_log10(math.log(value) - subsets), bound) if value > 0.0 else -math.inf,
        log10_upper=bound,
        status="closed",
        log10_worst_case=worst,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        pair=pair,
        reason="Sums of all subsets counted for every record, replacement and direction.",
    )


def _log10_subsets(sample: Sample) -> float:
    n, t = sample.records, sample.sampled
    return (math.lgamma(n + 1) - math.lgamma(t + 1) - math.lgamma(n - t + 1)) / math.log(10.0)


def _read_records(records: Sequence[int] | np.ndarray, levels: int) -> np.ndarray:
    if read_count("levels", levels) < 2:
        raise ParameterError("levels", levels, "needs at least 2 levels")
    codes = np.asarray(records)
    if codes.ndim != 1 or codes.size == 0 or not np.issubdtype(codes.dtype, np.integer):
        raise ParameterError("records", records, "must be a non-empty list of integer levels")
    if codes.min() < 0 or codes.max() >= levels:
        raise ParameterError("records", records, f"must lie between 0 and levels - 1 = {levels - 1}")
    return codes.astype(np.int64)


def _worst_pair(
    codes: np.ndarray, sample: Sample, loss: Loss, levels: int
) -> tuple[float, float, tuple[int, int] | None]:
    values, copies = np.unique(codes, return_counts=True)
    base = int(values[0])
    draws = sample.sampled
    width = draws * int(values[-1] - base) + 1
    if (draws + 1) * width > MAX_CELLS:
        raise ParameterError("sampled", draws, f"needs a table of {draws + 1} x {width} cells; sample fewer records")
    high, low = loss.parts
    ratio = high if low >= 0.0 else math.nextafter(high, -math.inf)
    # A count is a sum of at most n rounded additions; the factor 8 covers both sides and the difference.
    slack = 8.0 * (sample.records + 8) * 2.0**-53
    shifts = np.arange(levels, dtype=np.int64) - base
    lift = max(0, -int(shifts.min()))
    best, bound, pair = 0.0, 0.0, None
    empty = np.zeros((draws + 1, width))
    empty[0, 0] = 1.0
    groups = [(int(value) - base, int(count)) for value, count in zip(values, copies, strict=True)]
    for own, table in _leave_one_out(empty, 0, groups):
        # The rest is moved up by `lift`, so that replacements below the smallest level keep a shift >= 0.
        rest = np.concatenate((np.zeros(lift), table[draws]))
        chosen = table[draws - 1]
        value, upper, where, _ = kernels.worst_replacement(rest, chosen, own + lift, shifts + lift, ratio, slack)
        bound = max(bound, upper)
        if value > best:
            best, pair = value, (own + base, int(where) - lift + base)
    return best, bound, pair


def _leave_one_out(table: np.ndarray, filled: int, groups: list[tuple[int, int]]) -> Iterator[tuple[int, np.ndarray]]:
    # Subset counts without one record of each group. Halving adds every record once per level of the recursion;
    # removing a record from the full table instead would subtract, and lose the small counts that matter.
    if len(groups) == 1:
        value, count = groups[0]
        kernels.add_records(table, filled, value, count - 1)
        yield value, table
        return
    half = len(groups) // 2
    for kept, added in ((groups[:half], groups[half:]), (groups[half:], groups[:half])):
        branch, size = table.copy(), filled
        for value, count in added:
            kernels.add_records(branch, size, value, count)
            size += count
        yield from _leave_one_out(branch, size, kept)
