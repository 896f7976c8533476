"""Every public name that issues an epsilon, a delta or an interval, found by going through all modules."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import mezzotint

# Rooms that compute. `report`, `cli`, `papers` and `datasets` print what these issue.
ROOMS = (
    "kernel",
    "core",
    "families",
    "privacy",
    "design",
    "vectors",
    "smoothed",
    "collect",
    "training",
    "federated",
)

WORDS = {
    "epsilon", "epsilons", "delta", "deltas", "renyi", "rdp", "claim", "claims", "certify", "certificate", "certified",
    "interval", "low", "high", "kappa", "contraction", "spent", "tradeoff", "bound", "limit", "enclosure", "width",
    "profile", "curve", "curves", "outside",
}  # fmt: skip
"""Parts of names, between underscores, of what is promised."""

PLAIN = {"None", "bool", "str", "bytes", "int", "dict[str, Any]", "dict[str, object]", "Path"}
"""Return types that hold no such number."""

SUBJECTS = {"Mechanism", "IntegerNoise", "PoissonBinomial", "Sums"}
"""What laws are about: whatever makes one is judged by the numbers that it has. `Sums` is what claims are asked about."""


def _modules() -> Iterator[ModuleType]:
    for room in ROOMS:
        if importlib.util.find_spec(f"mezzotint.{room}") is None:
            continue
        package = importlib.import_module(f"mezzotint.{room}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part.startswith("_") for part in found.name.split(".")):
                yield importlib.import_module(found.name)


def _speaks(name: str) -> bool:
    return bool(WORDS & set(re.split(r"_|(?<=\D)(?=\d)", name)))


def _returned(function: Any) -> str:
    return str(inspect.signature(function).return_annotation)


@cache
def _public() -> dict[str, Any]:
    """Dotted name below `mezzotint` -> function or class, where it is defined."""
    found: dict[str, Any] = {}
    for module in _modules():
        for name, value in vars(module).items():
            value = inspect.unwrap(value) if callable(value) else value
            made_here = getattr(value, "__module__", None) == module.__name__
            if (
                made_here
                and not name.startswith("_")
                and (inspect.isfunction(value) or inspect.isclass(value))
            ):
                found[f"{module.__name__}.{name}".removeprefix("mezzotint.")] = value
    return found


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class with their return annotations."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        target = member
        if isinstance(member, property):
            target = member.fget
        elif hasattr(member, "func"):  # a cached property
            target = member.func
        elif isinstance(member, (classmethod, staticmethod)):
            target = member.__func__
        if inspect.isfunction(target):
            yield name, _returned(target)


@cache
def records() -> frozenset[str]:
    """Names of classes that carry such a number as a field, property or method."""
    found = set()
    for name, kind in _public().items():
        if inspect.isclass(kind):
            fields = (
                [field.name for field in dataclasses.fields(kind)]
                if dataclasses.is_dataclass(kind)
                else []
            )
            if any(map(_speaks, [*fields, *(member for member, _ in _members(kind))])):
                found.add(name.rpartition(".")[2])
    return frozenset(found - SUBJECTS)


def _issues(name: str, returned: str) -> bool:
    if returned in PLAIN:
        return False
    return _speaks(name) or bool(records() & set(re.findall(r"\w+", returned)))


@cache
def issuers() -> frozenset[str]:
    """Functions, and methods and properties as `module.Class.name`."""
    found = set()
    for name, value in _public().items():
        if inspect.isclass(value):
            found |= {
                f"{name}.{member}"
                for member, returned in _members(value)
                if _issues(member, returned)
            }
        elif _issues(name.rpartition(".")[2], _returned(value)):
            found.add(name)
    return frozenset(found)


if __name__ == "__main__":
    print(mezzotint.__version__, len(issuers()))
    print("\n".join(sorted(issuers())))
