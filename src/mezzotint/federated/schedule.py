"""Who takes part when: ways to draw a round's clients, and in how many rounds one client may find itself."""

from __future__ import annotations

from typing import Literal

from mezzotint.core.errors import ParameterError

Sampling = Literal["fixed", "poisson", "cyclic"]
SAMPLINGS: tuple[Sampling, ...] = ("fixed", "poisson", "cyclic")

RISK = 0.01
"""Probability that some client is drawn for more rounds than `most_participations` says, where draws are random."""


def check_sampling(sampling: str) -> Sampling:
    """The way to draw of this name.

    Raises:
        ParameterError: there is none.
    """
    for known in SAMPLINGS:
        if sampling == known:
            return known
    raise ParameterError("sampling", sampling, f"use one of {', '.join(SAMPLINGS)}")


def check_spare(spare: int, sampling: str) -> int:
    """The number of spare clients.

    Raises:
        ParameterError: it is negative, or goes with "poisson": to leave out the slowest is no draw of each by itself.
    """
    if spare < 0:
        raise ParameterError("spare", spare, "a number of clients, 0 or more")
    if spare and sampling == "poisson":
        raise ParameterError("spare", spare, "goes with rounds of a fixed size: use sampling 'fixed' or 'cyclic'")
    return spare


def turn(number_of_round: int, clients: int, population: int) -> list[int]:
    """Places in a fixed order of the population whose turn it is in a round, if all rounds have so many clients.

    Guarantees: after T rounds nobody has been in fewer than floor(T clients / population) of them, nobody in more than
        one more, and two turns of one client are at least floor(population / clients) rounds apart.

    >>> turn(1, 2, 5), turn(2, 2, 5), turn(3, 2, 5)
    ([0, 1], [2, 3], [4, 0])
    """
    first = (number_of_round - 1) * clients
    return [place % population for place in range(first, first + clients)]


def most_participations(sampling: Sampling, *, rounds: int, per_round: int, population: int) -> int:
    """Rounds of the client that is in most of them.

    Arguments:
        sampling: how a round's clients are drawn.
        rounds: of the run.
        per_round: clients of a round, or their expected number.
        population: clients in all.

    Returns: exactly that for "cyclic"; else the least number that no client exceeds but with probability `RISK`, by a
        union bound over all of them.

    >>> most_participations("cyclic", rounds=20, per_round=100, population=1000)
    2
    >>> most_participations("fixed", rounds=20, per_round=100, population=1000)
    9
    """
    if per_round >= population:
        return rounds
    if sampling == "cyclic":
        return -(-rounds * per_round // population)
    rate, left = per_round / population, 1.0
    chance = (1 - rate) ** rounds
    for most in range(rounds):
        left -= chance
        if population * left <= RISK:
            return most
        chance *= (rounds - most) / (most + 1) * rate / (1 - rate)
    return rounds
