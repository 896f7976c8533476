"""The command line run in this process, as a user would see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.files import save_column, save_mechanism
from mezzotint.cli import run


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command line did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)


@pytest.fixture
def invoke(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Runs `mezzotint ARGUMENTS...`."""
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(status=status, out=captured.out, err=captured.err)

    return call


@pytest.fixture
def mechanism_file(tmp_path: Path) -> Path:
    """A saved four-level mechanism on [0, 10]."""
    return save_mechanism(tmp_path)


@pytest.fixture
def column_file(tmp_path: Path) -> Path:
    """1000 values on [0, 10], an id and a text column."""
    return save_column(tmp_path)
