"""Foundations of every subpackage; deferred imports keep `import mezzotint` fast although the
subpackages are heavy.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext

from mezzotint.core.errors import MissingExtraError
from mezzotint.core.kinds import checked

_IMPORT = re.compile(r"^    from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_LISTED = re.compile(r"(\w+) as (\w+)")
"""An import of names under their own names, on one line or in parentheses."""


def on_demand(
    package: str,
    file: str,
    *,
    extra: str | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a package that imports each public name when it is
    first used.

    The names are listed once, under `if TYPE_CHECKING:` in the package's file, where type checkers
    see them.

    Arguments:
        package, file: `__name__` and `__file__` of the package.
        extra: provides the optional libraries of the package, which an error names if one is
            missing.
    """
    with open(file, encoding="utf-8") as source:
        imports = _IMPORT.findall(source.read())
    origins: dict[str, tuple[str, str]] = {}
    for origin, names in imports:
        for attribute, name in _LISTED.findall(names):
            origins[name] = (origin, attribute)

    def get(name: str) -> object:
        if name == "__all__":  # `from package import *` looks for it
            return sorted(origins)
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin, attribute = origins[name]
        provider = nullcontext() if extra is None else brought_by(extra)
        with provider:
            if origin == package:  # a module of the package itself
                return importlib.import_module(f"{package}.{attribute}")
            public_object = getattr(importlib.import_module(origin), attribute)
        if inspect.isfunction(public_object):
            public_object = checked(public_object)
            public_object.__module__ = package  # where pickle finds it
        setattr(sys.modules[package], name, public_object)  # from now on without this function
        return public_object

    return get, lambda: sorted(origins)


def not_installed(library: str, extra: str) -> str:
    """The sentence about a missing library, with the command that installs the extra that provides
    it.
    """
    return f"{library} is not installed; in the checkout of mezzotint: pip install '.[{extra}]'"


@contextmanager
def brought_by(extra: str) -> Generator[None]:
    """Wraps the import of an optional library; if it is missing, the error names the extra that
    provides it.

    Raises:
        MissingExtraError: the library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or str(error)).split(".")[0]
        raise MissingExtraError(not_installed(library, extra)) from error
