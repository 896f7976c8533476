"""A field that holds a number refuses anything else by name, before anything is compared with it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mezzotint as mz
from mezzotint.core.errors import MezzotintError
from mezzotint.core.kinds import checked

PACKAGES = ("collect", "federated", "training", "vectors")
NUMBER_TYPES = {"int", "float", "None"}
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


WRONG: tuple[Any, ...] = ("a", "1", math.nan, True, 10**400, None, [1])
"""No number; `None` may stand for none, where the field says so."""


@pytest.mark.slow  # imports every module of four packages
def test_what_is_no_number_ends_in_an_error_of_the_package() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("flwr")
    cases = _cases()
    assert len(cases) >= 40
    faults: list[str] = []
    for record, values, name in cases:
        types = {field.name: str(field.type) for field in dataclasses.fields(record)}[name]
        fractions = () if "float" in types else (0.5, math.inf)
        for wrong in (*WRONG, *fractions):
            if wrong is None and "None" in types:
                continue
            try:
                record(**{**values, name: wrong})
            except MezzotintError:
                continue
            except Exception as error:
                faults.append(f"{record.__name__}({name}={str(wrong)[:9]}): {error!r}")
            else:
                faults.append(f"{record.__name__}({name}={str(wrong)[:9]}): accepted")
    assert faults == [], "\n".join(faults)


@checked
@dataclasses.dataclass(frozen=True)
class _Counted:
    count: int = 1
    share: float = 0.5
    most: float | None = None


def test_numbers_of_other_libraries_become_plain_ones() -> None:
    """Files and hashes know no other; a number of Python stays as it is, whole or not."""
    record = _Counted(count=np.int64(3), share=np.float32(0.25), most=Fraction(1, 2))
    assert record == _Counted(count=3, share=0.25, most=0.5)
    assert [type(value) for value in dataclasses.astuple(record)] == [int, float, float]
    assert type(_Counted(share=1).share) is int
    assert math.isinf(_Counted(share=math.inf).share)


def test_the_error_names_field_value_and_remedy() -> None:
    facts = {"clients": 10, "dimension": 8, "rounds": 1, "trust": "sum", "delta": 1e-6}
    with pytest.raises(MezzotintError, match="epsilon=a: need a number"):
        mz.vectors.Setting(epsilon="a", **facts)
    with pytest.raises(MezzotintError, match="delta=b: need a number"):
        mz.vectors.Setting(epsilon=1.0, **{**facts, "delta": "b"})
