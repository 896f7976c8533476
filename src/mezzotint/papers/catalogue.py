"""All reproductions by name, what each needs, and the parts by which a stored result is checked."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from mezzotint.core.errors import ParameterError
from mezzotint.papers.reproduction import Part, Reproduction
from mezzotint.papers.simulation import Run

_MODULES = ("optm_tables", "rqm", "rqm_training", "rqp", "smoothed_tables")

DATA = {
    "optm-figure4d": "mnist",
    "rqm-figure4": "femnist",
    "rqm-figure5": "femnist",
    "rqm-figure6": "femnist",
    "rqm-figure11": "cifar10",
    "rqm-tradeoff": "mnist",
    "rqp-bits": "mnist",
    "rqp-figure2": "mnist",
    "rqp-table1": "mnist",
}
"""What the option `data` of a reproduction names: MNIST's four idx files, FEMNIST by writer, CIFAR's images."""

RUN = "run"
"""Parameter of reproductions that take all options as one record."""

OPTIONS = ("data", "model", "rounds", "seeds", "quick", "keep", "device")
"""Options that some reproductions take, in the order of the command line."""


def reproductions() -> dict[str, Callable[..., Reproduction]]:
    """Name -> function, of every table and figure that is recomputed."""
    return dict(sorted(item for module in _modules() for item in module.REPRODUCTIONS.items()))


def _modules() -> list[ModuleType]:
    return [importlib.import_module(f"mezzotint.papers.{name}") for name in _MODULES]


def summary(name: str) -> str:
    """The first line of what a reproduction says about itself."""
    return (inspect.getdoc(reproductions()[name]) or "").partition("\n")[0]


def accepted(name: str) -> tuple[str, ...]:
    """The options that a reproduction takes."""
    parameters = inspect.signature(reproductions()[name]).parameters
    if RUN in parameters:
        return (*OPTIONS, "progress")
    return tuple(option for option in (*OPTIONS, "progress") if option in parameters)


def reproduce(name: str, **options: Any) -> Reproduction:
    """Recomputes a table or figure; an option that is None is left at what the reproduction takes by default.

    Arguments:
        name: one of `reproductions()`.
        options: of `OPTIONS`, and `progress`, called as progress(done, total).

    Raises:
        ParameterError: an unknown name, or an option that this reproduction does not take.
    """
    known = reproductions()
    if name not in known:
        raise ParameterError("name", name, f"use one of: {', '.join(known)}")
    given = {option: value for option, value in options.items() if value is not None}
    taken = accepted(name)
    for option in given:
        if option not in taken:
            words = ", ".join(word for word in taken if word != "progress") or "no options"
            raise ParameterError(option, str(given[option]), f"{name} takes {words}")
    if RUN in inspect.signature(known[name]).parameters:
        return known[name](Run(**given))
    return known[name](**given)


def parts(name: str, data: str | None = None) -> tuple[Part, ...]:
    """The parts of a reproduction, each recomputed by itself; the whole where that is as cheap.

    Arguments:
        data: where its data lie, as of the option; parts that need them are left out where it is None.
    """
    for module in _modules():
        divided: dict[str, Callable[[str | None], tuple[Part, ...]]] = getattr(module, "PARTS", {})
        if name in divided:
            return divided[name](data)
    function = reproductions()[name]
    return (Part(key="all", seconds=3.0, rows=partial(_rows, function), relative=1e-6),)


def _rows(function: Callable[..., Reproduction]) -> tuple[dict[str, object], ...]:
    return function().rows
