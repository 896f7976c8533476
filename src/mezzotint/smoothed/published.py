"""Formulas as printed in "Smoothed Differential Privacy": for comparison, none of them is a guarantee."""

from __future__ import annotations

import math

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed.model import Rational, read_count, read_loss, read_rational


def published_remark8(
    n: int,
    *,
    sampling_rate: Rational,
    smallest_chance: Rational,
    types: int = 2,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> float:
    """log10 of Remark 8's bound exp(-g f n / 6) + m exp(-f n / 8), g = ((1 - e^-eps) / eta - 1)^2. No guarantee.

    It is false at small sampling rates (n = 200, T = 2, epsilon = 0.02005, f = 1/2: the exact value is 10^-3.53,
    the bound 10^-5.12), because the Chernoff bound behind it is used where the sampled share exceeds 2 eta; and it
    says nothing useful where few records are lost, since epsilon must exceed ln(1 / (1 - eta)).

    Arguments:
        n: records; sampling_rate: eta; smallest_chance: f; types: m; epsilon or ratio: the loss.
    Returns: the number that the paper states, log10.
    Raises:
        ParameterError: if epsilon <= ln(1 / (1 - eta)), where the remark claims nothing, or a value is out of range.
    Example:
        >>> round(mz.smoothed.published_remark8(10_000, sampling_rate="0.5", smallest_chance="0.3", epsilon=1.0), 2)
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
        raise ParameterError("epsilon", loss.epsilon, "Remark 8 needs epsilon above ln(1 / (1 - sampling_rate))")
    g = (float((1 - 1 / loss.ratio) / eta) - 1.0) ** 2
    scaled = float(smallest) * records
    one, two = -g * scaled / 6.0, math.log(types) - scaled / 8.0
    peak = max(one, two)
    return (peak + math.log(math.exp(one - peak) + math.exp(two - peak))) / math.log(10.0)


def published_theorem5_worst_case(n: int, sampled: int) -> float:
    """T / (n + 1), Theorem 5's lower bound of the worst-case delta with replacement. False from T = 3 on.

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


def published_lemma10_factor() -> float:
    """3, Lemma 10's factor in d(x, x') + d(x', x) <= 3 u. With two types the factor 2 suffices.

    For two types u(x, x') + u(x', x) = d(x, x') + d(x', x) exactly, and u is the larger of the two.

    Returns: the number that the paper states.

    Example:
        >>> mz.smoothed.published_lemma10_factor()
        3.0
    """
    return 3.0


def published_equation2_probability(delta: float) -> float:
    """1 - 2 delta, Equation (2)'s chance that the likelihood ratio lies in [e^-eps / 2, 2 e^eps]. No guarantee.

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
    """A lower bound of the chance that the likelihood ratio lies in [e^-eps / 2, 2 e^eps]: 1 - (2 + e^-eps) delta.

    Where p > 2 E q, p - E q > p / 2, so those outcomes have P-mass below 2 delta. Where q > 2 E p, q - E p > E p,
    so theirs is below delta / E. Both together may exceed 2 delta.

    Arguments:
        delta: of the guarantee, in [0, 1].
        epsilon: of the guarantee, >= 0.

    Returns: a probability.

    Example:
        >>> round(mz.smoothed.likely_ratio_probability(1e-3, epsilon=1.0), 4)
        0.9976
    """
    return 1.0 - (2.0 + math.exp(-epsilon)) * delta


def published_noise_ratio(epsilon: float) -> float:
    """exp(-epsilon / 4), the factor per unit of L1 distance in Equation (4); use it as `noise_ratio`.

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
    """eta epsilon, Table 1's loss of the noisy histogram under ordinary differential privacy. No guarantee.

    At small rates and large epsilon it is false: `noisy_epsilon` is a proved loss, and in the tests' counterexample
    (1 of 10 records, epsilon = 8) the exact delta at eta epsilon is above 0.

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

    B = (1 + r - r^2) / r^2 with r = e^(-epsilon/4) bounds the noise's ratio; sampling at rate eta amplifies.

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
    excess = -math.expm1(-epsilon / 4.0) * (1.0 + 2.0 * ratio) / ratio**2
    return math.nextafter(math.log1p(rate * excess) * (1.0 + 1e-14), math.inf)


def _sampling_rate(sampling_rate: Rational) -> float:
    exact = read_rational("sampling_rate", sampling_rate)
    if not 0 < exact <= 1:
        raise ParameterError("sampling_rate", sampling_rate, "must lie in (0, 1]: the share of records sampled")
    return float(exact)
