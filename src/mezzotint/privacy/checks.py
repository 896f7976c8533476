"""What all accounting asks of its arguments; each refusal names the parameter, its value and the remedy."""

from __future__ import annotations

import operator

from mezzotint.core.errors import ParameterError

MOST = 10**18
"""Largest count: products of counts stay far within the floats."""

MAX_CLIENTS = 10**8
"""More clients than this are accounted as this many: still a bound, and never a wrong one."""


def check_count(name: str, value: int, *, least: int = 1) -> int:
    """The number itself, as a plain integer; ParameterError unless it is an integer in [least, 10**18]."""
    remedy = f"need an integer >= {least}, at most 10**18"
    try:
        number = operator.index(value)
    except TypeError:
        raise ParameterError(name, value, remedy) from None
    if isinstance(value, bool) or not least <= number <= MOST:
        raise ParameterError(name, value, remedy)
    return number


def check_rate(sampling_rate: float) -> float:
    """The number itself; ParameterError unless it lies in (0, 1]."""
    rate = float(sampling_rate)
    if not 0 < rate <= 1:
        raise ParameterError("sampling_rate", rate, "a probability in (0, 1]; leave out clients that never take part")
    return rate


def check_delta(delta: float) -> float:
    """The number itself; ParameterError unless it lies in [0, 1)."""
    value = float(delta)
    if not 0 <= value < 1:
        raise ParameterError("delta", value, "need a probability in [0, 1); 0 asks for pure epsilon; try delta=1e-6")
    return value


def check_others(clients: int, corrupted: int) -> int:
    """Other clients whose noise counts: clients - 1 - corrupted, at most `MAX_CLIENTS`.

    Raises:
        ParameterError: fewer than one client, or more corrupted than others.
    """
    count = check_count("clients", clients)
    absent = check_count("corrupted", corrupted, least=0)
    if absent > count - 1:
        raise ParameterError("corrupted", corrupted, f"between 0 and clients - 1 = {count - 1} can be dishonest")
    return min(count - 1 - absent, MAX_CLIENTS)
