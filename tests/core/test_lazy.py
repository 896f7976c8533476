"""What is said where a library of an extra is missing."""

from __future__ import annotations

import importlib

import pytest

from mezzotint.core import brought_by
from mezzotint.core.errors import MissingExtraError


def test_a_missing_library_names_the_extra_that_brings_it() -> None:
    said = r"mezzotint_absent is not installed; .*pip install '\.\[report\]'"
    with pytest.raises(MissingExtraError, match=said) as refused, brought_by("report"):
        importlib.import_module("mezzotint_absent.part")
    assert issubclass(MissingExtraError, ImportError)
    assert isinstance(refused.value.__cause__, ModuleNotFoundError)


def test_other_errors_speak_for_themselves() -> None:
    with pytest.raises(ImportError, match="cannot import name"), brought_by("report"):
        from mezzotint.core import absent  # noqa: F401  # type: ignore[attr-defined]
