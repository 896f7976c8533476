"""Which mechanism should I use? A question in numbers, an answer with reasons and the lines that make it."""

from __future__ import annotations

import math
import shlex
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, final

import mezzotint as mz
from mezzotint.core import priors
from mezzotint.core.arguments import check_choice, check_count, check_finite, check_probability
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_BITS = 6
COUNTS = {"bits": MOST_BITS, "clients": 10**9, "coordinates": 10**7, "rounds": 10**5}
"""Whole numbers of a question, and the most that each may be."""

_REACHES = (1.0, 1.005, 1.02, 1.06, 1.13, 1.3)
"""How far out even grids are tried, as multiples of the least that unbiased reports need."""

_INNER = ((1.15, 0.06), (1.15, 0.18), (1.08, 0.3))
"""Where reports need not add up: reach of four levels, the inner ones at these shares of the outer. Near the searched
optimum at epsilon 1 to 3, where even grids are worst."""

KNOTS = {"local": 33, "sum": 9}
"""Evenly spaced inputs at which the table has a row. Finding the best inputs would gain some tenths of a percent and
take ten times as long; sums are accounted over pairs of rows, so that fewer rows answer sooner."""

_MARGIN = 1e-6


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """A user's question.

    Arguments:
        epsilon: pure epsilon of one report, in [0.05, 15].
        bits: of one report, 1 to 6; lower, upper: range of the inputs, data units.
        loss: "mse" or "mae", to be made small.
        prior: FILE:COLUMN of public data that inputs are like, or "" for uniform.
        clients: reports per round; coordinates: values per client and round; rounds.
        view: "local", every report is seen; "sum", only secure sums are.
        delta: of the total claim.
    """

    epsilon: float = 1.0
    bits: int = 2
    lower: float = -1.0
    upper: float = 1.0
    loss: Literal["mse", "mae"] = "mse"
    prior: str = ""
    clients: int = 10_000
    coordinates: int = 1
    rounds: int = 1
    view: Literal["local", "sum"] = "local"
    delta: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("epsilon", "lower", "upper"):
            check_finite(name, getattr(self, name))
        if not 0.05 <= self.epsilon <= 15:
            raise ParameterError("epsilon", self.epsilon, "use 0.05 to 15 per report")
        if not self.lower < self.upper:
            raise ParameterError("upper", self.upper, f"must be above lower={self.lower:g}")
        check_probability("delta", self.delta)
        for name, most in COUNTS.items():
            check_count(name, getattr(self, name), most=most)
        check_choice("loss", self.loss, ("mse", "mae"))
        check_choice("view", self.view, ("local", "sum"))


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """The suggested mechanism.

    Arguments:
        mechanism: the table; its certified epsilon is at most the question's.
        family, levels: the options of `mezzotint design` that make it.
        mse, mae: under the question's prior, squared data units and data units.
        one_bit: the question's loss of one-bit randomized response at the same epsilon.
        bytes_per_client: packed reports of one client in all rounds, rounded up per round.
        half_width: of the 95 % interval for the mean of one coordinate in one round: the part that privacy adds.
        reasons: why this one.
    """

    mechanism: Mechanism
    family: str
    levels: tuple[float, ...]
    mse: float
    mae: float
    one_bit: float
    bytes_per_client: int
    half_width: float
    reasons: tuple[str, ...]


@lru_cache(maxsize=8)
def _values(prior: str) -> npt.NDArray[np.floating]:
    from mezzotint.collect import columns

    path, _, column = prior.rpartition(":")
    if not path or not column:
        raise ParameterError("prior", prior, "give FILE:COLUMN, as in public.parquet:age")
    return columns.read_values(path, column=column)


@lru_cache(maxsize=32)
def _sample(prior: str, lower: float, upper: float) -> priors.Prior | None:
    """Sorted and counted once: an answer then takes as long as the column has different values."""
    return priors.as_prior(_values(prior), lower=lower, upper=upper) if prior else None


@lru_cache(maxsize=512)
def _candidates(asked: Question) -> tuple[tuple[str, Mechanism], ...]:
    """Tables to choose from, each made in milliseconds: one-bit response, and best tables on even grids of levels."""
    epsilon, lower, upper, count, knots = asked.epsilon, asked.lower, asked.upper, 2**asked.bits, KNOTS[asked.view]
    problem: dict[str, Any] = {"epsilon": epsilon, "lower": lower, "upper": upper, "loss": asked.loss}
    problem["prior"] = _sample(asked.prior, lower, upper)
    found = [("randomized_response", mz.design.calibrate("randomized_response", levels=2, **problem).mechanism)]
    grids = [even_levels(epsilon, count, lower, upper, reach) for reach in _REACHES if count > 2]
    if count == 4 and knots == KNOTS["local"]:
        grids += [four_levels(epsilon, lower, upper, reach, share) for reach, share in _INNER]
    for levels in grids:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(("optimal", mz.design.optimal(levels=levels, knots=knots, **problem).mechanism))
        except MezzotintError:
            continue
    return tuple(found)


def even_levels(epsilon: float, count: int, lower: float, upper: float, reach: float) -> list[float]:
    """An even grid around the middle of the range, `reach` times as far out as unbiased reports need, easy to type."""
    half = (upper - lower) / 2 / math.tanh(epsilon / 2) * reach * (1 + _MARGIN)
    # Six digits, rounded outwards: the margin is wider than their grain.
    step = float(f"{2 * half / (count - 1) * (1 + _MARGIN):.7g}")
    middle = lower + (upper - lower) / 2
    return [float(f"{middle + step * (k - (count - 1) / 2):.14g}") for k in range(count)]


def four_levels(epsilon: float, lower: float, upper: float, reach: float, share: float) -> list[float]:
    """Outer levels `reach` times as far out as unbiased reports need, inner ones at a share of that; easy to type."""
    half = (upper - lower) / 2 / math.tanh(epsilon / 2) * reach
    middle = lower + (upper - lower) / 2
    return [float(f"{middle + half * place:.9g}") for place in (-1.0, -share, share, 1.0)]


def advise(question: Question) -> Answer:
    """The best mechanism found for a question, in a fraction of a second for up to 16 levels.

    Where sums of reports must decode to sums of values, levels lie on an even grid. The table is optimal on its levels.
    `mezzotint design --levels N` also searches levels and knots: that takes seconds and gains a few percent.

    Raises:
        ParameterError, InfeasibleError: naming what cannot be met.
    """
    # Tables depend on nothing else: another number of clients or rounds needs no new ones.
    candidates = _candidates(replace(question, clients=1, coordinates=1, rounds=1, delta=0.5))
    sample = _sample(question.prior, question.lower, question.upper)

    def loss(mechanism: Mechanism) -> float:
        return mechanism.mse(sample) if question.loss == "mse" else mechanism.mae(sample)

    family, mechanism = min(candidates, key=lambda one: loss(one[1]))
    one_bit = loss(candidates[0][1])
    mse = mechanism.mse(sample)
    per_round = math.ceil(question.coordinates * mechanism.bits / 8)
    return Answer(
        mechanism=mechanism, family=family, levels=tuple(mechanism.levels.tolist()), mse=mse,
        mae=mechanism.mae(sample), one_bit=one_bit, bytes_per_client=per_round * question.rounds,
        half_width=1.959963984540054 * math.sqrt(mse / question.clients),
        reasons=_reasons(question, family, mechanism, loss(mechanism), one_bit),
    )  # fmt: skip


def _reasons(question: Question, family: str, mechanism: Mechanism, loss: float, one_bit: float) -> tuple[str, ...]:
    reasons = []
    if family == "randomized_response":
        reasons.append(
            "One bit with randomized response has the smallest loss here"
            + ("." if question.bits == 1 else ": at this epsilon further levels on the grids tried buy nothing.")
        )
    else:
        reasons.append(
            f"The optimal table on these {mechanism.levels.size} levels has {100 * (1 - loss / one_bit):.3g} % less "
            f"{question.loss.upper()} than one-bit randomized response at the same certified epsilon."
        )
        if question.view == "local" and not question.prior:
            search = f"mezzotint design --epsilon {question.epsilon:g} --levels {mechanism.levels.size} ..."
            reasons.append(f"Searching the levels too takes seconds and gains up to some percent: {search}")
    if question.view == "sum":
        reasons.append("Its levels are evenly spaced, so that a secure sum of codes decodes to the sum of the values.")
    reasons.append(
        f"It is unbiased up to {above(mechanism.max_bias, 2)} data units, so that averages of many reports converge."
    )
    if question.coordinates * question.rounds > 1 and question.view == "local":
        reasons.append(
            f"A client sends {question.coordinates * question.rounds:,} reports and all of them are seen: the total "
            "claim below is what matters, not the epsilon of one report. Fewer coordinates or secure sums lower it."
        )
    if question.prior:
        reasons.append("The design depends on the prior's column; if that is private, its release is not covered.")
    return tuple(reasons)


_account = lru_cache(maxsize=512)(mz.privacy.account)


def claim(question: Question, advice: Answer) -> mz.privacy.Claim:
    """The claim of the whole release, by `mezzotint.privacy.account`."""
    release = {name: getattr(question, name) for name in ("coordinates", "rounds", "view", "delta")}
    return _account(advice.mechanism, **release, **({"clients": question.clients} if question.view == "sum" else {}))


# The lines that make it --------------------------------------------------------------------------------------


def commands(question: Question, advice: Answer) -> tuple[str, str]:
    """Two command lines: one that designs the mechanism, one that accounts the release. They run as they stand."""
    levels = "2" if advice.family == "randomized_response" else ",".join(map(repr, advice.levels))
    make = ["mezzotint", "design", "--family", advice.family, "--epsilon", repr(question.epsilon), f"--levels={levels}"]
    if advice.family == "optimal":
        make += ["--knots", str(KNOTS[question.view])]
    make += [f"--lower={question.lower!r}", f"--upper={question.upper!r}", "--loss", question.loss]
    if question.prior:
        make += ["--prior", question.prior]
    make += ["--out", "m.json"]
    account = ["mezzotint", "account", "m.json", "--coordinates", str(question.coordinates)]
    account += ["--rounds", str(question.rounds), "--view", question.view, "--delta", repr(question.delta)]
    if question.view == "sum":
        account += ["--clients", str(question.clients)]
    return shlex.join(make), shlex.join(account)


def python_lines(question: Question, advice: Answer) -> str:
    """The same in Python."""
    problem = ", ".join(f"{name}={getattr(question, name)!r}" for name in ("epsilon", "lower", "upper", "loss"))
    lines = ["import mezzotint as mz", ""]
    if question.prior:
        path, _, column = question.prior.rpartition(":")
        lines.append(f"prior = mz.collect.read_values({path!r}, column={column!r})")
        problem += ", prior=prior"
    if advice.family == "randomized_response":
        lines.append(f'mechanism = mz.design.calibrate("randomized_response", levels=2, {problem}).mechanism')
    else:
        levels, knots = list(advice.levels), KNOTS[question.view]
        lines.append(f"mechanism = mz.design.optimal(levels={levels!r}, knots={knots}, {problem}).mechanism")
    crowd = f", clients={question.clients}" if question.view == "sum" else ""
    lines.append(
        f"claim = mz.privacy.account(mechanism, coordinates={question.coordinates}, rounds={question.rounds}, "
        f"view={question.view!r}, delta={question.delta!r}{crowd})"
    )
    return "\n".join([*lines, "print(claim)"])


def summary(question: Question, advice: Answer) -> tuple[tuple[str, str], ...]:
    """The content of a page, as names and values."""
    mechanism = advice.mechanism
    return (
        (f"epsilon of one report ({mz.privacy.report_claim(mechanism).basis})", above(mechanism.epsilon, 8)),
        ("levels", f"{mechanism.levels.size} ({mechanism.bits} bits)"),
        ("mean squared error", number(advice.mse, 6)),
        ("mean absolute error", number(advice.mae, 6)),
        ("one-bit randomized response, " + question.loss.upper(), number(advice.one_bit, 6)),
        ("bytes per client, all rounds", f"{advice.bytes_per_client:,}"),
        ("95 % half width of a mean over the clients, from privacy", number(advice.half_width, 4)),
    )
