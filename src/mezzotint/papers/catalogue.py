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
    modules = [importlib.import_module(f"mezzotint.papers.{name}") for name in _MODULES]
    records: list[Figure] = [figure for module in modules for figure in module.FIGURES]
    return {figure.name: figure for figure in sorted(records, key=lambda figure: figure.name)}


def summary(name: str) -> str:
    """The first paragraph of what a reproduction says about itself."""
    text = inspect.getdoc(figures()[name].compute) or ""
    return " ".join(text.partition("\n\n")[0].split())


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
    requested = {option: value for option, value in options.items() if value is not None}
    for option, value in requested.items():
        if option not in figure.options:
            accepted = [word for word in figure.options if word != "progress"]
            words = ", ".join(accepted) or "no options"
            raise ParameterError(option, str(value), f"{name} takes {words}")
    return figure.run(Run(**requested))


def parts(name: str, data: str | None = None) -> tuple[Part, ...]:
    """The parts of a reproduction, each recomputed by itself; the whole where that is as cheap.

    Arguments:
        name: one of `figures()`.
        data: where its data lie, as of the option; parts that need them are left out where it is
            None.
    """
    return figures()[name].checked_parts(data)
