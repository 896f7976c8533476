"""The RQP-SGD paper's formulas as printed, which guarantee nothing and say why, and its Theorem 2
as corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final, get_args

from scipy.special import ndtr

from mezzotint.core.arguments import check_choice, check_count, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.search import bracket
from mezzotint.training.contraction import check_bits, check_q
from mezzotint.training.sampling import Rounding

SamplingName = Literal["poisson", "with_replacement"]


@final
@dataclass(frozen=True, kw_only=True)
class PublishedValue:
    """A number that a paper prints, with the reasons why it is not a privacy guarantee.

    Arguments:
        value: the number.
        meaning: what the paper says it is.
        reasons: which of the known flaws apply to these settings; never empty.
    """

    value: float
    meaning: str
    reasons: tuple[str, ...]

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return (
            f"{self.meaning} = {self.value:.6g}, not a DP guarantee: "
            + "; ".join(self.reasons)
            + "."
        )


@final
@dataclass(frozen=True, kw_only=True)
class RQPSettings:
    """The settings of the paper's Theorem 1.

    Arguments:
        noise_multiplier: sigma / rho, the noise of the summed clipped gradient over the clip norm,
            > 0.
        bits: bits of one weight, 1 to 16.
        bound: M, weights lie in [-M, M], > 0.
        clip_norm: rho > 0.
        step_size: eta > 0.
        batch_size, dataset_size, steps: m, n, T, each at least 1.
        dimension: number of weights, at least 1.
        sampling: "with_replacement" (the paper's) or "poisson".
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    noise_multiplier: float
    bits: int
    bound: float
    clip_norm: float
    step_size: float
    batch_size: int
    dataset_size: int
    steps: int
    dimension: int = 1
    sampling: SamplingName = "with_replacement"

    def __post_init__(self) -> None:
        check_bits(self.bits)
        for field_name in ("noise_multiplier", "bound", "clip_norm", "step_size"):
            check_positive(field_name, getattr(self, field_name))
        for field_name in ("batch_size", "dataset_size", "steps", "dimension"):
            check_count(field_name, getattr(self, field_name))
        check_choice("sampling", self.sampling, get_args(SamplingName))

    @property
    def levels(self) -> int:
        """L = 2**bits."""
        return 2**self.bits

    @property
    def half_cell(self) -> float:
        """h = M / (L - 1), half the distance of two levels."""
        return self.bound / (self.levels - 1)

    @property
    def weight_noise(self) -> float:
        """s = eta sigma / m, the standard deviation of the noise on a weight."""
        return self.step_size * self.noise_multiplier * self.clip_norm / self.batch_size

    @property
    def claimed_distance(self) -> float:
        """C = M - eta rho."""
        return self.bound - self.step_size * self.clip_norm

    def reasons(self) -> tuple[str, ...]:
        """Which of the five flaws of the published bound apply."""
        applying_flaws = [
            "C = M - eta rho stands in the proof as the distance between two gradient steps, which "
            "it is not (that is "
            "eta rho / m for one record added or removed, twice that for one replaced)"
        ]
        if self.claimed_distance < 0:
            applying_flaws[0] += (
                f"; C = {self.claimed_distance:.4g} is negative here, so it bounds no norm at all"
            )
        if self.dimension > 1:
            applying_flaws.append(
                f"the bound is for one coordinate, and {self.dimension} coordinates are released"
            )
        applying_flaws.append(
            "the two outermost levels collect half-lines, not cells as wide as the others"
        )
        if self.batch_size < self.dataset_size:
            applying_flaws.append(
                "sampling at rate p amplifies to log(1 + p (e^eps - 1)), which is more than p eps"
            )
        if self.sampling == "with_replacement" and self.batch_size > 1:
            applying_flaws.append(
                "a batch drawn with replacement may hold the same record several times"
            )
        return tuple(applying_flaws)


def published_epsilon(settings: RQPSettings, *, q: float) -> PublishedValue:
    """Theorem 1 of the RQP-SGD paper as printed: T (m/n) eps_t. NOT a differential privacy
    guarantee.

    Arguments:
        settings: see `RQPSettings`.
        q: probability to keep a code, in [1/2**bits, 1].
    Returns: the number, with the flaws that apply. `training.rqp.epsilon` and
        `rqp_pure.pure_epsilon` give numbers that hold.
    Raises:
        ParameterError: q outside its range.
    Guarantees: none about privacy; exact counterexamples are in the tests.
    Source: Feng and Venkitasubramaniam, RQP-SGD, Theorem 1.
    """
    keep_probability, half_cell, weight_noise = (
        check_q(q, settings.levels),
        settings.half_cell,
        settings.weight_noise,
    )
    farthest = settings.bound + settings.claimed_distance
    replacement = (1 - keep_probability) / (settings.levels - 1)
    likely_chance = (keep_probability - replacement) * (
        2 * float(ndtr(half_cell / weight_noise)) - 1
    ) + replacement
    unlikely_chance = (keep_probability - replacement) * float(
        ndtr((farthest + half_cell) / weight_noise) - ndtr((farthest - half_cell) / weight_noise)
    ) + replacement
    step_epsilon = math.log(likely_chance / unlikely_chance) if unlikely_chance > 0 else math.inf
    run_epsilon = settings.steps * settings.batch_size / settings.dataset_size * step_epsilon
    return PublishedValue(
        value=run_epsilon, meaning="the published epsilon of RQP-SGD", reasons=settings.reasons()
    )


def published_q(settings: RQPSettings, *, target: float = 1.0) -> PublishedValue:
    """The q at which the published bound reads `target`. NOT a privacy guarantee.

    Arguments:
        settings: see `RQPSettings`.
        target: the nominal value wished for, > 0.
    Returns: the largest such q, 1 if the published bound stays below `target` for every q; with the
    flaws. Raises:
        ParameterError: target not positive.
    Source: Feng and Venkitasubramaniam, RQP-SGD, Theorem 1 solved for q.
    """
    check_positive("target", target)

    # The published value grows with q: the ratio of two numbers that both mix with the same u.
    smallest_q = 1 / settings.levels
    is_within = float(published_epsilon(settings, q=1.0)) <= target
    largest_q = 1.0
    if not is_within:
        largest_q, _ = bracket(
            lambda q: float(published_epsilon(settings, q=q)) <= target, smallest_q, 1.0
        )
    meaning = f"the q at which the published epsilon of RQP-SGD reads {target:g}"
    return PublishedValue(value=largest_q, meaning=meaning, reasons=settings.reasons())


def utility_bound(
    settings: RQPSettings,
    *,
    q: float = 1.0,
    rounding: Rounding = "stochastic",
    start_distance: float,
) -> float:
    """Expected excess loss of an iterate drawn evenly from all steps: an upper bound for convex,
    rho-Lipschitz losses.

    Arguments:
        settings: see `RQPSettings`; `sampling="poisson"` means sums divided by the expected batch
            size.
        q: probability to keep a code, in [1/2**bits, 1].
        rounding: how a weight is projected before codes are replaced.
        start_distance: L2 distance from the first iterate to a minimizer within [-M, M]^d, >= 0; 2
            M sqrt(d) always bounds it.
    Returns: the bound, in units of the loss.
    Raises:
        ParameterError: a rounding that is not known, q or distance outside its range.
    Guarantees: for a minimizer in the box; the average of the iterates is bounded too, but is not
    quantized.
    Source: corrected Theorem 2 (docs/proofs/training.md).
    """
    check_choice("rounding", rounding, get_args(Rounding))
    if not start_distance >= 0:
        raise ParameterError("start_distance", start_distance, "a distance is 0 or more")
    keep_probability, level_count = check_q(q, settings.levels), settings.levels
    half_cell, weight_bound, step_size = settings.half_cell, settings.bound, settings.step_size
    # Per coordinate E[(w' - w*)^2 - (v - w*)^2], v clipped. Nearest: |w' - v| <= h and |w' + v - 2
    # w*| <= 4M + h.
    # Stochastic: unbiased with variance at most h^2. Replaced by an even level, w' has mean 0,
    # variance
    # M^2 (L+1) / (3 (L-1)), and w*^2 <= M^2.
    rounding_error = (
        half_cell**2 if rounding == "stochastic" else 4 * weight_bound * half_cell + half_cell**2
    )
    replacement_error = weight_bound**2 * (1 + (level_count + 1) / (3 * (level_count - 1)))
    even_chance = level_count * (1 - keep_probability) / (level_count - 1)
    projection_error = settings.dimension * (
        (1 - even_chance) * rounding_error + even_chance * replacement_error
    )
    # A Poisson batch has |B|^2 / m^2 = 1 + (1-p)/m on average; a batch of fixed size 1.
    batch_factor = 1 + 1 / settings.batch_size if settings.sampling == "poisson" else 1.0
    noise_scale = settings.noise_multiplier * settings.clip_norm
    return (
        start_distance**2 / (2 * step_size * settings.steps)
        + step_size * settings.clip_norm**2 * batch_factor / 2
        + step_size * settings.dimension * noise_scale**2 / (2 * settings.batch_size**2)
        + projection_error / (2 * step_size)
    )


def published_utility_bound(settings: RQPSettings, *, q: float) -> PublishedValue:
    """Theorem 2 of the RQP-SGD paper as printed. NOT a bound: it drops a term.

    Arguments:
        settings: see `RQPSettings`.
        q: probability to keep a code, in [1/2**bits, 1].
    Source: Feng and Venkitasubramaniam, RQP-SGD, Theorem 2, eq. (11).
    """
    keep_probability, level_count, dimension = (
        check_q(q, settings.levels),
        settings.levels,
        settings.dimension,
    )
    squares = keep_probability / (level_count - 1) ** 2 + 2 * level_count * (
        2 * level_count - 1
    ) / (3 * (level_count - 1) ** 2) * (1 - keep_probability)
    noise_scale = settings.noise_multiplier * settings.clip_norm
    excess_loss = (
        settings.bound**2 / (2 * settings.step_size * settings.steps)
        + dimension * settings.bound**2 * squares
        + settings.step_size * settings.clip_norm**2 / 2
        + settings.step_size * noise_scale**2 * dimension
    )
    reason = (
        "the proof drops the cross term of the projection error, and a run whose steps are shorter "
        "than half a cell "
        "stays above it for ever"
    )
    return PublishedValue(
        value=excess_loss, meaning="the published excess loss of RQP-SGD", reasons=(reason,)
    )
