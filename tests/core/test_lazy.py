"""Modules fetched when first used, and what is said where one is missing."""

from __future__ import annotations

import pytest

from mezzotint.core.errors import MissingExtraError
from mezzotint.core.lazy import LazyModule


def test_a_missing_library_names_the_extra_that_brings_it() -> None:
    absent = LazyModule("mezzotint_absent.part", extra="report")
    with pytest.raises(MissingExtraError, match=r"mezzotint_absent.*pip install 'mezzotint\[report\]'"):
        _ = absent.anything
    assert issubclass(MissingExtraError, ImportError)


def test_without_an_extra_the_interpreter_speaks_for_itself() -> None:
    with pytest.raises(ModuleNotFoundError, match="mezzotint_absent"):
        _ = LazyModule("mezzotint_absent").anything
