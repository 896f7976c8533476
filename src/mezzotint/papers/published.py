"""Formulas of the papers about closed-form families, as printed, to compare with a table's own
numbers.

They are no guarantees: some are far above the truth, one is below it, and those for noise are about
ideal distributions on all integers. Nothing in this package relies on them.
"""

from __future__ import annotations

import math

from mezzotint.core.arguments import check_count, check_finite, check_scale
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import MAX_LEVELS
from mezzotint.families.numeric import check_grid, pbm_exact


def published_rqm_epsilon(
    *, lower: float, upper: float, levels: int, extension: float, q: float
) -> float:
    """Theorem 5.4's upper bound on RQM's epsilon: log(2 (1-q)^2 (1 + c/Delta)) + m log(1/(1-q)), c
    the half range.

    It is far above the exact value; `rqm(...).epsilon` is exact. Nothing in this package relies on
    it.

    Arguments:
        lower, upper, levels, extension, q: as in `rqm`; extension > 0 and q in (0, 1), as the
            theorem asks.
    Returns: the number that the paper states.
    Raises:
        ParameterError: outside the theorem's range.
    Source: Youn, Hu, Ziani, Abernethy 2023, Theorem 5.4.
    Example:
        >>> stated = mz.papers.published_rqm_epsilon(lower=-1, upper=1, levels=16, extension=1.0,
        ...     q=0.42)
        >>> round(stated, 3), round(mz.families.rqm(levels=16, extension=1.0, q=0.42).epsilon, 3)
        (9.012, 5.47)
    """
    lower_end, upper_end, level_count, extension_width = check_grid(lower, upper, levels, extension)
    keep_probability = check_finite("q", q)
    if extension_width == 0:
        raise ParameterError("extension", extension_width, "Theorem 5.4 needs extension > 0")
    if not 0 < keep_probability < 1:
        raise ParameterError("q", keep_probability, "Theorem 5.4 needs q strictly between 0 and 1")
    half_width = (upper_end - lower_end) / 2
    return math.log(
        2 * (1 - keep_probability) ** 2 * (1 + half_width / extension_width)
    ) - level_count * math.log1p(-keep_probability)


def published_erm_epsilon(
    *, lower: float, upper: float, levels: int, extension: float, gamma: float
) -> float:
    """Theorem 1's claim for ERM on an even grid: gamma + log(2 m (c + Delta) / c). NOT a bound in
    general.

    It fails for small extensions: m=4, gamma=0.1, Delta=c/4 has exact epsilon 3.222 against the
    claimed 2.403. In the cases checked it held for Delta >= c. `erm(...).epsilon` is exact; nothing
    in this package relies on this.

    Arguments:
        lower, upper: input range, data units; c is half its width.
        levels: number m of evenly spaced bins from lower - extension to upper + extension.
        extension: the paper's Delta, data units, >= 0.
        gamma: as in `erm`.
    Returns: the number that the paper states.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Cai, Zhang, Khalili 2024, Theorem 1.
    Example:
        >>> stated = mz.papers.published_erm_epsilon(lower=-1, upper=1, levels=4, extension=0.25,
        ...     gamma=0.1)
        >>> true = mz.families.erm(bins=[-1.25, -1.25 / 3, 1.25 / 3, 1.25], gamma=0.1).epsilon
        >>> round(stated, 4), round(true, 4)
        (2.4026, 3.2218)
    """
    lower_end, upper_end, level_count, extension_width = check_grid(lower, upper, levels, extension)
    decay_rate = check_finite("gamma", gamma)
    half_width = (upper_end - lower_end) / 2
    return decay_rate + math.log(2 * level_count * (half_width + extension_width) / half_width)


def published_erm_error(
    *, lower: float, upper: float, levels: int, extension: float, gamma: float
) -> float:
    """Theorem 2's bound on ERM's mean absolute error: (4/gamma) log(m) (c + Delta) + (2c + 2
    Delta)/(m - 1).

    Arguments: as `published_erm_epsilon`; gamma > 0. Data units.
    Returns: data units.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Cai, Zhang, Khalili 2024, Theorem 2.
    Example:
        >>> stated = mz.papers.published_erm_error(
        ...     lower=-1, upper=1, levels=4, extension=0.25, gamma=1.0
        ... )
        >>> round(stated, 3)
        7.765
    """
    lower_end, upper_end, level_count, extension_width = check_grid(lower, upper, levels, extension)
    decay_rate = check_finite("gamma", gamma)
    if decay_rate <= 0:
        raise ParameterError("gamma", decay_rate, "Theorem 2 needs gamma > 0")
    half_grid_width = (upper_end - lower_end) / 2 + extension_width
    return 4 / decay_rate * math.log(level_count) * half_grid_width + 2 * half_grid_width / (
        level_count - 1
    )


def published_pbm_mse(
    *,
    lower: float,
    upper: float,
    trials: int,
    theta: float,
) -> float:
    """The published bound on PBM's mean squared error for any input: c**2 / (4 n theta**2), c half
    the range.

    `pbm_exact(...).mse(x)` is exact and meets it at the middle of the range only.

    Arguments:
        lower, upper, trials, theta: as of `pbm`.

    Returns: squared data units.

    Source: Chen, Ozgur, Kairouz 2022, Theorem 3.1 for one client.

    Example:
        >>> mz.papers.published_pbm_mse(lower=-1, upper=1, trials=16, theta=0.25)
        0.25
    """
    poisson_law = pbm_exact(lower=lower, upper=upper, trials=trials, theta=theta)
    return ((poisson_law.upper - poisson_law.lower) / 2) ** 2 / (
        4 * poisson_law.trials * poisson_law.theta**2
    )


def published_discrete_laplace_epsilon(*, scale: float, sensitivity: int = 1) -> float:
    """Pure epsilon of untruncated discrete Laplace noise: sensitivity / scale.

    No guarantee about a truncated table: ask `IntegerNoise.delta`.

    Arguments:
        scale: > 0.
        sensitivity: largest difference of two inputs.

    Returns: nats.

    Source: Ghosh, Roughgarden, Sundararajan 2009.

    Example:
        >>> mz.papers.published_discrete_laplace_epsilon(scale=2.0)
        0.5
    """
    return check_count("sensitivity", sensitivity, least=1, most=MAX_LEVELS) / check_scale(
        "scale", scale
    )


def published_discrete_gaussian_renyi(
    *,
    sigma: float,
    alpha: float,
    sensitivity: int = 1,
) -> float:
    """Renyi bound of untruncated discrete Gaussian noise: alpha sensitivity**2 / (2 sigma**2),
    alpha > 1.

    No guarantee about a truncated table: ask `IntegerNoise.renyi`.

    Arguments:
        sigma: > 0.
        alpha: Renyi order, > 1.
        sensitivity: largest difference of two inputs.

    Returns: nats.

    Source: Canonne, Kamath, Steinke 2020, Theorem 4 (concentrated differential privacy).

    Example:
        >>> mz.papers.published_discrete_gaussian_renyi(sigma=2.0, alpha=4.0)
        0.5
    """
    checked_sensitivity = check_count("sensitivity", sensitivity, least=1, most=MAX_LEVELS)
    return _order(alpha) * checked_sensitivity**2 / (2 * check_scale("sigma", sigma) ** 2)


def published_skellam_renyi(
    *,
    variance: float,
    alpha: float,
    sensitivity: int = 1,
) -> float:
    """Renyi bound of untruncated Skellam noise for one integer of the given sensitivity s, alpha >
    1, v = variance.

    alpha s**2 / (2 v) + min(((2 alpha - 1) s**2 + 6 s) / (4 v**2), 3 s / (2 v)).
    No guarantee about a truncated table: ask `IntegerNoise.renyi`.

    Arguments:
        variance: > 0.
        alpha: Renyi order, > 1.
        sensitivity: largest difference of two inputs.

    Returns: nats.

    Source: Agarwal, Kairouz, Liu 2021, Theorem 3.5 for one coordinate.

    Example:
        >>> round(mz.papers.published_skellam_renyi(variance=100.0, alpha=4.0), 4)
        0.0203
    """
    shift, noise_variance = (
        check_count("sensitivity", sensitivity, least=1, most=MAX_LEVELS),
        check_scale("variance", variance),
    )
    renyi_order = _order(alpha)
    skellam_excess = min(
        ((2 * renyi_order - 1) * shift**2 + 6 * shift) / (4 * noise_variance**2),
        3 * shift / (2 * noise_variance),
    )
    return renyi_order * shift**2 / (2 * noise_variance) + skellam_excess


def _order(alpha: object) -> float:
    renyi_order = check_finite("alpha", alpha)
    if renyi_order <= 1:
        raise ParameterError(
            "alpha", renyi_order, "the published bound is for Renyi orders above 1"
        )
    return renyi_order
