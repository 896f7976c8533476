"""Deferred imports, so that `import mezzotint` stays fast although its rooms stand on heavy libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from mezzotint.core.errors import MissingExtraError


def on_demand(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are imported when one is first asked for.

    Arguments:
        package: its `__name__`.
        homes: the module of the package in which each public name stands; empty for a module itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name] or name}")
        return getattr(module, name) if homes[name] else module

    return get, lambda: sorted(homes)


class LazyModule(ModuleType):
    """A stand-in that imports the named module when one of its attributes is first read.

    Arguments:
        name: the module. extra: the extra of this package that brings it, for the message where it is missing.

    Used where a light module offers a service that needs a heavy one (numba kernels, scipy quadrature).
    """

    def __init__(self, name: str, *, extra: str = "") -> None:
        super().__init__(name)
        self.__dict__["_extra"] = extra

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = importlib.import_module(self.__name__)
        except ModuleNotFoundError as error:
            if not self._extra:
                raise
            library = self.__name__.split(".")[0]
            remedy = f"pip install 'mezzotint[{self._extra}]'"
            raise MissingExtraError(f"this needs {library}, which comes with an extra: {remedy}") from error
        self.__dict__.update(module.__dict__)
        return getattr(module, attribute)
