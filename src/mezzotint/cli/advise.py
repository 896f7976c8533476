"""`mezzotint advise`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import typer
from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import AsJson, option
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, counted, number

EXAMPLE = (
    "mezzotint advise --clients-per-round 1000 --dimension 10000 --rounds 20 --observer secure_sum "
    "--epsilon 8 --delta 1e-6"
)

TRUST: Mapping[str, Literal["local", "sum"]] = {"reports": "local", "secure_sum": "sum"}
"""Who must be trusted for an observer to see no more, as the library names it."""

RUN, SCHEMES = "Run", "Schemes"

_REACHES = (1.0, 1.1, 1.3)
"""Reaches of the even grids tried, as multiples of the smallest that unbiased reports need."""

_KNOTS = 9
"""Knots of the tables tried: more of them gain a few tenths of a percent and cost time."""


def _rqm(strength: float, reach: float) -> Mechanism:
    """16 levels, q = 0.42 as in its paper; the levels reach as far out as those of a one-bit
    response.
    """
    extension = reach * (1 / math.tanh(strength / 2) - 1)
    return mz.families.rqm(
        lower=-reach, upper=reach, levels=16, extension=max(extension, 1e-6 * reach), q=0.42
    )


def _pbm(strength: float, reach: float) -> Mechanism:
    return mz.families.pbm(
        lower=-reach, upper=reach, trials=15, theta=math.tanh(strength / 4) / 2, knots=_KNOTS
    )


def _optimal(count: int) -> Callable[[float, float], Mechanism]:
    def build(strength: float, reach: float) -> Mechanism:
        # Twice the margin of rounding to integers, so that the outermost levels stay wide enough.
        reaches = [reach / math.tanh(strength / 2) * further * (1 + 2e-6) for further in _REACHES]
        options_of_design: JsonObject = {
            "epsilon": strength,
            "lower": -reach,
            "upper": reach,
            "loss": "mse",
            "knots": _KNOTS,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return common.best_on_even_levels(
                    count, reaches, lambda even: mz.design.optimal(levels=even, **options_of_design)
                )
            except MezzotintError:
                reason = f"epsilon={strength:g}: no unbiased table on {count} even levels was found"
                raise InfeasibleError(reason) from None

    return build


def candidates(setting: mz.vectors.Setting) -> list[mz.vectors.Family]:
    """Tables that `mezzotint advise` considers."""
    tables = [
        mz.vectors.Family(name="one-bit response", build=mz.vectors.one_bit),
        mz.vectors.Family(name="PBM, 16 levels", build=_pbm),
        mz.vectors.Family(name="RQM, 16 levels", build=_rqm),
    ]
    if setting.dimension == 1:
        # Under strong noise, as rotated vectors need it, the best table on any levels is the
        # one-bit response.
        tables[1:1] = [
            mz.vectors.Family(name=f"optimal table, {count} even levels", build=_optimal(count))
            for count in (4, 16)
        ]
    return tables


def command(
    clients_per_round: Annotated[int, option("Clients in a round.", panel=RUN)],
    epsilon: Annotated[float, option("Epsilon of the run, all of it.", panel=RUN)],
    delta: Annotated[float, option("Delta of the run; 0: pure epsilon.", panel=RUN)] = 1e-6,
    dimension: Annotated[int, option("Of a vector, of L2 norm at most 1.", panel=RUN)] = 1,
    rounds: Annotated[int, option("Rounds of the run.", panel=RUN)] = 1,
    population: Annotated[
        int | None, option("Clients who take turns; by default all in every round.", panel=RUN)
    ] = None,
    observer: Annotated[
        Literal["reports", "secure_sum"],
        option("Sees every report, or sums alone:", panel=RUN),
    ] = "secure_sum",
    corrupted: Annotated[int, option("Clients of a round without honest noise.", panel=RUN)] = 0,
    bits: Annotated[
        int | None, option("Most bits sent per value; by default any.", panel=SCHEMES)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank schemes for averaging clients' vectors, all calibrated to the same claim about the run.

    Errors are those of one round's mean, per coordinate, for vectors of norm 1 (values in [-1, 1]
    for --dimension 1). The exit status is 1 if no scheme meets the claim within the given bits.
    """
    setting = mz.vectors.Setting(
        clients=clients_per_round,
        dimension=dimension,
        rounds=_rounds_of_a_client(clients_per_round, rounds, population),
        trust=TRUST[observer],
        epsilon=epsilon,
        delta=delta,
        bits=bits,
        corrupted=corrupted,
    )
    tables = candidates(setting)
    with progress.bar("calibrating") as report_progress:
        advice = mz.vectors.advise(setting, tables=tables, progress=report_progress)
    json_fields = {"population": population, "run_rounds": rounds, **advice.as_dict()}
    console.show(json_fields, as_json, lambda: _picture(advice))
    if advice.best is None:
        raise typer.Exit(1)


def _rounds_of_a_client(clients_per_round: int, rounds: int, population: int | None) -> int:
    """Rounds in which one client takes part if the server rotates through the clients evenly."""
    if population is None:
        return rounds
    if population < clients_per_round:
        remedy = f"must be at least --clients-per-round={clients_per_round}"
        raise ParameterError("population", population, remedy)
    return -(-rounds * clients_per_round // population)


def _picture(advice: mz.vectors.Advice) -> list[RenderableType]:
    from mezzotint.privacy import claim

    setting = advice.setting
    rounds = counted(setting.rounds, "round")
    observer = "reports" if setting.trust == "local" else "secure_sum"
    title = (
        f"({setting.epsilon:g}, {setting.delta:g})-DP ({claim.basis(observer)}) for replacing one "
        f"client in {rounds}; {setting.clients} clients a round, "
        f"{counted(setting.dimension, 'coordinate')}"
    )
    columns = ("scheme", "MSE", "bits/value", "bits/client", "epsilon", "why")
    table_rows: list[tuple[str, ...] | None] = []
    for scheme in advice.options:
        mse_text, epsilon, client_bits = "-", "-", "-"
        if scheme.feasible:
            mse_text, epsilon = number(scheme.mse, 3), above(scheme.epsilon, 4)
        if scheme.client_bits:
            client_bits = f"{scheme.client_bits:,}"
        bits = number(scheme.wire_bits)
        table_rows.append((scheme.name, mse_text, bits, client_bits, epsilon, scheme.reason))
    trusted = (
        "a trusted server's noise",
        number(advice.central_baseline, 3),
        "-",
        "-",
        "-",
        "central DP baseline; the server sees every vector",
    )
    table_rows += [
        None,
        trusted,
        ("answering 0", number(setting.answering_zero, 3), "0", "0", "0", "uses no data"),
    ]
    table = tables.TerminalTable(columns, table_rows, left=("scheme", "why"), title=title)
    sentences = list(advice.remarks)
    if advice.best is not None:
        sentences.append(f"Best: {advice.best.parameter}. {advice.best.claim}")
    return [table, *sentences]
