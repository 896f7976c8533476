"""`mezzotint account`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from mezzotint import privacy
from mezzotint.cli.common import AsJson, load_mechanism, output, print_json
from mezzotint.core.errors import MezzotintError

EXAMPLE = "mezzotint account m.json --coordinates 1000 --rounds 10 --view sum --clients 1000 --delta 1e-6 --json"


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file (.json).")],
    coordinates: Annotated[int, typer.Option(help="Values that one person reports in a round.")] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds that one person may take part in.")] = 1,
    view: Annotated[str, typer.Option(help="local: each report is seen; sum: only their sum is.")] = "local",
    clients: Annotated[int | None, typer.Option(help="Reports in a sum (view sum).")] = None,
    sampling_rate: Annotated[float, typer.Option(help="Chance of a person being in a round.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta of the claim.")] = 1e-6,
    as_json: AsJson = False,
) -> None:
    """What a whole release costs: many values, many rounds, each report seen or only their sum.

    FILE is a mechanism file (.json).
    """
    mechanism = load_mechanism(file, parameter="file")
    counted = {} if clients is None else {"clients": clients}
    account: Any = getattr(privacy, "account", None)
    if account is None:
        raise MezzotintError("account: this release accounts for single reports only; upgrade mezzotint")
    claim = account(
        mechanism,
        coordinates=coordinates,
        rounds=rounds,
        sampling_rate=sampling_rate,
        view=view,
        delta=delta,
        **counted,
    )
    if as_json:
        print_json(_as_dict(claim))
    else:
        output().print(str(claim), markup=False, highlight=False, soft_wrap=True)


def _as_dict(claim: Any) -> dict[str, Any]:
    names = ("epsilon", "delta", "neighboring", "unit", "view", "method")
    facts = {name: getattr(claim, name) for name in names}
    facts["epsilon"] = facts["epsilon"] if math.isfinite(facts["epsilon"]) else "inf"
    return {**facts, "claim": str(claim)}
