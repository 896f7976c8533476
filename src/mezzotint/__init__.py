"""Differentially private randomized quantization: few bits, unbiased, with certificates a machine can check.

Example:
    >>> import mezzotint as mz
    >>> mechanism = mz.families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    >>> mechanism.epsilon <= 1.0
    True
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from mezzotint.core.errors import (
    BudgetError,
    FileFormatError,
    InfeasibleError,
    MezzotintError,
    ParameterError,
    StorageError,
)
from mezzotint.core.mechanism import Mechanism

if TYPE_CHECKING:
    from mezzotint import (
        collect,
        datasets,
        design,
        families,
        federated,
        kernel,
        papers,
        privacy,
        report,
        smoothed,
        training,
        vectors,
    )

__version__ = "0.2.0"

__all__ = [
    "BudgetError",
    "FileFormatError",
    "InfeasibleError",
    "Mechanism",
    "MezzotintError",
    "ParameterError",
    "StorageError",
    "__version__",
    "collect",
    "datasets",
    "design",
    "families",
    "federated",
    "kernel",
    "papers",
    "privacy",
    "report",
    "smoothed",
    "training",
    "vectors",
]


def __getattr__(name: str) -> ModuleType:
    """A subpackage, imported when it is first asked for: some stand on scipy, numba, torch..."""
    if name in __all__:
        return importlib.import_module(f"mezzotint.{name}")
    raise AttributeError(f"module 'mezzotint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
