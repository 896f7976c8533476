"""Deferred imports, so that `import mezzotint` stays fast although its rooms stand on heavy libraries."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mezzotint.core.errors import MissingExtraError


def on_demand(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a package that imports its public names when one is first asked for.

    What there is to import stands once, under `if TYPE_CHECKING:` in the package's file, where type checkers see it.

    Arguments:
        package, file: `__name__` and `__file__` of the package.
    """
    homes = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for branch in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, attribute = homes[name]
        if home == package:  # a module of the package itself
            return importlib.import_module(f"{package}.{attribute}")
        return getattr(importlib.import_module(home), attribute)

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
