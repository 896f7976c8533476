"""Deferred imports, so that `import mezzotint` stays fast although its rooms stand on heavy libraries."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A stand-in that imports the named module when one of its attributes is first read.

    Used where a light module offers a service that needs a heavy one (numba kernels, scipy quadrature).
    """

    def __getattr__(self, attribute: str) -> Any:
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, attribute)
