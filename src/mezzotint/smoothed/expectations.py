"""Smoothed delta: the largest expectation of delta(x) when every record follows some distribution
of a set.

Last, formulas as the paper prints them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy import optimize, special

from mezzotint.core.errors import ParameterError, as_real
from mezzotint.smoothed import compositions, many_types, mechanisms
from mezzotint.smoothed.model import (
    LOG_TEN,
    Distribution,
    Expected,
    Loss,
    Rational,
    Sample,
    Sampling,
    hull_vertices,
    log10_down,
    log10_worst_case,
    read_count,
    read_loss,
    read_loss_rate,
    read_rational,
    read_sample,
    read_vertices,
    to_log10,
)
from mezzotint.smoothed.monte_carlo import SampledMean, monte_carlo
from mezzotint.smoothed.sampled_laws import Setting


def expected(
    *,
    n: int,
    vertices: Sequence[Rational | Sequence[Rational]],
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    mechanism: object = "histogram",
    sampling: Sampling | None = None,
    method: str = "auto",
    draws: int | None = None,
    seed: int | None = None,
) -> Expected:
    """Smoothed delta of an anonymous mechanism: the largest expectation of delta(x) where each of n
    records independently follows a distribution that an adversary chooses from a set.

    Arguments:
        n: number of records.
        vertices: corners of the set: for two types shares of the first, else one chance per type;
            floats are read by their shortest decimal.
        loss_rate, sampled, epsilon, ratio: as in `profile`.
        mechanism: "histogram"; "winner" (plurality); a callable from a tuple of counts to {output:
            chance}; a table of rows, one for each histogram in lexicographic order; or a record of
            `smoothed.mechanisms`. Whole numbers, Fractions or decimal strings give exact results.
        sampling: "without_replacement", "with_replacement" or "poisson": what the mechanism sees;
            None: all records (but the histogram is sampled in any case).
        method: for the histogram without replacement: "auto"; "all_splits" (two types, O(n^2));
            "bracket", "enumeration" or "monte_carlo" (three or more types).
        draws, seed: for "monte_carlo" alone, the number of random histograms (None for 1000) and
            the seed (None for 0).
    Returns: an `Expected`; the truth lies in its [log10_lower, log10_upper], whatever the status.
    Raises:
        ParameterError: a parameter is out of range, or the mechanism's chances are no law.
    Edge cases: no record lost: 1. A type of chance 0 gives the worst case.
    Source: "Smoothed Differential Privacy", Algorithm 1; docs/proofs/smoothed-expected.md.
    Example:
        >>> shares = ["0.3", "0.6"]
        >>> result = mz.smoothed.expected(n=1000, vertices=shares, loss_rate="0.1", epsilon=1.0)
        >>> result.certified, result.log10_delta < 0
        (True, True)
    """
    started = time.perf_counter()
    records = read_count("n", n, least=1)
    distributions = read_vertices(vertices)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    anonymous = mechanisms.read_mechanism(mechanism)
    if method != "monte_carlo":
        _refuse_ignored("draws", draws, 'method="monte_carlo"')
        _refuse_ignored("seed", seed, 'method="monte_carlo"')
    if sampling is not None or anonymous != mechanisms.Histogram():
        if method != "auto":
            _refuse_ignored("method", method, "the histogram without sampling=")
        any_sample = _read_any_sample(records, loss_rate, sampled, sampling)
        types = len(distributions[0])
        setting = Setting(
            mechanism=anonymous, records=records, types=types, loss=loss, sample=any_sample
        )
        return _expected_of_any(setting, distributions, started)
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    _check_method(method, len(distributions[0]))
    corners = hull_vertices(distributions)
    if method == "monte_carlo" and sample.lost > 0:
        return _sampled(sample, loss, corners, started, draws=draws, seed=seed)
    search_range = _histogram_range(sample, loss, corners, method)
    return expected_record(sample, loss, corners, search_range, started)


def _refuse_ignored(name: str, value: object, purpose: str) -> None:
    """Raises ParameterError for an option that is given where it would have no effect."""
    if value is not None:
        raise ParameterError(name, value, f"is for {purpose} alone; leave it out")


def _check_method(method: str, types: int) -> None:
    allowed = ("auto", "enumeration", "bracket", "monte_carlo")
    if types == 2:
        allowed = ("auto", "certificate", "all_splits")
    if method not in allowed:
        remedy = f"with {types} types choose one of {', '.join(allowed)}"
        raise ParameterError("method", method, remedy)


def _histogram_range(
    sample: Sample,
    loss: Loss,
    corners: tuple[Distribution, ...],
    method: str,
) -> many_types.Range:
    """Of the histogram, sampled without replacement."""
    if sample.lost == 0:
        return many_types.Range(
            log_value=0.0,
            log_lower=0.0,
            log_upper=0.0,
            split=(sample.records,) + (0,) * (len(corners) - 1),
            method="single vertex",
            reason="No record is lost: the exact histogram is published, and delta = 1 for every "
            "database.",
        )
    if len(corners[0]) == 2:
        ends = tuple(corner[0] for corner in corners)
        return many_types.search(sample, loss, ends, method)
    enumerable = many_types.enumerable(sample.records, corners)
    if method in ("auto", "enumeration") and enumerable:
        return many_types.enumerate_all(sample, loss, corners)
    if method == "enumeration":
        remedy = f"n={sample.records} is too large to enumerate; try bracket"
        raise ParameterError("method", method, remedy)
    return many_types.bracket(sample, loss, corners)


_DRAWS = 1000
"""Random histograms of a Monte Carlo estimate where no number is given."""


def _sampled(
    sample: Sample,
    loss: Loss,
    corners: tuple[Distribution, ...],
    started: float,
    *,
    draws: int | None,
    seed: int | None,
) -> Expected:
    """A Monte Carlo estimate at the worst composition of the bracket, cut to its bounds."""
    bounds = many_types.bracket(sample, loss, corners)
    if draws is None:
        draws = _DRAWS
    if seed is None:
        seed = 0
    check_draws(draws, "random histograms", _DRAWS)
    estimate = monte_carlo(
        sample=sample, loss=loss, vertices=corners, composition=bounds.split, draws=draws, seed=seed
    )
    reason = f"Mean of exact delta at {draws} random histograms of the composition {bounds.split}."
    bounds = replace(bounds, reason=reason)
    return expected_record(sample, loss, corners, bounds, started, estimate)


def _read_any_sample(
    records: int,
    loss_rate: Rational | None,
    sampled: int | None,
    sampling: Sampling | None,
) -> Sample | None:
    """How a mechanism's records are sampled; None where neither a sampler nor a number is named.

    Not None for `sampled` = n, which is the sample of all: the histogram needs a sampler, and is
    refused without.
    """
    if sampling is None and sampled is None and loss_rate is None:
        return None
    return read_sample(
        records,
        loss_rate=loss_rate,
        sampled=sampled,
        replacement=sampling == "with_replacement",
        poisson=sampling == "poisson",
    )


def _expected_of_any(
    setting: Setting,
    vertices: tuple[Distribution, ...],
    started: float,
) -> Expected:
    """`expected` for any mechanism and sampler.

    The distributions are taken as they are, in their order.
    """
    search = compositions.search_compositions(setting, vertices)
    unsampled = Sample(
        records=setting.records,
        sampled=setting.records,
        rate=Fraction(1),
        sampling="without_replacement",
    )
    sample = setting.sample or unsampled
    result = expected_record(
        sample=sample, loss=setting.loss, corners=vertices, search=search, started=started
    )
    assert search.log_worst is not None
    return replace(result, log10_worst_case=search.log_worst / LOG_TEN)


def check_draws(draws: int, noun: str, example: int) -> None:
    """ParameterError unless draws are enough for an interval."""
    if read_count("draws", draws) < 2:
        remedy = f"needs at least 2 {noun} for an interval; try {example}"
        raise ParameterError("draws", draws, remedy)


def expected_record(
    sample: Sample,
    loss: Loss,
    corners: Sequence[Distribution] | Sequence[np.ndarray],
    search: many_types.Range,
    started: float,
    estimate: SampledMean | None = None,
) -> Expected:
    """The result of a search, or of a Monte Carlo estimate within its bounds."""
    value = search.log_value
    confidence = None
    if estimate is not None:
        value = min(max(estimate.log_value, search.log_lower), search.log_upper)
        low = min(max(estimate.log_low, search.log_lower), value)
        high = max(min(estimate.log_high, search.log_upper), value)
        confidence = (estimate.confidence, low / LOG_TEN, high / LOG_TEN)
    lower = log10_down(search.log_lower)
    upper = min(to_log10(search.log_upper, 1e-300), 0.0)
    if search.log_value == 0.0 and search.log_upper == 0.0:
        lower = upper = 0.0
    return Expected(
        log10_delta=min(value / LOG_TEN, upper),
        log10_lower=lower,
        log10_upper=upper,
        certified=estimate is None and search.status == "closed",
        status=search.status if estimate is None else "sampled",
        confidence=confidence,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        vertices=tuple(tuple(float(chance) for chance in corner) for corner in corners),
        split=search.split,
        method=search.method if estimate is None else "Monte Carlo",
        log10_worst_case=log10_worst_case(sample),
        reason=search.reason,
        seconds=time.perf_counter() - started,
        exact=search.exact,
    )


def asymptotic_rate(
    *,
    vertices: Sequence[Rational | Sequence[Rational]],
    loss_rate: Rational,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> float:
    """The limit of -log10(smoothed delta) / n for two types, at a constant loss rate and any
    epsilon.

    Arguments:
        vertices: shares of the first type; loss_rate: rho in (0, 1); epsilon or ratio: the loss.
    Returns:
        The rate in powers of ten per record; 0 when a type may be absent. Not a bound at finite n.
    Raises:
        ParameterError: if there are more than two types, or rho is 0.
    Source: method of types: the share a of the first type costs KL(a || p); losing the shares rho u
        of the first and rho E u of the second type, the likeliest with likelihood ratio E, costs
        the other two divergences; u = 1 / (a + (1 - a) E) makes the lost shares add up.
    Example:
        >>> round(mz.smoothed.asymptotic_rate(vertices=["0.3"], loss_rate="0.1", epsilon=1.0), 4)
        0.0035
    """
    corners = hull_vertices(read_vertices(vertices))
    if len(corners[0]) != 2:
        remedy = "the rate is for two types; give shares of the first type"
        raise ParameterError("vertices", vertices, remedy)
    rate_lost = float(read_loss_rate(loss_rate))
    if rate_lost == 0.0:
        remedy = "must be above 0: with nothing lost delta is 1 at every n"
        raise ParameterError("loss_rate", loss_rate, remedy)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    ratio, _ = loss.parts
    shares = [float(min(corner)) for corner in corners]
    rates = [_rate(share, rate_lost, ratio) for share in shares]
    return min(rates) / LOG_TEN


_GRID_STEPS = 400
"""Shares of the first type that are tried before a minimum is refined."""


def _rate(share: float, rate_lost: float, ratio: float) -> float:
    """The rate at which delta falls with the records, nats for one, where the first type has this
    share: the cheapest way to a loss, of few records of a type or of an uneven sample.
    """
    if share == 0.0:
        return 0.0

    def cost(first: float) -> float:
        sampling = min(
            _sampling_cost(first, rate_lost, ratio),
            _sampling_cost(1.0 - first, rate_lost, ratio),
        )
        return _divergence(first, share) + sampling

    # The cost may have two valleys, near 0 (the type nearly vanishes) and near the share itself.
    shares = [0.5 * (step / _GRID_STEPS) ** 2 for step in range(_GRID_STEPS + 1)]
    costs = list(map(cost, shares))
    best = costs.index(min(costs))
    neighbours = (shares[max(0, best - 1)], shares[min(_GRID_STEPS, best + 1)])
    minimum = optimize.minimize_scalar(
        cost,
        bounds=neighbours,
        method="bounded",
        options={"xatol": 1e-12},
    )
    return min(float(minimum.fun), costs[best])


def _sampling_cost(first: float, rate_lost: float, ratio: float) -> float:
    factor = 1.0 / (first + (1.0 - first) * ratio)
    if rate_lost * ratio * factor > 1.0:
        return math.inf
    lost_first = _divergence(rate_lost * factor, rate_lost)
    lost_second = _divergence(rate_lost * ratio * factor, rate_lost)
    return first * lost_first + (1.0 - first) * lost_second


def _divergence(observed: float, chance: float) -> float:
    """Kullback and Leibler's of two coins."""
    divergence = special.rel_entr(observed, chance) + special.rel_entr(1 - observed, 1 - chance)
    return max(0.0, float(divergence))


# Formulas as printed in the paper, for comparison; those named `published_` are no guarantees


def published_remark8(
    n: int,
    *,
    sampling_rate: Rational,
    smallest_chance: Rational,
    types: int = 2,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> float:
    """log10 of Remark 8's bound exp(-g f n / 6) + m exp(-f n / 8), g = ((1 - e^-eps) / eta - 1)^2.
    No guarantee.

    It is false at small sampling rates (n = 200, T = 2, epsilon = 0.02005, f = 1/2: the exact value
    is 10^-3.53, the bound 10^-5.12), because the Chernoff bound behind it is used where the sampled
    share exceeds 2 eta; and it says nothing useful where few records are lost, since epsilon must
    exceed ln(1 / (1 - eta)).

    Arguments:
        n: records; sampling_rate: eta; smallest_chance: f; types: m; epsilon or ratio: the loss.
    Returns: the number that the paper states, log10.
    Raises:
        ParameterError: if epsilon <= ln(1 / (1 - eta)), where the remark claims nothing, or a value
        is out of range.
    Example:
        >>> bound = mz.smoothed.published_remark8(
        ...     10_000, sampling_rate="0.5", smallest_chance="0.3", epsilon=1.0
        ... )
        >>> round(bound, 2)
        -15.16
    """
    eta = read_rational("sampling_rate", sampling_rate)
    smallest = read_rational("smallest_chance", smallest_chance)
    if not 0 < eta <= 1:
        raise ParameterError("sampling_rate", sampling_rate, "must lie in (0, 1]")
    if not 0 <= smallest <= 1:
        raise ParameterError("smallest_chance", smallest_chance, "must lie in [0, 1]")
    records = read_count("n", n)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    if loss.ratio * (1 - eta) <= 1:
        remedy = "Remark 8 needs epsilon above ln(1 / (1 - sampling_rate))"
        raise ParameterError("epsilon", loss.epsilon, remedy)
    excess = float((1 - 1 / loss.ratio) / eta) - 1.0
    g = excess**2
    scaled = float(smallest) * records
    log_terms = (-g * scaled / 6.0, math.log(types) - scaled / 8.0)
    peak = max(log_terms)
    total = sum(math.exp(log_term - peak) for log_term in log_terms)
    return (peak + math.log(total)) / LOG_TEN


def published_theorem5_worst_case(n: int, sampled: int) -> float:
    """T / (n + 1), Theorem 5's lower bound of the worst-case delta with replacement. False from T =
    3 on.

    The exact worst case is 1 - (1 - 1/n)^T, which is smaller for T >= 3 and large n.

    Arguments:
        n: records.
        sampled: T, records drawn.

    Returns: the number that the paper states.

    Example:
        >>> mz.smoothed.published_theorem5_worst_case(99, 10)
        0.1
    """
    return read_count("sampled", sampled) / (read_count("n", n) + 1)


def published_equation2_probability(delta: float) -> float:
    """1 - 2 delta, Equation (2)'s chance that the likelihood ratio lies in [e^-eps / 2, 2 e^eps].
    No guarantee.

    `likely_ratio_probability` is the corrected statement.

    Arguments:
        delta: in [0, 1].

    Returns: the number that the paper states.

    Example:
        >>> mz.smoothed.published_equation2_probability(0.25), mz.smoothed.likely_ratio_probability(0.25, epsilon=0.0)
        (0.5, 0.25)
    """
    return 1.0 - 2.0 * delta


def likely_ratio_probability(delta: float, *, epsilon: float) -> float:
    """A lower bound of the chance that the likelihood ratio lies in [e^-eps / 2, 2 e^eps]: 1 - (2 +
    e^-eps) delta.

    Where p > 2 E q, p - E q > p / 2, so those outcomes have P-mass below 2 delta. Where q > 2 E p,
    q - E p > E p, so theirs is below delta / E. Both together may exceed 2 delta.

    Arguments:
        delta: of the guarantee, in [0, 1].
        epsilon: of the guarantee, >= 0.

    Returns: a probability.

    Example:
        >>> round(mz.smoothed.likely_ratio_probability(1e-3, epsilon=1.0), 4)
        0.9976
    """
    chance = as_real("delta", delta, lambda value: 0 <= value <= 1, "need a probability in [0, 1]")
    loss = as_real("epsilon", epsilon, lambda value: value >= 0, "need a number >= 0")
    return max(0.0, 1.0 - (2.0 + math.exp(-loss)) * chance)


def published_noise_ratio(epsilon: float) -> float:
    """exp(-epsilon / 4), the factor per unit of L1 distance in Equation (4); use it as
    `noise_ratio`.

    Arguments:
        epsilon: > 0.

    Returns: the number that the paper states.

    Example:
        >>> round(mz.smoothed.published_noise_ratio(4.0), 4)
        0.3679
    """
    loss = read_loss(epsilon=epsilon, ratio=None)
    return math.exp(-loss.epsilon / 4.0)


def published_table1_noise_epsilon(epsilon: float, *, sampling_rate: Rational) -> float:
    """eta epsilon, Table 1's loss of the noisy histogram under ordinary differential privacy. No
    guarantee.

    At small rates and large epsilon it is false: `noisy_epsilon` is a proved loss, and in the
    tests' counterexample (1 of 10 records, epsilon = 8) the exact delta at eta epsilon is above 0.

    Arguments:
        epsilon: > 0.
        sampling_rate: eta, in (0, 1].

    Returns: the number that the paper states.

    Example:
        >>> stated = mz.smoothed.published_table1_noise_epsilon(8.0, sampling_rate="0.1")
        >>> round(stated, 4), round(mz.smoothed.noisy_epsilon(8.0, sampling_rate="0.1"), 4)
        (0.8, 1.9457)
    """
    return _sampling_rate(sampling_rate) * epsilon


def noisy_epsilon(epsilon: float, *, sampling_rate: Rational) -> float:
    """A loss at which Algorithm 4's histogram is purely private: ln(1 + eta (B - 1)), rounded up.

    B = (1 + r - r^2) / r^2 with r = e^(-epsilon/4) bounds the noise's ratio; sampling at rate eta
    amplifies.

    Arguments:
        epsilon: of the noise, B = e**epsilon.
        sampling_rate: eta, in (0, 1].

    Returns: nats.

    Example:
        >>> round(mz.smoothed.noisy_epsilon(8.0, sampling_rate="0.1"), 4)
        1.9457
    """
    rate = _sampling_rate(sampling_rate)
    ratio = published_noise_ratio(epsilon)
    # B - 1 = (1 - r)(1 + 2 r) / r^2, without a difference of near numbers.
    noise_gain = -math.expm1(-epsilon / 4.0)
    excess = noise_gain * (1.0 + 2.0 * ratio) / ratio**2
    log_bound = math.log1p(rate * excess)
    return math.nextafter(log_bound * (1.0 + 1e-14), math.inf)


def _sampling_rate(sampling_rate: Rational) -> float:
    exact = read_rational("sampling_rate", sampling_rate)
    if not 0 < exact <= 1:
        raise ParameterError(
            "sampling_rate", sampling_rate, "must lie in (0, 1]: the share of records sampled"
        )
    return float(exact)
