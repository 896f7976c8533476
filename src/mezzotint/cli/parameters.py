"""`mezzotint design --family rqm|erm|pbm` from the family's own parameters instead of an epsilon."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, final

import mezzotint as mz
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

Levels = int | list[float] | None
REQUIRED = {"rqm": ("extension", "q"), "erm": ("gamma",), "pbm": ("theta", "trials")}
"""Family -> the parameters that make one of its tables, beside range and levels."""


@final
@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What the user said about the family itself; None where nothing was said.

    Arguments:
        extension: RQM's Delta, data units; q: chance that RQM keeps an inner level.
        gamma: ERM's exponent; theta: slope of PBM's coin; trials: its tosses.
    """

    extension: float | None = None
    q: float | None = None
    gamma: float | None = None
    theta: float | None = None
    trials: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that were said."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            parameter_name: value for parameter_name, value in values.items() if value is not None
        }

    def check(self, family: str, epsilon: float | None) -> None:
        """Refuses parameters beside an epsilon, of another family, or too few.

        Raises:
            ParameterError: naming the parameter.
        """
        needed = REQUIRED.get(family, ())
        for parameter_name, value in self.given.items():
            if parameter_name not in needed:
                required_names = ", ".join(needed) or "an epsilon, and none of these parameters"
                raise ParameterError(
                    parameter_name, value, f"--family {family} takes {required_names}"
                )
        if not self.given:
            if epsilon is None:
                remedy = "give the privacy budget"
                if needed:
                    remedy += f", or its own parameters ({', '.join(needed)})"
                raise ParameterError("epsilon", None, remedy)
            return
        if epsilon is not None:
            raise ParameterError(
                "epsilon", epsilon, "follows from the parameters and is printed; leave one out"
            )
        for parameter_name in needed:
            if parameter_name not in self.given:
                raise ParameterError(
                    parameter_name, None, f"--family {family} needs {', '.join(needed)}"
                )

    def table(self, family: str, *, lower: float, upper: float, levels: Levels) -> Mechanism:
        """The family's table with these parameters; what it costs is read off its integers."""
        if family == "pbm":
            if levels is not None:
                raise ParameterError("levels", str(levels), "follows from --trials: one more")
            return mz.families.pbm(lower=lower, upper=upper, **self.given)
        if family == "rqm":
            if isinstance(levels, list):
                raise ParameterError(
                    "levels", str(levels), "give their number; --extension sets them"
                )
            return mz.families.rqm(lower=lower, upper=upper, levels=levels or 4, **self.given)
        if not isinstance(levels, list):
            raise ParameterError(
                "levels", levels, "erm needs the bins themselves: --levels=-3,-1,1,3"
            )
        return mz.families.erm(lower=lower, upper=upper, bins=levels, **self.given)

    def design(
        self,
        family: str,
        *,
        lower: float,
        upper: float,
        levels: Levels,
        loss: str,
        prior: object,
    ) -> mz.design.DesignResult:
        """The table as a design that was not searched for.

        Raises:
            ParameterError: a loss that a table alone does not have.
        """
        started = time.perf_counter()
        if loss not in ("mse", "mae"):
            raise ParameterError("loss", loss, "a family's own parameters go with mse or mae")
        mechanism = self.table(family, lower=lower, upper=upper, levels=levels)
        losses = {"mse": mechanism.mse, "mae": mechanism.mae}
        value = losses[loss](prior)
        return mz.design.DesignResult(
            mechanism=mechanism,
            loss=float(value),
            lower_bound=None,
            gap=None,
            status="as parametrised",
            seconds=time.perf_counter() - started,
            iterations=0,
        )
