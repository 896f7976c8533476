"""One secure sum: our epsilon beside the shuffle bounds that hold for it, for five tables and four crowd sizes.

Run: python benchmarks/sums.py [--delta D] [--clients N ...] [--json]

ours: `mezzotint.privacy.account(trust="secure_sum")`, upper bound. at least: inputs of all clients that force this epsilon.
blanket: the privacy blanket's numerical shuffle bound (Balle et al. 2019) of the same table. epsilon0-only: Feldman,
McMillan and Talwar 2023, which knows the table's pure epsilon alone. seconds: of ours, the largest crowd first, so that
it also pays for the search of blankets, which the smaller ones share.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize_scalar

from mezzotint import design, families, privacy
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy.sums import lattice_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.shuffle_bounds import blanket_epsilon, published_clones_epsilon
from reference.witness import find_witness

CLIENTS = (40, 10**3, 10**5, 10**6)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table."""

    table: str
    clients: int
    at_least: float
    ours: float
    blanket: float
    epsilon_only: float
    seconds: float


def even_optimum(epsilon: float) -> Mechanism:
    """The 4-level table on an even grid with the least mean squared error, the grid's width searched.

    Up to epsilon of about 1 only two of its levels are of use: it is randomized response, up to 1e-6 of its mass.
    """

    def best(width: float) -> design.DesignResult:
        levels = [-width, -width / 3, width / 3, width]
        return design.optimal(epsilon=epsilon, lower=-1, upper=1, levels=levels)

    found: Any = minimize_scalar(
        lambda width: best(width).loss, bounds=(1.001, 12 / epsilon + 1), method="bounded"
    )
    four, two = (
        best(float(found.x)).mechanism,
        families.randomized_response(lower=-1, upper=1, epsilon=epsilon),
    )
    return two if two.mse() <= four.mse() * (1 + 1e-4) else four


TABLES: dict[str, Callable[[], Mechanism]] = {
    "RQM m=16 Delta=c q=.42": lambda: families.rqm(
        lower=-1, upper=1, levels=16, extension=1.0, q=0.42
    ),
    **{
        f"optimal even 4, epsilon {epsilon:g}": (lambda e=epsilon: even_optimum(e))
        for epsilon in (0.5, 1.0, 2.0, 4.0)
    },
}


def lines(name: str, mechanism: Mechanism, crowds: list[int], delta: float) -> list[Line]:
    """All crowd sizes of one table, smallest first."""
    rows, _ = lattice_rows(mechanism)
    found: list[Line] = []
    for clients in sorted(crowds, reverse=True):
        started = time.perf_counter()
        ours = privacy.account(mechanism, trust="secure_sum", clients=clients, delta=delta).epsilon
        seconds = time.perf_counter() - started
        found.append(
            Line(
                table=f"{name} ({mechanism.epsilon:.2f})",
                clients=clients,
                at_least=find_witness(rows, clients=clients, delta=delta).epsilon,
                ours=ours,
                blanket=blanket_epsilon(mechanism.weights, clients=clients, delta=delta),
                epsilon_only=published_clones_epsilon(
                    mechanism.epsilon, clients=clients, delta=delta
                ),
                seconds=seconds,
            )
        )
    return found[::-1]


def show(found: list[Line], delta: float) -> None:
    """Prints the table."""
    table = Table(
        title=f"epsilon of one secure sum at delta = {delta:g}, replace-one, all clients honest"
    )
    for heading in (
        "table",
        "n",
        "at least",
        "ours",
        "blanket",
        "epsilon0-only",
        "blanket/ours",
        "e0/ours",
        "seconds",
    ):
        table.add_column(heading, justify="left" if heading == "table" else "right")
    for line in found:
        values = (line.at_least, line.ours, line.blanket, line.epsilon_only)
        ratios = (line.blanket / line.ours, line.epsilon_only / line.ours)
        table.add_row(
            line.table, f"{line.clients:,}", *(f"{value:.4g}" for value in values),
            *(f"{ratio:.2f}" for ratio in ratios), f"{line.seconds:.2f}",
        )  # fmt: skip
    Console(width=140).print(table)


def main() -> None:
    """Parses, computes, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # What is imported on first use shall not count as accounting.
    privacy.account(
        families.randomized_response(lower=-1, upper=1, epsilon=1.0),
        trust="secure_sum",
        clients=10**6,
    )
    found = [
        line
        for name, build in TABLES.items()
        for line in lines(name, build(), options.clients, options.delta)
    ]
    if options.json:
        print(json.dumps([asdict(line) for line in found]))
    else:
        show(found, options.delta)


if __name__ == "__main__":
    main()
