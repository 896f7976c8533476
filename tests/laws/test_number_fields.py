"""A field that holds a number refuses anything else by name, before anything is compared with it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import mezzotint as mz
from mezzotint.core.arguments import NUMBER_TYPES
from mezzotint.core.errors import MezzotintError

PACKAGES = ("collect", "federated", "training", "vectors")
SAMPLES = {"int": 5, "float": 0.5, "str": "text"}
"""Annotation of a required field -> a value for it."""


def _records() -> Iterator[type[Any]]:
    """Public dataclasses that check their fields, and need nothing but numbers and text."""
    for name in PACKAGES:
        package = importlib.import_module(f"mezzotint.{name}")
        for module_info in pkgutil.walk_packages(package.__path__, f"mezzotint.{name}."):
            module = importlib.import_module(module_info.name)
            for record in vars(module).values():
                if not inspect.isclass(record) or record.__module__ != module.__name__:
                    continue
                if dataclasses.is_dataclass(record) and "__post_init__" in vars(record):
                    yield record


def _required(record: type[Any]) -> dict[str, str]:
    missing = dataclasses.MISSING
    fields = [field for field in dataclasses.fields(record) if field.init]
    return {
        field.name: str(field.type)
        for field in fields
        if field.default is missing and field.default_factory is missing
    }


def _cases() -> list[tuple[type[Any], dict[str, Any], str]]:
    cases: list[tuple[type[Any], dict[str, Any], str]] = []
    for record in _records():
        required = _required(record)
        if not set(required.values()) <= SAMPLES.keys():
            continue
        values = {name: SAMPLES[kind] for name, kind in required.items()}
        for field in dataclasses.fields(record):
            if field.init and set(str(field.type).split(" | ")) <= NUMBER_TYPES:
                cases.append((record, values, field.name))
    return cases


@pytest.mark.slow  # imports every module of four packages
def test_text_in_place_of_a_number_ends_in_an_error_of_the_package() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("flwr")
    cases = _cases()
    assert len(cases) >= 40
    for record, values, name in cases:
        try:
            record(**{**values, name: "a"})
        except MezzotintError:
            continue
        except TypeError as error:  # what a user would see as a traceback
            pytest.fail(f"{record.__name__}({name}='a'): {error}")


def test_the_error_names_field_value_and_remedy() -> None:
    facts = {"clients": 10, "dimension": 8, "rounds": 1, "trust": "sum", "delta": 1e-6}
    with pytest.raises(MezzotintError, match="epsilon=a: need a number"):
        mz.vectors.Setting(epsilon="a", **facts)
    with pytest.raises(MezzotintError, match="delta=b: need a number"):
        mz.vectors.Setting(epsilon=1.0, **{**facts, "delta": "b"})
