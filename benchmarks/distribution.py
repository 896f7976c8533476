"""How near the estimated distribution of a column comes, by the number of different reports: ours, square wave, OUE.

Run: python benchmarks/distribution.py [--data DIR] [--draws 20] [--outputs 16,32,256] [--epsilon 1,4] [--json FILE]

Columns: age and weekly hours of UCI Adult (`adult_numeric.csv.gz`), air time of New York's flights of 2013
(`nycflights13_2013.csv.gz`), from DIR. Every method gets multinomial counts at the column's own number of rows, the
same 128 input cells and the same expectation maximization: EM from the uniform distribution until 50 steps gain less
than 1e-8 of log-likelihood per report; EMS smooths with (1/4, 1/2, 1/4) after each step. OUE sends one bit per cell, as
many cells as the others have outputs; its unbiased frequencies are projected on the simplex, and uniform inside a cell.

Prints the mean Wasserstein-1 distance x 1000 of the range (over the draws, with its standard error), and at the uniform
distribution sqrt(n) times the standard deviation of an efficient estimate of the distribution function, averaged over
the inner edges of 16 cells (8 for 16 outputs, which tell no 16 apart at a small epsilon). The last column says how
far ours is above the square wave with the same estimator at worst, and with EM above OUE.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
from rich.console import Console
from rich.table import Table

from mezzotint import design, families
from mezzotint.collect.support_points import SupportPoints, smooth_fit
from mezzotint.core.mechanism import Mechanism, cdf_variance

CELLS = 128
COLUMNS = {
    "age": ("adult_numeric.csv.gz", "age", 17.0, 91.0),
    "hours": ("adult_numeric.csv.gz", "hours_per_week", 0.0, 100.0),
    "air time": ("nycflights13_2013.csv.gz", "air_time", 20.0, 700.0),
}
Draws = np.ndarray
"""(draws, codes) counts."""


def read_column(folder: Path, name: str) -> np.ndarray:
    """(CELLS,) shares of the column's cells, and its number of rows, as counts."""
    file, column, low, high = COLUMNS[name]
    options = pacsv.ConvertOptions(
        include_columns=[column], null_values=["", "NA"], strings_can_be_null=True
    )
    x = (
        pacsv.read_csv(folder / file, convert_options=options)[column]
        .drop_null()
        .to_numpy()
        .astype(float)
    )
    return np.histogram(np.clip(x, low, high), bins=CELLS, range=(low, high))[0]


def middles(cells: int) -> np.ndarray:
    return (np.arange(cells) + 0.5) / cells


def distance(estimates: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(draws,) Wasserstein-1 distances as shares of the range."""
    return np.abs(np.cumsum(estimates - counts / counts.sum(), axis=1)).mean(axis=1)


def em(pmf: np.ndarray, drawn: Draws) -> np.ndarray:
    """(draws, CELLS) shares: the library's own point estimate, on these cells."""
    edges, index = np.linspace(0, 1, CELLS + 1), np.arange(CELLS)
    return smooth_fit(
        SupportPoints(
            breaks=edges, x=middles(CELLS), first_cell=index, last_cell=index, pmf=pmf, counts=drawn
        )
    )


def ems(
    pmf: np.ndarray, drawn: Draws, *, gain: float = 1e-8, window: int = 50, most: int = 20_000
) -> np.ndarray:
    """The same with a smoothing step after each."""
    shares = drawn / drawn.sum(axis=1, keepdims=True)
    masses, left = np.full((len(drawn), CELLS), 1 / CELLS), np.arange(len(drawn))
    before = np.full(len(drawn), -np.inf)
    for _ in range(0, most, window):
        part = masses[left]
        for _ in range(window):
            part = part * ((shares[left] / (part @ pmf)) @ pmf.T)
            wide = np.pad(part, ((0, 0), (1, 1)), mode="edge")
            part = wide[:, :-2] / 4 + wide[:, 1:-1] / 2 + wide[:, 2:] / 4
            part /= part.sum(axis=1, keepdims=True)
        masses[left] = part
        after = (shares[left] * np.log(part @ pmf)).sum(axis=1)
        more = after - before[left] >= gain
        before[left] = after
        left = left[more]
        if not left.size:
            break
    return masses


def unary(
    bits: int, epsilon: float, counts: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """(draws, CELLS) shares from one-hot bits, each kept with chance 1/2 and set with chance 1 / (e^epsilon + 1)."""
    q, n = 1 / (np.exp(epsilon) + 1), int(counts.sum())
    inside = (
        counts.reshape(bits, -1).sum(axis=1)
        if bits <= CELLS
        else counts.repeat(bits // CELLS) // (bits // CELLS)
    )
    seen = rng.binomial(inside, 0.5, size=(draws, bits)) + rng.binomial(
        n - inside, q, size=(draws, bits)
    )
    frequencies = (seen / n - q) / (0.5 - q)
    order = -np.sort(-frequencies, axis=1)
    excess = (np.cumsum(order, axis=1) - 1) / np.arange(1, bits + 1)
    last = (order > excess).sum(axis=1) - 1
    shares = np.maximum(frequencies - excess[np.arange(draws), last][:, None], 0)
    if bits >= CELLS:
        return shares.reshape(draws, CELLS, -1).sum(axis=2)
    return shares.repeat(CELLS // bits, axis=1) * bits / CELLS


def cdf_deviation(pmf: np.ndarray, cells: int) -> float:
    """sqrt(n) x the standard deviation of the distribution function at the inner edges, on average, uniform inputs."""
    rows = pmf.reshape(cells, -1, pmf.shape[1]).mean(axis=1)
    return float(np.sqrt(cdf_variance(rows, np.full(cells, 1 / cells))))


def ours(outputs: int, epsilon: float) -> Mechanism:
    return design.for_shape(epsilon, lower=0, upper=1, levels=outputs)


def wave(outputs: int, epsilon: float) -> Mechanism:
    return families.square_wave(lower=0, upper=1, outputs=outputs, epsilon=epsilon)


METHODS: dict[str, Callable[[int, float], Mechanism]] = {"ours": ours, "square wave": wave}


def measured(folder: Path, outputs: int, epsilon: float, draws: int) -> list[dict[str, Any]]:
    """A row per method and estimator."""
    rows: list[dict[str, Any]] = []
    columns = {name: read_column(folder, name) for name in COLUMNS}
    tables = {name: make(outputs, epsilon) for name, make in METHODS.items()}

    def rng(name: str) -> np.random.Generator:
        """The same for all methods: tables that are the same get the same reports."""
        return np.random.default_rng([outputs, int(100 * epsilon), list(COLUMNS).index(name)])

    for method, table in tables.items():
        pmf = table.pmf(middles(CELLS))
        deviation = cdf_deviation(pmf, min(16, outputs // 2))
        for estimator, run in {"EM": em, "EMS": ems}.items():
            row: dict[str, Any] = {
                "method": method,
                "table": table.name,
                "estimator": estimator,
                "cdf": deviation,
            }
            row |= {"epsilon": epsilon, "outputs": outputs, "used": pmf.shape[1]}
            for name, counts in columns.items():
                drawn = rng(name).multinomial(counts.sum(), counts / counts.sum() @ pmf, size=draws)
                found = 1000 * distance(run(pmf, drawn), counts)
                row[name] = (float(found.mean()), float(found.std(ddof=1) / np.sqrt(draws)))
            rows.append(row)
    row = {
        "method": "OUE",
        "estimator": "projected",
        "epsilon": epsilon,
        "outputs": outputs,
        "used": outputs,
        "cdf": None,
    }
    for name, counts in columns.items():
        found = 1000 * distance(unary(outputs, epsilon, counts, draws, rng(name)), counts)
        row[name] = (float(found.mean()), float(found.std(ddof=1) / np.sqrt(draws)))
    return [*rows, row]


def excess(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """By how much a row of ours is above the best other one, at worst."""
    if row["method"] != "ours":
        return ""
    alike = ("EM", "projected") if row["estimator"] == "EM" else ("EMS",)
    rivals = [one for one in rows if one["method"] != "ours" and one["estimator"] in alike]
    ratios = [row[name][0] / min(one[name][0] for one in rivals) for name in COLUMNS]
    ratios.append(row["cdf"] / min(one["cdf"] for one in rivals if one["cdf"] is not None))
    return f"{max(ratios):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--outputs", default="16,32,256")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    console, started, everything = Console(highlight=False, width=140), time.process_time(), []
    if not (asked.data / "adult_numeric.csv.gz").exists():
        console.print(f"skipped: {asked.data} does not hold the data sets")
        return
    for epsilon in map(float, asked.epsilon.split(",")):
        for outputs in map(int, asked.outputs.split(",")):
            rows = measured(asked.data, outputs, epsilon, asked.draws)
            everything += rows
            table = Table(
                title=f"epsilon {epsilon:g}, {outputs} outputs: Wasserstein-1 x 1000, {asked.draws} draws"
            )
            for head in (
                "method",
                "outputs",
                "estimator",
                *COLUMNS,
                "sqrt(n) sd of the CDF",
                "ours / best other",
            ):
                table.add_column(head)
            for row in rows:
                numbers = [f"{row[name][0]:.2f} +- {row[name][1]:.2f}" for name in COLUMNS]
                deviation = "" if row["cdf"] is None else f"{row['cdf']:.3f}"
                table.add_row(
                    str(row["method"]),
                    str(row["used"]),
                    str(row["estimator"]),
                    *numbers,
                    deviation,
                    excess(row, rows),
                )
            console.print(table, f"ours: {rows[0]['table']}")
    console.print(f"{time.process_time() - started:.0f} s of CPU time")
    if asked.json:
        asked.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
