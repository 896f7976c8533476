"""Claims and proofs built by hand, forgeries of them, and the exact divergences that they must not undercut."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from mezzotint import Mechanism, kernel
from mezzotint.privacy.propose import Proof, sealed

getcontext().prec = 80
TOTAL = 2**32


def release(mechanism: Mechanism, coordinates: int = 1, **more: Any) -> kernel.ExactRelease:
    """Every report of one table is seen."""
    return kernel.ExactRelease(
        **{"observer": "reports", "tables": ((mechanism.sha256, coordinates),), **more}
    )


def claim(
    described: kernel.ExactRelease | None, epsilon: object, delta: object = "0", **more: Any
) -> kernel.ExactClaim:
    """An (epsilon, delta) statement; a Renyi one when `order` is given."""
    if "order" in more:
        return kernel.ExactClaim(
            release=described, statement={"kind": "renyi", "epsilon": str(epsilon), **more}
        )
    return kernel.ExactClaim(
        release=described,
        statement={"kind": "dp", "epsilon": str(epsilon), "delta": str(delta), **more},
    )


def accepts(said: kernel.ExactClaim, proof: Proof) -> bool:
    """Whether the kernel certifies it; refusals of any sort are False, every other error is raised."""
    try:
        return kernel.check(said, proof).certified
    except (kernel.Refused, kernel.Unreadable):
        return False


def resealed(said: kernel.ExactClaim, proof: Proof) -> Proof:
    """The proof, moved to another claim as a forger would."""
    return {**proof, "claim_sha256": said.sha256}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every number, text and list below a JSON value."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
        return
    if path:
        yield path
    if isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*path, index))


def _altered(value: Any) -> list[Any]:
    if isinstance(value, bool) or value is None:
        return [not value, 0]
    if isinstance(value, int):
        return [value + 1, value - 1, 0, 2 * value, -value]
    if isinstance(value, list):
        shorter = [value[:i] + value[i + 1 :] for i in range(min(len(value), 6))]
        return [*shorter, value[::-1], value + value[-1:], []]
    try:
        exact = Fraction(value)
    except ValueError:
        return ["", value + "0", value[:-1], value[::-1]]
    return [str(exact * 2), str(exact / 2), str(exact * Fraction(1001, 1000)), str(-exact), "0"]


def forgeries(document: Any, skip: Sequence[str] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The document with one field changed, every field in several ways."""
    for path in leaves(document):
        if path[0] in skip:
            continue
        target = document
        for key in path:
            target = target[key]
        for other in _altered(target):
            if other == target:
                continue
            forged = copy.deepcopy(document)
            parent = forged
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = other
            yield path, forged


def exponential(epsilon: str | Fraction) -> Fraction:
    """e**epsilon to 75 digits."""
    exact = Fraction(epsilon)
    return Fraction((Decimal(exact.numerator) / Decimal(exact.denominator)).exp())


def hockey_stick(
    first: Sequence[Fraction], second: Sequence[Fraction], epsilon: str | Fraction
) -> Fraction:
    """sum max(P - e^epsilon Q, 0), to 70 digits."""
    factor = exponential(epsilon)
    return sum(
        (max(p - factor * q, Fraction(0)) for p, q in zip(first, second, strict=True)), Fraction(0)
    )


def probabilities(mechanism: Mechanism) -> list[list[Fraction]]:
    """Distinct rows."""
    rows = np.unique(mechanism.weights, axis=0)
    return [[Fraction(weight, TOTAL) for weight in row] for row in rows.tolist()]


def composed(
    pair: tuple[Sequence[Fraction], Sequence[Fraction]], count: int
) -> tuple[list[Fraction], list[Fraction]]:
    """Both distributions of `count` independent reports, output by output."""

    def power(row: Sequence[Fraction]) -> list[Fraction]:
        found: list[Fraction] = []
        for outputs in product(row, repeat=count):
            mass = Fraction(1)
            for p in outputs:
                mass *= p
            found.append(mass)
        return found

    return power(pair[0]), power(pair[1])


def decimal_text(value: Fraction, digits: int = 40) -> str:
    """A rational as an exact text, rounded down."""
    return f"{value.numerator * 10**digits // value.denominator}/{10**digits}"


__all__ = ["Mechanism", "sealed"]
