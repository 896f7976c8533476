"""What is said where a library of an extra is missing."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from mezzotint.core import brought_by, on_demand
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


def test_a_room_names_its_extra_where_a_name_needs_a_library_that_is_missing(
    tmp_path: Path,
) -> None:
    """The standard library has no module of that name either; the room's own file says where the name lives."""
    listed = tmp_path / "room.py"
    listed.write_text(
        "if TYPE_CHECKING:\n    from mezzotint_absent.part import name as name\n", encoding="utf-8"
    )
    get, names = on_demand("room", str(listed), extra="flower")
    assert names() == ["name"]
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[flower\]'"):
        get("name")
