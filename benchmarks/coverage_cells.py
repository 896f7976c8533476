"""Tables, columns and cells of the coverage sweeps, and the bets that sound their alarm."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy import special, stats

from mezzotint import design, families
from mezzotint.core.mechanism import Mechanism

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.mechanisms import stepped

LEVELS = (0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
FALSE_ALARM = 1e-4

EDGES = (0.0, 0.1, 0.3, 1.0)


def free_levels(epsilon: float, levels: list[float]) -> Mechanism:
    """An optimal table on [-1, 1] with these levels, moved to [0, 1]."""
    found = design.optimal(
        epsilon=epsilon, lower=0, upper=1, levels=[(confidence + 1) / 2 for confidence in levels]
    )
    return found.mechanism


def krr(levels: int, epsilon: float) -> Callable[[], Mechanism]:
    return lambda: families.k_randomized_response(lower=0, upper=1, levels=levels, epsilon=epsilon)


def best(levels: int, epsilon: float, **options: Any) -> Callable[[], Mechanism]:
    return lambda: (
        design.optimal(epsilon=epsilon, lower=0, upper=1, levels=levels, **options).mechanism
    )


TABLES: dict[str, Callable[[], Mechanism]] = {
    "rr.25": krr(2, 0.25),
    "rr1": krr(2, 1.0),
    "rr4": krr(2, 4.0),
    "krr3e.25": krr(3, 0.25),
    "krr3e8": krr(3, 8.0),
    "krr8e1": krr(8, 1.0),
    "krr16e1": krr(16, 1.0),
    "krr16e4": krr(16, 4.0),
    "opt3e.1": best(3, 0.1),
    "opt4e.25": best(4, 0.25),
    "opt4e1": best(4, 1.0),
    "opt4e4": best(4, 4.0),
    "opt8e4": best(8, 4.0),
    "mini4e1": best(4, 1.0, loss="minimax"),
    "mini3e4": best(3, 4.0, loss="minimax"),
    "cdf12e1": best(12, 1.0, loss="cdf", knots=9),
    "cdf16e.25": best(16, 0.25, loss="cdf"),
    "erm6": lambda: families.erm(lower=0, upper=1, bins=[-0.4, 0.0, 0.3, 0.7, 1.0, 1.4], gamma=1.0),
    "rqm16": lambda: families.rqm(lower=0, upper=1, levels=16, extension=0.5, q=0.42),
    "pbm15": lambda: families.pbm(lower=0, upper=1, trials=15, theta=0.3, knots=17),
    "wave16": lambda: families.square_wave(lower=0, upper=1, outputs=16, epsilon=1.0),
    "round4": lambda: families.stochastic_rounding(lower=0, upper=1, levels=4),
    "stepped10e4": lambda: stepped(10, 4.0),
    "krr4e5": krr(4, 5.0),
    "krr4e12": krr(4, 12.0),
    "far3": lambda: free_levels(3.0, [-1.11, -1.0, -0.5, 4.0]),
    "far3b": lambda: free_levels(3.0, [-1.11, -1.09, 0.0, 6.0]),
    "far5": lambda: free_levels(5.0, [-1.02, -0.9, 8.0]),
    "rows2": lambda: Mechanism(
        knots=np.array([0.0, 1.0]),
        levels=np.array([0.0, 0.01, 1.0]),
        weights=np.array([[2**32 - 2**20, 2**19, 2**19], [2**19, 2**19, 2**32 - 2**20]]),
    ),
}
"""The last five have rare far levels, on which a plain score interval covers 86 to 93 %."""

Column = tuple[np.ndarray, np.ndarray]
"""Inputs and their shares."""


def smooth(a: float, b: float) -> Column:
    points = (np.arange(4000) + 0.5) / 4000
    return stats.beta(a, b).ppf(points), np.full(4000, 1 / 4000)


COLUMNS: dict[str, Column] = {
    "all 0": (np.array([0.0]), np.array([1.0])),
    "all .03": (np.array([0.03]), np.array([1.0])),
    "all .5": (np.array([0.5]), np.array([1.0])),
    "all 1": (np.array([1.0]), np.array([1.0])),
    "90/10": (np.array([0.03, 0.97]), np.array([0.9, 0.1])),
    "2 % outliers": (np.array([0.2, 1.0]), np.array([0.98, 0.02])),
    "ends": (np.array([0.0, 1.0]), np.array([0.5, 0.5])),
    "zero-inflated": (np.append(0.0, smooth(2, 5)[0]), np.append(0.7, 0.3 * smooth(2, 5)[1])),
    "skewed": smooth(0.6, 6),
    "smooth": smooth(2, 5),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one cell showed.

    Arguments:
        confidence: the confidence that its intervals claim.
        draws: data sets drawn; 0 where all outcomes were summed.
        missed: chance of a miss, over that which the level allows: exact, or estimated.
        evidence: logarithm of the capital of who bets that it exceeds 1; inf for a sum that does.
    """

    table: str
    column: str
    n: int
    what: str
    confidence: float
    draws: int
    missed: float
    evidence: float

    @classmethod
    def summed(cls, *, misses: float, confidence: float, **place: Any) -> Cell:
        """A cell whose chance of a miss is known: the sum over all outcomes."""
        missed = misses / (1 - confidence)
        evidence = math.inf if missed > 1 + 1e-6 else -math.inf
        return cls(**place, confidence=confidence, draws=0, missed=missed, evidence=evidence)

    @property
    def alarming(self) -> bool:
        """Whether a level that holds would show this with chance FALSE_ALARM at most."""
        return self.evidence >= -math.log(FALSE_ALARM)

    def __str__(self) -> str:
        return (
            f"{self.table}, {self.column}, n={self.n}, {self.what} at {self.confidence:g}: missed "
            f"{self.missed:.3f} of what is allowed, {self.draws} draws, evidence {self.evidence:.1f}"
        )


FRACTIONS = np.array([0.005, 0.05, 0.15, 0.4, 0.9])
"""Parts of the capital that are bet: some grow fast on many misses, some on a few too many."""


class Bet:
    """The capital of who bets, draw by draw, that a level is missed too often.

    A draw's misses x have an expected value of at most the allowed chance where the level holds, so
    that its factor 1 + f (x / allowed - 1) has one of at most 1: the capital ever reaches
    1/FALSE_ALARM with chance FALSE_ALARM (Ville), whenever one looks and however one goes on.
    """

    def __init__(self, confidence: float) -> None:
        self.allowed = 1 - confidence
        self.draws, self.misses = 0, 0.0
        self.capital = np.full(FRACTIONS.size, -math.log(FRACTIONS.size))

    def add(self, miss: float) -> None:
        """Counts one draw: its weight where it missed, else 0."""
        self.draws += 1
        self.misses += miss
        self.capital += np.log1p(FRACTIONS * (miss / self.allowed - 1))

    def add_many(self, draws: int, misses: int) -> None:
        """Counts draws, of which so many missed."""
        self.draws += draws
        self.misses += misses
        self.capital += misses * np.log1p(FRACTIONS * (1 / self.allowed - 1))
        self.capital += (draws - misses) * np.log1p(-FRACTIONS)

    @property
    def evidence(self) -> float:
        return float(special.logsumexp(self.capital))

    @property
    def missed(self) -> float:
        return self.misses / self.draws / self.allowed

    def cell(self, **place: Any) -> Cell:
        return Cell(
            **place,
            confidence=round(1 - self.allowed, 6),
            draws=self.draws,
            missed=self.missed,
            evidence=self.evidence,
        )


def stored_cells(path: Path | None) -> list[Cell]:
    """Of an earlier call; a place is written when all its cells are known."""
    if path is None or not path.exists():
        return []
    return [Cell(**json.loads(line)) for line in path.read_text().splitlines()]


def store_cells(path: Path | None, cells: Sequence[Cell]) -> None:
    """Adds a line for each cell to a file."""
    if path is None:
        return
    with path.open("a") as lines:
        lines.writelines(json.dumps(asdict(cell)) + "\n" for cell in cells)


def summarise(console: Console, cells: Sequence[Cell]) -> None:
    """Prints cells that alarm, and the worst of each quantity and level."""
    alarms = [cell for cell in cells if cell.alarming]
    for cell in alarms:
        console.print(f"BELOW: {cell}")
    kinds = sorted({(cell.what.split(" ")[0], cell.confidence) for cell in cells})
    for what, confidence in kinds:
        group = [
            cell
            for cell in cells
            if (cell.what.split(" ")[0], cell.confidence) == (what, confidence)
        ]
        worst = max(group, key=lambda cell: cell.missed)
        mean = sum(cell.missed for cell in group) / len(group)
        summed = sum(cell.draws == 0 for cell in group)
        console.print(
            f"{what} at {confidence:g}: {len(group)} cells, {summed} by sums, mean {mean:.3f}; "
            f"worst: {worst}"
        )
    drawn = sum(cell.draws > 0 for cell in cells)
    console.print(
        f"{len(alarms)} of {len(cells)} cells alarm; each of the {drawn} drawn ones does with "
        f"chance {FALSE_ALARM:g} at most where its level holds."
    )


def seeded(*parts: Any) -> np.random.Generator:
    return np.random.default_rng(
        [part if isinstance(part, int) else sum(str(part).encode()) for part in parts]
    )


def shares_of(mechanism: Mechanism, column: Column) -> np.ndarray:
    return column[1] @ mechanism.pmf(column[0])
