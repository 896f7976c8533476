"""`mezzotint design --family rqm|erm|pbm` from the family's own parameters instead of an epsilon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import mezzotint as mz
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

Levels = int | list[float] | None
REQUIRED = {"rqm": ("extension", "q"), "erm": ("gamma",), "pbm": ("theta", "trials")}
"""Family -> the parameters that make one of its tables, beside range and levels."""


NAMES = ("extension", "q", "gamma", "theta", "trials")
"""All of them: RQM's Delta in data units, and the chance that it keeps an inner level; ERM's exponent;
the slope of PBM's coin, and its tosses.
"""


def check_parameters(family: str, parameters: Mapping[str, float], epsilon: float | None) -> None:
    """Refuses parameters beside an epsilon, of another family, or too few.

    Raises:
        ParameterError: naming the parameter.
    """
    needed = REQUIRED.get(family, ())
    for parameter_name, value in parameters.items():
        if parameter_name not in needed:
            required_names = ", ".join(needed) or "an epsilon, and none of these parameters"
            raise ParameterError(parameter_name, value, f"--family {family} takes {required_names}")
    if not parameters:
        if epsilon is None:
            remedy = "give the privacy budget"
            if needed:
                remedy += f", or its own parameters ({', '.join(needed)})"
            raise ParameterError("epsilon", None, remedy)
        return
    if epsilon is not None:
        remedy = "follows from the parameters and is printed; leave one out"
        raise ParameterError("epsilon", epsilon, remedy)
    for parameter_name in needed:
        if parameter_name not in parameters:
            remedy = f"--family {family} needs {', '.join(needed)}"
            raise ParameterError(parameter_name, None, remedy)


def _table(family: str, parameters: Mapping[str, Any], levels: Levels, **span: float) -> Mechanism:
    """The family's table with these parameters; what it costs is read off its integers."""
    if family == "pbm":
        if levels is not None:
            raise ParameterError("levels", str(levels), "follows from --trials: one more")
        return mz.families.pbm(**span, **parameters)
    if family == "rqm":
        if isinstance(levels, list):
            raise ParameterError("levels", str(levels), "give their number; --extension sets them")
        return mz.families.rqm(levels=levels or 4, **span, **parameters)
    if not isinstance(levels, list):
        remedy = "erm needs the bins themselves: --levels=-3,-1,1,3"
        raise ParameterError("levels", levels, remedy)
    return mz.families.erm(bins=levels, **span, **parameters)


def parametrised(
    family: str,
    parameters: Mapping[str, float],
    levels: Levels,
    *,
    loss: str,
    prior: object,
    **span: float,
) -> mz.design.DesignResult:
    """The table of these parameters on a range (lower, upper), as a design that was not searched for.

    Raises:
        ParameterError: a loss that a table alone does not have.
    """
    started = time.perf_counter()
    if loss not in ("mse", "mae"):
        raise ParameterError("loss", loss, "a family's own parameters go with mse or mae")
    mechanism = _table(family, parameters, levels, **span)
    losses = {"mse": mechanism.mse, "mae": mechanism.mae}
    return mz.design.DesignResult(
        mechanism=mechanism,
        loss=float(losses[loss](prior)),
        lower_bound=None,
        gap=None,
        status="as parametrised",
        seconds=time.perf_counter() - started,
        iterations=0,
    )
