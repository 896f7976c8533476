"""All reproductions by name, and the parts by which a stored result is checked."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import Any

from mezzotint.core.errors import ParameterError
from mezzotint.papers.reproduction import Figure, Part, Reproduction, Run

_MODULES = ("optm_tables", "rqm", "rqm_training", "rqp", "smoothed_tables")


@cache
def figures() -> dict[str, Figure]:
    """Name -> every table and figure that is recomputed, in order of names."""
    modules = [
        importlib.import_module(f"mezzotint.papers.{module_name}") for module_name in _MODULES
    ]
    records: list[Figure] = []
    for figure_module in modules:
        records += figure_module.FIGURES
    records.sort(key=lambda figure: figure.name)
    return {figure.name: figure for figure in records}


def summary(name: str) -> str:
    """The first paragraph of what a reproduction says about itself."""
    documentation = inspect.getdoc(figures()[name].compute) or ""
    return " ".join(documentation.partition("\n\n")[0].split())


def reproduce(name: str, **options: Any) -> Reproduction:
    """Recomputes a table or figure; an option that is None is left at what the reproduction takes
    by default.

    Arguments:
        name: one of `figures()`.
        options: fields of `Run`.

    Raises:
        ParameterError: an unknown name, or an option that this reproduction does not take.
    """
    if name not in figures():
        raise ParameterError("name", name, f"use one of: {', '.join(figures())}")
    figure = figures()[name]
    requested = {
        option_name: option_value
        for option_name, option_value in options.items()
        if option_value is not None
    }
    for option_name, option_value in requested.items():
        if option_name not in figure.options:
            accepted = [option_name for option_name in figure.options if option_name != "progress"]
            words = ", ".join(accepted) or "no options"
            raise ParameterError(option_name, str(option_value), f"{name} takes {words}")
    return figure.run(Run(**requested))


def parts(name: str, data: str | None = None) -> tuple[Part, ...]:
    """The parts of a reproduction, each recomputed by itself; the whole where that is as cheap.

    Arguments:
        name: one of `figures()`.
        data: where its data lie, as of the option; parts that need them are left out where it is
            None.
    """
    return figures()[name].checked_parts(data)
