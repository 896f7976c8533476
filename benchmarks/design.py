"""Design: the table program against HiGHS on the same program and against Algorithm 2 of the OPTM paper, in one run.

Run: python benchmarks/design.py [--cap SECONDS] [--repetitions R] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import optimize, sparse

from mezzotint import Mechanism, design
from mezzotint.design import solver
from mezzotint.design.cones import Program, ratio_part
from mezzotint.design.pair_selection import BoxSearch, SelectionTables, bin_sets, table_of, theorem5
from mezzotint.design.problem import make_problem
from mezzotint.design.program import program_on
from mezzotint.design.solver import safe_bound, solve

EPSILON = 1.0
SIZES = {4: 65, 16: 65, 64: 129, 256: 257}
"""Levels, and knots of the table."""


def levels_of(count: int) -> np.ndarray:
    return np.linspace(-3, 3, count)


def timed(call: Callable[[], Any], repetitions: int) -> tuple[float, Any]:
    """Processor seconds of the fastest of several calls, and what the last returned."""
    times, answer = [], None
    for _ in range(repetitions):
        started = time.process_time()
        answer = call()
        times.append(time.process_time() - started)
    return min(times), answer


def highs(program: Program, method: str, cap: float) -> float:
    """The program's value by HiGHS; nan if it is not done after `cap` seconds."""
    (rows, columns, values, _), rhs = program.stacked
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=(rhs.size, program.objective.size))
    equal = np.repeat(
        [block.cone == "zero" for block in program.blocks],
        [block.rhs.size for block in program.blocks],
    )
    answer = optimize.linprog(
        program.objective,
        A_ub=matrix[~equal],
        b_ub=rhs[~equal],
        A_eq=matrix[equal],
        b_eq=rhs[equal],
        bounds=(0, None),
        method=method,
        options={"time_limit": cap},
    )
    return float(answer.fun) if answer.status == 0 else math.nan


def one_size(count: int, repetitions: int, cap: float) -> list[str]:
    """A line of the first table."""
    knots = SIZES[count]
    problem = make_problem(epsilon=EPSILON, lower=-1, upper=1)
    program = program_on(
        problem, levels_of(count), np.linspace(-1, 1, knots), partial(ratio_part, epsilon=EPSILON)
    )
    repetitions = repetitions if count <= 16 else 1
    ours, solution = timed(lambda: solve(program), repetitions)
    whole, result = timed(
        lambda: design.optimal(EPSILON, levels=levels_of(count), knots=knots), repetitions
    )
    gap = (solution.value - safe_bound(program, solution.dual)) / solution.value
    cells = [str(count), str(knots), f"{ours:.3g}", f"{whole:.3g}", f"{gap:.1e}"]
    for method in ("highs-ds", "highs-ipm"):
        seconds, value = timed(lambda method=method: highs(program, method, cap), repetitions)
        if math.isnan(value):
            cells.append(f"> {cap:g} ({cap / ours:.0f}x)")
        else:
            cells.append(
                f"{seconds:.3g} ({seconds / ours:.1f}x, value {value / solution.value - 1:+.0e})"
            )
    cells.append(f"{result.mechanism.epsilon:.9f}")
    return cells


def uneven(console: Console, sizes: list[int]) -> None:
    """Levels at random, knots left to the design: every loss, and samples as priors."""
    sample = np.random.default_rng(1).normal(0.2, 0.5, 1000).clip(-1, 1)
    kinds: dict[str, dict[str, Any]] = {
        "MSE": {},
        "MAE": {"loss": "mae"},
        "minimax": {"loss": "minimax"},
        "MSE, sample of 1000": {"prior": sample},
        "MSE, sample of 40": {"prior": sample[:40]},
    }
    table = Table(
        title=f"Uneven levels in [-3, 3], knots=None, epsilon = {EPSILON:g}", title_justify="left"
    )
    for name in ("levels", "loss", "processor seconds", "gap", "knots", "certified epsilon"):
        table.add_column(name, justify="left" if name == "loss" else "right")
    for count, (name, options) in itertools.product(sizes, kinds.items()):
        inner = np.random.default_rng(count).uniform(-3, 3, count - 2)
        levels = np.sort(np.concatenate([[-3.0], inner, [3.0]]))
        started = time.process_time()
        result = design.optimal(EPSILON, levels=levels, **options)
        seconds = time.process_time() - started
        if result.gap is None:
            raise RuntimeError("a design at given levels has a bound")
        numbers = (
            f"{seconds:.2g}",
            f"{result.gap / result.loss:.0e}",
            str(result.mechanism.knots.size),
        )
        table.add_row(str(count), name, *numbers, f"{result.mechanism.epsilon:.9f}")
    console.print(table)


def algorithm_2(progress: Callable[[int, int], None]) -> tuple[Mechanism, int]:
    """The published search in full: 100 symmetric sets of four bins, 99 boxes each; the best table and the programs."""
    problem = make_problem(epsilon=EPSILON, lower=-1, upper=1, loss="mae")
    best, least, programs = None, math.inf, 0
    sets = bin_sets(problem, 4)
    for done, bins in enumerate(sets, start=1):
        tables = SelectionTables(bins=bins, lower=-1.0, upper=1.0, sides=1)
        search = BoxSearch(
            tables=tables, problem=problem, epsilon=EPSILON, constraints=theorem5, points=99
        )
        found, programs = search.run(), programs + search.programs
        if found is not None:
            # Boxes minimise the bound on the error; sets of bins are compared by the error itself.
            mechanism = table_of(problem, tables, found[1], name="OPTM", epsilon=math.inf)
            if mechanism.mae() < least:
                least, best = mechanism.mae(), mechanism
        progress(done, len(sets))
    if best is None:
        raise RuntimeError("no set of bins has a solution")
    return best, programs


def against_algorithm_2(console: Console, repetitions: int) -> None:
    def progress(done: int, total: int) -> None:
        if done % 10 == 0:
            console.print(f"  Algorithm 2: {done} of {total} bin sets", highlight=False)

    slow, (theirs, programs) = timed(lambda: algorithm_2(progress), 1)
    table = Table(
        title=f"m = 4, epsilon = {EPSILON:g}, uniform inputs on [-1, 1]", title_justify="left"
    )
    for name in ("design", "seconds", "Algorithm 2 takes", "mae", "mse", "certified epsilon"):
        table.add_column(name, justify="left" if name == "design" else "right")

    def add(name: str, seconds: float, mechanism: Mechanism) -> None:
        numbers = (f"{mechanism.mae():.4f}", f"{mechanism.mse():.4f}", f"{mechanism.epsilon:.6f}")
        table.add_row(name, f"{seconds:.3g}", f"{slow / seconds:,.0f}x", *numbers)

    add(f"Algorithm 2 in full, {programs} linear programs", slow, theirs)
    quick, result = timed(lambda: design.optm(EPSILON, levels=4), 1)
    add(f"design.optm, {result.iterations} linear programs", quick, result.mechanism)
    for loss in ("mae", "mse"):
        for knots in (65, None):
            seconds, result = timed(
                lambda loss=loss, knots=knots: design.optimal(
                    EPSILON, levels=theirs.levels, loss=loss, knots=knots
                ),
                repetitions,
            )
            where = "65 even knots" if knots else "knots refined, bound over all mechanisms"
            add(f"optimal {loss} on Algorithm 2's levels, {where}", seconds, result.mechanism)
    seconds, result = timed(lambda: design.optimal(EPSILON, levels=4), repetitions)
    add("optimal mse, levels searched", seconds, result.mechanism)
    reach = float(theirs.levels.max())
    seconds, result = timed(
        lambda: design.optimal(EPSILON, levels=4, loss="mae", max_level=reach), repetitions
    )
    add("optimal mae, levels searched up to Algorithm 2's outermost", seconds, result.mechanism)
    console.print(table)


def peak_memory(count: int) -> float:
    """GiB of a fresh process that makes this design; Linux alone tells."""
    code = f"import runpy; runpy.run_path({__file__!r})['design_once']({count})"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return int(answer.stdout) / 2**20


def design_once(count: int) -> None:
    design.optimal(EPSILON, levels=levels_of(count), knots=SIZES[count])
    # Not ru_maxrss, which begins with what the process that started this one had.
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


FOLDED: dict[str, dict[str, Any]] = {
    "delta = 1e-6, 33 knots": {"delta": 1e-6, "knots": 33},
    "Renyi order 2, 33 knots": {"alpha": 2.0, "knots": 33},
    "Renyi order 8, 17 knots": {"alpha": 8.0, "knots": 17},
}


def halves(console: Console, repetitions: int) -> None:
    """What it saves to solve one half of a program that is its own mirror image."""
    table = Table(
        title="8 even levels in [-3, 3], epsilon = 1: half a program against the whole",
        title_justify="left",
    )
    for name in ("constraint", "half, s", "whole, s", "whole over half"):
        table.add_column(name, justify="right")
    for name, options in FOLDED.items():
        call = partial(design.optimal, EPSILON, levels=levels_of(8), **options)
        half, _ = timed(call, repetitions)
        with mock.patch.object(solver, "folding", return_value=None):
            whole, _ = timed(call, repetitions)
        table.add_row(name, f"{half:.3f}", f"{whole:.3f}", f"{whole / half:.2f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cap", type=float, default=120.0, help="seconds that HiGHS may take for one program"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="no 256 levels, no Algorithm 2")
    arguments = parser.parse_args()
    console = Console(width=150)
    design.optimal(EPSILON, levels=[-3, -0.5, 0.5, 3])  # loads what is loaded lazily
    table = Table(
        title=f"Table program, epsilon = {EPSILON:g}, MSE, even levels in [-3, 3]: CPU seconds",
        title_justify="left",
    )
    for name in (
        "levels",
        "knots",
        "solve",
        "whole design",
        "gap",
        "HiGHS dual simplex",
        "HiGHS IPM",
        "certified epsilon",
    ):
        table.add_column(name, justify="right")
    for count in SIZES:
        if arguments.quick and count == max(SIZES):
            continue
        table.add_row(*one_size(count, arguments.repetitions, arguments.cap))
    console.print(table)
    largest = max(SIZES) if not arguments.quick else 64
    uneven(console, [64] if arguments.quick else [64, 256])
    halves(console, arguments.repetitions)
    console.print(
        f"Peak memory of a process with one design of {largest} levels: {peak_memory(largest):.2f} GiB"
    )
    if not arguments.quick:
        against_algorithm_2(console, arguments.repetitions)


if __name__ == "__main__":
    main()
